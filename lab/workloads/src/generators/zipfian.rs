//! The popularity curves of YCSB: zipfian, scrambled zipfian, latest.
//!
//! Zipfian after Gray et al., "Quickly generating billion-record synthetic databases" (SIGMOD
//! '94): item `i` has probability `1 / ((i + 1)^theta zeta(n))`. `zeta(n)` costs `n` powers once
//! and grows with the number of items at the cost of the new ones only. The draw is exact for the
//! first two items and a continuous approximation for the rest.

use super::{Rng, fnv1a_64};

/// The skew of YCSB.
pub const THETA: f64 = 0.99;

/// YCSB draws scrambled items out of this many before hashing them onto the real ones.
const SCRAMBLED_ITEMS: u64 = 10_000_000_000;
/// `zeta(SCRAMBLED_ITEMS)` at theta 0.99, as in YCSB: summing it would take minutes.
const SCRAMBLED_ZETA: f64 = 26.469_028_201_783_02;

/// The most terms that are summed, which takes half a second.
const SUMMED_ITEMS: u64 = 1 << 24;

/// Item 0 is the most popular.
#[derive(Clone, Debug)]
pub struct Zipfian {
    items: u64,
    theta: f64,
    alpha: f64,
    zeta_n: f64,
    zeta_2: f64,
    eta: f64,
}

impl Zipfian {
    /// A curve over `items` items.
    pub fn new(items: u64, theta: f64) -> Zipfian {
        let items = items.max(1);
        Zipfian::with_zeta(items, theta, zeta(0, items, theta, 0.0))
    }

    fn with_zeta(items: u64, theta: f64, zeta_n: f64) -> Zipfian {
        let zeta_2 = zeta(0, 2, theta, 0.0);
        let alpha = 1.0 / (1.0 - theta);
        let mut zipfian = Zipfian { items, theta, alpha, zeta_n, zeta_2, eta: 0.0 };
        zipfian.eta = zipfian.eta();
        zipfian
    }

    fn eta(&self) -> f64 {
        let tail = (2.0 / self.items as f64).powf(1.0 - self.theta);
        (1.0 - tail) / (1.0 - self.zeta_2 / self.zeta_n)
    }

    /// Extends the curve to `items`; fewer than before leave it as it is.
    pub fn grow(&mut self, items: u64) {
        if items > self.items {
            self.zeta_n = zeta(self.items, items, self.theta, self.zeta_n);
            self.items = items;
            self.eta = self.eta();
        }
    }

    /// Number of items.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// The probability of `item`.
    pub fn probability(&self, item: u64) -> f64 {
        1.0 / ((item + 1) as f64).powf(self.theta) / self.zeta_n
    }

    /// The next item.
    pub fn next(&self, rng: &mut Rng) -> u64 {
        let unit = rng.unit();
        let scaled = unit * self.zeta_n;
        if scaled < 1.0 || self.items == 1 {
            return 0;
        }
        if scaled < 1.0 + 0.5_f64.powf(self.theta) || self.items == 2 {
            return 1;
        }
        let item = self.items as f64 * (self.eta * unit - self.eta + 1.0).powf(self.alpha);
        (item as u64).min(self.items - 1)
    }
}

/// `zeta(to)` given `sum = zeta(from)`. Terms more than `SUMMED_ITEMS` after `from` are replaced by
/// the integral and its first correction; the next correction is smaller than the rounding of a
/// sum.
fn zeta(from: u64, to: u64, theta: f64, sum: f64) -> f64 {
    let power = |item: u64, exponent: f64| (item as f64).powf(exponent);
    let middle = to.min(from.saturating_add(SUMMED_ITEMS));
    let sum = (from..middle).fold(sum, |sum, item| sum + 1.0 / power(item + 1, theta));
    if middle == to {
        return sum;
    }
    let integral = (power(to, 1.0 - theta) - power(middle, 1.0 - theta)) / (1.0 - theta);
    sum + integral + (power(to, -theta) - power(middle, -theta)) / 2.0
}

/// Zipfian popularity with the popular items spread over the whole range by a hash.
#[derive(Clone, Debug)]
pub struct ScrambledZipfian {
    items: u64,
    zipfian: Zipfian,
}

impl ScrambledZipfian {
    /// A curve spread over `0..items`, with YCSB's skew.
    pub fn new(items: u64) -> ScrambledZipfian {
        ScrambledZipfian::with_theta(items, THETA)
    }

    /// A curve spread over `0..items`, with another skew.
    pub fn with_theta(items: u64, theta: f64) -> ScrambledZipfian {
        let zeta = match theta {
            THETA => SCRAMBLED_ZETA,
            _ => zeta(0, SCRAMBLED_ITEMS, theta, 0.0),
        };
        let zipfian = Zipfian::with_zeta(SCRAMBLED_ITEMS, theta, zeta);
        ScrambledZipfian { items: items.max(1), zipfian }
    }

    /// A curve spread over `0..items` that itself has as many items; YCSB's has ten billion. The
    /// fewer items a curve has, the larger the share of the popular ones.
    pub fn of_own_curve(items: u64, theta: f64) -> ScrambledZipfian {
        ScrambledZipfian { items: items.max(1), zipfian: Zipfian::new(items, theta) }
    }

    /// The next item.
    pub fn next(&self, rng: &mut Rng) -> u64 {
        fnv1a_64(self.zipfian.next(rng)) % self.items
    }
}

