//! Who may do what: the users of redis.conf, and key patterns.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;

use card_table::{Id, Schema, Table};
use common::{Server, ask, refused, try_ask};
use redis::{Connection, Value};
use tempfile::NamedTempFile;

/// Every CARD command, with `k` and `staged` for keys.
const CARD_COMMANDS: [&str; 14] = [
    "card.create k",
    "card.set k 1 7 1",
    "card.mset k 1 7 1 2 7 1",
    "card.get k 1",
    "card.mget k 1 2",
    "card.del k 1",
    "card.len k",
    "card.scan k 0",
    "card.info k",
    "card.json k 1",
    "card.query k cardid=1&cmdtype=blacklistquery",
    "card.stage k BEGIN x",
    "card.commit staged k",
    "card.load k cards.tsv",
];

/// What a gateway that was broken into would try.
const ORDINARY_COMMANDS: [&str; 39] = [
    "acl list",
    "acl setuser gateway +@all",
    "append k x",
    "bgsave",
    "client list",
    "command docs",
    "config get *",
    "config set dir /",
    "copy k copy",
    "dbsize",
    "del k",
    "dump k",
    "eval return{} 0",
    "expire k 1",
    "fcall f 0",
    "flushall",
    "flushdb",
    "function list",
    "get k",
    "hgetall k",
    "keys *",
    "memory usage k",
    "migrate 127.0.0.1 1 k 0 1",
    "module list",
    "monitor",
    "multi",
    "object encoding k",
    "publish c x",
    "rename k copy",
    "replicaof no one",
    "restore copy 0 x",
    "save",
    "scan 0",
    "select 1",
    "set k x",
    "shutdown nosave",
    "subscribe c",
    "type k",
    "unlink k",
];

/// A server with the users of redis.conf, as it would read them there.
fn server_with_its_users() -> (Server, NamedTempFile) {
    let mut file = NamedTempFile::new().expect("a temporary file");
    user_lines().iter().for_each(|line| writeln!(file, "{line}").expect("it can be written"));
    let server = Server::with(&["--include", file.path().to_str().expect("a path of ASCII")]);
    (server, file)
}

fn user_lines() -> Vec<String> {
    let settings = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/redis.conf")).expect("redis.conf");
    settings.lines().filter(|line| line.starts_with("user ")).map(Into::into).collect()
}

/// The commands that a user's line allows, one by one and none besides.
fn allowed_to(user: &str) -> BTreeSet<String> {
    let lines = user_lines();
    let line = lines.iter().find(|line| line.split_whitespace().nth(1) == Some(user)).expect("a line of its own");
    let rules: Vec<_> = line.split_whitespace().skip(2).collect();
    assert!(rules.contains(&"-@all") && !rules.iter().any(|rule| rule.starts_with("+@")), "{line}");
    rules.iter().filter_map(|rule| rule.strip_prefix('+')).map(Into::into).collect()
}

/// The commands that the server would let a user run, of all it has.
fn let_run(db: &mut Connection, user: &str) -> BTreeSet<String> {
    let all: BTreeSet<String> = ask(db, ["COMMAND", "LIST"]);
    let is_container = |name: &String| all.iter().any(|other| other.starts_with(&format!("{name}|")));
    all.iter().filter(|name| !is_container(name)).filter(|name| would_run(db, user, name)).cloned().collect()
}

fn would_run(db: &mut Connection, user: &str, name: &str) -> bool {
    let info: Vec<Vec<Value>> = ask(db, ["COMMAND", "INFO", name]);
    let arity: i64 = redis::from_redis_value(info[0][1].clone()).expect("a number");
    let name: Vec<_> = name.split('|').collect();
    let arguments = vec!["1"; arity.unsigned_abs() as usize - name.len()];
    let verdict: String = ask(db, [&["ACL", "DRYRUN", user], name.as_slice(), &arguments].concat());
    assert!(verdict == "OK" || verdict.contains("has no permissions to run"), "{name:?}: {verdict}");
    verdict == "OK"
}

