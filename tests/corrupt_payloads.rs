//! Bytes from outside that are not what they should be, in RESTORE and CARD.STAGE: refused or harmless, never a crash or
//! a table that is wrong.

mod common;

use std::collections::BTreeMap;

use card_table::{Decoder, Field, Id, Schema, Table};
use common::kinds::{Card, cards, cards_of};
use common::{Server, ask, refused, try_ask};
use fastrand::Rng;
use redis::{Connection, RedisResult, Value};

const PAYLOADS: usize = 20_000;
const PIECES: usize = 4_000;

/// How many commands are sent before their replies are read.
const AT_ONCE: usize = 200;

/// After a dumped value: the RDB version, which is kept, and a checksum, which is not looked at.
const TRAILER_BYTES: usize = 10;

#[test]
fn a_mutated_dump_is_refused_or_restores_a_sound_table() {
    let mut server = Server::with(&["--enable-debug-command", "yes", "--loglevel", "warning"]);
    let pid = server.pid();
    let db = &mut server.connect();
    let () = ask(db, ["DEBUG", "SET-SKIP-CHECKSUM-VALIDATION", "1"]);
    make_tables(db);
    let keys: Vec<String> = ask(db, ["KEYS", "*"]);
    let dumps: Vec<Vec<u8>> = keys.iter().map(|key| ask(db, ["DUMP", key])).collect();
    let () = ask(db, ["FLUSHALL"]);

    let random = &mut Rng::with_seed(1);
    let (mut refused, mut accepted) = (0, 0);
    for _ in 0..PAYLOADS / AT_ONCE {
        let mut restore = redis::pipe();
        for key in 0..AT_ONCE {
            let dump = random.choice(&dumps).expect("dumps");
            restore.cmd("RESTORE").arg(key).arg(0).arg(mutated_dump(dump, &dumps, random));
        }
        let replies: Vec<RedisResult<()>> = restore.ignore_errors().query(db).expect("the server lives");
        for (key, reply) in replies.into_iter().enumerate() {
            match reply {
                Ok(()) => {
                    check(db, &key.to_string());
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
    println!("{refused} payloads refused, {accepted} accepted");
    assert_eq!(refused + accepted, PAYLOADS);
    assert!(refused > PAYLOADS / 2 && accepted > 100, "mutations are too mild or too harsh");
    assert_unharmed(&mut server, pid);
}

#[test]
fn a_mutated_header_begins_a_table_of_a_valid_schema_or_none() {
    let mut server = Server::with(&["--loglevel", "warning"]);
    let pid = server.pid();
    let db = &mut server.connect();
    let headers: Vec<Vec<u8>> = tables().iter().map(Table::header_bytes).collect();
    let random = &mut Rng::with_seed(2);
    let mut begun = 0;
    for _ in 0..PIECES {
        let header = mutated(random.choice(&headers).expect("headers"), &headers, random);
        let expected = Decoder::new(&header);
        match try_ask::<(), _>(db, [b"CARD.STAGE".as_slice(), b"t", b"BEGIN", &header]) {
            Ok(()) => {
                assert!(expected.is_ok(), "{header:?} was accepted");
                let info: BTreeMap<String, Value> = ask(db, ["CARD.INFO", "t"]);
                assert_eq!((&info["records"], &info["ready"]), (&Value::Int(0), &Value::Int(0)));
                begun += 1;
            }
            Err(error) => assert!(expected.is_err(), "{header:?} was refused: {error}"),
        }
    }
    println!("{begun} of {PIECES} headers accepted");
    assert!(begun > 100 && begun < PIECES, "mutations are too mild or too harsh");
    assert_unharmed(&mut server, pid);
}

#[test]
fn mutated_frames_are_never_committed_under_the_header_of_others() {
    let mut server = Server::with(&["--loglevel", "warning"]);
    let pid = server.pid();
    let db = &mut server.connect();
    let tables = tables();
    let frames: Vec<Vec<u8>> = tables.iter().map(frames).collect();
    let random = &mut Rng::with_seed(3);
    let mut committed = 0;
    for _ in 0..PIECES {
        let at = random.usize(..tables.len());
        let piece = mutated(&frames[at], &frames, random);
        let () = ask(db, [b"CARD.STAGE".as_slice(), b"t", b"BEGIN", &tables[at].header_bytes()]);
        let staged = try_ask::<(), _>(db, [b"CARD.STAGE".as_slice(), b"t", b"FRAMES", &piece]);
        match try_ask::<(), _>(db, ["CARD.COMMIT", "t", "t"]) {
            // A mutation that means nothing.
            Ok(()) => {
                assert!(staged.is_ok());
                assert!(check(db, "t") == cards_of(&tables[at]), "a table was committed that is not the header's");
                committed += 1;
            }
            // What was refused has left nothing, and what is staged can be continued only by what belongs there.
            Err(_) if staged.is_err() => {
                let () = ask(db, [b"CARD.STAGE".as_slice(), b"t", b"FRAMES", &frames[at]]);
                let () = ask(db, ["CARD.COMMIT", "t", "t"]);
            }
            Err(error) => {
                let told = error.detail().unwrap();
                assert!(
                    ["corrupt table: ", "the table is incomplete: "].iter().any(|known| told.starts_with(known)),
                    "{told}"
                );
            }
        }
        let () = ask(db, ["FLUSHALL"]);
    }
    println!("{committed} of {PIECES} pieces committed");
    assert!(committed < PIECES / 10, "mutations are too mild");
    assert_unharmed(&mut server, pid);
}

#[test]
fn mutated_frames_under_a_header_of_their_own_make_a_sound_table_or_none() {
    let mut server = Server::with(&["--loglevel", "warning"]);
    let pid = server.pid();
    let db = &mut server.connect();
    let tables = tables();
    let frames: Vec<Vec<u8>> = tables.iter().map(frames).collect();
    let random = &mut Rng::with_seed(4);
    let mut committed = 0;
    for _ in 0..PIECES {
        let at = random.usize(..tables.len());
        let piece = mutated(&frames[at], &frames, random);
        let () = ask(db, [b"CARD.STAGE".as_slice(), b"t", b"BEGIN", &tables[at].header_bytes()]);
        if try_ask::<(), _>(db, [b"CARD.STAGE".as_slice(), b"t", b"FRAMES", &piece]).is_err() {
            continue;
        }
        // Whoever can compute a digest can make a header that fits: then only the checks of every record are left.
        let mut decoder = Decoder::new(&tables[at].header_bytes()).expect("a header");
        decoder.frames(&piece).expect("what the server has taken");
        let header = with_count_and_digest(tables[at].header_bytes(), decoder.table());
        let () = ask(db, [b"CARD.STAGE".as_slice(), b"t", b"BEGIN", &header]);
        let () = ask(db, [b"CARD.STAGE".as_slice(), b"t", b"FRAMES", &piece]);
        let () = ask(db, ["CARD.COMMIT", "t", "t"]);
        check(db, "t");
        let _: i64 = ask(db, ["DEL", "t"]);
        committed += 1;
    }
    println!("{committed} of {PIECES} pieces committed");
    assert!(committed > 100 && committed < PIECES, "mutations are too mild or too harsh");
    assert_unharmed(&mut server, pid);
}

#[test]
fn frames_out_of_order_or_twice_are_refused_and_leave_nothing() {
    let server = Server::start();
    let db = &mut server.connect();
    for table in tables() {
        let whole: Vec<Vec<u8>> = table.frames(1).collect();
        let [first, second, ..] = whole.as_slice() else { continue };
        let () = ask(db, [b"CARD.STAGE".as_slice(), b"t", b"BEGIN", &table.header_bytes()]);
        let mut stage = |frames: &[u8]| {
            let reply = try_ask::<(), _>(db, [b"CARD.STAGE".as_slice(), b"t", b"FRAMES", frames]);
            reply.map_err(|error| error.detail().unwrap_or_default().to_owned())
        };
        let out_of_order = Err("corrupt table: it does not hold that classes and blocks ascend".to_owned());
        assert_eq!(stage(&[second.as_slice(), first].concat()), out_of_order);
        assert_eq!(stage(&[first.as_slice(), first].concat()), out_of_order);
        assert_eq!(stage(first), Ok(()));
        assert_eq!(stage(first), out_of_order);
        whole[1..].iter().for_each(|frame| assert_eq!(stage(frame), Ok(())));
        assert_eq!(stage(second), out_of_order);
        let () = ask(db, ["CARD.COMMIT", "t", "t"]);
        assert!(check(db, "t") == cards_of(&table), "the table is another");
        let _: i64 = ask(db, ["DEL", "t"]);
    }
}

#[test]
fn a_newer_encoding_of_a_dump_is_refused_with_a_clear_line() {
    let server = Server::with(&["--enable-debug-command", "yes"]);
    let db = &mut server.connect();
    let () = ask(db, ["DEBUG", "SET-SKIP-CHECKSUM-VALIDATION", "1"]);
    let _: i64 = ask(db, ["CARD.SET", "t", "44015186100181001473", "7", "1"]);
    let dump: Vec<u8> = ask(db, ["DUMP", "t"]);
    // The type's 64-bit number, of which the lowest 10 bits are the encoding's version, follows two bytes.
    for version in [0u16, 2, 3, 1023] {
        let mut newer = dump.clone();
        newer[8] |= (version >> 8) as u8;
        newer[9] = version as u8;
        assert_eq!(refused(db, [b"RESTORE".as_slice(), b"u", b"0", &newer]), "ERR Bad data format");
        let line = format!(
            "a card table cannot be read: it has version {version} of the encoding, and this module reads version 1"
        );
        assert!(server.log().contains(&line), "{}", server.log());
    }
}

/// Everything that must hold of a table that has been accepted; returns its cards.
#[track_caller]
fn check(db: &mut Connection, key: &str) -> Vec<Card> {
    let info: BTreeMap<String, Value> = ask(db, ["CARD.INFO", key, "DIGEST"]);
    let dump: Vec<u8> = ask(db, ["DUMP", key]);
    let () = ask(db, [b"RESTORE".as_slice(), b"again", b"0", &dump, b"REPLACE"]);
    let again: BTreeMap<String, Value> = ask(db, ["CARD.INFO", "again", "DIGEST"]);
    assert_eq!(again["digest"], info["digest"]);
    // Of a staged table, that is all that can be asked.
    let Ok(len) = try_ask::<usize, _>(db, ["CARD.LEN", key]) else {
        assert_eq!(info["ready"], Value::Int(0));
        return Vec::new();
    };

    let schema: Vec<(String, u128, u128)> = redis::from_redis_value(info["schema"].clone()).expect("a schema");
    let cards = cards(db, key);
    assert_eq!(cards.len(), len);
    let ids: Vec<Id> = cards.iter().map(|(id, _)| Id::parse(id).expect("an id")).collect();
    assert!(ids.is_sorted_by(|one, next| one < next), "cards do not ascend");
    for (id, values) in &cards {
        let mut fields = schema.iter().zip(values);
        assert!(fields.all(|((_, min, max), value)| (min..=max).contains(&value)), "{id:?} has {values:?}");
    }
    if let ([_, ..], mut get) = (cards.as_slice(), redis::cmd("CARD.MGET")) {
        get.arg(key);
        cards.iter().for_each(|(id, _)| {
            get.arg(id);
        });
        let found: Vec<Option<Vec<u128>>> = get.query(db).expect("CARD.MGET");
        assert!(found.into_iter().eq(cards.iter().map(|(_, values)| Some(values.clone()))), "a card is not found");
        let (id, values) = &cards[cards.len() / 2];
        assert_eq!(ask::<Vec<u128>, _>(db, [b"CARD.GET", key.as_bytes(), id]), *values);
    }
    // The digest is that of these cards, and not only the one that somebody has claimed.
    let fields = schema.into_iter().map(|(name, min, max)| Field::new(name, min, max)).collect();
    let schema = Schema::new(fields).expect("a schema");
    let mut table = Table::new(schema.clone());
    for (id, (_, values)) in ids.iter().zip(&cards) {
        table.insert(id, schema.pack(values).expect("values in range"));
    }
    assert_eq!(info["digest"], Value::BulkString(format!("{:032x}", table.digest()).into()));
    cards
}

fn assert_unharmed(server: &mut Server, pid: u32) {
    assert!(server.is_alive());
    let info: String = ask(&mut server.connect(), ["INFO", "server"]);
    assert!(info.contains(&format!("process_id:{pid}\r\n")), "the server is another: {info}");
    let log = server.log();
    for trace in ["a bug in redis-card", "CRASHED", "ASSERTION FAILED", "panicked"] {
        assert!(!log.contains(trace), "{}", log.lines().find(|line| line.contains(trace)).unwrap_or_default());
    }
}

/// Tables with ids and blocks of every kind.
fn tables() -> Vec<Table> {
    let digits = |count, seed| {
        let random = &mut Rng::with_seed(seed);
        let ids = (0..count).map(|_| format!("{}{:016}", 1101 + 100 * random.u64(..31), random.u64(..10u64.pow(16))));
        ids.map(String::into_bytes).collect::<Vec<_>>()
    };
    let dense = (0..1_000).filter(|number| number % 7 != 0).map(|number| format!("4401{number:016}").into_bytes());
    let cookies = (0..200).map(|number| format!("cookie-{}-{number}", number * number % 97).into_bytes());
    let classes = ["7", "007", "beef", "BEEF", "123e4567-e89b-12d3-a456-426614174000", "0x7", "\u{e9}"];
    let wide = vec![Field::new("level", 3, 6), Field::new("serial", 1, 1 << 100)];
    let constant = vec![Field::new("always", 5, 5)];
    [
        (Schema::default(), digits(1_500, 1)),
        (Schema::default(), digits(3, 2)),
        (Schema::default(), dense.collect()),
        (Schema::default(), cookies.collect()),
        (Schema::new(wide).expect("a schema"), classes.map(|id| id.as_bytes().to_vec()).to_vec()),
        (Schema::new(constant).expect("a schema"), digits(20, 3)),
    ]
    .map(|(schema, ids)| {
        let mut table = Table::new(schema);
        for (at, id) in ids.iter().enumerate() {
            // Far apart, so that wide values are wide.
            let symbol = at as u128 * 0x1234_5678_9abc_def0_1234_5679 % table.schema().symbols();
            table.insert(&Id::parse(id).expect("an id"), symbol);
        }
        table
    })
    .into()
}

fn frames(table: &Table) -> Vec<u8> {
    table.frames(1 << 20).flatten().collect()
}

/// Those tables committed, with and without a source, one that is half there, one that is empty and one that is not ready.
fn make_tables(db: &mut Connection) {
    let begin = |db: &mut Connection, key: &str, table: &Table| {
        let () = ask(db, [b"CARD.STAGE", key.as_bytes(), b"BEGIN", &table.header_bytes()]);
    };
    for (at, table) in tables().iter().enumerate() {
        let key = format!("table {at}");
        begin(db, &key, table);
        let () = ask(db, [b"CARD.STAGE", key.as_bytes(), b"FRAMES", &frames(table)]);
        let options = ["VERSION", "201708031", "SOURCE", "blacklist_201708031.txt", "ROWS", "1500"];
        let () = ask(db, ["CARD.COMMIT", &key, &key].iter().chain(&options[..if at % 2 == 0 { 6 } else { 0 }]));
    }
    let table = &tables()[0];
    begin(db, "half", table);
    let piece = table.frames(6_000).next().expect("a piece");
    let () = ask(db, [b"CARD.STAGE".as_slice(), b"half", b"FRAMES", &piece]);
    let () = ask(db, ["CARD.CREATE", "created"]);
    let () = ask(db, [b"CARD.STAGE".as_slice(), b"empty", b"BEGIN", &Table::new(Schema::default()).header_bytes()]);
    let () = ask(db, ["CARD.COMMIT", "empty", "empty"]);
}

/// A dump with its inside mutated. Its first byte stays: it says that a module's value follows, and other types are Redis's
/// own matter.
fn mutated_dump(dump: &[u8], others: &[Vec<u8>], random: &mut Rng) -> Vec<u8> {
    let (value, trailer) = dump.split_at(dump.len() - TRAILER_BYTES);
    [&value[..1], &mutated(&value[1..], others, random), trailer].concat()
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
    let (at, random_byte) = (random.usize(..bytes.len()), random.u8(..));
    match random.u8(..8) {
        0..3 => bytes[at] ^= 1 << random.u8(..8),
        3 => bytes[at] = *random.choice(&[0, 1, 0x7f, 0x80, 0xff, random_byte]).expect("a byte"),
        4 => bytes.truncate(at),
        5 => {
            let (one, other) = (random.usize(..bytes.len() - RUN), random.usize(..bytes.len() - RUN));
            (0..RUN).for_each(|byte| bytes.swap(one + byte, other + byte));
        }
        6 => drop(bytes.drain(at..(at + random.usize(1..=RUN)).min(bytes.len()))),
        // A splice: some of this, then some of another or of this again.
        _ => {
            let other =
                random.choice(others).filter(|other| !other.is_empty()).cloned().unwrap_or_else(|| bytes.clone());
            let from = random.usize(..other.len());
            let to = (from + random.usize(1..=64)).min(other.len());
            bytes.splice(at..(at + random.usize(..64)).min(bytes.len()), other[from..to].iter().copied());
        }
    }
}

fn with_count_and_digest(mut header: Vec<u8>, table: &Table) -> Vec<u8> {
    header.truncate(header.len() - 24);
    header.extend(table.len().to_le_bytes());
    header.extend(table.digest().to_le_bytes());
    header
}
