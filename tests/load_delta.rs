//! `CARD.LOAD … DELTA`: a file of changes is made to a table, all of it, or nothing changes and the error says why.

mod common;

use std::collections::{BTreeSet, HashMap};
use std::io::Write;

use card_table::{Field, Schema};
use common::deltas::{LISTS, Model, Row, apply, digest, digest_of, has_patch, info, memory, tsv, write};
use common::{Server, ask, load, not_loaded, refused, try_ask, wait_for};
use fastrand::Rng;
use redis::{Connection, Value};

const HEADER: &str = "cardId\ttype\tstatus\top\n";
const NOTHING_TO_CHANGE: &str = "ERR there is no table to change: changes need a list that was loaded or written";

fn server(arguments: &[&str]) -> Server {
    let server = Server::with(&[&LISTS, arguments].concat());
    write(&server, "cards.tsv", "cardId\ttype\tstatus\n1\t7\t1\n2\t7\t1\n3\t7\t1\n");
    write(
        &server,
        "changes.tsv",
        format!("{HEADER}1\t8\t2\tset\n2\t\t\tdel\n4\t9\t1\tset\n3\t7\t1\tset\n9\t\t\tdel\n"),
    );
    server
}

/// What a report tells: rows, added, changed, removed, duplicates.
fn counts(report: &HashMap<String, Value>) -> [u64; 5] {
    let number = |name: &str| redis::from_redis_value(report[name].clone()).expect("a number");
    ["rows", "added", "changed", "removed", "duplicates"].map(number)
}

/// The cards 1 to 4.
fn cards(db: &mut Connection, key: &str) -> [Option<Vec<u64>>; 4] {
    ask(db, ["CARD.MGET", key, "1", "2", "3", "4"])
}

fn told(db: &mut Connection, key: &str) -> HashMap<String, Value> {
    ask(db, ["CARD.INFO", key])
}

/// Everything that may tell that a table was touched.
fn see(db: &mut Connection, key: &str) -> (Vec<u8>, u64, i64) {
    (ask(db, ["DUMP", key]), memory(db, key), ask(db, ["PEXPIRETIME", key]))
}

fn seven() -> Option<Vec<u64>> {
    Some(vec![7, 1])
}

#[test]
fn changes_are_made_and_counted_and_told() {
    let server = server(&[]);
    let db = &mut server.connect();
    load(db, "list cards.tsv VERSION 11");
    let before: (i64, i64) = ask(db, ["TIME"]);
    let report = load(db, "list changes.tsv DELTA VERSION 12");
    let after: (i64, i64) = ask(db, ["TIME"]);
    assert_eq!(counts(&report), [5, 1, 1, 1, 0], "what is as it should be already is not counted");
    assert_eq!((&report["version"], report.len()), (&Value::Int(12), 7));
    let took: f64 = redis::from_redis_value(report["seconds"].clone()).expect("a number");
    assert!((0.0..5.0).contains(&took), "{took}");

    assert_eq!(cards(db, "list"), [Some(vec![8, 2]), None, seven(), Some(vec![9, 1])]);
    assert_eq!(ask::<Vec<String>, _>(db, ["KEYS", "*"]), ["list"]);
    let told = told(db, "list");
    for (name, expected) in [("records", 3), ("ready", 1), ("version", 12), ("rows", 5)] {
        assert_eq!(told[name], Value::Int(expected), "{name}");
    }
    assert_eq!(told["source"], Value::BulkString("changes.tsv".into()));
    assert_eq!(told["loading"], Value::Nil);
    let loaded_at: i64 = redis::from_redis_value(told["loaded_at"].clone()).expect("a time");
    assert!((before.0..=after.0).contains(&loaded_at), "{before:?} {loaded_at} {after:?}");

    let report = load(db, "list changes.tsv DELTA");
    assert_eq!(counts(&report), [5, 0, 0, 0, 0], "once is as good as twice");
    assert_eq!(report["version"], Value::Nil);
    let report = load(db, "list cards.tsv");
    assert_eq!(counts(&report), [3, 3, 0, 3, 0], "a full load replaces all");
    assert_eq!(cards(db, "list"), [seven(), seven(), seven(), None]);
    assert!(!has_patch(db, "list"));
}

