//! The watched directory: lists that are dropped into `card.load-dir` are loaded by themselves.
//!
//! ```text
//! blacklist:0.201708031.full.tsv     the list blacklist:0, in version 201708031 (also .tsv.gz, .tsv.zst)
//! blacklist:0.201708032.delta.tsv    changes that make it version 201708032
//! done/                              what was loaded
//! failed/                            what could not be, each with a file .err that tells why
//! ```
//!
//! A thread looks every `card.watch-interval` seconds, and takes a file when its size and time have stood still for that
//! long. Files are loaded in the order of their versions, into database 0, and only by a primary: a replica that is
//! promoted goes on where the old primary was. A crash may lose a list that was loaded but not saved; its file is in
//! `done/` then, and what is there that is newer than the table that came back is loaded again, first of all. Until that has
//! happened the table is served and called stale.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, mpsc};
use std::time::{Duration, Instant, SystemTime};
use std::{fs, io, thread};

use super::Report;
use super::load::{Kind, LoadError, Request};
use super::{leftovers, queue};
use crate::config;
use crate::redis::key::Key;
use crate::redis::thread::Context;
use crate::redis::{guarded, note, raw, warn};

/// How often the thread looks whether it should look.
const TICK: Duration = Duration::from_millis(200);

/// Tables are those of this database.
const DATABASE: i32 = 0;

const DONE: &str = "done";
const FAILED: &str = "failed";

/// Whether what came back at the start, or at a promotion, has been compared with `done/`.
static COMPARED: AtomicBool = AtomicBool::new(false);

/// Tables of which `done/` has something newer that could not be loaded again.
static BEHIND: Mutex<BTreeSet<Vec<u8>>> = Mutex::new(BTreeSet::new());

fn behind() -> MutexGuard<'static, BTreeSet<Vec<u8>>> {
    BEHIND.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Whether a newer list than the one that a primary serves may be in `done/`, not loaded again yet.
pub fn may_be_stale(database: i32, table: &[u8]) -> bool {
    let is_watched = database == DATABASE && config::watch_interval().is_some() && !config::load_dir().is_empty();
    is_watched && (!COMPARED.load(Ordering::Relaxed) || behind().contains(table))
}

/// Is called when a table has been loaded.
pub fn is_loaded(database: i32, table: &[u8]) {
    if database == DATABASE {
        behind().remove(table);
    }
}

/// Is called when the module is loaded.
pub fn prepare(ctx: *mut raw::RedisModuleCtx) -> Result<(), String> {
    let context = Context::detached(ctx);
    let watch = move || Watch::new(context).run();
    let started = thread::Builder::new().name("card-watch".into()).spawn(watch);
    started.map(drop).map_err(|error| format!("the thread that watches the directory cannot be started: {error}"))
}

/// A file whose name says what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Delivery {
    table: Vec<u8>,
    version: u64,
    kind: Kind,
    name: OsString,
}

impl Delivery {
    /// Reads a name from the right, as the name of a table may have dots.
    fn parse(name: &[u8]) -> Option<Delivery> {
        if name.starts_with(b".") {
            return None;
        }
        let unpacked = name.strip_suffix(b".gz").or(name.strip_suffix(b".zst")).unwrap_or(name);
        let (stem, kind) = match (unpacked.strip_suffix(b".full.tsv"), unpacked.strip_suffix(b".delta.tsv")) {
            (Some(stem), _) => (stem, Kind::Full),
            (_, Some(stem)) => (stem, Kind::Delta),
            _ => return None,
        };
        let dot = stem.iter().rposition(|&byte| byte == b'.')?;
        let (table, version) = (&stem[..dot], &stem[dot + 1..]);
        if table.is_empty() || version.is_empty() || !version.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let version = str::from_utf8(version).ok()?.parse().ok().filter(|&version| version < u64::MAX)?;
        Some(Delivery { table: table.to_vec(), version, kind, name: OsString::from_vec(name.to_vec()) })
    }
}

/// What a file looked like: if it looks the same twice, nobody is writing to it.
type Looks = (u64, SystemTime);

struct Watch {
    context: Context,
    seen: HashMap<OsString, Looks>,
    looked: Option<Instant>,
}

impl Watch {
    fn new(context: Context) -> Watch {
        Watch { context, seen: HashMap::new(), looked: None }
    }

