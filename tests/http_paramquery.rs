//! `GET /paramquery`: what gates and terminals ask over HTTP, and that none of them ever hears "not on the list" because
//! something is wrong.

mod common;

use common::gateway::{Gateway, server_behind};
use common::{Server, ask};

const LISTED: &str =
    "cardid=5186100181001473&cardnet=4401&cmdtype=blacklistquery&serialno=1011&tbtype=0&version=201708031";
const LISTED_ANSWER: &str = r#"{"cmdtype":"blacklistqueryresult","darkstatus0":"1","darktype0":"7","darkver0":"1970-01-01 08:00:00","errorcode":"0","recordcnt":"1","serialno":"1011","status":"1","type":"7","version":"201708031"}"#;

/// A gateway whose list has the card of [`LISTED`].
fn gateway() -> (Server, Gateway) {
    let server = server_behind();
    ask::<(), _>(&mut server.connect(), ["CARD.SET", "blacklist:0", "44015186100181001473", "7", "1"]);
    let gateway = Gateway::start(&server);
    (server, gateway)
}

/// A failure: its status, code and message. It is checked that no gate could take it for an answer.
#[track_caller]
fn failure(gateway: &Gateway, query: &str) -> (u16, String, String) {
    let answer = gateway.get(&format!("/paramquery?{query}"));
    let json = answer.json();
    let mut names: Vec<_> = json.as_object().expect("an object").keys().collect();
    names.sort();
    assert_eq!(names, ["cmdtype", "errorcode", "errormsg", "serialno", "version"], "{query}: {answer:?}");
    assert_eq!(json["cmdtype"], "blacklistqueryresult");
    let text = |name: &str| json[name].as_str().expect("text").to_owned();
    (answer.status, text("errorcode"), text("errormsg"))
}

#[test]
fn the_samples_come_out_byte_for_byte() {
    let (_server, gateway) = gateway();
    assert_eq!(gateway.get(&format!("/paramquery?{LISTED}")).told(), (200, LISTED_ANSWER));
    let not_listed =
        "cardid=2030230000000002&cardnet=4401&cmdtype=blacklistquery&serialno=1005&tbtype=0&version=201708031";
    assert_eq!(
        gateway.get(&format!("/paramquery?{not_listed}")).told(),
        (
            200,
            r#"{"cmdtype":"blacklistqueryresult","errorcode":"0","recordcnt":"0","serialno":"1005","version":"201708031"}"#
        )
    );
}

#[test]
fn an_answer_is_json_that_nobody_keeps_and_names_no_version_of_nginx() {
    let (_server, gateway) = gateway();
    for query in [LISTED, "tbtype=0"] {
        let answer = gateway.get(&format!("/paramquery?{query}"));
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        assert_eq!(answer.header("server"), Some("nginx"));
    }
}

#[test]
fn head_has_the_headers_of_get_and_no_body() {
    let (_server, gateway) = gateway();
    let client = &mut gateway.connect();
    let without_date = |answer: &common::gateway::Answer| {
        let mut headers = answer.headers.clone();
        headers.retain(|(name, _)| name != "date");
        (answer.status, headers)
    };
    for target in [
        format!("/paramquery?{LISTED}"),
        "/paramquery?tbtype=0".into(),
        "/paramquery?tbtype=5&cmdtype=blacklistquery&cardid=1".into(),
    ] {
        let (get, head) = (client.get(&target), client.ask("HEAD", &target));
        assert_eq!(without_date(&get), without_date(&head), "{target}");
        assert_eq!(head.body, "");
    }
    assert_eq!(client.get(&format!("/paramquery?{LISTED}")).body, LISTED_ANSWER, "the connection goes on");
}