/// Ids of every class; few enough that many are chosen twice, so many that there are many blocks.
fn random_id(random: &mut Rng, most: u64) -> Vec<u8> {
    let number = random.u64(..most).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    match random.u8(..10) {
        0..4 => format!("{}{:016}", 1101 + 100 * (number % 7), number % 10_000_000_000_000_000),
        4 => format!("{:07}", number % 10_000_000),
        5 => format!("{number:016x}"),
        6 => format!("{number:X}"),
        7 => format!("{:08x}-0000-4000-8000-{:012x}", number >> 32, number & 0xffff_ffff),
        8 => format!("cookie-{number}-{}", "long".repeat(number as usize % 40)),
        _ => {
            return [b"\xff\x00 \x7f".as_slice(), &number.to_be_bytes()]
                .concat()
                .into_iter()
                .map(not_a_break)
                .collect();
        }
    }
    .into_bytes()
}

/// What a file cannot hold in an id becomes something else.
fn not_a_break(byte: u8) -> u8 {
    if b"\t\r\n".contains(&byte) { b'_' } else { byte }
}

fn random_rows(random: &mut Rng, schema: &Schema, model: &Model, count: usize, removals: u8) -> Vec<Row> {
    let known: Vec<&Vec<u8>> = model.keys().collect();
    let mut rows = Vec::with_capacity(count);
    for _ in 0..count {
        let id = match random.choice(&known) {
            Some(&id) if random.bool() => id.clone(),
            _ => random_id(random, 20 * count as u64),
        };
        let is_removal = removals > 0 && random.u8(..removals) == 0;
        let values = || schema.fields().iter().map(|field| random.u128(field.min..=field.max)).collect();
        rows.push((id, (!is_removal).then(values)));
    }
    rows
}

/// What a load of these rows should report.
fn expected_counts(model: &Model, rows: &[Row]) -> [u64; 5] {
    let last: HashMap<&[u8], Option<&Vec<u128>>> =
        rows.iter().map(|(id, values)| (id.as_slice(), values.as_ref())).collect();
    let (mut added, mut changed, mut removed) = (0, 0, 0);
    for (id, values) in &last {
        match (model.get(*id), values) {
            (None, Some(_)) => added += 1,
            (Some(old), Some(new)) if old != *new => changed += 1,
            (Some(_), None) => removed += 1,
            _ => {}
        }
    }
    [rows.len() as u64, added, changed, removed, (rows.len() - last.len()) as u64]
}

