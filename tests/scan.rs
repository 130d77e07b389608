//! `CARD.SCAN`: every card, some at a time, also while the table changes.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use card_table::{Id, Schema, Table};
use common::{Server, ask, refused};
use redis::{Connection, Value};

/// Ids and their values.
type Cards = BTreeMap<Vec<u8>, [u64; 2]>;

/// What one call returns: a cursor, and cards in the order they came.
type Page = (Vec<u8>, Vec<(Vec<u8>, u64, u64)>);

fn page(db: &mut Connection, cursor: &[u8], options: &[&[u8]]) -> Page {
    ask(db, [&[b"CARD.SCAN".as_slice(), b"t", cursor], options].concat())
}

/// All pages of a scan. `between` is called after each but the last.
fn pages(db: &mut Connection, options: &[&[u8]], mut between: impl FnMut(&mut Connection, &Page)) -> Vec<Page> {
    let mut pages = vec![page(db, b"0", options)];
    while let Some(last) = pages.last().filter(|(cursor, _)| cursor != b"0") {
        between(db, last);
        pages.push(page(db, &last.0.clone(), options));
    }
    pages
}

/// All cards of a scan. That none comes twice is checked.
fn scanned(db: &mut Connection, options: &[&[u8]]) -> Cards {
    once(pages(db, options, |_, _| ()))
}

fn once(pages: Vec<Page>) -> Cards {
    let mut cards = Cards::new();
    for (id, type_, status) in pages.into_iter().flat_map(|(_, cards)| cards) {
        assert_eq!(cards.insert(id.clone(), [type_, status]), None, "{} came twice", id.escape_ascii());
    }
    cards
}

fn set(db: &mut Connection, cards: &Cards) {
    for some in cards.iter().collect::<Vec<_>>().chunks(1000) {
        let mut words = vec![b"CARD.MSET".to_vec(), b"t".to_vec()];
        for (id, values) in some {
            words.push(id.to_vec());
            words.extend(values.map(|value| value.to_string().into_bytes()));
        }
        ask::<(), _>(db, words);
    }
}

/// So many cards of every class, among them such as only a careful client takes for an id.
fn mixed(rng: &mut fastrand::Rng, len: usize) -> Cards {
    let spell = |rng: &mut fastrand::Rng| match rng.u8(..7) {
        0 => format!("{}", rng.u32(..)).into_bytes(),
        1 => format!("4401{:016}", rng.u64(..10_000_000_000_000_000)).into_bytes(),
        2 => format!("{:032x}", rng.u128(..)).into_bytes(),
        3 => format!("{:08X}", rng.u32(..)).into_bytes(),
        4 => format!("{:08x}-0000-4000-8000-{:012x}", rng.u32(..), rng.u32(..)).into_bytes(),
        5 => format!("cookie/{}", rng.u32(..)).into_bytes(),
        _ => (0..rng.usize(1..9)).map(|_| *rng.choice(b"\0\n\r :0\xfe\xff").unwrap()).collect(),
    };
    let mut cards = Cards::new();
    while cards.len() < len {
        cards.insert(spell(rng), [rng.u64(..11), rng.u64(1..3)]);
    }
    cards
}

fn numbers(range: std::ops::Range<u64>) -> Cards {
    range.map(|number| (format!("{number:020}").into_bytes(), [number % 11, 1])).collect()
}

#[test]
fn a_scan_returns_every_card_with_its_values() {
    let server = Server::start();
    let db = &mut server.connect();
    let cards = mixed(&mut fastrand::Rng::with_seed(1), 2550);
    set(db, &cards);

    let pages = pages(db, &[], |_, _| ());
    let lengths: Vec<_> = pages.iter().map(|(_, cards)| cards.len()).collect();
    assert_eq!(lengths, [[100; 25].as_slice(), &[50]].concat(), "100 at a time unless told otherwise");
    assert_eq!(once(pages), cards);
    for count in ["1", "7", "999", "10000"] {
        assert!(scanned(db, &[b"COUNT", count.as_bytes()]) == cards, "COUNT {count}");
    }
}

