//! Bytes from outside are refused or they are a sound table: there is no panic, no table that breaks later, and no
//! memory for what the bytes only claim.
//!
//! Blind mutations hardly get past the digest, so most tests here mutate blocks and then write the header that belongs
//! to them. Count and digest come from the second reader in `common::format`. A table must therefore come out whenever
//! the decoder has taken the blocks, and it must hold what the second reader has read.

mod common;

use card_table::{Class, Decoder, Id, Schema, Table};
use common::format::{self, Block, Record};
use common::judge::{assert_is_a_table, records_of};
use common::spellings::Kind;
use common::{Model, encoded, id, schemas, table_of, wild};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// How many mutations are made of each table, of its bytes and of its blocks.
const MUTATIONS: usize = 7000;

/// The most memory that bytes may cause while they are read. A block of 15 bytes in the stream has 16 on the heap, 24 in
/// the directory, and while the directory grows it has them twice.
fn allowed(input: usize) -> usize {
    // What does not depend on the input: the block at hand and the one before, decoded.
    const ONE_BLOCK: usize = 1 << 20;
    8 * input + ONE_BLOCK
}

/// Counts what each thread has allocated, so that tests can run side by side.
struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    HELD.set(HELD.get() + bytes);
    PEAK.set(PEAK.get().max(HELD.get()));
}

// SAFETY: everything is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What `work` held at the most, beyond what was held before.
fn peak_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    PEAK.set(before);
    let done = work();
    (done, (PEAK.get() - before) as usize)
}

fn read(bytes: &[u8]) -> Result<Table, card_table::DecodeError> {
    let (read, peak) = peak_of(|| Table::read_from(&mut &bytes[..]));
    assert!(peak <= allowed(bytes.len()), "{peak} bytes of memory for {} bytes", bytes.len());
    read
}

/// Tables of every kind of block, each of a few hundred records.
fn tables() -> Vec<Table> {
    let mut rng = fastrand::Rng::with_seed(1);
    let [default, one_symbol, three, wide, widest] = schemas();
    let mut table = |schema: &Schema, ids: Vec<Vec<u8>>| {
        // Some symbols for most records, and all kinds for the others.
        let some = rng.u128(..schema.symbols());
        let mut symbol = || if rng.u8(..4) > 0 { some } else { rng.u128(..schema.symbols()) };
        table_of(schema, &ids.into_iter().map(|id| (id, symbol())).collect::<Model>())
    };
    let mut numbers = fastrand::Rng::with_seed(2);
    let mut spread = |kind: Kind, count: usize| (0..count).map(|_| kind.spell(numbers.u128(..))).collect::<Vec<_>>();
    let run = |kind: Kind, first: u128, step: u128, count: u128| {
        (0..count).map(|at| kind.spell(first + at * step)).collect::<Vec<_>>()
    };
    let gaps = |kind: Kind, first: u128, count: u128| {
        (0..count).filter(|at| at * at % 5 != 1).map(|at| kind.spell(first + at)).collect::<Vec<_>>()
    };
    let digits = Kind::Digits(20);
    let longest: Vec<u8> = (0..4096u32).map(|at| (at * at / 7) as u8).collect();
    vec![
        table(&default, spread(digits, 1500)),
        // Segments: without gaps, a bitmap, close together, far apart.
        table(
            &default,
            [
                run(digits, 0, 1, 50),
                gaps(digits, 1 << 30, 200),
                run(digits, 1 << 40, 9, 100),
                run(digits, 1 << 50, 1 << 33, 60),
            ]
            .concat(),
        ),
        table(&one_symbol, [gaps(Kind::HexLower(8), 0xabc0_0000, 400), run(Kind::HexUpper(4), 0xa000, 1, 60)].concat()),
        table(&wide, spread(Kind::UuidLower, 120)),
        table(
            &widest,
            [spread(Kind::Digits(38), 60), spread(Kind::HexUpper(32), 60), gaps(Kind::UuidUpper, u128::MAX - 99, 100)]
                .concat(),
        ),
        table(&default, [run(Kind::Word, 0, 7, 200), run(Kind::LongPrefix, 0, 3, 200)].concat()),
        table(&three, [spread(Kind::Binary, 120), run(Kind::Binary, 0, 1, 80)].concat()),
        table(&default, [vec![longest], (1..60).map(|len| vec![b'z'; len]).collect()].concat()),
        table(&three, common::spellings::KINDS[..19].iter().flat_map(|&kind| run(kind, 3, 2, 9)).collect()),
    ]
}

