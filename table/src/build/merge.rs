//! Merges strands into one.
//!
//! Each strand has one block decoded. The lowest of their last ids is a *frontier*: up to it, no strand has anything
//! that is not decoded. All records up to the frontier are gathered and sorted, which is quick because they consist
//! of a few ascending runs; then the strands that reached the end of their blocks decode the next.

use std::borrow::Borrow;
use std::cmp::Ordering;

use rayon::iter::{IntoParallelIterator, ParallelIterator};

use super::pack::{Goal, Packer, Written};
use super::{BuildError, Merging, Strand};
use crate::block::{Column, Kind, Records};

/// How many pieces a thread gets, so that one slow piece does not keep the others waiting for long.
const PIECES_A_THREAD: usize = 4;

/// The least blocks in a piece, because each may leave its last block half empty.
const PIECE_BLOCKS: usize = 256;

/// One block in so many is looked at to divide the rows evenly.
const SAMPLE: usize = 16;

/// The records of all strands, which come in the order of the file; of those with the same id, that of the last strand.
/// The strands are of kind `from`, the blocks that are written of kind `to`.
pub(super) fn merge<K: Kind>(
    from: K,
    to: K,
    strands: Vec<Strand>,
    goal: Goal,
    merging: &Merging,
) -> Result<Written, BuildError> {
    let blocks: usize = strands.iter().map(Strand::len).sum();
    let pieces = (blocks / PIECE_BLOCKS).clamp(1, rayon::current_num_threads() * PIECES_A_THREAD);
    let merged: Vec<Written> = cut_evenly(from, strands, pieces, goal)
        .into_par_iter()
        .map(|strands| merge_piece(from, strands, Packer::new(to, goal), merging))
        .collect::<Result<_, _>>()?;
    let mut whole = Written::default();
    merged.into_iter().for_each(|piece| whole.append(piece));
    Ok(whole)
}

/// Cuts all strands at the same ids, into pieces of about the same number of rows.
fn cut_evenly<K: Kind>(kind: K, mut strands: Vec<Strand>, pieces: usize, goal: Goal) -> Vec<Vec<Strand>> {
    let mut sample: Vec<_> =
        strands.iter().flat_map(|strand| strand.iter().step_by(SAMPLE)).map(|block| kind.first(block)).collect();
    sample.sort_unstable_by(|a, b| a.borrow().cmp(b.borrow()));
    let mut cuts: Vec<_> = (1..pieces).map(|piece| &sample[sample.len() * piece / pieces]).collect();
    cuts.dedup_by(|a, b| (**a).borrow() == (**b).borrow());

    let mut cut = Vec::new();
    for id in cuts.into_iter().rev() {
        cut.push(strands.iter_mut().map(|strand| split_off(kind, strand, id.borrow(), goal)).collect());
    }
    cut.push(strands);
    cut.reverse();
    cut
}

/// Takes all records from `id` on out of a strand.
fn split_off<K: Kind>(kind: K, strand: &mut Strand, id: &K::Id, goal: Goal) -> Strand {
    let at = strand.partition_point(|block| kind.compare_first(block, id) == Ordering::Less);
    let mut rest = strand.split_off(at);
    // The block before may reach beyond the id.
    if let Some(last) = strand.pop() {
        let mut records = Records::<K>::default();
        kind.decode(&last, &mut records);
        let rank = records.search(id).unwrap_or_else(|rank| rank);
        let write = |range: std::ops::Range<usize>| {
            let mut packer = Packer::new(kind, goal.with_removals());
            range.for_each(|rank| packer.push(records.ids.at(rank), records.symbols[rank]));
            packer.finish().blocks
        };
        strand.extend(write(0..rank));
        rest.splice(0..0, write(rank..records.len()));
    }
    rest
}

/// A record of a strand's decoded block.
#[derive(Clone, Copy)]
struct Place {
    key: u128,
    strand: u32,
    rank: u32,
}

fn merge_piece<K: Kind>(
    kind: K,
    strands: Vec<Strand>,
    mut packer: Packer<K>,
    merging: &Merging,
) -> Result<Written, BuildError> {
    let mut cursors: Vec<Cursor<K>> = strands.into_iter().filter_map(|strand| Cursor::new(kind, strand)).collect();
    let mut places = Vec::new();
    while let Some(frontier) = cursors.iter().map(Cursor::last).min() {
        places.clear();
        let mut ends = Vec::with_capacity(cursors.len());
        for (strand, cursor) in cursors.iter().enumerate() {
            let end = cursor.up_to(frontier);
            places.extend((cursor.rank..end).map(|rank| Place {
                key: K::key(cursor.records.ids.at(rank)),
                strand: strand as u32,
                rank: rank as u32,
            }));
            ends.push(end);
        }
        let id = |place: &Place| cursors[place.strand as usize].records.ids.at(place.rank as usize);
        // Stable, so that of equal ids the last strand's comes last.
        places.sort_by(|a, b| a.key.cmp(&b.key).then_with(|| id(a).cmp(id(b))));
        for (at, place) in places.iter().enumerate() {
            match places.get(at + 1) {
                Some(next) if next.key == place.key && id(next) == id(place) => packer.skip(),
                _ => packer.push(id(place), cursors[place.strand as usize].records.symbols[place.rank as usize]),
            }
        }
        merging.advance(places.len())?;
        cursors.iter_mut().zip(ends).for_each(|(cursor, end)| cursor.rank = end);
        cursors.retain_mut(|cursor| cursor.refill(kind));
    }
    Ok(packer.finish())
}

/// Where a strand has been read up to.
struct Cursor<K: Kind> {
    blocks: std::vec::IntoIter<Box<[u8]>>,
    /// The block that is being read.
    records: Records<K>,
    rank: usize,
}

impl<K: Kind> Cursor<K> {
    fn new(kind: K, strand: Strand) -> Option<Cursor<K>> {
        let mut cursor = Cursor { blocks: strand.into_iter(), records: Records::default(), rank: 0 };
        cursor.refill(kind).then_some(cursor)
    }

    /// Decodes the next block if this one has been read; tells whether there is anything.
    fn refill(&mut self, kind: K) -> bool {
        if self.rank == self.records.len() {
            self.records.clear();
            self.rank = 0;
            if let Some(block) = self.blocks.next() {
                kind.decode(&block, &mut self.records);
            }
        }
        self.records.len() > 0
    }

    fn last(&self) -> &K::Id {
        self.records.ids.at(self.records.len() - 1)
    }

    /// How many of the block's records have ids up to `id`.
    fn up_to(&self, id: &K::Id) -> usize {
        self.records.search(id).map_or_else(|rank| rank, |rank| rank + 1)
    }
}
