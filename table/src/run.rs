//! All records of one class: blocks in ascending order, and a directory that finds the block of an id.
//!
//! The directory has two levels, so that inserting a block moves a few kilobytes and not the whole. The upper one is an
//! array of 128-bit keys, one a chunk. A chunk has up to 2048 blocks and, for searching, an array of 64-bit keys: the
//! distance of each block's first id from the chunk's own key, shifted right as far as it takes to fit. Where that, or
//! a text longer than a key, leaves several blocks with equal keys, their first ids decide.

use std::cmp::Ordering;
use std::ops::Range;

use crate::bits;
use crate::block::{self, BLOCK_BYTES, Column, Kind, MAX_BLOCK_BYTES, MAX_RECORDS, Records};
use crate::cpu::{self, CACHE_LINE};
use crate::heap;

/// A chunk is split when it has more blocks, and filled to half of that when blocks come in order.
const MAX_CHUNK: usize = 2048;
const FILLED_CHUNK: usize = MAX_CHUNK / 2;

/// A block below this many bytes is joined with a neighbour, if both fit a block with room to spare.
const THIN_BYTES: usize = BLOCK_BYTES / 4;
const JOINED_BYTES: usize = BLOCK_BYTES * 3 / 4;
const JOINED_RECORDS: usize = MAX_RECORDS * 3 / 4;

/// The beginning of a block, header and mostly the unary part: about two bits a record.
const PREFETCHED_BYTES: usize = 5 * CACHE_LINE;

pub(crate) struct Run<K: Kind> {
    kind: K,
    /// For each chunk a key that is not above those of its ids, and above those of all chunks before.
    firsts: Vec<u128>,
    chunks: Vec<Chunk>,
    records: u64,
    blocks: usize,
    block_bytes: usize,
    chunk_bytes: usize,
}

#[derive(Default)]
struct Chunk {
    shift: u32,
    /// Blocks for each step of a key, on average: tells where in the keys to begin a search.
    density: f64,
    /// Where the blocks of this chunk have their ids, as parts of a block's length.
    ids: Range<f32>,
    keys: Vec<u64>,
    blocks: Vec<Box<[u8]>>,
}

/// Where a block is: its chunk, and its place there.
pub(crate) type At = (usize, usize);

/// What became of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inserted {
    New,
    /// It was there, with this symbol.
    Replaced(u128),
}

impl Chunk {
    fn heap_bytes(&self) -> usize {
        heap::vec_bytes(&self.keys) + heap::vec_bytes(&self.blocks)
    }

    /// The chunk's key for a 128-bit key, which is the highest where it lies beyond all blocks.
    #[inline]
    fn key(&self, first: u128, key: u128) -> u64 {
        u64::try_from(key.saturating_sub(first) >> self.shift).unwrap_or(u64::MAX)
    }

    /// Where a key would be if keys were evenly spread, as they nearly are where ids are.
    #[inline]
    fn guess(&self, key: u64) -> usize {
        ((key as f64 * self.density) as usize).min(self.keys.len() - 1)
    }

    /// How many blocks have keys up to `key`, searched for from the guess on: that mostly touches one cache line of
    /// keys, where halving would touch five.
    #[inline(always)]
    fn up_to(&self, key: u64, guess: usize) -> usize {
        let keys = self.keys.as_slice();
        let (mut low, mut high, mut step) = (guess, guess, 1);
        if keys[guess] <= key {
            while high < keys.len() && keys[high] <= key {
                low = high;
                high += step;
                step *= 2;
            }
            high = high.min(keys.len());
        } else {
            while low > 0 && keys[low] > key {
                high = low;
                low = low.saturating_sub(step);
                step *= 2;
            }
        }
        low + keys[low..high].partition_point(|&other| other <= key)
    }

