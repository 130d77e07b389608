//! `cardctl gen`: lists of any set and size, the same for the same seed.

mod common;

use std::collections::HashSet;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use common::servers::wait_for;
use common::{Desk, HEADER, Ran, interrupt};

const CARD: &str = "44015186100181001473";

#[test]
fn a_list_has_a_header_and_as_many_different_cards_as_asked_for() {
    let desk = Desk::new();
    for set in ["uniform", "net", "issued", "onevalue", "hex32", "cookies"] {
        let ran = desk.run(&format!("gen --set {set} --rows 5000")).ends_with_code(0);
        let rows = ran.out.strip_prefix(HEADER).expect("a header");
        let ids: HashSet<_> = rows.lines().map(|row| row.split('\t').next().expect("an id")).collect();
        assert_eq!((ids.len(), rows.lines().count()), (5000, 5000), "{set}");
        assert!(rows.lines().all(|row| row.split('\t').count() == 3), "{set}");
        desk.file("list.tsv", &ran.out);
        let checked = desk.run("check list.tsv --json").ends_with_code(0).json();
        assert_eq!((&checked["cards"], &checked["bad_rows"]), (&5000.into(), &0.into()), "{set}");
    }
}

#[test]
fn the_same_seed_makes_the_same_list_on_every_machine() {
    let desk = Desk::new();
    let list = |line: &str| desk.run(line).ends_with_code(0).out;
    assert_eq!(list("gen --rows 1000 --seed 5"), list("gen --rows 1000 --seed 5"));
    assert_ne!(list("gen --rows 1000 --seed 5"), list("gen --rows 1000 --seed 6"));
    // What was made by the first version.
    let digest = |set: &str| {
        desk.run_words(["gen", "--set", set, "--rows", "1000", "-o", "golden.tsv"]).ends_with_code(0);
        desk.run("check golden.tsv --json").json()["digest"].as_str().expect("a digest").to_owned()
    };
    for (set, expected) in [
        ("uniform", "91db9c7447b6f73a27e19b161b104eb2"),
        ("net", "e71c8d88f7880978e05cedace56339b5"),
        ("issued", "3e7c2ddc6276f3d59d401ed95c163af2"),
        ("onevalue", "454b7cb20760580b795649a76309fe7a"),
        ("hex32", "e74afacb6c4e8a063658cbaa1801bc27"),
        ("cookies", "9af17a0bccd5709b4509d6a545b82e5c"),
    ] {
        assert_eq!(digest(set), expected, "{set}");
    }
}

#[test]
fn given_cards_are_among_the_rows_once() {
    let desk = Desk::new();
    let line = format!("gen --rows 1000 --card {CARD} 7 1 --card 007 0 2");
    let list = desk.run(&line).ends_with_code(0).out;
    assert_eq!(list.lines().count(), 1001);
    assert_eq!(list.matches(CARD).count(), 1);
    let row = |row: &str| list.lines().position(|line| line == row).expect("it is there");
    let (first, second) = (row(&format!("{CARD}\t7\t1")), row("007\t0\t2"));
    assert!(first > 1 && second > 1 && first.abs_diff(second) > 1, "they are anywhere: {first}, {second}");
    assert_eq!(desk.run(&line).out, list);
}

#[test]
fn a_given_card_that_is_in_the_set_anyway_has_the_given_values() {
    let desk = Desk::new();
    let plain = desk.run("gen --rows 100 --set onevalue").out;
    let id = plain.lines().nth(50).and_then(|row| row.split('\t').next()).expect("a row");
    let list = desk.run(&format!("gen --rows 100 --set onevalue --card {id} 10 2")).ends_with_code(0).out;
    assert_eq!(list.lines().count(), 101);
    assert_eq!(list.lines().filter(|row| row.starts_with(id)).collect::<Vec<_>>(), [format!("{id}\t10\t2")]);
}

#[test]
fn a_list_may_be_all_given_cards_or_none_at_all() {
    let desk = Desk::new();
    assert_eq!(desk.run("gen --rows 1 --card 1 7 1").ends_with_code(0).out, format!("{HEADER}1\t7\t1\n"));
    assert_eq!(desk.run("gen --rows 0").ends_with_code(0).out, HEADER);
}

