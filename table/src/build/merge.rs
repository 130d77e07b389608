//! Merges strands into the blocks of a table.

use std::borrow::Borrow;
use std::cmp::Ordering;

use rayon::iter::{IntoParallelIterator, ParallelIterator};

use super::pack::Packer;
use super::{BuildError, Merging, Strand, Tally};
use crate::block::{Column, Kind, Records};
use crate::digest;
use crate::id::Class;

/// How many pieces a thread gets, so that one slow piece does not keep the others waiting for long.
const PIECES_A_THREAD: usize = 4;

/// The least blocks in a piece, because each may leave its last block half empty.
const PIECE_BLOCKS: usize = 256;

/// One block in so many is looked at to divide the rows evenly.
const SAMPLE: usize = 16;

/// The strands of each class, in the order of the file.
#[derive(Default)]
pub(super) struct Strands {
    /// Ascending by class.
    pub numbers: Vec<(Class, Vec<Strand>)>,
    pub texts: Vec<Strand>,
}

impl Strands {
    pub fn add_numbers(&mut self, class: Class, strand: Strand) {
        if strand.is_empty() {
            return;
        }
        match self.numbers.binary_search_by_key(&class, |(class, _)| *class) {
            Ok(at) => self.numbers[at].1.push(strand),
            Err(at) => self.numbers.insert(at, (class, vec![strand])),
        }
    }

    pub fn add_texts(&mut self, strand: Strand) {
        if !strand.is_empty() {
            self.texts.push(strand);
        }
    }
}

#[derive(Default)]
pub(super) struct Merged {
    pub blocks: Vec<Box<[u8]>>,
    pub digest: u128,
    duplicates: u64,
}

/// The records of all strands whose symbols are `kept`, in order; of those with the same id, that of the last strand.
pub(super) fn merge<K: Kind>(
    kind: K,
    strands: Vec<Strand>,
    kept: impl Fn(u128) -> bool + Sync,
    merging: &Merging,
    tally: &mut Tally,
) -> Result<Merged, BuildError> {
    let from = kind.with_symbols(super::symbols_with_removal(&merging.builder.schema));
    let blocks: usize = strands.iter().map(Strand::len).sum();
    let pieces = (blocks / PIECE_BLOCKS).clamp(1, rayon::current_num_threads() * PIECES_A_THREAD);
    let pieces = cut_evenly(from, strands, pieces);
    let merged: Vec<Merged> = pieces
        .into_par_iter()
        .map(|strands| merge_piece(from, kind, strands, &kept, merging))
        .collect::<Result<_, _>>()?;
    let whole = merged.into_iter().reduce(|mut whole, piece| {
        whole.blocks.extend(piece.blocks);
        whole.digest = whole.digest.wrapping_add(piece.digest);
        whole.duplicates += piece.duplicates;
        whole
    });
    let whole = whole.unwrap_or_default();
    tally.duplicates += whole.duplicates;
    Ok(whole)
}

/// Cuts all strands at the same ids, into pieces of about the same number of rows.
fn cut_evenly<K: Kind>(kind: K, mut strands: Vec<Strand>, pieces: usize) -> Vec<Vec<Strand>> {
    let mut sample: Vec<_> =
        strands.iter().flat_map(|strand| strand.iter().step_by(SAMPLE)).map(|block| kind.first(block)).collect();
    sample.sort_unstable_by(|a, b| a.borrow().cmp(b.borrow()));
    let mut cuts: Vec<_> = (1..pieces).map(|piece| &sample[sample.len() * piece / pieces]).collect();
    cuts.dedup_by(|a, b| (**a).borrow() == (**b).borrow());

    let mut cut = Vec::new();
    for id in cuts.into_iter().rev() {
        cut.push(strands.iter_mut().map(|strand| split_off(kind, strand, id.borrow())).collect());
    }
    cut.push(strands);
    cut.reverse();
    cut
}

