//! What a table takes, as the allocator sees it, beside the least that any table could take.

use card_table::{Memory, Table};

use crate::measure::freed_by_dropping;
use crate::report::{Target, fixed, grouped};

/// How far the table's own accounting may be from the allocator's.
pub const MAX_DISAGREEMENT: f64 = 0.005;

pub struct Size {
    records: u64,
    /// What the allocator counted.
    freed: u64,
    /// What the table itself says.
    memory: Memory,
    /// The blocks without what their allocations have beyond.
    payload: usize,
    limit: f64,
}

pub const HEAD: [&str; 11] =
    ["set", "records", "B/record", "payload", "slack", "directory", "memory()", "limit", "ratio", "target", ""];

impl Size {
    /// Measures a table by dropping it; `limit` is in bytes.
    pub fn of(table: Table, limit: f64) -> Size {
        Size {
            records: table.len(),
            memory: table.memory(),
            payload: table.block_bytes().map(|(_, block)| block.len()).sum(),
            limit,
            freed: freed_by_dropping(table),
        }
    }

    pub fn ratio(&self) -> f64 {
        self.freed as f64 / self.limit
    }

    pub fn disagreement(&self) -> f64 {
        (self.memory.total() as f64 / self.freed as f64 - 1.0).abs()
    }

    pub fn cells(&self, name: String, target: Option<&Target>) -> Vec<String> {
        let each = |bytes: f64| fixed(bytes / self.records as f64);
        vec![
            name,
            grouped(self.records),
            each(self.freed as f64),
            each(self.payload as f64),
            each((self.memory.blocks - self.payload) as f64),
            each(self.memory.directory as f64),
            each(self.memory.total() as f64),
            each(self.limit),
            fixed(self.ratio()),
            target.map_or("–".into(), Target::wanted),
            target.map_or("", Target::verdict).into(),
        ]
    }
}
