//! A patch: what a table will hold in some spans of ids, prepared beside it and then put into it at once.
//!
//! A table that answers cannot be changed in a thousand places at once, and must not be seen half changed. So changes
//! are applied to copies:
//!
//! ```text
//! Table::excerpt    copies the blocks that some changes touch             short, while the table waits
//! Excerpt::apply    applies the changes to the copies                     long, on any thread
//! Patch::append     adds the outcome to the patch of all changes          short
//! Table::patch      puts the patch in the place of what it was made from  short, for any number of changes
//! ```
//!
//! A span is all that lies between the first id of one block and that of the next; so putting it in place mostly means to
//! exchange a block. Cards that are set or removed in the table while a patch waits go into the patch as well, with
//! [`Patch::set`]: whoever calls these sees to it that a span has not changed between its excerpt and its appending.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::slice;

use crate::block::{self, Column, Kind, Numbers, Records, Texts};
use crate::bytes::DecodeError;
use crate::changes::{Applied, Change, Effect};
use crate::corrupt::{Corrupt, broken, ensure};
use crate::digest;
use crate::directory::Entry;
use crate::heap;
use crate::id::{Class, Id};
use crate::run::{self, Run};
use crate::schema::Schema;
use crate::table::Table;

/// What a table will hold in some spans.
pub struct Patch {
    /// Ascending by class.
    numbers: Vec<Part<Numbers>>,
    texts: Part<Texts>,
    /// What it adds to the digest of the table.
    digest: u128,
    /// On the heap, without the vectors of spans themselves.
    bytes: usize,
}

/// The spans of one class, ascending.
pub(crate) struct Part<K: Kind> {
    pub kind: K,
    pub spans: Vec<Span<K>>,
}

/// The ids from `from` on and below `to`, or all that follow.
pub(crate) struct Span<K: Kind> {
    pub from: Owned<K>,
    pub to: Option<Owned<K>>,
    /// How many records of the table lie in it.
    pub replaced: usize,
    pub entries: Vec<Entry>,
}

pub(crate) type Owned<K> = <<K as Kind>::Id as ToOwned>::Owned;

/// The blocks that the first of some changes touch.
pub struct Excerpt {
    copied: Patch,
    /// How many changes these are.
    pub changes: usize,
}

impl<K: Kind> Span<K> {
    pub fn has(&self, id: &K::Id) -> bool {
        self.from.borrow() <= id && !self.ends_before(id)
    }

    /// Whether the id lies beyond the span.
    pub fn ends_before(&self, id: &K::Id) -> bool {
        self.to.as_ref().is_some_and(|to| to.borrow() <= id)
    }

    fn records(&self, kind: K) -> Records<K> {
        let mut records = Records::default();
        self.entries.iter().for_each(|entry| kind.decode(&entry.block, &mut records));
        records
    }

    /// On the heap.
    fn bytes(&self, kind: K) -> usize {
        let bound = |id: &Owned<K>| match kind.id(id.borrow()) {
            Id::Text(bytes) => heap::size_class(bytes.len()),
            Id::Number(..) => 0,
        };
        heap::vec_bytes(&self.entries)
            + self.entries.iter().map(|entry| entry.block.len()).sum::<usize>()
            + bound(&self.from)
            + self.to.as_ref().map_or(0, bound)
    }

    /// Sets or removes a card, and tells the symbol that it had.
    fn set(&mut self, kind: K, id: &K::Id, symbol: Option<u128>) -> Option<u128> {
        let after = self.entries.partition_point(|entry| kind.compare_first(&entry.block, id).is_le());
        let at = after.saturating_sub(1);
        let mut records = Records::default();
        self.entries.get(at).inspect(|entry| kind.decode(&entry.block, &mut records));
        let found = records.search(id);
        let before = found.ok().map(|rank| records.symbols[rank]);
        match (found, symbol) {
            (Ok(rank), Some(symbol)) => records.symbols[rank] = symbol,
            (Ok(rank), None) => records.remove(rank),
            (Err(rank), Some(symbol)) => records.insert(rank, id, symbol),
            (Err(_), None) => return None,
        }
        let rewritten = at..self.entries.len().min(at + 1);
        self.entries.splice(rewritten, run::entries(kind, &records));
        before
    }
}

