//! Changes on their way into a table: a patch that arrives in pieces, while the table answers and is written to.
//!
//! Cards that are set or removed meanwhile go into the table and into the patch, here and on every replica, so that they
//! are still there after the commit. Those that the patch has not come to yet are remembered by the primary, which leaves
//! them out of the changes: whoever wrote to a card while its file was being loaded knew better.

use std::collections::BTreeSet;

use card_table::{Change, Id, Inserted, Patch, Table};

use super::next_number;

pub struct Delta {
    pub patch: Patch,
    /// No two deltas or staged tables of this process have the same.
    pub number: u64,
    /// On the primary that loads it.
    journal: Option<Journal>,
}

/// What was written since a load began.
#[derive(Default)]
struct Journal {
    cards: BTreeSet<Id<'static>>,
    /// Those among them since the last pieces of the table were copied, if there are such pieces.
    recent: Option<Vec<Id<'static>>>,
}

impl Delta {
    pub(super) fn new(patch: Patch) -> Delta {
        Delta { patch, number: next_number(), journal: None }
    }

    /// From now on remembers what is written.
    pub fn keep_journal(&mut self) {
        self.journal = Some(Journal::default());
    }

    /// Leaves changes to cards out that somebody has written to; what is written from now on is recent.
    pub fn leave_out_written(&mut self, changes: &mut Vec<Change>) {
        if let Some(journal) = &mut self.journal {
            journal.recent = Some(Vec::new());
            if !journal.cards.is_empty() {
                changes.retain(|(id, _)| !journal.cards.contains(id));
            }
        }
    }

    /// Whether something in the spans of a piece has been written recently.
    pub fn is_outdated(&self, piece: &Patch) -> bool {
        let recent = self.journal.as_ref().and_then(|journal| journal.recent.as_ref());
        recent.is_some_and(|recent| recent.iter().any(|id| piece.has(id)))
    }

    /// There will be no more changes up to `id`.
    pub fn is_done_up_to(&mut self, id: &Id<'static>) {
        if let Some(journal) = &mut self.journal {
            journal.cards = journal.cards.split_off(id);
            journal.recent = None;
        }
    }

    /// What it takes on the heap.
    pub(super) fn bytes(&self) -> usize {
        let cards = self
            .journal
            .as_ref()
            .map_or(0, |journal| journal.cards.len() + journal.recent.as_ref().map_or(0, Vec::len));
        size_of::<Delta>() + self.patch.heap_bytes() + cards * size_of::<Id>()
    }

    /// The card had the symbol `before` in the table, and now has another. Tells whether that changes the patch.
    fn follow(&mut self, id: &Id, before: Option<u128>, symbol: Option<u128>) -> bool {
        if let Some(journal) = &mut self.journal {
            let id = id.clone().into_owned();
            if let Some(recent) = &mut journal.recent {
                recent.push(id.clone());
            }
            journal.cards.insert(id);
        }
        self.patch.set(id, before, symbol)
    }
}

/// Writes cards to a table, and to the changes that wait for it.
pub struct Writer<'a> {
    pub(super) table: &'a mut Table,
    pub(super) delta: Option<&'a mut Delta>,
    /// Whether anything is not as it was, seen or unseen, so that replicas must know.
    pub changed: bool,
}

impl Writer<'_> {
    pub fn insert(&mut self, id: &Id, symbol: u128) -> Inserted {
        let inserted = self.table.insert(id, symbol);
        let before = match inserted {
            Inserted::New => None,
            Inserted::Replaced(old) => Some(old),
        };
        self.follow(id, before, Some(symbol));
        inserted
    }

    pub fn remove(&mut self, id: &Id) -> Option<u128> {
        let before = self.table.remove(id);
        self.follow(id, before, None);
        before
    }

    fn follow(&mut self, id: &Id, before: Option<u128>, symbol: Option<u128>) {
        self.changed |= before != symbol;
        if let Some(delta) = &mut self.delta {
            self.changed |= delta.follow(id, before, symbol);
        }
    }
}