#[test]
fn random_changes_of_every_class_make_what_a_model_has() {
    let server = server(&[]);
    let db = &mut server.connect();
    let wide = Schema::new(vec![Field::new("level", 3, 6), Field::new("serial", 1, 1 << 100)]).expect("a schema");
    let constant = Schema::new(vec![Field::new("always", 5, 5)]).expect("a schema");
    let seed = 6;
    let random = &mut Rng::with_seed(seed);
    // Tables and changes from none to many; with no removals, some, and a file of almost nothing else.
    for (schema, cards, changes) in [
        (Schema::default(), 40_000, [300, 20_000, 1, 50_000]),
        (Schema::default(), 0, [1, 0, 2_000, 5_000]),
        (Schema::default(), 500, [5_000, 30, 2_000, 700]),
        (wide, 5_000, [3_000, 10, 3_000, 8_000]),
        (constant, 5_000, [3_000, 10, 3_000, 8_000]),
    ] {
        let _: i64 = ask(db, ["DEL", "list"]);
        let mut model = Model::new();
        let create: Vec<String> = schema
            .fields()
            .iter()
            .flat_map(|f| ["FIELD".into(), f.name.clone(), f.min.to_string(), f.max.to_string()])
            .collect();
        let _: Value = ask(db, ["CARD.CREATE", "list"].into_iter().chain(create.iter().map(String::as_str)));
        let rows = random_rows(random, &schema, &model, cards.max(1), 0);
        apply(&mut model, &rows);
        write(&server, "full.tsv", tsv(&schema, &rows));
        load(db, "list full.tsv");
        if cards == 0 {
            let id = model.pop_first().expect("a card").0;
            let _: i64 = ask(db, [b"CARD.DEL".as_slice(), b"list", &id]);
        }
        for (round, count) in changes.into_iter().enumerate() {
            let rows = random_rows(random, &schema, &model, count, [0, 5, 2, 20][round]);
            let text = tsv(&schema, &rows);
            let (name, packed) = match round % 3 {
                0 => ("changes.tsv", text),
                1 => ("changes.tsv.gz", gzip(&text)),
                _ => ("changes.tsv.zst", zstd::encode_all(text.as_slice(), 1).expect("packed")),
            };
            write(&server, name, packed);
            let expected = expected_counts(&model, &rows);
            let version = (round + 1).to_string();
            let report = load(db, &format!("list {name} DELTA VERSION {version}"));
            apply(&mut model, &rows);
            let what = format!("seed {seed}, {cards} cards, {count} changes");
            assert_eq!(counts(&report), expected, "{what}");
            assert_eq!(ask::<usize, _>(db, ["CARD.LEN", "list"]), model.len(), "{what}");
            assert_eq!(digest(db, "list"), digest_of(&schema, &model), "{what}");
            assert_eq!(told(db, "list")["version"], Value::Int(round as i64 + 1));
            assert!(!has_patch(db, "list"), "{what}");
        }
        // The digest is one of what was counted; so what is there is looked at as well.
        let seen: Model = common::kinds::cards(db, "list").into_iter().collect();
        assert!(seen == model, "seed {seed}: the cards are others");
        let some: Vec<&Vec<u8>> = model.keys().step_by(17).take(2_000).collect();
        if !some.is_empty() {
            let get = [b"CARD.MGET".as_slice(), b"list"].into_iter().chain(some.iter().map(|id| id.as_slice()));
            let found: Vec<Option<Vec<u128>>> = ask(db, get);
            assert!(found.iter().zip(&some).all(|(found, id)| found.as_ref() == model.get(*id)), "a card is not found");
        }
    }
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(text).expect("packed");
    packed.finish().expect("packed")
}

#[test]
fn a_file_without_op_sets_all_its_cards() {
    let server = server(&[]);
    let db = &mut server.connect();
    load(db, "list cards.tsv");
    write(&server, "sets.tsv", "status\tcardId\ttype\r\n2\t3\t0\r\n1\t4\t10");
    assert_eq!(counts(&load(db, "list sets.tsv DELTA")), [2, 1, 1, 0, 0]);
    assert_eq!(cards(db, "list"), [seven(), seven(), Some(vec![0, 2]), Some(vec![10, 1])]);
}

#[test]
fn op_stands_in_any_column_and_what_a_removal_says_of_values_is_nothing() {
    let server = server(&[]);
    let db = &mut server.connect();
    load(db, "list cards.tsv");
    write(&server, "ops.tsv", "op\tstatus\tcardId\ttype\ndel\t1\t1\t7\ndel\t\t2\t\nset\t2\t4\t5\n");
    assert_eq!(counts(&load(db, "list ops.tsv DELTA")), [3, 1, 0, 2, 0]);
    assert_eq!(cards(db, "list"), [None, None, seven(), Some(vec![5, 2])]);
}

#[test]
fn the_last_row_of_a_card_counts() {
    let server = server(&[]);
    let db = &mut server.connect();
    load(db, "list cards.tsv");
    let rows = "1\t\t\tdel\n1\t3\t1\tset\n2\t3\t1\tset\n2\t\t\tdel\n3\t1\t1\tset\n3\t7\t1\tset\n4\t9\t1\tset\n4\t\t\tdel\n4\t\t\tdel\n";
    write(&server, "twice.tsv", format!("{HEADER}{rows}"));
    assert_eq!(counts(&load(db, "list twice.tsv DELTA")), [9, 0, 1, 1, 5]);
    assert_eq!(cards(db, "list"), [Some(vec![3, 1]), None, seven(), None]);
}

