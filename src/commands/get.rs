//! `CARD.GET`, `CARD.MGET` and `CARD.LEN`.

use card_table::{Id, Schema};

use crate::metrics;
use crate::redis::call::Call;
use crate::redis::command::{Command, Docs, ID, KEY, KeyUse};
use crate::redis::failure::Failure;
use crate::redis::key::Key;

pub struct Get;
pub struct MultiGet;
pub struct Len;

impl Command for Get {
    const DOCS: Docs = Docs {
        name: "card.get",
        summary: "Returns the values of a card, or nil if it is not in the table.",
        complexity: "O(log N)",
        flags: "readonly fast",
        at_least: 2,
        variadic: false,
        keys: &[KeyUse::Read],
        arguments: &[KEY, ID],
    };

    fn run(call: &Call) -> Result<(), Failure> {
        let id = Id::parse(call.argument(1).bytes())?;
        let key = Key::read(call, call.argument(0));
        let Some(table) = key.get()? else {
            metrics::MISSES.add(1);
            call.reply_null();
            return Ok(());
        };
        let table = table.table()?;
        reply_card(call, table.schema(), table.get(&id));
        Ok(())
    }
}

impl Command for MultiGet {
    const DOCS: Docs = Docs {
        name: "card.mget",
        summary: "Returns the values of cards, nil for each that is not in the table.",
        complexity: "O(M log N) for M cards",
        flags: "readonly fast",
        at_least: 2,
        variadic: true,
        keys: &[KeyUse::Read],
        arguments: &[KEY, ID.multiple()],
    };

    fn run(call: &Call) -> Result<(), Failure> {
        let ids = super::ids(call)?;
        let key = Key::read(call, call.argument(0));
        let Some(table) = key.get()? else {
            metrics::MISSES.add(ids.len() as u64);
            call.reply_array(ids.len());
            ids.iter().for_each(|_| call.reply_null());
            return Ok(());
        };
        let table = table.table()?;
        call.reply_array(ids.len());
        table.get_many(&ids).into_iter().for_each(|symbol| reply_card(call, table.schema(), symbol));
        Ok(())
    }
}

#[inline]
fn reply_card(call: &Call, schema: &Schema, symbol: Option<u128>) {
    match symbol {
        Some(symbol) => {
            metrics::HITS.add(1);
            call.reply_array(schema.fields().len());
            schema.values(symbol).for_each(|value| call.reply_number(value));
        }
        None => {
            metrics::MISSES.add(1);
            call.reply_null();
        }
    }
}

impl Command for Len {
    const DOCS: Docs = Docs {
        name: "card.len",
        summary: "Returns the number of cards in a table, 0 if there is none.",
        complexity: "O(1)",
        flags: "readonly fast",
        at_least: 1,
        variadic: false,
        keys: &[KeyUse::Look],
        arguments: &[KEY],
    };

    fn run(call: &Call) -> Result<(), Failure> {
        let key = Key::read(call, call.argument(0));
        let len = match key.get()? {
            Some(table) => table.table()?.len(),
            None => 0,
        };
        call.reply_number(len.into());
        Ok(())
    }
}
