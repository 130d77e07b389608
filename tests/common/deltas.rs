//! Changes to a list: as files, as a model of what a table should hold, and as loads that are held in the middle.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use card_table::{Builder, Id, Schema};
use redis::{Connection, RedisResult, Value};

use super::{Server, ask, long_ids, try_ask, wait_for};

/// What a table should hold: the values of each card.
pub type Model = BTreeMap<Vec<u8>, Vec<u128>>;

/// A row of a file: the values that a card is set to, or none if it is removed.
pub type Row = (Vec<u8>, Option<Vec<u128>>);

/// Arguments of a server that loads from the folder `lists` of its own.
pub const LISTS: [&str; 4] = ["--card.load-dir", "lists", "--card.load-threads", "1"];

/// Why a load ends whose table is not there any more.
pub const TABLE_GONE: &str = "the table was removed or replaced while changes to it were loaded";

/// A file of these rows, with a column `op` if one of them is a removal.
pub fn tsv(schema: &Schema, rows: &[Row]) -> Vec<u8> {
    let removes = rows.iter().any(|(_, values)| values.is_none());
    let mut text = b"cardId".to_vec();
    schema.fields().iter().for_each(|field| text.extend(format!("\t{}", field.name).bytes()));
    text.extend(if removes { &b"\top\n"[..] } else { b"\n" });
    for (id, values) in rows {
        text.extend(id);
        match values {
            Some(values) => values.iter().for_each(|value| text.extend(format!("\t{value}").bytes())),
            None => schema.fields().iter().for_each(|_| text.push(b'\t')),
        }
        text.extend(match values {
            Some(_) if removes => &b"\tset\n"[..],
            Some(_) => b"\n",
            None => b"\tdel\n",
        });
    }
    text
}

/// Writes a file into the folder of lists.
pub fn write(server: &Server, name: &str, content: impl AsRef<[u8]>) {
    let folder = server.directory().join("lists");
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join(name), content).expect("it can be written");
}

pub fn apply(model: &mut Model, rows: &[Row]) {
    for (id, values) in rows {
        match values {
            Some(values) => drop(model.insert(id.clone(), values.clone())),
            None => drop(model.remove(id)),
        }
    }
}

/// The digest of a table that holds what a model has, built without a server.
pub fn digest_of(schema: &Schema, model: &Model) -> String {
    let record = |(id, values): (_, &Vec<u128>)| (Id::parse(id).expect("an id"), schema.pack(values).expect("values"));
    let records = model.iter().map(|(id, values)| record((id.as_slice(), values)));
    let table = Builder::new(schema.clone()).table_from_records(records).expect("it builds").result;
    format!("{:032x}", table.digest())
}

pub fn digest(db: &mut Connection, key: &str) -> String {
    let told: HashMap<String, Value> = ask(db, ["CARD.INFO", key, "DIGEST"]);
    redis::from_redis_value(told["digest"].clone()).expect("a digest")
}

/// What a table takes, with changes that wait for it.
pub fn memory(db: &mut Connection, key: &str) -> u64 {
    let told: HashMap<String, Value> = ask(db, ["CARD.INFO", key]);
    redis::from_redis_value(told["memory_bytes"].clone()).expect("a number")
}

/// A line of INFO.
#[track_caller]
pub fn info(db: &mut Connection, field: &str) -> String {
    let info: String = ask(db, ["INFO", "everything"]);
    let value = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.unwrap_or_else(|| panic!("INFO has {field}")).into()
}

/// A list whose cards have long names and changes to nearly every block of it, so that there is much to stage.
pub struct LongList {
    pub old: Model,
    pub rows: Vec<Row>,
    pub new: Model,
    pub old_digest: String,
    pub new_digest: String,
}

/// How many cards it has; a tenth of them is removed, and as many are added.
pub const LONG_CARDS: usize = 30_000;

pub static LONG: LazyLock<LongList> = LazyLock::new(|| {
    let ids: Vec<Vec<u8>> = long_ids(1).take(LONG_CARDS + LONG_CARDS / 10).map(String::into_bytes).collect();
    let values = |type_| vec![type_, 1];
    let old: Model = ids[..LONG_CARDS].iter().map(|id| (id.clone(), values(1))).collect();
    let row = |(at, id): (usize, &Vec<u8>)| match at % 10 {
        _ if at >= LONG_CARDS => Some((id.clone(), Some(values(3)))),
        1 => Some((id.clone(), None)),
        2 | 5 | 8 => Some((id.clone(), Some(values(2)))),
        _ => None,
    };
    let rows: Vec<Row> = ids.iter().enumerate().filter_map(row).collect();
    let mut new = old.clone();
    apply(&mut new, &rows);
    let schema = Schema::default();
    let (old_digest, new_digest) = (digest_of(&schema, &old), digest_of(&schema, &new));
    LongList { old, rows, new, old_digest, new_digest }
});

