//! `CARD.SCAN`: all cards of a table, some at a time.
//!
//! The cursor is the last card that was returned, behind a colon. So it stays valid whatever happens to the table between
//! two calls, and every card that is there all the time is returned once.

use card_table::Id;

use crate::redis::call::Call;
use crate::redis::command::{Argument, ArgumentKind, Command, Docs, KEY, KeyUse};
use crate::redis::failure::Failure;
use crate::redis::key::Key;

/// How many cards are returned unless told otherwise, and at most.
const COUNT: u64 = 100;
const MAX_COUNT: u64 = 10_000;

/// The cursor that a scan begins and ends with.
const END: &[u8] = b"0";

pub struct Scan;

impl Command for Scan {
    const DOCS: Docs = Docs {
        name: "card.scan",
        summary: "Returns some cards with their values, and the cursor to go on with.",
        complexity: "O(log N + COUNT)",
        flags: "readonly",
        at_least: 2,
        variadic: true,
        keys: &[KeyUse::Read],
        arguments: &[
            KEY,
            Argument::new("cursor", ArgumentKind::Text),
            Argument::new("prefix", ArgumentKind::Text).after("PREFIX").optional(),
            Argument::new("count", ArgumentKind::Integer).after("COUNT").optional(),
        ],
    };

    fn run(call: &Call) -> Result<(), Failure> {
        let after = match call.argument(1).bytes() {
            END => None,
            [b':', id @ ..] => Some(Id::parse(id).map_err(|_| Failure::Other("invalid cursor"))?),
            _ => return Err(Failure::Other("invalid cursor")),
        };
        let (prefix, count) = options(call)?;
        let key = Key::read(call, call.argument(0));
        let Some(table) = key.get()? else {
            call.reply_array(2);
            call.reply_bytes(END);
            call.reply_array(0);
            return Ok(());
        };
        let table = table.table()?;
        let mut cards = table.scan(after.as_ref(), prefix);
        let some: Vec<_> = cards.by_ref().take(count).collect();
        call.reply_array(2);
        match some.last().filter(|_| cards.next().is_some()) {
            Some((last, _)) => call.reply_bytes(&[b":", last.to_bytes().as_slice()].concat()),
            None => call.reply_bytes(END),
        }
        call.reply_array(some.len());
        for (id, symbol) in some {
            call.reply_array(1 + table.schema().fields().len());
            call.reply_bytes(&id.to_bytes());
            table.schema().values(symbol).for_each(|value| call.reply_number(value));
        }
        Ok(())
    }
}

fn options<'a>(call: &Call<'a>) -> Result<(&'a [u8], usize), Failure> {
    const EXPECTED: Failure = Failure::Syntax("[PREFIX prefix] [COUNT 1..10000]");
    let (mut prefix, mut count) = (b"".as_slice(), COUNT);
    let options = call.arguments(2);
    for option in options.chunks(2) {
        match option {
            [word, value] if word.is("PREFIX") => prefix = value.bytes(),
            [word, value] if word.is("COUNT") => {
                count = value.number().filter(|count| (1..=MAX_COUNT).contains(count)).ok_or(EXPECTED)?;
            }
            _ => return Err(EXPECTED),
        }
    }
    Ok((prefix, count as usize))
}
