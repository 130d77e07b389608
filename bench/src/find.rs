//! How long it takes to find a card, beside `HashMap` with its default hasher, asked for the same cards.

use std::collections::HashMap;

use card_table::{Id, Table};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

use crate::card::{Card, Sample};
use crate::data::{List, Source};
use crate::measure::{freed_by_dropping, median, timed};
use crate::report::fixed;

/// So many that neither side has them in its caches.
const FINDS: usize = 2_000_000;

/// How many cards `get_many` is asked for at once: a short MGET.
const MANY: usize = 100;

/// The table and its peer take turns, so that a busy machine slows both.
const ROUNDS: usize = 5;

pub struct Find {
    pub listed: Ways,
    pub unlisted: Ways,
    /// Nanoseconds to parse a listed card's id and find it, many in a row.
    parse_and_find: f64,
    /// What the peer takes for each card.
    peer_bytes: f64,
}

/// Nanoseconds to find a card.
pub struct Ways {
    /// One find begins when the one before has ended, as a server is asked.
    pub alone: Pair,
    /// Finds in a loop: the processor begins the next while one waits for memory, if the one is short enough.
    pub in_a_row: Pair,
    /// The same against finds by `get_many`, which has several wait for memory together.
    pub together: Pair,
}

pub struct Pair {
    table: f64,
    peer: f64,
}

impl Pair {
    pub fn ratio(&self) -> f64 {
        self.table / self.peer
    }
}

pub const ALONE_HEAD: [&str; 8] =
    ["set", "listed ns", "HashMap ns", "ratio", "unlisted ns", "HashMap ns", "ratio", "HashMap B/record"];

pub const IN_A_ROW_HEAD: [&str; 12] = [
    "set",
    "listed ns",
    "get_many ns",
    "HashMap ns",
    "ratio",
    "ratio",
    "unlisted ns",
    "get_many ns",
    "HashMap ns",
    "ratio",
    "ratio",
    "parse + find ns",
];

impl Find {
    pub fn alone_cells(&self, name: String) -> Vec<String> {
        let mut cells = vec![name];
        for Ways { alone, .. } in [&self.listed, &self.unlisted] {
            cells.extend([whole(alone.table), whole(alone.peer), fixed(alone.ratio())]);
        }
        cells.push(format!("{:.1}", self.peer_bytes));
        cells
    }

    pub fn in_a_row_cells(&self, name: String) -> Vec<String> {
        let mut cells = vec![name];
        for Ways { in_a_row, together, .. } in [&self.listed, &self.unlisted] {
            cells.extend([in_a_row.table, together.table, in_a_row.peer].map(whole));
            cells.extend([in_a_row.ratio(), together.ratio()].map(fixed));
        }
        cells.push(whole(self.parse_and_find));
        cells
    }
}

fn whole(figure: f64) -> String {
    format!("{figure:.0}")
}

type Peer<C> = HashMap<<C as Card>::Key, u8>;

/// Measures, and returns the different cards, none of them listed, that it also asked for.
pub fn measure<S: Source>(source: &S, list: &List<S::Card>, table: &Table, rng: &mut SmallRng) -> (Find, Vec<S::Card>) {
    let record = |card: &S::Card| (card.key(), list.symbol(card) as u8);
    let peer: Peer<S::Card> = list.cards.iter().map(record).collect();
    let unlisted = unlisted_cards(source, &peer, rng);
    let find = Find {
        listed: take_turns(table, &peer, &list.cards),
        unlisted: take_turns(table, &peer, &unlisted),
        parse_and_find: parse_and_find(table, &list.cards),
        peer_bytes: freed_by_dropping(peer) as f64 / list.cards.len() as f64,
    };
    (find, unlisted)
}

fn unlisted_cards<S: Source>(source: &S, peer: &Peer<S::Card>, rng: &mut SmallRng) -> Vec<S::Card> {
    let mut cards: Vec<_> = std::iter::repeat_with(|| source.draw(rng))
        .filter(|card| !peer.contains_key(card.asked()))
        .take(FINDS)
        .collect();
    cards.sort_unstable();
    cards.dedup();
    cards.shuffle(rng);
    cards
}

/// Asks for the first cards, which are in random order; for all of them several times if they are few.
fn asked<C>(cards: &[C]) -> impl Iterator<Item = &C> {
    cards.iter().cycle().take(FINDS)
}

fn take_turns<C: Card>(table: &Table, peer: &Peer<C>, cards: &[C]) -> Ways {
    let ids: Vec<Id> = asked(cards).map(Sample::id).collect();
    let keys: Vec<&C::Asked> = asked(cards).map(Card::asked).collect();
    let find = |id: &Id| table.get(id);
    let find_in_peer = |key: &&C::Asked| peer.get(*key).map(|&at| at.into());
    let round = || {
        let turns = [
            timed(|| sum(ids.iter().map(|id| alone(find(id))))),
            timed(|| sum(keys.iter().map(|key| alone(find_in_peer(key))))),
            timed(|| sum(ids.iter().map(find))),
            timed(|| sum(keys.iter().map(find_in_peer))),
            timed(|| sum(ids.chunks(MANY).flat_map(|some| table.get_many(some)))),
        ];
        assert!(turns.iter().all(|(found, _)| *found == turns[0].0), "the table and its peer answer alike");
        turns.map(|(_, seconds)| seconds)
    };
    let rounds: Vec<_> = (0..ROUNDS).map(|_| round()).collect();
    let turn = |at: usize| nanoseconds_each(rounds.iter().map(|round| round[at]).collect());
    Ways {
        alone: Pair { table: turn(0), peer: turn(1) },
        in_a_row: Pair { table: turn(2), peer: turn(3) },
        together: Pair { table: turn(4), peer: turn(3) },
    }
}

/// Returns an answer when everything before has been done, so that a processor does not begin the next find early.
#[inline]
fn alone<T>(answer: T) -> T {
    // SAFETY: every x86-64 processor has this instruction.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::x86_64::_mm_lfence();
    }
    std::hint::black_box(answer)
}

fn parse_and_find<C: Card>(table: &Table, cards: &[C]) -> f64 {
    let mut spelt = Vec::new();
    let mut lengths = Vec::with_capacity(FINDS);
    for card in asked(cards) {
        let start = spelt.len();
        card.id().write_to(&mut spelt);
        lengths.push(spelt.len() - start);
    }
    let find_all = || {
        let mut rest = spelt.as_slice();
        let answers = lengths.iter().map(|&len| {
            let (id, after) = rest.split_at(len);
            rest = after;
            table.get(&Id::parse(id).expect("a card's id"))
        });
        answers.flatten().count()
    };
    let round = || {
        let (found, seconds) = timed(find_all);
        assert_eq!(found, FINDS, "every listed card is found");
        seconds
    };
    nanoseconds_each((0..ROUNDS).map(|_| round()).collect())
}

/// A number that every answer has a part in, so that none is left out and two sides can be compared.
fn sum(answers: impl Iterator<Item = Option<u128>>) -> u128 {
    answers.flatten().map(|symbol| symbol + 1).sum()
}

fn nanoseconds_each(seconds: Vec<f64>) -> f64 {
    median(seconds) * 1e9 / FINDS as f64
}
