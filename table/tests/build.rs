//! Many rows at once become what they would become one by one: whatever their order, on however many threads, and in
//! however little memory.

mod common;

use card_table::build::{MIN_SORT_BYTES, TOLD_PROBLEMS};
use card_table::tsv::Problem;
use card_table::{Applied, BuildError, Builder, Built, Inserted, Progress, Schema, Table};
use common::spellings::{KINDS, Kind};
use common::{Model, assert_is, assert_same, digest_of, id, in_order, schemas, spelt, table_of};
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A row: an id with its symbol, or without if the card is to be removed.
type Row = (Vec<u8>, Option<u128>);

const THREADS: [usize; 3] = [1, 2, 4];

/// With the least memory for sorting, so many rows come in at least six strands: numbers that sort with their row in 16
/// bytes, and ids that take 48 bytes and more.
const MANY: u128 = 400_000;
const MANY_WIDE: u128 = 130_000;

fn builder<'a>(threads: usize) -> Builder<'a> {
    Builder::new(Schema::default()).threads(threads).sort_bytes(MIN_SORT_BYTES)
}

/// Rows as they stand in a file with every column that there can be.
fn tsv(rows: &[Row]) -> Vec<u8> {
    let schema = Schema::default();
    let mut file = b"cardId\ttype\tstatus\top\n".to_vec();
    for (id, symbol) in rows {
        file.extend(id);
        match symbol {
            Some(symbol) => {
                let values = schema.unpack(*symbol);
                file.extend(format!("\t{}\t{}\tset\n", values[0], values[1]).bytes());
            }
            None => file.extend(b"\t\t\tdel\n"),
        }
    }
    file
}

/// What the rows come to one by one.
fn model_of(rows: &[Row]) -> Model {
    let mut model = Model::new();
    apply(rows, &mut model);
    model
}

fn apply(rows: &[Row], model: &mut Model) {
    for (id, symbol) in rows {
        match symbol {
            Some(symbol) => model.insert(id.clone(), *symbol),
            None => model.remove(id),
        };
    }
}

/// How many rows a later one overrides.
fn overridden(rows: &[Row]) -> u64 {
    let ids: std::collections::HashSet<_> = rows.iter().map(|(id, _)| id).collect();
    (rows.len() - ids.len()) as u64
}

/// The table has exactly the model's cards: cheaper than `assert_is`, for tables that are large.
fn assert_built(built: &Built<Table>, model: &Model) {
    assert_eq!(built.result.len(), model.len() as u64);
    assert_eq!(built.result.digest(), digest_of(&Schema::default(), model));
    assert_same(&spelt(built.result.iter()), &in_order(model));
}

fn build_tsv(threads: usize, rows: &[Row]) -> Built<Table> {
    builder(threads).table_from_tsv(tsv(rows).as_slice()).expect("good rows")
}

fn build_records(threads: usize, rows: &[Row]) -> Built<Table> {
    let records = rows.iter().map(|(spelling, symbol)| (id(spelling), symbol.expect("a row that sets")));
    builder(threads).table_from_records(records).expect("nothing stops it")
}

/// Ids of a kind that a file can have: no tab and no end of line.
fn fits_a_file(id: &[u8]) -> bool {
    !id.iter().any(|byte| b"\t\n\r".contains(byte))
}

/// Rows of every class in no order, some ids twice and more often.
fn mixed_rows(count: usize, seed: u64) -> Vec<Row> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let kinds = &KINDS[..KINDS.len() - 1];
    std::iter::repeat_with(|| {
        let kind = kinds[rng.usize(..kinds.len())];
        let number = if rng.bool() { rng.u128(..2000) } else { rng.u128(..) };
        (kind.spell(number), Some(rng.u128(..22)))
    })
    .filter(|(id, _)| fits_a_file(id))
    .take(count)
    .collect()
}

#[test]
fn a_bulk_build_is_what_single_inserts_make() {
    let rows = mixed_rows(30_000, 1);
    let mut one_by_one = Table::new(Schema::default());
    let mut replaced = 0;
    for (spelling, symbol) in &rows {
        let inserted = one_by_one.insert(&id(spelling), symbol.unwrap());
        replaced += u64::from(inserted != Inserted::New);
    }
    assert_is(&one_by_one, &model_of(&rows));
    for threads in THREADS {
        for built in [build_records(threads, &rows), build_tsv(threads, &rows)] {
            assert_eq!(built.result.digest(), one_by_one.digest());
            assert_eq!((built.rows, built.duplicates, built.bad_rows), (30_000, replaced, 0));
            assert_is(&built.result, &model_of(&rows));
        }
    }
}

