//! Changes that are dropped into the watched directory are made by themselves, behind the list that they change, and made
//! again if a crash has lost them.

mod common;

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use card_table::Schema;
use common::deltas::{LONG, Row, digest, has_patch, info, line_up, memory, reply, resume, send, tsv};
use common::watched::{Watched, figure, type_of, version};
use common::{Server, ask, wait_for};
use redis::{Connection, Value};

/// A file that sets these cards to one type; with type 99 it removes them.
fn cards(ids: &[&str], type_: u8) -> String {
    let row = |id: &&str| match type_ {
        99 => format!("{id}\t\t\tdel\n"),
        _ => format!("{id}\t{type_}\t1\tset\n"),
    };
    let rows: String = ids.iter().map(row).collect();
    format!("cardId\ttype\tstatus\top\n{rows}")
}

fn types(db: &mut Connection, table: &str, ids: &[&str]) -> Vec<Option<u64>> {
    ids.iter().map(|id| type_of(db, table, id)).collect()
}

fn is_stale(db: &mut Connection, table: &str) -> bool {
    ask::<HashMap<String, Value>, _>(db, ["CARD.INFO", table])["stale"] == Value::Int(1)
}

fn reason(watched: &Watched, name: &str) -> String {
    fs::read_to_string(watched.path("failed").join(format!("{name}.err"))).expect("a reason")
}

#[test]
fn a_list_comes_first_and_then_its_changes_in_the_order_of_their_versions() {
    let watched = Watched::new();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(cards(&["2", "3"], 6).as_bytes()).expect("packed");
    // As numbers: 9 comes before 10.
    watched.drop("t.10.delta.tsv.gz", packed.finish().expect("packed"));
    watched.drop("t.100.delta.tsv.zst", zstd::encode_all(cards(&["3"], 99).as_bytes(), 1).expect("packed"));
    watched.drop("t.9.delta.tsv", cards(&["1", "2"], 5));
    watched.drop("t.8.full.tsv", cards(&["1", "2", "3", "4"], 4));
    watched.drop("t.7.full.tsv", cards(&["7"], 7));
    watched.drop("a.b.8.full.tsv", cards(&["1"], 1));
    watched.drop("a.b.9.delta.tsv", cards(&["1"], 2));
    let server = Server::with(&watched.arguments());
    let db = &mut server.connect();
    wait_for(20, "all are put away", || watched.names("done").len() == 7);
    assert_eq!(types(db, "t", &["1", "2", "3", "4", "7"]), [Some(5), Some(6), None, Some(4), None]);
    assert_eq!((version(db, "t"), version(db, "a.b"), type_of(db, "a.b", "1")), (Some(100), Some(9), Some(2)));
    assert_eq!((figure(db, "card_loads"), figure(db, "card_failed_loads")), (7, 0));
    assert_eq!((watched.names(""), watched.names("failed")), (Vec::new(), Vec::new()));
    let told: HashMap<String, Value> = ask(db, ["CARD.INFO", "t"]);
    assert_eq!((&told["source"], &told["rows"]), (&Value::BulkString("t.100.delta.tsv.zst".into()), &Value::Int(1)));
}

#[test]
fn changes_that_cannot_be_made_are_put_away_with_the_reason() {
    let watched = Watched::new();
    let server = Server::with(&watched.arguments());
    let db = &mut server.connect();
    watched.drop("t.5.full.tsv", cards(&["1", "2"], 5));
    wait_for(20, "version 5", || version(db, "t") == Some(5));
    let before = memory(db, "t");

    for (name, content) in [
        ("t.4.delta.tsv", cards(&["1"], 4)),
        ("t.5.delta.tsv", cards(&["1"], 6)),
        ("t.6.delta.tsv", cards(&["1"], 11)),
        ("none.1.delta.tsv", cards(&["1"], 1)),
    ] {
        watched.drop(name, content);
    }
    wait_for(20, "all are put away", || watched.names("failed").len() == 8);
    for (name, expected) in [
        ("t.4.delta.tsv", "version 4 is not newer than version 5, which is loaded"),
        ("t.5.delta.tsv", "version 5 is not newer than version 5, which is loaded"),
        ("t.6.delta.tsv", "line 2, column type: found '11', expected a number between 0 and 10"),
        ("none.1.delta.tsv", "there is no table to change: changes need a list that was loaded or written"),
    ] {
        assert_eq!(reason(&watched, name), format!("{expected}\n"), "{name}");
    }
    assert_eq!((version(db, "t"), types(db, "t", &["1", "2"])), (Some(5), vec![Some(5), Some(5)]));
    assert_eq!(memory(db, "t"), before);
    assert_eq!(ask::<Vec<String>, _>(db, ["KEYS", "*"]), ["t"]);
    assert_eq!(watched.names("done"), ["t.5.full.tsv"]);

    // The next good ones are loaded all the same; of one version, the list before the changes.
    watched.drop("t.7.delta.tsv", cards(&["1"], 7));
    wait_for(20, "version 7", || version(db, "t") == Some(7));
    assert_eq!(types(db, "t", &["1", "2"]), [Some(7), Some(5)]);
    watched.drop("t.8.delta.tsv", cards(&["1"], 9));
    watched.drop("t.8.full.tsv", cards(&["1"], 8));
    wait_for(20, "both are put away", || watched.names("").is_empty());
    assert_eq!((version(db, "t"), type_of(db, "t", "1")), (Some(8), Some(8)));
    assert_eq!(reason(&watched, "t.8.delta.tsv"), "version 8 is not newer than version 8, which is loaded\n");
}

