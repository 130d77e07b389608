//! Bulk building: a hundred million rows in any order become a table in seconds, within a given memory for sorting.
//!
//! ```text
//! rows → batch, in memory → sorted → strand, compressed ─┐
//!        batch            → sorted → strand             ─┼→ merged → blocks of the table
//!        …                                               ─┘
//! ```
//!
//! Rows are parsed in parallel into a [`batch`]. When the batch fills its memory it is sorted and written as a *strand*:
//! ascending blocks, hardly larger than those of the finished table. At the end all strands are [merged](merge), each
//! block freed as soon as it is read, so that strands and table together never take much more than one of them. The
//! merge is parallel too: it is cut at ids that divide the rows evenly.
//!
//! Where an id comes twice the last row wins. Strands are merged in the order of the file, and within a batch rows are
//! sorted by their offset in the file after their id.

mod batch;
mod merge;
mod pack;

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rayon::ThreadPool;
use rayon::iter::{ParallelBridge, ParallelIterator};
use thiserror::Error;

use crate::changes::Changes;
use crate::id::{Class, Id};
use crate::run::Run;
use crate::schema::Schema;
use crate::table::Table;
use crate::tsv::{Page, Problem, Reader, Row, TsvError};
use batch::Batch;
use pack::{Goal, Written};

/// How many problems are told by default.
pub const TOLD_PROBLEMS: usize = 10;

/// The least memory for sorting: below it, strands would be too short to compress.
pub const MIN_SORT_BYTES: usize = 1 << 20;
pub const DEFAULT_SORT_BYTES: usize = 256 << 20;

/// How records are given to [`Builder::table_from_records`]'s threads.
const RECORDS_AT_A_TIME: usize = 10_000;

/// How far a build has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Bytes of the file read so far, or none where records come from an iterator; and rows taken.
    Reading { bytes: u64, rows: u64 },
    /// Rows merged so far, of how many.
    Merging(u64, u64),
}

#[derive(Debug, Error)]
pub enum BuildError {
    #[error("{}", tell(.0, *.1))]
    Problems(Vec<Problem>, u64),
    #[error("cannot read: {0}")]
    Io(#[from] std::io::Error),
    #[error("the file has more than 16 TiB")]
    TooLarge,
    #[error("cannot start threads: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
    #[error("cancelled")]
    Cancelled,
}

fn tell(problems: &[Problem], count: u64) -> String {
    let told: Vec<_> = problems.iter().map(Problem::to_string).collect();
    let more = count - problems.len() as u64;
    told.join("; ") + &if more > 0 { format!("; and {more} more") } else { String::new() }
}

impl From<TsvError> for BuildError {
    fn from(error: TsvError) -> Self {
        match error {
            TsvError::Io(error) => BuildError::Io(error),
            TsvError::Problem(problem) => BuildError::Problems(vec![problem], 1),
        }
    }
}

/// What was built.
#[derive(Debug)]
pub struct Built<T> {
    pub result: T,
    /// Good rows, those included that a later one overrode.
    pub rows: u64,
    /// Rows that a later one overrode.
    pub duplicates: u64,
    /// Bad rows, which [`Builder::allow_problems`] let pass, and the first few of them.
    pub bad_rows: u64,
    pub problems: Vec<Problem>,
}

type OnProgress<'a> = Box<dyn Fn(Progress) -> ControlFlow<()> + Sync + 'a>;

/// Builds tables, and [`Changes`] to tables, from many rows.
pub struct Builder<'a> {
    schema: Schema,
    threads: usize,
    sort_bytes: usize,
    allowed_problems: u64,
    told_problems: usize,
    on_progress: OnProgress<'a>,
    on_thread_start: fn(),
}