impl<K: Kind> Part<K> {
    fn new(kind: K) -> Part<K> {
        Part { kind, spans: Vec::new() }
    }

    /// Copies the spans in which changes lie, up to so many of them, and tells how many changes that are. What belongs to
    /// a patch already, up to `end`, is left out.
    fn copy(&mut self, run: &Run<K>, end: Option<&K::Id>, changes: &[Change], most: usize) -> usize {
        for (at, (id, _)) in changes.iter().enumerate() {
            let id = self.own(id);
            if self.spans.last().is_none_or(|span| span.ends_before(id)) {
                if self.spans.len() == most {
                    return at;
                }
                let mut span = run.span(id);
                if let Some(end) = end.filter(|end| span.from.borrow() < *end) {
                    let mut records = span.records(self.kind);
                    records.drop_front(records.search(end).unwrap_or_else(|rank| rank));
                    span.from = end.to_owned();
                    span.replaced = records.len();
                    span.entries = run::entries(self.kind, &records);
                }
                self.spans.push(span);
            }
        }
        changes.len()
    }

    /// Where the last span ends, if anything can follow it.
    fn end(&self) -> Option<&K::Id> {
        Some(self.spans.last()?.to.as_ref()?.borrow())
    }

    /// Leaves it to others to change what lies from `next` on, as not all changes to the last span are known: the span is
    /// left out, or cut if it is the only one. Tells how many of the changes are left.
    fn leave(&mut self, next: &Id, changes: &[Change], is_only: bool) -> usize {
        let next = self.own(next);
        let Some(last) = self.spans.pop_if(|last| last.has(next)) else { return changes.len() };
        if !is_only || !self.spans.is_empty() {
            return changes.partition_point(|(id, _)| !last.has(self.own(id)));
        }
        let mut records = last.records(self.kind);
        let kept = records.search(next).unwrap_or_else(|rank| rank);
        records.truncate(kept);
        let entries = run::entries(self.kind, &records);
        self.spans.push(Span { from: last.from, to: Some(next.to_owned()), replaced: kept, entries });
        changes.len()
    }

    /// Applies changes to what was copied; what they do not change is left out.
    fn apply(&mut self, changes: &mut slice::Iter<Change>, effect: &mut Effect) {
        for mut span in std::mem::take(&mut self.spans) {
            let old = span.records(self.kind);
            let before = effect.applied.all();
            let is_ours = |(id, _): &Change| self.kind.own(id).is_some_and(|id| !span.ends_before(id));
            let ours = changes.as_slice().partition_point(is_ours);
            let new =
                old.merge(changes.by_ref().take(ours).map(|(id, symbol)| (self.own(id), *symbol)), |id, was, is| {
                    effect.count(&self.kind.id(id), was, is);
                });
            if effect.applied.all() > before {
                span.entries = run::entries(self.kind, &new);
                self.push(span);
            }
        }
    }

    /// Adds a span, joined with the one before if that leaves one block of two thin ones.
    fn push(&mut self, mut span: Span<K>) {
        let joinable = |last: &mut Span<K>| match (&*last.entries, &*span.entries) {
            ([left], [right]) if last.to.as_ref() == Some(&span.from) => {
                run::are_joinable(self.kind, &left.block, &right.block)
            }
            _ => false,
        };
        if let Some(last) = self.spans.pop_if(joinable) {
            let mut records = last.records(self.kind);
            self.kind.decode(&span.entries[0].block, &mut records);
            let (replaced, entries) = (last.replaced + span.replaced, run::entries(self.kind, &records));
            span = Span { from: last.from, to: span.to, replaced, entries };
        }
        self.spans.push(span);
    }

