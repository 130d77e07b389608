//! Writes ascending records as blocks, each as full as can be.

use crate::block::{Kind, MAX_BLOCK_BYTES, MAX_RECORDS, Records};
use crate::heap;

pub(super) struct Packer<K: Kind> {
    kind: K,
    records: Records<K>,
    bytes: Vec<u8>,
    pub blocks: Vec<Box<[u8]>>,
}

impl<K: Kind> Packer<K> {
    pub fn new(kind: K) -> Self {
        Packer { kind, records: Records::default(), bytes: Vec::with_capacity(MAX_BLOCK_BYTES), blocks: Vec::new() }
    }

    #[inline]
    pub fn push(&mut self, id: &K::Id, symbol: u128) {
        self.records.push(id, symbol);
        // A block is planned over the next `MAX_RECORDS` records, so keep at least so many until the end.
        if self.records.len() == 2 * MAX_RECORDS {
            self.write(MAX_RECORDS);
        }
    }

    /// Writes blocks until fewer than `kept` records are left.
    fn write(&mut self, kept: usize) {
        let mut from = 0;
        while self.records.len() - from > kept {
            self.bytes.clear();
            from += self.kind.encode(&self.records, from, self.records.len(), &mut self.bytes);
            self.blocks.push(heap::boxed(&self.bytes));
        }
        self.records.drop_front(from);
    }

    pub fn finish(mut self) -> Vec<Box<[u8]>> {
        self.write(0);
        self.blocks
    }
}
