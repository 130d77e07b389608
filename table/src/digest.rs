//! A fingerprint of a table's content that is kept up to date with every change.
//!
//! The digest is the wrapping sum of one XXH3-128 a record, plus one of the schema. It does not depend on the order of
//! changes or on how blocks are cut, so a primary, its replica and the file they came from agree. It tells accidents
//! apart; it is not made to withstand someone who looks for two tables with the same digest.

use xxhash_rust::xxh3::{xxh3_128, xxh3_128_with_seed};

use crate::id::Id;
use crate::schema::Schema;

/// What a record adds to the sum: a hash of its number and its symbol, seeded with its class. 32 bytes are the most
/// that XXH3 hashes in one round.
#[inline]
pub(crate) fn of_record(id: &Id, symbol: u128) -> u128 {
    let number = match id {
        Id::Number(_, number) => *number,
        Id::Text(bytes) => xxh3_128(bytes),
    };
    let mut record = [0; 32];
    record[..16].copy_from_slice(&number.to_le_bytes());
    record[16..].copy_from_slice(&symbol.to_le_bytes());
    xxh3_128_with_seed(&record, u16::from_le_bytes(id.class().tag()).into())
}

pub(crate) fn of_schema(schema: &Schema) -> u128 {
    let mut bytes = Vec::new();
    for field in schema.fields() {
        bytes.extend_from_slice(field.name.as_bytes());
        bytes.push(0);
        bytes.extend_from_slice(&field.min.to_le_bytes());
        bytes.extend_from_slice(&field.max.to_le_bytes());
    }
    xxh3_128(&bytes)
}
