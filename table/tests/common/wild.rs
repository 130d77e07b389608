//! An encoder that leaves every choice to chance. What it writes is a block by the format's rules, but not one that the
//! crate itself would write: segments cut anywhere, widths too wide, bits that say nothing, symbols that do not occur.

use card_table::{Class, Id, Schema};

use super::format::{self, Block, Record};

/// No part of a block is longer, in bits.
const MAX_BITS: u128 = 3000;

#[derive(Default)]
struct Bits(Vec<bool>);

impl Bits {
    fn put(&mut self, number: u128, width: usize) {
        self.0.extend((0..width).map(|bit| number >> bit & 1 == 1));
    }

    fn put_unary(&mut self, zeros: u128) {
        self.0.extend((0..zeros).map(|_| false).chain([true]));
    }

    fn bytes(&self) -> Vec<u8> {
        let byte = |bits: &[bool]| bits.iter().rev().fold(0, |byte, &bit| byte << 1 | u8::from(bit));
        self.0.chunks(8).map(byte).collect()
    }
}

/// A block of records of one class that ascend.
pub fn block(schema: &Schema, records: &[Record], rng: &mut fastrand::Rng) -> Block {
    let class = records[0].0.class();
    let symbols: Vec<u128> = records.iter().map(|(_, symbol)| *symbol).collect();
    let (mut bytes, between) = match class {
        Class::Text => texts(records, rng),
        _ => numbers(class, records, rng),
    };
    let (header, words) = symbol_column(schema, &symbols, rng);
    bytes.extend(header);
    bytes.extend(between);
    bytes.extend(words);
    (class, bytes)
}

/// What comes before the header of the symbols, and what comes after it.
type Halves = (Vec<u8>, Vec<u8>);

fn numbers(class: Class, records: &[Record], rng: &mut fastrand::Rng) -> Halves {
    let ids: Vec<u128> = records
        .iter()
        .map(|(id, _)| match id {
            Id::Number(_, number) => *number,
            Id::Text(_) => unreachable!("a block has one class"),
        })
        .collect();
    let mut cuts: Vec<usize> = (0..rng.usize(..4)).map(|_| rng.usize(..ids.len())).chain([0]).collect();
    // What is too far apart to be in a segment is cut too.
    cuts.extend((1..ids.len()).filter(|&at| ids[at] - ids[at - 1] > 1 << 100));
    cuts.sort_unstable();
    cuts.dedup();

    let start = |at: usize| ids[at] - ids[0];
    let start_bytes = rng.usize(format::bit_length(start(cuts[cuts.len() - 1])).div_ceil(8)..=16);
    let mut bits = Bits::default();
    let mut headers = Vec::new();
    for (at, &begin) in cuts.iter().enumerate() {
        let end = cuts.get(at + 1).copied().unwrap_or(ids.len());
        if at > 0 {
            headers.extend(&start(begin).to_le_bytes()[..start_bytes]);
            headers.extend([begin as u16, bits.0.len() as u16].map(u16::to_le_bytes).concat());
        }
        headers.push(segment(&ids[begin..end], &mut bits, rng));
    }

    let mut bytes = [ids.len() as u16, bits.0.len() as u16].map(u16::to_le_bytes).concat();
    bytes.extend([cuts.len() as u8 - 1, start_bytes as u8]);
    bytes.extend(&ids[0].to_le_bytes()[..format::id_bytes(class)]);
    bytes.extend(headers);
    (bytes, bits.bytes())
}

/// Writes a segment in any of the ways there are, and tells its low width.
fn segment(ids: &[u128], bits: &mut Bits, rng: &mut fastrand::Rng) -> u8 {
    let offsets: Vec<u128> = ids[1..].iter().map(|id| id - ids[0] - 1).collect();
    let last = offsets.last().copied().unwrap_or(0);
    let gapless = offsets.is_empty() || last == offsets.len() as u128 - 1;
    if gapless && rng.bool() {
        return 255;
    }
    let more_zeros = rng.usize(..5);
    if last < MAX_BITS && !offsets.is_empty() && rng.bool() {
        let mut next = 0;
        for offset in offsets {
            bits.put_unary(offset - next);
            next = offset + 1;
        }
        bits.put(0, more_zeros);
        return 255;
    }
    let narrowest = (0..128).find(|&width| last >> width < MAX_BITS).expect("some width");
    let width = (narrowest + rng.usize(..4)).min(127);
    let mut high = 0;
    for offset in &offsets {
        bits.put_unary((offset >> width) - high);
        high = offset >> width;
    }
    bits.put(0, more_zeros);
    offsets.iter().for_each(|&offset| bits.put(offset, width));
    width as u8
}

