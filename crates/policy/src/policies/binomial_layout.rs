//! Which flushes make up each run of the stack after t flushes, for binomial and min-latency (Mao
//! et al., VLDB Journal 2021). Pure arithmetic; not a policy.
//!
//! The rule: after flush t, all runs from index i(t) on (0 is the oldest) become one. With C the
//! binomial coefficient, 0 outside 0 <= k <= n:
//!
//! ```text
//! idx(d, h, u): u = 0 -> 0;  x = C(d+h-1, h);  u < x -> idx(d-1, h, u);  else 1 + idx(d, h-1, u-x)
//! d = the least with tree(d) >= t;  i(t) = idx(d, h, t - tree(d-1) - 1)
//! binomial:     tree(d) = sum over j <= d of C(j + min(j,k) - 1, j);  h = min(d, k) - 1
//! min-latency:  tree(d) = C(d+k, d) - 1;                              h = k - 1
//! ```
//!
//! The layout after flush t, computed without all earlier flushes ([`ends`]):
//!
//! 1. Run j ends with the last flush s <= t for which i(s) <= j: this flush made run j or one
//!    below, and no later flush reached down to it. Indices grow by one at most, so i(s) = j.
//! 2. i is 0 only at the first flush of a phase d. Let S(d, h) be the indices idx(d, h, 0..) of a
//!    phase. By the rule S(d, h) is S(d-1, h) and then 1 + S(d, h-1); so it is a 0, followed by
//!    1 + S(1, h-1), 1 + S(2, h-1), .. 1 + S(d, h-1). It has C(d+h, h) members.
//! 3. So run 1 ends at the beginning of the part j that contains t, C(j+h-1, h) flushes after the
//!    beginning of the phase (the sum of the lengths before it). The end of run 2 is found the same
//!    way inside that part, with d = j and h one less, and so on until t itself is a beginning.
//!
//! Layouts only coarsen: by 1, an end of the layout at t' > t that is at or before t is also an end
//! of the layout at t. So a stack that is behind, or that compacts concurrently, never has to split
//! a run: it may change to the newest layout at once. A layout has at most h + 1 runs, which is at
//! most k.

/// Larger than any flush count.
const MANY: u128 = 1 << 64;

/// Which of the two layouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tree {
    /// The stack deepens as the store grows, up to k runs.
    Binomial,
    /// All k runs from the start.
    MinLatency,
}

impl Tree {
    /// Flushes up to the end of phase d, but at most [`MANY`]. O(k + 64).
    fn flushes(self, d: u64, k: u64) -> u128 {
        match self {
            Tree::MinLatency => choose(d + k, d) - 1,
            Tree::Binomial if d <= k => {
                let phases = (1..=d).map(|j| choose(2 * j - 1, j));
                phases.fold(0, |sum: u128, phase| (sum + phase).min(MANY))
            }
            // The phases after k are C(j+k-1, j) long: together C(d+k, k) - C(2k, k).
            Tree::Binomial => match choose(d + k, k) {
                all if all >= MANY => MANY,
                all => (self.flushes(k, k) + all - choose(2 * k, k)).min(MANY),
            },
        }
    }

    fn h(self, d: u64, k: u64) -> u64 {
        match self {
            Tree::Binomial => d.min(k) - 1,
            Tree::MinLatency => k - 1,
        }
    }
}

/// The last flush of each run after `t` flushes, oldest run first; at most `k`, at least 1. Empty
/// after 0 flushes. O(k^2 log t).
pub(crate) fn ends(tree: Tree, t: u64, k: u64) -> Vec<u64> {
    assert!(k >= 1, "a layout without runs");
    if t == 0 {
        return Vec::new();
    }
    // tree(d) >= d, so d is at most t.
    let d = least(1, t, |d| tree.flushes(d, k) >= u128::from(t));
    let mut end = tree.flushes(d - 1, k) as u64 + 1;
    let mut ends = vec![end];
    let (mut d, mut h) = (d, tree.h(d, k));
    while end < t {
        let left = u128::from(t - end);
        let begin = |j: u64| choose(j + h - 1, h);
        // The last part that begins at or before t; part 1 begins 1 flush later, so there is one.
        d = least(1, d, |j| j == d || begin(j + 1) > left);
        end += begin(d) as u64;
        h -= 1;
        ends.push(end);
    }
    ends
}

/// The least number of `from..=to` for which `holds` is true. `holds` must be true for the last
/// number, and for all numbers after the first for which it is true.
fn least(from: u64, to: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let (mut from, mut to) = (from, to);
    while from < to {
        let mid = from + (to - from) / 2;
        match holds(mid) {
            true => to = mid,
            false => from = mid + 1,
        }
    }
    from
}

/// C(n, k), but at most [`MANY`]. Each step multiplies by a number >= 1, since the smaller of k and
/// n - k is used. So a product that is too large stays too large. Both factors are below 2^65.
fn choose(n: u64, k: u64) -> u128 {
    let Some(other) = n.checked_sub(k) else { return 0 };
    let mut product: u128 = 1;
    for i in 0..u128::from(k.min(other)) {
        product = product * (u128::from(n) - i) / (i + 1);
        if product >= MANY {
            return MANY;
        }
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rule as a plain recursion, for comparison.
    fn idx(d: u64, h: u64, u: u64) -> usize {
        let x = if d + h == 0 { 0 } else { choose(d + h - 1, h) as u64 };
        match u {
            0 => 0,
            _ if u < x => idx(d - 1, h, u),
            _ => 1 + idx(d, h - 1, u - x),
        }
    }

    #[test]
    fn coefficients() {
        assert_eq!([(4, 2), (5, 0), (0, 0), (2, 3)].map(|(n, k)| choose(n, k)), [6, 1, 1, 0]);
        assert_eq!(choose(67, 33), 14_226_520_737_620_288_370);
        assert_eq!((choose(68, 34), choose(u64::MAX, 1 << 40)), (MANY, MANY));
        assert_eq!(choose(u64::MAX, 1), u128::from(u64::MAX));
    }

    #[test]
    fn ends_are_those_of_the_rule_flush_by_flush() {
        for tree in [Tree::Binomial, Tree::MinLatency] {
            for k in [1, 2, 3, 4, 6, 9] {
                let mut stack: Vec<u64> = Vec::new();
                for t in 1..=3000 {
                    let d = (1..).find(|d| tree.flushes(*d, k) >= u128::from(t)).unwrap();
                    let u = t - tree.flushes(d - 1, k) as u64 - 1;
                    let i = idx(d, tree.h(d, k), u);
                    let before = stack.clone();
                    stack.truncate(i);
                    stack.push(t);
                    assert_eq!(ends(tree, t, k), stack, "{tree:?} k={k} t={t}");
                    assert!(stack.len() as u64 <= k && stack.len() <= before.len() + 1);
                }
            }
        }
    }

    #[test]
    fn far_out_is_quick_and_bounded() {
        for tree in [Tree::Binomial, Tree::MinLatency] {
            for (t, k) in [(u64::MAX >> 1, 1), (u64::MAX >> 1, 6), (u64::MAX >> 1, 1000), (1, 1)] {
                let ends = ends(tree, t, k);
                assert!(ends.len() as u64 <= k && ends.is_sorted() && ends.last() == Some(&t));
            }
        }
    }
}
