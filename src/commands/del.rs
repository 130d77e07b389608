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
        let (mut removed, mut is_to_be_told) = (0, false);
        // One that was only created has no cards, and does not become ready by not losing any.
        if let Some(table) = key.get_mut()?
            && (!table.table()?.is_empty() || table.ready().is_some())
        {
            (removed, is_to_be_told) = table.write(|writer| {
                let removed = ids.iter().filter(|id| writer.remove(id).is_some()).count();
                (removed, writer.changed)
            })?;
        }
        if removed > 0 {
            call.changed(name, c"card.del");
        }
        if is_to_be_told {
            call.replicate();
        }
        call.reply_integer(removed as i64);
        Ok(())
    }
}
