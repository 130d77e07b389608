//! A table as the commands that make it: in an AOF without RDB preamble, and where replicas need more than the command
//! that a client sent.

use std::ffi::CStr;

use super::{CardTable, Content};
use crate::commands::{COMMIT, CREATE, STAGE, commit_options};

/// What one command carries. Small enough that a client is not kept waiting for long when it is replayed or replicated.
const FRAMES_BYTES: usize = 256 << 10;

impl CardTable {
    /// Hands over the commands that make this table in the key `name`, and their arguments.
    pub fn as_commands(&self, name: &[u8], mut put: impl FnMut(&CStr, &[&[u8]])) {
        if let (Content::Table(table), None) = (&self.content, self.ready_since) {
            let fields = table.schema().fields();
            let bounds: Vec<_> = fields.iter().map(|field| (field.min.to_string(), field.max.to_string())).collect();
            let mut arguments = vec![name];
            for (field, (min, max)) in fields.iter().zip(&bounds) {
                arguments.extend([b"FIELD", field.name.as_bytes(), min.as_bytes(), max.as_bytes()]);
            }
            return put(CREATE, &arguments);
        }
        put(STAGE, &[name, b"BEGIN", &self.header()]);
        self.arrived().frames(FRAMES_BYTES).for_each(|frames| put(STAGE, &[name, b"FRAMES", &frames]));
        if let Some(since) = self.ready_since {
            let options = commit_options(since, self.load());
            let arguments: Vec<_> = [name, name].into_iter().chain(options.iter().map(Vec::as_slice)).collect();
            put(COMMIT, &arguments);
        }
        if let Some(delta) = self.delta() {
            put(STAGE, &[name, b"PATCH", b""]);
            delta.patch.pieces(FRAMES_BYTES).for_each(|piece| put(STAGE, &[name, b"PATCH", &piece]));
        }
    }
}
