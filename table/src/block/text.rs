//! Blocks of text: front-coded, in the fewest bits a character that the block's own alphabet needs.
//!
//! What all ids of the block begin with is stored once. Beyond that an id is the length of what it shares with the id
//! before it, the length of the rest, and the rest itself; every sixteenth id stands whole, and a table says where, so
//! that a find decodes a few ids and not all. Characters are numbered among those that occur: hexadecimal takes 4
//! bits a character, Base64 6, and bytes of every value 8.
//!
//! ```text
//! records u16 | bits u16 | common u16 | shared width u8 | rest width u8 | character width u8
//! alphabet, 256 bits (if the character width is below 8) | the common beginning
//! symbols header
//! the bit at which each group but the first begins, u16
//! bits: for each id: shared (not for the first of a group) | rest length | rest
//! symbol words
//! ```

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Range;

use super::{BLOCK_BYTES, Column, Kind, MAX_RECORDS, Records};
use crate::bits::{self, BitWriter};
use crate::corrupt::{Corrupt, ensure};
use crate::id::{Class, Id, MAX_ID_BYTES};
use crate::symbols::{Seen, Symbols};

const FIXED_BYTES: usize = 9;
const ALPHABET_BYTES: usize = 32;
/// Ids that are decoded together: the first stands whole.
const GROUP: usize = 16;
/// The most bytes that a block's ids have together when decoded, so that a short block cannot ask for much memory:
/// text that repeats one character takes no bits at all.
const MAX_DECODED_BYTES: usize = 1 << 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Texts {
    highest_symbol: u128,
    symbol_bytes: usize,
}

impl Texts {
    pub fn new(highest_symbol: u128) -> Texts {
        Texts { highest_symbol, symbol_bytes: bits::bytes_for(highest_symbol).max(1) }
    }
}

/// Ids one after the other in one allocation.
#[derive(Default, Clone)]
pub(crate) struct TextColumn {
    bytes: Vec<u8>,
    /// Where each id ends.
    ends: Vec<usize>,
}

impl TextColumn {
    fn start(&self, at: usize) -> usize {
        if at == 0 { 0 } else { self.ends[at - 1] }
    }
}

impl Column for TextColumn {
    type Id = [u8];

    fn at(&self, at: usize) -> &[u8] {
        &self.bytes[self.start(at)..self.ends[at]]
    }

    fn push(&mut self, id: &[u8]) {
        self.bytes.extend_from_slice(id);
        self.ends.push(self.bytes.len());
    }

    fn insert(&mut self, at: usize, id: &[u8]) {
        let start = self.start(at);
        self.bytes.splice(start..start, id.iter().copied());
        self.ends.insert(at, start);
        self.ends[at..].iter_mut().for_each(|end| *end += id.len());
    }

    fn remove(&mut self, at: usize) {
        let range = self.start(at)..self.ends[at];
        self.ends.remove(at);
        self.ends[at..].iter_mut().for_each(|end| *end -= range.len());
        self.bytes.drain(range);
    }

    fn truncate(&mut self, count: usize) {
        self.bytes.truncate(self.start(count));
        self.ends.truncate(count);
    }

