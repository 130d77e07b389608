//! What the server tells about each command: COMMAND DOCS, COMMAND INFO, COMMAND GETKEYS.

mod common;

use std::collections::{BTreeSet, HashMap};

use common::{Server, ask, refused};
use redis::{Connection, Value};

struct Expected {
    name: &'static str,
    /// What follows the name, as `redis-cli` shows it.
    usage: &'static str,
    arity: i64,
    /// Beside `module`, which all have.
    flags: &'static [&'static str],
    categories: &'static [&'static str],
    /// A call, and a command of Redis's own that does the like to its keys.
    call: &'static str,
    peer: &'static str,
}

const COMMANDS: [Expected; 14] = [
    Expected {
        name: "card.create",
        usage: "key [FIELD name min max [FIELD name min max ...]]",
        arity: -2,
        flags: &["write", "denyoom", "fast"],
        categories: &["@write", "@fast"],
        call: "card.create k FIELD a 0 1",
        peer: "SADD k x",
    },
    Expected {
        name: "card.set",
        usage: "key id value [value ...]",
        arity: -4,
        flags: &["write", "denyoom", "fast"],
        categories: &["@write", "@fast"],
        call: "card.set k 1 7 1",
        peer: "HSET k 1 7",
    },
    Expected {
        name: "card.mset",
        usage: "key id value [value ...] [id value [value ...] ...]",
        arity: -4,
        flags: &["write", "denyoom"],
        categories: &["@write", "@slow"],
        call: "card.mset k 1 7 1 2 7 1",
        peer: "HSET k 1 7 2 7",
    },
    Expected {
        name: "card.get",
        usage: "key id",
        arity: 3,
        flags: &["readonly", "fast"],
        categories: &["@read", "@fast"],
        call: "card.get k 1",
        peer: "HGET k 1",
    },
    Expected {
        name: "card.mget",
        usage: "key id [id ...]",
        arity: -3,
        flags: &["readonly", "fast"],
        categories: &["@read", "@fast"],
        call: "card.mget k 1 2",
        peer: "HMGET k 1 2",
    },
    Expected {
        name: "card.del",
        usage: "key id [id ...]",
        arity: -3,
        flags: &["write", "fast"],
        categories: &["@write", "@fast"],
        call: "card.del k 1 2",
        peer: "HDEL k 1 2",
    },
    Expected {
        name: "card.len",
        usage: "key",
        arity: 2,
        flags: &["readonly", "fast"],
        categories: &["@read", "@fast"],
        call: "card.len k",
        peer: "HLEN k",
    },
    Expected {
        name: "card.scan",
        usage: "key cursor [PREFIX prefix] [COUNT count]",
        arity: -3,
        flags: &["readonly"],
        categories: &["@read", "@slow"],
        call: "card.scan k 0 PREFIX 4401 COUNT 5",
        peer: "HSCAN k 0",
    },
    Expected {
        name: "card.info",
        usage: "key [DIGEST]",
        arity: -2,
        flags: &["readonly", "fast"],
        categories: &["@read", "@fast"],
        call: "card.info k DIGEST",
        peer: "HGETALL k",
    },
    Expected {
        name: "card.json",
        usage: "key id [id ...]",
        arity: -3,
        flags: &["readonly", "fast"],
        categories: &["@read", "@fast"],
        call: "card.json k 1 2",
        peer: "HMGET k 1 2",
    },
    Expected {
        name: "card.query",
        usage: "key query",
        arity: 3,
        flags: &["readonly", "fast"],
        categories: &["@read", "@fast"],
        call: "card.query k cardid=1",
        peer: "HGET k 1",
    },
    Expected {
        name: "card.stage",
        usage: "key BEGIN header|FRAMES frames|PATCH patch|DISCARD",
        arity: -3,
        flags: &["write", "denyoom", "admin"],
        categories: &["@write", "@admin", "@dangerous", "@slow"],
        call: "card.stage k FRAMES x",
        peer: "HSET k 1 7",
    },
    Expected {
        name: "card.commit",
        usage: "staged table [AT milliseconds] [VERSION version] [SOURCE source] [ROWS rows]",
        arity: -3,
        flags: &["write", "admin"],
        categories: &["@write", "@admin", "@dangerous", "@slow"],
        call: "card.commit s k AT 1",
        peer: "RENAME s k",
    },
    Expected {
        name: "card.load",
        usage: "key file|CANCEL [DELTA] [VERSION version]",
        arity: -3,
        flags: &["write", "denyoom", "admin", "noscript"],
        categories: &["@write", "@admin", "@dangerous", "@slow"],
        call: "card.load k cards.tsv VERSION 1",
        peer: "RESTORE k 0 x",
    },
];

