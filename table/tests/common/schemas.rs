//! Schemas of every width.

use card_table::{Field, Schema};

/// The schemas everything is tried with, from the narrowest to the widest that there can be.
pub fn schemas() -> [Schema; 5] {
    let schema = |fields: &[(&str, u128, u128)]| {
        let fields = fields.iter().map(|&(name, min, max)| Field::new(name, min, max)).collect();
        Schema::new(fields).expect("a valid schema")
    };
    [
        Schema::default(),
        schema(&[("listed", 1, 1)]),
        schema(&[("a", 3, 5), ("b", 0, 99), ("c", 7, 11)]),
        schema(&[("person", 0, 10u128.pow(21) - 1)]),
        schema(&[("anything", 1, u128::MAX)]),
    ]
}
