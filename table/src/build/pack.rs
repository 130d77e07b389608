//! Writes ascending records as blocks, each as full as can be.

use crate::block::{Kind, MAX_BLOCK_BYTES, MAX_RECORDS, Numbers, Records, Texts};
use crate::digest;
use crate::heap;
use crate::id::Class;
use crate::schema::Schema;

/// What blocks are written for.
#[derive(Clone, Copy)]
pub(super) struct Goal {
    highest_symbol: u128,
    /// The symbol whose records are left out.
    left_out: Option<u128>,
}

impl Goal {
    /// Cards and their symbols; cards that are removed are left out.
    pub fn table(schema: &Schema) -> Goal {
        Goal { highest_symbol: schema.highest_symbol(), left_out: Some(schema.removal()) }
    }

    /// Rows as they are, removals included.
    pub fn changes(schema: &Schema) -> Goal {
        Goal { highest_symbol: schema.removal(), left_out: None }
    }

    /// The same, but with removals kept.
    pub fn with_removals(self) -> Goal {
        Goal { left_out: None, ..self }
    }

    pub fn numbers(self, class: Class) -> Numbers {
        Numbers::new(class, self.highest_symbol)
    }

    pub fn texts(self) -> Texts {
        Texts::new(self.highest_symbol)
    }
}

/// Blocks, and what was found out while they were written.
#[derive(Default)]
pub(super) struct Written {
    pub blocks: Vec<Box<[u8]>>,
    /// What the records add to a table's digest.
    pub digest: u128,
    /// Rows that were not written because a later one has the same id.
    pub overridden: u64,
}

impl Written {
    /// Appends what was written of higher ids.
    pub fn append(&mut self, mut next: Written) {
        self.blocks.append(&mut next.blocks);
        self.digest = self.digest.wrapping_add(next.digest);
        self.overridden += next.overridden;
    }
}

pub(super) struct Packer<K: Kind> {
    kind: K,
    goal: Goal,
    records: Records<K>,
    bytes: Vec<u8>,
    written: Written,
}

impl<K: Kind> Packer<K> {
    pub fn new(kind: K, goal: Goal) -> Self {
        let bytes = Vec::with_capacity(MAX_BLOCK_BYTES);
        Packer { kind, goal, records: Records::default(), bytes, written: Written::default() }
    }

    #[inline]
    pub fn push(&mut self, id: &K::Id, symbol: u128) {
        if let Some(removal) = self.goal.left_out {
            if symbol == removal {
                return;
            }
            let digest = digest::of_record(&self.kind.id(id), symbol);
            self.written.digest = self.written.digest.wrapping_add(digest);
        }
        self.records.push(id, symbol);
        // A block is planned over the next `MAX_RECORDS` records, so keep at least so many until the end.
        if self.records.len() == 4 * MAX_RECORDS {
            self.write(MAX_RECORDS);
        }
    }

    /// A row that a later one overrides.
    #[inline]
    pub fn skip(&mut self) {
        self.written.overridden += 1;
    }

    /// Writes blocks until at most `kept` records are left.
    fn write(&mut self, kept: usize) {
        let mut from = 0;
        while self.records.len() - from > kept {
            self.bytes.clear();
            from += self.kind.encode(&self.records, from, self.records.len(), &mut self.bytes);
            self.written.blocks.push(heap::boxed(&self.bytes));
        }
        self.records.drop_front(from);
    }

    pub fn finish(mut self) -> Written {
        self.write(0);
        self.written
    }
}