    /// Asks for what a find will read of the block at `at`: its beginning, and its ids where `key` should be.
    #[inline]
    fn prefetch(&self, at: usize, key: u64) {
        let block = &self.blocks[at];
        (0..PREFETCHED_BYTES).step_by(CACHE_LINE).for_each(|at| cpu::prefetch(block, at));
        if let Some([from, to]) = self.keys.get(at..at + 2) {
            let part = key.saturating_sub(*from) as f32 / (to - from) as f32;
            let ids = self.ids.start + part * (self.ids.end - self.ids.start);
            let byte = (ids * block.len() as f32) as usize;
            cpu::prefetch(block, byte.saturating_sub(CACHE_LINE / 2));
            cpu::prefetch(block, byte + CACHE_LINE / 2);
        }
    }

    /// Learns from a block, and from the keys, what guesses go by.
    fn learn<K: Kind>(&mut self, kind: K, block: usize) {
        let last = self.keys.len() - 1;
        self.density = last as f64 / self.keys[last].max(1) as f64;
        self.ids = kind.ids_part(&self.blocks[block]);
    }

    fn insert(&mut self, at: usize, key: u64, block: Box<[u8]>) {
        if self.keys.len() == self.keys.capacity() {
            // Grows in small steps: a directory at twice its size would show in the bytes a record.
            let more = (self.keys.len() / 8).clamp(4, 32);
            self.keys.reserve_exact(more);
            self.blocks.reserve_exact(more);
        }
        self.keys.insert(at, key);
        self.blocks.insert(at, block);
    }

    fn shrink(&mut self) {
        self.keys.shrink_to_fit();
        self.blocks.shrink_to_fit();
    }
}

impl<K: Kind> Run<K> {
    pub fn new(kind: K) -> Self {
        Run { kind, firsts: Vec::new(), chunks: Vec::new(), records: 0, blocks: 0, block_bytes: 0, chunk_bytes: 0 }
    }

    /// A run of blocks that ascend.
    pub fn from_blocks(kind: K, blocks: impl IntoIterator<Item = Box<[u8]>>) -> Self {
        let mut run = Run::new(kind);
        blocks.into_iter().for_each(|block| run.append(block));
        run.shrink();
        run
    }

    pub fn kind(&self) -> K {
        self.kind
    }

    pub fn len(&self) -> u64 {
        self.records
    }

    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// The bytes of the blocks' allocations.
    pub fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// The bytes of everything else.
    pub fn directory_bytes(&self) -> usize {
        self.chunk_bytes + heap::vec_bytes(&self.firsts) + heap::vec_bytes(&self.chunks)
    }

    #[inline]
    pub fn get(&self, id: &K::Id) -> Option<u128> {
        self.get_at(self.locate(id)?, id)
    }

    /// The symbol of an id in the block that [`Run::locate`] gave for it.
    #[inline]
    pub fn get_at(&self, at: At, id: &K::Id) -> Option<u128> {
        self.kind.get(self.block(at), id)
    }

    /// The block in which the id is, or would be; none if the id is below all blocks. What a find will read of the block
    /// is on its way from memory when this returns.
    #[inline]
    pub fn locate(&self, id: &K::Id) -> Option<At> {
        let key = K::key(id);
        let begins_after = |block: &[u8]| self.kind.compare_first(block, id) == Ordering::Greater;

        let mut chunk = self.firsts.partition_point(|&first| first <= key);
        if chunk > 0 && self.firsts[chunk - 1] == key {
            let equal = self.firsts.partition_point(|&first| first < key);
            chunk = equal + self.chunks[equal..chunk].partition_point(|chunk| !begins_after(&chunk.blocks[0]));
        }
        let chunk = chunk.checked_sub(1)?;

        let here = &self.chunks[chunk];
        let Chunk { keys, blocks, .. } = here;
        let key = here.key(self.firsts[chunk], key);
        let guess = here.guess(key);
        cpu::prefetch(blocks, guess);
        cpu::prefetch(blocks, guess.saturating_sub(1));
        let mut at = here.up_to(key, guess);
        if at > 0 && keys[at - 1] == key {
            let equal = keys.partition_point(|&other| other < key);
            at = equal + blocks[equal..at].partition_point(|block| !begins_after(block));
        }
        let at = at.saturating_sub(1);
        here.prefetch(at, key);
        Some((chunk, at))
    }

