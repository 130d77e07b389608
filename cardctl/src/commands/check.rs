//! `cardctl check`: what is wrong with a list, before it is delivered.

use std::fmt::Write;
use std::path::PathBuf;

use card_table::tsv::Problem;
use card_table::{BuildError, Built, Table, build};
use indicatif::HumanCount;
use serde_json::json;

use crate::console::{Console, Report};
use crate::failure::Failure;
use crate::list::{Fields, List, Means};

/// Tell what is wrong with a list, before it is delivered
///
/// Exits with 1 if a row is bad, or if there is no card at all: a load would refuse it. That a card comes twice is told, but
/// no problem: the last row counts.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A list, or a list of changes with a column op; .gz and .zst are unpacked
    file: PathBuf,
    #[command(flatten)]
    fields: Fields,
    /// How many problems are shown
    #[arg(long, value_name = "COUNT", default_value_t = build::TOLD_PROBLEMS)]
    problems: usize,
    #[command(flatten)]
    means: Means,
}

impl Args {
    pub fn run(&self, console: Console) -> Result<Report, Failure> {
        let schema = self.fields.schema()?;
        let list = List::new(&self.file)?;
        let built = list.build_from_good_rows(&schema, self.means, self.problems, console);
        list.check_unchanged()?;
        match built {
            Ok(built) => Ok(self.report(&built)),
            // A header that is bad: nothing behind it can be read.
            Err(BuildError::Problems(problems, _)) => {
                Ok(self.report(&Built { result: Table::new(schema), rows: 0, duplicates: 0, bad_rows: 0, problems }))
            }
            Err(error) => Err(Failure::file(&self.file, error)),
        }
    }

    fn report(&self, built: &Built<Table>) -> Report {
        let Built { result: table, rows, duplicates, bad_rows, problems } = built;
        let bad_header = *bad_rows == 0 && !problems.is_empty();
        // A list of changes may do nothing but remove.
        let empty = *rows == 0 && *bad_rows == 0 && !bad_header;
        let fine = *bad_rows == 0 && !bad_header && !empty;

        let mut text = format!(
            "{}: {} rows, {} cards, {} rows that a later one overrides, {} bad rows",
            self.file.display(),
            HumanCount(*rows),
            HumanCount(table.len()),
            HumanCount(*duplicates),
            HumanCount(*bad_rows)
        );
        for class in table.classes() {
            // Writing to a string does not fail.
            let _ = write!(text, "\n  {}: {}", class.class, HumanCount(class.records));
        }
        if empty {
            text.push_str("\nthere is no row");
        }
        for problem in problems {
            let _ = write!(text, "\n{problem}");
        }
        let more = bad_rows.saturating_sub(problems.len() as u64);
        if more > 0 {
            let _ = write!(text, "\nand {} more", HumanCount(more));
        }
        let classes: serde_json::Map<_, _> =
            table.classes().map(|class| (class.class.to_string(), class.records.into())).collect();
        let json = json!({
            "file": self.file.to_string_lossy(),
            "fine": fine,
            "rows": rows,
            "cards": table.len(),
            "duplicates": duplicates,
            "bad_rows": bad_rows,
            "classes": classes,
            "digest": format!("{:032x}", table.digest()),
            "problems": problems.iter().map(problem_json).collect::<Vec<_>>(),
        });
        Report { text, json, fine }
    }
}

fn problem_json(problem: &Problem) -> serde_json::Value {
    json!({ "line": problem.line, "column": problem.column, "found": problem.found, "expected": problem.expected })
}