#[test]
fn parameters_come_in_any_order_and_spelling() {
    let (_server, gateway) = gateway();
    let client = &mut gateway.connect();
    for query in [
        "version=201708031&tbtype=0&serialno=1011&cmdtype=blacklistquery&cardnet=4401&cardid=5186100181001473",
        "tbtype=0&cmdtype=blacklistquery&version=201708031&serialno=1011&cardid=44015186100181001473",
        "&&tbtype=0&x=1&x=2&y&=&cmdtype=blacklistquery&version=201708031&serialno=1011&cardid=44015186100181001473&",
        "tbtyp%65=%30&%63mdtype=blacklis%74query&versio%6E=201708031&serialno=%31011&c%61rdid=%34%34015186100181001473",
        "xtbtype=9&x=tbtype=9&tbtype=0&xcmdtype=x&cmdtype=blacklistquery&version=201708031&serialno=1011&cardid=44015186100181001473",
    ] {
        assert_eq!(client.get(&format!("/paramquery?{query}")).told(), (200, LISTED_ANSWER), "{query}");
    }
    for path in ["/param%71uery", "//paramquery", "/x/../paramquery", "http://gateway/paramquery"] {
        assert_eq!(client.get(&format!("{path}?{LISTED}")).told(), (200, LISTED_ANSWER), "{path}");
    }
}

#[test]
fn the_list_that_is_asked_follows_from_tbtype() {
    let (server, gateway) = gateway();
    let db = &mut server.connect();
    let longest = "12345678901234567890";
    for (key, type_) in [("blacklist:1", "1"), ("blacklist:00", "2"), (&format!("blacklist:{longest}"), "3")] {
        ask::<(), _>(db, ["CARD.SET", key, "44015186100181001473", type_, "1"]);
    }
    for (tbtype, type_) in [("0", "7"), ("1", "1"), ("%31", "1"), ("00", "2"), (longest, "3")] {
        let answer = gateway.get(&format!("/paramquery?{}", LISTED.replace("tbtype=0", &format!("tbtype={tbtype}"))));
        assert_eq!((answer.status, answer.json()["type"].as_str()), (200, Some(type_)), "{tbtype}");
    }
}

#[test]
fn a_bad_parameter_is_400_and_told() {
    let (_server, gateway) = gateway();
    let rest = "cmdtype=blacklistquery&serialno=1&version=2";
    let digits = "tbtype must be 1 to 20 digits";
    for (query, message) in [
        ("", "tbtype is missing"),
        (LISTED.replace("tbtype=0", "tbtype").as_str(), "tbtype is missing"),
        (&LISTED.replace("tbtype=0", "tbtype="), "tbtype is missing"),
        (&LISTED.replace("tbtype=0", "TBTYPE=0"), "tbtype is missing"),
        (&LISTED.replace("&tbtype=0", ""), "tbtype is missing"),
        (&LISTED.replace("tbtype=0", "tbtype=-1"), digits),
        (&LISTED.replace("tbtype=0", "tbtype=0.staging"), digits),
        (&LISTED.replace("tbtype=0", "tbtype=+0"), digits),
        (&LISTED.replace("tbtype=0", "tbtype=0%00"), digits),
        (&LISTED.replace("tbtype=0", "tbtype=%zz"), digits),
        (&LISTED.replace("tbtype=0", "tbtype=123456789012345678901"), digits),
        (&format!("{LISTED}&tbtype=0"), "tbtype is given twice"),
        (&format!("tbtype=1&{LISTED}"), "tbtype is given twice"),
        (&format!("%74btype=1&{LISTED}"), "tbtype is given twice"),
        (&format!("{LISTED}&tbtyp%65"), "tbtype is given twice"),
        (&format!("{LISTED}&cardid=1"), "cardid is given twice"),
        (&format!("{LISTED}&cmdtyp%65=x"), "cmdtype is given twice"),
        (&format!("tbtype=0&{rest}"), "cardid is missing"),
        (&format!("tbtype=0&{rest}&cardid=%ff"), "cardid is not UTF-8"),
        (&format!("tbtype=0&{rest}&cardid=%00"), "cardid has control characters"),
        (&format!("tbtype=0&{rest}&cardid=%"), "cardid has a bad percent-encoding"),
        ("tbtype=0&cardid=1", "cmdtype is missing"),
        (&format!("tbtype=0&{rest}&cardid=4401#5186100181001473"), "the query has a #, which must be encoded"),
    ] {
        assert_eq!(failure(&gateway, query), (400, "1".into(), message.into()), "{query}");
    }
    let other = LISTED.replace("blacklistquery", "whitelistquery");
    assert_eq!(failure(&gateway, &other), (400, "2".into(), "cmdtype must be blacklistquery".into()));
    assert_eq!(gateway.get("/paramquery").status, 400, "no query at all");
    gateway.assert_sound();
}