    pub fn block(&self, (chunk, at): At) -> &[u8] {
        &self.chunks[chunk].blocks[at]
    }

    pub fn first(&self) -> Option<At> {
        (!self.chunks.is_empty()).then_some((0, 0))
    }

    pub fn next(&self, (chunk, at): At) -> Option<At> {
        if at + 1 < self.chunks[chunk].blocks.len() {
            Some((chunk, at + 1))
        } else {
            (chunk + 1 < self.chunks.len()).then_some((chunk + 1, 0))
        }
    }

    fn is_last(&self, at: At) -> bool {
        self.next(at).is_none()
    }

    fn decode(&self, at: At) -> Records<K> {
        let mut records = Records::default();
        self.kind.decode(self.block(at), &mut records);
        records
    }

    pub fn insert(&mut self, id: &K::Id, symbol: u128) -> Inserted {
        let Some(at) = self.locate(id).or(self.first()) else {
            let mut records = Records::default();
            records.push(id, symbol);
            encode_evenly(self.kind, &records).into_iter().for_each(|block| self.append(block));
            return Inserted::New;
        };
        let block = &mut self.chunks[at.0].blocks[at.1];
        if let Some(old) = self.kind.get(block, id) {
            if old != symbol && !self.kind.overwrite(block, id, symbol) {
                let mut records = self.decode(at);
                let rank = records.search(id).expect("it was found");
                records.symbols[rank] = symbol;
                self.replace(at, encode_evenly(self.kind, &records));
            }
            return Inserted::Replaced(old);
        }
        if self.kind.insert_into(block, id, symbol) {
            self.records += 1;
            return Inserted::New;
        }
        let mut records = self.decode(at);
        let rank = records.search(id).expect_err("it was not found");
        let appended = rank == records.len() && self.is_last(at);
        records.insert(rank, id, symbol);
        let encode = if appended { encode_greedily } else { encode_evenly };
        self.replace(at, encode(self.kind, &records));
        Inserted::New
    }

    /// Removes a record and tells its symbol.
    pub fn remove(&mut self, id: &K::Id) -> Option<u128> {
        let at = self.locate(id)?;
        let mut records = self.decode(at);
        let rank = records.search(id).ok()?;
        let symbol = records.symbols[rank];
        records.remove(rank);
        let blocks = encode_evenly(self.kind, &records);
        self.replace(at, blocks);
        if records.len() > 0 {
            self.join_if_thin(at);
        }
        Some(symbol)
    }

    /// Joins the block with its right neighbour in the chunk, or else its left one, if it has become thin.
    fn join_if_thin(&mut self, (chunk, at): At) {
        let blocks = &self.chunks[chunk].blocks;
        let joinable = |left: usize| match blocks.get(left..left + 2) {
            Some([a, b]) => {
                self.kind.used(a) + self.kind.used(b) <= JOINED_BYTES
                    && block::count(a) + block::count(b) <= JOINED_RECORDS
            }
            _ => false,
        };
        if blocks.get(at).is_none_or(|block| self.kind.used(block) >= THIN_BYTES) {
            return;
        }
        let Some(left) = [Some(at), at.checked_sub(1)].into_iter().flatten().find(|&left| joinable(left)) else {
            return;
        };
        let mut records = self.decode((chunk, left));
        self.kind.decode(self.block((chunk, left + 1)), &mut records);
        let blocks = encode_evenly(self.kind, &records);
        self.replace((chunk, left + 1), Vec::new());
        self.replace((chunk, left), blocks);
    }

