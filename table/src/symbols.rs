//! The column of symbols in a block: one small number a record, at close to log2 of how many different ones there are.
//!
//! A block pays only for the symbols it uses. They are numbered either from the block's lowest symbol up (*span*) or by
//! their place in a list of those that occur (*list*), whichever is shorter; the numbers, all below some *radix*, are
//! then packed several into a word. With radix 20 three numbers make 20³ = 8000 < 2¹³: 4.33 bits each, where log2 20
//! is 4.32. A block with one symbol stores it once.
//!
//! ```text
//! header   list length u8, then   0: lowest symbol, radix - 1     n: n symbols, ascending
//! words    ceil(records / numbers a word) words of equal width
//! ```

use crate::bits::{self, BitWriter};
use crate::corrupt::{Corrupt, ensure};

/// The longest list of symbols; its length is one byte.
const MAX_LIST: usize = 255;

/// Radices up to this are packed several to a word; beyond, a number of its own width wastes less than a tenth.
const MAX_PACKED_RADIX: usize = 1024;

/// Numbers below a radix: how many of them go into a word, and how wide a word is.
#[derive(Clone, Copy)]
pub(crate) struct Packing {
    radix: u128,
    numbers: u32,
    width: u32,
}

/// For each radix, how many numbers go into a word, and how wide it is.
static WORDS: [(u8, u8); MAX_PACKED_RADIX + 1] = {
    let mut words = [(1, 0); MAX_PACKED_RADIX + 1];
    let mut radix = 2;
    while radix <= MAX_PACKED_RADIX {
        words[radix] = best_word(radix as u64);
        radix += 1;
    }
    words
};

/// The word with the fewest bits a number, among those of at most 32 bits.
const fn best_word(radix: u64) -> (u8, u8) {
    let mut best = (1, 32);
    let (mut numbers, mut values) = (1, radix);
    while values <= 1 << 32 {
        let width = (values - 1).ilog2() + 1;
        if width * best.0 < best.1 * numbers {
            best = (numbers, width);
        }
        numbers += 1;
        values *= radix;
    }
    (best.0 as u8, best.1 as u8)
}

impl Packing {
    #[inline]
    fn of(radix: u128) -> Packing {
        let (numbers, width) = match WORDS.get(usize::try_from(radix).unwrap_or(usize::MAX)) {
            Some(&(numbers, width)) => (numbers.into(), width.into()),
            None => (1, bits::width(radix - 1)),
        };
        Packing { radix, numbers, width }
    }

    fn bits(self, records: usize) -> usize {
        records.div_ceil(self.numbers as usize) * self.width as usize
    }

    /// What a number counts at a place in its word.
    fn weight(self, place: usize) -> u64 {
        (self.radix as u64).pow(place as u32)
    }

    /// Replaces the number at `rank`.
    pub fn set(self, words: &mut [u8], rank: usize, number: u128) {
        let (at, place) = (rank / self.numbers as usize * self.width as usize, rank % self.numbers as usize);
        if self.numbers == 1 {
            bits::set(words, at, self.width, number);
            return;
        }
        let (word, radix, weight) = (bits::get_short(words, at, self.width), self.radix as u64, self.weight(place));
        let old = word / weight % radix;
        bits::set(words, at, self.width, (word - old * weight + number as u64 * weight).into());
    }
}

/// The symbols that occur so far in what is to become a block.
#[derive(Default, Clone)]
pub(crate) struct Seen {
    lowest: u128,
    highest: u128,
    /// Which of the symbols below 128 occur: all there are, for most schemas.
    small: u128,
    /// The others, ascending, until there are too many for a list.
    large: Vec<u128>,
    too_many: bool,
    any: bool,
}

impl Seen {
    #[inline]
    pub fn add(&mut self, symbol: u128) {
        if !self.any {
            (self.lowest, self.highest, self.any) = (symbol, symbol, true);
        }
        self.lowest = self.lowest.min(symbol);
        self.highest = self.highest.max(symbol);
        if symbol < 128 {
            self.small |= 1 << symbol;
        } else if !self.too_many {
            self.add_large(symbol);
        }
    }

    fn add_large(&mut self, symbol: u128) {
        if let Err(at) = self.large.binary_search(&symbol) {
            self.large.insert(at, symbol);
            if self.large.len() > MAX_LIST {
                self.too_many = true;
                self.large.clear();
            }
        }
    }

    fn count(&self) -> usize {
        self.small.count_ones() as usize + self.large.len()
    }

    fn list(&self) -> impl Iterator<Item = u128> {
        (0..128).filter(|symbol| self.small >> symbol & 1 == 1).chain(self.large.iter().copied())
    }

