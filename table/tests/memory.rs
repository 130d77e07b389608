//! The accounts are exact: a table says, at any time and at no cost, how many bytes it holds.
//!
//! Redis shows what its allocator has handed out. So these tests run with the same allocator, jemalloc, and compare what
//! a thread was given and gave back with what the table says, to the byte.

mod common;

use card_table::{Builder, Schema, Table};
use common::spellings::{self, KINDS, Kind};
use common::{cases, changes_of, encoded, id, schemas};
use proptest::prelude::*;
use tikv_jemalloc_ctl::thread::{allocatedp, deallocatedp};
use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// What this thread was given, less what it gave back.
fn held() -> i128 {
    let allocated = allocatedp::read().expect("jemalloc counts").get();
    let deallocated = deallocatedp::read().expect("jemalloc counts").get();
    i128::from(allocated) - i128::from(deallocated)
}

/// A table, and what the thread held before it.
struct Watched {
    table: Table,
    before: i128,
}

impl Watched {
    /// Watches the table that `make` makes, all on this thread.
    fn new(make: impl FnOnce() -> Table) -> Watched {
        let before = held();
        let table = make();
        Watched { table, before }
    }

    #[track_caller]
    fn assert_exact(&self) {
        let held = held() - self.before;
        assert_eq!(self.table.memory().total() as i128, held, "{:?}", self.table.memory());
    }
}

/// What is given back with a table is what it said. For tables that other threads have made.
#[track_caller]
fn assert_gives_back(table: Table) {
    let said = table.memory();
    let before = held();
    drop(table);
    assert_eq!(before - held(), said.total() as i128, "{said:?}");
}

fn any_id(rng: &mut fastrand::Rng) -> Vec<u8> {
    let kind = KINDS[rng.usize(..KINDS.len())];
    kind.spell(if rng.bool() { rng.u128(..500) } else { rng.u128(..) })
}

#[test]
fn an_empty_table_holds_its_schema() {
    for schema in schemas() {
        let watched = Watched::new(|| Table::new(schema.clone()));
        watched.assert_exact();
        assert_eq!(watched.table.memory().blocks, 0);
        assert!(watched.table.memory().directory > 0);
    }
}

#[test]
fn the_accounts_are_exact_after_every_single_change() {
    for schema in schemas() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut watched = Watched::new(|| Table::new(schema.clone()));
        for _ in 0..4000 {
            // The spelling is on the heap too: it must be gone when the accounts are compared.
            let spelling = any_id(&mut rng);
            if rng.u8(..3) > 0 {
                watched.table.insert(&id(&spelling), rng.u128(..schema.symbols()));
            } else {
                watched.table.remove(&id(&spelling));
            }
            drop(spelling);
            watched.assert_exact();
        }
        let table = watched.table;
        table.check().unwrap();
        assert_gives_back(table);
    }
}

#[test]
fn the_accounts_are_exact_while_a_table_grows_and_shrinks() {
    // Wide symbols, so that there are more blocks than one chunk of the directory holds.
    let [.., wide, _] = schemas();
    for kind in [Kind::Digits(20), Kind::LongPrefix] {
        let count = if kind == Kind::LongPrefix { 40_000 } else { 200_000 };
        let mut rng = fastrand::Rng::with_seed(2);
        let mut numbers: Vec<u128> = (0..count).map(|_| rng.u64(..).into()).collect();
        let mut watched = Watched::new(|| Table::new(wide.clone()));
        for (at, &number) in numbers.iter().enumerate() {
            watched.table.insert(&id(&kind.spell(number)), rng.u128(..wide.symbols()));
            if at % 100 == 0 {
                watched.assert_exact();
            }
        }
        watched.assert_exact();
        rng.shuffle(&mut numbers);
        for (at, &number) in numbers.iter().enumerate() {
            watched.table.remove(&id(&kind.spell(number)));
            if at % 100 == 0 {
                watched.assert_exact();
            }
        }
        assert!(watched.table.is_empty());
        watched.assert_exact();
    }
}

#[test]
fn a_table_that_has_become_empty_says_what_it_still_holds() {
    for spelling in [&b"7"[..], b"beef", b"123e4567-e89b-12d3-a456-426614174000", b"some text"] {
        let mut watched = Watched::new(|| Table::new(Schema::default()));
        watched.table.insert(&id(spelling), 1);
        watched.assert_exact();
        watched.table.remove(&id(spelling));
        watched.assert_exact();
    }
}

