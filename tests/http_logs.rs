//! No log has more of a card than its last four digits, whatever goes wrong.

mod common;

use std::process::Command;
use std::thread;
use std::time::Duration;

use common::gateway::{Change, Gateway, server_behind};
use common::{ask, wait_for};

const CARD: &str = "44015186100181001473";
const LISTED: &str = "cardid=5186100181001473&cardnet=4401&cmdtype=blacklistquery&serialno=1011&tbtype=0&version=1";

/// Every part of a card that tells more than its last four digits, also percent-encoded.
#[track_caller]
fn assert_no_card(logs: &str) {
    for start in 0..=CARD.len() - 8 {
        let part = &CARD[start..start + 8];
        assert!(!logs.contains(part), "{part}: {:?}", logs.lines().find(|line| line.contains(part)));
    }
    let encoded: String = CARD[8..14].bytes().map(|byte| format!("%{byte:02X}")).collect();
    assert!(!logs.contains(&encoded), "{encoded}");
}

/// Asks in every way that comes to mind, whether it is answered or not.
fn ask_in_every_way(gateway: &Gateway) {
    let encoded: String = CARD.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let dashed = "4401-5186-1001-8100-1473";
    let mut targets: Vec<String> = Vec::new();
    for card in [CARD, &encoded, dashed] {
        let places = [
            format!("/paramquery?cardid={card}&cmdtype=blacklistquery&tbtype=0"),
            format!("/paramquery?tbtype={card}&cmdtype=blacklistquery"),
            format!("/paramquery?cmdtype={card}&tbtype=0"),
            format!("/paramquery?cardid={card}&cardid={card}&serialno={card}&tbtype=0"),
            format!("/paramquery?{card}"),
            format!("/cards/blacklist:0/{card}"),
            format!("/cards/{card}/{card}"),
            format!("/cards/{card}"),
            format!("/cards/blacklist:0?id={card}&id={card}"),
            format!("/{card}"),
            format!("/{card}?{card}"),
            format!("/error?{card}"),
            format!("/cards/blacklist:0/{card}?x={card}"),
            format!("/cards/blacklist:0/{card}#"),
        ];
        targets.extend(places);
    }
    targets.push(format!("/paramquery?{LISTED}"));
    for target in &targets {
        for method in ["GET", "HEAD", "POST", "TRACE"] {
            gateway.connect().ask(method, target);
            gateway.connect_status().ask(method, target);
        }
    }
    let long = "x".repeat(70_000);
    let host = "HTTP/1.1\r\nHost: gateway\r\n";
    for request in [
        format!("GET /paramquery?{LISTED}\r\n\r\n"),
        format!("GET /paramquery?{LISTED} HTTP/9.9\r\n\r\n"),
        format!("GET /paramquery?{LISTED} HTTP/1.1\r\n\r\n"),
        format!("GET /paramquery?{LISTED} {LISTED} {host}\r\n"),
        format!("GET /paramquery?{LISTED}\0 {host}\r\n"),
        format!("GET /paramquery?{LISTED}{long} {host}\r\n"),
        format!("GET /paramquery?{LISTED} {host}X: {long}\r\n\r\n"),
        format!("GET /paramquery?{LISTED} {host}{CARD}: {CARD}\r\nReferer: {CARD}\r\nUser-Agent: {CARD}\r\n\r\n"),
        format!("GET /paramquery?{LISTED} {host}Content-Length: 9999999\r\n\r\n"),
        format!("GET /paramquery?{LISTED} {host}Transfer-Encoding: {CARD}\r\n\r\n"),
        format!("GET /paramquery?{LISTED} {host}Transfer-Encoding: chunked\r\n\r\nzz"),
        format!("GET /paramquery?{LISTED} {host}If-Match: {CARD}\r\n\r\n"),
        format!("GET /../../{CARD} {host}\r\n"),
        format!("GET /%zz{CARD} {host}\r\n"),
        format!("{CARD} / {host}\r\n"),
        format!("GET {CARD} {host}\r\n"),
        format!("GET http://{CARD}/{CARD} {host}\r\n"),
        format!("GET /x HTTP/1.1\r\nHost: {CARD} {CARD}\r\n\r\n"),
        format!("{CARD}\r\n\r\n"),
        // Half of one, and away.
        format!("GET /paramquery?{LISTED} HTTP/1.1\r\nHo"),
        format!("GET /paramquery?{LISTED}"),
    ] {
        for mut client in [gateway.connect(), gateway.connect_status()] {
            client.send(&request);
            client.shutdown(std::net::Shutdown::Write);
            // The answer does not matter, if there is one.
            let _ = client.answer();
        }
    }
}

#[test]
fn no_log_has_a_card_whatever_goes_wrong() {
    let mut server = server_behind();
    let db = &mut server.connect();
    ask::<(), _>(db, ["CARD.SET", "blacklist:0", CARD, "7", "1"]);
    let gateway = Gateway::start(&server);
    ask_in_every_way(&gateway);
    ask::<(), _>(db, "ACL SETUSER gateway -card.query -card.json".split(' '));
    ask_in_every_way(&gateway);
    let signal = |name: &str| Command::new("kill").args([name, &server.pid().to_string()]).status().expect("kill runs");
    signal("-STOP");
    assert_eq!(gateway.get(&format!("/paramquery?{LISTED}")).status, 503);
    assert_eq!(gateway.get(&format!("/cards/blacklist:0/{CARD}")).status, 503);
    signal("-CONT");
    server.kill();
    ask_in_every_way(&gateway);
    wait_for(5, "the log tells what is wrong", || {
        let logs = gateway.logs();
        ["NOPERM", "timeout", "connection refused"].iter().all(|reason| logs.contains(reason))
    });
    let logs = gateway.logs_in_the_end();
    assert_no_card(&logs);
    let line = logs.lines().find(|line| line.contains("\"paramquery\" card=*1473 200 "));
    assert!(line.is_some_and(|line| line.starts_with("127.0.0.1 [") && line.contains("] GET ")), "{line:?}");
    assert!(logs.contains("HEAD \"cards\" card=*1473 503 "), "and the path's card is told by its end too");
}

#[test]
fn a_rate_limit_a_mistake_and_a_missing_socket_log_no_card() {
    let server = server_behind();
    let limited: [Change; 2] = [
        ("site.conf", "# limit_req zone=gateway_clients burst=50", "limit_req zone=gateway_clients burst=1"),
        ("site.conf", "rate=100r/s", "rate=1r/m"),
    ];
    let no_socket: [Change; 1] = [("gateway/settings.lua", "redis.sock", "none.sock")];
    let mistake: [Change; 1] =
        [("gateway/paramquery.lua", "    local tbtype =", "    local _ = args.x.y\n    local tbtype =")];
    for (changes, status) in [(limited.as_slice(), 429), (&no_socket, 503), (&mistake, 500)] {
        let gateway = Gateway::with(&server, changes);
        (0..4).for_each(|_| drop(gateway.get(&format!("/paramquery?{LISTED}"))));
        let last = gateway.get(&format!("/paramquery?{LISTED}"));
        last.json();
        assert_eq!(last.status, status, "{last:?}");
        assert!(!last.body.contains("lua"), "no trace: {last:?}");
        // What is wrong is told a second later.
        thread::sleep(Duration::from_millis(1200));
        let logs = gateway.logs_in_the_end();
        assert_no_card(&logs);
        assert_eq!(logs.contains("attempt to index"), status == 500, "{logs}");
    }
}
