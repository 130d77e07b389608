//! While a list loads: everybody else is answered from the old one, until the new one takes its place at once.

mod common;

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{Server, ask, refused, try_ask, wait_for};
use redis::{Connection, RedisResult, Value};

/// Makes loads last longer.
const SLOWLY: [&str; 4] = ["--card.load-threads", "1", "--card.load-memory", "1mb"];

fn server(arguments: &[&str]) -> Server {
    let server = Server::with(&[&["--card.load-dir", "lists"], arguments].concat());
    fs::create_dir(server.directory().join("lists")).expect("a folder");
    server
}

fn card(number: u64) -> String {
    format!("{:020}", number * 1_000_000_007)
}

/// A list of the cards `from..to`, all of one type.
fn write(server: &Server, name: &str, from: u64, to: u64, type_: u64) {
    let file = File::create(server.directory().join("lists").join(name)).expect("a file");
    let mut file = BufWriter::with_capacity(1 << 20, file);
    file.write_all(b"cardId\ttype\tstatus\n").unwrap();
    (from..to).for_each(|number| writeln!(file, "{:020}\t{type_}\t1", number * 1_000_000_007).unwrap());
    file.flush().unwrap();
}

fn load(server: &Server, key: &str, file: &str) -> RedisResult<HashMap<String, Value>> {
    try_ask(&mut server.connect(), ["CARD.LOAD", key, file])
}

fn get(db: &mut Connection, key: &str, number: u64) -> Option<Vec<u64>> {
    ask(db, ["CARD.GET", key, &card(number)])
}

/// What INFO tells of the loads under way, each as its fields.
fn under_way(db: &mut Connection) -> Vec<HashMap<String, String>> {
    let info: String = ask(db, ["INFO", "everything"]);
    let loads = (0..).map_while(|at| info.lines().find_map(|line| line.strip_prefix(&format!("card_load_{at}:"))));
    loads.map(|load| load.split(',').filter_map(|part| part.split_once('=')).map(own).collect()).collect()
}

fn own((name, value): (&str, &str)) -> (String, String) {
    (name.into(), value.into())
}

#[track_caller]
fn wait_for_phase(db: &mut Connection, phase: &str) {
    wait_for(20, phase, || under_way(db).first().is_some_and(|load| load["phase"] == phase));
}

fn keys(db: &mut Connection) -> BTreeSet<String> {
    ask(db, ["KEYS", "*"])
}

fn detail(outcome: RedisResult<HashMap<String, Value>>) -> String {
    outcome.expect_err("it is not loaded").detail().expect("a reason").into()
}

/// The old list has the cards 0..2000 with type 1, the new one 1000..3000000 with type 2.
#[test]
fn every_answer_is_of_the_old_list_and_then_of_the_new_one() {
    const BOTH: std::ops::Range<u64> = 1000..2000;
    let server = server(&[]);
    write(&server, "old.tsv", 0, 2000, 1);
    write(&server, "new.tsv", 1000, 3_000_000, 2);
    load(&server, "list", "old.tsv").expect("loaded");
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let ask_on = |seed| {
            let (db, mut random) = (&mut server.connect(), fastrand::Rng::with_seed(seed));
            let (mut old, mut new, mut longest) = (0, 0, Duration::ZERO);
            loop {
                let last = done.load(Ordering::Relaxed);
                let ids =
                    [random.u64(..1000), random.u64(BOTH), random.u64(BOTH), random.u64(2000..3_000_000)].map(card);
                let command = ["CARD.MGET", "list", &ids[0], &ids[1], &ids[2], &ids[3]];
                let asked = Instant::now();
                let answer: [Option<Vec<u64>>; 4] = ask(db, command);
                longest = longest.max(asked.elapsed());
                if answer == [Some(vec![1, 1]), Some(vec![1, 1]), Some(vec![1, 1]), None] {
                    assert_eq!(new, 0, "never back");
                    old += 1;
                } else {
                    let new_answer = Some(vec![2, 1]);
                    assert_eq!(answer, [None, new_answer.clone(), new_answer.clone(), new_answer], "{ids:?}");
                    new += 1;
                }
                if last {
                    return (old, new, longest);
                }
            }
        };
        let askers: Vec<_> = (0..3).map(|seed| scope.spawn(move || ask_on(seed))).collect();
        let report = load(&server, "list", "new.tsv").expect("loaded");
        done.store(true, Ordering::Relaxed);
        assert_eq!((&report["added"], &report["removed"]), (&Value::Int(2_999_000), &Value::Int(2000)));
        for asker in askers {
            let (old, new, longest) = asker.join().expect("all answers are right");
            assert!(old > 1000 && new > 0, "{old} {new}");
            // What a step of a load takes is far below this; the rest is for a machine that is busy with tests.
            assert!(longest < Duration::from_millis(250), "{longest:?}");
        }
    });
}

