//! The value of a key: a table of cards, whether it may be asked, and where it came from.
//!
//! A table is *staged* while it arrives in pieces, by `CARD.STAGE`; nothing can be asked of it until `CARD.COMMIT`. A table
//! is *ready* from the moment it is committed or first written to. One that was only created is not: an empty list that
//! nobody has filled must not tell a gate that a card is not on it.

pub mod callbacks;
mod rdb;
mod rewrite;

use card_table::{CheckedFrames, Checker, DecodeError, Decoder, Schema, Table};

use crate::metrics::Share;
use crate::redis;
use crate::redis::failure::Failure;

pub const NOT_STAGED: Failure = Failure::Other("the key holds a table that is not staged");

pub struct CardTable {
    content: Content,
    /// When the table became ready, in milliseconds since 1970.
    ready_since: Option<u64>,
    /// The load that it came from.
    load: Option<Load>,
    share: Share,
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
        let table = CardTable { content, ready_since, load, share: Share::default() };
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
    pub fn write<T>(&mut self, change: impl FnOnce(&mut Table) -> T) -> Result<T, Failure> {
        self.table()?;
        let Content::Table(table) = &mut self.content else { unreachable!("it is not staged") };
        let result = change(table);
        self.ready_since.get_or_insert_with(redis::now);
        self.recount();
        Ok(result)
    }

    /// What it takes on the heap.
    pub fn bytes(&self) -> usize {
        let decoder = if self.is_staged() { size_of::<Decoder>() } else { 0 };
        let source = self.load.as_ref().map_or(0, |load| load.source.capacity());
        size_of::<CardTable>() + decoder + source + self.arrived().memory().total()
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
        CardTable::new(content, self.ready_since, self.load.clone())
    }
}
