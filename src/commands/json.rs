//! `CARD.JSON`: cards as JSON, named as the schema names its fields.

use card_table::{Id, Schema};
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::metrics;
use crate::redis::call::Call;
use crate::redis::command::{Command, Docs, ID, KEY, KeyUse};
use crate::redis::failure::Failure;
use crate::redis::key::Key;

pub struct Json;

impl Command for Json {
    const DOCS: Docs = Docs {
        name: "card.json",
        summary: "Returns cards as one JSON array, null for each that is not in the table. Fails if there is no ready table.",
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
        let table = key.get()?.ok_or(Failure::Other("no such table"))?;
        let (table, _) = table.ready().ok_or(Failure::Other("the table is not ready: nothing has been loaded yet"))?;
        let symbols = table.get_many(&ids);
        let found = symbols.iter().flatten().count() as u64;
        metrics::HITS.add(found);
        metrics::MISSES.add(ids.len() as u64 - found);
        let cards = ids.iter().zip(symbols);
        let cards = cards.map(|(id, symbol)| symbol.map(|symbol| Card::new(table.schema(), id, symbol)).transpose());
        let cards: Vec<_> = cards.collect::<Result<_, _>>()?;
        call.reply_bytes(&serde_json::to_vec(&cards).expect("cards can always be written as JSON"));
        Ok(())
    }
}

/// `{"id":"…","type":7,"status":1}`
struct Card<'a> {
    id: String,
    schema: &'a Schema,
    symbol: u128,
}

impl<'a> Card<'a> {
    fn new(schema: &'a Schema, id: &Id, symbol: u128) -> Result<Card<'a>, Failure> {
        let id = String::from_utf8(id.to_bytes());
        let id = id.map_err(|_| Failure::Other("JSON has no way to tell a card id that is not UTF-8"))?;
        Ok(Card { id, schema, symbol })
    }
}

impl Serialize for Card<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1 + self.schema.fields().len()))?;
        map.serialize_entry("id", &self.id)?;
        for (field, value) in self.schema.fields().iter().zip(self.schema.unpack(self.symbol)) {
            // As text where most readers of JSON would lose digits.
            if value < 1 << 53 {
                map.serialize_entry(&field.name, &(value as u64))?;
            } else {
                map.serialize_entry(&field.name, &value.to_string())?;
            }
        }
        map.end()
    }
}
