//! A replica takes the place of its primary: nothing that was acknowledged is lost, and writing goes on.

mod common;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use card_table::{Id, Schema, Table};
use common::{Server, ask, try_ask, wait_for};
use redis::Connection;

/// Cards with their type and status.
type Cards = BTreeMap<String, [u64; 2]>;

fn server() -> Server {
    Server::with_port(&["--repl-diskless-sync-delay", "0"])
}

fn info(db: &mut Connection, field: &str) -> String {
    let info: String = ask(db, ["INFO"]);
    let value = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.unwrap_or_else(|| panic!("INFO has {field}")).into()
}

fn follow(replica: &Server, primary: &Server) {
    ask::<(), _>(&mut replica.connect(), ["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    wait_until_in_step(replica, primary);
}

#[track_caller]
fn wait_until_in_step(replica: &Server, primary: &Server) {
    let (from, to) = (&mut primary.connect(), &mut replica.connect());
    wait_for(15, "the replica is in step", || {
        info(to, "role") == "slave"
            && info(to, "master_link_status") == "up"
            && info(to, "slave_repl_offset") == info(from, "master_repl_offset")
    });
}

fn promote(replica: &Server) {
    ask::<(), _>(&mut replica.connect(), ["REPLICAOF", "NO", "ONE"]);
}

/// Every record of the table that the tests write to.
fn cards(server: &Server) -> Cards {
    let (db, mut cards, mut cursor) = (&mut server.connect(), Cards::new(), "0".to_string());
    loop {
        let (next, some): (String, Vec<(String, u64, u64)>) = ask(db, ["CARD.SCAN", "cards", &cursor, "COUNT", "1000"]);
        for (id, type_, status) in some {
            assert_eq!(cards.insert(id, [type_, status]), None, "a scan returns a card once");
        }
        if next == "0" {
            return cards;
        }
        cursor = next;
    }
}

fn digest(server: &Server) -> String {
    let told: BTreeMap<String, redis::Value> = ask(&mut server.connect(), ["CARD.INFO", "cards", "DIGEST"]);
    redis::from_redis_value(told["digest"].clone()).expect("a digest")
}

#[track_caller]
fn assert_same(primary: &Server, replica: &Server, expected: &Cards) {
    wait_until_in_step(replica, primary);
    assert_eq!(cards(primary), *expected);
    assert_eq!(cards(replica), *expected);
    assert_eq!(digest(primary), digest(replica));
}

fn card(number: u64) -> String {
    format!("4401{:016}", number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % 10_000_000_000_000_000)
}

/// Runs `writer` on a thread of its own while something happens; both see how many writes have been acknowledged.
fn while_writing<T: Send>(writer: impl FnOnce(&Progress) -> T + Send, happens: impl FnOnce(&Progress)) -> T {
    let progress = Progress::default();
    thread::scope(|scope| {
        let written = scope.spawn(|| writer(&progress));
        // The writer ends also when what happens fails.
        let happened = catch_unwind(AssertUnwindSafe(|| happens(&progress)));
        progress.stop.store(true, Ordering::Relaxed);
        let written = written.join().expect("the writer writes");
        happened.unwrap_or_else(|panic| resume_unwind(panic));
        written
    })
}

#[derive(Default)]
struct Progress {
    acknowledged: AtomicU64,
    stop: AtomicBool,
}

impl Progress {
    #[track_caller]
    fn wait_for_more(&self, writes: u64) {
        let until = self.acknowledged.load(Ordering::Relaxed) + writes;
        wait_for(15, "more writes", || self.acknowledged.load(Ordering::Relaxed) >= until);
    }
}

/// Sets, changes and removes cards at whichever of two servers takes them, and returns what is acknowledged.
fn write_to_the_primary_of(servers: &[Server; 2], progress: &Progress) -> Cards {
    let mut connections = servers.each_ref().map(Server::connect);
    let (mut at, mut cards, mut random) = (0, Cards::new(), fastrand::Rng::with_seed(1));
    while !progress.stop.load(Ordering::Relaxed) {
        let (id, values) = (card(random.u64(..2000)), [random.u64(..=10), random.u64(1..=2)]);
        let [type_, status] = values.map(|value| value.to_string());
        let removes = random.u8(..4) == 0;
        let set = ["CARD.SET", "cards", &id, &type_, &status];
        let command = if removes { &["CARD.DEL", "cards", &id][..] } else { &set };
        match try_ask::<u64, _>(&mut connections[at], command) {
            Ok(count) => {
                let before = if removes { cards.remove(&id) } else { cards.insert(id, values) };
                assert_eq!(count == 1, before.is_some() == removes, "the answer knows all writes before");
                progress.acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) if error.code() == Some("READONLY") => at = 1 - at,
            Err(error) => panic!("{error}"),
        }
    }
    cards
}

#[test]
fn a_coordinated_failover_loses_nothing_and_writing_goes_on() {
    let servers = [server(), server()];
    follow(&servers[1], &servers[0]);
    let written = while_writing(
        |progress| write_to_the_primary_of(&servers, progress),
        |progress| {
            for (from, to) in [(0, 1), (1, 0)] {
                let (from, to) = (&mut servers[from].connect(), &mut servers[to].connect());
                progress.wait_for_more(200);
                ask::<(), _>(from, ["FAILOVER"]);
                wait_for(15, "the failover", || info(to, "role") == "master" && info(from, "role") == "slave");
            }
            progress.wait_for_more(200);
        },
    );
    assert!(written.len() > 200);
    assert_same(&servers[0], &servers[1], &written);
    // After the first sync nothing was sent anew.
    assert_eq!(servers.each_ref().map(|server| info(&mut server.connect(), "sync_full")), ["1", "0"]);
}

/// Adds cards, each with WAIT, until the server is gone. Returns those that a replica has acknowledged, and the one that
/// was under way in the end.
fn write_with_wait(server: &Server, progress: &Progress) -> (Cards, String) {
    let (db, mut cards) = (&mut server.connect(), Cards::new());
    for number in 0.. {
        let (id, values) = (card(number), [number % 11, 1 + number % 2]);
        let [type_, status] = values.map(|value| value.to_string());
        let set = try_ask::<u64, _>(db, ["CARD.SET", "cards", &id, &type_, &status]);
        let replicas = set.and_then(|_| try_ask::<u64, _>(db, ["WAIT", "1", "10000"]));
        match replicas {
            Ok(replicas) => assert!(replicas > 0, "a replica acknowledges"),
            Err(error) if error.is_io_error() => return (cards, id),
            Err(error) => panic!("{error}"),
        }
        cards.insert(id, values);
        progress.acknowledged.fetch_add(1, Ordering::Relaxed);
    }
    unreachable!("the server is killed before long")
}

/// Kills a primary under writes, and returns what had been acknowledged, and the card that was under way.
fn kill_under_writes(primary: &Server) -> (Cards, String) {
    let pid = primary.pid().to_string();
    while_writing(
        |progress| write_with_wait(primary, progress),
        |progress| {
            progress.wait_for_more(300);
            let killed = Command::new("kill").args(["-9", &pid]).status();
            assert!(killed.expect("kill runs").success());
        },
    )
}

#[test]
fn what_a_replica_has_acknowledged_survives_the_primary() {
    let (mut primary, replica) = (server(), server());
    follow(&replica, &primary);
    let (mut expected, under_way) = kill_under_writes(&primary);
    promote(&replica);
    let mut kept = cards(&replica);
    if !expected.contains_key(&under_way) {
        kept.remove(&under_way);
    }
    assert_eq!(kept, expected);

    // Writing goes on, and the former primary comes back as a replica, with nothing in it.
    let db = &mut replica.connect();
    ask::<u64, _>(db, ["CARD.SET", "cards", &under_way, "3", "2"]);
    ask::<u64, _>(db, ["CARD.DEL", "cards", &card(0)]);
    expected.insert(under_way, [3, 2]);
    expected.remove(&card(0));
    primary.kill();
    primary.start_again();
    follow(&primary, &replica);
    assert_eq!(ask::<u64, _>(db, ["CARD.SET", "cards", "new", "4", "1"]), 1);
    expected.insert("new".into(), [4, 1]);
    assert_same(&replica, &primary, &expected);
}

#[test]
fn the_other_replica_follows_the_promoted_one_without_a_full_sync() {
    let (primary, replicas) = (server(), [server(), server()]);
    replicas.iter().for_each(|replica| follow(replica, &primary));
    let (mut expected, under_way) = kill_under_writes(&primary);
    let offset = |replica: &Server| -> u64 {
        let db = &mut replica.connect();
        wait_for(15, "the link is down", || info(db, "master_link_status") == "down");
        info(db, "slave_repl_offset").parse().expect("a number")
    };
    let [one, other] = &replicas;
    let (promoted, follower) = if offset(one) >= offset(other) { (one, other) } else { (other, one) };
    promote(promoted);
    follow(follower, promoted);
    let db = &mut promoted.connect();
    assert_eq!([info(db, "sync_partial_ok"), info(db, "sync_full")], ["1", "0"]);

    ask::<u64, _>(db, ["CARD.SET", "cards", &under_way, "3", "2"]);
    expected.insert(under_way, [3, 2]);
    assert_same(promoted, follower, &expected);
}

#[test]
fn a_load_that_had_come_half_way_is_dropped_by_the_promoted_replica_and_can_begin_anew() {
    let mut table = Table::new(Schema::default());
    let mut expected = Cards::new();
    for number in 0..20_000 {
        let symbol = table.schema().pack(&[u128::from(number % 11), 2]).expect("values in range");
        table.insert(&Id::parse(card(number).as_bytes()).expect("an id"), symbol);
        expected.insert(card(number), [number % 11, 2]);
    }
    let pieces: Vec<_> = table.frames(16 << 10).collect();
    let stage = |server: &Server, part: &str, piece: &[u8]| {
        ask::<(), _>(&mut server.connect(), [b"CARD.STAGE", b"staged".as_slice(), part.as_bytes(), piece]);
    };

    let (mut primary, replica) = (server(), server());
    follow(&replica, &primary);
    let db = &mut primary.connect();
    ask::<u64, _>(db, ["CARD.SET", "cards", "old", "1", "1"]);
    stage(&primary, "BEGIN", &table.header_bytes());
    pieces[..pieces.len() / 2].iter().for_each(|piece| stage(&primary, "FRAMES", piece));
    wait_until_in_step(&replica, &primary);
    primary.kill();
    promote(&replica);
    let db = &mut replica.connect();
    wait_for(5, "what was staged is dropped", || ask::<i64, _>(db, ["EXISTS", "staged"]) == 0);
    assert_eq!(cards(&replica), Cards::from([("old".into(), [1, 1])]));
    stage(&replica, "BEGIN", &table.header_bytes());
    pieces.iter().for_each(|piece| stage(&replica, "FRAMES", piece));
    ask::<(), _>(&mut replica.connect(), ["CARD.COMMIT", "staged", "cards"]);
    assert_eq!(cards(&replica), expected);
    assert_eq!(digest(&replica), format!("{:032x}", table.digest()));
}

#[test]
fn what_a_former_primary_took_alone_is_gone_when_it_follows_the_new_one() {
    let (former, new) = (server(), server());
    follow(&new, &former);
    ask::<u64, _>(&mut former.connect(), ["CARD.SET", "cards", "both", "1", "1"]);
    wait_until_in_step(&new, &former);
    promote(&new);
    ask::<u64, _>(&mut former.connect(), ["CARD.MSET", "cards", "both", "2", "2", "alone", "2", "2"]);
    ask::<u64, _>(&mut former.connect(), ["CARD.SET", "table", "alone", "2", "2"]);
    ask::<u64, _>(&mut new.connect(), ["CARD.SET", "cards", "new", "3", "1"]);
    follow(&former, &new);
    assert_same(&new, &former, &Cards::from([("both".into(), [1, 1]), ("new".into(), [3, 1])]));
    assert_eq!(ask::<Vec<String>, _>(&mut former.connect(), ["KEYS", "*"]), ["cards"]);
}