fn texts(records: &[Record], rng: &mut fastrand::Rng) -> Halves {
    let ids: Vec<Vec<u8>> = records.iter().map(|(id, _)| id.to_bytes()).collect();
    let shared = |a: &[u8], b: &[u8]| a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let common = rng.usize(..=shared(&ids[0], &ids[ids.len() - 1]));

    // What is stored of each id, and how much it shares with the one before.
    let mut parts: Vec<(Option<usize>, &[u8])> = Vec::new();
    for (rank, id) in ids.iter().enumerate() {
        if rank % format::GROUP == 0 {
            parts.push((None, &id[common..]));
        } else {
            let shares = rng.usize(common..=shared(&ids[rank - 1], id));
            parts.push((Some(shares - common), &id[shares..]));
        }
    }
    let longest = |lengths: &mut dyn Iterator<Item = usize>| format::bit_length(lengths.max().unwrap_or(0) as u128);
    let shared_width = longest(&mut parts.iter().filter_map(|(shares, _)| *shares)) + rng.usize(..2);
    let rest_width = longest(&mut parts.iter().map(|(_, rest)| rest.len())) + rng.usize(..2);
    let mut alphabet: Vec<u8> = parts.iter().flat_map(|(_, rest)| rest.iter().copied()).collect();
    alphabet.extend((0..rng.usize(..5)).map(|_| rng.u8(..)));
    alphabet.sort_unstable();
    alphabet.dedup();
    let width = (format::bit_length(alphabet.len().saturating_sub(1) as u128) + rng.usize(..2)).min(8);

    let mut bits = Bits::default();
    let mut groups = Vec::new();
    for (rank, (shares, rest)) in parts.iter().enumerate() {
        if rank % format::GROUP == 0 && rank > 0 {
            groups.extend((bits.0.len() as u16).to_le_bytes());
        }
        if let Some(shares) = shares {
            bits.put(*shares as u128, shared_width);
        }
        bits.put(rest.len() as u128, rest_width);
        for byte in *rest {
            let number = alphabet.binary_search(byte).expect("every character is in the alphabet");
            bits.put(if width < 8 { number as u128 } else { (*byte).into() }, width);
        }
    }
    let mut bytes = [ids.len() as u16, bits.0.len() as u16, common as u16].map(u16::to_le_bytes).concat();
    bytes.extend([shared_width as u8, rest_width as u8, width as u8]);
    if width < 8 {
        let mut used = [0; 32];
        alphabet.iter().for_each(|&byte| used[usize::from(byte) / 8] |= 1 << (byte % 8));
        bytes.extend(used);
    }
    bytes.extend(&ids[0][..common]);
    groups.extend(bits.bytes());
    (bytes, groups)
}

/// The symbols' header and words: a list with some that do not occur, or a span that is wider than it need be.
fn symbol_column(schema: &Schema, symbols: &[u128], rng: &mut fastrand::Rng) -> Halves {
    let bytes = format::symbol_bytes(schema.symbols());
    let mut list = symbols.to_vec();
    list.extend((0..rng.usize(..3)).map(|_| rng.u128(..schema.symbols())));
    list.sort_unstable();
    list.dedup();
    let mut header = Vec::new();
    let numbers: Vec<u128>;
    let radix;
    if list.len() < 256 && rng.bool() {
        header.push(list.len() as u8);
        list.iter().for_each(|symbol| header.extend(&symbol.to_le_bytes()[..bytes]));
        radix = list.len() as u128;
        numbers = symbols.iter().map(|symbol| list.binary_search(symbol).expect("listed") as u128).collect();
    } else {
        let (lowest, highest) = (list[0], list[list.len() - 1]);
        header.push(0);
        header.extend(&lowest.to_le_bytes()[..bytes]);
        header.extend(&(highest - lowest).to_le_bytes()[..bytes]);
        radix = highest - lowest + 1;
        numbers = symbols.iter().map(|symbol| symbol - lowest).collect();
    }
    let (a_word, width) = format::packing(radix);
    let mut words = Bits::default();
    for numbers in numbers.chunks(a_word) {
        words.put(numbers.iter().rev().fold(0, |word, number| word * radix + number), width);
    }
    (header, words.bytes())
}
