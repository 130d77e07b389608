//! Card ids: any 1 to 4096 bytes, kept exactly.
//!
//! An id is classified by its own spelling. Digits, hexadecimal of one case and dashed UUIDs become numbers without
//! loss, because the class remembers the length (and so the leading zeros) and the case; everything else stays text.
//! `"007"`, `"7"`, `"0x7"` and `"7 "` are four different cards, and each comes back byte for byte:
//!
//! ```
//! use card_table::{Class, Id};
//!
//! let id = Id::parse(b"007")?;
//! assert_eq!(id, Id::Number(Class::Digits(3), 7));
//! assert_eq!(id.to_bytes(), b"007");
//! assert_eq!(Id::parse(b"0x7")?.class(), Class::Text);
//! # Ok::<(), card_table::IdError>(())
//! ```
//!
//! A spelling has one class only: hexadecimal without a letter is digits, and a UUID without a letter is lower-case.

use std::borrow::Cow;
use std::fmt::{self, Display};

use thiserror::Error;

use crate::bits;

pub const MAX_ID_BYTES: usize = 4096;
pub const MAX_DIGITS: usize = 38;
pub const MAX_HEX: usize = 32;
const UUID_BYTES: usize = 36;
const UUID_DASHES: [usize; 4] = [8, 13, 18, 23];

/// How an id is spelt. The order of classes is the order in which a table is walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// So many decimal digits, 1 to 38.
    Digits(u8),
    /// So many digits and lower-case letters a to f, 1 to 32.
    HexLower(u8),
    /// So many digits and upper-case letters A to F, 1 to 32.
    HexUpper(u8),
    /// 8-4-4-4-12 hexadecimal digits, lower-case.
    UuidLower,
    /// 8-4-4-4-12 hexadecimal digits, upper-case.
    UuidUpper,
    /// Anything else.
    Text,
}

/// `digits20`, `hex32`, `HEX32`, `uuid`, `UUID`, `text`.
impl Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Class::Digits(len) => write!(f, "digits{len}"),
            Class::HexLower(len) => write!(f, "hex{len}"),
            Class::HexUpper(len) => write!(f, "HEX{len}"),
            Class::UuidLower => f.write_str("uuid"),
            Class::UuidUpper => f.write_str("UUID"),
            Class::Text => f.write_str("text"),
        }
    }
}

/// A card's id: its class and, within the class, a number or the bytes themselves.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Id<'a> {
    Number(Class, u128),
    Text(Cow<'a, [u8]>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum IdError {
    #[error("a card id cannot be empty")]
    Empty,
    #[error("a card id has at most {MAX_ID_BYTES} bytes, got {0}")]
    TooLong(usize),
}

impl<'a> Id<'a> {
    pub fn parse(bytes: &'a [u8]) -> Result<Id<'a>, IdError> {
        match bytes.len() {
            0 => Err(IdError::Empty),
            len if len > MAX_ID_BYTES => Err(IdError::TooLong(len)),
            _ => Ok(Id::parse_number(bytes).unwrap_or(Id::Text(Cow::Borrowed(bytes)))),
        }
    }

    fn parse_number(bytes: &[u8]) -> Option<Id<'static>> {
        let len = bytes.len() as u8;
        let classes = match bytes.len() {
            1..=MAX_HEX => [Some(Class::Digits(len)), Some(Class::HexLower(len)), Some(Class::HexUpper(len))],
            UUID_BYTES => [Some(Class::Digits(len)), Some(Class::UuidLower), Some(Class::UuidUpper)],
            33..=MAX_DIGITS => [Some(Class::Digits(len)), None, None],
            _ => [None; 3],
        };
        classes.into_iter().flatten().find_map(|class| Some(Id::Number(class, class.number(bytes)?)))
    }

    /// Whether the id is what [`Id::parse`] makes of its own spelling; one put together by hand may not be.
    pub(crate) fn is_sound(&self) -> bool {
        match self {
            Id::Number(class, number) => class.admits(*number),
            Id::Text(bytes) => Id::parse(bytes).is_ok_and(|id| id.class() == Class::Text),
        }
    }

    pub fn class(&self) -> Class {
        match self {
            Id::Number(class, _) => *class,
            Id::Text(_) => Class::Text,
        }
    }

