//! Patches: changes that are prepared beside a table which goes on changing, and then put into it at once.

mod common;

use card_table::{Applied, Change, Id, Patch, Schema, Table};
use common::spellings::Kind;
use common::{Model, assert_is, id, table_of};

/// Cards that lie close to each other, of several classes, so that changes and writes often meet in one block.
fn any_card(rng: &mut fastrand::Rng, room: u64) -> Vec<u8> {
    let number = u128::from(rng.u64(..room));
    match rng.u8(..10) {
        0..6 => Kind::Digits(20).spell(number * 1_000_003),
        6..8 => Kind::Digits(9).spell(number),
        _ => Kind::LongPrefix.spell(number * 7),
    }
}

fn any_cards(rng: &mut fastrand::Rng, count: usize, room: u64) -> Model {
    (0..count).map(|_| (any_card(rng, room), rng.u128(..22))).collect()
}

fn in_order(changes: impl IntoIterator<Item = (Vec<u8>, Option<u128>)>) -> Vec<Change> {
    let changes = changes.into_iter().map(|(card, symbol)| (id(&card).into_owned(), symbol));
    let mut changes: Vec<Change> = changes.collect();
    changes.sort_by(|(a, _), (b, _)| a.cmp(b));
    changes.dedup_by(|(a, _), (b, _)| a == b);
    changes
}

fn any_changes(rng: &mut fastrand::Rng, count: usize, room: u64) -> Vec<Change> {
    in_order((0..count).map(|_| (any_card(rng, room), rng.bool().then(|| rng.u128(..22)))).collect::<Vec<_>>())
}

/// A table, its patch, and a replica that gets the patch as bytes; everything is written to both.
struct Pair {
    table: Table,
    patch: Patch,
    replica: Table,
    replica_patch: Patch,
    model: Model,
}

impl Pair {
    fn new(model: Model) -> Pair {
        let schema = Schema::default();
        let table = table_of(&schema, &model);
        Pair { replica: table.clone(), table, patch: Patch::new(&schema), replica_patch: Patch::new(&schema), model }
    }

    fn write(&mut self, card: &[u8], symbol: Option<u128>) {
        for (table, patch) in [(&mut self.table, &mut self.patch), (&mut self.replica, &mut self.replica_patch)] {
            let before = table.get(&id(card));
            match symbol {
                Some(symbol) => drop(table.insert(&id(card), symbol)),
                None => drop(table.remove(&id(card))),
            }
            patch.set(&id(card), before, symbol);
        }
        match symbol {
            Some(symbol) => self.model.insert(card.to_vec(), symbol),
            None => self.model.remove(card),
        };
    }

    /// Prepares the first of some changes, and tells how many they were.
    fn prepare(&mut self, changes: &[Change], next: Option<&Id>, blocks: usize) -> (usize, Applied) {
        let excerpt = self.table.excerpt(&self.patch, changes, next, blocks);
        let taken = excerpt.changes;
        assert!(taken > 0);
        let (piece, applied) = excerpt.apply(changes);
        self.replica_patch.append(self.replica.check_patch(&piece.to_bytes()).unwrap()).unwrap();
        self.patch.append(piece).unwrap();
        (taken, applied)
    }

    fn commit(self) -> (Table, Table) {
        let (mut table, mut replica) = (self.table, self.replica);
        table.patch(self.patch);
        replica.patch(self.replica_patch);
        (table, replica)
    }
}

fn change(model: &mut Model, (id, symbol): &Change) {
    match symbol {
        Some(symbol) => drop(model.insert(id.to_bytes(), *symbol)),
        None => drop(model.remove(&id.to_bytes())),
    }
}

