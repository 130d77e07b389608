//! What a part of the benchmark has found, in a file for the report of all parts.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::report::Target;

#[derive(Serialize, Deserialize)]
pub struct Outcome {
    /// Which part: `table`, `server`, `load` or `http`.
    pub part: String,
    pub rows: u64,
    /// On what was measured.
    pub machine: String,
    /// Tables, as Markdown.
    pub text: String,
    pub targets: Vec<Target>,
    /// By what they are of: `bytes, redis-card`.
    pub figures: BTreeMap<String, f64>,
    /// For plots.
    pub series: Vec<Series>,
}

/// Figures over something.
#[derive(Serialize, Deserialize)]
pub struct Series {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

impl Outcome {
    /// Writes it into a folder, in the place of one of the same part with as many rows.
    pub fn write(&self, folder: &Path) -> Result<(), Box<dyn Error>> {
        fs::create_dir_all(folder)?;
        let path = folder.join(format!("{}-{}.json", self.part, self.rows));
        Ok(fs::write(path, serde_json::to_string_pretty(self)? + "\n")?)
    }

    pub fn read(path: &Path) -> Result<Outcome, Box<dyn Error>> {
        Ok(serde_json::from_str(&fs::read_to_string(path)?)?)
    }
}
