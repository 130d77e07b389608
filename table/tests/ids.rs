//! An id is kept as it is spelt: byte for byte, and apart from every other spelling.

mod common;

use card_table::id::MAX_ID_BYTES;
use card_table::{Class, Id, IdError, Schema, Table};
use common::spellings::{self, KINDS};
use common::{Model, assert_is, cases, encoded, id};
use proptest::prelude::*;

fn table_with(spellings: &[Vec<u8>]) -> (Table, Model) {
    let mut table = Table::new(Schema::default());
    let mut model = Model::new();
    for (at, spelling) in spellings.iter().enumerate() {
        let symbol = at as u128 % 22;
        table.insert(&id(spelling), symbol);
        model.insert(spelling.clone(), symbol);
    }
    (table, model)
}

#[test]
fn four_sevens_are_four_cards() {
    let sevens = [&b"007"[..], b"7", b"0x7", b"7 "];
    let mut table = Table::new(Schema::default());
    for (symbol, seven) in (0..).zip(sevens) {
        table.insert(&id(seven), symbol);
    }
    assert_eq!(table.len(), 4);
    for (symbol, seven) in (0..).zip(sevens) {
        assert_eq!(table.get(&id(seven)), Some(symbol));
    }
    assert_eq!(table.get(&id(b"07")), None);
    assert_eq!(table.get(&id(b" 7")), None);
    assert_eq!(table.get(&id(b"7\0")), None);

    table.remove(&id(b"7"));
    assert_eq!(table.len(), 3);
    assert_eq!(table.get(&id(b"7")), None);
    assert_eq!(table.get(&id(b"007")), Some(0));
}

#[test]
fn one_number_in_every_spelling_is_as_many_cards() {
    let spellings: Vec<Vec<u8>> = [
        "10",
        "010",
        "0010",
        "a",
        "A",
        "0a",
        "0A",
        "0000000a",
        "0000000A",
        "0xa",
        "0XA",
        "00000000-0000-0000-0000-00000000000a",
        "00000000-0000-0000-0000-00000000000A",
        "00000000-0000-0000-0000-000000000010",
        "{00000000-0000-0000-0000-00000000000a}",
        "0000000000000000000000000000000a",
        "0000000000000000000000000000000A",
        "00000000000000000000000000000010",
        "00000000000000000000000000000000000010",
        "000000000000000000000000000000000000010",
        "10.",
        "+10",
        "1e1",
        "1E1",
        "10\r",
        "10\0",
    ]
    .map(|spelling| spelling.as_bytes().to_vec())
    .to_vec();
    let (table, model) = table_with(&spellings);
    assert_eq!(model.len(), spellings.len());
    assert_is(&table, &model);
}

#[test]
fn every_length_up_to_the_longest_comes_back() {
    let lengths = (1..=300).chain(MAX_ID_BYTES - 20..=MAX_ID_BYTES);
    let spellings: Vec<Vec<u8>> =
        lengths.flat_map(|len| [b'7', b'f', b'F', b'z', 0, 0xff].map(|byte| vec![byte; len])).collect();
    let (table, model) = table_with(&spellings);
    assert_is(&table, &model);
}

#[test]
fn the_ends_of_every_class_come_back() {
    let (table, model) = table_with(&spellings::extremes());
    assert_is(&table, &model);
    let read = Table::read_from(&mut encoded(&table).as_slice()).unwrap();
    assert_is(&read, &model);
}

#[test]
fn neighbours_of_an_id_are_other_cards() {
    for kind in KINDS {
        for number in [0, 1, 9, 10, 44_015_186_100_181_001_473, u128::MAX] {
            let spelling = kind.spell(number);
            let (table, _) = table_with(std::slice::from_ref(&spelling));
            let mut others = vec![
                [b"0", spelling.as_slice()].concat(),
                [spelling.as_slice(), b"0"].concat(),
                [spelling.as_slice(), b"\0"].concat(),
                spelling[1..].to_vec(),
                spelling[..spelling.len() - 1].to_vec(),
                spelling.to_ascii_uppercase(),
                spelling.to_ascii_lowercase(),
            ];
            others.extend((0..spelling.len().min(64)).map(|at| {
                let mut other = spelling.clone();
                other[at] ^= 1;
                other
            }));
            for other in others.iter().filter(|other| **other != spelling && !other.is_empty()) {
                if let Ok(other) = Id::parse(other) {
                    assert_eq!(table.get(&other), None, "{spelling:?} is not {other:?}");
                }
            }
            assert_eq!(table.get(&id(&spelling)), Some(0));
        }
    }
}

#[test]
fn empty_and_over_long_ids_are_errors_that_say_so() {
    assert_eq!(Id::parse(b""), Err(IdError::Empty));
    assert_eq!(IdError::Empty.to_string(), "a card id cannot be empty");
    for byte in [b'7', b'x', 0xff] {
        assert!(Id::parse(&vec![byte; MAX_ID_BYTES]).is_ok());
        assert_eq!(Id::parse(&vec![byte; MAX_ID_BYTES + 1]), Err(IdError::TooLong(MAX_ID_BYTES + 1)));
    }
    assert_eq!(IdError::TooLong(5000).to_string(), "a card id has at most 4096 bytes, got 5000");
}

#[test]
fn the_class_of_a_card_is_told() {
    let (table, _) = table_with(
        &["42", "beef", "BEEF", "123e4567-e89b-12d3-a456-426614174000", "123E4567-E89B-12D3-A456-426614174000", "x"]
            .map(|spelling| spelling.as_bytes().to_vec()),
    );
    let classes: Vec<_> = table.classes().map(|stats| (stats.class, stats.records)).collect();
    let expected =
        [Class::Digits(2), Class::HexLower(4), Class::HexUpper(4), Class::UuidLower, Class::UuidUpper, Class::Text];
    assert_eq!(classes, expected.map(|class| (class, 1)));
}

proptest! {
    #![proptest_config(cases(100))]

    #[test]
    fn ids_come_back_as_they_were_spelt(spellings in prop::collection::vec(spellings::spelling(), 1..150)) {
        let (table, model) = table_with(&spellings);
        assert_is(&table, &model);
    }
}
