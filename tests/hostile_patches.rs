//! Patches that are not what they should be, in `CARD.STAGE … PATCH`, in dumps and in RDB files: refused or harmless,
//! never a crash or a table that is wrong.

mod common;

use std::collections::BTreeMap;

use card_table::{Builder, Field, Id, Patch, Schema, Table};
use common::deltas::has_patch;
use common::kinds::{cards, cards_of};
use common::{Server, ask, refused, try_ask};
use fastrand::Rng;
use redis::{Connection, RedisResult, Value};

const PATCHES: usize = 4_000;
const DUMPS: usize = 6_000;

/// How many commands are sent before their replies are read.
const AT_ONCE: usize = 200;

/// After a dumped value: the RDB version, which is kept, and a checksum, which is not looked at.
const TRAILER_BYTES: usize = 10;

/// Tables with ids and blocks of every kind, and changes to them: their patches, a span of few blocks each.
fn tables() -> Vec<(Table, Vec<Vec<u8>>)> {
    let random = &mut Rng::with_seed(1);
    let digits: Vec<String> =
        (0..1_500).map(|_| format!("{}{:016}", 1101 + 100 * random.u64(..31), random.u64(..10u64.pow(16)))).collect();
    let dense: Vec<String> =
        (0..2_000).filter(|number| number % 7 != 0).map(|number| format!("4401{number:016}")).collect();
    let cookies: Vec<String> = (0..400).map(|number| format!("cookie-{}-{number}", number * number % 97)).collect();
    let classes =
        ["7", "007", "beef", "BEEF", "123e4567-e89b-12d3-a456-426614174000", "0x7", "\u{e9}"].map(String::from);
    let wide = Schema::new(vec![Field::new("level", 3, 6), Field::new("serial", 1, 1 << 100)]).expect("a schema");
    [(Schema::default(), digits), (Schema::default(), dense), (Schema::default(), cookies), (wide, classes.into())]
        .map(|(schema, ids)| {
            let mut table = Table::new(schema);
            let symbol = |at: usize| at as u128 * 0x1234_5678_9abc_def0_1234_5679 % table.schema().symbols();
            let symbols: Vec<u128> = (0..2 * ids.len()).map(symbol).collect();
            for (at, id) in ids.iter().enumerate().filter(|(at, _)| at % 3 > 0) {
                table.insert(&Id::parse(id.as_bytes()).expect("an id"), symbols[at]);
            }
            let changed = ids.iter().enumerate().filter(|(at, _)| at % 5 < 2);
            let records = changed.map(|(at, id)| {
                (Id::parse(id.as_bytes()).expect("an id"), (at % 10 < 6).then(|| symbols[symbols.len() - 1 - at]))
            });
            let changes = Builder::new(table.schema().clone()).changes_from_records(records).expect("it builds").result;
            let pieces = pieces(&table, changes.iter().collect());
            (table, pieces)
        })
        .into()
}