fn blocks_of(table: &Table) -> Vec<Block> {
    table.block_bytes().map(|(class, block)| (class, block.to_vec())).collect()
}

/// Hands blocks to a decoder. What it takes must be a table in every respect; tells how many blocks it took.
fn judge(schema: &Schema, blocks: Vec<Block>) -> usize {
    let mut decoder = Decoder::new(&format::header(schema, 0, 0)).unwrap();
    let size: usize = blocks.iter().map(|(_, block)| block.len()).sum();
    let (taken, peak) =
        peak_of(|| -> Vec<bool> { blocks.iter().map(|(class, block)| decoder.block(*class, block).is_ok()).collect() });
    assert!(peak <= allowed(size), "{peak} bytes of memory for {size} bytes");
    let mut taken = taken.into_iter();
    let blocks: Vec<_> = blocks.into_iter().filter(|_| taken.next() == Some(true)).collect();
    assert_is_a_table(schema, &blocks, read);
    blocks.len()
}

/// Changes bytes somewhere: bits, bytes, and ranges that are inserted, deleted, copied or overwritten.
fn mutate(bytes: &mut Vec<u8>, rng: &mut fastrand::Rng) {
    let at = rng.usize(..=bytes.len());
    let len = rng.usize(..=16).min(bytes.len() - at);
    let from = rng.usize(..=bytes.len() - len);
    match rng.u8(..7) {
        0 if at < bytes.len() => bytes[at] ^= 1 << rng.u8(..8),
        1 if at < bytes.len() => bytes[at] = rng.u8(..),
        2 if at < bytes.len() => bytes[at] = [0, 1, 127, 128, 254, 255][rng.usize(..6)],
        3 => drop(bytes.splice(at..at, (0..len).map(|_| rng.u8(..)))),
        4 => drop(bytes.drain(at..at + len)),
        5 => {
            let copied = bytes[from..from + len].to_vec();
            bytes.splice(at..at, copied);
        }
        _ => bytes.copy_within(from..from + len, at),
    }
}

/// Changes what a block's header says, by a little or to one of its ends. Then, because the length of a block follows
/// from its header, also changes the length.
fn mutate_header(block: &mut Vec<u8>, rng: &mut fastrand::Rng) {
    // The records and lengths at the very beginning matter most; segments and symbols reach further.
    let reach = [6, 9, 40, 120][rng.usize(..4)].min(block.len());
    for _ in 0..rng.usize(1..4) {
        let at = rng.usize(..reach);
        block[at] = match rng.u8(..5) {
            0 => block[at].wrapping_add(1),
            1 => block[at].wrapping_sub(1),
            2 => [0, 1, 2, 16, 56, 57, 127, 128, 255][rng.usize(..9)],
            3 => block[at] ^ 1 << rng.u8(..8),
            _ => rng.u8(..),
        };
    }
    let some = rng.usize(..4);
    match rng.u8(..4) {
        0 => block.truncate(block.len() - some.min(block.len())),
        1 => block.extend((0..some).map(|_| rng.u8(..))),
        2 => {
            let at = rng.usize(..=block.len());
            block.splice(at..at, (0..some).map(|_| 0));
        }
        _ => {}
    }
}

fn any_class(rng: &mut fastrand::Rng) -> Class {
    match rng.u8(..6) {
        0 => Class::Digits(rng.u8(1..=38)),
        1 => Class::HexLower(rng.u8(1..=32)),
        2 => Class::HexUpper(rng.u8(1..=32)),
        3 => Class::UuidLower,
        4 => Class::UuidUpper,
        _ => Class::Text,
    }
}

