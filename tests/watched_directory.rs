//! Lists that are dropped into the watched directory are loaded by themselves, each once, in order, and put away.

mod common;

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::thread;
use std::time::Duration;

use common::watched::{Watched, figure, type_of, version};
use common::{Server, ask, wait_for};
use redis::Value;

/// A list of one card, whose type tells the lists apart.
fn list(card: &str, type_: u8) -> String {
    format!("cardId\ttype\tstatus\n{card}\t{type_}\t1\n")
}

#[test]
fn a_list_is_loaded_and_put_away() {
    let watched = Watched::new();
    let server = Server::with(&watched.arguments());
    let db = &mut server.connect();
    watched.drop("blacklist:0.201708031.full.tsv", list("44015186100181001473", 7));
    wait_for(20, "the list is put away", || watched.names("done") == ["blacklist:0.201708031.full.tsv"]);
    assert_eq!(type_of(db, "blacklist:0", "44015186100181001473"), Some(7));
    assert_eq!(version(db, "blacklist:0"), Some(201_708_031));
    assert_eq!(watched.names(""), [""; 0]);

    // Packed, for a table with dots in its name.
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(list("7", 3).as_bytes()).expect("packed");
    fs::write(watched.path("a.b.5.full.tsv.gz"), packed.finish().expect("packed")).expect("a file");
    wait_for(20, "the packed list is loaded", || version(db, "a.b") == Some(5));
    assert_eq!(type_of(db, "a.b", "7"), Some(3));
}

#[test]
fn lists_are_loaded_in_the_order_of_their_versions() {
    let watched = Watched::new();
    // As numbers: 9 comes before 10.
    for (version, type_) in [(10, 2), (9, 1), (100, 3)] {
        watched.drop(&format!("t.{version}.full.tsv"), list("1", type_));
    }
    let server = Server::with(&watched.arguments());
    let db = &mut server.connect();
    wait_for(20, "all are put away", || watched.names("done").len() == 3);
    assert_eq!((version(db, "t"), type_of(db, "t", "1")), (Some(100), Some(3)));
    assert_eq!((figure(db, "card_loads"), figure(db, "card_failed_loads")), (3, 0));
}

#[test]
fn a_list_that_cannot_be_loaded_is_put_away_with_the_reason() {
    let watched = Watched::new();
    let server = Server::with(&watched.arguments());
    let db = &mut server.connect();
    watched.drop("t.5.full.tsv", list("1", 5));
    wait_for(20, "version 5", || version(db, "t") == Some(5));

    watched.drop("t.4.full.tsv", list("1", 4));
    watched.drop("t.6.full.tsv", list("1", 11));
    let failed = ["t.4.full.tsv", "t.4.full.tsv.err", "t.6.full.tsv", "t.6.full.tsv.err"];
    wait_for(20, "both are put away", || watched.names("failed") == failed);
    let reason = |name: &str| fs::read_to_string(watched.path("failed").join(name)).expect("a reason");
    assert_eq!(reason("t.4.full.tsv.err"), "version 4 is not newer than version 5, which is loaded\n");
    assert_eq!(reason("t.6.full.tsv.err"), "line 2, column type: found '11', expected a number between 0 and 10\n");
    assert_eq!((version(db, "t"), type_of(db, "t", "1")), (Some(5), Some(5)));

    // The next good one is loaded all the same.
    watched.drop("t.7.full.tsv", list("1", 7));
    wait_for(20, "version 7", || version(db, "t") == Some(7));
}

#[test]
fn a_file_is_left_alone_while_it_grows_and_under_other_names() {
    let watched = Watched::new();
    let server = Server::with(&watched.arguments());
    let db = &mut server.connect();
    for name in [".t.1.full.tsv", "t.1.full.tsv.tmp", "t.1.full.tsv.part", "t.full.tsv", "t.x.full.tsv", "list.tsv"] {
        fs::write(watched.path(name), list("1", 1)).expect("a file");
    }
    let mut growing = fs::File::create(watched.path("t.2.full.tsv")).expect("a file");
    growing.write_all(b"cardId\ttype\tstatus\n").expect("a header");
    for card in 0..15 {
        writeln!(growing, "{card}\t2\t1").expect("a row");
        thread::sleep(Duration::from_millis(200));
        assert_eq!(version(db, "t"), None, "card {card}");
    }
    wait_for(20, "the whole list is loaded", || version(db, "t") == Some(2));
    assert_eq!(ask::<u64, _>(db, ["CARD.LEN", "t"]), 15);
    assert_eq!(watched.names("done"), ["t.2.full.tsv"]);
    assert_eq!(figure(db, "card_loads"), 1);
}