fn command<T: redis::FromRedisValue>(db: &mut Connection, subcommand: &str, line: &str) -> T {
    ask(db, ["COMMAND", subcommand].into_iter().chain(line.split(' ')))
}

type Map = HashMap<String, Value>;

fn from<T: redis::FromRedisValue>(value: &Value) -> T {
    redis::from_redis_value(value.clone()).expect("of this type")
}

fn docs(db: &mut Connection, name: &str) -> Map {
    let mut docs: HashMap<String, Map> = command(db, "DOCS", name);
    docs.remove(name).expect("it is documented")
}

fn parts(documented: &Map) -> Vec<Map> {
    documented.get("arguments").map(from).unwrap_or_default()
}

fn has_flag(argument: &Map, flag: &str) -> bool {
    argument.get("flags").is_some_and(|flags| from::<Vec<String>>(flags).iter().any(|given| given == flag))
}

/// Arguments as `redis-cli` shows them.
fn usage(arguments: &[Map]) -> String {
    arguments.iter().map(usage_of).collect::<Vec<_>>().join(" ")
}

fn usage_of(argument: &Map) -> String {
    let inner = match from::<String>(&argument["type"]).as_str() {
        "block" => usage(&parts(argument)),
        "oneof" => parts(argument).iter().map(usage_of).collect::<Vec<_>>().join("|"),
        "pure-token" => String::new(),
        _ => from(&argument["name"]),
    };
    let token = argument.get("token").map(from::<String>).unwrap_or_default();
    let mut usage = format!("{token} {inner}").trim().to_owned();
    if has_flag(argument, "multiple") {
        usage = format!("{usage} [{usage} ...]");
    }
    if has_flag(argument, "optional") { format!("[{usage}]") } else { usage }
}

#[test]
fn every_command_is_expected_here() {
    let server = Server::start();
    let known: BTreeSet<String> = command(&mut server.connect(), "LIST", "FILTERBY MODULE card");
    assert_eq!(known, COMMANDS.iter().map(|command| command.name.to_owned()).collect());
}

#[test]
fn docs_tell_what_a_command_does_costs_and_takes() {
    let server = Server::start();
    let db = &mut server.connect();
    for Expected { name, usage: expected, .. } in COMMANDS {
        let docs = docs(db, name);
        let text = |field: &str| from::<String>(&docs[field]);
        assert_eq!((text("module"), text("group"), text("since")), ("card".into(), "module".into(), "1.0.0".into()));
        assert!(text("summary").ends_with('.'), "{name}: a sentence, not {:?}", text("summary"));
        assert!(text("complexity").starts_with("O("), "{name}: {:?}", text("complexity"));
        assert_eq!(usage(&parts(&docs)), expected, "{name}");
    }
}

#[test]
fn docs_tell_which_arguments_are_keys_and_numbers() {
    fn all(arguments: &[Map], found: &mut Vec<(String, String)>) {
        for argument in arguments {
            found.push((from(&argument["type"]), from(&argument["name"])));
            all(&parts(argument), found);
        }
    }
    let server = Server::start();
    let db = &mut server.connect();
    let mut numbers = Vec::new();
    for Expected { name, .. } in COMMANDS {
        let arguments = parts(&docs(db, name));
        let keys: Vec<_> = arguments.iter().filter(|argument| from::<String>(&argument["type"]) == "key").collect();
        let specs: Vec<i64> = keys.iter().map(|key| from(&key["key_spec_index"])).collect();
        let count = if name == "card.commit" { 2 } else { 1 };
        assert_eq!(specs, (0..count).collect::<Vec<_>>(), "{name}: the keys, in their order");

        let mut found = Vec::new();
        all(&arguments, &mut found);
        numbers.extend(found.into_iter().filter(|(kind, _)| kind == "integer").map(|(_, argument)| (name, argument)));
    }
    let numbers: Vec<_> = numbers.iter().map(|(name, argument)| (*name, argument.as_str())).collect();
    assert_eq!(
        numbers,
        [
            ("card.create", "min"),
            ("card.create", "max"),
            ("card.scan", "count"),
            ("card.commit", "milliseconds"),
            ("card.commit", "version"),
            ("card.commit", "rows"),
            ("card.load", "version"),
        ]
    );
}

