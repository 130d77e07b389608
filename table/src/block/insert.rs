//! Puts one record into a block of numbers without taking the block apart.
//!
//! Most inserts fall between two ids of a segment, or not far behind its last one, with a symbol that the block already
//! knows, and find room in the block's allocation. Then a one goes into the unary part (or the bitmap), the low bits in among the others, the symbol
//! in among the words, and everything else is copied as it is, 64 bits at a time: a tenth of the work of writing the
//! block anew. All other inserts are refused and left to that.

use super::MAX_RECORDS;
use super::number::{Numbers, Segment, View};
use super::segments::BITMAP;
use crate::bits::{self, BitWriter};

/// An id that lies further beyond the others than this is better written with widths or a segment of its own.
const MAX_ZEROS: usize = 64;

impl Numbers {
    /// Inserts an id that is not in the block; tells whether that was possible.
    pub(super) fn insert_into(self, block: &mut [u8], id: u128, symbol: u128) -> bool {
        match self.with_record(block, id, symbol) {
            Some(bytes) if bytes.len() <= block.len() => {
                let (used, rest) = block.split_at_mut(bytes.len());
                used.copy_from_slice(&bytes);
                // What is no longer used is zero, as in a block written anew.
                rest.fill(0);
                true
            }
            _ => false,
        }
    }

    fn with_record(self, block: &[u8], id: u128, symbol: u128) -> Option<Vec<u8>> {
        let view = View::open(self, block);
        let at = view.segment_of(id)?;
        let segment = view.segment(at);
        let number = view.symbols.number(symbol).filter(|_| view.count < MAX_RECORDS)?;
        let offset = (id - segment.first).checked_sub(1)?;
        let (begin, end) = (8 * view.bits_at, 8 * view.bits_at + view.id_bits);

        let mut out = Vec::with_capacity(block.len() + 16);
        out.extend_from_slice(&block[..view.bits_at]);
        let rank = if segment.low_width == BITMAP {
            let place = segment.place_beside_bitmap(block, offset)?;
            view.edit_header(&mut out, at, place.more_bits());
            let mut writer = BitWriter::new(&mut out);
            writer.copy(block, begin, place.bit);
            match place.new {
                New::Bit => writer.put_short(1, 1),
                New::Beyond(zeros) => writer.put_unary(zeros as u64),
                New::None => {}
            }
            writer.copy(block, place.bit + usize::from(place.new == New::Bit), end);
            writer.finish();
            place.rank
        } else {
            // An id beyond the segment's last one may need further zeros before its one.
            let (zeros, one_at, rank) = match segment.place(block, offset) {
                Some((at, rank)) => (0, at, rank),
                None => segment.place_beyond(offset)?,
            };
            let width = u32::from(segment.low_width);
            let low_at = segment.lows() + rank * width as usize;
            view.edit_header(&mut out, at, zeros + 1 + width as usize);
            let mut writer = BitWriter::new(&mut out);
            writer.copy(block, begin, one_at);
            writer.put_unary(zeros as u64);
            writer.copy(block, one_at, low_at);
            writer.put(offset & ((1 << width) - 1), width);
            writer.copy(block, low_at, end);
            writer.finish();
            rank
        };
        view.symbols.insert(view.words(), view.count, segment.rank + 1 + rank, number, &mut out);
        Some(out)
    }
}

/// Where an id goes in a bitmap, or behind it.
struct Place {
    bit: usize,
    rank: usize,
    new: New,
}

#[derive(PartialEq)]
enum New {
    /// A bit that is zero becomes a one.
    Bit,
    /// After so many zeros comes a one.
    Beyond(usize),
    /// Nothing: there are no gaps, and still will not be.
    None,
}

impl Place {
    fn more_bits(&self) -> usize {
        match self.new {
            New::Beyond(zeros) => zeros + 1,
            New::Bit | New::None => 0,
        }
    }
}

impl Segment {
    fn place_beside_bitmap(&self, block: &[u8], offset: u128) -> Option<Place> {
        let (from, to) = self.bits;
        if let Some((bit, rank)) = self.place_in_bitmap(block, offset) {
            return Some(Place { bit, rank, new: New::Bit });
        }
        let (bit, rank, offset) = (to, self.rest, usize::try_from(offset).ok()?);
        let new = if from < to {
            let zeros = offset - (to - from);
            (zeros <= MAX_ZEROS).then_some(New::Beyond(zeros))?
        } else {
            (offset == self.rest).then_some(New::None)?
        };
        Some(Place { bit, rank, new })
    }

    /// How many zeros go before the one of an offset beyond the unary part, and the bit and the place of it.
    fn place_beyond(&self, offset: u128) -> Option<(usize, usize, usize)> {
        let high = usize::try_from(offset >> self.low_width).ok()?;
        let zeros = self.lows() - self.bits.0 - self.rest;
        Some((high - zeros, self.lows(), self.rest)).filter(|(more, ..)| *more <= MAX_ZEROS)
    }
}

impl View<'_> {
    /// One record and so many bits more in the segment at `at`.
    fn edit_header(&self, header: &mut [u8], at: usize, more_bits: usize) {
        let mut add = |at: usize, more: usize| {
            let sum = bits::get_u16(header, at) + more;
            header[at..at + 2].copy_from_slice(&(sum as u16).to_le_bytes());
        };
        add(0, 1);
        add(2, more_bits);
        for segment in at + 1..self.segments {
            let begin = self.header(segment) + self.start_bytes;
            add(begin, 1);
            add(begin + 2, more_bits);
        }
    }
}
