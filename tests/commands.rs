//! What each command does, and how it refuses what it cannot do.

mod common;

use std::collections::{BTreeSet, HashMap};
use std::fs;

use card_table::{Id, Schema, Table};
use common::{Server, ask, refused};
use redis::{Connection, Value};

const WRONGTYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const STAGED: &str = "ERR the table is staged and not committed yet";
const NOT_STAGED: &str = "ERR the key holds a table that is not staged";

/// Every command, so that none is forgotten where all must do the same. The key is `t`.
const COMMANDS: [&str; 14] = [
    "card.create t",
    "card.set t 1 7 1",
    "card.mset t 1 7 1",
    "card.get t 1",
    "card.mget t 1",
    "card.del t 1",
    "card.len t",
    "card.scan t 0",
    "card.info t",
    "card.json t 1",
    "card.query t cardid=1&cmdtype=blacklistquery",
    "card.stage t FRAMES x",
    "card.commit t t",
    "card.load t cards.tsv",
];

/// A server that has something to load.
fn server_with_a_file() -> Server {
    let server = Server::with(&["--card.load-dir", "."]);
    fs::write(server.directory().join("cards.tsv"), "cardId\ttype\tstatus\n1\t7\t1\n").expect("it can be written");
    server
}

/// A command of words without spaces.
#[track_caller]
fn ask_line<T: redis::FromRedisValue>(db: &mut Connection, line: &str) -> T {
    ask(db, line.split(' '))
}

#[track_caller]
fn refused_line(db: &mut Connection, line: &str) -> String {
    refused(db, line.split(' '))
}

fn card(db: &mut Connection, key: &str, id: impl AsRef<[u8]>) -> Option<Vec<u64>> {
    ask(db, [b"CARD.GET", key.as_bytes(), id.as_ref()])
}

fn info(db: &mut Connection, key: &str) -> HashMap<String, Value> {
    ask(db, ["CARD.INFO", key])
}

fn digest(db: &mut Connection, key: &str) -> String {
    let mut info: HashMap<String, Value> = ask(db, ["CARD.INFO", key, "DIGEST"]);
    redis::from_redis_value(info.remove("digest").expect("it was asked for")).expect("text")
}

fn text(text: &str) -> Value {
    Value::BulkString(text.into())
}

/// Cards of 20 digits over several blocks; `0` is among them if `first` is 0.
fn numbered(first: u64, len: u64) -> Table {
    let mut table = Table::new(Schema::default());
    for number in first..first + len {
        let symbol = table.schema().pack(&[u128::from(number) % 11, 1]).unwrap();
        // Spread out, so that a block has few of them.
        let id = format!("{:020}", number * 1_000_000_007);
        table.insert(&Id::parse(id.as_bytes()).unwrap(), symbol);
    }
    table
}

fn begin(db: &mut Connection, key: &str, table: &Table) {
    ask(db, [b"CARD.STAGE".as_slice(), key.as_bytes(), b"BEGIN", &table.header_bytes()])
}

fn stage(db: &mut Connection, key: &str, table: &Table) {
    begin(db, key, table);
    table.frames(8192).for_each(|frames| ask(db, [b"CARD.STAGE".as_slice(), key.as_bytes(), b"FRAMES", &frames]));
}

#[test]
fn a_card_is_set_and_got() {
    let server = Server::start();
    let db = &mut server.connect();

    assert_eq!(ask::<i64, _>(db, ["CARD.SET", "t", "44015186100181001473", "7", "1"]), 1);
    assert_eq!(ask::<Vec<u64>, _>(db, ["CARD.GET", "t", "44015186100181001473"]), [7, 1]);
    assert_eq!(ask::<i64, _>(db, ["CARD.SET", "t", "44015186100181001473", "7", "2"]), 0);
    assert_eq!(ask::<Vec<u64>, _>(db, ["CARD.GET", "t", "44015186100181001473"]), [7, 2]);
    assert_eq!(ask::<i64, _>(db, ["CARD.SET", "t", "44015186100181001473", "7", "2"]), 0);
    assert_eq!(ask::<Option<Vec<u64>>, _>(db, ["CARD.GET", "t", "4"]), None);
    assert_eq!(ask::<Option<Vec<u64>>, _>(db, ["CARD.GET", "no table", "4"]), None);
    assert_eq!(refused(db, ["CARD.SET", "t", "1", "11", "1"]), "ERR type must be between 0 and 10, got '11'");
}

