//! All records of one class: finds, changes and walks over them.
//!
//! A change that cannot be made in place takes the records out of their block, changes them, and writes as many blocks
//! as they need.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::ops::Deref;

use crate::block::{self, BLOCK_BYTES, Column, Kind, MAX_BLOCK_BYTES, MAX_RECORDS, Records};
use crate::directory::{At, Directory, Edit, Entry};
use crate::heap;
use crate::patch::{Owned, Span};

/// A block below this many bytes is joined with a neighbour, if both fit a block with room to spare.
const THIN_BYTES: usize = BLOCK_BYTES / 4;
const JOINED_BYTES: usize = BLOCK_BYTES * 3 / 4;
const JOINED_RECORDS: usize = MAX_RECORDS * 3 / 4;

#[derive(Clone)]
pub(crate) struct Run<K: Kind> {
    pub directory: Directory<K>,
}

/// What became of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inserted {
    New,
    /// It was there, with this symbol.
    Replaced(u128),
}

/// Asked about its blocks, a run answers as its directory does.
impl<K: Kind> Deref for Run<K> {
    type Target = Directory<K>;

    fn deref(&self) -> &Directory<K> {
        &self.directory
    }
}

impl<K: Kind> Run<K> {
    pub fn new(kind: K) -> Self {
        Run { directory: Directory::new(kind) }
    }

    /// A run of blocks that ascend.
    pub fn from_blocks(kind: K, blocks: impl IntoIterator<Item = Box<[u8]>>) -> Self {
        let mut run = Run::new(kind);
        blocks.into_iter().for_each(|block| run.append(block));
        run.shrink();
        run
    }

    /// Appends a block whose ids are all above those of the run.
    pub fn append(&mut self, block: Box<[u8]>) {
        self.directory.append(block);
    }

    /// Gives back what the directory has in reserve.
    pub fn shrink(&mut self) {
        self.directory.shrink();
    }

    #[inline]
    pub fn get(&self, id: &K::Id) -> Option<u128> {
        self.get_at(self.locate(id)?, id)
    }

    /// The symbol of an id in the block that [`Directory::locate`] gave for it.
    #[inline]
    pub fn get_at(&self, at: At, id: &K::Id) -> Option<u128> {
        self.kind().get(self.block(at), id)
    }

    fn decode(&self, at: At) -> Records<K> {
        let mut records = Records::default();
        self.kind().decode(self.block(at), &mut records);
        records
    }

    /// Puts records, which ascend, in the place of a block.
    fn rewrite(&mut self, at: At, records: &Records<K>) {
        self.directory.replace(at, encode_evenly(self.kind(), records));
    }

    pub fn insert(&mut self, id: &K::Id, symbol: u128) -> Inserted {
        let Some(at) = self.locate(id).or(self.first()) else {
            let mut records = Records::default();
            records.push(id, symbol);
            encode_evenly(self.kind(), &records).into_iter().for_each(|block| self.append(block));
            return Inserted::New;
        };
        if let Some(old) = self.get_at(at, id) {
            if old != symbol {
                self.overwrite(at, id, symbol);
            }
            return Inserted::Replaced(old);
        }
        let kind = self.kind();
        if self.directory.edit(at, |block| kind.insert_into(block, id, symbol)) {
            return Inserted::New;
        }
        let mut records = self.decode(at);
        let rank = records.search(id).expect_err("it was not found");
        let appended = rank == records.len() && self.next(at).is_none();
        records.insert(rank, id, symbol);
        let encode = if appended { encode_greedily } else { encode_evenly };
        self.directory.replace(at, encode(kind, &records));
        Inserted::New
    }

    /// Changes the symbol of an id that is in the block.
    fn overwrite(&mut self, at: At, id: &K::Id, symbol: u128) {
        let kind = self.kind();
        let mut overwritten = false;
        self.directory.edit(at, |block| {
            overwritten = kind.overwrite(block, id, symbol);
            false
        });
        if !overwritten {
            let mut records = self.decode(at);
            let rank = records.search(id).expect("it was found");
            records.symbols[rank] = symbol;
            self.rewrite(at, &records);
        }
    }

