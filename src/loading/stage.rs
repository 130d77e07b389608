//! Moves a table that was built into Redis: block by block into a staging key, and then at once into its place.

use std::thread;
use std::time::Duration;

use card_table::Table;

use super::load::{LoadError, Request, staging_key};
use super::progress::{Phase, Progress};
use crate::cardtable::{CardTable, Load};
use crate::commands::{UNLINK, add, begin, commit};
use crate::redis;
use crate::redis::call::Call;
use crate::redis::key::Key;
use crate::redis::thread::{Context, Locked};

/// What is moved under one lock: Redis waits for it well under a millisecond.
const PIECE_BYTES: usize = 256 << 10;

/// Redis gets this long for others between two pieces.
const PAUSE: Duration = Duration::from_micros(200);

/// How much may wait to be sent to a replica, below the limit of 256 MB at which Redis would cut it off.
const MAX_BYTES_BEHIND: u64 = 32 << 20;

/// How often that is looked at, in pieces.
const LOOK_EVERY: usize = 16;

/// How long to wait for replicas, or until Redis may replicate again.
const WAIT: Duration = Duration::from_millis(2);

/// Puts a table in the place of what its key holds.
pub fn replace(
    request: &Request,
    table: Table,
    load: Load,
    progress: &Progress,
    context: &mut Context,
) -> Result<(), LoadError> {
    let is_cluster = context.locked(request.database, Locked::is_cluster);
    let (staging, in_slot) = staging_key(&request.key);
    if is_cluster && !in_slot {
        return Err(LoadError::NoStagingKey);
    }
    let mut stage = Stage { request, staging: &staging, progress, context };
    let outcome = stage.fill(table).and_then(|()| stage.commit(load));
    if outcome.is_err() {
        stage.clean_up();
    }
    outcome
}

struct Stage<'a> {
    request: &'a Request,
    staging: &'a [u8],
    progress: &'a Progress,
    context: &'a mut Context,
}

impl Stage<'_> {
    fn fill(&mut self, table: Table) -> Result<(), LoadError> {
        self.progress.enter(Phase::Staging, table.blocks() as u64);
        let header = table.header_bytes();
        // One that is left over from a load that was interrupted is replaced.
        self.step(|call| begin(call, call.argument(0), &header).map_err(|_| LoadError::StagingKeyTaken))?;
        let mut done = 0;
        for (at, piece) in table.into_pieces(PIECE_BYTES).enumerate() {
            let frames = piece.to_bytes();
            done += piece.len() as u64;
            if at % LOOK_EVERY == 0 {
                self.wait_for_replicas()?;
            }
            let add = |call: &Call| add(call, call.argument(0), piece, &frames);
            self.step(|call| add(call).map_err(|_| LoadError::StagingKeyTaken))?;
            self.progress.set_done(done);
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn commit(&mut self, load: Load) -> Result<(), LoadError> {
        let request = self.request;
        self.step(|call| {
            if let Some(table) = Key::read(call, call.argument(1)).get()? {
                request.check_newer(table)?;
            }
            Ok(commit(call, call.argument(0), call.argument(1), redis::now(), Some(load))?)
        })
    }

    /// Runs a step under Redis's lock, with the staging key and the table's as arguments, when it may replicate.
    fn step<T>(&mut self, step: impl FnOnce(&Call) -> Result<T, LoadError>) -> Result<T, LoadError> {
        let mut step = Some(step);
        loop {
            if self.progress.is_cancelled() {
                return Err(LoadError::Cancelled);
            }
            let (staging, key) = (self.staging, &self.request.key);
            let taken = self.context.locked(self.request.database, |redis| {
                if redis.avoids_replica_traffic() || redis.is_loading() {
                    return None;
                }
                if !redis.is_primary() {
                    return Some(Err(LoadError::NotPrimary));
                }
                let step = step.take().expect("it is run once");
                Some(redis.call(&[staging, key], step))
            });
            if let Some(result) = taken {
                return result;
            }
            thread::sleep(WAIT);
        }
    }

    fn wait_for_replicas(&mut self) -> Result<(), LoadError> {
        while self.context.locked(self.request.database, Locked::most_bytes_behind) > MAX_BYTES_BEHIND {
            if self.progress.is_cancelled() {
                return Err(LoadError::Cancelled);
            }
            thread::sleep(WAIT);
        }
        Ok(())
    }

    /// Removes what was staged, if it is still ours to remove.
    fn clean_up(&mut self) {
        let staging = self.staging;
        self.context.locked(self.request.database, |redis| {
            // What cannot be removed now, the next load of the table replaces.
            if redis.avoids_replica_traffic() || !redis.is_primary() {
                return;
            }
            redis.call(&[staging], |call| {
                let mut key = Key::write(call, call.argument(0));
                if key.get().is_ok_and(|table| table.is_some_and(CardTable::is_staged)) {
                    key.unlink();
                    call.changed(call.argument(0), c"del");
                    call.replicate_as(UNLINK, &[staging]);
                }
            });
        });
    }
}
