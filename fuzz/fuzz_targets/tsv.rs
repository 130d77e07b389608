//! A file is refused with the problems that are in it, or it becomes the table that its rows make one by one.
//!
//! The first byte of the input says which schema it is read for, whether it has a header of its own or is given one, and
//! what is built of it: one thing at a time, because starting the builder's threads is what takes longest.

#![no_main]

use std::collections::BTreeMap;

use card_table::build::TOLD_PROBLEMS;
use card_table::tsv::{Problem, Reader, TsvError};
use card_table::{BuildError, Builder, Built, Schema, Table};
use card_table_fuzz::schemas::schemas;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&choice, rest)) = input.split_first() else { return };
    let schema = if choice & 1 == 0 { Schema::default() } else { schemas()[2].clone() };
    let fields = schema.fields().iter().map(|field| field.name.as_str());
    let fields = fields.collect::<Vec<_>>().join("\t");
    let header = match choice >> 1 & 3 {
        0 => String::new(),
        1 => format!("cardId\t{fields}\n"),
        2 => format!("cardId\t{fields}\top\n"),
        _ => format!("op\t{fields}\tcardId\r\n"),
    };
    let file = [header.as_bytes(), rest].concat();
    match (choice >> 3 & 3, row_by_row(&schema, &file)) {
        (0, rows) => strict_table(&schema, &file, rows.ok()),
        (1, rows) => changes(&schema, &file, rows.ok()),
        (_, rows) => table(&schema, &file, rows.ok()),
    }
});

/// Turns the search for leaks off: a pool's threads may still be ending when it looks, and what they hold seems lost.
// SAFETY: the sanitizer expects a function of this name and type.
#[unsafe(no_mangle)]
extern "C" fn __lsan_is_turned_off() -> std::ffi::c_int {
    1
}

/// What the rows of a file come to, one by one.
#[derive(Default)]
struct Rows {
    /// The last that is said of each card: its symbol, or none if it is removed.
    last: BTreeMap<Vec<u8>, Option<u128>>,
    good: u64,
    problems: Vec<Problem>,
}

/// Reads row by row; fails if the header is wrong or a line too long to be read over.
fn row_by_row(schema: &Schema, file: &[u8]) -> Result<Rows, TsvError> {
    let mut reader = Reader::new(file, schema)?;
    let mut rows = Rows::default();
    while let Some(page) = reader.next_page()? {
        for row in page.rows(reader.layout()) {
            match row {
                Ok(row) => {
                    rows.last.insert(row.id.to_bytes(), row.symbol);
                    rows.good += 1;
                }
                Err(problem) => rows.problems.push(problem),
            }
        }
    }
    Ok(rows)
}

fn table(schema: &Schema, file: &[u8], rows: Option<Rows>) {
    let built = Builder::new(schema.clone()).threads(1).allow_problems(u64::MAX).table_from_tsv(file);
    match rows {
        Some(rows) => assert_is(&built.expect("problems are allowed"), &rows),
        None => assert!(matches!(built, Err(BuildError::Problems(..)))),
    }
}

fn strict_table(schema: &Schema, file: &[u8], rows: Option<Rows>) {
    let built = Builder::new(schema.clone()).threads(1).table_from_tsv(file);
    match rows {
        Some(rows) if rows.problems.is_empty() => assert_is(&built.expect("there are no problems"), &rows),
        Some(rows) => assert_told(built, &rows.problems),
        None => assert!(matches!(built, Err(BuildError::Problems(..)))),
    }
}

fn changes(schema: &Schema, file: &[u8], rows: Option<Rows>) {
    let built = Builder::new(schema.clone()).threads(1).allow_problems(u64::MAX).changes_from_tsv(file);
    match rows {
        Some(rows) => {
            let mut table = Table::new(schema.clone());
            table.apply(&built.expect("problems are allowed").result);
            assert_cards(&table, &rows);
        }
        None => assert!(matches!(built, Err(BuildError::Problems(..)))),
    }
}

fn assert_is(built: &Built<Table>, rows: &Rows) {
    assert_eq!(built.rows, rows.good);
    assert_eq!(built.duplicates, rows.good - rows.last.len() as u64);
    assert_eq!(built.bad_rows, rows.problems.len() as u64);
    assert_eq!(built.problems, rows.problems[..rows.problems.len().min(TOLD_PROBLEMS)]);
    assert_cards(&built.result, rows);
}

fn assert_cards(table: &Table, rows: &Rows) {
    table.check().unwrap();
    let cards: BTreeMap<_, _> = table.iter().map(|(id, symbol)| (id.to_bytes(), symbol)).collect();
    let expected: BTreeMap<_, _> = rows.last.iter().filter_map(|(id, symbol)| Some((id.clone(), (*symbol)?))).collect();
    assert_eq!(cards, expected);
}

/// A strict build stops early; the problems that it tells are the first ones nevertheless.
fn assert_told(built: Result<Built<Table>, BuildError>, problems: &[Problem]) {
    let Err(BuildError::Problems(told, count)) = built else { panic!("there are problems") };
    assert!(!told.is_empty() && problems[..problems.len().min(TOLD_PROBLEMS)].starts_with(&told));
    assert!((told.len() as u64..=problems.len() as u64).contains(&count));
}