    fn run(mut self) {
        loop {
            thread::sleep(TICK);
            guarded("dropping what is left over", || leftovers::drop_all(&mut self.context));
            let directory = config::load_dir();
            if let (Some(interval), false) = (config::watch_interval(), directory.is_empty()) {
                guarded("watching the directory", || self.tick(Path::new(&directory), interval));
            }
        }
    }

    fn tick(&mut self, directory: &Path, interval: Duration) {
        let acts = self.context.locked(DATABASE, |redis| redis.is_primary() && !redis.is_loading());
        if !acts {
            // What it has as a replica, and then as a primary, is another matter.
            COMPARED.store(false, Ordering::Relaxed);
            behind().clear();
            self.seen.clear();
            return;
        }
        if !COMPARED.load(Ordering::Relaxed) {
            self.load_again(directory);
            COMPARED.store(true, Ordering::Relaxed);
        }
        if self.looked.is_none_or(|looked| looked.elapsed() >= interval) {
            if let Err(error) = self.look(directory) {
                warn(&format!("cannot look into {}: {error}", directory.display()));
            }
            self.looked = Some(Instant::now());
        }
    }

    /// Loads what is in `done/` and newer than the tables that are there.
    fn load_again(&mut self, directory: &Path) {
        let Ok(deliveries) = list(&directory.join(DONE)) else { return };
        let mut of_table = BTreeMap::<_, Vec<_>>::new();
        for (delivery, _) in deliveries {
            of_table.entry(delivery.table.clone()).or_default().push(delivery);
        }
        for (table, deliveries) in of_table {
            for delivery in missing(deliveries, self.loaded_version(&table)) {
                note(&format!("{} was loaded before, but is not there: loading it again", delivery.name.display()));
                // Why it fails, if it does, is in the log. Changes that follow would be changes to something else.
                if load(&delivery, Some(DONE)).is_err() {
                    behind().insert(table.clone());
                    break;
                }
            }
        }
    }

    fn loaded_version(&mut self, table: &[u8]) -> Option<u64> {
        self.context.locked(DATABASE, |redis| {
            redis.call(&[table], |call| {
                let key = Key::read(call, call.argument(0));
                key.get().ok().flatten().and_then(|table| table.load()?.version)
            })
        })
    }

    /// Loads what has been there, unchanged, since the last look.
    fn look(&mut self, directory: &Path) -> io::Result<()> {
        let deliveries = list(directory)?;
        let now: HashMap<_, _> = deliveries.iter().map(|(delivery, looks)| (delivery.name.clone(), *looks)).collect();
        let before = std::mem::replace(&mut self.seen, now);
        for (delivery, looks) in deliveries {
            if before.get(&delivery.name) == Some(&looks) && !self.take(directory, &delivery) {
                break;
            }
        }
        Ok(())
    }

    /// Loads a file and puts it away; tells whether to go on with the next.
    fn take(&mut self, directory: &Path, delivery: &Delivery) -> bool {
        let (folder, reason) = match load(delivery, None) {
            Ok(_) => (DONE, None),
            // Nothing is wrong with the file: it will be looked at again.
            Err(LoadError::NotPrimary | LoadError::Busy | LoadError::NoThread) => return false,
            Err(error) => (FAILED, Some(error.to_string())),
        };
        if let Err(error) = put_away(directory, &delivery.name, folder, reason.as_deref()) {
            warn(&format!("cannot move {} to {folder}/: {error}", delivery.name.display()));
        }
        true
    }
}

/// Those deliveries of a table, in order, that lead from the version that is loaded to the last one.
fn missing(mut deliveries: Vec<Delivery>, loaded: Option<u64>) -> Vec<Delivery> {
    deliveries.retain(|delivery| loaded.is_none_or(|loaded| delivery.version > loaded));
    // A full list makes all before it superfluous.
    let newest = deliveries.iter().rposition(|delivery| delivery.kind == Kind::Full);
    match (newest, loaded) {
        (Some(newest), _) => deliveries.split_off(newest),
        (None, Some(_)) => deliveries,
        (None, None) => Vec::new(),
    }
}

/// The deliveries in a directory, in the order in which they are loaded.
fn list(directory: &Path) -> io::Result<Vec<(Delivery, Looks)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let Some(delivery) = Delivery::parse(entry.file_name().as_bytes()) else { continue };
        // What has just been taken away by somebody is none of ours.
        let Ok(metadata) = entry.metadata() else { continue };
        if let Ok(modified) = metadata.modified() {
            found.push((delivery, (metadata.len(), modified)));
        }
    }
    fn place(delivery: &Delivery) -> (u64, Kind, &[u8], &OsString) {
        (delivery.version, delivery.kind, &delivery.table, &delivery.name)
    }
    found.sort_by(|(a, _), (b, _)| place(a).cmp(&place(b)));
    Ok(found)
}

