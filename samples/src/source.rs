//! Where the ids of a set come from.

use crate::card::{Card, Cookie, Digits20, Hex32, MAX_COOKIE};
use crate::shuffle::{Shuffle, mix};

/// A range of numbered ids.
pub trait Source: Copy + Send + Sync + 'static {
    type Card: Card;

    /// How many there are.
    fn size(&self) -> u128;

    /// The one with a number below the size. No two are the same.
    fn card(&self, number: u128) -> Self::Card;

    /// `rows` of them in random order.
    fn cards(self, rows: u64, seed: u64) -> impl Iterator<Item = Self::Card> {
        let shuffle = Shuffle::new(self.size(), seed);
        (0..rows).map(move |row| self.card(shuffle.at(row.into())))
    }
}

/// The first four digits of cards: two that name a province, then 01.
const NETWORKS: [u128; 31] = [
    1101, 1201, 1301, 1401, 1501, 2101, 2201, 2301, 3101, 3201, 3301, 3401, 3501, 3601, 3701, 4101, 4201, 4301, 4401,
    4501, 4601, 5001, 5101, 5201, 5301, 5401, 6101, 6201, 6301, 6401, 6501,
];
const CARDS_OF_A_NETWORK: u128 = 10u128.pow(16);

#[derive(Clone, Copy)]
pub struct Uniform;

impl Source for Uniform {
    type Card = Digits20;

    fn size(&self) -> u128 {
        10u128.pow(20)
    }

    fn card(&self, number: u128) -> Digits20 {
        Digits20(number)
    }
}

#[derive(Clone, Copy)]
pub struct Net;

impl Source for Net {
    type Card = Digits20;

    fn size(&self) -> u128 {
        NETWORKS.len() as u128 * CARDS_OF_A_NETWORK
    }

    fn card(&self, number: u128) -> Digits20 {
        let network = NETWORKS[(number / CARDS_OF_A_NETWORK) as usize];
        Digits20(network * CARDS_OF_A_NETWORK + number % CARDS_OF_A_NETWORK)
    }
}

/// Cards as they are issued: each network issues a batch of consecutive numbers per year, week and kind. Of each batch a
/// tenth is listed.
#[derive(Clone, Copy)]
pub struct Issued {
    /// The listed cards of a batch; the first few batches have one more.
    pub listed: u64,
    pub batches_with_one_more: u64,
}

const YEARS: u64 = 10;
const WEEKS: u64 = 52;
const KINDS: u64 = 2;
pub const BATCHES: u64 = NETWORKS.len() as u64 * YEARS * WEEKS * KINDS;
pub const ISSUED_PER_LISTED: u64 = 10;
const FIRST_YEAR: u64 = 10;

impl Issued {
    pub fn new(rows: u64) -> Issued {
        Issued { listed: rows / BATCHES, batches_with_one_more: rows % BATCHES }
    }

    fn listed(&self, batch: u64) -> u64 {
        self.listed + u64::from(batch < self.batches_with_one_more)
    }

    /// The batch of a card, and its number there, if batches are `times` as long as their lists and laid end to end.
    fn place(&self, number: u64, times: u64) -> (u64, u64) {
        let (large, small) = (times * (self.listed + 1), times * self.listed);
        let in_large = self.batches_with_one_more * large;
        if number < in_large {
            (number / large, number % large)
        } else {
            let number = number - in_large;
            (self.batches_with_one_more + number / small, number % small)
        }
    }

    fn spelt(batch: u64, number: u64) -> Digits20 {
        let (kind, batch) = (batch % KINDS, batch / KINDS);
        let (week, batch) = (batch % WEEKS, batch / WEEKS);
        let (year, network) = (batch % YEARS, batch / YEARS);
        let year_week_kind = ((FIRST_YEAR + year) * 100 + week + 1) * 100 + kind + 1;
        let batch = NETWORKS[network as usize] * 1_000_000 + u128::from(year_week_kind);
        Digits20(batch * 10u128.pow(10) + u128::from(number))
    }
}

impl Source for Issued {
    type Card = Digits20;

    fn size(&self) -> u128 {
        u128::from(ISSUED_PER_LISTED) * u128::from(self.listed * BATCHES + self.batches_with_one_more)
    }

    fn card(&self, number: u128) -> Digits20 {
        let (batch, number) = self.place(number as u64, ISSUED_PER_LISTED);
        Issued::spelt(batch, number)
    }

