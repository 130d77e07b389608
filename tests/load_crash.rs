//! A server that ends in the middle of a load comes back with one list or the other, whole, and loads again.

mod common;

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use common::{Server, ask, try_ask, wait_for, write_long_list};
use redis::{Connection, RedisResult, Value};

const STAGING: &str = "{list}.staging";
const LOG: [&str; 2] = ["--appendonly", "yes"];

/// How many cards the lists have, which are told apart by their type too: 1 and 2.
const CARDS: [u64; 2] = [60_000, 100_000];

/// A server with two lists to load, whose cards have long names, so that there is much to stage; the first is loaded.
fn server(arguments: &[&str]) -> Server {
    let server = Server::with(&[&["--card.load-dir", "lists", "--card.load-threads", "1"], arguments].concat());
    fs::create_dir(server.directory().join("lists")).expect("a folder");
    for (type_, cards) in (1..).zip(CARDS) {
        write_long_list(&server.directory().join(format!("lists/{type_}.tsv")), cards, type_);
    }
    load(&server, 1).expect("loaded");
    server
}

fn load(server: &Server, type_: u64) -> RedisResult<Value> {
    let (file, version) = (format!("{type_}.tsv"), type_.to_string());
    try_ask(&mut server.connect(), ["CARD.LOAD", "list", &file, "VERSION", &version])
}

fn digest(server: &Server) -> String {
    let told: HashMap<String, Value> = ask(&mut server.connect(), "CARD.INFO list DIGEST".split(' '));
    redis::from_redis_value(told["digest"].clone()).expect("a digest")
}

/// The digests of both lists. The first is loaded when this returns.
fn digests(server: &Server) -> [String; 2] {
    let second = load(server, 2).map(|_| digest(server)).expect("loaded");
    let first = load(server, 1).map(|_| digest(server)).expect("loaded");
    assert_ne!(first, second);
    [first, second]
}

/// Which of the lists there is: 1 or 2. It is whole, and says so itself.
#[track_caller]
fn list(server: &Server, digests: &[String; 2]) -> u64 {
    let db = &mut server.connect();
    let at = digests.iter().position(|digest| *digest == self::digest(server)).expect("one list or the other");
    assert_eq!(ask::<u64, _>(db, ["CARD.LEN", "list"]), CARDS[at]);
    let told: HashMap<String, Value> = ask(db, ["CARD.INFO", "list"]);
    assert_eq!(told["version"], Value::Int(at as i64 + 1));
    assert_eq!(told["source"], Value::BulkString(format!("{}.tsv", at + 1).into()));
    assert_eq!(told["loading"], Value::Nil);
    at as u64 + 1
}

/// Whether some cards are staged.
fn is_staged(db: &mut Connection) -> bool {
    let told: HashMap<String, Value> = try_ask(db, ["CARD.INFO", STAGING]).unwrap_or_default();
    told.get("records").is_some_and(|records| *records != Value::Int(0))
}

/// Loads the second list, and returns with the load held in the middle of staging it; then does something.
fn while_staging(server: &mut Server, then: impl FnOnce(&mut Server)) {
    let (mut client, db) = (server.connect(), &mut server.connect());
    begin(&mut client, 2);
    let deadline = Instant::now() + Duration::from_secs(20);
    // Spinning, because staging takes little time.
    while !is_staged(db) {
        assert!(Instant::now() < deadline, "nothing is staged");
    }
    let _: Value = ask(db, "CLIENT PAUSE 10000 WRITE".split(' '));
    assert!(is_staged(db), "it is in the middle of staging");
    then(server);
}

/// Begins a load without waiting for its end.
fn begin(client: &mut Connection, type_: u64) {
    let (file, version) = (format!("{type_}.tsv"), type_.to_string());
    let load = redis::cmd("CARD.LOAD").arg("list").arg(file).arg("VERSION").arg(version).get_packed_command();
    client.send_packed_command(&load).expect("it is sent");
}

/// A load of what is not there yet succeeds, also after a restart, and leaves nothing but the list.
#[track_caller]
fn assert_loads_again(server: &mut Server, digests: &[String; 2]) {
    let next = 3 - list(server, digests);
    load(server, next).expect("loaded");
    assert_eq!(list(server, digests), next);
    assert_eq!(ask::<Vec<String>, _>(&mut server.connect(), ["KEYS", "*"]), ["list"]);
    server.stop();
    server.start_again();
    assert_eq!(list(server, digests), next);
    assert_eq!(ask::<Vec<String>, _>(&mut server.connect(), ["KEYS", "*"]), ["list"]);
}

