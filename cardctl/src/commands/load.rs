//! `cardctl load`: a list becomes a table, wherever the list and the server are.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use card_table::Schema;
use indicatif::{HumanCount, ProgressBar};
use redis::Value;
use serde_json::json;

use crate::console::{Console, Report, Unit, shown};
use crate::failure::Failure;
use crate::interrupt::Interruptible;
use crate::list::{List, Means};
use crate::server::{Server, ServerArgs, bytes};
use crate::staging::{self, Origin};

/// The names that the module loads.
const SUFFIXES: [&[u8]; 3] = [b".tsv", b".tsv.gz", b".tsv.zst"];

/// How often the server is asked how far it is.
const LOOK: Duration = Duration::from_millis(200);

/// Load a list into a table
///
/// A file in the server's card.load-dir is loaded by the server itself; any other is built into a table here and sent. Either
/// way the old list answers until all of the new one is there. A table that is there keeps its fields; a new one gets type 0..10
/// and status 1..2, unless CARD.CREATE has made it before.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A list; .gz and .zst are unpacked
    file: PathBuf,
    /// The key of the table
    #[arg(long, value_name = "KEY")]
    table: OsString,
    /// The version of the list, a number
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(..u64::MAX))]
    version: Option<u64>,
    /// Send the list even if the server could read it, for example through a tunnel to another machine
    #[arg(long)]
    stream: bool,
    #[command(flatten)]
    means: Means,
    #[command(flatten)]
    server: ServerArgs,
}

struct Loaded {
    by: &'static str,
    rows: u64,
    cards: u64,
    duplicates: u64,
}

impl Args {
    pub fn run(&self, console: Console) -> Result<Report, Failure> {
        let key = bytes(&self.table);
        let start = Instant::now();
        let list = List::new(&self.file)?;
        let mut server = self.server.connect()?;
        let name = if self.stream { None } else { name_in_load_dir(&mut server, &self.file)? };
        let Loaded { by, rows, cards, duplicates } = match name {
            Some(name) => self.load(&mut server, &key, &name, console)?,
            None => self.send(&mut server, &key, &list, console)?,
        };
        let seconds = start.elapsed().as_secs_f64();
        let name = shown(&key);
        let how = if by == "server" { "loaded by the server" } else { "built here and sent" };
        Ok(Report::fine(
            format!("{name}: {} cards, {} rows in {seconds:.1} s, {how}", HumanCount(cards), HumanCount(rows)),
            json!({
                "table": name, "file": self.file.to_string_lossy(), "by": by, "rows": rows, "cards": cards,
                "duplicates": duplicates, "version": self.version, "seconds": (seconds * 1000.0).round() / 1000.0,
            }),
        ))
    }

    /// Has the server load a file of its directory.
    fn load(&self, server: &mut Server, key: &[u8], name: &[u8], console: Console) -> Result<Loaded, Failure> {
        let mut load = redis::cmd("CARD.LOAD");
        load.arg(key).arg(name);
        if let Some(version) = self.version {
            load.arg("VERSION").arg(version);
        }
        let mut loading = server.another()?.patient()?;
        let mut for_cancelling = server.another()?;
        let cancel = redis::cmd("CARD.LOAD").arg(key).arg("CANCEL").to_owned();
        let _interruptible = Interruptible::new(move || {
            let _ = for_cancelling.ask::<()>(&cancel);
        });
        let bar = console.step(format_args!("loading {}", shown(name)), 100, Unit::Percent);
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || sender.send(loading.ask(&load)));
        let answer = loop {
            match receiver.recv_timeout(LOOK) {
                Ok(answer) => break answer,
                Err(RecvTimeoutError::Timeout) => show_progress(server, key, &bar)?,
                Err(RecvTimeoutError::Disconnected) => return Err(server.refused("no answer came")),
            }
        };
        let report: std::collections::HashMap<String, Value> = answer.map_err(|failure| self.blame(failure))?;
        let number = |field: &str| report.get(field).and_then(|value| redis::from_redis_value(value.clone()).ok());
        let loaded = || {
            let (rows, cards, duplicates) = (number("rows")?, number("added")?, number("duplicates")?);
            Some(Loaded { by: "server", rows, cards, duplicates })
        };
        loaded().ok_or_else(|| server.refused("its answer to CARD.LOAD is not understood"))
    }

    /// Whoever reads a file, one that is no good is a failure of the file.
    fn blame(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Refused { reason, .. }
                if reason.starts_with("ERR line ")
                    || reason.starts_with("ERR the file ")
                    || reason.starts_with("ERR cannot read") =>
            {
                Failure::file(&self.file, reason.trim_start_matches("ERR "))
            }
            other => other,
        }
    }

    /// Builds the table here and sends it.
    fn send(&self, server: &mut Server, key: &[u8], list: &List, console: Console) -> Result<Loaded, Failure> {
        let table = server.find_table(key)?;
        if table.as_ref().is_some_and(|table| table.loading.is_some()) {
            return Err(server.refused("a load of this table is running or waiting already"));
        }
        let schema = table.map_or_else(Schema::default, |table| table.schema);
        let built = list.build(&schema, self.means, console)?;
        if built.result.is_empty() {
            return Err(Failure::file(&self.file, "has no cards: a full load of nothing is refused"));
        }
        let cards = built.result.len();
        let bar = console.step(format_args!("sending {} cards", HumanCount(cards)), cards, Unit::Rows);
        let origin = Origin { version: self.version, source: list.name(), rows: built.rows };
        staging::replace(server, key, built.result, &origin, &bar)?;
        Ok(Loaded { by: "stream", rows: built.rows, cards, duplicates: built.duplicates })
    }
}

/// The file's path below the server's `card.load-dir`, if the server can read it there.
fn name_in_load_dir(server: &mut Server, file: &Path) -> Result<Option<Vec<u8>>, Failure> {
    if !server.is_local() {
        return Ok(None);
    }
    let get = redis::cmd("CONFIG").arg("GET").arg("dir").arg("card.load-dir").to_owned();
    let settings: Option<std::collections::HashMap<String, String>> = server.ask_if_allowed(&get)?;
    Ok(settings.and_then(|settings| {
        let load_dir = settings.get("card.load-dir").filter(|load_dir| !load_dir.is_empty())?;
        let directory = Path::new(settings.get("dir")?).join(load_dir).canonicalize().ok()?;
        let file = file.canonicalize().ok()?;
        let name = file.strip_prefix(directory).ok()?.as_os_str().as_encoded_bytes();
        SUFFIXES.iter().any(|suffix| name.ends_with(suffix)).then(|| name.to_vec())
    }))
}

/// `INFO` has a line `card_load_0:table=…,file=…,phase=…,percent=…,…` for each load.
fn show_progress(server: &mut Server, key: &[u8], bar: &ProgressBar) -> Result<(), Failure> {
    let Some(told) = server.ask_if_allowed::<String>(redis::cmd("INFO").arg("card"))? else { return Ok(()) };
    let ours = format!(":table={},file=", key.escape_ascii());
    let line = told.lines().find(|line| line.starts_with("card_load_") && line.contains(&ours));
    let percent = line.and_then(|line| line.split(',').find_map(|part| part.strip_prefix("percent=")?.parse().ok()));
    if let Some(percent) = percent {
        bar.set_position(percent);
    }
    Ok(())
}
