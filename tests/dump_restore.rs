//! Redis's own commands on tables: what moves, copies, reloads, times out or describes a key works for a card table too.

mod common;

use common::kinds::*;
use common::{Server, ask, refused, wait_for};
use redis::Connection;

const CARD: &str = "44015186100181001473";

#[test]
fn a_dump_restores_every_kind_of_table() {
    let server = Server::start();
    let db = &mut server.connect();
    let whole = make_every_kind(db);
    let (before, dumps) = (see_every_kind(db), dumps(db));
    let () = ask(db, ["FLUSHALL"]);

    for (key, dump) in KINDS.iter().zip(&dumps) {
        let until = before[key].expires_at.max(0).to_string();
        let () = ask(db, [b"RESTORE", key.as_bytes(), until.as_bytes(), dump, b"ABSTTL"]);
    }

    assert_same(&see_every_kind(db), &before);
    finish_half(db, &whole);
}

#[test]
fn restoring_replaces_a_key_only_if_told_to_and_sets_its_time_to_live() {
    let server = Server::start();
    let db = &mut server.connect();
    let _: i64 = ask(db, ["CARD.SET", "one", CARD, "7", "1"]);
    let _: i64 = ask(db, ["CARD.SET", "two", CARD, "8", "2"]);
    let dump: Vec<u8> = ask(db, ["DUMP", "one"]);

    let busy = refused(db, [b"RESTORE".as_slice(), b"two", b"0", &dump]);
    assert_eq!(busy, "BUSYKEY Target key name already exists.");
    assert_eq!(ask::<Vec<u64>, _>(db, ["CARD.GET", "two", CARD]), [8, 2]);

    let () = ask(db, [b"RESTORE".as_slice(), b"two", b"100000", &dump, b"REPLACE"]);
    assert_eq!(ask::<Vec<u64>, _>(db, ["CARD.GET", "two", CARD]), [7, 1]);
    assert!((1..=100_000).contains(&ask::<i64, _>(db, ["PTTL", "two"])));
    assert_eq!(ask::<i64, _>(db, ["PTTL", "one"]), -1);
}

#[test]
fn a_copy_is_equal_and_independent() {
    let server = Server::start();
    let db = &mut server.connect();
    let whole = make_every_kind(db);
    let before = see_every_kind(db);
    for key in KINDS {
        assert_eq!(ask::<i64, _>(db, ["COPY", key, "copy"]), 1);
        assert_eq!(see(db, "copy"), before[key], "{key}");
        let _: i64 = ask(db, ["DEL", "copy"]);
    }

    assert_eq!(ask::<i64, _>(db, ["COPY", "loaded", "copy", "DB", "1"]), 1);
    let other = &mut server.connect();
    let () = ask(other, ["SELECT", "1"]);
    let gone = String::from_utf8(cards(other, "copy")[0].0.clone()).unwrap();
    assert_eq!(ask::<i64, _>(other, ["CARD.SET", "copy", CARD, "9", "2"]), 1);
    assert_eq!(ask::<i64, _>(other, ["CARD.DEL", "copy", &gone]), 1);
    assert_eq!(see(db, "loaded"), before["loaded"], "the original changed with its copy");

    let copied = cards(other, "copy");
    assert_eq!(ask::<i64, _>(db, ["DEL", "loaded"]), 1);
    assert!(cards(other, "copy") == copied, "the copy changed with the original");

    // A copy of a staged table goes on by itself.
    assert_eq!(ask::<i64, _>(db, ["COPY", "half", "other half"]), 1);
    finish_half(db, &whole);
    assert_eq!(see(db, "other half"), before["half"]);
}

#[test]
fn a_table_is_renamed_moved_and_swapped_like_any_key() {
    let server = Server::start();
    let db = &mut server.connect();
    make_every_kind(db);
    let before = see_every_kind(db);
    let other = &mut server.connect();
    let () = ask(other, ["SELECT", "1"]);

    for key in KINDS {
        let () = ask(db, ["RENAME", key, "renamed"]);
        assert_eq!(see(db, "renamed"), before[key], "{key}");
        let () = ask(db, ["RENAME", "renamed", key]);
        assert_eq!(ask::<i64, _>(db, ["MOVE", key, "1"]), 1);
        assert_eq!(ask::<i64, _>(db, ["EXISTS", key]), 0);
    }
    assert_same(&see_every_kind(other), &before);
    let () = ask(other, ["SWAPDB", "0", "1"]);
    assert_same(&see_every_kind(db), &before);
    assert_eq!(ask::<i64, _>(other, ["DBSIZE"]), 0);
}