impl<'a> Builder<'a> {
    pub fn new(schema: Schema) -> Builder<'a> {
        Builder {
            schema,
            threads: std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
            sort_bytes: DEFAULT_SORT_BYTES,
            allowed_problems: 0,
            told_problems: TOLD_PROBLEMS,
            on_progress: Box::new(|_| ControlFlow::Continue(())),
            on_thread_start: || {},
        }
    }

    /// How many threads work; by default as many as there are cores.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads.max(1);
        self
    }

    /// How much memory rows may take until they are sorted.
    pub fn sort_bytes(mut self, bytes: usize) -> Self {
        self.sort_bytes = bytes.max(MIN_SORT_BYTES);
        self
    }

    /// How many bad rows are left out before a build fails; by default none.
    pub fn allow_problems(mut self, count: u64) -> Self {
        self.allowed_problems = count;
        self
    }

    /// How many bad rows are told, the first ones of the file.
    pub fn tell_problems(mut self, count: usize) -> Self {
        self.told_problems = count;
        self
    }

    /// Is called every now and then from any of the threads, and can stop the build.
    pub fn on_progress(mut self, told: impl Fn(Progress) -> ControlFlow<()> + Sync + 'a) -> Self {
        self.on_progress = Box::new(told);
        self
    }

    /// Is called at the start of every thread, for example to lower its priority.
    pub fn on_thread_start(mut self, start: fn()) -> Self {
        self.on_thread_start = start;
        self
    }

    /// A table of the rows of a file. Rows that remove a card remove it if an earlier row of the file has set it.
    pub fn table_from_tsv(&self, source: impl Read + Send) -> Result<Built<Table>, BuildError> {
        self.build_from_tsv(source, into_table)
    }

    /// What the rows of a file change in a table.
    pub fn changes_from_tsv(&self, source: impl Read + Send) -> Result<Built<Changes>, BuildError> {
        self.build_from_tsv(source, into_changes)
    }

    /// A table of records, each an id of [`Id::parse`] and a symbol of [`Schema::pack`]; anything else panics.
    pub fn table_from_records<'i>(
        &self,
        records: impl IntoIterator<Item = (Id<'i>, u128), IntoIter: Send>,
    ) -> Result<Built<Table>, BuildError> {
        self.build_from_records(records.into_iter().map(|(id, symbol)| (id, Some(symbol))), into_table)
    }

    /// Changes to a table, each an id and its new symbol, or none to remove it; with the same conditions.
    pub fn changes_from_records<'i>(
        &self,
        records: impl IntoIterator<Item = (Id<'i>, Option<u128>), IntoIter: Send>,
    ) -> Result<Built<Changes>, BuildError> {
        self.build_from_records(records, into_changes)
    }

    fn build_from_tsv<T: Send>(&self, source: impl Read + Send, finish: Finish<T>) -> Result<Built<T>, BuildError> {
        self.pool()?.install(|| {
            let mut reader = Reader::new(source, &self.schema)?;
            let layout = reader.layout().clone();
            let mut tally = self.tally();
            let mut read = 0;
            let taken = AtomicU64::new(0);
            let pages = || {
                let page = reader.next_page().transpose()?;
                read += page.as_ref().map_or(0, Page::len) as u64;
                Some(page.map(|page| (page, read)))
            };
            let take = |(page, read): (Page, u64), batch: &mut Batch, tally: &mut Tally| {
                if read > batch::MAX_OFFSET {
                    return Err(BuildError::TooLarge);
                }
                let before = tally.rows;
                page.rows(&layout).for_each(|row| tally.take(row, batch));
                let rows = tally.rows - before;
                let rows = taken.fetch_add(rows, Ordering::Relaxed) + rows;
                self.told(Progress::Reading { bytes: read, rows })
            };
            let sorted = self.sort(pages, take, &mut tally)?;
            self.finish(sorted, tally, finish)
        })
    }

    fn build_from_records<'i, T: Send>(
        &self,
        records: impl IntoIterator<Item = (Id<'i>, Option<u128>), IntoIter: Send>,
        finish: Finish<T>,
    ) -> Result<Built<T>, BuildError> {
        let mut records = records.into_iter().zip(0..);
        let symbols = self.schema.symbols();
        self.pool()?.install(|| {
            let mut tally = self.tally();
            let some = || {
                let some: Vec<_> = records.by_ref().take(RECORDS_AT_A_TIME).collect();
                (!some.is_empty()).then_some(Ok(some))
            };
            let take = |some: Vec<((Id, Option<u128>), u64)>, batch: &mut Batch, tally: &mut Tally| {
                let last = some.last().map_or(0, |(_, offset)| *offset);
                for ((id, symbol), offset) in some {
                    assert!(id.is_sound(), "an id is one of its class");
                    assert!(symbol.is_none_or(|symbol| symbol < symbols), "a symbol is one of the schema's");
                    tally.take(Ok(Row { id, symbol, offset }), batch);
                }
                self.told(Progress::Reading { bytes: 0, rows: last + 1 })
            };
            let sorted = self.sort(some, take, &mut tally)?;
            self.finish(sorted, tally, finish)
        })
    }

    fn pool(&self) -> Result<ThreadPool, BuildError> {
        let start = self.on_thread_start;
        Ok(rayon::ThreadPoolBuilder::new().num_threads(self.threads).start_handler(move |_| start()).build()?)
    }

    fn tally(&self) -> Tally {
        Tally { told: self.told_problems, ..Tally::default() }
    }

    fn told(&self, progress: Progress) -> Result<(), BuildError> {
        if (self.on_progress)(progress).is_break() { Err(BuildError::Cancelled) } else { Ok(()) }
    }

    /// Reads everything there is, batch by batch.
    fn sort<P: Send>(
        &self,
        mut next: impl FnMut() -> Option<io::Result<P>> + Send,
        take: impl Fn(P, &mut Batch, &mut Tally) -> Result<(), BuildError> + Sync,
        tally: &mut Tally,
    ) -> Result<Sorted, BuildError> {
        let mut sorted = Sorted { strands: BTreeMap::new(), batch: Batch::new(&self.schema) };
        loop {
            if sorted.batch.bytes() > 0 {
                sorted.write_strands(self, tally);
            }
            // Batch and tally of all threads, whether there is no more to read, and whether reading should stop.
            let shared = Mutex::new((&mut sorted.batch, &mut *tally));
            let (ended, full) = (AtomicBool::new(false), AtomicBool::new(false));
            let parts = std::iter::from_fn(|| {
                if full.load(Ordering::Relaxed) {
                    return None;
                }
                let part = next();
                if part.is_none() {
                    ended.store(true, Ordering::Relaxed);
                }
                part
            });
            parts.par_bridge().try_for_each_init(
                || (Batch::new(&self.schema), self.tally()),
                |(own_batch, own_tally), part| {
                    let taken = take(part?, own_batch, own_tally);
                    let mut shared = shared.lock().expect("no thread panics while it appends");
                    let (batch, tally) = &mut *shared;
                    batch.absorb(own_batch, self.sort_bytes);
                    tally.absorb(own_tally);
                    if batch.bytes() >= self.sort_bytes || tally.bad_rows > self.allowed_problems {
                        full.store(true, Ordering::Relaxed);
                    }
                    taken
                },
            )?;
            if tally.bad_rows > self.allowed_problems {
                return Err(BuildError::Problems(std::mem::take(&mut tally.problems), tally.bad_rows));
            }
            if ended.into_inner() {
                return Ok(sorted);
            }
        }
    }

    fn finish<T>(&self, sorted: Sorted, mut tally: Tally, finish: Finish<T>) -> Result<Built<T>, BuildError> {
        let result = finish(self, sorted, &mut tally)?;
        let Tally { rows, duplicates, bad_rows, problems, .. } = tally;
        Ok(Built { result, rows, duplicates, bad_rows, problems })
    }
}

