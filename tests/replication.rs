//! Replicas: they get every change of their primary and nothing else, whichever way they came into step with it.

mod common;

use std::collections::HashMap;
use std::io::{self, Read};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use card_table::{Id, Schema, Table};
use common::{Server, ask, refused, wait_for};
use redis::{Connection, Value};

/// For servers that send what clients change and nothing else, with no PING for an hour, and that do not wait for a second
/// replica before they begin a full sync.
const SETTINGS: [&str; 6] =
    ["--repl-ping-replica-period", "3600", "--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes"];

fn primary(arguments: &[&str]) -> Server {
    Server::with_port(&[&SETTINGS, arguments].concat())
}

/// A server that is a replica from its start.
fn replica_of(primary: &Server, arguments: &[&str]) -> Server {
    let port = primary.port().to_string();
    let replica = Server::with_port(&[&SETTINGS, arguments, &["--replicaof", "127.0.0.1", &port]].concat());
    wait_until_in_step(primary, &replica);
    replica
}

fn info(db: &mut Connection, field: &str) -> String {
    let info: String = ask(db, ["INFO", "everything"]);
    let value = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.unwrap_or_else(|| panic!("INFO has {field}")).into()
}

/// How much has been sent to replicas.
fn offset(db: &mut Connection) -> u64 {
    info(db, "master_repl_offset").parse().expect("a number")
}

#[track_caller]
fn wait_until_in_step(primary: &Server, replica: &Server) {
    let (from, to) = (&mut primary.connect(), &mut replica.connect());
    wait_for(15, "the replica is in step", || {
        info(to, "master_link_status") == "up" && info(to, "slave_repl_offset") == info(from, "master_repl_offset")
    });
}

/// Every record of a table.
fn records(db: &mut Connection, key: &[u8]) -> Vec<Value> {
    let (mut all, mut cursor) = (Vec::new(), b"0".to_vec());
    loop {
        let (next, some): (Vec<u8>, Vec<Value>) = ask(db, [b"CARD.SCAN", key, &cursor, b"COUNT", b"10000"]);
        all.extend(some);
        if next == b"0" {
            return all;
        }
        cursor = next;
    }
}

/// What CARD.INFO tells of a table, but for the memory that it happens to take.
fn table_info(db: &mut Connection, key: &[u8]) -> HashMap<String, Value> {
    let mut info: HashMap<String, Value> = ask(db, [b"CARD.INFO", key, b"DIGEST"]);
    info.retain(|field, _| !["memory_bytes", "bytes_per_record", "blocks", "classes"].contains(&field.as_str()));
    info
}

/// Both hold the same keys, and the same records in every table; and the replica has refused nothing it was sent.
#[track_caller]
fn assert_same(primary: &Server, replica: &Server) {
    wait_until_in_step(primary, replica);
    let (from, to) = (&mut primary.connect(), &mut replica.connect());
    let keys = |db: &mut Connection| {
        let mut keys: Vec<Vec<u8>> = ask(db, ["KEYS", "*"]);
        keys.sort();
        keys
    };
    assert_eq!(keys(from), keys(to));
    for key in keys(from) {
        if ask::<String, _>(from, [b"TYPE", key.as_slice()]) != "cardtable" {
            continue;
        }
        let told = table_info(from, &key);
        assert_eq!(told, table_info(to, &key), "{key:?}");
        // A staged table cannot be asked for its records; its digest is that of what has arrived.
        if told["ready"] == Value::Int(1) {
            assert_eq!(records(from, &key), records(to, &key), "{key:?}");
        }
    }
    let digest = |db| ask::<String, _>(db, ["DEBUG", "DIGEST"]);
    assert_eq!(digest(from), digest(to));
    assert_eq!(info(to, "unexpected_error_replies"), "0");
}

/// Cards far apart, so that a table takes several blocks.
fn card(number: u64) -> String {
    format!("4401{:016}", number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % 10_000_000_000_000_000)
}

/// A table of so many cards, with type 7 and status 1.
fn table(cards: u64) -> Table {
    let mut table = Table::new(Schema::default());
    let symbol = table.schema().pack(&[7, 1]).expect("values in range");
    (0..cards).for_each(|number| {
        table.insert(&Id::parse(card(number).as_bytes()).expect("an id"), symbol);
    });
    table
}

