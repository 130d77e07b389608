//! Replicas while a list loads: they get it whichever way they come into step, and no load survives a change of roles.

mod common;

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::process::Command;
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::Duration;

use common::{Server, ask, refused, try_ask, wait_for, write_long_list};
use redis::{Connection, RedisResult, Value};

const STAGING: &str = "{list}.staging";

/// Loads that last long enough to do something meanwhile, replicas that do not wait for others, and a backlog that holds
/// a whole load.
const SETTINGS: [&str; 10] = [
    "--card.load-dir",
    "lists",
    "--card.load-threads",
    "1",
    "--repl-diskless-sync-delay",
    "0",
    "--repl-backlog-size",
    "256mb",
    "--enable-debug-command",
    "yes",
];

type Outcome = RedisResult<HashMap<String, Value>>;

/// A primary with a list of 1000 cards, and the file of another of 200,000: these have long names, so that there is much
/// to stage, about 40 MB.
fn primary() -> Server {
    let server = Server::with_port(&SETTINGS);
    fs::create_dir(server.directory().join("lists")).expect("a folder");
    write(&server, "old.tsv", 1000, 1);
    write(&server, "new.tsv", 200_000, 2);
    load(&server, "old.tsv").expect("loaded");
    server
}

fn replica_of(primary: &Server) -> Server {
    let port = primary.port().to_string();
    Server::with_port(&[&SETTINGS[..], &["--replicaof", "127.0.0.1", &port]].concat())
}

fn write(server: &Server, name: &str, cards: u64, type_: u64) {
    write_long_list(&server.directory().join("lists").join(name), cards, type_);
}

fn load(server: &Server, file: &str) -> Outcome {
    try_ask(&mut server.connect(), ["CARD.LOAD", "list", file, "VERSION", "7"])
}

fn info(db: &mut Connection, field: &str) -> String {
    let info: String = ask(db, ["INFO", "everything"]);
    let value = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.unwrap_or_else(|| panic!("INFO has {field}")).into()
}

fn len(server: &Server) -> i64 {
    ask(&mut server.connect(), ["CARD.LEN", "list"])
}

#[track_caller]
fn wait_until_linked(replica: &Server) {
    let db = &mut replica.connect();
    wait_for(20, "the replica is linked", || info(db, "master_link_status") == "up");
}

/// What is told of the table, with its digest, and without the memory it happens to take and the load under way.
fn told(db: &mut Connection) -> HashMap<String, Value> {
    let mut told: HashMap<String, Value> = ask(db, "CARD.INFO list DIGEST".split(' '));
    told.retain(|field, _| !["memory_bytes", "bytes_per_record", "blocks", "classes", "loading"].contains(&&**field));
    told
}

#[track_caller]
fn assert_same(primary: &Server, replica: &Server) {
    let (from, to) = (&mut primary.connect(), &mut replica.connect());
    wait_for(20, "the replica is in step", || {
        info(to, "role") == "slave"
            && info(to, "master_link_status") == "up"
            && info(to, "slave_repl_offset") == info(from, "master_repl_offset")
    });
    let keys = |db: &mut Connection| ask::<BTreeSet<String>, _>(db, ["KEYS", "*"]);
    assert_eq!(keys(from), keys(to));
    assert_eq!(told(from), told(to));
    for key in keys(from) {
        let dump = |db: &mut Connection| ask::<Vec<u8>, _>(db, ["DUMP", &key]);
        assert!(dump(from) == dump(to), "{key} has the same content");
    }
    assert_eq!(info(to, "unexpected_error_replies"), "0");
}

#[track_caller]
fn assert_only_the_list(server: &Server) {
    assert_eq!(ask::<Vec<String>, _>(&mut server.connect(), ["KEYS", "*"]), ["list"]);
}

/// How many cards are staged.
fn staged(db: &mut Connection) -> u64 {
    let told: HashMap<String, Value> = try_ask(db, ["CARD.INFO", STAGING]).unwrap_or_default();
    told.get("records").map_or(0, |records| redis::from_redis_value(records.clone()).expect("a number"))
}

/// Begins a load and returns when some of it is staged.
fn begin<'scope>(scope: &'scope Scope<'scope, '_>, server: &'scope Server) -> ScopedJoinHandle<'scope, Outcome> {
    let db = &mut server.connect();
    let loading = scope.spawn(|| load(server, "new.tsv"));
    // Spinning, because staging takes little time.
    while staged(db) == 0 {
        assert!(!loading.is_finished(), "staging was not seen");
    }
    loading
}