/// What becomes of rows that have all been read.
type Finish<T> = fn(&Builder, Sorted, &mut Tally) -> Result<T, BuildError>;

/// What is counted along the way.
#[derive(Default)]
struct Tally {
    rows: u64,
    duplicates: u64,
    bad_rows: u64,
    /// The first ones by line, and how many are kept.
    problems: Vec<Problem>,
    told: usize,
}

impl Tally {
    fn take(&mut self, row: Result<Row, Problem>, batch: &mut Batch) {
        match row {
            Ok(row) => {
                batch.push(&row);
                self.rows += 1;
            }
            Err(problem) => {
                self.bad_rows += 1;
                if self.problems.len() < self.told {
                    self.problems.push(problem);
                }
            }
        }
    }

    fn absorb(&mut self, other: &mut Tally) {
        let Tally { rows, duplicates, bad_rows, problems, .. } =
            std::mem::replace(other, Tally { told: other.told, ..Tally::default() });
        self.rows += rows;
        self.duplicates += duplicates;
        self.bad_rows += bad_rows;
        if !problems.is_empty() {
            self.problems.extend(problems);
            self.problems.sort_by_key(|problem| problem.line);
            self.problems.truncate(self.told);
        }
    }
}

/// All rows: most of them in strands, the last ones still in memory.
struct Sorted {
    /// The strands of each class, in the order of the file.
    strands: BTreeMap<Class, Vec<Strand>>,
    batch: Batch,
}

