//! Ids of every kind, made from numbers: of every class, close together and far apart, short and long.

use card_table::id::{MAX_DIGITS, MAX_HEX, MAX_ID_BYTES};
use proptest::prelude::*;

/// How a number becomes an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// So many decimal digits.
    Digits(usize),
    /// So many hexadecimal digits; without a letter among them they are decimal ones.
    HexLower(usize),
    HexUpper(usize),
    UuidLower,
    UuidUpper,
    /// A short word.
    Word,
    /// A beginning that is longer than a key of the directory, and then a number.
    LongPrefix,
    /// Bytes of every value, zeros at the end included.
    Binary,
    /// Up to 4096 bytes, many of them equal.
    Long,
}

pub const KINDS: [Kind; 20] = [
    Kind::Digits(1),
    Kind::Digits(2),
    Kind::Digits(3),
    Kind::Digits(8),
    Kind::Digits(19),
    Kind::Digits(20),
    Kind::Digits(21),
    Kind::Digits(MAX_DIGITS),
    Kind::HexLower(2),
    Kind::HexLower(16),
    Kind::HexLower(MAX_HEX),
    Kind::HexUpper(2),
    Kind::HexUpper(17),
    Kind::HexUpper(MAX_HEX),
    Kind::UuidLower,
    Kind::UuidUpper,
    Kind::Word,
    Kind::LongPrefix,
    Kind::Binary,
    Kind::Long,
];

impl Kind {
    /// The id that `number` becomes. Different numbers may become the same id.
    pub fn spell(self, number: u128) -> Vec<u8> {
        match self {
            Kind::Digits(len) => {
                let number = number % 10u128.pow(len as u32);
                format!("{number:0len$}").into_bytes()
            }
            Kind::HexLower(len) => format!("{:0len$x}", number & low_digits(len)).into_bytes(),
            Kind::HexUpper(len) => format!("{:0len$X}", number & low_digits(len)).into_bytes(),
            Kind::UuidLower => uuid(&format!("{number:032x}")),
            Kind::UuidUpper => uuid(&format!("{number:032X}")),
            Kind::Word => format!("w{number:x}").into_bytes(),
            Kind::LongPrefix => format!("customer-account-number-{number:05}").into_bytes(),
            Kind::Binary => {
                let mut bytes = number.to_be_bytes().to_vec();
                bytes.extend([0xff, 0]);
                let from = number.leading_zeros() as usize / 8;
                bytes[from..].to_vec()
            }
            Kind::Long => {
                let number = number.to_string();
                let len = MAX_ID_BYTES - number.len() - (number.len() * 97) % 3000;
                [vec![b'x'; len], number.into_bytes()].concat()
            }
        }
    }
}

fn low_digits(len: usize) -> u128 {
    u128::MAX >> (128 - 4 * len)
}

fn uuid(hex: &str) -> Vec<u8> {
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-").into_bytes()
}

/// The ends of what can be spelt.
pub fn extremes() -> Vec<Vec<u8>> {
    let mut ids: Vec<Vec<u8>> = vec![
        vec![0],
        vec![0; 16],
        vec![0; 17],
        vec![0xff],
        vec![0xff; 16],
        vec![0xff; 17],
        vec![0; MAX_ID_BYTES],
        vec![0xff; MAX_ID_BYTES],
        vec![b'f'; MAX_HEX + 1],
        vec![b'9'; MAX_DIGITS + 1],
        b"f".to_vec(),
        b"F".to_vec(),
    ];
    for kind in KINDS {
        let highest = match kind {
            Kind::Digits(len) => 10u128.pow(len as u32) - 1,
            Kind::HexLower(len) | Kind::HexUpper(len) => low_digits(len),
            _ => u128::MAX,
        };
        // Ends with and without gaps: both have a coding of their own.
        ids.extend([0, 1, 2, 4, 5].map(|below| kind.spell(highest.saturating_sub(below))));
        ids.extend([0, 1, 3].map(|number| kind.spell(number)));
    }
    ids
}

pub fn kind() -> impl Strategy<Value = Kind> {
    prop::sample::select(&KINDS[..])
}

/// Numbers close together, in runs with huge jumps between, at the upper end, and anywhere.
pub fn number() -> impl Strategy<Value = u128> {
    prop_oneof![
        4 => 0u128..3000,
        3 => (0u128..16, 0u128..40).prop_map(|(run, at)| (run << 100) + at),
        1 => (0u128..300).prop_map(|below| u128::MAX - below),
        2 => any::<u128>(),
    ]
}

/// An id of any kind.
pub fn spelling() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => (kind(), number()).prop_map(|(kind, number)| kind.spell(number)),
        1 => prop::sample::select(extremes()),
        1 => "[0-9]{1,40}".prop_map(String::into_bytes),
        1 => "[0-9a-fA-F]{1,34}".prop_map(String::into_bytes),
        1 => "[ -~]{1,40}".prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 1..60),
        1 => (any::<u8>(), 1..=MAX_ID_BYTES).prop_map(|(byte, len)| vec![byte; len]),
    ]
}
