//! Everything at once: random commands, restarts and broken links against a model in memory, with a replica attached
//! throughout. `SOAK_SECONDS` says for how long, `SOAK_SEED` repeats a run.

mod common;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use std::{env, thread};

use card_table::{Builder, Field, Id, Schema, Table};
use common::{Server, ask, refused, wait_for};
use fastrand::Rng;
use redis::{Connection, Value};

const SECONDS: u64 = 15;

/// How often a check of all tables takes place, and how often a restart, in steps.
const CHECK: u64 = 500;
const RESTART: u64 = 1_000;

const KEYS: [&str; 5] = ["a", "b", "c", "d", "e\0\r\n"];
const STAGED: &str = "staged";

type Cards = BTreeMap<Vec<u8>, Vec<u128>>;
type Record = (Vec<u8>, Vec<u128>);

/// What a key should hold.
#[derive(Clone, PartialEq)]
struct List {
    schema: Schema,
    cards: Cards,
    ready: bool,
    /// Whether it will expire, some day.
    expires: bool,
    /// The version of the load that it came from.
    version: Option<i64>,
}

impl List {
    fn new(schema: Schema) -> List {
        List { schema, cards: Cards::new(), ready: false, expires: false, version: None }
    }

    fn table(&self) -> Table {
        let records = self
            .cards
            .iter()
            .map(|(id, values)| (Id::parse(id).expect("an id"), self.schema.pack(values).expect("values in range")));
        Builder::new(self.schema.clone()).threads(1).table_from_records(records).expect("nothing stops it").result
    }
}

/// A table on its way: what is still to be sent, and what it will be.
struct Staged {
    pieces: Vec<Vec<u8>>,
    list: List,
    expires: bool,
}

struct Soak {
    primary: Server,
    replica: Server,
    db: Connection,
    random: Rng,
    lists: BTreeMap<&'static str, List>,
    staged: Option<Staged>,
    seed: u64,
    steps: u64,
}

impl Drop for Soak {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("It was step {} of SOAK_SEED={}", self.steps, self.seed);
        }
    }
}

/// A schema whose largest values are beyond Redis's integers.
fn schemas() -> [Schema; 2] {
    let wide = vec![Field::new("tag", 3, 5), Field::new("weight", 0, 1 << 64)];
    [Schema::default(), Schema::new(wide).expect("a schema")]
}

fn values(random: &mut Rng, schema: &Schema) -> Vec<u128> {
    schema.fields().iter().map(|field| random.u128(field.min..=field.max)).collect()
}

/// An id of any class; few enough of each that the same come again.
fn id(random: &mut Rng) -> Vec<u8> {
    let number = random.u64(..3000);
    let scattered = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    match random.u8(..10) {
        0 => format!("{number}").into_bytes(),
        1 => format!("{number:05}").into_bytes(),
        2 => format!("{scattered:016x}{scattered:016x}").into_bytes(),
        3 => format!("{scattered:X}").into_bytes(),
        4 => format!("{:08X}-0000-4000-8000-{:012X}", number, scattered >> 16).into_bytes(),
        5 => [b"\0\r\n\xff".as_slice(), &scattered.to_be_bytes(), b" caf\xc3\xa9"].concat(),
        6 => [vec![b'x'; number as usize % 300], number.to_string().into_bytes()].concat(),
        _ => format!("4401{:016}", scattered % 10_000_000_000_000_000).into_bytes(),
    }
}

fn words(command: &str, key: &str) -> Vec<Vec<u8>> {
    vec![command.into(), key.into()]
}

/// A reply of an id and values, or of values, which are texts where Redis's integers end.
fn numbers(values: &[Value]) -> Vec<u128> {
    let number = |value: &Value| match value {
        Value::Int(number) => u128::try_from(*number).expect("no value is negative"),
        value => redis::from_redis_value(value.clone()).expect("a number"),
    };
    values.iter().map(number).collect()
}

fn card(reply: &Value) -> Option<Vec<u128>> {
    match reply {
        Value::Nil => None,
        Value::Array(values) => Some(numbers(values)),
        other => panic!("not the values of a card: {other:?}"),
    }
}