    fn drop_front(&mut self, count: usize) {
        let dropped = self.start(count);
        self.bytes.drain(..dropped);
        self.ends.drain(..count);
        self.ends.iter_mut().for_each(|end| *end -= dropped);
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

impl Kind for Texts {
    type Id = [u8];
    type Column = TextColumn;
    const KEYS_ARE_EXACT: bool = false;

    fn class(self) -> Class {
        Class::Text
    }

    fn id(self, id: &[u8]) -> Id<'_> {
        Id::Text(Cow::Borrowed(id))
    }

    fn own<'a>(self, id: &'a Id<'_>) -> Option<&'a [u8]> {
        match id {
            Id::Text(text) => Some(text),
            Id::Number(..) => None,
        }
    }

    /// The first sixteen bytes.
    fn key(id: &[u8]) -> u128 {
        let mut key = [0; 16];
        let len = id.len().min(16);
        key[..len].copy_from_slice(&id[..len]);
        u128::from_be_bytes(key)
    }

    fn encode(self, records: &Records<Self>, from: usize, to: usize, out: &mut Vec<u8>) -> usize {
        let to = to.min(from + MAX_RECORDS);
        let mut plan = Plan::new(records.ids.at(from), records.symbols[from]);
        for at in from + 1..to {
            let longer = plan.with(records.ids.at(at - 1), records.ids.at(at), records.symbols[at]);
            if longer.bytes(self.symbol_bytes) > BLOCK_BYTES || longer.decoded > MAX_DECODED_BYTES {
                break;
            }
            plan = longer;
        }
        self.write(records, from, &plan, out);
        plan.count
    }

    fn decode(self, block: &[u8], out: &mut Records<Self>) {
        let view = View::open(self, block);
        let mut entry = Entry::default();
        let mut id = view.common.to_vec();
        for rank in 0..view.count {
            view.next(rank, &mut entry);
            id.truncate(view.common.len());
            id.extend_from_slice(&entry.text);
            out.ids.push(&id);
        }
        view.symbols.decode(view.words(), view.count, &mut out.symbols);
    }

    fn get(self, block: &[u8], id: &[u8]) -> Option<u128> {
        let view = View::open(self, block);
        let rank = view.rank(id)?;
        Some(view.symbols.get(view.words(), rank))
    }

    fn insert_into(self, _: &mut [u8], _: &[u8], _: u128) -> bool {
        false
    }

    fn overwrite(self, block: &mut [u8], id: &[u8], symbol: u128) -> bool {
        let view = View::open(self, block);
        let Some((rank, number)) = view.rank(id).zip(view.symbols.number(symbol)) else {
            return false;
        };
        let (words_at, packing) = (view.words_at, view.symbols.packing());
        packing.set(&mut block[words_at..], rank, number);
        true
    }

    fn first(self, block: &[u8]) -> Vec<u8> {
        let view = View::open(self, block);
        [view.common, &view.whole(0).text].concat()
    }

    fn compare_first(self, block: &[u8], id: &[u8]) -> Ordering {
        let view = View::open(self, block);
        view.common.iter().copied().chain(view.whole(0).text).cmp(id.iter().copied())
    }

    fn first_key(self, block: &[u8]) -> u128 {
        Texts::key(&self.first(block))
    }

    fn ids_part(self, block: &[u8]) -> Range<f32> {
        let view = View::open(self, block);
        let part = |byte: usize| byte as f32 / block.len() as f32;
        part(view.bits_at)..part(view.words_at)
    }

    fn used(self, block: &[u8]) -> usize {
        let view = View::open(self, block);
        view.words_at + view.symbols.words_len(view.count)
    }

    fn check_structure(self, block: &[u8]) -> Result<(), Corrupt> {
        View::open(self, block).check()
    }

    fn admits(self, id: &[u8]) -> bool {
        self.id(id).is_sound()
    }
}

/// What a block of the first `count` records would need.
#[derive(Clone)]
struct Plan<'a> {
    first: &'a [u8],
    count: usize,
    /// The length of what all ids begin with.
    common: usize,
    alphabet: Alphabet,
    longest_shared: usize,
    longest_id: usize,
    longest_rest: usize,
    /// The characters stored, if nothing were common.
    characters: usize,
    /// The characters of all ids.
    decoded: usize,
    seen: Seen,
}

impl<'a> Plan<'a> {
    /// A block of one id is all common beginning.
    fn new(first: &'a [u8], symbol: u128) -> Plan<'a> {
        let mut seen = Seen::default();
        seen.add(symbol);
        Plan {
            first,
            count: 1,
            common: first.len(),
            alphabet: Alphabet::default(),
            longest_shared: 0,
            longest_id: first.len(),
            longest_rest: 0,
            characters: first.len(),
            decoded: first.len(),
            seen,
        }
    }

    fn with(&self, before: &[u8], id: &[u8], symbol: u128) -> Plan<'a> {
        let shared = shared(before, id);
        let mut plan = self.clone();
        plan.seen.add(symbol);
        plan.common = self.common.min(shared);
        plan.alphabet.add(&self.first[plan.common..self.common]);
        if self.count.is_multiple_of(GROUP) {
            plan.alphabet.add(&id[plan.common..]);
            plan.longest_id = self.longest_id.max(id.len());
            plan.characters += id.len();
        } else {
            plan.alphabet.add(&id[shared..]);
            plan.longest_shared = self.longest_shared.max(shared);
            plan.longest_rest = self.longest_rest.max(id.len() - shared);
            plan.characters += id.len() - shared;
        }
        plan.decoded += id.len();
        plan.count += 1;
        plan
    }

    fn groups(&self) -> usize {
        self.count.div_ceil(GROUP)
    }

    fn shared_width(&self) -> u32 {
        bits::width(self.longest_shared.saturating_sub(self.common) as u128)
    }

    fn rest_width(&self) -> u32 {
        bits::width(self.longest_rest.max(self.longest_id - self.common) as u128)
    }

    fn bits(&self) -> usize {
        (self.count - self.groups()) * self.shared_width() as usize
            + self.count * self.rest_width() as usize
            + (self.characters - self.groups() * self.common) * self.alphabet.width() as usize
    }