#[test]
fn every_schema_can_be_built() {
    for schema in schemas() {
        let mut rng = fastrand::Rng::with_seed(2);
        let model: Model =
            (0..3000).map(|at| (KINDS[at % KINDS.len()].spell(at as u128), rng.u128(..schema.symbols()))).collect();
        let mut one_by_one = Table::new(schema.clone());
        for (spelling, symbol) in &model {
            one_by_one.insert(&id(spelling), *symbol);
        }
        assert_eq!(table_of(&schema, &model).digest(), one_by_one.digest());
        assert_is(&one_by_one, &model);
    }
}

/// Each kind of row that sorting knows has its own lane: packed numbers, wide numbers, texts.
#[test]
fn many_strands_are_merged_into_one_order() {
    for (kind, many) in [(Kind::Digits(20), MANY), (Kind::UuidLower, MANY_WIDE), (Kind::LongPrefix, MANY_WIDE)] {
        let mut rng = fastrand::Rng::with_seed(3);
        let mut rows: Vec<Row> = (0..many).map(|at| (kind.spell(at * 977), Some(at % 22))).collect();
        rng.shuffle(&mut rows);
        let model = model_of(&rows);
        for threads in THREADS {
            let built = build_tsv(threads, &rows);
            assert_eq!((built.rows, built.duplicates), (many as u64, 0));
            assert_built(&built, &model);
        }
        let built = build_records(2, &rows);
        assert_built(&built, &model);
        built.result.check().unwrap();
    }
}

#[test]
fn the_last_row_of_a_card_wins_and_all_others_are_counted() {
    for (kind, many) in [(Kind::Digits(20), MANY), (Kind::HexUpper(32), MANY_WIDE), (Kind::LongPrefix, MANY_WIDE)] {
        let mut rng = fastrand::Rng::with_seed(4);
        let mut rows: Vec<Row> = Vec::new();
        for at in 0..many / 2 {
            let row = (kind.spell(at), Some(rng.u128(..22)));
            // Next to each other in a page.
            if at % 10 == 0 {
                rows.extend([(row.0.clone(), Some(1)), (row.0.clone(), Some(2))]);
            }
            rows.push(row);
            // A few pages further on, with another symbol.
            if at % 7 == 0 && at > 20_000 {
                rows.push((kind.spell(at - 20_000), Some(rng.u128(..22))));
            }
        }
        // Many strands further on, and in another order.
        let mut again: Vec<Row> = (0..many / 2).step_by(3).map(|at| (kind.spell(at), Some(rng.u128(..22)))).collect();
        rng.shuffle(&mut again);
        rows.extend(again);
        let model = model_of(&rows);
        for threads in THREADS {
            for built in [build_tsv(threads, &rows), build_records(threads, &rows)] {
                assert_eq!(built.rows, rows.len() as u64);
                assert_eq!(built.duplicates, overridden(&rows));
                assert_built(&built, &model);
            }
        }
    }
}

#[test]
fn the_order_of_the_rows_does_not_matter() {
    let mut rows: Vec<Row> = (0..MANY / 4).map(|at| (Kind::Digits(20).spell(at * 31), Some(at % 22))).collect();
    rows.extend((0..MANY / 8).map(|at| (Kind::LongPrefix.spell(at), Some(at % 22))));
    let model = model_of(&rows);
    let mut reversed = rows.clone();
    reversed.reverse();
    for threads in THREADS {
        assert_built(&build_tsv(threads, &rows), &model);
        assert_built(&build_tsv(threads, &reversed), &model);
    }
}

#[test]
fn rows_that_all_have_one_id_are_one_card() {
    for spelling in [&b"44015186100181001473"[..], b"123e4567-e89b-12d3-a456-426614174000", b"the one"] {
        let rows: Vec<Row> = (0..MANY / 2).map(|at| (spelling.to_vec(), Some(at * 7 % 22))).collect();
        for threads in THREADS {
            let built = build_tsv(threads, &rows);
            assert_eq!((built.rows, built.duplicates), (rows.len() as u64, rows.len() as u64 - 1));
            assert_built(&built, &model_of(&rows));
        }
    }
}

