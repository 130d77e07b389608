//! `cardctl verify`: whatever differs between a list and a table is found, and nothing else is.

mod common;

use common::servers::{Server, ask};
use common::{Desk, loaded};
use serde_json::{Value, json};

#[track_caller]
fn verify(desk: &Desk, code: i32) -> Value {
    desk.run("verify list.tsv --table list --json").ends_with_code(code).json()
}

/// The row at a line of the list: id, type, status.
fn row(desk: &Desk, line: usize) -> [String; 3] {
    let list = desk.read("list.tsv");
    let mut cells = list.lines().nth(line).expect("a row").split('\t').map(str::to_owned);
    std::array::from_fn(|_| cells.next().expect("a cell"))
}

#[test]
fn a_table_that_was_loaded_is_as_its_list_says() {
    for set in ["net", "issued", "hex32", "cookies"] {
        let (_server, _, desk) = loaded(30_000, set);
        let told = verify(&desk, 0);
        for (name, expected) in [
            ("fine", json!(true)),
            ("checked", json!(30_000)),
            ("absent_checked", json!(30_000)),
            ("wrong", json!(0)),
            ("missing", json!(0)),
            ("unexpected", json!(0)),
            ("same_digest", json!(true)),
            ("changed_meanwhile", json!(false)),
            ("differences", json!([])),
        ] {
            assert_eq!(told[name], expected, "{set} {name}");
        }
        assert_eq!(told["list_digest"], told["table_digest"]);
    }
}

#[test]
fn what_people_see_has_all_figures() {
    let (_server, _, desk) = loaded(1000, "net");
    let ran = desk.run("verify list.tsv --table list").ends_with_code(0);
    let lines: Vec<_> = ran.out.lines().collect();
    assert_eq!(lines[0], "1,000 rows asked: 0 wrong, 0 missing");
    assert_eq!(lines[1], "1,000 ids asked that are not in the list: 0 unexpected");
    assert!(lines[2].starts_with("the digest of list and table is "));
    assert_eq!(lines[3..], ["all is as it should be"]);
    assert_eq!(ran.err, "reading list.tsv\nverifying list.tsv\n");
}

#[test]
fn a_card_with_other_values_is_wrong() {
    let (_server, mut db, desk) = loaded(30_000, "net");
    let [id, type_, status] = row(&desk, 20_000);
    let _: i64 = ask(&mut db, ["CARD.SET", "list", &id, "10", &status]);
    let told = verify(&desk, 1);
    assert_eq!((&told["wrong"], &told["missing"], &told["unexpected"]), (&json!(1), &json!(0), &json!(0)));
    assert_eq!(told["differences"], json!([format!("{id}: expected {type_} {status}, found 10 {status}")]));
    assert_eq!((&told["same_digest"], &told["fine"]), (&json!(false), &json!(false)));
}

#[test]
fn a_card_that_was_removed_is_missing() {
    let (_server, mut db, desk) = loaded(30_000, "net");
    let [id, type_, status] = row(&desk, 1);
    let _: i64 = ask(&mut db, ["CARD.DEL", "list", &id]);
    let told = verify(&desk, 1);
    assert_eq!((&told["wrong"], &told["missing"], &told["unexpected"]), (&json!(0), &json!(1), &json!(0)));
    assert_eq!(told["differences"], json!([format!("{id}: expected {type_} {status}, found no card")]));
}

#[test]
fn a_card_that_is_not_in_the_list_is_found_by_the_digest_if_not_by_chance() {
    let (_server, mut db, desk) = loaded(1000, "net");
    let _: i64 = ask(&mut db, ["CARD.SET", "list", "a card of nobody's list", "7", "1"]);
    let told = verify(&desk, 1);
    assert_eq!((&told["wrong"], &told["missing"], &told["same_digest"]), (&json!(0), &json!(0), &json!(false)));
}

