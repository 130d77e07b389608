//! A table is a map from ids to symbols: whatever is done to it, a `BTreeMap` says what must come out.

mod common;

use card_table::{Applied, Inserted, Schema, Table};
use common::spellings::{self, Kind};
use common::{Model, assert_accounts, assert_is, cases, changes_of, encoded, id, in_order, schemas, spelt, table_of};
use proptest::prelude::*;
use proptest::sample::Index;

/// Something that is done to a table. An index points into the ids of the case, so that ids are met again.
#[derive(Debug, Clone)]
enum Op {
    Insert(Index, Draw),
    /// Inserts a card with the symbol that it has.
    InsertAgain(Index),
    Remove(Index),
    Get(Index),
    /// Inserts ids of one kind at equal distances: enough of them to split blocks.
    InsertRun(Run, Draw),
    /// Removes every so many of them: enough to join blocks.
    RemoveRun(Run, usize),
    /// Sets the cards that have a symbol, and removes the others.
    Apply(Vec<(Index, Option<Draw>)>),
    ApplyRun(Run, Draw, usize),
    /// Reads so many cards from an id on.
    Scan(Index, usize),
    /// Writes the table, and goes on with what is read back.
    Recode,
}

#[derive(Debug, Clone)]
struct Run {
    kind: Kind,
    first: u128,
    step: u128,
    len: u128,
}

impl Run {
    fn ids(&self) -> impl Iterator<Item = Vec<u8>> {
        let Run { kind, first, step, len } = *self;
        (0..len).map(move |at| kind.spell(first.wrapping_add(at.wrapping_mul(step))))
    }
}

/// A symbol to be, once the schema is known.
#[derive(Debug, Clone, Copy)]
enum Draw {
    /// Counted from the schema's first symbol, or back from its last.
    Low(u16),
    High(u16),
    /// One of a few that are far apart.
    Spread(u8),
    Any(u128),
}

impl Draw {
    fn symbol(self, schema: &Schema) -> u128 {
        let end = schema.symbols();
        match self {
            Draw::Low(at) => u128::from(at) % end,
            Draw::High(at) => end - 1 - u128::from(at) % end,
            Draw::Spread(at) => end / 7 * u128::from(at % 7),
            Draw::Any(symbol) => symbol % end,
        }
    }

    /// The symbol of the card at `at` in a run.
    fn nth(self, at: usize, schema: &Schema) -> u128 {
        let draw = match self {
            Draw::Low(of) => Draw::Low((at * usize::from(of) % 300) as u16),
            Draw::High(of) => Draw::High(of),
            Draw::Spread(of) => Draw::Spread(of.wrapping_add((at % 3) as u8)),
            Draw::Any(of) => Draw::Any(of.wrapping_mul(2 * at as u128 + 1)),
        };
        draw.symbol(schema)
    }
}

fn draw() -> impl Strategy<Value = Draw> {
    prop_oneof![
        any::<u16>().prop_map(Draw::Low),
        any::<u16>().prop_map(Draw::High),
        any::<u8>().prop_map(Draw::Spread),
        any::<u128>().prop_map(Draw::Any),
    ]
}

fn run() -> impl Strategy<Value = Run> {
    let step = prop_oneof![
        3 => Just(1u128),
        3 => 2u128..2000,
        1 => Just(1 << 90),
        1 => Just(u128::MAX / 1000),
        1 => any::<u128>()
    ];
    (spellings::kind(), spellings::number(), step, 1u128..1500).prop_map(|(kind, first, step, len)| Run {
        kind,
        first,
        step,
        // Long texts have a block each.
        len: if kind == Kind::Long { len % 50 + 1 } else { len },
    })
}