#[test]
fn a_file_of_only_a_header_is_an_empty_table() {
    for file in ["cardId\ttype\tstatus", "cardId\ttype\tstatus\n", "op\tstatus\ttype\tcardId\r\n"] {
        for threads in THREADS {
            let built = builder(threads).table_from_tsv(file.as_bytes()).unwrap();
            assert_eq!((built.rows, built.duplicates, built.bad_rows), (0, 0, 0));
            assert_is(&built.result, &Model::new());
            let changes = builder(threads).changes_from_tsv(file.as_bytes()).unwrap();
            assert_eq!(Table::new(Schema::default()).apply(&changes.result), Applied::default());
        }
    }
    let none: [(card_table::Id, u128); 0] = [];
    assert_is(&builder(2).table_from_records(none).unwrap().result, &Model::new());
}

/// Rows that set and rows that remove, in several strands, so that either may come last.
fn rows_with_removals(seed: u64) -> Vec<Row> {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..MANY / 2)
        .map(|at| {
            let kind = [Kind::Digits(20), Kind::Digits(3), Kind::UuidUpper, Kind::LongPrefix][at as usize % 4];
            let symbol = (rng.u8(..3) > 0).then(|| rng.u128(..22));
            (kind.spell(rng.u128(..MANY / 8)), symbol)
        })
        .collect()
}

#[test]
fn a_full_file_may_remove_what_it_has_set() {
    let rows = rows_with_removals(5);
    let model = model_of(&rows);
    for threads in THREADS {
        let built = build_tsv(threads, &rows);
        assert_eq!((built.rows, built.duplicates), (rows.len() as u64, overridden(&rows)));
        assert_built(&built, &model);
    }
}

#[test]
fn a_full_file_may_remove_everything() {
    let mut rows = mixed_rows(1000, 6);
    rows.extend(rows.clone().into_iter().map(|(id, _)| (id, None)));
    let built = build_tsv(2, &rows);
    assert_is(&built.result, &Model::new());
}

#[test]
fn a_delta_does_what_its_rows_do_one_by_one() {
    let base = rows_with_removals(7);
    let delta = rows_with_removals(8);
    let (before, mut after) = (model_of(&base), model_of(&base));
    apply(&delta, &mut after);
    // What becomes of each card that the delta names.
    let mut expected = Applied::default();
    let named: std::collections::BTreeSet<_> = delta.iter().map(|(id, _)| id).collect();
    for id in &named {
        match (before.get(*id), after.get(*id)) {
            (None, Some(_)) => expected.added += 1,
            (Some(_), None) => expected.removed += 1,
            (before, after) if before == after => expected.unchanged += 1,
            _ => expected.changed += 1,
        }
    }
    assert!(expected.added > 100 && expected.changed > 100 && expected.removed > 100 && expected.unchanged > 100);
    for threads in THREADS {
        let mut built = build_tsv(threads, &base);
        let changes = builder(threads).changes_from_tsv(tsv(&delta).as_slice()).unwrap();
        assert_eq!((changes.rows, changes.duplicates), (delta.len() as u64, overridden(&delta)));
        assert_eq!(built.result.apply(&changes.result), expected);
        assert_built(&built, &after);

        // A second time nothing is left to do.
        let again = built.result.apply(&changes.result);
        assert_eq!(again, Applied { unchanged: named.len() as u64, ..Applied::default() });
        assert_built(&built, &after);
    }
}

#[test]
fn changes_from_records_are_those_of_a_file() {
    let delta = rows_with_removals(9);
    let records = delta.iter().map(|(spelling, symbol)| (id(spelling), *symbol));
    let changes = builder(2).changes_from_records(records).unwrap();
    let mut table = Table::new(Schema::default());
    let applied = table.apply(&changes.result);
    let model = model_of(&delta);
    assert_eq!(applied.added, model.len() as u64);
    assert_eq!(applied.added + applied.unchanged, delta.len() as u64 - overridden(&delta));
    assert_is(&table, &model);
}

/// Gives a few bytes at a time, as a pipe may.
struct Trickle<'a>(&'a [u8], fastrand::Rng);

impl Read for Trickle<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let len = to.len().min(1 + self.1.usize(..5000));
        self.0.read(&mut to[..len])
    }
}

#[test]
fn how_a_file_is_delivered_does_not_matter() {
    let rows = mixed_rows(50_000, 10);
    let file = tsv(&rows);
    let built = builder(2).table_from_tsv(Trickle(&file, fastrand::Rng::with_seed(1))).unwrap();
    assert_built(&built, &model_of(&rows));
}

