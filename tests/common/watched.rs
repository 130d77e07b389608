//! A watched directory that outlives servers, and what is told of the tables that come from it.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use redis::{Connection, Value};
use tempfile::TempDir;

use super::{ask, try_ask};

/// A directory that outlives servers, and arguments to watch it every second.
pub struct Watched(pub TempDir);

impl Watched {
    pub fn new() -> Watched {
        Watched(TempDir::new().expect("a temporary directory"))
    }

    pub fn arguments(&self) -> [&str; 4] {
        ["--card.load-dir", self.0.path().to_str().expect("a path of UTF-8"), "--card.watch-interval", "1"]
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Drops a file as one should: under another name first.
    pub fn drop(&self, name: &str, content: impl AsRef<[u8]>) {
        let unfinished = self.path(&format!("{name}.tmp"));
        fs::write(&unfinished, content).expect("a file");
        fs::rename(unfinished, self.path(name)).expect("a name");
    }

    pub fn names(&self, folder: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.0.path().join(folder)) else { return Vec::new() };
        let names = entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"));
        let mut names: Vec<_> = names.filter(|name| Path::new(name).extension().is_some()).collect();
        names.sort();
        names
    }
}

pub fn type_of(db: &mut Connection, table: &str, card: &str) -> Option<u64> {
    ask::<Option<Vec<u64>>, _>(db, ["CARD.GET", table, card]).map(|values| values[0])
}

/// The version of a table; none if there is no table.
pub fn version(db: &mut Connection, table: &str) -> Option<u64> {
    let info: HashMap<String, Value> = try_ask(db, ["CARD.INFO", table]).ok()?;
    let Value::Int(version) = info["version"] else { return None };
    Some(version as u64)
}

pub fn figure(db: &mut Connection, name: &str) -> u64 {
    let info: String = ask(db, ["INFO", "card"]);
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|number| number.trim().parse().ok()).expect("a number")
}