#[test]
fn what_is_written_while_changes_are_prepared_is_not_lost() {
    for seed in 0..30 {
        let rng = &mut fastrand::Rng::with_seed(seed);
        let room = [500, 20_000, 1_000_000][seed as usize % 3];
        let count = rng.usize(..20_000);
        let cards = any_cards(rng, count, room);
        let count = rng.usize(1..6_000);
        let changes = any_changes(rng, count, room);
        let mut pair = Pair::new(cards);
        // What the table will be: writes made before the changes of their part of the table are overridden, later ones stay.
        let mut expected = pair.model.clone();
        let (blocks, at_once) = (rng.usize(1..40), rng.usize(1..1500));
        let mut done = 0;
        while done < changes.len() {
            let some = &changes[done..changes.len().min(done + at_once)];
            let next = changes.get(done + some.len()).map(|(id, _)| id);
            let (taken, _) = pair.prepare(some, next, blocks);
            some[..taken].iter().for_each(|one| change(&mut expected, one));
            done += taken;
            for _ in 0..rng.usize(..50) {
                // Mostly cards that changes are about, and their neighbours.
                let near = rng.choice(&changes).unwrap().0.to_bytes();
                let card = if rng.u8(..3) == 0 { any_card(rng, room) } else { near };
                let symbol = (rng.u8(..3) > 0).then(|| rng.u128(..22));
                let is_behind = changes.get(done).is_none_or(|(next, _)| id(&card) < *next);
                pair.write(&card, symbol);
                // Ahead of what is prepared, a change that comes later will have the last word.
                if is_behind || !changes[done..].iter().any(|(other, _)| *other == id(&card)) {
                    change(&mut expected, &(id(&card).into_owned(), symbol));
                }
            }
        }
        let before = pair.model.clone();
        assert_is(&pair.table, &before);
        let (table, replica) = pair.commit();
        assert_is(&table, &expected);
        assert_is(&replica, &expected);
        assert_eq!(table.digest(), replica.digest());
    }
}

#[test]
fn whole_blocks_may_be_gone_when_the_patch_comes() {
    for kept in [0, 1, 100] {
        let rng = &mut fastrand::Rng::with_seed(kept);
        let mut pair = Pair::new(any_cards(rng, 30_000, 1_000_000));
        let changes = any_changes(rng, 500, 1_000_000);
        let (taken, _) = pair.prepare(&changes, None, usize::MAX);
        assert_eq!(taken, changes.len());
        let mut expected = pair.model.clone();
        changes.iter().for_each(|one| change(&mut expected, one));
        let all: Vec<_> = pair.model.keys().cloned().collect();
        for card in all.iter().skip(kept as usize) {
            pair.write(card, None);
            expected.remove(card);
        }
        let (table, replica) = pair.commit();
        assert_is(&table, &expected);
        assert_is(&replica, &expected);
    }
}

#[test]
fn a_patch_knows_what_it_holds() {
    let rng = &mut fastrand::Rng::with_seed(1);
    let mut pair = Pair::new(any_cards(rng, 30_000, 1_000_000));
    assert_eq!(pair.patch.heap_bytes(), 0);
    let changes = any_changes(rng, 2_000, 1_000_000);
    pair.prepare(&changes, None, usize::MAX);
    assert!(pair.patch.spans() > 20);
    let bytes: usize = pair.patch.pieces(10_000).map(|piece| piece.len()).sum();
    assert!(pair.patch.heap_bytes() > bytes && pair.patch.heap_bytes() < 2 * bytes);
    for (id, _) in &changes {
        pair.write(&id.to_bytes(), None);
    }
    let now: usize = pair.patch.pieces(10_000).map(|piece| piece.len()).sum();
    assert!(pair.patch.heap_bytes() > now && pair.patch.heap_bytes() < 2 * now);
}

#[test]
fn pieces_of_any_size_are_the_patch() {
    let rng = &mut fastrand::Rng::with_seed(2);
    let mut pair = Pair::new(any_cards(rng, 30_000, 1_000_000));
    pair.prepare(&any_changes(rng, 2_000, 1_000_000), None, usize::MAX);
    for bytes in [1, 5_000, 100_000, usize::MAX] {
        let mut again = Patch::new(&Schema::default());
        for piece in pair.patch.pieces(bytes) {
            again.append(pair.table.check_patch(&piece).unwrap()).unwrap();
        }
        assert_eq!(again.to_bytes(), pair.patch.to_bytes());
        let mut table = pair.table.clone();
        table.patch(again);
        table.check().unwrap();
    }
}