    fn span(&self) -> u128 {
        // If every 128-bit number could occur, one less does as well: each takes 128 bits either way.
        (self.highest - self.lowest).saturating_add(1)
    }

    /// Whether a list of the symbols is shorter than numbering them from the lowest, for so many records.
    fn prefers_list(&self, symbol_bytes: usize, records: usize) -> bool {
        let count = self.count();
        !self.too_many
            && count <= MAX_LIST
            && 8 * count * symbol_bytes + Packing::of(count as u128).bits(records)
                < 8 * 2 * symbol_bytes + Packing::of(self.span()).bits(records)
    }

    /// The bytes that so many records with these symbols take, header and words.
    pub fn bytes(&self, symbol_bytes: usize, records: usize) -> usize {
        if self.prefers_list(symbol_bytes, records) {
            1 + self.count() * symbol_bytes + Packing::of(self.count() as u128).bits(records).div_ceil(8)
        } else {
            1 + 2 * symbol_bytes + Packing::of(self.span()).bits(records).div_ceil(8)
        }
    }

    pub fn write_header(&self, symbol_bytes: usize, records: usize, out: &mut Vec<u8>) {
        if self.prefers_list(symbol_bytes, records) {
            out.push(self.count() as u8);
            self.list().for_each(|symbol| bits::put_bytes(out, symbol, symbol_bytes));
        } else {
            out.push(0);
            bits::put_bytes(out, self.lowest, symbol_bytes);
            bits::put_bytes(out, self.span() - 1, symbol_bytes);
        }
    }

    pub fn write_words(&self, symbol_bytes: usize, symbols: &[u128], out: &mut Vec<u8>) {
        let mut writer = BitWriter::new(out);
        if self.prefers_list(symbol_bytes, symbols.len()) {
            let list: Vec<u128> = self.list().collect();
            let place = |symbol: &u128| list.binary_search(symbol).expect("seen") as u128;
            write_words(list.len() as u128, symbols.iter().map(place), &mut writer);
        } else {
            write_words(self.span(), symbols.iter().map(|symbol| symbol - self.lowest), &mut writer);
        }
        writer.finish();
    }
}

fn write_words(radix: u128, mut numbers: impl Iterator<Item = u128>, writer: &mut BitWriter) {
    let packing = Packing::of(radix);
    if packing.width == 0 {
        return;
    }
    if packing.numbers == 1 {
        numbers.for_each(|number| writer.put(number, packing.width));
        return;
    }
    let radix = radix as u64;
    while let Some(first) = numbers.next() {
        let (mut word, mut weight) = (first as u64, 1);
        for number in numbers.by_ref().take(packing.numbers as usize - 1) {
            weight *= radix;
            word += number as u64 * weight;
        }
        writer.put_short(word, packing.width);
    }
}

/// Division of 32-bit numbers by the same divisor over and over, as a multiplication.
struct Division {
    divisor: u64,
    reciprocal: u64,
}

impl Division {
    fn by(divisor: u64) -> Division {
        // Rounded up, this is exact for all numerators and divisors below 2^32; a divisor of 1 does not occur.
        Division { divisor, reciprocal: u64::MAX / divisor + 1 }
    }

    /// Quotient and remainder.
    #[inline]
    fn divide(&self, number: u64) -> (u64, u64) {
        let quotient = ((u128::from(number) * u128::from(self.reciprocal)) >> 64) as u64;
        (quotient, number - quotient * self.divisor)
    }
}

/// How a block's symbols are numbered, read from its header.
#[derive(Clone, Copy)]
pub(crate) struct Symbols<'a> {
    list: &'a [u8],
    symbol_bytes: usize,
    lowest: u128,
    packing: Packing,
}

impl<'a> Symbols<'a> {
    /// Reads the header at the start of `bytes` and tells how long it is.
    #[inline]
    pub fn open(bytes: &'a [u8], symbol_bytes: usize) -> (Symbols<'a>, usize) {
        let count = usize::from(bytes.first().copied().unwrap_or(0));
        if count == 0 {
            let lowest = bits::get_bytes(bytes, 1, symbol_bytes);
            // Saturates only in a damaged block, which the check below refuses.
            let radix = bits::get_bytes(bytes, 1 + symbol_bytes, symbol_bytes).saturating_add(1);
            (Symbols { list: &[], symbol_bytes, lowest, packing: Packing::of(radix) }, 1 + 2 * symbol_bytes)
        } else {
            let len = count * symbol_bytes;
            let list = bytes.get(1..1 + len).unwrap_or_default();
            let radix = count as u128;
            (Symbols { list, symbol_bytes, lowest: 0, packing: Packing::of(radix) }, 1 + len)
        }
    }