/// Draws items by a zipfian distance from the newest one.
#[derive(Clone, Debug)]
pub struct Latest {
    zipfian: Zipfian,
}

impl Latest {
    /// Draws from `0..items`, where `items - 1` is the newest.
    pub fn new(items: u64) -> Latest {
        Latest { zipfian: Zipfian::new(items, THETA) }
    }

    /// The next item, if `items` items exist.
    pub fn next(&mut self, rng: &mut Rng, items: u64) -> u64 {
        self.zipfian.grow(items);
        self.zipfian.items() - 1 - self.zipfian.next(rng)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Once, all terms were summed, whatever the number of items: `bench ycsb-d --num
    /// 1000000000000` did not begin for hours. YCSB publishes one long sum, which this test
    /// compares.
    #[test]
    fn a_long_sum_is_that_of_ycsb_at_once() {
        let long = zeta(0, SCRAMBLED_ITEMS, THETA, 0.0);
        assert!((long / SCRAMBLED_ZETA - 1.0).abs() < 1e-11, "{long}");
        let summed = SUMMED_ITEMS + 1000;
        let longer = (SUMMED_ITEMS..summed).fold(zeta(0, SUMMED_ITEMS, THETA, 0.0), |sum, item| {
            sum + 1.0 / ((item + 1) as f64).powf(THETA)
        });
        assert!((zeta(0, summed, THETA, 0.0) / longer - 1.0).abs() < 1e-13);
        assert!(Latest::new(u64::MAX).next(&mut Rng::new(1), u64::MAX) < u64::MAX);
    }

    fn counts(draws: u64, items: u64, mut next: impl FnMut(&mut Rng) -> u64) -> Vec<f64> {
        let (mut rng, mut counts) = (Rng::new(42), vec![0.0; items as usize]);
        for _ in 0..draws {
            counts[next(&mut rng) as usize] += 1.0 / draws as f64;
        }
        counts
    }

    #[test]
    fn frequencies_of_the_top_items_follow_the_theory() {
        let zipfian = Zipfian::new(1000, THETA);
        let counts = counts(2_000_000, 1000, |rng| zipfian.next(rng));
        for (item, tolerance) in [(0, 0.01), (1, 0.01)] {
            let expected = zipfian.probability(item);
            let off = (counts[item as usize] - expected).abs() / expected;
            assert!(
                off < tolerance,
                "item {item}: {} instead of {expected}",
                counts[item as usize]
            );
        }
        // The continuous approximation is up to 30% off for single items; a range averages out.
        let share = |range: std::ops::Range<u64>| -> (f64, f64) {
            let drawn = range.clone().map(|item| counts[item as usize]).sum();
            (drawn, range.map(|item| zipfian.probability(item)).sum())
        };
        for range in [2..10, 10..100, 100..1000] {
            let (drawn, expected) = share(range.clone());
            assert!((drawn / expected - 1.0).abs() < 0.1, "{range:?}: {drawn} of {expected}");
        }
    }

    #[test]
    fn a_grown_curve_equals_a_new_one() {
        let mut grown = Zipfian::new(10, THETA);
        grown.grow(500);
        grown.grow(400);
        let fresh = Zipfian::new(500, THETA);
        assert!((grown.zeta_n - fresh.zeta_n).abs() < 1e-9);
        assert!((grown.eta - fresh.eta).abs() < 1e-9);
    }

    #[test]
    fn scrambled_spreads_the_popular_and_keeps_the_skew() {
        let scrambled = ScrambledZipfian::new(1000);
        let counts = counts(500_000, 1000, |rng| scrambled.next(rng));
        let top = (0..1000).max_by(|a, b| counts[*a].total_cmp(&counts[*b])).expect("items");
        assert_eq!(top as u64, fnv1a_64(0) % 1000);
        // The most popular of 10^10 has 1 / 26.47 of all draws, plus its part of the even rest.
        assert!((0.037..0.041).contains(&counts[top]), "{}", counts[top]);
        let low: f64 = counts[..500].iter().sum();
        assert!((0.3..0.7).contains(&low), "not all popular items are at one end: {low}");
    }

    #[test]
    fn a_lower_theta_is_less_skewed() {
        let top = |theta| {
            let scrambled = ScrambledZipfian::with_theta(1000, theta);
            let counts = counts(100_000, 1000, |rng| scrambled.next(rng));
            counts[(fnv1a_64(0) % 1000) as usize]
        };
        let [less, more] = [0.9, THETA].map(top);
        assert!(less > 0.002 && less < more / 2.0, "{less} and {more}");
    }

    #[test]
    fn latest_favours_the_new_and_follows_inserts() {
        let mut latest = Latest::new(1000);
        let mut rng = Rng::new(1);
        let newest = (0..10_000).filter(|_| latest.next(&mut rng, 1000) >= 990).count();
        assert!(newest > 3_000, "{newest} of 10000 draws among the newest ten");
        let after = (0..10_000).filter(|_| latest.next(&mut rng, 2000) >= 1990).count();
        assert!(after > 3_000, "{after} of 10000 draws among the newest ten");
    }

    #[test]
    fn small_ranges_and_determinism() {
        for items in 1..5 {
            let zipfian = Zipfian::new(items, THETA);
            let draw = |seed| -> Vec<u64> {
                let mut rng = Rng::new(seed);
                (0..100).map(|_| zipfian.next(&mut rng)).collect()
            };
            assert_eq!(draw(1), draw(1));
            assert!(draw(1).iter().all(|item| *item < items));
        }
    }
}
