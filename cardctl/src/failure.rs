//! What can go wrong: a sentence for people, and an exit code that tells a script what kind it was.

use std::io;
use std::path::Path;

use redis::RedisError;
use thiserror::Error;

/// Shown by `--help`.
pub const EXIT_CODES: &str = "\
Exit codes:
  0    all is well
  1    it is not: check found problems, verify a difference, get a card that is not on the list,
       export a table that changed meanwhile
  2    the command line is wrong
  3    Redis cannot be reached, or refused
  4    a file cannot be read or written, or is not a good list
  130  interrupted; what was begun has been removed
  141  whoever read the output has gone";

#[derive(Debug, Error)]
pub enum Failure {
    #[error("{0}")]
    Usage(String),
    #[error("cannot reach Redis at {address}: {error}")]
    Unreachable { address: String, error: RedisError },
    #[error("Redis at {address}: {reason}")]
    Refused { address: String, reason: String },
    #[error("the connection to Redis at {address} broke: {error}")]
    Broken { address: String, error: RedisError },
    #[error("the table {0} changed while it was exported: try again")]
    Changed(String),
    #[error("{file}: {reason}")]
    File { file: String, reason: String },
    #[error("nobody reads the output any more")]
    NobodyReads,
}

impl Failure {
    pub fn usage(reason: impl ToString) -> Failure {
        Failure::Usage(reason.to_string())
    }

    pub fn file(path: &Path, reason: impl ToString) -> Failure {
        Failure::File { file: path.display().to_string(), reason: reason.to_string() }
    }

    pub fn stdout(error: &io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::NobodyReads,
            _ => Failure::File { file: "the standard output".into(), reason: error.to_string() },
        }
    }

    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Changed(_) => 1,
            Failure::Usage(_) => 2,
            Failure::Unreachable { .. } | Failure::Refused { .. } | Failure::Broken { .. } => 3,
            Failure::File { .. } => 4,
            // What a shell says of a program that a broken pipe has ended.
            Failure::NobodyReads => 141,
        }
    }
}