#[test]
fn a_scan_that_has_returned_the_last_card_has_ended() {
    let server = Server::start();
    let db = &mut server.connect();
    set(db, &numbers(0..200));
    let (cursor, first) = page(db, b"0", &[]);
    assert_ne!(cursor, b"0");
    let (cursor, second) = page(db, &cursor, &[]);
    assert_eq!((cursor.as_slice(), first.len(), second.len()), (b"0".as_slice(), 100, 100));
}

#[test]
fn there_is_nothing_to_scan_in_an_empty_table_or_none() {
    let server = Server::start();
    let db = &mut server.connect();
    let nothing = Value::Array(vec![Value::BulkString(b"0".into()), Value::Array(vec![])]);
    assert_eq!(ask::<Value, _>(db, ["CARD.SCAN", "t", "0"]), nothing);
    ask::<(), _>(db, ["CARD.CREATE", "t"]);
    assert_eq!(ask::<Value, _>(db, ["CARD.SCAN", "t", "0", "PREFIX", "4"]), nothing);
    set(db, &numbers(0..101));
    let (cursor, _) = page(db, b"0", &[]);
    ask::<(), _>(db, ["DEL", "t"]);
    assert_eq!(page(db, &cursor, &[]), (b"0".to_vec(), vec![]), "a scan whose table has gone ends");

    let header = Table::new(Schema::default()).header_bytes();
    ask::<(), _>(db, [b"CARD.STAGE".as_slice(), b"t", b"BEGIN", &header]);
    assert_eq!(refused(db, ["CARD.SCAN", "t", "0"]), "ERR the table is staged and not committed yet");
}

#[test]
fn a_scan_can_be_of_the_ids_that_begin_alike() {
    let server = Server::start();
    let db = &mut server.connect();
    let cards = mixed(&mut fastrand::Rng::with_seed(2), 3000);
    set(db, &cards);
    let prefixes: [&[u8]; 14] = [
        b"",
        b"4",
        b"44",
        b"4401",
        b"44015",
        b"a",
        b"A",
        b"0",
        b"00",
        b"cookie/",
        b"cookie/1",
        b"\0",
        b"\xff",
        b"\xff\xff",
    ];
    for prefix in prefixes {
        let expected: Cards =
            cards.iter().filter(|(id, _)| id.starts_with(prefix)).map(|(id, values)| (id.clone(), *values)).collect();
        assert!(!expected.is_empty(), "{} is put to the test", prefix.escape_ascii());
        for count in ["3", "100", "10000"] {
            let found = scanned(db, &[b"prefix", prefix, b"count", count.as_bytes()]);
            assert!(found == expected, "PREFIX {} COUNT {count}", prefix.escape_ascii());
        }
    }
    let whole = cards.keys().next_back().unwrap();
    let longer = [whole.as_slice(), b"0"].concat();
    assert_eq!(scanned(db, &[b"COUNT", b"5", b"PREFIX", whole]).len(), 1, "a whole id is a prefix of itself");
    assert_eq!(page(db, b"0", &[b"PREFIX", &longer]), (b"0".to_vec(), vec![]));
    assert_eq!(page(db, b"0", &[b"PREFIX", &[b'1'; 5000]]), (b"0".to_vec(), vec![]), "longer than any id");
}

#[test]
fn a_call_returns_ten_thousand_cards_at_most() {
    let server = Server::start();
    let db = &mut server.connect();
    set(db, &numbers(0..10_001));
    let (cursor, cards) = page(db, b"0", &[b"COUNT", b"10000"]);
    assert_eq!(cards.len(), 10_000);
    let (cursor, cards) = page(db, &cursor, &[b"COUNT", b"10000"]);
    assert_eq!((cursor.as_slice(), cards.len()), (b"0".as_slice(), 1));

    let syntax = "ERR syntax error, expected [PREFIX prefix] [COUNT 1..10000]";
    let options: [&[&str]; 10] = [
        &["COUNT", "10001"],
        &["COUNT", "0"],
        &["COUNT", "-1"],
        &["COUNT", "+1"],
        &["COUNT", "1.5"],
        &["COUNT", ""],
        &["COUNT"],
        &["PREFIX"],
        &["PREFIX", "1", "COUNT"],
        &["MATCH", "1*"],
    ];
    for options in options {
        assert_eq!(refused(db, [&["CARD.SCAN", "t", "0"], options].concat()), syntax, "{options:?}");
    }
}

