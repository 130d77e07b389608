//! An exact, sorted, compressed table from card ids to small values.
//!
//! A table answers one question: is this card on the list, and with which values? It keeps a hundred million cards at
//! about 4.8 bytes each, a few percent above what information theory allows, and never mistakes one card for
//! another: ids are stored exactly, nothing is hashed on the way to a record.
//!
//! ```
//! use card_table::{Id, Inserted, Schema, Table};
//!
//! let mut list = Table::new(Schema::default()); // type 0..10, status 1..2
//! let card = Id::parse(b"44015186100181001473")?;
//! assert_eq!(list.insert(&card, list.schema().pack(&[7, 1])?), Inserted::New);
//!
//! assert_eq!(list.get(&card).map(|symbol| list.schema().unpack(symbol)), Some(vec![7, 1]));
//! assert_eq!(list.get(&Id::parse(b"44012030230000000002")?), None);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How it works
//!
//! | | |
//! |---|---|
//! | [`id`] | an id's spelling decides its class; in most classes it becomes a number, without loss |
//! | [`schema`] | the values beside an id become one number, the record's *symbol* |
//! | `symbols` | a block's symbols, several packed into a word |
//! | `block` | a sorted run of records in about 4096 bytes: Elias–Fano for numbers, front coding for text |
//! | `directory` | ascending blocks, and the two-level index that finds the one of an id |
//! | `run` | all records of a class: finds, changes, walks |
//! | [`table`] | a run for each class; `get`, `insert`, `remove`, iteration, digest, memory |
//! | [`tsv`] | reads parameter files, row by row, and tells exactly what is wrong with a bad one |
//! | [`build`] | many rows at once: parsed, sorted and merged on several threads in bounded memory |
//! | [`changes`] | a sorted batch of changes, applied in one pass |
//! | [`patch`] | changes to a table that must not wait for them: prepared beside it, put in place at once |
//! | [`bytes`] | the format on disk and on the wire, and the one decoder for bytes from outside |
//!
//! The crate knows nothing of Redis and does no input or output beyond `Read` and `Write`.

mod bits;
mod block;
pub mod build;
pub mod bytes;
pub mod changes;
mod corrupt;
mod cpu;
mod digest;
mod directory;
pub mod heap;
pub mod id;
pub mod patch;
mod run;
pub mod schema;
mod symbols;
pub mod table;
pub mod tsv;

pub use build::{BuildError, Builder, Built, Progress};
pub use bytes::{CheckedFrames, Checker, DecodeError, Decoder};
pub use changes::{Applied, Change, Changes};
pub use corrupt::Corrupt;
pub use id::{Class, Id, IdError};
pub use patch::{Excerpt, Patch};
pub use run::Inserted;
pub use schema::{Field, Schema, SchemaError, ValueError};
pub use table::{ClassStats, Memory, Table};