/// Begins to stage a table, and returns the pieces that are still to come.
fn stage(db: &mut Connection, key: &str, table: &Table) -> Vec<Vec<u8>> {
    ask::<(), _>(db, [b"CARD.STAGE", key.as_bytes(), b"BEGIN", &table.header_bytes()]);
    table.frames(8 << 10).collect()
}

fn stage_frames(db: &mut Connection, key: &str, pieces: &[Vec<u8>]) {
    pieces.iter().for_each(|piece| ask(db, [b"CARD.STAGE", key.as_bytes(), b"FRAMES", piece]));
}

/// Tables of every kind: loaded, with a schema and ids of its own, staged half-way, only created, emptied.
fn fill(db: &mut Connection) {
    let pieces = stage(db, "staged", &table(20_000));
    stage_frames(db, "staged", &pieces);
    ask::<(), _>(db, ["CARD.COMMIT", "staged", "cards", "VERSION", "3", "SOURCE", "cards.tsv", "ROWS", "20001"]);
    ask::<(), _>(db, ["CARD.CREATE", "tags", "FIELD", "tag", "0", "6", "FIELD", "weight", "1", "18446744073709551615"]);
    for number in 0..200_u64 {
        let (uuid, hex) =
            (format!("{number:08x}-0000-0000-0000-0000000000AB"), format!("{:032x}", u128::from(number) << 90));
        let text = [b"\0\r\n\xff caf\xc3\xa9 ".as_slice(), &number.to_be_bytes()].concat();
        for id in [uuid.as_bytes(), hex.as_bytes(), &text] {
            assert_eq!(ask::<i64, _>(db, [b"CARD.SET".as_slice(), b"tags", id, b"6", b"18446744073709551615"]), 1);
        }
    }
    let pieces = stage(db, "half", &table(5_000));
    stage_frames(db, "half", &pieces[..pieces.len() / 2]);
    ask::<(), _>(db, ["CARD.CREATE", "created"]);
    ask::<(), _>(db, ["CARD.SET", "emptied", "1", "1", "1"]);
    ask::<(), _>(db, ["CARD.DEL", "emptied", "1"]);
    ask::<(), _>(db, ["SET", "no table", "value"]);
}

/// Changes two tables before, while and after something happens.
fn under_writes(primary: &Server, happens: impl FnOnce()) {
    let (done, writes) = (AtomicBool::new(false), AtomicU64::new(0));
    let more_writes = || {
        let until = writes.load(Ordering::Relaxed) + 10;
        wait_for(15, "more writes", || writes.load(Ordering::Relaxed) > until);
    };
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let (db, mut random) = (&mut primary.connect(), fastrand::Rng::with_seed(3));
            while !done.load(Ordering::Relaxed) {
                write(db, &mut random);
                writes.fetch_add(1, Ordering::Relaxed);
            }
        });
        // The writer ends also when what happens fails.
        let happened = catch_unwind(AssertUnwindSafe(|| {
            more_writes();
            happens();
            more_writes();
        }));
        done.store(true, Ordering::Relaxed);
        writer.join().expect("the writer writes");
        happened.unwrap_or_else(|panic| resume_unwind(panic));
    });
}

fn write(db: &mut Connection, random: &mut fastrand::Rng) {
    let (id, small) = (card(random.u64(..30_000)), random.u8(..=6).to_string());
    match random.u8(..4) {
        0 => ask(db, ["CARD.DEL", "cards", &id, "no such card"]),
        1 => ask(db, ["CARD.MSET", "tags", &id, &small, "9", "cafe", "1", "2"]),
        _ => ask(db, ["CARD.SET", "cards", &id, &small, "2"]),
    }
}

