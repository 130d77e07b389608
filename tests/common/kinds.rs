//! Tables of every kind there is, for tests of what becomes of them: made by commands, looked at through commands.

use std::collections::BTreeMap;

use card_table::{Builder, Id, Schema, Table};
use redis::{Connection, Value};

use super::{ask, refused, try_ask, wait_for};

/// The tables that [`make_every_kind`] makes.
pub const KINDS: [&str; 8] = ["cards", "wide", "created", "emptied", "loaded", "versioned", "unnamed", "half"];

/// What "half" has got of the table that it will be, and what it gets at a time.
pub const PIECE_BYTES: usize = 20 << 10;

/// Ids of every class, and what may be between classes.
pub fn ids_of_every_class() -> Vec<Vec<u8>> {
    let numbers = ["7", "007", "44015186100181001473", "99999999999999999999999999999999999999"];
    let hex = ["beef", "BEEF", "0123456789abcdef0123456789abcdef", "FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF"];
    let uuids = ["123e4567-e89b-12d3-a456-426614174000", "123E4567-E89B-12D3-A456-426614174000"];
    let texts = ["0x7", "7 ", "cookie-1", "cookie-2", "é"];
    let mut ids: Vec<Vec<u8>> = [&numbers[..], &hex, &uuids, &texts].concat().iter().map(|id| (*id).into()).collect();
    ids.extend([b"\0\r\n\xff".to_vec(), vec![b'x'; 4096]]);
    ids
}

/// Makes one table of every kind, and returns the one that "half" has a part of.
pub fn make_every_kind(db: &mut Connection) -> Table {
    let mut many = redis::cmd("CARD.MSET");
    many.arg("cards");
    for (at, id) in random_ids(1).take(3_000).enumerate() {
        many.arg(id).arg(at % 11).arg(1 + at % 2);
    }
    assert_eq!(many.query::<i64>(db).unwrap(), 3_000);
    let _: i64 = ask(db, ["PEXPIREAT", "cards", "4102444800000"]);

    let highest = 1u128 << 100;
    let () = ask(db, ["CARD.CREATE", "wide", "FIELD", "level", "3", "6", "FIELD", "serial", "1", &highest.to_string()]);
    let serials = [1, i64::MAX as u128, 1 << 63, u64::MAX as u128, 1 << 64, highest];
    for (at, id) in ids_of_every_class().iter().enumerate() {
        let (level, serial) = (3 + at % 4, serials[at % serials.len()]);
        let (level, serial) = (level.to_string(), serial.to_string());
        let _: i64 = ask(db, [b"CARD.SET", b"wide".as_slice(), id, level.as_bytes(), serial.as_bytes()]);
    }

    let () = ask(db, ["CARD.CREATE", "created", "FIELD", "level", "3", "6"]);
    let _: i64 = ask(db, ["CARD.SET", "emptied", "44015186100181001473", "7", "1"]);
    let _: i64 = ask(db, ["CARD.DEL", "emptied", "44015186100181001473"]);

    stage(db, "loading", &build(6_000, 2), PIECE_BYTES);
    let load = ["AT", "1501718400999", "VERSION", "201708031", "SOURCE", "a list\0.txt", "ROWS", "6001"];
    let () = ask(db, ["CARD.COMMIT", "loading", "loaded"].iter().chain(&load));
    stage(db, "versioned", &build(10, 3), PIECE_BYTES);
    let () = ask(db, ["CARD.COMMIT", "versioned", "versioned", "AT", "1501718400999", "VERSION", "0"]);
    stage(db, "unnamed", &build(10, 3), PIECE_BYTES);
    let () = ask(db, ["CARD.COMMIT", "unnamed", "unnamed", "AT", "1501718400999"]);

    let whole = build(6_000, 4);
    let pieces: Vec<_> = whole.frames(PIECE_BYTES).collect();
    assert_eq!(pieces.len(), 2);
    let () = ask(db, [b"CARD.STAGE".as_slice(), b"half", b"BEGIN", &whole.header_bytes()]);
    let () = ask(db, [b"CARD.STAGE".as_slice(), b"half", b"FRAMES", &pieces[0]]);
    let _: i64 = ask(db, ["PEXPIREAT", "half", "4102444800000"]);
    whole
}

/// Sends "half" the rest, commits it, and compares it with what it should be.
pub fn finish_half(db: &mut Connection, whole: &Table) {
    assert_eq!(refused(db, ["CARD.LEN", "half"]), "ERR the table is staged and not committed yet");
    let Value::Int(arrived) = see(db, "half").info["records"] else { panic!("records are a number") };
    let incomplete = format!("ERR the table is incomplete: it has {arrived} of {} records", whole.len());
    assert_eq!(refused(db, ["CARD.COMMIT", "half", "half"]), incomplete);
    let rest = whole.frames(PIECE_BYTES).nth(1).expect("a second piece");
    let () = ask(db, [b"CARD.STAGE".as_slice(), b"half", b"FRAMES", &rest]);
    let () = ask(db, ["CARD.COMMIT", "half", "done"]);
    assert!(cards(db, "done") == cards_of(whole), "the committed table is another");
    assert_eq!(ask::<i64, _>(db, ["EXISTS", "half"]), 0);
}

