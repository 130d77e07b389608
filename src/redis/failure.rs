//! Why a command cannot be carried out, as its client is told.

use card_table::{DecodeError, IdError, SchemaError, ValueError};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum Failure {
    #[error("WRONGTYPE Operation against a key holding the wrong kind of value")]
    WrongType,
    /// Redis names the command itself.
    #[error("ERR wrong number of arguments")]
    Arity,
    #[error("ERR {0}")]
    Id(#[from] IdError),
    #[error("ERR {0}")]
    Value(#[from] ValueError),
    #[error("ERR {0}")]
    Schema(#[from] SchemaError),
    #[error("ERR {0}")]
    Decode(#[from] DecodeError),
    #[error("ERR syntax error, expected {0}")]
    Syntax(&'static str),
    #[error("ERR {0}")]
    Other(&'static str),
    #[error("ERR {0}")]
    Told(String),
}

/// What is told where a panic was caught.
pub const INTERNAL: Failure = Failure::Other("internal error, the reason is in the server's log; please report it");