#[test]
fn the_second_reader_agrees_with_the_first() {
    for table in tables() {
        let blocks = blocks_of(&table);
        let records = records_of(table.schema(), &blocks);
        assert!(table.iter().eq(records.iter().cloned()));
        let header = format::header(table.schema(), records.len() as u64, format::digest(table.schema(), &records));
        assert_eq!(format::table(&header, &blocks), encoded(&table));
        assert_eq!(judge(table.schema(), blocks.clone()), blocks.len());
    }
}

#[test]
fn the_tables_here_have_every_kind_of_block() {
    let blocks: Vec<Block> = tables().iter().flat_map(blocks_of).collect();
    let numbers = || blocks.iter().filter(|(class, _)| *class != Class::Text).map(|(_, block)| block);
    assert!(numbers().any(|block| block[4] >= 3), "several segments");
    assert!(blocks.iter().any(|(class, block)| *class == Class::Digits(20) && block[15] == 255), "a bitmap");
    let texts = || blocks.iter().filter(|(class, _)| *class == Class::Text).map(|(_, block)| block);
    assert!(texts().any(|block| block[8] == 8) && texts().any(|block| block[8] == 0), "wide and narrow characters");
    assert!(texts().any(|block| block.len() > 4096), "an id as long as can be");
}

#[test]
fn a_table_that_ends_too_early_is_refused_wherever_it_ends() {
    for table in tables() {
        let bytes = encoded(&table);
        for len in 0..bytes.len() {
            assert!(read(&bytes[..len]).is_err(), "{len} of {} bytes", bytes.len());
        }
        assert!(read(&bytes).is_ok());
        assert!(read(&[bytes.as_slice(), &[0]].concat()).is_err(), "something follows");
    }
}

#[test]
fn a_block_that_ends_too_early_is_refused_wherever_it_ends() {
    for table in tables() {
        for (class, block) in blocks_of(&table) {
            for len in 0..block.len() {
                let mut decoder = Decoder::new(&table.header_bytes()).unwrap();
                assert!(decoder.block(class, &block[..len]).is_err(), "{len} of {} bytes", block.len());
            }
        }
    }
}

#[test]
fn a_header_that_lies_is_refused() {
    for table in tables() {
        let header = table.header_bytes();
        for at in header.len() - 24..header.len() {
            for bit in 0..8 {
                let mut bytes = encoded(&table);
                bytes[at] ^= 1 << bit;
                assert!(read(&bytes).is_err(), "count and digest are checked");
            }
        }
        for at in 0..header.len() - 24 {
            for bit in 0..8 {
                let mut bytes = encoded(&table);
                bytes[at] ^= 1 << bit;
                assert!(read(&bytes).is_err(), "the schema is part of the digest");
            }
        }
    }
}

#[test]
fn mutated_bytes_are_refused_or_are_the_table_itself() {
    for (seed, table) in tables().into_iter().enumerate() {
        let mut rng = fastrand::Rng::with_seed(seed as u64);
        let original = encoded(&table);
        for _ in 0..MUTATIONS {
            let mut bytes = original.clone();
            (0..rng.usize(1..4)).for_each(|_| mutate(&mut bytes, &mut rng));
            if let Ok(read) = read(&bytes) {
                read.check().unwrap();
                assert_eq!(read.digest(), table.digest(), "no other table has this digest");
            }
        }
    }
}

#[test]
fn mutated_blocks_are_refused_or_are_sound() {
    for (seed, table) in tables().into_iter().enumerate() {
        let mut rng = fastrand::Rng::with_seed(100 + seed as u64);
        let schema = table.schema();
        let blocks = blocks_of(&table);
        let mut taken = 0;
        for _ in 0..MUTATIONS {
            let (class, mut block) = blocks[rng.usize(..blocks.len())].clone();
            if rng.u8(..4) == 0 {
                mutate(&mut block, &mut rng);
            } else {
                mutate_header(&mut block, &mut rng);
            }
            let class = if rng.u8(..20) == 0 { any_class(&mut rng) } else { class };
            taken += judge(schema, vec![(class, block)]);
        }
        assert!(taken > 10, "{taken} taken: the mutations are too wild to test anything");
    }
}