#[test]
fn many_cards_are_got_in_the_order_they_are_asked_for() {
    let server = Server::start();
    let db = &mut server.connect();
    assert_eq!(ask_line::<i64>(db, "CARD.MSET t 1 1 1 beef 2 2 x-y 3 1"), 3);
    let cards: Vec<Option<Vec<u64>>> = ask_line(db, "CARD.MGET t x-y 9 1 beef 1");
    assert_eq!(cards, [Some(vec![3, 1]), None, Some(vec![1, 1]), Some(vec![2, 2]), Some(vec![1, 1])]);
    assert_eq!(ask_line::<Vec<Option<Vec<u64>>>>(db, "CARD.MGET none 1 2"), [None, None]);
}

#[test]
fn many_cards_are_set_all_or_none() {
    let server = Server::start();
    let db = &mut server.connect();
    assert_eq!(ask_line::<i64>(db, "CARD.MSET t 1 1 1 2 2 2"), 2);
    assert_eq!(ask_line::<i64>(db, "CARD.MSET t 2 2 2 3 3 1 1 5 1 3 4 1"), 1, "only 3 is new, though it is set twice");
    assert_eq!(card(db, "t", "3"), Some(vec![4, 1]), "the later one counts");

    let before = digest(db, "t");
    let last_is_bad = "CARD.MSET t 1 9 2 4 4 1 5 11 1";
    assert_eq!(refused_line(db, last_is_bad), "ERR type must be between 0 and 10, got '11'");
    assert_eq!(refused_line(db, "CARD.MSET t 1 9 2 4 4 1 5"), "ERR expected 2 values, got 0");
    assert_eq!(refused_line(db, "CARD.MSET t 1 9 2 4 4"), "ERR expected 2 values, got 1");
    assert_eq!(refused_line(db, "CARD.MSET t 1 9 2  4 1"), "ERR a card id cannot be empty");
    assert_eq!(digest(db, "t"), before);

    assert_eq!(refused_line(db, &last_is_bad.replace('t', "none")), "ERR type must be between 0 and 10, got '11'");
    assert_eq!(ask_line::<i64>(db, "EXISTS none"), 0, "no table is made for nothing");
}

#[test]
fn the_number_of_cards_follows_every_change() {
    let server = Server::start();
    let db = &mut server.connect();
    let mut steps = |line: &str, len: i64| {
        ask_line::<Value>(db, line);
        assert_eq!(ask_line::<i64>(db, "CARD.LEN t"), len, "{line}");
    };
    steps("PING", 0);
    steps("CARD.CREATE t", 0);
    steps("CARD.SET t 1 1 1", 1);
    steps("CARD.SET t 1 2 1", 1);
    steps("CARD.MSET t 1 1 1 2 1 1 x 1 1", 3);
    steps("CARD.DEL t 1 9", 2);
    steps("DEL t", 0);
}

#[test]
fn an_emptied_table_stays() {
    let server = Server::start();
    let db = &mut server.connect();
    ask_line::<()>(db, "CARD.CREATE t FIELD colour 0 3");
    ask_line::<()>(db, "CARD.MSET t 1 1 x 2");
    assert_eq!(ask_line::<i64>(db, "CARD.DEL t 1 2 x 1"), 2, "a card is removed once");
    assert_eq!(ask_line::<i64>(db, "CARD.DEL t 1"), 0);
    assert_eq!(ask_line::<i64>(db, "EXISTS t"), 1);
    assert_eq!(card(db, "t", "1"), None);
    assert_eq!(refused_line(db, "CARD.SET t 1 4"), "ERR colour must be between 0 and 3, got '4'", "so does its schema");
    assert_eq!(ask_line::<i64>(db, "DEL t"), 1);
    assert_eq!(ask_line::<i64>(db, "CARD.DEL t 1"), 0);
    assert_eq!(ask_line::<i64>(db, "EXISTS t"), 0);
}

