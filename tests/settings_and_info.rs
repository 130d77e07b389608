//! What an operator sets and sees: CONFIG card.…, the section `card` of INFO, and CARD.INFO.

mod common;

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use card_table::{Builder, Id, Schema};
use common::{MODULE, Server, ask, refused, wait_for};
use redis::{Connection, FromRedisValue, Value};
use tempfile::TempDir;

const DARKVER_REASON: &str = "card.darkver is constant or effective";
const TIMEZONE_REASON: &str = "card.timezone is an offset from UTC, such as +08:00 or -03:30";

/// A command of words without spaces.
#[track_caller]
fn ask_line<T: FromRedisValue>(db: &mut Connection, line: &str) -> T {
    ask(db, line.split(' '))
}

fn settings(db: &mut Connection) -> [String; 2] {
    let settings: HashMap<String, String> = ask_line(db, "CONFIG GET card.*");
    assert_eq!(settings.len(), 7, "{settings:?}");
    ["card.darkver", "card.timezone"].map(|name| settings[name].clone())
}

/// A server with a configuration file, or one that will not come up.
struct Process(Child);

impl Process {
    fn start(directory: &Path, arguments: &[&str]) -> Process {
        let log = File::create(directory.join("log")).expect("a log file");
        let program = std::env::var_os("REDIS_SERVER").unwrap_or("redis-server".into());
        let mut command = Command::new(program);
        command.args(arguments).current_dir(directory).stdin(Stdio::null()).stdout(log);
        Process(command.spawn().expect("redis-server starts"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Either fails only if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The log of a server that ends instead of starting.
#[track_caller]
fn started_in_vain(arguments: &[&str]) -> String {
    let directory = TempDir::new().expect("a temporary directory");
    let mut server = Process::start(
        directory.path(),
        &[&["--port", "0", "--unixsocket", "socket", "--save", ""], arguments].concat(),
    );
    wait_for(10, "the server ends", || server.0.try_wait().expect("our child").is_some());
    fs::read_to_string(directory.path().join("log")).expect("a log")
}

fn module() -> &'static str {
    MODULE.to_str().expect("a path of UTF-8")
}

#[test]
fn settings_of_loads_have_defaults_and_bounds() {
    let server = Server::start();
    let db = &mut server.connect();
    for (name, default, bad) in [
        ("card.load-memory", "268435456", ["1", "x"]),
        ("card.load-threads", "0", ["-1", "1025"]),
        ("card.load-max-errors", "0", ["-1", "x"]),
        ("card.watch-interval", "0", ["-1", "86401"]),
        // Fixed at the start.
        ("card.load-dir", "", ["/", "elsewhere"]),
    ] {
        let shown = |db: &mut Connection| ask::<Vec<String>, _>(db, ["CONFIG", "GET", name]);
        assert_eq!(shown(db), [name, default]);
        for value in bad {
            let reason = refused(db, ["CONFIG", "SET", name, value]);
            assert!(reason.starts_with("ERR CONFIG SET failed"), "{name} {value}: {reason}");
        }
        assert_eq!(shown(db), [name, default]);
    }
    ask_line::<()>(db, "CONFIG SET card.load-memory 1mb");
    assert_eq!(ask::<Vec<String>, _>(db, ["CONFIG", "GET", "card.load-memory"])[1], "1048576");
}

#[test]
fn settings_have_defaults_and_can_be_changed() {
    let server = Server::start();
    let db = &mut server.connect();
    assert_eq!(settings(db), ["constant", "+08:00"]);
    ask_line::<()>(db, "CONFIG SET card.darkver effective");
    assert_eq!(settings(db), ["effective", "+08:00"]);
    ask_line::<()>(db, "CONFIG SET card.darkver constant card.timezone -03:30");
    assert_eq!(settings(db), ["constant", "-03:30"]);
    for zone in ["+00:00", "-00:30", "+14:00", "-14:59"] {
        ask::<(), _>(db, ["CONFIG", "SET", "card.timezone", zone]);
        assert_eq!(settings(db)[1], zone);
    }
}

#[test]
fn bad_settings_are_refused_with_a_reason() {
    let server = Server::start();
    let db = &mut server.connect();
    ask_line::<()>(db, "CONFIG SET card.darkver effective card.timezone +01:00");
    let error =
        |name: &str, reason: &str| format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}");
    for value in ["", "Effective", "effective ", "yes", "1970-01-01 08:00:00"] {
        let refusal = refused(db, ["CONFIG", "SET", "card.darkver", value]);
        assert_eq!(refusal, error("card.darkver", DARKVER_REASON), "{value}");
    }
    for value in ["", "8", "08:00", "+8:00", "+0800", "+15:00", "+08:60", "Z", "UTC", "+08:00 ", "Asia/Shanghai"] {
        let refusal = refused(db, ["CONFIG", "SET", "card.timezone", value]);
        assert_eq!(refusal, error("card.timezone", TIMEZONE_REASON), "{value}");
    }
    let refusal = refused(db, [b"CONFIG".as_slice(), b"SET", b"card.darkver", b"\xff"]);
    assert_eq!(refusal, error("card.darkver", "it is not UTF-8"));
    let refusal = refused(db, "CONFIG SET card.darkver constant card.timezone x".split(' '));
    assert_eq!(refusal, error("card.timezone", TIMEZONE_REASON));
    assert_eq!(settings(db), ["effective", "+01:00"], "nor is one of two changed");
}

#[test]
fn settings_can_be_given_at_the_start() {
    let server = Server::with(&["--card.darkver", "effective", "--card.timezone", "-03:30"]);
    assert_eq!(settings(&mut server.connect()), ["effective", "-03:30"], "as arguments");

    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    fs::write(file.path(), "card.timezone +05:45\ncard.darkver effective\n").expect("it can be written");
    let server = Server::with(&["--include", file.path().to_str().expect("a path of UTF-8")]);
    assert_eq!(settings(&mut server.connect()), ["effective", "+05:45"], "in a file");
}

#[test]
fn settings_that_were_changed_can_be_written_to_the_file() {
    let directory = TempDir::new().expect("a temporary directory");
    let file = directory.path().join("redis.conf");
    fs::write(&file, format!("port 0\nunixsocket socket\nloadmodule {}\ncard.darkver effective\n", module())).unwrap();
    let socket = format!("redis+unix://{}", directory.path().join("socket").display());
    let connect = || redis::Client::open(socket.as_str()).expect("an address").get_connection();
    {
        let _server = Process::start(directory.path(), &["redis.conf"]);
        wait_for(10, "the server answers", || connect().is_ok());
        let db = &mut connect().expect("it answered");
        assert_eq!(settings(db), ["effective", "+08:00"]);
        ask_line::<()>(db, "CONFIG SET card.timezone -03:30");
        ask_line::<()>(db, "CONFIG REWRITE");
    }
    fs::remove_file(directory.path().join("socket")).expect("what the killed one has left");
    let _server = Process::start(directory.path(), &["redis.conf"]);
    wait_for(10, "the server answers", || connect().is_ok());
    assert_eq!(settings(&mut connect().expect("it answered")), ["effective", "-03:30"]);
}

#[test]
fn a_server_does_not_start_with_bad_settings() {
    let log = started_in_vain(&["--loadmodule", module(), "--card.darkver", "sometimes"]);
    assert!(log.contains(DARKVER_REASON), "{log}");
    let log = started_in_vain(&["--loadmodule", module(), "--card.timezone", "UTC"]);
    assert!(log.contains(TIMEZONE_REASON), "{log}");
    let log = started_in_vain(&["--loadmodule", module(), "--card.colour", "red"]);
    // Redis's own words, which do not name it.
    assert!(log.contains("Module Configuration detected without loadmodule directive"), "{log}");
    let log = started_in_vain(&["--loadmodule", module(), "darkver", "effective"]);
    assert!(log.contains("the module takes no arguments; its settings are lines of redis.conf"), "{log}");
}

/// The fields of INFO's section `card`, in order.
fn section(db: &mut Connection) -> Vec<(String, u64)> {
    let section: String = ask_line(db, "INFO card");
    let mut lines = section.lines().skip_while(|line| line.is_empty());
    assert_eq!(lines.next(), Some("# card"));
    let fields = lines.filter(|line| !line.is_empty()).map(|line| line.split_once(':').expect("name:value"));
    fields.map(|(name, value)| (name.to_owned(), value.parse().expect("a number"))).collect()
}

fn counted(db: &mut Connection, names: [&str; 3]) -> [u64; 3] {
    let section: HashMap<_, _> = section(db).into_iter().collect();
    names.map(|name| section[name])
}

/// Tables, records and bytes, by asking every table of the first two databases.
fn added_up(db: &mut Connection) -> [u64; 3] {
    let mut sum = [0; 3];
    for database in ["0", "1"] {
        ask::<(), _>(db, ["SELECT", database]);
        for key in ask_line::<Vec<String>>(db, "KEYS *") {
            if ask::<String, _>(db, ["TYPE", &key]) != "cardtable" {
                continue;
            }
            let info: HashMap<String, Value> = ask(db, ["CARD.INFO", &key]);
            let number = |name: &str| redis::from_redis_value::<u64>(info[name].clone()).expect("a number");
            for (sum, part) in sum.iter_mut().zip([1, number("records"), number("memory_bytes")]) {
                *sum += part;
            }
        }
    }
    ask_line::<()>(db, "SELECT 0");
    sum
}

/// Runs a command, after which INFO tells so many tables and records, and the bytes that they say they have.
#[track_caller]
fn totals_after(db: &mut Connection, command: &str, tables: u64, records: u64) {
    ask_line::<Value>(db, command);
    let told = |db: &mut Connection| counted(db, ["card_tables", "card_records", "card_bytes"]);
    // What is freed in the background, or expires, may take a moment.
    wait_for(5, &format!("{tables} tables and {records} records after {command}"), || {
        told(db)[..2] == [tables, records] && told(db) == added_up(db)
    });
}

fn stage(db: &mut Connection, key: &str, cards: u64) {
    let ids: Vec<_> = (0..cards).map(|card| format!("{:020}", card * 1_000_000_007).into_bytes()).collect();
    let records = ids.iter().map(|id| (Id::parse(id).unwrap(), 14));
    let table = Builder::new(Schema::default()).table_from_records(records).expect("good records").result;
    ask::<(), _>(db, [b"CARD.STAGE".as_slice(), key.as_bytes(), b"BEGIN", &table.header_bytes()]);
    for frames in table.frames(8192) {
        ask::<(), _>(db, [b"CARD.STAGE".as_slice(), key.as_bytes(), b"FRAMES", &frames]);
    }
}

#[test]
fn info_has_a_section_of_the_module() {
    let server = Server::start();
    let db = &mut server.connect();
    let names = [
        "card_tables",
        "card_records",
        "card_bytes",
        "card_hits",
        "card_misses",
        "card_errors",
        "card_loads",
        "card_failed_loads",
        "card_loads_under_way",
    ];
    assert_eq!(section(db), names.map(|name| (name.to_owned(), 0)));
    for sections in ["INFO modules", "INFO everything"] {
        assert!(ask_line::<String>(db, sections).contains("# card\r\ncard_tables:0\r\n"), "{sections}");
    }
}

#[test]
fn totals_follow_every_change() {
    let server = Server::start();
    let db = &mut server.connect();
    totals_after(db, "CARD.CREATE t", 1, 0);
    totals_after(db, "CARD.SET t 1 7 1", 1, 1);
    totals_after(db, "CARD.SET t 1 7 2", 1, 1);
    totals_after(db, "CARD.MSET u 1 7 1 2 7 1 x 7 1", 2, 4);
    totals_after(db, "CARD.DEL u 2 3", 2, 3);
    totals_after(db, "COPY u copy", 3, 5);
    totals_after(db, "CARD.SET copy y 7 1", 3, 6);
    totals_after(db, "COPY t copy REPLACE", 3, 4);
    totals_after(db, "COPY u copy DB 1", 4, 6);
    totals_after(db, "SWAPDB 0 1", 4, 6);
    totals_after(db, "SWAPDB 0 1", 4, 6);
    totals_after(db, "UNLINK copy", 3, 5);
    totals_after(db, "DEL t", 2, 4);
    totals_after(db, "SET u text", 1, 2);
    totals_after(db, "FLUSHALL", 0, 0);
}

#[test]
fn totals_follow_what_large_tables_do_in_the_background() {
    let server = Server::start();
    let db = &mut server.connect();
    // Large enough that Redis leaves it to another thread to free them.
    stage(db, "s", 100_000);
    totals_after(db, "PING", 1, 100_000);
    totals_after(db, "CARD.COMMIT s t", 1, 100_000);
    totals_after(db, "COPY t copy", 2, 200_000);
    stage(db, "s", 50_000);
    totals_after(db, "PING", 3, 250_000);
    totals_after(db, "CARD.COMMIT s t", 2, 150_000);
    totals_after(db, "UNLINK copy", 1, 50_000);
    totals_after(db, "COPY t copy", 2, 100_000);
    totals_after(db, "PEXPIRE copy 1", 1, 50_000);
    let dump: Vec<u8> = ask_line(db, "DUMP t");
    ask::<(), _>(db, [b"RESTORE".as_slice(), b"restored", b"0", &dump]);
    totals_after(db, "PING", 2, 100_000);
    totals_after(db, "FLUSHALL ASYNC", 0, 0);
    stage(db, "s", 1000);
    totals_after(db, "FLUSHDB", 0, 0);
}

#[test]
fn a_table_under_another_name_or_in_another_database_still_counts() {
    let server = Server::start();
    let db = &mut server.connect();
    totals_after(db, "CARD.MSET t 1 7 1 2 7 1 3 7 1", 1, 3);
    totals_after(db, "RENAME t u", 1, 3);
    totals_after(db, "MOVE u 1", 1, 3);
    totals_after(db, "CARD.SET t 1 7 1", 2, 4);
    totals_after(db, "CARD.MSET v 1 7 1 2 7 1", 3, 6);
    totals_after(db, "RENAME t v", 2, 4);
    totals_after(db, "FLUSHALL", 0, 0);
}

#[test]
fn cards_that_were_found_or_not_and_failures_are_counted() {
    let server = Server::start();
    let db = &mut server.connect();
    ask_line::<()>(db, "CARD.MSET t 1 7 1 2 7 1");
    ask_line::<()>(db, "CARD.CREATE created");
    ask_line::<()>(db, "SET text x");
    let mut expected = [0; 3];
    let mut count = |line: &str, more: [u64; 3]| {
        // Some of them are errors, and are meant to be.
        let _ = common::try_ask::<Value, _>(db, line.split(' '));
        expected.iter_mut().zip(more).for_each(|(count, more)| *count += more);
        assert_eq!(counted(db, ["card_hits", "card_misses", "card_errors"]), expected, "{line}");
    };
    count("CARD.GET t 1", [1, 0, 0]);
    count("CARD.GET t 3", [0, 1, 0]);
    count("CARD.GET none 1", [0, 1, 0]);
    count("CARD.MGET t 1 2 3 1", [3, 1, 0]);
    count("CARD.MGET none 1 2 3", [0, 3, 0]);
    count("CARD.JSON t 1 3 4", [1, 2, 0]);
    count("CARD.QUERY t cardid=1&cmdtype=blacklistquery", [1, 0, 0]);
    count("CARD.QUERY t cardid=3&cmdtype=blacklistquery", [0, 1, 0]);
    count("CARD.QUERY t cardid=1", [0, 0, 1]);
    count("CARD.QUERY t cardid=1&cmdtype=x", [0, 0, 1]);
    count("CARD.QUERY none cardid=1&cmdtype=blacklistquery", [0, 0, 1]);
    count("CARD.QUERY created cardid=1&cmdtype=blacklistquery", [0, 0, 1]);
    count("CARD.JSON none 1", [0, 0, 1]);
    count("CARD.GET text 1", [0, 0, 1]);
    count("CARD.SET t 1 11 1", [0, 0, 1]);
    // Neither asks for a card.
    count("CARD.SCAN t 0", [0, 0, 0]);
    count("CARD.LEN t", [0, 0, 0]);
    count("CARD.DEL t 1 9", [0, 0, 0]);
}

fn info(db: &mut Connection, key: &str) -> HashMap<String, Value> {
    ask(db, ["CARD.INFO", key])
}

fn text(text: &str) -> Value {
    Value::BulkString(text.into())
}

#[test]
fn card_info_tells_what_a_table_is_and_holds() {
    let server = Server::start();
    let db = &mut server.connect();
    assert_eq!(refused(db, "CARD.INFO t".split(' ')), "ERR no such table");
    assert_eq!(refused(db, "CARD.INFO t DIGESTS".split(' ')), "ERR syntax error, expected [DIGEST]");

    ask_line::<()>(db, "CARD.CREATE t");
    let row = |name: &str, min, max| Value::Array(vec![text(name), Value::Int(min), Value::Int(max)]);
    let empty = info(db, "t");
    assert_eq!(empty["schema"], Value::Array(vec![row("type", 0, 10), row("status", 1, 2)]));
    for (name, value) in [("records", 0), ("blocks", 0), ("ready", 0)] {
        assert_eq!(empty[name], Value::Int(value), "{name}");
    }
    assert_eq!((&empty["bytes_per_record"], &empty["classes"]), (&text("0"), &Value::Array(vec![])));

    ask_line::<()>(db, "CARD.MSET t 1 1 1 2 1 1 x 1 1");
    let three = info(db, "t");
    for (name, value) in [("records", 3), ("blocks", 2), ("ready", 1)] {
        assert_eq!(three[name], Value::Int(value), "{name}");
    }
    for name in ["version", "loaded_at", "source", "loading"] {
        assert_eq!(three[name], Value::Nil, "{name}: it was not loaded");
    }
    let Value::Int(bytes) = three["memory_bytes"] else { panic!("{three:?}") };
    assert_eq!(three["bytes_per_record"], text(&format!("{:.3}", bytes as f64 / 3.0)));
    let classes: Vec<(String, u64, u64)> = redis::from_redis_value(three["classes"].clone()).unwrap();
    assert_eq!(
        classes.iter().map(|(class, records, _)| (class.as_str(), *records)).collect::<Vec<_>>(),
        [("digits1", 2), ("text", 1)]
    );
    assert!(classes.iter().map(|(.., bytes)| bytes).sum::<u64>() < bytes as u64);
    // Beside the value itself, Redis counts the key.
    let usage = bytes..bytes + 100;
    assert!(usage.contains(&ask_line::<i64>(db, "MEMORY USAGE t")), "{usage:?}");
    assert_eq!(ask_line::<String>(db, "TYPE t"), "cardtable");
}

#[test]
fn card_info_is_a_map_or_names_and_values_in_turn() {
    const NAMES: [&str; 14] = [
        "records",
        "memory_bytes",
        "bytes_per_record",
        "blocks",
        "classes",
        "schema",
        "ready",
        "stale",
        "version",
        "rows",
        "loaded_at",
        "source",
        "loading",
        "digest",
    ];
    let server = Server::start();
    let db = &mut server.connect();
    ask_line::<()>(db, "CARD.SET t 1 7 1");
    let Value::Map(pairs) = ask_line(&mut server.connect_resp3(), "CARD.INFO t DIGEST") else { panic!("not a map") };
    assert_eq!(pairs.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>(), NAMES.map(text));
    let flat = pairs.into_iter().flat_map(|(name, value)| [name, value]).collect();
    assert_eq!(ask_line::<Value>(db, "CARD.INFO t digest"), Value::Array(flat));
    let without = ask_line::<Vec<Value>>(db, "CARD.INFO t");
    assert_eq!(
        without.into_iter().step_by(2).collect::<Vec<_>>(),
        NAMES[..13].iter().map(|n| text(n)).collect::<Vec<_>>()
    );
}
