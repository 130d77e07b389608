//! Cards are read in order: all of them, those of a class, those that begin alike, and page by page while they change.

mod common;

use card_table::{Class, Id, Schema, Table};
use common::spellings::{self, KINDS, Kind};
use common::{Model, assert_same, cases, id, in_order, spelt, table_of};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Cards of every kind, some close together and some far apart: enough for several blocks of a class.
fn mixed() -> Model {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut model = Model::new();
    for kind in KINDS {
        let count = if kind == Kind::Long { 30 } else { 1500 };
        for at in 0..count {
            model.insert(kind.spell(at), at % 22);
            model.insert(kind.spell(rng.u128(..)), at % 22);
        }
    }
    model.extend(spellings::extremes().into_iter().map(|spelling| (spelling, 21)));
    model
}

fn begins_with(cards: &[(Vec<u8>, u128)], prefix: &[u8]) -> Vec<(Vec<u8>, u128)> {
    cards.iter().filter(|(spelling, _)| spelling.starts_with(prefix)).cloned().collect()
}

#[test]
fn a_class_is_read_in_ascending_order() {
    let model = mixed();
    let cards = in_order(&model);
    let table = table_of(&Schema::default(), &model);
    let mut classes: Vec<Class> = (1..=38).map(Class::Digits).collect();
    classes.extend((1..=32).flat_map(|len| [Class::HexLower(len), Class::HexUpper(len)]));
    classes.extend([Class::UuidLower, Class::UuidUpper, Class::Text]);
    let mut all = 0;
    for class in classes {
        let of_class = |(spelling, _): &&(Vec<u8>, u128)| id(spelling).class() == class;
        let expected: Vec<_> = cards.iter().filter(of_class).cloned().collect();
        assert_same(&spelt(table.iter_class(class)), &expected);
        all += expected.len();
    }
    assert_eq!(all, model.len());
}

#[test]
fn an_empty_table_has_nothing_to_read() {
    let table = Table::new(Schema::default());
    assert_eq!(table.iter().count(), 0);
    assert_eq!(table.iter_class(Class::Text).count(), 0);
    assert_eq!(table.iter_class(Class::Digits(3)).count(), 0);
    assert_eq!(table.iter_prefix(b"1").count(), 0);
    assert_eq!(table.scan(Some(&id(b"1")), b"").count(), 0);
}

#[test]
fn a_prefix_is_that_of_the_spelling_in_whatever_class() {
    let twelves: Vec<Vec<u8>> = [
        "12",
        "120",
        "0012",
        "12ab",
        "12AB",
        "123e4567-e89b-12d3-a456-426614174000",
        "123E4567-E89B-12D3-A456-426614174000",
        "12 ",
        "12x",
        "1",
        "13",
        "x12",
    ]
    .map(|spelling| spelling.as_bytes().to_vec())
    .to_vec();
    let mut model = mixed();
    model.extend(twelves.iter().map(|spelling| (spelling.clone(), 7)));
    let table = table_of(&Schema::default(), &model);
    let found = spelt(table.iter_prefix(b"12"));
    let classes: std::collections::BTreeSet<_> = found.iter().map(|(spelling, _)| id(spelling).class()).collect();
    assert!(classes.len() > 10, "{classes:?}");
    assert_same(&found, &begins_with(&in_order(&model), b"12"));
}

#[test]
fn any_beginning_of_any_card_finds_what_begins_so() {
    let model = mixed();
    let cards = in_order(&model);
    let table = table_of(&Schema::default(), &model);
    let mut rng = fastrand::Rng::with_seed(2);
    let mut prefixes: Vec<Vec<u8>> = [
        &b""[..],
        b"0",
        b"00",
        b"9",
        b"a",
        b"A",
        b"f",
        b"-",
        b"12",
        b"00000000-",
        b"00000000-0000-0000-0000-000000000",
        b"000000000-",
        b"ffffffff",
        b"FFFFFFFF-FFFF",
        b"\0",
        b"\xff",
        b"\xff\xff",
        b"customer-account-number-",
        b"customer-account-number-1",
        b"no card begins so",
    ]
    .map(<[u8]>::to_vec)
    .to_vec();
    for _ in 0..120 {
        let (spelling, _) = &cards[rng.usize(..cards.len())];
        let mut prefix = spelling[..=rng.usize(..spelling.len())].to_vec();
        prefixes.push(prefix.clone());
        // One that may have no card at all.
        *prefix.last_mut().unwrap() = rng.u8(..);
        prefixes.push(prefix);
        prefixes.push(spelling.clone());
        prefixes.push([spelling.as_slice(), b"0"].concat());
    }
    for prefix in prefixes {
        assert_same(&spelt(table.iter_prefix(&prefix)), &begins_with(&cards, &prefix));
    }
}

#[test]
fn a_prefix_longer_than_any_id_finds_nothing() {
    let table = table_of(&Schema::default(), &mixed());
    assert_eq!(table.iter_prefix(&[b'x'; 5000]).count(), 0);
}

