//! Large tables are freed in the background: whatever removes one, nobody waits for it, and its memory is given back.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use card_table::{Builder, Class, Id, Schema, Table};
use common::{Server, ask, wait_for};
use redis::Connection;

/// Some 6,000 blocks, each an allocation of its own.
const CARDS: u64 = 5_000_000;

/// What a table of so many cards takes at least.
const TABLE_BYTES: u64 = 24_000_000;

/// How long a client may wait for a server that has something large to free, on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_millis(500);

static LARGE: LazyLock<Table> = LazyLock::new(|| {
    let mut random = fastrand::Rng::with_seed(1);
    let ids =
        (0..CARDS).map(move |_| (1101 + 100 * random.u128(..31)) * 10u128.pow(16) + random.u128(..10u128.pow(16)));
    let records = ids.map(|number| (Id::Number(Class::Digits(20), number), number % 22));
    Builder::new(Schema::default()).table_from_records(records).expect("it builds").result
});

#[test]
fn unlink_takes_a_fraction_of_the_time_of_a_synchronous_del() {
    let server = server_with_list(&["--lazyfree-lazy-user-del", "no"]);
    let db = &mut server.connect();
    // The best of several times: one may include what else the machine is doing.
    let mut best = |command: &str| {
        let times = (0..5).map(|_| {
            let before = microseconds(db, command);
            let _: i64 = ask(db, ["COPY", "list", "copy"]);
            assert_eq!(ask::<i64, _>(db, [command, "copy"]), 1);
            wait_for(20, "the copy to be freed", || figure(db, "memory", "lazyfree_pending_objects") == 0);
            microseconds(db, command) - before
        });
        times.min().expect("several times")
    };
    let (del, unlink) = (best("DEL"), best("UNLINK"));
    println!("DEL took {del} µs, UNLINK {unlink} µs");
    assert!(unlink * 4 < del, "DEL took {del} µs, UNLINK {unlink} µs");
}

#[test]
fn a_synchronous_del_frees_at_once() {
    let server = server_with_list(&["--lazyfree-lazy-user-del", "no"]);
    let db = &mut server.connect();
    let before = figure(db, "memory", "used_memory");
    assert_eq!(ask::<i64, _>(db, ["DEL", "list"]), 1);
    assert_eq!(figure(db, "memory", "lazyfreed_objects"), 0);
    assert!(figure(db, "memory", "used_memory") < before - TABLE_BYTES);
}

#[test]
fn a_small_table_is_not_worth_another_thread() {
    let server = Server::with(&lines_of_redis_conf());
    let db = &mut server.connect();
    let _: i64 = ask(db, ["CARD.SET", "small", "44015186100181001473", "7", "1"]);
    assert_eq!(ask::<i64, _>(db, ["UNLINK", "small"]), 1);
    assert_eq!(figure(db, "memory", "lazyfree_pending_objects"), 0);
    assert_eq!(figure(db, "memory", "lazyfreed_objects"), 0);
}

#[test]
fn unlink_and_flushall_async_free_in_the_background() {
    let server = server_with_list(&[]);
    let db = &mut server.connect();
    assert_freed_in_the_background(&server, |db| assert_eq!(ask::<i64, _>(db, ["UNLINK", "list"]), 1));
    load(db, "list");
    assert_freed_in_the_background(&server, |db| ask(db, ["FLUSHALL", "ASYNC"]));
}

#[test]
fn del_and_flushall_free_in_the_background_with_redis_conf() {
    let server = server_with_list(&lines_of_redis_conf());
    let db = &mut server.connect();
    assert_freed_in_the_background(&server, |db| assert_eq!(ask::<i64, _>(db, ["DEL", "list"]), 1));
    load(db, "list");
    assert_freed_in_the_background(&server, |db| ask(db, ["FLUSHALL"]));
}

#[test]
fn an_expired_table_is_freed_in_the_background_with_redis_conf() {
    let server = server_with_list(&lines_of_redis_conf());
    assert_freed_in_the_background(&server, |db| {
        let _: i64 = ask(db, ["PEXPIRE", "list", "1"]);
        wait_for(10, "the table to expire", || ask::<i64, _>(db, ["EXISTS", "list"]) == 0);
    });
}

#[test]
fn a_renamed_key_frees_the_table_in_its_place_in_the_background_with_redis_conf() {
    let server = server_with_list(&lines_of_redis_conf());
    let db = &mut server.connect();
    let _: i64 = ask(db, ["CARD.SET", "new", "44015186100181001473", "7", "1"]);
    assert_freed_in_the_background(&server, |db| ask(db, ["RENAME", "new", "list"]));
    assert_eq!(ask::<i64, _>(db, ["CARD.LEN", "list"]), 1);
}

