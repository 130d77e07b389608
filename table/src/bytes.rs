//! The bytes of a table, as they are kept on disk and sent to others.
//!
//! ```text
//! header   "CARDTABLE" | version u8 | fields u8 | for each: name length u8, name, min u128, max u128
//!          | records u64 | digest u128
//! frames   class u8 u8 | length u16 | a block        (ascending by class, and within it)
//! end      0 0
//! ```
//!
//! All numbers are little-endian. [`Table::header_bytes`] and [`Table::frames`] give the parts, for a container that
//! divides what it holds, such as an RDB file; [`Table::write_to`] writes the whole. [`Decoder`] is the one way back in.
//! It believes nothing: lengths are checked before anything is allocated, every id and symbol is decoded and checked, and
//! count and digest must come out as the header says.

use std::io::{self, Read, Write};
use thiserror::Error;

use crate::block::{self, Column, Kind, MAX_BLOCK_BYTES, Numbers, Records, Texts};
use crate::corrupt::{Corrupt, broken, ensure};
use crate::digest;
use crate::heap;
use crate::id::{Class, Id};
use crate::run::Run;
use crate::schema::{Field, MAX_FIELDS, Schema};
use crate::table::Table;

const MAGIC: &[u8] = b"CARDTABLE";
pub const FORMAT_VERSION: u8 = 1;
const END: [u8; 2] = [0, 0];
/// What a frame has beyond its block.
const FRAME_BYTES: usize = 4;
/// What is written at a time.
const WRITTEN_BYTES: usize = 256 << 10;

#[derive(Debug, Error)]
pub enum DecodeError {
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    #[error("this is not a table")]
    NotATable,
    #[error("the table has format version {0}, and this program reads up to {FORMAT_VERSION}")]
    Newer(u8),
    #[error("the table is incomplete: it has {found} of {expected} records")]
    Incomplete { found: u64, expected: u64 },
    #[error("the table's schema is wrong: {0}")]
    Schema(#[from] crate::schema::SchemaError),
    #[error("cannot read the table: {0}")]
    Io(#[from] io::Error),
}

impl Table {
    /// The header: everything but the blocks.
    pub fn header_bytes(&self) -> Vec<u8> {
        header_bytes(&self.schema, self.len(), self.digest())
    }

    /// Every block with its class, in order, without what its allocation has beyond.
    pub fn block_bytes(&self) -> impl Iterator<Item = (Class, &[u8])> {
        self.numbers.iter().flat_map(blocks_of).chain(blocks_of(&self.texts))
    }

    /// The blocks, framed, in pieces of whole frames; a piece has up to `bytes` bytes, or one frame.
    pub fn frames(&self, bytes: usize) -> impl Iterator<Item = Vec<u8>> {
        let mut blocks = self.block_bytes().peekable();
        std::iter::from_fn(move || {
            let mut frames = Vec::with_capacity(bytes);
            while let Some((class, block)) =
                blocks.next_if(|(_, block)| frames.is_empty() || frames.len() + FRAME_BYTES + block.len() <= bytes)
            {
                put_frame(class, block, &mut frames);
            }
            (!frames.is_empty()).then_some(frames)
        })
    }

    /// The blocks themselves, in order and in pieces of about so many bytes, which a [`Decoder`] with this table's header
    /// takes as they are: that moves a table without copying or checking it.
    pub fn into_pieces(self, bytes: usize) -> impl Iterator<Item = CheckedFrames> {
        let mut digest = Some(self.records_digest);
        let highest_symbol = self.schema.highest_symbol();
        let numbers = self.numbers.into_iter().flat_map(|run| {
            let class = run.kind().class();
            run.directory.into_blocks().map(move |block| (class, block))
        });
        let mut blocks = numbers.chain(self.texts.directory.into_blocks().map(|block| (Class::Text, block))).peekable();
        std::iter::from_fn(move || {
            let mut piece = CheckedFrames::empty(highest_symbol);
            let mut len = 0;
            while let Some((class, block)) = blocks.next_if(|(_, block)| len == 0 || len + block.len() <= bytes) {
                len += block.len();
                piece.push(class, block);
            }
            // What each piece adds to the digest nobody knows; all of them together add what the table has.
            piece.digest = digest.take().unwrap_or(0);
            (len > 0).then_some(piece)
        })
    }

    pub fn write_to(&self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(&self.header_bytes())?;
        self.frames(WRITTEN_BYTES).try_for_each(|frames| out.write_all(&frames))?;
        out.write_all(&END)
    }

    /// Reads what [`Table::write_to`] wrote. Nothing may follow it in `source`.
    pub fn read_from(source: &mut impl Read) -> Result<Table, DecodeError> {
        let mut decoder = Decoder::new(&read_header(source)?)?;
        let mut frame = Vec::with_capacity(FRAME_BYTES + MAX_BLOCK_BYTES);
        loop {
            let tag = read_array::<2>(source)?;
            if tag == END {
                break;
            }
            let length = read_array::<2>(source)?;
            let len = usize::from(u16::from_le_bytes(length));
            ensure(len <= MAX_BLOCK_BYTES, "a block has at most 5120 bytes")?;
            frame.clear();
            frame.extend_from_slice(&tag);
            frame.extend_from_slice(&length);
            frame.resize(FRAME_BYTES + len, 0);
            source.read_exact(&mut frame[FRAME_BYTES..])?;
            decoder.frames(&frame)?;
        }
        ensure(source.read(&mut [0])? == 0, "nothing follows the end")?;
        decoder.finish()
    }
}

fn header_bytes(schema: &Schema, records: u64, digest: u128) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.push(FORMAT_VERSION);
    out.push(schema.fields().len() as u8);
    for field in schema.fields() {
        out.push(field.name.len() as u8);
        out.extend_from_slice(field.name.as_bytes());
        out.extend_from_slice(&field.min.to_le_bytes());
        out.extend_from_slice(&field.max.to_le_bytes());
    }
    out.extend_from_slice(&records.to_le_bytes());
    out.extend_from_slice(&digest.to_le_bytes());
    out
}

fn put_frame(class: Class, block: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&class.tag());
    out.extend_from_slice(&(block.len() as u16).to_le_bytes());
    out.extend_from_slice(block);
}