#[test]
fn a_command_has_its_arity_and_flags() {
    let server = Server::start();
    let db = &mut server.connect();
    for Expected { name, arity, flags, .. } in COMMANDS {
        let info: Vec<Vec<Value>> = command(db, "INFO", name);
        assert_eq!(from::<i64>(&info[0][1]), arity, "{name}");
        let expected: BTreeSet<&str> = flags.iter().copied().chain(["module"]).collect();
        let found: BTreeSet<String> = from(&info[0][2]);
        assert_eq!(found.iter().map(String::as_str).collect::<BTreeSet<_>>(), expected, "{name}");
        let keys: [i64; 3] = [from(&info[0][3]), from(&info[0][4]), from(&info[0][5])];
        assert_eq!(keys, if name == "card.commit" { [1, 2, 1] } else { [1, 1, 1] }, "{name}: first, last, step");
    }
}

#[test]
fn a_command_is_refused_with_fewer_or_more_arguments_than_its_arity() {
    let server = Server::start();
    let db = &mut server.connect();
    for Expected { name, arity, .. } in COMMANDS {
        let least = arity.unsigned_abs() as usize;
        let too_many = if arity > 0 { Some(least + 1) } else { None };
        for words in (1..least).chain(too_many) {
            let error = refused(db, [name].into_iter().chain(std::iter::repeat_n("1", words - 1)));
            assert_eq!(error, format!("ERR wrong number of arguments for '{name}' command"), "{words} words");
        }
    }
}

#[test]
fn a_command_is_in_the_acl_categories_of_its_flags() {
    let server = Server::start();
    let db = &mut server.connect();
    let info: String = ask(db, ["INFO", "server"]);
    let version = info.lines().find_map(|line| line.strip_prefix("redis_version:")).expect("a version");
    let mut parts = version.split('.').map(|part| part.parse::<u32>().expect("a number"));
    // Before 7.2, commands of modules are in no category, and a module has no way to put them there.
    let has_categories = (parts.next(), parts.next()) >= (Some(7), Some(2));
    for Expected { name, categories, .. } in COMMANDS {
        let info: Vec<Vec<Value>> = command(db, "INFO", name);
        let found: BTreeSet<String> = from(&info[0][6]);
        let expected = if has_categories { categories } else { &[] };
        assert_eq!(found, expected.iter().map(|category| category.to_string()).collect(), "{name}");
    }
}

#[test]
fn the_keys_of_a_call_are_found() {
    let server = Server::start();
    let db = &mut server.connect();
    for Expected { name, call, .. } in COMMANDS {
        let keys: Vec<String> = command(db, "GETKEYS", call);
        let expected: &[&str] = if name == "card.commit" { &["s", "k"] } else { &["k"] };
        assert_eq!(keys, expected, "{call}");
    }
}

/// ACL rules such as `%W~` go by these.
#[test]
fn keys_are_used_as_those_of_redis_own_commands() {
    let server = Server::start();
    let db = &mut server.connect();
    let mut different = Vec::new();
    for Expected { call, peer, .. } in COMMANDS {
        let [ours, theirs]: [Vec<(String, BTreeSet<String>)>; 2] =
            [call, peer].map(|line| command(db, "GETKEYSANDFLAGS", line));
        if ours != theirs {
            different.push(format!("{call}: {ours:?}, and {peer}: {theirs:?}"));
        }
    }
    assert!(different.is_empty(), "{different:#?}");
}