    /// Removes a record and tells its symbol.
    pub fn remove(&mut self, id: &K::Id) -> Option<u128> {
        let at = self.locate(id)?;
        let mut records = self.decode(at);
        let rank = records.search(id).ok()?;
        let symbol = records.symbols[rank];
        records.remove(rank);
        self.rewrite(at, &records);
        if records.len() > 0 {
            self.join_if_thin(at);
        }
        Some(symbol)
    }

    /// Joins the block with its right neighbour in the chunk, or else its left one, if it has become thin.
    fn join_if_thin(&mut self, (chunk, at): At) {
        let kind = self.kind();
        if kind.used(self.block((chunk, at))) >= THIN_BYTES {
            return;
        }
        let joinable = |left: &At| self.neighbours(*left).is_some_and(|(a, b)| are_joinable(kind, a, b));
        let lefts = [Some((chunk, at)), at.checked_sub(1).map(|left| (chunk, left))];
        let Some(left) = lefts.into_iter().flatten().find(joinable) else { return };
        let right = (left.0, left.1 + 1);
        let mut records = self.decode(left);
        kind.decode(self.block(right), &mut records);
        self.directory.replace(right, Vec::new());
        self.rewrite(left, &records);
    }

    /// The block in which an id would be, with the ids that lie between its beginning and that of the next.
    pub fn span(&self, id: &K::Id) -> Span<K> {
        let Some(at) = self.locate(id).or(self.first()) else {
            return Span { from: Owned::<K>::default(), to: None, replaced: 0, entries: Vec::new() };
        };
        let first = |at| self.kind().first(self.block(at));
        Span {
            from: if Some(at) == self.first() { Owned::<K>::default() } else { first(at) },
            to: self.next(at).map(first),
            replaced: block::count(self.block(at)),
            entries: vec![Entry::new(self.kind(), self.block(at).into())],
        }
    }

    /// Puts spans, which ascend, in the place of what lies in them, and hands over the blocks that are not needed any more.
    pub fn patch(&mut self, spans: Vec<Span<K>>, replaced: &mut Vec<Box<[u8]>>) {
        let mut edits = Vec::new();
        let mut end = None;
        for span in spans {
            if let Some((at, count, next)) = self.blocks_of(&span, end) {
                end = next;
                edits.push(Edit { at, count, records: span.replaced, entries: span.entries });
            } else {
                // Blocks are not cut as they were when the span was copied: what others have of them stays.
                self.directory.splice(edits.drain(..), replaced);
                self.patch_one(span, replaced);
                end = None;
            }
        }
        self.directory.splice(edits, replaced);
    }

    /// The blocks that lie in a span, if none lies in it only partly and keys tell as much: the first, how many, and the one
    /// behind them. Spans that follow each other begin where the one before has ended.
    fn blocks_of(&self, span: &Span<K>, guess: Option<At>) -> Option<(At, usize, Option<At>)> {
        let is_lowest = span.from == Owned::<K>::default();
        let at = if is_lowest { self.first() } else { self.beginning_with(span.from.borrow(), guess) }?;
        let next = match &span.to {
            Some(to) => Some(self.beginning_with(to.borrow(), self.next(at))?),
            None => None,
        };
        let count = self.distance(at, next);
        (count > 0).then_some((at, count, next))
    }

    /// Puts a span in its place, however blocks are cut there.
    fn patch_one(&mut self, span: Span<K>, replaced: &mut Vec<Box<[u8]>>) {
        let kind = self.kind();
        let Some(first) = self.locate(span.from.borrow()).or(self.first()) else {
            span.entries.into_iter().for_each(|entry| self.append(entry.block));
            return;
        };
        let begins_in = |at: &At| match &span.to {
            Some(to) => kind.compare_first(self.block(*at), to.borrow()) == Ordering::Less,
            None => true,
        };
        let mut old = self.decode(first);
        let mut count = 1;
        let mut next = self.next(first);
        while let Some(at) = next.filter(begins_in) {
            kind.decode(self.block(at), &mut old);
            count += 1;
            next = self.next(at);
        }
        let records = old.len();
        let rank = |records: &Records<K>, id: &K::Id| records.search(id).unwrap_or_else(|rank| rank);
        let mut after = old.clone();
        after.drop_front(span.to.as_ref().map_or(records, |to| rank(&old, to.borrow())));
        old.truncate(rank(&old, span.from.borrow()));
        let mut entries = entries(kind, &old);
        entries.extend(span.entries);
        entries.extend(self::entries(kind, &after));
        self.directory.splice([Edit { at: first, count, records, entries }], replaced);
    }