fn blocks_of<K: Kind>(run: &Run<K>) -> impl Iterator<Item = (Class, &[u8])> {
    let mut at = run.first();
    std::iter::from_fn(move || {
        let here = at?;
        at = run.next(here);
        let block = run.block(here);
        Some((run.kind().class(), &block[..run.kind().used(block)]))
    })
}

fn read_array<const N: usize>(source: &mut impl Read) -> io::Result<[u8; N]> {
    let mut array = [0; N];
    source.read_exact(&mut array)?;
    Ok(array)
}

/// The bytes of a header, whose length only its fields tell.
fn read_header(source: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut header = read_array::<11>(source)?.to_vec();
    let fields = usize::from(header[10]).min(MAX_FIELDS);
    let mut take = |len: usize| -> io::Result<u8> {
        let at = header.len();
        header.resize(at + len, 0);
        source.read_exact(&mut header[at..])?;
        Ok(header[at])
    };
    for _ in 0..fields {
        let name = take(1)?;
        take(usize::from(name) + 32)?;
    }
    take(24)?;
    Ok(header)
}

/// Puts a table together from a header and blocks that come from outside.
#[derive(Clone)]
pub struct Decoder {
    table: Table,
    /// What the header says that the whole will be.
    records: u64,
    digest: u128,
    last: Option<Id<'static>>,
}

/// Checks frames on their own, on any thread. Whether they follow what came before, [`Decoder::take`] will see.
#[derive(Clone, Copy)]
pub struct Checker {
    highest_symbol: u128,
}