#[test]
fn changes_that_a_crash_has_lost_are_made_again_and_nothing_else() {
    let watched = Watched::new();
    let mut server = Server::with(&watched.arguments());
    watched.drop("t.1.full.tsv", cards(&["1", "2", "3"], 1));
    watched.drop("t.2.delta.tsv", cards(&["1"], 2));
    wait_for(20, "version 2", || version(&mut server.connect(), "t") == Some(2));
    let () = ask(&mut server.connect(), ["SAVE"]);
    watched.drop("t.3.delta.tsv", cards(&["2"], 3));
    watched.drop("t.4.delta.tsv", cards(&["1"], 99));
    wait_for(20, "version 4", || watched.names("done").len() == 4);

    server.kill();
    server.start_again();
    let db = &mut server.connect();
    wait_for(20, "version 4 again", || version(db, "t") == Some(4));
    wait_for(20, "the list is not called stale", || !is_stale(db, "t"));
    assert_eq!(types(db, "t", &["1", "2", "3"]), [None, Some(3), Some(1)]);
    assert_eq!((figure(db, "card_loads"), figure(db, "card_failed_loads")), (2, 0), "3 and 4");
    assert_eq!((watched.names("done").len(), watched.names("failed")), (4, Vec::new()));
}

#[test]
fn a_list_that_a_crash_has_lost_comes_back_with_the_changes_behind_it() {
    let watched = Watched::new();
    let mut server = Server::with(&watched.arguments());
    for (name, ids, type_) in [
        ("t.1.full.tsv", &["1", "2"], 1),
        ("t.2.delta.tsv", &["1", "9"], 2),
        ("t.3.full.tsv", &["1", "2"], 3),
        ("t.4.delta.tsv", &["2", "4"], 4),
        ("t.5.delta.tsv", &["4", "5"], 5),
        // Changes without a list: what they have changed is nowhere.
        ("u.7.delta.tsv", &["1", "2"], 5),
    ] {
        watched.drop(name, cards(ids, type_));
    }
    let _: i64 = ask(&mut server.connect(), "CARD.SET u 1 1 1".split(' '));
    wait_for(20, "all are loaded", || watched.names("done").len() == 6);

    server.kill();
    server.start_again();
    let db = &mut server.connect();
    wait_for(20, "version 5 again", || version(db, "t") == Some(5));
    wait_for(20, "the list is not called stale", || !is_stale(db, "t"));
    assert_eq!(types(db, "t", &["1", "2", "4", "5", "9"]), [Some(3), Some(4), Some(5), Some(5), None]);
    assert_eq!((figure(db, "card_loads"), figure(db, "card_failed_loads")), (3, 0), "3, 4 and 5");
    assert_eq!(ask::<i64, _>(db, ["EXISTS", "u"]), 0);
}

