//! `cardctl load`: a list becomes a table, by the server or through the wire, or nothing changes and the reason is told.

mod common;

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};

use common::servers::{Server, ask, free_port, wait_for, write_long_list};
use common::{Desk, HEADER, Ran, interrupt};
use redis::{Connection, Value};
use serde_json::json;

/// A server that loads from the folder `lists` of its own.
fn server() -> Server {
    let server = Server::with_port(&["--card.load-dir", "lists"]);
    fs::create_dir(server.directory().join("lists")).expect("a folder");
    server
}

fn keys(db: &mut Connection) -> Vec<String> {
    let mut keys: Vec<String> = ask(db, ["KEYS", "*"]);
    keys.sort();
    keys
}

fn card(db: &mut Connection, key: &str, id: &str) -> Option<Vec<u64>> {
    ask(db, ["CARD.GET", key, id])
}

/// Checks what `CARD.INFO` tells of the load.
#[track_caller]
fn assert_origin(db: &mut Connection, key: &str, rows: i64, version: Value, source: &str) {
    let info: HashMap<String, Value> = ask(db, ["CARD.INFO", key]);
    assert_eq!((&info["rows"], &info["version"], &info["ready"]), (&Value::Int(rows), &version, &Value::Int(1)));
    assert_eq!(info["source"], Value::BulkString(source.into()));
}

#[test]
fn a_list_from_anywhere_is_built_here_and_sent() {
    let server = server();
    let db = &mut server.connect();
    let desk = Desk::at(&server);
    desk.list("cards.tsv", &["1 7 1", "2 3 2", "1 8 2"]);
    let mut told = desk.run("load cards.tsv --table list --version 12 --json").ends_with_code(0).json();
    assert!(told["seconds"].take().as_f64().is_some_and(|seconds| seconds < 10.0));
    let expected = json!({
        "by": "stream", "cards": 2, "duplicates": 1, "file": "cards.tsv", "rows": 3, "seconds": null,
        "table": "list", "version": 12,
    });
    assert_eq!(told, expected);
    assert_eq!(card(db, "list", "1"), Some(vec![8, 2]), "the last row of a card counts");
    assert_eq!(keys(db), ["list"], "nothing is left of the staging");
    assert_origin(db, "list", 3, Value::Int(12), "cards.tsv");
}

#[test]
fn a_list_in_the_servers_folder_is_loaded_by_the_server() {
    let server = server();
    let db = &mut server.connect();
    let desk = Desk::at(&server);
    let lists = server.directory().join("lists");
    fs::create_dir(lists.join("inner")).unwrap();
    for (at, name) in ["cards.tsv", "inner/cards.tsv.gz", "inner/cards.tsv.zst"].into_iter().enumerate() {
        let path = lists.join(name);
        let path = path.to_str().expect("UTF-8");
        desk.run(&format!("gen --rows 1000 --seed {at} -o {path}")).ends_with_code(0);
        let told = desk.run(&format!("load {path} --table list --version {at} --json")).ends_with_code(0).json();
        assert_eq!((&told["by"], &told["cards"], &told["rows"]), (&"server".into(), &1000.into(), &1000.into()));
        assert_origin(db, "list", 1000, Value::Int(at as i64), name);
        desk.run(&format!("verify {path} --table list")).ends_with_code(0);
    }
    let ran = desk.run(&format!("load {} --table list", lists.join("cards.tsv").display())).ends_with_code(0);
    assert!(ran.out.starts_with("list: 1,000 cards, 1,000 rows in ") && ran.out.ends_with("loaded by the server\n"));
    assert_eq!(ran.err, "loading cards.tsv\n", "one line, where there is no terminal");
}

