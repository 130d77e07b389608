//! Where blocks are: finds the one that an id belongs in, and keeps the accounts of all.
//!
//! The directory has two levels, so that inserting a block moves a few kilobytes and not the whole. The upper one is an
//! array of 128-bit keys, one a chunk. A chunk has up to 8192 blocks and, for searching, an array of 64-bit keys: the
//! distance of each block's first id from the chunk's own key, shifted right as far as it takes to fit. Where that, or
//! a text longer than a key, leaves several blocks with equal keys, their first ids decide.
//!
//! A search in a chunk begins where the key would be if keys were evenly spread, and memory is asked for before it is
//! needed: the block's address while the keys are searched, the block's beginning and the place of the id in it while
//! nothing of the block has been read. In a large table a find waits for memory twice, and otherwise would five times.

use std::cmp::Ordering;
use std::ops::Range;

use crate::bits;
use crate::block::{self, Kind};
use crate::cpu::{self, CACHE_LINE};
use crate::heap;

/// A chunk is split when it has more blocks, and filled to half of that when blocks come in order.
const MAX_CHUNK: usize = 8192;
const FILLED_CHUNK: usize = MAX_CHUNK / 2;

/// When blocks come in order, a chunk of more than so many ends before a key that is so many times as far from the one
/// before as these are from each other: with the next card network, say. Guesses go by even spreading.
const JUMP_AFTER: usize = 32;
const JUMP_FACTOR: u64 = 16;

/// The beginning of a block, header and mostly the unary part: about two bits a record.
const PREFETCHED_BYTES: usize = 5 * CACHE_LINE;

/// Ascending blocks.
pub(crate) struct Directory<K: Kind> {
    kind: K,
    /// For each chunk a key that is not above those of its ids, and above those of all chunks before.
    firsts: Vec<u128>,
    chunks: Vec<Chunk>,
    records: u64,
    blocks: usize,
    block_bytes: usize,
    chunk_bytes: usize,
}

#[derive(Default, Clone)]
struct Chunk {
    shift: u32,
    /// Blocks for each 2^64 steps of a key, on average: tells where in the keys to begin a search.
    density: u64,
    /// Where the blocks of this chunk have their ids, as parts of a block's length; what follows are symbols.
    ids: Range<f32>,
    keys: Vec<u64>,
    blocks: Vec<Box<[u8]>>,
}

impl<K: Kind> Clone for Directory<K> {
    fn clone(&self) -> Self {
        // A copy has nothing in reserve.
        let mut copy = Directory { firsts: self.firsts.clone(), chunks: self.chunks.clone(), ..*self };
        copy.recount_chunks();
        copy
    }
}

/// Where a block is: its chunk, and its place there.
pub(crate) type At = (usize, usize);

/// A block, with what the directory has to know of it. To read that from a million blocks at once would be slow.
pub(crate) struct Entry {
    pub block: Box<[u8]>,
    /// The key of its first id.
    key: u128,
    records: usize,
}

impl Entry {
    pub fn new<K: Kind>(kind: K, block: Box<[u8]>) -> Entry {
        Entry { key: kind.first_key(&block), records: block::count(&block), block }
    }
}

/// Blocks, which ascend, for the place of so many others, which have so many records.
pub(crate) struct Edit {
    pub at: At,
    pub count: usize,
    pub records: usize,
    pub entries: Vec<Entry>,
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
        (((u128::from(key) * u128::from(self.density)) >> 64) as usize).min(self.keys.len() - 1)
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

    /// Asks for what a find will read of the block at `at`: its beginning, and id and symbol where those of `key` should be.
    #[inline]
    fn prefetch(&self, at: usize, key: u64) {
        let block = &self.blocks[at];
        (0..PREFETCHED_BYTES).step_by(CACHE_LINE).for_each(|at| cpu::prefetch(block, at));
        if let Some([from, to]) = self.keys.get(at..at + 2) {
            // Halves, because signed numbers are converted more quickly.
            let half = |distance: u64| (distance / 2) as i64 as f32;
            let part = half(key.saturating_sub(*from)) / half(to - from);
            let ask = |place: f32, offset: usize| cpu::prefetch(block, (place * block.len() as f32) as usize + offset);
            let id = self.ids.start + part * (self.ids.end - self.ids.start);
            ask(id, 0);
            ask(id, CACHE_LINE / 2);
            ask(self.ids.end + part * (1.0 - self.ids.end), 0);
        }
    }

