//! Makes one document of what all parts of the benchmark have found: `docs/benchmarks.md`, with its charts.
//!
//! Every part leaves a file in `docs/benchmarks/`, one for each number of rows that was measured. A run at another number of
//! rows adds to them, so that growth can be shown. What falls short, and why, is written by hand in `notes.md` beside them.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use card_bench::chart::{Chart, bars};
use card_bench::outcome::{Outcome, Series};
use card_bench::report::{Grid, Target, grouped};
use clap::Parser;

/// Writes the report of all parts of the benchmark.
#[derive(Parser)]
struct Args {
    /// Where the parts have left what they found
    #[arg(long, default_value = "docs/benchmarks")]
    outcomes: PathBuf,
    /// The report
    #[arg(long, default_value = "docs/benchmarks.md")]
    report: PathBuf,
}

/// The parts, and what they are about.
const PARTS: [(&str, &str); 4] = [
    ("table", "The table alone"),
    ("server", "The module in a server"),
    ("load", "Loading files"),
    ("http", "Over HTTP"),
];

/// The outcomes of a part, by rows.
type ByRows = BTreeMap<u64, Outcome>;

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let mut parts: BTreeMap<String, ByRows> = BTreeMap::new();
    for entry in fs::read_dir(&args.outcomes)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            let outcome = Outcome::read(&path)?;
            parts.entry(outcome.part.clone()).or_default().insert(outcome.rows, outcome);
        }
    }
    let text = document(&parts, &args.outcomes)?;
    let targets = text.split("\n## ").filter(|section| section.contains("rows: every figure"));
    targets.for_each(|section| println!("## {section}"));
    fs::write(&args.report, text)?;
    println!("\nThe whole report is in {}.", args.report.display());
    Ok(())
}

fn document(parts: &BTreeMap<String, ByRows>, outcomes: &Path) -> Result<String, Box<dyn Error>> {
    let all = || parts.values().flat_map(BTreeMap::values);
    let mut text = String::from(
        "# Measured\n\n\
         `make bench` writes this, with ours and its peers in the same run on the same machine. Such machines are shared: times are not \
         stable, ratios mostly are.\n\n",
    );
    text += &fs::read_to_string(outcomes.join("notes.md"))?;
    for &rows in &sizes(parts) {
        writeln!(text, "\n## {} rows: every figure that was wanted\n", grouped(rows))?;
        let targets = PARTS.iter().filter_map(|(part, _)| parts.get(*part)?.get(&rows));
        let cells = targets.flat_map(|outcome| &outcome.targets).map(Target::cells);
        let grid = Grid { title: "", head: &Target::HEAD, rows: cells.collect(), note: "" };
        writeln!(text, "{grid}")?;
    }
    growth(&mut text, parts)?;
    charts(&mut text, parts, outcomes)?;
    for (part, about) in PARTS {
        for outcome in parts.get(part).into_iter().flat_map(BTreeMap::values) {
            let Outcome { rows, machine, text: tables, .. } = outcome;
            // What is wanted has been shown above.
            let tables = tables.split("\n### Targets").next().unwrap_or_default();
            writeln!(text, "## {about}: {} rows\n\n{tables}\n\nMeasured on {machine}.\n", grouped(*rows))?;
        }
    }
    if all().next().is_none() {
        return Err("nothing has been measured".into());
    }
    Ok(text)
}

fn sizes(parts: &BTreeMap<String, ByRows>) -> Vec<u64> {
    let mut sizes: Vec<u64> = parts.values().flat_map(BTreeMap::keys).copied().collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Figures that are followed over several numbers of rows: part, name, and what they are called.
const FOLLOWED: [(&str, &str, &str); 7] = [
    ("server", "bytes, limit", "the limit, bytes a record"),
    ("server", "bytes, redis-card", "redis-card, bytes a record"),
    ("server", "bytes, seed's hashes", "the seed's way, bytes a record"),
    ("server", "find, redis-card", "CARD.GET, thousand a second"),
    ("server", "find, seed's hashes", "the seed's HGET, thousand a second"),
    ("load", "rows a second, redis-card", "CARD.LOAD, million rows a second"),
    ("load", "rows a second, seed's hashes", "the seed's way, million rows a second"),
];

fn growth(text: &mut String, parts: &BTreeMap<String, ByRows>) -> Result<(), Box<dyn Error>> {
    let sizes = sizes(parts);
    let columns: Vec<String> = sizes.iter().map(|&rows| grouped(rows)).collect();
    let heading = columns.join(" | ");
    writeln!(text, "## Growth\n\n| rows | {heading} |\n| --- |{}", " ---: |".repeat(columns.len()))?;
    for (part, name, called) in FOLLOWED {
        let figure = |rows: &u64| Some(*parts.get(part)?.get(rows)?.figures.get(name)?);
        let cells: Vec<String> =
            sizes.iter().map(|rows| figure(rows).map_or("–".into(), |figure| format!("{figure:.2}"))).collect();
        writeln!(text, "| {called} | {} |", cells.join(" | "))?;
    }
    writeln!(text)?;
    Ok(())
}

fn charts(text: &mut String, parts: &BTreeMap<String, ByRows>, folder: &Path) -> Result<(), Box<dyn Error>> {
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let none = ByRows::new();
    let of = |part: &str| parts.get(part).unwrap_or(&none);
    let memory = ["limit", "redis-card", "seed's hashes", "one big hash", "string keys"].map(|way| Series {
        name: way.into(),
        points: of("server")
            .iter()
            .filter_map(|(rows, outcome)| Some((*rows as f64, *outcome.figures.get(&format!("bytes, {way}"))?)))
            .collect(),
    });
    let memory: Vec<Series> = memory.into_iter().filter(|series| !series.points.is_empty()).collect();
    if !memory.is_empty() {
        let chart = Chart { title: "Memory a record (used_memory)", x: "rows", y: "bytes", series: &memory };
        chart.lines(&folder.join("memory.svg"))?;
        writeln!(text, "![Memory a record]({name}/memory.svg)\n")?;
    }
    if let Some((rows, outcome)) = of("load").iter().rfind(|(_, outcome)| !outcome.series.is_empty()) {
        let title = format!("What a client waits for CARD.GET while {} rows are loaded", grouped(*rows));
        let chart = Chart { title: &title, x: "seconds", y: "ms, the slowest of some", series: &outcome.series };
        chart.dots(&folder.join("waits.svg"))?;
        writeln!(text, "![Waits during a load]({name}/waits.svg)\n")?;
    }
    for (part, prefix, file, title, unit) in [
        ("server", "find, ", "throughput.svg", "Finding a card, pipelines of 16", "thousand a second"),
        ("http", "requests, ", "http.svg", "Queries over HTTP, 32 connections", "requests a second"),
    ] {
        let Some((rows, outcome)) = of(part).iter().next_back() else { continue };
        let named = outcome.figures.iter().filter_map(|(name, figure)| Some((name.strip_prefix(prefix)?, *figure)));
        let figures: Vec<(String, f64)> = named.map(|(name, figure)| (name.to_owned(), figure)).collect();
        if !figures.is_empty() {
            bars(&folder.join(file), &format!("{title}, {} rows", grouped(*rows)), unit, &figures)?;
            writeln!(text, "![{title}]({name}/{file})\n")?;
        }
    }
    Ok(())
}
