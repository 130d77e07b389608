//! `CARD.INFO`: what a table is and holds.

use crate::cardtable::CardTable;
use crate::loading::{directory, queue};
use crate::redis::call::Call;
use crate::redis::command::{Argument, ArgumentKind, Command, Docs, KEY, KeyUse};
use crate::redis::failure::Failure;
use crate::redis::key::Key;

pub struct Info;

impl Command for Info {
    const DOCS: Docs = Docs {
        name: "card.info",
        summary: "Returns what a table is and holds: records, memory, schema, whether it is ready, where it came from.",
        complexity: "O(1)",
        flags: "readonly fast",
        at_least: 1,
        variadic: true,
        keys: &[KeyUse::Read],
        arguments: &[KEY, Argument::new("digest", ArgumentKind::Word).after("DIGEST").optional()],
    };

    fn run(call: &Call) -> Result<(), Failure> {
        let with_digest = match call.arguments(1) {
            [] => false,
            [word] if word.is("DIGEST") => true,
            _ => return Err(Failure::Syntax("[DIGEST]")),
        };
        let key = Key::read(call, call.argument(0));
        let table = key.get()?.ok_or(Failure::Other("no such table"))?;
        reply(call, table, with_digest);
        Ok(())
    }
}

type Field<'a> = (&'static str, Box<dyn Fn() + 'a>);

fn reply(call: &Call, card_table: &CardTable, with_digest: bool) {
    let table = card_table.arrived();
    let load = card_table.load();
    let bytes = card_table.bytes();
    let number = |number: u64| -> Box<dyn Fn()> { Box::new(move || call.reply_number(number.into())) };
    let or_null = |value: Option<u64>| -> Box<dyn Fn()> {
        Box::new(move || value.map_or_else(|| call.reply_null(), |value| call.reply_number(value.into())))
    };
    let mut fields: Vec<Field> = vec![
        ("records", number(table.len())),
        ("memory_bytes", number(bytes as u64)),
        ("bytes_per_record", Box::new(move || call.reply_text(per_record(bytes, table.len())))),
        ("blocks", number(table.blocks() as u64)),
        ("classes", Box::new(|| reply_classes(call, card_table))),
        ("schema", Box::new(|| reply_schema(call, card_table))),
        ("ready", number(card_table.ready().is_some().into())),
        ("stale", number(is_stale(call).into())),
        ("version", or_null(load.and_then(|load| load.version))),
        ("rows", or_null(load.map(|load| load.rows))),
        ("loaded_at", or_null(load.and(card_table.ready().map(|(_, since)| since / 1000)))),
        (
            "source",
            Box::new(move || match load {
                Some(load) if !load.source.is_empty() => call.reply_bytes(&load.source),
                _ => call.reply_null(),
            }),
        ),
        ("loading", Box::new(|| reply_loading(call))),
    ];
    if with_digest {
        fields.push(("digest", Box::new(|| call.reply_text(format_args!("{:032x}", card_table.digest())))));
    }
    call.reply_map(fields.len());
    for (name, reply) in fields {
        call.reply_text(name);
        reply();
    }
}

/// A replica has what its primary has.
fn is_stale(call: &Call) -> bool {
    call.is_primary() && directory::may_be_stale(call.database(), call.argument(0).bytes())
}

fn reply_loading(call: &Call) {
    let Some(told) = queue::progress(call.database(), call.argument(0).bytes()) else { return call.reply_null() };
    call.reply_map(4);
    call.reply_text("phase");
    call.reply_text(told.phase.name());
    for (name, number) in
        [("percent", told.percent), ("rows_per_second", told.rows_per_second), ("eta_seconds", told.eta_seconds)]
    {
        call.reply_text(name);
        call.reply_number(number.into());
    }
}

fn per_record(bytes: usize, records: u64) -> String {
    if records == 0 { "0".into() } else { format!("{:.3}", bytes as f64 / records as f64) }
}

fn reply_classes(call: &Call, table: &CardTable) {
    let classes: Vec<_> = table.arrived().classes().collect();
    call.reply_array(classes.len());
    for class in classes {
        call.reply_array(3);
        call.reply_text(class.class);
        call.reply_number(class.records.into());
        call.reply_number(class.bytes as u128);
    }
}

fn reply_schema(call: &Call, table: &CardTable) {
    let fields = table.arrived().schema().fields();
    call.reply_array(fields.len());
    for field in fields {
        call.reply_array(3);
        call.reply_text(&field.name);
        call.reply_number(field.min);
        call.reply_number(field.max);
    }
}