#[test]
fn writes_made_meanwhile_end_with_the_old_list() {
    let server = server(&SLOWLY);
    let db = &mut server.connect();
    write(&server, "old.tsv", 0, 10, 1);
    write(&server, "new.tsv", 5, 1_000_000, 2);
    load(&server, "list", "old.tsv").expect("loaded");
    thread::scope(|scope| {
        let loading = scope.spawn(|| load(&server, "list", "new.tsv"));
        wait_for_phase(db, "reading");
        let _: i64 = ask(db, ["CARD.SET", "list", "written", "9", "2"]);
        let _: i64 = ask(db, ["CARD.SET", "list", &card(7), "9", "2"]);
        let _: i64 = ask(db, ["EXPIRE", "list", "1000"]);
        assert_eq!(get(db, "list", 7), Some(vec![9, 2]));
        assert_eq!(loading.join().unwrap().expect("loaded")["removed"], Value::Int(10));
    });
    assert_eq!(ask::<Option<Vec<u64>>, _>(db, ["CARD.GET", "list", "written"]), None);
    assert_eq!(get(db, "list", 7), Some(vec![2, 1]));
    assert_eq!(ask::<i64, _>(db, ["TTL", "list"]), -1);
}

#[test]
fn a_table_has_one_load_at_a_time_and_others_wait_in_line() {
    let server = server(&SLOWLY);
    let db = &mut server.connect();
    write(&server, "large.tsv", 0, 1_000_000, 1);
    write(&server, "small.tsv", 0, 10, 2);
    let _: i64 = ask(db, ["CARD.SET", "list", "1", "7", "1"]);
    let _: i64 = ask(db, ["CARD.SET", "second", "1", "7", "1"]);
    thread::scope(|scope| {
        let first = scope.spawn(|| load(&server, "list", "large.tsv"));
        wait_for_phase(db, "reading");
        let second = scope.spawn(|| load(&server, "second", "small.tsv"));
        wait_for(5, "the second waits", || under_way(db).len() == 2);
        let third = scope.spawn(|| load(&server, "third", "small.tsv"));
        wait_for(5, "the third waits", || under_way(db).len() == 3);
        for key in ["list", "second"] {
            let error = refused(db, ["CARD.LOAD", key, "small.tsv"]);
            assert_eq!(error, "ERR a load of this table is running or waiting already");
        }
        let told = under_way(db);
        let of = |field: &str| told.iter().map(|load| load[field].clone()).collect::<Vec<_>>();
        assert_eq!(of("table"), ["list", "second", "third"]);
        assert_eq!(of("file"), ["large.tsv", "small.tsv", "small.tsv"]);
        assert_eq!(of("phase")[1..], ["queued", "queued"]);
        assert_eq!(of("percent")[1..], ["0", "0"]);

        let told: HashMap<String, Value> = ask(db, ["CARD.INFO", "second"]);
        let loading: HashMap<String, Value> = redis::from_redis_value(told["loading"].clone()).expect("a map");
        assert_eq!(loading["phase"], Value::BulkString("queued".into()));
        assert_eq!(loading["percent"], Value::Int(0));

        let _: Value = ask(db, "CARD.LOAD third CANCEL".split(' '));
        first.join().unwrap().expect("loaded");
        second.join().unwrap().expect("loaded");
        assert_eq!(detail(third.join().unwrap()), "the load was cancelled");
    });
    assert_eq!(keys(db), ["list", "second"].map(Into::into).into());
    assert_eq!(under_way(db), []);
}

