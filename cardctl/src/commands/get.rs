//! `cardctl get`: cards of a table.

use std::ffi::OsString;

use redis::Value;
use serde_json::{Map, json};

use crate::console::{Report, shown, tell};
use crate::failure::Failure;
use crate::output::Rows;
use crate::server::{ServerArgs, bytes};

/// Print cards of a table, as rows of a list
///
/// Exits with 1 if one of them is not on the list. A table that is missing or not ready is an error.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The key of the table
    table: OsString,
    #[arg(required = true, value_name = "ID")]
    ids: Vec<OsString>,
    #[command(flatten)]
    server: ServerArgs,
}

impl Args {
    pub fn run(&self) -> Result<Report, Failure> {
        let key = bytes(&self.table);
        let mut server = self.server.connect()?;
        let table = server.ready_table(&key)?;
        let ids: Vec<Vec<u8>> = self.ids.iter().map(bytes).collect();
        let answers: Vec<Option<Vec<Value>>> = server.ask(redis::cmd("CARD.MGET").arg(&key).arg(&ids))?;

        let mut rows = Rows::new(&table.schema);
        let (mut text, mut cards, mut absent) = (rows.header(), Vec::new(), Vec::new());
        for (id, values) in ids.iter().zip(answers) {
            let Some(values) = values else {
                absent.push(id);
                continue;
            };
            let symbol =
                table.symbol(values).ok_or_else(|| server.refused("the values of a card are not understood"))?;
            text.push('\n');
            text.push_str(&row_shown(rows.row(id, symbol)));
            let mut card = Map::from_iter([("id".into(), String::from_utf8_lossy(id).into())]);
            for (field, value) in table.schema.fields().iter().zip(table.schema.values(symbol)) {
                // What a number of JSON does not hold is told as text.
                let value = u64::try_from(value).map_or_else(|_| value.to_string().into(), Into::into);
                card.insert(field.name.clone(), value);
            }
            cards.push(card);
        }
        for id in &absent {
            tell(format_args!("{} is not on the list", shown(id)));
        }
        let absent: Vec<_> = absent.iter().map(|id| String::from_utf8_lossy(id)).collect();
        let text = if cards.is_empty() { String::new() } else { text };
        Ok(Report { text, json: json!({ "cards": cards, "absent": absent }), fine: absent.is_empty() })
    }
}

/// A row whose id does no harm to a terminal; its tabs stay.
fn row_shown(row: &[u8]) -> String {
    row.split(|&byte| byte == b'\t').map(shown).collect::<Vec<_>>().join("\t")
}
