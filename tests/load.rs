//! `CARD.LOAD`: a file becomes a table, or nothing changes and the error says why.

mod common;

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use common::{Server, ask, load, not_loaded, refused, try_ask, wait_for};
use redis::{Connection, Value};

const HEADER: &str = "cardId\ttype\tstatus\n";
const A: &str = "44016758092746254872";
const B: &str = "45018537070476554829";

/// A server that loads from the folder `lists` of its own.
fn server(arguments: &[&str]) -> Server {
    let server = Server::with(&[&["--card.load-dir", "lists"], arguments].concat());
    fs::create_dir(server.directory().join("lists")).expect("a folder");
    server
}

/// A file of these rows, each `id type status`.
fn write(server: &Server, name: &str, rows: &[&str]) {
    let rows: String = rows.iter().map(|row| row.replace(' ', "\t") + "\n").collect();
    fs::write(server.directory().join("lists").join(name), HEADER.to_owned() + &rows).expect("it can be written");
}

fn card(db: &mut Connection, key: &str, id: &str) -> Option<Vec<u64>> {
    ask(db, ["CARD.GET", key, id])
}

/// What is told of a table but for its digest and the memory it happens to take.
fn told(db: &mut Connection, key: &str) -> HashMap<String, Value> {
    let mut told: HashMap<String, Value> = ask(db, ["CARD.INFO", key]);
    told.retain(|field, _| !["memory_bytes", "bytes_per_record", "blocks", "classes"].contains(&field.as_str()));
    told
}

fn info(db: &mut Connection, field: &str) -> String {
    let info: String = ask(db, ["INFO", "everything"]);
    let value = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.unwrap_or_else(|| panic!("INFO has {field}")).into()
}

fn seconds(db: &mut Connection) -> i64 {
    ask::<(i64, i64), _>(db, ["TIME"]).0
}

#[test]
fn a_file_becomes_a_table() {
    let server = server(&[]);
    let db = &mut server.connect();
    write(&server, "cards.tsv", &[&format!("{A} 3 1"), &format!("{B} 6 2"), &format!("{A} 7 2")]);
    let before = seconds(db);
    let report = load(db, "list cards.tsv VERSION 12");
    let after = seconds(db);

    for (name, expected) in
        [("rows", 3), ("added", 2), ("changed", 0), ("removed", 0), ("duplicates", 1), ("version", 12)]
    {
        assert_eq!(report[name], Value::Int(expected), "{name}");
    }
    assert_eq!(report.len(), 7, "{report:?}");
    let took: f64 = redis::from_redis_value(report["seconds"].clone()).expect("a number");
    assert!((0.0..5.0).contains(&took), "{took}");

    assert_eq!(card(db, "list", A), Some(vec![7, 2]), "the last row of a card counts");
    assert_eq!(card(db, "list", B), Some(vec![6, 2]));
    assert_eq!(ask::<Vec<String>, _>(db, ["KEYS", "*"]), ["list"], "nothing is left of the staging");
    let told = told(db, "list");
    for (name, expected) in [("records", 2), ("ready", 1), ("version", 12)] {
        assert_eq!(told[name], Value::Int(expected), "{name}");
    }
    assert_eq!(told["source"], Value::BulkString("cards.tsv".into()));
    assert_eq!(told["loading"], Value::Nil);
    let loaded_at: i64 = redis::from_redis_value(told["loaded_at"].clone()).expect("a time");
    assert!((before..=after).contains(&loaded_at), "{before} {loaded_at} {after}");
}

#[test]
fn the_rows_of_the_file_are_told_by_card_info() {
    let server = server(&[]);
    let db = &mut server.connect();
    write(&server, "cards.tsv", &["1 3 1", "2 6 2", "1 7 2"]);
    load(db, "list cards.tsv");
    assert_eq!(told(db, "list").get("rows"), Some(&Value::Int(3)), "with those that a later one overrode");
}

