//! `cardctl diff`: what makes one list of another, as a list of changes.

use std::cmp::Ordering;
use std::path::{Path, PathBuf};

use card_table::{Field, Id, Schema, Table};
use indicatif::HumanCount;
use serde_json::json;

use crate::console::{Console, Report};
use crate::failure::Failure;
use crate::list::{Fields, List, Means};
use crate::output::{OutputArgs, Rows};

/// Write what makes one list of another, as a list of changes
///
/// Its column op says set for cards that are new or have other values, and del for those that are gone.
#[derive(Debug, clap::Args)]
pub struct Args {
    old: PathBuf,
    new: PathBuf,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    fields: Fields,
    #[command(flatten)]
    means: Means,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    added: u64,
    changed: u64,
    removed: u64,
    same: u64,
}

/// What becomes of a card: its new symbol, or nothing if it is removed.
type Change = (Id<'static>, Option<u128>);

impl Args {
    pub fn run(&self, console: Console) -> Result<Report, Failure> {
        let schema = self.fields.schema()?;
        if schema.fields().iter().any(|Field { name, .. }| name == "op") {
            return Err(Failure::usage("a table with a field op has no lists of changes: op is their column"));
        }
        let mut output = self.output.open(console)?;
        let old = self.table(&self.old, &schema, console)?;
        let new = self.table(&self.new, &schema, console)?;
        if new.is_empty() {
            return Err(Failure::file(&self.new, "has no cards: a list of changes that removes every card is refused"));
        }

        let mut rows = Rows::new(&schema);
        output.put((rows.header() + "\top\n").as_bytes())?;
        let mut counts = Counts::default();
        for (id, symbol) in changes(&old, &new, &mut counts) {
            let id = id.to_bytes();
            let (row, op) = match symbol {
                Some(symbol) => (rows.row(&id, symbol), b"\tset\n"),
                None => (rows.bare(&id), b"\tdel\n"),
            };
            row.extend_from_slice(op);
            output.put(row)?;
        }
        output.finish()?;

        let Counts { added, changed, removed, same } = counts;
        let [a, c, r, s] = [added, changed, removed, same].map(HumanCount);
        Ok(self.output.report(
            format!("{a} cards added, {c} changed, {r} removed; {s} stay as they are"),
            json!({ "added": added, "changed": changed, "removed": removed, "same": same }),
        ))
    }

    fn table(&self, path: &Path, schema: &Schema, console: Console) -> Result<Table, Failure> {
        Ok(List::new(path)?.build(schema, self.means, console)?.result)
    }
}

/// Merges two tables, whose cards come in the order of ids, and counts.
fn changes(old: &Table, new: &Table, counts: &mut Counts) -> impl Iterator<Item = Change> {
    let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
    std::iter::from_fn(move || {
        loop {
            let order = match (old.peek(), new.peek()) {
                (None, None) => return None,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((old, _)), Some((new, _))) => old.cmp(new),
            };
            match order {
                Ordering::Less => {
                    counts.removed += 1;
                    return old.next().map(|(id, _)| (id, None));
                }
                Ordering::Greater => {
                    counts.added += 1;
                    return new.next().map(|(id, symbol)| (id, Some(symbol)));
                }
                Ordering::Equal => {
                    let before = old.next().map(|(_, symbol)| symbol);
                    let (id, symbol) = new.next()?;
                    if before != Some(symbol) {
                        counts.changed += 1;
                        return Some((id, Some(symbol)));
                    }
                    counts.same += 1;
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(cards: &[(&str, u128)]) -> Table {
        let mut table = Table::new(Schema::default());
        for (id, symbol) in cards {
            table.insert(&Id::parse(id.as_bytes()).unwrap(), *symbol);
        }
        table
    }

    #[test]
    fn cards_of_every_class_are_merged_in_one_order() {
        let old = table(&[("7", 0), ("007", 1), ("beef", 2), ("BEEF", 3), ("a cookie", 4), ("zz", 5)]);
        let new = table(&[("7", 0), ("008", 1), ("beef", 9), ("BEEE", 3), ("another", 4), ("zz", 6)]);
        let mut counts = Counts::default();
        let found: Vec<_> = changes(&old, &new, &mut counts)
            .map(|(id, symbol)| (String::from_utf8(id.to_bytes()).unwrap(), symbol))
            .collect();
        let expected = [
            ("007", None),
            ("008", Some(1)),
            ("beef", Some(9)),
            ("BEEE", Some(3)),
            ("BEEF", None),
            ("a cookie", None),
            ("another", Some(4)),
            ("zz", Some(6)),
        ];
        assert_eq!(found, expected.map(|(id, symbol)| (id.to_owned(), symbol)));
        assert_eq!(counts, Counts { added: 3, changed: 2, removed: 3, same: 1 });
    }
}