#[test]
fn cards_beside_those_of_the_list_are_unexpected() {
    let server = Server::start();
    let db = &mut server.connect();
    let desk = Desk::at(&server);
    // Every second of all numbers of three digits is listed, and the table has them all.
    let rows: Vec<String> = (0..1000).step_by(2).map(|at| format!("{at:03} 7 1")).collect();
    desk.list("list.tsv", &rows.iter().map(String::as_str).collect::<Vec<_>>());
    for at in 0..1000 {
        let _: i64 = ask(db, ["CARD.SET", "list", &format!("{at:03}"), "7", "1"]);
    }
    let told = verify(&desk, 1);
    assert_eq!((&told["checked"], &told["wrong"], &told["missing"]), (&json!(500), &json!(0), &json!(0)));
    assert_eq!(told["unexpected"], told["absent_checked"], "all that was asked for is there");
    assert!((495..=500).contains(&told["absent_checked"].as_u64().unwrap()), "{told}");
    assert_eq!(told["differences"].as_array().map(Vec::len), Some(10), "the first ones are told");
}

#[test]
fn a_list_of_everything_there_is_has_no_absent_ids() {
    let server = Server::start();
    let desk = Desk::at(&server);
    let rows: Vec<String> = (0..10).map(|at| format!("{at} 7 1")).collect();
    desk.list("list.tsv", &rows.iter().map(String::as_str).collect::<Vec<_>>());
    desk.run("load list.tsv --table list").ends_with_code(0);
    let told = verify(&desk, 0);
    assert_eq!((&told["checked"], &told["absent_checked"]), (&json!(10), &json!(0)));
}

#[test]
fn the_last_row_of_a_card_counts() {
    let server = Server::start();
    let desk = Desk::at(&server);
    desk.list("list.tsv", &["1 7 1", "2 7 1", "1 8 2"]);
    desk.run("load list.tsv --table list").ends_with_code(0);
    assert_eq!(verify(&desk, 0)["checked"], 3);
    let _: i64 = ask(&mut server.connect(), "CARD.SET list 1 7 1".split(' '));
    assert_eq!(verify(&desk, 1)["wrong"], 2, "both rows of the card");
}

#[test]
fn of_a_list_of_changes_only_the_rows_count() {
    let (_server, mut db, desk) = loaded(1000, "net");
    let [id, ..] = row(&desk, 500);
    let changes = format!("op\tcardId\ttype\tstatus\nset\tnew\t3\t2\ndel\t{id}\t\t\ndel\tback\t\t\nset\tback\t1\t1\n");
    desk.file("changes.tsv", changes);
    let verify = |code| desk.run("verify changes.tsv --table list --json").ends_with_code(code).json();
    let told = verify(1);
    assert_eq!((&told["missing"], &told["unexpected"], &told["checked"]), (&json!(3), &json!(1), &json!(4)));

    let _: i64 = ask(&mut db, "CARD.MSET list new 3 2 back 1 1".split(' '));
    let _: i64 = ask(&mut db, ["CARD.DEL", "list", &id]);
    let told = verify(0);
    assert_eq!((&told["absent_checked"], &told["same_digest"]), (&json!(0), &json!(null)));
}

#[test]
fn what_cannot_be_compared_is_told() {
    let server = Server::start();
    let db = &mut server.connect();
    let _: () = ask(db, ["CARD.CREATE", "created"]);
    let _: () = ask(db, ["SET", "text", "x"]);
    let desk = Desk::at(&server);
    desk.list("list.tsv", &["1 7 1"]);
    desk.run("verify list.tsv --table list").failed(3, "there is no table list");
    desk.run("verify list.tsv --table created").failed(3, "the table created is not ready");
    desk.run("verify list.tsv --table text").failed(3, "WRONGTYPE");
    desk.run("verify nothing.tsv --table list").failed(4, "nothing.tsv: No such file");
    desk.run("verify list.tsv").failed(2, "--table");
    let _: i64 = ask(db, "CARD.SET list 1 7 1".split(' '));
    desk.list("bad.tsv", &["1 7 1", "2 7 3"]);
    desk.run("verify bad.tsv --table list").failed(4, "bad.tsv: line 3, column status: found '3'");
    desk.run("verify /dev/null --table list").failed(4, "not a regular file");
}
