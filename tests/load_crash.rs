//! A server that ends in the middle of a load, of a list or of changes, comes back with the old list or the new one,
//! whole, and loads again. What the load has left over is dropped.

mod common;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use card_table::Schema;
use common::deltas::{
    LISTS, LONG, Row, TABLE_GONE, digest, failure, has_patch, info, load_long_list, memory, reply, resume, send, tsv,
    write,
};
use common::{Server, ask, long_ids, try_ask, wait_for};
use redis::{Connection, Value};

const STAGING: &str = "{list}.staging";
const LOG: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];
const SNAPSHOTS: [&str; 2] = ["--save", "3600 1"];

/// How often a server is killed in each of the three ways to keep data.
const KILLS: u64 = 10;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Full,
    Delta,
}

const KINDS: [Kind; 2] = [Kind::Full, Kind::Delta];

/// Which list there is.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Which {
    Old,
    New,
}

impl Which {
    fn other(self) -> Which {
        if self == Which::Old { Which::New } else { Which::Old }
    }
}

/// A server with the old list, in version 1, and the files that make the new list of it and the old one again.
fn server(arguments: &[&str]) -> Server {
    let server = Server::with(&[&LISTS[..], &["--enable-debug-command", "yes"], arguments].concat());
    load_long_list(&server);
    let all: Vec<Row> = LONG.new.iter().map(|(id, values)| (id.clone(), Some(values.clone()))).collect();
    write(&server, "new.tsv", tsv(&Schema::default(), &all));
    server
}

/// The command that makes the other list of what is there.
fn load(kind: Kind, to: Which, version: u64) -> String {
    let file = match (kind, to) {
        (Kind::Full, Which::Old) => "old.tsv",
        (Kind::Full, Which::New) => "new.tsv",
        (Kind::Delta, Which::New) => "changes.tsv DELTA",
        (Kind::Delta, Which::Old) => "back.tsv DELTA",
    };
    format!("CARD.LOAD list {file} VERSION {version}")
}

/// Which list there is, and its version. It is whole.
#[track_caller]
fn list(db: &mut Connection) -> (Which, u64) {
    let digest = digest(db, "list");
    let which = if digest == LONG.old_digest { Which::Old } else { Which::New };
    let (expected, cards) = match which {
        Which::Old => (&LONG.old_digest, LONG.old.len()),
        Which::New => (&LONG.new_digest, LONG.new.len()),
    };
    assert_eq!(digest, *expected, "it is neither the old list nor the new one");
    assert_eq!(ask::<usize, _>(db, ["CARD.LEN", "list"]), cards);
    (which, version(db))
}

fn version(db: &mut Connection) -> u64 {
    let told: HashMap<String, Value> = ask(db, ["CARD.INFO", "list"]);
    redis::from_redis_value(told["version"].clone()).expect("a number")
}

/// What loads have left over goes away by itself.
#[track_caller]
fn wait_until_nothing_is_left_over(db: &mut Connection) {
    wait_for(5, "what is left over is dropped", || {
        ask::<Vec<String>, _>(db, ["KEYS", "*"]) == ["list"] && !has_patch(db, "list")
    });
}

/// A load of what is not there yet succeeds, also after a restart, and leaves nothing but the list.
#[track_caller]
fn assert_loads_again(server: &mut Server, kind: Kind) {
    let db = &mut server.connect();
    let next = list(db).0.other();
    let _: Value = ask(db, load(kind, next, 1_000).split(' '));
    for restart in [false, true] {
        if restart {
            server.stop();
            server.start_again();
        }
        let db = &mut server.connect();
        assert_eq!(list(db), (next, 1_000));
        assert!(!has_patch(db, "list"));
        assert_eq!(ask::<Vec<String>, _>(db, ["KEYS", "*"]), ["list"]);
    }
}

/// Whether something is staged, of a table that takes so much by itself.
fn is_staged(db: &mut Connection, before: u64) -> bool {
    let told: HashMap<String, Value> = try_ask(db, ["CARD.INFO", STAGING]).unwrap_or_default();
    told.get("records").is_some_and(|records| *records != Value::Int(0)) || memory(db, "list") > before + (300 << 10)
}

