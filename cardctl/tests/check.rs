//! `cardctl check`: what is wrong with a list, told before a server has to.

mod common;

use common::{Desk, HEADER};
use serde_json::json;

#[test]
fn a_good_list_is_told_to_be_good() {
    let desk = Desk::new();
    desk.list("list.tsv", &["44015186100181001473 7 1", "beef 3 2", "7 3 2"]);
    let ran = desk.run("check list.tsv").ends_with_code(0);
    let expected = "list.tsv: 3 rows, 3 cards, 0 rows that a later one overrides, 0 bad rows\n  \
        digits1: 1\n  digits20: 1\n  hex4: 1\n";
    assert_eq!((ran.out.as_str(), ran.err.as_str()), (expected, "reading list.tsv\n"));
}

#[test]
fn bad_rows_are_told_with_line_column_found_and_expected() {
    let desk = Desk::new();
    desk.list("list.tsv", &["1 7 1", "2 11 1", "3 7", "4 7 3"]);
    let ran = desk.run("check list.tsv").ends_with_code(1);
    for told in [
        "1 rows, 1 cards, 0 rows that a later one overrides, 3 bad rows",
        "line 3, column type: found '11', expected a number between 0 and 10",
        "line 4: found 2 columns in '3\\t7', expected 3 columns",
        "line 5, column status: found '3', expected a number between 1 and 2",
    ] {
        assert!(ran.out.contains(told), "{ran:?}");
    }
    let told = desk.run("check list.tsv --json --problems 1").ends_with_code(1).json();
    let problem = json!({ "line": 3, "column": "type", "found": "'11'", "expected": "a number between 0 and 10" });
    assert_eq!(told["problems"], json!([problem]));
    assert_eq!((&told["fine"], &told["bad_rows"], &told["rows"]), (&false.into(), &3.into(), &1.into()));
}

#[test]
fn as_many_problems_are_shown_as_asked_for() {
    let desk = Desk::new();
    desk.list("list.tsv", &["bad"; 100]);
    let shown = |line: &str| {
        let out = desk.run(line).ends_with_code(1).out;
        (out.matches("expected 3 columns").count(), out.lines().last().expect("a line").to_owned())
    };
    assert_eq!(shown("check list.tsv"), (10, "and 90 more".into()));
    assert_eq!(shown("check list.tsv --problems 99"), (99, "and 1 more".into()));
    assert_eq!(shown("check list.tsv --problems 0"), (0, "and 100 more".into()));
    assert_eq!(shown("check list.tsv --problems 1000").0, 100);
}

#[test]
fn duplicates_are_counted_and_no_problem() {
    let desk = Desk::new();
    desk.list("list.tsv", &["1 7 1", "2 7 1", "1 7 2", "1 7 1"]);
    let told = desk.run("check list.tsv --json").ends_with_code(0).json();
    assert_eq!((&told["rows"], &told["cards"], &told["duplicates"]), (&4.into(), &2.into(), &2.into()));
}

#[test]
fn a_list_without_a_row_is_a_problem() {
    let desk = Desk::new();
    desk.file("list.tsv", HEADER);
    assert!(desk.run("check list.tsv").ends_with_code(1).out.ends_with("there is no row\n"));
    assert_eq!(desk.run("check list.tsv --json").ends_with_code(1).json()["fine"], false);
}

#[test]
fn a_header_that_is_bad_or_missing_is_a_problem_of_line_1() {
    let desk = Desk::new();
    for content in ["", "1\t7\t1\n2\t7\t1\n", "id\ttype\tstatus\n1\t7\t1\n", "cardId\ttype\n1\t7\n", "\x1f\u{8}\0\0"] {
        desk.file("list.tsv", content);
        let ran = desk.run("check list.tsv").ends_with_code(1);
        let expected = "expected a header with the columns cardId, type, status";
        assert!(ran.out.contains("\nline 1: found '") && ran.out.contains(expected), "{content:?}: {ran:?}");
        assert_eq!(desk.run("check list.tsv --json").ends_with_code(1).json()["problems"][0]["line"], 1);
    }
}

