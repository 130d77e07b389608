//! The value of a key: a table of cards, whether it may be asked, and where it came from.
//!
//! A table is *staged* while it arrives in pieces, by `CARD.STAGE`; nothing can be asked of it until `CARD.COMMIT`. A table
//! is *ready* from the moment it is committed or first written to. One that was only created is not: an empty list that
//! nobody has filled must not tell a gate that a card is not on it.
//!
//! A table that is ready may have a [`Delta`]: changes that arrive in pieces too, and wait for their commit.

pub mod callbacks;
mod delta;
mod rdb;
mod rewrite;

use std::sync::atomic::{AtomicU64, Ordering};

use card_table::{CheckedFrames, Checker, DecodeError, Decoder, Patch, Schema, Table};

use crate::background;
use crate::metrics::Share;
use crate::redis;
use crate::redis::failure::Failure;
pub use delta::{Delta, Writer};

pub const NOT_STAGED: Failure = Failure::Other("the key holds a table that is not staged");
const NO_PATCH: Failure = Failure::Other("no patch of the table has been begun");

/// How many blocks are freed by whoever replaced them. More than that takes longer than a client should wait.
const FREED_AT_ONCE: usize = 64;

pub struct CardTable {
    content: Content,
    /// When the table became ready, in milliseconds since 1970.
    ready_since: Option<u64>,
    /// The load that it came from.
    load: Option<Load>,
    /// Changes that wait for their commit.
    delta: Option<Box<Delta>>,
    /// No two of this process have the same.
    number: u64,
    share: Share,
}

static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// A number that is higher than all before.
pub fn next_number() -> u64 {
    NUMBERS.fetch_add(1, Ordering::Relaxed)
}

enum Content {
    Staged(Box<Decoder>),
    Table(Table),
}

/// Where a table came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    pub version: Option<u64>,
    /// The name of the file; empty if it was none.
    pub source: Vec<u8>,
    /// The rows in it.
    pub rows: u64,
}

impl CardTable {
    fn new(content: Content, ready_since: Option<u64>, load: Option<Load>) -> CardTable {
        let table =
            CardTable { content, ready_since, load, delta: None, number: next_number(), share: Share::default() };
        table.recount();
        table
    }

    /// An empty table, not ready yet.
    pub fn create(schema: Schema) -> CardTable {
        CardTable::new(Content::Table(Table::new(schema)), None, None)
    }

    /// A table of which nothing has arrived but the header.
    pub fn stage(header: &[u8]) -> Result<CardTable, DecodeError> {
        let decoder = Box::new(Decoder::new(header)?);
        Ok(CardTable::new(Content::Staged(decoder), None, None))
    }

    /// What checks the frames of a staged table.
    pub fn checker(&self) -> Result<Checker, Failure> {
        match &self.content {
            Content::Staged(decoder) => Ok(decoder.checker()),
            Content::Table(_) => Err(NOT_STAGED),
        }
    }

    /// Adds frames to a staged table.
    pub fn add(&mut self, frames: CheckedFrames) -> Result<(), Failure> {
        self.staged()?.take(frames)?;
        self.recount();
        Ok(())
    }

    fn staged(&mut self) -> Result<&mut Decoder, Failure> {
        match &mut self.content {
            Content::Staged(decoder) => Ok(decoder),
            Content::Table(_) => Err(NOT_STAGED),
        }
    }

    /// A staged table that has arrived, as a table that is ready; an error if it has not arrived whole.
    pub fn commit(&mut self, ready_since: u64, load: Option<Load>) -> Result<CardTable, Failure> {
        self.staged()?.check_complete()?;
        let Content::Staged(decoder) = self.take().content else { unreachable!("it has just been looked at") };
        Ok(CardTable::new(Content::Table(decoder.finish()?), Some(ready_since), load))
    }

    /// Begins to change the table, which is ready, by a patch; drops one that was begun before.
    pub fn begin_patch(&mut self) -> Result<&mut Delta, Failure> {
        if self.ready().is_none() {
            return Err(Failure::Other("the table is not ready, so there is nothing to change"));
        }
        let patch = Patch::new(self.arrived().schema());
        let delta = self.delta.insert(Box::new(Delta::new(patch)));
        Ok(delta)
    }

    /// Checks a piece of a patch that comes from outside.
    pub fn check_patch(&self, piece: &[u8]) -> Result<Patch, Failure> {
        self.delta.as_ref().ok_or(NO_PATCH)?;
        Ok(self.table()?.check_patch(piece)?)
    }

