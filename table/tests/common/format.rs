//! A second reader of the format, written from its documentation and as simple as can be.
//!
//! It takes one bit at a time and trusts what it reads, so it is for bytes that the crate has accepted. It tells what
//! such bytes mean without asking the code under test, and so which count and digest their header must have.

use card_table::bytes::FORMAT_VERSION;
use card_table::{Class, Id, Schema};
use std::borrow::Cow;
use xxhash_rust::xxh3::{xxh3_128, xxh3_128_with_seed};

/// A block that has said which class it is of.
pub type Block = (Class, Vec<u8>);
pub type Record = (Id<'static>, u128);

const BITMAP: usize = 255;
/// Texts of which only the first stands whole.
pub const GROUP: usize = 16;

/// A table's header.
pub fn header(schema: &Schema, records: u64, digest: u128) -> Vec<u8> {
    let mut bytes = b"CARDTABLE".to_vec();
    bytes.extend([FORMAT_VERSION, schema.fields().len() as u8]);
    for field in schema.fields() {
        bytes.push(field.name.len() as u8);
        bytes.extend(field.name.bytes());
        bytes.extend(field.min.to_le_bytes());
        bytes.extend(field.max.to_le_bytes());
    }
    bytes.extend(records.to_le_bytes());
    bytes.extend(digest.to_le_bytes());
    bytes
}

/// The bytes of a table of these blocks; whether they are sound is another question.
pub fn table(header: &[u8], blocks: &[Block]) -> Vec<u8> {
    let mut bytes = header.to_vec();
    for (class, block) in blocks {
        bytes.extend(tag(*class));
        bytes.extend((block.len() as u16).to_le_bytes());
        bytes.extend(block);
    }
    bytes.extend([0, 0]);
    bytes
}

pub fn tag(class: Class) -> [u8; 2] {
    match class {
        Class::Digits(len) => [1, len],
        Class::HexLower(len) => [2, len],
        Class::HexUpper(len) => [3, len],
        Class::UuidLower => [4, 0],
        Class::UuidUpper => [5, 0],
        Class::Text => [6, 0],
    }
}

pub fn digest<'r>(schema: &Schema, records: impl IntoIterator<Item = &'r Record>) -> u128 {
    let mut fields = Vec::new();
    for field in schema.fields() {
        fields.extend(field.name.bytes().chain([0]));
        fields.extend(field.min.to_le_bytes());
        fields.extend(field.max.to_le_bytes());
    }
    let of_record = |(id, symbol): &Record| {
        let number = match id {
            Id::Number(_, number) => *number,
            Id::Text(bytes) => xxh3_128(bytes),
        };
        let record = [number.to_le_bytes(), symbol.to_le_bytes()].concat();
        xxh3_128_with_seed(&record, u16::from_le_bytes(tag(id.class())).into())
    };
    records.into_iter().map(of_record).fold(xxh3_128(&fields), u128::wrapping_add)
}

/// How many bytes a number below `end` takes; at least one.
pub fn symbol_bytes(end: u128) -> usize {
    (bit_length(end - 1).div_ceil(8)).max(1)
}

pub fn id_bytes(class: Class) -> usize {
    let highest = match class {
        Class::Digits(len) => 10u128.pow(len.into()) - 1,
        Class::HexLower(len) | Class::HexUpper(len) => u128::MAX >> (128 - 4 * u32::from(len)),
        _ => u128::MAX,
    };
    bit_length(highest).div_ceil(8)
}

pub fn bit_length(number: u128) -> usize {
    128 - number.leading_zeros() as usize
}

/// Reads a block from its first byte on.
struct Bytes<'a> {
    block: &'a [u8],
    at: usize,
}

impl<'a> Bytes<'a> {
    fn take(&mut self, len: usize) -> &'a [u8] {
        self.at += len;
        &self.block[self.at - len..self.at]
    }

    fn number(&mut self, len: usize) -> u128 {
        self.take(len).iter().rev().fold(0, |number, &byte| number << 8 | u128::from(byte))
    }

    fn size(&mut self, len: usize) -> usize {
        self.number(len) as usize
    }
}

/// Reads bits from some byte on.
struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Bits<'_> {
    fn bit(&mut self) -> bool {
        let bit = self.bytes[self.at / 8] >> (self.at % 8) & 1;
        self.at += 1;
        bit == 1
    }

    fn number(&mut self, width: usize) -> u128 {
        (0..width).fold(0, |number, at| number | u128::from(self.bit()) << at)
    }
}

/// A block's records.
pub fn records(schema: &Schema, (class, block): &Block) -> Vec<Record> {
    let mut bytes = Bytes { block, at: 0 };
    let (ids, symbols) = match class {
        Class::Text => texts(&mut bytes, schema.symbols()),
        _ => numbers(*class, &mut bytes, schema.symbols()),
    };
    assert_eq!(ids.len(), symbols.len());
    ids.into_iter().zip(symbols).collect()
}