#[test]
fn a_commit_frees_the_table_in_its_place_in_the_background_with_any_settings() {
    let server = server_with_list(&[]);
    let db = &mut server.connect();
    let header = Table::new(Schema::default()).header_bytes();
    let () = ask(db, [b"CARD.STAGE".as_slice(), b"new", b"BEGIN", &header]);
    // By a thread of the module, which gives way to others as Redis's own does not.
    let memory = figure(db, "memory", "used_memory");
    assert_nobody_waits(&server, |db| {
        let () = ask(db, ["CARD.COMMIT", "new", "list"]);
        wait_for(20, "the table to be freed", || figure(db, "memory", "used_memory") < memory - TABLE_BYTES);
    });
    assert_eq!(figure(db, "memory", "lazyfreed_objects"), 0, "Redis had nothing large to free");
    assert_eq!(ask::<i64, _>(db, ["CARD.LEN", "list"]), 0);
}

#[test]
fn a_staged_table_that_is_begun_anew_is_freed_in_the_background_with_any_settings() {
    let server = Server::start();
    let db = &mut server.connect();
    stage(db, "list");
    let header = Table::new(Schema::default()).header_bytes();
    assert_freed_in_the_background(&server, |db| ask(db, [b"CARD.STAGE".as_slice(), b"list", b"BEGIN", &header]));
}

/// Does something, while another client asks all the time.
#[track_caller]
fn assert_nobody_waits(server: &Server, act: impl FnOnce(&mut Connection)) {
    let (begun, done) = (Barrier::new(2), AtomicBool::new(false));
    let longest = thread::scope(|scope| {
        let pings = scope.spawn(|| longest_ping(&mut server.connect(), &begun, &done));
        let end = EndOnDrop(&done);
        begun.wait();
        act(&mut server.connect());
        drop(end);
        pings.join().expect("the server answers")
    });
    println!("the longest PING meanwhile took {longest:?}");
    assert!(longest < PATIENCE, "a client had to wait {longest:?}");
}

/// Removes the large table, the only one, and looks what becomes of it.
#[track_caller]
fn assert_freed_in_the_background(server: &Server, remove: impl FnOnce(&mut Connection)) {
    let db = &mut server.connect();
    let (memory, freed) = (figure(db, "memory", "used_memory"), figure(db, "memory", "lazyfreed_objects"));
    assert_nobody_waits(server, |db| {
        remove(db);
        wait_for(20, "the table to be freed", || figure(db, "memory", "lazyfreed_objects") == freed + 1);
    });
    assert_eq!(figure(db, "memory", "lazyfree_pending_objects"), 0);
    assert!(figure(db, "memory", "used_memory") < memory - TABLE_BYTES, "its memory was not given back");
    assert!(figure(db, "card", "card_bytes") < 10_000, "it still counts");
}

/// Tells a thread to end, also when a test fails: it would be waited for.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn longest_ping(db: &mut Connection, begun: &Barrier, done: &AtomicBool) -> Duration {
    begun.wait();
    let mut longest = Duration::ZERO;
    loop {
        let asked = Instant::now();
        let () = ask(db, ["PING"]);
        longest = longest.max(asked.elapsed());
        if done.load(Ordering::SeqCst) {
            return longest;
        }
    }
}

/// The lines of the redis.conf that we ship which say what is freed in the background, as arguments.
fn lines_of_redis_conf() -> Vec<&'static str> {
    let lines = include_str!("../redis.conf").lines();
    let lines = lines.filter_map(|line| line.split_once(' ')).filter(|(name, _)| name.contains("lazy"));
    let arguments: Vec<_> = lines.flat_map(|(name, value)| [&*format!("--{name}").leak(), value]).collect();
    assert!(arguments.len() >= 2 * 5, "redis.conf says nothing of it any more");
    arguments
}

fn server_with_list(arguments: &[&str]) -> Server {
    let server = Server::with(arguments);
    load(&mut server.connect(), "list");
    server
}

fn load(db: &mut Connection, key: &str) {
    stage(db, key);
    let () = ask(db, ["CARD.COMMIT", key, key]);
}

fn stage(db: &mut Connection, key: &str) {
    let () = ask(db, [b"CARD.STAGE", key.as_bytes(), b"BEGIN", &LARGE.header_bytes()]);
    for frames in LARGE.frames(1 << 20) {
        let () = ask(db, [b"CARD.STAGE", key.as_bytes(), b"FRAMES", &frames]);
    }
}

/// The time that a command has taken in all, within the server.
fn microseconds(db: &mut Connection, command: &str) -> u64 {
    let info: String = ask(db, ["INFO", "commandstats"]);
    let name = format!("cmdstat_{}:", command.to_lowercase());
    let Some(line) = info.lines().find_map(|line| line.strip_prefix(&name)) else { return 0 };
    let usec = line.split(',').find_map(|part| part.strip_prefix("usec=")).expect("a time");
    usec.parse().expect("a number")
}

fn figure(db: &mut Connection, section: &str, name: &str) -> u64 {
    let info: String = ask(db, ["INFO", section]);
    let mut lines = info.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(field, _)| *field == name).expect("INFO has it").1.parse().expect("a number")
}
