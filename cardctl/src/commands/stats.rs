//! `cardctl stats`: the tables of a server, and what they take.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::time::{Duration, SystemTime};

use indicatif::{HumanBytes, HumanCount, HumanDuration};
use serde_json::json;

use crate::console::{Report, shown};
use crate::failure::Failure;
use crate::server::{Key, Server, ServerArgs, Table, bytes};

/// The widest bar, in characters.
const BAR: u64 = 30;

const HEAD: [&str; 7] = ["table", "cards", "memory", "bytes a card", "version", "age", "state"];

/// Show tables: cards, memory, bytes a card, version, age, state
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Keys of tables; all of the database by default
    tables: Vec<OsString>,
    #[command(flatten)]
    server: ServerArgs,
}

impl Args {
    pub fn run(&self) -> Result<Report, Failure> {
        let mut server = self.server.connect()?;
        let mut tables = Vec::new();
        if self.tables.is_empty() {
            for key in keys(&mut server)? {
                // One that is gone by now is not there.
                tables.extend(server.find_table(&key)?.map(|table| (key, table)));
            }
        } else {
            for key in self.tables.iter().map(bytes) {
                let table = server.table(&key)?;
                tables.push((key, table));
            }
        }
        let json: Vec<_> = tables.iter().map(|(key, table)| told(key, table)).collect();
        Ok(Report::fine(grid(&tables, io::stdout().is_terminal()), json!({ "tables": json })))
    }
}

/// The keys of all tables, in the order of their names.
fn keys(server: &mut Server) -> Result<Vec<Key>, Failure> {
    let (mut keys, mut cursor) = (Vec::new(), 0u64);
    loop {
        let scan = redis::cmd("SCAN").arg(cursor).arg("TYPE").arg("cardtable").arg("COUNT").arg(1000).to_owned();
        let (next, some): (u64, Vec<Key>) = server.ask(&scan)?;
        keys.extend(some);
        if next == 0 {
            break;
        }
        cursor = next;
    }
    keys.sort_unstable();
    keys.dedup();
    Ok(keys)
}

fn bytes_a_card(table: &Table) -> f64 {
    if table.records == 0 { 0.0 } else { table.bytes as f64 / table.records as f64 }
}

fn age(table: &Table) -> Option<Duration> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    // Clocks differ: what will be loaded in the future has been loaded now.
    table.loaded_at.map(|at| Duration::from_secs(now.as_secs().saturating_sub(at)))
}

fn state(table: &Table) -> String {
    let state = match (table.ready, table.stale) {
        (false, _) => "not ready",
        (true, true) => "stale",
        (true, false) => "ready",
    };
    table.loading.map_or(state.into(), |percent| format!("{state}, loading {percent} %"))
}

fn told(key: &[u8], table: &Table) -> serde_json::Value {
    json!({
        "table": String::from_utf8_lossy(key),
        "records": table.records,
        "bytes": table.bytes,
        "bytes_per_record": (bytes_a_card(table) * 1000.0).round() / 1000.0,
        "version": table.version,
        "age_seconds": age(table).map(|age| age.as_secs()),
        "source": table.source.as_deref().map(String::from_utf8_lossy),
        "ready": table.ready,
        "stale": table.stale,
        "loading_percent": table.loading,
        "digest": table.digest,
    })
}

fn grid(tables: &[(Key, Table)], with_bars: bool) -> String {
    if tables.is_empty() {
        return "there are no tables".into();
    }
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    let cells = |(key, table): &(Key, Table)| {
        [
            shown(key),
            HumanCount(table.records).to_string(),
            HumanBytes(table.bytes).to_string(),
            format!("{:.2}", bytes_a_card(table)),
            or_dash(table.version.map(|version| version.to_string())),
            or_dash(age(table).map(|age| HumanDuration(age).to_string())),
            state(table),
        ]
    };
    let rows: Vec<[String; 7]> = std::iter::once(HEAD.map(Into::into)).chain(tables.iter().map(cells)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 7] = std::array::from_fn(width);
    let largest = tables.iter().map(|(_, table)| table.bytes).max().unwrap_or(0).max(1);
    let bars = std::iter::once(0).chain(tables.iter().map(|(_, table)| (table.bytes * BAR).div_ceil(largest)));
    let line = |(row, bar): (&[String; 7], u64)| {
        let cells = row.iter().zip(widths).enumerate().map(|(column, (cell, width))| match column {
            0 | 6 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        let bar = if with_bars { "█".repeat(bar as usize) } else { String::new() };
        let line = cells.collect::<Vec<_>>().join("  ") + "  " + &bar;
        line.trim_end().to_owned()
    };
    rows.iter().zip(bars).map(line).collect::<Vec<_>>().join("\n")
}