#[test]
fn what_a_crash_has_lost_is_loaded_again() {
    let watched = Watched::new();
    let mut server = Server::with(&watched.arguments());
    watched.drop("t.1.full.tsv", list("1", 1));
    wait_for(20, "version 1", || version(&mut server.connect(), "t") == Some(1));
    let () = ask(&mut server.connect(), ["SAVE"]);
    for type_ in [2, 3] {
        watched.drop(&format!("t.{type_}.full.tsv"), list("1", type_));
    }
    wait_for(20, "version 3", || watched.names("done").len() == 3);

    server.kill();
    server.start_again();
    let db = &mut server.connect();
    wait_for(20, "version 3 again", || version(db, "t") == Some(3));
    assert_eq!(type_of(db, "t", "1"), Some(3));
    wait_for(20, "the list is not called stale", || {
        ask::<HashMap<String, Value>, _>(db, ["CARD.INFO", "t"])["stale"] == Value::Int(0)
    });
    assert_eq!(figure(db, "card_loads"), 1, "only the newest is loaded");
    assert_eq!(watched.names("done").len(), 3);
    assert_eq!(watched.names("failed"), [""; 0]);
}

#[test]
fn until_it_has_been_compared_with_what_was_loaded_a_list_is_called_stale() {
    let watched = Watched::new();
    let mut server = Server::with(&watched.arguments());
    watched.drop("t.1.full.tsv", list("1", 1));
    wait_for(20, "version 1", || version(&mut server.connect(), "t") == Some(1));
    let () = ask(&mut server.connect(), ["SAVE"]);
    // So large that it is not loaded at once.
    let rows: String = (0..1_000_000).map(|card| format!("{card}\t2\t1\n")).collect();
    watched.drop("t.2.full.tsv", format!("cardId\ttype\tstatus\n{rows}"));
    wait_for(30, "version 2", || watched.names("done").len() == 2);

    server.kill();
    server.start_again();
    let db = &mut server.connect();
    let info: HashMap<String, Value> = ask(db, ["CARD.INFO", "t"]);
    assert_eq!((&info["version"], &info["stale"], &info["ready"]), (&Value::Int(1), &Value::Int(1), &Value::Int(1)));
    assert_eq!(type_of(db, "t", "1"), Some(1), "it is served all the same");
    wait_for(30, "version 2 again", || version(db, "t") == Some(2));
    wait_for(20, "the list is not called stale", || {
        ask::<HashMap<String, Value>, _>(db, ["CARD.INFO", "t"])["stale"] == Value::Int(0)
    });
}

#[test]
fn only_a_primary_acts_and_a_promoted_replica_takes_over() {
    let watched = Watched::new();
    let primary = Server::with_port(&["--card.watch-interval", "0"]);
    let replica = Server::with_port(&watched.arguments());
    let db = &mut replica.connect();
    let () = ask(db, ["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    wait_for(20, "the replica is in step", || {
        ask::<String, _>(db, ["INFO", "replication"]).contains("master_link_status:up")
    });
    watched.drop("t.1.full.tsv", list("1", 1));
    thread::sleep(Duration::from_secs(3));
    assert_eq!((version(db, "t"), watched.names("done")), (None, Vec::new()));

    let () = ask(db, ["REPLICAOF", "NO", "ONE"]);
    wait_for(20, "the promoted replica loads", || version(db, "t") == Some(1));
}

#[test]
fn nothing_is_watched_unless_an_interval_is_set() {
    let watched = Watched::new();
    let directory = watched.0.path().to_str().expect("a path of UTF-8");
    let server = Server::with(&["--card.load-dir", directory]);
    let db = &mut server.connect();
    watched.drop("t.1.full.tsv", list("1", 1));
    thread::sleep(Duration::from_secs(2));
    assert_eq!(version(db, "t"), None);
    let () = ask(db, ["CONFIG", "SET", "card.watch-interval", "1"]);
    wait_for(20, "version 1", || version(db, "t") == Some(1));
}