/// Loads the new list, and returns with the load held in the middle of staging it.
#[track_caller]
fn begin_and_hold(server: &Server, kind: Kind) -> Connection {
    let db = &mut server.connect();
    let before = memory(db, "list");
    let client = send(server, load(kind, Which::New, 2).split(' '));
    let deadline = Instant::now() + Duration::from_secs(20);
    // Spinning, because staging takes little time.
    while !is_staged(db, before) {
        assert!(Instant::now() < deadline, "nothing is staged");
    }
    let _: Value = ask(db, "CLIENT PAUSE 30000 WRITE".split(' '));
    assert_eq!(info(db, "card_loads_under_way"), "1", "it is in the middle of staging");
    client
}

/// A client that writes to cards that are in no list, some in every block, and knows what it was told.
struct Writer {
    ids: Vec<String>,
    /// The number of the last write that was answered; each card is written to in turn, with the number's last digit.
    answered: AtomicU64,
    done: AtomicBool,
}

impl Writer {
    fn new() -> Writer {
        Writer { ids: long_ids(99).take(500).collect(), answered: AtomicU64::new(0), done: AtomicBool::new(false) }
    }

    fn card(&self, number: u64) -> (&str, String) {
        (&self.ids[number as usize % self.ids.len()], (number % 10).to_string())
    }

    /// Writes until it is done or the server is gone.
    fn run(&self, server: &mut Connection) {
        for number in 1.. {
            let (id, type_) = self.card(number);
            let is_done = self.done.load(Ordering::Relaxed);
            if is_done || try_ask::<i64, _>(server, ["CARD.SET", "list", id, &type_, "1"]).is_err() {
                return;
            }
            self.answered.store(number, Ordering::Relaxed);
        }
    }

    /// All that was answered is there.
    #[track_caller]
    fn assert_kept(&self, db: &mut Connection) {
        let answered = self.answered.load(Ordering::Relaxed);
        for number in answered.saturating_sub(self.ids.len() as u64 - 1).max(1)..=answered {
            let (id, type_) = self.card(number);
            let found: Option<Vec<u64>> = ask(db, ["CARD.GET", "list", id]);
            // The one that was not answered any more may have come after all, to the card that is next in turn.
            let (next, next_type) = self.card(answered + 1);
            let expected = |type_: &str| Some(vec![type_.parse().expect("a digit"), 1]);
            let may_be_next = id == next && found == expected(&next_type);
            assert!(found == expected(&type_) || may_be_next, "write {number} of {answered}: {found:?}");
        }
    }

    fn remove_all(&self, db: &mut Connection) {
        let _: i64 = ask(db, ["CARD.DEL", "list"].into_iter().chain(self.ids.iter().map(String::as_str)));
    }
}

fn seed() -> u64 {
    let given = std::env::var("CARD_SEED").ok();
    given.map_or_else(|| fastrand::u64(..), |seed| seed.parse().expect("CARD_SEED is a number"))
}