    /// Applies changes that ascend, each an id with its new symbol or without, and hands every one of them to `told`
    /// with the symbol it had before.
    pub fn apply<'a>(
        &mut self,
        changes: &'a Records<K>,
        is_removal: impl Fn(u128) -> bool,
        mut told: impl FnMut(&'a K::Id, Option<u128>, Option<u128>),
    ) {
        let mut done = 0;
        while done < changes.len() {
            let at = self.locate(changes.ids.at(done)).or(self.first());
            let old = at.map(|at| self.decode(at)).unwrap_or_default();
            let next = at.and_then(|at| self.next(at));
            let mut new = Records::default();
            let mut kept = 0;
            while done < changes.len() {
                let (id, symbol) = (changes.ids.at(done), changes.symbols[done]);
                if next.is_some_and(|next| self.kind.compare_first(self.block(next), id) != Ordering::Greater) {
                    break;
                }
                while kept < old.len() && old.ids.at(kept) < id {
                    new.push(old.ids.at(kept), old.symbols[kept]);
                    kept += 1;
                }
                let before = (kept < old.len() && old.ids.at(kept) == id).then(|| old.symbols[kept]);
                kept += usize::from(before.is_some());
                let after = (!is_removal(symbol)).then_some(symbol);
                if let Some(symbol) = after {
                    new.push(id, symbol);
                }
                told(id, before, after);
                done += 1;
            }
            (kept..old.len()).for_each(|rank| new.push(old.ids.at(rank), old.symbols[rank]));
            let blocks = encode_evenly(self.kind, &new);
            match at {
                Some(at) => {
                    let count = blocks.len();
                    self.replace(at, blocks);
                    if count == 1 {
                        self.join_if_thin(at);
                    }
                }
                None => blocks.into_iter().for_each(|block| self.append(block)),
            }
        }
    }

    /// Appends a block whose ids are all above those of the run.
    pub fn append(&mut self, block: Box<[u8]>) {
        if self.chunks.last().is_none_or(|chunk| chunk.blocks.len() >= FILLED_CHUNK) {
            self.chunks.last_mut().map(Chunk::shrink);
            self.firsts.push(self.kind.first_key(&block));
            self.chunks.push(Chunk::default());
            self.recount_chunks();
        }
        let chunk = self.chunks.len() - 1;
        self.insert_block((chunk, self.chunks[chunk].blocks.len()), block);
    }

    /// Gives back what the directory has in reserve.
    pub fn shrink(&mut self) {
        self.chunks.iter_mut().for_each(Chunk::shrink);
        self.chunks.shrink_to_fit();
        self.firsts.shrink_to_fit();
        self.recount_chunks();
    }

    fn recount_chunks(&mut self) {
        self.chunk_bytes = self.chunks.iter().map(Chunk::heap_bytes).sum();
    }

    /// Puts blocks, which ascend, in the place of one.
    fn replace(&mut self, (chunk, at): At, blocks: Vec<Box<[u8]>>) {
        self.remove_block((chunk, at));
        for (more, block) in blocks.into_iter().enumerate() {
            self.insert_block((chunk, at + more), block);
        }
        if self.chunks[chunk].blocks.is_empty() {
            self.chunk_bytes -= self.chunks[chunk].heap_bytes();
            self.chunks.remove(chunk);
            self.firsts.remove(chunk);
        } else if self.chunks[chunk].blocks.len() > MAX_CHUNK {
            self.split_chunk(chunk);
        }
    }

    fn remove_block(&mut self, (chunk, at): At) {
        let chunk = &mut self.chunks[chunk];
        chunk.keys.remove(at);
        let block = chunk.blocks.remove(at);
        if chunk.keys.capacity() > 4 * chunk.keys.len().max(FILLED_CHUNK / 32) {
            self.chunk_bytes -= chunk.heap_bytes();
            chunk.shrink();
            self.chunk_bytes += chunk.heap_bytes();
        }
        self.records -= block::count(&block) as u64;
        self.blocks -= 1;
        self.block_bytes -= block.len();
    }

