//! How long it takes to find a card, beside `HashMap` with its default hasher, asked for the same cards.

use std::collections::HashMap;

use card_table::{Id, Table};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

use crate::card::Card;
use crate::data::{List, Source};
use crate::measure::{freed_by_dropping, median, timed};
use crate::report::fixed;

/// So many that neither side has them in its caches.
const FINDS: usize = 2_000_000;

/// The table and its peer take turns, so that a busy machine slows both.
const ROUNDS: usize = 5;

pub struct Find {
    pub listed: Pair,
    pub unlisted: Pair,
    /// Nanoseconds to parse a listed card's id and find it.
    parse_and_find: f64,
    /// What the peer takes for each card.
    peer_bytes: f64,
}

/// Nanoseconds to find a card.
pub struct Pair {
    table: f64,
    peer: f64,
}

impl Pair {
    pub fn ratio(&self) -> f64 {
        self.table / self.peer
    }
}

pub const HEAD: [&str; 9] = [
    "set",
    "listed ns",
    "HashMap ns",
    "ratio",
    "unlisted ns",
    "HashMap ns",
    "ratio",
    "parse + find ns",
    "HashMap B/record",
];

impl Find {
    pub fn cells(&self, name: String) -> Vec<String> {
        let nanoseconds = |figure: f64| format!("{figure:.0}");
        let mut cells = vec![name];
        for pair in [&self.listed, &self.unlisted] {
            cells.extend([nanoseconds(pair.table), nanoseconds(pair.peer), fixed(pair.ratio())]);
        }
        cells.extend([nanoseconds(self.parse_and_find), format!("{:.1}", self.peer_bytes)]);
        cells
    }
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

fn take_turns<C: Card>(table: &Table, peer: &Peer<C>, cards: &[C]) -> Pair {
    let ids: Vec<Id> = asked(cards).map(Card::id).collect();
    let keys: Vec<&C::Asked> = asked(cards).map(Card::asked).collect();
    let round = || {
        let (found, of_table) = timed(|| sum(ids.iter().map(|id| table.get(id))));
        let (expected, of_peer) = timed(|| sum(keys.iter().map(|&key| peer.get(key).map(|&at| at.into()))));
        assert_eq!(found, expected, "the table and its peer answer alike");
        (of_table, of_peer)
    };
    let (of_table, of_peer) = (0..ROUNDS).map(|_| round()).unzip();
    Pair { table: nanoseconds_each(of_table), peer: nanoseconds_each(of_peer) }
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