    /// Adds a piece to the patch.
    pub fn add_patch(&mut self, piece: Patch) -> Result<(), Failure> {
        let delta = self.delta.as_mut().ok_or(NO_PATCH)?;
        delta.patch.append(piece).map_err(DecodeError::from)?;
        self.recount();
        Ok(())
    }

    /// Puts the patch into the table.
    pub fn commit_patch(&mut self, ready_since: u64, load: Option<Load>) -> Result<(), Failure> {
        let Content::Table(table) = &mut self.content else { return Err(NOT_STAGED) };
        let replaced = table.patch(self.delta.take().ok_or(NOT_STAGED)?.patch);
        if replaced.len() > FREED_AT_ONCE {
            background::free(replaced);
        }
        self.ready_since = Some(ready_since);
        self.load = load;
        self.recount();
        Ok(())
    }

    /// Drops the patch, if there is one; tells whether there was.
    pub fn discard_patch(&mut self) -> bool {
        let dropped = self.delta.take().is_some();
        self.recount();
        dropped
    }

    /// The table and the changes that wait for it.
    pub fn with_delta(&mut self) -> Option<(&Table, &mut Delta)> {
        match (&self.content, &mut self.delta) {
            (Content::Table(table), Some(delta)) => Some((table, delta)),
            _ => None,
        }
    }

    pub fn delta(&self) -> Option<&Delta> {
        self.delta.as_deref()
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    /// Frees the table in the background, if it is large, and leaves an empty one.
    pub fn free(&mut self) {
        if self.arrived().blocks() > FREED_AT_ONCE {
            background::free(self.take());
        }
    }

    /// Takes the table and leaves an empty one.
    pub fn take(&mut self) -> CardTable {
        std::mem::replace(self, CardTable::create(Schema::default()))
    }

    /// The table, to ask it or about it.
    pub fn table(&self) -> Result<&Table, Failure> {
        match &self.content {
            Content::Table(table) => Ok(table),
            Content::Staged(_) => Err(Failure::Other("the table is staged and not committed yet")),
        }
    }

    /// What there is of the table, whether it is staged or not.
    pub fn arrived(&self) -> &Table {
        match &self.content {
            Content::Table(table) => table,
            Content::Staged(decoder) => decoder.table(),
        }
    }

    /// The digest of the table; of a staged one, the digest that it will have.
    pub fn digest(&self) -> u128 {
        match &self.content {
            Content::Table(table) => table.digest(),
            Content::Staged(decoder) => decoder.digest(),
        }
    }

    pub fn is_staged(&self) -> bool {
        matches!(self.content, Content::Staged(_))
    }

    /// The table if it is ready, and since when.
    pub fn ready(&self) -> Option<(&Table, u64)> {
        self.table().ok().zip(self.ready_since)
    }

    pub fn load(&self) -> Option<&Load> {
        self.load.as_ref()
    }

    /// Changes the table, which is ready from then on.
    pub fn write<T>(&mut self, change: impl FnOnce(&mut Writer) -> T) -> Result<T, Failure> {
        self.table()?;
        let Content::Table(table) = &mut self.content else { unreachable!("it is not staged") };
        let result = change(&mut Writer { table, delta: self.delta.as_deref_mut(), changed: false });
        self.ready_since.get_or_insert_with(redis::now);
        self.recount();
        Ok(result)
    }

    /// What it takes on the heap.
    pub fn bytes(&self) -> usize {
        let decoder = if self.is_staged() { size_of::<Decoder>() } else { 0 };
        let source = self.load.as_ref().map_or(0, |load| load.source.capacity());
        let delta = self.delta.as_ref().map_or(0, |delta| delta.bytes());
        size_of::<CardTable>() + decoder + source + delta + self.arrived().memory().total()
    }

    fn recount(&self) {
        let (records, bytes) = (self.arrived().len(), self.bytes() as u64);
        self.share.update(records, bytes);
    }

    /// Lets the allocator move blocks; see [`Table::relocate_blocks`].
    fn relocate_blocks(
        &mut self,
        from: usize,
        relocate: impl FnMut(Box<[u8]>) -> Box<[u8]>,
        enough: impl FnMut() -> bool,
    ) -> Option<usize> {
        match &mut self.content {
            Content::Table(table) => table.relocate_blocks(from, relocate, enough),
            // It will not be staged for long.
            Content::Staged(_) => None,
        }
    }
}

impl Clone for CardTable {
    fn clone(&self) -> CardTable {
        let content = match &self.content {
            Content::Staged(decoder) => Content::Staged(decoder.clone()),
            Content::Table(table) => Content::Table(table.clone()),
        };
        // Changes that wait are the load's that brings them, and that knows one table only.
        CardTable::new(content, self.ready_since, self.load.clone())
    }
}
