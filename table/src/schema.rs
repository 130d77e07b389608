//! What is stored beside an id: named fields, each with an inclusive range, folded into one number.
//!
//! The number is mixed-radix, the first field the most significant: with `type 0..10` and `status 1..2`, type 7 and
//! status 1 become 7·2 + 0 = 14. A table stores only this number, its *symbol*; it is always below [`Schema::symbols`].

use thiserror::Error;

pub const MAX_FIELDS: usize = 16;
const MAX_NAME: usize = 255;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    pub name: String,
    pub min: u128,
    pub max: u128,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema {
    fields: Vec<Field>,
    symbols: u128,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SchemaError {
    #[error("a table has 1 to {MAX_FIELDS} fields, got {0}")]
    FieldCount(usize),
    #[error(
        "a field's name is a lower-case letter, then letters, digits and underscores, at most {MAX_NAME}, got '{0}'"
    )]
    Name(String),
    #[error("a field cannot be named id: that is the card's")]
    NamedId,
    #[error("field '{0}' is named twice")]
    NamedTwice(String),
    #[error("the range of {name} is empty: {min} is above {max}")]
    EmptyRange { name: String, min: u128, max: u128 },
    #[error("the product of the fields' ranges does not fit 128 bits")]
    TooWide,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ValueError {
    #[error("expected {expected} values, got {found}")]
    Count { expected: usize, found: usize },
    #[error("{field} must be between {min} and {max}, got '{found}'")]
    OutOfRange { field: String, min: u128, max: u128, found: String },
}

impl Field {
    pub fn new(name: impl Into<String>, min: u128, max: u128) -> Field {
        Field { name: name.into(), min, max }
    }

    /// A value as it is written: decimal digits and nothing else.
    pub fn parse(&self, text: &[u8]) -> Result<u128, ValueError> {
        parse_decimal(text)
            .filter(|value| (self.min..=self.max).contains(value))
            .ok_or_else(|| self.out_of_range(String::from_utf8_lossy(text).into_owned()))
    }

    fn out_of_range(&self, found: String) -> ValueError {
        ValueError::OutOfRange { field: self.name.clone(), min: self.min, max: self.max, found }
    }
}

fn parse_decimal(text: &[u8]) -> Option<u128> {
    let digit = |byte: &u8| Some(byte.wrapping_sub(b'0')).filter(|&digit| digit <= 9);
    match text.len() {
        0 => None,
        // What fits 64 bits is what files are full of.
        1..=19 => {
            text.iter().try_fold(0u64, |number, byte| Some(number * 10 + u64::from(digit(byte)?))).map(Into::into)
        }
        _ => text.iter().try_fold(0u128, |number, byte| number.checked_mul(10)?.checked_add(digit(byte)?.into())),
    }
}

impl Schema {
    pub fn new(fields: Vec<Field>) -> Result<Schema, SchemaError> {
        if fields.is_empty() || fields.len() > MAX_FIELDS {
            return Err(SchemaError::FieldCount(fields.len()));
        }
        let mut symbols = 1u128;
        for (at, field) in fields.iter().enumerate() {
            if !is_name(&field.name) {
                return Err(SchemaError::Name(field.name.clone()));
            }
            if field.name == "id" {
                return Err(SchemaError::NamedId);
            }
            if fields[..at].iter().any(|other| other.name == field.name) {
                return Err(SchemaError::NamedTwice(field.name.clone()));
            }
            if field.min > field.max {
                return Err(SchemaError::EmptyRange { name: field.name.clone(), min: field.min, max: field.max });
            }
            symbols = (field.max - field.min)
                .checked_add(1)
                .and_then(|range| symbols.checked_mul(range))
                .ok_or(SchemaError::TooWide)?;
        }
        Ok(Schema { fields, symbols })
    }

    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// How many different symbols there are: the product of the ranges.
    pub fn symbols(&self) -> u128 {
        self.symbols
    }

    pub(crate) fn highest_symbol(&self) -> u128 {
        self.symbols - 1
    }

    /// A symbol beyond those of the schema, which stands for the removal of a card where changes are sorted and kept.
    pub(crate) fn removal(&self) -> u128 {
        self.symbols
    }

