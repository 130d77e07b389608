//! Memory: what a table says it takes is what it takes, it is little, and when there is no more a write fails cleanly.

mod common;

use std::collections::BTreeMap;

use card_table::{Builder, Id, Schema, Table};
use common::kinds::{cards, cards_of};
use common::{Server, ask, refused, try_ask, wait_for};
use redis::{Connection, Value};

/// Large enough that what a server needs for itself does not matter.
const MANY: usize = 500_000;

const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";

#[test]
fn memory_usage_is_what_a_loaded_table_adds_and_what_goes_with_it() {
    let table = build(MANY, 1);
    let server = steady_server();
    let db = &mut server.connect();
    let before = used_memory(db);

    load(&server, "t", &table);
    let usage: u64 = ask(db, ["MEMORY", "USAGE", "t"]);
    assert_close(used_memory(db) - before, usage, "a table was loaded");

    let () = ask(db, ["DEBUG", "RELOAD"]);
    let usage: u64 = ask(db, ["MEMORY", "USAGE", "t"]);
    let with_table = used_memory(db);
    assert_close(with_table - before, usage, "the table was read from an RDB file");

    let _: i64 = ask(db, ["DEL", "t"]);
    assert_close(with_table - used_memory(db), usage, "the table was deleted");
}

#[test]
fn memory_usage_is_what_a_table_adds_while_it_arrives() {
    let table = build(MANY, 2);
    let server = steady_server();
    let db = &mut server.connect();
    let before = used_memory(db);
    let pieces: Vec<_> = table.frames(256 << 10).collect();
    {
        let loader = &mut server.connect();
        let () = ask(loader, [b"CARD.STAGE".as_slice(), b"t", b"BEGIN", &table.header_bytes()]);
        for frames in &pieces[..pieces.len() - 1] {
            let () = ask(loader, [b"CARD.STAGE".as_slice(), b"t", b"FRAMES", frames]);
        }
    }
    let usage: u64 = ask(db, ["MEMORY", "USAGE", "t"]);
    assert_close(used_memory(db) - before, usage, "a table has nearly arrived");
}

#[test]
fn memory_usage_is_what_a_table_has_grown_to_and_shrunk_to_card_by_card() {
    let server = steady_server();
    let db = &mut server.connect();
    let before = used_memory(db);
    let ids: Vec<String> = random_ids(3).take(100_000).collect();
    {
        let writer = &mut server.connect();
        for some in ids.chunks(1_000) {
            assert_eq!(set(writer, "t", some), some.len());
        }
    }
    let grown: u64 = ask(db, ["MEMORY", "USAGE", "t"]);
    assert_close(used_memory(db) - before, grown, "cards were set");

    {
        let writer = &mut server.connect();
        for some in ids[50_000..].chunks(1_000) {
            let removed: usize = redis::cmd("CARD.DEL").arg("t").arg(some).query(writer).unwrap();
            assert_eq!(removed, some.len());
        }
    }
    let shrunk: u64 = ask(db, ["MEMORY", "USAGE", "t"]);
    assert_close(used_memory(db) - before, shrunk, "cards were removed");
    assert!(shrunk < grown * 7 / 10, "half of the cards take {shrunk} bytes of {grown}");
}