/// The records of a table that begin so.
fn scan(db: &mut Connection, key: &str, prefix: &[u8], count: u64) -> Cards {
    let (mut all, mut cursor) = (Cards::new(), b"0".to_vec());
    loop {
        let mut command = words("CARD.SCAN", key);
        command.extend([cursor, b"PREFIX".into(), prefix.into(), b"COUNT".into(), count.to_string().into()]);
        let (next, some): (Vec<u8>, Vec<Vec<Value>>) = ask(db, command);
        for record in some {
            let id = redis::from_redis_value(record[0].clone()).expect("an id");
            assert_eq!(all.insert(id, numbers(&record[1..])), None, "a scan returns a card once");
        }
        if next == b"0" {
            return all;
        }
        cursor = next;
    }
}

fn info(db: &mut Connection, field: &str) -> String {
    let info: String = ask(db, ["INFO"]);
    let value = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.unwrap_or_else(|| panic!("INFO has {field}")).into()
}

impl Soak {
    fn start(arguments: &[&str]) -> Soak {
        let own = ["--enable-debug-command", "yes", "--repl-diskless-sync-delay", "0"];
        let primary = Server::with_port(&[&own, arguments].concat());
        let port = primary.port().to_string();
        let replica = Server::with(&[&own[..], &["--replicaof", "127.0.0.1", &port]].concat());
        let seed = env::var("SOAK_SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().expect("a number"));
        let (db, random) = (primary.connect(), Rng::with_seed(seed));
        Soak { primary, replica, db, random, lists: BTreeMap::new(), staged: None, seed, steps: 0 }
    }

    fn run(mut self) {
        let seconds = env::var("SOAK_SECONDS").map_or(SECONDS, |seconds| seconds.parse().expect("a number"));
        let end = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < end {
            self.steps += 1;
            self.step();
            if self.steps.is_multiple_of(RESTART) {
                self.restart();
            }
            if self.steps.is_multiple_of(CHECK) {
                self.check();
            }
        }
        self.check();
        println!("{} steps", self.steps);
    }

    /// The server is killed and starts again, from an RDB file or from the AOF if it writes one.
    fn restart(&mut self) {
        self.wait_for_children();
        ask::<(), _>(&mut self.db, ["SAVE"]);
        self.primary.kill();
        self.primary.start_again();
        self.db = self.primary.connect();
        self.staged_is_dropped();
    }

    /// What was staged when a server read its data anew is left over from a load that will not go on.
    fn staged_is_dropped(&mut self) {
        wait_for(5, "what was staged is dropped", || ask::<i64, _>(&mut self.db, ["EXISTS", STAGED]) == 0);
        self.staged = None;
    }

    fn reload(&mut self) {
        ask::<(), _>(&mut self.db, ["DEBUG", "RELOAD"]);
        self.staged_is_dropped();
    }

    /// A server saves, syncs or rewrites, and refuses to do it twice at a time.
    fn wait_for_children(&mut self) {
        wait_for(20, "nothing is being written", || {
            let busy = ["rdb_bgsave_in_progress", "aof_rewrite_in_progress", "aof_rewrite_scheduled"];
            busy.iter().all(|field| info(&mut self.db, field) == "0")
        });
    }

    fn key(&mut self) -> &'static str {
        self.random.choice(KEYS).expect("a key")
    }

    /// Some ids, half of them of the table.
    fn ids(&mut self, key: &str) -> Vec<Vec<u8>> {
        let cards = self.lists.get(key).map(|list| &list.cards);
        let count = self.random.usize(1..=30);
        let mut some = |_| {
            let from = id(&mut self.random);
            let mut there = cards.iter().flat_map(|cards| cards.range(from.clone()..)).map(|(id, _)| id.clone());
            if self.random.bool() { there.next().unwrap_or(from) } else { from }
        };
        (0..count).map(&mut some).collect()
    }

