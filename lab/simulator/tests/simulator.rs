//! The shape simulator at full size, compared with known properties of the policies. Exact reports
//! of small trees are text tests.

use runstone_policy::options::{Numbers, PolicyOptions};
use runstone_policy::registry::{POLICIES, find};
use runstone_simulator::{
    KeyOrder, Loads, RangeDeletes, SimLevel, SimReport, SimWorkload, Simulator,
};

const FLUSH_BYTES: u64 = 64 << 20;

/// The policies that keep all data in level 0.
const STACKS: [&str; 5] = ["bigtable", "constant", "universal", "binomial", "min-latency"];

fn workload(order: KeyOrder, key_space: u64) -> SimWorkload {
    SimWorkload {
        flush_bytes: FLUSH_BYTES,
        entry_bytes: 128,
        key_space,
        order,
        seed: 7,
        prefix_count: 128,
    }
}

fn simulate(policy: &str, order: KeyOrder, key_space: u64, flushes: u64) -> SimReport {
    let workload = workload(order, key_space);
    let policy = find(policy).unwrap();
    Simulator::new(policy, PolicyOptions::default(), workload).run(flushes).unwrap()
}

#[test]
fn nothing_is_lost() {
    for policy in POLICIES {
        let report = simulate(policy.name(), KeyOrder::Uniform, 1 << 60, 500);
        let held: u64 = report.levels.iter().map(|level| level.bytes).sum();
        // Enough keys that there is hardly a duplicate.
        assert!(held <= report.user_bytes && held > report.user_bytes / 1000 * 999);
        assert_eq!(report.user_bytes, 500 * FLUSH_BYTES);
    }
}

#[test]
fn an_ascending_load_rewrites_nothing() {
    for policy in POLICIES {
        let report = simulate(policy.name(), KeyOrder::Sequential, 1 << 60, 500);
        assert_eq!(report.compacted_bytes, 0);
        assert_eq!(report.write_amplification_permille, 1000);
    }
}

#[test]
fn overwriting_stays_within_the_key_space() {
    for policy in POLICIES {
        // Each key is written about eight times.
        let report = simulate(policy.name(), KeyOrder::Uniform, 1 << 25, 512);
        let held: u64 = report.levels.iter().map(|level| level.bytes).sum();
        let all_keys = 128 << 25;
        // Each key is stored once per run of the level with the most runs, and the levels above
        // contain no more than that together. So with one run per level, each key is stored at most
        // twice.
        let is_stack = STACKS.contains(&policy.name());
        let deep = report.levels.iter().filter(|level| level.level > 0 || is_stack);
        // Overlapping tables count as many runs as there are tables over a key.
        let runs_of = |level: &SimLevel| match level.overlapping {
            true => level.tables_probed_per_get_permille.div_ceil(1000),
            false => level.run_count,
        };
        let runs = deep.map(runs_of).max().unwrap_or(1);
        assert!(held < (runs + 1) * all_keys, "{}: {held} in {runs}", policy.name());
        assert!(report.compacted_bytes < report.compaction_read_bytes);
    }
}

/// Costs do not depend on the unit: a tree of an exbibyte equals one of a gibibyte with entries
/// that are smaller by the same factor. Once, sums of the bytes that compactions write passed 2^64,
/// and started again from 0.
#[test]
fn an_exbibyte_costs_what_a_gibibyte_does() {
    let run = |unit: u64| {
        let numbers = Numbers {
            size_ratio: 1000,
            base_bytes: unit << 22,
            table_bytes: unit << 22,
            ..Numbers::default()
        }
        .into_options();
        let workload = SimWorkload {
            flush_bytes: unit << 20,
            entry_bytes: unit,
            ..workload(KeyOrder::Uniform, 1 << 60)
        };
        Simulator::new(find("leveling").unwrap(), numbers, workload).run(1024).unwrap()
    };
    let (small, large) = (run(1), run(1 << 30));
    assert_eq!((small.user_bytes, large.user_bytes), (1 << 30, 1 << 60));
    assert!(small.write_amplification_permille > 20_000, "{small:?}");
    assert_eq!(large.write_amplification_permille, small.write_amplification_permille);
    assert_eq!((small.plan_count, large.compacted_bytes), (large.plan_count, u64::MAX));
}

/// The rest of the key space, into which no whole flush fits, is never written. Once, it was
/// expected to be, so that a tree without garbage seemed to take half of the space of its data.
#[test]
fn an_ascending_load_that_wraps_around_holds_its_keys_once() {
    for key_space in [1, 1000, (1 << 19) - 1, 1 << 19, 1_000_000, 1 << 20, (1 << 20) + 1] {
        let report = simulate("leveling", KeyOrder::Sequential, key_space, 160);
        let space = report.space_amplification_permille;
        assert!((1000..2000).contains(&space), "{key_space} keys: {space}");
    }
}

