//! The AOF: every kind of table comes back from it, replayed or rewritten, and nothing that was acknowledged is lost.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use common::kinds::*;
use common::{Server, ask, refused, try_ask, wait_for};
use redis::Connection;

/// What is acknowledged is on disk, and the log is rewritten when a test says so.
const LOG: [&str; 6] = ["--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0"];

#[test]
fn every_kind_of_table_is_replayed() {
    let mut server = Server::with(&LOG);
    let db = &mut server.connect();
    make_every_kind(db);
    // It takes effect now, and still does so after a restart: to the millisecond, which only a dump tells.
    stage(db, "now", &build(10, 5), PIECE_BYTES);
    let () = ask(db, ["CARD.COMMIT", "now", "now"]);
    let (before, now_before) = (see_every_kind(db), ask::<Vec<u8>, _>(db, ["DUMP", "now"]));

    server.kill();
    server.start_again();

    let db = &mut server.connect();
    assert_same_after_a_start(db, &before);
    assert_eq!(ask::<Vec<u8>, _>(db, ["DUMP", "now"]), now_before);
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
    make_every_kind(db);
    let (before, dumps_before) = (see_every_kind(db), lasting_dumps(db));
    rewrite(db);

    server.kill();
    server.start_again();

    let db = &mut server.connect();
    assert_same_after_a_start(db, &before);
    // Also what no command tells, such as when a table became ready, to the millisecond.
    assert!(lasting_dumps(db) == dumps_before, "a table is saved otherwise than before");
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
    assert_same_after_a_start(db, &before);
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