#[test]
fn a_table_is_created_once_with_fields_of_its_own() {
    let server = Server::start();
    let db = &mut server.connect();
    assert_eq!(ask_line::<Value>(db, "CARD.CREATE t field age 18 120 FIELD a_1 0 0"), Value::Okay);
    assert_eq!(ask_line::<i64>(db, "CARD.SET t x 120 0"), 1);
    assert_eq!(card(db, "t", "x"), Some(vec![120, 0]));
    assert_eq!(refused_line(db, "CARD.SET t y 17 0"), "ERR age must be between 18 and 120, got '17'");
    assert_eq!(refused_line(db, "CARD.SET t y 18 1"), "ERR a_1 must be between 0 and 0, got '1'");
    assert_eq!(refused_line(db, "CARD.SET t y 18"), "ERR expected 2 values, got 1");
    assert_eq!(refused_line(db, "CARD.SET t y 18 0 0"), "ERR expected 2 values, got 3");

    assert_eq!(refused_line(db, "CARD.CREATE t"), "ERR the table exists already");
    assert_eq!(card(db, "t", "x"), Some(vec![120, 0]));
    assert_eq!(ask_line::<Value>(db, "CARD.CREATE u"), Value::Okay);
    assert_eq!(ask_line::<i64>(db, "CARD.SET u 1 10 2"), 1, "the default schema");
}

#[test]
fn bad_fields_are_refused() {
    let server = Server::start();
    let db = &mut server.connect();
    let syntax = "ERR syntax error, expected FIELD name min max, where min and max are numbers up to 2^128 - 1";
    let name = "ERR a field's name is a lower-case letter, then letters, digits and underscores, at most 255, got";
    for fields in ["x", "FIELD a 0", "FIELD a 0 1 FIELD", "FIELD a 0 1 FIELDS b 0 1", "FIELD a x 1", "FIELD a 0 -1"] {
        assert_eq!(refused_line(db, &format!("CARD.CREATE t {fields}")), syntax, "{fields}");
    }
    for bounds in ["0 1.5", "0  1", "0 340282366920938463463374607431768211456"] {
        assert_eq!(refused_line(db, &format!("CARD.CREATE t FIELD a {bounds}")), syntax, "{bounds}");
    }
    let refusals = [
        ("FIELD Type 0 1", format!("{name} 'Type'")),
        ("FIELD a 0 1 FIELD a 0 1", "ERR field 'a' is named twice".into()),
        ("FIELD a 2 1", "ERR the range of a is empty: 2 is above 1".into()),
        ("FIELD id 0 1", "ERR a field cannot be named id: that is the card's".into()),
        (
            "FIELD a 0 340282366920938463463374607431768211455",
            "ERR the product of the fields' ranges does not fit 128 bits".into(),
        ),
    ];
    for (fields, refusal) in refusals {
        assert_eq!(refused_line(db, &format!("CARD.CREATE t {fields}")), refusal);
    }
    let fields: String = (0..17).map(|at| format!(" FIELD a{at} 0 1")).collect();
    assert_eq!(refused_line(db, &format!("CARD.CREATE t{fields}")), "ERR a table has 1 to 16 fields, got 17");
    assert_eq!(ask_line::<i64>(db, "EXISTS t"), 0);
}

#[test]
fn the_bounds_of_a_field_have_no_sign() {
    let server = Server::start();
    let db = &mut server.connect();
    let syntax = "ERR syntax error, expected FIELD name min max, where min and max are numbers up to 2^128 - 1";
    // As the values themselves: decimal digits and nothing else.
    assert_eq!(refused_line(db, "CARD.CREATE t FIELD a +0 1"), syntax);
    assert_eq!(refused_line(db, "CARD.CREATE t FIELD a 0 +1"), syntax);
}