/// The same, and has it wait there until `resume`.
fn begin_and_hold<'scope>(
    scope: &'scope Scope<'scope, '_>,
    server: &'scope Server,
) -> ScopedJoinHandle<'scope, Outcome> {
    let loading = begin(scope, server);
    let db = &mut server.connect();
    let _: Value = ask(db, "CLIENT PAUSE 10000 WRITE".split(' '));
    assert_eq!(ask::<i64, _>(db, ["EXISTS", STAGING]), 1, "it is in the middle of staging");
    loading
}

fn resume(server: &Server) {
    let _: Value = ask(&mut server.connect(), ["CLIENT", "UNPAUSE"]);
}

#[test]
fn a_replica_that_was_there_before_gets_the_list_and_where_it_came_from() {
    let primary = primary();
    let replica = replica_of(&primary);
    assert_same(&primary, &replica);
    let db = &mut replica.connect();
    thread::scope(|scope| {
        let loading = begin(scope, &primary);
        // The replica answers from the old list, and then from the new one.
        let mut seen = Vec::new();
        wait_for(20, "the replica has the new list", || {
            seen.push(ask::<i64, _>(db, ["CARD.LEN", "list"]));
            seen.last() == Some(&200_000)
        });
        seen.dedup();
        assert_eq!(seen, [1000, 200_000]);
        loading.join().unwrap().expect("loaded");
    });
    assert_same(&primary, &replica);
    assert_only_the_list(&replica);
    let told = told(db);
    assert_eq!(told["version"], Value::Int(7));
    assert_eq!(told["source"], Value::BulkString("new.tsv".into()));
    assert_eq!(info(&mut primary.connect(), "sync_full"), "1");
}

#[test]
fn a_replica_that_comes_in_the_middle_gets_the_rest() {
    let primary = primary();
    thread::scope(|scope| {
        let loading = begin_and_hold(scope, &primary);
        let replica = replica_of(&primary);
        wait_until_linked(&replica);
        assert_eq!(len(&replica), 1000);
        assert_eq!(ask::<i64, _>(&mut replica.connect(), ["EXISTS", STAGING]), 1, "it has what is staged");
        resume(&primary);
        loading.join().unwrap().expect("loaded");
        assert_same(&primary, &replica);
        assert_only_the_list(&replica);
        assert_eq!(len(&replica), 200_000);
    });
}

/// Whoever compares a replica with its primary by DEBUG DIGEST may do so at any time.
#[test]
fn what_is_staged_has_the_same_digest_on_both() {
    let primary = primary();
    let replica = replica_of(&primary);
    assert_same(&primary, &replica);
    thread::scope(|scope| {
        let loading = begin_and_hold(scope, &primary);
        assert_same(&primary, &replica);
        let digests = [&primary, &replica]
            .map(|server| ask::<Vec<String>, _>(&mut server.connect(), ["DEBUG", "DIGEST-VALUE", "list", STAGING]));
        resume(&primary);
        loading.join().unwrap().expect("loaded");
        assert_eq!(digests[0], digests[1]);
    });
}

