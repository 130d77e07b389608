//! How fast a table is written, read back and changed: what a restart and a delta cost.

use card_table::{Builder, Inserted, Schema, Table};

use crate::card::Card;
use crate::data::List;
use crate::measure::{median, rounds, timed};
use crate::report::millions;

/// Single cards inserted and removed again: enough to measure, few enough to leave the table as full as it is.
const MAX_SINGLE: usize = 500_000;

/// A delta changes one card in so many.
const CARDS_PER_CHANGE: usize = 100;

/// All in records a second.
pub struct Speed {
    write: f64,
    read: f64,
    insert: f64,
    remove: f64,
    apply: f64,
}

pub const HEAD: [&str; 7] =
    ["set", "build M/s", "write_to M/s", "read_from M/s", "insert M/s", "remove M/s", "apply M/s"];

impl Speed {
    /// `build` is how many records a second were built.
    pub fn cells(&self, name: String, build: f64) -> Vec<String> {
        let figures = [build, self.write, self.read, self.insert, self.remove, self.apply];
        std::iter::once(name).chain(figures.into_iter().map(millions)).collect()
    }
}

/// A row of which only the inserts are known.
pub fn growth_cells(name: String, inserts: f64) -> Vec<String> {
    let mut cells = vec!["–".to_owned(); HEAD.len()];
    cells[0] = name;
    cells[4] = millions(inserts);
    cells
}

/// Builds a table of a list's records, and tells how many a second.
pub fn build<C: Card>(list: &List<C>, builder: &Builder) -> (Table, f64) {
    let (built, seconds) = timed(|| builder.table_from_records(list.records()));
    let built = built.expect("records are good");
    assert_eq!(built.duplicates, 0, "cards of a list differ");
    (built.result, list.cards.len() as f64 / seconds)
}

/// Inserts the first `inserts` cards of a list, one by one, into an empty table, and tells how many a second.
pub fn grow<C: Card>(list: &List<C>, inserts: usize) -> (Table, f64) {
    let records: Vec<_> = list.records_of(&list.cards[..inserts]).collect();
    let mut table = Table::new(Schema::default());
    let ((), seconds) = timed(|| {
        for (id, symbol) in &records {
            table.insert(id, *symbol);
        }
    });
    assert_eq!(table.len(), inserts as u64, "cards of a list differ");
    (table, inserts as f64 / seconds)
}

/// Measures on a copy of the table.
pub fn measure<C: Card>(list: &List<C>, table: &Table, unlisted: &[C], builder: &Builder) -> Speed {
    let (bytes, write) = write(table);
    let (mut copy, read) = read(&bytes);
    drop(bytes);
    assert_eq!(copy.digest(), table.digest(), "what is read is what was written");
    let (insert, remove) = insert_and_remove(list, unlisted, &mut copy);
    assert_eq!(copy.digest(), table.digest(), "what was inserted is removed");
    Speed { write, read, insert, remove, apply: apply(list, unlisted, builder, &mut copy) }
}

fn write(table: &Table) -> (Vec<u8>, f64) {
    let mut bytes = Vec::with_capacity(table.memory().total());
    let mut round = || {
        bytes.clear();
        timed(|| table.write_to(&mut bytes).expect("memory takes all")).1
    };
    let seconds = (0..rounds(table.len() as usize)).map(|_| round()).collect();
    (bytes, table.len() as f64 / median(seconds))
}

fn read(bytes: &[u8]) -> (Table, f64) {
    let round = || timed(|| Table::read_from(&mut &*bytes).expect("the bytes of a table"));
    let (table, first) = round();
    let others = (1..rounds(table.len() as usize)).map(|_| round().1);
    let seconds = median(std::iter::once(first).chain(others).collect());
    let speed = table.len() as f64 / seconds;
    (table, speed)
}

fn insert_and_remove<C: Card>(list: &List<C>, unlisted: &[C], table: &mut Table) -> (f64, f64) {
    let count = unlisted.len().min(list.cards.len() / 10).min(MAX_SINGLE);
    let records: Vec<_> = list.records_of(&unlisted[..count]).collect();
    let ((), inserting) = timed(|| {
        for (id, symbol) in &records {
            assert_eq!(table.insert(id, *symbol), Inserted::New);
        }
    });
    let ((), removing) = timed(|| {
        for (id, symbol) in &records {
            assert_eq!(table.remove(id), Some(*symbol));
        }
    });
    (count as f64 / inserting, count as f64 / removing)
}

/// Half of the changes add a card, a quarter changes one, a quarter removes one.
fn apply<C: Card>(list: &List<C>, unlisted: &[C], builder: &Builder, table: &mut Table) -> f64 {
    let quarter = list.cards.len() / CARDS_PER_CHANGE / 4;
    let symbols = Schema::default().symbols();
    let added = list.records_of(&unlisted[..2 * quarter]);
    let changed = list.records_of(&list.cards[..quarter]);
    let removed = list.records_of(&list.cards[quarter..2 * quarter]);
    let changes = added
        .map(|(id, symbol)| (id, Some(symbol)))
        .chain(changed.map(|(id, symbol)| (id, Some((symbol + 1) % symbols))))
        .chain(removed.map(|(id, _)| (id, None)));
    let changes = builder.changes_from_records(changes).expect("changes are good").result;
    let (applied, seconds) = timed(|| table.apply(&changes));
    let counts = [applied.added, applied.changed, applied.removed, applied.unchanged];
    assert_eq!(counts, [2, 1, 1, 0].map(|quarters| quarters * quarter as u64), "every change has its effect");
    4.0 * quarter as f64 / seconds
}
