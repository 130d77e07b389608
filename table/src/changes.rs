//! A sorted batch of changes, applied in one pass over the blocks that it touches, by way of a [patch](crate::patch).

use std::ops::AddAssign;

use crate::block::{self, Column, Kind, Numbers, Records, Texts};
use crate::digest;
use crate::id::Id;
use crate::patch::Patch;
use crate::schema::Schema;
use crate::table::Table;

/// Cards to set and cards to remove, each id once, made by a [`Builder`](crate::Builder).
#[derive(Debug)]
pub struct Changes {
    schema: Schema,
    /// Ascending by class; the blocks of each ascend.
    pub(crate) numbers: Vec<(Numbers, Vec<Box<[u8]>>)>,
    pub(crate) texts: Vec<Box<[u8]>>,
}

/// What changes did to a table.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    pub added: u64,
    /// Cards that were there with another symbol.
    pub changed: u64,
    pub removed: u64,
    /// Cards that already were as they should be: set to the same symbol, or removed and not there.
    pub unchanged: u64,
}

impl Applied {
    /// How many cards are not as they were.
    pub(crate) fn all(&self) -> u64 {
        self.added + self.changed + self.removed
    }
}

impl AddAssign for Applied {
    fn add_assign(&mut self, more: Applied) {
        self.added += more.added;
        self.changed += more.changed;
        self.removed += more.removed;
        self.unchanged += more.unchanged;
    }
}

/// A card and its new symbol; without one, it is to be removed.
pub type Change = (Id<'static>, Option<u128>);

impl Changes {
    pub(crate) fn new(schema: &Schema) -> Changes {
        Changes { schema: schema.clone(), numbers: Vec::new(), texts: Vec::new() }
    }

    /// How many there are.
    pub fn len(&self) -> u64 {
        let blocks = self.numbers.iter().flat_map(|(_, blocks)| blocks).chain(&self.texts);
        blocks.map(|block| block::count(block) as u64).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of them, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Change> {
        let texts = Texts::new(self.schema.removal());
        let numbers = self.numbers.iter().flat_map(|(kind, blocks)| self.decoded(*kind, blocks));
        numbers.chain(self.decoded(texts, &self.texts))
    }

    fn decoded<K: Kind>(&self, kind: K, blocks: &[Box<[u8]>]) -> impl Iterator<Item = Change> {
        let removal = self.schema.removal();
        blocks.iter().flat_map(move |block| {
            let mut records = Records::default();
            kind.decode(block, &mut records);
            (0..records.len()).map(move |rank| {
                let symbol = records.symbols[rank];
                (kind.id(records.ids.at(rank)).into_owned(), (symbol != removal).then_some(symbol))
            })
        })
    }
}

/// How many changes are applied in one go, and how many blocks they may touch.
const CHANGES_AT_ONCE: usize = 8192;
const BLOCKS_AT_ONCE: usize = 1024;

impl Table {
    /// Applies changes that were made for this table's schema; others are a bug of the caller and panic.
    pub fn apply(&mut self, changes: &Changes) -> Applied {
        assert_eq!(self.schema, changes.schema, "changes are made for the table's schema");
        let mut applied = Applied::default();
        let mut rest = changes.iter().peekable();
        let mut some = Vec::new();
        loop {
            some.extend(rest.by_ref().take(CHANGES_AT_ONCE - some.len()));
            if some.is_empty() {
                return applied;
            }
            let excerpt = self.excerpt(&Patch::new(&self.schema), &some, rest.peek().map(|(id, _)| id), BLOCKS_AT_ONCE);
            let taken = excerpt.changes;
            let (patch, more) = excerpt.apply(&some);
            self.patch(patch);
            applied += more;
            some.drain(..taken);
        }
    }
}

/// What changes have come to so far.
#[derive(Default)]
pub(crate) struct Effect {
    /// What they add to a table's digest.
    pub digest: u128,
    pub applied: Applied,
}

impl Effect {
    pub fn count(&mut self, id: &Id, before: Option<u128>, after: Option<u128>) {
        if let Some(symbol) = before {
            self.digest = self.digest.wrapping_sub(digest::of_record(id, symbol));
        }
        if let Some(symbol) = after {
            self.digest = self.digest.wrapping_add(digest::of_record(id, symbol));
        }
        match (before, after) {
            (None, Some(_)) => self.applied.added += 1,
            (Some(before), Some(after)) if before != after => self.applied.changed += 1,
            (Some(_), None) => self.applied.removed += 1,
            _ => self.applied.unchanged += 1,
        }
    }
}
