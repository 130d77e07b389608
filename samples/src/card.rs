//! The kinds of cards in the sets, each in the smallest form that sorts as its ids do.

use std::hash::Hash;

use card_table::{Class, Id};

pub const MAX_COOKIE: usize = 40;

/// What the sets' cards have in common.
pub trait Card: Copy + Ord + Hash + Send + Sync {
    fn id(&self) -> Id<'_>;

    /// Bits that hardly any two cards of a set share; a card's values are made of them.
    fn bits(&self) -> u64;
}

/// 20 digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digits20(pub u128);

impl Card for Digits20 {
    fn id(&self) -> Id<'_> {
        Id::Number(Class::Digits(20), self.0)
    }

    fn bits(&self) -> u64 {
        folded(self.0)
    }
}

/// 32 lower-case hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hex32(pub u128);

impl Card for Hex32 {
    fn id(&self) -> Id<'_> {
        let has_letter = (0..128).step_by(4).any(|shift| self.0 >> shift & 15 > 9);
        if has_letter {
            return Id::Number(Class::HexLower(32), self.0);
        }
        // A few in ten million have digits only, and are of another class.
        let spelt = format!("{:032x}", self.0);
        Id::parse(spelt.as_bytes()).expect("32 digits are an id").into_owned()
    }

    fn bits(&self) -> u64 {
        folded(self.0)
    }
}

fn folded(number: u128) -> u64 {
    (number >> 64) as u64 ^ number as u64
}

/// Text without zero bytes, and then zero bytes: arrays sort as their texts do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cookie(pub [u8; MAX_COOKIE]);

impl Cookie {
    pub fn text(&self) -> &[u8] {
        let len = self.0.iter().position(|&byte| byte == 0);
        &self.0[..len.unwrap_or(MAX_COOKIE)]
    }
}

impl Card for Cookie {
    fn id(&self) -> Id<'_> {
        Id::parse(self.text()).expect("a cookie is neither empty nor long")
    }

    fn bits(&self) -> u64 {
        self.0[..8].iter().fold(0, |bits, &byte| bits << 8 | u64::from(byte))
    }
}