/// A table as its clients see it: everything but how much memory it takes.
#[derive(Debug, PartialEq)]
pub struct Seen {
    pub info: BTreeMap<String, Value>,
    pub expires_at: i64,
    /// None while it is staged.
    pub cards: Option<Vec<Card>>,
}

pub type Card = (Vec<u8>, Vec<u128>);

pub fn see(db: &mut Connection, key: &str) -> Seen {
    let mut info: BTreeMap<String, Value> = ask(db, ["CARD.INFO", key, "DIGEST"]);
    info.retain(|name, _| !["memory_bytes", "bytes_per_record", "classes"].contains(&name.as_str()));
    let is_staged = try_ask::<i64, _>(db, ["CARD.LEN", key]).is_err();
    let cards = (!is_staged).then(|| cards(db, key));
    Seen { info, expires_at: ask(db, ["PEXPIRETIME", key]), cards }
}

pub fn see_every_kind(db: &mut Connection) -> BTreeMap<&'static str, Seen> {
    KINDS.map(|key| (key, see(db, key))).into()
}

pub fn dumps(db: &mut Connection) -> [Vec<u8>; KINDS.len()] {
    KINDS.map(|key| ask(db, ["DUMP", key]))
}

/// Those of the tables that a start leaves alone.
pub fn lasting_dumps(db: &mut Connection) -> Vec<Vec<u8>> {
    KINDS.into_iter().filter(|key| *key != "half").map(|key| ask(db, ["DUMP", key])).collect()
}

/// After a start, everything is as it was but "half": no load goes on that was under way, and what it has left over is
/// dropped.
#[track_caller]
pub fn assert_same_after_a_start(db: &mut Connection, before: &BTreeMap<&'static str, Seen>) {
    wait_for(5, "what was staged is dropped", || ask::<i64, _>(db, ["EXISTS", "half"]) == 0);
    let kept = || KINDS.into_iter().filter(|key| *key != "half");
    let now = kept().map(|key| (key, see(db, key))).collect();
    assert_same_kinds(&now, before, kept());
}

#[track_caller]
pub fn assert_same(now: &BTreeMap<&str, Seen>, before: &BTreeMap<&str, Seen>) {
    assert_same_kinds(now, before, KINDS);
}

#[track_caller]
fn assert_same_kinds(
    now: &BTreeMap<&str, Seen>,
    before: &BTreeMap<&str, Seen>,
    kinds: impl IntoIterator<Item = &'static str>,
) {
    for key in kinds {
        let seen = &before[key];
        assert_eq!(now[key].info, seen.info, "{key}");
        assert_eq!(now[key].expires_at, seen.expires_at, "{key}");
        assert!(now[key].cards == seen.cards, "{key} has other cards");
    }
}

pub fn cards(db: &mut Connection, key: &str) -> Vec<Card> {
    let (mut cards, mut cursor) = (Vec::new(), b"0".to_vec());
    loop {
        let scan = [b"CARD.SCAN", key.as_bytes(), &cursor, b"COUNT", b"10000"];
        let (next, some): (Vec<u8>, Vec<Vec<Value>>) = ask(db, scan);
        cards.extend(some.into_iter().map(|mut card| {
            let values = card.split_off(1).into_iter().map(|value| redis::from_redis_value(value).expect("a number"));
            let values = values.collect();
            (redis::from_redis_value(card.remove(0)).expect("an id"), values)
        }));
        if next == b"0" {
            return cards;
        }
        cursor = next;
    }
}

pub fn cards_of(table: &Table) -> Vec<Card> {
    table.iter().map(|(id, symbol)| (id.to_bytes(), table.schema().unpack(symbol))).collect()
}

/// Cards of 31 networks, 16 random digits each.
pub fn random_ids(seed: u64) -> impl Iterator<Item = String> + Send {
    let mut random = fastrand::Rng::with_seed(seed);
    std::iter::repeat_with(move || format!("{}{:016}", 1101 + 100 * random.u64(..31), random.u64(..10u64.pow(16))))
}

/// A table of so many random cards.
pub fn build(count: usize, seed: u64) -> Table {
    let schema = Schema::default();
    let ids: Vec<String> = random_ids(seed).take(count).collect();
    let record = |(at, id)| (Id::parse(str::as_bytes(id)).expect("an id"), at as u128 % 22);
    let records = ids.iter().map(String::as_str).enumerate().map(record);
    Builder::new(schema).table_from_records(records).expect("it builds").result
}

pub fn stage(db: &mut Connection, key: &str, table: &Table, bytes: usize) {
    let () = ask(db, [b"CARD.STAGE", key.as_bytes(), b"BEGIN", &table.header_bytes()]);
    for frames in table.frames(bytes) {
        let () = ask(db, [b"CARD.STAGE", key.as_bytes(), b"FRAMES", &frames]);
    }
}
