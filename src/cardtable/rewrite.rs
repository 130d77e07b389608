//! A table in an AOF without RDB preamble: as the commands that make it.

use super::{CardTable, Content};
use crate::commands::{COMMIT, CREATE, STAGE};
use crate::redis::file::Aof;

/// What one command carries. Small enough that a client is not kept waiting for long when it is replayed or replicated.
pub const FRAMES_BYTES: usize = 256 << 10;

impl CardTable {
    pub(super) fn rewrite(&self, aof: &Aof) {
        if let (Content::Table(table), None) = (&self.content, self.ready_since) {
            let numbers: Vec<_> =
                table.schema().fields().iter().map(|field| (field.min.to_string(), field.max.to_string())).collect();
            let fields = table.schema().fields().iter().zip(&numbers);
            let arguments: Vec<&[u8]> = fields
                .flat_map(|(field, (min, max))| [b"FIELD", field.name.as_bytes(), min.as_bytes(), max.as_bytes()])
                .collect();
            return aof.put(CREATE, &arguments);
        }
        aof.put(STAGE, &[b"BEGIN", &self.header()]);
        self.arrived().frames(FRAMES_BYTES).for_each(|frames| aof.put(STAGE, &[b"FRAMES", &frames]));
        if let Some(since) = self.ready_since {
            let options = crate::commands::commit_options(since, self.load());
            let mut arguments = vec![aof.key()];
            arguments.extend(options.iter().map(Vec::as_slice));
            aof.put(COMMIT, &arguments);
        }
    }
}
