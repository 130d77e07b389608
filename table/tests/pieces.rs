//! A table in pieces: copied, framed for a container that divides what it holds, and moved about in memory block by block.

mod common;

use card_table::{Decoder, Schema, Table};
use common::spellings::Kind;
use common::{Model, assert_is, table_of};

/// Numbers and texts over many blocks.
fn cards() -> Model {
    let mut rng = fastrand::Rng::with_seed(7);
    let digits = (0..50_000).map(|_| Kind::Digits(20).spell(rng.u64(..).into())).collect::<Vec<_>>();
    let texts = (0..5_000).map(|_| Kind::LongPrefix.spell(rng.u128(..))).collect::<Vec<_>>();
    digits.into_iter().chain(texts).enumerate().map(|(at, spelling)| (spelling, at as u128 % 22)).collect()
}

fn decoded(header: &[u8], pieces: impl Iterator<Item = Vec<u8>>) -> Table {
    let mut decoder = Decoder::new(header).unwrap();
    pieces.for_each(|frames| decoder.frames(&frames).unwrap());
    decoder.finish().unwrap()
}

#[test]
fn a_copy_is_a_table_of_its_own() {
    let mut model = cards();
    let mut table = table_of(&Schema::default(), &model);
    let copy = table.clone();
    assert_is(&copy, &model);

    let before = model.clone();
    for spelling in before.keys().step_by(3) {
        table.remove(&common::id(spelling));
        model.remove(spelling);
    }
    assert_is(&table, &model);
    assert_is(&copy, &before);
    assert_is(&table.clone(), &model);
}

#[test]
fn frames_of_any_size_are_the_table() {
    let model = cards();
    let table = table_of(&Schema::default(), &model);
    let longest = table.block_bytes().map(|(_, block)| block.len() + 4).max().unwrap();
    for bytes in [1, longest, 10_000, 1 << 20, usize::MAX >> 40] {
        assert!(table.frames(bytes).all(|frames| frames.len() <= bytes.max(longest)));
        assert_is(&decoded(&table.header_bytes(), table.frames(bytes)), &model);
    }
    assert_eq!(Table::new(Schema::default()).frames(1000).count(), 0);
}

#[test]
fn a_decoder_can_be_copied_half_way() {
    let model = cards();
    let table = table_of(&Schema::default(), &model);
    let pieces: Vec<_> = table.frames(20_000).collect();
    let mut decoder = Decoder::new(&table.header_bytes()).unwrap();
    for (at, frames) in pieces.iter().enumerate() {
        let header = decoder.header_bytes();
        assert_eq!(header, table.header_bytes());
        // Its frames so far and the others make the whole.
        let so_far = decoder.table().frames(9_000).collect::<Vec<_>>().into_iter();
        assert_is(&decoded(&header, so_far.chain(pieces[at..].iter().cloned())), &model);
        assert!(decoder.clone().finish().is_err(), "{at} of {} pieces are not the table", pieces.len());
        decoder = decoder.clone();
        decoder.frames(frames).unwrap();
    }
    assert_is(&decoder.finish().unwrap(), &model);
}

#[test]
fn a_table_can_be_moved_in_pieces() {
    let model = cards();
    for bytes in [1, 20_000, 1 << 30] {
        let table = table_of(&Schema::default(), &model);
        let [mut moved, mut sent] = [(), ()].map(|()| Decoder::new(&table.header_bytes()).unwrap());
        for piece in table.into_pieces(bytes) {
            sent.frames(&piece.to_bytes()).unwrap();
            moved.take(piece).unwrap();
        }
        assert_is(&moved.finish().unwrap(), &model);
        assert_is(&sent.finish().unwrap(), &model);
    }
    assert_eq!(Table::new(Schema::default()).into_pieces(1000).count(), 0);
}

#[test]
fn frames_that_are_cut_are_refused() {
    let table = table_of(&Schema::default(), &cards());
    let frames = table.frames(9_000).next().unwrap();
    for len in 0..frames.len() {
        let mut decoder = Decoder::new(&table.header_bytes()).unwrap();
        let whole = decoder.frames(&frames[..len]).is_ok();
        let taken: usize = decoder.table().frames(1).map(|frame| frame.len()).sum();
        assert_eq!(whole, taken == len, "{len} bytes");
    }
}

#[test]
fn blocks_can_be_moved_step_by_step() {
    let model = cards();
    let mut table = table_of(&Schema::default(), &model);
    for step in [1, 7, 1000] {
        let (mut at, mut steps, mut moved) = (Some(0), 0, 0);
        while let Some(from) = at {
            let mut left = step;
            let enough = || {
                left -= 1;
                left < 0
            };
            let relocate = |block: Box<[u8]>| {
                moved += 1;
                block.to_vec().into_boxed_slice()
            };
            at = table.relocate_blocks(from, relocate, enough);
            steps += 1;
        }
        assert_eq!(moved, table.blocks());
        assert_eq!(steps, table.blocks().div_ceil(step as usize));
        assert_is(&table, &model);
    }
    // A cursor from a time when there were more blocks.
    assert_eq!(table.relocate_blocks(table.blocks() + 5, |block| block, || false), None);
}