#[test]
fn a_file_without_changes_sets_the_version() {
    let server = server(&[]);
    let db = &mut server.connect();
    load(db, "list cards.tsv VERSION 1");
    let before = digest(db, "list");
    for (version, header) in [(2, HEADER), (3, "cardId\ttype\tstatus")] {
        write(&server, "nothing.tsv", header);
        let report = load(db, &format!("list nothing.tsv DELTA VERSION {version}"));
        assert_eq!(counts(&report), [0; 5]);
        let told = told(db, "list");
        assert_eq!((&told["version"], &told["rows"]), (&Value::Int(version), &Value::Int(0)));
        assert_eq!(told["source"], Value::BulkString("nothing.tsv".into()));
        assert_eq!((digest(db, "list"), cards(db, "list")), (before.clone(), [seven(), seven(), seven(), None]));
    }
}

#[test]
fn a_table_that_changes_have_emptied_stays_and_can_be_changed() {
    let server = server(&[]);
    let db = &mut server.connect();
    load(db, "list cards.tsv");
    write(&server, "all.tsv", format!("{HEADER}1\t\t\tdel\n2\t\t\tdel\n3\t\t\tdel\n"));
    assert_eq!(counts(&load(db, "list all.tsv DELTA")), [3, 0, 0, 3, 0]);
    assert_eq!((ask::<i64, _>(db, ["CARD.LEN", "list"]), &told(db, "list")["ready"]), (0, &Value::Int(1)));
    assert_eq!(counts(&load(db, "list changes.tsv DELTA")), [5, 3, 0, 0, 0]);
    assert_eq!(cards(db, "list"), [Some(vec![8, 2]), None, seven(), Some(vec![9, 1])]);
}

#[test]
fn without_a_table_that_is_ready_there_is_nothing_to_change() {
    let server = server(&[]);
    let db = &mut server.connect();
    assert_eq!(not_loaded(db, "list changes.tsv DELTA VERSION 1"), NOTHING_TO_CHANGE);
    assert_eq!(ask::<i64, _>(db, ["DBSIZE"]), 0);
    let _: Value = ask(db, ["CARD.CREATE", "list"]);
    let header = card_table::Table::new(Schema::default()).header_bytes();
    let () = ask(db, [b"CARD.STAGE".as_slice(), b"staged", b"BEGIN", &header]);
    for key in ["list", "staged"] {
        let before = see(db, key);
        assert_eq!(not_loaded(db, &format!("{key} changes.tsv DELTA")), NOTHING_TO_CHANGE, "{key}");
        assert_eq!(see(db, key), before, "{key}");
    }
    assert_eq!(info(db, "card_failed_loads"), "3");
    // Written is as good as loaded.
    let _: i64 = ask(db, "CARD.SET list 2 7 1".split(' '));
    assert_eq!(counts(&load(db, "list changes.tsv DELTA")), [5, 3, 0, 1, 0]);
}

#[test]
fn a_key_of_another_type_is_left_alone() {
    let server = server(&[]);
    let db = &mut server.connect();
    let _: Value = ask(db, "SET list x".split(' '));
    let error = not_loaded(db, "list changes.tsv DELTA");
    assert_eq!(error, "WRONGTYPE Operation against a key holding the wrong kind of value");
    assert_eq!(ask::<String, _>(db, ["GET", "list"]), "x");
}

#[test]
fn whoever_uses_the_name_of_the_staging_key_does_not_matter() {
    let server = server(&[]);
    let db = &mut server.connect();
    load(db, "list cards.tsv");
    let _: Value = ask(db, "SET {list}.staging x".split(' '));
    load(db, "list changes.tsv DELTA");
    assert_eq!(ask::<String, _>(db, ["GET", "{list}.staging"]), "x");
}

#[test]
fn a_time_to_live_stays() {
    let server = server(&[]);
    let db = &mut server.connect();
    load(db, "list cards.tsv");
    let _: i64 = ask(db, ["PEXPIREAT", "list", "4102444800123"]);
    load(db, "list changes.tsv DELTA");
    assert_eq!(ask::<i64, _>(db, ["PEXPIRETIME", "list"]), 4_102_444_800_123);
}