    fn step(&mut self) {
        let key = self.key();
        match self.random.u32(..1000) {
            0..300 => self.set(key),
            300..400 => self.del(key),
            400..650 => self.get(key),
            650..700 => self.scan(key),
            700..760 => self.refuse(key),
            760..800 => self.transaction(),
            800..880 => self.stage(),
            880..900 => self.create(key),
            900..960 => self.key_command(key),
            960..985 => self.expire(key),
            985..990 => self.remove(key),
            // The link to the replica breaks.
            990..993 => ask(&mut self.db, ["CLIENT", "KILL", "TYPE", "replica"]),
            993..995 => self.rewrite(),
            995..997 => self.reload(),
            _ => check_list(&mut self.db, key, self.lists.get(key)),
        }
    }

    fn create(&mut self, key: &'static str) {
        let schema = self.random.choice(schemas()).expect("a schema");
        let mut command = words("CARD.CREATE", key);
        if schema != Schema::default() {
            for field in schema.fields() {
                command.extend(["FIELD".into(), field.name.clone().into_bytes()]);
                command.extend([field.min.to_string().into(), field.max.to_string().into()]);
            }
        }
        if self.lists.contains_key(key) {
            assert_eq!(refused(&mut self.db, command), "ERR the table exists already");
        } else {
            ask::<(), _>(&mut self.db, command);
            self.lists.insert(key, List::new(schema));
        }
    }

    /// A CARD.MSET or CARD.SET that the table will take, and its records.
    fn records(&mut self, key: &str) -> (Vec<Vec<u8>>, Vec<Record>) {
        let ids = self.ids(key);
        let mut command = words(if ids.len() == 1 { "CARD.SET" } else { "CARD.MSET" }, key);
        let schema = self.lists.get(key).map_or_else(Schema::default, |list| list.schema.clone());
        let records: Vec<_> = ids.into_iter().map(|id| (id, values(&mut self.random, &schema))).collect();
        for (id, values) in &records {
            command.push(id.clone());
            command.extend(values.iter().map(|value| value.to_string().into_bytes()));
        }
        (command, records)
    }

    /// Such a command, which will be sent, and how many cards it adds.
    fn set_command(&mut self, key: &'static str) -> (Vec<Vec<u8>>, u64) {
        let (command, records) = self.records(key);
        let list = self.lists.entry(key).or_insert_with(|| List::new(Schema::default()));
        list.ready = true;
        let new = records.into_iter().filter(|(id, values)| list.cards.insert(id.clone(), values.clone()).is_none());
        (command, new.count() as u64)
    }

    fn set(&mut self, key: &'static str) {
        let (command, new) = self.set_command(key);
        assert_eq!(ask::<u64, _>(&mut self.db, command), new);
    }

    fn del_command(&mut self, key: &str) -> (Vec<Vec<u8>>, u64) {
        let (mut command, ids) = (words("CARD.DEL", key), self.ids(key));
        command.extend(ids.iter().cloned());
        let removed = match self.lists.get_mut(key) {
            Some(list) => ids.iter().filter(|id| list.cards.remove(*id).is_some()).count(),
            None => 0,
        };
        (command, removed as u64)
    }

    fn del(&mut self, key: &str) {
        let (command, removed) = self.del_command(key);
        assert_eq!(ask::<u64, _>(&mut self.db, command), removed);
    }

    fn get(&mut self, key: &str) {
        let (ids, list) = (self.ids(key), self.lists.get(key));
        let expected = ids.iter().map(|id| list.and_then(|list| list.cards.get(id)).cloned());
        let mut command = words(if ids.len() == 1 { "CARD.GET" } else { "CARD.MGET" }, key);
        command.extend(ids.iter().cloned());
        let replies = match ask(&mut self.db, command) {
            Value::Array(replies) if ids.len() > 1 => replies,
            reply => vec![reply],
        };
        assert!(replies.iter().map(card).eq(expected), "{key:?} {ids:?}");
        let len = list.map_or(0, |list| list.cards.len());
        assert_eq!(ask::<usize, _>(&mut self.db, ["CARD.LEN", key]), len);
    }

