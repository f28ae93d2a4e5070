//! Table I: what each store has written, and how large it is, after the first run. The paper's
//! tables are compressed, but WiscKey's log is not: 105 M records of 116 bytes are 12.2 GB, of
//! which leveled takes 7.91. Values here compress so that leveled takes the same share; they were
//! chosen with leveled alone, before the others ran. The same runs without compression are listed
//! after the claims.

use runstone::Compression;
use runstone_kv::Result;

use super::tree::{Tree, each, sides_of, write_amplification};
use super::ycsb::{E, Run, VALUE_BYTES, first_run};
use super::{
    EVERY, FRAGMENTED, GUARDS, GUARDS_T, LAST, LAZY, LEVELED, Rival, TIERED, WISCKEY, rivals,
};
use crate::numbers::{list, ratio};
use crate::report::{bars_beside, rows};
use crate::verdict::Rule::*;
use crate::{Context, PaperReport};

/// The share of a value that does not repeat. Leveled then takes 0.65 of the bytes of all records;
/// with 0.39 it takes 0.62.
const COMPRESSIBILITY: f64 = 0.41;
const NOT_PEBBLESDB: &str = "PebblesDB keeps two tables between two guards";

rows! {
    WRITTEN_LAST = "write amplification of PTierDB over leveled (table I)",
        "12.34 / 25.34 = 0.49" => Ratios(&[0.487]);
    WRITTEN_EVERY = "write amplification of PTierDB over leveled, merges inside every level",
        "12.34 / 25.34 = 0.49" => Ratios(&[0.487]);
    WRITTEN_TIERED = "write amplification of tiered over leveled (table I)",
        "4.91 / 25.34 = 0.19" => Ratios(&[0.194]);
    WRITTEN_LAZY = "write amplification of lazy leveling over leveled (table I)",
        "7.3 / 25.34 = 0.29" => Ratios(&[0.288]);
    WRITTEN_GUARDS = "write amplification of guards over leveled, for PebblesDB (table I)",
        "6.32 / 25.34 = 0.25" => Ratios(&[0.249]);
    WRITTEN_GUARDS_T = "write amplification of guards over leveled, K = T - 1",
        "6.32 / 25.34 = 0.25" => Beside(NOT_PEBBLESDB);
    WRITTEN_WISCKEY = "bytes written to tables and log by WiscKey over leveled (table I)",
        "2.8 / 25.34 = 0.11" => Ratios(&[0.110]);
    WRITTEN_SILK = "write amplification of fragmented leveling over leveled, for SILK (table I)",
        "17.54 / 25.34 = 0.69" => Ratios(&[0.692]);
    SIZE_LAST = "size of PTierDB over leveled (table I)",
        "8.1 / 7.91 GB = 1.02" => Alike(0.1);
    SIZE_EVERY = "size of PTierDB over leveled, merges inside every level",
        "8.1 / 7.91 GB = 1.02" => Alike(0.1);
    SIZE_TIERED = "size of tiered over leveled (table I)",
        "14.84 / 7.91 GB = 1.88" => Ratios(&[1.876]);
    SIZE_LAZY = "size of lazy leveling over leveled (table I)",
        "7.9 / 7.91 GB = 1.00" => Alike(0.1);
    SIZE_GUARDS = "size of guards over leveled, for PebblesDB (table I)",
        "12.7 / 7.91 GB = 1.61" => Ratios(&[1.606]);
    SIZE_GUARDS_T = "size of guards over leveled, K = T - 1",
        "12.7 / 7.91 GB = 1.61" => Beside(NOT_PEBBLESDB);
    SIZE_SILK = "size of fragmented leveling over leveled, for SILK (table I)",
        "10.5 / 7.91 GB = 1.33" => Ratios(&[1.327]);
    SIZE_WISCKEY = "size of WiscKey over leveled, without collection (table I)",
        "27.2 / 7.91 GB = 3.44" => Ratios(&[3.439]);
    SIZE_FLUSHED = "size of all that tiered flushed over leveled: a tree that never compacts",
        "" => Beside("no tree can hold more");
    LIVE = "size of leveled over the bytes of all records: values were chosen by it (table I)",
        "7.91 / 12.2 GB = 0.65" => Beside("fixed before the other stores ran");
    PLAIN_WRITTEN = "write amplification over leveled, tables not compressed, all nine",
        "" => Beside("the paper's tables are compressed");
    PLAIN_SIZES = "size over leveled, tables not compressed, all nine",
        "" => Beside("the paper's tables are compressed");
}

