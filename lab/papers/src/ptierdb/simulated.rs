//! Table I at the paper's own size, by the simulator of the policies: the same trees by metadata
//! alone, under uniform keys and without the work that gets cause.

use runstone::unstable;
use runstone::{KeyspaceOptions, ValuePlacement};
use runstone_kv::Result;

use super::{BASE_BYTES, FLUSH_BYTES, LEVELDB, Rival, SPLIT_BYTES, rivals};
use crate::numbers::list;
use crate::report::rows;
use crate::simulated::{Writes, simulate};
use crate::verdict::Rule::Beside;
use crate::{Context, PaperReport};

const RECORDS: u64 = 100_000_000;
const ENTRY_BYTES: u64 = 116;
/// Load, A, B, F and D: 100, 50, 5, 50 and 5 percent of the records.
const WRITES: u64 = RECORDS * 21 / 10;

rows! {
    WRITTEN = "write amplification of 100 million records by the simulator, all but WiscKey",
        "25.34, 4.91, 7.3, 17.54 (SILK), 6.32, 12.34, 12.34"
        => Beside("keys are uniform, and no get causes a compaction");
}

pub(super) fn run(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let inline = |(_, options): &Rival| options.values.placement == ValuePlacement::Inline;
    let mut written = Vec::new();
    for (name, options) in rivals().into_iter().filter(inline) {
        context.say(&format!("the paper's size by the simulator, {name}"));
        written.push(written_by(options));
    }
    report.show(WRITTEN, list(written, 2));
    Ok(())
}

/// Write amplification with the paper's sizes.
fn written_by(mut options: KeyspaceOptions) -> f64 {
    let shape = unstable::numbers_mut(&mut options);
    (shape.base_bytes, shape.access_limit) = (BASE_BYTES, LEVELDB.access_limit as u32);
    (shape.table_bytes, shape.split_bytes) = (SPLIT_BYTES, SPLIT_BYTES);
    options.write_buffer_bytes = FLUSH_BYTES;
    reckon(&options, WRITES, ENTRY_BYTES, RECORDS)
}

/// Write amplification of this many writes of as many keys, at the sizes of the options.
pub(super) fn uniform_writes(options: &KeyspaceOptions, writes: u64, entry_bytes: u64) -> f64 {
    reckon(options, writes, entry_bytes, writes)
}

fn reckon(options: &KeyspaceOptions, writes: u64, entry_bytes: u64, keys: u64) -> f64 {
    let flush_bytes = options.write_buffer_bytes;
    let writes = Writes {
        bytes: writes * entry_bytes,
        flush_bytes,
        entry_bytes,
        keys: Some(keys),
        prefixes: 4 * flush_bytes / unstable::numbers(options).split_bytes,
    };
    simulate(options, &writes).write_amplification_permille as f64 / 1000.0
}
