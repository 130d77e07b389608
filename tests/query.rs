//! Cards as JSON: `CARD.QUERY` for gates and terminals, which must never hear "not on the list" because something is
//! wrong, and `CARD.JSON`.

mod common;

use std::time::{SystemTime, UNIX_EPOCH};

use card_table::{Id, Schema, Table};
use common::{Server, ask, refused, wait_for};
use redis::{Connection, Value};

const LISTED: &str =
    "cardid=5186100181001473&cardnet=4401&cmdtype=blacklistquery&serialno=1011&tbtype=0&version=201708031";

/// What the seed's service answered to this.
const LISTED_ANSWER: &str = r#"{"cmdtype":"blacklistqueryresult","darkstatus0":"1","darktype0":"7","darkver0":"1970-01-01 08:00:00","errorcode":"0","recordcnt":"1","serialno":"1011","status":"1","type":"7","version":"201708031"}"#;

fn query(db: &mut Connection, query: impl AsRef<[u8]>) -> String {
    query_of(db, "t", query)
}

fn query_of(db: &mut Connection, key: &str, query: impl AsRef<[u8]>) -> String {
    ask(db, [b"CARD.QUERY", key.as_bytes(), query.as_ref()])
}

/// The code and the message of a failure, of which it is checked that no gate could take it for an answer.
#[track_caller]
fn failure_of(json: &str) -> (String, String) {
    let answer: serde_json::Value = serde_json::from_str(json).expect("JSON");
    let mut names: Vec<_> = answer.as_object().expect("an object").keys().collect();
    names.sort();
    assert_eq!(names, ["cmdtype", "errorcode", "errormsg", "serialno", "version"], "{json}");
    assert_eq!(answer["cmdtype"], "blacklistqueryresult");
    let text = |name: &str| answer[name].as_str().expect("text").to_owned();
    (text("errorcode"), text("errormsg"))
}

fn field(json: &str, name: &str) -> Option<String> {
    let answer: serde_json::Value = serde_json::from_str(json).expect("JSON");
    answer.get(name).map(|value| value.as_str().expect("text").to_owned())
}

fn stage(db: &mut Connection, key: &str, cards: &[&str]) {
    let mut table = Table::new(Schema::default());
    for card in cards {
        let symbol = table.schema().pack(&[7, 1]).unwrap();
        table.insert(&Id::parse(card.as_bytes()).unwrap(), symbol);
    }
    ask::<(), _>(db, [b"CARD.STAGE".as_slice(), key.as_bytes(), b"BEGIN", &table.header_bytes()]);
    for frames in table.frames(8192) {
        ask::<(), _>(db, [b"CARD.STAGE".as_slice(), key.as_bytes(), b"FRAMES", &frames]);
    }
}

/// A server whose table `t` has the card of [`LISTED`].
fn listed() -> (Server, Connection) {
    let server = Server::start();
    let mut db = server.connect();
    ask::<(), _>(&mut db, ["CARD.SET", "t", "44015186100181001473", "7", "1"]);
    (server, db)
}

#[test]
fn the_samples_come_out_byte_for_byte() {
    let (server, mut db) = listed();
    assert_eq!(query(&mut db, LISTED), LISTED_ANSWER);
    let not_listed =
        "cardid=2030230000000002&cardnet=4401&cmdtype=blacklistquery&serialno=1005&tbtype=0&version=201708031";
    assert_eq!(
        query(&mut db, not_listed),
        r#"{"cmdtype":"blacklistqueryresult","errorcode":"0","recordcnt":"0","serialno":"1005","version":"201708031"}"#
    );
    for connection in [&mut db, &mut server.connect_resp3()] {
        let reply: Value = ask(connection, ["CARD.QUERY", "t", LISTED]);
        assert_eq!(reply, Value::BulkString(LISTED_ANSWER.into()), "one bulk string");
    }
}

#[test]
fn the_card_is_its_net_and_its_id_wherever_they_are() {
    let (_server, mut db) = listed();
    let rest = "cmdtype=blacklistquery&serialno=1011&version=201708031";
    for card in [
        "cardid=44015186100181001473",
        "cardid=44015186100181001473&cardnet=",
        "cardnet=44015&cardid=186100181001473",
        "&&cardnet=4401&x=1&x=2&y&=&z=%20&cardid=5186100181001473",
        "c%61rdid=%34%34015186100181001473",
    ] {
        assert_eq!(query(&mut db, format!("{card}&{rest}")), LISTED_ANSWER, "{card}");
        assert_eq!(query(&mut db, format!("{rest}&{card}&")), LISTED_ANSWER, "{card}");
    }
    for other in ["cardid=5186100181001473", "cardnet=5186100181001473&cardid=4401", "cardid=044015186100181001473"] {
        let answer = query(&mut db, format!("{other}&{rest}"));
        assert_eq!(field(&answer, "recordcnt").as_deref(), Some("0"), "{other}");
    }
    ask::<(), _>(&mut db, ["CARD.SET", "t", "été & co", "0", "2"]);
    let answer = query(&mut db, format!("cardid=%C3%A9t%c3%a9+%26%20co&{rest}"));
    assert_eq!(field(&answer, "darkstatus0").as_deref(), Some("2"), "{answer}");
}