    /// The id as it was spelt.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.write_to(&mut bytes);
        bytes
    }

    /// Appends the id as it was spelt.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        match self {
            Id::Number(class, number) => class.spell(*number, out),
            Id::Text(bytes) => out.extend_from_slice(bytes),
        }
    }

    pub fn into_owned(self) -> Id<'static> {
        match self {
            Id::Number(class, number) => Id::Number(class, number),
            Id::Text(bytes) => Id::Text(Cow::Owned(bytes.into_owned())),
        }
    }
}

impl Class {
    /// The largest number of this class. Text has no numbers.
    pub(crate) fn max(self) -> u128 {
        match self {
            Class::Digits(len) => 10u128.pow(len.into()) - 1,
            Class::HexLower(len) | Class::HexUpper(len) => u128::MAX >> (128 - 4 * u32::from(len)),
            Class::UuidLower | Class::UuidUpper => u128::MAX,
            Class::Text => 0,
        }
    }

    /// Whether the number, spelt in this class, is an id of this class rather than of another.
    pub(crate) fn admits(self, number: u128) -> bool {
        number <= self.max() && self.spells(number)
    }

    /// Whether a number that is not too large is spelt in this class rather than in another.
    pub(crate) fn spells(self, number: u128) -> bool {
        match self {
            Class::HexLower(_) | Class::HexUpper(_) | Class::UuidUpper => has_letter(number),
            Class::Digits(_) | Class::UuidLower => true,
            Class::Text => false,
        }
    }

    /// Two bytes that name the class in the format and in digests.
    pub(crate) fn tag(self) -> [u8; 2] {
        match self {
            Class::Digits(len) => [1, len],
            Class::HexLower(len) => [2, len],
            Class::HexUpper(len) => [3, len],
            Class::UuidLower => [4, 0],
            Class::UuidUpper => [5, 0],
            Class::Text => [6, 0],
        }
    }

    pub(crate) fn from_tag(tag: [u8; 2]) -> Option<Class> {
        match tag {
            [1, len] if (1..=MAX_DIGITS).contains(&len.into()) => Some(Class::Digits(len)),
            [2, len] if (1..=MAX_HEX).contains(&len.into()) => Some(Class::HexLower(len)),
            [3, len] if (1..=MAX_HEX).contains(&len.into()) => Some(Class::HexUpper(len)),
            [4, 0] => Some(Class::UuidLower),
            [5, 0] => Some(Class::UuidUpper),
            [6, 0] => Some(Class::Text),
            _ => None,
        }
    }

    /// The lowest and the highest number of this class whose spelling begins with `prefix`, if there can be any.
    pub(crate) fn prefix_range(self, prefix: &[u8]) -> Option<(u128, u128)> {
        let blank = match self {
            Class::Digits(len) => vec![b'9'; len.into()],
            Class::HexLower(len) => vec![b'f'; len.into()],
            Class::HexUpper(len) => vec![b'F'; len.into()],
            Class::UuidLower => b"ffffffff-ffff-ffff-ffff-ffffffffffff".to_vec(),
            Class::UuidUpper => b"FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF".to_vec(),
            Class::Text => return None,
        };
        let rest = blank.get(prefix.len()..)?;
        let highest = [prefix, rest].concat();
        let lowest: Vec<u8> =
            [prefix, &rest.iter().map(|&b| if b == b'-' { b'-' } else { b'0' }).collect::<Vec<_>>()].concat();
        Some((self.loose_number(&lowest)?, self.loose_number(&highest)?))
    }

    /// The number that `bytes` spell in this class, if it is theirs.
    fn number(self, bytes: &[u8]) -> Option<u128> {
        self.loose_number(bytes).filter(|&number| matches!(self, Class::Digits(_)) || self.admits(number))
    }

    /// The number that `bytes`, of the right length, spell, also where their class is another.
    fn loose_number(self, bytes: &[u8]) -> Option<u128> {
        match self {
            Class::Digits(_) => parse_digits(bytes),
            Class::HexLower(_) => parse_hex(bytes, b'a'),
            Class::HexUpper(_) => parse_hex(bytes, b'A'),
            Class::UuidLower => parse_uuid(bytes, b'a'),
            Class::UuidUpper => parse_uuid(bytes, b'A'),
            Class::Text => None,
        }
    }

