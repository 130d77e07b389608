//! RDB files: every kind of table comes back whole, and a file that is damaged or too new is refused.

mod common;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::{fs, thread};

use card_table::Table;
use common::kinds::*;
use common::{Server, ask, wait_for};
use redis::{Connection, Value};

#[test]
fn every_kind_of_table_comes_back_from_a_saved_file() {
    let mut server = Server::start();
    let db = &mut server.connect();
    make_every_kind(db);
    let (before, dumps_before) = (see_every_kind(db), lasting_dumps(db));
    let () = ask(db, ["SAVE"]);
    // Not in the file, so that it is the file they come back from.
    let _: i64 = ask(db, ["CARD.SET", "cards", "1", "1", "1"]);

    server.kill();
    server.start_again();

    let db = &mut server.connect();
    assert_same_after_a_start(db, &before);
    // Also what no command tells, such as when a table became ready: it is saved again as it was.
    assert!(lasting_dumps(db) == dumps_before, "a table is saved otherwise than before");

    let told = |key: &str, field: &str| before[key].info[field].clone();
    assert_eq!(["created", "emptied", "half", "loaded"].map(|key| told(key, "ready")), [0, 1, 0, 1].map(Value::Int));
    assert_eq!([told("loaded", "version"), told("loaded", "loaded_at")], [201708031, 1501718400].map(Value::Int));
    assert_eq!(told("loaded", "source"), Value::BulkString(b"a list\0.txt".to_vec()));
    assert_eq!(before["wide"].cards.as_ref().unwrap().len(), ids_of_every_class().len());
}

#[test]
fn a_table_of_several_megabytes_comes_back() {
    // More than the reader takes at a time, which is 8 MB.
    let table = build(1_800_000, 9);
    let mut server = Server::start();
    let db = &mut server.connect();
    stage(db, "large", &table, 1 << 20);
    let () = ask(db, ["CARD.COMMIT", "large", "large", "AT", "1000"]);
    let () = ask(db, ["SAVE"]);
    assert!(fs::metadata(server.directory().join("dump.rdb")).unwrap().len() > 8 << 20);

    server.kill();
    server.start_again();

    let db = &mut server.connect();
    assert_eq!(see_digest(db, "large"), format!("{:032x}", table.digest()));
    let mut get = redis::cmd("CARD.MGET");
    get.arg("large");
    let sample: Vec<_> = cards_of(&table).into_iter().step_by(1_000).collect();
    sample.iter().for_each(|(id, _)| {
        get.arg(id);
    });
    let values: Vec<Vec<u128>> = get.query(db).unwrap();
    assert_eq!(values, sample.into_iter().map(|(_, values)| values).collect::<Vec<_>>());
}

#[test]
fn an_orderly_end_saves_every_kind_of_table() {
    let mut server = Server::with(&["--save", "3600 1"]);
    let db = &mut server.connect();
    make_every_kind(db);
    let before = see_every_kind(db);

    server.stop();
    server.start_again();

    assert_same_after_a_start(&mut server.connect(), &before);
}