#[test]
fn serial_number_and_version_are_echoed_as_json() {
    let (_server, mut db) = listed();
    let card = "cardid=1&cmdtype=blacklistquery";
    let answered =
        |rest: &str| format!(r#"{{"cmdtype":"blacklistqueryresult","errorcode":"0","recordcnt":"0",{rest}}}"#);
    assert_eq!(query(&mut db, card), answered(r#""serialno":"","version":"""#));
    let awkward = query(&mut db, format!("{card}&serialno=%22%5C/%E2%82%AC%3C&version=a=b+c"));
    assert_eq!(awkward, answered(r#""serialno":"\"\\/€<","version":"a=b c""#));

    let longest = "9".repeat(64);
    let answer = query(&mut db, format!("{card}&serialno={longest}&version={longest}"));
    assert_eq!(answer, answered(&format!(r#""serialno":"{longest}","version":"{longest}""#)));
    for name in ["serialno", "version"] {
        let (code, message) = failure_of(&query(&mut db, format!("{card}&{name}={longest}9")));
        assert_eq!((code.as_str(), message), ("1", format!("{name} has more than 64 bytes")));
    }
    // Bytes as they are sent back, not as they are encoded, and not characters.
    let euros = "%E2%82%AC".repeat(21);
    assert_eq!(field(&query(&mut db, format!("{card}&version={euros}")), "version"), Some("€".repeat(21)));
    assert_eq!(failure_of(&query(&mut db, format!("{card}&version={euros}%C3%A9"))).0, "1");
    // A failure echoes too, so that a terminal knows what it is about.
    let failed = query(&mut db, "cmdtype=blacklistquery&serialno=1005&version=201708031");
    assert_eq!(
        failed,
        r#"{"cmdtype":"blacklistqueryresult","errorcode":"1","errormsg":"cardid is missing","serialno":"1005","version":"201708031"}"#
    );
}

#[test]
fn a_bad_query_is_a_failure_and_never_an_answer() {
    let (_server, mut db) = listed();
    let rest = "cmdtype=blacklistquery&serialno=1&tbtype=0&version=2";
    let twice =
        |name: &str| (format!("cardid=1&cardnet=1&{rest}&{name}=1").into_bytes(), format!("{name} is given twice"));
    let with = |before: &str, bytes: &[u8]| [before.as_bytes(), bytes, b"&", rest.as_bytes()].concat();
    let mut queries: Vec<(Vec<u8>, String)> =
        ["cardid", "cardnet", "cmdtype", "serialno", "tbtype", "version"].map(twice).into();
    for (query, message) in [
        (b"".to_vec(), "cmdtype is missing"),
        (b"cardid=1".to_vec(), "cmdtype is missing"),
        (b"cardid=1&cmdtype=".to_vec(), "cmdtype is missing"),
        (rest.into(), "cardid is missing"),
        (with("cardnet=4401", b""), "cardid is missing"),
        (with("cardnet=4401&cardid=", b""), "cardid is missing"),
        (with("cardid", b""), "cardid is missing"),
        (with("cardid=1", b"%"), "cardid has a bad percent-encoding"),
        (with("cardid=1", b"%3"), "cardid has a bad percent-encoding"),
        (with("cardid=1", b"%3g"), "cardid has a bad percent-encoding"),
        (with("cardid=1&%zz=", b"1"), "a parameter's name has a bad percent-encoding"),
        (with("cardid=1&x=", b"%zz"), "a parameter has a bad percent-encoding"),
        (with("cardid=1", b"\xff"), "cardid is not UTF-8"),
        (with("cardid=1", b"%ff"), "cardid is not UTF-8"),
        (with("cardid=1&cardnet=", b"%C3"), "cardnet is not UTF-8"),
        (with("cardid=1&x=", b"\xc3\x28"), "a parameter is not UTF-8"),
        (with("cardid=1", b"\0"), "cardid has control characters"),
        (with("cardid=1", b"%00"), "cardid has control characters"),
        (with("cardid=1", b"\r\n"), "cardid has control characters"),
        (with("cardid=1&cardnet=", b"%0a"), "cardnet has control characters"),
        (with("cardid=1&x=", b"%7F"), "a parameter has control characters"),
        (with("cardid=", &[b'9'; 4097]), "a card id has at most 4096 bytes, got 4097"),
    ] {
        queries.push((query, message.into()));
    }
    for (bytes, message) in queries {
        let answer = query(&mut db, &bytes);
        assert_eq!(failure_of(&answer), ("1".into(), message), "{}", bytes.escape_ascii());
    }
    for command in ["whitelistquery", "BLACKLISTQUERY", "blacklistquery%20", "blacklistqueryresult"] {
        let answer = query(&mut db, format!("cardid=1&cmdtype={command}"));
        assert_eq!(failure_of(&answer), ("2".into(), "cmdtype must be blacklistquery".into()), "{command}");
    }
    assert_eq!(query(&mut db, LISTED), LISTED_ANSWER, "and good ones are answered as before");
}

#[test]
fn a_list_that_is_not_there_or_not_ready_is_never_an_empty_one() {
    let server = Server::start();
    let db = &mut server.connect();
    let missing = ("3".to_owned(), "there is no such list".to_owned());
    let not_ready = ("3".to_owned(), "the list is not loaded yet".to_owned());

    assert_eq!(failure_of(&query(db, LISTED)), missing);
    ask::<(), _>(db, ["CARD.CREATE", "t"]);
    assert_eq!(failure_of(&query(db, LISTED)), not_ready);
    ask::<(), _>(db, ["CARD.DEL", "t", "44015186100181001473"]);
    assert_eq!(failure_of(&query(db, LISTED)), not_ready, "removing nothing is no load");
    ask::<(), _>(db, ["COPY", "t", "copy"]);
    assert_eq!(failure_of(&query_of(db, "copy", LISTED)), not_ready);
    ask::<(), _>(db, ["DEL", "t"]);

    stage(db, "t", &["44015186100181001473"]);
    assert_eq!(failure_of(&query(db, LISTED)), not_ready, "all is there but the commit");
    ask::<(), _>(db, ["CARD.COMMIT", "t", "t"]);
    assert_eq!(query(db, LISTED), LISTED_ANSWER);

    ask::<(), _>(db, ["PEXPIRE", "t", "1"]);
    wait_for(5, "the list has gone", || field(&query(db, LISTED), "recordcnt").is_none());
    assert_eq!(failure_of(&query(db, LISTED)), missing);
}

#[test]
fn an_emptied_list_and_an_empty_load_answer() {
    let (_server, mut db) = listed();
    let db = &mut db;
    let empty =
        r#"{"cmdtype":"blacklistqueryresult","errorcode":"0","recordcnt":"0","serialno":"1011","version":"201708031"}"#;
    ask::<(), _>(db, ["CARD.DEL", "t", "44015186100181001473"]);
    assert_eq!(query(db, LISTED), empty);
    stage(db, "s", &[]);
    ask::<(), _>(db, ["CARD.COMMIT", "s", "loaded"]);
    assert_eq!(query_of(db, "loaded", LISTED), empty);
}

#[test]
fn a_list_needs_type_and_status_wherever_they_are() {
    let server = Server::start();
    let db = &mut server.connect();
    ask::<(), _>(db, "CARD.CREATE t FIELD status 0 99 FIELD tag 0 5 FIELD type 0 99".split(' '));
    ask::<(), _>(db, "CARD.SET t 44015186100181001473 1 3 7".split(' '));
    assert_eq!(query(db, LISTED), LISTED_ANSWER);
    for fields in ["FIELD type 0 10", "FIELD status 0 10", "FIELD types 0 10"] {
        ask::<(), _>(db, ["DEL", "u"]);
        ask::<(), _>(db, format!("CARD.CREATE u {fields}").split(' '));
        ask::<(), _>(db, "CARD.SET u 44015186100181001473 1".split(' '));
        for card in [LISTED, "cardid=absent&cmdtype=blacklistquery"] {
            let answer = query_of(db, "u", card);
            assert_eq!(failure_of(&answer), ("3".into(), "the list has no type and status".into()), "{fields}");
        }
    }
}

#[test]
fn what_was_loaded_when_does_not_show_unless_it_is_asked_for() {
    let server = Server::start();
    let db = &mut server.connect();
    let darkver = |db: &mut Connection| field(&query(db, LISTED), "darkver0").expect("the card is listed");
    stage(db, "t", &["44015186100181001473"]);
    ask::<(), _>(db, "CARD.COMMIT t t AT 1501718400999".split(' '));
    assert_eq!(darkver(db), "1970-01-01 08:00:00");
    ask::<(), _>(db, "CONFIG SET card.timezone -03:30".split(' '));
    assert_eq!(darkver(db), "1970-01-01 08:00:00", "a constant, in no time zone");

    ask::<(), _>(db, "CONFIG SET card.darkver effective".split(' '));
    assert_eq!(darkver(db), "2017-08-02 20:30:00");
    ask::<(), _>(db, "CONFIG SET card.timezone +08:00".split(' '));
    assert_eq!(darkver(db), "2017-08-03 08:00:00");
    ask::<(), _>(db, "CARD.SET t 2 7 1".split(' '));
    assert_eq!(darkver(db), "2017-08-03 08:00:00", "a card more is the same list");
    ask::<(), _>(db, "COPY t copy".split(' '));
    let copied = query_of(db, "copy", LISTED);
    assert_eq!(field(&copied, "darkver0").as_deref(), Some("2017-08-03 08:00:00"));

    stage(db, "s", &["44015186100181001473"]);
    ask::<(), _>(db, "CARD.COMMIT s t AT 1501718401000".split(' '));
    assert_eq!(darkver(db), "2017-08-03 08:00:01", "another list");
}

#[test]
fn a_list_that_was_written_card_by_card_is_effective_from_the_first() {
    let server = Server::start();
    let db = &mut server.connect();
    ask::<(), _>(db, "CONFIG SET card.darkver effective card.timezone +00:00".split(' '));
    ask::<(), _>(db, ["CARD.CREATE", "t"]);
    let seconds = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let before = seconds();
    ask::<(), _>(db, ["CARD.SET", "t", "44015186100181001473", "7", "1"]);
    let after = seconds();
    let darkver = field(&query(db, LISTED), "darkver0").unwrap();
    let possible: Vec<_> = (before..=after).map(date).collect();
    assert!(possible.contains(&darkver), "{darkver} is none of {possible:?}");
}

/// A date in UTC, by counting days. Slower than a library, and independent of the one that the module uses.
fn date(seconds: u64) -> String {
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let (mut days, mut year, mut month) = (seconds / 86_400, 1970, 1);
    loop {
        let length = match month {
            2 => 28 + u64::from(is_leap(year)),
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        if days < length {
            let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
            return format!("{year}-{month:02}-{:02} {hour:02}:{minute:02}:{second:02}", days + 1);
        }
        days -= length;
        (year, month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
    }
}

#[test]
fn cards_are_told_as_json() {
    let server = Server::start();
    let db = &mut server.connect();
    ask::<(), _>(db, "CARD.MSET t 44015186100181001473 7 1 007 0 2".split(' '));
    assert_eq!(
        ask::<String, _>(db, "CARD.JSON t 44015186100181001473 7 007".split(' ')),
        r#"[{"id":"44015186100181001473","type":7,"status":1},null,{"id":"007","type":0,"status":2}]"#
    );
    ask::<(), _>(db, "CARD.CREATE tags FIELD b 0 9 FIELD a 0 9 FIELD c 5 5".split(' '));
    ask::<(), _>(db, ["CARD.SET", "tags", "\"é\\\n\0", "1", "2", "5"]);
    let json: String = ask(db, ["CARD.JSON", "tags", "\"é\\\n\0"]);
    assert_eq!(json, r#"[{"id":"\"é\\\n\u0000","b":1,"a":2,"c":5}]"#, "in the schema's order");

    // JSON cannot tell bytes that are not text; that one of them is absent, it can.
    assert_eq!(ask::<String, _>(db, [b"CARD.JSON".as_slice(), b"t", b"\xff"]), "[null]");
    ask::<(), _>(db, [b"CARD.SET".as_slice(), b"t", b"\xff", b"1", b"1"]);
    let error = refused(db, [b"CARD.JSON".as_slice(), b"t", b"007", b"\xff"]);
    assert_eq!(error, "ERR JSON has no way to tell a card id that is not UTF-8");
}

#[test]
fn json_is_an_error_where_there_is_no_ready_table() {
    let server = Server::start();
    let db = &mut server.connect();
    let not_ready = "ERR the table is not ready: nothing has been loaded yet";
    assert_eq!(refused(db, "CARD.JSON t 1".split(' ')), "ERR no such table");
    ask::<(), _>(db, "CARD.CREATE t".split(' '));
    assert_eq!(refused(db, "CARD.JSON t 1".split(' ')), not_ready);
    assert_eq!(ask::<i64, _>(db, "CARD.DEL t 1".split(' ')), 0);
    assert_eq!(refused(db, "CARD.JSON t 1".split(' ')), not_ready, "nothing was written");
    ask::<(), _>(db, "CARD.SET t 1 1 1".split(' '));
    ask::<(), _>(db, "CARD.DEL t 1".split(' '));
    assert_eq!(ask::<String, _>(db, "CARD.JSON t 1".split(' ')), "[null]", "an emptied table answers");
    stage(db, "s", &["1"]);
    assert_eq!(refused(db, "CARD.JSON s 1".split(' ')), not_ready);
}
