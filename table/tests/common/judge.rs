//! Judges blocks that a decoder has taken: with a header that belongs to them they must be a table in every respect.

use card_table::{DecodeError, Id, Schema, Table};

use super::format::{self, Block, Record};

pub fn records_of(schema: &Schema, blocks: &[Block]) -> Vec<Record> {
    blocks.iter().flat_map(|block| format::records(schema, block)).collect()
}

/// The table holds what the second reader has read, every find works, it is written and read back, and it can be
/// changed. All reading is left to `read`.
pub fn assert_is_a_table(schema: &Schema, blocks: &[Block], read: impl Fn(&[u8]) -> Result<Table, DecodeError>) {
    let records = records_of(schema, blocks);
    let header = format::header(schema, records.len() as u64, format::digest(schema, &records));
    let mut table = read(&format::table(&header, blocks)).expect("what was taken once is taken again");
    table.check().unwrap();
    assert!(table.iter().eq(records.iter().cloned()));
    let mut bytes = Vec::new();
    table.write_to(&mut bytes).unwrap();
    assert_eq!(read(&bytes).unwrap().digest(), table.digest());

    for (at, (id, symbol)) in records.iter().enumerate().step_by(1 + records.len() / 8) {
        assert_eq!(table.get(id), Some(*symbol));
        if at % 2 == 0 {
            assert_eq!(table.remove(id), Some(*symbol));
        } else {
            table.insert(id, schema.symbols() - 1);
        }
        if let Some(neighbour) = after(id).filter(|id| table.get(id).is_none()) {
            table.insert(&neighbour, *symbol);
        }
    }
    table.check().unwrap();
}

/// An id next to another, in the same class.
fn after(id: &Id) -> Option<Id<'static>> {
    let next = match id {
        Id::Number(class, number) => Id::Number(*class, number.checked_add(1)?),
        Id::Text(text) => Id::Text([text.as_ref(), b"\0"].concat().into()),
    };
    let spelling = next.to_bytes();
    (Id::parse(&spelling) == Ok(next.clone())).then_some(next)
}
