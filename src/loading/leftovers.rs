//! What loads have left behind that were cut off: staged tables and patches from before a start, or a promotion, are dropped,
//! and patches whose table was renamed while its load ran, so that the load has lost it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use crate::cardtable;
use crate::commands::{UNLINK, discard_patch};
use crate::redis::call::Call;
use crate::redis::events;
use crate::redis::key::Key;
use crate::redis::thread::{Context, Scan};
use crate::redis::{note, raw};

/// How many steps of a scan are made under one lock.
const STEPS_AT_ONCE: usize = 256;

/// What has a lower number is left over; nothing, if it is 0.
static LEFT_BEFORE: AtomicU64 = AtomicU64::new(0);

/// The numbers of patches that loads have lost.
static LOST: Mutex<Vec<u64>> = Mutex::new(Vec::new());

/// Is called when the module is loaded.
pub fn prepare(ctx: *mut raw::RedisModuleCtx) -> Result<(), String> {
    events::when_it_starts_anew(ctx, || LEFT_BEFORE.store(cardtable::next_number(), Ordering::Relaxed))
}

/// Has a patch dropped, wherever it is.
pub fn lose(number: u64) {
    lost().push(number);
}

fn lost() -> MutexGuard<'static, Vec<u64>> {
    LOST.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Drops what is left over, if the server may write.
pub fn drop_all(context: &mut Context) {
    let before = LEFT_BEFORE.load(Ordering::Relaxed);
    let numbers = lost().clone();
    if before == 0 && numbers.is_empty() {
        return;
    }
    let mut database = 0;
    let mut scan = Scan::new();
    loop {
        let step = context.locked(database, |redis| {
            if !redis.select(database) {
                return Step::Done;
            }
            if !redis.is_primary() || redis.is_loading() || redis.avoids_replica_traffic() {
                return Step::Later;
            }
            let mut names = Vec::new();
            let mut more = true;
            for _ in 0..STEPS_AT_ONCE {
                more = more && redis.scan(&mut scan, |name| names.push(name.to_vec()));
            }
            names.iter().for_each(|name| redis.call(&[name], |call| drop_one(call, before, &numbers)));
            if more { Step::Again } else { Step::Next }
        });
        match step {
            Step::Again => {}
            Step::Next => {
                database += 1;
                scan = Scan::new();
            }
            Step::Later => return,
            // Another start or promotion meanwhile has a number of its own.
            Step::Done => {
                let _ = LEFT_BEFORE.compare_exchange(before, 0, Ordering::Relaxed, Ordering::Relaxed);
                lost().retain(|number| !numbers.contains(number));
                return;
            }
        }
    }
}

enum Step {
    Again,
    Next,
    Later,
    /// All databases have been looked at.
    Done,
}

fn drop_one(call: &Call, before: u64, lost: &[u64]) {
    let name = call.argument(0);
    let mut key = Key::write(call, name);
    let Ok(Some(table)) = key.get() else { return };
    if table.is_staged() && table.number() < before {
        note(&format!("{} is left over from a load: dropped", name.bytes().escape_ascii()));
        key.unlink();
        call.changed(name, c"del");
        call.replicate_as(UNLINK, &[name.bytes()]);
    } else if table.delta().is_some_and(|delta| delta.number < before || lost.contains(&delta.number)) {
        note(&format!("changes to {} are left over from a load: dropped", name.bytes().escape_ascii()));
        drop(key);
        // It is a table, as has just been seen.
        let _ = discard_patch(call, name);
    }
}
