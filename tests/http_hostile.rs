//! Ten thousand hostile query strings: every answer is JSON, no status says that the gateway broke, and what is answered is
//! what `CARD.QUERY` tells.

mod common;

use common::ask;
use common::gateway::{Client, Gateway, server_behind};
use fastrand::Rng;

const QUERIES: usize = 10_000;

const PIECES: &[&str] = &[
    "cardid=5186100181001473",
    "cardnet=4401",
    "cmdtype=blacklistquery",
    "serialno=1011",
    "tbtype=0",
    "version=201708031",
    "cardid=44015186100181001473",
    "tbtype=1",
    "tbtype=",
    "tbtype",
    "tbtyp%65=0",
    "tbtype=%30",
    "%74btype=1",
    "TBTYPE=0",
    "tbtype=00000000000000000000000",
    "tbtype=0%26tbtype=1",
    "tbtype=../../etc/passwd",
    "tbtype=0%0d%0aFLUSHALL",
    "cmdtype=x",
    "cmdtype=blacklist%71uery",
    "cmdtype=%00",
    "serialno=%22,%22errorcode%22:%220",
    "serialno=%5C",
    "serialno=%E2%82%AC",
    "serialno=%ff",
    "version=%0a%0d",
    "version={}[]<script>",
    "cardid=%",
    "cardid=%2",
    "cardid=%zz",
    "cardid=\u{e9}\u{20ac}",
    "cardid='%20OR%201=1",
    "cardid=*1\r\n$8\r\nFLUSHALL\r\n",
    "cardid=$(id)",
    "cardid=-1",
    "=",
    "==",
    "&",
    "?",
    "#",
    "%",
    "+",
    ";",
    "%00",
    "\u{0}",
    "\t",
    "\u{7f}",
    "%26",
    "%3D",
    "a=b=c",
    "x[]=1",
    "x[a]=1",
    "cardid[]=1",
    "\\",
    "\"",
    "'",
    "`",
    "|",
];

/// Known parameters and odd pieces in any number and order, and sometimes any bytes in between.
fn hostile(random: &mut Rng) -> Vec<u8> {
    let mut query = Vec::new();
    if random.u8(..3) > 0 {
        // Most of it is right, so that it gets further.
        query.extend_from_slice(PIECES[..6].join("&").as_bytes());
    }
    for _ in 0..random.usize(..8) {
        query.extend_from_slice(if random.u8(..4) > 0 { b"&" } else { b"" });
        query.extend_from_slice(random.choice(PIECES).expect("some").as_bytes());
    }
    for _ in 0..[0, 0, 0, 1, 5][random.usize(..5)] {
        let at = random.usize(..=query.len());
        query.insert(at, random.u8(..));
    }
    match random.u8(..100) {
        0 => query.extend(std::iter::repeat_n(random.u8(b'!'..=b'~'), random.usize(..100_000))),
        1 => query.truncate(random.usize(..=query.len())),
        _ => {}
    }
    // The end of a line would end the query, and the request.
    query.retain(|byte| !matches!(byte, b'\r' | b'\n'));
    query
}

#[test]
fn hostile_queries_are_answered_as_json_and_break_nothing() {
    let server = server_behind();
    let db = &mut server.connect();
    ask::<(), _>(db, ["CARD.SET", "blacklist:0", "44015186100181001473", "7", "1"]);
    let gateway = Gateway::start(&server);
    let mut random = Rng::with_seed(20260605);
    let mut client = gateway.connect();
    let mut statuses = std::collections::BTreeMap::<u16, usize>::new();
    for _ in 0..QUERIES {
        let query = hostile(&mut random);
        let shown = query.escape_ascii();
        let (before, after): (&[u8], &[u8]) = (b"GET /paramquery?", b" HTTP/1.1\r\nHost: gateway\r\n\r\n");
        client.send([before, &query, after].concat());
        let answer = client.answer().unwrap_or_else(|error| panic!("{error}: {shown:.300}"));
        *statuses.entry(answer.status).or_default() += 1;
        let json = answer.json();
        assert!(answer.status < 500 || answer.status == 503, "{answer:?} to {shown:.300}");
        if answer.status == 200 {
            assert_eq!(json["errorcode"], "0");
            let told: String = ask(db, [b"CARD.QUERY", b"blacklist:0".as_slice(), &query]);
            assert_eq!(answer.body, told, "{shown:.300}");
        } else {
            assert!(json.get("recordcnt").is_none(), "{answer:?} to {shown:.300}");
        }
        if answer.header("connection") == Some("close") {
            client = Client::connect(gateway.port());
        }
    }
    assert!(statuses.keys().copied().collect::<Vec<_>>().starts_with(&[200, 400, 414, 503]), "all kinds: {statuses:?}");
    assert_eq!(ask::<u64, _>(db, ["CARD.LEN", "blacklist:0"]), 1, "nothing was injected");
    gateway.assert_sound();
}
