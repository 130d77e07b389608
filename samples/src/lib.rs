//! Sample lists of cards: what is measured, and what one tries things with.
//!
//! A set is a range of numbered ids ([`Source`]), of which a [`Shuffle`] with a seed picks some in random order, each once. A
//! card's values are a function of its id and the seed that looks random ([`Values`]). So a list of any length takes no
//! memory, and is the same for the same seed wherever it is made.

pub mod card;
pub mod shuffle;
pub mod source;

use std::fmt;

use card_table::Id;
use clap::ValueEnum;

use card::Card;
pub use shuffle::Shuffle;
use shuffle::mix;
use source::{Cookies, HexDigests, Issued, Net, Source, Uniform};

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

impl Set {
    /// So many records, each an id and a symbol of the default schema, one after the other.
    pub fn records(self, rows: u64, seed: u64) -> Box<dyn Iterator<Item = (Id<'static>, u128)>> {
        fn records<S: Source>(
            source: S,
            values: Values,
            rows: u64,
            seed: u64,
        ) -> impl Iterator<Item = (Id<'static>, u128)> {
            source.cards(rows, seed).map(move |card| (card.id().into_owned(), values.symbol(&card)))
        }
        let twenty = Values::twenty(seed);
        match self {
            Set::Uniform => Box::new(records(Uniform, twenty, rows, seed)),
            Set::Net => Box::new(records(Net, twenty, rows, seed)),
            Set::Issued => Box::new(records(Issued::new(rows), twenty, rows, seed)),
            Set::Onevalue => Box::new(records(Net, Values::One, rows, seed)),
            Set::Hex32 => Box::new(records(HexDigests, twenty, rows, seed)),
            Set::Cookies => Box::new(records(Cookies, twenty, rows, seed)),
        }
    }
}

/// Which values the cards of a list have, in the default schema.
#[derive(Debug, Clone, Copy)]
pub enum Values {
    /// Any type up to 9 with any status, evenly.
    Twenty { key: u64 },
    /// Type 7, status 1.
    One,
}

/// The schema's first twenty symbols: its highest type, 10, does not occur.
pub const TWENTY: u64 = 20;
const TYPE_7_STATUS_1: u128 = 14;

impl Values {
    pub fn twenty(seed: u64) -> Values {
        Values::Twenty { key: mix(seed) }
    }

    pub fn symbol(&self, card: &impl Card) -> u128 {
        match self {
            Values::Twenty { key } => (u128::from(mix(card.bits() ^ key)) * u128::from(TWENTY)) >> 64,
            Values::One => TYPE_7_STATUS_1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use card_table::Schema;
    use std::collections::HashSet;

    fn rows(set: Set, rows: u64, seed: u64) -> Vec<(String, u128)> {
        let spelt = |id: Id| String::from_utf8(id.to_bytes()).expect("ids of samples are text");
        set.records(rows, seed).map(|(id, symbol)| (spelt(id), symbol)).collect()
    }

    #[test]
    fn every_set_has_as_many_different_cards_as_asked_for() {
        for &set in Set::value_variants() {
            for count in [0, 1, 2, 1000, 100_000] {
                let ids: HashSet<_> = rows(set, count, 1).into_iter().map(|(id, _)| id).collect();
                assert_eq!(ids.len() as u64, count, "{set}");
            }
        }
    }

    #[test]
    fn a_list_is_the_same_for_the_same_seed() {
        for &set in Set::value_variants() {
            assert_eq!(rows(set, 1000, 1), rows(set, 1000, 1));
            assert_ne!(rows(set, 1000, 1), rows(set, 1000, 2));
        }
    }

    #[test]
    fn symbols_are_those_of_the_default_schema() {
        let schema = Schema::default();
        assert_eq!(schema.pack(&[9, 2]), Ok(u128::from(TWENTY) - 1));
        assert_eq!(schema.pack(&[7, 1]), Ok(TYPE_7_STATUS_1));
    }

    #[test]
    fn values_are_drawn_evenly_from_twenty() {
        for set in [Set::Uniform, Set::Issued, Set::Hex32, Set::Cookies] {
            let mut counts = [0; TWENTY as usize];
            set.records(20_000, 1).for_each(|(_, symbol)| counts[symbol as usize] += 1);
            assert!(counts.iter().all(|count| (850..1150).contains(count)), "{set}: {counts:?}");
        }
    }
}
