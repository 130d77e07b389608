//! Changes a table that answers meanwhile: prepares a patch, some blocks at a time, and then puts it into the table at once.
//!
//! Blocks are copied under the lock, changed without it, and staged under it again. Who writes to one of them in between
//! is not overruled: the step is made again. See `cardtable/delta.rs` for what becomes of all other writes.

use card_table::{Applied, Change, Changes, Id, Patch, Schema};

use super::leftovers;
use super::load::{LoadError, Request};
use super::progress::{Phase, Progress};
use super::steps::Steps;
use crate::cardtable::{CardTable, Load};
use crate::commands::{add_patch, begin_patch, commit, discard_patch};
use crate::redis;
use crate::redis::call::Call;
use crate::redis::key::Key;
use crate::redis::thread::Context;

/// How many changes, and blocks that they touch, are prepared at a time. To copy so many blocks, or to send them, takes
/// well under a millisecond.
const CHANGES_AT_ONCE: usize = 8192;
const BLOCKS_AT_ONCE: usize = 64;

/// How many blocks are changed under the lock, where writes to them come so thick that they could not be changed without.
const LOCKED_BLOCKS: usize = 4;

/// A patch that has been begun.
pub struct Changing<'a> {
    steps: Steps<'a>,
    request: &'a Request,
    /// The number of the patch.
    number: u64,
}

impl<'a> Changing<'a> {
    /// Begins a patch of the request's table, which has this schema. What is written to the table from now on overrules it.
    pub fn begin(
        request: &'a Request,
        schema: &Schema,
        progress: &'a Progress,
        context: &'a mut Context,
    ) -> Result<Changing<'a>, LoadError> {
        let mut steps = Steps::new(request, vec![&request.key], progress, context);
        let number = steps.step(|call| {
            let name = call.argument(0);
            // By now it may be another table than the one that was looked at.
            let found = Key::read(call, name).get()?.map(|table| table.arrived().schema() == schema);
            if found != Some(true) {
                return Err(LoadError::TableGone);
            }
            let number = begin_patch(call, name, |delta| {
                delta.keep_journal();
                delta.number
            })?;
            Ok(number)
        })?;
        Ok(Changing { steps, request, number })
    }

    /// Makes changes, all at once.
    pub fn make(&mut self, changes: &Changes, load: Load) -> Result<Applied, LoadError> {
        self.steps.progress().enter(Phase::Staging, changes.len());
        let mut applied = Applied::default();
        let mut done = 0;
        let mut rest = changes.iter().peekable();
        let mut some = Vec::new();
        loop {
            some.extend(rest.by_ref().take(CHANGES_AT_ONCE - some.len()));
            if some.is_empty() {
                break;
            }
            let before = some.len();
            applied += self.stage(&mut some, rest.peek().map(|(id, _)| id))?;
            done += (before - some.len()) as u64;
            self.steps.progress().set_done(done);
        }
        let (number, request) = (self.number, self.request);
        self.steps.step(|call| {
            let name = call.argument(0);
            own(&mut Key::write(call, name), number, |table| request.check_newer(table))??;
            Ok(commit(call, name, name, redis::now(), Some(load))?)
        })?;
        Ok(applied)
    }

    /// Stages the first of some changes, which are taken away. `next` is the change that follows all of them.
    fn stage(&mut self, changes: &mut Vec<Change>, next: Option<&Id<'static>>) -> Result<Applied, LoadError> {
        let number = self.number;
        let excerpt = self.steps.step(|call| {
            own(&mut Key::write(call, call.argument(0)), number, |table| {
                let (table, delta) = table.with_delta().expect("it has one");
                delta.leave_out_written(changes);
                table.excerpt(&delta.patch, changes, next, BLOCKS_AT_ONCE)
            })
        })?;
        let taken = excerpt.changes;
        if taken == 0 {
            return Ok(Applied::default());
        }
        let (piece, applied) = excerpt.apply(changes);
        let bytes = piece.to_bytes();
        let last = changes[taken - 1].0.clone();
        let is_staged = self.steps.send(bytes.len(), |call| add(call, number, piece, &bytes, &last))?;
        if is_staged {
            changes.drain(..taken);
            return Ok(applied);
        }
        self.stage_locked(changes, next)
    }

    /// The same in one step under the lock.
    fn stage_locked(&mut self, changes: &mut Vec<Change>, next: Option<&Id<'static>>) -> Result<Applied, LoadError> {
        let number = self.number;
        self.steps.send(LOCKED_BLOCKS * 4096, |call| {
            let mut key = Key::write(call, call.argument(0));
            let excerpt = own(&mut key, number, |table| {
                let (table, delta) = table.with_delta().expect("it has one");
                delta.leave_out_written(changes);
                table.excerpt(&delta.patch, changes, next, LOCKED_BLOCKS)
            })?;
            drop(key);
            let taken = excerpt.changes;
            let Some((last, _)) = taken.checked_sub(1).map(|last| changes[last].clone()) else {
                return Ok(Applied::default());
            };
            let (piece, applied) = excerpt.apply(changes);
            let bytes = piece.to_bytes();
            assert!(add(call, number, piece, &bytes, &last)?, "nobody writes meanwhile");
            changes.drain(..taken);
            Ok(applied)
        })
    }

    /// Drops what was staged, if it is still there.
    pub fn give_up(mut self) {
        let number = self.number;
        let mut is_dropped = false;
        self.steps.clean_up(|call| {
            let is_ours = own(&mut Key::write(call, call.argument(0)), number, |_| ()).is_ok();
            is_dropped = is_ours && discard_patch(call, call.argument(0)).is_ok();
        });
        if !is_dropped {
            leftovers::lose(number);
        }
    }
}

/// Adds a piece, which is these bytes, up to the change of `last`; tells whether it was, or has been overtaken by writes.
fn add(call: &Call, number: u64, piece: Patch, bytes: &[u8], last: &Id<'static>) -> Result<bool, LoadError> {
    let is_outdated = own(&mut Key::write(call, call.argument(0)), number, |table| {
        let (_, delta) = table.with_delta().expect("it has one");
        let is_outdated = delta.is_outdated(&piece);
        if !is_outdated {
            delta.is_done_up_to(last);
        }
        is_outdated
    })?;
    if !is_outdated && !bytes.is_empty() {
        add_patch(call, call.argument(0), piece, bytes)?;
    }
    Ok(!is_outdated)
}

/// Runs something with the table that has the patch of this number: the key may hold another by now.
fn own<T>(key: &mut Key, number: u64, run: impl FnOnce(&mut CardTable) -> T) -> Result<T, LoadError> {
    let table = key.get_mut().map_err(|_| LoadError::TableGone)?.ok_or(LoadError::TableGone)?;
    match table.delta() {
        Some(delta) if delta.number == number => Ok(run(table)),
        _ => Err(LoadError::TableGone),
    }
}