    /// The bytes that the words of so many records take.
    pub fn words_len(&self, records: usize) -> usize {
        self.packing.bits(records).div_ceil(8)
    }

    pub fn packing(&self) -> Packing {
        self.packing
    }

    /// How a symbol is numbered, if it is.
    pub fn number(&self, symbol: u128) -> Option<u128> {
        if self.list.is_empty() {
            symbol.checked_sub(self.lowest).filter(|&number| number < self.packing.radix)
        } else {
            (0..self.packing.radix).find(|&number| self.symbol(number) == symbol)
        }
    }

    /// Appends the words of so many records with one more at `rank`.
    pub fn insert(&self, words: &[u8], records: usize, rank: usize, number: u128, out: &mut Vec<u8>) {
        let Packing { numbers, width, radix } = self.packing;
        let mut writer = BitWriter::new(out);
        let (word, place) = (rank / numbers as usize, rank % numbers as usize);
        let mut at = word * width as usize;
        writer.copy(words, 0, at);
        if numbers == 1 {
            writer.put(number, width);
            writer.copy(words, at, records * width as usize);
        } else {
            // The numbers beyond move up by one place, the last of a word into the next word.
            let top = Division::by(self.packing.weight(numbers as usize - 1));
            let radix = radix as u64;
            let weight = self.packing.weight(place);
            let end = self.packing.bits(records);
            let first = if at < end { bits::get_short(words, at, width) } else { 0 };
            let below = first % weight;
            let (mut carry, rest) = top.divide(first - below);
            writer.put_short(below + number as u64 * weight + rest * radix, width);
            at += width as usize;
            while at < end {
                let (next, rest) = top.divide(bits::get_short(words, at, width));
                writer.put_short(carry + rest * radix, width);
                carry = next;
                at += width as usize;
            }
            if records.is_multiple_of(numbers as usize) && place + word * (numbers as usize) < records {
                writer.put_short(carry, width);
            }
        }
        writer.finish();
    }

    /// The symbol of the record at `rank`.
    #[inline]
    pub fn get(&self, words: &[u8], rank: usize) -> u128 {
        let Packing { numbers, width, .. } = self.packing;
        let number = if width == 0 {
            0
        } else if numbers == 1 {
            bits::get(words, rank * width as usize, width)
        } else {
            let (word, place) = (rank / numbers as usize, rank % numbers as usize);
            // At most 32 bits wide, and division of 32 bits is the quicker one.
            let radix = self.packing.radix as u32;
            let word = bits::get_short(words, word * width as usize, width) as u32;
            ((0..place).fold(word, |word, _| word / radix) % radix).into()
        };
        self.symbol(number)
    }

    /// All symbols, in the records' order.
    pub fn decode(&self, words: &[u8], records: usize, out: &mut Vec<u128>) {
        let Packing { numbers, width, .. } = self.packing;
        out.reserve(records);
        if numbers == 1 {
            out.extend((0..records).map(|rank| self.get(words, rank)));
            return;
        }
        let radix = self.packing.radix as u32;
        let (mut left, mut at) = (records, 0);
        while left > 0 {
            let mut word = bits::get_short(words, at, width) as u32;
            at += width as usize;
            for _ in 0..left.min(numbers as usize) {
                out.push(self.symbol((word % radix).into()));
                word /= radix;
                left -= 1;
            }
        }
    }

    #[inline]
    fn symbol(&self, number: u128) -> u128 {
        if self.list.is_empty() {
            self.lowest + number
        } else {
            bits::get_bytes(self.list, number as usize * self.symbol_bytes, self.symbol_bytes)
        }
    }

