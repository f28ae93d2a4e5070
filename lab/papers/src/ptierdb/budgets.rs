//! How table I and the mixes depend on the bytes that an access may rewrite, for which the paper
//! gives no number.

use runstone::unstable;
use runstone_kv::Result;

use super::table_1::{compressed, compressed_run};
use super::tree::{Tree, each, sides_of};
use super::ycsb::{B, C, Run, VALUE_BYTES, first_run};
use super::{Budget, DIVISOR, EVERY, LAST, LEVELDB, LEVELED, Rival, rivals};
use crate::numbers::list;
use crate::report::rows;
use crate::verdict::Rule::Beside;
use crate::{Context, PaperReport};

/// The budgets besides the judged one. 28 KiB was chosen because it brings the headline's figure
/// close to the paper's.
const OTHERS: [Budget; 3] = [
    Budget { access_bytes: 28 << 10, access_limit: LEVELDB.access_limit.div_ceil(DIVISOR) },
    Budget { access_bytes: LEVELDB.access_bytes / DIVISOR, ..LEVELDB },
    Budget { access_bytes: (28 << 10) / DIVISOR, ..LEVELDB },
];
const NOTE: &str = "access budgets are, in this order: 16 KiB an access, judged; 28 KiB, tuned; 16 \
    KiB / 200 with a limit of 100; 28 KiB / 200 with a limit of 100, tuned";

rows! {
    WRITTEN = "writes over leveled by access budget, {}",
        "12.34 / 25.34 = 0.49" => Beside("the first one is judged");
    SIZES = "size over leveled by access budget: last level; every level",
        "8.1 / 7.91 GB = 1.02" => Beside("the first one is judged");
    TIMES = "time of YCSB {} over leveled by access budget: last level; every level",
        "0.83" => Beside("the first one is judged");
}

/// Runs both variants of PTierDB under the other budgets. `judged` has the runs under the judged
/// budget: first those for times, then those with compressed tables, for writes and sizes.
pub(super) fn show(
    context: &Context<'_>,
    report: &mut PaperReport,
    judged: [&[Run]; 2],
    records: u64,
) -> Result<()> {
    let directions = [(LAST, "last level"), (EVERY, "every level")];
    let with = |at: usize, budget: Budget| {
        let (name, mut options) = rivals()[at].clone();
        let shape = unstable::numbers_mut(&mut options);
        shape.access_bytes = budget.access_bytes;
        shape.access_limit = budget.access_limit as u32;
        (name, options)
    };
    let others: Vec<Rival> =
        directions.iter().flat_map(|(at, _)| OTHERS.map(|budget| with(*at, budget))).collect();
    let tables = others.clone().into_iter().map(compressed).collect::<Vec<_>>();
    let what = "load, A, B, C by bytes of an access";
    let timed = each(context, what, &others, |rival| {
        first_run(Tree::open(rival, VALUE_BYTES)?, records, C + 1)
    })?;
    let what = "load, A, B, C, F, D by bytes of an access";
    let sized = each(context, what, &tables, |rival| compressed_run(rival, records))?;
    let over = |chunk: usize, runs: &[Run], others: &[Run], value: fn(&Run) -> f64| {
        let others = others.chunks(OTHERS.len()).nth(chunk).into_iter().flatten();
        let all = std::iter::once(&runs[directions[chunk].0]).chain(others);
        list(all.map(|run| value(run) / value(&runs[LEVELED])), 2)
    };
    let both = |runs: &[Run], others: &[Run], value: fn(&Run) -> f64| {
        [0, 1].map(|chunk| over(chunk, runs, others, value)).join("; ")
    };
    report.compare(&sides_of(&tables), &[])?;
    for (chunk, (_, direction)) in directions.iter().enumerate() {
        let written = over(chunk, judged[1], &sized, Run::write_amplification);
        report.show(WRITTEN.of(&[direction]), written);
    }
    report.show(SIZES, both(judged[1], &sized, |run| run.bytes as f64));
    report.compare(&sides_of(&others), &[])?;
    report.show(TIMES.of(&[&"B"]), both(judged[0], &timed, |run| run.mixes[B].us));
    report.show(TIMES.of(&[&"C"]), both(judged[0], &timed, |run| run.mixes[C].us));
    report.note(NOTE);
    Ok(())
}
