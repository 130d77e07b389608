//! The ways to keep cards in Redis that are compared.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use crate::redis::Requests;

/// A way to keep cards: how it is told of one, and asked about one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// The seed's: 300,000 hashes for 100 million cards, a field is a 31-bit hash of the card. Not exact.
    Seed {
        hashes: u64,
    },
    /// A key for each card.
    Strings,
    /// A field for each card, all in one hash.
    OneHash,
    Ours,
}

/// The seed has 300,000 hashes for 100,000,000 cards: as many cards in each, whatever their number.
const SEEDS_CARDS_A_HASH: u64 = 100_000_000 / 300_000;

pub const TABLE: &[u8] = b"blacklist:0";

impl Scheme {
    pub fn seed(cards: usize) -> Scheme {
        Scheme::Seed { hashes: (cards as u64 / SEEDS_CARDS_A_HASH).max(1) }
    }

    pub fn name(self) -> &'static str {
        match self {
            Scheme::Seed { .. } => "seed's hashes",
            Scheme::Strings => "string keys",
            Scheme::OneHash => "one big hash",
            Scheme::Ours => "redis-card",
        }
    }

    pub fn get(self, card: &str, requests: &mut Requests) {
        match self {
            Scheme::Seed { hashes } => requests.push(&[b"HGET", &key(card, hashes), &field(card)]),
            Scheme::Strings => requests.push(&[b"GET", card.as_bytes()]),
            Scheme::OneHash => requests.push(&[b"HGET", TABLE, card.as_bytes()]),
            Scheme::Ours => requests.push(&[b"CARD.GET", TABLE, card.as_bytes()]),
        }
    }

    pub fn set(self, card: &str, type_: u8, status: u8, requests: &mut Requests) {
        let value = (status << 6 | type_).to_string();
        match self {
            Scheme::Seed { hashes } => requests.push(&[b"HSET", &key(card, hashes), &field(card), value.as_bytes()]),
            Scheme::Strings => requests.push(&[b"SET", card.as_bytes(), value.as_bytes()]),
            Scheme::OneHash => requests.push(&[b"HSET", TABLE, card.as_bytes(), value.as_bytes()]),
            Scheme::Ours => requests.push(&[
                b"CARD.SET",
                TABLE,
                card.as_bytes(),
                type_.to_string().as_bytes(),
                status.to_string().as_bytes(),
            ]),
        }
    }
}

/// Some hash of the card, as the seed has std::hash.
fn key(card: &str, hashes: u64) -> Vec<u8> {
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(card);
    (hash % hashes).to_string().into_bytes()
}

/// The seed's own function.
fn field(card: &str) -> Vec<u8> {
    let hash = card.bytes().fold(0u32, |hash, byte| hash.wrapping_mul(131).wrapping_add(byte.into()));
    (hash & 0x7fff_ffff).to_string().into_bytes()
}