#[test]
fn blocks_out_of_place_are_refused() {
    let tables = tables();
    let all: Vec<Block> = tables.iter().flat_map(blocks_of).collect();
    for (seed, table) in tables.iter().enumerate() {
        let mut rng = fastrand::Rng::with_seed(200 + seed as u64);
        for _ in 0..200 {
            let mut blocks = blocks_of(table);
            for _ in 0..rng.usize(1..4) {
                let (a, b) = (rng.usize(..blocks.len()), rng.usize(..blocks.len()));
                match rng.u8(..5) {
                    0 => blocks.swap(a, b),
                    1 => blocks.insert(a, blocks[b].clone()),
                    2 if blocks.len() > 1 => drop(blocks.remove(a)),
                    // A block of another table, whose schema may be another.
                    3 => blocks.insert(a, all[rng.usize(..all.len())].clone()),
                    _ => blocks[a].0 = any_class(&mut rng),
                }
            }
            judge(table.schema(), blocks);
        }
    }
}

/// Records of one class that ascend, close together and far apart.
fn wild_records(schema: &Schema, rng: &mut fastrand::Rng) -> Vec<Record> {
    let kind = common::spellings::KINDS[rng.usize(..19)];
    let first = rng.u128(..) >> rng.u32(..128);
    let steps = [1, 3, 1 << rng.u32(..100), 1 << rng.u32(..20)];
    let mut ids: Vec<Id> = (0..rng.u128(1..60))
        .map(|at| kind.spell(first.wrapping_add(at.wrapping_mul(steps[rng.usize(..4)]))))
        .map(|spelling| id(&spelling).into_owned())
        .collect();
    ids.sort();
    ids.dedup();
    // Hexadecimal digits without a letter are of another class.
    let class = ids[0].class();
    ids.retain(|id| id.class() == class);
    let few = rng.u128(..schema.symbols());
    let mut symbol = || if rng.bool() { few } else { rng.u128(..schema.symbols()) };
    ids.into_iter().map(|id| (id, symbol())).collect()
}

#[test]
fn blocks_that_nobody_would_write_are_read_for_what_they_say() {
    let mut rng = fastrand::Rng::with_seed(300);
    let schemas = schemas();
    let mut taken = 0;
    for _ in 0..10_000 {
        let schema = &schemas[rng.usize(..schemas.len())];
        let records = wild_records(schema, &mut rng);
        let block = wild::block(schema, &records, &mut rng);
        // Some are longer than a block may be.
        let fits = block.1.len() <= 5120;
        assert_eq!(judge(schema, vec![block.clone()]), usize::from(fits), "{records:?} {block:?}");
        assert_eq!(format::records(schema, &block), records);
        taken += usize::from(fits);
    }
    assert!(taken > 9000, "{taken} taken");
}

#[test]
fn blocks_that_nobody_would_write_are_refused_or_are_sound_when_mutated() {
    let mut rng = fastrand::Rng::with_seed(301);
    let schemas = schemas();
    let mut taken = 0;
    for _ in 0..60_000 {
        let schema = &schemas[rng.usize(..schemas.len())];
        let records = wild_records(schema, &mut rng);
        let (class, mut block) = wild::block(schema, &records, &mut rng);
        if rng.u8(..3) == 0 {
            mutate(&mut block, &mut rng);
        } else {
            mutate_header(&mut block, &mut rng);
        }
        taken += judge(schema, vec![(class, block)]);
    }
    assert!(taken > 2000, "{taken} taken: the mutations are too wild to test anything");
}