    /// A walk over the records whose ids are not below `from`, or over all.
    pub fn walk(&self, from: Option<&K::Id>) -> Walk<'_, K> {
        let Some(from) = from else {
            return Walk { run: self, next: self.first(), records: Records::default(), rank: 0 };
        };
        let Some(at) = self.locate(from) else {
            return self.walk(None);
        };
        let records = self.decode(at);
        let rank = records.search(from).unwrap_or_else(|rank| rank);
        Walk { run: self, next: self.next(at), records, rank }
    }

    /// Checks everything that must hold of a run, down to every find.
    pub fn check(&self) -> Result<(), String> {
        let mut last = Records::<K>::default();
        let mut at = self.first();
        while let Some(here) = at {
            let block = self.block(here);
            let mut decoded = Records::default();
            block::check(self.kind(), &block[..self.kind().used(block)], &mut decoded)
                .map_err(|corrupt| format!("block {here:?}: {corrupt}"))?;
            if last.len() > 0 && last.ids.at(last.len() - 1) >= decoded.ids.at(0) {
                return Err(format!("block {here:?} does not follow the one before"));
            }
            for rank in 0..decoded.len() {
                if self.get(decoded.ids.at(rank)) != Some(decoded.symbols[rank]) {
                    return Err(format!("block {here:?}: record {rank} is not found"));
                }
            }
            last = decoded;
            at = self.next(here);
        }
        self.directory.check()
    }
}

/// Whether two blocks, of which one is thin, fit one with room to spare.
pub(crate) fn are_joinable<K: Kind>(kind: K, a: &[u8], b: &[u8]) -> bool {
    let (used_a, used_b) = (kind.used(a), kind.used(b));
    used_a.min(used_b) < THIN_BYTES
        && used_a + used_b <= JOINED_BYTES
        && block::count(a) + block::count(b) <= JOINED_RECORDS
}

/// Blocks as full as can be, for records that nothing will be inserted among.
fn encode_greedily<K: Kind>(kind: K, records: &Records<K>) -> Vec<Box<[u8]>> {
    let mut blocks = Vec::new();
    let mut bytes = Vec::with_capacity(MAX_BLOCK_BYTES);
    let mut from = 0;
    while from < records.len() {
        bytes.clear();
        from += kind.encode(records, from, records.len(), &mut bytes);
        blocks.push(heap::boxed(&bytes));
    }
    blocks
}

/// As few blocks as the records fit, the last two of them evenly filled: there is room in each for what comes.
pub(crate) fn encode_evenly<K: Kind>(kind: K, records: &Records<K>) -> Vec<Box<[u8]>> {
    let mut blocks = Vec::new();
    let mut bytes = Vec::with_capacity(MAX_BLOCK_BYTES);
    let mut pieces = vec![(0, records.len())];
    while let Some((from, to)) = pieces.pop() {
        if from == to {
            continue;
        }
        bytes.clear();
        let len = kind.encode(records, from, to, &mut bytes);
        let rest = to - from - len;
        if rest > 0 && rest <= len {
            let middle = usize::midpoint(from, to);
            pieces.extend([(middle, to), (from, middle)]);
        } else {
            blocks.push(heap::boxed(&bytes));
            pieces.push((from + len, to));
        }
    }
    blocks
}

/// The same, with what a directory has to know of them.
pub(crate) fn entries<K: Kind>(kind: K, records: &Records<K>) -> Vec<Entry> {
    encode_evenly(kind, records).into_iter().map(|block| Entry::new(kind, block)).collect()
}

/// A walk over a run's records in ascending order.
pub(crate) struct Walk<'a, K: Kind> {
    run: &'a Run<K>,
    next: Option<At>,
    records: Records<K>,
    rank: usize,
}

impl<K: Kind> Walk<'_, K> {
    pub fn next(&mut self) -> Option<(&K::Id, u128)> {
        if self.rank == self.records.len() {
            let at = self.next?;
            self.next = self.run.next(at);
            self.records.clear();
            self.run.kind().decode(self.run.block(at), &mut self.records);
            self.rank = 0;
        }
        let rank = self.rank;
        self.rank += 1;
        Some((self.records.ids.at(rank), self.records.symbols[rank]))
    }
}