#[test]
fn a_bad_row_fails_the_load_and_nothing_changes() {
    let server = server(&[]);
    let db = &mut server.connect();
    load(db, "list cards.tsv VERSION 5");
    let _: i64 = ask(db, ["PEXPIREAT", "list", "4102444800123"]);
    let before = see(db, "list");
    for (rows, expected) in [
        ("1\t9\t1\tset\n2\t7\t1\tSET\n", "line 3, column op: found 'SET', expected set or del"),
        ("1\t9\t1\tset\n2\t7\t1\t\n", "line 3, column op: found '', expected set or del"),
        ("1\t9\t1\tset\n2\t7\t1\tdelete\n", "line 3, column op: found 'delete', expected set or del"),
        ("1\t9\t1\tset\n2\t11\t1\tset\n", "line 3, column type: found '11', expected a number between 0 and 10"),
        ("1\t9\t1\tset\n2\t\t\tset\n", "line 3, column type: found nothing, expected a number between 0 and 10"),
        ("1\t9\t1\n", "line 2: found 3 columns in '1\\t9\\t1', expected 4 columns"),
        ("\t9\t1\tset\n", "line 2, column cardId: found '', expected 1 to 4096 bytes"),
    ] {
        write(&server, "bad.tsv", format!("{HEADER}{rows}"));
        assert_eq!(not_loaded(db, "list bad.tsv DELTA VERSION 6"), format!("ERR {expected}"));
        assert_eq!(see(db, "list"), before, "{expected}");
    }
    for header in ["cardId\ttype\n", "type\tstatus\top\n", "cardId\ttype\tstatus\top\top\n", ""] {
        write(&server, "bad.tsv", format!("{header}1\t9\t1\tset\n"));
        let error = not_loaded(db, "list bad.tsv DELTA");
        assert!(error.ends_with("expected a header with the columns cardId, type, status"), "{error}");
        assert_eq!(see(db, "list"), before, "{header}");
    }
    assert!(not_loaded(db, "list none.tsv DELTA").starts_with("ERR cannot open none.tsv"));
    assert_eq!(see(db, "list"), before);

    let _: Value = ask(db, "CONFIG SET card.load-max-errors 1".split(' '));
    write(&server, "bad.tsv", format!("{HEADER}1\t9\t1\tset\n2\t11\t1\tset\n"));
    assert_eq!(counts(&load(db, "list bad.tsv DELTA VERSION 6")), [1, 0, 1, 0, 0]);
    assert_eq!(cards(db, "list"), [Some(vec![9, 1]), seven(), seven(), None]);
}

#[test]
fn a_bad_row_behind_many_good_ones_leaves_no_patch() {
    let server = server(&[]);
    let db = &mut server.connect();
    let rows: String = (0..100_000u64).map(|card| format!("{:020}\t7\t1\n", card * 1_000_003)).collect();
    write(&server, "many.tsv", format!("cardId\ttype\tstatus\n{rows}"));
    load(db, "list many.tsv");
    let before = see(db, "list");
    let bad = rows.replace("\t7\t1\n", "\t8\t1\n");
    write(&server, "bad.tsv", format!("cardId\ttype\tstatus\n{bad}1\t1\n"));
    assert!(not_loaded(db, "list bad.tsv DELTA").starts_with("ERR line 100002: found 2 columns"));
    assert_eq!(see(db, "list"), before);
    write(&server, "good.tsv", format!("cardId\ttype\tstatus\n{bad}"));
    assert_eq!(counts(&load(db, "list good.tsv DELTA")), [100_000, 0, 100_000, 0, 0]);
    assert!(!has_patch(db, "list"));
}

