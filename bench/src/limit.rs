//! How few bits can tell a list of cards: the information limit.
//!
//! Which `n` of `u` possible ids are listed takes log2 C(u, n) bits, and each card's values their entropy. No lossless
//! table is smaller on average. `u` is up to 2^128, where differences of log-gammas would cancel to nothing, so
//! Stirling's formula is applied to the binomial as a whole, in which everything large has already cancelled.

use std::f64::consts::{LN_2, TAU};

/// Below this, the factors are summed one by one; from here on Stirling's series is exact to the last digits.
const FEW: f64 = 64.0;

/// log2 C(`all`, `chosen`), for whole numbers.
pub fn log2_choose(all: f64, chosen: f64) -> f64 {
    let chosen = chosen.min(all - chosen);
    if chosen < FEW {
        let factor = |at: u32| (all - f64::from(at)) / f64::from(at + 1);
        return (0..chosen as u32).map(|at| factor(at).log2()).sum();
    }
    let rest = all - chosen;
    let share = chosen / all;
    let entropy = -chosen * share.ln() - rest * (-share).ln_1p();
    let root = (all / (TAU * chosen * rest)).ln() / 2.0;
    let corrections = stirling_correction(all) - stirling_correction(chosen) - stirling_correction(rest);
    (entropy + root + corrections) / LN_2
}

/// ln n! − (n ln n − n + ½ ln 2πn).
fn stirling_correction(n: f64) -> f64 {
    1.0 / (12.0 * n) - 1.0 / (360.0 * n.powi(3)) + 1.0 / (1260.0 * n.powi(5))
}

/// The bits that tell which value each record has, if each value occurs as often as `counts` says.
pub fn entropy_bits(counts: &[u64]) -> f64 {
    let all = counts.iter().sum::<u64>() as f64;
    counts.iter().filter(|&&count| count > 0).map(|&count| count as f64 * (all / count as f64).log2()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_close(found: f64, expected: f64) {
        let difference = (found - expected).abs();
        assert!(difference <= 1e-12 * expected.abs().max(1.0), "found {found}, expected {expected}");
    }

    #[test]
    fn small_binomials_are_exact() {
        assert_close(log2_choose(100.0, 10.0), 17_310_309_456_440f64.log2());
        assert_close(log2_choose(52.0, 5.0), 2_598_960f64.log2());
        assert_close(log2_choose(7.0, 1.0), 7f64.log2());
        assert_eq!(log2_choose(7.0, 0.0), 0.0);
        assert_eq!(log2_choose(7.0, 7.0), 0.0);
    }

    #[test]
    fn a_large_binomial_is_that_of_the_books() {
        // C(200, 100) = 90548514656103281165404177077484163874504589675413336841320.
        assert_close(log2_choose(200.0, 100.0), 9.054_851_465_610_328e58f64.log2());
    }

    #[test]
    fn choosing_is_as_much_as_leaving() {
        assert_close(log2_choose(1e9, 1e8), log2_choose(1e9, 9e8));
    }

    #[test]
    fn a_binomial_is_the_sum_of_the_two_above_it() {
        for (all, chosen) in [(150.0, 70.0), (1000.0, 100.0), (5000.0, 2000.0)] {
            let (left, right) = (log2_choose(all - 1.0, chosen - 1.0), log2_choose(all - 1.0, chosen));
            assert_close(log2_choose(all, chosen), right + (1.0 + (left - right).exp2()).log2());
        }
    }

    #[test]
    fn the_series_continues_the_product() {
        for all in [1e3, 1e9, 31e16, 1e20, 2f64.powi(128)] {
            let product: f64 = (0..300).map(|at| ((all - f64::from(at)) / f64::from(at + 1)).log2()).sum();
            assert_close(log2_choose(all, 300.0), product);
        }
    }

    #[test]
    fn a_hundred_million_cards_of_31_networks_take_33_bits_each() {
        assert!((log2_choose(31e16, 1e8) / 1e8 - 32.973).abs() < 0.001);
    }

    #[test]
    fn entropy_is_that_of_the_counts() {
        assert_close(entropy_bits(&[5; 20]), 100.0 * 20f64.log2());
        assert_close(entropy_bits(&[1, 0, 3]), 2.0 + 3.0 * (4f64 / 3.0).log2());
        assert_eq!(entropy_bits(&[0, 9, 0]), 0.0);
    }
}
