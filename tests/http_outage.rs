//! Redis goes away, hangs, breaks connections and comes back, under traffic: every answer is right or 503.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::gateway::{Gateway, server_behind, server_with, server_with_port};
use common::{Server, ask, wait_for};

const CLIENTS: u64 = 4;
const CARDS: u64 = 200;

/// A list in which every even card is listed, with a type that follows from its id.
fn fill(server: &Server) {
    let cards = (0..CARDS).step_by(2).flat_map(|card| [card.to_string(), (card % 11).to_string(), "1".into()]);
    let command = ["CARD.MSET".to_owned(), "blacklist:0".into()].into_iter().chain(cards);
    ask::<(), _>(&mut server.connect(), command);
}

fn query(card: u64) -> String {
    format!("/paramquery?cardid={card}&cmdtype=blacklistquery&serialno={card}&tbtype=0&version=1")
}

/// What must come back about a card, if it is an answer.
fn right_answer(card: u64) -> String {
    if card.is_multiple_of(2) {
        let type_ = card % 11;
        format!(
            r#"{{"cmdtype":"blacklistqueryresult","darkstatus0":"1","darktype0":"{type_}","darkver0":"1970-01-01 08:00:00","errorcode":"0","recordcnt":"1","serialno":"{card}","status":"1","type":"{type_}","version":"1"}}"#
        )
    } else {
        format!(
            r#"{{"cmdtype":"blacklistqueryresult","errorcode":"0","recordcnt":"0","serialno":"{card}","version":"1"}}"#
        )
    }
}

/// Asks from several clients while `meanwhile` runs, and returns when there was which status. All answers are right or 503.
fn under_traffic(gateway: &Gateway, meanwhile: impl FnOnce()) -> Vec<(Instant, u16)> {
    let (done, statuses) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (done, statuses) = (&done, &statuses);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(client);
                let (mut connection, mut seen) = (gateway.connect(), Vec::new());
                while !done.load(Ordering::Relaxed) {
                    let card = random.u64(..CARDS);
                    let answer = connection.get(&query(card));
                    match answer.status {
                        200 => assert_eq!(answer.body, right_answer(card)),
                        503 => assert_eq!(answer.json()["errorcode"], "3", "{answer:?}"),
                        other => panic!("{other}: {answer:?}"),
                    }
                    seen.push((Instant::now(), answer.status));
                }
                statuses.lock().expect("no client failed").extend(seen);
            });
        }
        // The clients must end also if this fails.
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(meanwhile));
        done.store(true, Ordering::Relaxed);
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    let mut statuses = statuses.into_inner().expect("no client failed");
    statuses.sort();
    statuses
}

fn count(statuses: &[(Instant, u16)], status: u16) -> usize {
    statuses.iter().filter(|(_, one)| *one == status).count()
}

fn metric(gateway: &Gateway, name: &str) -> f64 {
    let metrics = gateway.status("/metrics").body;
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).expect("the metric");
    line.parse().expect("a number")
}

#[test]
fn a_redis_that_still_reads_its_data_is_503() {
    // After each key it waits, and looks whether anybody asks.
    let slowly = ["--key-load-delay", "10000", "--loading-process-events-interval-bytes", "1024"];
    let mut server = server_with(&slowly);
    fill(&server);
    let mut redis = server.connect();
    let filler = "x".repeat(4096);
    (0..100).for_each(|key| ask::<(), _>(&mut redis, ["SET", &format!("filler:{key}"), &filler]));
    ask::<(), _>(&mut redis, ["CONFIG", "SET", "rdbcompression", "no"]);
    ask::<(), _>(&mut redis, ["SAVE"]);
    let gateway = Gateway::start(&server);
    let statuses = under_traffic(&gateway, || {
        server.kill();
        server.start_again();
        wait_for(1, "clients are answered", || gateway.get(&query(1)).status == 200);
    });
    assert!(count(&statuses, 503) > 100, "it was asked meanwhile");
    wait_for(3, "the log tells why", || gateway.logs().contains("LOADING Redis is loading"));
}

#[test]
fn redis_is_killed_and_comes_back_within_a_second() {
    let mut server = server_with(&["--appendonly", "yes"]);
    fill(&server);
    let gateway = Gateway::start(&server);
    let mut back = Vec::new();
    let statuses = under_traffic(&gateway, || {
        for _ in 0..3 {
            thread::sleep(Duration::from_millis(300));
            server.kill();
            wait_for(5, "clients are told", || gateway.get(&query(1)).status == 503);
            thread::sleep(Duration::from_millis(300));
            server.start_again();
            wait_for(5, "the list is back", || ask::<u64, _>(&mut server.connect(), ["CARD.LEN", "blacklist:0"]) > 0);
            back.push(Instant::now());
            wait_for(1, "clients are answered", || gateway.get(&query(1)).status == 200);
            thread::sleep(Duration::from_millis(1500));
        }
    });
    assert!(count(&statuses, 200) > 100 && count(&statuses, 503) > 100, "there was traffic before, in and after");
    for back in back {
        let late: Vec<_> = statuses
            .iter()
            .filter(|(at, _)| (1000..1400).contains(&at.saturating_duration_since(back).as_millis()))
            .collect();
        let failed = late.iter().filter(|(_, status)| *status != 200).count();
        assert_eq!(failed, 0, "of {} a second later", late.len());
    }
    gateway.assert_sound();
}