#[test]
fn the_reply_is_a_map_and_flat_in_resp2() {
    let server = server(&[]);
    write(&server, "cards.tsv", &["1 7 1"]);
    let names = ["rows", "added", "changed", "removed", "duplicates", "seconds", "version"];
    let Value::Array(flat) = ask(&mut server.connect(), "CARD.LOAD list cards.tsv".split(' ')) else { panic!("flat") };
    let Value::Map(map) = ask(&mut server.connect_resp3(), "CARD.LOAD list cards.tsv".split(' ')) else {
        panic!("a map")
    };
    let text = |name: &str| Value::BulkString(name.into());
    assert_eq!(flat.iter().step_by(2).cloned().collect::<Vec<_>>(), names.map(text));
    assert_eq!(map.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>(), names.map(text));
    assert_eq!((&flat[13], &map[6].1), (&Value::Nil, &Value::Nil), "no version was given");
    assert_eq!((&flat[7], &map[3].1), (&Value::Int(0), &Value::Int(1)), "what was removed");
}

#[test]
fn a_load_takes_the_place_of_a_table_and_ends_its_time_to_live() {
    let server = server(&[]);
    let db = &mut server.connect();
    let _: Value = ask(db, "CARD.MSET list 1 7 1 2 7 1 3 7 1".split(' '));
    let _: Value = ask(db, "EXPIRE list 1000".split(' '));
    write(&server, "first.tsv", &["3 2 2", "4 2 2"]);
    let report = load(db, "list first.tsv VERSION 5");
    assert_eq!((&report["added"], &report["removed"]), (&Value::Int(2), &Value::Int(3)));
    assert_eq!(ask::<i64, _>(db, ["TTL", "list"]), -1);
    assert_eq!(card(db, "list", "1"), None);
    assert_eq!(card(db, "list", "3"), Some(vec![2, 2]));

    write(&server, "second.tsv", &["5 2 2"]);
    let report = load(db, "list second.tsv");
    assert_eq!((&report["added"], &report["removed"]), (&Value::Int(1), &Value::Int(2)));
    let told = told(db, "list");
    assert_eq!(told["version"], Value::Nil, "that of the first load ended with it");
    assert_eq!(told["source"], Value::BulkString("second.tsv".into()));
}

#[test]
fn the_tables_own_schema_is_used_and_columns_come_in_any_order() {
    let server = server(&[]);
    let db = &mut server.connect();
    let _: Value = ask(db, "CARD.CREATE zones FIELD zone 100 199 FIELD blocked 0 1".split(' '));
    let text = "blocked\tcardId\tzone\n1\tx\t150\n0\ty\t199\n";
    fs::write(server.directory().join("lists/zones.tsv"), text).unwrap();
    write(&server, "cards.tsv", &["1 7 1"]);
    load(db, "zones zones.tsv");
    assert_eq!(card(db, "zones", "x"), Some(vec![150, 1]));
    assert_eq!(card(db, "zones", "y"), Some(vec![199, 0]));
    assert_eq!(
        not_loaded(db, "zones cards.tsv"),
        r"ERR line 1: found 'cardId\ttype\tstatus', expected a header with the columns cardId, zone, blocked"
    );
    assert_eq!(
        not_loaded(db, "list zones.tsv"),
        r"ERR line 1: found 'blocked\tcardId\tzone', expected a header with the columns cardId, type, status"
    );
    assert_eq!(ask::<i64, _>(db, ["EXISTS", "list"]), 0);
}

#[test]
fn a_key_of_another_type_is_left_alone() {
    let server = server(&[]);
    let db = &mut server.connect();
    write(&server, "cards.tsv", &["1 7 1"]);
    let _: Value = ask(db, "SET list x".split(' '));
    let error = not_loaded(db, "list cards.tsv");
    assert_eq!(error, "WRONGTYPE Operation against a key holding the wrong kind of value");
    assert_eq!(ask::<String, _>(db, ["GET", "list"]), "x");
    assert_eq!(ask::<Vec<String>, _>(db, ["KEYS", "*"]), ["list"]);
}