/// A full sync under writes, for each way in which a replica can take it; `receives` is what it logs of it.
fn full_sync(diskless: &str, receives: &str) {
    let primary = primary(&["--repl-diskless-sync", diskless]);
    fill(&mut primary.connect());
    let port = primary.port().to_string();
    for (load, way) in [("disabled", "to disk"), ("on-empty-db", "to parser"), ("swapdb", "to parser")] {
        let replica = Server::with(&[&SETTINGS[..], &["--repl-diskless-load", load]].concat());
        let db = &mut replica.connect();
        if load != "on-empty-db" {
            // What it held before does not shine through.
            ask::<(), _>(db, ["CARD.MSET", "cards", "old", "1", "1", &card(0), "3", "2"]);
            ask::<(), _>(db, ["CARD.SET", "old", "old", "1", "1"]);
        }
        under_writes(&primary, || {
            ask::<(), _>(db, ["REPLICAOF", "127.0.0.1", &port]);
            wait_for(15, "the link is up", || info(db, "master_link_status") == "up");
        });
        assert_same(&primary, &replica);
        let log = replica.log();
        let received = log.lines().find(|line| line.contains(receives)).expect("it tells how it receives");
        assert!(received.ends_with(way), "{load}: {received}");
        assert_eq!(info(db, "loading"), "0");
    }
    assert_eq!(info(&mut primary.connect(), "sync_full"), "3");
}

#[test]
fn a_full_sync_by_disk_brings_every_record() {
    full_sync("no", " bytes from master ");
}

#[test]
fn a_full_sync_without_disk_brings_every_record() {
    full_sync("yes", "receiving streamed RDB from master with EOF ");
}

#[test]
fn a_partial_resync_brings_what_was_missed() {
    let primary = primary(&["--repl-backlog-size", "64mb"]);
    let db = &mut primary.connect();
    fill(db);
    let replica = replica_of(&primary, &[]);
    under_writes(&primary, || {
        for times in 1..=3 {
            ask::<i64, _>(db, ["CLIENT", "KILL", "TYPE", "replica"]);
            wait_for(15, "it is back", || info(db, "sync_partial_ok") == times.to_string());
        }
    });
    assert_same(&primary, &replica);
    assert_eq!(info(db, "sync_full"), "1");
}

#[test]
fn during_a_swapdb_sync_the_replica_answers_from_its_old_data() {
    let primary = primary(&["--repl-diskless-sync", "yes", "--repl-backlog-size", "16kb"]);
    let db = &mut primary.connect();
    ask::<(), _>(db, ["CARD.MSET", "cards", "changed", "1", "1", "removed", "2", "1"]);
    // Many keys, and a replica that takes its time for each and looks at its clients in between.
    let create = "for i = 1, 500 do redis.call('card.set', 'filler' .. i, i, 1, 1) end";
    ask::<(), _>(db, ["EVAL", create, "0"]);
    let slow = ["--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024"];
    let replica = replica_of(&primary, &[["--repl-diskless-load", "swapdb"].as_slice(), &slow].concat());

    // While the link is broken more happens than the backlog keeps, so that the same history needs a full sync.
    let mut change = redis::pipe();
    change.atomic().cmd("CLIENT").arg(&["KILL", "TYPE", "replica"]);
    change.cmd("CARD.MSET").arg(&["cards", "changed", "1", "2", "added", "3", "1"]);
    change.cmd("CARD.DEL").arg(&["cards", "removed"]).cmd("SET").arg("large").arg(vec![0_u8; 1 << 20]);
    change.exec(db).expect("a transaction");

    let reader = &mut replica.connect();
    let mut answers_while_loading = 0;
    wait_for(15, "the new data", || {
        let mut look = redis::pipe();
        look.atomic().cmd("INFO").arg("persistence").cmd("CARD.MGET");
        look.arg(&["cards", "changed", "removed", "added"]);
        let (info, cards): (String, Vec<Option<Vec<u64>>>) = look.query(reader).expect("it always answers");
        if info.contains("async_loading:1") {
            assert_eq!(cards, [Some(vec![1, 1]), Some(vec![2, 1]), None]);
            answers_while_loading += 1;
        }
        cards == [Some(vec![1, 2]), None, Some(vec![3, 1])]
    });
    assert!(answers_while_loading > 10, "{answers_while_loading} answers");
    assert_same(&primary, &replica);
    assert_eq!(info(db, "sync_full"), "2");
}

