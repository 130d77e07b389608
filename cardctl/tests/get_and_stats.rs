//! `cardctl get` and `cardctl stats`: what a server has, for people and for scripts.

mod common;

use common::Desk;
use common::servers::{Server, ask};
use redis::Value;
use serde_json::json;

const CARD: &str = "44015186100181001473";

#[test]
fn cards_are_printed_as_rows() {
    let server = Server::start();
    let desk = Desk::at(&server);
    let _: i64 = ask(&mut server.connect(), ["CARD.MSET", "list", CARD, "7", "1", "beef", "3", "2"]);
    let ran = desk.run(&format!("get list {CARD} beef")).ends_with_code(0);
    assert_eq!((ran.out, ran.err), (format!("cardId\ttype\tstatus\n{CARD}\t7\t1\nbeef\t3\t2\n"), String::new()));
    let told = desk.run(&format!("get list {CARD} --json")).ends_with_code(0).json();
    assert_eq!(told, json!({ "cards": [{ "id": CARD, "type": 7, "status": 1 }], "absent": [] }));
}

#[test]
fn a_card_that_is_not_on_the_list_is_told_and_the_others_are_printed() {
    let server = Server::start();
    let desk = Desk::at(&server);
    let _: i64 = ask(&mut server.connect(), ["CARD.SET", "list", CARD, "7", "1"]);
    let ran = desk.run(&format!("get list 1 {CARD} 2")).ends_with_code(1);
    assert_eq!(ran.out, format!("cardId\ttype\tstatus\n{CARD}\t7\t1\n"));
    assert_eq!(ran.err, "1 is not on the list\n2 is not on the list\n");
    assert_eq!(desk.run("get list 1").ends_with_code(1).out, "");
    let told = desk.run(&format!("get list 1 {CARD} --json")).ends_with_code(1).json();
    assert_eq!((&told["absent"], &told["cards"][0]["id"]), (&json!(["1"]), &json!(CARD)));
}

#[test]
fn a_table_that_is_not_there_or_not_ready_never_says_that_a_card_is_not_on_it() {
    let server = Server::start();
    let db = &mut server.connect();
    let _: () = ask(db, ["CARD.CREATE", "created"]);
    let _: () = ask(db, ["SET", "text", "x"]);
    let desk = Desk::at(&server);
    desk.run("get list 1").failed(3, "there is no table list");
    desk.run("get created 1").failed(3, "the table created is not ready");
    desk.run("get text 1").failed(3, "WRONGTYPE");
    desk.run("get list").failed(2, "ID");
    desk.run("get").failed(2, "ID");
}

#[test]
fn wide_values_and_odd_ids_are_shown_whole_and_harmless() {
    let server = Server::start();
    let db = &mut server.connect();
    let desk = Desk::at(&server);
    let highest = (1u128 << 100).to_string();
    let _: () = ask(db, ["CARD.CREATE", "wide", "FIELD", "serial", "1", &highest]);
    let _: i64 = ask(db, ["CARD.SET", "wide", "\u{1b}[2Jé", &highest]);
    let ran = desk.run_words(["get", "wide", "\u{1b}[2Jé"]).ends_with_code(0);
    assert_eq!(ran.out, format!("cardId\tserial\n\\u{{1b}}[2Jé\t{highest}\n"));
    let told = desk.run_words(["get", "wide", "\u{1b}[2Jé", "--json"]).ends_with_code(0).json();
    assert_eq!(told["cards"], json!([{ "id": "\u{1b}[2Jé", "serial": highest }]));
    desk.run_words(["get", "wide", &"x".repeat(5000)]).failed(3, "4096");
}

#[test]
fn all_tables_are_shown_and_nothing_else() {
    let server = Server::start();
    let db = &mut server.connect();
    let desk = Desk::at(&server);
    assert_eq!(desk.run("stats").ends_with_code(0).out, "there are no tables\n");
    assert_eq!(desk.run("stats --json").ends_with_code(0).json(), json!({ "tables": [] }));

    let _: () = ask(db, ["SET", "text", "x"]);
    let _: () = ask(db, ["CARD.CREATE", "created"]);
    let _: i64 = ask(db, ["CARD.SET", "written", CARD, "7", "1"]);
    desk.run("gen --rows 20000 -o cards.tsv").ends_with_code(0);
    desk.run("load cards.tsv --table blacklist:0 --version 201708031").ends_with_code(0);
    let out = desk.run("stats").ends_with_code(0).out;
    let rows: Vec<Vec<&str>> =
        out.lines().map(|line| line.split("  ").filter(|cell| !cell.is_empty()).collect()).collect();
    let trimmed: Vec<Vec<&str>> = rows.iter().map(|row| row.iter().map(|cell| cell.trim()).collect()).collect();
    assert_eq!(trimmed[0], ["table", "cards", "memory", "bytes a card", "version", "age", "state"]);
    assert_eq!((trimmed[1][0], trimmed[1][1], trimmed[1][4]), ("blacklist:0", "20,000", "201708031"));
    assert_eq!((trimmed[2][0], trimmed[2].last().copied()), ("created", Some("not ready")));
    assert_eq!((trimmed[3][0], trimmed[3][1], trimmed[3].last().copied()), ("written", "1", Some("ready")));
    assert_eq!(trimmed.len(), 4);
    assert!(!out.contains('█'), "bars are for terminals");
}

#[test]
fn figures_are_those_of_the_server() {
    let server = Server::start();
    let db = &mut server.connect();
    let desk = Desk::at(&server);
    desk.run("gen --rows 20000 -o cards.tsv").ends_with_code(0);
    desk.run("load cards.tsv --table list --version 5").ends_with_code(0);
    let told = desk.run("stats list --json").ends_with_code(0).json();
    let told = &told["tables"][0];
    let info: std::collections::HashMap<String, Value> = ask(db, ["CARD.INFO", "list", "DIGEST"]);
    assert_eq!(Value::Int(told["bytes"].as_i64().unwrap()), info["memory_bytes"]);
    assert_eq!(Value::BulkString(told["digest"].as_str().unwrap().into()), info["digest"]);
    let each = told["bytes"].as_f64().unwrap() / 20_000.0;
    assert!((told["bytes_per_record"].as_f64().unwrap() - each).abs() < 0.001);
    assert!(told["age_seconds"].as_u64().unwrap() < 60);
    for (name, expected) in [
        ("table", json!("list")),
        ("records", json!(20_000)),
        ("version", json!(5)),
        ("source", json!("cards.tsv")),
        ("ready", json!(true)),
        ("stale", json!(false)),
        ("loading_percent", json!(null)),
    ] {
        assert_eq!(told[name], expected, "{name}");
    }
}

#[test]
fn a_table_that_is_asked_for_must_be_there() {
    let server = Server::start();
    let _: () = ask(&mut server.connect(), ["SET", "text", "x"]);
    let desk = Desk::at(&server);
    desk.run("stats list").failed(3, "there is no table list");
    desk.run("stats text").failed(3, "WRONGTYPE");
}
