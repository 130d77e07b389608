//! The format stays readable: the files in `golden/` were written once, and are read and written the same ever after.
//!
//! After a change of the encoder or of the format that is meant to be, write them anew, and look at what changed:
//!
//! ```text
//! UPDATE_GOLDEN=1 cargo test -p card-table --test golden
//! ```
//!
//! The digests below depend on the cards alone. They change only if a test's cards or the digest itself do.

mod common;

use card_table::{Class, Schema, Table};
use common::format::{self, Block};
use common::spellings::{self, Kind};
use common::{Model, assert_is, assert_same, encoded, in_order, schemas, spelt, table_of};
use std::path::PathBuf;
use std::sync::Once;

/// What a golden file holds.
struct Golden {
    name: &'static str,
    schema: Schema,
    cards: Model,
    digest: u128,
}

fn run(kind: Kind, first: u128, step: u128, count: u128) -> impl Iterator<Item = Vec<u8>> {
    (0..count).map(move |at| kind.spell(first + at * step))
}

/// Every coding of numbers: without gaps, bitmap, low bits of several widths; several segments; more than one block.
fn numbers() -> Golden {
    let digits = Kind::Digits(20);
    let ids = run(digits, 0, 1, 40)
        .chain(run(digits, 1 << 30, 1, 300).filter(|id| id[19] % 3 > 0))
        .chain(run(digits, 1 << 40, 9, 150))
        .chain(run(digits, 1 << 50, 1 << 33, 60))
        .chain((0..900u128).map(|at| digits.spell((1 << 62) + at * at * at * 1_000_003)));
    Golden {
        name: "numbers",
        schema: Schema::default(),
        cards: ids.zip((0..).map(|at: u128| at * 7 % 20)).collect(),
        digest: 0x3ad1c642_e9e879c0_2f37d86c_0e5747e9,
    }
}

/// Every class, and few symbols far apart, which are listed.
fn classes() -> Golden {
    let [_, _, three, ..] = schemas();
    let kinds = spellings::KINDS.iter().filter(|kind| **kind != Kind::Long);
    let ids = kinds.flat_map(|&kind| run(kind, 5, 2, 12));
    Golden {
        name: "classes",
        schema: three,
        cards: ids.zip((0..).map(|at: u128| [0, 700, 1499][at as usize % 3])).collect(),
        digest: 0xda445f49_bd3579e7_f23e5130_d4f0060d,
    }
}

/// Texts with a common beginning, of few characters and of all, short and as long as can be.
fn texts() -> Golden {
    let [_, one_symbol, ..] = schemas();
    let every_byte = (0..=255u8).map(|byte| vec![byte, 0xff, byte ^ 0x55, 0]);
    let ids = run(Kind::LongPrefix, 0, 7, 100)
        .chain(run(Kind::Word, 0, 0x1234_5678_9abc, 100))
        .chain(every_byte)
        .chain([vec![b'z'; 4096]]);
    Golden {
        name: "texts",
        schema: one_symbol,
        cards: ids.map(|id| (id, 0)).collect(),
        digest: 0x8d6768b5_02c43f26_8f70dc8f_5d05b5e7,
    }
}

/// The highest ids and the widest symbols.
fn widest() -> Golden {
    let [.., widest] = schemas();
    let ids = spellings::extremes().into_iter().filter(|id| id.len() < 100);
    let symbols = (0..).map(|at: u128| [u128::MAX - 1, at, 1 << 100][at as usize % 3]);
    Golden {
        name: "widest",
        schema: widest,
        cards: ids.zip(symbols).collect(),
        digest: 0x5ed7c3d0_5613b0a5_af78d3ee_81fda9c0,
    }
}

fn goldens() -> [Golden; 4] {
    [numbers(), classes(), texts(), widest()]
}

