//! Whether every answer is right: every listed card is found with its symbol, and no other is found.

use std::ops::Add;
use std::thread;

use card_table::Table;
use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::card::Card;
use crate::data::List;
use crate::report::grouped;

#[derive(Default)]
pub struct Answers {
    listed: u64,
    unlisted: u64,
    pub wrong: u64,
}

impl Add for Answers {
    type Output = Answers;

    fn add(self, other: Answers) -> Answers {
        Answers {
            listed: self.listed + other.listed,
            unlisted: self.unlisted + other.unlisted,
            wrong: self.wrong + other.wrong,
        }
    }
}

pub const HEAD: [&str; 4] = ["set", "listed cards asked", "unlisted cards asked", "wrong"];

impl Answers {
    pub fn cells(&self, name: String) -> Vec<String> {
        let figures = [self.listed, self.unlisted, self.wrong];
        std::iter::once(name).chain(figures.into_iter().map(grouped)).collect()
    }
}

/// Asks for all cards and for as many that lie between them. Leaves the list sorted.
pub fn verify<C: Card>(list: &mut List<C>, table: &Table, threads: usize) -> Answers {
    list.cards.sort_unstable();
    let list = &*list;
    let share = list.cards.len().div_ceil(threads);
    thread::scope(|scope| {
        let threads: Vec<_> = list.cards.chunks(share).map(|cards| scope.spawn(|| ask(list, cards, table))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("asking does not panic"))
            .fold(Answers::default(), Answers::add)
    })
}

fn ask<C: Card>(list: &List<C>, cards: &[C], table: &Table) -> Answers {
    let mut rng = SmallRng::seed_from_u64(cards.len() as u64);
    let mut answers = Answers::default();
    let mut ask = |card: &C, expected: Option<u128>| {
        if table.get(&card.id()) != expected {
            answers.wrong += 1;
        }
    };
    let (mut unlisted, mut owed) = (0, 0);
    for (at, card) in cards.iter().enumerate() {
        ask(card, Some(list.symbol(card)));
        // Between some cards there is no room, so more are asked for between the next two.
        owed += 1;
        let Some(next) = cards.get(at + 1) else { break };
        while owed > 0
            && let Some(neighbour) = card.unlisted_neighbour(next, &mut rng)
        {
            ask(&neighbour, None);
            owed -= 1;
            unlisted += 1;
        }
    }
    Answers { listed: cards.len() as u64, unlisted, ..answers }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::card::{Digits20, Sample};
    use crate::data::{Net, Values};
    use card_table::{Builder, Schema};

    #[test]
    fn a_missing_card_and_a_wrong_symbol_are_counted() {
        let mut list = List::new(&Net, Values::One, 1000, 1);
        let built = Builder::new(Schema::default()).table_from_records(list.records());
        let mut table = built.unwrap().result;
        assert_eq!(verify(&mut list, &table, 2).wrong, 0);
        table.remove(&list.cards[10].id());
        table.insert(&list.cards[20].id(), 0);
        assert_eq!(verify(&mut list, &table, 2).wrong, 2);
    }

    #[test]
    fn a_card_that_is_found_although_it_is_not_listed_is_counted() {
        let mut list = List::new(&Net, Values::One, 1, 1);
        let [first, between, last] = [0, 1, 2].map(|step| Digits20(list.cards[0].0 + step));
        let mut table = Table::new(Schema::default());
        [first, between, last].iter().for_each(|card| _ = table.insert(&card.id(), list.symbol(card)));
        list.cards = vec![first, last];
        assert_eq!(verify(&mut list, &table, 1).wrong, 1);
    }
}