    fn spell(self, number: u128, out: &mut Vec<u8>) {
        let from = out.len();
        match self {
            Class::Digits(len) => {
                out.resize(from + usize::from(len), b'0');
                spell_digits(number, &mut out[from..]);
            }
            Class::HexLower(len) => spell_hex(number, len.into(), b'a', out),
            Class::HexUpper(len) => spell_hex(number, len.into(), b'A', out),
            Class::UuidLower => spell_uuid(number, b'a', out),
            Class::UuidUpper => spell_uuid(number, b'A', out),
            Class::Text => unreachable!("text is not a number"),
        }
    }
}

/// Decimal digits only, at most 38. Eight at a time: a file has a hundred million ids to parse.
fn parse_digits(bytes: &[u8]) -> Option<u128> {
    let (head, eights) = bytes.split_at(bytes.len() % 8);
    let mut number = 0u128;
    for byte in head {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number * 10 + u128::from(digit);
    }
    for eight in eights.chunks_exact(8) {
        number = number * 100_000_000 + u128::from(parse_eight_digits(bits::load(eight, 0))?);
    }
    Some(number)
}

fn parse_eight_digits(text: u64) -> Option<u64> {
    const ZEROS: u64 = 0x3030_3030_3030_3030;
    const HIGH_HALVES: u64 = 0xf0f0_f0f0_f0f0_f0f0;
    // A byte is a digit if its high half is 3, and still is when 6 is added: that rules out ':' to '?'.
    let sixes = 0x0606_0606_0606_0606;
    if text & HIGH_HALVES != ZEROS || text.wrapping_add(sixes) & HIGH_HALVES != ZEROS {
        return None;
    }
    // The first digit is in the lowest byte. Neighbours are joined into pairs, pairs into fours, fours into eight.
    let digits = text ^ ZEROS;
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = pairs.wrapping_mul(100).wrapping_add(pairs >> 16) & 0x0000_ffff_0000_ffff;
    Some(fours.wrapping_mul(10_000).wrapping_add(fours >> 32) & 0xffff_ffff)
}

