//! How long a parameter file takes to become a table, and how much memory meanwhile.
//!
//! The peer is the least that any build has to do: parse the same file on as many threads, and sort each thread's rows.

use std::error::Error;
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, Write};
use std::sync::Mutex;
use std::thread;

use card_table::tsv::Reader;
use card_table::{Id, Schema, Table};

use crate::card::Card;
use crate::data::List;
use crate::means::Means;
use crate::measure::{median, rounds, timed};
use crate::peak::Peak;
use crate::report::{fixed, mebibytes};

/// A build may take the finished table so many times, and the memory for sorting.
const ALLOWED_TABLES: f64 = 1.25;

/// How many cards are looked up in each table that was built.
const SPOT_CHECKS: usize = 100_000;

pub struct Bulk {
    build_seconds: f64,
    peer_seconds: f64,
    peak: Peak,
    allowed: f64,
}

pub const HEAD: [&str; 9] = [
    "set",
    "build s",
    "parse + sort s",
    "ratio",
    "peak MiB",
    "allowed MiB",
    "ratio",
    "jemalloc allocated MiB",
    "jemalloc resident MiB",
];

impl Bulk {
    pub fn time_ratio(&self) -> f64 {
        self.build_seconds / self.peer_seconds
    }

    pub fn peak_ratio(&self) -> f64 {
        self.peak.process as f64 / self.allowed
    }

    pub fn cells(&self, name: String) -> Vec<String> {
        vec![
            name,
            fixed(self.build_seconds),
            fixed(self.peer_seconds),
            fixed(self.time_ratio()),
            mebibytes(self.peak.process as f64),
            mebibytes(self.allowed),
            fixed(self.peak_ratio()),
            mebibytes(self.peak.allocated as f64),
            mebibytes(self.peak.resident as f64),
        ]
    }
}

/// Measures with a file of the list, whose finished table is given for comparison.
pub fn measure<C: Card>(list: &List<C>, table: &Table, means: Means) -> Result<Bulk, Box<dyn Error>> {
    let mut file = write_file(list)?;
    let (mut building, mut parsing) = (Vec::new(), Vec::new());
    for _ in 0..rounds(list.cards.len()) {
        file.rewind()?;
        let (built, seconds) = timed(|| means.builder().table_from_tsv(&file));
        check(&built?.result, table, list);
        building.push(seconds);

        file.rewind()?;
        let (sorted, seconds) = timed(|| parse_and_sort(&file, list.cards.len(), means.threads));
        assert_eq!(sorted.iter().map(Vec::len).sum::<usize>(), list.cards.len());
        parsing.push(seconds);
    }
    file.rewind()?;
    Ok(Bulk {
        build_seconds: median(building),
        peer_seconds: median(parsing),
        peak: Peak::of_another_process(file, means)?,
        allowed: ALLOWED_TABLES * table.memory().total() as f64 + means.sort_bytes() as f64,
    })
}

/// A file without a name, which is gone when it is closed, however this program ends. It is in the page cache.
fn write_file<C: Card>(list: &List<C>) -> io::Result<File> {
    let schema = Schema::default();
    let values: Vec<String> = (0..schema.symbols())
        .map(|symbol| {
            let values = schema.unpack(symbol);
            format!("\t{}\t{}\n", values[0], values[1])
        })
        .collect();
    let mut out = BufWriter::with_capacity(1 << 20, tempfile::tempfile()?);
    out.write_all(b"cardId\ttype\tstatus\n")?;
    let mut row = Vec::new();
    for (id, symbol) in list.records() {
        row.clear();
        id.write_to(&mut row);
        row.extend_from_slice(values[symbol as usize].as_bytes());
        out.write_all(&row)?;
    }
    let mut file = out.into_inner()?;
    // Otherwise the kernel would write it while the build is timed.
    file.sync_data()?;
    file.rewind()?;
    io::copy(&mut file, &mut io::sink())?;
    Ok(file)
}

fn check<C: Card>(built: &Table, expected: &Table, list: &List<C>) {
    assert_eq!(built.len(), expected.len(), "every row is in the table");
    assert_eq!(built.digest(), expected.digest(), "rows and records make the same table");
    let some = &list.cards[..SPOT_CHECKS.min(list.cards.len())];
    for (id, symbol) in list.records_of(some) {
        assert_eq!(built.get(&id), Some(symbol), "a card of the file is found");
    }
}

/// Rows as numbers, each thread's sorted.
fn parse_and_sort(source: impl Read + Send, rows: usize, threads: usize) -> Vec<Vec<u128>> {
    let reader = Reader::new(source, &Schema::default()).expect("a good file");
    let layout = reader.layout().clone();
    let reader = Mutex::new(reader);
    let next_page = || reader.lock().expect("no thread panics").next_page();
    let work = || {
        // A little more than its share, as threads do not take exactly the same.
        let mut packed = Vec::with_capacity(rows / threads * 5 / 4);
        while let Some(page) = next_page().expect("a good file") {
            packed.extend(page.rows(&layout).map(|row| {
                let row = row.expect("a good row");
                match (row.id, row.symbol) {
                    (Id::Number(_, number), Some(symbol)) => number << 8 | symbol,
                    _ => panic!("rows set cards that are numbers"),
                }
            }));
        }
        packed.sort_unstable();
        packed
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().expect("a good file")).collect()
    })
}