/// Makes table I, and the same table without compression; `plain` are the uncompressed runs.
/// Returns the runs that are judged.
pub(super) fn run(
    context: &Context<'_>,
    report: &mut PaperReport,
    plain: &[Run],
    records: u64,
) -> Result<Vec<Run>> {
    let rivals = rivals();
    report.compare(&sides_of(&rivals), &[])?;
    let over = |value: fn(&Run) -> f64| {
        list(plain.iter().map(|run| value(run) / value(&plain[LEVELED])), 2)
    };
    report.show(PLAIN_WRITTEN, over(Run::write_amplification));
    report.show(PLAIN_SIZES, over(|run| run.bytes as f64));
    let rivals = rivals.map(compressed);
    report.compare(&sides_of(&rivals), &[])?;
    let what = "load, A, B, C, F, D with compressed tables";
    let runs = each(context, what, &rivals, |rival| compressed_run(rival, records))?;
    judge_writes(report, &runs);
    judge_sizes(report, &runs);
    draw(report, &runs);
    Ok(runs)
}

/// The store with LZ4 on every level.
pub(super) fn compressed((name, options): Rival) -> Rival {
    (name, options.compression(vec![Compression::Lz4]))
}

/// Makes the first run with values that compress. Only its bytes are used, so gets are made only if
/// they cause compactions.
pub(super) fn compressed_run(rival: &Rival, records: u64) -> Result<Run> {
    let tree = Tree::open(rival, VALUE_BYTES)?.compressing(COMPRESSIBILITY);
    let counts_accesses = rival.1.policy.as_str() == "adaptive-tiering";
    first_run(if counts_accesses { tree } else { tree.without_gets() }, records, E)
}

fn judge_writes(report: &mut PaperReport, runs: &[Run]) {
    let of = |store: usize| {
        let [one, leveled] = [store, LEVELED].map(|at| runs[at].write_amplification());
        ratio(one, leveled, 2, "")
    };
    let rows = [
        (WRITTEN_LAST, LAST),
        (WRITTEN_EVERY.uncounted(), EVERY),
        (WRITTEN_TIERED, TIERED),
        (WRITTEN_LAZY, LAZY),
        (WRITTEN_GUARDS, GUARDS),
        (WRITTEN_WISCKEY, WISCKEY),
        (WRITTEN_SILK, FRAGMENTED),
    ];
    for (row, store) in rows {
        let (text, of_all) = of(store);
        report.judge(row, text, &[of_all]);
    }
    report.show(WRITTEN_GUARDS_T, of(GUARDS_T).0);
}

fn judge_sizes(report: &mut PaperReport, runs: &[Run]) {
    let size = |store: usize| runs[store].bytes as f64 / runs[LEVELED].bytes as f64;
    let text = |store: usize| format!("{:.2}", size(store));
    let alike = [(SIZE_LAST, LAST), (SIZE_EVERY.uncounted(), EVERY), (SIZE_LAZY, LAZY)];
    for (row, store) in alike {
        report.judge(row, text(store), &[1.0, size(store)]);
    }
    let others = [
        (SIZE_TIERED, TIERED),
        (SIZE_GUARDS, GUARDS),
        (SIZE_SILK, FRAGMENTED),
        (SIZE_WISCKEY, WISCKEY),
    ];
    for (row, store) in others {
        report.judge(row, text(store), &[size(store)]);
    }
    report.show(SIZE_GUARDS_T, text(GUARDS_T));
    let phases = runs[TIERED].phases();
    let flushed: u64 = phases.map(|phase| phase.counters.flush_bytes_written).sum();
    report.show(SIZE_FLUSHED, format!("{:.2}", flushed as f64 / runs[LEVELED].bytes as f64));
    report.show(LIVE, format!("{:.2}", runs[LEVELED].bytes_over_records()));
}

