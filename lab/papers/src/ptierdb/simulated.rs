//! Table I at the paper's own size, by the simulator of the policies: the same trees by metadata
//! alone, under uniform keys and without what gets cause.

use runstone::policy::registry;
use runstone::policy::simulator::{KeyOrder, SimWorkload, Simulator};
use runstone::{Error, KeyspaceOptions, Result, ValuePlacement};

use super::{ACCESS_BYTES, BASE_BYTES, FLUSH_BYTES, Rival, SPLIT_BYTES, rivals};
use crate::numbers::list;
use crate::report::rows;
use crate::verdict::Rule::NotComparable;
use crate::{Context, PaperReport};

const RECORDS: u64 = 100_000_000;
const ENTRY_BYTES: u64 = 116;
/// Load, A, B, F and D: 100, 50, 5, 50 and 5 percent of the records.
const WRITES: u64 = RECORDS * 21 / 10;

rows! {
    WRITTEN = "write amplification of 100 million records by the simulator: {} (table I)",
        "25.34, 4.91, 7.3, 17.54 (SILK), 6.32, 12.34, 12.34"
        => NotComparable("keys are uniform, and no get causes a compaction");
}

pub(super) fn run(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let inline = |(_, options): &Rival| options.values.placement == ValuePlacement::Inline;
    let (mut names, mut written) = (Vec::new(), Vec::new());
    for (name, options) in rivals().into_iter().filter(inline) {
        context.say(&format!("the paper's size by the simulator, {name}"));
        names.push(name);
        written.push(simulate(options)?);
    }
    report.show(WRITTEN.of(&[&names.join("; ")]), list(written, 2));
    Ok(())
}

fn simulate(mut options: KeyspaceOptions) -> Result<f64> {
    let shape = &mut options.shape;
    (shape.base_bytes, shape.access_bytes) = (BASE_BYTES, ACCESS_BYTES);
    (shape.table_bytes, shape.split_bytes) = (SPLIT_BYTES, SPLIT_BYTES);
    let workload = SimWorkload {
        flush_bytes: FLUSH_BYTES,
        entry_bytes: ENTRY_BYTES,
        key_space: RECORDS,
        order: KeyOrder::Uniform,
        seed: 1,
        prefix_count: 4 * FLUSH_BYTES / SPLIT_BYTES,
    };
    let unknown = |error| Error::invalid(format!("the simulator: {error}"), "report it");
    let policy = registry::find(&options.policy).map_err(|error| unknown(error.to_string()))?;
    let report = Simulator::new(policy, options.shape, workload)
        .run(WRITES * ENTRY_BYTES / FLUSH_BYTES)
        .map_err(|error| unknown(error.to_string()))?;
    Ok(report.write_amplification_permille as f64 / 1000.0)
}