/// A port on which one connection is passed on to the primary, until so many bytes have come back.
fn breaking_after(bytes: u64, primary: &Server) -> u16 {
    let (listener, to) = (TcpListener::bind("127.0.0.1:0").expect("a port"), ("127.0.0.1", primary.port()));
    let port = listener.local_addr().expect("an address").port();
    let server = TcpStream::connect(to).expect("the primary takes connections");
    thread::spawn(move || {
        let mut replica = listener.accept().expect("the replica comes").0;
        let (mut asked, mut asking) = (server.try_clone().unwrap(), replica.try_clone().unwrap());
        let asks = thread::spawn(move || io::copy(&mut asking, &mut asked));
        // Either fails only if the other side has gone, which is what is about to happen.
        let _ = io::copy(&mut server.take(bytes), &mut replica);
        let _ = replica.shutdown(Shutdown::Both);
        let _ = asks.join();
    });
    port
}

#[test]
fn a_full_sync_that_breaks_off_leaves_the_replica_as_it_was() {
    let primary = primary(&["--repl-diskless-sync", "yes"]);
    ask::<(), _>(&mut primary.connect(), ["SET", "first", "value"]);
    fill(&mut primary.connect());
    let replica = Server::with(&[&SETTINGS[..], &["--repl-diskless-load", "swapdb"]].concat());
    let db = &mut replica.connect();
    ask::<(), _>(db, ["CARD.MSET", "cards", "old", "1", "1", &card(0), "3", "2"]);
    for (times, bytes) in [(1, 500), (2, 20_000), (3, 60_000), (4, 90_000)] {
        ask::<(), _>(db, ["REPLICAOF", "127.0.0.1", &breaking_after(bytes, &primary).to_string()]);
        let failures = || replica.log().matches("Failed trying to load the MASTER synchronization DB").count();
        wait_for(15, "it has failed", || failures() == times);
        assert_eq!(records(db, b"cards").len(), 2);
        assert_eq!(ask::<Vec<u64>, _>(db, ["CARD.GET", "cards", &card(0)]), [3, 2]);
        // What had arrived is freed in the background.
        wait_for(5, "it is gone", || info(db, "card_tables") == "1");
    }
    assert!(replica.log().contains("a card table cannot be read: the file ends early or is damaged"));
    ask::<(), _>(db, ["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    assert_same(&primary, &replica);
}

#[test]
fn errors_and_what_changes_nothing_replicate_nothing() {
    let primary = primary(&[]);
    let db = &mut primary.connect();
    fill(db);
    let (replica, id) = (replica_of(&primary, &[]), card(1));
    let before = offset(db);
    let id = id.as_str();
    for (command, reply) in [
        (&["CARD.SET", "cards", id, "7", "1"][..], 0),
        (&["CARD.MSET", "cards", id, "7", "1", &card(2), "7", "1"], 0),
        (&["CARD.DEL", "cards", "nobody", "4401"], 0),
        (&["CARD.DEL", "no such table", id], 0),
        (&["CARD.DEL", "created", id], 0),
        (&["CARD.DEL", "emptied", "1"], 0),
        (&["CARD.LEN", "cards"], 20_000),
    ] {
        assert_eq!(ask::<i64, _>(db, command), reply, "{command:?}");
        assert_eq!(offset(db), before, "{command:?}");
    }
    for command in [
        &["CARD.GET", "cards", id][..],
        &["CARD.MGET", "cards", id, "nobody"],
        &["CARD.SCAN", "cards", "0"],
        &["CARD.INFO", "cards", "DIGEST"],
        &["CARD.JSON", "cards", id],
        &["CARD.QUERY", "cards", "cardid=1&cmdtype=blacklistquery"],
    ] {
        ask::<Value, _>(db, command);
        assert_eq!(offset(db), before, "{command:?}");
    }
    for command in [
        &["CARD.MSET", "cards", "new", "1", "1", "newer", "1", "3"][..],
        &["CARD.MSET", "cards", "new", "1", "1", "newer", "1"],
        &["CARD.SET", "new table", "new", "11", "1"],
        &["CARD.SET", "cards", "", "1", "1"],
        &["CARD.SET", "cards", "new", "1"],
        &["CARD.SET", "no table", "new", "1", "1"],
        &["CARD.SET", "half", "new", "1", "1"],
        &["CARD.DEL", "cards", id, ""],
        &["CARD.DEL", "half", id],
        &["CARD.CREATE", "created"],
        &["CARD.CREATE", "new table", "FIELD", "x", "2", "1"],
        &["CARD.STAGE", "cards", "BEGIN", "header"],
        &["CARD.STAGE", "new table", "BEGIN", "header"],
        &["CARD.STAGE", "new table", "FRAMES", "frames"],
        &["CARD.STAGE", "half", "FRAMES", "frames"],
        &["CARD.COMMIT", "half", "cards"],
        &["CARD.COMMIT", "new table", "cards"],
    ] {
        refused(db, command);
        assert_eq!(offset(db), before, "{command:?}");
    }
    assert_same(&primary, &replica);

    // One card of several is reason enough.
    assert_eq!(ask::<i64, _>(db, ["CARD.MSET", "cards", id, "7", "1", "new", "1", "1"]), 1);
    let after_set = offset(db);
    assert!(after_set > before);
    assert_eq!(ask::<i64, _>(db, ["CARD.DEL", "cards", "nobody", "new"]), 1);
    assert!(offset(db) > after_set);
    assert_same(&primary, &replica);
}

#[test]
fn transactions_and_scripts_replicate() {
    let primary = primary(&[]);
    let replica = replica_of(&primary, &[]);
    let db = &mut primary.connect();
    let mut transaction = redis::pipe();
    transaction.atomic().cmd("CARD.SET").arg(&["a", "1", "1", "1"]).cmd("CARD.SET").arg(&["b", "1", "1", "1"]);
    transaction.cmd("CARD.DEL").arg(&["a", "1"]).exec(db).expect("a transaction");
    // The script would do something else on the replica.
    let script = "local s = redis.call('time'); for i = 1, 5 do redis.call('card.set', 'c', s[2] .. i, 1, 1) end";
    ask::<(), _>(db, ["EVAL", script, "0"]);
    assert_eq!(ask::<i64, _>(db, ["CARD.LEN", "c"]), 5);
    assert_same(&primary, &replica);
}

#[test]
fn a_replica_refuses_writes_and_answers_questions() {
    let primary = primary(&[]);
    fill(&mut primary.connect());
    let replica = replica_of(&primary, &[]);
    let (db, id) = (&mut replica.connect(), card(1));
    for command in [
        &["CARD.CREATE", "t"][..],
        &["CARD.SET", "cards", &id, "1", "1"],
        &["CARD.MSET", "cards", &id, "1", "1"],
        &["CARD.DEL", "cards", &id],
        &["CARD.STAGE", "half", "FRAMES", "frames"],
        &["CARD.COMMIT", "half", "cards"],
    ] {
        assert_eq!(refused(db, command), "READONLY You can't write against a read only replica.", "{command:?}");
    }
    assert_eq!(ask::<Vec<u64>, _>(db, ["CARD.GET", "cards", &id]), [7, 1]);
    assert_eq!(ask::<Vec<Option<Vec<u64>>>, _>(db, ["CARD.MGET", "cards", "1", &id]), [None, Some(vec![7, 1])]);
    assert_eq!(ask::<i64, _>(db, ["CARD.LEN", "cards"]), 20_000);
    assert_eq!(records(db, b"tags").len(), 600);
    let json = format!(r#"[{{"id":"{id}","type":7,"status":1}}]"#);
    assert_eq!(ask::<String, _>(db, ["CARD.JSON", "cards", &id]), json);
    let query = format!("cardid={id}&cmdtype=blacklistquery");
    assert!(ask::<String, _>(db, ["CARD.QUERY", "cards", &query]).contains(r#""recordcnt":"1""#));
    assert_same(&primary, &replica);
}

#[test]
fn a_table_that_is_being_staged_goes_on_at_a_replica_that_comes_in_between() {
    let primary = primary(&[]);
    let (db, table) = (&mut primary.connect(), table(30_000));
    ask::<(), _>(db, ["CARD.SET", "cards", "old", "1", "1"]);
    let pieces = stage(db, "staged", &table);
    let (first, rest) = pieces.split_at(pieces.len() / 2);
    assert!(!first.is_empty() && !rest.is_empty());
    stage_frames(db, "staged", first);
    let replica = replica_of(&primary, &[]);
    assert_same(&primary, &replica);

    stage_frames(db, "staged", rest);
    wait_until_in_step(&primary, &replica);
    let reader = &mut replica.connect();
    assert_eq!(ask::<Vec<u64>, _>(reader, ["CARD.GET", "cards", "old"]), [1, 1]);
    assert_eq!(refused(reader, ["CARD.LEN", "staged"]), "ERR the table is staged and not committed yet");
    ask::<(), _>(db, ["CARD.COMMIT", "staged", "cards"]);
    assert_same(&primary, &replica);
    assert_eq!(ask::<Vec<String>, _>(reader, ["KEYS", "*"]), ["cards"]);
    assert_eq!(records(reader, b"cards").len(), 30_000);
    let digest = Value::BulkString(format!("{:032x}", table.digest()).into_bytes());
    assert_eq!(table_info(reader, b"cards")["digest"], digest);
}

/// Holds a server up while something happens elsewhere, and for a moment longer.
fn while_stopped(server: &Server, moment: Duration, happens: impl FnOnce()) {
    let signal = |name: &str| {
        let sent = Command::new("kill").args([name, &server.pid().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    };
    signal("-STOP");
    happens();
    thread::sleep(moment);
    signal("-CONT");
}

#[test]
fn a_committed_table_is_of_the_same_moment_on_both() {
    let primary = primary(&[]);
    let replica = replica_of(&primary, &[]);
    let (from, to) = (&mut primary.connect(), &mut replica.connect());
    while_stopped(&replica, Duration::from_millis(1100), || {
        for key in ["cards", "own"] {
            let pieces = stage(from, key, &table(10));
            stage_frames(from, key, &pieces);
        }
        ask::<(), _>(from, ["CARD.COMMIT", "cards", "list", "VERSION", "3", "SOURCE", "a\nb", "ROWS", "9"]);
        ask::<(), _>(from, ["CARD.COMMIT", "own", "own", "SOURCE", "", "ROWS", "0", "AT", "1501718400999"]);
    });
    assert_same(&primary, &replica);
    assert!(matches!(table_info(to, b"list")["loaded_at"], Value::Int(at) if at > 1_700_000_000));
    assert_eq!(table_info(to, b"list")["version"], Value::Int(3));
    assert_eq!(table_info(to, b"list")["source"], Value::BulkString(b"a\nb".to_vec()));
    assert_eq!(table_info(to, b"own")["loaded_at"], Value::Int(1_501_718_400));
    // A dump has the time to the millisecond.
    for key in ["list", "own"] {
        assert_eq!(ask::<Vec<u8>, _>(from, ["DUMP", key]), ask::<Vec<u8>, _>(to, ["DUMP", key]));
    }
}

#[test]
fn a_table_that_was_written_took_effect_at_the_same_moment_on_both() {
    let effective = ["--card.darkver", "effective"];
    let primary = primary(&effective);
    let replica = replica_of(&primary, &effective);
    let (from, to) = (&mut primary.connect(), &mut replica.connect());
    // Longer than a second, which is what an answer tells.
    while_stopped(&replica, Duration::from_millis(1100), || ask(from, ["CARD.SET", "cards", "1", "1", "1"]));
    assert_same(&primary, &replica);
    let query = ["CARD.QUERY", "cards", "cardid=1&cmdtype=blacklistquery"];
    assert_eq!(ask::<String, _>(from, query), ask::<String, _>(to, query));
}

#[test]
fn a_table_expires_on_both() {
    let primary = primary(&[]);
    let replica = replica_of(&primary, &[]);
    let (from, to) = (&mut primary.connect(), &mut replica.connect());
    ask::<(), _>(from, ["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
    for key in ["read", "written"] {
        ask::<(), _>(from, ["CARD.MSET", key, "old", "1", "1", "older", "2", "2"]);
        assert_eq!(ask::<i64, _>(from, ["PEXPIRE", key, "200"]), 1);
    }
    ask::<(), _>(from, ["CARD.SET", "kept", "1", "1", "1"]);
    ask::<i64, _>(from, ["EXPIRE", "kept", "1000"]);
    assert_same(&primary, &replica);

    // The primary does not look, so both tables are still there; but nobody sees them, on the replica either.
    wait_for(5, "it has expired", || ask::<i64, _>(to, ["CARD.LEN", "written"]) == 0);
    assert_eq!(ask::<Option<Vec<u64>>, _>(to, ["CARD.GET", "written", "old"]), None);
    assert_eq!(refused(to, ["CARD.INFO", "written"]), "ERR no such table");
    assert_eq!([ask::<i64, _>(from, ["DBSIZE"]), ask(to, ["DBSIZE"])], [3, 3]);

    // What is written now goes to a new table, without the old cards and without an end.
    assert_eq!(ask::<i64, _>(from, ["CARD.SET", "written", "new", "3", "1"]), 1);
    assert_eq!(ask::<Option<Vec<u64>>, _>(from, ["CARD.GET", "read", "old"]), None);
    assert_same(&primary, &replica);
    assert_eq!([ask::<i64, _>(from, ["DBSIZE"]), ask(to, ["DBSIZE"])], [2, 2]);
    assert_eq!(ask::<i64, _>(to, ["CARD.LEN", "written"]), 1);
    assert_eq!(ask::<i64, _>(to, ["PTTL", "written"]), -1);
    assert!((1..=1000).contains(&ask::<i64, _>(to, ["TTL", "kept"])));
}

#[test]
fn the_first_write_to_a_table_leaves_its_time_to_live_on_both() {
    let primary = primary(&[]);
    let replica = replica_of(&primary, &[]);
    let (from, to) = (&mut primary.connect(), &mut replica.connect());
    ask::<(), _>(from, ["CARD.CREATE", "created"]);
    ask::<i64, _>(from, ["EXPIRE", "created", "1000"]);
    // It makes the table ready, which replicas are told in their own way.
    assert_eq!(ask::<i64, _>(from, ["CARD.SET", "created", "1", "1", "1"]), 1);
    wait_until_in_step(&primary, &replica);
    let end: i64 = ask(from, ["PEXPIRETIME", "created"]);
    assert!(end > 0);
    assert_eq!(ask::<i64, _>(to, ["PEXPIRETIME", "created"]), end);
    assert_same(&primary, &replica);
}

#[test]
fn a_replica_without_memory_to_spare_takes_what_it_is_sent() {
    let primary = primary(&[]);
    let replica = replica_of(&primary, &["--maxmemory", "1mb"]);
    let (from, to) = (&mut primary.connect(), &mut replica.connect());
    fill(from);
    let random = &mut fastrand::Rng::with_seed(4);
    (0..1000).for_each(|_| write(from, random));
    let pieces = stage(from, "staged", &table(50_000));
    stage_frames(from, "staged", &pieces);
    ask::<(), _>(from, ["CARD.COMMIT", "staged", "cards"]);
    assert_same(&primary, &replica);

    // It was really at its limit.
    assert!(info(to, "used_memory").parse::<u64>().expect("a number") > 1 << 20);
    ask::<(), _>(to, ["REPLICAOF", "NO", "ONE"]);
    let refusal = refused(to, ["CARD.SET", "cards", "new", "1", "1"]);
    assert_eq!(refusal, "OOM command not allowed when used memory > 'maxmemory'.");
}

#[test]
fn a_replica_of_a_replica_is_in_step_too() {
    let primary = primary(&[]);
    fill(&mut primary.connect());
    let middle = replica_of(&primary, &[]);
    let last = replica_of(&middle, &[]);
    under_writes(&primary, || {
        let db = &mut middle.connect();
        ask::<i64, _>(db, ["CLIENT", "KILL", "TYPE", "replica"]);
        wait_for(15, "it is back", || info(db, "sync_partial_ok") == "1");
    });
    assert_same(&primary, &middle);
    assert_same(&middle, &last);
    assert_same(&primary, &last);
}