#[test]
fn a_cursor_is_one_that_a_scan_returned() {
    let server = Server::start();
    let db = &mut server.connect();
    let awkward: Cards = [b"\0".as_slice(), b"\r\n", b"0", b":", b":0", b"\xff"].map(|id| (id.to_vec(), [1, 1])).into();
    set(db, &awkward);
    let Value::Array(reply) = ask(db, ["CARD.SCAN", "t", "0", "COUNT", "1"]) else { panic!("not an array") };
    assert!(matches!(reply[0], Value::BulkString(_)), "{reply:?}");
    assert_eq!(scanned(db, &[b"COUNT", b"1"]), awkward, "whatever bytes are in it");

    let long = [b":".as_slice(), &[b'x'; 4097]].concat();
    let others: [&[u8]; 9] = [b"", b"1", b"00", b"-1", b":", b"0 ", b"\0", b"x", &long];
    for cursor in others {
        let error = refused(db, [b"CARD.SCAN", b"t".as_slice(), cursor]);
        assert_eq!(error, "ERR invalid cursor", "{}", cursor.escape_ascii());
    }
}

#[test]
fn every_card_that_stays_is_returned_once_while_others_come_and_go() {
    let server = Server::start();
    let db = &mut server.connect();
    for seed in 0..4 {
        let rng = &mut fastrand::Rng::with_seed(seed);
        let cards = mixed(rng, 6000);
        let others = mixed(rng, 6000);
        ask::<(), _>(db, ["DEL", "t"]);
        set(db, &cards);
        // Two thirds stay. Of the rest a few are removed and others added between two pages, and always the card at which
        // the scan has come to stand.
        let (stay, go): (Vec<_>, Vec<_>) = cards.keys().cloned().partition(|_| rng.u8(..3) > 0);
        let mut stay: BTreeSet<_> = stay.into_iter().collect();
        let mut removed = go.into_iter();
        let mut added = others.into_iter();
        let count = rng.usize(50..150).to_string();
        let pages = pages(db, &[b"COUNT", count.as_bytes()], |db, (_, page)| {
            let last = page.last().unwrap().0.clone();
            stay.remove(&last);
            let gone = removed.by_ref().take(30).chain([last]);
            ask::<(), _>(db, [b"CARD.DEL".to_vec(), b"t".to_vec()].into_iter().chain(gone));
            set(db, &added.by_ref().take(60).filter(|(id, _)| !cards.contains_key(id)).collect());
        });
        assert!(pages.len() > 30, "there was time for changes");
        let found = once(pages);
        for id in stay {
            assert_eq!(found.get(&id), cards.get(&id), "seed {seed}: {}", id.escape_ascii());
        }
    }
}

#[test]
fn a_scan_goes_on_in_the_table_that_has_taken_the_place() {
    let server = Server::start();
    let db = &mut server.connect();
    set(db, &numbers(0..3000));
    let mut table = Table::new(Schema::default());
    for (id, _) in numbers(1000..4000) {
        table.insert(&Id::parse(&id).unwrap(), 21);
    }
    let mut is_replaced = false;
    let pages = pages(db, &[], |db, (_, page)| {
        if !is_replaced && page.last().unwrap().0 == b"00000000000000001999" {
            ask::<(), _>(db, [b"CARD.STAGE".as_slice(), b"s", b"BEGIN", &table.header_bytes()]);
            for frames in table.frames(1 << 20) {
                ask::<(), _>(db, [b"CARD.STAGE".as_slice(), b"s", b"FRAMES", &frames]);
            }
            ask::<(), _>(db, ["CARD.COMMIT", "s", "t"]);
            is_replaced = true;
        }
    });
    assert!(is_replaced);
    let mut expected = numbers(0..2000);
    expected.extend(numbers(2000..4000).into_keys().map(|id| (id, [10, 2])));
    assert!(once(pages) == expected);
}