/// The changes that make the old list of the new one.
pub fn back() -> Vec<Row> {
    LONG.rows.iter().map(|(id, _)| (id.clone(), LONG.old.get(id).cloned())).collect()
}

/// Writes the list and its changes into the folder, and loads the list, in version 1.
pub fn load_long_list(server: &Server) {
    let schema = Schema::default();
    let all: Vec<Row> = LONG.old.iter().map(|(id, values)| (id.clone(), Some(values.clone()))).collect();
    write(server, "old.tsv", tsv(&schema, &all));
    write(server, "changes.tsv", tsv(&schema, &LONG.rows));
    write(server, "back.tsv", tsv(&schema, &back()));
    let _: Value = ask(&mut server.connect(), "CARD.LOAD list old.tsv VERSION 1".split(' '));
}

/// Sends a command without waiting for the reply.
pub fn send<A: AsRef<[u8]>>(server: &Server, command: impl IntoIterator<Item = A>) -> Connection {
    let mut client = server.connect();
    let mut words = command.into_iter();
    let name = words.next().expect("a command");
    let mut request = redis::cmd(str::from_utf8(name.as_ref()).expect("a name"));
    words.for_each(|word| {
        request.arg(word.as_ref());
    });
    client.send_packed_command(&request.get_packed_command()).expect("it is sent");
    client
}

/// The reply to what was sent.
pub fn reply(mut client: Connection) -> RedisResult<Value> {
    client.recv_response().and_then(Value::extract_error)
}

/// The reason for which what was sent has failed.
#[track_caller]
pub fn failure(client: Connection) -> String {
    let error = reply(client).expect_err("it fails");
    error.detail().map_or_else(|| error.to_string(), Into::into)
}

/// Begins to load the changes of the long list, and returns as soon as some are staged.
#[track_caller]
pub fn begin(server: &Server) -> Connection {
    let db = &mut server.connect();
    let before = memory(db, "list");
    let client = send(server, "CARD.LOAD list changes.tsv DELTA VERSION 2".split(' '));
    let deadline = Instant::now() + Duration::from_secs(20);
    // What is written meanwhile is remembered, in a little memory. Spinning, because staging takes little time.
    while memory(db, "list") < before + (300 << 10) {
        assert!(Instant::now() < deadline, "nothing is staged");
    }
    client
}

/// The same, and has it wait there, with everybody who wants to write, until `resume`.
#[track_caller]
pub fn begin_and_hold(server: &Server) -> Connection {
    let client = begin(server);
    let db = &mut server.connect();
    let _: Value = ask(db, "CLIENT PAUSE 30000 WRITE".split(' '));
    assert_eq!(info(db, "card_loads_under_way"), "1", "it is in the middle of staging");
    client
}

pub fn resume(server: &Server) {
    let _: Value = ask(&mut server.connect(), ["CLIENT", "UNPAUSE"]);
}

/// While a load is held: has a command wait too, which will run before the load goes on.
#[track_caller]
pub fn line_up<A: AsRef<[u8]>>(server: &Server, command: &[A]) -> Connection {
    let client = send(server, command);
    let name = str::from_utf8(command[0].as_ref()).expect("a name").to_lowercase();
    let db = &mut server.connect();
    wait_for(10, "the command has arrived", || {
        ask::<String, _>(db, ["CLIENT", "LIST"]).contains(&format!(" cmd={name} "))
    });
    client
}

/// Whether changes wait for a table: a dump tells, which ends with the last string of a patch, which is empty, or with
/// the number 0 for none, and then what Redis puts behind a value.
pub fn has_patch(db: &mut Connection, key: &str) -> bool {
    const BEHIND: usize = 11;
    let dump: Vec<u8> = ask(db, ["DUMP", key]);
    match dump[..dump.len() - BEHIND] {
        [.., 5, 0] => true,
        [.., 2, 0] => false,
        _ => panic!("a dump ends in another way"),
    }
}

/// Waits until no load is under way.
#[track_caller]
pub fn wait_until_loads_end(server: &Server) {
    wait_for(20, "no load is under way", || {
        try_ask::<String, _>(&mut server.connect(), ["INFO", "card"])
            .is_ok_and(|info| info.contains("card_loads_under_way:0\r"))
    });
}