/// Write amplification and gigabytes that table I prints for each store, in their order; none for
/// stores that only we have.
const TABLE_1: [[f64; 2]; 9] = [
    [25.34, 7.91],
    [4.91, 14.84],
    [7.3, 7.9],
    [17.54, 10.5],
    [6.32, 12.7],
    [2.8, 27.2],
    [f64::NAN, f64::NAN],
    [12.34, 8.1],
    [f64::NAN, f64::NAN],
];

fn draw(report: &mut PaperReport, runs: &[Run]) {
    let beside = || runs.iter().zip(TABLE_1);
    let written = |(run, [paper, _]): (&Run, [f64; 2])| {
        let here = [write_amplification([&run.load]), run.write_amplification()];
        bars_beside(run.name, here, [f64::NAN, paper])
    };
    let titles = ["Write amplification of load and mixes", "phase", "bytes written / user bytes"];
    report.draw_bars("table-1", titles, ["load", "all"], beside().map(written).collect());
    let size = |(run, [_, paper]): (&Run, [f64; 2])| {
        let here = run.bytes as f64 / runs[LEVELED].bytes as f64;
        bars_beside(run.name, [here], [paper / TABLE_1[LEVELED][1]])
    };
    let titles = ["Size of the store", "after load, A, B, C, F and D", "over leveled"];
    report.draw_bars("table-1-sizes", titles, ["size"], beside().map(size).collect());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ptierdb::tree::Phase;

    /// Bytes that load and mixes write to tables and to value files.
    fn written(rival: &Rival, compressibility: f64) -> [u64; 2] {
        let tree = Tree::open(rival, VALUE_BYTES).expect("in memory").compressing(compressibility);
        let run = first_run(tree, 10_000, E).expect("in memory");
        let all: Vec<_> = run.phases().map(|phase| &phase.counters).collect();
        let values = all.iter().map(|counters| counters.value_bytes_written).sum();
        let tables = all.iter().map(|counters| counters.flush_bytes_written).sum();
        [tables, values]
    }

    #[test]
    fn tables_are_compressed_and_the_log_of_wisckey_is_not() {
        let plain = rivals();
        let [[tables, none], [log_tables, log]] =
            [LEVELED, WISCKEY].map(|at| written(&plain[at], COMPRESSIBILITY));
        let [[smaller, still_none], [smaller_log_tables, same_log]] =
            [LEVELED, WISCKEY].map(|at| written(&compressed(plain[at].clone()), COMPRESSIBILITY));
        assert_eq!((none, still_none, log), (0, 0, same_log));
        assert!(smaller < tables * 3 / 5, "{smaller} of {tables}");
        assert!(smaller_log_tables < log_tables && log > 0, "{log_tables}, {log}");
    }

    /// Without gets, the figures of table I stay the same, except those of PTierDB.
    #[test]
    fn gets_that_are_left_out_write_nothing() {
        let seen = |rival: &Rival, makes_gets: bool| {
            let tree = Tree::open(rival, VALUE_BYTES).expect("in memory");
            let tree = tree.compressing(COMPRESSIBILITY);
            let tree = if makes_gets { tree } else { tree.without_gets() };
            let run = first_run(tree, 10_000, E).expect("in memory");
            let written: Vec<_> = run.phases().map(Phase::written_bytes).collect();
            (written, run.bytes)
        };
        for (at, rival) in rivals().map(compressed).iter().enumerate() {
            let is_same = seen(rival, true) == seen(rival, false);
            assert_eq!(is_same, at != EVERY && at != LAST, "{}", rival.0);
        }
    }
}
