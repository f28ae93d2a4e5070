//! Computes the places of keys on an axis from the bounds and the bytes of tables. It only computes
//! numbers, and draws nothing.
//!
//! The place of a key is about the fraction of all bytes below the key:
//!
//! 1. All bounds of tables, sorted, cut the keys into stretches. A bound is a stretch of its own,
//!    so that the bytes of a table with one key have a place.
//! 2. Runs show how data is distributed. Those with the most tables come first, since they show
//!    most.
//! 3. The bytes of a table are spread over the stretches between its bounds: over stretches that
//!    earlier runs described, in proportion to the bytes of these runs; over the others, by the
//!    numbers of the keys (`Heads`).
//! 4. If a table extends beyond the part that earlier runs described, and those runs have `n`
//!    tables in its range, then at most 1 / (`n` + 1) of its bytes are beyond that part. Otherwise
//!    the earlier runs would have data there too.
//! 5. The length of a stretch is proportional to its bytes. A place is the sum of the stretches
//!    before it.
//!
//! Rejected alternatives: ranks of bounds, because tables that share 99% of their keys would look
//! shifted; the keys' numbers alone, because one far key would squeeze the whole store into one
//! pixel; step 3 without earlier runs, because the many wide tables of level 0 would give half of
//! the axis to a few far keys.

use std::cmp::Reverse;
use std::ops::RangeInclusive;

/// The bounds and the size of a table.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    /// Its smallest key.
    pub min: &'a [u8],
    /// Its largest key.
    pub max: &'a [u8],
    /// Its size; 0 counts as 1.
    pub bytes: u64,
}

/// Maps keys to places from 0 to 1. Places never decrease from one key to the next.
#[derive(Clone, Debug, Default)]
pub struct KeyAxis {
    /// All distinct bounds, sorted.
    bounds: Vec<Box<[u8]>>,
    /// Where each bound begins and ends.
    places: Vec<(f64, f64)>,
    heads: Heads,
}

