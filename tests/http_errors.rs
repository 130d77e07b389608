//! Errors that nginx makes rather than Redis: each is JSON, with a status that fits, and tells nothing about nginx.

mod common;

use common::ask;
use common::gateway::{Answer, Client, Gateway, server_behind};

const QUERY: &str = "/paramquery?cardid=1&cmdtype=blacklistquery&tbtype=0";

#[track_caller]
fn check(answer: &Answer, status: u16, error: &str) {
    assert_eq!((answer.status, answer.error().as_str()), (status, error), "{answer:?}");
    assert!(answer.json()["message"].is_string());
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(answer.header("server"), Some("nginx"), "no version");
    assert!(!answer.body.contains("nginx"));
}

fn answer_to(mut client: Client, request: &str) -> Answer {
    client.send(request);
    client.answer().unwrap_or_else(|error| panic!("{error}: {request:.200}"))
}

#[test]
fn an_unknown_path_is_404() {
    let server = server_behind();
    let gateway = Gateway::start(&server);
    for path in [
        "/",
        "/x",
        "/paramquery/",
        "/paramquery/1",
        "/PARAMQUERY",
        "/error",
        "/healthz",
        "/metrics",
        "/readyz",
        "/x%0a%22",
    ] {
        check(&gateway.get(path), 404, "path_not_found");
    }
    for path in ["/", "/paramquery", "/cards/t/1", "/error"] {
        check(&gateway.status(path), 404, "path_not_found");
    }
    assert_eq!(gateway.connect().ask("HEAD", "/x").status, 404);
}

#[test]
fn what_is_not_get_or_head_is_405_and_its_body_is_no_request() {
    let server = server_behind();
    ask::<(), _>(&mut server.connect(), "CARD.SET blacklist:0 1 1 1".split(' '));
    let gateway = Gateway::start(&server);
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "FOO"] {
        for target in [QUERY, "/cards/blacklist:0/1"] {
            let answer = gateway.connect().ask(method, target);
            check(&answer, 405, "method_not_allowed");
            assert_eq!(answer.header("allow"), Some("GET, HEAD"), "{method}");
        }
    }
    for target in ["/healthz", "/readyz", "/metrics"] {
        check(&gateway.connect_status().ask("POST", target), 405, "method_not_allowed");
    }
    // What comes as a body must not be read as the next request.
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: gateway\r\n\r\n";
    for method in ["POST", "GET"] {
        let mut client = gateway.connect();
        let length = smuggled.len();
        client
            .send(format!("{method} {QUERY} HTTP/1.1\r\nHost: gateway\r\nContent-Length: {length}\r\n\r\n{smuggled}"));
        assert_eq!(client.answer().expect("an answer").status, if method == "GET" { 200 } else { 405 });
        assert_eq!(client.get(QUERY).status, 200, "the next answer is to the next request");
    }
    gateway.assert_sound();
}

#[test]
fn what_is_too_long_is_413_414_or_431() {
    let server = server_behind();
    let gateway = Gateway::start(&server);
    let long = "9".repeat(70_000);
    for connect in [Gateway::connect, Gateway::connect_status] {
        let request = |rest: String| answer_to(connect(&gateway), &rest);
        check(
            &request(format!("GET /paramquery?cardid={long} HTTP/1.1\r\nHost: gateway\r\n\r\n")),
            414,
            "uri_too_long",
        );
        check(&request(format!("GET {QUERY} HTTP/1.1\r\nHost: gateway\r\nX: {long}\r\n\r\n")), 431, "headers_too_long");
        let many: String = (0..7000).map(|at| format!("X-{at}: {at}\r\n")).collect();
        check(&request(format!("GET {QUERY} HTTP/1.1\r\nHost: gateway\r\n{many}\r\n")), 431, "headers_too_long");
        let body = format!("GET {QUERY} HTTP/1.1\r\nHost: gateway\r\nContent-Length: 2000000\r\n\r\n");
        check(&request(body), 413, "body_refused");
    }
    gateway.assert_sound();
}

