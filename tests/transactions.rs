//! How changes are seen by others: WATCH, MULTI, scripts, keyspace events, expiry, databases.

mod common;

use std::time::Duration;

use card_table::{Id, Schema, Table};
use common::{Server, ask, refused, wait_for};
use redis::{Connection, ConnectionLike, FromRedisValue, Value};

/// A command of words without spaces.
#[track_caller]
fn ask_line<T: FromRedisValue>(db: &mut Connection, line: &str) -> T {
    ask(db, line.split(' '))
}

fn table() -> Table {
    let mut table = Table::new(Schema::default());
    table.insert(&Id::parse(b"1").unwrap(), 14);
    table
}

fn begin(db: &mut Connection, key: &str) {
    ask(db, [b"CARD.STAGE".as_slice(), key.as_bytes(), b"BEGIN", &table().header_bytes()])
}

fn stage(db: &mut Connection, key: &str) {
    begin(db, key);
    for frames in table().frames(8192) {
        ask::<(), _>(db, [b"CARD.STAGE".as_slice(), key.as_bytes(), b"FRAMES", &frames]);
    }
}

/// What changes the table `t`, in which 1 is [7, 1] and 2 is [8, 2].
const CHANGES: [&str; 7] = [
    "CARD.SET t 3 7 1",
    "CARD.SET t 1 7 2",
    "CARD.MSET t 1 7 1 2 8 1",
    "CARD.DEL t 9 1",
    "CARD.COMMIT staged t",
    "CARD.CREATE new",
    "CARD.SET new 1 7 1",
];

/// What changes nothing, though it might have.
const NO_CHANGES: [&str; 13] = [
    "CARD.SET t 1 7 1",
    "CARD.MSET t 1 7 1 2 8 2",
    "CARD.DEL t 9",
    "CARD.DEL new 1",
    "CARD.GET t 1",
    "CARD.MGET t 1 9",
    "CARD.LEN t",
    "CARD.SCAN t 0",
    "CARD.INFO t DIGEST",
    "CARD.JSON t 1",
    "CARD.QUERY t cardid=1&cmdtype=blacklistquery",
    "CARD.LEN new",
    "CARD.GET new 1",
];

/// What is refused.
const REFUSALS: [&str; 8] = [
    "CARD.SET t 3 11 1",
    "CARD.MSET t 3 7 1 1 7 2 4 11 1",
    "CARD.CREATE t",
    "CARD.DEL t 1 ",
    "CARD.STAGE t BEGIN x",
    "CARD.STAGE t FRAMES x",
    "CARD.COMMIT t new",
    "CARD.COMMIT none t",
];

/// The state that the commands above begin with.
fn set_up(db: &mut Connection) {
    ask_line::<()>(db, "FLUSHALL");
    ask_line::<()>(db, "CARD.MSET t 1 7 1 2 8 2");
    stage(db, "staged");
}

/// Whether a transaction that watches `t`, `new` and `staged` fails after a command of another client.
fn disturbs(watcher: &mut Connection, other: &mut Connection, line: &str) -> bool {
    ask_line::<()>(watcher, "WATCH t new staged");
    // Refusals are among them.
    let _ = common::try_ask::<Value, _>(other, line.split(' '));
    ask_line::<()>(watcher, "MULTI");
    ask_line::<()>(watcher, "PING");
    ask_line::<Value>(watcher, "EXEC") == Value::Nil
}

#[test]
fn a_watched_table_is_disturbed_by_changes_alone() {
    let server = Server::start();
    let [watcher, other] = &mut [server.connect(), server.connect()];
    for change in CHANGES {
        set_up(other);
        assert!(disturbs(watcher, other, change), "{change}");
    }
    set_up(other);
    for line in NO_CHANGES.into_iter().chain(REFUSALS) {
        assert!(!disturbs(watcher, other, line), "{line}");
    }
}

#[test]
fn a_commit_disturbs_both_of_its_keys_and_a_stage_its_own() {
    let server = Server::start();
    let [watcher, other] = &mut [server.connect(), server.connect()];
    let mut failed = |key: &str, change: &dyn Fn(&mut Connection)| {
        set_up(other);
        ask::<(), _>(watcher, ["WATCH", key]);
        change(other);
        ask_line::<()>(watcher, "MULTI");
        ask_line::<Value>(watcher, "EXEC") == Value::Nil
    };
    let commit = |db: &mut Connection| ask_line::<()>(db, "CARD.COMMIT staged t");
    assert_eq!(["staged", "t", "new"].map(|key| failed(key, &commit)), [true, true, false]);
    let restage = |db: &mut Connection| begin(db, "staged");
    assert_eq!(["staged", "t", "new"].map(|key| failed(key, &restage)), [true, false, false]);
}

