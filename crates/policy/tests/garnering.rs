//! Garnering's capacities against the figures of its paper. Its rules one by one are text tests.

use runstone_policy::options::{Numbers, PolicyOptions};
use runstone_policy::policies::garnering::capacities_bytes;
use runstone_policy::units::Thousandths;

/// B: the bytes in level 0 when its compaction is due.
const BUFFER_BYTES: u64 = 1 << 20;

fn options(size_ratio: u32, c_permille: u32) -> PolicyOptions {
    Numbers {
        size_ratio,
        c: Thousandths::of_parts(c_permille),
        l0_trigger: 4,
        base_bytes: BUFFER_BYTES * u64::from(size_ratio),
        table_bytes: BUFFER_BYTES / 4,
        ..Numbers::default()
    }
    .into_options()
}

/// The least L whose levels together can hold `buffers` times B.
fn levels_for(buffers: u64, options: &PolicyOptions) -> u32 {
    let holds = |last: &u32| {
        let levels = capacities_bytes(*last, options).into_iter().skip(1);
        levels.map(u128::from).sum::<u128>() >= u128::from(buffers * BUFFER_BYTES)
    };
    (1..64).find(holds).unwrap()
}

#[test]
fn level_one_holds_a_500th_of_the_data() {
    let capacities = capacities_bytes(6, &options(2, 800));
    let total: u64 = capacities[1..].iter().sum();
    let millionths = u128::from(capacities[1]) * 1_000_000 / u128::from(total);
    assert_eq!(millionths, 1_881, "the paper says 0.188 %");
}

#[test]
fn levels_of_the_paper() {
    let count = |buffers, size_ratio, c| levels_for(buffers, &options(size_ratio, c));
    assert_eq!([1000, 800, 400].map(|c| count(1280, 5, c)), [5, 4, 3]);
    assert_eq!([64, 1 << 20].map(|n| count(n, 2, 1000)), [6, 20]);
    assert_eq!([64, 1 << 20].map(|n| count(n, 2, 800)), [4, 9]);
}

#[test]
fn capacities_follow_the_closed_form() {
    for (size_ratio, c_permille) in [(2, 800), (5, 400), (10, 990), (3, 1)] {
        let options = options(size_ratio, c_permille);
        for last in 1..=12u32 {
            for (level, bytes) in (1..=last).zip(&capacities_bytes(last, &options)[1..]) {
                let exponent = f64::from((2 * last - 1 - level) * level) / 2.0;
                let narrow = (f64::from(c_permille) / 1000.0).powf(exponent);
                let powers = f64::from(size_ratio).powi(level as i32) / narrow;
                let exact = (powers * BUFFER_BYTES as f64).min(u64::MAX as f64);
                let error = (*bytes as f64 - exact).abs() / exact;
                assert!(error < 1e-6, "T={size_ratio} c={c_permille} C_{level}({last}) = {bytes}");
            }
        }
    }
}

#[test]
fn without_widening_the_capacities_are_those_of_leveling() {
    let options = options(7, 1000);
    let capacities = capacities_bytes(40, &options);
    for (level, bytes) in (1u32..=40).zip(&capacities[1..]) {
        assert_eq!(*bytes, 7u64.saturating_pow(level - 1).saturating_mul(options.base_bytes()));
    }
}
