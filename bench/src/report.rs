//! How figures are shown: tables that are both aligned text and Markdown, targets, and the machine.

use std::fmt::{self, Display};
use std::process::Command;
use std::thread::available_parallelism;

use serde::{Deserialize, Serialize};

use crate::measure::{bytes_of, field_of};

pub struct Grid {
    pub title: &'static str,
    pub head: &'static [&'static str],
    pub rows: Vec<Vec<String>>,
    /// What a reader has to know to read it.
    pub note: &'static str,
}

impl Display for Grid {
    /// The first column is aligned to the left, all others to the right.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].as_str());
            let widths = cells.chain([self.head[column]]).map(|cell| cell.chars().count());
            widths.max().unwrap_or(0).max(2)
        };
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        let mut line = |cells: &mut dyn Iterator<Item = &str>| {
            for (column, (cell, &width)) in cells.zip(&widths).enumerate() {
                match column {
                    0 => write!(f, "| {cell:<width$} |")?,
                    _ => write!(f, " {cell:>width$} |")?,
                }
            }
            writeln!(f)
        };
        line(&mut self.head.iter().copied())?;
        let rules: Vec<String> = widths
            .iter()
            .enumerate()
            .map(|(column, width)| match column {
                0 => "-".repeat(*width),
                _ => "-".repeat(width - 1) + ":",
            })
            .collect();
        line(&mut rules.iter().map(String::as_str))?;
        self.rows.iter().try_for_each(|row| line(&mut row.iter().map(String::as_str)))
    }
}

/// What a figure should be.
#[derive(Serialize, Deserialize)]
pub struct Target {
    pub what: String,
    pub measured: f64,
    pub at_most: f64,
}

impl Target {
    pub const HEAD: [&str; 4] = ["target", "measured", "wanted", ""];

    pub fn met(&self) -> bool {
        self.measured <= self.at_most
    }

    pub fn verdict(&self) -> &'static str {
        if self.met() { "met" } else { "NOT MET" }
    }

    fn shown(&self) -> String {
        // What must be zero is a count.
        if self.at_most == 0.0 { self.measured.to_string() } else { fixed(self.measured) }
    }

    pub fn wanted(&self) -> String {
        format!("≤ {}", (self.at_most * 1e3).round() / 1e3)
    }

    /// All targets of a part.
    pub fn grid(targets: &[Target]) -> Grid {
        Grid {
            title: "Targets",
            head: &Target::HEAD,
            rows: targets.iter().map(Target::cells).collect(),
            note: "Ratios of times and of bytes: what is smaller is better.",
        }
    }

    pub fn cells(&self) -> Vec<String> {
        vec![self.what.clone(), self.shown(), self.wanted(), self.verdict().into()]
    }
}

/// All there is to say, as Markdown; a table without rows is left out.
pub fn document(grids: &[Grid]) -> String {
    let sections = grids.iter().filter(|grid| !grid.rows.is_empty()).map(|grid| {
        let note = if grid.note.is_empty() { String::new() } else { format!("{}\n\n", grid.note) };
        format!("### {}\n\n{note}{grid}", grid.title)
    });
    sections.collect::<Vec<_>>().join("\n")
}

/// On what was measured.
pub fn machine() -> String {
    let unknown = |_: std::io::Error| "unknown".to_owned();
    let said = |command: &str, argument: &str| {
        let output = Command::new(command).arg(argument).output();
        output.map_or_else(unknown, |output| String::from_utf8_lossy(&output.stdout).trim().into())
    };
    format!(
        "{}, {} cores, {} MiB of memory; Linux {}; {}; jemalloc {}",
        field_of("/proc/cpuinfo", "model name").unwrap_or_else(unknown),
        available_parallelism().map_or(0, usize::from),
        bytes_of("/proc/meminfo", "MemTotal").map_or_else(unknown, |bytes| mebibytes(bytes as f64)),
        said("uname", "-r"),
        said("rustc", "--version"),
        tikv_jemalloc_ctl::version::read().map_or("unknown", |version| version.trim_end_matches('\0')),
    )
}

pub fn fixed(figure: f64) -> String {
    format!("{figure:.3}")
}

pub fn millions(figure: f64) -> String {
    format!("{:.2}", figure / 1e6)
}

pub fn mebibytes(bytes: f64) -> String {
    format!("{:.1}", bytes / f64::from(1 << 20))
}

/// A number with commas between thousands.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev();
    let groups: Vec<_> = groups.map(String::from_utf8_lossy).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_is_aligned_markdown() {
        let row = |cells: [&str; 2]| cells.map(String::from).to_vec();
        let grid =
            Grid {
                title: "", head: &["set", "≤"], rows: vec![row(["net", "1.02"]), row(["uniform", "7"])], note: ""
            };
        let expected = "\
| set     |    ≤ |
| ------- | ---: |
| net     | 1.02 |
| uniform |    7 |
";
        assert_eq!(grid.to_string(), expected);
    }

    #[test]
    fn thousands_are_grouped() {
        let shown = [0, 999, 1000, 1_234_567].map(grouped);
        assert_eq!(shown, ["0", "999", "1,000", "1,234,567"]);
    }
}
