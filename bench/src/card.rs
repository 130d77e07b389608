//! The samples' cards, as they are measured.

use std::borrow::Borrow;
use std::hash::Hash;

use rand::RngExt;
use rand::rngs::SmallRng;

pub use card_samples::card::{Card as Sample, Cookie, Digits20, Hex32};

/// A sample that a peer can keep, and that has neighbours.
pub trait Card: Sample {
    /// What the peer, a hash map, keeps of the card, and what it is asked with.
    type Key: Hash + Eq + Borrow<Self::Asked>;
    type Asked: Hash + Eq + ?Sized;

    fn key(&self) -> Self::Key;
    fn asked(&self) -> &Self::Asked;

    /// An id close by that is surely not listed, given the card that is listed next.
    fn unlisted_neighbour(&self, next: &Self, rng: &mut SmallRng) -> Option<Self>;
}

impl Card for Digits20 {
    type Key = u128;
    type Asked = u128;

    fn key(&self) -> u128 {
        self.0
    }

    fn asked(&self) -> &u128 {
        &self.0
    }

    fn unlisted_neighbour(&self, next: &Self, rng: &mut SmallRng) -> Option<Self> {
        between(self.0, next.0, rng).map(Digits20)
    }
}

impl Card for Hex32 {
    type Key = u128;
    type Asked = u128;

    fn key(&self) -> u128 {
        self.0
    }

    fn asked(&self) -> &u128 {
        &self.0
    }

    fn unlisted_neighbour(&self, next: &Self, rng: &mut SmallRng) -> Option<Self> {
        between(self.0, next.0, rng).map(Hex32)
    }
}

/// A number that is neither of the two but lies between them, if there is one.
fn between(low: u128, high: u128, rng: &mut SmallRng) -> Option<u128> {
    (high - low > 1).then(|| rng.random_range(low + 1..high))
}

/// A character that no listed cookie has.
const UNLISTED: u8 = b'~';

impl Card for Cookie {
    type Key = Box<[u8]>;
    type Asked = [u8];

    fn key(&self) -> Box<[u8]> {
        self.text().into()
    }

    fn asked(&self) -> &[u8] {
        self.text()
    }

    fn unlisted_neighbour(&self, _: &Self, rng: &mut SmallRng) -> Option<Self> {
        let mut other = *self;
        other.0[rng.random_range(0..self.text().len())] = UNLISTED;
        Some(other)
    }
}