#[test]
fn the_same_key_of_two_databases_is_two_tables() {
    let server = server(&SLOWLY);
    let db = &mut server.connect();
    write(&server, "large.tsv", 0, 1_000_000, 1);
    write(&server, "small.tsv", 0, 10, 2);
    thread::scope(|scope| {
        let first = scope.spawn(|| load(&server, "list", "large.tsv"));
        wait_for_phase(db, "reading");
        let _: Value = ask(db, ["SELECT", "3"]);
        assert_eq!(refused(db, "CARD.LOAD list CANCEL".split(' ')), "ERR no load of this table is running or waiting");
        let _: Value = ask(db, "CARD.LOAD list small.tsv".split(' '));
        first.join().unwrap().expect("loaded");
    });
    assert_eq!(ask::<i64, _>(db, ["CARD.LEN", "list"]), 10);
    let _: Value = ask(db, ["SELECT", "0"]);
    assert_eq!(ask::<i64, _>(db, ["CARD.LEN", "list"]), 1_000_000);
}

#[test]
fn progress_is_told_and_goes_forward() {
    let server = server(&SLOWLY);
    let db = &mut server.connect();
    write(&server, "large.tsv", 0, 2_000_000, 1);
    let _: i64 = ask(db, ["CARD.SET", "list", "1", "7", "1"]);
    let seen = thread::scope(|scope| {
        let loading = scope.spawn(|| load(&server, "list", "large.tsv"));
        let mut seen = Vec::new();
        while !loading.is_finished() {
            seen.extend(under_way(db).first().cloned());
            let told: HashMap<String, Value> = ask(db, ["CARD.INFO", "list"]);
            if told["loading"] != Value::Nil {
                let loading: HashMap<String, Value> = redis::from_redis_value(told["loading"].clone()).expect("a map");
                let fields: BTreeSet<_> = loading.keys().map(String::as_str).collect();
                assert_eq!(fields, ["phase", "percent", "rows_per_second", "eta_seconds"].into());
            }
        }
        loading.join().unwrap().expect("loaded");
        seen
    });
    let mut phases: Vec<_> =
        seen.iter().map(|load| load["phase"].as_str()).filter(|phase| *phase != "queued").collect();
    phases.dedup();
    assert!(phases == ["reading", "merging", "staging"] || phases == ["reading", "merging"], "{phases:?}");
    let percents: Vec<u64> = seen.iter().map(|load| load["percent"].parse().unwrap()).collect();
    assert!(percents.is_sorted() && percents.iter().all(|percent| *percent <= 100), "{percents:?}");
    assert!(percents.iter().collect::<BTreeSet<_>>().len() > 20, "{percents:?}");
    assert!(seen.iter().any(|load| load["rows_per_second"].parse::<u64>().unwrap() > 10_000));
}

#[test]
fn a_load_is_cancelled_in_any_phase_and_leaves_nothing() {
    let server = server(&SLOWLY);
    let db = &mut server.connect();
    write(&server, "large.tsv", 0, 3_000_000, 1);
    let _: i64 = ask(db, ["CARD.SET", "list", "1", "7", "1"]);
    for (at, phase) in ["reading", "merging", "staging"].into_iter().enumerate() {
        thread::scope(|scope| {
            let loading = scope.spawn(|| load(&server, "list", "large.tsv"));
            // Spinning, because staging takes little time.
            while under_way(db).first().is_none_or(|load| load["phase"] != phase) {
                assert!(!loading.is_finished(), "{phase} was not seen");
            }
            let _: Value = ask(db, "CARD.LOAD list CANCEL".split(' '));
            let asked = Instant::now();
            assert_eq!(detail(loading.join().unwrap()), "the load was cancelled", "{phase}");
            assert!(asked.elapsed() < Duration::from_secs(2), "{phase}: {:?}", asked.elapsed());
        });
        assert_eq!(keys(db), ["list".into()].into(), "{phase}");
        assert_eq!(ask::<Option<Vec<u64>>, _>(db, ["CARD.GET", "list", "1"]), Some(vec![7, 1]));
        let info: String = ask(db, ["INFO", "everything"]);
        assert!(info.contains(&format!("card_failed_loads:{}\r", at + 1)) && info.contains("card_loads:0\r"));
    }
}