#[test]
fn a_value_beyond_63_bits_is_text() {
    const LAST_INTEGER: u128 = i64::MAX as u128;
    const WIDEST: u128 = u128::MAX - 1;
    let server = Server::start();
    let db = &mut server.connect();
    ask_line::<()>(db, &format!("CARD.CREATE t FIELD person 0 {WIDEST}"));
    ask_line::<()>(db, &format!("CARD.MSET t 1 {LAST_INTEGER} 2 {} 3 {WIDEST}", LAST_INTEGER + 1));

    let values = [
        Value::Int(i64::MAX),
        text(&(LAST_INTEGER + 1).to_string()), // 2^63
        text(&WIDEST.to_string()),
    ];
    let cards = values.clone().map(|value| Value::Array(vec![value]));
    assert_eq!(ask_line::<Value>(db, "CARD.MGET t 1 2 3"), Value::Array(cards.to_vec()));
    assert_eq!(ask_line::<Value>(db, "CARD.GET t 2"), cards[1]);
    let rows = ["1", "2", "3"].into_iter().zip(values.clone()).map(|(id, value)| Value::Array(vec![text(id), value]));
    assert_eq!(ask_line::<Vec<Value>>(db, "CARD.SCAN t 0")[1], Value::Array(rows.collect()));
    let schema = Value::Array(vec![Value::Array(vec![text("person"), Value::Int(0), values[2].clone()])]);
    assert_eq!(info(db, "t")["schema"], schema);
    // In JSON, numbers end where most readers would lose digits.
    ask_line::<()>(db, "CARD.MSET t 4 9007199254740991 5 9007199254740992");
    assert_eq!(
        ask_line::<String>(db, "CARD.JSON t 4 5"),
        r#"[{"id":"4","person":9007199254740991},{"id":"5","person":"9007199254740992"}]"#
    );
}

#[test]
fn ids_are_any_bytes_up_to_4096_and_kept_apart() {
    let server = Server::start();
    let db = &mut server.connect();
    let longest = [0xff; 4096];
    let ids: [&[u8]; 12] =
        [b"7", b"07", b"007", b"7 ", b"7\0", b"7\n", b"\0", b"\r\n", b"\xff\xfe", b"a", b"A", &longest];
    for (at, id) in ids.iter().enumerate() {
        let value = (at % 11).to_string();
        assert_eq!(ask::<i64, _>(db, [b"CARD.SET", b"k\0\xff".as_slice(), id, value.as_bytes(), b"1"]), 1, "{id:?}");
    }
    for (at, id) in ids.iter().enumerate() {
        assert_eq!(ask::<Vec<usize>, _>(db, [b"CARD.GET", b"k\0\xff".as_slice(), id]), [at % 11, 1], "{id:?}");
    }
    assert_eq!(ask::<i64, _>(db, [b"CARD.LEN", b"k\0\xff".as_slice()]), 12);
    assert_eq!(ask::<i64, _>(db, [b"CARD.DEL", b"k\0\xff".as_slice(), b"7\0", b"\xff\xfe", b"\xff"]), 2);
    assert_eq!(ask_line::<i64>(db, "CARD.LEN k"), 0, "a key does not end at a NUL");

    for command in ["CARD.GET t", "CARD.MGET t 1", "CARD.DEL t 1", "CARD.JSON t 1", "CARD.SET t"] {
        let with = |id: &[u8]| -> Vec<Vec<u8>> {
            let values = if command == "CARD.SET t" { vec![b"1".to_vec(), b"1".to_vec()] } else { vec![] };
            command.split(' ').map(Into::into).chain([id.to_vec()]).chain(values).collect()
        };
        assert_eq!(refused(db, with(b"")), "ERR a card id cannot be empty", "{command}");
        assert_eq!(refused(db, with(&[b'x'; 4097])), "ERR a card id has at most 4096 bytes, got 4097", "{command}");
    }
}

#[test]
fn values_are_decimal_digits_and_an_error_is_a_line() {
    let server = Server::start();
    let db = &mut server.connect();
    let quoted: [(&[u8], &str); 9] = [
        (b"", ""),
        (b"-1", "-1"),
        (b"+1", "+1"),
        (b" 1", " 1"),
        (b"1.0", "1.0"),
        (b"0x1", "0x1"),
        (b"1\0", r"1\u{0}"),
        (b"\r\n+OK", r"\r\n+OK"),
        (b"\xff", "\u{fffd}"),
    ];
    for (value, shown) in quoted {
        let error = refused(db, [b"CARD.SET".as_slice(), b"t", b"1", value, b"1"]);
        assert_eq!(error, format!("ERR type must be between 0 and 10, got '{shown}'"));
        assert_eq!(ask_line::<String>(db, "ECHO next"), "next", "replies stay in step");
    }
    let error = refused(db, [b"CARD.CREATE".as_slice(), b"t", b"FIELD", b"\0\n\xff", b"0", b"1"]);
    assert!(error.ends_with("got '\\u{0}\\n\u{fffd}'"), "{error}");
    assert_eq!(ask_line::<i64>(db, "EXISTS t"), 0);
}