/// A full TiB takes 6 s for both policies; a quarter of it shows the same.
#[test]
fn a_quarter_of_a_tebibyte() {
    for policy in POLICIES {
        let report = simulate(policy.name(), KeyOrder::Uniform, 1 << 60, (1 << 38) / FLUSH_BYTES);
        // Constant rewrites everything every k flushes, so its amplification grows with the data.
        let most = if policy.name() == "constant" { 400_000 } else { 40_000 };
        assert!(report.write_amplification_permille < most, "{}", policy.name());
    }
}

/// The extremes of fluid equal the other policies, down to the tables.
#[test]
fn fluid_has_tiering_lazy_leveling_and_leveling_at_its_corners() {
    let tree = |policy: &str, max_runs, last_level_runs| {
        let numbers = Numbers::of(&small()).clone();
        let numbers =
            Numbers { size_ratio: 4, max_runs, last_level_runs, ..numbers }.into_options();
        let workload =
            SimWorkload { flush_bytes: 4 << 20, seed: 5, ..workload(KeyOrder::Uniform, 1 << 22) };
        let mut simulator = Simulator::new(find(policy).unwrap(), numbers, workload);
        let report = simulator.run(700).unwrap();
        (simulator.shape().levels.clone(), report)
    };
    assert_eq!(tree("fluid", 3, 3), tree("tiering", 1, 1));
    assert_eq!(tree("fluid", 9, 9), tree("tiering", 1, 1), "a larger K or Z means T - 1");
    assert_eq!(tree("fluid", 3, 1), tree("lazy-leveling", 1, 1));
    // Fluid leaves alone the tables that overlap nothing; the last digits show the difference.
    let (fluid, leveling) = (tree("fluid", 1, 1).1, tree("leveling", 1, 1).1);
    assert!(
        fluid.compacted_bytes.abs_diff(leveling.compacted_bytes)
            < leveling.compacted_bytes / 100_000
    );
    assert_eq!(fluid.levels.len(), leveling.levels.len());
    for (a, b) in fluid.levels.iter().zip(&leveling.levels) {
        assert_eq!((a.level, a.run_count), (b.level, b.run_count));
        assert!(a.bytes.abs_diff(b.bytes) <= b.bytes / 100_000);
    }
}

fn small() -> PolicyOptions {
    Numbers { l0_trigger: 4, base_bytes: 16 << 20, table_bytes: 2 << 20, ..Numbers::default() }
        .into_options()
}

/// Gets heat tables that overlap, and adaptive tiering compacts them until few do. A policy without
/// overlapping levels has nothing to do.
#[test]
fn gets_make_adaptive_tiering_read_like_leveling() {
    let load = |name: &str| {
        let options = Numbers { size_ratio: 4, ..Numbers::default() }.into_options();
        let workload = workload(KeyOrder::Uniform, 1 << 60);
        let mut simulator = Simulator::new(find(name).unwrap(), options, workload);
        let report = simulator.run(256).unwrap();
        (report, simulator.run_gets(4_000_000).unwrap())
    };
    let (report, gets) = load("adaptive-tiering");
    assert!(report.levels.iter().any(|level| level.overlapping && level.table_count > 1));
    let (first, last) =
        (gets.first_tables_probed_per_get_permille, gets.last_tables_probed_per_get_permille);
    assert!(gets.plan_count > 0 && gets.compacted_bytes > 0, "{gets:?}");
    assert!(last < first && first == report.tables_probed_per_get_permille, "{gets:?}");
    let (_, gets) = load("leveling");
    assert_eq!((gets.plan_count, gets.compacted_bytes), (0, 0));
}

/// Time series: ascending keys that expire. Each expired table is dropped without being read.
#[test]
fn what_ascends_and_expires_leaves_unread() {
    for policy in POLICIES {
        let workload = workload(KeyOrder::Sequential, 1 << 60);
        let simulator = Simulator::new(*policy, PolicyOptions::default(), workload);
        let report = simulator.with_expiry(100 * FLUSH_BYTES).run(500).unwrap();
        let held: u64 = report.levels.iter().map(|level| level.bytes).sum();
        assert_eq!(report.compaction_read_bytes, 0, "{}", policy.name());
        assert_eq!(report.dropped_bytes + held, report.flushed_bytes, "{}", policy.name());
        // The last flush is checked when it is as old as the first that stays.
        assert_eq!(held, 100 * FLUSH_BYTES, "{}", policy.name());
    }
}