#[test]
fn changes_that_change_nothing_leave_no_span() {
    let rng = &mut fastrand::Rng::with_seed(3);
    let mut pair = Pair::new(any_cards(rng, 10_000, 1_000_000));
    let same = pair.model.iter().step_by(50).map(|(card, symbol)| (card.clone(), Some(*symbol)));
    let absent = [Kind::Digits(20).spell(17), Kind::Digits(7).spell(5)].map(|card| (card, None));
    let changes = in_order(same.chain(absent));
    let (taken, applied) = pair.prepare(&changes, None, usize::MAX);
    assert_eq!(
        (taken as u64, applied),
        (applied.unchanged, Applied { unchanged: applied.unchanged, ..Applied::default() })
    );
    assert_eq!(pair.patch.spans(), 0);
    assert!(pair.patch.to_bytes().is_empty());
}

#[test]
fn mutated_patches_are_refused_or_are_sound() {
    let rng = &mut fastrand::Rng::with_seed(4);
    let table = table_of(&Schema::default(), &any_cards(rng, 3_000, 100_000));
    let changes = any_changes(rng, 60, 100_000);
    let bytes = table.excerpt(&Patch::new(&Schema::default()), &changes, None, usize::MAX).apply(&changes).0.to_bytes();
    let mut accepted = 0;
    for _ in 0..20_000 {
        let mut mutated = bytes.clone();
        for _ in 0..rng.usize(1..4) {
            let at = rng.usize(..mutated.len());
            match rng.u8(..4) {
                0 => mutated[at] ^= 1 << rng.u8(..8),
                1 => mutated[at] = rng.u8(..),
                2 => drop(mutated.splice(at..at, [rng.u8(..)])),
                _ => mutated.truncate(at.max(1)),
            }
        }
        if let Ok(patch) = table.check_patch(&mutated) {
            accepted += 1;
            let mut table = table.clone();
            table.patch(patch);
            table.check().unwrap();
        }
    }
    assert!((1..10_000).contains(&accepted), "{accepted}");
}

#[test]
fn every_cut_of_a_patch_is_refused_or_whole_spans() {
    let rng = &mut fastrand::Rng::with_seed(5);
    let table = table_of(&Schema::default(), &any_cards(rng, 3_000, 100_000));
    let changes = any_changes(rng, 20, 100_000);
    let patch = table.excerpt(&Patch::new(&Schema::default()), &changes, None, usize::MAX).apply(&changes).0;
    let bytes = patch.to_bytes();
    let ends: Vec<usize> = patch
        .pieces(1)
        .scan(0, |end, piece| {
            Some({
                *end += piece.len();
                *end
            })
        })
        .collect();
    for len in 0..bytes.len() {
        assert_eq!(table.check_patch(&bytes[..len]).is_ok(), len == 0 || ends.contains(&len), "{len} bytes");
    }
}

#[test]
fn spans_out_of_order_are_refused() {
    let rng = &mut fastrand::Rng::with_seed(6);
    let table = table_of(&Schema::default(), &any_cards(rng, 20_000, 1_000_000));
    let changes = any_changes(rng, 300, 1_000_000);
    let patch = table.excerpt(&Patch::new(&Schema::default()), &changes, None, usize::MAX).apply(&changes).0;
    let pieces: Vec<_> = patch.pieces(1).collect();
    assert!(pieces.len() > 8);
    for (at, piece) in pieces.iter().enumerate() {
        for before in &pieces[at..] {
            assert!(table.check_patch(&[before.as_slice(), piece].concat()).is_err());
            let mut patch = table.check_patch(before).unwrap();
            assert!(patch.append(table.check_patch(piece).unwrap()).is_err());
            // What was refused has left no trace.
            assert_eq!(patch.to_bytes(), *before);
        }
    }
}