#[test]
fn every_command_refuses_a_key_of_another_type() {
    let server = server_with_a_file();
    let db = &mut server.connect();
    let known: BTreeSet<String> = ask_line(db, "COMMAND LIST FILTERBY MODULE card");
    let tried: BTreeSet<String> = COMMANDS.iter().map(|line| line.split(' ').next().unwrap().into()).collect();
    assert_eq!(tried, known);

    for other in ["SET t 1", "RPUSH t 1", "HSET t 1 1", "SADD t 1", "ZADD t 1 1", "XADD t * 1 1"] {
        ask_line::<Value>(db, "DEL t");
        ask_line::<Value>(db, other);
        let before: Vec<u8> = ask_line(db, "DUMP t");
        for command in COMMANDS {
            assert_eq!(refused_line(db, command), WRONGTYPE, "{command} after {other}");
        }
        let header = numbered(0, 1).header_bytes();
        assert_eq!(refused(db, [b"CARD.STAGE".as_slice(), b"t", b"BEGIN", &header]), WRONGTYPE);
        stage(db, "s", &numbered(0, 1));
        assert_eq!(refused_line(db, "CARD.COMMIT s t"), WRONGTYPE);
        assert_eq!(ask_line::<Vec<u8>>(db, "DUMP t"), before, "{other} is untouched");
        assert_eq!(refused_line(db, "CARD.GET s 1"), STAGED, "and what was staged is still there");
    }
    ask_line::<Value>(db, "CARD.SET c 1 1 1");
    assert_eq!(refused_line(db, "GET c"), WRONGTYPE);
}

#[test]
fn the_digest_is_that_of_the_cards_however_they_came() {
    let server = Server::start();
    let db = &mut server.connect();
    let cards = numbered(0, 300);
    stage(db, "loaded", &cards);
    ask_line::<()>(db, "CARD.COMMIT loaded loaded");
    for (id, symbol) in cards.iter().collect::<Vec<_>>().into_iter().rev() {
        let values = cards.schema().unpack(symbol).into_iter().map(|value| value.to_string().into_bytes());
        let words = [b"CARD.SET".to_vec(), b"set".to_vec(), id.to_bytes()].into_iter().chain(values);
        ask::<(), _>(db, words);
    }
    assert_eq!(digest(db, "loaded"), format!("{:032x}", cards.digest()));
    assert_eq!(digest(db, "set"), digest(db, "loaded"));

    let id = "00000000000000000000";
    ask::<(), _>(db, ["CARD.SET", "set", id, "0", "2"]);
    assert_ne!(digest(db, "set"), digest(db, "loaded"));
    ask::<(), _>(db, ["CARD.SET", "set", id, "0", "1"]);
    assert_eq!(digest(db, "set"), digest(db, "loaded"));
}

#[test]
fn a_staged_table_is_committed_under_its_own_key() {
    let server = server_with_a_file();
    let db = &mut server.connect();
    let cards = numbered(0, 5000);
    assert!(cards.frames(8192).count() > 2, "it comes in pieces");
    stage(db, "t", &cards);
    for command in COMMANDS {
        let expected = match command.split(' ').next().unwrap() {
            "card.create" => "ERR the table exists already",
            "card.json" => "ERR the table is not ready: nothing has been loaded yet",
            "card.stage" => "ERR corrupt table: it does not hold that a frame is whole",
            "card.query" | "card.info" | "card.commit" => continue,
            _ => STAGED,
        };
        assert_eq!(refused_line(db, command), expected, "{command}");
    }
    assert_eq!(info(db, "t")["ready"], Value::Int(0));

    let options = "AT 1501718400999 VERSION 12 SOURCE cards.tsv ROWS 5001";
    assert_eq!(ask_line::<Value>(db, &format!("CARD.COMMIT t t {options}")), Value::Okay);
    assert_eq!(ask_line::<i64>(db, "CARD.LEN t"), 5000);
    assert_eq!(card(db, "t", format!("{:020}", 4999u64 * 1_000_000_007)), Some(vec![4999 % 11, 1]));
    let info = info(db, "t");
    let told = ["ready", "version", "loaded_at", "source"].map(|name| info[name].clone());
    assert_eq!(told, [Value::Int(1), Value::Int(12), Value::Int(1_501_718_400), text("cards.tsv")]);
}