/// Loads a file of the directory, or of a folder in it, and waits for the outcome.
fn load(delivery: &Delivery, folder: Option<&str>) -> Result<Report, LoadError> {
    let name = Path::new(folder.unwrap_or("")).join(&delivery.name);
    let request = Request {
        database: DATABASE,
        key: delivery.table.clone(),
        file: name.into_os_string().into_vec(),
        kind: delivery.kind,
        version: Some(delivery.version),
        newer_only: true,
    };
    let (sender, receiver) = mpsc::channel();
    queue::add(
        request,
        Box::new(move |outcome| {
            // Fails only if nobody waits any more.
            let _ = sender.send(outcome);
        }),
    );
    receiver.recv().unwrap_or(Err(LoadError::Internal))
}

/// Moves a file into a folder beside it, and writes the reason there, if there is one.
fn put_away(directory: &Path, name: &OsString, folder: &str, reason: Option<&str>) -> io::Result<()> {
    let folder = directory.join(folder);
    fs::create_dir_all(&folder)?;
    if let Some(reason) = reason {
        let mut beside = name.clone();
        beside.push(".err");
        fs::write(folder.join(beside), format!("{reason}\n"))?;
    }
    fs::rename(directory.join(name), folder.join(name))
}

#[cfg(test)]
mod tests {
    use super::{Delivery, Kind, missing};

    fn parse(name: &str) -> Option<(String, u64)> {
        let delivery = Delivery::parse(name.as_bytes())?;
        Some((String::from_utf8(delivery.table).unwrap(), delivery.version))
    }

    #[test]
    fn a_name_is_read_from_the_right() {
        assert_eq!(parse("blacklist:0.201708031.full.tsv"), Some(("blacklist:0".into(), 201708031)));
        assert_eq!(parse("a.b.c.007.full.tsv.gz"), Some(("a.b.c".into(), 7)));
        assert_eq!(parse("t.1.full.tsv.zst"), Some(("t".into(), 1)));
        assert_eq!(parse("t.1.2.full.tsv"), Some(("t.1".into(), 2)));
    }

    #[test]
    fn a_name_tells_a_list_from_changes() {
        let kind = |name: &str| Delivery::parse(name.as_bytes()).unwrap().kind;
        assert_eq!(kind("t.1.full.tsv.gz"), Kind::Full);
        assert_eq!(kind("t.1.delta.tsv"), Kind::Delta);
        assert_eq!(kind("t.full.2.delta.tsv.zst"), Kind::Delta);
    }

    #[test]
    fn what_is_missing_leads_from_what_is_loaded_to_the_last_version() {
        let names = ["t.1.full.tsv", "t.2.delta.tsv", "t.3.full.tsv", "t.4.delta.tsv", "t.5.delta.tsv"];
        let missing = |names: &[&str], loaded| -> Vec<u64> {
            let deliveries = names.iter().map(|name| Delivery::parse(name.as_bytes()).unwrap()).collect();
            missing(deliveries, loaded).iter().map(|delivery| delivery.version).collect()
        };
        assert_eq!(missing(&names, None), [3, 4, 5]);
        assert_eq!(missing(&names, Some(1)), [3, 4, 5]);
        assert_eq!(missing(&names, Some(3)), [4, 5]);
        assert_eq!(missing(&names, Some(5)), [0; 0]);
        assert_eq!(missing(&names[3..], Some(4)), [5]);
        assert_eq!(missing(&names[3..], None), [0; 0], "changes to nothing");
    }

    #[test]
    fn other_names_are_ignored() {
        for name in [
            ".t.1.full.tsv",
            "t.1.full.tsv.tmp",
            "t.1.full.tsv.part",
            "t.full.tsv",
            ".1.full.tsv",
            "t..full.tsv",
            "t.x.full.tsv",
            "t.-1.full.tsv",
            "t.18446744073709551616.full.tsv",
            "t.1.full.csv",
            "t.1.tsv",
            "t.1.delta.tsv.part",
            "t.1.full.gz",
            "",
        ] {
            assert_eq!(parse(name), None, "{name}");
        }
    }
}