#[test]
fn what_a_command_line_cannot_mean_is_refused() {
    let desk = Desk::new();
    for (line, sentence) in [
        ("gen --set nets", "possible values"),
        ("gen --rows x", "--rows"),
        ("gen --rows 1 --card 1 11 1", "type must be between 0 and 10, got '11'"),
        ("gen --rows 1 --card 1 7 x", "status must be between 1 and 2, got 'x'"),
        ("gen --rows 1 --card 1 7", "3 values"),
        ("gen --rows 1 --card 1 7 1 --card 2 7 1", "more cards than rows"),
        ("gen --rows 2 --card 1 7 1 --card 1 7 2", "given twice"),
        ("gen --rows 2 --json", "-o FILE"),
    ] {
        desk.run(line).failed(2, sentence);
    }
    desk.run_words(["gen", "--rows", "9", "--card", "a\tb", "7", "1"]).failed(2, "a tab");
    desk.run_words(["gen", "--rows", "9", "--card", "", "7", "1"]).failed(2, "cannot be empty");
}

#[test]
fn a_file_is_packed_as_its_name_says() {
    let desk = Desk::new();
    let plain = desk.run("gen --rows 3000").out;
    for name in ["list.tsv", "list.tsv.gz", "list.tsv.zst"] {
        let ran = desk.run(&format!("gen --rows 3000 -o {name}")).ends_with_code(0);
        assert_eq!(ran.out, format!("{name}: 3,000 cards of the set net, seed 1\n"));
        let checked = desk.run(&format!("check --json {name}")).ends_with_code(0).json();
        assert_eq!(checked["cards"], 3000);
    }
    assert_eq!(desk.read("list.tsv"), plain);
    assert!(std::fs::metadata(desk.path("list.tsv.gz")).unwrap().len() < plain.len() as u64 / 2);
    assert!(std::fs::read(desk.path("list.tsv.gz")).unwrap().starts_with(b"\x1f\x8b"));
    assert!(std::fs::read(desk.path("list.tsv.zst")).unwrap().starts_with(b"\x28\xb5\x2f\xfd"));
    assert_eq!(desk.names(), ["list.tsv", "list.tsv.gz", "list.tsv.zst"], "nothing else is left");
}

#[test]
fn a_file_that_is_written_can_be_read_by_a_server_of_another_user() {
    let desk = Desk::new();
    let by_cardctl = |name: &str| {
        desk.run(&format!("gen --rows 1 -o {name}")).ends_with_code(0);
        std::fs::metadata(desk.path(name)).unwrap().permissions().mode()
    };
    let plain = std::fs::metadata(desk.file("plain", "")).unwrap().permissions().mode();
    assert_eq!(by_cardctl("list.tsv"), plain, "the umask decides, as for any file");
}

#[test]
fn a_file_that_cannot_be_written_is_told_and_nothing_is_left() {
    let desk = Desk::new();
    std::fs::create_dir(desk.path("folder")).unwrap();
    desk.run("gen --rows 1 -o folder").failed(4, "folder: is a directory");
    desk.run("gen --rows 1 -o no/such/list.tsv").failed(4, "no/such/list.tsv: ");
    let ran = desk.run("gen --rows 1 -o no/such/list.tsv --json").failed(4, "no/such/list.tsv: ");
    assert!(ran.json()["error"].as_str().unwrap().starts_with("no/such/list.tsv: "));
    // A disk that is full.
    desk.run("gen --rows 100000 -o /dev/full").failed(4, "/dev/full: No space left");
    assert_eq!(desk.names(), ["folder"]);
}

#[test]
fn the_report_can_be_json() {
    let desk = Desk::new();
    let told = desk.run("gen --rows 10 --seed 3 --set hex32 -o list.tsv --json").ends_with_code(0);
    assert_eq!(told.json(), serde_json::json!({ "file": "list.tsv", "rows": 10, "seed": 3, "set": "hex32" }));
    assert_eq!(told.err, "", "no progress");
}

#[test]
fn an_interrupted_list_is_not_there() {
    let desk = Desk::new();
    let mut command = desk.command(["gen", "--rows", "10000000000", "-o", "list.tsv"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("cardctl runs");
    wait_for(20, "a part of the list", || {
        desk.names().iter().any(|name| name.starts_with(".list.tsv") && name.ends_with(".part"))
    });
    interrupt(&child, "-INT");
    let ran = Ran::new(child.wait_with_output().expect("it ends"));
    assert_eq!((ran.code, desk.names()), (130, Vec::new()), "{ran:?}");
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let desk = Desk::new();
    let mut child = desk
        .command(["gen", "--rows", "1000000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("cardctl runs");
    let mut first = [0; 10];
    child.stdout.take().expect("a pipe").read_exact(&mut first).expect("a header");
    let ran = Ran::new(child.wait_with_output().expect("it ends"));
    assert_eq!((ran.code, ran.err.as_str()), (141, ""));
}
