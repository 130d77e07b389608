//! A random order of a range of numbers that is never written down: the number at any place can be told at once.
//!
//! It is a Feistel network on pairs of digits to a base near the square root of the range: every round is undone by another,
//! so no two places have the same number. Where the square is larger than the range, numbers beyond it are shuffled again.

/// Four rounds make a permutation that no statistics will tell from a random one.
const ROUNDS: usize = 4;

#[derive(Debug, Clone, Copy)]
pub struct Shuffle {
    size: u128,
    /// The base of the two digits, at most 2^64.
    base: u128,
    keys: [u64; ROUNDS],
}

impl Shuffle {
    /// A random order of the numbers below `size`; the same for the same seed.
    pub fn new(size: u128, seed: u64) -> Shuffle {
        let base = size.saturating_sub(1).isqrt() + 1;
        let keys = std::array::from_fn(|round| mix(mix(seed).wrapping_add(round as u64)));
        Shuffle { size, base, keys }
    }

    /// The number at a place below the size.
    pub fn at(&self, place: u128) -> u128 {
        assert!(place < self.size, "a place is below the size");
        let (mut high, mut low) = (place / self.base, place % self.base);
        loop {
            for key in self.keys {
                let moved = high + ((u128::from(mix(low as u64 ^ key)) * self.base) >> 64);
                (high, low) = (low, if moved < self.base { moved } else { moved - self.base });
            }
            let number = high * self.base + low;
            if number < self.size {
                return number;
            }
        }
    }
}

/// The finalizer of SplitMix64: every bit of the result depends on every bit given.
pub fn mix(bits: u64) -> u64 {
    let bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_one_place() {
        for size in [1, 2, 3, 4, 5, 10, 99, 100, 101, 10_000, 12_345] {
            for seed in 0..5 {
                let shuffle = Shuffle::new(size, seed);
                let mut numbers: Vec<_> = (0..size).map(|place| shuffle.at(place)).collect();
                numbers.sort_unstable();
                assert!(numbers.into_iter().eq(0..size), "size {size}, seed {seed}");
            }
        }
    }

    #[test]
    fn the_largest_range_is_shuffled() {
        let shuffle = Shuffle::new(u128::MAX, 1);
        assert_ne!(shuffle.at(0), shuffle.at(u128::MAX - 1));
    }

    #[test]
    fn numbers_are_spread_evenly() {
        for size in [1_000_000, 31 * 10u128.pow(16), 10u128.pow(20), u128::MAX] {
            let shuffle = Shuffle::new(size, 7);
            let mut counts = [0; 100];
            (0..100_000).for_each(|place| counts[(shuffle.at(place) / (size / 100 + 1)) as usize] += 1);
            assert!(counts.iter().all(|count| (850..1150).contains(count)), "size {size}: {counts:?}");
        }
    }

    #[test]
    fn order_tells_nothing() {
        let shuffle = Shuffle::new(1 << 60, 7);
        let rising = (0..100_000).filter(|&place| shuffle.at(place) < shuffle.at(place + 1)).count();
        assert!((49_000..51_000).contains(&rising), "{rising}");
    }
}