fn op() -> impl Strategy<Value = Op> {
    let index = any::<Index>;
    prop_oneof![
        6 => (index(), draw()).prop_map(|(at, draw)| Op::Insert(at, draw)),
        2 => index().prop_map(Op::InsertAgain),
        4 => index().prop_map(Op::Remove),
        4 => index().prop_map(Op::Get),
        3 => (run(), draw()).prop_map(|(run, draw)| Op::InsertRun(run, draw)),
        2 => (run(), 1usize..4).prop_map(|(run, every)| Op::RemoveRun(run, every)),
        2 => prop::collection::vec((index(), prop::option::of(draw())), 0..30).prop_map(Op::Apply),
        1 => (run(), draw(), 1usize..4).prop_map(|(run, draw, every)| Op::ApplyRun(run, draw, every)),
        2 => (index(), 0usize..60).prop_map(|(from, len)| Op::Scan(from, len)),
        1 => Just(Op::Recode),
    ]
}

/// A table and what it should be.
struct Both {
    table: Table,
    model: Model,
}

impl Both {
    fn new(schema: &Schema) -> Both {
        Both { table: Table::new(schema.clone()), model: Model::new() }
    }

    fn insert(&mut self, spelling: Vec<u8>, symbol: u128) {
        let inserted = self.table.insert(&id(&spelling), symbol);
        let expected = match self.model.insert(spelling, symbol) {
            Some(old) => Inserted::Replaced(old),
            None => Inserted::New,
        };
        assert_eq!(inserted, expected);
    }

    fn remove(&mut self, spelling: &[u8]) {
        assert_eq!(self.table.remove(&id(spelling)), self.model.remove(spelling));
    }

    fn get(&self, spelling: &[u8]) {
        assert_eq!(self.table.get(&id(spelling)), self.model.get(spelling).copied(), "{spelling:?}");
    }

    fn apply(&mut self, changes: &[(Vec<u8>, Option<u128>)]) {
        let applied = self.table.apply(&changes_of(self.table.schema(), changes));
        // Of changes to the same card the last one counts, and it alone is applied.
        let last: std::collections::BTreeMap<_, _> = changes.iter().cloned().collect();
        let mut expected = Applied::default();
        for (spelling, symbol) in last {
            let before = match symbol {
                Some(symbol) => self.model.insert(spelling, symbol),
                None => self.model.remove(&spelling),
            };
            match (before, symbol) {
                (None, Some(_)) => expected.added += 1,
                (Some(_), None) => expected.removed += 1,
                (before, after) if before == after => expected.unchanged += 1,
                _ => expected.changed += 1,
            }
        }
        assert_eq!(applied, expected);
    }

    fn scan(&self, after: &[u8], len: usize) {
        let key = |spelling: &[u8]| (id(spelling).class(), spelling.to_vec());
        let expected: Vec<_> = in_order(&self.model)
            .into_iter()
            .skip_while(|(spelling, _)| key(spelling) <= key(after))
            .take(len)
            .collect();
        assert_eq!(spelt(self.table.scan(Some(&id(after)), b"").take(len)), expected);
    }

    fn perform(&mut self, op: &Op, ids: &[Vec<u8>]) {
        let schema = self.table.schema().clone();
        match op {
            Op::Insert(at, draw) => self.insert(at.get(ids).clone(), draw.symbol(&schema)),
            Op::InsertAgain(at) => {
                let spelling = at.get(ids).clone();
                let symbol = self.model.get(&spelling).copied().unwrap_or(0);
                self.insert(spelling, symbol);
            }
            Op::Remove(at) => self.remove(at.get(ids).as_slice()),
            Op::Get(at) => self.get(at.get(ids).as_slice()),
            Op::InsertRun(run, draw) => {
                for (at, spelling) in run.ids().enumerate() {
                    self.insert(spelling, draw.nth(at, &schema));
                }
            }
            Op::RemoveRun(run, every) => run.ids().step_by(*every).for_each(|id| self.remove(&id)),
            Op::Apply(changes) => {
                let changes: Vec<_> = changes
                    .iter()
                    .map(|(at, draw)| (at.get(ids).clone(), draw.map(|draw| draw.symbol(&schema))))
                    .collect();
                self.apply(&changes);
            }
            Op::ApplyRun(run, draw, every) => {
                let changes: Vec<_> = run
                    .ids()
                    .enumerate()
                    .map(|(at, id)| (id, (at % every == 0).then(|| draw.nth(at, &schema))))
                    .collect();
                self.apply(&changes);
            }
            Op::Scan(after, len) => self.scan(after.get(ids).as_slice(), *len),
            Op::Recode => {
                self.table = Table::read_from(&mut encoded(&self.table).as_slice()).expect("its own bytes");
            }
        }
    }
}