#[test]
fn a_staged_table_takes_the_place_of_another_at_once() {
    let server = Server::start();
    let db = &mut server.connect();
    ask_line::<()>(db, "CARD.CREATE t FIELD colour 0 3");
    ask_line::<()>(db, "CARD.SET t old 1");
    ask_line::<()>(db, "EXPIRE t 1000");
    stage(db, "s", &numbered(0, 2000));
    assert_eq!(card(db, "t", "old"), Some(vec![1]), "served until the commit");
    assert_eq!(ask_line::<Value>(db, "CARD.COMMIT s t"), Value::Okay);
    assert_eq!(card(db, "t", "old"), None);
    assert_eq!(card(db, "t", format!("{:020}", 1_000_000_007u64)), Some(vec![1, 1]), "with its own schema");
    assert_eq!(ask_line::<i64>(db, "EXISTS s"), 0);
    assert_eq!(ask_line::<i64>(db, "TTL t"), -1, "a new list does not end when the old one would have");

    stage(db, "s", &Table::new(Schema::default()));
    ask_line::<()>(db, "CARD.COMMIT s new");
    assert_eq!(ask_line::<i64>(db, "CARD.LEN new"), 0);
    assert_eq!(info(db, "new")["ready"], Value::Int(1), "an empty list that was loaded");
}

#[test]
fn what_has_not_arrived_whole_is_not_committed() {
    let server = Server::start();
    let db = &mut server.connect();
    let cards = numbered(0, 5000);
    let pieces: Vec<_> = cards.frames(8192).collect();
    let frames = |frames: &[u8]| [b"CARD.STAGE".to_vec(), b"s".to_vec(), b"FRAMES".to_vec(), frames.to_vec()];
    ask_line::<()>(db, "CARD.SET t 1 7 1");

    assert_eq!(refused(db, frames(&pieces[0])), "ERR no table has been begun");
    assert_eq!(refused_line(db, "CARD.COMMIT s t"), "ERR no table has been staged");
    assert_eq!(refused_line(db, "CARD.STAGE s BEGIN x"), "ERR this is not a table");
    assert_eq!(
        refused_line(db, "CARD.STAGE s END x"),
        "ERR syntax error, expected BEGIN header, FRAMES frames, PATCH patch, or DISCARD"
    );
    assert_eq!(ask_line::<i64>(db, "EXISTS s"), 0);

    let incomplete = "ERR the table is incomplete: it has ";
    begin(db, "s", &cards);
    for piece in &pieces {
        assert!(refused_line(db, "CARD.COMMIT s t").starts_with(incomplete));
        assert!(refused_line(db, "CARD.COMMIT s s").starts_with(incomplete));
        // Neither a piece that is cut nor one that has been there already takes anything away.
        let cut = "ERR corrupt table: it does not hold that a frame is whole";
        assert_eq!(refused(db, frames(&piece[..piece.len() - 1])), cut);
        ask::<(), _>(db, frames(piece));
        let again = "ERR corrupt table: it does not hold that classes and blocks ascend";
        assert_eq!(refused(db, frames(piece)), again);
    }
    assert_eq!(card(db, "t", "1"), Some(vec![7, 1]));
    assert_eq!(ask_line::<Value>(db, "CARD.COMMIT s t"), Value::Okay);
    assert_eq!(digest(db, "t"), format!("{:032x}", cards.digest()));
}

#[test]
fn a_table_with_another_digest_than_its_header_says_is_not_committed() {
    let server = Server::start();
    let db = &mut server.connect();
    let mut header = numbered(0, 10).header_bytes();
    *header.last_mut().unwrap() ^= 1;
    ask::<(), _>(db, [b"CARD.STAGE".as_slice(), b"s", b"BEGIN", &header]);
    for frames in numbered(0, 10).frames(8192) {
        ask::<(), _>(db, [b"CARD.STAGE".as_slice(), b"s", b"FRAMES", &frames]);
    }
    let digest = "ERR corrupt table: it does not hold that the digest is the one in the header";
    assert_eq!(refused_line(db, "CARD.COMMIT s t"), digest);
    assert_eq!(ask_line::<i64>(db, "EXISTS t"), 0);
}