#[test]
fn a_server_does_not_load_what_only_looks_as_if_it_were_in_its_folder() {
    let server = server();
    let desk = Desk::at(&server);
    let lists = server.directory().join("lists");
    let by = |path: &str, more: &str| -> String {
        let told = desk.run(&format!("load {path} --table list --json {more}")).ends_with_code(0).json();
        told["by"].as_str().expect("a word").into()
    };
    let outside = desk.list("cards.tsv", &["1 7 1"]);
    std::os::unix::fs::symlink(&outside, lists.join("link.tsv")).unwrap();
    fs::copy(&outside, lists.join("cards.txt")).unwrap();
    fs::copy(&outside, lists.join("cards.tsv")).unwrap();
    std::os::unix::fs::symlink(lists.join("cards.tsv"), desk.path("inside.tsv")).unwrap();
    assert_eq!(by(lists.join("link.tsv").to_str().unwrap(), ""), "stream", "a link that leads out");
    assert_eq!(by(lists.join("cards.txt").to_str().unwrap(), ""), "stream", "a name that the server does not load");
    assert_eq!(by("inside.tsv", ""), "server", "a link that leads in");
    assert_eq!(by("inside.tsv", "--stream"), "stream", "told to");
}

#[test]
fn a_server_is_reached_by_port_too() {
    let server = server();
    for host in ["127.0.0.1", "localhost"] {
        let desk = Desk::at_url(&format!("redis://{host}:{}/3", server.port()));
        let path = server.directory().join("lists/cards.tsv");
        fs::write(&path, format!("{HEADER}1\t7\t1\n")).unwrap();
        let told = desk.run(&format!("load {} --table list --json", path.display())).ends_with_code(0).json();
        assert_eq!(told["by"], "server");
        desk.run("get list 1").ends_with_code(0);
    }
    let db = &mut server.connect();
    assert_eq!(keys(db), [""; 0], "not in database 0");
    let _: () = ask(db, ["SELECT", "3"]);
    assert_eq!(keys(db), ["list"]);
}

#[test]
fn a_user_who_may_only_load_can() {
    let server = server();
    let db = &mut server.connect();
    // As in redis.conf.
    let loader = "on >secret ~* resetchannels -@all +card.create +card.load +card.stage +card.commit +card.info +card.len \
        +unlink +ping +info";
    let _: () = ask(db, ["ACL", "SETUSER", "loader"].into_iter().chain(loader.split_whitespace()));
    let desk = Desk::at_url(&format!("redis://loader:secret@127.0.0.1:{}", server.port()));
    desk.list("cards.tsv", &["1 7 1"]);
    assert_eq!(desk.run("load cards.tsv --table list --json").ends_with_code(0).json()["by"], "stream");
    assert_eq!(card(db, "list", "1"), Some(vec![7, 1]));
    desk.run("get list 1").failed(3, "NOPERM");

    let desk = Desk::at_url(&format!("redis://loader:wrong@127.0.0.1:{}", server.port()));
    let ran = desk.run("stats").failed(3, "authentication failed");
    assert!(!ran.err.contains("wrong@"), "a password is not shown: {ran:?}");
}

#[test]
fn a_table_keeps_its_fields() {
    let server = server();
    let db = &mut server.connect();
    let desk = Desk::at(&server);
    let _: () = ask(db, "CARD.CREATE people FIELD age 0 120 FIELD serial 1 99999999999999999999999".split(' '));
    desk.file("people.tsv", "serial\tcardId\tage\n99999999999999999999999\tbeef\t30\n");
    desk.run("load people.tsv --table people").ends_with_code(0);
    let got: Vec<String> = ask(db, ["CARD.GET", "people", "beef"]);
    assert_eq!(got, ["30", "99999999999999999999999"]);
    desk.list("cards.tsv", &["1 7 1"]);
    desk.run("load cards.tsv --table people").failed(4, "expected a header with the columns cardId, age, serial");
}

