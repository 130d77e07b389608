//! What a part of the benchmark has found, in a file for the report of all parts.

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
    pub fn write(&self, path: &Path) -> Result<(), Box<dyn Error>> {
        Ok(fs::write(path, serde_json::to_string_pretty(self)?)?)
    }

    pub fn read(path: &Path) -> Result<Outcome, Box<dyn Error>> {
        Ok(serde_json::from_str(&fs::read_to_string(path)?)?)
    }
}
