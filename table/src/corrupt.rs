//! What is wrong with bytes that claim to be a block or a table.

use thiserror::Error;

/// Bytes from outside that break a rule of the format; says which.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("corrupt table: it does not hold that {rule}")]
pub struct Corrupt {
    rule: &'static str,
}

pub(crate) fn broken(rule: &'static str) -> Corrupt {
    Corrupt { rule }
}

/// The rule holds, or the bytes are corrupt.
#[inline]
pub(crate) fn ensure(holds: bool, rule: &'static str) -> Result<(), Corrupt> {
    if holds { Ok(()) } else { Err(broken(rule)) }
}
