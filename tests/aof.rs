//! The AOF: every kind of table comes back from it, replayed or rewritten, and nothing that was acknowledged is lost.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use card_table::{Builder, Id, Schema, Table};
use common::{Server, ask, refused, try_ask, wait_for};
use redis::{Connection, Value};

/// What is acknowledged is on disk, and the log is rewritten when a test says so.
const LOG: [&str; 6] = ["--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0"];

#[test]
fn every_kind_of_table_is_replayed() {
    let mut server = Server::with(&LOG);
    let db = &mut server.connect();
    let whole = make_every_kind(db);
    // It takes effect now, and still does so after a restart: to the millisecond, which only a dump tells.
    stage(db, "now", &build(10, 5), PIECE_BYTES);
    let () = ask(db, ["CARD.COMMIT", "now", "now"]);
    let (before, now_before) = (see_every_kind(db), ask::<Vec<u8>, _>(db, ["DUMP", "now"]));

    server.kill();
    server.start_again();

    let db = &mut server.connect();
    assert_same(&see_every_kind(db), &before);
    assert_eq!(ask::<Vec<u8>, _>(db, ["DUMP", "now"]), now_before);
    finish_half(db, &whole);
}

#[test]
fn a_list_of_single_cards_still_says_since_when_it_has_been_in_effect() {
    let mut server = Server::with(&[&LOG[..], &["--card.darkver", "effective"]].concat());
    let db = &mut server.connect();
    let _: i64 = ask(db, ["CARD.SET", "list", "44015186100181001473", "7", "1"]);
    let seconds = |db: &mut Connection| ask::<(u64, u64), _>(db, ["TIME"]).0;
    let set_at = seconds(db);
    let query = ["CARD.QUERY", "list", "cardid=44015186100181001473&cmdtype=blacklistquery"];
    let before: String = ask(db, query);

    wait_for(5, "a second that differs", || seconds(db) > set_at);
    server.kill();
    server.start_again();

    assert_eq!(ask::<String, _>(&mut server.connect(), query), before);
}

#[test]
fn a_created_table_keeps_its_time_to_live_when_it_gets_its_first_card() {
    let mut server = Server::with(&LOG);
    let db = &mut server.connect();
    let () = ask(db, ["CARD.CREATE", "list"]);
    let _: i64 = ask(db, ["PEXPIREAT", "list", "4102444800000"]);
    let _: i64 = ask(db, ["CARD.SET", "list", "44015186100181001473", "7", "1"]);
    assert_eq!(ask::<i64, _>(db, ["PEXPIRETIME", "list"]), 4102444800000);

    server.kill();
    server.start_again();

    assert_eq!(ask::<i64, _>(&mut server.connect(), ["PEXPIRETIME", "list"]), 4102444800000);
}

#[test]
fn every_kind_of_table_comes_back_from_a_log_rewritten_as_commands() {
    every_kind_of_table_comes_back_from_a_rewritten_log("no");
}

#[test]
fn every_kind_of_table_comes_back_from_a_log_rewritten_with_an_rdb_preamble() {
    every_kind_of_table_comes_back_from_a_rewritten_log("yes");
}

fn every_kind_of_table_comes_back_from_a_rewritten_log(preamble: &str) {
    let mut server = Server::with(&[&LOG[..], &["--aof-use-rdb-preamble", preamble]].concat());
    let db = &mut server.connect();
    let whole = make_every_kind(db);
    let (before, dumps_before) = (see_every_kind(db), dumps(db));
    rewrite(db);

    server.kill();
    server.start_again();

    let db = &mut server.connect();
    assert_same(&see_every_kind(db), &before);
    // Also what no command tells, such as when a table became ready, to the millisecond.
    assert!(dumps(db) == dumps_before, "a table is saved otherwise than before");
    finish_half(db, &whole);
}

#[test]
fn a_large_table_is_rewritten_in_pieces() {
    let table = build(200_000, 5);
    let mut server = Server::with(&[&LOG[..], &["--aof-use-rdb-preamble", "no"]].concat());
    let db = &mut server.connect();
    stage(db, "large", &table, 1 << 20);
    let () = ask(db, ["CARD.COMMIT", "large", "large", "AT", "1000", "SOURCE", "f", "ROWS", "200000"]);
    rewrite(db);

    let base = server.directory().join("appendonlydir/appendonly.aof.2.base.aof");
    let sent = arguments(&fs::read(base).unwrap());
    let longest = sent.iter().map(Vec::len).max().expect("arguments");
    assert!(longest <= 256 << 10, "a command carries {longest} bytes");
    assert_eq!(sent.iter().filter(|argument| *argument == b"FRAMES").count(), table.frames(256 << 10).count());

    server.kill();
    server.start_again();

    assert!(cards(&mut server.connect(), "large") == cards_of(&table), "the table is another");
}

#[test]
fn what_is_acknowledged_survives_rewrites_as_commands_and_a_kill() {
    what_is_acknowledged_survives_rewrites_and_a_kill("no");
}

#[test]
fn what_is_acknowledged_survives_rewrites_with_an_rdb_preamble_and_a_kill() {
    what_is_acknowledged_survives_rewrites_and_a_kill("yes");
}