impl KeyAxis {
    /// The axis of the tables of these runs; tables of one run do not overlap. O(n log n) for n
    /// tables, plus the number of bounds inside each table.
    pub fn of(runs: &[Vec<Span<'_>>]) -> KeyAxis {
        let keys = runs.iter().flatten().flat_map(|span| [span.min, span.max]);
        let mut bounds: Vec<Box<[u8]>> = keys.map(Box::from).collect();
        bounds.sort_unstable();
        bounds.dedup();
        let heads = Heads::of(&bounds);
        // The two bounds of most level-0 tables differ in their first digit, and most other bounds
        // are between them. So these numbers are computed only once.
        let first_digits = bounds.iter().map(|bound| heads.number(bound, heads.skipped));
        let first_digits: Vec<u128> = first_digits.collect();
        let mut stretches = Stretches::new(bounds.len());
        let mut finest_first: Vec<&Vec<Span<'_>>> = runs.iter().collect();
        finest_first.sort_by_key(|run| Reverse(run.len()));
        for span in finest_first.into_iter().flatten() {
            let bytes = span.bytes.max(1) as f64;
            let index = |key: &[u8]| bounds.partition_point(|bound| **bound < *key);
            let (first, last) = (index(span.min), index(span.max));
            if first >= last {
                stretches.points[first] += bytes;
                continue;
            }
            // The relative distance of each bound inside the table. Keys with equal numbers are
            // spaced evenly.
            let even = |at: usize| (at - first) as f64 / (last - first) as f64;
            let way = heads.way(span.min, span.max);
            let far = |at: usize| match &way {
                None => even(at),
                Some(way) if way.from == heads.skipped => way.share_of(first_digits[at]),
                Some(way) => way.share(&bounds[at]),
            };
            let far: Vec<f64> = (first..=last).map(far).collect();
            let shares: Vec<f64> = far.windows(2).map(|pair| pair[1] - pair[0]).collect();
            stretches.spread(first, &shares, bytes);
        }
        let places = sum_up(&stretches.points, &stretches.bytes);
        KeyAxis { bounds, places, heads }
    }

    /// Whether there is no table.
    pub fn is_empty(&self) -> bool {
        self.bounds.is_empty()
    }

    /// The smallest and the largest key.
    pub fn ends(&self) -> Option<(&[u8], &[u8])> {
        Some((self.bounds.first()?, self.bounds.last()?))
    }

    /// The place of a key. Smaller keys are before it.
    pub fn at(&self, key: &[u8]) -> f64 {
        let next = self.bounds.partition_point(|bound| **bound < *key);
        match (next.checked_sub(1), self.bounds.get(next)) {
            (_, Some(bound)) if **bound == *key => self.places[next].0,
            (None, _) => 0.0,
            (_, None) => 1.0,
            (Some(last), Some(bound)) => {
                let (from, to) = (self.places[last].1, self.places[next].0);
                let way = self.heads.way(&self.bounds[last], bound);
                let share = way.map_or(0.0, |way| way.share(key));
                from + (to - from) * share
            }
        }
    }

    /// Where a table begins and ends.
    pub fn span(&self, min: &[u8], max: &[u8]) -> (f64, f64) {
        let last = self.bounds.partition_point(|bound| **bound < *max);
        let to = match self.bounds.get(last) {
            Some(bound) if **bound == *max => self.places[last].1,
            _ => self.at(max),
        };
        (self.at(min), to)
    }

    /// At most `count` real keys with their places: both ends, and the keys between them that
    /// divide the axis most evenly.
    pub fn ticks(&self, count: usize) -> Vec<(f64, &[u8])> {
        let mut ticks: Vec<(f64, &[u8])> = Vec::new();
        let Some(last) = self.bounds.len().checked_sub(1) else { return ticks };
        let steps = count.max(2) - 1;
        for step in 0..=steps {
            let wanted = step as f64 / steps as f64;
            let next = self.places.partition_point(|place| place.0 < wanted).min(last);
            let distance = |at: usize| (self.places[at].0 - wanted).abs();
            let nearer = next.saturating_sub(1);
            let at = match step {
                0 => 0,
                _ if step == steps => last,
                _ if distance(nearer) < distance(next) => nearer,
                _ => next,
            };
            let is_end = at == 0 || at == last;
            let place = if at == last && last > 0 { self.places[at].1 } else { self.places[at].0 };
            let is_new = ticks.last().is_none_or(|(_, key)| **key < *self.bounds[at]);
            if is_new && (!is_end || step == 0 || step == steps) {
                ticks.push((place, &self.bounds[at]));
            }
        }
        ticks
    }

    /// The length of the prefix that all keys share.
    pub fn common_prefix(&self) -> usize {
        self.ends().map_or(0, |(first, last)| common(first, last))
    }
}

/// The data in each stretch.
struct Stretches {
    /// Bytes of the tables whose only key is this bound.
    points: Vec<f64>,
    /// Bytes of all tables in the stretch after each bound.
    bytes: Vec<f64>,
    /// As `bytes`, but counting only the first runs that described the stretch, as if they were one
    /// run.
    told: Vec<Option<f64>>,
    /// How many of the tables that described stretches begin at each bound.
    begun: Vec<u32>,
}

impl Stretches {
    fn new(count: usize) -> Stretches {
        let zeros = || vec![0.0; count];
        Stretches {
            points: zeros(),
            bytes: zeros(),
            told: vec![None; count],
            begun: vec![0; count],
        }
    }