#[test]
fn the_accounts_are_exact_after_changes_are_applied() {
    for schema in schemas() {
        let mut rng = fastrand::Rng::with_seed(3);
        let mut batch = |count: usize| {
            let symbol = |rng: &mut fastrand::Rng| (rng.u8(..3) > 0).then(|| rng.u128(..schema.symbols()));
            let rows: Vec<_> = (0..count).map(|_| (any_id(&mut rng), symbol(&mut rng))).collect();
            changes_of(&schema, &rows)
        };
        let batches = [batch(3000), batch(50), batch(5000), batch(1), batch(0)];
        let mut watched = Watched::new(|| Table::new(schema.clone()));
        for changes in &batches {
            watched.table.apply(changes);
            watched.assert_exact();
        }
        let table = watched.table;
        assert_gives_back(table);
    }
}

#[test]
fn a_bulk_build_holds_what_it_says() {
    for schema in schemas() {
        for (threads, count) in [(1, 0), (1, 1), (1, 20_000), (2, 20_000)] {
            let mut rng = fastrand::Rng::with_seed(4);
            let rows: Vec<_> = (0..count).map(|_| (any_id(&mut rng), rng.u128(..schema.symbols()))).collect();
            let records = rows.iter().map(|(spelling, symbol)| (id(spelling), *symbol));
            let built = Builder::new(schema.clone()).threads(threads).table_from_records(records).unwrap();
            assert_gives_back(built.result);
        }
    }
}

#[test]
fn a_decoded_table_holds_what_it_says() {
    for schema in schemas() {
        let mut rng = fastrand::Rng::with_seed(5);
        let mut table = Table::new(schema.clone());
        for _ in 0..3000 {
            table.insert(&id(&any_id(&mut rng)), rng.u128(..schema.symbols()));
        }
        let bytes = encoded(&table);
        let mut watched = Watched::new(|| Table::read_from(&mut bytes.as_slice()).unwrap());
        watched.assert_exact();
        // It can be changed like any other.
        let ids: Vec<_> = (0..500).map(|_| any_id(&mut rng)).collect();
        let before = watched.table.memory().total() as i128;
        watched.before = held() - before;
        for spelling in &ids {
            watched.table.insert(&id(spelling), 0);
        }
        watched.assert_exact();
    }
}

#[test]
fn a_copy_holds_what_it_says() {
    let mut rng = fastrand::Rng::with_seed(8);
    let mut table = Table::new(Schema::default());
    for at in 0..20_000u32 {
        table.insert(&id(&any_id(&mut rng)), 1);
        if at.is_multiple_of(1000) {
            assert_gives_back(table.clone());
        }
    }
}

#[test]
fn a_large_bulk_build_holds_what_it_says() {
    let mut rng = fastrand::Rng::with_seed(6);
    // Enough for several chunks, whose vectors are of sizes beyond the allocator's small ones.
    let [.., wide, _] = schemas();
    let rows: Vec<_> =
        (0..400_000u64).map(|_| (Kind::Digits(20).spell(rng.u64(..).into()), rng.u128(..wide.symbols()))).collect();
    let records = rows.iter().map(|(spelling, symbol)| (id(spelling), *symbol));
    let table = Builder::new(wide.clone()).threads(1).table_from_records(records).unwrap().result;
    assert!(table.classes().next().unwrap().blocks > 1024);
    assert_gives_back(table);
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn the_accounts_are_exact_whatever_is_done(
        schema in prop::sample::select(schemas().to_vec()),
        steps in prop::collection::vec((spellings::kind(), spellings::number(), any::<u128>(), 0u8..3), 1..200),
    ) {
        let mut watched = Watched::new(|| Table::new(schema.clone()));
        for (kind, number, symbol, what) in steps {
            for at in 0..if kind == Kind::Long { 2 } else { 20 } {
                let spelling = kind.spell(number.wrapping_add(at));
                if what > 0 {
                    watched.table.insert(&id(&spelling), symbol % schema.symbols());
                } else {
                    watched.table.remove(&id(&spelling));
                }
            }
            watched.assert_exact();
        }
    }
}
