//! Moves a table that was built into Redis: block by block into a staging key, and then at once into its place.

use card_table::Table;

use super::load::{LoadError, Request, staging_key};
use super::progress::{Phase, Progress};
use super::steps::Steps;
use crate::cardtable::{CardTable, Load};
use crate::commands::{UNLINK, add, begin, commit};
use crate::redis;
use crate::redis::call::Call;
use crate::redis::key::Key;
use crate::redis::thread::{Context, Locked};

/// What is moved under one lock: Redis waits for it well under a millisecond.
const PIECE_BYTES: usize = 256 << 10;

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
    let mut steps = Steps::new(request, vec![&staging, &request.key], progress, context);
    let outcome = fill(&mut steps, table).and_then(|()| swap(&mut steps, request, load));
    if outcome.is_err() {
        // What cannot be removed now, the next load of the table replaces.
        steps.clean_up(|call| {
            let mut key = Key::write(call, call.argument(0));
            if key.get().is_ok_and(|table| table.is_some_and(CardTable::is_staged)) {
                key.unlink();
                call.changed(call.argument(0), c"del");
                call.replicate_as(UNLINK, &[call.argument(0).bytes()]);
            }
        });
    }
    outcome
}

fn fill(steps: &mut Steps, table: Table) -> Result<(), LoadError> {
    steps.progress().enter(Phase::Staging, table.blocks() as u64);
    let header = table.header_bytes();
    // One that is left over from a load that was interrupted is replaced.
    steps.step(|call| begin(call, call.argument(0), &header).map_err(|_| LoadError::StagingKeyTaken))?;
    let mut done = 0;
    for piece in table.into_pieces(PIECE_BYTES) {
        let frames = piece.to_bytes();
        done += piece.len() as u64;
        let add = |call: &Call| add(call, call.argument(0), piece, &frames);
        steps.send(frames.len(), |call| add(call).map_err(|_| LoadError::StagingKeyTaken))?;
        steps.progress().set_done(done);
    }
    Ok(())
}

fn swap(steps: &mut Steps, request: &Request, load: Load) -> Result<(), LoadError> {
    steps.step(|call| {
        if let Some(table) = Key::read(call, call.argument(1)).get()? {
            request.check_newer(table)?;
        }
        Ok(commit(call, call.argument(0), call.argument(1), redis::now(), Some(load))?)
    })
}
