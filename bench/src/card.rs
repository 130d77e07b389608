//! The kinds of cards that are measured, each in the smallest form that sorts as its ids do.

use std::borrow::Borrow;
use std::hash::Hash;

use card_table::{Class, Id};
use rand::RngExt;
use rand::rngs::SmallRng;

pub const MAX_COOKIE: usize = 40;

/// What the sets' cards have in common.
pub trait Card: Copy + Ord + Hash + Send + Sync {
    /// What the peer, a hash map, keeps of the card, and what it is asked with.
    type Key: Hash + Eq + Borrow<Self::Asked>;
    type Asked: Hash + Eq + ?Sized;

    fn id(&self) -> Id<'_>;
    fn key(&self) -> Self::Key;
    fn asked(&self) -> &Self::Asked;

    /// An id close by that is surely not listed, given the card that is listed next.
    fn unlisted_neighbour(&self, next: &Self, rng: &mut SmallRng) -> Option<Self>;
}

/// 20 digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digits20(pub u128);

impl Card for Digits20 {
    type Key = u128;
    type Asked = u128;

    fn id(&self) -> Id<'_> {
        Id::Number(Class::Digits(20), self.0)
    }

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

/// 32 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hex32(pub u128);

impl Card for Hex32 {
    type Key = u128;
    type Asked = u128;

    fn id(&self) -> Id<'_> {
        let has_letter = (0..128).step_by(4).any(|shift| self.0 >> shift & 15 > 9);
        if has_letter {
            return Id::Number(Class::HexLower(32), self.0);
        }
        // A few in ten million have digits only, and are of another class.
        let spelt = format!("{:032x}", self.0);
        Id::parse(spelt.as_bytes()).expect("32 digits are an id").into_owned()
    }

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

/// Text without zero bytes, and then zero bytes: arrays sort as their texts do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cookie(pub [u8; MAX_COOKIE]);

/// A character that no listed cookie has.
const UNLISTED: u8 = b'~';

impl Cookie {
    pub fn text(&self) -> &[u8] {
        let len = self.0.iter().position(|&byte| byte == 0);
        &self.0[..len.unwrap_or(MAX_COOKIE)]
    }
}

impl Card for Cookie {
    type Key = Box<[u8]>;
    type Asked = [u8];

    fn id(&self) -> Id<'_> {
        Id::parse(self.text()).expect("a cookie is neither empty nor long")
    }

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