fn agrees(schema: &Schema, ids: &[Vec<u8>], ops: &[Op]) {
    let mut both = Both::new(schema);
    for op in ops {
        both.perform(op, ids);
    }
    ids.iter().for_each(|id| both.get(id));
    assert_is(&both.table, &both.model);
    let bytes = encoded(&both.table);
    let read = Table::read_from(&mut bytes.as_slice()).expect("its own bytes");
    assert_is(&read, &both.model);
    assert_eq!(encoded(&read), bytes, "what is read is what was written");
}

proptest! {
    #![proptest_config(cases(150))]

    #[test]
    fn a_table_is_a_map_whatever_is_done_to_it(
        schema in prop::sample::select(schemas().to_vec()),
        ids in prop::collection::vec(spellings::spelling(), 1..200),
        ops in prop::collection::vec(op(), 0..60),
    ) {
        agrees(&schema, &ids, &ops);
    }

    #[test]
    fn ids_of_one_kind_stay_in_order_whatever_is_done_to_them(
        schema in prop::sample::select(schemas().to_vec()),
        kind in spellings::kind(),
        numbers in prop::collection::vec(spellings::number(), 1..400),
        ops in prop::collection::vec(op(), 0..400),
    ) {
        let ids: Vec<_> = numbers.into_iter().map(|number| kind.spell(number)).collect();
        let ops: Vec<_> = ops
            .into_iter()
            .filter(|op| !matches!(op, Op::InsertRun(..) | Op::RemoveRun(..) | Op::ApplyRun(..)))
            .collect();
        agrees(&schema, &ids, &ops);
    }
}

#[test]
fn an_empty_table_has_nothing() {
    for schema in schemas() {
        let mut both = Both::new(&schema);
        assert_is(&both.table, &both.model);
        for spelling in spellings::extremes() {
            both.get(&spelling);
            both.remove(&spelling);
        }
        assert_is(&both.table, &both.model);
    }
}

#[test]
fn the_first_and_the_last_ids_of_every_class_are_cards_like_others() {
    for schema in schemas() {
        let mut both = Both::new(&schema);
        let highest = schema.symbols() - 1;
        for (at, spelling) in spellings::extremes().into_iter().enumerate() {
            both.insert(spelling, [0, highest][at % 2]);
        }
        assert_is(&both.table, &both.model);
        for spelling in spellings::extremes() {
            both.get(&spelling);
            both.remove(&spelling);
        }
        assert_is(&both.table, &Model::new());
    }
}

/// A run of ids that ends with the highest of its class, with a gap before: coded as a bitmap, it ends where numbers do.
#[test]
fn a_dense_run_may_end_with_the_highest_number_there_is() {
    for kind in [Kind::UuidLower, Kind::UuidUpper, Kind::HexLower(32), Kind::Digits(38)] {
        let mut both = Both::new(&Schema::default());
        let highest = match kind {
            Kind::Digits(_) => 10u128.pow(38) - 1,
            _ => u128::MAX,
        };
        for below in (0..2000).filter(|below| below % 7 != 3) {
            both.insert(kind.spell(highest - below), below % 22);
        }
        assert_is(&both.table, &both.model);
    }
}

#[test]
fn a_symbol_beyond_the_schema_is_refused_loudly() {
    for schema in schemas() {
        let mut table = Table::new(schema.clone());
        let insert = std::panic::AssertUnwindSafe(|| table.insert(&id(b"7"), schema.symbols()));
        assert!(std::panic::catch_unwind(insert).is_err());
        assert_is(&table, &Model::new());
    }
}