#[test]
fn a_bad_list_is_refused_alike_whoever_reads_it_and_the_old_one_stays() {
    let server = server();
    let db = &mut server.connect();
    let _: i64 = ask(db, "CARD.SET list 9 7 1".split(' '));
    let lists = server.directory().join("lists");
    let desk = Desk::at(&server);
    for (content, sentence) in [
        (format!("{HEADER}1\t7\t1\n2\t11\t1\n"), "line 3, column type: found '11', expected a number between 0 and 10"),
        (HEADER.to_owned(), "has no cards: a full load of nothing is refused"),
        ("1\t7\t1\n".into(), "line 1: found '1\\t7\\t1', expected a header"),
        (String::new(), "line 1: found ''"),
    ] {
        for folder in [desk.path("."), lists.clone()] {
            let path = folder.join("bad.tsv");
            fs::write(&path, &content).unwrap();
            desk.run(&format!("load {} --table list", path.display())).failed(4, sentence);
        }
    }
    desk.run("gen --rows 20000 -o cut.tsv.gz").ends_with_code(0);
    let whole = fs::read(desk.path("cut.tsv.gz")).unwrap();
    for folder in [desk.path("."), lists] {
        let path = folder.join("cut.tsv.gz");
        fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        desk.run(&format!("load {} --table list", path.display())).failed(4, "cannot read");
    }
    desk.run("load nothing.tsv --table list").failed(4, "nothing.tsv: No such file");
    desk.run("load . --table list").failed(4, "is a directory");
    assert_eq!((keys(db), card(db, "list", "9")), (vec!["list".into()], Some(vec![7, 1])));
}

#[test]
fn a_key_of_another_type_stays_as_it_is() {
    let server = server();
    let db = &mut server.connect();
    let _: () = ask(db, ["SET", "text", "mine"]);
    let _: () = ask(db, ["SET", "{list}.staging", "mine too"]);
    let _: i64 = ask(db, "CARD.SET {other}.staging 9 7 1".split(' '));
    let desk = Desk::at(&server);
    desk.list("cards.tsv", &["1 7 1"]);
    desk.run("load cards.tsv --table text").failed(3, "WRONGTYPE");
    desk.run("load cards.tsv --table list").failed(3, "WRONGTYPE");
    desk.run("load cards.tsv --table other").failed(3, "holds a table that is not staged");
    assert_eq!(keys(db), ["text", "{list}.staging", "{other}.staging"]);
    assert_eq!(ask::<String, _>(db, ["GET", "{list}.staging"]), "mine too");
    assert_eq!(card(db, "{other}.staging", "9"), Some(vec![7, 1]));
}