    fn scan(&mut self, key: &str) {
        let (from, count) = (id(&mut self.random), self.random.u64(1..=300));
        let prefix = &from[..self.random.usize(..=from.len().min(6))];
        let cards = self.lists.get(key).into_iter().flat_map(|list| list.cards.range(prefix.to_vec()..));
        let expected = cards.take_while(|(id, _)| id.starts_with(prefix));
        assert!(scan(&mut self.db, key, prefix, count).iter().eq(expected), "{key:?} {prefix:?}");
    }

    /// A command whose last value is missing or out of range, so that it changes nothing.
    fn refuse(&mut self, key: &str) {
        let mut command = self.records(key).0;
        command.pop();
        if self.random.bool() {
            command.push(b"99999999999999999999".into());
        }
        assert!(refused(&mut self.db, command).starts_with("ERR "));
    }

    fn transaction(&mut self) {
        let mut pipe = redis::pipe();
        pipe.atomic();
        let expected: Vec<u64> = (0..self.random.u8(1..6))
            .map(|_| {
                let key = self.key();
                let (command, count) = if self.random.bool() { self.set_command(key) } else { self.del_command(key) };
                pipe.cmd(str::from_utf8(&command[0]).expect("a name")).arg(&command[1..]);
                count
            })
            .collect();
        assert_eq!(pipe.query::<Vec<u64>>(&mut self.db).expect("a transaction"), expected);
    }

    /// Begins a load, takes the next piece of one, or ends it.
    fn stage(&mut self) {
        let Some(staged) = &mut self.staged else { return self.begin_to_stage() };
        if self.random.u8(..20) == 0 && !staged.expires {
            assert_eq!(ask::<i64, _>(&mut self.db, ["EXPIRE", STAGED, "100000"]), 1);
            staged.expires = true;
        }
        if let Some(piece) = staged.pieces.pop() {
            ask::<(), _>(&mut self.db, [b"CARD.STAGE", STAGED.as_bytes(), b"FRAMES", &piece]);
            return;
        }
        let (key, version) = (self.key(), self.random.i64(0..1 << 40));
        let mut list = self.staged.take().expect("there is one").list;
        let (number, options) = (version.to_string(), ["SOURCE", "file.tsv", "ROWS", "5"]);
        let command = [&["CARD.COMMIT", STAGED, key, "VERSION", &number], &options[..]].concat();
        ask::<(), _>(&mut self.db, command);
        (list.version, list.ready) = (Some(version), true);
        self.lists.insert(key, list);
    }

    fn begin_to_stage(&mut self) {
        let mut list = List::new(self.random.choice(schemas()).expect("a schema"));
        for _ in 0..self.random.u32(..12_000) {
            list.cards.insert(id(&mut self.random), values(&mut self.random, &list.schema));
        }
        let table = list.table();
        ask::<(), _>(&mut self.db, [b"CARD.STAGE", STAGED.as_bytes(), b"BEGIN", &table.header_bytes()]);
        let refusal = "ERR the table is staged and not committed yet";
        assert_eq!(refused(&mut self.db, ["CARD.GET", STAGED, "1"]), refusal);
        let mut pieces: Vec<_> = table.frames(self.random.usize(10_000..100_000)).collect();
        pieces.reverse();
        self.staged = Some(Staged { pieces, list, expires: false });
    }

    /// Redis's own commands for keys, which copy and move tables.
    fn key_command(&mut self, key: &'static str) {
        let to = self.key();
        let there = self.lists.get(key).cloned();
        match (self.random.u8(..3), there) {
            (_, None) => assert_eq!(ask::<i64, _>(&mut self.db, ["EXISTS", key]), 0),
            (0, Some(list)) if key != to => {
                assert_eq!(ask::<i64, _>(&mut self.db, ["COPY", key, to, "REPLACE"]), 1);
                self.lists.insert(to, list);
            }
            (1, Some(list)) => {
                ask::<(), _>(&mut self.db, ["RENAME", key, to]);
                self.lists.remove(key);
                self.lists.insert(to, list);
            }
            (_, Some(list)) => {
                let dump: Vec<u8> = ask(&mut self.db, ["DUMP", key]);
                ask::<(), _>(&mut self.db, [b"RESTORE", to.as_bytes(), b"0", &dump, b"REPLACE"]);
                self.lists.insert(to, List { expires: false, ..list });
            }
        }
    }