#[test]
fn what_http_does_not_allow_is_refused_as_json() {
    let server = server_behind();
    ask::<(), _>(&mut server.connect(), "CARD.SET blacklist:0 1 1 1".split(' '));
    let gateway = Gateway::start(&server);
    let with = |line: &str| format!("GET {QUERY} HTTP/1.1\r\nHost: gateway\r\n{line}\r\n\r\n");
    for (request, status) in [
        (format!("GET {QUERY} HTTP/1.1\r\n\r\n"), 400),
        (format!("GET {QUERY} HTTP/1.1\r\nHost: a b\r\n\r\n"), 400),
        (with("Host: twice"), 400),
        (with("Content-Length: x"), 400),
        (with("Content-Length: 1\r\nContent-Length: 2"), 400),
        (with("Na\0me: x"), 400),
        (format!("GET {QUERY} HTTP/3.0\r\nHost: gateway\r\n\r\n"), 505),
        (with("Transfer-Encoding: gzip"), 501),
        (format!("GET {QUERY} x HTTP/1.1\r\nHost: gateway\r\n\r\n"), 400),
        (format!("GET {QUERY}\x01 HTTP/1.1\r\nHost: gateway\r\n\r\n"), 400),
        ("GET /%zz HTTP/1.1\r\nHost: gateway\r\n\r\n".into(), 400),
        ("GET /%00 HTTP/1.1\r\nHost: gateway\r\n\r\n".into(), 400),
        ("GET /../.. HTTP/1.1\r\nHost: gateway\r\n\r\n".into(), 400),
        ("GET paramquery HTTP/1.1\r\nHost: gateway\r\n\r\n".into(), 400),
        ("GET * HTTP/1.1\r\nHost: gateway\r\n\r\n".into(), 400),
        ("CONNECT gateway:80 HTTP/1.1\r\nHost: gateway\r\n\r\n".into(), 400),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(), 400),
        ("get / HTTP/1.1\r\n\r\n".into(), 400),
        ("\x16\x03\x01\x02\0\x01\0\x01\u{fc}\x03\x03\r\n\r\n".into(), 400),
        ("\r\n\r\n\0\r\n".into(), 400),
        ("hello\r\n\r\n".into(), 400),
    ] {
        for connect in [Gateway::connect, Gateway::connect_status] {
            check(&answer_to(connect(&gateway), &request), status, "bad_request");
        }
    }
    assert_eq!(gateway.get(QUERY).status, 200);
    gateway.assert_sound();
}

/// Each of these made a worker crash or kept the client without an answer, before nginx was told to refuse it.
#[test]
fn conditions_and_chunks_are_refused_and_crash_no_worker() {
    let server = server_behind();
    ask::<(), _>(&mut server.connect(), "CARD.SET blacklist:0 1 1 1".split(' '));
    let gateway = Gateway::start(&server);
    for line in [
        "If-Match: \"x\"",
        "If-Unmodified-Since: Wed, 18 Nov 2020 12:00:00 GMT",
        "If-None-Match: *",
        "Transfer-Encoding: chunked\r\n\r\nzz",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nabc",
        "Transfer-Encoding: chunked\r\n\r\n0",
    ] {
        for (connect, target) in [
            (Gateway::connect as fn(&Gateway) -> Client, QUERY),
            (Gateway::connect, "/cards/blacklist:0/1"),
            (Gateway::connect_status, "/healthz"),
            (Gateway::connect_status, "/readyz"),
            (Gateway::connect_status, "/metrics"),
        ] {
            for method in ["GET", "POST"] {
                let request = format!("{method} {target} HTTP/1.1\r\nHost: gateway\r\n{line}\r\n\r\n");
                check(&answer_to(connect(&gateway), &request), 400, "bad_request");
            }
        }
    }
    for line in ["If-Modified-Since: Wed, 18 Nov 2020 12:00:00 GMT", "Range: bytes=0-1", "Expect: x", "Upgrade: h2c"] {
        let request = format!("GET {QUERY} HTTP/1.1\r\nHost: gateway\r\n{line}\r\n\r\n");
        assert_eq!(answer_to(gateway.connect(), &request).status, 200, "{line} is ignored");
    }
    gateway.assert_sound();
}

#[test]
fn over_the_rate_limit_is_429_once_it_is_switched_on() {
    let server = server_behind();
    ask::<(), _>(&mut server.connect(), "CARD.SET blacklist:0 1 1 1".split(' '));
    let limited = Gateway::with(
        &server,
        &[
            ("site.conf", "# limit_req zone=gateway_clients burst=50", "limit_req zone=gateway_clients burst=5"),
            ("site.conf", "rate=100r/s", "rate=1r/m"),
        ],
    );
    let mut client = limited.connect();
    let answers: Vec<_> = (0..10).map(|_| client.get(QUERY)).collect();
    let statuses: Vec<_> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 200, 429, 429, 429, 429]);
    check(&answers[9], 429, "too_many_requests");
    assert_eq!(answers[9].header("retry-after"), Some("1"));
    assert_eq!(limited.status("/healthz").status, 200, "monitoring is not limited");

    let unlimited = Gateway::start(&server);
    let mut client = unlimited.connect();
    assert!((0..500).all(|_| client.get(QUERY).status == 200), "off by default");
}