fn spell_digits(mut number: u128, out: &mut [u8]) {
    for digit in out.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

fn parse_hex(bytes: &[u8], first_letter: u8) -> Option<u128> {
    bytes.iter().try_fold(0u128, |number, &byte| {
        let digit = match byte.wrapping_sub(b'0') {
            digit @ 0..=9 => digit,
            _ => Some(byte.wrapping_sub(first_letter)).filter(|&letter| letter < 6)? + 10,
        };
        Some(number << 4 | u128::from(digit))
    })
}

fn spell_hex(number: u128, len: u32, first_letter: u8, out: &mut Vec<u8>) {
    out.extend((0..len).rev().map(|at| match (number >> (4 * at)) as u8 & 15 {
        digit @ 0..=9 => b'0' + digit,
        letter => first_letter + letter - 10,
    }));
}

fn parse_uuid(bytes: &[u8], first_letter: u8) -> Option<u128> {
    let mut hex = [0; MAX_HEX];
    let mut digits = hex.iter_mut();
    for (at, &byte) in bytes.iter().enumerate() {
        if UUID_DASHES.contains(&at) {
            if byte != b'-' {
                return None;
            }
        } else {
            *digits.next()? = byte;
        }
    }
    parse_hex(&hex, first_letter)
}

fn spell_uuid(number: u128, first_letter: u8, out: &mut Vec<u8>) {
    let from = out.len();
    spell_hex(number, MAX_HEX as u32, first_letter, out);
    for dash in UUID_DASHES {
        out.insert(from + dash, b'-');
    }
}

/// Whether any hexadecimal digit is above 9: its eight is set, and its four or its two.
fn has_letter(number: u128) -> bool {
    const EIGHTS: u128 = u128::MAX / 15 * 8;
    number & EIGHTS & (number << 1 | number << 2) != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn class_of(spelling: &str) -> Class {
        Id::parse(spelling.as_bytes()).unwrap().class()
    }

    #[test]
    fn spelling_decides_the_class() {
        assert_eq!(class_of("7"), Class::Digits(1));
        assert_eq!(class_of("007"), Class::Digits(3));
        assert_eq!(class_of("0x7"), Class::Text);
        assert_eq!(class_of("7 "), Class::Text);
        assert_eq!(class_of("44015186100181001473"), Class::Digits(20));
        assert_eq!(class_of(&"9".repeat(38)), Class::Digits(38));
        assert_eq!(class_of(&"9".repeat(39)), Class::Text);
        assert_eq!(class_of("beef"), Class::HexLower(4));
        assert_eq!(class_of("BEEF"), Class::HexUpper(4));
        assert_eq!(class_of("BeEF"), Class::Text);
        assert_eq!(class_of("beeg"), Class::Text);
        assert_eq!(class_of(&"f".repeat(32)), Class::HexLower(32));
        assert_eq!(class_of(&"f".repeat(33)), Class::Text);
        assert_eq!(class_of("123e4567-e89b-12d3-a456-426614174000"), Class::UuidLower);
        assert_eq!(class_of("123E4567-E89B-12D3-A456-426614174000"), Class::UuidUpper);
        assert_eq!(class_of("12345678-1234-1234-1234-123456781234"), Class::UuidLower);
        assert_eq!(class_of("123e4567-E89B-12d3-a456-426614174000"), Class::Text);
        assert_eq!(class_of("123e4567e-89b-12d3-a456-426614174000"), Class::Text);
        assert_eq!(class_of(&"1".repeat(36)), Class::Digits(36));
    }

    #[test]
    fn empty_and_over_long_ids_are_refused() {
        assert_eq!(Id::parse(b""), Err(IdError::Empty));
        assert_eq!(Id::parse(&[b'x'; 4097]), Err(IdError::TooLong(4097)));
        assert!(Id::parse(&[0xff; 4096]).is_ok());
    }

    #[test]
    fn a_prefix_is_a_range_of_numbers() {
        assert_eq!(Class::Digits(5).prefix_range(b"44"), Some((44000, 44999)));
        assert_eq!(Class::Digits(5).prefix_range(b"44000"), Some((44000, 44000)));
        assert_eq!(Class::Digits(5).prefix_range(b"440000"), None);
        assert_eq!(Class::Digits(5).prefix_range(b"4a"), None);
        assert_eq!(Class::HexLower(4).prefix_range(b"12"), Some((0x1200, 0x12ff)));
        assert_eq!(Class::HexUpper(4).prefix_range(b"a"), None);
        let (low, high) = Class::UuidLower.prefix_range(b"123e4567-e").unwrap();
        assert_eq!(low, 0x123e4567_e000_0000_0000_000000000000);
        assert_eq!(high, 0x123e4567_efff_ffff_ffff_ffffffffffff);
        assert_eq!(Class::UuidLower.prefix_range(b"123e45678"), None);
    }

    proptest! {
        #[test]
        fn ids_come_back_byte_for_byte(
            spelling in prop_oneof![
                "[0-9]{1,40}", "[0-9a-f]{1,34}", "[0-9A-F]{1,34}", "[0-9a-fA-F]{1,34}",
                "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
                "[0-9A-F]{8}-[0-9A-F]{4}-[0-9A-F]{4}-[0-9A-F]{4}-[0-9A-F]{12}",
                "[0-9]{8}-[0-9]{4}-[0-9]{4}-[0-9]{4}-[0-9]{12}",
                "[ -~]{1,60}",
            ],
            bytes in prop::collection::vec(any::<u8>(), 1..100),
        ) {
            for spelling in [spelling.as_bytes(), &bytes] {
                let id = Id::parse(spelling).unwrap();
                prop_assert_eq!(id.to_bytes(), spelling);
                prop_assert_eq!(Class::from_tag(id.class().tag()), Some(id.class()));
                if let Id::Number(class, number) = id {
                    prop_assert!(class.admits(number));
                    for prefix in 0..=spelling.len() {
                        let (low, high) = class.prefix_range(&spelling[..prefix]).unwrap();
                        prop_assert!((low..=high).contains(&number));
                    }
                }
            }
        }

        #[test]
        fn an_admitted_number_is_spelt_in_its_own_class(number in any::<u128>(), shift in 0u32..128, tag in any::<[u8; 2]>()) {
            let Some(class) = Class::from_tag([tag[0] % 8, tag[1] % 40]) else { return Ok(()) };
            let number = number >> shift;
            if class.admits(number) {
                let mut spelling = Vec::new();
                class.spell(number, &mut spelling);
                prop_assert_eq!(Id::parse(&spelling).unwrap(), Id::Number(class, number));
            }
        }
    }
}
