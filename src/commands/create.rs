//! `CARD.CREATE`: an empty table with a schema of one's own.

use card_table::{Field, Schema};

use crate::cardtable::CardTable;
use crate::redis::call::Call;
use crate::redis::command::{Argument, ArgumentKind, Command, Docs, KEY, KeyUse};
use crate::redis::failure::Failure;
use crate::redis::key::Key;

pub struct Create;

impl Command for Create {
    const DOCS: Docs = Docs {
        name: "card.create",
        summary: "Creates an empty table. Its fields are type 0..10 and status 1..2 unless others are given.",
        complexity: "O(1)",
        flags: "write deny-oom fast",
        at_least: 1,
        variadic: true,
        keys: &[KeyUse::Insert],
        arguments: &[
            KEY,
            Argument::new(
                "field",
                ArgumentKind::Block(&[
                    Argument::new("name", ArgumentKind::Text).after("FIELD"),
                    Argument::new("min", ArgumentKind::Integer),
                    Argument::new("max", ArgumentKind::Integer),
                ]),
            )
            .optional()
            .multiple(),
        ],
    };

    fn run(call: &Call) -> Result<(), Failure> {
        let schema = schema(call)?;
        let name = call.argument(0);
        let mut key = Key::write(call, name);
        if key.get()?.is_some() {
            return Err(Failure::Other("the table exists already"));
        }
        key.set(CardTable::create(schema));
        call.changed(name, c"card.create");
        call.replicate();
        call.reply_ok();
        Ok(())
    }
}

fn schema(call: &Call) -> Result<Schema, Failure> {
    const EXPECTED: Failure = Failure::Syntax("FIELD name min max, where min and max are numbers up to 2^128 - 1");
    let arguments = call.arguments(1);
    if arguments.is_empty() {
        return Ok(Schema::default());
    }
    let number = |bytes: &[u8]| str::from_utf8(bytes).ok().filter(|text| !text.starts_with('+'))?.parse().ok();
    let fields = arguments.chunks(4).map(|field| match field {
        [word, name, min, max] if word.is("FIELD") => {
            let bounds = number(min.bytes()).zip(number(max.bytes()));
            let (min, max) = bounds.ok_or(EXPECTED)?;
            Ok(Field::new(String::from_utf8_lossy(name.bytes()), min, max))
        }
        _ => Err(EXPECTED),
    });
    Ok(Schema::new(fields.collect::<Result<_, _>>()?)?)
}