#[test]
fn a_client_that_goes_away_does_no_harm() {
    let mut server = server(&SLOWLY);
    let db = &mut server.connect();
    write(&server, "large.tsv", 0, 700_000, 1);
    for way in ["closed", "killed"] {
        let mut client = server.connect();
        let id: i64 = ask(&mut client, ["CLIENT", "ID"]);
        client.send_packed_command(&redis::cmd("CARD.LOAD").arg("list").arg("large.tsv").get_packed_command()).unwrap();
        wait_for_phase(db, "reading");
        assert_eq!(ask::<i64, _>(db, ["CLIENT", "UNBLOCK", &id.to_string()]), 0, "it waits for the load alone");
        if way == "closed" {
            drop(client);
        } else {
            let _: i64 = ask(db, ["CLIENT", "KILL", "ID", &id.to_string()]);
        }
        wait_for(10, "the load ends", || under_way(db).is_empty());
        assert_eq!(ask::<i64, _>(db, ["CARD.LEN", "list"]), 700_000, "it was loaded all the same");
        let _: i64 = ask(db, ["DEL", "list"]);
    }
    assert!(server.is_alive());
}

#[test]
fn a_key_that_others_change_meanwhile_is_respected() {
    let server = server(&SLOWLY);
    let db = &mut server.connect();
    write(&server, "large.tsv", 0, 700_000, 1);
    thread::scope(|scope| {
        let loading = scope.spawn(|| load(&server, "list", "large.tsv"));
        wait_for_phase(db, "reading");
        let _: Value = ask(db, ["SET", "list", "x"]);
        let error = loading.join().unwrap().expect_err("the key is a string now");
        assert_eq!(error.code(), Some("WRONGTYPE"), "{error}");
    });
    assert_eq!(keys(db), ["list".into()].into());
    assert_eq!(ask::<String, _>(db, ["GET", "list"]), "x");

    let _: Value = ask(db, ["FLUSHALL"]);
    let _: i64 = ask(db, ["CARD.SET", "list", "1", "7", "1"]);
    thread::scope(|scope| {
        let loading = scope.spawn(|| load(&server, "list", "large.tsv"));
        wait_for_phase(db, "reading");
        let _: i64 = ask(db, ["DEL", "list"]);
        loading.join().unwrap().expect("loaded");
    });
    assert_eq!(ask::<i64, _>(db, ["CARD.LEN", "list"]), 700_000);
}

#[test]
fn a_load_waits_while_writes_are_paused() {
    let mut server = server(&SLOWLY);
    let db = &mut server.connect();
    write(&server, "large.tsv", 0, 700_000, 1);
    let _: i64 = ask(db, ["CARD.SET", "list", "1", "7", "1"]);
    thread::scope(|scope| {
        let loading = scope.spawn(|| load(&server, "list", "large.tsv"));
        wait_for_phase(db, "reading");
        let _: Value = ask(db, "CLIENT PAUSE 10000 WRITE".split(' '));
        wait_for_phase(db, "staging");
        // Long enough to stage all of it, were it not for the pause.
        thread::sleep(Duration::from_millis(300));
        assert_eq!(under_way(db)[0]["percent"], "90");
        assert_eq!(ask::<i64, _>(db, ["CARD.LEN", "list"]), 1);
        assert_eq!(keys(db), ["list".into()].into());
        let _: Value = ask(db, ["CLIENT", "UNPAUSE"]);
        loading.join().unwrap().expect("loaded");
    });
    assert_eq!(ask::<i64, _>(db, ["CARD.LEN", "list"]), 700_000);
    assert!(server.is_alive());
}

#[test]
fn the_staging_key_is_no_ones_to_take_away() {
    let server = server(&SLOWLY);
    let db = &mut server.connect();
    write(&server, "large.tsv", 0, 3_000_000, 1);
    let _: i64 = ask(db, ["CARD.SET", "list", "1", "7", "1"]);
    thread::scope(|scope| {
        let loading = scope.spawn(|| load(&server, "list", "large.tsv"));
        // Spinning, because staging takes little time.
        while ask::<i64, _>(db, ["DEL", "{list}.staging"]) == 0 {
            assert!(!loading.is_finished(), "staging was not seen");
        }
        assert_eq!(detail(loading.join().unwrap()), "the staging key holds something else, or was removed");
    });
    assert_eq!(keys(db), ["list".into()].into());
    assert_eq!(ask::<Option<Vec<u64>>, _>(db, ["CARD.GET", "list", "1"]), Some(vec![7, 1]));
}