fn what_is_acknowledged_survives_rewrites_and_a_kill(preamble: &str) {
    const CARDS: u64 = 2_000;
    // Rewriting a key takes 0.1 s, so that there is writing meanwhile.
    let slow = ["--aof-use-rdb-preamble", preamble, "--rdb-key-save-delay", "100000"];
    let mut server = Server::with(&[&LOG[..], &slow].concat());
    let db = &mut server.connect();
    make_every_kind(db);
    let before = see_every_kind(db);
    let () = ask(db, ["CARD.CREATE", "t", "FIELD", "step", "0", "99999999"]);
    let late = build(6_000, 5);
    let late_pieces: Vec<_> = late.frames(PIECE_BYTES).collect();
    let () = ask(db, [b"CARD.STAGE".as_slice(), b"late", b"BEGIN", &late.header_bytes()]);
    let ids: Vec<String> = random_ids(6).take(CARDS as usize).collect();
    let (acknowledged, enough) = (AtomicU64::new(0), AtomicBool::new(false));
    let steps = || acknowledged.load(Ordering::SeqCst);

    // Step n writes n to card n modulo CARDS: all cards together tell exactly which steps there were.
    let during_rewrite = thread::scope(|scope| {
        let mut writer = server.connect();
        let (ids, acknowledged, enough) = (&ids, &acknowledged, &enough);
        let _end = EndOnDrop(enough);
        scope.spawn(move || {
            for step in (0u64..).take_while(|_| !enough.load(Ordering::SeqCst)) {
                let id = &ids[(step % CARDS) as usize];
                // Until the server is killed.
                if try_ask::<i64, _>(&mut writer, ["CARD.SET", "t", id, &step.to_string()]).is_err() {
                    break;
                }
                acknowledged.store(step + 1, Ordering::SeqCst);
            }
        });
        wait_for(20, "some writing", || steps() > 100);
        let _: String = ask(db, ["BGREWRITEAOF"]);
        let at_begin = steps();
        // A load that began before the rewrite ends during it.
        for frames in &late_pieces {
            let () = ask(db, [b"CARD.STAGE".as_slice(), b"late", b"FRAMES", frames]);
        }
        let () = ask(db, ["CARD.COMMIT", "late", "late", "AT", "1000"]);
        assert_eq!(figure(db, "aof_rewrite_in_progress"), "1");
        wait_for(20, "the rewrite", || figure(db, "aof_rewrite_in_progress") == "0");
        let during_rewrite = steps() - at_begin;

        let _: String = ask(db, ["BGREWRITEAOF"]);
        let at_begin = steps();
        wait_for(20, "writing during the second rewrite", || steps() > at_begin + 10);
        assert_eq!(figure(db, "aof_rewrite_in_progress"), "1");
        server.kill();
        during_rewrite
    });
    assert!(during_rewrite > 0, "nothing was written during the rewrite");

    server.start_again();

    let db = &mut server.connect();
    assert_same(&see_every_kind(db), &before);
    assert!(cards(db, "late") == cards_of(&late), "the table that was loaded is another");
    let found: BTreeMap<Vec<u8>, Vec<u128>> = cards(db, "t").into_iter().collect();
    let last = *found.values().flatten().max().expect("there are cards") as u64;
    // One more step may have been carried out and not be acknowledged.
    assert!((steps()..=steps() + 1).contains(&(last + 1)), "{} steps acknowledged, step {last} is the last", steps());
    let expected = (0..CARDS.min(last + 1)).zip(&ids).map(|(at, id)| {
        let step = last - (last - at) % CARDS;
        (id.as_bytes().to_vec(), vec![u128::from(step)])
    });
    assert!(found == expected.collect(), "cards have other values than step {last} has left");
}

#[test]
fn what_changes_nothing_is_not_logged() {
    let server = Server::with(&LOG);
    let db = &mut server.connect();
    let _: i64 = ask(db, ["CARD.SET", "t", "44015186100181001473", "7", "1"]);
    let size = figure(db, "aof_current_size");

    assert_eq!(ask::<i64, _>(db, ["CARD.SET", "t", "44015186100181001473", "7", "1"]), 0);
    assert_eq!(ask::<i64, _>(db, ["CARD.MSET", "t", "44015186100181001473", "7", "1"]), 0);
    assert_eq!(ask::<i64, _>(db, ["CARD.DEL", "t", "1", "2"]), 0);
    refused(db, ["CARD.MSET", "t", "1", "7", "1", "2", "7", "3"]);
    refused(db, ["CARD.CREATE", "t"]);
    refused(db, ["CARD.STAGE", "t", "BEGIN", "no header"]);
    refused(db, ["CARD.COMMIT", "none", "t"]);
    assert_eq!(ask::<i64, _>(db, ["CARD.LEN", "t"]), 1);
    assert_eq!(figure(db, "aof_current_size"), size);
}

/// Tells a thread to end, also when a test fails: it would be waited for.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn rewrite(db: &mut Connection) {
    let _: String = ask(db, ["BGREWRITEAOF"]);
    wait_for(20, "the rewrite", || figure(db, "aof_rewrite_in_progress") == "0");
    assert_eq!(figure(db, "aof_last_bgrewrite_status"), "ok");
}