    fn own<'a>(&self, id: &'a Id) -> &'a K::Id {
        self.kind.own(id).expect("it is of this class")
    }

    fn bytes(&self) -> usize {
        self.spans.iter().map(|span| span.bytes(self.kind)).sum()
    }

    /// The span in which an id lies.
    fn span_mut(&mut self, id: &K::Id) -> Option<&mut Span<K>> {
        let after = self.spans.partition_point(|span| span.from.borrow() <= id);
        self.spans[..after].last_mut().filter(|span| span.has(id))
    }

    /// Sets or removes a card, which had the symbol `before` in the table, and tells the symbol that it had in the patch; nothing
    /// if it lies in no span.
    fn set(
        &mut self,
        id: &K::Id,
        before: Option<u128>,
        symbol: Option<u128>,
        bytes: &mut usize,
    ) -> Option<Option<u128>> {
        let kind = self.kind;
        let span = self.span_mut(id)?;
        *bytes -= span.bytes(kind);
        let was = span.set(kind, id, symbol);
        *bytes += span.bytes(kind);
        span.replaced = span.replaced + usize::from(symbol.is_some()) - usize::from(before.is_some());
        Some(was)
    }

    fn put(&self, out: &mut Vec<u8>, span: &Span<K>) {
        let bound = |out: &mut Vec<u8>, id: Option<&K::Id>| {
            let spelt = id.filter(|id| *id != Owned::<K>::default().borrow()).map(|id| self.kind.id(id).to_bytes());
            put_bytes(out, &spelt.unwrap_or_default());
        };
        out.extend_from_slice(&self.kind.class().tag());
        bound(out, Some(span.from.borrow()));
        bound(out, span.to.as_ref().map(|to| to.borrow()));
        out.extend_from_slice(&(span.entries.len() as u16).to_le_bytes());
        span.entries.iter().for_each(|entry| put_bytes(out, &entry.block[..self.kind.used(&entry.block)]));
    }

    /// Reads a span behind its class, checks it, and tells what it adds to the digest of a table.
    fn take(&mut self, input: &mut Input, run: &Run<K>) -> Result<u128, Corrupt> {
        let kind = self.kind;
        let bound = |bytes: &[u8]| -> Result<Option<Owned<K>>, Corrupt> {
            if bytes.is_empty() {
                return Ok(None);
            }
            let id = Id::parse(bytes).ok();
            let own = id.as_ref().and_then(|id| kind.own(id));
            own.map(|id| Some(id.to_owned())).ok_or_else(|| broken("a span ends at ids of its class"))
        };
        let from = bound(input.bytes()?)?.unwrap_or_default();
        let to = bound(input.bytes()?)?;
        let mut span: Span<K> = Span { from, to, replaced: 0, entries: Vec::new() };
        ensure(!span.ends_before(span.from.borrow()), "a span has room for ids")?;
        let mut records = Records::default();
        for _ in 0..input.number()? {
            let block = input.bytes()?;
            block::check(kind, block, &mut records)?;
            span.entries.push(Entry::new(kind, heap::boxed(block)));
        }
        let ids = || (0..records.len()).map(|rank| records.ids.at(rank));
        ensure(ids().is_sorted_by(|a, b| a < b), "blocks ascend")?;
        ensure(ids().all(|id| span.has(id)), "ids lie in their span")?;
        let digest = |id: &K::Id, symbol| digest::of_record(&kind.id(id), symbol);
        let added = ids().zip(&records.symbols).fold(0u128, |sum, (id, symbol)| sum.wrapping_add(digest(id, *symbol)));
        let mut replaced = 0u128;
        let mut walk = run.walk(Some(span.from.borrow()));
        while let Some((id, symbol)) = walk.next().filter(|(id, _)| span.has(id)) {
            replaced = replaced.wrapping_add(digest(id, symbol));
            span.replaced += 1;
        }
        ensure(self.spans.last().is_none_or(|last| last.ends_before(span.from.borrow())), "spans ascend")?;
        self.spans.push(span);
        Ok(added.wrapping_sub(replaced))
    }
}

impl Patch {
    /// A patch that changes nothing.
    pub fn new(schema: &Schema) -> Patch {
        let texts = Part::new(Texts::new(schema.highest_symbol()));
        Patch { numbers: Vec::new(), texts, digest: 0, bytes: 0 }
    }

    /// How many spans it has.
    pub fn spans(&self) -> usize {
        self.numbers.iter().map(|part| part.spans.len()).sum::<usize>() + self.texts.spans.len()
    }

    /// What it takes on the heap.
    pub fn heap_bytes(&self) -> usize {
        let vectors = self.numbers.iter().map(|part| heap::vec_bytes(&part.spans)).sum::<usize>();
        self.bytes + vectors + heap::vec_bytes(&self.texts.spans) + heap::vec_bytes(&self.numbers)
    }

