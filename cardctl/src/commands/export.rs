//! `cardctl export`: a table as a list.

use std::ffi::OsString;

use card_table::Id;
use indicatif::HumanCount;
use redis::Value;
use serde_json::json;

use crate::console::{Console, Report, Unit, shown};
use crate::failure::Failure;
use crate::output::{OutputArgs, Rows};
use crate::server::{ServerArgs, bytes};

/// The most that `CARD.SCAN` returns.
const CARDS_AT_A_TIME: usize = 10_000;

/// Write a table as a list
///
/// Exits with 1 if the table changed meanwhile: what was written may be half of one list and half of the next. A file is then not kept.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The key of the table
    table: OsString,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    server: ServerArgs,
}

impl Args {
    pub fn run(&self, console: Console) -> Result<Report, Failure> {
        let key = bytes(&self.table);
        let mut server = self.server.connect()?;
        let table = server.ready_table(&key)?;
        let mut output = self.output.open(console)?;
        let mut rows = Rows::new(&table.schema);
        output.put((rows.header() + "\n").as_bytes())?;
        let bar = match self.output.output {
            Some(_) => console.step("exporting", table.records, Unit::Rows),
            None => indicatif::ProgressBar::hidden(),
        };

        let (mut cursor, mut written) = (b"0".to_vec(), 0);
        loop {
            let scan = redis::cmd("CARD.SCAN").arg(&key).arg(&cursor).arg("COUNT").arg(CARDS_AT_A_TIME).to_owned();
            let (next, cards): (Vec<u8>, Vec<Vec<Value>>) = server.ask(&scan)?;
            for card in &cards {
                let not_understood = || server.refused("a card of CARD.SCAN is not understood");
                let (Value::BulkString(id), values) = card.split_first().ok_or_else(not_understood)? else {
                    return Err(not_understood());
                };
                if id.contains(&b'\t') || id.contains(&b'\n') {
                    let reason =
                        format!("the id '{}' has a tab or a line end, and cannot stand in a list", id.escape_ascii());
                    return Err(server.refused(reason));
                }
                let symbol = table.symbol(values.to_vec()).ok_or_else(not_understood)?;
                let row = rows.row(&Id::parse(id).map_err(|_| not_understood())?, symbol);
                row.push(b'\n');
                output.put(row)?;
            }
            written += cards.len() as u64;
            bar.inc(cards.len() as u64);
            if next == b"0" {
                break;
            }
            cursor = next;
        }

        let name = shown(&key);
        let unchanged =
            written == table.records && server.find_table(&key)?.is_some_and(|after| after.digest == table.digest);
        if !unchanged {
            let json = json!({ "table": name, "rows": written, "changed": true });
            return Ok(Report { text: format!("{name} changed while it was exported: try again"), json, fine: false });
        }
        output.finish()?;
        let Some(path) = &self.output.output else { return Ok(Report::fine(String::new(), json!({}))) };
        Ok(Report::fine(
            format!("{}: {} cards of {name}", path.display(), HumanCount(written)),
            json!({ "table": name, "file": path.to_string_lossy(), "rows": written, "changed": false, "digest": table.digest }),
        ))
    }
}