impl Sorted {
    fn write_strands(&mut self, builder: &Builder, tally: &mut Tally) {
        for (class, written) in self.batch.write(Goal::changes(&builder.schema)) {
            tally.duplicates += written.overridden;
            if !written.blocks.is_empty() {
                self.strands.entry(class).or_default().push(written.blocks);
            }
        }
    }

    /// All rows of each class, ascending and each id once.
    fn write(mut self, goal: Goal, builder: &Builder, tally: &mut Tally) -> Result<Vec<(Class, Written)>, BuildError> {
        let written = if self.strands.is_empty() {
            self.batch.write(goal)
        } else {
            self.write_strands(builder, tally);
            drop(self.batch);
            let merging = Merging { builder, done: AtomicU64::new(0), total: tally.rows };
            let strands = Goal::changes(&builder.schema);
            let merge_class = |(class, of_class)| {
                let written = match class {
                    Class::Text => merge::merge(strands.texts(), goal.texts(), of_class, goal, &merging),
                    _ => merge::merge(strands.numbers(class), goal.numbers(class), of_class, goal, &merging),
                };
                Ok::<_, BuildError>((class, written?))
            };
            self.strands.into_iter().map(merge_class).collect::<Result<Vec<_>, _>>()?
        };
        tally.duplicates += written.iter().map(|(_, written)| written.overridden).sum::<u64>();
        Ok(written)
    }
}

fn into_table(builder: &Builder, sorted: Sorted, tally: &mut Tally) -> Result<Table, BuildError> {
    let goal = Goal::table(&builder.schema);
    let mut table = Table::new(builder.schema.clone());
    for (class, written) in sorted.write(goal, builder, tally)? {
        table.records_digest = table.records_digest.wrapping_add(written.digest);
        match class {
            Class::Text => table.texts = Run::from_blocks(goal.texts(), written.blocks),
            _ if written.blocks.is_empty() => {}
            _ => table.numbers.push(Run::from_blocks(goal.numbers(class), written.blocks)),
        }
    }
    table.numbers.shrink_to_fit();
    Ok(table)
}

fn into_changes(builder: &Builder, sorted: Sorted, tally: &mut Tally) -> Result<Changes, BuildError> {
    let goal = Goal::changes(&builder.schema);
    let mut changes = Changes::new(&builder.schema);
    for (class, written) in sorted.write(goal, builder, tally)? {
        match class {
            Class::Text => changes.texts = written.blocks,
            _ => changes.numbers.push((goal.numbers(class), written.blocks)),
        }
    }
    Ok(changes)
}

/// What the threads of a merge share.
struct Merging<'a> {
    builder: &'a Builder<'a>,
    done: AtomicU64,
    total: u64,
}

impl Merging<'_> {
    fn advance(&self, rows: usize) -> Result<(), BuildError> {
        let done = self.done.fetch_add(rows as u64, Ordering::Relaxed) + rows as u64;
        self.builder.told(Progress::Merging(done.min(self.total), self.total))
    }
}

/// Ascending blocks of one class.
type Strand = Vec<Box<[u8]>>;
