//! A sorted batch of changes, and applying it in one pass over the blocks it touches.

use crate::block::{Kind, Numbers, Records, Texts};
use crate::digest;
use crate::id::Id;
use crate::run::Run;
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

impl Changes {
    pub(crate) fn new(schema: &Schema) -> Changes {
        Changes { schema: schema.clone(), numbers: Vec::new(), texts: Vec::new() }
    }
}

impl Table {
    /// Applies changes that were made for this table's schema; others are a bug of the caller and panic.
    pub fn apply(&mut self, changes: &Changes) -> Applied {
        assert_eq!(self.schema, changes.schema, "changes are made for the table's schema");
        let mut effect =
            Effect { removal: self.schema.removal(), digest: self.records_digest, applied: Applied::default() };
        for (kind, blocks) in &changes.numbers {
            effect.apply(self.run_mut(kind.class()), *kind, blocks);
        }
        effect.apply(&mut self.texts, Texts::new(self.schema.removal()), &changes.texts);
        self.records_digest = effect.digest;
        self.numbers.retain(|run| run.len() > 0);
        effect.applied
    }
}

/// What changes have come to so far.
struct Effect {
    removal: u128,
    digest: u128,
    applied: Applied,
}

impl Effect {
    fn apply<K: Kind>(&mut self, run: &mut Run<K>, kind: K, blocks: &[Box<[u8]>]) {
        let removal = self.removal;
        let mut records = Records::default();
        for block in blocks {
            records.clear();
            kind.decode(block, &mut records);
            run.apply(
                &records,
                |symbol| symbol == removal,
                |id, before, after| self.count(&kind.id(id), before, after),
            );
        }
    }

    fn count(&mut self, id: &Id, before: Option<u128>, after: Option<u128>) {
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