    fn bytes(&self, symbol_bytes: usize) -> usize {
        FIXED_BYTES
            + self.alphabet.bytes()
            + self.common
            + 2 * (self.groups() - 1)
            + self.bits().div_ceil(8)
            + self.seen.bytes(symbol_bytes, self.count)
    }
}

impl Texts {
    fn write(self, records: &Records<Self>, from: usize, plan: &Plan, out: &mut Vec<u8>) {
        let (common, width) = (plan.common, plan.alphabet.width());
        bits::put_u16(out, plan.count);
        bits::put_u16(out, plan.bits());
        bits::put_u16(out, common);
        out.extend([plan.shared_width() as u8, plan.rest_width() as u8, width as u8]);
        plan.alphabet.write(out);
        out.extend_from_slice(&plan.first[..common]);
        plan.seen.write_header(self.symbol_bytes, plan.count, out);

        let numbers = plan.alphabet.numbers();
        let (mut groups, mut text) = (Vec::new(), Vec::new());
        let mut writer = BitWriter::new(&mut text);
        for rank in 0..plan.count {
            let id = records.ids.at(from + rank);
            let mut rest = &id[common..];
            if rank.is_multiple_of(GROUP) {
                if rank > 0 {
                    bits::put_u16(&mut groups, writer.len());
                }
            } else {
                let shared = shared(records.ids.at(from + rank - 1), id);
                writer.put_short((shared - common) as u64, plan.shared_width());
                rest = &id[shared..];
            }
            writer.put_short(rest.len() as u64, plan.rest_width());
            rest.iter().for_each(|&byte| writer.put_short(numbers[usize::from(byte)].into(), width));
        }
        debug_assert_eq!(writer.len(), plan.bits());
        writer.finish();
        out.extend(groups);
        out.extend(text);
        plan.seen.write_words(self.symbol_bytes, &records.symbols[from..from + plan.count], out);
    }
}

/// How many bytes two ids have in common at their beginning.
fn shared(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The characters that occur in a block.
#[derive(Clone, Copy, Default)]
struct Alphabet([u64; 4]);

impl Alphabet {
    fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0[usize::from(byte) / 64] |= 1 << (byte % 64);
        }
    }

    fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    fn width(&self) -> u32 {
        bits::width(self.len().saturating_sub(1) as u128)
    }

    fn bytes(&self) -> usize {
        if self.width() < 8 { ALPHABET_BYTES } else { 0 }
    }

    fn write(&self, out: &mut Vec<u8>) {
        if self.width() < 8 {
            self.0.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        }
    }

    fn read(block: &[u8]) -> Alphabet {
        Alphabet([0, 8, 16, 24].map(|at| bits::load(block, FIXED_BYTES + at)))
    }

    /// The number of each character.
    fn numbers(&self) -> [u8; 256] {
        let mut numbers = std::array::from_fn(|byte| byte as u8);
        if self.width() < 8 {
            self.characters().enumerate().for_each(|(number, byte)| numbers[usize::from(byte)] = number as u8);
        }
        numbers
    }

    /// The characters in the order of their numbers.
    fn characters(&self) -> impl Iterator<Item = u8> {
        self.0.into_iter().enumerate().flat_map(|(at, mut word)| {
            std::iter::from_fn(move || {
                (word != 0).then(|| {
                    let bit = word.trailing_zeros();
                    word &= word - 1;
                    (64 * at) as u8 + bit as u8
                })
            })
        })
    }
}

/// A block's header, read.
struct View<'a> {
    kind: Texts,
    block: &'a [u8],
    count: usize,
    bits: usize,
    shared_width: u32,
    rest_width: u32,
    character_width: u32,
    common: &'a [u8],
    symbols: Symbols<'a>,
    groups_at: usize,
    bits_at: usize,
    words_at: usize,
    /// The character of each number.
    characters: [u8; 256],
}

/// An id without the common beginning, and where the bits of the next one are.
#[derive(Default)]
struct Entry {
    text: Vec<u8>,
    next: usize,
}