#[test]
fn a_scan_goes_on_after_an_id_that_need_not_be_there() {
    let model = mixed();
    let table = table_of(&Schema::default(), &model);
    let cards = in_order(&model);
    let mut rng = fastrand::Rng::with_seed(3);
    let mut cursors: Vec<Vec<u8>> = (0..200).map(|_| KINDS[rng.usize(..KINDS.len())].spell(rng.u128(..4000))).collect();
    cursors.extend((0..50).map(|_| cards[rng.usize(..cards.len())].0.clone()));
    cursors.extend(spellings::extremes());
    for after in cursors {
        let key = |spelling: &[u8]| (id(spelling).class(), spelling.to_vec());
        for prefix in [&b""[..], b"1", b"f", &after[..1], &after[..after.len() / 2]] {
            let expected: Vec<_> = cards
                .iter()
                .filter(|(spelling, _)| spelling.starts_with(prefix) && key(spelling) > key(&after))
                .take(20)
                .cloned()
                .collect();
            assert_same(&spelt(table.scan(Some(&id(&after)), prefix).take(20)), &expected);
        }
    }
}

/// Reads a table page by page, and lets `change` do what it likes between pages. Tells how often each card came.
fn read_in_pages(
    table: &mut Table,
    prefix: &[u8],
    page: usize,
    mut change: impl FnMut(&mut Table),
) -> BTreeMap<Vec<u8>, usize> {
    let mut times = BTreeMap::new();
    let mut after: Option<Id<'static>> = None;
    loop {
        let cards: Vec<_> = table.scan(after.as_ref(), prefix).take(page).collect();
        let Some((last, _)) = cards.last() else {
            return times;
        };
        after = Some(last.clone());
        for (id, _) in cards {
            *times.entry(id.to_bytes()).or_default() += 1;
        }
        change(table);
    }
}

#[test]
fn every_card_that_stays_is_read_once_however_the_table_changes_meanwhile() {
    for (seed, page) in [(4, 7), (5, 100), (6, 3000)] {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut model = mixed();
        let mut table = table_of(&Schema::default(), &model);
        // Every third card stays; the others may go, and new ones come.
        let stays: Vec<Vec<u8>> = model.keys().step_by(3).cloned().collect();
        let mut goes: Vec<Vec<u8>> = model.keys().filter(|key| stays.binary_search(key).is_err()).cloned().collect();
        rng.shuffle(&mut goes);
        let changes_a_page = 1 + page / 2;
        let times = read_in_pages(&mut table, b"", page, |table| {
            for _ in 0..changes_a_page {
                if let Some(gone) = goes.pop() {
                    table.remove(&id(&gone)).expect("it was there");
                    model.remove(&gone);
                }
                let kind = KINDS[rng.usize(..KINDS.len() - 1)];
                let new = kind.spell(rng.u128(..) >> rng.u32(..128));
                if stays.binary_search(&new).is_err() {
                    table.insert(&id(&new), 0);
                    model.insert(new, 0);
                }
            }
        });
        table.check().unwrap();
        assert_eq!(table.len(), model.len() as u64);
        for card in &stays {
            assert_eq!(times.get(card), Some(&1), "{}", card.escape_ascii());
        }
        assert!(times.values().all(|&times| times == 1), "no card is read twice");
    }
}

#[test]
fn a_cursor_stays_valid_when_its_card_and_its_whole_class_are_gone() {
    let model = mixed();
    let mut table = table_of(&Schema::default(), &model);
    let times = {
        let mut read: Vec<Id<'static>> = Vec::new();
        let mut after: Option<Id<'static>> = None;
        loop {
            let page: Vec<_> = table.scan(after.as_ref(), b"").take(500).map(|(id, _)| id).collect();
            // All that was read goes, so that every cursor points to a card that is no more.
            page.iter().for_each(|id| assert!(table.remove(id).is_some()));
            let Some(last) = page.last() else { break };
            after = Some(last.clone());
            read.extend(page);
        }
        read
    };
    assert!(table.is_empty());
    let read: Vec<_> = times.iter().map(Id::to_bytes).collect();
    assert_eq!(read, in_order(&model).into_iter().map(|(spelling, _)| spelling).collect::<Vec<_>>());
}

#[test]
fn pages_with_a_prefix_hold_what_begins_so() {
    let model = mixed();
    let mut table = table_of(&Schema::default(), &model);
    let cards = in_order(&model);
    for prefix in [&b"0"[..], b"customer", b"00000000-"] {
        let times = read_in_pages(&mut table, prefix, 13, |_| {});
        let mut expected: Vec<_> = begins_with(&cards, prefix).into_iter().map(|(spelling, _)| spelling).collect();
        expected.sort();
        assert!(times.values().all(|&times| times == 1));
        assert_eq!(times.into_keys().collect::<Vec<_>>(), expected);
    }
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn a_prefix_and_a_cursor_select_what_a_filter_would(
        spellings in prop::collection::vec(spellings::spelling(), 1..300),
        after in spellings::spelling(),
        cut in 0usize..40,
        from in any::<prop::sample::Index>(),
    ) {
        let model: Model = spellings.iter().map(|spelling| (spelling.clone(), 1)).collect();
        let table = table_of(&Schema::default(), &model);
        let cards = in_order(&model);
        let whole = from.get(&spellings);
        let prefix = &whole[..cut.min(whole.len())];
        assert_same(&spelt(table.iter_prefix(prefix)), &begins_with(&cards, prefix));
        let key = |spelling: &[u8]| (id(spelling).class(), spelling.to_vec());
        let mut rest = begins_with(&cards, prefix);
        rest.retain(|(spelling, _)| key(spelling) > key(&after));
        assert_same(&spelt(table.scan(Some(&id(&after)), prefix)), &rest);
    }
}