#[test]
fn a_replica_that_comes_while_the_file_is_read_gets_the_list() {
    let primary = primary();
    let replica = Server::with_port(&SETTINGS);
    thread::scope(|scope| {
        let loading = scope.spawn(|| load(&primary, "new.tsv"));
        let _: Value = ask(&mut replica.connect(), ["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
        loading.join().unwrap().expect("loaded");
    });
    assert_same(&primary, &replica);
    assert_eq!(len(&replica), 200_000);
}

#[test]
fn a_replica_that_loses_its_connection_goes_on_where_it_was() {
    let primary = primary();
    let replica = replica_of(&primary);
    assert_same(&primary, &replica);
    let db = &mut primary.connect();
    thread::scope(|scope| {
        let loading = begin(scope, &primary);
        let killed: i64 = ask(db, "CLIENT KILL TYPE replica".split(' '));
        assert_eq!(killed, 1);
        loading.join().unwrap().expect("loaded");
    });
    assert_same(&primary, &replica);
    assert_only_the_list(&replica);
    assert_eq!(len(&replica), 200_000);
    assert_eq!((info(db, "sync_full"), info(db, "sync_partial_ok")), ("1".into(), "1".into()));
}

/// Redis cuts off a replica for which 256 MB wait; a load does not let it come to that.
#[test]
fn a_load_waits_for_a_replica_that_does_not_keep_up() {
    let primary = primary();
    let replica = replica_of(&primary);
    assert_same(&primary, &replica);
    let db = &mut primary.connect();
    // 120 MB, far above what a load leaves waiting and what the network's buffers hold.
    write(&primary, "new.tsv", 600_000, 2);
    let signal = |signal: &str| {
        let sent = Command::new("kill").args([signal, &replica.pid().to_string()]).status().expect("kill runs");
        assert!(sent.success());
    };
    let waiting = |db: &mut Connection| -> u64 {
        let list: String = ask(db, "CLIENT LIST TYPE replica".split(' '));
        list.split(" omem=").nth(1).and_then(|rest| rest.split(' ').next()).expect("a replica").parse().unwrap()
    };
    for cancelled in [true, false] {
        thread::scope(|scope| {
            signal("-STOP");
            let loading = begin(scope, &primary);
            wait_for(20, "much waits", || waiting(db) > 32 << 20);
            // Long enough for all the rest, did it not wait.
            thread::sleep(Duration::from_millis(500));
            let (most, is_waiting) = (waiting(db), !loading.is_finished());
            if cancelled {
                let _: Value = ask(db, "CARD.LOAD list CANCEL".split(' '));
                let error = loading.join().unwrap().expect_err("cancelled");
                assert_eq!(error.detail(), Some("the load was cancelled"));
                signal("-CONT");
            } else {
                signal("-CONT");
                loading.join().unwrap().expect("loaded");
            }
            assert!(is_waiting && most < 48 << 20, "{most} bytes wait");
        });
        assert_same(&primary, &replica);
        assert_only_the_list(&replica);
    }
    assert_eq!(len(&replica), 600_000);
    assert_eq!(info(db, "sync_full"), "1", "it was not cut off");
}

#[test]
fn a_replica_loads_nothing_itself() {
    let primary = primary();
    let replica = replica_of(&primary);
    assert_same(&primary, &replica);
    let db = &mut replica.connect();
    let load = "CARD.LOAD list new.tsv";
    assert_eq!(refused(db, load.split(' ')), "READONLY You can't write against a read only replica.");
    let _: Value = ask(db, "CONFIG SET replica-read-only no".split(' '));
    fs::create_dir(replica.directory().join("lists")).unwrap();
    write(&replica, "new.tsv", 10, 2);
    assert_eq!(refused(db, load.split(' ')), "ERR the server is not a primary any more");
    assert_same(&primary, &replica);
}

#[test]
fn a_primary_that_becomes_a_replica_gives_up_its_load() {
    for held in [false, true] {
        let (first, mut second) = (primary(), primary());
        let _: i64 = ask(&mut first.connect(), ["CARD.SET", "list", "first", "9", "2"]);
        thread::scope(|scope| {
            let loading = if held { begin_and_hold(scope, &second) } else { begin(scope, &second) };
            let _: Value = ask(&mut second.connect(), ["REPLICAOF", "127.0.0.1", &first.port().to_string()]);
            if held {
                resume(&second);
            }
            let error = loading.join().unwrap().expect_err("it is a replica now");
            let told = error.detail().map_or_else(|| error.to_string(), Into::into);
            // Redis itself tells this to clients that wait when their server becomes a replica.
            let unblocked = "force unblock from blocking operation, instance state changed (master -> replica?)";
            assert!(told == "the server is not a primary any more" || told.contains(unblocked), "{told}");
        });
        assert_same(&first, &second);
        assert_only_the_list(&second);
        assert_eq!(len(&second), 1001);
        wait_for(5, "the load has ended", || info(&mut second.connect(), "card_loads_under_way") == "0");
        assert_eq!(info(&mut second.connect(), "card_failed_loads"), "1");
        assert!(second.is_alive());
    }
}

#[test]
fn a_failover_in_the_middle_leaves_one_list_or_the_other() {
    let mut servers = [primary(), Server::with_port(&SETTINGS)];
    fs::create_dir(servers[1].directory().join("lists")).unwrap();
    write(&servers[1], "new.tsv", 200_000, 3);
    write(&servers[1], "old.tsv", 1000, 1);
    let port = servers[0].port().to_string();
    let _: Value = ask(&mut servers[1].connect(), ["REPLICAOF", "127.0.0.1", &port]);
    assert_same(&servers[0], &servers[1]);
    for (from, to) in [(0, 1), (1, 0)] {
        let (from, to) = (&servers[from], &servers[to]);
        load(from, "old.tsv").expect("loaded");
        thread::scope(|scope| {
            let loading = begin(scope, from);
            let _: Value = ask(&mut from.connect(), ["FAILOVER"]);
            wait_for(20, "the roles have changed", || {
                info(&mut from.connect(), "role") == "slave" && info(&mut to.connect(), "role") == "master"
            });
            let is_loaded = loading.join().unwrap().is_ok();
            assert_same(to, from);
            assert!(len(to) == if is_loaded { 200_000 } else { 1000 }, "{} and {is_loaded}", len(to));
        });
        // What is left over of the staging is no obstacle, and does not stay.
        load(to, "new.tsv").expect("loaded");
        assert_same(to, from);
        assert_only_the_list(to);
    }
    assert!(servers.iter_mut().all(Server::is_alive));
}