/// Ids that come in any order, of two classes, so that each has many blocks.
fn many(count: usize, rng: &mut fastrand::Rng) -> Vec<Vec<u8>> {
    let mut ids: Vec<Vec<u8>> = (0..count as u128)
        .map(|at| match at % 10 {
            0..=3 => Kind::Digits(20).spell(u128::from(rng.u64(..))),
            4..=5 => Kind::Digits(20).spell(at / 1000 * 10u128.pow(15) + at % 1000 * 3),
            _ => Kind::LongPrefix.spell(rng.u128(..)),
        })
        .collect();
    rng.shuffle(&mut ids);
    ids
}

#[test]
fn hundreds_of_thousands_of_cards_come_and_most_of_them_go() {
    let mut rng = fastrand::Rng::with_seed(300_000);
    // The wide symbols make for many blocks: only beyond 512 of a class the directory splits.
    let [.., wide, _] = schemas();
    let mut both = Both::new(&wide);
    let mut ids = many(300_000, &mut rng);
    for id in &ids {
        both.insert(id.clone(), rng.u128(..wide.symbols()));
    }
    assert!(both.table.classes().all(|class| class.blocks > 600));
    assert_is(&both.table, &both.model);
    let full = both.table.memory().total();

    rng.shuffle(&mut ids);
    for id in &ids[..ids.len() - 5000] {
        both.remove(id);
    }
    assert_is(&both.table, &both.model);
    // What thin blocks cannot be joined with wastes a part of them, but not most.
    let (left, share) = (both.table.memory().total(), full / 60);
    assert!(left < 4 * share, "{left} bytes for a sixtieth of {full}");

    for id in &ids[ids.len() - 5000..] {
        both.remove(id);
    }
    assert_is(&both.table, &Model::new());
}

#[test]
fn cards_that_come_in_descending_order_are_like_others() {
    for kind in [Kind::Digits(20), Kind::UuidLower, Kind::LongPrefix] {
        let mut both = Both::new(&Schema::default());
        for at in (0..20_000u128).rev() {
            both.insert(kind.spell(at * 977), at % 22);
        }
        assert_is(&both.table, &both.model);
    }
}

#[test]
fn cards_that_come_in_ascending_order_are_like_others() {
    for step in [1, 2, 3, 50, 977, 1 << 40] {
        let mut both = Both::new(&Schema::default());
        for at in 0..20_000u128 {
            // Now and then a jump, to which the next ones belong.
            let jumps = at / 3000 * 1_000_000_007;
            both.insert(Kind::Digits(20).spell(at * step + jumps), at % 22);
        }
        assert_is(&both.table, &both.model);
    }
}

/// Changes that all fall into one gap make a chunk overflow by more than one block at a time.
#[test]
fn a_batch_of_changes_may_be_larger_than_the_table() {
    let mut rng = fastrand::Rng::with_seed(5);
    let mut both = Both::new(&Schema::default());
    both.insert(Kind::Digits(20).spell(0), 1);
    both.insert(Kind::LongPrefix.spell(0), 1);
    let changes: Vec<_> =
        many(200_000, &mut rng).into_iter().map(|id| (id, (rng.u8(..10) > 0).then(|| rng.u128(..22)))).collect();
    both.apply(&changes);
    assert_is(&both.table, &both.model);

    let removals: Vec<_> = changes.into_iter().map(|(id, _)| (id, None)).collect();
    both.apply(&removals);
    assert_is(&both.table, &both.model);
}

#[test]
fn changes_made_for_another_schema_are_refused_loudly() {
    let [ours, other, ..] = schemas();
    let mut table = table_of(&ours, &Model::from([(b"7".to_vec(), 1)]));
    let changes = changes_of(&other, &[(b"8".to_vec(), Some(0))]);
    let apply = std::panic::AssertUnwindSafe(|| table.apply(&changes));
    assert!(std::panic::catch_unwind(apply).is_err());
    assert_accounts(&table);
}