#[test]
fn changes_behind_some_that_cannot_be_made_again_are_not_made() {
    let watched = Watched::new();
    let mut server = Server::with(&watched.arguments());
    watched.drop("t.1.full.tsv", cards(&["1"], 1));
    watched.drop("t.2.delta.tsv", cards(&["1"], 2));
    watched.drop("t.3.delta.tsv", cards(&["3"], 3));
    wait_for(20, "version 3", || watched.names("done").len() == 3);
    server.kill();
    fs::write(watched.path("done/t.2.delta.tsv"), cards(&["1"], 11)).expect("a file");
    server.start_again();
    let db = &mut server.connect();
    wait_for(20, "what can be loaded is", || version(db, "t") == Some(1) && figure(db, "card_failed_loads") == 1);
    thread::sleep(Duration::from_secs(2));
    assert_eq!((version(db, "t"), types(db, "t", &["1", "3"])), (Some(1), vec![Some(1), None]));
}

#[test]
fn until_changes_are_made_again_a_list_is_called_stale() {
    let watched = Watched::new();
    let mut server = Server::with(&watched.arguments());
    let rows: String = (0..600_000).map(|card| format!("{card}\t2\t1\n")).collect();
    watched.drop("t.1.full.tsv", cards(&["1"], 1));
    wait_for(20, "version 1", || version(&mut server.connect(), "t") == Some(1));
    let () = ask(&mut server.connect(), ["SAVE"]);
    // So large that they are not made at once.
    watched.drop("t.2.delta.tsv", format!("cardId\ttype\tstatus\n{rows}"));
    wait_for(30, "version 2", || watched.names("done").len() == 2);
    server.kill();
    server.start_again();
    let db = &mut server.connect();
    assert_eq!((version(db, "t"), is_stale(db, "t"), type_of(db, "t", "1")), (Some(1), true, Some(1)));
    wait_for(30, "version 2 again", || {
        let (stale, version) = (is_stale(db, "t"), version(db, "t"));
        assert!(stale || version == Some(2), "it is called fresh, and is not");
        version == Some(2)
    });
    wait_for(20, "the list is not called stale", || !is_stale(db, "t"));
}

/// The long list in version 1, and its changes in version 2.
fn drop_long_list(watched: &Watched, name: &str) {
    let all: Vec<Row> = LONG.old.iter().map(|(id, values)| (id.clone(), Some(values.clone()))).collect();
    let rows = if name.contains("full") { &all } else { &LONG.rows };
    watched.drop(name, tsv(&Schema::default(), rows));
}

#[test]
fn changes_that_a_crash_has_cut_off_are_made_after_the_restart() {
    for arguments in [&["--appendonly", "yes", "--appendfsync", "always"][..], &["--save", "3600 1"]] {
        let watched = Watched::new();
        let mut server = Server::with(&[&watched.arguments()[..], arguments].concat());
        drop_long_list(&watched, "list.1.full.tsv");
        wait_for(20, "version 1", || watched.names("done").len() == 1);
        let db = &mut server.connect();
        let _: Value = ask(db, ["SAVE"]);
        let before = memory(db, "list");
        drop_long_list(&watched, "list.2.delta.tsv");
        let deadline = Instant::now() + Duration::from_secs(20);
        // Spinning, because staging takes little time.
        while memory(db, "list") < before + (300 << 10) {
            assert!(Instant::now() < deadline, "nothing is staged");
        }
        server.kill();
        assert_eq!(watched.names(""), ["list.2.delta.tsv"]);
        server.start_again();
        let db = &mut server.connect();
        assert_eq!(digest(db, "list"), LONG.old_digest, "{arguments:?}");
        wait_for(20, "version 2", || version(db, "list") == Some(2));
        assert_eq!(digest(db, "list"), LONG.new_digest, "{arguments:?}");
        assert!(!has_patch(db, "list"), "{arguments:?}");
        wait_for(5, "it is put away", || watched.names("done") == ["list.1.full.tsv", "list.2.delta.tsv"]);
    }
}

