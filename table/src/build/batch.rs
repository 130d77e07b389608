//! Rows in memory, to be sorted: one lane for each class of ids.
//!
//! A row is made as small as its class allows, because sorting is moving. Where id, offset and symbol fit 128 bits
//! together, as for the 20 digits of a card, a row is a single number, and sorting rows is sorting numbers.

use rayon::iter::{IntoParallelIterator, ParallelIterator};
use rayon::slice::ParallelSliceMut;
use std::ops::Range;

use super::pack::{Goal, Packer, Written};
use crate::bits;
use crate::block::{Kind, Texts};
use crate::id::{Class, Id};
use crate::schema::Schema;
use crate::tsv::Row;

/// The bits of a row's offset in the file, in packed rows.
const OFFSET_BITS: u32 = 44;

/// No file is longer: 16 TiB.
pub(super) const MAX_OFFSET: u64 = (1 << OFFSET_BITS) - 1;

/// The least rows that a thread writes by itself.
const PIECE_ROWS: usize = 100_000;

/// A lane grows by doubling while it is below this part of the memory for sorting, and then to the whole of it: moving
/// it later would need much of that memory twice.
const SMALL_PART: usize = 8;

pub(super) struct Batch {
    removal: u128,
    numbers: Vec<NumberLane>,
    texts: TextLane,
    /// Where the lane of the last number is: most files have one.
    last_lane: usize,
}

impl Batch {
    pub fn new(schema: &Schema) -> Batch {
        Batch { removal: schema.removal(), numbers: Vec::new(), texts: TextLane::default(), last_lane: 0 }
    }

    /// What the rows take.
    pub fn bytes(&self) -> usize {
        self.numbers.iter().map(NumberLane::bytes).sum::<usize>() + self.texts.bytes()
    }

    #[inline]
    pub fn push(&mut self, row: &Row) {
        let symbol = row.symbol.unwrap_or(self.removal);
        match &row.id {
            Id::Number(class, number) => self.lane(*class).push(*number, row.offset, symbol),
            Id::Text(bytes) => self.texts.push(bytes, row.offset, symbol),
        }
    }

    #[inline]
    fn lane(&mut self, class: Class) -> &mut NumberLane {
        if self.numbers.get(self.last_lane).is_none_or(|lane| lane.class != class) {
            self.last_lane = self.numbers.iter().position(|lane| lane.class == class).unwrap_or_else(|| {
                self.numbers.push(NumberLane::new(class, self.removal));
                self.numbers.len() - 1
            });
        }
        &mut self.numbers[self.last_lane]
    }

    /// Takes over all rows of another batch; `sort_bytes` is how much this one may come to hold.
    pub fn absorb(&mut self, other: &mut Batch, sort_bytes: usize) {
        for lane in &mut other.numbers {
            self.lane(lane.class).absorb(lane, sort_bytes);
        }
        self.texts.absorb(&mut other.texts, sort_bytes);
    }

    /// Sorts all rows, writes them class by class, and is empty again.
    pub fn write(&mut self, goal: Goal) -> Vec<(Class, Written)> {
        self.numbers.sort_by_key(|lane| lane.class);
        let numbers = self.numbers.iter_mut().map(|lane| (lane.class, lane.write(goal)));
        let written: Vec<_> = numbers.chain([(Class::Text, self.texts.write(goal))]).collect();
        self.last_lane = 0;
        written
    }
}

struct NumberLane {
    class: Class,
    symbol_bits: u32,
    rows: Rows,
}

enum Rows {
    Packed(Vec<Packed>),
    Wide(Vec<Wide>),
}

/// Id, offset and symbol in one number, in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Packed(u128);

/// A row that does not fit one number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Wide {
    id: u128,
    offset: u64,
    symbol: u128,
}

/// A row of a number's lane, ordered by id and then by offset.
trait NumberRow: Ord + Copy + Send + Sync {
    fn id(&self, symbol_bits: u32) -> u128;
    fn symbol(&self, symbol_bits: u32) -> u128;
}

impl NumberRow for Packed {
    #[inline]
    fn id(&self, symbol_bits: u32) -> u128 {
        self.0 >> (OFFSET_BITS + symbol_bits)
    }

    #[inline]
    fn symbol(&self, symbol_bits: u32) -> u128 {
        self.0 & ((1 << symbol_bits) - 1)
    }
}

impl NumberRow for Wide {
    fn id(&self, _: u32) -> u128 {
        self.id
    }

    fn symbol(&self, _: u32) -> u128 {
        self.symbol
    }
}

impl NumberLane {
    fn new(class: Class, highest_symbol: u128) -> NumberLane {
        let symbol_bits = bits::width(highest_symbol);
        let packed = bits::width(class.max()) + OFFSET_BITS + symbol_bits <= 128;
        let rows = if packed { Rows::Packed(Vec::new()) } else { Rows::Wide(Vec::new()) };
        NumberLane { class, symbol_bits, rows }
    }

    fn bytes(&self) -> usize {
        match &self.rows {
            Rows::Packed(rows) => size_of_val(rows.as_slice()),
            Rows::Wide(rows) => size_of_val(rows.as_slice()),
        }
    }