/// Writes the files anew, if that is asked for: once, before any test reads one.
fn update_if_asked() {
    static UPDATED: Once = Once::new();
    UPDATED.call_once(|| {
        if std::env::var_os("UPDATE_GOLDEN").is_some_and(|update| update == "1") {
            for golden in goldens() {
                let bytes = encoded(&table_of(&golden.schema, &golden.cards));
                std::fs::write(golden.path(), bytes).expect("the file is written");
            }
        }
    });
}

impl Golden {
    fn path(&self) -> PathBuf {
        let file = format!("{}.cardtable", self.name);
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(file)
    }

    fn bytes(&self) -> Vec<u8> {
        update_if_asked();
        std::fs::read(self.path()).unwrap_or_else(|error| panic!("{}: {error}", self.path().display()))
    }

    fn blocks(&self) -> Vec<Block> {
        let table = Table::read_from(&mut self.bytes().as_slice()).expect("a sound table");
        table.block_bytes().map(|(class, block)| (class, block.to_vec())).collect()
    }
}

#[test]
fn a_golden_file_is_read_as_the_cards_it_was_written_from() {
    for golden in goldens() {
        let table = Table::read_from(&mut golden.bytes().as_slice()).expect("a sound table");
        assert_eq!(*table.schema(), golden.schema);
        assert_is(&table, &golden.cards);
        assert_eq!(table.digest(), golden.digest, "{}: {:#x}", golden.name, table.digest());
    }
}

#[test]
fn the_same_cards_are_written_as_the_same_bytes() {
    for golden in goldens() {
        let written = encoded(&table_of(&golden.schema, &golden.cards));
        assert!(written == golden.bytes(), "{} is written in other bytes: see the top of this file", golden.name);
    }
}

/// The documentation of the format is enough to read it.
#[test]
fn a_golden_file_is_what_the_documentation_says() {
    for golden in goldens() {
        let blocks = golden.blocks();
        let records: Vec<_> = blocks.iter().flat_map(|block| format::records(&golden.schema, block)).collect();
        assert_same(&spelt(records.iter().cloned()), &in_order(&golden.cards));
        assert_eq!(format::digest(&golden.schema, &records), golden.digest);
        let header = format::header(&golden.schema, records.len() as u64, golden.digest);
        assert_eq!(format::table(&header, &blocks), golden.bytes());
    }
}

#[test]
fn the_golden_files_have_every_coding() {
    let [numbers, classes, texts, _] = goldens();
    let first = &numbers.blocks()[0].1;
    let (further, start_bytes) = (usize::from(first[4]), usize::from(first[5]));
    // The low width of segment 0 follows the 9 bytes of the first id; those of the others stand in their headers.
    let low_widths: Vec<u8> = (0..=further).map(|at| first[15 + at * (start_bytes + 5)]).collect();
    assert!(low_widths.len() >= 4 && low_widths.contains(&255), "{low_widths:?}");
    assert!(low_widths.iter().any(|&width| (1..10).contains(&width)), "{low_widths:?}");
    assert!(low_widths.iter().any(|&width| (20..60).contains(&width)), "{low_widths:?}");
    assert!(numbers.blocks().len() > 1);

    let tags: std::collections::BTreeSet<u8> =
        classes.blocks().iter().map(|(class, _)| format::tag(*class)[0]).collect();
    assert_eq!(tags.into_iter().collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    // How long the symbols' list is, where a block has one segment; 0 is a span.
    let listed = |golden: &Golden| -> Vec<u8> {
        let blocks = golden.blocks().into_iter().filter(|(class, block)| *class != Class::Text && block[4] == 0);
        blocks.map(|(class, block)| block[7 + format::id_bytes(class)]).collect()
    };
    assert!(listed(&classes).contains(&3) && listed(&numbers).contains(&0));

    let widths: Vec<u8> = texts.blocks().iter().map(|(_, block)| block[8]).collect();
    assert!(widths.contains(&8) && widths.iter().any(|&width| width < 8), "{widths:?}");
}

#[test]
fn the_golden_files_are_small() {
    for golden in goldens() {
        assert!(golden.bytes().len() < 10_000, "{} has {} bytes", golden.name, golden.bytes().len());
    }
}