    /// Adds what comes behind it.
    pub fn append(&mut self, piece: Patch) -> Result<(), Corrupt> {
        let Patch { numbers, mut texts, .. } = piece;
        ensure(self.texts.spans.is_empty() || numbers.is_empty(), "spans ascend")?;
        ensure(follows(&self.texts, &texts), "spans ascend")?;
        if let Some((last, first)) = self.numbers.last().zip(numbers.first()) {
            let is_next = match last.kind.class().cmp(&first.kind.class()) {
                Ordering::Less => true,
                Ordering::Equal => follows(last, first),
                Ordering::Greater => false,
            };
            ensure(is_next, "spans ascend")?;
        }
        for mut part in numbers {
            match self.numbers.last_mut().filter(|last| last.kind.class() == part.kind.class()) {
                Some(last) => last.spans.append(&mut part.spans),
                None => self.numbers.push(part),
            }
        }
        self.texts.spans.append(&mut texts.spans);
        self.digest = self.digest.wrapping_add(piece.digest);
        self.bytes += piece.bytes;
        Ok(())
    }

    /// Whether an id lies in one of the spans.
    pub fn has(&self, id: &Id) -> bool {
        fn among<K: Kind>(part: &Part<K>, id: &Id) -> bool {
            let Some(id) = part.kind.own(id) else { return false };
            let after = part.spans.partition_point(|span| span.from.borrow() <= id);
            part.spans[..after].last().is_some_and(|span| span.has(id))
        }
        self.numbers.iter().any(|part| among(part, id)) || among(&self.texts, id)
    }

    /// Follows a change of the table: the card had the symbol `before` in it, and now has another, or none. Tells whether
    /// the patch had another symbol for it.
    pub fn set(&mut self, id: &Id, before: Option<u128>, symbol: Option<u128>) -> bool {
        let bytes = &mut self.bytes;
        let was = match id {
            Id::Number(class, number) => {
                let part = self.numbers.iter_mut().find(|part| part.kind.class() == *class);
                part.and_then(|part| part.set(number, before, symbol, bytes))
            }
            Id::Text(text) => self.texts.set(text, before, symbol, bytes),
        };
        let Some(was) = was else { return false };
        // Table and patch now have the same of it, where they may have differed before.
        let digest = |symbol: Option<u128>| symbol.map_or(0, |symbol| digest::of_record(id, symbol));
        self.digest = self.digest.wrapping_add(digest(before)).wrapping_sub(digest(was));
        was != symbol
    }

    /// The spans, in pieces of about so many bytes, as [`Table::check_patch`] takes them.
    pub fn pieces(&self, bytes: usize) -> impl Iterator<Item = Vec<u8>> {
        type Put<'a> = Box<dyn Fn(&mut Vec<u8>) + 'a>;
        fn puts<K: Kind>(part: &Part<K>) -> impl Iterator<Item = Put<'_>> {
            part.spans.iter().map(move |span| Box::new(move |out: &mut Vec<u8>| part.put(out, span)) as Put)
        }
        let mut all = self.numbers.iter().flat_map(puts).chain(puts(&self.texts));
        std::iter::from_fn(move || {
            let mut piece = Vec::new();
            while piece.len() < bytes
                && let Some(put) = all.next()
            {
                put(&mut piece);
            }
            (!piece.is_empty()).then_some(piece)
        })
    }

    /// The same in one piece.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.pieces(usize::MAX).next().unwrap_or_default()
    }
}

/// Whether one part's spans lie behind another's of the same class.
fn follows<K: Kind>(part: &Part<K>, next: &Part<K>) -> bool {
    part.spans.last().zip(next.spans.first()).is_none_or(|(last, first)| last.ends_before(first.from.borrow()))
}

impl Excerpt {
    /// Applies the changes that the excerpt was made for.
    pub fn apply(mut self, changes: &[Change]) -> (Patch, Applied) {
        let mut effect = Effect::default();
        let mut changes = changes[..self.changes].iter();
        let patch = &mut self.copied;
        patch.numbers.iter_mut().for_each(|part| part.apply(&mut changes, &mut effect));
        patch.texts.apply(&mut changes, &mut effect);
        patch.numbers.retain(|part| !part.spans.is_empty());
        patch.digest = effect.digest;
        patch.bytes = patch.numbers.iter().map(Part::bytes).sum::<usize>() + patch.texts.bytes();
        (self.copied, effect.applied)
    }