#[test]
fn a_node_of_a_cluster_takes_lists_of_its_slots() {
    let server = Server::with_port(&["--cluster-enabled", "yes"]);
    let db = &mut server.connect();
    let _: () = ask(db, ["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    wait_for(15, "the cluster is complete", || ask::<String, _>(db, ["CLUSTER", "INFO"]).contains("cluster_state:ok"));
    let desk = Desk::at(&server);
    desk.list("cards.tsv", &["1 7 1"]);
    for key in ["blacklist:0", "list:{7}"] {
        desk.run(&format!("load cards.tsv --table {key}")).ends_with_code(0);
        desk.run(&format!("verify cards.tsv --table {key}")).ends_with_code(0);
    }
    desk.run("load cards.tsv --table a}b").failed(3, "same slot");
    assert_eq!(keys(db), ["blacklist:0", "list:{7}"], "nothing is left of the staging");
}

#[test]
fn command_lines_and_addresses_that_make_no_sense_are_refused() {
    let desk = Desk::at_url(&format!("redis://127.0.0.1:{}", free_port()));
    desk.list("cards.tsv", &["1 7 1"]);
    desk.run("load cards.tsv").failed(2, "--table");
    desk.run("load cards.tsv --table list --version x").failed(2, "--version");
    desk.run("load cards.tsv --table list --redis http://example.com").failed(2, "--redis");
    desk.run("load cards.tsv --table list").failed(3, "cannot reach Redis at 127.0.0.1:");
    desk.run("load cards.tsv --table list --redis unix:///no/such/socket").failed(3, "cannot reach Redis at /no/such");
    let told = desk.run("load cards.tsv --table list --json").failed(3, "cannot reach Redis").json();
    assert!(told["error"].as_str().is_some_and(|error| error.starts_with("cannot reach Redis at 127.0.0.1:")));
}

/// Begins to send a list that takes a while, and waits until some of it has arrived.
fn half_way(desk: &Desk, db: &mut Connection) -> Child {
    half_way_from(&desk.path("long.tsv"), desk, db)
}

fn half_way_from(path: &Path, desk: &Desk, db: &mut Connection) -> Child {
    write_long_list(path, 200_000, 7);
    let mut command = desk.command(["load".as_ref(), path.as_os_str(), "--table".as_ref(), "list".as_ref()]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("cardctl runs");
    wait_for(60, "staging", || keys(db) == ["list", "{list}.staging"]);
    child
}

#[test]
fn an_interrupted_load_leaves_the_old_list_and_nothing_else() {
    let server = server();
    let db = &mut server.connect();
    let _: i64 = ask(db, "CARD.SET list 9 7 1".split(' '));
    let desk = Desk::at(&server);
    for signal in ["-INT", "-TERM"] {
        let child = half_way(&desk, db);
        // So that it cannot come to an end meanwhile.
        let _: () = ask(db, "CLIENT PAUSE 60000 WRITE".split(' '));
        assert_eq!(keys(db), ["list", "{list}.staging"], "it is half-way");
        interrupt(&child, signal);
        // Long enough for the signal; what counts does not depend on it.
        std::thread::sleep(std::time::Duration::from_millis(50));
        let _: () = ask(db, "CLIENT UNPAUSE".split(' '));
        let ran = Ran::new(child.wait_with_output().expect("it ends"));
        assert_eq!(ran.code, 130, "{ran:?}");
        assert_eq!((keys(db), card(db, "list", "9")), (vec!["list".into()], Some(vec![7, 1])));
    }
}

#[test]
fn a_load_of_the_servers_own_is_cancelled_if_it_is_interrupted() {
    let server = server();
    let db = &mut server.connect();
    let _: i64 = ask(db, "CARD.SET list 9 7 1".split(' '));
    let desk = Desk::at(&server);
    let child = half_way_from(&server.directory().join("lists/long.tsv"), &desk, db);
    // The server's own load waits as well.
    let _: () = ask(db, "CLIENT PAUSE 60000 WRITE".split(' '));
    interrupt(&child, "-INT");
    std::thread::sleep(std::time::Duration::from_millis(50));
    let _: () = ask(db, "CLIENT UNPAUSE".split(' '));
    let ran = Ran::new(child.wait_with_output().expect("it ends"));
    assert_eq!(ran.code, 130, "{ran:?}");
    wait_for(10, "the end of the load", || keys(db) == ["list"]);
    assert_eq!(card(db, "list", "9"), Some(vec![7, 1]));
    assert!(server.log().contains("not loaded: the load was cancelled"));
}

#[test]
fn a_server_that_dies_half_way_is_told() {
    let mut server = server();
    let db = &mut server.connect();
    let _: i64 = ask(db, "CARD.SET list 9 7 1".split(' '));
    let desk = Desk::at(&server);
    let child = half_way(&desk, db);
    server.kill();
    let ran = Ran::new(child.wait_with_output().expect("it ends"));
    ran.failed(3, "the connection to Redis at ");
}

#[test]
fn a_left_over_staging_key_is_replaced() {
    let server = server();
    let db = &mut server.connect();
    let _: i64 = ask(db, "CARD.SET list 9 7 1".split(' '));
    let desk = Desk::at(&server);
    let mut child = half_way(&desk, db);
    let _: () = ask(db, "CLIENT PAUSE 60000 WRITE".split(' '));
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    let _: () = ask(db, "CLIENT UNPAUSE".split(' '));
    assert_eq!(keys(db), ["list", "{list}.staging"], "nobody could clean up");
    desk.list("cards.tsv", &["1 7 1"]);
    desk.run("load cards.tsv --table list").ends_with_code(0);
    assert_eq!((keys(db), card(db, "list", "1")), (vec!["list".into()], Some(vec![7, 1])));
}