/// Each range delete takes a tenth of the keys, the next tenth each time: the tree stays within a
/// few times the data that is left, and less is written than without range deletes. Deletes of all
/// keys empty the tree without a compaction.
#[test]
fn what_is_deleted_gives_its_space_back() {
    for policy in POLICIES {
        let run = |every_flushes: u64, share_permille: u64| {
            let workload = workload(KeyOrder::Uniform, 1 << 60);
            let simulator = Simulator::new(*policy, PolicyOptions::default(), workload);
            let every_bytes = every_flushes * FLUSH_BYTES;
            let deletes = RangeDeletes { every_bytes, share_permille };
            simulator.with_range_deletes(deletes).run(512).unwrap()
        };
        let held = |report: &SimReport| report.levels.iter().map(|level| level.bytes).sum::<u64>();
        let (never, often) = (run(1000, 100), run(4, 100));
        assert!(held(&often) < held(&never) / 2, "{}: {}", policy.name(), held(&often));
        let written = |report: &SimReport| report.compacted_bytes + report.moved_bytes;
        assert!(written(&often) <= written(&never), "{}", policy.name());
        assert!(often.space_amplification_permille >= 1000, "{}", policy.name());
        // With shares that do not divide the keys evenly, the second range delete removes the rest.
        let halves = run(1, 600);
        assert!(held(&halves) <= 2 * FLUSH_BYTES, "{}: {}", policy.name(), held(&halves));
        let all = run(1, 1000);
        assert_eq!((held(&all), all.compaction_read_bytes), (0, 0), "{}", policy.name());
        assert_eq!(all.dropped_bytes, all.flushed_bytes, "{}", policy.name());
    }
}

/// Loaded data are written once, and not again if they overlap nothing. Loads over the whole key
/// space are compacted as flushes are, but larger loads make fewer runs: no more is written than by
/// flushes of the same bytes.
#[test]
fn what_is_loaded_is_written_once() {
    for policy in POLICIES {
        let run = |order, share_permille: u64| {
            let loads = Loads { share_permille, bytes: 16 * FLUSH_BYTES };
            let workload = workload(order, 1 << 60);
            let simulator = Simulator::new(*policy, PolicyOptions::default(), workload);
            let flushes = loads.flushed_of(512 * FLUSH_BYTES) / FLUSH_BYTES;
            simulator.with_loads(loads).run(flushes).unwrap()
        };
        let name = policy.name();
        let ascending = run(KeyOrder::Sequential, 500);
        assert_eq!(ascending.loaded_bytes, 256 * FLUSH_BYTES, "{name}");
        assert_eq!((ascending.compacted_bytes, ascending.user_bytes), (0, 512 * FLUSH_BYTES));
        assert_eq!(ascending.write_amplification_permille, 1000, "{name}");
        let (flushed, loaded) = (run(KeyOrder::Uniform, 0), run(KeyOrder::Uniform, 500));
        assert_eq!((flushed.loaded_bytes, flushed.user_bytes), (0, loaded.user_bytes), "{name}");
        let held: u64 = loaded.levels.iter().map(|level| level.bytes).sum();
        assert!(held > loaded.user_bytes / 1000 * 999, "{name}: {held}");
        assert!(loaded.compacted_bytes <= flushed.compacted_bytes, "{name}");
    }
}

/// Keys that are written again and expire: the tree stays within a few times the live data.
#[test]
fn what_expires_gives_its_space_back() {
    for policy in POLICIES {
        let run = |expires: bool| {
            let workload = workload(KeyOrder::Uniform, 1 << 60);
            let simulator = Simulator::new(*policy, PolicyOptions::default(), workload);
            let mut simulator = match expires {
                true => simulator.with_expiry(64 * FLUSH_BYTES),
                false => simulator,
            };
            let report = simulator.run(512).unwrap();
            for (_, table) in simulator.shape().tables() {
                assert!(
                    table.tombstones <= table.entries && table.expiries.entries <= table.entries
                );
            }
            report
        };
        let (all, live) = (run(false), run(true));
        let held = |report: &SimReport| report.levels.iter().map(|level| level.bytes).sum::<u64>();
        assert!(held(&live) >= 64 * FLUSH_BYTES / 1000 * 999, "{}", policy.name());
        assert!(held(&live) < held(&all), "{}: {}", policy.name(), held(&live) / FLUSH_BYTES);
        let shrank = live.compaction_read_bytes - live.compacted_bytes;
        assert!(shrank + live.dropped_bytes > 0, "{}", policy.name());
        println!(
            "{} held {} of 64, wa {} vs {}",
            policy.name(),
            held(&live) / FLUSH_BYTES,
            live.write_amplification_permille,
            all.write_amplification_permille
        );
    }
}
