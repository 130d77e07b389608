//! Puts one record into a block of numbers without taking the block apart.
//!
//! Most inserts fall between two ids of a segment, with a symbol that the block already knows, and find room in the
//! block's allocation. Then a one goes into the unary part (or the bitmap), the low bits in among the others, the symbol
//! in among the words, and everything else is copied as it is, 64 bits at a time: a tenth of the work of writing the
//! block anew. All other inserts are refused and left to that.

use super::MAX_RECORDS;
use super::number::{Numbers, View};
use super::segments::BITMAP;
use crate::bits::{self, BitWriter};

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
            let (bit_at, rank) = segment.place_in_bitmap(block, offset)?;
            view.edit_header(&mut out, at, 0);
            let mut writer = BitWriter::new(&mut out);
            writer.copy(block, begin, bit_at);
            writer.put_short(1, 1);
            writer.copy(block, bit_at + 1, end);
            writer.finish();
            rank
        } else {
            let (one_at, rank) = segment.place(block, offset)?;
            let width = u32::from(segment.low_width);
            let low_at = segment.lows() + rank * width as usize;
            view.edit_header(&mut out, at, 1 + width as usize);
            let mut writer = BitWriter::new(&mut out);
            writer.copy(block, begin, one_at);
            writer.put_short(1, 1);
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
