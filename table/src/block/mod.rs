//! A block: a short sorted run of records of one class, in about 4096 bytes.
//!
//! Two kinds of block share one life: [`Numbers`] for the classes whose ids are numbers, [`Texts`] for the rest. Both
//! begin with their record count and end with the column of [`crate::symbols`]; what lies between is theirs. A block is
//! written whole from [`Records`] and never refers to anything outside itself, so it travels as it is: to disk, to a
//! replica, into another table.

mod insert;
mod number;
mod segments;
mod text;

use std::cmp::Ordering;
use std::ops::Range;

use crate::bits;
use crate::corrupt::{Corrupt, ensure};
use crate::id::{Class, Id};

pub(crate) use number::Numbers;
pub(crate) use text::Texts;

/// What a block is filled up to: a size class of the allocator, and a page, so that a find meets one TLB miss.
pub(crate) const BLOCK_BYTES: usize = 4096;

/// No block is longer: one text of 4096 bytes may exceed [`BLOCK_BYTES`], by its header.
pub(crate) const MAX_BLOCK_BYTES: usize = 5120;

/// Bounds the work that one block can cause, however well its records compress.
pub(crate) const MAX_RECORDS: usize = 8192;

/// The records of one block, or of a few, taken out of their coding.
#[derive(Clone)]
pub(crate) struct Records<K: Kind> {
    pub ids: K::Column,
    pub symbols: Vec<u128>,
}

impl<K: Kind> Default for Records<K> {
    fn default() -> Self {
        Records { ids: K::Column::default(), symbols: Vec::new() }
    }
}

impl<K: Kind> Records<K> {
    pub fn len(&self) -> usize {
        self.symbols.len()
    }

    pub fn push(&mut self, id: &K::Id, symbol: u128) {
        self.ids.push(id);
        self.symbols.push(symbol);
    }

    pub fn clear(&mut self) {
        self.ids.clear();
        self.symbols.clear();
    }

    pub fn insert(&mut self, at: usize, id: &K::Id, symbol: u128) {
        self.ids.insert(at, id);
        self.symbols.insert(at, symbol);
    }

    pub fn remove(&mut self, at: usize) {
        self.ids.remove(at);
        self.symbols.remove(at);
    }

    /// Forgets all but the first `count` records.
    pub fn truncate(&mut self, count: usize) {
        self.ids.truncate(count);
        self.symbols.truncate(count);
    }

    /// The records with changes, which ascend, made to them; every change is told with the symbols before and after.
    pub fn merge<'a>(
        &self,
        changes: impl Iterator<Item = (&'a K::Id, Option<u128>)>,
        mut told: impl FnMut(&'a K::Id, Option<u128>, Option<u128>),
    ) -> Records<K>
    where
        K: 'a,
    {
        let mut merged = Records::default();
        let mut kept = 0;
        for (id, after) in changes {
            while kept < self.len() && self.ids.at(kept) < id {
                merged.push(self.ids.at(kept), self.symbols[kept]);
                kept += 1;
            }
            let before = (kept < self.len() && self.ids.at(kept) == id).then(|| self.symbols[kept]);
            kept += usize::from(before.is_some());
            if let Some(symbol) = after {
                merged.push(id, symbol);
            }
            told(id, before, after);
        }
        (kept..self.len()).for_each(|rank| merged.push(self.ids.at(rank), self.symbols[rank]));
        merged
    }

    /// Forgets the first `count` records.
    pub fn drop_front(&mut self, count: usize) {
        self.ids.drop_front(count);
        self.symbols.drain(..count);
    }

    /// How many ids are below `id`, and whether the next is `id` itself.
    pub fn search(&self, id: &K::Id) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.ids.at(middle).cmp(id) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Ok(middle),
                Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }
}

/// A sequence of ids.
pub(crate) trait Column: Default + Clone + Send + Sync {
    type Id: ?Sized;
    fn at(&self, at: usize) -> &Self::Id;
    fn push(&mut self, id: &Self::Id);
    fn insert(&mut self, at: usize, id: &Self::Id);
    fn remove(&mut self, at: usize);
    fn truncate(&mut self, count: usize);
    fn drop_front(&mut self, count: usize);
    fn clear(&mut self);
}

/// How the blocks of one class are written and read.
pub(crate) trait Kind: Copy + Send + Sync {
    type Id: ?Sized + Ord + ToOwned<Owned: Default + PartialEq + Send + Sync> + Sync;
    type Column: Column<Id = Self::Id>;

    /// Whether different ids have different keys.
    const KEYS_ARE_EXACT: bool;

    fn class(self) -> Class;

    fn id(self, id: &Self::Id) -> Id<'_>;

    /// What is behind an id of this class; nothing if it is of another.
    fn own<'a>(self, id: &'a Id<'_>) -> Option<&'a Self::Id>;

    /// A number that orders ids as they are ordered; different ids may share one.
    fn key(id: &Self::Id) -> u128;

    /// Writes the records from `from` on, as many as fit a block and at least one, and tells how many.
    /// There are symbols for all of them up to `to`.
    fn encode(self, records: &Records<Self>, from: usize, to: usize, out: &mut Vec<u8>) -> usize
    where
        Self: Sized;

    /// Appends the block's records.
    fn decode(self, block: &[u8], out: &mut Records<Self>)
    where
        Self: Sized;

    /// The symbol stored with an id.
    fn get(self, block: &[u8], id: &Self::Id) -> Option<u128>;

    /// Inserts an id that is not in the block, in place, if that can be done; tells whether it was.
    fn insert_into(self, block: &mut [u8], id: &Self::Id, symbol: u128) -> bool;

    /// Changes the symbol of an id that is in the block, in place, if that can be done; tells whether it was.
    fn overwrite(self, block: &mut [u8], id: &Self::Id, symbol: u128) -> bool;

    /// The block's first id.
    fn first(self, block: &[u8]) -> <Self::Id as ToOwned>::Owned;

    /// How the block's first id compares with `id`.
    fn compare_first(self, block: &[u8], id: &Self::Id) -> Ordering;

    /// The key of the block's first id.
    fn first_key(self, block: &[u8]) -> u128;

    /// Between which parts of the block's length its ids lie, ascending: where to look for one before the header is read.
    fn ids_part(self, block: &[u8]) -> Range<f32>;

    /// The block's length, without what its allocation has beyond.
    fn used(self, block: &[u8]) -> usize;

    /// Whether the bytes can be taken for a block: all lengths, widths and symbols agree with each other. The ids
    /// themselves are for [`check`] to judge.
    fn check_structure(self, block: &[u8]) -> Result<(), Corrupt>;

    /// Whether the id is one of this class.
    fn admits(self, id: &Self::Id) -> bool;
}

/// The records in a block.
pub(crate) fn count(block: &[u8]) -> usize {
    bits::get_u16(block, 0)
}

/// Checks bytes from outside. If they are a block whose ids ascend and belong to the class, its records are appended to
/// `records`.
pub(crate) fn check<K: Kind>(kind: K, block: &[u8], records: &mut Records<K>) -> Result<(), Corrupt> {
    ensure(block.len() <= MAX_BLOCK_BYTES, "a block has at most 5120 bytes")?;
    ensure((1..=MAX_RECORDS).contains(&count(block)), "a block has 1 to 8192 records")?;
    kind.check_structure(block)?;
    let from = records.len();
    kind.decode(block, records);
    let ids = &records.ids;
    ensure((from + 1..records.len()).all(|at| ids.at(at - 1) < ids.at(at)), "ids ascend")?;
    ensure((from..records.len()).all(|at| kind.admits(ids.at(at))), "ids belong to their class")
}