/// The patch that makes changes, in pieces of a few blocks.
fn pieces(table: &Table, mut changes: Vec<card_table::Change>) -> Vec<Vec<u8>> {
    let mut patch = Patch::new(table.schema());
    let mut pieces = Vec::new();
    while !changes.is_empty() {
        let excerpt = table.excerpt(&patch, &changes, None, 3);
        let taken = excerpt.changes;
        let (piece, _) = excerpt.apply(&changes);
        changes.drain(..taken);
        pieces.push(piece.to_bytes());
        patch.append(piece).expect("it follows");
    }
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

fn server() -> Server {
    Server::with(&["--enable-debug-command", "yes", "--loglevel", "warning"])
}

/// Puts the tables into keys called by their numbers.
fn make(db: &mut Connection, tables: &[(Table, Vec<Vec<u8>>)]) {
    for (at, (table, _)) in tables.iter().enumerate() {
        let key = at.to_string();
        common::kinds::stage(db, &key, table, 1 << 20);
        let () = ask(db, ["CARD.COMMIT", &key, &key, "VERSION", "5"]);
    }
}

fn begin(db: &mut Connection, key: &str) {
    let () = ask(db, ["CARD.STAGE", key, "PATCH", ""]);
}

fn stage(db: &mut Connection, key: &str, piece: &[u8]) -> RedisResult<()> {
    try_ask(db, [b"CARD.STAGE", key.as_bytes(), b"PATCH", piece])
}

#[track_caller]
fn assert_unharmed(server: &mut Server, pid: u32) {
    assert!(server.is_alive());
    let info: String = ask(&mut server.connect(), ["INFO", "server"]);
    assert!(info.contains(&format!("process_id:{pid}\r\n")), "the server is another: {info}");
    let log = server.log();
    for trace in ["a bug in redis-card", "CRASHED", "ASSERTION FAILED", "panicked"] {
        assert!(!log.contains(trace), "{}", log.lines().find(|line| line.contains(trace)).unwrap_or_default());
    }
}

/// Everything that must hold of a table: its cards ascend, are found, have values of the schema, and give its digest. One
/// can write to it, and it survives a dump.
#[track_caller]
fn check(db: &mut Connection, key: &str) {
    let info: BTreeMap<String, Value> = ask(db, ["CARD.INFO", key, "DIGEST"]);
    let dump: Vec<u8> = ask(db, ["DUMP", key]);
    let () = ask(db, [b"RESTORE".as_slice(), b"again", b"0", &dump, b"REPLACE"]);
    let again: BTreeMap<String, Value> = ask(db, ["CARD.INFO", "again", "DIGEST"]);
    assert_eq!((&again["digest"], &again["records"]), (&info["digest"], &info["records"]));
    let schema: Vec<(String, u128, u128)> = redis::from_redis_value(info["schema"].clone()).expect("a schema");
    let fields = schema.into_iter().map(|(name, min, max)| Field::new(name, min, max)).collect();
    let schema = Schema::new(fields).expect("a schema");
    let cards = cards(db, key);
    assert_eq!(Value::Int(cards.len() as i64), info["records"]);
    let ids: Vec<Id> = cards.iter().map(|(id, _)| Id::parse(id).expect("an id")).collect();
    assert!(ids.is_sorted_by(|one, next| one < next), "cards do not ascend");
    let mut table = Table::new(schema.clone());
    for (id, (_, values)) in ids.iter().zip(&cards) {
        table.insert(id, schema.pack(values).expect("values in range"));
    }
    assert_eq!(info["digest"], Value::BulkString(format!("{:032x}", table.digest()).into()));
    for some in cards.chunks(500) {
        let get = [b"CARD.MGET", key.as_bytes()].into_iter().chain(some.iter().map(|(id, _)| id.as_slice()));
        let found: Vec<Option<Vec<u128>>> = ask(db, get);
        assert!(found.into_iter().eq(some.iter().map(|(_, values)| Some(values.clone()))), "a card is not found");
    }
}

/// Removes and adds cards here and there, in the table and in what waits for it.
fn write(db: &mut Connection, key: &str, random: &mut Rng) {
    let cards = cards(db, key);
    for _ in 0..5 {
        let Some((id, values)) = random.choice(&cards) else { return };
        let values: Vec<String> = values.iter().map(u128::to_string).collect();
        let set = [b"CARD.SET", key.as_bytes(), id].into_iter().chain(values.iter().map(String::as_bytes));
        let _: i64 = ask(db, set);
        let _: i64 = ask(db, [b"CARD.DEL", key.as_bytes(), id]);
    }
}

#[test]
fn a_whole_patch_makes_what_the_changes_make() {
    let server = server();
    let db = &mut server.connect();
    let tables = tables();
    make(db, &tables);
    for (at, (table, pieces)) in tables.iter().enumerate() {
        let key = at.to_string();
        begin(db, &key);
        pieces.iter().for_each(|piece| stage(db, &key, piece).expect("it is taken"));
        assert!(cards(db, &key) == cards_of(table), "nothing is seen of it before it is committed");
        assert!(has_patch(db, &key));
        let () = ask(db, ["CARD.COMMIT", &key, &key, "VERSION", "6"]);
        check(db, &key);
        assert!(cards(db, &key) != cards_of(table) && !has_patch(db, &key));
    }
}

#[test]
fn a_mutated_patch_is_refused_or_leaves_a_sound_table() {
    let mut server = server();
    let pid = server.pid();
    let db = &mut server.connect();
    let tables = tables();
    let all: Vec<Vec<u8>> = tables.iter().flat_map(|(_, pieces)| pieces.clone()).collect();
    let random = &mut Rng::with_seed(2);
    let (mut refused, mut committed) = (0, 0);
    make(db, &tables);
    for _ in 0..PATCHES {
        let at = random.usize(..tables.len());
        let key = at.to_string();
        let pieces = &tables[at].1;
        begin(db, &key);
        let whole = pieces[..random.usize(..pieces.len())].to_vec();
        whole.iter().for_each(|piece| stage(db, &key, piece).expect("it is taken"));
        let piece = mutated(random.choice(&all).expect("pieces"), &all, random);
        if piece.is_empty() {
            continue;
        }
        match stage(db, &key, &piece) {
            Err(error) => {
                let told = error.detail().expect("a reason");
                assert!(told.starts_with("corrupt table: "), "{told}");
                refused += 1;
                let () = ask(db, ["CARD.STAGE", &key, "DISCARD"]);
                if refused % 50 == 0 {
                    assert!(cards(db, &key) == cards_of(&tables[at].0), "what was refused has changed the table");
                }
            }
            Ok(()) => {
                if committed % 2 == 0 {
                    write(db, &key, random);
                }
                let () = ask(db, ["CARD.COMMIT", &key, &key]);
                check(db, &key);
                write(db, &key, random);
                check(db, &key);
                committed += 1;
                let () = ask(db, ["FLUSHALL"]);
                make(db, &tables);
            }
        }
    }
    println!("{refused} patches refused, {committed} committed");
    assert!(refused > PATCHES / 2 && committed > 50, "mutations are too mild or too harsh");
    assert_unharmed(&mut server, pid);
}

#[test]
fn every_part_of_a_patch_is_refused_or_a_patch() {
    let mut server = server();
    let pid = server.pid();
    let db = &mut server.connect();
    let tables = tables();
    make(db, &tables);
    for (at, (table, pieces)) in tables.iter().enumerate() {
        let key = at.to_string();
        let piece = &pieces[0];
        for cut in (1..piece.len().min(300)).chain((300..piece.len()).step_by(97)) {
            begin(db, &key);
            if stage(db, &key, &piece[..cut]).is_ok() {
                // A piece of several spans may be cut between two of them, which is a patch of fewer.
                let () = ask(db, ["CARD.STAGE", &key, "DISCARD"]);
            }
            begin(db, &key);
            assert!(stage(db, &key, &piece[cut..]).is_err() || cut > 4, "{cut}");
        }
        assert!(cards(db, &key) == cards_of(table), "the table is another");
    }
    assert_unharmed(&mut server, pid);
}

#[test]
fn garbage_is_refused_and_what_was_staged_before_stays() {
    let mut server = server();
    let pid = server.pid();
    let db = &mut server.connect();
    let tables = tables();
    make(db, &tables);
    let random = &mut Rng::with_seed(3);
    let (table, pieces) = &tables[0];
    begin(db, "0");
    stage(db, "0", &pieces[0]).expect("it is taken");
    let staged: Vec<u8> = ask(db, ["DUMP", "0"]);
    for _ in 0..2_000 {
        let len = random.usize(1..200);
        let garbage: Vec<u8> =
            (0..len).map(|_| *random.choice(&[0, 1, 2, 20, 255, random.clone().u8(..)]).expect("a byte")).collect();
        let error = stage(db, "0", &garbage).expect_err("garbage is refused");
        assert!(error.detail().is_some_and(|told| told.starts_with("corrupt table: ")), "{error}");
    }
    // What does not belong behind it, nor to this table.
    for piece in [&pieces[0], &tables[3].1[0]] {
        assert!(stage(db, "0", piece).is_err());
    }
    let now: Vec<u8> = ask(db, ["DUMP", "0"]);
    assert!(staged == now, "what was refused has left something");
    pieces[1..].iter().for_each(|piece| stage(db, "0", piece).expect("it is taken"));
    let () = ask(db, ["CARD.COMMIT", "0", "0"]);
    check(db, "0");
    assert!(cards(db, "0") != cards_of(table));
    assert_unharmed(&mut server, pid);
}

#[test]
fn a_patch_needs_a_table_that_is_ready_and_has_begun() {
    let server = server();
    let db = &mut server.connect();
    let tables = tables();
    make(db, &tables);
    let piece = &tables[0].1[0];
    let patch = |key: &str, piece: &[u8]| [b"CARD.STAGE".to_vec(), key.into(), b"PATCH".to_vec(), piece.to_vec()];
    const NOT_BEGUN: &str = "ERR no patch of the table has been begun";
    const NOT_READY: &str = "ERR the table is not ready, so there is nothing to change";
    assert_eq!(refused(db, patch("0", piece)), NOT_BEGUN);
    assert_eq!(refused(db, patch("none", b"")), "ERR no such table");
    assert_eq!(refused(db, patch("none", piece)), "ERR no such table");
    let () = ask(db, ["CARD.CREATE", "created"]);
    let () = ask(db, [b"CARD.STAGE".as_slice(), b"staged", b"BEGIN", &tables[0].0.header_bytes()]);
    for key in ["created", "staged"] {
        assert_eq!(refused(db, patch(key, b"")), NOT_READY, "{key}");
        assert_eq!(refused(db, patch(key, piece)), NOT_BEGUN, "{key}");
    }
    let () = ask(db, ["SET", "text", "x"]);
    for command in [&["CARD.STAGE", "text", "PATCH", ""][..], &["CARD.STAGE", "text", "DISCARD"]] {
        assert_eq!(refused(db, command), "WRONGTYPE Operation against a key holding the wrong kind of value");
    }
    for key in ["none", "0", "created", "staged"] {
        let () = ask(db, ["CARD.STAGE", key, "DISCARD"]);
    }
    assert_eq!(ask::<i64, _>(db, ["EXISTS", "none"]), 0);
    // A patch is committed in its place only.
    begin(db, "0");
    assert_eq!(refused(db, ["CARD.COMMIT", "0", "1"]), "ERR the key holds a table that is not staged");
    assert!(has_patch(db, "0"));
    for wrong in [&["DISCARD", "x"][..], &["PATCH"], &["PATCH", "", ""], &["PATCHES", ""]] {
        let error = refused(db, ["CARD.STAGE", "0"].iter().chain(wrong));
        assert_eq!(
            error, "ERR syntax error, expected BEGIN header, FRAMES frames, PATCH patch, or DISCARD",
            "{wrong:?}"
        );
    }
    let () = ask(db, ["CARD.COMMIT", "0", "0"]);
    assert!(cards(db, "0") == cards_of(&tables[0].0), "an empty patch changes nothing");
}

#[test]
fn a_mutated_dump_of_a_table_with_a_patch_is_refused_or_restores_a_sound_table() {
    let mut server = server();
    let pid = server.pid();
    let db = &mut server.connect();
    let () = ask(db, ["DEBUG", "SET-SKIP-CHECKSUM-VALIDATION", "1"]);
    let tables = tables();
    make(db, &tables);
    let mut dumps = Vec::new();
    // Where the patch is: behind what a dump without has, but for its flag and the end.
    let mut starts = Vec::new();
    for (at, (_, pieces)) in tables.iter().enumerate() {
        let key = at.to_string();
        let without: Vec<u8> = ask(db, ["DUMP", &key]);
        begin(db, &key);
        pieces.iter().for_each(|piece| stage(db, &key, piece).expect("it is taken"));
        dumps.push(ask::<Vec<u8>, _>(db, ["DUMP", &key]));
        starts.push(without.len() - TRAILER_BYTES - 2);
    }
    let () = ask(db, ["FLUSHALL"]);
    let random = &mut Rng::with_seed(4);
    let (mut refused, mut accepted) = (0, 0);
    for _ in 0..DUMPS / AT_ONCE {
        let mut restore = redis::pipe();
        for key in 0..AT_ONCE {
            let at = random.usize(..dumps.len());
            let (value, trailer) = dumps[at].split_at(dumps[at].len() - TRAILER_BYTES);
            let (kept, patch) = value.split_at(starts[at]);
            restore.cmd("RESTORE").arg(key).arg(0).arg([kept, &mutated(patch, &dumps, random), trailer].concat());
        }
        let replies: Vec<RedisResult<()>> = restore.ignore_errors().query(db).expect("the server lives");
        for (key, reply) in replies.into_iter().enumerate() {
            let key = key.to_string();
            match reply {
                Ok(()) => {
                    if random.u8(..8) == 0 {
                        check(db, &key);
                        if has_patch(db, &key) {
                            write(db, &key, random);
                            let () = ask(db, ["CARD.COMMIT", &key, &key]);
                        }
                        check(db, &key);
                    }
                    accepted += 1;
                }
                Err(error) => {
                    assert_eq!(error.detail(), Some("Bad data format"));
                    refused += 1;
                }
            }
        }
        let () = ask(db, ["FLUSHALL"]);
    }
    println!("{refused} dumps refused, {accepted} accepted");
    assert!(refused > DUMPS / 2 && accepted > 50, "mutations are too mild or too harsh");
    assert_unharmed(&mut server, pid);
}

fn mutated(bytes: &[u8], others: &[Vec<u8>], random: &mut Rng) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..random.usize(1..=3) {
        mutate(&mut bytes, others, random);
    }
    bytes
}