fn connect_as(server: &Server, user: &str, password: &str) -> Connection {
    let mut connection = server.connect();
    ask::<(), _>(&mut connection, ["AUTH", user, password]);
    connection
}

/// Whether a command is refused for want of a permission, rather than done or refused for another reason.
fn is_forbidden(connection: &mut Connection, line: &str) -> bool {
    match try_ask::<Value, _>(connection, line.split(' ')) {
        Ok(_) => false,
        Err(error) => error.code() == Some("NOPERM"),
    }
}

fn stage(db: &mut Connection, key: &str) {
    let mut table = Table::new(Schema::default());
    table.insert(&Id::parse(b"1").unwrap(), 14);
    ask::<(), _>(db, [b"CARD.STAGE".as_slice(), key.as_bytes(), b"BEGIN", &table.header_bytes()]);
    for frames in table.frames(8192) {
        ask::<(), _>(db, [b"CARD.STAGE".as_slice(), key.as_bytes(), b"FRAMES", &frames]);
    }
}

#[test]
fn every_card_command_is_tried_here() {
    let server = Server::start();
    let known: BTreeSet<String> = ask(&mut server.connect(), "COMMAND LIST FILTERBY MODULE card".split(' '));
    assert_eq!(known, CARD_COMMANDS.iter().map(|line| line.split(' ').next().unwrap().into()).collect());
}