#[test]
fn a_promoted_replica_makes_the_changes_that_it_has_not_got() {
    let (watched, mut primary) = (Watched::new(), Server::with_port(&[]));
    let replica = Server::with_port(&watched.arguments());
    let db = &mut replica.connect();
    let table = common::kinds::build(10, 3);
    common::kinds::stage(&mut primary.connect(), "t", &table, 1 << 20);
    let _: Value = ask(&mut primary.connect(), "CARD.COMMIT t t VERSION 3".split(' '));
    let () = ask(db, ["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    wait_for(20, "the replica has the list", || version(db, "t") == Some(3));
    fs::create_dir(watched.path("done")).expect("a folder");
    for (name, type_) in [("t.1.full.tsv", 1), ("t.3.delta.tsv", 3), ("t.4.delta.tsv", 4), ("t.5.delta.tsv", 5)] {
        fs::write(watched.path("done").join(name), cards(&[&type_.to_string()], type_)).expect("a file");
    }
    watched.drop("t.6.delta.tsv", cards(&["6"], 6));
    thread::sleep(Duration::from_secs(3));
    assert_eq!((version(db, "t"), figure(db, "card_loads")), (Some(3), 0), "a replica makes none");

    primary.kill();
    let () = ask(db, ["REPLICAOF", "NO", "ONE"]);
    wait_for(20, "all changes are made", || version(db, "t") == Some(6));
    assert_eq!(types(db, "t", &["1", "3", "4", "5", "6"]), [None, None, Some(4), Some(5), Some(6)]);
    assert_eq!(ask::<u64, _>(db, ["CARD.LEN", "t"]), table.len() + 3);
    wait_for(5, "the last one is put away", || watched.names("done").len() == 5);
    assert_eq!((figure(db, "card_loads"), figure(db, "card_failed_loads")), (3, 0));
    assert!(!is_stale(db, "t"));
}

#[test]
fn changes_wait_for_a_load_that_a_client_has_begun() {
    let watched = Watched::new();
    let server = Server::with(&watched.arguments());
    let db = &mut server.connect();
    drop_long_list(&watched, "list.1.full.tsv");
    wait_for(20, "version 1", || version(db, "list") == Some(1));
    fs::write(watched.path("by-hand.tsv"), tsv(&Schema::default(), &LONG.rows)).expect("a file");
    let loading = send(&server, "CARD.LOAD list by-hand.tsv DELTA VERSION 2".split(' '));
    wait_for(20, "it has begun", || info(db, "card_loads_under_way") == "1");
    let _: Value = ask(db, "CLIENT PAUSE 30000 WRITE".split(' '));
    assert_eq!(info(db, "card_loads_under_way"), "1");
    watched.drop("list.3.delta.tsv", cards(&["extra"], 3));
    thread::sleep(Duration::from_secs(3));
    assert_eq!((watched.names("done").len(), watched.names("failed").len()), (1, 0), "it waits");
    resume(&server);
    reply(loading).expect("loaded");
    wait_for(20, "version 3", || version(db, "list") == Some(3));
    assert_eq!(ask::<usize, _>(db, ["CARD.LEN", "list"]), LONG.new.len() + 1);
    assert_eq!(type_of(db, "list", "extra"), Some(3));
}

/// What a load has seen of a table at first does not hold for the table that it begins to change.
#[test]
fn changes_read_for_one_schema_are_not_made_to_a_table_of_another() {
    let watched = Watched::new();
    let mut server = Server::with(&watched.arguments());
    let db = &mut server.connect();
    let _: Value = ask(db, "CARD.CREATE t FIELD a 0 100".split(' '));
    let _: i64 = ask(db, "CARD.MSET t 1 5 2 6".split(' '));
    let _: Value = ask(db, "CLIENT PAUSE 30000 WRITE".split(' '));
    watched.drop("t.2.delta.tsv", "cardId\ta\n1\t100\n3\t77\n");
    wait_for(20, "the load wants to begin", || info(db, "card_loads_under_way") == "1");
    // It has looked at the table; before it may write, there is another one.
    thread::sleep(Duration::from_millis(300));
    let script = "redis.call('DEL', 't') redis.call('CARD.CREATE', 't', 'FIELD', 'b', '0', '1') \
                  redis.call('CARD.MSET', 't', '1', '0', '2', '1')";
    let waiting = line_up(&server, &["EVAL", script, "1", "t"]);
    resume(&server);
    reply(waiting).expect("it is another table");
    wait_for(20, "the file is put away", || watched.names("").is_empty());
    assert!(server.is_alive());
    assert!(!server.log().contains("panicked"), "{}", server.log());
    let dump: Vec<u8> = ask(db, ["DUMP", "t"]);
    let restored = common::try_ask::<(), _>(db, [b"RESTORE".as_slice(), b"again", b"0", &dump]);
    assert!(restored.is_ok(), "what is saved of it cannot be read: {restored:?}");
    let found: Vec<Option<Vec<u64>>> = ask(db, "CARD.MGET t 1 2 3".split(' '));
    assert_eq!(found, [Some(vec![0]), Some(vec![1]), None]);
    assert_eq!(watched.names("failed"), ["t.2.delta.tsv", "t.2.delta.tsv.err"]);
}