    /// Whether every symbol that the header and the words name is at most `highest`.
    pub fn check(&self, words: &[u8], records: usize, highest: u128) -> Result<(), Corrupt> {
        if self.list.is_empty() {
            let last = self.lowest.checked_add(self.packing.radix - 1);
            ensure(last.is_some_and(|last| last <= highest), "symbols are in the schema's range")?;
        } else {
            let symbols = || (0..self.packing.radix).map(|number| self.symbol(number));
            ensure(symbols().zip(symbols().skip(1)).all(|(a, b)| a < b), "listed symbols ascend")?;
            ensure(symbols().all(|symbol| symbol <= highest), "symbols are in the schema's range")?;
        }
        let Packing { numbers, width, .. } = self.packing;
        let words = (0..records.div_ceil(numbers as usize)).map(|word| bits::get(words, word * width as usize, width));
        let full_word = self.packing.radix.saturating_pow(numbers);
        for (at, word) in words.enumerate() {
            let here = (records - at * numbers as usize).min(numbers as usize);
            let limit = if here == numbers as usize { full_word } else { self.packing.radix.pow(here as u32) };
            ensure(word < limit, "a word holds numbers below the radix")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn round_trip(symbols: &[u128], symbol_bytes: usize, highest: u128) -> usize {
        let mut seen = Seen::default();
        symbols.iter().for_each(|&symbol| seen.add(symbol));
        let mut bytes = Vec::new();
        seen.write_header(symbol_bytes, symbols.len(), &mut bytes);
        let header_len = bytes.len();
        seen.write_words(symbol_bytes, symbols, &mut bytes);
        assert_eq!(bytes.len(), seen.bytes(symbol_bytes, symbols.len()));

        let (read, len) = Symbols::open(&bytes, symbol_bytes);
        assert_eq!(len, header_len);
        let words = &bytes[len..];
        assert_eq!(read.words_len(symbols.len()), words.len());
        read.check(words, symbols.len(), highest).unwrap();
        let mut decoded = Vec::new();
        read.decode(words, symbols.len(), &mut decoded);
        assert_eq!(decoded, symbols);
        for (rank, &symbol) in symbols.iter().enumerate() {
            assert_eq!(read.get(words, rank), symbol);
        }
        bytes.len()
    }

    #[test]
    fn twenty_symbols_take_four_and_a_third_bits() {
        let symbols: Vec<u128> = (0..900).map(|i| i * 7 % 20).collect();
        assert_eq!(round_trip(&symbols, 1, 22), 3 + (300 * 13usize).div_ceil(8));
    }

    #[test]
    fn one_symbol_takes_none() {
        assert_eq!(round_trip(&[14; 900], 1, 22), 2);
        assert_eq!(round_trip(&[1 << 100; 900], 16, u128::MAX), 17);
    }

    #[test]
    fn few_symbols_far_apart_are_listed() {
        let symbols: Vec<u128> = (0..900).map(|i| (i % 3) << 60).collect();
        assert_eq!(round_trip(&symbols, 8, 1 << 62), 1 + 3 * 8 + (900usize.div_ceil(17) * 27).div_ceil(8));
    }

    #[test]
    fn the_packing_is_never_far_from_the_entropy() {
        for (radix, &(numbers, width)) in WORDS.iter().enumerate().skip(2) {
            let overhead = f64::from(width) / f64::from(numbers) / (radix as f64).log2();
            assert!((1.0..1.07).contains(&overhead), "radix {radix}: {numbers} in {width} bits");
        }
    }

    proptest! {
        #[test]
        fn one_more_symbol_can_be_put_in_anywhere(
            radix in prop_oneof![1u128..40, 1u128..2000],
            draws in prop::collection::vec(any::<u128>(), 2..200),
            at in any::<prop::sample::Index>(),
        ) {
            // The first two make sure that what is inserted and overwritten has a number.
            let mut symbols: Vec<u128> = [0, radix - 1].into_iter().chain(draws.iter().map(|draw| draw % radix)).collect();
            let mut seen = Seen::default();
            symbols.iter().for_each(|&symbol| seen.add(symbol));
            let mut header = Vec::new();
            seen.write_header(2, symbols.len(), &mut header);
            let mut words = Vec::new();
            seen.write_words(2, &symbols, &mut words);
            let (read, _) = Symbols::open(&header, 2);

            let (rank, symbol) = (at.index(symbols.len() + 1), symbols[draws[0] as usize % symbols.len()]);
            let mut longer = Vec::new();
            read.insert(&words, symbols.len(), rank, read.number(symbol).unwrap(), &mut longer);
            symbols.insert(rank, symbol);
            prop_assert_eq!(longer.len(), read.words_len(symbols.len()));
            let (rank, symbol) = (at.index(symbols.len()), symbols[draws[1] as usize % symbols.len()]);
            read.packing().set(&mut longer, rank, read.number(symbol).unwrap());
            symbols[rank] = symbol;
            let mut decoded = Vec::new();
            read.decode(&longer, symbols.len(), &mut decoded);
            prop_assert_eq!(decoded, symbols);
        }

        #[test]
        fn symbols_come_back(
            limit in prop_oneof![1u128..300, 1u128..5000, 1u128..=u128::MAX],
            draws in prop::collection::vec(any::<u128>(), 1..400),
            different in 1u128..300,
        ) {
            let symbol_bytes = bits::bytes_for(limit - 1).max(1);
            let symbols: Vec<u128> = draws.iter().map(|draw| draw % limit).collect();
            round_trip(&symbols, symbol_bytes, limit - 1);
            let few: Vec<u128> = draws.iter().map(|draw| draw % different * (limit / different)  % limit).collect();
            round_trip(&few, symbol_bytes, limit - 1);
        }
    }
}
