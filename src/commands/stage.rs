//! `CARD.STAGE` and `CARD.COMMIT`: a whole table, in pieces.
//!
//! Loads, replicas and AOF files carry tables as these. A table is begun with its header, which tells how many records
//! there will be and their digest; its blocks arrive, some frames at a time; and when all are there, it is committed:
//! under its own key, or in the place of another table, at once. Until then the staged table is a key like any other, so
//! that RDB files, replicas and crashes find it as it is, and nothing can be asked of it.
//!
//! Changes to a table that is ready arrive in the same way, as a patch: it is begun by an empty one, its pieces arrive, and it
//! is committed or discarded. Until then it is kept with the table, unseen.

use card_table::{CheckedFrames, Patch};

use crate::cardtable::{CardTable, Delta, Load, NOT_STAGED};
use crate::commands::{COMMIT, STAGE};
use crate::redis;
use crate::redis::call::{Call, Text};
use crate::redis::command::{Argument, ArgumentKind, Command, Docs, KEY, KeyUse};
use crate::redis::failure::Failure;
use crate::redis::key::Key;

pub struct Stage;
pub struct Commit;

impl Command for Stage {
    const DOCS: Docs = Docs {
        name: "card.stage",
        summary: "Begins a table, or changes to one, that arrive in pieces, or adds a piece. For loads, replication and the AOF.",
        complexity: "O(N) for N records in the piece",
        flags: "write deny-oom admin",
        at_least: 2,
        variadic: true,
        keys: &[KeyUse::Update],
        arguments: &[
            KEY,
            Argument::new(
                "piece",
                ArgumentKind::OneOf(&[
                    Argument::new("header", ArgumentKind::Text).after("BEGIN"),
                    Argument::new("frames", ArgumentKind::Text).after("FRAMES"),
                    Argument::new("patch", ArgumentKind::Text).after("PATCH"),
                    Argument::new("discard", ArgumentKind::Word).after("DISCARD"),
                ]),
            ),
        ],
    };

    fn run(call: &Call) -> Result<(), Failure> {
        let name = call.argument(0);
        match call.arguments(1) {
            [part, header] if part.is("BEGIN") => begin(call, name, header.bytes())?,
            [part, frames] if part.is("FRAMES") => {
                let checker = Key::read(call, name).get()?.ok_or(NOTHING_BEGUN)?.checker()?;
                add(call, name, checker.check(frames.bytes())?, frames.bytes())?;
            }
            [part, patch] if part.is("PATCH") && patch.bytes().is_empty() => begin_patch(call, name, |_| ())?,
            [part, patch] if part.is("PATCH") => {
                let piece = Key::read(call, name).get()?.ok_or(NO_TABLE)?.check_patch(patch.bytes())?;
                add_patch(call, name, piece, patch.bytes())?;
            }
            [part] if part.is("DISCARD") => discard_patch(call, name)?,
            _ => return Err(Failure::Syntax("BEGIN header, FRAMES frames, PATCH patch, or DISCARD")),
        }
        call.reply_ok();
        Ok(())
    }
}

const NOTHING_BEGUN: Failure = Failure::Other("no table has been begun");
const NO_TABLE: Failure = Failure::Other("no such table");

/// Begins a table, in the place of one that is staged or was only created: that is empty, but may have a time to live.
pub fn begin(call: &Call, name: Text, header: &[u8]) -> Result<(), Failure> {
    let mut key = Key::write(call, name);
    let staged = CardTable::stage(header);
    match key.get_mut()? {
        Some(table) if table.ready().is_some() => return Err(NOT_STAGED),
        Some(table) if !table.is_staged() => *table = staged?,
        _ => key.set(staged?),
    }
    tell(call, name, b"BEGIN", header);
    Ok(())
}

/// Adds a piece, which is these frames.
pub fn add(call: &Call, name: Text, piece: CheckedFrames, frames: &[u8]) -> Result<(), Failure> {
    let mut key = Key::write(call, name);
    key.get_mut()?.ok_or(NOTHING_BEGUN)?.add(piece)?;
    tell(call, name, b"FRAMES", frames);
    Ok(())
}

/// Begins a patch, and hands it over.
pub fn begin_patch<T>(call: &Call, name: Text, begun: impl FnOnce(&mut Delta) -> T) -> Result<T, Failure> {
    let mut key = Key::write(call, name);
    let result = begun(key.get_mut()?.ok_or(NO_TABLE)?.begin_patch()?);
    call.replicate_as(STAGE, &[name.bytes(), b"PATCH", b""]);
    Ok(result)
}