#[test]
fn whoever_uses_the_name_of_the_staging_key_keeps_it() {
    let server = server(&[]);
    let db = &mut server.connect();
    write(&server, "cards.tsv", &["1 7 1"]);
    for other in ["SET {list}.staging x", "CARD.SET {list}.staging 9 9 2"] {
        let _: Value = ask(db, other.split(' '));
        let before: Vec<u8> = ask(db, ["DUMP", "{list}.staging"]);
        let error = not_loaded(db, "list cards.tsv");
        assert_eq!(error, "ERR the staging key holds something else, or was removed", "{other}");
        assert_eq!(ask::<Vec<u8>, _>(db, ["DUMP", "{list}.staging"]), before, "{other}");
        assert_eq!(ask::<i64, _>(db, "DEL {list}.staging list".split(' ')), 1);
    }
}

#[test]
fn bad_rows_fail_a_load_and_the_first_ten_are_named() {
    let server = server(&[]);
    let db = &mut server.connect();
    let _: Value = ask(db, "CARD.SET list 1 7 1".split(' '));
    let rows: Vec<_> = (2..=13).map(|line| format!("{line} {line}1 1")).chain(["99 7 2".into()]).collect();
    write(&server, "bad.tsv", &rows.iter().map(String::as_str).collect::<Vec<_>>());
    let problem = |line: u64| format!("line {line}, column type: found '{line}1', expected a number between 0 and 10");
    let first_ten: Vec<_> = (2..=11).map(problem).collect();
    let expected = format!("ERR {}; and 2 more", first_ten.join("; "));
    assert_eq!(not_loaded(db, "list bad.tsv"), expected);
    let _: Value = ask(db, "CONFIG SET card.load-max-errors 11".split(' '));
    assert_eq!(not_loaded(db, "list bad.tsv"), expected);
    assert_eq!(card(db, "list", "1"), Some(vec![7, 1]), "the old table stays");
    assert_eq!(ask::<Vec<String>, _>(db, ["KEYS", "*"]), ["list"]);

    let _: Value = ask(db, "CONFIG SET card.load-max-errors 12".split(' '));
    let report = load(db, "list bad.tsv");
    assert_eq!((&report["rows"], &report["added"]), (&Value::Int(1), &Value::Int(1)));
    assert_eq!(card(db, "list", "99"), Some(vec![7, 2]));
    assert!(server.log().contains(&format!("12 bad rows were left out: {}", problem(2))), "{}", server.log());
}

#[test]
fn a_full_load_of_nothing_is_refused() {
    let server = server(&[]);
    let db = &mut server.connect();
    let _: Value = ask(db, "CARD.SET list 1 7 1".split(' '));
    write(&server, "header.tsv", &[]);
    fs::write(server.directory().join("lists/removed.tsv"), "cardId\ttype\tstatus\top\n1\t7\t1\tset\n1\t\t\tdel\n")
        .unwrap();
    for file in ["header.tsv", "removed.tsv"] {
        let error = not_loaded(db, &format!("list {file}"));
        assert_eq!(error, "ERR the file has no cards: a full load of nothing is refused", "{file}");
    }
    fs::write(server.directory().join("lists/empty.tsv"), "").unwrap();
    let error = not_loaded(db, "list empty.tsv");
    assert!(error.starts_with("ERR line 1: found '', expected a header"), "{error}");
    let _: Value = ask(db, "CONFIG SET card.load-max-errors 1".split(' '));
    write(&server, "all_bad.tsv", &["1 11 1"]);
    assert_eq!(not_loaded(db, "list all_bad.tsv"), "ERR the file has no cards: a full load of nothing is refused");
    assert_eq!(card(db, "list", "1"), Some(vec![7, 1]));
}