/// Bits, the lowest first, as bytes.
fn bits(fields: &[(u128, usize)]) -> Vec<u8> {
    let bits: Vec<bool> =
        fields.iter().flat_map(|&(number, width)| (0..width).map(move |bit| number >> bit & 1 == 1)).collect();
    bits.chunks(8).map(|bits| bits.iter().rev().fold(0, |byte, &bit| byte << 1 | u8::from(bit))).collect()
}

/// Two UUIDs: the second one with so many zeros in its high part, above 127 low bits.
fn two_uuids(zeros: usize) -> Vec<u8> {
    let id_bits = bits(&[(1 << zeros, zeros + 1), (5, 127)]);
    let header = [2, 0, 128 + zeros as u8, 0, 0, 0];
    [&header[..], &[0; 16], &[127], &[1, 0], &id_bits].concat()
}

#[test]
fn an_offset_beyond_the_numbers_there_are_is_refused() {
    let schema = schemas()[1].clone();
    assert_eq!(judge(&schema, vec![(Class::UuidLower, two_uuids(0))]), 1);
    assert_eq!(judge(&schema, vec![(Class::UuidLower, two_uuids(1))]), 1);
    // Shifted by 127 bits, these high parts would be cut off and look like others.
    assert_eq!(judge(&schema, vec![(Class::UuidLower, two_uuids(2))]), 0);
    assert_eq!(judge(&schema, vec![(Class::UuidLower, two_uuids(3))]), 0);
}

#[test]
fn a_list_of_symbols_ascends() {
    let three_cards = |list: [u8; 2]| [&[3, 0, 0, 0, 0, 0, 7, 255, 2][..], &list, &[0b010]].concat();
    let taken = |list| judge(&Schema::default(), vec![(Class::Digits(2), three_cards(list))]);
    assert_eq!(taken([5, 6]), 1);
    assert_eq!(taken([5, 5]), 0);
    assert_eq!(taken([6, 5]), 0);
    assert_eq!(taken([5, 21]), 1);
    assert_eq!(taken([5, 22]), 0, "the schema has 22 symbols");
}

/// The texts "x" and "xy": the second one says how much it shares with the first, and how many characters follow.
fn two_texts(shared: u128, rest: u128, more: usize) -> Vec<u8> {
    let text = bits(&[(1, 1), (b'x'.into(), 8), (shared, 2), (rest, 1), (b'y'.into(), 8), (0, more)]);
    [&[2, 0, 20 + more as u8, 0, 0, 0, 2, 1, 8][..], &[1, 0], &text].concat()
}

#[test]
fn a_text_shares_what_was_there_before() {
    let taken = |block| judge(&schemas()[1], vec![(Class::Text, block)]);
    assert_eq!(taken(two_texts(1, 1, 0)), 1);
    assert_eq!(taken(two_texts(0, 1, 0)), 1, "y alone");
    assert_eq!(taken(two_texts(2, 1, 0)), 0);
    assert_eq!(taken(two_texts(3, 1, 0)), 0);
    assert_eq!(taken(two_texts(1, 0, 0)), 0, "x twice, and bits left over");
    assert_eq!(taken(two_texts(1, 1, 1)), 0, "a bit left over");
}

#[test]
fn an_alphabet_has_no_more_characters_than_numbers() {
    let taken = |from_x: u8| {
        let mut alphabet = [0; 32];
        alphabet[usize::from(b'x') / 8] = from_x;
        // A character, then nothing shared and another one; a bit for each.
        let text = bits(&[(1, 1), (0, 1), (0, 1), (1, 1), (1, 1)]);
        let block = [&[2, 0, 5, 0, 0, 0, 1, 1, 1][..], &alphabet, &[1, 0], &text].concat();
        judge(&schemas()[1], vec![(Class::Text, block)])
    };
    assert_eq!(taken(0b011), 1, "x and y");
    assert_eq!(taken(0b111), 0, "x, y and z");
}