/// Adds a piece of a patch, which is these bytes.
pub fn add_patch(call: &Call, name: Text, piece: Patch, bytes: &[u8]) -> Result<(), Failure> {
    let mut key = Key::write(call, name);
    key.get_mut()?.ok_or(NO_TABLE)?.add_patch(piece)?;
    call.replicate_as(STAGE, &[name.bytes(), b"PATCH", bytes]);
    Ok(())
}

/// Drops the patch of a table, if there is one.
pub fn discard_patch(call: &Call, name: Text) -> Result<(), Failure> {
    let mut key = Key::write(call, name);
    if key.get_mut()?.is_some_and(CardTable::discard_patch) {
        call.replicate_as(STAGE, &[name.bytes(), b"DISCARD"]);
    }
    Ok(())
}

fn tell(call: &Call, name: Text, part: &[u8], piece: &[u8]) {
    call.changed(name, c"card.stage");
    call.replicate_as(STAGE, &[name.bytes(), part, piece]);
}

impl Command for Commit {
    const DOCS: Docs = Docs {
        name: "card.commit",
        summary: "Puts a staged table that has arrived whole into a key, in the place of what it held, or the patch of a table into the table.",
        complexity: "O(N/1000000) for N records",
        flags: "write admin",
        at_least: 2,
        variadic: true,
        keys: &[KeyUse::Move, KeyUse::Overwrite],
        arguments: &[
            Argument::new("staged", ArgumentKind::Key(0)),
            Argument::new("table", ArgumentKind::Key(1)),
            Argument::new("milliseconds", ArgumentKind::Integer).after("AT").optional(),
            Argument::new("version", ArgumentKind::Integer).after("VERSION").optional(),
            Argument::new("source", ArgumentKind::Text).after("SOURCE").optional(),
            Argument::new("rows", ArgumentKind::Integer).after("ROWS").optional(),
        ],
    };

    fn run(call: &Call) -> Result<(), Failure> {
        let (since, load) = options(call)?;
        commit(call, call.argument(0), call.argument(1), since, load)?;
        call.reply_ok();
        Ok(())
    }
}

/// Puts a staged table that has arrived whole into a key, and tells everybody.
pub fn commit(call: &Call, staged_name: Text, name: Text, since: u64, load: Option<Load>) -> Result<(), Failure> {
    let options = commit_options(since, load.as_ref());
    let mut staged = Key::write(call, staged_name);
    let table = staged.get_mut()?.ok_or(Failure::Other("no table has been staged"))?;
    if staged_name.bytes() == name.bytes() && table.delta().is_some() {
        table.commit_patch(since, load)?;
    } else if staged_name.bytes() == name.bytes() {
        *table = table.commit(since, load)?;
    } else {
        let mut key = Key::write(call, name);
        key.get()?;
        let committed = table.commit(since, load)?;
        key.get_mut()?.map(CardTable::free);
        key.set(committed);
        staged.unlink();
        call.changed(staged_name, c"card.commit");
    }
    call.changed(name, c"card.load");
    let mut arguments = vec![staged_name.bytes(), name.bytes()];
    arguments.extend(options.iter().map(Vec::as_slice));
    call.replicate_as(COMMIT, &arguments);
    Ok(())
}

fn options(call: &Call) -> Result<(u64, Option<Load>), Failure> {
    const EXPECTED: Failure = Failure::Syntax("[AT milliseconds] [VERSION version] [SOURCE source] [ROWS rows]");
    let number = |text: &Text| text.number().filter(|&number| number < u64::MAX).ok_or(EXPECTED);
    let (mut since, mut version, mut source, mut rows) = (None, None, None, None);
    let options = call.arguments(2);
    for option in options.chunks(2) {
        match option {
            [word, value] if word.is("AT") => since = Some(number(value)?),
            [word, value] if word.is("VERSION") => version = Some(number(value)?),
            [word, value] if word.is("SOURCE") => source = Some(value.bytes().to_vec()),
            [word, value] if word.is("ROWS") => rows = Some(number(value)?),
            _ => return Err(EXPECTED),
        }
    }
    let is_load = version.is_some() || source.is_some() || rows.is_some();
    let load = is_load.then(|| Load { version, source: source.unwrap_or_default(), rows: rows.unwrap_or(0) });
    Ok((since.unwrap_or_else(redis::now), load))
}

/// The options that commit a table as it was committed.
pub fn commit_options(since: u64, load: Option<&Load>) -> Vec<Vec<u8>> {
    let number = |number: u64| number.to_string().into_bytes();
    let mut options = vec![b"AT".to_vec(), number(since)];
    if let Some(Load { version, source, rows }) = load {
        if let Some(version) = version {
            options.extend([b"VERSION".to_vec(), number(*version)]);
        }
        options.extend([b"SOURCE".to_vec(), source.clone(), b"ROWS".to_vec(), number(*rows)]);
    }
    options
}
