//! Many connections, slow ones, half ones and ones that go away: none of them keeps the others from their answers.

mod common;

use std::net::Shutdown;
use std::thread;
use std::time::{Duration, Instant};

use common::ask;
use common::gateway::{Client, Gateway, server_behind};

const QUERY: &str = "/paramquery?cardid=1&cmdtype=blacklistquery&serialno=8&tbtype=0&version=1";
const ANSWER: &str =
    r#"{"cmdtype":"blacklistqueryresult","errorcode":"0","recordcnt":"0","serialno":"8","version":"1"}"#;

fn gateway(changes: &[common::gateway::Change]) -> (common::Server, Gateway) {
    let server = server_behind();
    ask::<(), _>(&mut server.connect(), "CARD.SET blacklist:0 2 1 1".split(' '));
    let gateway = Gateway::with(&server, changes);
    (server, gateway)
}

#[test]
fn a_thousand_connections_are_kept_and_answered() {
    let (_server, gateway) = gateway(&[]);
    let mut clients: Vec<_> = (0..1000).map(|_| gateway.connect()).collect();
    let request = format!("GET {QUERY} HTTP/1.1\r\nHost: gateway\r\n\r\n");
    for _ in 0..3 {
        clients.iter_mut().for_each(|client| client.send(&request));
        for client in &mut clients {
            assert_eq!(client.answer().expect("an answer").told(), (200, ANSWER));
        }
    }
    gateway.assert_sound();
}

#[test]
fn requests_in_a_row_are_answered_in_a_row() {
    let (_server, gateway) = gateway(&[]);
    let mut client = gateway.connect();
    let requests: String = (0..100)
        .map(|card| {
            format!(
                "GET {} HTTP/1.1\r\nHost: gateway\r\n\r\n",
                QUERY.replace("serialno=8", &format!("serialno={card}"))
            )
        })
        .collect();
    client.send(requests);
    for card in 0..100 {
        let answer = client.answer().expect("an answer");
        assert_eq!((answer.status, &answer.json()["serialno"]), (200, &card.to_string().into()));
    }
}

#[test]
fn slow_and_half_requests_end_and_disturb_nobody() {
    let timeouts = "client_header_timeout 5s;\n    client_body_timeout 5s;";
    let (_server, gateway) =
        gateway(&[("site.conf", timeouts, "client_header_timeout 1s;\n    client_body_timeout 1s;")]);
    let request = format!("GET {QUERY} HTTP/1.1\r\nHost: gateway\r\n\r\n");
    let halves = [1, 10, request.len() / 2, request.len() - 2];
    let mut stuck: Vec<_> = (0..200).map(|at| (gateway.connect(), halves[at % halves.len()])).collect();
    stuck.iter_mut().for_each(|(client, half)| client.send(&request[..*half]));

    // One that is slow but arrives is answered, byte by byte, while those wait.
    let asked = Instant::now();
    let mut slow = gateway.connect();
    for byte in request.as_bytes().chunks(1) {
        slow.send(byte);
        thread::sleep(Duration::from_millis(3));
    }
    assert_eq!(slow.answer().expect("an answer").told(), (200, ANSWER));
    let mut quick = gateway.connect();
    (0..100).for_each(|_| assert_eq!(quick.get(QUERY).told(), (200, ANSWER)));

    for (client, half) in &mut stuck {
        let said = client.rest().unwrap_or_default();
        assert!(!String::from_utf8_lossy(&said).contains(" 200 "), "half a request of {half} bytes is none");
    }
    assert!(asked.elapsed() < Duration::from_secs(10), "they were closed");
    gateway.assert_sound();
}

#[test]
fn clients_that_go_away_do_no_harm() {
    let (_server, gateway) = gateway(&[]);
    let request = format!("GET {QUERY} HTTP/1.1\r\nHost: gateway\r\n\r\n");
    for at in 0..300 {
        let mut client = gateway.connect();
        client.send(&request[..request.len() - at % 3]);
        if at % 2 == 0 {
            client.shutdown(Shutdown::Write);
        }
    }
    // And one that asks a lot and reads nothing.
    let mut deaf: Client = gateway.connect();
    (0..100).for_each(|_| deaf.send(request.repeat(10)));
    drop(deaf);
    assert_eq!(gateway.get(QUERY).told(), (200, ANSWER));
    gateway.assert_sound();
}
