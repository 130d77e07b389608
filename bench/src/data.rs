//! The data sets: where their ids come from, and which values they have.
//!
//! A list holds its cards only. A card's values are a function of its id and the seed that looks random, so that 100
//! million of them take no memory and are still known when an answer is checked.

use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use card_table::Id;
use clap::ValueEnum;
use rand::rngs::SmallRng;
use rand::seq::{SliceRandom, index};
use rand::{RngExt, SeedableRng};

use crate::card::{Card, Cookie, Digits20, Hex32, MAX_COOKIE};
use crate::limit::{entropy_bits, log2_choose};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Set {
    /// 20 random digits
    Uniform,
    /// One of 31 networks, then 16 random digits
    Net,
    /// Batches of consecutive numbers, of which one in ten is listed
    Issued,
    /// As net, but all cards have the same values
    Onevalue,
    /// 32 random hexadecimal digits
    Hex32,
    /// Random text of 10 to 40 characters
    Cookies,
}

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let name = self.to_possible_value().expect("no set is hidden");
        f.pad(name.get_name())
    }
}

/// The first four digits of cards: two that name a province, then 01.
const NETWORKS: [u128; 31] = [
    1101, 1201, 1301, 1401, 1501, 2101, 2201, 2301, 3101, 3201, 3301, 3401, 3501, 3601, 3701, 4101, 4201, 4301, 4401,
    4501, 4601, 5001, 5101, 5201, 5301, 5401, 6101, 6201, 6301, 6401, 6501,
];

/// Where the ids of a set come from.
pub trait Source {
    type Card: Card;

    /// One of the ids the source can make, each as likely as any other.
    fn draw(&self, rng: &mut SmallRng) -> Self::Card;

    /// The bits that tell which `rows` of those ids are listed; none if only their raw bytes are a yardstick.
    fn id_bits(&self, rows: usize) -> Option<f64>;

    /// `rows` cards in random order; where a draw comes twice, one less.
    fn cards(&self, rows: usize, rng: &mut SmallRng) -> Vec<Self::Card> {
        let mut cards: Vec<_> = (0..rows).map(|_| self.draw(rng)).collect();
        cards.sort_unstable();
        cards.dedup();
        cards.shuffle(rng);
        cards
    }
}

pub struct Uniform;

impl Source for Uniform {
    type Card = Digits20;

    fn draw(&self, rng: &mut SmallRng) -> Digits20 {
        Digits20(rng.random_range(0..10u128.pow(20)))
    }

    fn id_bits(&self, rows: usize) -> Option<f64> {
        Some(log2_choose(1e20, rows as f64))
    }
}

pub struct Net;

impl Source for Net {
    type Card = Digits20;

    fn draw(&self, rng: &mut SmallRng) -> Digits20 {
        let network = NETWORKS[rng.random_range(0..NETWORKS.len())];
        Digits20(network * 10u128.pow(16) + u128::from(rng.random_range(0..10u64.pow(16))))
    }

    fn id_bits(&self, rows: usize) -> Option<f64> {
        Some(log2_choose(NETWORKS.len() as f64 * 1e16, rows as f64))
    }
}

/// Cards as they are issued: each network issues a batch of consecutive numbers per year, week and kind.
pub struct Issued {
    /// The listed cards of a batch; the first few batches have one more.
    listed: usize,
    batches_with_one_more: usize,
}

const YEARS: usize = 10;
const WEEKS: usize = 52;
const KINDS: usize = 2;
const BATCHES: usize = NETWORKS.len() * YEARS * WEEKS * KINDS;
const ISSUED_PER_LISTED: usize = 10;
const FIRST_YEAR: usize = 10;

impl Issued {
    pub fn new(rows: usize) -> Issued {
        Issued { listed: rows / BATCHES, batches_with_one_more: rows % BATCHES }
    }

    fn listed(&self, batch: usize) -> usize {
        self.listed + usize::from(batch < self.batches_with_one_more)
    }

    fn card(batch: usize, number: usize) -> Digits20 {
        let (kind, batch) = (batch % KINDS, batch / KINDS);
        let (week, batch) = (batch % WEEKS, batch / WEEKS);
        let (year, network) = (batch % YEARS, batch / YEARS);
        let year_week_kind = ((FIRST_YEAR + year) * 100 + week + 1) * 100 + kind + 1;
        Digits20((NETWORKS[network] * 1_000_000 + year_week_kind as u128) * 10u128.pow(10) + number as u128)
    }
}

impl Source for Issued {
    type Card = Digits20;

    fn draw(&self, rng: &mut SmallRng) -> Digits20 {
        let large = ISSUED_PER_LISTED * (self.listed + 1);
        let in_large = self.batches_with_one_more * large;
        let small = ISSUED_PER_LISTED * self.listed;
        let at = rng.random_range(0..in_large + (BATCHES - self.batches_with_one_more) * small);
        if at < in_large {
            Issued::card(at / large, at % large)
        } else {
            let at = at - in_large;
            Issued::card(self.batches_with_one_more + at / small, at % small)
        }
    }