    fn expire(&mut self, key: &'static str) {
        let (there, kind) = (self.lists.contains_key(key), self.random.u8(..5));
        let command = match kind {
            0 | 1 => vec!["EXPIRE", key, "100000"],
            2 | 3 => vec!["PERSIST", key],
            _ => vec!["PEXPIRE", key, "2"],
        };
        let expected = if matches!(kind, 2 | 3) { self.lists.get(key).is_some_and(|list| list.expires) } else { there };
        assert_eq!(ask::<bool, _>(&mut self.db, command), expected);
        match self.lists.get_mut(key) {
            Some(list) if kind < 4 => list.expires = kind < 2,
            _ => {
                wait_for(5, "the key expires", || ask::<i64, _>(&mut self.db, ["EXISTS", key]) == 0);
                self.lists.remove(key);
            }
        }
    }

    fn remove(&mut self, key: &'static str) {
        let command = if self.random.bool() { "DEL" } else { "UNLINK" };
        assert_eq!(ask::<bool, _>(&mut self.db, [command, key]), self.lists.remove(key).is_some());
    }

    fn rewrite(&mut self) {
        self.wait_for_children();
        let preamble = if self.random.bool() { "yes" } else { "no" };
        ask::<(), _>(&mut self.db, ["CONFIG", "SET", "aof-use-rdb-preamble", preamble]);
        ask::<(), _>(&mut self.db, ["BGREWRITEAOF"]);
        self.wait_for_children();
        assert_eq!(info(&mut self.db, "aof_last_bgrewrite_status"), "ok");
    }

    /// Everything, record by record, on the primary and on the replica.
    fn check(&mut self) {
        let (primary, replica) = (&mut self.db, &mut self.replica.connect());
        wait_for(20, "the replica is in step", || {
            info(replica, "master_link_status") == "up"
                && info(replica, "slave_repl_offset") == info(primary, "master_repl_offset")
        });
        for key in KEYS {
            check_list(primary, key, self.lists.get(key));
            check_list(replica, key, self.lists.get(key));
        }
        let all = self.lists.len() + usize::from(self.staged.is_some());
        assert_eq!([ask::<usize, _>(primary, ["DBSIZE"]), ask(replica, ["DBSIZE"])], [all, all]);
        let digest = |db: &mut Connection| ask::<String, _>(db, ["DEBUG", "DIGEST"]);
        assert_eq!(digest(primary), digest(replica));
        assert_eq!(info(replica, "unexpected_error_replies"), "0");
    }
}

fn check_list(db: &mut Connection, key: &str, list: Option<&List>) {
    let Some(list) = list else {
        assert_eq!(ask::<i64, _>(db, ["EXISTS", key]), 0, "{key:?}");
        return;
    };
    assert!(scan(db, key, b"", 10_000) == list.cards, "{key:?}");
    let told: BTreeMap<String, Value> = ask(db, ["CARD.INFO", key, "DIGEST"]);
    let digest = format!("{:032x}", list.table().digest());
    assert_eq!(told["digest"], Value::BulkString(digest.into_bytes()), "{key:?}");
    assert_eq!(told["ready"], Value::Int(list.ready.into()), "{key:?}");
    assert_eq!(told["version"], list.version.map_or(Value::Nil, Value::Int), "{key:?}");
    let ttl: i64 = ask(db, ["TTL", key]);
    assert_eq!(ttl > 0, list.expires, "{key:?}: {ttl}");
}

#[test]
fn everything_is_as_the_model_says_with_rdb_files() {
    Soak::start(&[]).run();
}

#[test]
fn everything_is_as_the_model_says_with_an_aof() {
    // What has been acknowledged is in the file, whenever the server is killed.
    Soak::start(&["--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0"]).run();
}
