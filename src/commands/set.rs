//! `CARD.SET` and `CARD.MSET`: adds cards or changes their values.

use card_table::schema::MAX_FIELDS;
use card_table::{Id, Inserted, Schema};

use crate::cardtable::{CardTable, Writer};
use crate::redis::call::{Call, Text};
use crate::redis::command::{Argument, ArgumentKind, Command, Docs, ID, KEY, KeyUse};
use crate::redis::failure::Failure;
use crate::redis::key::Key;

pub struct Set;
pub struct MultiSet;

const VALUE: Argument = Argument::new("value", ArgumentKind::Text).multiple();

impl Command for Set {
    const DOCS: Docs = Docs {
        name: "card.set",
        summary: "Adds a card or changes its values, one for each field of the table. Creates the table if there is none.",
        complexity: "O(log N), and the work of writing one block of about 4 KB",
        flags: "write deny-oom fast",
        at_least: 3,
        variadic: true,
        keys: &[KeyUse::Update],
        arguments: &[KEY, ID, VALUE],
    };

    fn run(call: &Call) -> Result<(), Failure> {
        set(call, |schema, arguments| match arguments {
            [id, values @ ..] if values.len() == schema.fields().len() => Ok(vec![record(schema, *id, values)?]),
            [_, values @ ..] => Err(wrong_count(schema, values.len())),
            [] => Err(Failure::Arity),
        })
    }
}

impl Command for MultiSet {
    const DOCS: Docs = Docs {
        name: "card.mset",
        summary: "Adds cards or changes their values: all of them, or none if one is wrong.",
        complexity: "O(M log N), and the work of writing one block of about 4 KB for each of the M cards",
        flags: "write deny-oom",
        at_least: 3,
        variadic: true,
        keys: &[KeyUse::Update],
        arguments: &[KEY, Argument::new("card", ArgumentKind::Block(&[ID, VALUE])).multiple()],
    };

    fn run(call: &Call) -> Result<(), Failure> {
        set(call, |schema, arguments| {
            let records = arguments.chunks(1 + schema.fields().len());
            records
                .map(|record_arguments| match record_arguments {
                    [id, values @ ..] if values.len() == schema.fields().len() => record(schema, *id, values),
                    _ => Err(wrong_count(schema, record_arguments.len() - 1)),
                })
                .collect()
        })
    }
}

type Record<'a> = (Id<'a>, u128);

fn record<'a>(schema: &Schema, id: Text<'a>, values: &[Text]) -> Result<Record<'a>, Failure> {
    let id = Id::parse(id.bytes())?;
    let mut parsed = [0; MAX_FIELDS];
    for ((field, value), parsed) in schema.fields().iter().zip(values).zip(&mut parsed) {
        *parsed = field.parse(value.bytes())?;
    }
    Ok((id, schema.pack(&parsed[..values.len()])?))
}

fn wrong_count(schema: &Schema, found: usize) -> Failure {
    card_table::ValueError::Count { expected: schema.fields().len(), found }.into()
}

/// Reads all records before it changes anything.
fn set<'a>(
    call: &Call<'a>,
    records: impl Fn(&Schema, &[Text<'a>]) -> Result<Vec<Record<'a>>, Failure>,
) -> Result<(), Failure> {
    let name = call.argument(0);
    let arguments = call.arguments(1);
    let mut key = Key::write(call, name);
    let (mut new, mut changed) = (0u64, 0u64);
    let mut insert = |writer: &mut Writer, records: &[Record]| {
        for (id, symbol) in records {
            match writer.insert(id, *symbol) {
                Inserted::New => new += 1,
                Inserted::Replaced(old) => changed += u64::from(old != *symbol),
            }
        }
        writer.changed
    };
    if key.get()?.is_none() {
        // Records that fit the default schema are looked for before a table is made for them.
        records(&Schema::default(), arguments)?;
        key.set(CardTable::create(Schema::default()));
    }
    let table = key.get_mut()?.expect("there is one now");
    let is_first = table.ready().is_none();
    let records = records(table.table()?.schema(), arguments)?;
    let is_to_be_told = table.write(|writer| insert(writer, &records))?;
    if new + changed > 0 {
        call.changed(name, c"card.set");
    }
    if is_to_be_told {
        if is_first {
            // The table is ready from now on: replicas must know since when, which the command does not say.
            table.as_commands(name.bytes(), |command, arguments| call.replicate_as(command, arguments));
        } else {
            call.replicate();
        }
    }
    call.reply_number(new.into());
    Ok(())
}