/// Kills a server again and again in the middle of loads. With a log that is always written, what clients write meanwhile
/// is there afterwards.
fn kill_at_random_moments(arguments: &[&str]) {
    let seed = seed();
    println!("CARD_SEED={seed} with {arguments:?}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut server = server(arguments);
    let is_log = arguments[0] == LOG[0];
    let (mut version, mut outcomes) = (1, [0, 0]);
    let mut takes = [500_000; 2];
    for round in 0..KILLS {
        let db = &mut server.connect();
        let before = list(db);
        let kind = if random.bool() { Kind::Full } else { Kind::Delta };
        version += 1;
        let what = format!("CARD_SEED={seed}, round {round}: {kind:?} of {:?} {version}", before.0.other());
        if round < 2 {
            // How long a load takes here and now.
            let started = Instant::now();
            for which in [before.0.other(), before.0] {
                let _: Value = ask(db, load(KINDS[round as usize], which, before.1).split(' '));
            }
            takes[round as usize] = started.elapsed().as_micros() as u64 / 2;
        }
        if !is_log {
            let _: Value = ask(db, ["SAVE"]);
        }
        let (writer, mut connection) = (Writer::new(), server.connect());
        thread::scope(|scope| {
            if is_log {
                scope.spawn(|| writer.run(&mut connection));
            }
            let _client = send(&server, load(kind, before.0.other(), version).split(' '));
            let takes = takes[usize::from(kind == Kind::Delta)];
            let moment = random.u64(takes / 10..takes + takes / 2);
            thread::sleep(Duration::from_micros(moment));
            if !is_log || random.u8(..3) == 0 {
                // Redis refuses if it is at it already.
                let _ = try_ask::<Value, _>(db, [if is_log { "BGREWRITEAOF" } else { "BGSAVE" }]);
                if random.bool() {
                    wait_for(20, "the file is written", || !ask::<String, _>(db, ["INFO"]).contains("_in_progress:1"));
                }
            }
            server.kill();
        });
        server.start_again();
        let db = &mut server.connect();
        wait_until_nothing_is_left_over(db);
        // What was written to a list that was replaced has gone with it.
        let is_replaced = kind == Kind::Full && self::version(db) == version;
        if arguments == LOG && !is_replaced {
            writer.assert_kept(db);
        }
        writer.remove_all(db);
        let now = list(db);
        assert!(now == before || now == (before.0.other(), version), "{what}: {before:?} became {now:?}");
        outcomes[usize::from(now != before)] += 1;
    }
    println!("{} loads were lost, {} were there", outcomes[0], outcomes[1]);
    KINDS.into_iter().for_each(|kind| assert_loads_again(&mut server, kind));
}

#[test]
fn a_server_killed_at_any_moment_comes_back_from_a_log_that_is_always_written() {
    kill_at_random_moments(&LOG);
}

#[test]
fn a_server_killed_at_any_moment_comes_back_from_a_log_of_commands_alone() {
    kill_at_random_moments(&["--appendonly", "yes", "--appendfsync", "everysec", "--aof-use-rdb-preamble", "no"]);
}

#[test]
fn a_server_killed_at_any_moment_comes_back_from_its_snapshot() {
    kill_at_random_moments(&SNAPSHOTS);
}

#[test]
fn what_was_staged_when_the_server_was_killed_is_dropped_when_it_starts() {
    for (arguments, kind) in
        [(&LOG[..], Kind::Full), (&LOG, Kind::Delta), (&SNAPSHOTS, Kind::Full), (&SNAPSHOTS, Kind::Delta)]
    {
        let mut server = server(arguments);
        let before = memory(&mut server.connect(), "list");
        let _client = begin_and_hold(&server, kind);
        if arguments == SNAPSHOTS {
            let _: Value = ask(&mut server.connect(), ["SAVE"]);
        }
        server.kill();
        server.start_again();
        let db = &mut server.connect();
        wait_until_nothing_is_left_over(db);
        assert_eq!(list(db), (Which::Old, 1), "{arguments:?} {kind:?}");
        assert!(memory(db, "list") < before + before / 10, "{arguments:?} {kind:?}");
        let line = match kind {
            Kind::Full => "{list}.staging is left over from a load: dropped",
            Kind::Delta => "changes to list are left over from a load: dropped",
        };
        assert!(server.log().contains(line), "{}", server.log());
        assert_loads_again(&mut server, kind);
    }
}

#[test]
fn what_is_left_over_is_dropped_in_every_database_and_only_once() {
    let mut server = server(&LOG);
    let db = &mut server.connect();
    let whole = common::kinds::build(6_000, 4);
    let piece = whole.frames(20 << 10).next().expect("a piece");
    let begin = |db: &mut Connection, key: &str| {
        let () = ask(db, [b"CARD.STAGE", key.as_bytes(), b"BEGIN", &whole.header_bytes()]);
        let () = ask(db, [b"CARD.STAGE", key.as_bytes(), b"FRAMES", &piece]);
    };
    for database in ["0", "3", "15"] {
        let _: Value = ask(db, ["SELECT", database]);
        (0..300).for_each(|key| ask(db, ["SET", &format!("key:{key}"), "x"]));
        begin(db, "staged");
        let _: i64 = ask(db, "CARD.SET patched 1 7 1".split(' '));
        let () = ask(db, ["CARD.STAGE", "patched", "PATCH", ""]);
    }
    server.kill();
    server.start_again();
    let db = &mut server.connect();
    for database in ["0", "3", "15"] {
        let _: Value = ask(db, ["SELECT", database]);
        wait_for(5, "it is dropped", || ask::<i64, _>(db, ["EXISTS", "staged"]) == 0 && !has_patch(db, "patched"));
        assert_eq!(ask::<Option<Vec<u64>>, _>(db, ["CARD.GET", "patched", "1"]), Some(vec![7, 1]));
        assert_eq!(ask::<i64, _>(db, ["DBSIZE"]), if database == "0" { 302 } else { 301 });
    }
    // What is staged from now on is nobody's leftover.
    begin(db, "staged");
    let () = ask(db, ["CARD.STAGE", "patched", "PATCH", ""]);
    thread::sleep(Duration::from_secs(1));
    assert!(ask::<i64, _>(db, ["EXISTS", "staged"]) == 1 && has_patch(db, "patched"));
}

#[test]
fn a_snapshot_taken_in_the_middle_has_the_old_list() {
    for kind in KINDS {
        let mut server = server(&SNAPSHOTS);
        let client = begin_and_hold(&server, kind);
        let db = &mut server.connect();
        let _: Value = ask(db, ["BGSAVE"]);
        wait_for(20, "the snapshot has begun", || {
            info(db, "rdb_bgsave_in_progress") == "1" || info(db, "rdb_saves") != "0"
        });
        resume(&server);
        reply(client).expect("loaded");
        wait_for(20, "the snapshot is done", || info(db, "rdb_bgsave_in_progress") == "0");
        assert_eq!(list(db), (Which::New, 2));
        server.kill();
        server.start_again();
        let db = &mut server.connect();
        wait_until_nothing_is_left_over(db);
        assert_eq!(list(db), (Which::Old, 1), "{kind:?}");
        assert_loads_again(&mut server, kind);
    }
}

#[test]
fn a_server_that_is_shut_down_in_the_middle_ends_and_comes_back() {
    for (arguments, kind) in
        [(&LOG[..], Kind::Full), (&LOG, Kind::Delta), (&SNAPSHOTS, Kind::Full), (&SNAPSHOTS, Kind::Delta)]
    {
        let mut server = server(arguments);
        let _client = begin_and_hold(&server, kind);
        server.stop();
        server.start_again();
        let db = &mut server.connect();
        wait_until_nothing_is_left_over(db);
        assert_eq!(list(db), (Which::Old, 1), "{arguments:?} {kind:?}");

        // Also while the file is read.
        let _client = send(&server, load(kind, Which::New, 2).split(' '));
        wait_for(10, "the load has begun", || info(db, "card_loads_under_way") == "1");
        server.stop();
        server.start_again();
        wait_until_nothing_is_left_over(&mut server.connect());
        assert_loads_again(&mut server, kind);
    }
}

#[test]
fn a_log_that_is_rewritten_in_the_middle_has_the_new_list_and_what_clients_wrote_in_the_end() {
    for (kind, preamble) in [(Kind::Full, "yes"), (Kind::Delta, "yes"), (Kind::Full, "no"), (Kind::Delta, "no")] {
        let mut server = server(&[&LOG[..], &["--aof-use-rdb-preamble", preamble]].concat());
        let client = begin_and_hold(&server, kind);
        let db = &mut server.connect();
        let _: Value = ask(db, ["BGREWRITEAOF"]);
        wait_for(10, "the rewrite has begun", || {
            info(db, "aof_rewrite_in_progress") == "1" || info(db, "aof_rewrites") != "0"
        });
        let (writer, mut connection) = (Writer::new(), server.connect());
        thread::scope(|scope| {
            scope.spawn(|| writer.run(&mut connection));
            resume(&server);
            reply(client).expect("loaded");
            wait_for(20, "the rewrite is done", || {
                info(db, "aof_rewrite_in_progress") == "0" && info(db, "aof_rewrite_scheduled") == "0"
            });
            wait_for(20, "some is written", || writer.answered.load(Ordering::Relaxed) > 100);
            writer.done.store(true, Ordering::Relaxed);
        });
        let expected = digest(db, "list");
        server.kill();
        server.start_again();
        let db = &mut server.connect();
        assert_eq!(digest(db, "list"), expected, "{kind:?}, preamble {preamble}");
        if kind == Kind::Delta {
            writer.assert_kept(db);
        }
        writer.remove_all(db);
        assert_eq!(list(db), (Which::New, 2), "{kind:?}, preamble {preamble}");
        assert!(!has_patch(db, "list"));
    }
}

#[test]
fn changes_are_not_made_to_a_table_that_was_read_anew() {
    let server = server(&SNAPSHOTS);
    let client = begin_and_hold(&server, Kind::Delta);
    let db = &mut server.connect();
    let _: Value = ask(db, ["DEBUG", "RELOAD"]);
    resume(&server);
    assert_eq!(failure(client), TABLE_GONE);
    wait_until_nothing_is_left_over(db);
    assert_eq!(list(db), (Which::Old, 1));
}
