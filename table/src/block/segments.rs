//! Where to cut a sorted run of numbers so that it takes the fewest bits.
//!
//! Elias–Fano takes about log2(span / n) + 1.95 bits an id, so one jump over empty numbers makes every id beside it
//! dearer. Real ids come in dense runs with huge jumps between them. A block is therefore cut into *segments*, each with
//! its own first id and its own width; a cut costs a segment header and is made where it saves more than that.
//!
//! The best cuts among a number of candidates are found by dynamic programming over the cost in bits. Candidates are
//! the places where the density may change: every jump that is out of proportion to the gaps before it, and every so
//! many records.

use crate::bits;

/// A segment that is coded as a bitmap, one bit for each number it spans, instead of as Elias–Fano.
pub(super) const BITMAP: u8 = 255;

/// A jump is a candidate if it is so many times as wide as the last `JUMP_WINDOW` gaps together. In evenly spread ids
/// that happens once in 5^8 records.
const JUMP_FACTOR: u128 = 4;
const JUMP_WINDOW: usize = 8;

/// Besides jumps, a candidate every so many records, for densities that change without a jump.
const STEP: usize = 128;

/// How many candidates back a segment may begin: bounds the work at the price of segments below 8192 records.
const LOOKBACK: usize = 64;

/// The most segments in a block: their number is one byte.
pub(super) const MAX_SEGMENTS: usize = 255;

/// How a segment's ids, all but its first, are coded, and how many bits that takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cost {
    /// The width of the low bits, or [`BITMAP`].
    pub low_width: u8,
    pub bits: usize,
}

/// The best coding for `rest` ids that lie in `1..=span` beyond the segment's first, the last of them at `span`.
pub(super) fn cost(rest: usize, span: u128) -> Cost {
    if rest as u128 == span {
        return Cost { low_width: BITMAP, bits: 0 };
    }
    let last = span - 1;
    // The width is right when the high parts of the offsets reach up to between once and twice the number of ids.
    let mut low_width = last.ilog2().saturating_sub((rest as u128).ilog2());
    if low_width > 0 && last >> low_width < rest as u128 {
        low_width -= 1;
    }
    let highs = usize::try_from(last >> low_width).unwrap_or(usize::MAX);
    let elias_fano = (rest * (1 + low_width as usize)).saturating_add(highs);
    match usize::try_from(span) {
        Ok(bitmap) if bitmap <= elias_fano => Cost { low_width: BITMAP, bits: bitmap },
        _ => Cost { low_width: low_width as u8, bits: elias_fano },
    }
}

#[derive(Clone, Copy)]
struct Candidate {
    /// The record a segment could begin with.
    at: usize,
    /// The fewest bits for all records before it, headers of segments beyond the first included.
    best: usize,
    /// The candidate where the last of those segments begins, and how many segments there are.
    previous: usize,
    segments: usize,
}

/// The cuts found so far in ids that are considered record by record.
pub(super) struct Cutter<'a> {
    ids: &'a [u128],
    header_bits: usize,
    candidates: Vec<Candidate>,
}

impl<'a> Cutter<'a> {
    /// `header_bits` is what a segment costs beyond its ids.
    pub fn new(ids: &'a [u128], header_bits: usize) -> Self {
        let first = Candidate { at: 0, best: 0, previous: 0, segments: 0 };
        Cutter { ids, header_bits, candidates: vec![first] }
    }

    /// The next record after `at` before which a cut may pay, or the end.
    pub fn next_candidate(&self, at: usize) -> usize {
        let end = self.ids.len().min(at + STEP);
        (at + 1..end).find(|&next| self.is_jump(next)).unwrap_or(end)
    }

    fn is_jump(&self, at: usize) -> bool {
        at > JUMP_WINDOW && {
            let (gap, before) = (self.ids[at] - self.ids[at - 1], self.ids[at - 1] - self.ids[at - 1 - JUMP_WINDOW]);
            gap / JUMP_FACTOR > before
        }
    }