/// Takes all records from `id` on out of a strand.
fn split_off<K: Kind>(kind: K, strand: &mut Strand, id: &K::Id) -> Strand {
    let at = strand.partition_point(|block| kind.compare_first(block, id) == Ordering::Less);
    let mut rest = strand.split_off(at);
    // The block before may reach beyond the id.
    if let Some(last) = strand.pop() {
        let mut records = Records::<K>::default();
        kind.decode(&last, &mut records);
        let rank = records.search(id).unwrap_or_else(|rank| rank);
        let write = |range: std::ops::Range<usize>| {
            let mut packer = Packer::new(kind);
            range.for_each(|rank| packer.push(records.ids.at(rank), records.symbols[rank]));
            packer.finish()
        };
        strand.extend(write(0..rank));
        rest.splice(0..0, write(rank..records.len()));
    }
    rest
}

fn merge_piece<K: Kind>(
    from: K,
    to: K,
    strands: Vec<Strand>,
    kept: impl Fn(u128) -> bool,
    merging: &Merging,
) -> Result<Merged, BuildError> {
    let mut cursors: Vec<Cursor<K>> = strands.into_iter().filter_map(|strand| Cursor::new(from, strand)).collect();
    // The cursors' indices in the order of their ids; of cursors at the same id the latest strand's comes first.
    let mut order: Vec<usize> = (0..cursors.len()).collect();
    order.sort_by(|&a, &b| cursors[a].id().cmp(cursors[b].id()).then(b.cmp(&a)));

    let mut merged = Merged::default();
    let mut packer = Packer::new(to);
    let mut last = Records::<K>::default();
    while let Some(&first) = order.first() {
        let cursor = &mut cursors[first];
        let (id, symbol) = (cursor.id(), cursor.symbol());
        if last.len() > 0 && last.ids.at(0) == id {
            merged.duplicates += 1;
        } else {
            last.clear();
            last.push(id, symbol);
            if kept(symbol) {
                packer.push(id, symbol);
                merged.digest = merged.digest.wrapping_add(digest::of_record(&to.id(id), symbol));
            }
        }
        match cursor.advance(from) {
            Advanced::InBlock => {}
            Advanced::ToNextBlock(rows) => merging.advance(rows)?,
            Advanced::ToEnd(rows) => {
                merging.advance(rows)?;
                order.remove(0);
                continue;
            }
        }
        // The cursor moves back behind those whose ids are now smaller.
        let before =
            |&other: &usize| cursors[other].id().cmp(cursors[first].id()).then(first.cmp(&other)) == Ordering::Less;
        let place = 1 + order[1..].partition_point(before);
        order[..place].rotate_left(1);
    }
    merged.blocks = packer.finish();
    Ok(merged)
}

/// Where a strand has been read up to.
struct Cursor<K: Kind> {
    blocks: std::vec::IntoIter<Box<[u8]>>,
    records: Records<K>,
    rank: usize,
}

/// Where a cursor came to, and how many records the block had that it left.
enum Advanced {
    InBlock,
    ToNextBlock(usize),
    ToEnd(usize),
}

impl<K: Kind> Cursor<K> {
    fn new(kind: K, strand: Strand) -> Option<Cursor<K>> {
        let mut blocks = strand.into_iter();
        let mut records = Records::default();
        kind.decode(&blocks.next()?, &mut records);
        Some(Cursor { blocks, records, rank: 0 })
    }

    #[inline]
    fn id(&self) -> &K::Id {
        self.records.ids.at(self.rank)
    }

    #[inline]
    fn symbol(&self) -> u128 {
        self.records.symbols[self.rank]
    }

    #[inline]
    fn advance(&mut self, kind: K) -> Advanced {
        self.rank += 1;
        let len = self.records.len();
        if self.rank < len {
            return Advanced::InBlock;
        }
        let Some(block) = self.blocks.next() else {
            return Advanced::ToEnd(len);
        };
        self.records.clear();
        self.rank = 0;
        kind.decode(&block, &mut self.records);
        Advanced::ToNextBlock(len)
    }
}
