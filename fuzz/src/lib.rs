//! What the fuzz targets share: parts of the crate's own tests, and the form of the decoder's input.
//!
//! Bytes that begin as a table does are one, as it is in a file. All others are a number that chooses a schema, and then
//! blocks as they stand in a file: class, length, block. Their header is not part of the input, because no mutation
//! would ever find the digest that belongs in it.

#[path = "../../table/tests/common/format.rs"]
pub mod format;
#[path = "../../table/tests/common/judge.rs"]
pub mod judge;
#[path = "../../table/tests/common/schemas.rs"]
pub mod schemas;
#[path = "../../table/tests/common/wild.rs"]
pub mod wild;

use card_table::{Class, Schema};

use format::Block;

/// The schema and the blocks of an input.
pub fn parse(input: &[u8]) -> Option<(Schema, Vec<Block>)> {
    let (&schema, mut rest) = input.split_first()?;
    let schemas = schemas::schemas();
    let schema = schemas[usize::from(schema) % schemas.len()].clone();
    let mut blocks = Vec::new();
    while let Some((&[class, len, low, high], bytes)) = rest.split_first_chunk::<4>() {
        let (block, more) = bytes.split_at(bytes.len().min(u16::from_le_bytes([low, high]).into()));
        blocks.push((some_class([class, len]), block.to_vec()));
        rest = more;
    }
    Some((schema, blocks))
}

/// The input that is parsed as these blocks.
pub fn input(schema: usize, blocks: &[Block]) -> Vec<u8> {
    let mut input = vec![schema as u8];
    for (class, block) in blocks {
        input.extend(format::tag(*class));
        input.extend((block.len() as u16).to_le_bytes());
        input.extend(block);
    }
    input
}

/// The class of a tag, and some class for any other two bytes.
fn some_class([class, len]: [u8; 2]) -> Class {
    let up_to = |most: u8| 1 + len.wrapping_sub(1) % most;
    match class % 6 {
        1 => Class::Digits(up_to(38)),
        2 => Class::HexLower(up_to(32)),
        3 => Class::HexUpper(up_to(32)),
        4 => Class::UuidLower,
        5 => Class::UuidUpper,
        _ => Class::Text,
    }
}
