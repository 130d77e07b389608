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

/// Where in `words` the one is that has `before` ones before it: the word, and the bit in it.
/// Each word is what `word` makes of its number.
#[inline]
pub(crate) fn find_one(word: impl Fn(usize) -> u64, before: usize) -> (usize, usize) {
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("popcnt") && std::is_x86_feature_detected!("bmi1") {
        // SAFETY: the processor has both.
        return unsafe { find_one_counting(word, before) };
    }
    find_one_portably(word, before)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "popcnt,bmi1")]
fn find_one_counting(word: impl Fn(usize) -> u64, before: usize) -> (usize, usize) {
    find_one_portably(word, before)
}

#[inline(always)]
fn find_one_portably(word: impl Fn(usize) -> u64, mut before: usize) -> (usize, usize) {
    let mut at = 0;
    loop {
        let ones = word(at);
        let here = ones.count_ones() as usize;
        if before < here {
            return (at, find_one_in(ones, before));
        }
        before -= here;
        at += 1;
    }
}

/// The bit that has `before` ones below it: halves the word until few are left.
#[inline(always)]
fn find_one_in(mut word: u64, mut before: usize) -> usize {
    let mut at = 0;
    for half in [32, 16, 8] {
        let low = (word & ((1 << half) - 1)).count_ones() as usize;
        if before >= low {
            before -= low;
            word >>= half;
            at += half;
        }
    }
    for _ in 0..before {
        word &= word - 1;
    }
    at + word.trailing_zeros() as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn both_ways_find_every_one(words in prop::collection::vec(any::<u64>(), 1..5)) {
            let ones: Vec<_> = (0..64 * words.len())
                .map(|bit| (bit / 64, bit % 64))
                .filter(|&(word, bit)| words[word] >> bit & 1 == 1)
                .collect();
            for (before, &one) in ones.iter().enumerate() {
                prop_assert_eq!(find_one(|at| words[at], before), one);
                prop_assert_eq!(find_one_portably(|at| words[at], before), one);
            }
        }
    }
}