#[test]
fn a_file_that_cannot_be_read_is_an_error() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the disk is gone"))
        }
    }
    for threads in THREADS {
        let file = tsv(&mixed_rows(50_000, 11));
        let error = builder(threads).table_from_tsv(file.chain(Broken)).err().unwrap();
        assert!(matches!(error, BuildError::Io(_)), "{error:?}");
        assert_eq!(error.to_string(), "cannot read: the disk is gone");
    }
}

#[test]
fn a_header_that_does_not_fit_is_a_problem_of_line_one() {
    let BuildError::Problems(problems, 1) = builder(1).table_from_tsv(&b"id\ttype\n1\t1\n"[..]).err().unwrap() else {
        panic!("one problem");
    };
    assert_eq!(problems[0].line, 1);
}

/// A file with a bad row at each of these lines.
fn file_with_bad_lines(lines: usize, bad: &[u64]) -> Vec<u8> {
    let mut file = b"cardId\ttype\tstatus\n".to_vec();
    for line in 2..lines as u64 + 2 {
        let card_type = if bad.contains(&line) { 11 } else { 10 };
        file.extend(format!("{line:020}\t{card_type}\t1\n").bytes());
    }
    file
}

fn lines(problems: &[Problem]) -> Vec<u64> {
    problems.iter().map(|problem| problem.line).collect()
}

#[test]
fn bad_rows_fail_a_build_and_the_first_ten_are_told() {
    // All in the first page, so that they are counted all on any number of threads.
    let bad: Vec<u64> = (0..25).map(|at| 3 + at * 11).collect();
    let file = file_with_bad_lines(1000, &bad);
    for threads in THREADS {
        let error = builder(threads).table_from_tsv(file.as_slice()).err().unwrap();
        let text = error.to_string();
        assert!(
            text.starts_with("line 3, column type: found '11', expected a number between 0 and 10; line 14,"),
            "{text}"
        );
        assert!(text.ends_with("; and 15 more"), "{text}");
        let BuildError::Problems(problems, 25) = error else { panic!("{error:?}") };
        assert_eq!(lines(&problems), bad[..TOLD_PROBLEMS]);
    }
}

#[test]
fn as_many_bad_rows_as_allowed_are_left_out() {
    // Over all pages of the file.
    let bad: Vec<u64> = (0..40).map(|at| 5000 + at * 4871).collect();
    let file = file_with_bad_lines(200_000, &bad);
    for threads in THREADS {
        let built = builder(threads).allow_problems(40).table_from_tsv(file.as_slice()).unwrap();
        assert_eq!((built.rows, built.bad_rows), (199_960, 40));
        assert_eq!(lines(&built.problems), bad[..TOLD_PROBLEMS]);
        for told in [0, 1, 39, 50] {
            let built = builder(threads).allow_problems(40).tell_problems(told).table_from_tsv(file.as_slice());
            assert_eq!(lines(&built.unwrap().problems), bad[..told.min(bad.len())]);
        }
        assert_eq!(built.result.len(), 199_960);
        assert_eq!(built.result.get(&id(b"00000000000000005000")), None);
        built.result.check().unwrap();

        let error = builder(threads).allow_problems(39).table_from_tsv(file.as_slice()).err().unwrap();
        let BuildError::Problems(problems, 40) = error else { panic!("{error:?}") };
        assert_eq!(lines(&problems), bad[..TOLD_PROBLEMS]);
    }
}

/// A file is not read to its end when it has failed already; what is told does not depend on how far that was.
#[test]
fn a_line_of_any_length_is_one_more_bad_row() {
    let file = ["cardId\ttype\tstatus\nbad\n1\t1\t1\n", &"x".repeat(300_000), "\n2\t2\t2\nworse\n"].concat();
    for threads in [1, 2] {
        for allowed in [0, 1, 2].repeat(20) {
            let error = builder(threads).allow_problems(allowed).table_from_tsv(file.as_bytes()).err().unwrap();
            let BuildError::Problems(problems, bad_rows) = error else { panic!("{error:?}") };
            assert!(bad_rows > allowed);
            assert_eq!(lines(&problems), [2, 4, 6][..bad_rows as usize]);
        }
        let built = builder(threads).allow_problems(3).table_from_tsv(file.as_bytes()).unwrap();
        assert_eq!((built.result.len(), built.bad_rows), (2, 3));
        assert_eq!(lines(&built.problems), [2, 4, 6]);
    }
}