impl<'a> View<'a> {
    fn open(kind: Texts, block: &'a [u8]) -> View<'a> {
        let at = |at: usize| u32::from(block.get(at).copied().unwrap_or(0));
        let count = super::count(block);
        let character_width = at(8).min(8);
        let common_at = FIXED_BYTES + if character_width < 8 { ALPHABET_BYTES } else { 0 };
        let symbols_at = common_at + bits::get_u16(block, 4);
        let (symbols, symbols_len) = Symbols::open(block.get(symbols_at..).unwrap_or_default(), kind.symbol_bytes);
        let groups_at = symbols_at + symbols_len;
        let bits_at = groups_at + 2 * count.div_ceil(GROUP).saturating_sub(1);
        let bits = bits::get_u16(block, 2);
        let mut characters = std::array::from_fn(|byte| byte as u8);
        if character_width < 8 {
            characters.iter_mut().zip(Alphabet::read(block).characters()).for_each(|(to, byte)| *to = byte);
        }
        View {
            kind,
            block,
            count,
            bits,
            shared_width: at(6).min(16),
            rest_width: at(7).min(16),
            character_width,
            common: block.get(common_at..symbols_at).unwrap_or_default(),
            symbols,
            groups_at,
            bits_at,
            words_at: bits_at + bits.div_ceil(8),
            characters,
        }
    }

    fn words(&self) -> &'a [u8] {
        self.block.get(self.words_at..).unwrap_or_default()
    }

    /// Where the bits of a group begin.
    fn group(&self, group: usize) -> usize {
        8 * self.bits_at + if group == 0 { 0 } else { bits::get_u16(self.block, self.groups_at + 2 * (group - 1)) }
    }

    /// The first id of a group.
    fn whole(&self, group: usize) -> Entry {
        let mut entry = Entry { text: Vec::new(), next: self.group(group) };
        self.take_rest(&mut entry);
        entry
    }

    /// Turns the id at `rank - 1` into the one at `rank`.
    fn next(&self, rank: usize, entry: &mut Entry) {
        if rank.is_multiple_of(GROUP) {
            entry.text.clear();
            entry.next = self.group(rank / GROUP);
        } else {
            let shared = self.take(entry, self.shared_width);
            entry.text.truncate(shared);
        }
        self.take_rest(entry);
    }

    fn take_rest(&self, entry: &mut Entry) {
        let len = self.take(entry, self.rest_width);
        let width = self.character_width as usize;
        entry.text.extend((0..len).map(|at| {
            let number = bits::get_short(self.block, entry.next + at * width, self.character_width);
            self.characters[number as usize]
        }));
        entry.next += len * width;
    }

    fn take(&self, entry: &mut Entry, width: u32) -> usize {
        let number = bits::get_short(self.block, entry.next, width);
        entry.next += width as usize;
        number as usize
    }

    /// The place of an id among the block's records.
    fn rank(&self, id: &[u8]) -> Option<usize> {
        let text = id.strip_prefix(self.common)?;
        let (mut low, mut high) = (0, self.count.div_ceil(GROUP));
        while high - low > 1 {
            let middle = usize::midpoint(low, high);
            if self.whole(middle).text.as_slice() <= text {
                low = middle;
            } else {
                high = middle;
            }
        }
        let mut entry = Entry::default();
        for rank in low * GROUP..self.count.min((low + 1) * GROUP) {
            self.next(rank, &mut entry);
            match entry.text.as_slice().cmp(text) {
                Ordering::Less => {}
                Ordering::Equal => return Some(rank),
                Ordering::Greater => return None,
            }
        }
        None
    }

    fn check(&self) -> Result<(), Corrupt> {
        let length = self.words_at + self.symbols.words_len(self.count);
        ensure(self.block.len() == length, "a block is as long as its header says")?;
        ensure(self.block[6] <= 16 && self.block[7] <= 16 && self.block[8] <= 8, "widths are in range")?;
        if self.character_width < 8 {
            let characters = Alphabet::read(self.block).len();
            ensure(characters <= 1 << self.character_width, "every character has a number")?;
        }
        let mut entry = Entry { text: Vec::new(), next: self.group(0) };
        let mut decoded = 0;
        for rank in 0..self.count {
            if rank.is_multiple_of(GROUP) {
                ensure(self.group(rank / GROUP) == entry.next, "groups follow each other")?;
                entry.text.clear();
            } else {
                let shared = self.take(&mut entry, self.shared_width);
                ensure(shared <= entry.text.len(), "what is shared was there before")?;
                entry.text.truncate(shared);
            }
            let (at, shared) = (entry.next, entry.text.len());
            let rest = self.take(&mut entry, self.rest_width);
            let len = self.common.len() + shared + rest;
            decoded += len;
            ensure(len <= MAX_ID_BYTES, "an id has at most 4096 bytes")?;
            ensure(decoded <= MAX_DECODED_BYTES, "a block's ids have at most 65536 bytes")?;
            entry.next = at;
            self.take_rest(&mut entry);
            ensure(entry.next <= 8 * self.bits_at + self.bits, "ids lie within the block")?;
        }
        ensure(entry.next == 8 * self.bits_at + self.bits, "nothing lies between ids and symbols")?;
        self.symbols.check(self.words(), self.count, self.kind.highest_symbol)
    }
}