    /// Whether an id lies in what was copied.
    pub fn has(&self, id: &Id) -> bool {
        self.copied.has(id)
    }
}

impl Table {
    /// Copies the blocks that changes, which ascend, touch: up to so many, and then only the first changes are meant. The
    /// changes are beyond those in `patch`, and `next` is the one that follows them, if there is one.
    pub fn excerpt(&self, patch: &Patch, changes: &[Change], next: Option<&Id>, blocks: usize) -> Excerpt {
        let mut excerpt = Excerpt { copied: Patch::new(&self.schema), changes: 0 };
        let copied = &mut excerpt.copied;
        for of_class in changes.chunk_by(|(a, _), (b, _)| a.class() == b.class()) {
            let spans = copied.spans();
            let next = next.filter(|next| next.class() == of_class[0].0.class());
            let taken = match of_class[0].0.class() {
                Class::Text => {
                    take_class(&mut copied.texts, &self.texts, patch.texts.end(), of_class, next, spans, blocks)
                }
                class => {
                    let mut part = Part::new(Numbers::new(class, self.schema.highest_symbol()));
                    let none = Run::new(part.kind);
                    let run = self.run(class).unwrap_or(&none);
                    let before = patch.numbers.last().filter(|before| before.kind.class() == class);
                    let end = before.and_then(Part::end);
                    let taken = take_class(&mut part, run, end, of_class, next, spans, blocks);
                    copied.numbers.push(part);
                    taken
                }
            };
            excerpt.changes += taken;
            if taken < of_class.len() {
                break;
            }
        }
        excerpt
    }

    /// Checks bytes from outside that should be spans of a patch to this table.
    pub fn check_patch(&self, bytes: &[u8]) -> Result<Patch, DecodeError> {
        let mut patch = Patch::new(&self.schema);
        let mut input = Input(bytes);
        while !input.0.is_empty() {
            let class = Class::from_tag(input.array()?).ok_or_else(|| broken("a class is a known one"))?;
            let mut piece = Patch::new(&self.schema);
            piece.digest = match class {
                Class::Text => piece.texts.take(&mut input, &self.texts)?,
                _ => {
                    let mut part = Part::new(Numbers::new(class, self.schema.highest_symbol()));
                    let none = Run::new(part.kind);
                    let digest = part.take(&mut input, self.run(class).unwrap_or(&none))?;
                    piece.numbers.push(part);
                    digest
                }
            };
            piece.bytes = piece.numbers.iter().map(Part::bytes).sum::<usize>() + piece.texts.bytes();
            patch.append(piece)?;
        }
        Ok(patch)
    }

    /// Puts a patch into the table that it was made for. Returns the blocks that it replaced, whose freeing may take
    /// longer than anything else.
    pub fn patch(&mut self, patch: Patch) -> Vec<Box<[u8]>> {
        let mut replaced = Vec::new();
        for part in patch.numbers {
            self.run_mut(part.kind.class()).patch(part.spans, &mut replaced);
        }
        self.texts.patch(patch.texts.spans, &mut replaced);
        self.numbers.retain(|run| run.len() > 0);
        self.records_digest = self.records_digest.wrapping_add(patch.digest);
        replaced
    }
}

fn take_class<K: Kind>(
    part: &mut Part<K>,
    run: &Run<K>,
    end: Option<&K::Id>,
    changes: &[Change],
    next: Option<&Id>,
    spans: usize,
    most: usize,
) -> usize {
    let taken = part.copy(run, end, changes, most - spans);
    match next {
        Some(next) if taken == changes.len() => part.leave(next, changes, spans == 0),
        _ => taken,
    }
}

/// Bytes that are being read.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Corrupt> {
        let (array, rest) = self.0.split_first_chunk().ok_or_else(|| broken("a span is whole"))?;
        self.0 = rest;
        Ok(*array)
    }

    fn number(&mut self) -> Result<usize, Corrupt> {
        Ok(u16::from_le_bytes(self.array()?).into())
    }

    fn bytes(&mut self) -> Result<&'a [u8], Corrupt> {
        let len = self.number()?;
        let (bytes, rest) = self.0.split_at_checked(len).ok_or_else(|| broken("a span is whole"))?;
        self.0 = rest;
        Ok(bytes)
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
    out.extend_from_slice(bytes);
}