#[test]
fn a_list_still_says_since_when_it_has_been_in_effect() {
    let mut server = Server::with(&["--card.darkver", "effective", "--card.timezone", "+00:00"]);
    let db = &mut server.connect();
    make_every_kind(db);
    let () = ask(db, ["SAVE"]);

    server.kill();
    server.start_again();

    let db = &mut server.connect();
    let id = String::from_utf8(cards(db, "unnamed")[0].0.clone()).unwrap();
    let query = format!("cardid={id}&cmdtype=blacklistquery");
    let answer: String = ask(db, ["CARD.QUERY", "unnamed", &query]);
    assert!(answer.contains(r#""darkver0":"2017-08-03 00:00:00""#), "{answer}");
}

#[test]
fn a_snapshot_taken_while_cards_are_written_is_of_one_moment() {
    const CARDS: u64 = 2_000;
    // Saving a key takes half a second, so that there is writing meanwhile.
    let mut server = Server::with(&["--rdb-key-save-delay", "500000"]);
    let db = &mut server.connect();
    let () = ask(db, ["CARD.CREATE", "t", "FIELD", "step", "0", "99999999"]);
    let ids: Vec<String> = random_ids(5).take(CARDS as usize).collect();
    let (written, enough) = (AtomicU64::new(0), AtomicBool::new(false));
    let steps_written = || written.load(Ordering::SeqCst);

    // Step n writes n to card n modulo CARDS: all cards together tell exactly which steps a snapshot has.
    let (least, most) = thread::scope(|scope| {
        let mut writer = server.connect();
        let (ids, written, enough) = (&ids, &written, &enough);
        let _end = EndOnDrop(enough);
        scope.spawn(move || {
            for step in 0.. {
                let id = &ids[(step % CARDS) as usize];
                let _: i64 = ask(&mut writer, ["CARD.SET", "t", id, &step.to_string()]);
                written.store(step + 1, Ordering::SeqCst);
                if enough.load(Ordering::SeqCst) {
                    break;
                }
            }
        });
        wait_for(20, "two rounds of writing", || steps_written() > 2 * CARDS);
        let least = steps_written();
        let _: String = ask(db, ["BGSAVE"]);
        // One more step may have been carried out and not be acknowledged yet.
        let most = steps_written() + 1;
        wait_for(20, "the snapshot", || figure(db, "persistence", "rdb_bgsave_in_progress") == "0");
        (least, most)
    });
    assert_eq!(figure(db, "persistence", "rdb_last_bgsave_status"), "ok");
    assert!(steps_written() > most, "nothing was written during the snapshot");

    server.kill();
    server.start_again();

    let saved: BTreeMap<Vec<u8>, Vec<u128>> = cards(&mut server.connect(), "t").into_iter().collect();
    assert_eq!(saved.len() as u64, CARDS);
    let last = *saved.values().flatten().max().expect("there are cards") as u64;
    assert!((least..=most).contains(&(last + 1)), "steps 0 to {last} are saved, of {least} to {most}");
    for (at, id) in (0..CARDS).zip(&ids) {
        let step = last - (last - at) % CARDS;
        assert_eq!(saved[id.as_bytes()], [u128::from(step)], "card {at} when step {last} was the last");
    }
}

#[test]
fn a_truncated_file_is_refused() {
    let (mut server, file) = saved_table(&[]);
    let value = find(&file, b"CARDTABLE");
    // In the header, in the blocks, before and in the checksum. Not between two parts of the value: what Redis 7.0 then
    // logs is the same, but it does not end, because its own check of the file waits for a next part for ever.
    for len in [value + 5, value + 40, value + (file.len() - value) / 2, file.len() - 8, file.len() - 1] {
        fs::write(server.directory().join("dump.rdb"), &file[..len]).unwrap();
        let log = start(&mut server).expect_err("the server refuses the file");
        assert!(log.contains("Unexpected EOF reading RDB file"), "{len} bytes: {log}");
    }
    fs::write(server.directory().join("dump.rdb"), &file).unwrap();
    start(&mut server).expect("the whole file is good");
}

#[test]
fn a_flipped_bit_is_found_by_the_checksum_or_before() {
    let (mut server, file) = saved_table(&[]);
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..20 {
        let bit = a_bit_of_the_table(&file, &mut random);
        fs::write(server.directory().join("dump.rdb"), flipped(&file, bit)).unwrap();
        let log = start(&mut server).expect_err("the server refuses the file");
        let is_clear = log.contains("a card table cannot be read: ") || log.contains("Wrong RDB checksum");
        assert!(is_clear, "bit {bit}: {log}");
    }
}

#[test]
fn a_flipped_bit_is_found_without_a_checksum_unless_it_means_nothing() {
    let (mut server, file) = saved_table(&["--rdbchecksum", "no"]);
    start(&mut server).expect("the file is good");
    let before = see(&mut server.connect(), "cards");
    server.kill();
    let mut random = fastrand::Rng::with_seed(8);
    let mut refusals = 0;
    for _ in 0..40 {
        let bit = a_bit_of_the_table(&file, &mut random);
        fs::write(server.directory().join("dump.rdb"), flipped(&file, bit)).unwrap();
        if let Err(log) = start(&mut server) {
            assert!(log.contains("a card table cannot be read: "), "bit {bit}: {log}");
            refusals += 1;
        } else {
            assert_eq!(see(&mut server.connect(), "cards"), before, "bit {bit}");
            server.kill();
        }
    }
    assert!(refusals > 30, "only {refusals} of 40 flipped bits were found");
}

#[test]
fn a_newer_encoding_is_refused_with_a_clear_line() {
    let mut server = Server::with(&["--rdbchecksum", "no"]);
    let db = &mut server.connect();
    let _: i64 = ask(db, ["CARD.SET", "cards", "44015186100181001473", "7", "1"]);
    let dump: Vec<u8> = ask(db, ["DUMP", "cards"]);
    let () = ask(db, ["SAVE"]);
    server.kill();

    // A value begins with two bytes of type and length, then a 64-bit number: nine letters of 6 bits and the encoding's
    // version in 10. In a file the key is between the first two.
    let mut file = fs::read(server.directory().join("dump.rdb")).unwrap();
    let version = find(&file, &dump[1..10]) + 8;
    assert_eq!(file[version], 1, "the encoding has another version: adapt this test");
    file[version] = 2;
    fs::write(server.directory().join("dump.rdb"), file).unwrap();

    let log = start(&mut server).expect_err("the server refuses the file");
    let line = "a card table cannot be read: it has version 2 of the encoding, and this module reads version 1";
    assert!(log.contains(line), "{log}");
}

/// Tells a thread to end, also when a test fails: it would be waited for.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A server that runs no more, and the file in which it has saved the table "cards".
fn saved_table(arguments: &[&str]) -> (Server, Vec<u8>) {
    // Uncompressed, so that a test knows what it damages.
    let mut server = Server::with(&[arguments, &["--rdbcompression", "no"]].concat());
    let db = &mut server.connect();
    stage(db, "cards", &saved(), PIECE_BYTES);
    let () = ask(db, ["CARD.COMMIT", "cards", "cards", "AT", "1000", "SOURCE", "list.txt", "ROWS", "3000"]);
    let () = ask(db, ["SAVE"]);
    server.kill();
    let file = fs::read(server.directory().join("dump.rdb")).unwrap();
    (server, file)
}

/// Starts a server that may end at once; then returns what it has logged.
fn start(server: &mut Server) -> Result<(), String> {
    let logged_before = server.log().len();
    catch_unwind(AssertUnwindSafe(|| server.start_again())).map_err(|_| {
        assert!(!server.is_alive(), "the server neither answers nor ends");
        server.log().split_off(logged_before)
    })
}

fn find(file: &[u8], part: &[u8]) -> usize {
    file.windows(part.len()).position(|window| window == part).expect("the file has it")
}

/// A bit of the table's header or blocks. Bits between them are Redis's own: its check of a file that has lost them may not
/// end, see above. What becomes of them in a payload is in corrupt_payloads.rs.
fn a_bit_of_the_table(file: &[u8], random: &mut fastrand::Rng) -> usize {
    let table = saved();
    let frames: Vec<u8> = table.frames(1 << 20).flatten().collect();
    let parts = [table.header_bytes(), frames];
    let part = &parts[usize::from(random.u8(..) >= 32)];
    8 * find(file, part) + random.usize(..8 * part.len())
}

/// The table that [`saved_table`] saves.
fn saved() -> Table {
    build(3_000, 6)
}

fn flipped(file: &[u8], bit: usize) -> Vec<u8> {
    let mut file = file.to_vec();
    file[bit / 8] ^= 1 << (bit % 8);
    file
}

fn see_digest(db: &mut Connection, key: &str) -> String {
    let info: BTreeMap<String, Value> = ask(db, ["CARD.INFO", key, "DIGEST"]);
    redis::from_redis_value(info["digest"].clone()).expect("a text")
}

fn figure(db: &mut Connection, section: &str, name: &str) -> String {
    let info: String = ask(db, ["INFO", section]);
    let mut lines = info.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(field, _)| *field == name).expect("INFO has it").1.into()
}