/// A character that is the only one takes no bits, so that a block could name thousands of long texts.
#[test]
fn texts_that_are_much_longer_than_their_block_are_refused_before_they_are_written_out() {
    let mut rng = fastrand::Rng::with_seed(400);
    let schema = schemas()[1].clone();
    // Chance may give the block more characters, which then take bits: that is no bomb, and too long.
    let mut block = |lengths: std::ops::Range<usize>| {
        let records: Vec<Record> = lengths.map(|len| (Id::Text(vec![b'z'; len].into()), 0)).collect();
        let mut blocks = std::iter::repeat_with(|| wild::block(&schema, &records, &mut rng));
        blocks.find(|(_, block)| block.len() < 5120).expect("there is no end of them")
    };
    assert_eq!(judge(&schema, vec![block(1..360)]), 1, "64,620 bytes");
    assert_eq!(judge(&schema, vec![block(1..370)]), 0, "68,265 bytes");
    for _ in 0..5 {
        assert_eq!(judge(&schema, vec![block(1600..2900)]), 0, "2.9 million bytes");
    }
}

/// A bomb: as many records as there can be, in as few bytes as there can be.
#[test]
fn small_blocks_that_decode_to_much_take_no_more_memory_than_one_of_them() {
    let schema = schemas()[1].clone();
    let dense = |run: u128| -> Vec<Block> {
        let model: Model = (0..8192).map(|at| (Kind::Digits(20).spell(run * 10_000 + at), 0)).collect();
        blocks_of(&table_of(&schema, &model))
    };
    let blocks: Vec<Block> = (0..100).flat_map(dense).collect();
    assert!(blocks.iter().map(|(_, block)| block.len()).sum::<usize>() < 4000, "8192 records in 30 bytes");
    assert_eq!(judge(&schema, blocks.clone()), blocks.len());

    let zeros = |len: usize| -> Vec<Block> {
        let model: Model = (1..17).map(|at| ([vec![b'x'; len], vec![b'y'; at]].concat(), 0)).collect();
        blocks_of(&table_of(&schema, &model))
    };
    let blocks: Vec<Block> = (1..200).rev().flat_map(|at| zeros(at * 20)).collect();
    assert_eq!(judge(&schema, blocks.clone()), blocks.len());
}

/// Many tiny blocks: here the directory is larger than what it leads to.
#[test]
fn blocks_of_one_record_take_memory_in_proportion() {
    let schema = schemas()[1].clone();
    let blocks: Vec<Block> = (0..20_000)
        .flat_map(|at| blocks_of(&table_of(&schema, &Model::from([(format!("{at:06}").into_bytes(), 0)]))))
        .collect();
    let records = records_of(&schema, &blocks);
    let header = format::header(&schema, 20_000, format::digest(&schema, &records));
    let bytes = format::table(&header, &blocks);
    let (table, peak) = peak_of(|| Table::read_from(&mut bytes.as_slice()).unwrap());
    assert!(peak < 8 * bytes.len(), "{peak} bytes of memory for {} bytes", bytes.len());
    assert_eq!(table.len(), 20_000);
    assert_eq!(table.get(&id(b"012345")), Some(0));
}

#[test]
fn lengths_that_only_claim_are_not_believed() {
    // A header that promises as many records as can be, and then a block that promises more than there is.
    for (class, len) in [(1u8, u16::MAX), (6, u16::MAX), (1, 5120), (6, 5120)] {
        let mut bytes = format::header(&Schema::default(), u64::MAX, 0);
        bytes.extend([class, if class == 1 { 20 } else { 0 }]);
        bytes.extend(len.to_le_bytes());
        bytes.extend([0xff; 10]);
        let (read, peak) = peak_of(|| Table::read_from(&mut bytes.as_slice()));
        assert!(read.is_err());
        assert!(peak < 20_000, "{peak} bytes of memory for {} bytes", bytes.len());
    }
    let mut bytes = b"CARDTABLE\x01".to_vec();
    bytes.extend([255; 100]);
    let (read, peak) = peak_of(|| Table::read_from(&mut bytes.as_slice()));
    assert!(read.is_err());
    assert!(peak < 20_000, "{peak} bytes of memory for {} bytes", bytes.len());
}
