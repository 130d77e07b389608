//! The data sets, held in memory, and how few bytes can tell them.

use card_samples::TWENTY;
use card_samples::source::{self, BATCHES, ISSUED_PER_LISTED};
use card_table::Id;
use rand::RngExt;
use rand::rngs::SmallRng;

pub use card_samples::source::{Cookies, HexDigests, Issued, Net, Uniform};
pub use card_samples::{Set, Values};

use crate::card::Card;
use crate::limit::{entropy_bits, log2_choose};

/// Where the ids of a set come from.
pub trait Source: source::Source<Card: Card> {
    /// The bits that tell which `rows` of those ids are listed; none if only their raw bytes are a yardstick.
    fn id_bits(&self, rows: usize) -> Option<f64> {
        Some(log2_choose(self.size() as f64, rows as f64))
    }

    /// One of the ids the source can make, each as likely as any other.
    fn draw(&self, rng: &mut SmallRng) -> Self::Card {
        self.card(rng.random_range(0..self.size()))
    }
}

impl Source for Uniform {}
impl Source for Net {}
impl Source for HexDigests {}

impl Source for Issued {
    fn id_bits(&self, _: usize) -> Option<f64> {
        let batch_bits = |listed: u64| log2_choose((ISSUED_PER_LISTED * listed) as f64, listed as f64);
        Some(
            self.batches_with_one_more as f64 * batch_bits(self.listed + 1)
                + (BATCHES - self.batches_with_one_more) as f64 * batch_bits(self.listed),
        )
    }
}

impl Source for Cookies {
    fn id_bits(&self, _: usize) -> Option<f64> {
        None
    }
}

/// The cards of a set in random order. Their values take no memory and are still known when an answer is checked.
pub struct List<C> {
    pub cards: Vec<C>,
    values: Values,
}

impl<C: Card> List<C> {
    pub fn new(source: &impl Source<Card = C>, values: Values, rows: usize, seed: u64) -> List<C> {
        List { cards: source.cards(rows as u64, seed).collect(), values }
    }

    /// The symbol of a card, in the default schema.
    pub fn symbol(&self, card: &C) -> u128 {
        self.values.symbol(card)
    }

    pub fn records(&self) -> impl Iterator<Item = (Id<'_>, u128)> {
        self.records_of(&self.cards)
    }

    pub fn records_of<'a>(&'a self, cards: &'a [C]) -> impl Iterator<Item = (Id<'a>, u128)> {
        cards.iter().map(|card| (card.id(), self.symbol(card)))
    }

    /// The fewest bytes that can tell the first `rows` cards and their values; or their raw ids if no limit is known.
    pub fn limit_bytes(&self, source: &impl Source<Card = C>, rows: usize) -> f64 {
        let cards = &self.cards[..rows];
        let Some(id_bits) = source.id_bits(rows) else {
            return cards.iter().map(|card| card.id().to_bytes().len()).sum::<usize>() as f64;
        };
        let mut counts = [0; TWENTY as usize];
        cards.iter().for_each(|card| counts[self.symbol(card) as usize] += 1);
        (id_bits + entropy_bits(&counts)) / 8.0
    }
}