    /// All rows that it was made for, and no others: they are what is listed.
    fn cards(self, rows: u64, seed: u64) -> impl Iterator<Item = Digits20> {
        let order = Shuffle::new(rows.into(), seed);
        (0..rows).map(move |row| {
            let (batch, listed) = self.place(order.at(row.into()) as u64, 1);
            let in_batch = Shuffle::new((ISSUED_PER_LISTED * self.listed(batch)).into(), mix(seed) ^ batch);
            Issued::spelt(batch, in_batch.at(listed.into()) as u64)
        })
    }
}

#[derive(Clone, Copy)]
pub struct HexDigests;

impl Source for HexDigests {
    type Card = Hex32;

    /// All but the last, whose number is as large as numbers get.
    fn size(&self) -> u128 {
        u128::MAX
    }

    fn card(&self, number: u128) -> Hex32 {
        Hex32(number)
    }
}

/// Texts of 10 to 40 characters. The first ten spell their number, so that no two are the same.
#[derive(Clone, Copy)]
pub struct Cookies;

const MIN_COOKIE: usize = 10;
const COOKIE_CHARACTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const CHARACTER_BITS: usize = 6;

impl Source for Cookies {
    type Card = Cookie;

    fn size(&self) -> u128 {
        1 << (MIN_COOKIE * CHARACTER_BITS)
    }

    fn card(&self, number: u128) -> Cookie {
        let number = number as u64;
        let lens = (MAX_COOKIE - MIN_COOKIE + 1) as u64;
        let len = MIN_COOKIE + (mix(number) % lens) as usize;
        let mut text = [0; MAX_COOKIE];
        for (ten, characters) in text[..len].chunks_mut(MIN_COOKIE).enumerate() {
            let bits = if ten == 0 { number } else { mix(number ^ (ten as u64) << 60) };
            for (at, character) in characters.iter_mut().enumerate() {
                *character = COOKIE_CHARACTERS[(bits >> (CHARACTER_BITS * at)) as usize % 64];
            }
        }
        Cookie(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spelt(card: impl Card) -> String {
        String::from_utf8(card.id().to_bytes()).unwrap()
    }

    #[test]
    fn an_issued_card_spells_network_year_week_kind_and_number() {
        assert_eq!(spelt(Issued::spelt(0, 0)), "11011001010000000000");
        assert_eq!(spelt(Issued::spelt(1, 7)), "11011001020000000007");
        assert_eq!(spelt(Issued::spelt(BATCHES - 1, 123)), "65011952020000000123");
    }

    #[test]
    fn a_tenth_of_each_batch_is_listed() {
        let rows = 3 * BATCHES + 5;
        let mut cards: Vec<_> = Issued::new(rows).cards(rows, 1).collect();
        cards.sort_unstable();
        cards.dedup();
        assert_eq!(cards.len() as u64, rows);
        for batch in [0, 4, 5, BATCHES - 1] {
            let listed = if batch < 5 { 4 } else { 3 };
            let end = Issued::spelt(batch, ISSUED_PER_LISTED * listed);
            let within = |card: &&Digits20| Issued::spelt(batch, 0) <= **card && **card < end;
            assert_eq!(cards.iter().filter(within).count() as u64, listed);
        }
    }

    #[test]
    fn the_ids_that_were_issued_are_all_different_and_ten_times_those_listed() {
        let rows = BATCHES + 5;
        let issued = Issued::new(rows);
        let cards: std::collections::HashSet<_> = (0..issued.size()).map(|number| issued.card(number)).collect();
        assert_eq!(cards.len() as u64, ISSUED_PER_LISTED * rows);
        assert!(issued.cards(rows, 1).all(|card| cards.contains(&card)));
    }

    #[test]
    fn a_net_card_begins_with_one_of_the_networks() {
        assert_eq!(spelt(Net.card(0)), "11010000000000000000");
        assert_eq!(spelt(Net.card(Net.size() - 1)), "65019999999999999999");
        let mut counts = [0; 100];
        Net.cards(31_000, 1).for_each(|card| counts[(card.0 / 10u128.pow(18)) as usize] += 1);
        assert!(counts.iter().all(|&count| count == 0 || (850..1150).contains(&count)), "{counts:?}");
        assert_eq!(counts.iter().filter(|count| **count > 0).count(), NETWORKS.len());
    }

    #[test]
    fn cookies_have_10_to_40_characters() {
        let lens: std::collections::BTreeSet<_> = Cookies.cards(10_000, 1).map(|cookie| cookie.text().len()).collect();
        assert!(lens.into_iter().eq(MIN_COOKIE..=MAX_COOKIE));
    }
}