#[test]
fn without_room_below_maxmemory_a_load_does_not_begin() {
    let server = server(&["--card.load-memory", "8mb"]);
    let db = &mut server.connect();
    let _: Value = ask(db, "CARD.SET list 1 7 1".split(' '));
    // A sparse file: were it read, the error would be another one.
    let file = fs::File::create(server.directory().join("lists/large.tsv")).unwrap();
    file.set_len(600 << 20).unwrap();
    let used: u64 = info(db, "used_memory").parse().unwrap();
    let limit = |db: &mut Connection, more: u64| {
        let _: Value = ask(db, ["CONFIG", "SET", "maxmemory", &(used + more).to_string()]);
    };
    limit(db, 80 << 20);
    let error = not_loaded(db, "list large.tsv");
    assert!(error.starts_with("ERR there is not enough memory below maxmemory: about 106954752 bytes"), "{error}");
    assert!(!server.log().contains("reading"), "{}", server.log());
    assert_eq!(info(db, "card_failed_loads"), "1");
    limit(db, 200 << 20);
    assert!(not_loaded(db, "list large.tsv").starts_with("ERR line 1: found more than 65536 bytes"));
    write(&server, "cards.tsv", &["2 7 1"]);
    load(db, "list cards.tsv");
    assert_eq!(card(db, "list", "2"), Some(vec![7, 1]));
}

#[test]
fn other_databases_and_any_key_will_do() {
    let server = server(&[]);
    let db = &mut server.connect();
    write(&server, "cards.tsv", &["1 7 1"]);
    let _: Value = ask(db, "CARD.SET list 9 9 2".split(' '));
    let _: Value = ask(db, ["SELECT", "3"]);
    for key in ["list", "", "{a}list", "a}b", "{}", "a{}b", "\0\r\n\t", &"x".repeat(5000)] {
        let _: HashMap<String, Value> = ask(db, ["CARD.LOAD", key, "cards.tsv"]);
        assert_eq!(card(db, key, "1"), Some(vec![7, 1]), "{key:?}");
        assert_eq!(ask::<i64, _>(db, ["DBSIZE"]), 1, "{key:?}");
        assert_eq!(ask::<i64, _>(db, ["DEL", key]), 1);
    }
    let _: HashMap<String, Value> = ask(db, [b"CARD.LOAD".as_slice(), b"\xff\x00\xfe", b"cards.tsv"]);
    assert_eq!(ask::<i64, _>(db, [b"CARD.LEN".as_slice(), b"\xff\x00\xfe"]), 1);
    let _: Value = ask(db, ["SELECT", "0"]);
    assert_eq!(ask::<Vec<String>, _>(db, ["KEYS", "*"]), ["list"]);
    assert_eq!(card(db, "list", "9"), Some(vec![9, 2]));
}

#[test]
fn not_in_a_transaction_or_a_script() {
    let server = server(&[]);
    let db = &mut server.connect();
    write(&server, "cards.tsv", &["1 7 1"]);
    const REFUSED: &str = "a load takes a while: not in a transaction or a script";
    let _: Value = ask(db, ["MULTI"]);
    let _: Value = ask(db, "CARD.LOAD list cards.tsv".split(' '));
    let _: Value = ask(db, "SET other x".split(' '));
    let replies: Result<Vec<Value>, _> = try_ask(db, ["EXEC"]);
    let told = format!("{replies:?}");
    assert!(told.contains(REFUSED), "{told}");
    let error = refused(db, ["EVAL", "return redis.call('CARD.LOAD', 'list', 'cards.tsv')", "1", "list"]);
    assert!(error.contains("not allowed from script"), "{error}");
    assert_eq!(ask::<Vec<String>, _>(db, ["KEYS", "*"]), ["other"]);
    assert_eq!((info(db, "card_loads"), info(db, "card_failed_loads")), ("0".into(), "0".into()));
    load(db, "list cards.tsv");
}

#[test]
fn the_arguments_are_a_file_and_perhaps_a_version() {
    let server = server(&[]);
    let db = &mut server.connect();
    write(&server, "cards.tsv", &["1 7 1"]);
    const SYNTAX: &str = "ERR syntax error, expected file [DELTA] [VERSION version], or CANCEL";
    for wrong in ["VERSION", "VERSION x", "VERSION -1", "VERSION +1", "VERSION 1 2", "VERSION 18446744073709551615"] {
        assert_eq!(not_loaded(db, &format!("list cards.tsv {wrong}")), SYNTAX, "{wrong}");
    }
    assert_eq!(not_loaded(db, "list cards.tsv REVISION 1"), SYNTAX);
    assert_eq!(not_loaded(db, "list CANCEL"), "ERR no load of this table is running or waiting");
    assert_eq!(ask::<i64, _>(db, ["EXISTS", "list"]), 0);
    for (version, shown) in [
        ("0", Value::Int(0)),
        ("9223372036854775807", Value::Int(i64::MAX)),
        ("18446744073709551614", Value::BulkString("18446744073709551614".into())),
    ] {
        let report = load(db, &format!("list cards.tsv version {version}"));
        assert_eq!((&report["version"], &told(db, "list")["version"]), (&shown, &shown));
    }
}

