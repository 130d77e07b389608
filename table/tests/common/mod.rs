//! What the tests share: schemas, spellings of every kind, and a model that a table must agree with.

// Every test file is a program of its own, and uses a part of this.
#![allow(dead_code, unused_imports)]

pub mod format;
pub mod judge;
mod schemas;
pub mod spellings;
pub mod wild;

pub use schemas::schemas;
use std::collections::BTreeMap;

use card_table::{Builder, Changes, Id, Schema, Table, heap};
use proptest::prelude::ProptestConfig;

/// What a table is: ids, as they are spelt, with their symbols.
pub type Model = BTreeMap<Vec<u8>, u128>;

/// So many random cases. A failure is told with its smallest input, and nothing is kept in files.
pub fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, max_shrink_time: 30_000, failure_persistence: None, ..ProptestConfig::default() }
}

pub fn id(spelling: &[u8]) -> Id<'_> {
    Id::parse(spelling).expect("a valid id")
}

/// The model's cards in the order that a table promises: class by class, ascending within a class. Numbers of a class
/// are spelt at the same length, so that within a class the spellings' order is theirs.
pub fn in_order(model: &Model) -> Vec<(Vec<u8>, u128)> {
    let mut cards: Vec<_> = model.iter().map(|(spelling, &symbol)| (spelling.clone(), symbol)).collect();
    cards.sort_by_key(|(spelling, _)| id(spelling).class());
    cards
}

/// Cards as the model has them.
pub fn spelt<'i>(cards: impl Iterator<Item = (Id<'i>, u128)>) -> Vec<(Vec<u8>, u128)> {
    cards.map(|(id, symbol)| (id.to_bytes(), symbol)).collect()
}

pub fn table_of(schema: &Schema, model: &Model) -> Table {
    let records = model.iter().map(|(spelling, &symbol)| (id(spelling), symbol));
    Builder::new(schema.clone()).threads(1).table_from_records(records).expect("nothing stops the build").result
}

pub fn changes_of(schema: &Schema, changes: &[(Vec<u8>, Option<u128>)]) -> Changes {
    let records = changes.iter().map(|(spelling, symbol)| (id(spelling), *symbol));
    Builder::new(schema.clone()).threads(1).changes_from_records(records).expect("nothing stops the build").result
}

/// The digest by its definition, of cards that no table has seen.
pub fn digest_of(schema: &Schema, model: &Model) -> u128 {
    let records: Vec<_> = model.iter().map(|(spelling, &symbol)| (id(spelling).into_owned(), symbol)).collect();
    format::digest(schema, &records)
}

pub fn encoded(table: &Table) -> Vec<u8> {
    let mut bytes = Vec::new();
    table.write_to(&mut bytes).expect("a vector takes everything");
    bytes
}

/// Everything a table tells about itself is what the model says.
pub fn assert_is(table: &Table, model: &Model) {
    table.check().expect("a sound table");
    assert_eq!(table.len(), model.len() as u64);
    assert_eq!(table.is_empty(), model.is_empty());
    assert_same(&spelt(table.iter()), &in_order(model));
    assert_finds(table, model);
    assert_accounts(table);

    let fresh = table_of(table.schema(), model);
    assert_eq!(table.digest(), fresh.digest());
    assert_eq!(table.digest(), digest_of(table.schema(), model));
    assert_accounts(&fresh);
    // A block is known to the directory by a key and a fat pointer. Nothing is in reserve where nothing was removed.
    let (blocks, classes) = (fresh.block_bytes().count(), fresh.classes().count());
    assert!(fresh.memory().directory < 36 * blocks + 600 * (1 + classes), "{blocks} blocks, {:?}", fresh.memory());
}

/// Many finds at once are as many single ones, of cards that are there and of cards that are not.
fn assert_finds(table: &Table, model: &Model) {
    let spellings: Vec<Vec<u8>> = model
        .keys()
        .flat_map(|spelling| [spelling.clone(), spelling[..spelling.len() - 1].to_vec()])
        .filter(|spelling| !spelling.is_empty())
        .collect();
    let ids: Vec<Id> = spellings.iter().map(|spelling| id(spelling)).collect();
    let expected: Vec<_> = spellings.iter().map(|spelling| model.get(spelling).copied()).collect();
    assert!(table.get_many(&ids) == expected, "many finds differ from the model");
}

/// Fails with the first difference: there may be hundreds of thousands.
pub fn assert_same(found: &[(Vec<u8>, u128)], expected: &[(Vec<u8>, u128)]) {
    let differs = (0..found.len().max(expected.len())).find(|&at| found.get(at) != expected.get(at));
    if let Some(at) = differs {
        let show =
            |card: Option<&(Vec<u8>, u128)>| card.map(|(id, symbol)| format!("{} with {symbol}", id.escape_ascii()));
        let (found, expected) = (show(found.get(at)), show(expected.get(at)));
        panic!("card {at}: found {found:?}, expected {expected:?}");
    }
}

/// The table's accounts agree with each other and with the blocks that it writes.
pub fn assert_accounts(table: &Table) {
    let memory = table.memory();
    let (mut count, mut blocks, mut empty) = (0, 0, 0);
    for (_, block) in table.block_bytes() {
        count += 1;
        blocks += heap::size_class(block.len());
        empty += usize::from(block.is_empty());
    }
    assert_eq!(empty, 0);
    assert_eq!(memory.blocks, blocks, "blocks fill the size class of their bytes");
    assert_eq!(memory.total(), memory.blocks + memory.directory);
    assert!(memory.directory >= 24 * count, "{count} blocks, {memory:?}");

    let classes: Vec<_> = table.classes().collect();
    assert!(classes.is_sorted_by(|a, b| a.class < b.class));
    assert!(classes.iter().all(|class| class.records > 0 && class.blocks > 0));
    assert_eq!(classes.iter().map(|class| class.records).sum::<u64>(), table.len());
    assert_eq!(classes.iter().map(|class| class.blocks).sum::<usize>(), count);
    let bytes: usize = classes.iter().map(|class| class.bytes).sum();
    assert!((blocks..=memory.total()).contains(&bytes));
}