    /// One value a field, in the fields' order, as a symbol.
    pub fn pack(&self, values: &[u128]) -> Result<u128, ValueError> {
        if values.len() != self.fields.len() {
            return Err(ValueError::Count { expected: self.fields.len(), found: values.len() });
        }
        self.fields.iter().zip(values).try_fold(0, |symbol, (field, &value)| {
            if !(field.min..=field.max).contains(&value) {
                return Err(field.out_of_range(value.to_string()));
            }
            Ok(symbol * (field.max - field.min + 1) + (value - field.min))
        })
    }

    /// The values behind a symbol, in the fields' order.
    #[inline]
    pub fn values(&self, mut symbol: u128) -> impl Iterator<Item = u128> {
        let mut weight = self.symbols;
        self.fields.iter().map(move |field| {
            weight /= field.max - field.min + 1;
            let value = field.min + symbol / weight;
            symbol %= weight;
            value
        })
    }

    /// The same, all at once.
    pub fn unpack(&self, symbol: u128) -> Vec<u128> {
        self.values(symbol).collect()
    }

    /// How much one step of field `at` adds to a symbol.
    pub(crate) fn weight(&self, at: usize) -> u128 {
        self.fields[at + 1..].iter().map(|field| field.max - field.min + 1).product()
    }

    /// The bytes the fields take on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        let names: usize = self.fields.iter().map(|field| crate::heap::size_class(field.name.capacity())).sum();
        crate::heap::vec_bytes(&self.fields) + names
    }
}

/// The seed's table: a type not above 10, a status of 1 or 2.
impl Default for Schema {
    fn default() -> Self {
        Schema::new(vec![Field::new("type", 0, 10), Field::new("status", 1, 2)]).expect("a valid schema")
    }
}

fn is_name(name: &str) -> bool {
    name.len() <= MAX_NAME
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_schema_is_the_seeds() {
        let schema = Schema::default();
        assert_eq!(schema.symbols(), 22);
        assert_eq!(schema.pack(&[7, 1]), Ok(14));
        assert_eq!(schema.unpack(14), [7, 1]);
        assert_eq!((schema.weight(0), schema.weight(1)), (2, 1));
    }

    #[test]
    fn every_symbol_comes_back() {
        let schema = Schema::new(vec![Field::new("a", 3, 5), Field::new("b", 0, 0), Field::new("c", 7, 11)]).unwrap();
        assert_eq!(schema.symbols(), 15);
        for symbol in 0..15 {
            assert_eq!(schema.pack(&schema.unpack(symbol)), Ok(symbol));
        }
    }

    #[test]
    fn a_value_out_of_range_names_field_value_and_range() {
        let error = Schema::default().pack(&[11, 1]).unwrap_err();
        assert_eq!(error.to_string(), "type must be between 0 and 10, got '11'");
        let error = Schema::default().fields()[1].parse(b"-1").unwrap_err();
        assert_eq!(error.to_string(), "status must be between 1 and 2, got '-1'");
        assert_eq!(Schema::default().pack(&[1]), Err(ValueError::Count { expected: 2, found: 1 }));
    }

    #[test]
    fn the_widest_field_holds_a_21_digit_id() {
        let schema = Schema::new(vec![Field::new("person", 0, 999_999_999_999_999_999_999)]).unwrap();
        let id = schema.fields()[0].parse(b"123456789012345678901").unwrap();
        assert_eq!(schema.unpack(schema.pack(&[id]).unwrap()), [id]);
    }

    #[test]
    fn bad_schemas_are_refused() {
        let refused = |fields: &[(&str, u128, u128)]| {
            Schema::new(fields.iter().map(|&(name, min, max)| Field::new(name, min, max)).collect()).unwrap_err()
        };
        assert_eq!(refused(&[]), SchemaError::FieldCount(0));
        assert_eq!(refused(&[("a", 0, 1); 17]), SchemaError::FieldCount(17));
        for name in ["", "Type", "1a", "_a", "a-b", "typ\u{e9}"] {
            assert_eq!(refused(&[(name, 0, 1)]), SchemaError::Name(name.into()));
        }
        assert_eq!(refused(&[("a", 0, 1), ("a", 0, 1)]), SchemaError::NamedTwice("a".into()));
        assert!(matches!(refused(&[("a", 2, 1)]), SchemaError::EmptyRange { .. }));
        assert_eq!(refused(&[("a", 0, u128::MAX)]), SchemaError::TooWide);
        assert_eq!(refused(&[("a", 0, u128::MAX - 1), ("b", 0, 1)]), SchemaError::TooWide);
        assert_eq!(Schema::new(vec![Field::new("a", 1, u128::MAX)]).unwrap().symbols(), u128::MAX);
    }
}
