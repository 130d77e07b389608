//! The table: cards and their symbols, one run of blocks for each class of ids that occurs.

use std::borrow::Cow;

use crate::block::{Kind, Numbers, Texts};
use crate::digest;
use crate::directory::At;
use crate::heap;
use crate::id::{Class, Id};
use crate::run::{Inserted, Run, Walk};
use crate::schema::Schema;

/// How many finds wait for memory together: more than a core can have under way brings nothing.
const FINDS_AT_ONCE: usize = 16;

/// A table of cards. See the [crate's documentation](crate) for what it promises and how it works.
#[derive(Clone)]
pub struct Table {
    pub(crate) schema: Schema,
    /// Ascending by class.
    pub(crate) numbers: Vec<Run<Numbers>>,
    pub(crate) texts: Run<Texts>,
    /// The sum over the records; the schema is added when asked.
    pub(crate) records_digest: u128,
}

/// What a table takes on the heap, as Redis's allocator counts it: whole size classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    pub blocks: usize,
    /// All that is not a block: the directory and the schema. The [`Table`] struct itself is its owner's.
    pub directory: usize,
}

impl Memory {
    pub fn total(&self) -> usize {
        self.blocks + self.directory
    }
}

/// What a table holds of one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassStats {
    pub class: Class,
    pub records: u64,
    pub blocks: usize,
    pub bytes: usize,
}

impl ClassStats {
    fn of<K: Kind>(run: &Run<K>) -> ClassStats {
        ClassStats {
            class: run.kind().class(),
            records: run.len(),
            blocks: run.blocks(),
            bytes: run.block_bytes() + run.directory_bytes(),
        }
    }
}

