//! Loading a file into a table, without a stall, a gap or a half-loaded list.
//!
//! ```text
//! file ── open, unpack ──> rows ── parse, sort, merge ──> table ── staging key, slice by slice ──> swap
//!         source.rs               card-table, threads             stage.rs, under Redis's lock
//! ```
//!
//! A load runs on a thread of its own, one after the other (`queue.rs`). Parsing, sorting and merging happen on further
//! threads at low priority, without Redis. Then the blocks move into a staging key beside the table, a few at a time, so
//! that Redis waits for much less than a millisecond each; replicas and the AOF get them as `CARD.STAGE`. The last step
//! swaps the staged table for the old one, which has answered until then, in one `CARD.COMMIT`. Whenever a replica
//! connects, a snapshot is taken or the power fails, there is one list or the other, whole.
//!
//! A list of changes becomes a patch of the blocks it touches (`change.rs`), which is staged in the same way, and committed
//! in the same way.
//!
//! Files are named by clients, or found in a directory that is watched (`directory.rs`).

mod change;
pub mod directory;
pub mod leftovers;
pub mod load;
pub mod progress;
pub mod queue;
mod source;
mod stage;
mod steps;

pub use load::{Kind, Report, Request};