#[test]
fn a_transaction_is_done_as_one() {
    let server = Server::start();
    let [db, other] = &mut [server.connect(), server.connect()];
    ask_line::<()>(db, "MULTI");
    for line in ["CARD.SET t 1 7 1", "CARD.SET t 2 11 1", "CARD.GET t 1", "CARD.DEL t 1", "CARD.LEN t"] {
        assert_eq!(ask_line::<Value>(db, line), Value::SimpleString("QUEUED".into()));
    }
    assert_eq!(ask_line::<i64>(other, "EXISTS t"), 0);
    // `ask` would take the error within for one of EXEC.
    let exec = db.req_packed_command(&redis::cmd("EXEC").get_packed_command()).expect("EXEC succeeds");
    let Value::Array(replies) = exec else { panic!("{exec:?}") };
    assert_eq!(replies[0], Value::Int(1));
    let Value::ServerError(error) = &replies[1] else { panic!("{replies:?}") };
    assert_eq!(error.details(), Some("type must be between 0 and 10, got '11'"), "as in Redis, the others are done");
    assert_eq!(replies[2..], [Value::Array(vec![Value::Int(7), Value::Int(1)]), Value::Int(1), Value::Int(0)]);

    ask_line::<()>(db, "MULTI");
    ask_line::<()>(db, "CARD.SET t 3 7 1");
    assert_eq!(refused(db, ["CARD.GET", "t"]), "ERR wrong number of arguments for 'card.get' command");
    assert!(refused(db, ["EXEC"]).starts_with("EXECABORT"));
    assert_eq!(ask_line::<i64>(db, "CARD.LEN t"), 0, "none is done if one could not be");
}

#[test]
fn a_list_is_loaded_and_served_within_a_transaction() {
    let server = Server::start();
    let db = &mut server.connect();
    ask_line::<()>(db, "MULTI");
    stage(db, "staged");
    ask_line::<()>(db, "CARD.COMMIT staged t");
    ask_line::<()>(db, "CARD.GET t 1");
    let Value::Array(replies) = ask_line(db, "EXEC") else { panic!("not an array") };
    assert_eq!(replies.last(), Some(&Value::Array(vec![Value::Int(7), Value::Int(1)])), "{replies:?}");
}

fn eval<T: FromRedisValue>(db: &mut Connection, command: &str, script: &str) -> T {
    ask(db, [command, script, "1", "t"])
}

