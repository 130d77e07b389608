//! Blocks of numbers: Elias–Fano in segments.
//!
//! A segment holds its first id as it is; each further id as its offset beyond that, less one. An offset is split: its
//! lowest `w` bits are packed one after the other, what lies above is written in unary, as a step from the offset
//! before (so many zeros, then a one). To find an offset, skip as many zeros as its high part says; the ones that
//! follow are the ids with that high part, and their place among the ones is the place of their low bits. A segment so
//! dense that this is longer than one bit a number is a plain bitmap, and one without gaps takes no bits at all.
//!
//! ```text
//! records u16 | id bits u16 | further segments u8 | start width u8 | first id | low width of segment 0 u8
//! further segments: start (distance from the first id) | rank u16 | bit u16 | low width u8
//! symbols header
//! id bits: for each segment its unary part, then its low bits (or its bitmap)
//! symbol words
//! ```
//!
//! `rank` and `bit` are where the segment's records and bits begin. Everything else follows from these.

use std::cmp::Ordering;
use std::ops::Range;

use super::segments::{self, BITMAP, Cutter};
use super::{BLOCK_BYTES, Column, Kind, MAX_RECORDS, Records};
use crate::bits::{self, BitWriter};
use crate::corrupt::{Corrupt, ensure};
use crate::cpu;
use crate::id::{Class, Id};
use crate::symbols::{Seen, Symbols};

/// Records, id bits, further segments, start width.
const FIXED_BYTES: usize = 6;
/// Rank, bit and low width of a further segment.
const SEGMENT_FIXED_BYTES: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Numbers {
    class: Class,
    max: u128,
    id_bytes: usize,
    highest_symbol: u128,
    symbol_bytes: usize,
}

impl Numbers {
    pub fn new(class: Class, highest_symbol: u128) -> Numbers {
        let max = class.max();
        Numbers {
            class,
            max,
            id_bytes: bits::bytes_for(max),
            highest_symbol,
            symbol_bytes: bits::bytes_for(highest_symbol).max(1),
        }
    }
}

impl Column for Vec<u128> {
    type Id = u128;

    fn at(&self, at: usize) -> &u128 {
        &self[at]
    }

    fn push(&mut self, id: &u128) {
        Vec::push(self, *id);
    }

    fn insert(&mut self, at: usize, id: &u128) {
        Vec::insert(self, at, *id);
    }

    fn remove(&mut self, at: usize) {
        Vec::remove(self, at);
    }

    fn truncate(&mut self, count: usize) {
        Vec::truncate(self, count);
    }

    fn drop_front(&mut self, count: usize) {
        self.drain(..count);
    }

    fn clear(&mut self) {
        Vec::clear(self);
    }
}

impl Kind for Numbers {
    type Id = u128;
    type Column = Vec<u128>;
    const KEYS_ARE_EXACT: bool = true;

    fn class(self) -> Class {
        self.class
    }

    fn id(self, id: &u128) -> Id<'_> {
        Id::Number(self.class, *id)
    }

    fn own<'a>(self, id: &'a Id<'_>) -> Option<&'a u128> {
        match id {
            Id::Number(class, number) if *class == self.class => Some(number),
            _ => None,
        }
    }

    fn key(id: &u128) -> u128 {
        *id
    }

    fn encode(self, records: &Records<Self>, from: usize, to: usize, out: &mut Vec<u8>) -> usize {
        let to = to.min(from + MAX_RECORDS);
        let ids = &records.ids[from..to];
        let symbols = &records.symbols[from..to];
        let Plan { cuts, seen, len } = self.plan(ids, symbols);
        self.write(&ids[..len], &symbols[..len], &cuts, &seen, out);
        len
    }

    fn decode(self, block: &[u8], out: &mut Records<Self>) {
        let view = View::open(self, block);
        out.ids.reserve(view.count);
        for at in 0..view.segments {
            view.decode_segment(&view.segment(at), &mut out.ids);
        }
        view.symbols.decode(view.words(), view.count, &mut out.symbols);
    }

    #[inline]
    fn get(self, block: &[u8], id: &u128) -> Option<u128> {
        let view = View::open(self, block);
        let rank = view.rank(*id)?;
        Some(view.symbols.get(view.words(), rank))
    }

    fn first(self, block: &[u8]) -> u128 {
        self.first_key(block)
    }

    fn insert_into(self, block: &mut [u8], id: &u128, symbol: u128) -> bool {
        Numbers::insert_into(self, block, *id, symbol)
    }

    fn overwrite(self, block: &mut [u8], id: &u128, symbol: u128) -> bool {
        let view = View::open(self, block);
        let Some((rank, number)) = view.rank(*id).zip(view.symbols.number(symbol)) else {
            return false;
        };
        let (words_at, packing) = (view.words_at, view.symbols.packing());
        packing.set(&mut block[words_at..], rank, number);
        true
    }

    fn compare_first(self, block: &[u8], id: &u128) -> Ordering {
        self.first_key(block).cmp(id)
    }

    fn first_key(self, block: &[u8]) -> u128 {
        bits::get_bytes(block, FIXED_BYTES, self.id_bytes)
    }

    fn ids_part(self, block: &[u8]) -> Range<f32> {
        // The low bits, if there is one segment.
        let view = View::open(self, block);
        let part = |bit: usize| bit as f32 / (8 * block.len()) as f32;
        part(view.segment(0).lows())..part(8 * view.words_at)
    }

    fn used(self, block: &[u8]) -> usize {
        let view = View::open(self, block);
        view.words_at + view.symbols.words_len(view.count)
    }

    fn check_structure(self, block: &[u8]) -> Result<(), Corrupt> {
        View::open(self, block).check()
    }

    fn admits(self, id: &u128) -> bool {
        *id <= self.max && self.class.spells(*id)
    }
}