#[test]
fn every_kind_of_table_migrates_to_another_server() {
    let (from, to) = (Server::start(), Server::with_port(&[]));
    let (db, there) = (&mut from.connect(), &mut to.connect());
    let whole = make_every_kind(db);
    let before = see_every_kind(db);
    let _: i64 = ask(there, ["CARD.SET", "cards", CARD, "7", "1"]);
    let port = to.port().to_string();
    let migrate = ["MIGRATE", "127.0.0.1", &port, "", "0", "10000"];

    let busy = refused(db, migrate.iter().chain(&["KEYS", "cards"]));
    assert!(busy.contains("BUSYKEY"), "{busy}");
    let () = ask(db, migrate.iter().chain(&["COPY", "REPLACE", "KEYS"]).chain(&KINDS));
    assert_same(&see_every_kind(db), &before);
    let () = ask(db, migrate.iter().chain(&["REPLACE", "KEYS"]).chain(&KINDS));
    assert_eq!(ask::<i64, _>(db, ["DBSIZE"]), 0);

    let mut arrived = see_every_kind(there);
    for (key, seen) in &mut arrived {
        // MIGRATE sends what is left of the time, and the other server adds it to its own.
        let off = (seen.expires_at - before[key].expires_at).abs();
        assert!(off < 5_000, "{key} expires {off} ms off");
        seen.expires_at = before[key].expires_at;
    }
    assert_same(&arrived, &before);
    finish_half(there, &whole);
}

#[test]
fn a_table_expires_unless_it_is_told_to_stay() {
    let server = Server::start();
    let db = &mut server.connect();
    for key in ["gone", "stays"] {
        let _: i64 = ask(db, ["CARD.SET", key, CARD, "7", "1"]);
        assert_eq!(ask::<i64, _>(db, ["EXPIRE", key, "100"]), 1);
    }
    // A write does not end the time to live.
    let _: i64 = ask(db, ["CARD.SET", "gone", "1", "7", "1"]);
    assert!((1..=100).contains(&ask::<i64, _>(db, ["TTL", "gone"])));
    assert_eq!(ask::<i64, _>(db, ["PERSIST", "stays"]), 1);
    assert_eq!(ask::<i64, _>(db, ["TTL", "stays"]), -1);

    assert_eq!(ask::<i64, _>(db, ["PEXPIRE", "gone", "1"]), 1);
    wait_for(5, "the table to expire", || ask::<i64, _>(db, ["DBSIZE"]) == 1);
    assert_eq!(ask::<Option<Vec<u64>>, _>(db, ["CARD.GET", "gone", CARD]), None);
    assert_eq!(refused(db, ["CARD.INFO", "gone"]), "ERR no such table");
    assert_eq!(ask::<Vec<u64>, _>(db, ["CARD.GET", "stays", CARD]), [7, 1]);
}

#[test]
fn a_list_put_in_the_place_of_another_does_not_expire_with_it() {
    let server = Server::start();
    let db = &mut server.connect();
    let _: i64 = ask(db, ["CARD.SET", "list", CARD, "7", "1"]);
    let _: i64 = ask(db, ["EXPIRE", "list", "100"]);
    stage(db, "new", &build(10, 5), PIECE_BYTES);
    let () = ask(db, ["CARD.COMMIT", "new", "list"]);
    assert_eq!(ask::<i64, _>(db, ["TTL", "list"]), -1);
    assert_eq!(ask::<i64, _>(db, ["CARD.LEN", "list"]), 10);
}