#[test]
fn the_tables_own_schema_is_used() {
    let server = server(&[]);
    let db = &mut server.connect();
    let _: Value = ask(db, "CARD.CREATE zones FIELD zone 100 199 FIELD blocked 0 1".split(' '));
    let _: i64 = ask(db, "CARD.MSET zones x 100 0 y 101 1".split(' '));
    write(&server, "zones.tsv", "blocked\top\tcardId\tzone\n1\tset\tx\t150\n\tdel\ty\t\n");
    assert_eq!(counts(&load(db, "zones zones.tsv DELTA")), [2, 0, 1, 1, 0]);
    assert_eq!(ask::<Option<Vec<u64>>, _>(db, ["CARD.GET", "zones", "x"]), Some(vec![150, 1]));
    let error = not_loaded(db, "zones changes.tsv DELTA");
    assert!(error.ends_with("expected a header with the columns cardId, zone, blocked"), "{error}");

    // A field of that name is a field, and nothing can be removed.
    let _: Value = ask(db, "CARD.CREATE ops FIELD op 0 9".split(' '));
    let _: i64 = ask(db, "CARD.SET ops x 1".split(' '));
    write(&server, "ops.tsv", "cardId\top\nx\t5\n");
    assert_eq!(counts(&load(db, "ops ops.tsv DELTA")), [1, 0, 1, 0, 0]);
    write(&server, "ops.tsv", "cardId\top\nx\tdel\n");
    assert_eq!(
        not_loaded(db, "ops ops.tsv DELTA"),
        "ERR line 2, column op: found 'del', expected a number between 0 and 9"
    );
}

#[test]
fn options_come_in_any_order_and_case() {
    let server = server(&[]);
    let db = &mut server.connect();
    load(db, "list cards.tsv");
    for (version, options) in [(1, "DELTA VERSION 1"), (2, "VERSION 2 DELTA"), (3, "version 3 delta")] {
        let report = load(db, &format!("list changes.tsv {options}"));
        assert_eq!((&report["version"], &told(db, "list")["version"]), (&Value::Int(version), &Value::Int(version)));
    }
    assert_eq!(cards(db, "list")[0], Some(vec![8, 2]));
    let before = see(db, "list");
    for wrong in ["DELTA VERSION", "VERSION DELTA", "DELTA VERSION x", "DELTAS", "DELTA 1", "VERSION 1 DELTA 2"] {
        let error = not_loaded(db, &format!("list changes.tsv {wrong}"));
        assert_eq!(error, "ERR syntax error, expected file [DELTA] [VERSION version], or CANCEL", "{wrong}");
    }
    // What stands first is the name of a file.
    for wrong in ["DELTA", "DELTA DELTA", "CANCEL DELTA"] {
        let error = not_loaded(db, &format!("list {wrong}"));
        assert_eq!(error, "ERR a file's name ends in .tsv, .tsv.gz or .tsv.zst", "{wrong}");
    }
    assert_eq!(see(db, "list"), before);
}

#[test]
fn not_in_a_transaction_or_a_script() {
    let server = server(&[]);
    let db = &mut server.connect();
    load(db, "list cards.tsv");
    let before = see(db, "list");
    let _: Value = ask(db, ["MULTI"]);
    let _: Value = ask(db, "CARD.LOAD list changes.tsv DELTA".split(' '));
    let replies: Result<Vec<Value>, _> = try_ask(db, ["EXEC"]);
    let told = format!("{replies:?}");
    assert!(told.contains("a load takes a while: not in a transaction or a script"), "{told}");
    let script = "return redis.call('CARD.LOAD', 'list', 'changes.tsv', 'DELTA')";
    assert!(refused(db, ["EVAL", script, "1", "list"]).contains("not allowed from script"));
    assert_eq!(see(db, "list"), before);
}

#[test]
fn other_databases_and_any_key_will_do() {
    let server = server(&[]);
    let db = &mut server.connect();
    load(db, "list cards.tsv");
    let _: Value = ask(db, ["SELECT", "3"]);
    for key in ["list", "", "a}b", "{}", "\0\r\n\t"] {
        let _: i64 = ask(db, ["CARD.SET", key, "1", "7", "1"]);
        let report: HashMap<String, Value> = ask(db, ["CARD.LOAD", key, "changes.tsv", "DELTA"]);
        assert_eq!(counts(&report), [5, 2, 1, 0, 0], "{key:?}");
        assert_eq!(cards(db, key)[0], Some(vec![8, 2]), "{key:?}");
        assert_eq!(ask::<i64, _>(db, ["DEL", key]), 1);
        assert_eq!(ask::<i64, _>(db, ["DBSIZE"]), 0, "{key:?}");
    }
    let _: Value = ask(db, ["SELECT", "0"]);
    assert_eq!(cards(db, "list")[0], seven());
}