#[test]
fn the_first_problems_are_the_first_of_the_file_on_any_number_of_threads() {
    let bad: Vec<u64> = (0..4000).map(|at| 9000 + at * 37).collect();
    let file = file_with_bad_lines(200_000, &bad);
    for threads in THREADS {
        for _ in 0..5 {
            let error = builder(threads).allow_problems(15).table_from_tsv(file.as_slice()).err().unwrap();
            let BuildError::Problems(problems, count) = error else { panic!("{error:?}") };
            assert_eq!(lines(&problems), bad[..TOLD_PROBLEMS]);
            assert!((16..=4000).contains(&count));
        }
    }
}

#[test]
fn a_build_tells_how_far_it_is() {
    let rows: Vec<Row> = (0..MANY).map(|at| (Kind::Digits(20).spell(at), Some(1))).collect();
    let file = tsv(&rows);
    for threads in THREADS {
        let told = Mutex::new(Vec::new());
        let builder = builder(threads).on_progress(|progress| {
            told.lock().unwrap().push(progress);
            ControlFlow::Continue(())
        });
        builder.table_from_tsv(file.as_slice()).unwrap();
        drop(builder);
        let told = told.into_inner().unwrap();

        let read: Vec<u64> = told
            .iter()
            .filter_map(|progress| match progress {
                Progress::Reading { bytes, .. } => Some(*bytes),
                Progress::Merging(..) => None,
            })
            .collect();
        let merged: Vec<u64> = told
            .iter()
            .filter_map(|progress| match progress {
                Progress::Merging(rows, total) => Some((*rows, *total))
                    .filter(|(rows, total)| rows <= total && u128::from(*total) == MANY)
                    .map(|(rows, _)| rows),
                Progress::Reading { .. } => None,
            })
            .collect();
        assert_eq!(read.len() + merged.len(), told.len());
        assert!(read.len() > 20 && merged.len() > 20, "often enough for someone who watches");
        assert!(
            told[..read.len()].iter().all(|progress| matches!(progress, Progress::Reading { .. })),
            "reading comes first"
        );
        if threads == 1 {
            assert!(read.is_sorted() && merged.is_sorted());
        }
        // Of the file, all but the header.
        let header = file.iter().position(|&byte| byte == b'\n').unwrap() + 1;
        assert_eq!(read.iter().max(), Some(&((file.len() - header) as u64)));
        assert_eq!(merged.iter().max(), Some(&(MANY as u64)));
    }
}

#[test]
fn a_build_can_be_cancelled_at_any_time() {
    let rows: Vec<Row> = (0..MANY / 4).map(|at| (Kind::Digits(20).spell(at), Some(1))).collect();
    let file = tsv(&rows);
    let half_the_file = file.len() as u64 / 2;
    // How often a build tells of its progress depends on its threads; what it tells does not.
    let moments: [fn(Progress, u64) -> bool; 5] = [
        |_, _| true,
        |progress, half| matches!(progress, Progress::Reading { bytes, .. } if bytes > half),
        |progress, _| matches!(progress, Progress::Merging(..)),
        |progress, _| matches!(progress, Progress::Merging(rows, total) if rows > total / 2),
        |progress, _| matches!(progress, Progress::Merging(rows, total) if rows == total),
    ];
    for threads in THREADS {
        for is_now in moments {
            let stop = |progress| match is_now(progress, half_the_file) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            };
            let error = builder(threads).on_progress(stop).table_from_tsv(file.as_slice()).err();
            assert!(matches!(error, Some(BuildError::Cancelled)), "{error:?}");
            let error = builder(threads).on_progress(stop).changes_from_tsv(file.as_slice()).err();
            assert!(matches!(error, Some(BuildError::Cancelled)), "{error:?}");
        }
    }
}

#[test]
fn every_thread_is_told_that_it_starts() {
    static STARTED: AtomicUsize = AtomicUsize::new(0);
    let start = || {
        STARTED.fetch_add(1, Ordering::Relaxed);
    };
    builder(3).on_thread_start(start).table_from_tsv(&b"cardId\ttype\tstatus\n1\t1\t1\n"[..]).unwrap();
    // A thread that has nothing to do may still be starting when the work is done.
    let limit = Instant::now() + Duration::from_secs(20);
    while STARTED.load(Ordering::Relaxed) < 3 && Instant::now() < limit {
        std::thread::yield_now();
    }
    assert_eq!(STARTED.load(Ordering::Relaxed), 3);
}