    #[inline]
    fn push(&mut self, id: u128, offset: u64, symbol: u128) {
        match &mut self.rows {
            Rows::Packed(rows) => {
                rows.push(Packed((id << OFFSET_BITS | u128::from(offset)) << self.symbol_bits | symbol));
            }
            Rows::Wide(rows) => rows.push(Wide { id, offset, symbol }),
        }
    }

    /// Sorts the rows, writes them, and is empty again.
    fn write(&mut self, goal: Goal) -> Written {
        match &mut self.rows {
            Rows::Packed(rows) => sort_and_write(rows, self.class, self.symbol_bits, goal),
            Rows::Wide(rows) => sort_and_write(rows, self.class, self.symbol_bits, goal),
        }
    }

    fn absorb(&mut self, other: &mut NumberLane, sort_bytes: usize) {
        match (&mut self.rows, &mut other.rows) {
            (Rows::Packed(to), Rows::Packed(from)) => move_rows(to, from, sort_bytes),
            (Rows::Wide(to), Rows::Wide(from)) => move_rows(to, from, sort_bytes),
            _ => unreachable!("lanes of one class are alike"),
        }
    }
}

fn sort_and_write<R: NumberRow>(rows: &mut Vec<R>, class: Class, symbol_bits: u32, goal: Goal) -> Written {
    rows.par_sort_unstable();
    let id = |at: usize| rows[at].id(symbol_bits);
    let packer = || Packer::new(goal.numbers(class), goal);
    let written = write_in_pieces(
        packer,
        rows.len(),
        |a, b| id(a) == id(b),
        |at, packer| {
            packer.push(&id(at), rows[at].symbol(symbol_bits));
        },
    );
    rows.clear();
    written
}

fn move_rows<R>(to: &mut Vec<R>, from: &mut Vec<R>, sort_bytes: usize) {
    let (needed, all) = (to.len() + from.len(), sort_bytes / size_of::<R>());
    if needed > to.capacity() {
        let wanted = if needed <= all / SMALL_PART { 2 * needed } else { needed.max(all) };
        to.reserve_exact(wanted - to.len());
    }
    to.append(from);
}

/// Writes sorted rows, in parallel. Of rows with the same id only the last is written.
fn write_in_pieces<K: Kind>(
    packer: impl Fn() -> Packer<K> + Sync,
    len: usize,
    same: impl Fn(usize, usize) -> bool + Sync,
    write: impl Fn(usize, &mut Packer<K>) + Sync,
) -> Written {
    // In a short run, half-empty blocks between pieces would show.
    let pieces = (len / PIECE_ROWS).clamp(1, rayon::current_num_threads());
    let cut = |piece: usize| {
        let mut at = len / pieces * piece;
        while at > 0 && at < len && same(at - 1, at) {
            at += 1;
        }
        if piece == pieces { len } else { at }
    };
    let write_piece = |rows: Range<usize>| {
        let mut packer = packer();
        for at in rows {
            if at + 1 < len && same(at, at + 1) {
                packer.skip();
            } else {
                write(at, &mut packer);
            }
        }
        packer.finish()
    };
    let written: Vec<Written> =
        (0..pieces).into_par_iter().map(|piece| write_piece(cut(piece)..cut(piece + 1))).collect();
    let mut whole = Written::default();
    written.into_iter().for_each(|piece| whole.append(piece));
    whole
}

/// Texts one after the other, and a row for each.
#[derive(Default)]
struct TextLane {
    bytes: Vec<u8>,
    rows: Vec<TextRow>,
}

struct TextRow {
    /// The text's first bytes, which mostly decide already.
    key: u64,
    start: usize,
    len: u16,
    offset: u64,
    symbol: u128,
}

impl TextLane {
    fn bytes(&self) -> usize {
        self.bytes.len() + size_of_val(self.rows.as_slice())
    }

    fn push(&mut self, text: &[u8], offset: u64, symbol: u128) {
        let key = (Texts::key(text) >> 64) as u64;
        self.rows.push(TextRow { key, start: self.bytes.len(), len: text.len() as u16, offset, symbol });
        self.bytes.extend_from_slice(text);
    }

    fn absorb(&mut self, other: &mut TextLane, sort_bytes: usize) {
        let start = self.bytes.len();
        other.rows.iter_mut().for_each(|row| row.start += start);
        // Text and rows share the memory; how is not known before.
        move_rows(&mut self.bytes, &mut other.bytes, sort_bytes / 2);
        move_rows(&mut self.rows, &mut other.rows, sort_bytes / 2);
    }

    fn write(&mut self, goal: Goal) -> Written {
        let bytes = &self.bytes;
        let text = |row: &TextRow| &bytes[row.start..row.start + usize::from(row.len)];
        self.rows.par_sort_unstable_by(|a, b| {
            a.key.cmp(&b.key).then_with(|| text(a).cmp(text(b))).then_with(|| a.offset.cmp(&b.offset))
        });
        let rows = &self.rows;
        let same = |a: usize, b: usize| rows[a].key == rows[b].key && text(&rows[a]) == text(&rows[b]);
        let packer = || Packer::new(goal.texts(), goal);
        let written = write_in_pieces(packer, rows.len(), same, |at, packer| {
            packer.push(text(&rows[at]), rows[at].symbol);
        });
        self.rows.clear();
        self.bytes.clear();
        written
    }
}