    /// Adds a table. `shares` are its shares in the stretches from `first` on, judging only by the
    /// numbers of the keys.
    fn spread(&mut self, first: usize, shares: &[f64], bytes: f64) {
        let range = first..first + shares.len();
        let told: f64 = self.told[range.clone()].iter().flatten().sum();
        let is_told = self.told[range.clone()].iter().any(Option::is_some);
        let tables: u32 = self.begun[range.clone()].iter().sum();
        let gaps = shares.iter().zip(range.clone());
        let untold: f64 =
            gaps.filter(|(_, at)| self.told[*at].is_none()).map(|(share, _)| share).sum();
        // Step 4.
        let most = if is_told { 1.0 / f64::from(tables.max(1) + 1) } else { 1.0 };
        let (in_untold, in_told) = (untold.min(most), 1.0 - untold.min(most));
        let scale = if is_told && in_told > 0.0 { told / (bytes * in_told) } else { 1.0 };
        for (share, at) in shares.iter().zip(range) {
            match self.told[at] {
                Some(here) if told > 0.0 => self.bytes[at] += bytes * in_told * here / told,
                Some(_) => self.bytes[at] += bytes * in_told * share,
                None if untold > 0.0 => {
                    let here = bytes * in_untold * share / untold;
                    self.bytes[at] += here;
                    self.told[at] = Some(here * scale);
                }
                None => self.told[at] = Some(0.0),
            }
        }
        self.begun[first] += 1;
    }
}

/// Where each bound begins and ends, from the lengths of the bounds and of the stretches after
/// them.
fn sum_up(points: &[f64], gaps: &[f64]) -> Vec<(f64, f64)> {
    let total: f64 = points.iter().chain(gaps).sum();
    let mut sum = 0.0;
    let mut place = |length: &f64| {
        sum += length;
        (sum / total).min(1.0)
    };
    let mut end = 0.0;
    let mut places = Vec::with_capacity(points.len());
    for (point, gap) in points.iter().zip(gaps) {
        let through = place(point);
        places.push((end, through));
        end = place(gap);
    }
    // The last bound must end the axis, despite rounding.
    if let Some(last) = places.last_mut() {
        last.1 = 1.0;
        last.0 = if points[points.len() - 1] > 0.0 { last.0 } else { 1.0 };
    }
    places
}

/// Reads keys as numbers. The digits of a key are its bytes, and the bounds of tables show which
/// bytes occur at a position. In base 256, `user0999` would be far from `user1000`, and most of the
/// axis would be empty.
#[derive(Clone, Debug, Default)]
struct Heads {
    /// All bounds agree before this position.
    skipped: usize,
    /// One for each position from there on.
    digits: Vec<Digit>,
}

/// The bytes that occur at one position.
#[derive(Clone, Debug)]
struct Digit {
    /// The digit of each byte. A byte that does not occur has the digit of the next one that does,
    /// or `base` if there is none.
    values: Box<[u16; 256]>,
    occurs: Box<[bool; 256]>,
    base: u128,
}

impl Heads {
    fn of(bounds: &[Box<[u8]>]) -> Heads {
        let skipped = match bounds {
            [first, .., last] => common(first, last),
            _ => 0,
        };
        let length = bounds.iter().map(|bound| bound.len()).max().unwrap_or(0);
        let count = length.saturating_sub(skipped).min(MOST_DIGITS);
        let mut seen = vec![[false; 256]; count];
        let mut is_end = vec![false; count];
        for bound in bounds {
            let tail = &bound[skipped.min(bound.len())..];
            for (seen, byte) in seen.iter_mut().zip(tail) {
                seen[usize::from(*byte)] = true;
            }
            if let Some(is_end) = is_end.get_mut(tail.len()) {
                *is_end = true;
            }
        }
        let digits = seen.iter().zip(is_end).map(|(seen, is_end)| Digit::of(seen, is_end));
        Heads { skipped, digits: digits.collect() }
    }

    /// The distance from `low` to `high`; `None` if their numbers are equal.
    fn way(&self, low: &[u8], high: &[u8]) -> Option<Way<'_>> {
        let from = common(low, high);
        let (low, high) = (self.number(low, from), self.number(high, from));
        (high > low).then_some(Way { heads: self, from, low, high })
    }