#[test]
fn a_served_table_is_neither_begun_nor_added_to_nor_committed() {
    let server = Server::start();
    let db = &mut server.connect();
    let cards = numbered(0, 10);
    let frames = cards.frames(8192).next().unwrap();
    ask_line::<()>(db, "CARD.CREATE created");
    ask_line::<()>(db, "CARD.SET served 1 7 1");
    for key in ["created", "served"] {
        assert_eq!(refused(db, [b"CARD.STAGE".as_slice(), key.as_bytes(), b"FRAMES", &frames]), NOT_STAGED);
        assert_eq!(refused(db, ["CARD.COMMIT", key, key]), NOT_STAGED);
        assert_eq!(refused(db, ["CARD.COMMIT", key, "t"]), NOT_STAGED);
    }
    let begin = [b"CARD.STAGE".as_slice(), b"served", b"BEGIN", &cards.header_bytes()];
    assert_eq!(refused(db, begin), NOT_STAGED);
    assert_eq!(card(db, "served", "1"), Some(vec![7, 1]));

    // One that was only created may be begun: it is empty.
    stage(db, "created", &cards);
    ask_line::<()>(db, "CARD.COMMIT created created");
    assert_eq!(digest(db, "created"), format!("{:032x}", cards.digest()));

    // One that is staged may be begun again: what was there of it is gone.
    stage(db, "s", &numbered(0, 5000));
    stage(db, "s", &cards);
    ask_line::<()>(db, "CARD.COMMIT s s");
    assert_eq!(digest(db, "s"), format!("{:032x}", cards.digest()));
}

#[test]
fn the_options_of_a_commit_are_numbers_but_for_the_source() {
    let server = Server::start();
    let db = &mut server.connect();
    let syntax = "ERR syntax error, expected [AT milliseconds] [VERSION version] [SOURCE source] [ROWS rows]";
    stage(db, "s", &numbered(0, 10));
    for options in
        ["AT", "AT x", "AT -1", "AT 1.5", "AT +1", "SOURCE", "ROWS x", "SOURCE x ROWS -1", "VERSION x", "X 1"]
    {
        assert_eq!(refused_line(db, &format!("CARD.COMMIT s s {options}")), syntax, "{options}");
    }
    assert_eq!(refused_line(db, "CARD.GET s 1"), STAGED);
    ask_line::<()>(db, "CARD.COMMIT s s rows 10 source a\0b at 1000");
    let info = info(db, "s");
    assert_eq!((&info["source"], &info["loaded_at"], &info["version"]), (&text("a\0b"), &Value::Int(1), &Value::Nil));
}

#[test]
fn a_version_needs_no_source() {
    let server = Server::start();
    let db = &mut server.connect();
    stage(db, "s", &numbered(0, 10));
    ask_line::<()>(db, "CARD.COMMIT s t VERSION 12");
    assert_eq!((&info(db, "t")["version"], &info(db, "t")["source"]), (&Value::Int(12), &Value::Nil));
}

#[test]
fn when_memory_is_full_nothing_is_added_but_cards_can_be_removed() {
    let server = Server::start();
    let db = &mut server.connect();
    ask_line::<()>(db, "CARD.MSET t 1 7 1 2 7 1");
    stage(db, "s", &numbered(0, 10));
    ask_line::<()>(db, "CONFIG SET maxmemory 1");
    for command in ["CARD.SET t 3 7 1", "CARD.MSET t 3 7 1", "CARD.CREATE u", "CARD.STAGE s FRAMES x"] {
        assert_eq!(refused_line(db, command), "OOM command not allowed when used memory > 'maxmemory'.");
    }
    assert_eq!(ask_line::<i64>(db, "CARD.DEL t 1"), 1);
    assert_eq!(card(db, "t", "2"), Some(vec![7, 1]));
    assert_eq!(ask_line::<Value>(db, "CARD.COMMIT s t"), Value::Okay, "two lists become one");
}