impl Table {
    pub fn new(schema: Schema) -> Table {
        let texts = Run::new(Texts::new(schema.highest_symbol()));
        Table { schema, numbers: Vec::new(), texts, records_digest: 0 }
    }

    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The number of cards.
    pub fn len(&self) -> u64 {
        self.numbers.iter().map(|run| run.len()).sum::<u64>() + self.texts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The card's symbol; [`Schema::unpack`] tells the values behind it.
    #[inline]
    pub fn get(&self, id: &Id) -> Option<u128> {
        match id {
            Id::Number(class, number) => self.run(*class)?.get(number),
            Id::Text(bytes) => self.texts.get(bytes),
        }
    }

    /// The symbols of many cards. Quicker than asking for one after the other: a find mostly waits for memory, and here
    /// several wait together.
    pub fn get_many(&self, ids: &[Id]) -> Vec<Option<u128>> {
        let mut symbols = Vec::with_capacity(ids.len());
        for some in ids.chunks(FINDS_AT_ONCE) {
            let mut places = [None; FINDS_AT_ONCE];
            places.iter_mut().zip(some).for_each(|(place, id)| *place = self.locate(id));
            symbols.extend(some.iter().zip(places).map(|(id, place)| self.get_at(place?, id)));
        }
        symbols
    }

    /// The run and the block in which an id would be.
    fn locate(&self, id: &Id) -> Option<(usize, At)> {
        match id {
            Id::Number(class, number) => {
                let run = self.find_run(*class).ok()?;
                Some((run, self.numbers[run].locate(number)?))
            }
            Id::Text(bytes) => Some((self.numbers.len(), self.texts.locate(bytes)?)),
        }
    }

    fn get_at(&self, (run, at): (usize, At), id: &Id) -> Option<u128> {
        match id {
            Id::Number(_, number) => self.numbers[run].get_at(at, number),
            Id::Text(bytes) => self.texts.get_at(at, bytes),
        }
    }

    /// Adds a card or changes its symbol. The id is one of [`Id::parse`] and the symbol one of [`Schema::pack`]; anything
    /// else is a bug of the caller and panics.
    pub fn insert(&mut self, id: &Id, symbol: u128) -> Inserted {
        assert!(id.is_sound(), "an id is one of its class");
        assert!(symbol < self.schema.symbols(), "a symbol is one of the schema's");
        let inserted = match id {
            Id::Number(class, number) => self.run_mut(*class).insert(number, symbol),
            Id::Text(bytes) => self.texts.insert(bytes, symbol),
        };
        if let Inserted::Replaced(old) = inserted {
            self.forget(id, old);
        }
        self.records_digest = self.records_digest.wrapping_add(digest::of_record(id, symbol));
        inserted
    }

    /// Removes a card and tells its symbol.
    pub fn remove(&mut self, id: &Id) -> Option<u128> {
        let symbol = match id {
            Id::Number(class, number) => {
                let at = self.find_run(*class).ok()?;
                let symbol = self.numbers[at].remove(number)?;
                if self.numbers[at].len() == 0 {
                    self.numbers.remove(at);
                }
                symbol
            }
            Id::Text(bytes) => self.texts.remove(bytes)?,
        };
        self.forget(id, symbol);
        Some(symbol)
    }

    fn forget(&mut self, id: &Id, symbol: u128) {
        self.records_digest = self.records_digest.wrapping_sub(digest::of_record(id, symbol));
    }

    fn find_run(&self, class: Class) -> Result<usize, usize> {
        self.numbers.binary_search_by_key(&class, |run| run.kind().class())
    }

    pub(crate) fn run(&self, class: Class) -> Option<&Run<Numbers>> {
        self.find_run(class).ok().map(|at| &self.numbers[at])
    }

    pub(crate) fn run_mut(&mut self, class: Class) -> &mut Run<Numbers> {
        let at = self.find_run(class).unwrap_or_else(|at| {
            self.numbers.reserve_exact(1);
            self.numbers.insert(at, Run::new(Numbers::new(class, self.schema.highest_symbol())));
            at
        });
        &mut self.numbers[at]
    }

    /// 128 bits that depend on the cards, their symbols and the schema alone, however the table came about.
    pub fn digest(&self) -> u128 {
        self.records_digest.wrapping_add(digest::of_schema(&self.schema))
    }

    pub fn memory(&self) -> Memory {
        let of_numbers = |of: fn(&Run<Numbers>) -> usize| self.numbers.iter().map(of).sum::<usize>();
        Memory {
            blocks: of_numbers(|run| run.block_bytes()) + self.texts.block_bytes(),
            directory: of_numbers(|run| run.directory_bytes())
                + self.texts.directory_bytes()
                + heap::vec_bytes(&self.numbers)
                + self.schema.heap_bytes(),
        }
    }

    /// What the table holds of each class that occurs, in the order of classes.
    pub fn classes(&self) -> impl Iterator<Item = ClassStats> {
        let texts = Some(ClassStats::of(&self.texts)).filter(|texts| texts.records > 0);
        self.numbers.iter().map(ClassStats::of).chain(texts)
    }

    /// The number of blocks.
    pub fn blocks(&self) -> usize {
        self.numbers.iter().map(|run| run.blocks()).sum::<usize>() + self.texts.blocks()
    }

    /// Lets an allocator move blocks, to defragment its memory: hands them to `relocate`, from the one with this number on
    /// and until there is `enough`, and takes the same bytes back. Tells the number of the block to go on with, if any.
    pub fn relocate_blocks(
        &mut self,
        from: usize,
        mut relocate: impl FnMut(Box<[u8]>) -> Box<[u8]>,
        mut enough: impl FnMut() -> bool,
    ) -> Option<usize> {
        let (mut at, mut before) = (from, 0);
        for run in &mut self.numbers {
            at += run.directory.relocate(at.saturating_sub(before), &mut relocate, &mut enough);
            before += run.blocks();
            if at < before {
                return Some(at);
            }
        }
        at += self.texts.directory.relocate(at.saturating_sub(before), &mut relocate, &mut enough);
        (at < self.blocks()).then_some(at)
    }

    /// All cards with their symbols: class by class, ascending within a class.
    pub fn iter(&self) -> Iter<'_> {
        self.scan(None, b"")
    }

    /// The cards of one class, ascending.
    pub fn iter_class(&self, class: Class) -> impl Iterator<Item = (Id<'static>, u128)> {
        let mut iter = self.iter();
        iter.next_run = self.find_run(class).unwrap_or_else(|at| at);
        iter.take_while(move |(id, _)| id.class() == class)
    }

