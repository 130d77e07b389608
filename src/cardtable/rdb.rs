//! A table in an RDB file, a DUMP or a full synchronisation.
//!
//! ```text
//! staged 0/1 | ready since, in ms, plus 1; 0 if it is not ready
//! loaded 0/1 | if 1: version plus 1, 0 if it has none | rows | source
//! header | frames… | an empty string
//! patch 0/1 | if 1: pieces… | an empty string
//! ```
//!
//! Frames are the blocks as they are in memory. Reading them back means checking every record, which is most of the time
//! of a restart; so several strings are checked at once, on threads of their own.

use std::io;
use std::num::NonZeroUsize;
use std::thread::{self, ScopedJoinHandle};

use card_table::{DecodeError, Decoder};
use thiserror::Error;

use super::{CardTable, Content, Load};
use crate::background;
use crate::redis::file::{Bytes, Rdb, Unreadable};

/// The version of this encoding.
pub const ENCODING: i32 = 1;

/// No string is longer. What is read and checked at once is freed again, but goes back to the system only later: so it is
/// not much.
const STRING_BYTES: usize = 64 << 10;

/// How many strings are read before they are checked, on as many threads as there are cores.
const STRINGS_AT_ONCE: usize = 8;

#[derive(Debug, Error)]
pub enum LoadError {
    #[error("it has version {0} of the encoding, and this module reads version {ENCODING}")]
    Encoding(i32),
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    #[error(transparent)]
    Decode(#[from] DecodeError),
    #[error("{0}")]
    Broken(&'static str),
    #[error("{0}")]
    Patch(String),
}

impl CardTable {
    pub(super) fn save(&self, rdb: &Rdb) {
        background::give_way_in_child();
        rdb.put_number(self.is_staged().into());
        rdb.put_number(self.ready_since.map_or(0, |since| since + 1));
        rdb.put_number(self.load.is_some().into());
        if let Some(Load { version, source, rows }) = &self.load {
            rdb.put_number(version.map_or(0, |version| version + 1));
            rdb.put_number(*rows);
            rdb.put_bytes(source);
        }
        rdb.put_bytes(&self.header());
        self.arrived().frames(STRING_BYTES).for_each(|frames| rdb.put_bytes(&frames));
        rdb.put_bytes(&[]);
        rdb.put_number(self.delta.is_some().into());
        if let Some(delta) = &self.delta {
            delta.patch.pieces(STRING_BYTES).for_each(|piece| rdb.put_bytes(&piece));
            rdb.put_bytes(&[]);
        }
    }

    /// The header, which of a staged table tells what it will be.
    pub(super) fn header(&self) -> Vec<u8> {
        match &self.content {
            Content::Staged(decoder) => decoder.header_bytes(),
            Content::Table(table) => table.header_bytes(),
        }
    }

    pub(super) fn read(rdb: &Rdb, encoding: i32) -> Result<CardTable, LoadError> {
        if encoding != ENCODING {
            return Err(LoadError::Encoding(encoding));
        }
        let is_staged = yes_or_no(rdb.number()?)?;
        let ready_since = rdb.number()?.checked_sub(1);
        let load = if yes_or_no(rdb.number()?)? {
            let version = rdb.number()?.checked_sub(1);
            let rows = rdb.number()?;
            Some(Load { version, rows, source: rdb.bytes()?.to_vec() })
        } else {
            None
        };
        let mut decoder = Decoder::new(&rdb.bytes()?)?;
        loop {
            let strings = some_strings(rdb)?;
            check(&strings, &mut decoder)?;
            if strings.len() < STRINGS_AT_ONCE {
                break;
            }
        }
        let content = if is_staged { Content::Staged(Box::new(decoder)) } else { Content::Table(decoder.finish()?) };
        if ready_since.is_none() && (load.is_some() || matches!(&content, Content::Table(table) if !table.is_empty())) {
            return Err(LoadError::Broken("a table that was filled is ready"));
        }
        if ready_since.is_some() && is_staged {
            return Err(LoadError::Broken("a staged table is not ready"));
        }
        let mut table = CardTable::new(content, ready_since, load);
        if yes_or_no(rdb.number()?)? {
            table.begin_patch().map_err(|_| LoadError::Broken("only a table that is ready has a patch"))?;
            loop {
                let piece = rdb.bytes()?;
                if piece.is_empty() {
                    break;
                }
                let added = table.check_patch(&piece).and_then(|piece| table.add_patch(piece));
                added.map_err(|failure| LoadError::Patch(failure.to_string()))?;
            }
        }
        Ok(table)
    }
}

fn yes_or_no(number: u64) -> Result<bool, LoadError> {
    match number {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(LoadError::Broken("a flag is 0 or 1")),
    }
}

/// The next strings of frames; fewer than asked for when the empty one has come.
fn some_strings(rdb: &Rdb) -> Result<Vec<Bytes>, Unreadable> {
    let mut strings = Vec::new();
    while strings.len() < STRINGS_AT_ONCE {
        let string = rdb.bytes()?;
        if string.is_empty() {
            break;
        }
        strings.push(string);
    }
    Ok(strings)
}

fn check(strings: &[Bytes], decoder: &mut Decoder) -> Result<(), DecodeError> {
    if let [only] = strings {
        return decoder.frames(only);
    }
    let checker = decoder.checker();
    let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let check_some = |some: &[Bytes]| some.iter().map(|frames| checker.check(frames)).collect::<Vec<_>>();
    let checked: Vec<_> = thread::scope(|scope| {
        let mut parts = strings.chunks(strings.len().div_ceil(threads).max(1));
        let own = parts.next().unwrap_or_default();
        let started: Vec<_> =
            parts.map(|some| (some, thread::Builder::new().spawn_scoped(scope, move || check_some(some)))).collect();
        let mut checked = check_some(own);
        // Where there are no more threads to be had, this one does it.
        let finish = |(some, thread): (_, io::Result<ScopedJoinHandle<_>>)| match thread {
            Ok(thread) => thread.join().expect("checking does not panic"),
            Err(_) => check_some(some),
        };
        checked.extend(started.into_iter().flat_map(finish));
        checked
    });
    checked.into_iter().try_for_each(|frames| decoder.take(frames?))
}