#[test]
fn scripts_read_and_write_tables() {
    let server = Server::start();
    let db = &mut server.connect();
    let set = "return redis.call('CARD.SET', KEYS[1], '1', 7, 1) + redis.call('CARD.MSET', KEYS[1], 'a\\0b', 8, 2)";
    assert_eq!(eval::<i64>(db, "EVAL", set), 2);
    assert_eq!(ask::<Vec<u64>, _>(db, ["CARD.GET", "t", "a\0b"]), [8, 2]);
    let card = [Value::Int(7), Value::Int(1)].to_vec();
    assert_eq!(eval::<Value>(db, "EVAL_RO", "return redis.call('CARD.GET', KEYS[1], '1')"), Value::Array(card.clone()));
    let mget = "return redis.call('CARD.MGET', KEYS[1], 'x', '1')";
    assert_eq!(eval::<Value>(db, "EVAL_RO", mget), Value::Array(vec![Value::Nil, Value::Array(card)]));
    for (expression, value) in [
        ("redis.call('CARD.LEN', KEYS[1])", "2"),
        ("#redis.call('CARD.SCAN', KEYS[1], '0')[2]", "2"),
        ("redis.call('CARD.GET', KEYS[1], 'x')", "false"),
        ("redis.call('CARD.INFO', KEYS[1])[1]", "records"),
        ("redis.call('CARD.JSON', KEYS[1], '1')", r#"[{"id":"1","type":7,"status":1}]"#),
        ("redis.pcall('CARD.SET', KEYS[1], '1', 11, 1).err", "ERR type must be between 0 and 10, got '11'"),
    ] {
        let command = if expression.contains("SET") { "EVAL" } else { "EVAL_RO" };
        assert_eq!(eval::<String>(db, command, &format!("return tostring({expression})")), value, "{expression}");
    }
    let map = "redis.setresp(3); return redis.call('CARD.INFO', KEYS[1]).map.records";
    assert_eq!(eval::<i64>(db, "EVAL_RO", map), 2, "a map for those who speak RESP3");
    assert_eq!(eval::<i64>(db, "EVAL", "return redis.call('CARD.DEL', KEYS[1], '1', 'a\\0b', 'x')"), 2);
}

#[test]
fn a_read_only_script_writes_nothing() {
    let server = Server::start();
    let db = &mut server.connect();
    set_up(db);
    for call in [
        "'CARD.SET', KEYS[1], '1', 7, 1",
        "'CARD.MSET', KEYS[1], '1', 7, 1",
        "'CARD.DEL', KEYS[1], '9'",
        "'CARD.CREATE', KEYS[1]",
        "'CARD.STAGE', KEYS[1], 'BEGIN', 'x'",
        "'CARD.COMMIT', KEYS[1], KEYS[1]",
    ] {
        let error = refused(db, ["EVAL_RO", &format!("return redis.call({call})"), "1", "t"]);
        assert!(error.starts_with("ERR Write commands are not allowed from read-only scripts"), "{call}: {error}");
    }
}

/// Listens to all keyspace events, runs commands, and returns the events as `name key`.
fn events_of(server: &Server, run: impl FnOnce(&mut Connection)) -> Vec<String> {
    const END: &str = "end";
    let mut listener = server.connect();
    let mut listener = listener.as_pubsub();
    listener.psubscribe("__keyevent@*__:*").expect("it subscribes");
    listener.subscribe(END).expect("it subscribes");
    listener.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
    let mut db = server.connect();
    run(&mut db);
    // What comes before this, and nothing else, has come of the commands.
    ask::<(), _>(&mut db, ["PUBLISH", END, ""]);
    let mut events = Vec::new();
    loop {
        let message = listener.get_message().expect("a message");
        if message.get_channel_name() == END {
            return events;
        }
        let event = message.get_channel_name().split_once("__:").expect("an event's name").1.to_owned();
        events.push(format!("{event} {}", message.get_payload::<String>().expect("a key")));
    }
}

#[test]
fn every_change_is_an_event() {
    let server = Server::with(&["--notify-keyspace-events", "EA"]);
    let events = |lines: &[&str]| events_of(&server, |db| lines.iter().for_each(|line| ask_line::<()>(db, line)));
    assert_eq!(events(&["CARD.CREATE t"]), ["card.create t"]);
    assert_eq!(events(&["CARD.SET t 1 7 1", "CARD.SET t 1 7 2"]), ["card.set t", "card.set t"]);
    assert_eq!(events(&["CARD.MSET t 1 7 1 2 7 1 3 7 1"]), ["card.set t"], "one for all");
    assert_eq!(events(&["CARD.DEL t 1 2 3"]), ["card.del t"], "an emptied table is not a removed one");
    assert_eq!(events(&["DEL t"]), ["del t"]);
    assert_eq!(events(&["CARD.SET t 1 7 1"]), ["card.set t"]);
    assert_eq!(events(&["MULTI", "CARD.SET t 2 7 1", "CARD.DEL t 1", "EXEC"]), ["card.set t", "card.del t"]);

    let load = events_of(&server, |db| {
        stage(db, "staged");
        ask_line::<()>(db, "CARD.COMMIT staged t");
    });
    assert_eq!(load, ["card.stage staged", "card.stage staged", "card.commit staged", "card.load t"]);
}

#[test]
fn what_changes_nothing_is_no_event() {
    let server = Server::with(&["--notify-keyspace-events", "EA"]);
    set_up(&mut server.connect());
    let events = events_of(&server, |db| {
        for line in NO_CHANGES.into_iter().chain(REFUSALS) {
            let _ = common::try_ask::<Value, _>(db, line.split(' '));
        }
    });
    assert_eq!(events, [""; 0]);
}

#[test]
fn a_table_expires_like_any_key() {
    let server = Server::with(&["--notify-keyspace-events", "EA"]);
    let db = &mut server.connect();
    set_up(db);
    ask_line::<()>(db, "EXPIRE t 1000");
    for line in ["CARD.SET t 3 7 1", "CARD.DEL t 3", "CARD.GET t 1"] {
        ask_line::<Value>(db, line);
        assert!((990..=1000).contains(&ask_line::<i64>(db, "TTL t")), "{line} leaves the time to live alone");
    }
    let events = events_of(&server, |db| {
        ask_line::<()>(db, "PEXPIRE t 1");
        wait_for(5, "the table has expired", || ask_line::<i64>(db, "EXISTS t") == 0);
    });
    assert_eq!(events, ["expire t", "expired t"]);
    assert_eq!(ask_line::<Value>(db, "CARD.GET t 1"), Value::Nil);
    assert_eq!(ask_line::<i64>(db, "CARD.LEN t"), 0);
    assert_eq!(ask_line::<i64>(db, "CARD.SET t 9 7 1"), 1);
    assert_eq!(ask_line::<i64>(db, "CARD.LEN t"), 1, "nothing of the old table has stayed");
    assert_eq!(ask_line::<i64>(db, "TTL t"), -1);
}

/// The server's time. Asking for it, unlike asking for a key, removes nothing.
fn milliseconds(db: &mut Connection) -> u64 {
    let (seconds, microseconds): (u64, u64) = ask_line(db, "TIME");
    seconds * 1000 + microseconds / 1000
}

#[test]
fn an_expired_table_that_is_still_there_is_none() {
    let server = Server::with(&["--enable-debug-command", "yes"]);
    let db = &mut server.connect();
    // Nobody removes what expires, until it is asked for.
    ask_line::<()>(db, "DEBUG SET-ACTIVE-EXPIRE 0");
    let refusal = "ERR no such table";
    for (line, expected) in [
        ("CARD.GET t 1", Ok(Value::Nil)),
        ("CARD.MGET t 1", Ok(Value::Array(vec![Value::Nil]))),
        ("CARD.LEN t", Ok(Value::Int(0))),
        ("CARD.DEL t 1", Ok(Value::Int(0))),
        ("CARD.INFO t", Err(refusal)),
        ("CARD.JSON t 1", Err(refusal)),
        ("CARD.CREATE t", Ok(Value::Okay)),
        ("CARD.SET t 1 8 2", Ok(Value::Int(1))),
        ("CARD.STAGE t FRAMES x", Err("ERR no table has been begun")),
        ("CARD.COMMIT t t", Err("ERR no table has been staged")),
    ] {
        ask_line::<()>(db, "DEL t");
        ask_line::<()>(db, "CARD.SET t 1 7 1");
        ask_line::<()>(db, "PEXPIRE t 1");
        let expired = milliseconds(db) + 2;
        wait_for(5, "it is later", || milliseconds(db) > expired);
        match expected {
            Ok(reply) => assert_eq!(ask_line::<Value>(db, line), reply, "{line}"),
            Err(error) => assert_eq!(refused(db, line.split(' ')), error, "{line}"),
        }
    }
}

#[test]
fn databases_have_tables_of_their_own() {
    let server = Server::start();
    let [db, other] = &mut [server.connect(), server.connect()];
    ask_line::<()>(other, "SELECT 5");
    ask_line::<()>(db, "CARD.SET t 1 7 1");
    assert_eq!(ask_line::<Value>(other, "CARD.GET t 1"), Value::Nil);
    assert_eq!(ask_line::<i64>(other, "CARD.SET t 1 8 2"), 1);
    assert_eq!(ask_line::<Vec<u64>>(db, "CARD.GET t 1"), [7, 1]);
    assert!(!disturbs(db, other, "CARD.SET t 1 9 2"), "a watched key is one of its database");
    stage(other, "staged");
    assert_eq!(refused(db, "CARD.COMMIT staged t".split(' ')), "ERR no table has been staged");

    ask_line::<()>(db, "SWAPDB 0 5");
    assert_eq!(ask_line::<Vec<u64>>(db, "CARD.GET t 1"), [9, 2]);
    assert_eq!(ask_line::<i64>(db, "CARD.DEL t 1"), 1);
    assert_eq!(ask_line::<Vec<u64>>(other, "CARD.GET t 1"), [7, 1]);
    assert_eq!(ask_line::<i64>(other, "MOVE t 6"), 1);
    ask_line::<()>(db, "SELECT 6");
    assert_eq!(ask_line::<Vec<u64>>(db, "CARD.GET t 1"), [7, 1]);
}
