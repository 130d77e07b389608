//! Replicas while changes to a list are loaded: they get them whichever way they come into step, and what a load leaves
//! behind when roles change does not stay.

mod common;

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use common::deltas::{
    LISTS, LONG, begin, begin_and_hold, digest, failure, has_patch, info, load_long_list, memory, reply, resume,
    wait_until_loads_end, write,
};
use common::{Server, ask, wait_for};
use fastrand::Rng;
use redis::{Connection, Value};

/// Replicas do not wait for others, and the backlog holds a whole load.
const SETTINGS: [&str; 6] =
    ["--repl-diskless-sync-delay", "0", "--repl-backlog-size", "256mb", "--enable-debug-command", "yes"];

fn primary() -> Server {
    let server = Server::with_port(&[&LISTS[..], &SETTINGS].concat());
    load_long_list(&server);
    server
}

fn replica_of(primary: &Server, arguments: &[&str]) -> Server {
    let port = primary.port().to_string();
    let settings = [&LISTS[..], &SETTINGS, &["--replicaof", "127.0.0.1", &port], arguments].concat();
    Server::with_port(&settings)
}

fn replicate(replica: &Server, primary: &Server) {
    let _: Value = ask(&mut replica.connect(), ["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
}

#[track_caller]
fn wait_until_linked(replica: &Server) {
    let db = &mut replica.connect();
    wait_for(20, "the replica is linked", || info(db, "master_link_status") == "up");
}

#[track_caller]
fn wait_until_in_step(primary: &Server, replica: &Server) {
    let (from, to) = (&mut primary.connect(), &mut replica.connect());
    wait_for(20, "the replica is in step", || {
        info(to, "role") == "slave"
            && info(to, "master_link_status") == "up"
            && info(to, "slave_repl_offset") == info(from, "master_repl_offset")
    });
}

/// What is told of the table, without the memory it happens to take and the load under way.
fn told(db: &mut Connection) -> HashMap<String, Value> {
    let mut told: HashMap<String, Value> = ask(db, "CARD.INFO list DIGEST".split(' '));
    told.retain(|field, _| !["memory_bytes", "bytes_per_record", "classes", "loading"].contains(&&**field));
    told
}

/// Both have the same, down to every block and what waits for a table.
#[track_caller]
fn assert_same(primary: &Server, replica: &Server) {
    wait_until_in_step(primary, replica);
    let (from, to) = (&mut primary.connect(), &mut replica.connect());
    let keys = |db: &mut Connection| ask::<BTreeSet<String>, _>(db, ["KEYS", "*"]);
    assert_eq!(keys(from), keys(to));
    assert_eq!(told(from), told(to));
    assert_eq!(ask::<String, _>(from, ["DEBUG", "DIGEST"]), ask::<String, _>(to, ["DEBUG", "DIGEST"]));
    let dump = |db: &mut Connection| ask::<Vec<u8>, _>(db, ["DUMP", "list"]);
    assert!(dump(from) == dump(to), "the list has other blocks");
    assert_eq!(info(to, "unexpected_error_replies"), "0");
}

/// The same, and nothing waits for the table any more.
#[track_caller]
fn assert_same_and_done(primary: &Server, replica: &Server, digest: &str) {
    assert_same(primary, replica);
    for server in [primary, replica] {
        let db = &mut server.connect();
        assert_eq!(self::digest(db, "list"), digest);
        assert!(!has_patch(db, "list"), "a patch is left over");
        assert_eq!(ask::<Vec<String>, _>(db, ["KEYS", "*"]), ["list"]);
    }
}

/// Writes to cards of the list, and to others, until `done`.
fn keep_writing(server: &Server, seed: u64, done: &AtomicBool) {
    let (db, mut random) = (&mut server.connect(), Rng::with_seed(seed));
    let ids: Vec<&Vec<u8>> = LONG.old.keys().chain(LONG.new.keys()).step_by(7).collect();
    while !done.load(Ordering::Relaxed) {
        let (id, type_) = (*random.choice(&ids).expect("ids"), random.u8(..=10).to_string());
        let other = random.u64(..1_000).to_string();
        let command = match random.u8(..4) {
            0 => vec![b"CARD.DEL".as_slice(), b"list", id, other.as_bytes()],
            1 => vec![b"CARD.MSET".as_slice(), b"list", id, type_.as_bytes(), b"2", other.as_bytes(), b"7", b"1"],
            _ => vec![b"CARD.SET".as_slice(), b"list", id, type_.as_bytes(), b"2"],
        };
        let _: i64 = ask(db, command);
    }
}

/// Loads changes while clients write, and does something in the middle.
fn load_while_clients_write(primary: &Server, then: impl FnOnce()) {
    let done = &AtomicBool::new(false);
    thread::scope(|scope| {
        (0..2).for_each(|seed| drop(scope.spawn(move || keep_writing(primary, seed, done))));
        let loading = begin(primary);
        then();
        let outcome = reply(loading);
        // Some are written behind the load as well.
        thread::sleep(Duration::from_millis(20));
        done.store(true, Ordering::Relaxed);
        outcome.expect("loaded");
    });
    assert_eq!(told(&mut primary.connect())["version"], Value::Int(2));
}

#[test]
fn a_replica_that_was_there_before_gets_all_changes_at_once_and_where_they_came_from() {
    let primary = primary();
    let replica = replica_of(&primary, &[]);
    assert_same_and_done(&primary, &replica, &LONG.old_digest);
    let db = &mut replica.connect();
    let loading = begin(&primary);
    let mut seen = Vec::new();
    wait_for(20, "the replica has the changes", || {
        seen.push(digest(db, "list"));
        seen.last() == Some(&LONG.new_digest)
    });
    seen.dedup();
    seen.pop();
    assert!(seen.is_empty() || seen == [LONG.old_digest.as_str()], "{seen:?}");
    reply(loading).expect("loaded");
    assert_same_and_done(&primary, &replica, &LONG.new_digest);
    let told = told(db);
    assert_eq!((&told["version"], &told["rows"]), (&Value::Int(2), &Value::Int(LONG.rows.len() as i64)));
    assert_eq!(told["source"], Value::BulkString("changes.tsv".into()));
    // Within a tenth: how much the blocks of a copy could hold is another matter.
    let both = [&primary, &replica].map(|server| memory(&mut server.connect(), "list"));
    assert!(both[0].abs_diff(both[1]) < both[0] / 10, "{both:?}");
    assert_eq!(info(&mut primary.connect(), "sync_full"), "1");
}

#[test]
fn only_what_changes_is_sent() {
    let primary = primary();
    let replica = replica_of(&primary, &[]);
    assert_same(&primary, &replica);
    let db = &mut primary.connect();
    let some: String = LONG
        .old
        .keys()
        .step_by(LONG.old.len() / 10)
        .map(|id| format!("{}\t5\t2\n", String::from_utf8_lossy(id)))
        .collect();
    write(&primary, "few.tsv", format!("cardId\ttype\tstatus\n{some}"));
    let sent = |db: &mut Connection| info(db, "master_repl_offset").parse::<u64>().expect("a number");
    let before = sent(db);
    let _: Value = ask(db, "CARD.LOAD list few.tsv DELTA VERSION 3".split(' '));
    let bytes = sent(db) - before;
    // Ten or eleven blocks of 4 KB, of a list of 6 MB.
    assert!((20_000..80_000).contains(&bytes), "{bytes}");
    assert_same(&primary, &replica);
    assert_eq!(told(&mut replica.connect())["version"], Value::Int(3));
}

#[test]
fn a_replica_that_comes_in_the_middle_gets_the_rest() {
    let primary = primary();
    let loading = begin_and_hold(&primary);
    let replica = replica_of(&primary, &[]);
    wait_until_linked(&replica);
    let db = &mut replica.connect();
    assert_eq!(digest(db, "list"), LONG.old_digest);
    assert!(has_patch(db, "list"), "it has what is staged");
    assert_same(&primary, &replica);
    resume(&primary);
    reply(loading).expect("loaded");
    assert_same_and_done(&primary, &replica, &LONG.new_digest);
}

#[test]
fn whenever_it_comes_and_whatever_clients_write_a_replica_ends_up_with_the_same() {
    let primary = primary();
    let replica = Server::with_port(&[&LISTS[..], &SETTINGS].concat());
    for way in ["comes in the middle", "loses its connection", "comes again", "was there before"] {
        load_while_clients_write(&primary, || match way {
            "loses its connection" => {
                let killed: i64 = ask(&mut primary.connect(), "CLIENT KILL TYPE replica".split(' '));
                assert_eq!(killed, 1);
            }
            "comes again" => {
                let _: Value = ask(&mut replica.connect(), "REPLICAOF NO ONE".split(' '));
                let _: Value = ask(&mut replica.connect(), ["FLUSHALL"]);
                replicate(&replica, &primary);
            }
            "comes in the middle" => replicate(&replica, &primary),
            _ => {}
        });
        assert_same(&primary, &replica);
        assert!(!has_patch(&mut replica.connect(), "list"), "{way}");
        let _: Value = ask(&mut primary.connect(), "CARD.LOAD list old.tsv VERSION 1".split(' '));
    }
    let partial = info(&mut primary.connect(), "sync_partial_ok").parse::<u64>().expect("a number");
    assert!(partial >= 1, "the connection was lost");
}

#[test]
fn a_replica_of_a_replica_gets_the_same() {
    let primary = primary();
    let middle = replica_of(&primary, &[]);
    let last = replica_of(&middle, &[]);
    wait_until_linked(&last);
    load_while_clients_write(&primary, || ());
    assert_same(&primary, &middle);
    assert_same(&middle, &last);
    assert!(!has_patch(&mut last.connect(), "list"));
}

#[test]
fn the_log_of_a_replica_has_the_same_also_if_it_is_rewritten_in_the_middle() {
    let primary = primary();
    for preamble in ["yes", "no"] {
        let log = ["--appendonly", "yes", "--aof-use-rdb-preamble", preamble];
        let mut replica = replica_of(&primary, &log);
        wait_until_in_step(&primary, &replica);
        let db = &mut replica.connect();
        wait_for(20, "the log is on", || info(db, "aof_rewrite_in_progress") == "0");
        load_while_clients_write(&primary, || {
            let _: Value = ask(db, ["BGREWRITEAOF"]);
        });
        wait_for(20, "the log is rewritten", || {
            info(db, "aof_rewrite_in_progress") == "0" && info(db, "aof_rewrite_scheduled") == "0"
        });
        assert_same(&primary, &replica);
        let expected = told(&mut primary.connect());
        // It comes back from its log while its primary does not answer.
        let stopped = Stopped::new(&primary);
        replica.kill();
        replica.start_again();
        let db = &mut replica.connect();
        assert_eq!(info(db, "master_link_status"), "down");
        assert_eq!(told(db), expected, "preamble {preamble}");
        assert!(!has_patch(db, "list"));
        drop(stopped);
        assert_same(&primary, &replica);
        let _: Value = ask(&mut primary.connect(), "CARD.LOAD list old.tsv VERSION 1".split(' '));
    }
}

/// A server that does nothing for a while.
struct Stopped(String);

impl Stopped {
    fn new(server: &Server) -> Stopped {
        let pid = server.pid().to_string();
        signal("-STOP", &pid);
        Stopped(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        signal("-CONT", &self.0);
    }
}

fn signal(signal: &str, pid: &str) {
    assert!(Command::new("kill").args([signal, pid]).status().expect("kill runs").success());
}

#[test]
fn a_replica_that_is_promoted_in_the_middle_drops_what_has_arrived() {
    let primary = primary();
    let replica = replica_of(&primary, &["--appendonly", "yes"]);
    assert_same(&primary, &replica);
    let last = replica_of(&replica, &[]);
    wait_until_linked(&last);
    let before = memory(&mut replica.connect(), "list");
    let loading = begin_and_hold(&primary);
    wait_until_in_step(&primary, &replica);
    let db = &mut replica.connect();
    assert!(has_patch(db, "list") && memory(db, "list") > before);
    let _: Value = ask(db, "REPLICAOF NO ONE".split(' '));
    wait_for(5, "the patch is dropped", || !has_patch(db, "list"));
    assert_eq!((digest(db, "list"), memory(db, "list")), (LONG.old_digest.clone(), before));
    assert!(replica.log().contains("changes to list are left over from a load: dropped"), "{}", replica.log());
    // Its own replica and its log hear of that.
    assert_same_and_done(&replica, &last, &LONG.old_digest);

    // The old primary has not noticed, and goes on.
    resume(&primary);
    reply(loading).expect("loaded");
    assert_eq!(digest(&mut primary.connect(), "list"), LONG.new_digest);
    // The new one can load changes itself.
    fs::create_dir_all(replica.directory().join("lists")).expect("a folder");
    fs::copy(primary.directory().join("lists/changes.tsv"), replica.directory().join("lists/changes.tsv"))
        .expect("a file");
    let _: Value = ask(db, "CARD.LOAD list changes.tsv DELTA VERSION 2".split(' '));
    assert_same_and_done(&replica, &last, &LONG.new_digest);
}

#[test]
fn a_staged_list_is_dropped_by_a_promotion_too() {
    let primary = primary();
    let replica = replica_of(&primary, &[]);
    assert_same(&primary, &replica);
    let whole = common::kinds::build(6_000, 4);
    let pieces: Vec<_> = whole.frames(20 << 10).collect();
    let (from, to) = (&mut primary.connect(), &mut replica.connect());
    for key in ["{list}.staging", "any"] {
        let () = ask(from, [b"CARD.STAGE".as_slice(), key.as_bytes(), b"BEGIN", &whole.header_bytes()]);
        let () = ask(from, [b"CARD.STAGE".as_slice(), key.as_bytes(), b"FRAMES", &pieces[0]]);
    }
    assert_eq!(ask::<i64, _>(from, ["DBSIZE"]), 3);
    wait_until_in_step(&primary, &replica);
    assert_eq!(ask::<i64, _>(to, ["DBSIZE"]), 3, "a replica drops nothing by itself");
    let _: Value = ask(to, "REPLICAOF NO ONE".split(' '));
    wait_for(5, "what is left over is dropped", || ask::<Vec<String>, _>(to, ["KEYS", "*"]) == ["list"]);
    assert_eq!(digest(to, "list"), LONG.old_digest);
    // What is staged from now on is nobody's leftover.
    common::kinds::stage(to, "later", &whole, 20 << 10);
    thread::sleep(Duration::from_millis(600));
    let () = ask(to, ["CARD.COMMIT", "later", "later"]);
    assert_eq!(ask::<i64, _>(from, ["DBSIZE"]), 3, "and those of a primary that was one all the time are not either");
}

#[test]
fn a_primary_that_becomes_a_replica_gives_up_its_load() {
    for held in [false, true] {
        let (first, mut second) = (primary(), primary());
        let _: i64 = ask(&mut first.connect(), ["CARD.SET", "list", "first", "9", "2"]);
        let expected = digest(&mut first.connect(), "list");
        let loading = if held { begin_and_hold(&second) } else { begin(&second) };
        replicate(&second, &first);
        if held {
            resume(&second);
        }
        let told = failure(loading);
        // Redis itself tells this to clients that wait when their server becomes a replica.
        let unblocked = "force unblock from blocking operation, instance state changed (master -> replica?)";
        let gone = common::deltas::TABLE_GONE;
        assert!(told == "the server is not a primary any more" || told == gone || told.contains(unblocked), "{told}");
        assert_same_and_done(&first, &second, &expected);
        wait_until_loads_end(&second);
        assert_same_and_done(&first, &second, &expected);
        assert!(second.is_alive());
    }
}

#[test]
fn a_failover_in_the_middle_leaves_one_list_or_the_other_and_no_patch() {
    let mut servers = [primary(), primary()];
    replicate(&servers[1], &servers[0]);
    assert_same(&servers[0], &servers[1]);
    for (from, to) in [(0, 1), (1, 0), (0, 1)] {
        let (from, to) = (&servers[from], &servers[to]);
        let _: Value = ask(&mut from.connect(), "CARD.LOAD list old.tsv VERSION 1".split(' '));
        let loading = begin(from);
        let _: Value = ask(&mut from.connect(), ["FAILOVER"]);
        wait_for(20, "the roles have changed", || {
            info(&mut from.connect(), "role") == "slave" && info(&mut to.connect(), "role") == "master"
        });
        let expected = if reply(loading).is_ok() { &LONG.new_digest } else { &LONG.old_digest };
        wait_for(5, "no patch is left over", || !has_patch(&mut to.connect(), "list"));
        wait_until_loads_end(from);
        assert_same_and_done(to, from, expected);
        let _: Value = ask(&mut to.connect(), "CARD.LOAD list old.tsv VERSION 1".split(' '));
        let _: Value = ask(&mut to.connect(), "CARD.LOAD list changes.tsv DELTA VERSION 2".split(' '));
        assert_same_and_done(to, from, &LONG.new_digest);
    }
    assert!(servers.iter_mut().all(Server::is_alive));
}

#[test]
fn a_replica_loads_no_changes_itself() {
    let primary = primary();
    let replica = replica_of(&primary, &[]);
    assert_same(&primary, &replica);
    let db = &mut replica.connect();
    write(&replica, "changes.tsv", "cardId\ttype\tstatus\n1\t1\t1\n");
    let load = "CARD.LOAD list changes.tsv DELTA";
    assert_eq!(common::refused(db, load.split(' ')), "READONLY You can't write against a read only replica.");
    let _: Value = ask(db, "CONFIG SET replica-read-only no".split(' '));
    assert_eq!(common::refused(db, load.split(' ')), "ERR the server is not a primary any more");
    assert_same_and_done(&primary, &replica, &LONG.old_digest);
}
