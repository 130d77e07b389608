//! What a processor does better when asked directly: fetching memory ahead, and counting bits.
//!
//! A find waits for memory more than it computes, so it asks for the lines it will need before it knows what is in
//! them. And it counts bits, which x86-64 has an instruction for, but not in the baseline that Rust compiles for.

pub(crate) const CACHE_LINE: usize = 64;

/// Asks for the cache line in which the item at `at` begins, if there is one.
#[inline]
pub(crate) fn prefetch<T>(items: &[T], at: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(item) = items.get(at) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the address is that of an item we hold a reference to, and a prefetch changes nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(item).cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (items, at);
}

/// Bytes that are counted together: a branch for each word would cost more than its count.
const GROUP: usize = 32;

/// Which of the bits is the zero that has `before` zeros before it. There must be one among the first `bits`.
#[inline]
pub(crate) fn find_zero(bytes: &[u8], bits: usize, before: usize) -> usize {
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("popcnt") && std::is_x86_feature_detected!("bmi2") {
        // SAFETY: the processor has both.
        return unsafe { find_zero_counting(bytes, bits, before) };
    }
    find_zero_by(find_one, bytes, bits, before)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "popcnt,bmi2")]
fn find_zero_counting(bytes: &[u8], bits: usize, before: usize) -> usize {
    use std::arch::x86_64::_pdep_u64;
    let find_one = |word: u64, before: usize| _pdep_u64(1u64 << before, word).trailing_zeros() as usize;
    find_zero_by(find_one, bytes, bits, before)
}

/// `find_one` tells which bit of a word has so many ones below it.
#[inline(always)]
fn find_zero_by(find_one: impl Fn(u64, usize) -> usize, bytes: &[u8], bits: usize, mut before: usize) -> usize {
    let (groups, _) = bytes[..bits.div_ceil(8)].as_chunks::<GROUP>();
    let mut at = 0;
    for group in groups {
        let zeros = words(group).map(u64::count_zeros).into_iter().sum::<u32>() as usize;
        if before < zeros {
            break;
        }
        before -= zeros;
        at += GROUP;
    }
    let group = match bytes[at..].first_chunk::<GROUP>() {
        Some(group) => words(group),
        None => {
            let mut group = [u8::MAX; GROUP];
            group[..bytes.len() - at].copy_from_slice(&bytes[at..]);
            words(&group)
        }
    };
    // It is in the first two words or in the others, and then in the first of two or in the second.
    let zeros = group.map(|word| word.count_zeros() as usize);
    let half = usize::from(before >= zeros[0] + zeros[1]);
    before -= half * (zeros[0] + zeros[1]);
    let second = usize::from(before >= zeros[2 * half]);
    before -= second * zeros[2 * half];
    let word = 2 * half + second;
    8 * (at + 8 * word) + find_one(!group[word], before)
}

#[inline(always)]
fn words(group: &[u8; GROUP]) -> [u64; GROUP / 8] {
    std::array::from_fn(|at| u64::from_le_bytes(group[8 * at..8 * at + 8].try_into().expect("eight bytes")))
}

/// The bit that has `before` ones below it, by halving the word.
#[inline(always)]
fn find_one(mut word: u64, mut before: usize) -> usize {
    let mut at = 0;
    for half in [32, 16, 8, 4, 2, 1] {
        let low = (word & ((1 << half) - 1)).count_ones() as usize;
        let is_higher = before >= low;
        before -= usize::from(is_higher) * low;
        word >>= half * usize::from(is_higher);
        at += half * usize::from(is_higher);
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn both_ways_find_every_zero(bytes in prop::collection::vec(any::<u8>(), 1..100)) {
            let zeros = (0..8 * bytes.len()).filter(|bit| bytes[bit / 8] >> (bit % 8) & 1 == 0);
            for (before, zero) in zeros.enumerate() {
                prop_assert_eq!(find_zero(&bytes, zero + 1, before), zero);
                prop_assert_eq!(find_zero_by(find_one, &bytes, 8 * bytes.len(), before), zero);
            }
        }
    }
}
