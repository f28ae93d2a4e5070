//! While the level below is busy, a level compacts its newest runs inside itself, so that reads
//! stay bounded. Not a policy: each policy decides when to do this.

use crate::overlap::{Output, compaction_of, run_rows};
use crate::policy::Job;
use crate::shape::plan::Plan;
use crate::shape::{Run, RunSlot};
use crate::text::format_bytes;

/// A level has waited long enough when it has this many times the runs that make it sink.
pub(crate) const PATIENCE: u32 = 2;

/// The newest contiguous idle runs of a level, if it has [`PATIENCE`] times `trigger` of them.
///
/// The runs are gathered from the newest on. The next older run joins if it is at most twice as
/// large as all gathered so far, so that a large old run is not rewritten for small new ones: each
/// rewrite of a byte makes its run at least half as large again, so a byte is rewritten O(log)
/// times. (If the factor were one instead of two, a flush that is a byte larger than the next would
/// end the gathering.) The output takes the place and id of the newest run, which the job owns: age
/// order stays as it was.
pub(crate) fn compact_newest(job: &Job<'_>, level: u32, trigger: u32) -> Option<Plan> {
    let runs = job.shape.level(level).runs();
    let is_free = |run: &Run| job.is_idle(&run.tables);
    let least = (trigger as usize).max(2);
    let enough = (trigger as usize).saturating_mul(PATIENCE as usize).max(2);
    // Runs are counted first, because checking all tables is expensive.
    if runs.len() < enough || runs.iter().filter(|run| is_free(run)).count() < enough {
        return None;
    }
    let from = runs.iter().position(is_free)?;
    let mut gathered = runs[from].bytes();
    let mut to = from + 1;
    while let Some(run) = runs.get(to).filter(|run| is_free(run) && run.bytes() / 2 <= gathered) {
        gathered = gathered.saturating_add(run.bytes());
        to += 1;
    }
    if to - from < least {
        return None;
    }
    let (below, size) = (level + 1, format_bytes(gathered));
    let slot = RunSlot::New(runs[from].id);
    let output = Output { level, slot, cut: job.options.cut() };
    let plan = Plan {
        compactions: vec![compaction_of(run_rows(level, &runs[from..to]), output)],
        why: format!(
            "L{level} waits for L{below} with {} runs; newest {} ({size}) into one",
            runs.len(),
            to - from
        ),
        ..Plan::default()
    };
    Some(plan)
}
