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
    let all = if count > 8 {
        low | u128::from(load(bytes, at + 8)) << 64
    } else {
        low
    };
    if count == 16 {
        all
    } else {
        all & ((1 << (8 * count)) - 1)
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
    pending: u64,
    filled: u32,
    written: usize,
}

impl<'a> BitWriter<'a> {
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        BitWriter {
            out,
            pending: 0,
            filled: 0,
            written: 0,
        }
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
        let whole = self.filled / 8;
        self.out
            .extend_from_slice(&self.pending.to_le_bytes()[..whole as usize]);
        self.pending = self.pending.checked_shr(8 * whole).unwrap_or(0);
        self.filled %= 8;
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

    pub fn finish(self) {
        if self.filled > 0 {
            self.out.push(self.pending as u8);
        }
    }
}

/// Appends the lowest `count` bytes of `number`.
pub(crate) fn put_bytes(out: &mut Vec<u8>, number: u128, count: usize) {
    out.extend_from_slice(&number.to_le_bytes()[..count]);
}

pub(crate) fn put_u16(out: &mut Vec<u8>, number: usize) {
    out.extend_from_slice(
        &u16::try_from(number)
            .expect("a block's lengths fit 16 bits")
            .to_le_bytes(),
    );
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

    #[test]
    fn reading_past_the_end_gives_zeros() {
        assert_eq!(get(&[0xff], 4, 128), 0xf);
        assert_eq!(get(&[], 1000, 128), 0);
        assert_eq!(get_bytes(&[1, 2], 1, 16), 2);
    }
}
