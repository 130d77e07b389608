//! `CARD.DEL`: removes cards.

use crate::redis::call::Call;
use crate::redis::command::{Command, Docs, ID, KEY, KeyUse};
use crate::redis::failure::Failure;
use crate::redis::key::Key;

pub struct Del;

impl Command for Del {
    const DOCS: Docs = Docs {
        name: "card.del",
        summary: "Removes cards and returns how many there were. A table that has become empty stays.",
        complexity: "O(M log N), and the work of writing one block of about 4 KB for each of the M cards",
        flags: "write fast",
        at_least: 2,
        variadic: true,
        keys: &[KeyUse::Remove],
        arguments: &[KEY, ID.multiple()],
    };

    fn run(call: &Call) -> Result<(), Failure> {
        let ids = super::ids(call)?;
        let name = call.argument(0);
        let mut key = Key::write(call, name);
        let mut removed = 0;
        if let Some(table) = key.get_mut()?
            && !table.table()?.is_empty()
        {
            removed = table.write(|table| ids.iter().filter(|id| table.remove(id).is_some()).count())?;
        }
        if removed > 0 {
            call.changed(name, c"card.del");
            call.replicate();
        }
        call.reply_integer(removed as i64);
        Ok(())
    }
}
