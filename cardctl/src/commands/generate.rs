//! `cardctl gen`: sample lists, of any size.

use std::collections::HashMap;

use card_samples::{Set, Shuffle};
use card_table::{Id, Schema};
use indicatif::HumanCount;
use serde_json::json;

use crate::console::{Console, Report};
use crate::failure::Failure;
use crate::output::{OutputArgs, Rows};

/// How often the bar moves.
const ROWS_AT_A_TIME: u64 = 10_000;

/// Make a sample list
///
/// Its cards are all different, and the same for the same set, rows and seed.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What the cards are like
    #[arg(long, value_enum, default_value = "net")]
    set: Set,
    #[arg(long, default_value_t = 1_000_000)]
    rows: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A card that is to be among the rows, once; can be given several times
    #[arg(long = "card", num_args = 3, value_names = ["ID", "TYPE", "STATUS"], action = clap::ArgAction::Append)]
    cards: Vec<String>,
    #[command(flatten)]
    output: OutputArgs,
}

impl Args {
    pub fn run(&self, console: Console) -> Result<Report, Failure> {
        let schema = Schema::default();
        let given = self.given(&schema)?;
        let mut output = self.output.open(console)?;
        let mut rows = Rows::new(&schema);
        output.put((rows.header() + "\n").as_bytes())?;
        let bar = self.output.step(self.rows, console);
        for (at, (id, symbol)) in (1..).zip(self.records(&given)) {
            let row = rows.row(&id.to_bytes(), symbol);
            row.push(b'\n');
            output.put(row)?;
            if at % ROWS_AT_A_TIME == 0 {
                bar.inc(ROWS_AT_A_TIME);
            }
        }
        output.finish()?;
        Ok(self.output.report(
            format!("{} cards of the set {}, seed {}", HumanCount(self.rows), self.set, self.seed),
            json!({ "rows": self.rows, "set": self.set.to_string(), "seed": self.seed }),
        ))
    }

    fn given(&self, schema: &Schema) -> Result<HashMap<Id<'_>, u128>, Failure> {
        let mut given = HashMap::new();
        for card in self.cards.chunks_exact(3) {
            let failure = |reason: String| Failure::Usage(format!("--card {}: {reason}", card.join(" ")));
            if card[0].contains(['\t', '\n']) {
                return Err(failure("an id with a tab or a line end cannot stand in a list".into()));
            }
            let id = Id::parse(card[0].as_bytes()).map_err(|error| failure(error.to_string()))?;
            let values = schema.fields().iter().zip(&card[1..]).map(|(field, value)| field.parse(value.as_bytes()));
            let values = values.collect::<Result<Vec<_>, _>>().and_then(|values| schema.pack(&values));
            if given.insert(id, values.map_err(|error| failure(error.to_string()))?).is_some() {
                return Err(failure("given twice".into()));
            }
        }
        if given.len() as u64 > self.rows {
            return Err(Failure::usage("there are more cards than rows"));
        }
        Ok(given)
    }

    /// The set's cards, some of which make room for those that were given, at random places.
    fn records<'a>(&'a self, given: &'a HashMap<Id<'a>, u128>) -> impl Iterator<Item = (Id<'a>, u128)> {
        let places = Shuffle::new(self.rows.into(), !self.seed);
        let cards = self.cards.chunks_exact(3).filter_map(|card| Id::parse(card[0].as_bytes()).ok());
        let mut placed: HashMap<u64, Id> =
            (0..).zip(cards).map(|(at, id): (u128, _)| (places.at(at) as u64, id)).collect();
        let mut others = self.set.records(self.rows, self.seed).filter(|(id, _)| !given.contains_key(id));
        (0..self.rows).filter_map(move |row| match placed.remove(&row) {
            Some(id) => given.get(&id).map(|&symbol| (id, symbol)),
            None => others.next(),
        })
    }
}
