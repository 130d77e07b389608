//! `CARD.QUERY`: an HTTP query about a card, answered as JSON. What is asked and answered is in [`crate::paramquery`].

use crate::paramquery::{self, List, Outcome};
use crate::redis::call::Call;
use crate::redis::command::{Argument, ArgumentKind, Command, Docs, KEY, KeyUse};
use crate::redis::failure::Failure;
use crate::redis::key::Key;
use crate::{config, metrics};

pub struct Query;

impl Command for Query {
    const DOCS: Docs = Docs {
        name: "card.query",
        summary: "Answers a raw HTTP query string, such as cardid=…&cardnet=…&cmdtype=blacklistquery, with JSON.",
        complexity: "O(log N)",
        flags: "readonly fast",
        at_least: 2,
        variadic: false,
        keys: &[KeyUse::Read],
        arguments: &[KEY, Argument::new("query", ArgumentKind::Text)],
    };

    fn run(call: &Call) -> Result<(), Failure> {
        let key = Key::read(call, call.argument(0));
        let list = match key.get()? {
            None => List::Missing,
            Some(table) => match table.ready() {
                None => List::NotReady,
                Some((table, since)) => List::Ready { table, darkver: config::darkver(since) },
            },
        };
        let (outcome, json) = paramquery::answer(call.argument(1).bytes(), &list);
        match outcome {
            Outcome::Listed => metrics::HITS.add(1),
            Outcome::NotListed => metrics::MISSES.add(1),
            Outcome::Failed => metrics::ERRORS.add(1),
        }
        call.reply_bytes(&json);
        Ok(())
    }
}