/// What a block will hold: its records, where its segments begin, which symbols occur.
struct Plan {
    len: usize,
    cuts: Vec<usize>,
    seen: Seen,
}

impl Numbers {
    /// As many records as fit a block, cut into segments.
    fn plan(self, ids: &[u128], symbols: &[u128]) -> Plan {
        // The further a block reaches, the wider the distances in its segment headers. The reach is not known yet:
        // assume that of all ids offered.
        let start_bytes = bits::bytes_for(ids[ids.len() - 1] - ids[0]);
        let mut cutter = Cutter::new(ids, 8 * (start_bytes + SEGMENT_FIXED_BYTES));
        let mut seen = Seen::default();
        let fits = |cutter: &Cutter, seen: &Seen, len: usize| {
            let header = FIXED_BYTES + self.id_bytes + 1;
            let bits = cutter.bits(len);
            bits <= 8 * BLOCK_BYTES && header + bits.div_ceil(8) + seen.bytes(self.symbol_bytes, len) <= BLOCK_BYTES
        };

        let mut len = 0;
        while len < ids.len() {
            let next = cutter.next_candidate(len);
            let before = seen.clone();
            symbols[len..next].iter().for_each(|&symbol| seen.add(symbol));
            if !fits(&cutter, &seen, next) {
                // Somewhere in this step the block is full. One record always fits.
                len = (len + last_fitting(next - len, |more| fits(&cutter, &seen, len + more))).max(1);
                seen = before;
                symbols[..len].iter().for_each(|&symbol| seen.add(symbol));
                break;
            }
            len = next;
            if len < ids.len() {
                cutter.add_candidate(len);
            }
        }
        Plan { len, cuts: cutter.cuts(len), seen }
    }

    fn write(self, ids: &[u128], symbols: &[u128], cuts: &[usize], seen: &Seen, out: &mut Vec<u8>) {
        let start_bytes = segments::start_bytes(ids, cuts);
        let ends = cuts[1..].iter().copied().chain([ids.len()]);
        let segments: Vec<(&[u128], segments::Cost)> = cuts
            .iter()
            .zip(ends)
            .map(|(&begin, end)| {
                let ids = &ids[begin..end];
                (ids, segments::cost(ids.len() - 1, ids[ids.len() - 1] - ids[0]))
            })
            .collect();

        bits::put_u16(out, ids.len());
        bits::put_u16(out, segments.iter().map(|(_, cost)| cost.bits).sum());
        out.push((segments.len() - 1) as u8);
        out.push(start_bytes as u8);
        bits::put_bytes(out, ids[0], self.id_bytes);
        let (mut rank, mut bit) = (0, 0);
        for (at, (segment, cost)) in segments.iter().enumerate() {
            if at > 0 {
                bits::put_bytes(out, segment[0] - ids[0], start_bytes);
                bits::put_u16(out, rank);
                bits::put_u16(out, bit);
            }
            out.push(cost.low_width);
            rank += segment.len();
            bit += cost.bits;
        }
        seen.write_header(self.symbol_bytes, ids.len(), out);

        let mut writer = BitWriter::new(out);
        for (segment, cost) in segments {
            let before = writer.len();
            write_segment(segment, cost, &mut writer);
            debug_assert_eq!(writer.len() - before, cost.bits);
        }
        writer.finish();
        seen.write_words(self.symbol_bytes, symbols, out);
    }
}