#[test]
fn a_list_that_cannot_be_asked_is_503() {
    let (server, gateway) = gateway();
    let db = &mut server.connect();
    let unavailable = |message: &str| (503, "3".to_owned(), message.to_owned());
    let one = &LISTED.replace("tbtype=0", "tbtype=1");
    assert_eq!(failure(&gateway, one), unavailable("there is no such list"));
    ask::<(), _>(db, ["CARD.CREATE", "blacklist:1"]);
    assert_eq!(failure(&gateway, one), unavailable("the list is not loaded yet"));
    ask::<(), _>(db, "CARD.CREATE blacklist:2 FIELD tag 0 5".split(' '));
    ask::<(), _>(db, "CARD.SET blacklist:2 1 1".split(' '));
    let two = &LISTED.replace("tbtype=0", "tbtype=2");
    assert_eq!(failure(&gateway, two), unavailable("the list has no type and status"));
    ask::<(), _>(db, ["SET", "blacklist:3", "x"]);
    let three = &LISTED.replace("tbtype=0", "tbtype=3");
    assert_eq!(failure(&gateway, three), unavailable("the list cannot be asked now"), "a key of another type");
    ask::<(), _>(db, "ACL SETUSER gateway -card.query".split(' '));
    assert_eq!(failure(&gateway, LISTED), unavailable("the list cannot be asked now"), "no permission");
    ask::<(), _>(db, "ACL SETUSER gateway +card.query".split(' '));
    assert_eq!(gateway.get(&format!("/paramquery?{LISTED}")).told(), (200, LISTED_ANSWER));
    assert_eq!(gateway.get(&format!("/paramquery?{one}")).header("retry-after"), Some("1"));
    gateway.assert_sound();
}

#[test]
fn what_is_echoed_cannot_forge_an_answer() {
    let (server, gateway) = gateway();
    for (forged, plain) in [
        ("%22,%22errorcode%22:%223", r#"","errorcode":"3"#),
        ("%22,%22errorcode%22:%220", r#"","errorcode":"0"#),
        ("%22,%22recordcnt%22:%220", r#"","recordcnt":"0"#),
        (
            "%7B%22cmdtype%22:%22blacklistqueryresult%22,%22errorcode%22:%223%22",
            r#"{"cmdtype":"blacklistqueryresult","errorcode":"3""#,
        ),
    ] {
        let query = LISTED.replace("1011", forged).replace("201708031", forged);
        let answer = gateway.get(&format!("/paramquery?{query}"));
        let json = answer.json();
        assert_eq!((answer.status, json["recordcnt"].as_str()), (200, Some("1")), "{answer:?}");
        assert_eq!((json["serialno"].as_str(), json["version"].as_str()), (Some(plain), Some(plain)));
        let missing = query.replace("tbtype=0", "tbtype=1");
        assert_eq!(failure(&gateway, &missing).0, 503, "{missing}");
        assert_eq!(failure(&gateway, &query.replace("blacklistquery", "x")).0, 400);
    }
    // What the gateway itself tells of a failure has no text in it that would need escaping.
    drop(server);
    let echoed = |query: &str| {
        let json = gateway.get(&format!("/paramquery?{query}")).json();
        ["serialno", "version"].map(|name| json[name].as_str().expect("text").to_owned())
    };
    assert_eq!(echoed(LISTED), ["1011", "201708031"]);
    assert_eq!(echoed("tbtype=0&serialno=a%2Db&version=%22"), ["a-b", ""]);
    assert_eq!(echoed(&format!("tbtype=0&serialno={}", "9".repeat(65))), ["", ""]);
}
