//! Numbers of any width up to 128 bits, packed without gaps into bytes, lowest bit first.
//!
//! Reading past the end gives zeros instead of a panic: the decoder checks lengths before it believes what it read.

/// Bits needed to write `number`.
pub(crate) fn width(number: u128) -> u32 {
    128 - number.leading_zeros()
}

/// Bytes needed to write `number`.
pub(crate) fn bytes_for(number: u128) -> usize {
    width(number).div_ceil(8) as usize
}

/// The eight bytes at `at` as a number.
#[inline]
pub(crate) fn load(bytes: &[u8], at: usize) -> u64 {
    match bytes.get(at..at + 8) {
        Some(eight) => u64::from_le_bytes(eight.try_into().expect("eight bytes")),
        None => {
            let mut eight = [0; 8];
            let rest = bytes.get(at..).unwrap_or_default();
            eight[..rest.len()].copy_from_slice(rest);
            u64::from_le_bytes(eight)
        }
    }
}

/// The `width` bits at bit `at`; at most 56, which one load always covers.
#[inline]
pub(crate) fn get_short(bytes: &[u8], at: usize, width: u32) -> u64 {
    debug_assert!(width <= 56);
    (load(bytes, at / 8) >> (at % 8)) & ((1 << width) - 1)
}

/// The `width` bits at bit `at`.
#[inline]
pub(crate) fn get(bytes: &[u8], at: usize, width: u32) -> u128 {
    if width <= 56 {
        get_short(bytes, at, width).into()
    } else {
        u128::from(get_short(bytes, at, 56)) | get_long(bytes, at + 56, width - 56) << 56
    }
}

fn get_long(bytes: &[u8], at: usize, width: u32) -> u128 {
    if width <= 56 {
        get_short(bytes, at, width).into()
    } else {
        u128::from(get_short(bytes, at, 56)) | u128::from(get_short(bytes, at + 56, width - 56)) << 56
    }
}

/// A whole number of bytes at byte `at`, lowest first.
#[inline]
pub(crate) fn get_bytes(bytes: &[u8], at: usize, count: usize) -> u128 {
    let low = u128::from(load(bytes, at));
    let all = if count > 8 { low | u128::from(load(bytes, at + 8)) << 64 } else { low };
    if count == 16 { all } else { all & ((1 << (8 * count)) - 1) }
}

/// Replaces the `width` bits at bit `at`.
pub(crate) fn set(bytes: &mut [u8], at: usize, width: u32, number: u128) {
    for bit in 0..width as usize {
        let (byte, mask) = ((at + bit) / 8, 1 << ((at + bit) % 8));
        if number >> bit & 1 == 1 {
            bytes[byte] |= mask;
        } else {
            bytes[byte] &= !mask;
        }
    }
}

#[inline]
pub(crate) fn get_u16(bytes: &[u8], at: usize) -> usize {
    match bytes.get(at..at + 2) {
        Some(two) => usize::from(u16::from_le_bytes([two[0], two[1]])),
        None => 0,
    }
}

/// Appends bits to the end of a byte vector, which is whole again after [`BitWriter::finish`].
pub(crate) struct BitWriter<'a> {
    out: &'a mut Vec<u8>,
    /// Bits not appended yet, fewer than 64.
    pending: u64,
    filled: u32,
    written: usize,
}

impl<'a> BitWriter<'a> {
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        BitWriter { out, pending: 0, filled: 0, written: 0 }
    }

    /// Bits written so far.
    pub fn len(&self) -> usize {
        self.written
    }

    /// Appends the lowest `width` bits of `number`, at most 56, whose other bits are zero.
    #[inline]
    pub fn put_short(&mut self, number: u64, width: u32) {
        debug_assert!(width <= 56 && number >> width == 0);
        self.pending |= number << self.filled;
        self.filled += width;
        self.written += width as usize;
        if self.filled >= 64 {
            self.out.extend_from_slice(&self.pending.to_le_bytes());
            self.filled -= 64;
            self.pending = number >> (width - self.filled);
        }
    }

    #[inline]
    pub fn put(&mut self, mut number: u128, mut width: u32) {
        while width > 56 {
            self.put_short((number & ((1 << 56) - 1)) as u64, 56);
            number >>= 56;
            width -= 56;
        }
        self.put_short(number as u64, width);
    }

    /// Appends `count` zeros and then a one.
    pub fn put_unary(&mut self, mut count: u64) {
        while count >= 48 {
            self.put_short(0, 48);
            count -= 48;
        }
        self.put_short(1 << count, count as u32 + 1);
    }

    /// Appends the bits `from..to` of `bytes`.
    pub fn copy(&mut self, bytes: &[u8], mut from: usize, to: usize) {
        while to - from >= 64 {
            let shift = from % 8;
            let low = load(bytes, from / 8) >> shift;
            let high = u64::from(bytes.get(from / 8 + 8).copied().unwrap_or(0));
            let word = low | (high << 1) << (63 - shift);
            self.out.extend_from_slice(&(self.pending | word << self.filled).to_le_bytes());
            self.pending = (word >> 1) >> (63 - self.filled);
            self.written += 64;
            from += 64;
        }
        self.put(get(bytes, from, (to - from) as u32), (to - from) as u32);
    }

    pub fn finish(self) {
        let bytes = self.filled.div_ceil(8) as usize;
        self.out.extend_from_slice(&self.pending.to_le_bytes()[..bytes]);
    }
}

/// Appends the lowest `count` bytes of `number`.
pub(crate) fn put_bytes(out: &mut Vec<u8>, number: u128, count: usize) {
    out.extend_from_slice(&number.to_le_bytes()[..count]);
}

pub(crate) fn put_u16(out: &mut Vec<u8>, number: usize) {
    out.extend_from_slice(&u16::try_from(number).expect("a block's lengths fit 16 bits").to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_put_is_what_is_got(numbers in prop::collection::vec((any::<u128>(), 0u32..=128), 0..200)) {
            let numbers: Vec<_> =
                numbers.into_iter().map(|(n, w)| (if w == 128 { n } else { n & ((1 << w) - 1) }, w)).collect();
            let mut bytes = Vec::new();
            let mut writer = BitWriter::new(&mut bytes);
            for &(number, width) in &numbers {
                writer.put(number, width);
            }
            let len = writer.len();
            writer.finish();
            prop_assert_eq!(bytes.len(), len.div_ceil(8));
            let mut at = 0;
            for (number, width) in numbers {
                prop_assert_eq!(get(&bytes, at, width), number);
                at += width as usize;
            }
        }
    }

    proptest! {
        #[test]
        fn copied_bits_are_the_same(bytes in prop::collection::vec(any::<u8>(), 1..60), skip in 0usize..64, a in 0usize..480, b in 0usize..480) {
            let (a, b) = (a % (8 * bytes.len()), b % (8 * bytes.len()));
            let (from, to) = (a.min(b), a.max(b));
            let mut copy = Vec::new();
            let mut writer = BitWriter::new(&mut copy);
            writer.put(0, skip as u32);
            writer.copy(&bytes, from, to);
            prop_assert_eq!(writer.len(), skip + to - from);
            writer.finish();
            for at in from..to {
                prop_assert_eq!(get_short(&copy, skip + at - from, 1), get_short(&bytes, at, 1));
            }
        }
    }

    #[test]
    fn reading_past_the_end_gives_zeros() {
        assert_eq!(get(&[0xff], 4, 128), 0xf);
        assert_eq!(get(&[], 1000, 128), 0);
        assert_eq!(get_bytes(&[1, 2], 1, 16), 2);
    }
}