/// All arguments of all commands of a log.
fn arguments(mut log: &[u8]) -> Vec<Vec<u8>> {
    let mut arguments = Vec::new();
    while let Some(end) = log.iter().position(|&byte| byte == b'\n') {
        let (line, rest) = log.split_at(end + 1);
        log = rest;
        if let [b'$', len @ .., b'\r', b'\n'] = line {
            let len: usize = str::from_utf8(len).unwrap().parse().unwrap();
            arguments.push(log[..len].to_vec());
            log = &log[len + 2..];
        }
    }
    arguments
}

fn figure(db: &mut Connection, name: &str) -> String {
    let info: String = ask(db, ["INFO", "persistence"]);
    let mut lines = info.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(field, _)| *field == name).expect("INFO has it").1.into()
}

/// The tables that [`make_every_kind`] makes.
const KINDS: [&str; 8] = ["cards", "wide", "created", "emptied", "loaded", "versioned", "unnamed", "half"];

/// What "half" has got of the table that it will be, and what it gets at a time.
const PIECE_BYTES: usize = 20 << 10;

/// Ids of every class, and what may be between classes.
fn ids_of_every_class() -> Vec<Vec<u8>> {
    let numbers = ["7", "007", "44015186100181001473", "99999999999999999999999999999999999999"];
    let hex = ["beef", "BEEF", "0123456789abcdef0123456789abcdef", "FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF"];
    let uuids = ["123e4567-e89b-12d3-a456-426614174000", "123E4567-E89B-12D3-A456-426614174000"];
    let texts = ["0x7", "7 ", "cookie-1", "cookie-2", "é"];
    let mut ids: Vec<Vec<u8>> = [&numbers[..], &hex, &uuids, &texts].concat().iter().map(|id| (*id).into()).collect();
    ids.extend([b"\0\r\n\xff".to_vec(), vec![b'x'; 4096]]);
    ids
}

/// Makes one table of every kind, and returns the one that "half" has a part of.
fn make_every_kind(db: &mut Connection) -> Table {
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
fn finish_half(db: &mut Connection, whole: &Table) {
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
struct Seen {
    info: BTreeMap<String, Value>,
    expires_at: i64,
    /// None while it is staged.
    cards: Option<Vec<Card>>,
}

type Card = (Vec<u8>, Vec<u128>);

fn see(db: &mut Connection, key: &str) -> Seen {
    let mut info: BTreeMap<String, Value> = ask(db, ["CARD.INFO", key, "DIGEST"]);
    info.retain(|name, _| !["memory_bytes", "bytes_per_record", "classes"].contains(&name.as_str()));
    let is_staged = try_ask::<i64, _>(db, ["CARD.LEN", key]).is_err();
    let cards = (!is_staged).then(|| cards(db, key));
    Seen { info, expires_at: ask(db, ["PEXPIRETIME", key]), cards }
}

fn see_every_kind(db: &mut Connection) -> BTreeMap<&'static str, Seen> {
    KINDS.map(|key| (key, see(db, key))).into()
}

fn dumps(db: &mut Connection) -> [Vec<u8>; KINDS.len()] {
    KINDS.map(|key| ask(db, ["DUMP", key]))
}

#[track_caller]
fn assert_same(now: &BTreeMap<&str, Seen>, before: &BTreeMap<&str, Seen>) {
    for (key, seen) in before {
        assert_eq!(now[key].info, seen.info, "{key}");
        assert_eq!(now[key].expires_at, seen.expires_at, "{key}");
        assert!(now[key].cards == seen.cards, "{key} has other cards");
    }
}

fn cards(db: &mut Connection, key: &str) -> Vec<Card> {
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

fn cards_of(table: &Table) -> Vec<Card> {
    table.iter().map(|(id, symbol)| (id.to_bytes(), table.schema().unpack(symbol))).collect()
}

/// Cards of 31 networks, 16 random digits each.
fn random_ids(seed: u64) -> impl Iterator<Item = String> + Send {
    let mut random = fastrand::Rng::with_seed(seed);
    std::iter::repeat_with(move || format!("{}{:016}", 1101 + 100 * random.u64(..31), random.u64(..10u64.pow(16))))
}

/// A table of so many random cards.
fn build(count: usize, seed: u64) -> Table {
    let schema = Schema::default();
    let ids: Vec<String> = random_ids(seed).take(count).collect();
    let record = |(at, id)| (Id::parse(str::as_bytes(id)).expect("an id"), at as u128 % 22);
    let records = ids.iter().map(String::as_str).enumerate().map(record);
    Builder::new(schema).table_from_records(records).expect("it builds").result
}

fn stage(db: &mut Connection, key: &str, table: &Table, bytes: usize) {
    let () = ask(db, [b"CARD.STAGE", key.as_bytes(), b"BEGIN", &table.header_bytes()]);
    for frames in table.frames(bytes) {
        let () = ask(db, [b"CARD.STAGE", key.as_bytes(), b"FRAMES", &frames]);
    }
}