#[test]
fn the_totals_in_info_are_those_of_the_tables() {
    let server = Server::start();
    let db = &mut server.connect();
    load(&server, "loaded", &build(20_000, 4));
    let _: i64 = ask(db, ["CARD.SET", "set", "44015186100181001473", "7", "1"]);
    let () = ask(db, ["CARD.CREATE", "created", "FIELD", "a_rather_long_name_of_a_field", "0", "1"]);
    let header = build(20_000, 5).header_bytes();
    let () = ask(db, [b"CARD.STAGE".as_slice(), b"staged", b"BEGIN", &header]);
    let _: i64 = ask(db, ["COPY", "loaded", "copied"]);

    let keys = ["loaded", "set", "created", "staged", "copied"];
    let bytes: Vec<u64> = keys.iter().map(|key| told(db, key, "memory_bytes")).collect();
    for (key, bytes) in keys.iter().zip(&bytes) {
        // Redis adds what the key itself takes.
        let usage: u64 = ask(db, ["MEMORY", "USAGE", key]);
        assert!((32..=128).contains(&(usage - bytes)), "{key} takes {bytes} bytes, Redis says {usage}");
    }
    assert_eq!(figure(db, "card", "card_bytes"), bytes.iter().sum::<u64>());
    assert_eq!(figure(db, "card", "card_tables"), 5);
    assert_eq!(figure(db, "card", "card_records"), 40_001);

    let _: i64 = ask(db, ["DEL", "loaded", "created", "staged"]);
    assert_eq!(figure(db, "card", "card_bytes"), bytes[1] + bytes[4]);
    let () = ask(db, ["FLUSHALL"]);
    assert_eq!(["card_bytes", "card_tables", "card_records"].map(|name| figure(db, "card", name)), [0; 3]);
}

#[test]
fn random_cards_of_31_networks_take_little_more_than_they_must() {
    let server = Server::start();
    let db = &mut server.connect();
    let count = 300_000;
    load(&server, "values", &build(count, 6));
    load(&server, "same", &build_with(count, 6, |_| 14));

    // log2 of the ways to choose so many ids, and of the 22 values, shared out: what no table can be below.
    let ids = (31e16 / count as f64).log2() + std::f64::consts::E.log2();
    let least = (ids + 22f64.log2()) / 8.0;
    let bytes_per_record: f64 = told(db, "values", "bytes_per_record");
    assert!(
        (1.0..1.03).contains(&(bytes_per_record / least)),
        "{bytes_per_record} bytes a card, of at least {least:.3}"
    );

    // Where all cards have the same values, these take nothing.
    let bytes_per_record: f64 = told(db, "same", "bytes_per_record");
    assert!((ids / 8.0..5.6).contains(&bytes_per_record), "{bytes_per_record} bytes a card");
}