/// Frames that have been checked.
pub struct CheckedFrames {
    highest_symbol: u128,
    numbers: Vec<(Class, Box<[u8]>)>,
    texts: Vec<Box<[u8]>>,
    digest: u128,
}

impl CheckedFrames {
    fn empty(highest_symbol: u128) -> CheckedFrames {
        CheckedFrames { highest_symbol, numbers: Vec::new(), texts: Vec::new(), digest: 0 }
    }

    fn push(&mut self, class: Class, block: Box<[u8]>) {
        match class {
            Class::Text => self.texts.push(block),
            _ => self.numbers.push((class, block)),
        }
    }

    /// How many blocks there are.
    pub fn len(&self) -> usize {
        self.numbers.len() + self.texts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn kind(&self, class: Class) -> Numbers {
        Numbers::new(class, self.highest_symbol)
    }

    /// The frames, as [`Decoder::frames`] takes them.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (class, block) in &self.numbers {
            put_frame(*class, &block[..self.kind(*class).used(block)], &mut out);
        }
        let texts = Texts::new(self.highest_symbol);
        self.texts.iter().for_each(|block| put_frame(Class::Text, &block[..texts.used(block)], &mut out));
        out
    }

    fn first(&self) -> Option<Id<'static>> {
        match (&*self.numbers, &*self.texts) {
            ([(class, block), ..], _) => Some(Id::Number(*class, self.kind(*class).first(block))),
            ([], [block, ..]) => Some(Id::Text(Texts::new(self.highest_symbol).first(block).into())),
            ([], []) => None,
        }
    }

    fn last(&self) -> Option<Id<'static>> {
        match (&*self.numbers, &*self.texts) {
            (_, [.., block]) => Some(last_id(Texts::new(self.highest_symbol), block)),
            ([.., (class, block)], []) => Some(last_id(self.kind(*class), block)),
            ([], []) => None,
        }
    }
}

fn last_id<K: Kind>(kind: K, block: &[u8]) -> Id<'static> {
    let mut records = Records::default();
    kind.decode(block, &mut records);
    kind.id(records.ids.at(records.len() - 1)).into_owned()
}

impl Checker {
    pub fn check(&self, mut frames: &[u8]) -> Result<CheckedFrames, DecodeError> {
        let mut checked = CheckedFrames::empty(self.highest_symbol);
        let (mut numbers, mut texts) = (Records::default(), Records::default());
        let mut last = None;
        while let Some((head, rest)) = frames.split_first_chunk::<FRAME_BYTES>() {
            let class = Class::from_tag([head[0], head[1]]).ok_or_else(|| broken("a class is a known one"))?;
            let len = usize::from(u16::from_le_bytes([head[2], head[3]]));
            let (block, rest) = rest.split_at_checked(len).ok_or_else(|| broken("a frame is whole"))?;
            let added = match class {
                Class::Text => check_block(Texts::new(self.highest_symbol), block, &mut texts, &mut last),
                _ => check_block(Numbers::new(class, self.highest_symbol), block, &mut numbers, &mut last),
            };
            checked.digest = checked.digest.wrapping_add(added?);
            checked.push(class, heap::boxed(block));
            frames = rest;
        }
        ensure(frames.is_empty(), "a frame is whole")?;
        Ok(checked)
    }
}

/// Checks a block whose ids must lie beyond `last`, and tells what its records add to the digest.
fn check_block<K: Kind>(
    kind: K,
    block: &[u8],
    records: &mut Records<K>,
    last: &mut Option<Id<'static>>,
) -> Result<u128, Corrupt> {
    records.clear();
    block::check(kind, block, records)?;
    let id = |at| kind.id(records.ids.at(at));
    ensure(last.as_ref().is_none_or(|last| *last < id(0)), "classes and blocks ascend")?;
    *last = Some(id(records.len() - 1).into_owned());
    let added = (0..records.len()).map(|at| digest::of_record(&id(at), records.symbols[at]));
    Ok(added.fold(0, u128::wrapping_add))
}