fn info(db: &mut Connection, field: &str) -> String {
    let info: String = ask(db, ["INFO", "everything"]);
    let value = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.unwrap_or_else(|| panic!("INFO has {field}")).into()
}

#[test]
fn a_server_killed_at_any_moment_of_a_load_comes_back_from_its_log() {
    let mut server = server(&LOG);
    let digests = digests(&server);
    let started = Instant::now();
    load(&server, 2).expect("loaded");
    let takes = started.elapsed().as_micros() as u64;
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..6 {
        let before = list(&server, &digests);
        let mut client = server.connect();
        begin(&mut client, 3 - before);
        // The moments are spread over the whole load, with the end of it, where it stages, hit more often.
        thread::sleep(Duration::from_micros(random.u64(takes * round / 6..takes + takes / 5)));
        server.kill();
        server.start_again();
        list(&server, &digests);
        let keys: BTreeSet<String> = ask(&mut server.connect(), ["KEYS", "*"]);
        assert!(keys.is_subset(&["list", STAGING].map(Into::into).into()), "{keys:?}");
    }
    assert_loads_again(&mut server, &digests);
}

#[test]
fn what_was_staged_when_the_server_was_killed_is_replaced_by_the_next_load() {
    for arguments in [&LOG[..], &["--save", "3600 1"]] {
        let mut server = server(arguments);
        let digests = digests(&server);
        while_staging(&mut server, |server| {
            if arguments != LOG {
                let _: Value = ask(&mut server.connect(), ["SAVE"]);
            }
            server.kill();
            server.start_again();
        });
        assert_eq!(list(&server, &digests), 1, "{arguments:?}");
        assert!(is_staged(&mut server.connect()), "{arguments:?}: it is left over");
        assert_loads_again(&mut server, &digests);
    }
}

#[test]
fn a_snapshot_taken_in_the_middle_has_the_old_list() {
    let mut server = server(&["--save", "3600 1"]);
    let digests = digests(&server);
    while_staging(&mut server, |server| {
        let db = &mut server.connect();
        let _: Value = ask(db, ["BGSAVE"]);
        let _: Value = ask(db, ["CLIENT", "UNPAUSE"]);
        wait_for(20, "the load and the snapshot are done", || {
            info(db, "card_loads_under_way") == "0" && info(db, "rdb_bgsave_in_progress") == "0"
        });
        assert_eq!(list(server, &digests), 2, "the load was completed");
        server.kill();
        server.start_again();
    });
    assert_eq!(list(&server, &digests), 1);
    assert_loads_again(&mut server, &digests);
}

#[test]
fn a_server_that_is_shut_down_in_the_middle_ends_and_comes_back() {
    for arguments in [&LOG[..], &["--save", "3600 1"]] {
        let mut server = server(arguments);
        let digests = digests(&server);
        let mut client = server.connect();
        begin(&mut client, 2);
        let db = &mut server.connect();
        wait_for(10, "the load has begun", || info(db, "card_loads_under_way") == "1");
        server.stop();
        server.start_again();
        assert_loads_again(&mut server, &digests);
    }
}

#[test]
fn a_log_that_is_rewritten_in_the_middle_has_the_new_list_in_the_end() {
    for preamble in ["yes", "no"] {
        let mut server = server(&[&LOG[..], &["--aof-use-rdb-preamble", preamble]].concat());
        let digests = digests(&server);
        while_staging(&mut server, |server| {
            let db = &mut server.connect();
            let _: Value = ask(db, ["BGREWRITEAOF"]);
            wait_for(10, "the rewrite has begun", || {
                info(db, "aof_rewrite_in_progress") == "1" || info(db, "aof_rewrites") != "0"
            });
            let _: Value = ask(db, ["CLIENT", "UNPAUSE"]);
            wait_for(20, "the load and the rewrite are done", || {
                info(db, "card_loads_under_way") == "0"
                    && info(db, "aof_rewrite_in_progress") == "0"
                    && info(db, "aof_rewrite_scheduled") == "0"
            });
            assert_eq!(list(server, &digests), 2);
            server.kill();
            server.start_again();
        });
        assert_eq!(list(&server, &digests), 2, "preamble {preamble}");
        assert_loads_again(&mut server, &digests);
    }
}
