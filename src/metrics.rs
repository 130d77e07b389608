//! What the module counts, for `INFO`.
//!
//! Tables come and go on several threads: Redis frees large ones in the background. So the totals are kept as they change,
//! by the tables themselves, and asking for them looks at no table.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::loading::progress::Told;
use crate::loading::{Request, queue};
use crate::redis::info::Section;

pub struct Counter(AtomicU64);

impl Counter {
    const fn new() -> Counter {
        Counter(AtomicU64::new(0))
    }

    /// Adds, and subtracts what has been negated: the total wraps.
    #[inline]
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

static TABLES: Counter = Counter::new();
static RECORDS: Counter = Counter::new();
static BYTES: Counter = Counter::new();

/// Cards that were asked for and found, and those that were not found.
pub static HITS: Counter = Counter::new();
pub static MISSES: Counter = Counter::new();
/// Loads that have ended, well or not.
pub static LOADS: Counter = Counter::new();
pub static FAILED_LOADS: Counter = Counter::new();
/// Commands that failed.
pub static ERRORS: Counter = Counter::new();

/// A table's part in the totals.
#[derive(Default)]
pub struct Share {
    tables: AtomicU64,
    records: AtomicU64,
    bytes: AtomicU64,
}

impl Share {
    /// The table now has so many records and bytes.
    pub fn update(&self, records: u64, bytes: u64) {
        for (part, total, now) in
            [(&self.tables, &TABLES, 1), (&self.records, &RECORDS, records), (&self.bytes, &BYTES, bytes)]
        {
            let before = part.swap(now, Ordering::Relaxed);
            total.add(now.wrapping_sub(before));
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        for (part, total) in [(&self.tables, &TABLES), (&self.records, &RECORDS), (&self.bytes, &BYTES)] {
            total.add(part.load(Ordering::Relaxed).wrapping_neg());
        }
    }
}

pub fn show(section: &Section) {
    section.number("tables", TABLES.get());
    section.number("records", RECORDS.get());
    section.number("bytes", BYTES.get());
    section.number("hits", HITS.get());
    section.number("misses", MISSES.get());
    section.number("errors", ERRORS.get());
    section.number("loads", LOADS.get());
    section.number("failed_loads", FAILED_LOADS.get());
    let loads = queue::all();
    section.number("loads_under_way", loads.len() as u64);
    for (at, job) in loads.iter().enumerate() {
        let (Request { key, file, .. }, told) = (&job.request, job.progress.told());
        let (phase, Told { percent, rows_per_second, eta_seconds, .. }) = (told.phase.name(), told);
        section.text(
            &format!("load_{at}"),
            &format!(
                "table={},file={},phase={phase},percent={percent},rows_per_second={rows_per_second},eta_seconds={eta_seconds}",
                key.escape_ascii(),
                file.escape_ascii(),
            ),
        );
    }
}