impl Decoder {
    pub fn new(header: &[u8]) -> Result<Decoder, DecodeError> {
        let rest = header.strip_prefix(MAGIC).ok_or(DecodeError::NotATable)?;
        let short = || broken("a header is as long as its fields say");
        let (&version, rest) = rest.split_first().ok_or_else(short)?;
        if version != FORMAT_VERSION {
            return Err(if version == 0 { DecodeError::NotATable } else { DecodeError::Newer(version) });
        }
        let (&count, mut rest) = rest.split_first().ok_or_else(short)?;
        let mut take = |len: usize| {
            let (taken, left) = rest.split_at_checked(len).ok_or_else(short)?;
            rest = left;
            Ok::<_, Corrupt>(taken)
        };
        let number = |bytes: &[u8]| u128::from_le_bytes(bytes.try_into().expect("16 bytes were taken"));
        let mut fields = Vec::new();
        for _ in 0..count {
            let len = take(1)?[0];
            let name = str::from_utf8(take(len.into())?).map_err(|_| broken("a name is ASCII"))?;
            fields.push(Field::new(name, number(take(16)?), number(take(16)?)));
        }
        let records = u64::from_le_bytes(take(8)?.try_into().expect("8 bytes were taken"));
        let digest = number(take(16)?);
        ensure(rest.is_empty(), "a header is as long as its fields say")?;
        let table = Table::new(Schema::new(fields)?);
        Ok(Decoder { table, records, digest, last: None })
    }

    /// What has been taken so far: a part of the table, if there is more to come.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The digest that the whole will have.
    pub fn digest(&self) -> u128 {
        self.digest
    }

    /// The header that was given.
    pub fn header_bytes(&self) -> Vec<u8> {
        header_bytes(&self.table.schema, self.records, self.digest)
    }

    pub fn checker(&self) -> Checker {
        Checker { highest_symbol: self.table.schema.highest_symbol() }
    }

    /// Takes the next frames, whole ones: all of them, or none if they are not what they should be.
    pub fn frames(&mut self, frames: &[u8]) -> Result<(), DecodeError> {
        self.take(self.checker().check(frames)?)
    }

    /// Takes the next frames, which this decoder's checker has checked.
    pub fn take(&mut self, frames: CheckedFrames) -> Result<(), DecodeError> {
        let Some((first, last)) = frames.first().zip(frames.last()) else { return Ok(()) };
        ensure(self.last.as_ref().is_none_or(|last| *last < first), "classes and blocks ascend")?;
        frames.numbers.into_iter().for_each(|(class, block)| self.table.run_mut(class).append(block));
        frames.texts.into_iter().for_each(|block| self.table.texts.append(block));
        self.table.records_digest = self.table.records_digest.wrapping_add(frames.digest);
        self.last = Some(last);
        Ok(())
    }

    /// Takes the next block.
    pub fn block(&mut self, class: Class, block: &[u8]) -> Result<(), DecodeError> {
        ensure(block.len() <= MAX_BLOCK_BYTES, "a block has at most 5120 bytes")?;
        let mut frame = Vec::with_capacity(FRAME_BYTES + block.len());
        put_frame(class, block, &mut frame);
        self.frames(&frame)
    }

    /// Whether everything has come that the header said.
    pub fn check_complete(&self) -> Result<(), DecodeError> {
        let (found, expected) = (self.table.len(), self.records);
        if found < expected {
            return Err(DecodeError::Incomplete { found, expected });
        }
        ensure(found == expected, "there are as many records as the header says")?;
        Ok(ensure(self.table.digest() == self.digest, "the digest is the one in the header")?)
    }

    /// The table, if it is what the header said.
    pub fn finish(mut self) -> Result<Table, DecodeError> {
        self.check_complete()?;
        self.table.numbers.iter_mut().for_each(Run::shrink);
        self.table.texts.shrink();
        Ok(self.table)
    }
}