#[test]
fn where_a_table_came_from_is_kept_through_every_kind_of_file() {
    for arguments in
        [&["--save", "3600 1"][..], &["--appendonly", "yes"], &["--appendonly", "yes", "--aof-use-rdb-preamble", "no"]]
    {
        let mut server = server(arguments);
        let db = &mut server.connect();
        write(&server, "cards.tsv", &["1 7 1", "2 7 1", "2 8 1"]);
        load(db, "list cards.tsv VERSION 20240607");
        load(db, "unversioned cards.tsv");
        let see = |db: &mut Connection| {
            ["list", "unversioned"].map(|key| (told(db, key), ask::<Vec<u8>, _>(db, ["DUMP", key])))
        };
        let before = see(db);
        // Once from what the load has written, and once from a file that was written anew.
        for rewrite in [false, true] {
            if rewrite && arguments[0] == "--appendonly" {
                let _: Value = ask(&mut server.connect(), ["BGREWRITEAOF"]);
                let db = &mut server.connect();
                wait_for(10, "the AOF is rewritten", || {
                    info(db, "aof_rewrite_in_progress") == "0" && info(db, "aof_rewrite_scheduled") == "0"
                });
            }
            server.stop();
            server.start_again();
            assert_eq!(see(&mut server.connect()), before, "{arguments:?} {rewrite}");
        }
    }
}

#[test]
fn listeners_hear_of_a_load_once_it_is_done() {
    let server = server(&["--notify-keyspace-events", "KEA"]);
    let db = &mut server.connect();
    write(&server, "cards.tsv", &["1 7 1"]);
    let mut listener = server.connect();
    listener.set_read_timeout(Some(Duration::from_secs(10))).expect("a limit");
    let mut listener = listener.as_pubsub();
    listener.psubscribe("__keyevent@0__:*").expect("it listens");
    load(db, "list cards.tsv");
    let mut heard = Vec::new();
    while !heard.iter().any(|(event, _): &(String, String)| event == "card.load") {
        let message = listener.get_message().expect("an event");
        let event = message.get_channel_name().trim_start_matches("__keyevent@0__:").to_owned();
        heard.push((event, message.get_payload().expect("a key")));
    }
    let of_the_list: Vec<_> = heard.iter().filter(|(_, key)| key == "list").map(|(event, _)| event.as_str()).collect();
    assert_eq!(of_the_list.last(), Some(&"card.load"), "{heard:?}");
    assert_eq!(card(db, "list", "1"), Some(vec![7, 1]));
}

#[test]
fn loads_are_counted_and_logged_by_phase() {
    let server = server(&[]);
    let db = &mut server.connect();
    write(&server, "cards.tsv", &["1 7 1", "2 7 1"]);
    load(db, "list cards.tsv");
    not_loaded(db, "list other.tsv");
    load(db, "list cards.tsv");
    assert_eq!((info(db, "card_loads"), info(db, "card_failed_loads")), ("2".into(), "1".into()));
    assert_eq!(info(db, "card_loads_under_way"), "0");
    let log = server.log();
    let lines: Vec<_> = log.lines().filter_map(|line| line.split("list from ").nth(1)).collect();
    let expected = ["cards.tsv: reading ", "cards.tsv: staging 2 cards", "cards.tsv: loaded 2 rows in "];
    let expected = [&expected[..], &["other.tsv: not loaded: cannot open other.tsv: "], &expected].concat();
    assert_eq!(lines.len(), expected.len(), "{lines:?}");
    lines.iter().zip(expected).for_each(|(line, expected)| assert!(line.starts_with(expected), "{line}"));
}