    /// The cards whose ids begin with `prefix`, in the order of [`Table::iter`].
    pub fn iter_prefix(&self, prefix: &[u8]) -> Iter<'_> {
        self.scan(None, prefix)
    }

    /// The cards that follow `after` and begin with `prefix`, in the order of [`Table::iter`].
    ///
    /// This resumes an iteration that had come to `after`, whatever has changed in between, also if `after` itself is
    /// gone: every card that was there all the time is returned once.
    pub fn scan(&self, after: Option<&Id>, prefix: &[u8]) -> Iter<'_> {
        let after = after.map(|id| id.clone().into_owned());
        Iter { table: self, after, prefix: prefix.to_vec(), next_run: 0, current: Current::None }
    }

    /// Verifies everything that must hold of a table: order, classes, ranges, counts, digest, and every single find.
    /// Takes as long as asking for every card; meant for tests and for doubt.
    pub fn check(&self) -> Result<(), String> {
        self.numbers.iter().try_for_each(Run::check)?;
        self.texts.check()?;
        if !self.numbers.is_sorted_by_key(|run| run.kind().class()) || self.numbers.iter().any(|run| run.len() == 0) {
            return Err("runs are out of order or empty".into());
        }
        let sum = self.iter().fold(0u128, |sum, (id, symbol)| sum.wrapping_add(digest::of_record(&id, symbol)));
        if sum != self.records_digest {
            return Err("the digest is not that of the records".into());
        }
        if self.iter().count() as u64 != self.len() {
            return Err("an iteration does not return every card".into());
        }
        Ok(())
    }
}

/// Cards in order; see [`Table::iter`] and [`Table::scan`].
pub struct Iter<'a> {
    table: &'a Table,
    after: Option<Id<'static>>,
    prefix: Vec<u8>,
    /// The run to walk when the current one ends; the texts come after all numbers.
    next_run: usize,
    current: Current<'a>,
}

enum Current<'a> {
    None,
    Numbers { walk: Walk<'a, Numbers>, class: Class, highest: u128 },
    Texts(Walk<'a, Texts>),
}

impl<'a> Iter<'a> {
    /// The walk over the next run in which there may be something to return.
    fn next_walk(&mut self) -> Option<Current<'a>> {
        loop {
            let table = self.table;
            let at = self.next_run;
            self.next_run += 1;
            if at > table.numbers.len() {
                return None;
            }
            let Some(run) = table.numbers.get(at) else {
                let lowest = match &self.after {
                    // The next text after another is that with a zero byte appended.
                    Some(Id::Text(after)) => self.prefix.clone().max([after, [0].as_slice()].concat()),
                    _ => self.prefix.clone(),
                };
                return Some(Current::Texts(table.texts.walk(Some(lowest.as_slice()))));
            };
            let class = run.kind().class();
            let Some((mut lowest, highest)) = class.prefix_range(&self.prefix) else {
                continue;
            };
            match &self.after {
                Some(after) if after.class() > class => continue,
                Some(Id::Number(same, after)) if *same == class => match after.checked_add(1) {
                    Some(next) => lowest = lowest.max(next),
                    None => continue,
                },
                _ => {}
            }
            return Some(Current::Numbers { walk: run.walk(Some(&lowest)), class, highest });
        }
    }
}

impl Iterator for Iter<'_> {
    type Item = (Id<'static>, u128);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match &mut self.current {
                Current::None => {}
                Current::Numbers { walk, class, highest } => {
                    if let Some((&number, symbol)) = walk.next().filter(|(number, _)| *number <= highest) {
                        return Some((Id::Number(*class, number), symbol));
                    }
                }
                Current::Texts(walk) => {
                    let (text, symbol) = walk.next().filter(|(text, _)| text.starts_with(&self.prefix))?;
                    return Some((Id::Text(Cow::Owned(text.to_vec())), symbol));
                }
            }
            self.current = self.next_walk()?;
        }
    }
}