    /// Whether a key is so far beyond all others that with it in the chunk guesses would be wrong.
    fn jumps_to(&self, first: u128, key: u128) -> bool {
        let last = self.keys.len() - 1;
        last >= JUMP_AFTER && self.key(first, key) - self.keys[last] > self.keys[last] / last as u64 * JUMP_FACTOR
    }

    /// Learns from a block, and from the keys, what guesses go by.
    fn learn<K: Kind>(&mut self, kind: K, block: usize) {
        let last = self.keys.len() - 1;
        self.density = u64::try_from(((last as u128) << 64) / u128::from(self.keys[last].max(1))).unwrap_or(u64::MAX);
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

impl<K: Kind> Directory<K> {
    pub fn new(kind: K) -> Self {
        Directory {
            kind,
            firsts: Vec::new(),
            chunks: Vec::new(),
            records: 0,
            blocks: 0,
            block_bytes: 0,
            chunk_bytes: 0,
        }
    }

    pub fn kind(&self) -> K {
        self.kind
    }

    /// The number of records.
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

    /// The block that begins with exactly this id, told without reading it: none also where keys cannot tell. It is looked
    /// for at `guess` first.
    pub fn beginning_with(&self, id: &K::Id, guess: Option<At>) -> Option<At> {
        let key = K::key(id);
        let begins = |(chunk, at): At| {
            let here = &self.chunks[chunk];
            let exact = key.checked_sub(self.firsts[chunk]).and_then(|distance| u64::try_from(distance).ok());
            here.shift == 0 && exact.is_some_and(|exact| here.keys.get(at) == Some(&exact))
        };
        if !K::KEYS_ARE_EXACT {
            return None;
        }
        if let Some(guess) = guess.filter(|guess| begins(*guess)) {
            return Some(guess);
        }
        let chunk = self.firsts.partition_point(|&first| first <= key).checked_sub(1)?;
        let exact = u64::try_from(key - self.firsts[chunk]).ok()?;
        let at = (chunk, self.chunks[chunk].keys.partition_point(|&other| other < exact));
        begins(at).then_some(at)
    }

    /// How many blocks lie from one to another, or to the end.
    pub fn distance(&self, from: At, to: Option<At>) -> usize {
        let (last, at) = to.unwrap_or((self.chunks.len(), 0));
        let whole = self.chunks.get(from.0..last).unwrap_or_default();
        (whole.iter().map(|chunk| chunk.blocks.len()).sum::<usize>() + at).saturating_sub(from.1)
    }

    pub fn block(&self, (chunk, at): At) -> &[u8] {
        &self.chunks[chunk].blocks[at]
    }

    /// The blocks, in order.
    pub fn into_blocks(self) -> impl Iterator<Item = Box<[u8]>> {
        self.chunks.into_iter().flat_map(|chunk| chunk.blocks)
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

    /// The block and the one after it in its chunk, if there is one.
    pub fn neighbours(&self, (chunk, at): At) -> Option<(&[u8], &[u8])> {
        let blocks = &self.chunks[chunk].blocks;
        Some((blocks.get(at)?, blocks.get(at + 1)?))
    }

    /// Hands blocks over, from the one with this number on and until `enough`, and puts what comes back in their places:
    /// the same bytes somewhere else in memory. Tells how many were handed over.
    pub fn relocate(
        &mut self,
        from: usize,
        relocate: &mut dyn FnMut(Box<[u8]>) -> Box<[u8]>,
        enough: &mut dyn FnMut() -> bool,
    ) -> usize {
        let mut before = 0;
        let mut relocated = 0;
        for chunk in &mut self.chunks {
            let first = from.saturating_sub(before).min(chunk.blocks.len());
            before += chunk.blocks.len();
            for block in &mut chunk.blocks[first..] {
                if enough() {
                    return relocated;
                }
                *block = relocate(std::mem::take(block));
                relocated += 1;
            }
        }
        relocated
    }

    /// Edits a block in place: `edit` tells whether it has put one more record into it.
    pub fn edit(&mut self, (chunk, at): At, edit: impl FnOnce(&mut [u8]) -> bool) -> bool {
        let edited = edit(&mut self.chunks[chunk].blocks[at]);
        self.records += u64::from(edited);
        edited
    }

    /// Appends a block whose ids are all above those of the run.
    pub fn append(&mut self, block: Box<[u8]>) {
        let key = self.kind.first_key(&block);
        let ends = |chunk: &Chunk, first: &u128| chunk.blocks.len() >= FILLED_CHUNK || chunk.jumps_to(*first, key);
        if self.chunks.last().zip(self.firsts.last()).is_none_or(|(chunk, first)| ends(chunk, first)) {
            self.chunks.last_mut().map(Chunk::shrink);
            self.firsts.push(key);
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
    pub fn replace(&mut self, (chunk, at): At, blocks: Vec<Box<[u8]>>) {
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

    /// Makes edits, which ascend, in one pass over the chunks they touch, and hands over the blocks that were replaced.
    pub fn splice(&mut self, edits: impl IntoIterator<Item = Edit>, replaced: &mut Vec<Box<[u8]>>) {
        let mut edits = edits.into_iter().peekable();
        let chunks = std::mem::take(&mut self.chunks);
        let firsts = std::mem::take(&mut self.firsts);
        // An edit may reach into the next chunk, which then loses so many blocks.
        let mut lost = 0;
        for (number, (first, mut chunk)) in firsts.into_iter().zip(chunks).enumerate() {
            let is_edited = lost > 0 || edits.peek().is_some_and(|edit| edit.at.0 == number);
            let mut keys_fit = true;
            if is_edited {
                let keys = std::mem::take(&mut chunk.keys);
                let blocks = std::mem::take(&mut chunk.blocks);
                chunk.keys.reserve(keys.len());
                chunk.blocks.reserve(keys.len());
                for (at, (key, block)) in keys.into_iter().zip(blocks).enumerate() {
                    if let Some(edit) = edits.next_if(|edit| edit.at == (number, at)) {
                        self.records -= edit.records as u64;
                        lost += edit.count;
                        for Entry { block, key, records } in edit.entries {
                            keys_fit &= key >= first && bits::width((key - first) >> chunk.shift) <= 64;
                            chunk.keys.push(chunk.key(first, key));
                            self.records += records as u64;
                            self.blocks += 1;
                            self.block_bytes += block.len();
                            chunk.blocks.push(block);
                        }
                    }
                    if lost > 0 {
                        lost -= 1;
                        self.blocks -= 1;
                        self.block_bytes -= block.len();
                        replaced.push(block);
                    } else {
                        chunk.keys.push(key);
                        chunk.blocks.push(block);
                    }
                }
                chunk.shrink();
            }
            if chunk.blocks.is_empty() {
                continue;
            }
            let at = self.chunks.len();
            self.firsts.push(first);
            self.chunks.push(chunk);
            if !keys_fit {
                self.firsts[at] = first.min(self.kind.first_key(&self.chunks[at].blocks[0]));
                self.rekey(at);
            } else if is_edited {
                self.chunks[at].learn(self.kind, 0);
            }
            if self.chunks[at].blocks.len() > MAX_CHUNK {
                self.split_chunk(at);
            }
        }
        self.recount_chunks();
    }

    fn count(&mut self, block: &[u8]) {
        self.records += block::count(block) as u64;
        self.blocks += 1;
        self.block_bytes += block.len();
    }

    fn discount(&mut self, block: &[u8]) {
        self.records -= block::count(block) as u64;
        self.blocks -= 1;
        self.block_bytes -= block.len();
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
        self.discount(&block);
    }

    fn insert_block(&mut self, (at_chunk, at): At, block: Box<[u8]>) {
        self.count(&block);
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

    /// Whether the accounts are what is there.
    pub fn check(&self) -> Result<(), String> {
        let blocks = || self.chunks.iter().flat_map(|chunk| &chunk.blocks);
        let counted = (
            blocks().map(|block| block::count(block) as u64).sum(),
            blocks().count(),
            blocks().map(|block| heap::size_class(block.len())).sum(),
            self.chunks.iter().map(Chunk::heap_bytes).sum(),
        );
        let kept = (self.records, self.blocks, self.block_bytes, self.chunk_bytes);
        if counted == kept { Ok(()) } else { Err(format!("counted {counted:?}, kept {kept:?}")) }
    }
}
