//! While changes to a list are loaded: whoever writes is not overruled, whoever reads sees all of them or none, and what
//! becomes of the key has a defined end.

mod common;

use std::collections::{BTreeSet, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use card_table::Schema;
use common::deltas::{
    LISTS, LONG, Model, Row, TABLE_GONE, apply, begin, begin_and_hold, digest, digest_of, failure, has_patch, info,
    line_up, load_long_list, memory, reply, resume, send, tsv, wait_until_loads_end, write,
};
use common::{Server, ask, long_ids, refused, wait_for};
use fastrand::Rng;
use redis::{Connection, Value};

fn server() -> Server {
    Server::with(&[&LISTS[..], &["--enable-debug-command", "yes"]].concat())
}

/// A server with the long list, and what it takes.
fn server_with_list() -> (Server, u64) {
    let server = server();
    load_long_list(&server);
    let before = memory(&mut server.connect(), "list");
    (server, before)
}

fn values(type_: u128) -> Vec<u128> {
    vec![type_, 1]
}

/// A table of two classes, large enough to be written to while it is changed: cards of 20 digits, of which there are
/// hundreds in a block, and long ones, of which there are few.
fn mixed_ids() -> Vec<Vec<u8>> {
    let digits = (0..200_000u64).map(|number| format!("{:020}", number * 1_000_000_007));
    digits.chain(long_ids(7).take(30_000)).map(String::into_bytes).collect()
}

/// Which part of the ids a change touches.
fn random_changes(random: &mut Rng, ids: &[Vec<u8>], type_: u128) -> Vec<Row> {
    let (from, every) = (random.usize(..4), 4);
    let of = |id: &Vec<u8>| (id.clone(), random.u8(..5).gt(&0).then(|| values(type_)));
    ids.iter().skip(from).step_by(every).map(of).collect()
}

/// Writes to ids of its own as fast as it can, until `done`, and returns what it has written last to each.
fn keep_writing(db: &mut Connection, own: &[&Vec<u8>], seed: u64, done: &AtomicBool) -> Vec<Row> {
    let mut random = Rng::with_seed(seed);
    let mut written = HashMap::new();
    while !done.load(Ordering::Relaxed) {
        let (id, values) = (*random.choice(own).expect("ids"), vec![random.u128(..=10), random.u128(1..=2)]);
        let texts = [values[0].to_string(), values[1].to_string()];
        let [type_, status] = texts.each_ref().map(|text| text.as_bytes());
        match random.u8(..8) {
            0..4 => {
                let _: i64 = ask(db, [b"CARD.SET".as_slice(), b"list", id, type_, status]);
                written.insert(id.clone(), Some(values));
            }
            4..6 => {
                let other = *random.choice(own).expect("ids");
                let set = [b"CARD.MSET".as_slice(), b"list", id, type_, status, other, type_, status];
                let _: i64 = ask(db, set);
                written.insert(id.clone(), Some(values.clone()));
                written.insert(other.clone(), Some(values));
            }
            _ => {
                let _: i64 = ask(db, [b"CARD.DEL".as_slice(), b"list", id]);
                written.insert(id.clone(), None);
            }
        }
    }
    written.into_iter().collect()
}

#[test]
fn no_write_made_meanwhile_is_lost() {
    const WRITERS: usize = 4;
    let server = server();
    let db = &mut server.connect();
    let (schema, ids) = (Schema::default(), mixed_ids());
    let all: Vec<Row> = ids.iter().map(|id| (id.clone(), Some(values(1)))).collect();
    write(&server, "old.tsv", tsv(&schema, &all));
    let _: Value = ask(db, "CARD.LOAD list old.tsv".split(' '));
    let mut model: Model = ids.iter().map(|id| (id.clone(), values(1))).collect();

    let seed = 11;
    let mut random = Rng::with_seed(seed);
    let mut total = 0;
    for round in 0..5 {
        let rows = random_changes(&mut random, &ids, 2 + round);
        write(&server, "changes.tsv", tsv(&schema, &rows));
        // Few ids in the odd rounds, so that the same blocks are written to again and again.
        let step = if round % 2 == 0 { 13 } else { 1_999 };
        let (done, written) = (AtomicBool::new(false), Mutex::new(Vec::new()));
        thread::scope(|scope| {
            let loading = send(&server, "CARD.LOAD list changes.tsv DELTA".split(' '));
            // What was written before the load has begun may be overruled.
            while !info(db, "card_load_0").contains("phase=reading") {}
            for writer in 0..WRITERS {
                let own: Vec<&Vec<u8>> = ids.iter().skip(writer).step_by(WRITERS).step_by(step).collect();
                let (server, done, written, seed) = (&server, &done, &written, random.u64(..));
                scope.spawn(move || {
                    let rows = keep_writing(&mut server.connect(), &own, seed, done);
                    written.lock().expect("nobody panics").extend(rows);
                });
            }
            let report = reply(loading);
            done.store(true, Ordering::Relaxed);
            let report: HashMap<String, Value> = redis::from_redis_value(report.expect("loaded")).expect("a map");
            assert_eq!(report["rows"], Value::Int(rows.len() as i64));
        });
        let written = written.into_inner().expect("nobody panics");
        total += written.len();
        apply(&mut model, &rows);
        apply(&mut model, &written);
        for some in written.chunks(1_000) {
            let get = [b"CARD.MGET".as_slice(), b"list"].into_iter().chain(some.iter().map(|(id, _)| id.as_slice()));
            let found: Vec<Option<Vec<u128>>> = ask(db, get);
            let lost = some.iter().zip(&found).find(|((_, values), found)| values != *found);
            assert_eq!(lost, None, "seed {seed}, round {round}");
        }
        assert_eq!(digest(db, "list"), digest_of(&schema, &model), "seed {seed}, round {round}");
        assert!(!has_patch(db, "list"));
    }
    assert!(total > 1_000, "only {total} cards were written meanwhile");
    // What is counted in the digest is what is there.
    let seen: Model = common::kinds::cards(db, "list").into_iter().collect();
    assert!(seen == model, "seed {seed}: the cards are others");
}

#[test]
fn every_answer_has_all_changes_or_none() {
    const ROUNDS: u64 = 6;
    let server = server();
    let (schema, ids) = (Schema::default(), mixed_ids());
    // All that is asked for changes with every load: cards of both classes, from one end to the other.
    let together: Vec<&Vec<u8>> = ids.iter().step_by(ids.len() / 300).collect();
    let all: Vec<Row> = ids.iter().map(|id| (id.clone(), Some(values(0)))).collect();
    write(&server, "old.tsv", tsv(&schema, &all));
    let _: Value = ask(&mut server.connect(), "CARD.LOAD list old.tsv VERSION 0".split(' '));
    let done = AtomicBool::new(false);
    let mut random = Rng::with_seed(3);
    thread::scope(|scope| {
        let read_on = |seed| {
            let (db, mut random) = (&mut server.connect(), Rng::with_seed(seed));
            let (mut seen, mut longest) = (vec![0], Duration::ZERO);
            while !done.load(Ordering::Relaxed) {
                let some = random.choose_multiple(&together, 20);
                let get = [b"CARD.MGET".as_slice(), b"list"].into_iter().chain(some.iter().map(|id| id.as_slice()));
                let asked = Instant::now();
                let answer: Vec<Option<Vec<u64>>> = ask(db, get);
                longest = longest.max(asked.elapsed());
                let types: BTreeSet<u64> = answer.into_iter().map(|values| values.expect("a card")[0]).collect();
                assert_eq!(types.len(), 1, "half of a change was seen: {types:?}");
                let type_ = types.into_iter().next().expect("one");
                if seen.last() != Some(&type_) {
                    seen.push(type_);
                }
            }
            (seen, longest)
        };
        let readers: Vec<_> = (0..3).map(|seed| scope.spawn(move || read_on(seed))).collect();
        for round in 1..=ROUNDS {
            let mut rows = random_changes(&mut random, &ids, u128::from(round));
            rows.extend(together.iter().map(|id| ((*id).clone(), Some(values(round.into())))));
            write(&server, "changes.tsv", tsv(&schema, &rows));
            let line = format!("CARD.LOAD list changes.tsv DELTA VERSION {round}");
            let _: Value = ask(&mut server.connect(), line.split(' '));
        }
        // Everybody has a look at the last one.
        thread::sleep(Duration::from_millis(100));
        done.store(true, Ordering::Relaxed);
        for reader in readers {
            let (seen, longest) = reader.join().expect("all answers are right");
            assert!(seen.is_sorted() && seen.last() == Some(&ROUNDS), "never back: {seen:?}");
            // What a step of a load takes is far below this; the rest is for a machine that is busy with tests.
            assert!(longest < Duration::from_millis(250), "{longest:?}");
        }
    });
}

/// Holds a load in the middle of staging, has a command run, and returns why the load has failed.
#[track_caller]
fn failed_by<A: AsRef<[u8]>>(server: &Server, command: &[A]) -> String {
    let loading = begin_and_hold(server);
    let waiting = line_up(server, command);
    resume(server);
    let reason = failure(loading);
    reply(waiting).expect("the command is done");
    wait_until_loads_end(server);
    reason
}

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

#[track_caller]
fn assert_old(db: &mut Connection, key: &str) {
    assert_eq!(digest(db, key), LONG.old_digest, "{key}");
    assert!(!has_patch(db, key), "{key} still has the patch of a load that has ended");
}

/// After whatever has happened, changes can be loaded.
#[track_caller]
fn assert_loads_again(server: &Server) {
    let db = &mut server.connect();
    let _: Value = ask(db, "CARD.LOAD list old.tsv VERSION 1".split(' '));
    let _: Value = ask(db, "CARD.LOAD list changes.tsv DELTA VERSION 2".split(' '));
    assert_eq!(digest(db, "list"), LONG.new_digest);
    assert!(!has_patch(db, "list"));
}

#[test]
fn what_removes_the_table_ends_the_load() {
    let (server, _) = server_with_list();
    let db = &mut server.connect();
    for command in ["DEL list", "UNLINK list", "FLUSHALL", "FLUSHDB ASYNC", "PEXPIREAT list 1", "SORT none STORE list"]
    {
        assert_eq!(failed_by(&server, &words(command)), TABLE_GONE, "{command}");
        assert_eq!(ask::<i64, _>(db, ["DBSIZE"]), 0, "{command}");
        let _: Value = ask(db, "CARD.LOAD list old.tsv VERSION 1".split(' '));
    }
    assert_eq!(failed_by(&server, &words("SET list x")), TABLE_GONE);
    assert_eq!(ask::<String, _>(db, ["GET", "list"]), "x");
    let _: i64 = ask(db, ["DEL", "list"]);
    assert_loads_again(&server);
}

#[test]
fn a_table_that_was_put_in_the_place_of_another_is_not_changed() {
    let (server, _) = server_with_list();
    let db = &mut server.connect();
    let other = common::kinds::build(100, 5);
    let other_digest = format!("{:032x}", other.digest());
    let stage = |db: &mut Connection, key: &str| common::kinds::stage(db, key, &other, 1 << 20);
    stage(db, "other");
    let _: Value = ask(db, "CARD.COMMIT other other".split(' '));
    let dump: Vec<u8> = ask(db, ["DUMP", "other"]);
    for command in [
        vec![b"RENAME".as_slice(), b"other", b"list"],
        vec![b"COPY".as_slice(), b"other", b"list", b"REPLACE"],
        vec![b"RESTORE".as_slice(), b"list", b"0", &dump, b"REPLACE"],
        vec![b"CARD.COMMIT".as_slice(), b"staged", b"list", b"VERSION", b"9"],
    ] {
        let name = command[0].escape_ascii().to_string();
        stage(db, "staged");
        assert_eq!(failed_by(&server, &command), TABLE_GONE, "{name}");
        assert_eq!(digest(db, "list"), other_digest, "{name}");
        assert!(!has_patch(db, "list"), "{name}");
        let _: i64 = ask(db, words("COPY list other REPLACE"));
        let _: Value = ask(db, "CARD.LOAD list old.tsv VERSION 1".split(' '));
    }
    assert_loads_again(&server);
}

/// A table that a command takes elsewhere ends the load. It stays as it was, and nothing waits for it any more: what
/// waited would follow every write, and remember it, for a load that has ended.
#[track_caller]
fn assert_ends_without_a_patch(command: &str, database: &str, key: &str) {
    let (server, before) = server_with_list();
    let db = &mut server.connect();
    assert_eq!(failed_by(&server, &words(command)), TABLE_GONE);
    assert_eq!(ask::<i64, _>(db, ["EXISTS", "list"]), 0);
    assert_loads_again(&server);
    let _: Value = ask(db, ["SELECT", database]);
    assert_eq!(digest(db, key), LONG.old_digest);
    for _ in 0..1_000 {
        let _: i64 = ask(db, ["CARD.DEL", key, "none"]);
    }
    wait_for(5, "the patch of a load that has ended is dropped", || !has_patch(db, key));
    assert_eq!(memory(db, key), before);
}

#[test]
fn a_table_that_is_renamed_ends_the_load_and_loses_its_patch() {
    assert_ends_without_a_patch("RENAME list renamed", "0", "renamed");
}

#[test]
fn a_table_that_is_moved_ends_the_load_and_loses_its_patch() {
    assert_ends_without_a_patch("MOVE list 1", "1", "list");
}

#[test]
fn a_table_whose_database_is_swapped_ends_the_load_and_loses_its_patch() {
    assert_ends_without_a_patch("SWAPDB 0 2", "2", "list");
}

#[test]
fn a_table_that_comes_back_under_its_name_is_changed() {
    let (server, _) = server_with_list();
    let db = &mut server.connect();
    let loading = begin_and_hold(&server);
    let script = "redis.call('RENAME', 'list', 'renamed') redis.call('RENAME', 'renamed', 'list')";
    let waiting = line_up(&server, &["EVAL", script, "2", "list", "renamed"]);
    resume(&server);
    reply(waiting).expect("renamed");
    reply(loading).expect("loaded");
    assert_eq!(digest(db, "list"), LONG.new_digest);
}

#[test]
fn whoever_drops_or_begins_a_patch_ends_the_load() {
    let (server, _) = server_with_list();
    let db = &mut server.connect();
    assert_eq!(failed_by(&server, &words("CARD.STAGE list DISCARD")), TABLE_GONE);
    assert_old(db, "list");
    assert_eq!(failed_by(&server, &["CARD.STAGE", "list", "PATCH", ""]), TABLE_GONE);
    assert_eq!(digest(db, "list"), LONG.old_digest);
    assert!(has_patch(db, "list"), "what somebody else has begun is not the load's to drop");
    assert_loads_again(&server);
}

#[test]
fn what_leaves_the_table_in_its_place_does_not_end_the_load() {
    let (server, _) = server_with_list();
    let db = &mut server.connect();
    for command in ["PEXPIREAT list 4102444800123", "COPY list copy", "BGSAVE", "DEBUG DIGEST-VALUE list", "TOUCH list"]
    {
        let loading = begin_and_hold(&server);
        let waiting = line_up(&server, &words(command));
        resume(&server);
        reply(waiting).expect("the command is done");
        reply(loading).expect("loaded");
        assert_eq!(digest(db, "list"), LONG.new_digest, "{command}");
        assert!(!has_patch(db, "list"), "{command}");
        match command {
            "PEXPIREAT list 4102444800123" => {
                assert_eq!(ask::<i64, _>(db, ["PEXPIRETIME", "list"]), 4_102_444_800_123);
            }
            "COPY list copy" => assert_old(db, "copy"),
            _ => {}
        }
        let _: Value = ask(db, "CARD.LOAD list old.tsv VERSION 1".split(' '));
    }
}

#[test]
fn a_table_that_expires_meanwhile_is_gone() {
    let (server, _) = server_with_list();
    let db = &mut server.connect();
    let loading = begin_and_hold(&server);
    let waiting = line_up(&server, &words("PEXPIRE list 3"));
    resume(&server);
    reply(waiting).expect("it will expire");
    // Whether the load or the key was first.
    match reply(loading) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.detail(), Some(TABLE_GONE)),
    }
    wait_for(5, "it has expired", || ask::<i64, _>(db, ["EXISTS", "list"]) == 0);
    assert_loads_again(&server);
}

