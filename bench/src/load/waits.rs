//! How long clients wait for an answer while lists are loaded.

use std::fs;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use card_bench::measure::tell;
use card_bench::outcome::Series;
use card_bench::redis::{Requests, Server};
use card_bench::report::{Grid, Target};
use card_bench::scheme::Scheme;

use crate::files::Files;
use crate::probe::{self, Waits};
use crate::{House, load};

/// Loads are repeated for so long, or there would be too few answers to tell the slowest in a thousand.
const AT_LEAST_SECONDS: f64 = 20.0;

pub struct Waited {
    what: &'static str,
    loads: usize,
    /// Of the server that loads, and of one beside it that has nothing to do.
    loading: Waits,
    idle: Waits,
    role: Role,
}

#[derive(PartialEq, Eq)]
enum Role {
    /// With targets, and in the plot.
    Shown,
    /// With targets.
    Judged,
    /// What others are compared with.
    Control,
}

pub fn measure(house: &House, files: &Files) -> io::Result<Vec<Waited>> {
    let plain = house.server(&[])?;
    let persistent = house.server(&["--appendonly", "yes"])?;
    let full = |server: &Server, at: usize| load(server, [&files.full, &files.other][at % 2], &[]);
    let saving = |server: &Server, at: usize| {
        // Fails while a rewrite of the AOF is under way, which writes as much.
        let _ = server.connect()?.ask(&[b"BGSAVE"]);
        full(server, at)
    };
    // Changes to the list, and back to where it was.
    let back = files.changes.with_file_name("back.tsv");
    write_back(files, &back)?;
    let delta = |server: &Server, at: usize| load(server, [&files.changes, &back][at % 2], &[b"DELTA"]);
    let alone = waited("full loads", house, &plain, files, Role::Shown, full)?;
    let saved = waited("full loads, with AOF and BGSAVE", house, &persistent, files, Role::Judged, saving)?;
    // What Redis itself does to those who wait when it forks as often.
    let pause = Duration::from_secs_f64(AT_LEAST_SECONDS / saved.loads as f64);
    let only_saving = |server: &Server, _| {
        let _ = server.connect()?.ask(&[b"BGSAVE"]);
        thread::sleep(pause);
        Ok(())
    };
    let control = waited("as many BGSAVEs, nothing is loaded", house, &persistent, files, Role::Control, only_saving)?;
    load(&plain, &files.full, &[])?;
    let changed = waited("deltas of 1%", house, &plain, files, Role::Judged, delta)?;
    Ok(vec![alone, saved, control, changed])
}

/// Changes that undo others: what was removed is set, what was set anew is removed; changed cards change again.
fn write_back(files: &Files, back: &std::path::Path) -> io::Result<()> {
    let changes = fs::read_to_string(&files.changes)?;
    let swapped = changes.lines().enumerate().map(|(at, line)| match line.split_once('\t') {
        Some(("set", row)) if at as u64 > files.rows / 200 => format!("del\t{row}\n"),
        Some(("del", row)) => format!("set\t{row}\n"),
        _ => format!("{line}\n"),
    });
    fs::write(back, swapped.collect::<String>())
}

fn waited(
    what: &'static str,
    house: &House,
    server: &Server,
    files: &Files,
    role: Role,
    load: impl Fn(&Server, usize) -> io::Result<()>,
) -> io::Result<Waited> {
    tell(what);
    // The first load has no list to answer from.
    load(server, 0)?;
    let idle = house.server(&[])?;
    let stop = AtomicBool::new(false);
    let gets = files.known.iter().map(|card| {
        let mut request = Requests::default();
        Scheme::Ours.get(card, &mut request);
        request
    });
    let gets: Vec<Requests> = gets.collect();
    let mut ping = Requests::default();
    ping.push(&[b"PING"]);
    thread::scope(|scope| {
        let asking = probe::start(scope, server, gets, &stop)?;
        let control = probe::start(scope, &idle, vec![ping], &stop)?;
        let start = Instant::now();
        let mut loads = 0;
        let mut outcome = Ok(());
        while outcome.is_ok() && (loads == 0 || start.elapsed().as_secs_f64() < AT_LEAST_SECONDS) {
            loads += 1;
            outcome = load(server, loads);
        }
        stop.store(true, Ordering::Relaxed);
        outcome?;
        let join = |probe: thread::ScopedJoinHandle<io::Result<Waits>>| probe.join().expect("a probe does not panic");
        Ok(Waited { what, loads, loading: join(asking)?, idle: join(control)?, role })
    })
}

impl Waited {
    /// What is dotted over time in the plot.
    pub fn series(&self) -> Option<Series> {
        let points = |name: &str, waits: &Waits| Series { name: name.into(), points: thinned(waits) };
        (self.role == Role::Shown).then(|| points("CARD.GET during loads", &self.loading))
    }
}

/// Dots in the plot.
const DOTS: usize = 500;

/// Of neighbouring answers the slowest: a plot of all would be megabytes.
fn thinned(waits: &Waits) -> Vec<(f64, f64)> {
    let slowest = |some: &[(f64, f64)]| some.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1)).expect("not empty");
    waits.chunks(waits.len().div_ceil(DOTS).max(1)).map(slowest).collect()
}

fn sorted(waits: &Waits) -> Vec<f64> {
    let mut sorted: Vec<f64> = waits.iter().map(|(_, wait)| *wait).collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The wait that so many of a thousand do not exceed.
fn per_mille(sorted: &[f64], part: f64) -> f64 {
    let at = (sorted.len() as f64 * part / 1000.0).ceil() as usize;
    sorted[at.clamp(1, sorted.len()) - 1]
}

pub fn targets(measured: &[Waited]) -> Vec<Target> {
    let of = |waited: &Waited| {
        let all = sorted(&waited.loading);
        let target =
            |what: &str, measured, at_most| Target { what: format!("{}: {what}", waited.what), measured, at_most };
        [
            target("p99.9 of CARD.GET meanwhile, ms", per_mille(&all, 999.0), 2.0),
            target("longest CARD.GET meanwhile, ms", per_mille(&all, 1000.0), 20.0),
        ]
    };
    measured.iter().filter(|waited| waited.role != Role::Control).flat_map(of).collect()
}

pub fn grid(measured: &[Waited]) -> Grid {
    let row = |what: String, loads: String, waits: &Waits| {
        let all = sorted(waits);
        let mut cells = vec![what, loads, all.len().to_string()];
        cells.extend([500.0, 990.0, 999.0, 1000.0].map(|part| format!("{:.2}", per_mille(&all, part))));
        cells
    };
    let rows = measured.iter().flat_map(|waited| {
        let Waited { what, loads, loading, idle, .. } = waited;
        [row((*what).into(), loads.to_string(), loading), row("– an idle server beside it".into(), String::new(), idle)]
    });
    Grid {
        title: "Waiting while lists are loaded",
        head: &["", "loads", "answers", "p50 ms", "p99 ms", "p99.9 ms", "longest ms"],
        rows: rows.collect(),
        note: "A client asks `CARD.GET` every millisecond on a connection of its own; another asks `PING` of a server that has nothing to \
               do, and tells what the machine itself does to those who wait.",
    }
}