/// The last number below `end` for which `fits` holds, given that it holds for 0 and, once it does not, no more.
fn last_fitting(end: usize, fits: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, end);
    while high - low > 1 {
        let middle = usize::midpoint(low, high);
        if fits(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

fn write_segment(ids: &[u128], cost: segments::Cost, writer: &mut BitWriter) {
    if cost.bits == 0 {
        return;
    }
    let rest = &ids[1..];
    if cost.low_width == BITMAP {
        ids.windows(2).for_each(|pair| writer.put_unary((pair[1] - pair[0] - 1) as u64));
        return;
    }
    // Not beyond the last number: there are ids after the first.
    let first = ids[0] + 1;
    let width = u32::from(cost.low_width);
    let mut high = 0;
    for &id in rest {
        let next = ((id - first) >> width) as u64;
        writer.put_unary(next - high);
        high = next;
    }
    if width == 0 {
        return;
    }
    if width <= 56 {
        let mask = (1u64 << width) - 1;
        rest.iter().for_each(|&id| writer.put_short((id - first) as u64 & mask, width));
    } else {
        let mask = (1u128 << width) - 1;
        rest.iter().for_each(|&id| writer.put((id - first) & mask, width));
    }
}

/// A block's header, read.
pub(super) struct View<'a> {
    kind: Numbers,
    block: &'a [u8],
    pub count: usize,
    pub id_bits: usize,
    /// All segments, the first included.
    pub segments: usize,
    pub start_bytes: usize,
    first: u128,
    pub symbols: Symbols<'a>,
    pub bits_at: usize,
    words_at: usize,
}

#[derive(Clone, Copy)]
pub(super) struct Segment {
    pub first: u128,
    pub rank: usize,
    /// Ids beyond the first.
    pub rest: usize,
    pub low_width: u8,
    /// Where its bits begin and end, counted from the start of the block.
    pub bits: (usize, usize),
}

impl<'a> View<'a> {
    #[inline]
    pub fn open(kind: Numbers, block: &'a [u8]) -> View<'a> {
        let at = |at: usize| usize::from(block.get(at).copied().unwrap_or(0));
        let further = at(4);
        let start_bytes = at(5).min(16);
        let symbols_at = FIXED_BYTES + kind.id_bytes + 1 + further * (start_bytes + SEGMENT_FIXED_BYTES);
        let (symbols, symbols_len) = Symbols::open(block.get(symbols_at..).unwrap_or_default(), kind.symbol_bytes);
        let bits_at = symbols_at + symbols_len;
        let id_bits = bits::get_u16(block, 2);
        View {
            kind,
            block,
            count: super::count(block),
            id_bits,
            segments: further + 1,
            start_bytes,
            first: bits::get_bytes(block, FIXED_BYTES, kind.id_bytes),
            symbols,
            bits_at,
            words_at: bits_at + id_bits.div_ceil(8),
        }
    }

    pub fn words(&self) -> &'a [u8] {
        self.block.get(self.words_at..).unwrap_or_default()
    }

    /// Where the header of a further segment begins.
    #[inline]
    pub fn header(&self, segment: usize) -> usize {
        FIXED_BYTES + self.kind.id_bytes + 1 + (segment - 1) * (self.start_bytes + SEGMENT_FIXED_BYTES)
    }

    #[inline]
    fn start(&self, segment: usize) -> u128 {
        if segment == 0 { 0 } else { bits::get_bytes(self.block, self.header(segment), self.start_bytes) }
    }

    /// A segment's first rank and first bit; those of the one beyond the last are where the block's records end.
    #[inline]
    fn begin(&self, segment: usize) -> (usize, usize) {
        if segment == 0 {
            (0, 0)
        } else if segment == self.segments {
            (self.count, self.id_bits)
        } else {
            let at = self.header(segment) + self.start_bytes;
            (bits::get_u16(self.block, at), bits::get_u16(self.block, at + 2))
        }
    }

    #[inline]
    pub fn segment(&self, at: usize) -> Segment {
        let low_width_at =
            if at == 0 { FIXED_BYTES + self.kind.id_bytes } else { self.header(at) + self.start_bytes + 4 };
        let ((rank, bit), (next_rank, next_bit)) = (self.begin(at), self.begin(at + 1));
        Segment {
            // Wraps only in a damaged block, whose ids then do not ascend.
            first: self.first.wrapping_add(self.start(at)),
            rank,
            rest: next_rank.wrapping_sub(rank + 1),
            low_width: self.block.get(low_width_at).copied().unwrap_or(0),
            bits: (8 * self.bits_at + bit, 8 * self.bits_at + next_bit),
        }
    }

    /// The segment that the id is in, or would be; none if the id is below the block's first.
    #[inline]
    pub fn segment_of(&self, id: u128) -> Option<usize> {
        let distance = id.checked_sub(self.first)?;
        let (mut low, mut high) = (0, self.segments);
        while high - low > 1 {
            let middle = usize::midpoint(low, high);
            if self.start(middle) <= distance {
                low = middle;
            } else {
                high = middle;
            }
        }
        Some(low)
    }

    /// The place of an id among the block's records.
    #[inline]
    fn rank(&self, id: u128) -> Option<usize> {
        let segment = self.segment(self.segment_of(id)?);
        match id - segment.first {
            0 => Some(segment.rank),
            beyond => Some(segment.rank + 1 + segment.find(self.block, beyond - 1)?),
        }
    }

    fn decode_segment(&self, segment: &Segment, out: &mut Vec<u128>) {
        out.push(segment.first);
        let beyond = segment.first.wrapping_add(1);
        let (from, to) = segment.bits;
        if segment.low_width == BITMAP {
            if from == to {
                out.extend((0..segment.rest as u128).map(|offset| beyond.wrapping_add(offset)));
            } else {
                ones(self.block, from, to).for_each(|at| out.push(beyond.wrapping_add((at - from) as u128)));
            }
            return;
        }
        let width = u32::from(segment.low_width);
        let lows = segment.lows();
        let highs = ones(self.block, from, lows).enumerate().map(|(rank, at)| (rank, at - from - rank));
        if width <= 56 {
            out.extend(highs.map(|(rank, high)| {
                let low = bits::get_short(self.block, lows + rank * width as usize, width);
                beyond.wrapping_add((high as u128) << width | u128::from(low))
            }));
        } else {
            out.extend(highs.map(|(rank, high)| {
                let low = bits::get(self.block, lows + rank * width as usize, width);
                beyond.wrapping_add((high as u128) << width | low)
            }));
        }
    }

    fn check(&self) -> Result<(), Corrupt> {
        let block = self.block;
        let length = self.words_at + self.symbols.words_len(self.count);
        ensure(block.len() == length, "a block is as long as its header says")?;
        ensure(block[5] <= 16, "a start has at most 16 bytes")?;
        for at in 0..self.segments {
            let ((rank, bit), (next_rank, next_bit)) = (self.begin(at), self.begin(at + 1));
            ensure(rank < next_rank && next_rank <= self.count, "segments are not empty")?;
            ensure(bit <= next_bit && next_bit <= self.id_bits, "segments follow each other")?;
            let segment = self.segment(at);
            let (from, to) = segment.bits;
            if segment.low_width == BITMAP {
                let gapless = from == to;
                let count = ones(block, from, to).count();
                ensure(gapless || count == segment.rest, "a bitmap has a bit set for each id")?;
            } else {
                let width = usize::from(segment.low_width);
                ensure(width < 128, "low bits are fewer than 128")?;
                let needed = segment.rest * (1 + width);
                ensure(needed <= to - from, "a segment has bits for each id")?;
                let zeros = (to - from - needed) as u128;
                ensure(bits::width(zeros) as usize + width <= 128, "an offset fits 128 bits")?;
                ensure(ones(block, from, segment.lows()).count() == segment.rest, "a high part for each id")?;
            }
        }
        self.symbols.check(self.words(), self.count, self.kind.highest_symbol)
    }
}

impl Segment {
    /// Where the low bits begin.
    #[inline]
    pub fn lows(&self) -> usize {
        if self.low_width == BITMAP { self.bits.1 } else { self.bits.1 - self.rest * usize::from(self.low_width) }
    }

    /// The place of an offset among those of the ids beyond the first.
    #[inline]
    fn find(&self, block: &[u8], offset: u128) -> Option<usize> {
        if self.low_width == BITMAP {
            return self.find_in_bitmap(block, offset);
        }
        let width = usize::from(self.low_width);
        let (at, rank) = self.bucket(block, offset)?;
        let here = self.ones_from(block, at);
        let low = offset & ((1 << width) - 1);
        let is_at = |rank: usize| bits::get(block, self.lows() + rank * width, width as u32) == low;
        (rank..rank + here).find(|&rank| is_at(rank))
    }

    /// How many ones follow each other from a bit of the unary part on.
    #[inline]
    fn ones_from(&self, block: &[u8], at: usize) -> usize {
        // 56 bits are there wherever a byte is entered; more ones than that are counted on.
        let ones = (bits::load(block, at / 8) >> (at % 8)).trailing_ones() as usize;
        let left = self.lows() - at;
        if ones < 56 { ones.min(left) } else { self.many_ones_from(block, at).min(left) }
    }

    #[cold]
    fn many_ones_from(&self, block: &[u8], at: usize) -> usize {
        (at..self.lows()).take_while(|&at| bits::get_short(block, at, 1) == 1).count()
    }

    /// Where an offset is, or would be: the bit in the unary part and the place among the low bits. None if that is
    /// beyond the end of the unary part.
    pub fn place(&self, block: &[u8], offset: u128) -> Option<(usize, usize)> {
        let width = u32::from(self.low_width);
        let (at, rank) = self.bucket(block, offset)?;
        let low = offset & ((1 << width) - 1);
        let is_below = |rank: &usize| bits::get(block, self.lows() + rank * width as usize, width) < low;
        let below = (rank..rank + self.ones_from(block, at)).take_while(is_below).count();
        Some((at + below, rank + below))
    }

    /// Where the ids begin that share an offset's high part, or would: the bit in the unary part and the place among the
    /// low bits. None if that is beyond the end of the unary part.
    #[inline]
    fn bucket(&self, block: &[u8], offset: u128) -> Option<(usize, usize)> {
        let (from, lows) = (self.bits.0, self.lows());
        let zeros = lows - from - self.rest;
        let high = usize::try_from(offset >> self.low_width).ok().filter(|&high| high <= zeros)?;
        let at = if high == 0 { from } else { zero(block, from..lows, high - 1) + 1 };
        Some((at, at - from - high))
    }

    fn find_in_bitmap(&self, block: &[u8], offset: u128) -> Option<usize> {
        if self.bits.0 == self.bits.1 {
            return usize::try_from(offset).ok().filter(|&offset| offset < self.rest);
        }
        let (at, rank) = self.place_in_bitmap(block, offset)?;
        (bits::get_short(block, at, 1) == 1).then_some(rank)
    }

    /// The bit of an offset, and how many are set before it; none if it is beyond the bitmap.
    pub fn place_in_bitmap(&self, block: &[u8], offset: u128) -> Option<(usize, usize)> {
        let (from, to) = self.bits;
        let at = usize::try_from(offset).ok().filter(|&offset| offset < to - from)? + from;
        Some((at, ones(block, from, at).count()))
    }
}

/// Where the bits `from..to` are ones.
fn ones(block: &[u8], from: usize, to: usize) -> impl Iterator<Item = usize> {
    (from / 8..to.div_ceil(8)).step_by(8).flat_map(move |byte| {
        let mut word = bits::load(block, byte);
        let begin = 8 * byte;
        if begin < from {
            word &= u64::MAX << (from - begin);
        }
        if to - begin < 64 {
            word &= (1 << (to - begin)) - 1;
        }
        std::iter::from_fn(move || {
            let at = word.trailing_zeros() as usize;
            (word != 0).then(|| {
                word &= word - 1;
                begin + at
            })
        })
    })
}

/// Where among the bits the zero is that has `before` zeros before it. There must be one.
#[inline]
fn zero(block: &[u8], bits: Range<usize>, before: usize) -> usize {
    let byte = bits.start / 8;
    // The first byte may begin with bits that are not meant.
    let others = !block[byte] & ((1 << (bits.start % 8)) - 1);
    let meant = bits.end - 8 * byte;
    8 * byte + cpu::find_zero(&block[byte..], meant, before + others.count_ones() as usize)
}