#[test]
fn a_load_waits_while_writes_are_paused_and_then_goes_on() {
    let (server, before) = server_with_list();
    let db = &mut server.connect();
    let loading = begin_and_hold(&server);
    let staged = memory(db, "list");
    // Long enough to stage all of it, were it not for the pause.
    thread::sleep(Duration::from_millis(500));
    assert_eq!((memory(db, "list"), digest(db, "list")), (staged, LONG.old_digest.clone()));
    assert!(staged > before);
    let told: HashMap<String, Value> = ask(db, ["CARD.INFO", "list"]);
    let told: HashMap<String, Value> = redis::from_redis_value(told["loading"].clone()).expect("a map");
    assert_eq!(told["phase"], Value::BulkString("staging".into()));
    let Value::Int(percent) = told["percent"] else { panic!("a number") };
    assert!((90..100).contains(&percent), "{percent}");
    resume(&server);
    reply(loading).expect("loaded");
    assert_eq!(digest(db, "list"), LONG.new_digest);
}

#[test]
fn a_load_is_cancelled_in_any_phase_and_leaves_nothing() {
    let (server, before) = server_with_list();
    let db = &mut server.connect();
    let _: Value = ask(db, "CONFIG SET card.load-memory 1mb".split(' '));
    for phase in ["reading", "merging", "staging"] {
        let loading = send(&server, "CARD.LOAD list changes.tsv DELTA VERSION 2".split(' '));
        let deadline = Instant::now() + Duration::from_secs(20);
        // Spinning, because staging takes little time.
        while !ask::<String, _>(db, ["INFO", "card"]).contains(&format!("phase={phase}")) {
            assert!(Instant::now() < deadline, "{phase} was not seen");
        }
        let _: Value = ask(db, "CARD.LOAD list CANCEL".split(' '));
        assert_eq!(failure(loading), "the load was cancelled", "{phase}");
        assert_old(db, "list");
        assert_eq!(memory(db, "list"), before, "{phase}");
        let told: HashMap<String, Value> = ask(db, ["CARD.INFO", "list"]);
        assert_eq!((&told["version"], &told["loading"]), (&Value::Int(1), &Value::Nil));
    }
    let _: Value = ask(db, "CARD.LOAD list changes.tsv DELTA VERSION 2".split(' '));
    assert_eq!(digest(db, "list"), LONG.new_digest);
}

#[test]
fn a_table_has_one_load_at_a_time_of_either_kind() {
    let (server, _) = server_with_list();
    let db = &mut server.connect();
    let loading = begin(&server);
    for options in ["old.tsv", "changes.tsv DELTA"] {
        let error = refused(db, format!("CARD.LOAD list {options}").split(' '));
        assert_eq!(error, "ERR a load of this table is running or waiting already");
    }
    reply(loading).expect("loaded");
    assert_eq!(digest(db, "list"), LONG.new_digest);
}

#[test]
fn a_client_that_goes_away_does_no_harm() {
    let (server, _) = server_with_list();
    let db = &mut server.connect();
    drop(begin(&server));
    wait_until_loads_end(&server);
    assert_eq!(digest(db, "list"), LONG.new_digest, "it was loaded all the same");
}