#[test]
fn when_memory_is_full_writes_fail_and_the_tables_stay_whole() {
    let server = Server::start();
    let db = &mut server.connect();
    let (table, other) = (build(20_000, 7), build(20_000, 8));
    let pieces: Vec<_> = other.frames(64 << 10).collect();
    load(&server, "loaded", &table);
    let () = ask(db, [b"CARD.STAGE".as_slice(), b"whole", b"BEGIN", &other.header_bytes()]);
    pieces.iter().for_each(|frames| ask(db, [b"CARD.STAGE".as_slice(), b"whole", b"FRAMES", frames]));
    let () = ask(db, [b"CARD.STAGE".as_slice(), b"half", b"BEGIN", &other.header_bytes()]);
    let () = ask(db, [b"CARD.STAGE".as_slice(), b"half", b"FRAMES", &pieces[0]]);

    // Room for some more cards.
    let limit = used_memory(db) + (100 << 10);
    let () = ask(db, ["CONFIG", "SET", "maxmemory", &limit.to_string()]);
    let mut acknowledged = BTreeMap::new();
    let mut ids = random_ids(9);
    let failure = loop {
        let id = ids.next().expect("there is no end of ids");
        match try_ask::<i64, _>(db, ["CARD.SET", "set", &id, "7", "2"]) {
            Ok(new) => assert_eq!(new, 1),
            Err(error) => break error,
        }
        acknowledged.insert(id.into_bytes(), vec![7, 2]);
        assert!(acknowledged.len() < 200_000, "the limit is never reached");
    };
    assert_eq!(failure.code(), Some("OOM"));
    assert!(acknowledged.len() > 1_000, "only {} cards fitted", acknowledged.len());

    // Well beyond the limit, so that no buffer that comes or goes decides what follows.
    let () = ask(db, ["CONFIG", "SET", "maxmemory", &(limit / 2).to_string()]);
    assert_eq!(refused(db, ["CARD.SET", "set", "1", "7", "2"]), OOM);
    assert_eq!(refused(db, ["CARD.MSET", "set", "1", "7", "2", "2", "7", "2"]), OOM);
    assert_eq!(refused(db, ["CARD.CREATE", "created"]), OOM);
    assert_eq!(refused(db, [b"CARD.STAGE".as_slice(), b"new", b"BEGIN", &other.header_bytes()]), OOM);
    assert_eq!(refused(db, [b"CARD.STAGE".as_slice(), b"half", b"FRAMES", &pieces[1]]), OOM);

    // Everything is as it was, can be asked, and a table that has arrived can be put in its place.
    assert_eq!(cards(db, "set").into_iter().collect::<BTreeMap<_, _>>(), acknowledged);
    assert!(cards(db, "loaded") == cards_of(&table), "the loaded table is another");
    assert_eq!(ask::<i64, _>(db, ["EXISTS", "created", "new"]), 0);
    let () = ask(db, ["CARD.COMMIT", "whole", "loaded"]);
    assert!(cards(db, "loaded") == cards_of(&other), "the table that took its place is another");

    // Cards can be removed, and when there is room again they can be set.
    let removed: Vec<&Vec<u8>> = acknowledged.keys().take(1_000).collect();
    let mut del = redis::cmd("CARD.DEL");
    del.arg("set");
    removed.iter().for_each(|id| {
        del.arg(id.as_slice());
    });
    assert_eq!(del.query::<usize>(db).unwrap(), removed.len());
    let () = ask(db, ["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(ask::<i64, _>(db, ["CARD.SET", "set", "1", "7", "2"]), 1);
    pieces[1..].iter().for_each(|frames| ask(db, [b"CARD.STAGE".as_slice(), b"half", b"FRAMES", frames]));
    let () = ask(db, ["CARD.COMMIT", "half", "half"]);
    assert!(cards(db, "half") == cards_of(&other), "the table that waited for room is another");
}

#[test]
fn tables_stay_right_while_they_are_defragmented() {
    let server = Server::start();
    let db = &mut server.connect();
    // Debian's server has an allocator that cannot tell what is worth moving.
    if let Err(error) = try_ask::<(), _>(db, ["CONFIG", "SET", "activedefrag", "yes"]) {
        println!("skipped: {error}");
        return;
    }
    let () = ask(db, ["CONFIG", "SET", "activedefrag", "no"]);
    let settings = ["active-defrag-ignore-bytes", "1", "active-defrag-threshold-lower", "1"];
    let effort = ["active-defrag-cycle-min", "60", "active-defrag-cycle-max", "75", "hz", "100"];
    let () = ask(db, ["CONFIG", "SET"].iter().chain(&settings).chain(&effort));

    // Tables that grow in turns lie among each other; when every second one goes, holes are left between blocks. They are
    // not loaded: blocks of a loaded table have a page each, and leave no holes.
    let keys: Vec<String> = (0..8).map(|at| format!("t{at}")).collect();
    let mut ids = random_ids(10);
    for at in 0..15 * keys.len() {
        let some: Vec<String> = ids.by_ref().take(1_000).collect();
        assert_eq!(set(db, &keys[at % keys.len()], &some), 1_000);
    }
    let left: Vec<&String> = keys.iter().step_by(2).collect();
    keys.iter().skip(1).step_by(2).for_each(|key| assert_eq!(ask::<i64, _>(db, ["DEL", key]), 1));
    let before: Vec<_> = left.iter().map(|key| (cards(db, key), told::<String>(db, key, "digest"))).collect();

    let () = ask(db, ["CONFIG", "SET", "activedefrag", "yes"]);
    wait_for(30, "some blocks to be moved", || {
        for (key, (cards, _)) in left.iter().zip(&before) {
            let (id, values) = &cards[fastrand::usize(..cards.len())];
            assert_eq!(ask::<Vec<u128>, _>(db, [b"CARD.GET", key.as_bytes(), id]), *values);
            assert_eq!(ask::<i64, _>(db, ["CARD.SET", key, "1", "1", "1"]), 1);
            assert_eq!(ask::<i64, _>(db, ["CARD.DEL", key, "1"]), 1);
        }
        figure(db, "stats", "active_defrag_hits") > 20
    });
    for (key, (cards_before, digest)) in left.iter().zip(&before) {
        assert!(cards(db, key) == *cards_before, "{key} has other cards");
        assert_eq!(told::<String>(db, key, "digest"), *digest);
    }
}

fn set(db: &mut Connection, key: &str, ids: &[String]) -> usize {
    let mut set = redis::cmd("CARD.MSET");
    set.arg(key);
    ids.iter().enumerate().for_each(|(at, id)| {
        set.arg(id).arg(at % 11).arg(1 + at % 2);
    });
    set.query(db).expect("the cards are set")
}

/// A server whose memory changes with its tables only: every command that is used for the first time would take 25 KB to
/// track its latency, slow ones would be logged, and buffers of connections would be resized as they come and go.
fn steady_server() -> Server {
    let debug = ["--enable-debug-command", "yes"];
    let server = Server::with(&[&debug[..], &["--latency-tracking", "no", "--slowlog-log-slower-than", "-1"]].concat());
    let () = ask(&mut server.connect(), ["DEBUG", "REPLYBUFFER", "RESIZING", "0"]);
    server
}

/// Within 2 %.
#[track_caller]
fn assert_close(measured: u64, usage: u64, when: &str) {
    let off = measured.abs_diff(usage) as f64 / measured as f64;
    println!("{when}: MEMORY USAGE {usage}, used_memory {measured}, off by {:.3} %", 100.0 * off);
    assert!(off < 0.02, "{when}: MEMORY USAGE {usage}, but used_memory tells {measured}");
}

/// What the server uses when only this connection is left and nothing waits to be freed.
fn used_memory(db: &mut Connection) -> u64 {
    wait_for(10, "the other connections to end", || figure(db, "clients", "connected_clients") == 1);
    wait_for(10, "what is freed in the background", || figure(db, "memory", "lazyfree_pending_objects") == 0);
    figure(db, "memory", "used_memory")
}

fn figure(db: &mut Connection, section: &str, name: &str) -> u64 {
    let info: String = ask(db, ["INFO", section]);
    let mut lines = info.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(field, _)| *field == name).expect("INFO has it").1.parse().expect("a number")
}

/// A field of CARD.INFO.
fn told<T: redis::FromRedisValue>(db: &mut Connection, key: &str, field: &str) -> T {
    let info: BTreeMap<String, Value> = ask(db, ["CARD.INFO", key, "DIGEST"]);
    redis::from_redis_value(info[field].clone()).expect("CARD.INFO tells it")
}

/// Loads a table over a connection of its own, whose buffers go with it.
fn load(server: &Server, key: &str, table: &Table) {
    let loader = &mut server.connect();
    let () = ask(loader, [b"CARD.STAGE", key.as_bytes(), b"BEGIN", &table.header_bytes()]);
    for frames in table.frames(256 << 10) {
        let () = ask(loader, [b"CARD.STAGE", key.as_bytes(), b"FRAMES", &frames]);
    }
    let () = ask(loader, ["CARD.COMMIT", key, key]);
}

/// Cards of 31 networks, 16 random digits each.
fn random_ids(seed: u64) -> impl Iterator<Item = String> + Send {
    let mut random = fastrand::Rng::with_seed(seed);
    std::iter::repeat_with(move || format!("{}{:016}", 1101 + 100 * random.u64(..31), random.u64(..10u64.pow(16))))
}

/// A table of so many random cards.
fn build(count: usize, seed: u64) -> Table {
    build_with(count, seed, |at| at as u128 % 22)
}

fn build_with(count: usize, seed: u64, symbol: fn(usize) -> u128) -> Table {
    let ids: Vec<String> = random_ids(seed).take(count).collect();
    let record = |(at, id)| (Id::parse(str::as_bytes(id)).expect("an id"), symbol(at));
    let records = ids.iter().map(String::as_str).enumerate().map(record);
    Builder::new(Schema::default()).table_from_records(records).expect("it builds").result
}