    fn id_bits(&self, _: usize) -> Option<f64> {
        let batch_bits = |listed: usize| log2_choose((ISSUED_PER_LISTED * listed) as f64, listed as f64);
        Some(
            self.batches_with_one_more as f64 * batch_bits(self.listed + 1)
                + (BATCHES - self.batches_with_one_more) as f64 * batch_bits(self.listed),
        )
    }

    fn cards(&self, rows: usize, rng: &mut SmallRng) -> Vec<Digits20> {
        let mut cards = Vec::with_capacity(rows);
        for batch in 0..BATCHES {
            let listed = self.listed(batch);
            let numbers = index::sample(rng, ISSUED_PER_LISTED * listed, listed);
            cards.extend(numbers.into_iter().map(|number| Issued::card(batch, number)));
        }
        cards.shuffle(rng);
        cards
    }
}

pub struct HexDigests;

impl Source for HexDigests {
    type Card = Hex32;

    fn draw(&self, rng: &mut SmallRng) -> Hex32 {
        Hex32(rng.random())
    }

    fn id_bits(&self, rows: usize) -> Option<f64> {
        Some(log2_choose(2f64.powi(128), rows as f64))
    }
}

pub struct Cookies;

const MIN_COOKIE: usize = 10;
const COOKIE_CHARACTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

impl Source for Cookies {
    type Card = Cookie;

    fn draw(&self, rng: &mut SmallRng) -> Cookie {
        let mut text = [0; MAX_COOKIE];
        let len = rng.random_range(MIN_COOKIE..=MAX_COOKIE);
        text[..len].fill_with(|| COOKIE_CHARACTERS[usize::from(rng.random::<u8>() % 64)]);
        Cookie(text)
    }

    fn id_bits(&self, _: usize) -> Option<f64> {
        None
    }
}

/// Which values the cards of a list have.
#[derive(Clone, Copy)]
pub enum Values {
    /// Any type up to 9 with any status, evenly.
    Twenty,
    /// Type 7, status 1.
    One,
}

/// The schema's first twenty symbols: its highest type, 10, does not occur.
const TWENTY: u64 = 20;
const TYPE_7_STATUS_1: u128 = 14;

/// The cards of a set in random order.
pub struct List<C> {
    pub cards: Vec<C>,
    values: Values,
    seed: u64,
}

impl<C: Card> List<C> {
    pub fn new(source: &impl Source<Card = C>, values: Values, rows: usize, seed: u64) -> List<C> {
        let cards = source.cards(rows, &mut SmallRng::seed_from_u64(seed));
        List { cards, values, seed }
    }

    /// The symbol of a card, in the default schema.
    pub fn symbol(&self, card: &C) -> u128 {
        match self.values {
            Values::Twenty => {
                let hash = BuildHasherDefault::<DefaultHasher>::new().hash_one((self.seed, card));
                (u128::from(hash) * u128::from(TWENTY)) >> 64
            }
            Values::One => TYPE_7_STATUS_1,
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use card_table::Schema;

    fn spelt(card: Digits20) -> String {
        String::from_utf8(card.id().to_bytes()).unwrap()
    }

    #[test]
    fn an_issued_card_spells_network_year_week_kind_and_number() {
        assert_eq!(spelt(Issued::card(0, 0)), "11011001010000000000");
        assert_eq!(spelt(Issued::card(1, 7)), "11011001020000000007");
        assert_eq!(spelt(Issued::card(BATCHES - 1, 123)), "65011952020000000123");
    }

    #[test]
    fn a_tenth_of_each_batch_is_listed() {
        let rows = 3 * BATCHES + 5;
        let issued = Issued::new(rows);
        let mut cards = issued.cards(rows, &mut SmallRng::seed_from_u64(1));
        cards.sort_unstable();
        cards.dedup();
        assert_eq!(cards.len(), rows);
        for batch in [0, 4, 5, BATCHES - 1] {
            let listed = if batch < 5 { 4 } else { 3 };
            let end = Issued::card(batch, ISSUED_PER_LISTED * listed);
            let within = |card: &&Digits20| Issued::card(batch, 0) <= **card && **card < end;
            assert_eq!(cards.iter().filter(within).count(), listed);
        }
    }

    #[test]
    fn a_list_is_the_same_for_the_same_seed() {
        let list = |seed| List::new(&Net, Values::Twenty, 1000, seed);
        let records = |seed| -> Vec<_> { list(seed).records().map(|(id, symbol)| (id.into_owned(), symbol)).collect() };
        assert_eq!(records(1), records(1));
        assert_ne!(records(1), records(2));
    }

    #[test]
    fn symbols_are_those_of_the_default_schema() {
        let schema = Schema::default();
        assert_eq!(schema.pack(&[9, 2]), Ok(u128::from(TWENTY) - 1));
        assert_eq!(schema.pack(&[7, 1]), Ok(TYPE_7_STATUS_1));
    }

    #[test]
    fn values_are_drawn_evenly_from_twenty() {
        let list = List::new(&Uniform, Values::Twenty, 20_000, 1);
        let mut counts = [0; 20];
        list.records().for_each(|(_, symbol)| counts[symbol as usize] += 1);
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }
}