    /// The fewest bits for the records before `end`, whose candidates have all been added.
    pub fn bits(&self, end: usize) -> usize {
        self.best(end).best
    }

    pub fn add_candidate(&mut self, at: usize) {
        let candidate = self.best(at);
        self.candidates.push(candidate);
    }

    fn best(&self, end: usize) -> Candidate {
        let from = self.candidates.len().saturating_sub(LOOKBACK);
        // The last candidate is at the end itself if the block ends where a segment could have begun.
        let begins = self.candidates[from..].iter().enumerate().filter(|(_, begin)| begin.at < end);
        let ways = begins.map(|(at, begin)| {
            let last = self.ids[end - 1] - self.ids[begin.at];
            let ids = cost(end - begin.at - 1, last).bits;
            let header = if begin.at == 0 { 0 } else { self.header_bits };
            let full = if begin.segments >= MAX_SEGMENTS { usize::MAX } else { 0 };
            let best = begin.best.saturating_add(ids).saturating_add(header).saturating_add(full);
            Candidate { at: end, best, previous: from + at, segments: begin.segments + 1 }
        });
        ways.min_by_key(|way| way.best).expect("there is always the first candidate")
    }

    /// Where the segments begin that the records before `end` are cut into.
    pub fn cuts(&self, end: usize) -> Vec<usize> {
        let mut cuts = Vec::new();
        let mut at = self.best(end);
        while at.at > 0 {
            at = self.candidates[at.previous];
            cuts.push(at.at);
        }
        cuts.reverse();
        cuts
    }
}

/// The bytes that hold every segment's distance from the block's first id.
pub(super) fn start_bytes(ids: &[u128], cuts: &[usize]) -> usize {
    bits::bytes_for(ids[*cuts.last().expect("there is a first segment")] - ids[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn brute_force(rest: usize, span: u128) -> usize {
        let elias_fano =
            (0..128).map(|width| (rest as u128 * (width + 1)).saturating_add((span - 1) >> width)).min().unwrap();
        let bitmap = if rest as u128 == span { 0 } else { span };
        elias_fano.min(bitmap) as usize
    }

    proptest! {
        #[test]
        fn the_width_chosen_is_the_best(rest in 1usize..8192, factor in 0u32..100, extra in any::<u16>()) {
            let span = (rest as u128) + ((u128::from(extra) * rest as u128) << factor >> 20);
            let best = brute_force(rest, span);
            let chosen = cost(rest, span);
            prop_assert!(chosen.bits as f64 <= best as f64 * 1.01 + 1.0, "{rest} {span}: {chosen:?} best {best}");
        }
    }

    fn cut_all(ids: &[u128]) -> Vec<usize> {
        let mut cutter = Cutter::new(ids, 112);
        let mut at = 0;
        loop {
            at = cutter.next_candidate(at);
            if at == ids.len() {
                return cutter.cuts(at);
            }
            cutter.add_candidate(at);
        }
    }

    #[test]
    fn even_ids_are_one_segment() {
        let ids: Vec<u128> = (0..2000).map(|i| i * 1000 + i * i % 997).collect();
        assert_eq!(cut_all(&ids), [0]);
    }

    #[test]
    fn runs_are_cut_at_the_jumps_between_them() {
        let ids: Vec<u128> = (0..1000u128).map(|i| i / 100 * 10_000_000_000 + i % 100 * 10 + i * 7 % 5).collect();
        assert_eq!(cut_all(&ids), (0..10).map(|run| run * 100).collect::<Vec<_>>());
    }

    #[test]
    fn a_change_of_density_is_cut_near_it() {
        let ids: Vec<u128> =
            (0..1024u128).map(|i| if i < 512 { i * 10 } else { 5120 + (i - 512) * 1_000_000 }).collect();
        let cuts = cut_all(&ids);
        assert_eq!(cuts.len(), 2);
        assert!((448..=576).contains(&cuts[1]), "{cuts:?}");
    }
}
