//! `CARD.LOAD`: loads a file into a table, in the background.

use crate::loading::load::LoadError;
use crate::loading::{Kind, Report, Request, queue};
use crate::redis::call::Call;
use crate::redis::command::{Argument, ArgumentKind, Command, Docs, KEY, KeyUse};
use crate::redis::failure::Failure;
use crate::redis::key::Key;
use crate::redis::thread::Waiting;

pub struct Load;

impl Command for Load {
    const DOCS: Docs = Docs {
        name: "card.load",
        summary: "Loads a file of card.load-dir into a table, which answers as before until all of it is there.",
        complexity: "O(N log N) for N rows, in the background",
        flags: "write deny-oom admin deny-script",
        at_least: 2,
        variadic: true,
        keys: &[KeyUse::Overwrite],
        arguments: &[
            KEY,
            Argument::new(
                "what",
                ArgumentKind::OneOf(&[
                    Argument::new("file", ArgumentKind::Text),
                    Argument::new("cancel", ArgumentKind::Word).after("CANCEL"),
                ]),
            ),
            Argument::new("delta", ArgumentKind::Word).after("DELTA").optional(),
            Argument::new("version", ArgumentKind::Integer).after("VERSION").optional(),
        ],
    };

    fn run(call: &Call) -> Result<(), Failure> {
        let (key, what) = (call.argument(0), call.argument(1));
        if what.is("CANCEL") && call.len() == 2 {
            if !queue::cancel(call.database(), key.bytes()) {
                return Err(Failure::Other("no load of this table is running or waiting"));
            }
            call.reply_ok();
            return Ok(());
        }
        const EXPECTED: Failure = Failure::Syntax("file [DELTA] [VERSION version], or CANCEL");
        let (mut kind, mut version) = (Kind::Full, None);
        let mut options = call.arguments(2).iter();
        while let Some(option) = options.next() {
            if option.is("DELTA") {
                kind = Kind::Delta;
            } else if option.is("VERSION") {
                let number = options.next().and_then(|number| number.number());
                version = Some(number.filter(|&number| number < u64::MAX).ok_or(EXPECTED)?);
            } else {
                return Err(EXPECTED);
            }
        }
        if !call.may_wait() {
            return Err(Failure::Other("a load takes a while: not in a transaction or a script"));
        }
        Key::read(call, key).get()?;
        let request = Request {
            database: call.database(),
            key: key.bytes().to_vec(),
            file: what.bytes().to_vec(),
            kind,
            version,
            newer_only: false,
        };
        let waiting = Waiting::new(call);
        let finish = |outcome: Result<Report, LoadError>| {
            waiting.answer(Box::new(move |call| match outcome {
                Ok(report) => reply(call, &report),
                Err(LoadError::Refused(failure)) => call.reply_failure(&failure),
                Err(error) => call.reply_failure(&Failure::Told(error.to_string())),
            }));
        };
        queue::add(request, Box::new(finish));
        Ok(())
    }
}

fn reply(call: &Call, report: &Report) {
    call.reply_map(7);
    for (name, number) in [
        ("rows", report.rows),
        ("added", report.added),
        ("changed", report.changed),
        ("removed", report.removed),
        ("duplicates", report.duplicates),
    ] {
        call.reply_text(name);
        call.reply_number(number.into());
    }
    call.reply_text("seconds");
    call.reply_text(format_args!("{:.3}", report.seconds));
    call.reply_text("version");
    report.version.map_or_else(|| call.reply_null(), |version| call.reply_number(version.into()));
}