#[test]
fn where_changes_came_from_is_kept_through_every_kind_of_file() {
    for arguments in
        [&["--save", "3600 1"][..], &["--appendonly", "yes"], &["--appendonly", "yes", "--aof-use-rdb-preamble", "no"]]
    {
        let mut server = server(arguments);
        let db = &mut server.connect();
        load(db, "list cards.tsv VERSION 1");
        load(db, "list changes.tsv DELTA VERSION 20240607");
        let look = |db: &mut Connection| {
            let mut told = told(db, "list");
            told.retain(|field, _| ["version", "source", "rows", "loaded_at", "records"].contains(&&**field));
            (told, ask::<Vec<u8>, _>(db, ["DUMP", "list"]))
        };
        let before = look(db);
        assert_eq!(before.0["rows"], Value::Int(5));
        // Once from what the load has written, and once from a file that was written anew.
        for rewrite in [false, true] {
            if rewrite && arguments[0] == "--appendonly" {
                let db = &mut server.connect();
                let _: Value = ask(db, ["BGREWRITEAOF"]);
                wait_for(10, "the AOF is rewritten", || {
                    info(db, "aof_rewrite_in_progress") == "0" && info(db, "aof_rewrite_scheduled") == "0"
                });
            }
            server.stop();
            std::fs::remove_dir_all(server.directory().join("lists")).ok();
            server.start_again();
            assert!(look(&mut server.connect()) == before, "{arguments:?} {rewrite}");
        }
    }
}

#[test]
fn whoever_watches_the_table_hears_of_the_changes_when_they_are_made() {
    let server = server(&["--notify-keyspace-events", "KEA"]);
    let db = &mut server.connect();
    load(db, "list cards.tsv");
    let mut listener = server.connect();
    listener.set_read_timeout(Some(std::time::Duration::from_secs(10))).expect("a limit");
    let mut listener = listener.as_pubsub();
    listener.psubscribe("__keyevent@0__:*").expect("it listens");

    let mut watcher = server.connect();
    let _: Value = ask(&mut watcher, ["WATCH", "list"]);
    write(&server, "bad.tsv", format!("{HEADER}1\t11\t1\tset\n"));
    not_loaded(db, "list bad.tsv DELTA");
    let _: Value = ask(&mut watcher, ["MULTI"]);
    assert_eq!(ask::<Vec<Value>, _>(&mut watcher, ["EXEC"]), [], "what was not made disturbs nobody");
    let _: Value = ask(&mut watcher, ["WATCH", "list"]);
    load(db, "list changes.tsv DELTA");
    let _: Value = ask(&mut watcher, ["MULTI"]);
    assert_eq!(ask::<Value, _>(&mut watcher, ["EXEC"]), Value::Nil);

    let _: Value = ask(db, ["SET", "end", "x"]);
    let mut heard = Vec::new();
    loop {
        let message = listener.get_message().expect("an event");
        let event = message.get_channel_name().trim_start_matches("__keyevent@0__:").to_owned();
        let key: String = message.get_payload().expect("a key");
        if key == "end" {
            break;
        }
        heard.push((event, key));
    }
    heard.retain(|(event, _)| event != "new");
    assert_eq!(heard, [("card.load".to_owned(), "list".to_owned())]);
}

#[test]
fn loads_of_changes_are_counted_and_logged_by_phase() {
    let server = server(&[]);
    let db = &mut server.connect();
    load(db, "list cards.tsv");
    load(db, "list changes.tsv DELTA");
    not_loaded(db, "other changes.tsv DELTA");
    assert_eq!((info(db, "card_loads"), info(db, "card_failed_loads")), ("2".into(), "1".into()));
    let log = server.log();
    let lines: BTreeSet<_> = log.lines().filter_map(|line| line.split(" from changes.tsv: ").nth(1)).collect();
    for expected in ["reading ", "staging 5 changes", "loaded 5 rows in ", "not loaded: there is no table to change"] {
        assert!(lines.iter().any(|line| line.starts_with(expected)), "{expected}: {lines:?}");
    }
}