    /// The number of the part of a key from this position on. It has as many digits as fit, which
    /// depends only on the position. So the numbers of two keys compare as their bytes do, or are
    /// equal.
    fn number(&self, key: &[u8], from: usize) -> u128 {
        let (mut number, mut scale) = (0_u128, 1_u128);
        // The value of the digits after the end of the key, or after a byte that no bound has.
        let mut rest = None;
        for (at, digit) in self.digits.iter().enumerate().skip(from - self.skipped.min(from)) {
            scale = match scale.checked_mul(digit.base) {
                Some(scale) if scale < 1 << 120 => scale,
                _ => break,
            };
            let value = match (rest, key.get(self.skipped + at)) {
                (Some(is_highest), _) => (digit.base - 1) * u128::from(is_highest),
                (None, None) => {
                    rest = Some(false);
                    0
                }
                (None, Some(byte)) => {
                    let value = u128::from(digit.values[usize::from(*byte)]);
                    if !digit.occurs[usize::from(*byte)] {
                        rest = Some(value == digit.base);
                    }
                    value.min(digit.base - 1)
                }
            };
            number = number * digit.base + value;
        }
        number
    }
}

/// The distance between two keys, as numbers.
struct Way<'a> {
    heads: &'a Heads,
    /// Where the keys begin to differ.
    from: usize,
    low: u128,
    high: u128,
}

impl Way<'_> {
    /// Which part of this distance is before a key between the two.
    fn share(&self, key: &[u8]) -> f64 {
        self.share_of(self.heads.number(key, self.from))
    }

    fn share_of(&self, number: u128) -> f64 {
        (number.clamp(self.low, self.high) - self.low) as f64 / (self.high - self.low) as f64
    }
}

/// The most positions after the common prefix that are considered.
const MOST_DIGITS: usize = 1024;

impl Digit {
    /// Makes a digit from the bytes that occur in bounds, and from whether a bound ends here. Bytes
    /// of the same class count as occurring too, since a few bounds show only a few of ten digits.
    fn of(seen: &[bool; 256], is_end: bool) -> Digit {
        let mut occurs = *seen;
        let any = |bytes: RangeInclusive<u8>| bytes.into_iter().any(|byte| seen[byte as usize]);
        let mut classes = vec![b'0'..=b'9'];
        for (first, sixth, last) in [(b'a', b'f', b'z'), (b'A', b'F', b'Z')] {
            // If there are digits but only the first six letters, the numbers are hexadecimal.
            let is_hex = any(b'0'..=b'9') && !any(sixth + 1..=last);
            classes.push(first..=if is_hex { sixth } else { last });
        }
        if any(0..=31) || any(127..=255) {
            classes = vec![0..=255];
        }
        for class in classes.into_iter().filter(|class| any(class.clone())) {
            class.for_each(|byte| occurs[usize::from(byte)] = true);
        }
        // Where a key may end, the absence of a byte is a digit too, the first one.
        let mut count = u16::from(is_end);
        let mut values = [0_u16; 256];
        for (value, occurs) in values.iter_mut().zip(occurs) {
            *value = count;
            count += u16::from(occurs);
        }
        Digit { values: Box::new(values), occurs: Box::new(occurs), base: u128::from(count) }
    }
}

fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    type Table = (Vec<u8>, Vec<u8>, u64);

    /// Each table that overlaps the one before it begins a run.
    fn axis(tables: &[Table]) -> KeyAxis {
        let mut runs: Vec<Vec<Span<'_>>> = Vec::new();
        for (min, max, bytes) in tables {
            let span = Span { min, max, bytes: *bytes };
            match runs.last_mut() {
                Some(run) if run.last().is_some_and(|last| last.max < min) => run.push(span),
                _ => runs.push(vec![span]),
            }
        }
        KeyAxis::of(&runs)
    }

    fn table(min: impl AsRef<[u8]>, max: impl AsRef<[u8]>, bytes: u64) -> Table {
        (min.as_ref().to_vec(), max.as_ref().to_vec(), bytes)
    }

    fn near(a: f64, b: f64, by: f64) {
        assert!((a - b).abs() <= by, "{a} {b}");
    }

    /// Draws the next number of a seed.
    fn draw(seed: &mut u64) -> u64 {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        *seed
    }

    /// By rank, each of these tables would get a fifth of their common width.
    #[test]
    fn tables_that_share_99_percent_of_their_keys_share_99_percent_of_their_width() {
        let user = |i: u64| format!("user{i:08}");
        for count in [2, 5, 30] {
            let shift = 100_000 / (count - 1);
            let tables: Vec<Table> = (0..count)
                .map(|i| table(user(i * shift), user(i * shift + 10_000_000), 1 << 20))
                .collect();
            let axis = axis(&tables);
            let spans: Vec<(f64, f64)> = tables.iter().map(|t| axis.span(&t.0, &t.1)).collect();
            let (first, last) = (spans[0], spans[spans.len() - 1]);
            near((first.1 - last.0) / (first.1 - first.0), 0.99, 0.006);
            for pair in spans.windows(2) {
                assert!(pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1, "{spans:?}");
            }
        }
    }

    /// Runs of single tables do not distort the axis: their data is distributed like that of the
    /// others.
    #[test]
    fn even_keys_lie_at_their_rank() {
        let key = |i: u64| format!("k{i:06}");
        let mut tables: Vec<Table> =
            (0..10).map(|i| table(key(i * 100_000), key(i * 100_000 + 99_999), 64)).collect();
        tables.extend((3..9).map(|i| table(key(i), key(999_990 - i), 640)));
        let axis = axis(&tables);
        for i in (0..1_000_000).step_by(4999) {
            near(axis.at(key(i).as_bytes()), i as f64 / 1e6, 0.001);
        }
    }

    /// A place is the fraction of all bytes, whichever part of the deepest run was rewritten last.
    #[test]
    fn bytes_of_all_runs_count() {
        let tables = [
            table("k00", "k49", 300),
            table("k50", "k99", 100),
            table("k50", "k99", 100),
            table("k50", "k99", 100),
        ];
        near(axis(&tables).at(b"k50"), 0.5, 0.001);
    }

    #[test]
    fn digits_are_those_of_the_keys() {
        let middle = |min: &str, key: &str, max: &str, by: f64| {
            near(axis(&[table(min, max, 1)]).at(key.as_bytes()), 0.5, by);
        };
        middle("user0500", "user0999", "user1500", 0.01);
        middle("9ff00000", "a0000000", "a0100000", 0.01);
        middle("dz", "ea", "eb", 0.01);
        let (low, high) = ([7, 0, 255, 0], [7, 2, 0, 0]);
        let tables = [(low.to_vec(), high.to_vec(), 1)];
        near(axis(&tables).at(&[7, 1, 127, 128]), 0.5, 0.01);
    }

    /// A few far keys do not fill half of the axis, whichever tables contain them.
    #[test]
    fn skewed_keys_stay_readable() {
        let mut tables: Vec<Table> =
            (0..9).map(|i| table(format!("a{i}00"), format!("a{i}99"), 1 << 27)).collect();
        tables.push(table("zzzz", "zzzz", 100));
        // The next tables have as many bytes as the first, but the places of the bytes are unknown.
        tables.extend((0..9).map(|i| table("a000", ["b", "zz"][i % 2], 1 << 27)));
        let axis = axis(&tables);
        let widths: Vec<f64> = tables[..9]
            .iter()
            .map(|(min, max, _)| axis.span(min, max))
            .map(|(from, to)| to - from)
            .collect();
        for width in &widths {
            near(*width, widths[0], 0.01);
        }
        let all: f64 = widths.iter().sum();
        assert!(all > 0.9 && all < 1.0, "{all}");
        assert!(axis.span(b"zzzz", b"zzzz").0 > 0.99);
    }

    #[test]
    fn a_long_common_prefix_costs_nothing() {
        for length in [0, 10, 300, 60_000] {
            let key = |i: u64| [&vec![b'/'; length][..], format!("{i:04}").as_bytes()].concat();
            let axis = axis(&[table(key(0), key(4999), 10), table(key(5000), key(9999), 10)]);
            near(axis.at(&key(2500)), 0.25, 0.001);
            near(axis.at(&key(7500)), 0.75, 0.001);
            assert_eq!(axis.common_prefix(), length);
        }
    }

    #[test]
    fn places_never_fall_and_equal_keys_have_one() {
        let mut seed = 7;
        for alphabet in [&b"01"[..], b"0123456789", b"abcxyz019_", &[0, 1, 2, 127, 128, 254, 255]] {
            let mut key = |most: u64| -> Vec<u8> {
                let length = draw(&mut seed) % (most + 1);
                (0..length).map(|_| alphabet[draw(&mut seed) as usize % alphabet.len()]).collect()
            };
            for most in [1, 3, 12, 80] {
                let tables: Vec<Table> = (0..30)
                    .map(|i| {
                        let (a, b) = (key(most), key(most));
                        (a.clone().min(b.clone()), a.max(b), i * 1000)
                    })
                    .collect();
                let axis = axis(&tables);
                let mut keys: Vec<Vec<u8>> = (0..500).map(|_| key(most + 2)).collect();
                keys.extend(tables.iter().flat_map(|table| [table.0.clone(), table.1.clone()]));
                // Includes bytes that occur in no bound.
                keys.extend(keys.clone().iter().map(|key| [&key[..], b"~\0q"].concat()));
                keys.extend((0..=255).map(|byte| vec![byte]));
                keys.sort();
                let places: Vec<f64> = keys.iter().map(|key| axis.at(key)).collect();
                for (at, pair) in places.windows(2).enumerate() {
                    assert!(pair[0] <= pair[1], "{:?} {:?} {pair:?}", keys[at], keys[at + 1]);
                }
                assert!(places[0] >= 0.0 && places[places.len() - 1] <= 1.0);
                for (min, max, _) in &tables {
                    let (from, to) = axis.span(min, max);
                    assert!(from <= to && from == axis.at(min), "{from} {to}");
                }
            }
        }
    }

    #[test]
    fn nothing_one_key_and_keys_without_numbers() {
        let none = axis(&[]);
        assert!(none.is_empty() && none.ticks(5).is_empty());
        assert_eq!((none.at(b"k"), none.span(b"a", b"b")), (0.0, (0.0, 0.0)));
        let one = axis(&[table("k", "k", 0)]);
        assert_eq!((one.span(b"k", b"k"), one.at(b"j"), one.at(b"l")), ((0.0, 1.0), 0.0, 1.0));
        assert_eq!(one.ticks(5), [(0.0, &b"k"[..])]);
        let (long, longer) = (vec![0; 200], vec![0; 201]);
        let zeros = axis(&[table(&long, &longer, 5), table("", &long, 5)]);
        assert_eq!(zeros.span(b"", &longer), (0.0, 1.0));
        assert!(zeros.at(&long) > 0.0 && zeros.at(&long) < 1.0);
    }

    #[test]
    fn ticks_are_real_keys_evenly_spread() {
        let key = |i: u64| format!("k{i:06}");
        let tables: Vec<Table> =
            (0..40).map(|i| table(key(i * 25_000), key(i * 25_000 + 24_999), 64)).collect();
        let axis = axis(&tables);
        let ticks = axis.ticks(5);
        assert_eq!((ticks[0].1, ticks[4].1), (&b"k000000"[..], &b"k999999"[..]));
        for (at, (place, key)) in ticks.iter().enumerate() {
            near(*place, at as f64 / 4.0, 0.02);
            assert!(tables.iter().any(|t| t.0 == *key || t.1 == *key));
        }
        let two = super::KeyAxis::of(&[vec![Span { min: b"a", max: b"b", bytes: 1 }]]);
        assert_eq!(two.ticks(5), [(0.0, &b"a"[..]), (1.0, &b"b"[..])]);
    }
}
