//! What the clock, jemalloc and the kernel say.

use std::fs;
use std::io;
use std::sync::LazyLock;
use std::time::Instant;

use tikv_jemalloc_ctl::{epoch, stats, thread};

const MANY_ROWS: usize = 50_000_000;

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Says on the standard error what is being done, as a run takes minutes.
pub fn tell(what: impl std::fmt::Display) {
    eprintln!("{:7.1} s  {what}", START.elapsed().as_secs_f64());
}

/// What `work` returns, and how many seconds it took.
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed().as_secs_f64())
}

/// How often a slow measurement of so many rows is made: three times, or once if they are many.
pub fn rounds(rows: usize) -> usize {
    if rows < MANY_ROWS { 3 } else { 1 }
}

pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// The bytes that dropping frees, in jemalloc's size classes. Unlike `stats.allocated` the thread's own counter is
/// exact: it leaves out what threads keep in their caches.
pub fn freed_by_dropping<T>(dropped: T) -> u64 {
    let freed = thread::deallocatedp::read().expect("jemalloc counts");
    let before = freed.get();
    drop(dropped);
    freed.get() - before
}

/// What jemalloc has given out, and what it has mapped for that, in bytes.
pub fn allocated_and_resident() -> (usize, usize) {
    epoch::advance().expect("jemalloc counts");
    let allocated = stats::allocated::read().expect("jemalloc counts");
    let resident = stats::resident::read().expect("jemalloc counts");
    (allocated, resident)
}

/// The most memory this process has had, in bytes.
pub fn peak_resident() -> io::Result<usize> {
    bytes_of("/proc/self/status", "VmHWM")
}

/// What a line `name: 123 kB` of a file of the kernel's says.
pub fn bytes_of(path: &str, name: &str) -> io::Result<usize> {
    let size = field_of(path, name)?;
    let kilobytes: usize = size.trim_end_matches(" kB").parse().map_err(io::Error::other)?;
    Ok(kilobytes * 1024)
}

/// A line `name: value` of a file of the kernel's.
pub fn field_of(path: &str, name: &str) -> io::Result<String> {
    let text = fs::read_to_string(path)?;
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let found = lines.find(|(key, _)| key.trim() == name);
    found.map(|(_, value)| value.trim().to_owned()).ok_or_else(|| io::Error::other(format!("{path} has no {name}")))
}