#[test]
fn redis_describes_every_kind_of_table() {
    let server = Server::with(&["--enable-debug-command", "yes", "--maxmemory-policy", "allkeys-lfu"]);
    let db = &mut server.connect();
    make_every_kind(db);
    for key in KINDS {
        assert_eq!(ask::<String, _>(db, ["TYPE", key]), "cardtable");
        assert_eq!(ask::<String, _>(db, ["OBJECT", "ENCODING", key]), "raw");
        assert_eq!(ask::<i64, _>(db, ["OBJECT", "REFCOUNT", key]), 1);
        assert!(ask::<i64, _>(db, ["OBJECT", "FREQ", key]) > 0);
        let object: String = ask(db, ["DEBUG", "OBJECT", key]);
        assert!(object.contains("encoding:raw serializedlength:"), "{object}");
        assert!(ask::<i64, _>(db, ["MEMORY", "USAGE", key, "SAMPLES", "0"]) > 0);
    }
    let () = ask(db, ["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    // Asking for a card counts as use.
    let _: Option<Vec<u64>> = ask(db, ["CARD.GET", "cards", CARD]);
    assert!((0..60).contains(&ask::<i64, _>(db, ["OBJECT", "IDLETIME", "cards"])));
    let _: i64 = ask(db, ["SADD", "a set", "member"]);
    let (_, mut keys): (String, Vec<String>) = ask(db, ["SCAN", "0", "TYPE", "cardtable", "COUNT", "1000"]);
    keys.sort();
    let mut kinds = KINDS.map(String::from);
    kinds.sort();
    assert_eq!(keys, kinds);
}

#[test]
fn equal_tables_have_equal_debug_digests_however_they_came_about() {
    let server = Server::with(&["--enable-debug-command", "yes"]);
    let db = &mut server.connect();
    let table = build(3_000, 5);
    let mut records = cards_of(&table);
    stage(db, "loaded", &table, PIECE_BYTES);
    let () = ask(db, ["CARD.COMMIT", "loaded", "loaded", "VERSION", "1", "SOURCE", "f", "ROWS", "3000"]);

    set_all(db, "ascending", &records);
    fastrand::Rng::with_seed(6).shuffle(&mut records);
    set_all(db, "shuffled", &records);
    // With a card and values that are not there in the end.
    let (id, values) = &records[0];
    let () = ask(db, ["CARD.CREATE", "changed"]);
    set_all(db, "changed", &[(b"not a number".to_vec(), vec![1, 1]), (id.clone(), vec![10 - values[0], 1])]);
    set_all(db, "changed", &records);
    assert_eq!(ask::<i64, _>(db, ["CARD.DEL", "changed", "not a number"]), 1);
    let dump: Vec<u8> = ask(db, ["DUMP", "shuffled"]);
    let () = ask(db, [b"RESTORE".as_slice(), b"restored", b"0", &dump]);
    let _: i64 = ask(db, ["COPY", "changed", "copied"]);

    let equal = ["loaded", "ascending", "shuffled", "changed", "restored", "copied"];
    let digests: Vec<String> = ask(db, ["DEBUG", "DIGEST-VALUE"].iter().chain(&equal));
    assert_eq!(digests, vec![digests[0].clone(); equal.len()]);

    // Another value, one card less, another schema: another digest.
    let _: i64 = ask(db, ["COPY", "loaded", "value"]);
    set_all(db, "value", &[(id.clone(), vec![(values[0] + 1) % 11, values[1]])]);
    let _: i64 = ask(db, ["COPY", "loaded", "fewer"]);
    let _: i64 = ask(db, [b"CARD.DEL".as_slice(), b"fewer", id]);
    let () = ask(db, ["CARD.CREATE", "schema", "FIELD", "kind", "0", "10", "FIELD", "status", "1", "2"]);
    set_all(db, "schema", &records);
    let others: Vec<String> = ask(db, ["DEBUG", "DIGEST-VALUE", "loaded", "value", "fewer", "schema"]);
    let different: std::collections::BTreeSet<_> = others.iter().collect();
    assert_eq!(different.len(), 4, "{others:?}");
}

#[test]
fn every_kind_of_table_survives_a_reload_in_place() {
    let server = Server::with(&["--enable-debug-command", "yes", "--appendonly", "yes"]);
    let db = &mut server.connect();
    make_every_kind(db);
    let before = see_every_kind(db);
    // A reload is a start: what was staged does not stay.
    let () = ask(db, ["DEBUG", "RELOAD"]);
    assert_same_after_a_start(db, &before);
    let digest: String = ask(db, ["DEBUG", "DIGEST"]);
    for reload in ["LOADAOF", "RELOAD"] {
        let () = ask(db, ["DEBUG", reload]);
        assert_same_after_a_start(db, &before);
        assert_eq!(ask::<String, _>(db, ["DEBUG", "DIGEST"]), digest);
    }
}

fn set_all(db: &mut Connection, key: &str, cards: &[Card]) {
    let mut set = redis::cmd("CARD.MSET");
    set.arg(key);
    for (id, values) in cards {
        set.arg(id);
        values.iter().for_each(|value| {
            set.arg(value.to_string());
        });
    }
    let _: i64 = set.query(db).expect("the cards are set");
}
