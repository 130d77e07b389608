//! The list as it is delivered, another version of it, and changes.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};

use std::path::{Path, PathBuf};

use card_bench::file::{begin, finish, spelt, write_list, write_row};
use card_bench::measure::tell;
use card_bench::redis::Requests;
use card_bench::scheme::Scheme;
use card_samples::Set;

/// Of a hundred cards, so many change in a delta: half are new, a quarter changed, a quarter removed.
const CHANGED_PERCENT: u64 = 1;

/// Cards that are in the list, for asking.
const KNOWN: usize = 100_000;

pub struct Files {
    pub rows: u64,
    pub full: PathBuf,
    /// As many other cards.
    pub other: PathBuf,
    pub changes: PathBuf,
    pub known: Vec<String>,
}

impl Files {
    pub fn write(directory: &Path, rows: u64, seed: u64) -> io::Result<Files> {
        tell("writing files");
        let files = Files {
            rows,
            full: directory.join("full.tsv"),
            other: directory.join("other.tsv"),
            changes: directory.join("changes.tsv"),
            known: Set::Net.records(rows, seed).take(KNOWN).map(|(id, _)| spelt(&id)).collect(),
        };
        write_list(&files.full, Set::Net.records(rows, seed))?;
        write_list(&files.other, Set::Net.records(rows, seed + 1))?;
        let quarter = (rows * CHANGED_PERCENT / 100 / 4).max(1) as usize;
        let mut out = begin(&files.changes, "op\t")?;
        let mut old = Set::Net.records(rows, seed);
        for (id, symbol) in old.by_ref().take(quarter) {
            write_row(&mut out, "set\t", &id, symbol ^ 1)?;
        }
        for (id, symbol) in old.take(quarter) {
            write_row(&mut out, "del\t", &id, symbol)?;
        }
        for (id, symbol) in Set::Net.records(rows, seed + 2).take(2 * quarter) {
            write_row(&mut out, "set\t", &id, symbol)?;
        }
        finish(out)?;
        Ok(files)
    }
}

/// The seed's preprocessing: a file of commands, in the protocol's form, for `redis-cli --pipe`.
pub fn preprocess(full: &Path, commands: &Path, rows: u64) -> io::Result<()> {
    let scheme = Scheme::seed(rows as usize);
    let mut out = BufWriter::with_capacity(1 << 20, File::create(commands)?);
    let mut requests = Requests::default();
    for line in BufReader::with_capacity(1 << 20, File::open(full)?).lines().skip(1) {
        let line = line?;
        let mut columns = line.split('\t');
        let mut column = || columns.next().ok_or_else(|| io::Error::other("a row has three columns"));
        let (card, type_, status) = (column()?, column()?, column()?);
        let number = |text: &str| text.parse::<u8>().map_err(io::Error::other);
        requests.bytes.clear();
        scheme.set(card, number(type_)?, number(status)?, &mut requests);
        out.write_all(&requests.bytes)?;
    }
    out.flush()
}