#[test]
fn broken_connections_are_replaced() {
    let server = server_behind();
    fill(&server);
    let gateway = Gateway::start(&server);
    let statuses = under_traffic(&gateway, || {
        let db = &mut server.connect();
        for _ in 0..100 {
            ask::<i64, _>(db, "CLIENT KILL TYPE normal SKIPME yes".split(' '));
            thread::sleep(Duration::from_millis(10));
        }
    });
    let (answered, failed) = (count(&statuses, 200), count(&statuses, 503));
    assert!(metric(&gateway, "redis_card_http_redis_retries_total") > 0.0, "some broke while they were used");
    // What breaks twice is not tried a third time.
    assert!(failed * 20 < answered, "{failed} of {answered}");
    gateway.assert_sound();
}

#[test]
fn a_redis_that_hangs_is_503_and_its_late_replies_reach_nobody() {
    let server = server_behind();
    fill(&server);
    let gateway = Gateway::start(&server);
    let signal = |name: &str| {
        let sent = Command::new("kill").args([name, &server.pid().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    };
    let statuses = under_traffic(&gateway, || {
        for _ in 0..2 {
            thread::sleep(Duration::from_millis(200));
            signal("-STOP");
            let asked = Instant::now();
            assert_eq!(gateway.get(&query(1)).status, 503);
            assert!(asked.elapsed() < Duration::from_secs(2), "the timeout is short");
            signal("-CONT");
            wait_for(5, "it answers again", || gateway.get(&query(2)).status == 200);
            thread::sleep(Duration::from_millis(300));
        }
    });
    assert!(count(&statuses, 503) >= CLIENTS as usize, "those who asked meanwhile");
    gateway.assert_sound();
}

#[test]
fn what_redis_refuses_is_503() {
    let server = server_behind();
    fill(&server);
    let gateway = Gateway::start(&server);
    let db = &mut server.connect();
    assert_eq!(gateway.get(&query(2)).status, 200);
    for (wrong, right) in [
        ("ACL SETUSER gateway -card.query", "ACL SETUSER gateway +card.query"),
        ("ACL SETUSER gateway resetkeys ~other", "ACL SETUSER gateway allkeys"),
        ("ACL SETUSER gateway off", "ACL SETUSER gateway on"),
        ("ACL SETUSER gateway resetpass >secret", "ACL SETUSER gateway nopass"),
        ("RENAME blacklist:0 hidden", "RENAME hidden blacklist:0"),
        ("CONFIG SET maxclients 1", "CONFIG SET maxclients 10000"),
    ] {
        ask::<redis::Value, _>(db, wrong.split(' '));
        ask::<i64, _>(db, "CLIENT KILL TYPE normal SKIPME yes".split(' '));
        assert_eq!(gateway.get(&query(1)).status, 503, "{wrong}");
        ask::<redis::Value, _>(db, right.split(' '));
        wait_for(1, "it answers again", || gateway.get(&query(1)).status == 200);
    }
    gateway.assert_sound();
}

#[test]
fn a_password_and_a_port_can_be_set() {
    let server = server_with_port();
    fill(&server);
    ask::<(), _>(&mut server.connect(), "ACL SETUSER gateway resetpass >secret".split(' '));
    // As for nginx's workers, who are nobody, in front of a server of root's.
    fs::set_permissions(server.directory().join("socket"), fs::Permissions::from_mode(0o000)).expect("it is ours");
    let gateway = Gateway::with(&server, &[("gateway/settings.lua", "password = \"\"", "password = \"secret\"")]);
    assert_eq!(
        gateway.get(&query(2)).told(),
        (200, right_answer(2).as_str()),
        "by the port, where the socket is forbidden"
    );
    let mut client = gateway.connect();
    (0..100).for_each(|card| assert_eq!(client.get(&query(card)).body, right_answer(card)));
    assert!(metric(&gateway, "redis_card_http_redis_connections_total") < 10.0, "from the pool");
    let wrong = Gateway::start(&server);
    assert_eq!(wrong.get(&query(1)).status, 503, "without the password");
    wait_for(5, "the log tells why", || wrong.logs().contains("WRONGPASS"));
}
