//! `cardctl export` and `cardctl diff`: lists made of tables, and lists of changes made of lists.

mod common;

use std::io::Read;
use std::process::Stdio;

use common::servers::{Server, ask};
use common::{Desk, Ran, loaded};
use serde_json::json;

fn sorted(list: &str) -> Vec<&str> {
    let mut lines: Vec<_> = list.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn an_exported_table_has_the_rows_that_were_loaded() {
    for set in ["net", "hex32", "cookies"] {
        let (_server, _, desk) = loaded(25_000, set);
        let list = desk.read("list.tsv");
        let ran = desk.run("export list").ends_with_code(0);
        assert_eq!(sorted(&ran.out), sorted(&list), "{set}");
        assert!(ran.out.starts_with("cardId\ttype\tstatus\n"));
        for name in ["copy.tsv", "copy.tsv.gz", "copy.tsv.zst"] {
            let ran = desk.run(&format!("export list -o {name}")).ends_with_code(0);
            assert_eq!(ran.out, format!("{name}: 25,000 cards of list\n"));
            desk.run(&format!("verify {name} --table list")).ends_with_code(0);
        }
        assert_eq!(desk.names(), ["copy.tsv", "copy.tsv.gz", "copy.tsv.zst", "list.tsv"]);
        let told = desk.run("export list -o copy.tsv --json").ends_with_code(0).json();
        assert_eq!((&told["rows"], &told["file"]), (&json!(25_000), &json!("copy.tsv")));
        desk.run("export list --json").failed(2, "-o FILE");
    }
}

#[test]
fn fields_of_any_width_are_exported() {
    let server = Server::start();
    let db = &mut server.connect();
    let desk = Desk::at(&server);
    let highest = (1u128 << 100).to_string();
    let _: () = ask(db, ["CARD.CREATE", "wide", "FIELD", "level", "3", "6", "FIELD", "serial", "1", &highest]);
    let _: i64 = ask(db, ["CARD.MSET", "wide", "beef", "4", &highest, "a cookie", "6", "1"]);
    let ran = desk.run("export wide").ends_with_code(0);
    assert_eq!(ran.out, format!("cardId\tlevel\tserial\nbeef\t4\t{highest}\na cookie\t6\t1\n"));
}

#[test]
fn an_emptied_table_is_a_header() {
    let server = Server::start();
    let db = &mut server.connect();
    let _: i64 = ask(db, "CARD.SET list 1 7 1".split(' '));
    let _: i64 = ask(db, "CARD.DEL list 1".split(' '));
    assert_eq!(Desk::at(&server).run("export list").ends_with_code(0).out, "cardId\ttype\tstatus\n");
}

#[test]
fn an_id_that_no_list_can_hold_is_refused_and_no_file_is_left() {
    let server = Server::start();
    let desk = Desk::at(&server);
    desk.file("copy.tsv", "what was there");
    for (id, shown) in [("tab\tbed", "'tab\\tbed'"), ("two\nlines", "'two\\nlines'")] {
        let _: i64 = ask(&mut server.connect(), ["CARD.SET", id, id, "7", "1"]);
        desk.run_words(["export", id, "-o", "copy.tsv"]).failed(3, shown);
    }
    assert_eq!((desk.read("copy.tsv"), desk.names()), ("what was there".into(), vec!["copy.tsv".into()]));
}

#[test]
fn what_is_no_table_cannot_be_exported() {
    let server = Server::start();
    let db = &mut server.connect();
    let _: () = ask(db, ["CARD.CREATE", "created"]);
    let _: () = ask(db, ["SET", "text", "x"]);
    let desk = Desk::at(&server);
    desk.run("export list -o copy.tsv").failed(3, "there is no table list");
    desk.run("export created -o copy.tsv").failed(3, "the table created is not ready");
    desk.run("export text -o copy.tsv").failed(3, "WRONGTYPE");
    assert_eq!(desk.names(), [""; 0]);
}

#[test]
fn a_table_that_changes_meanwhile_is_no_list() {
    let (_server, mut db, desk) = loaded(300_000, "net");
    let mut child = desk.command(["export", "list"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // It waits until somebody reads the rest: pipes are short.
    let mut pipe = child.stdout.take().expect("a pipe");
    pipe.read_exact(&mut [0; 100]).expect("the first rows");
    let _: i64 = ask(&mut db, "CARD.SET list 1 7 1".split(' '));
    std::io::copy(&mut pipe, &mut std::io::sink()).expect("the rest");
    Ran::new(child.wait_with_output().expect("it ends")).failed(1, "the table list changed while it was exported");
}

#[test]
fn a_server_that_dies_half_way_is_told() {
    let (mut server, _, desk) = loaded(300_000, "net");
    let mut child = desk.command(["export", "list"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut pipe = child.stdout.take().expect("a pipe");
    pipe.read_exact(&mut [0; 100]).expect("the first rows");
    server.kill();
    std::io::copy(&mut pipe, &mut std::io::sink()).expect("the rest");
    Ran::new(child.wait_with_output().expect("it ends")).failed(3, "the connection to Redis at ");
}

#[test]
fn a_list_of_changes_makes_the_new_list_of_the_old() {
    let desk = Desk::new();
    desk.list("old.tsv", &["1 7 1", "2 7 1", "3 7 1", "beef 7 1", "a 1 1"]);
    desk.list("new.tsv", &["4 7 2", "3 7 2", "1 7 1", "BEEF 7 1", "a 2 1", "a 1 1"]);
    let expected = "cardId\ttype\tstatus\top\n2\t\t\tdel\n3\t7\t2\tset\n4\t7\t2\tset\nbeef\t\t\tdel\nBEEF\t7\t1\tset\n";
    assert_eq!(desk.run("diff old.tsv new.tsv").ends_with_code(0).out, expected);
    let ran = desk.run("diff old.tsv new.tsv -o changes.tsv").ends_with_code(0);
    assert_eq!(ran.out, "changes.tsv: 2 cards added, 1 changed, 2 removed; 2 stay as they are\n");
    assert_eq!(desk.read("changes.tsv"), expected);
    let told = desk.run("diff old.tsv new.tsv -o changes.tsv.gz --json").ends_with_code(0).json();
    assert_eq!(told, json!({ "file": "changes.tsv.gz", "added": 2, "changed": 1, "removed": 2, "same": 2 }));
    desk.run("check changes.tsv.gz").ends_with_code(0);
    // The old list and then its changes, read as one list: the last row of a card counts.
    let old: String = desk.read("old.tsv").lines().skip(1).map(|row| format!("{row}\tset\n")).collect();
    desk.file(
        "both.tsv",
        expected.lines().next().unwrap().to_owned() + "\n" + &old + expected.split_once('\n').unwrap().1,
    );
    let digest = |name: &str| desk.run(&format!("check {name} --json")).ends_with_code(0).json()["digest"].clone();
    assert_eq!(digest("both.tsv"), digest("new.tsv"));
}

#[test]
fn the_changes_between_large_lists_are_few_if_the_lists_differ_little() {
    let desk = Desk::new();
    desk.run("gen --rows 50000 -o old.tsv.zst").ends_with_code(0);
    desk.run("gen --rows 50000 --card 1 7 1 --card 2 7 1 -o new.tsv").ends_with_code(0);
    let told = desk.run("diff old.tsv.zst new.tsv -o changes.tsv --json").ends_with_code(0).json();
    assert_eq!((&told["added"], &told["changed"], &told["removed"]), (&json!(2), &json!(0), &json!(2)));
    let same = desk.run("diff new.tsv new.tsv").ends_with_code(0);
    assert_eq!(same.out, "cardId\ttype\tstatus\top\n");
}

#[test]
fn lists_that_cannot_be_compared_are_told() {
    let desk = Desk::new();
    desk.list("old.tsv", &["1 7 1"]);
    desk.list("bad.tsv", &["1 7 3"]);
    desk.list("empty.tsv", &[]);
    desk.run("diff old.tsv bad.tsv -o changes.tsv").failed(4, "bad.tsv: line 2, column status");
    desk.run("diff old.tsv nothing.tsv -o changes.tsv").failed(4, "nothing.tsv: No such file");
    desk.run("diff old.tsv empty.tsv -o changes.tsv").failed(4, "removes every card is refused");
    desk.run("diff old.tsv old.tsv --field op 0 1").failed(2, "field op");
    desk.run("diff old.tsv").failed(2, "NEW");
    desk.run("diff old.tsv old.tsv --json").failed(2, "-o FILE");
    assert_eq!(desk.names(), ["bad.tsv", "empty.tsv", "old.tsv"]);
    desk.run("diff empty.tsv old.tsv").ends_with_code(0);
}
