//! The steps of a load under Redis's lock: each is short, and is made only when Redis may write and replicate.

use std::thread;
use std::time::Duration;

use super::load::{LoadError, Request};
use super::progress::Progress;
use crate::redis::call::Call;
use crate::redis::thread::{Context, Locked};

/// Redis gets this long for others between two steps.
const PAUSE: Duration = Duration::from_micros(200);

/// How much may wait to be sent to a replica, below the limit of 256 MB at which Redis would cut it off.
const MAX_BYTES_BEHIND: u64 = 32 << 20;

/// How much may wait to be written to the AOF. Redis writes nothing while the disk is busy with what it wrote before, and
/// then everything at once.
const MAX_BYTES_UNWRITTEN: u64 = 16 << 20;

/// How many bytes are sent before either is looked at.
const LOOK_EVERY: usize = 4 << 20;

/// How long to wait for replicas, or until Redis may replicate again.
const WAIT: Duration = Duration::from_millis(2);

pub struct Steps<'a> {
    request: &'a Request,
    /// What the steps are about: their arguments.
    keys: Vec<&'a [u8]>,
    progress: &'a Progress,
    context: &'a mut Context,
    /// Bytes sent since receivers were looked at.
    sent: usize,
}

impl<'a> Steps<'a> {
    pub fn new(
        request: &'a Request,
        keys: Vec<&'a [u8]>,
        progress: &'a Progress,
        context: &'a mut Context,
    ) -> Steps<'a> {
        // They are looked at before anything is sent.
        Steps { request, keys, progress, context, sent: LOOK_EVERY }
    }

    pub fn progress(&self) -> &'a Progress {
        self.progress
    }

    /// Runs a step, with the keys as arguments.
    pub fn step<T>(&mut self, step: impl FnOnce(&Call) -> Result<T, LoadError>) -> Result<T, LoadError> {
        let mut step = Some(step);
        loop {
            if self.progress.is_cancelled() {
                return Err(LoadError::Cancelled);
            }
            let taken = self.context.locked(self.request.database, |redis| {
                if redis.avoids_replica_traffic() || redis.is_loading() {
                    return None;
                }
                if !redis.is_primary() {
                    return Some(Err(LoadError::NotPrimary));
                }
                let step = step.take().expect("it is run once");
                Some(redis.call(&self.keys, step))
            });
            if let Some(result) = taken {
                return result;
            }
            thread::sleep(WAIT);
        }
    }

    /// Runs a step that sends so many bytes, when replicas and the AOF have received most of what was sent before, and then
    /// lets others have their turn.
    pub fn send<T>(&mut self, bytes: usize, step: impl FnOnce(&Call) -> Result<T, LoadError>) -> Result<T, LoadError> {
        if self.sent >= LOOK_EVERY {
            self.wait_for_receivers()?;
            self.sent = 0;
        }
        self.sent += bytes;
        let result = self.step(step)?;
        thread::sleep(PAUSE);
        Ok(result)
    }

    fn wait_for_receivers(&mut self) -> Result<(), LoadError> {
        let are_behind = |redis: &Locked| {
            redis.most_bytes_behind() > MAX_BYTES_BEHIND
                || redis.info_number(c"persistence", c"aof_buffer_length").is_some_and(|len| len > MAX_BYTES_UNWRITTEN)
        };
        while self.context.locked(self.request.database, are_behind) {
            if self.progress.is_cancelled() {
                return Err(LoadError::Cancelled);
            }
            thread::sleep(WAIT);
        }
        Ok(())
    }

    /// Runs a last step after one has failed, if Redis may write now.
    pub fn clean_up(&mut self, step: impl FnOnce(&Call)) {
        self.context.locked(self.request.database, |redis| {
            if !redis.avoids_replica_traffic() && redis.is_primary() {
                redis.call(&self.keys, step);
            }
        });
    }
}
