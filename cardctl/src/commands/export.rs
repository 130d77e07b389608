//! `cardctl export`: a table as a list.

use std::ffi::OsString;

use indicatif::{HumanCount, ProgressBar};
use redis::Value;
use serde_json::json;

use crate::console::{Console, Report, shown};
use crate::failure::Failure;
use crate::output::{Output, OutputArgs, Rows};
use crate::server::{Server, ServerArgs, Table, bytes};

/// The most that `CARD.SCAN` returns.
const CARDS_AT_A_TIME: usize = 10_000;

/// Write a table as a list
///
/// Exits with 1 if the table changed meanwhile: what was written may be half of one list and half of the next. A file is not
/// kept then.
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
        let bar = self.output.step(table.records, console);
        let written = write(&mut server, &key, &table, &mut output, &bar)?;

        let after = server.find_table(&key)?.map(|table| table.digest);
        if written != table.records || after.as_ref() != Some(&table.digest) {
            return Err(Failure::Changed(shown(&key)));
        }
        output.finish()?;
        Ok(self.output.report(
            format!("{} cards of {}", HumanCount(written), shown(&key)),
            json!({ "table": String::from_utf8_lossy(&key), "rows": written, "digest": table.digest }),
        ))
    }
}

/// Writes all cards, and tells how many.
fn write(
    server: &mut Server,
    key: &[u8],
    table: &Table,
    output: &mut Output,
    bar: &ProgressBar,
) -> Result<u64, Failure> {
    let mut rows = Rows::new(&table.schema);
    output.put((rows.header() + "\n").as_bytes())?;
    let (mut cursor, mut written) = (b"0".to_vec(), 0);
    loop {
        let scan = redis::cmd("CARD.SCAN").arg(key).arg(&cursor).arg("COUNT").arg(CARDS_AT_A_TIME).to_owned();
        let (next, cards): (Vec<u8>, Vec<Vec<Value>>) = server.ask(&scan)?;
        written += cards.len() as u64;
        bar.inc(cards.len() as u64);
        for card in cards {
            let (id, symbol) = read(card, table).ok_or_else(|| server.refused("a card is not understood"))?;
            if id.contains(&b'\t') || id.contains(&b'\n') {
                let id = id.escape_ascii();
                return Err(server.refused(format!("the id '{id}' has a tab or a line end: no list can hold it")));
            }
            let row = rows.row(&id, symbol);
            row.push(b'\n');
            output.put(row)?;
        }
        if next == b"0" {
            return Ok(written);
        }
        cursor = next;
    }
}

/// A card as the server sends it: its id, then its values.
fn read(mut card: Vec<Value>, table: &Table) -> Option<(Vec<u8>, u128)> {
    let values = card.split_off(1.min(card.len()));
    match card.pop()? {
        Value::BulkString(id) => Some((id, table.symbol(values)?)),
        _ => None,
    }
}