#[test]
fn noise_and_endless_lines_are_problems_not_accidents() {
    let desk = Desk::new();
    let mut random = fastrand::Rng::with_seed(7);
    let noise: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(1 << 20).collect();
    desk.file("noise.tsv", &noise);
    desk.run("check noise.tsv").ends_with_code(1);
    desk.file("rows.tsv", [HEADER.as_bytes(), &noise].concat());
    desk.run("check rows.tsv").ends_with_code(1);
    desk.file("line.tsv", format!("{HEADER}1\t7\t1\n{}\n2\t7\t1\n", "x".repeat(20 << 20)));
    let ran = desk.run("check line.tsv --memory 1").ends_with_code(1);
    assert!(ran.out.contains("line 3: found more than 65536 bytes, expected at most 65536"), "{ran:?}");
    assert!(ran.out.contains("2 rows, 2 cards"), "{ran:?}");
    assert!(desk.run("check line.tsv").out.is_ascii(), "what was found is shown as text");
}

#[test]
fn packed_lists_are_unpacked_and_damaged_ones_told() {
    let desk = Desk::new();
    for name in ["list.tsv.gz", "list.tsv.zst"] {
        desk.run(&format!("gen --rows 20000 -o {name}")).ends_with_code(0);
        assert_eq!(desk.run(&format!("check {name} --json")).ends_with_code(0).json()["cards"], 20_000);
        let whole = std::fs::read(desk.path(name)).unwrap();
        desk.file(name, &whole[..whole.len() / 2]);
        desk.run(&format!("check {name}")).failed(4, &format!("{name}: cannot read: "));
        desk.file(name, "this is not packed at all");
        desk.run(&format!("check {name}")).failed(4, &format!("{name}: cannot read: "));
    }
}

#[test]
fn fields_can_be_named() {
    let desk = Desk::new();
    desk.file("tags.tsv", "cardId\tage\tcity\nbeef\t30\t340282366920938463463374607431\n");
    let line = "check tags.tsv --field age 0 120 --field city 1 340282366920938463463374607431";
    desk.run(line).ends_with_code(0);
    let narrow = desk.run("check tags.tsv --field age 0 20 --field city 1 9").ends_with_code(1);
    assert!(narrow.out.contains("line 2, column age: found '30', expected a number between 0 and 20"), "{narrow:?}");
    for (fields, sentence) in [
        ("--field age 0 x", "'x' is not a number"),
        ("--field age 1 0", "the range of age is empty"),
        ("--field Age 0 1", "a field's name"),
        ("--field age 0", "3 values"),
        ("--field age 0 1 --field age 0 1", "named twice"),
    ] {
        desk.run(&format!("check tags.tsv {fields}")).failed(2, sentence);
    }
}

#[test]
fn a_list_of_changes_may_do_nothing_but_remove() {
    let desk = Desk::new();
    desk.file("changes.tsv", "cardId\ttype\tstatus\top\n1\t\t\tdel\n2\t\t\tdel\n");
    let told = desk.run("check changes.tsv --json").ends_with_code(0).json();
    assert_eq!((&told["rows"], &told["cards"]), (&2.into(), &0.into()));
    desk.file("changes.tsv", "cardId\ttype\tstatus\top\n1\t\t\tdrop\n");
    desk.run("check changes.tsv").ends_with_code(1);
}

#[test]
fn what_is_not_a_file_is_told() {
    let desk = Desk::new();
    desk.run("check nothing.tsv").failed(4, "nothing.tsv: No such file");
    desk.run("check .").failed(4, ".: is a directory");
    desk.run("check").failed(2, "FILE");
    desk.run("check a.tsv --memory 0").failed(2, "--memory");
}