#[test]
fn the_gateway_can_do_exactly_what_its_line_says() {
    let (mut server, _file) = server_with_its_users();
    let db = &mut server.connect();
    ask::<(), _>(db, "CARD.SET k 1 7 1".split(' '));
    stage(db, "staged");
    let allowed = allowed_to("gateway");
    let gateway = &mut connect_as(&server, "gateway", "");
    for line in CARD_COMMANDS.iter().chain(&ORDINARY_COMMANDS).chain(&["ping", "info"]) {
        let name = line.split(' ').next().unwrap();
        assert_eq!(is_forbidden(gateway, line), !allowed.contains(name), "{line}");
    }
    assert!(server.is_alive());
    assert_eq!(ask::<String, _>(gateway, ["CARD.JSON", "k", "1"]), r#"[{"id":"1","type":7,"status":1}]"#);
    let keys: BTreeSet<String> = ask(db, ["KEYS", "*"]);
    assert_eq!(keys, ["k", "staged"].map(Into::into).into(), "nothing else has happened");
}

#[test]
fn the_gateway_can_do_nothing_else_of_all_that_the_server_can() {
    let (server, _file) = server_with_its_users();
    let db = &mut server.connect();
    let mut expected = allowed_to("gateway");
    // What one may do before one is anybody.
    expected.extend(["auth", "hello", "quit", "reset"].map(Into::into));
    assert_eq!(let_run(db, "gateway"), expected);
}

#[test]
fn the_loader_is_off_until_it_is_given_a_password() {
    let (server, _file) = server_with_its_users();
    let db = &mut server.connect();
    let stranger = &mut server.connect();
    for password in ["", "loader"] {
        let error = refused(stranger, ["AUTH", "loader", password]);
        assert_eq!(error, "WRONGPASS invalid username-password pair or user is disabled.");
    }
    let mut expected = allowed_to("loader");
    expected.extend(["auth", "hello", "quit", "reset"].map(Into::into));
    assert_eq!(let_run(db, "loader"), expected);

    ask::<(), _>(db, ["ACL", "SETUSER", "loader", "on", ">secret"]);
    let loader = &mut connect_as(&server, "loader", "secret");
    stage(loader, "staged");
    ask::<(), _>(loader, "CARD.COMMIT staged k".split(' '));
    assert_eq!(ask::<i64, _>(loader, ["CARD.LEN", "k"]), 1, "it can load a list");
    for line in CARD_COMMANDS.iter().chain(&ORDINARY_COMMANDS) {
        let name = line.split(' ').next().unwrap();
        if name != "unlink" {
            assert_eq!(is_forbidden(loader, line), !allowed_to("loader").contains(name), "{line}");
        }
    }
    assert_eq!(ask::<i64, _>(loader, ["UNLINK", "k"]), 1, "and take one away");
}

#[test]
fn the_default_user_may_do_everything() {
    let (server, _file) = server_with_its_users();
    let db = &mut server.connect();
    stage(db, "staged");
    for line in CARD_COMMANDS {
        assert!(!is_forbidden(db, line), "{line}");
    }
}

#[test]
fn every_command_obeys_key_patterns() {
    let server = Server::start();
    let db = &mut server.connect();
    ask::<(), _>(db, "ACL SETUSER lists on nopass ~blacklist:* +@all".split(' '));
    for key in ["blacklist:k", "blacklist", "whitelist:k", "k"] {
        stage(db, "blacklist:staged");
        ask::<(), _>(db, ["CARD.SET", key, "1", "7", "1"]);
        let lists = &mut connect_as(&server, "lists", "");
        for line in CARD_COMMANDS {
            let line = line.replace(" staged", " blacklist:staged").replacen(" k", &format!(" {key}"), 1);
            assert_eq!(is_forbidden(lists, &line), key != "blacklist:k", "{line}");
        }
    }
    let card: Vec<u64> = ask(db, ["CARD.GET", "k", "1"]);
    assert_eq!(card, [7, 1], "nothing was half-done");
}

#[test]
fn a_commit_needs_both_of_its_keys() {
    let server = Server::start();
    let db = &mut server.connect();
    ask::<(), _>(db, "ACL SETUSER lists on nopass ~blacklist:* +@all".split(' '));
    let lists = &mut connect_as(&server, "lists", "");
    stage(db, "blacklist:staged");
    stage(db, "staged");
    for line in ["CARD.COMMIT staged k", "CARD.COMMIT staged blacklist:k", "CARD.COMMIT blacklist:staged k"] {
        assert!(is_forbidden(lists, line), "{line}");
    }
    let staged: i64 = ask(db, "EXISTS blacklist:staged staged k blacklist:k".split(' '));
    assert_eq!(staged, 2, "both are still where they were");
    assert!(!is_forbidden(lists, "CARD.COMMIT blacklist:staged blacklist:k"));
    assert_eq!(ask::<Vec<u64>, _>(db, ["CARD.GET", "blacklist:k", "1"]), [7, 1]);
}

#[test]
fn reading_and_writing_a_key_are_two_permissions() {
    let server = Server::start();
    let db = &mut server.connect();
    for user in ["reader %R~*", "writer %W~*"] {
        ask::<(), _>(db, format!("ACL SETUSER {user} on nopass +@all").split(' '));
    }
    let [reader, writer] = &mut ["reader", "writer"].map(|user| connect_as(&server, user, ""));
    for line in CARD_COMMANDS {
        let (may_read, may_write) = match line.split(' ').next().unwrap() {
            "card.create" | "card.set" | "card.mset" | "card.stage" | "card.load" => (false, true),
            // What was staged is read, as by RENAME.
            "card.commit" => (false, false),
            // How many there are or were is no secret, as with HLEN and HDEL; documentation.rs has these.
            "card.len" | "card.del" => continue,
            _ => (true, false),
        };
        assert_eq!((!is_forbidden(reader, line), !is_forbidden(writer, line)), (may_read, may_write), "{line}");
    }
    ask::<(), _>(db, "ACL SETUSER loader on nopass %RW~staged %W~k +@all".split(' '));
    stage(db, "staged");
    let loader = &mut connect_as(&server, "loader", "");
    assert!(!is_forbidden(loader, "CARD.COMMIT staged k"));
    assert!(is_forbidden(loader, "CARD.GET k 1"));
}