fn numbers(class: Class, bytes: &mut Bytes, end: u128) -> (Vec<Id<'static>>, Vec<u128>) {
    let (records, id_bits, further, start_width) = (bytes.size(2), bytes.size(2), bytes.size(1), bytes.size(1));
    let first = bytes.number(id_bytes(class));
    // Where each segment begins: its first id, its rank, its bit; and its low width.
    let mut segments = vec![(first, 0, 0, bytes.size(1))];
    for _ in 0..further {
        let start = first + bytes.number(start_width);
        segments.push((start, bytes.size(2), bytes.size(2), bytes.size(1)));
    }
    let symbols = SymbolHeader::read(bytes, end);
    let id_part = bytes.take(id_bits.div_ceil(8));

    let mut ids = Vec::new();
    for (at, &(start, rank, bit, low_width)) in segments.iter().enumerate() {
        let (end_rank, end_bit) = segments.get(at + 1).map_or((records, id_bits), |&(_, rank, bit, _)| (rank, bit));
        let rest = end_rank - rank - 1;
        let mut bits = Bits { bytes: id_part, at: bit };
        let offsets: Vec<u128> = if low_width == BITMAP && bit == end_bit {
            (0..rest as u128).collect()
        } else if low_width == BITMAP {
            (0..(end_bit - bit) as u128).filter(|_| bits.bit()).collect()
        } else {
            let mut high = 0;
            let mut highs = Vec::new();
            while highs.len() < rest {
                if bits.bit() {
                    highs.push(high);
                } else {
                    high += 1;
                }
            }
            bits.at = end_bit - rest * low_width;
            highs.into_iter().map(|high: u128| high << low_width | bits.number(low_width)).collect()
        };
        ids.push(Id::Number(class, start));
        ids.extend(offsets.into_iter().map(|offset| Id::Number(class, start + 1 + offset)));
    }
    (ids, symbols.read_words(bytes, records))
}

fn texts(bytes: &mut Bytes, end: u128) -> (Vec<Id<'static>>, Vec<u128>) {
    let (records, text_bits, common) = (bytes.size(2), bytes.size(2), bytes.size(2));
    let (shared_width, rest_width, character_width) = (bytes.size(1), bytes.size(1), bytes.size(1));
    let mut characters: Vec<u8> = (0..=255).collect();
    if character_width < 8 {
        let mut alphabet = Bits { bytes: bytes.take(32), at: 0 };
        let used: Vec<u8> = (0..=255).filter(|_| alphabet.bit()).collect();
        characters.splice(..used.len(), used);
    }
    let common = bytes.take(common);
    let symbols = SymbolHeader::read(bytes, end);
    bytes.take(2 * (records.div_ceil(GROUP) - 1));
    let mut bits = Bits { bytes: bytes.take(text_bits.div_ceil(8)), at: 0 };

    let mut ids = Vec::new();
    let mut text = Vec::new();
    for rank in 0..records {
        let shared = if rank % GROUP == 0 { 0 } else { bits.number(shared_width) as usize };
        text.truncate(shared);
        let rest = bits.number(rest_width);
        text.extend((0..rest).map(|_| characters[bits.number(character_width) as usize]));
        ids.push(Id::Text(Cow::Owned([common, &text].concat())));
    }
    (ids, symbols.read_words(bytes, records))
}

/// Which symbols a block has, and how they are numbered.
enum SymbolHeader {
    Span { lowest: u128, radix: u128 },
    List(Vec<u128>),
}

impl SymbolHeader {
    fn read(bytes: &mut Bytes, end: u128) -> SymbolHeader {
        let width = symbol_bytes(end);
        match bytes.size(1) {
            0 => SymbolHeader::Span { lowest: bytes.number(width), radix: bytes.number(width).saturating_add(1) },
            len => SymbolHeader::List((0..len).map(|_| bytes.number(width)).collect()),
        }
    }

    fn read_words(&self, bytes: &mut Bytes, records: usize) -> Vec<u128> {
        let radix = match self {
            SymbolHeader::Span { radix, .. } => *radix,
            SymbolHeader::List(list) => list.len() as u128,
        };
        let (numbers, width) = packing(radix);
        let words = records.div_ceil(numbers);
        let mut bits = Bits { bytes: bytes.take((words * width).div_ceil(8)), at: 0 };
        let mut symbols = Vec::new();
        for _ in 0..words {
            let mut word = bits.number(width);
            for _ in 0..numbers.min(records - symbols.len()) {
                symbols.push(match self {
                    SymbolHeader::Span { lowest, .. } => lowest + word % radix,
                    SymbolHeader::List(list) => list[(word % radix) as usize],
                });
                word /= radix;
            }
        }
        symbols
    }
}

/// How many numbers below the radix make a word, and how wide it is: of the words up to 32 bits that with the fewest
/// bits a number, and of those the shortest. Numbers above 1024 have words of their own.
pub fn packing(radix: u128) -> (usize, usize) {
    if radix == 1 {
        return (1, 0);
    }
    if radix > 1024 {
        return (1, bit_length(radix - 1));
    }
    let mut best = (1, 32);
    let mut numbers = 1;
    let mut values = radix;
    while values <= 1 << 32 {
        let width = bit_length(values - 1);
        if width * best.0 < best.1 * numbers {
            best = (numbers, width);
        }
        numbers += 1;
        values *= radix;
    }
    best
}