fn mutate(bytes: &mut Vec<u8>, others: &[Vec<u8>], random: &mut Rng) {
    const RUN: usize = 8;
    if bytes.len() <= 2 * RUN {
        return bytes.push(random.u8(..));
    }
    // The bounds and counts stand at the beginning: half of all mutations go there.
    let most = if random.bool() { 64.min(bytes.len()) } else { bytes.len() };
    let at = random.usize(..most);
    match random.u8(..8) {
        0..3 => bytes[at] ^= 1 << random.u8(..8),
        3 => bytes[at] = *random.choice(&[0, 1, b'0', b'9', 0x7f, 0x80, 0xff]).expect("a byte"),
        4 => bytes.truncate(at),
        5 => {
            let (one, other) = (random.usize(..bytes.len() - RUN), random.usize(..bytes.len() - RUN));
            (0..RUN).for_each(|byte| bytes.swap(one + byte, other + byte));
        }
        6 => drop(bytes.drain(at..(at + random.usize(1..=RUN)).min(bytes.len()))),
        _ => {
            let other = random.choice(others).expect("others");
            let from = random.usize(..other.len());
            let to = (from + random.usize(1..=64)).min(other.len());
            bytes.splice(at..(at + random.usize(..64)).min(bytes.len()), other[from..to].iter().copied());
        }
    }
}
