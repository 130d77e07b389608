//! How far a load has come, for `INFO` and `CARD.INFO`, and whether it should stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Instant;

/// What a load is doing, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    Queued,
    Reading,
    Merging,
    Staging,
}

impl Phase {
    const ALL: [Phase; 4] = [Phase::Queued, Phase::Reading, Phase::Merging, Phase::Staging];

    pub fn name(self) -> &'static str {
        match self {
            Phase::Queued => "queued",
            Phase::Reading => "reading",
            Phase::Merging => "merging",
            Phase::Staging => "staging",
        }
    }

    /// At which percent of the whole it begins and ends, as loads of many rows go.
    fn percents(self) -> (f64, f64) {
        match self {
            Phase::Queued => (0.0, 0.0),
            Phase::Reading => (0.0, 70.0),
            Phase::Merging => (70.0, 90.0),
            Phase::Staging => (90.0, 100.0),
        }
    }
}

pub struct Progress {
    phase: AtomicU8,
    /// Of the phase: how much is done, of how much.
    done: Arc<AtomicU64>,
    total: AtomicU64,
    rows: AtomicU64,
    /// The highest percent that was told: it never goes back, also not between two phases.
    highest: AtomicU64,
    started: Instant,
    cancelled: AtomicBool,
}

/// Progress as it is told.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Told {
    pub phase: Phase,
    pub percent: u64,
    pub rows: u64,
    pub rows_per_second: u64,
    pub eta_seconds: u64,
}

impl Default for Progress {
    fn default() -> Progress {
        Progress {
            phase: AtomicU8::new(Phase::Queued as u8),
            done: Arc::default(),
            total: AtomicU64::new(0),
            rows: AtomicU64::new(0),
            highest: AtomicU64::new(0),
            started: Instant::now(),
            cancelled: AtomicBool::new(false),
        }
    }
}

impl Progress {
    pub fn enter(&self, phase: Phase, total: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    pub fn phase(&self) -> Phase {
        Phase::ALL[usize::from(self.phase.load(Ordering::Relaxed))]
    }

    /// The count of what is done, to be moved on by others.
    pub fn done(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.done)
    }

    pub fn set_done(&self, done: u64) {
        self.done.store(done, Ordering::Relaxed);
    }

    pub fn set_rows(&self, rows: u64) {
        self.rows.store(rows, Ordering::Relaxed);
    }

    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    pub fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    pub fn told(&self) -> Told {
        let phase = self.phase();
        let (begin, end) = phase.percents();
        let part = self.done.load(Ordering::Relaxed) as f64 / self.total.load(Ordering::Relaxed).max(1) as f64;
        let percent = begin + (end - begin) * part.min(1.0);
        let rows = self.rows.load(Ordering::Relaxed);
        let seconds = self.seconds();
        Told {
            phase,
            percent: self.highest.fetch_max(percent as u64, Ordering::Relaxed).max(percent as u64),
            rows,
            rows_per_second: (rows as f64 / seconds.max(0.001)) as u64,
            eta_seconds: if percent > 0.0 { (seconds * (100.0 - percent) / percent).ceil() as u64 } else { 0 },
        }
    }
}