    fn insert_block(&mut self, (at_chunk, at): At, block: Box<[u8]>) {
        self.records += block::count(&block) as u64;
        self.blocks += 1;
        self.block_bytes += block.len();

        let key = self.kind.first_key(&block);
        let chunk = &mut self.chunks[at_chunk];
        self.chunk_bytes -= chunk.heap_bytes();
        chunk.insert(at, 0, block);
        self.chunk_bytes += chunk.heap_bytes();

        let first = self.firsts[at_chunk];
        if key < first {
            // Ids below all others come in descending order more often than not: reach down generously, so that
            // they do not each ask for new keys.
            let last = self.kind.first_key(&chunk.blocks[chunk.blocks.len() - 1]);
            self.firsts[at_chunk] = key.saturating_sub(last - key);
            self.rekey(at_chunk);
        } else if bits::width((key - first) >> chunk.shift) > 64 {
            self.rekey(at_chunk);
        } else {
            chunk.keys[at] = chunk.key(first, key);
            chunk.learn(self.kind, at);
        }
    }

    /// Computes a chunk's keys anew.
    fn rekey(&mut self, at: usize) {
        let (first, chunk) = (self.firsts[at], &mut self.chunks[at]);
        let last = self.kind.first_key(&chunk.blocks[chunk.blocks.len() - 1]);
        chunk.shift = bits::width(last - first).saturating_sub(64);
        for at in 0..chunk.blocks.len() {
            chunk.keys[at] = chunk.key(first, self.kind.first_key(&chunk.blocks[at]));
        }
        chunk.learn(self.kind, 0);
    }

    /// Splits an overfull chunk into evenly filled ones.
    fn split_chunk(&mut self, at: usize) {
        let blocks = std::mem::take(&mut self.chunks[at].blocks);
        let pieces = blocks.len().div_ceil(FILLED_CHUNK);
        let each = blocks.len().div_ceil(pieces);
        let mut blocks = blocks.into_iter();
        for piece in 0..pieces {
            let blocks: Vec<_> = blocks.by_ref().take(each).collect();
            let chunk = Chunk { keys: vec![0; blocks.len()], blocks, ..Chunk::default() };
            if piece == 0 {
                self.chunks[at] = chunk;
            } else {
                self.firsts.insert(at + piece, self.kind.first_key(&chunk.blocks[0]));
                self.chunks.insert(at + piece, chunk);
            }
            self.rekey(at + piece);
        }
        self.recount_chunks();
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
        let mut last: Option<<K::Id as ToOwned>::Owned> = None;
        let (mut records, mut blocks, mut block_bytes) = (0, 0, 0);
        assert_eq!(self.firsts.len(), self.chunks.len());
        let mut at = self.first();
        while let Some(here) = at {
            use std::borrow::Borrow;
            let block = self.block(here);
            let used = self.kind.used(block);
            let mut decoded = Records::<K>::default();
            block::check(self.kind, &block[..used], last.as_ref().map(Borrow::borrow), &mut decoded)
                .map_err(|corrupt| format!("block {here:?}: {corrupt}"))?;
            for rank in 0..decoded.len() {
                if self.get(decoded.ids.at(rank)) != Some(decoded.symbols[rank]) {
                    return Err(format!("block {here:?}: record {rank} is not found"));
                }
            }
            last = Some(decoded.ids.at(decoded.len() - 1).to_owned());
            records += decoded.len() as u64;
            blocks += 1;
            block_bytes += heap::size_class(block.len());
            at = self.next(here);
        }
        let chunk_bytes: usize = self.chunks.iter().map(Chunk::heap_bytes).sum();
        let counted = (records, blocks, block_bytes, chunk_bytes);
        let kept = (self.records, self.blocks, self.block_bytes, self.chunk_bytes);
        if counted == kept { Ok(()) } else { Err(format!("counted {counted:?}, kept {kept:?}")) }
    }
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
fn encode_evenly<K: Kind>(kind: K, records: &Records<K>) -> Vec<Box<[u8]>> {
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
            self.run.kind.decode(self.run.block(at), &mut self.records);
            self.rank = 0;
        }
        let rank = self.rank;
        self.rank += 1;
        Some((self.records.ids.at(rank), self.records.symbols[rank]))
    }
}
