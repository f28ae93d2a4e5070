//! Full leveling: the textbook policy. A level over target is compacted whole into the next one.
//! Not for large stores under load: one compaction may rewrite the two largest levels.
//!
//! 1. Level 0 is over target at `l0_trigger` runs: its runs compact with all of level 1. If some
//!    runs are busy, only the oldest runs up to the first busy one do.
//! 2. Level i >= 1 is over target above base * T^(i-1) bytes: it compacts whole with level i+1. The
//!    deepest level is no exception: above its target, it makes the next level.
//! 3. If no two of these tables overlap, the sources move and nothing is rewritten.
//! 4. The level with the highest score sinks first.
//!
//! With `seek_compaction`, a table sinks by itself if reads probed it in vain and no level is due
//! (`seeks`).
//!
//! A compaction of rules 1 and 2 takes both levels whole, so two of them never share a level, and
//! each byte is rewritten about T/2 times per level.

use crate::overlap::{any_overlap, bytes, compaction_of, level_rows, run_rows};
use crate::policies::leveled::{self, Leveled, Over};
use crate::policies::seeks::compact_sought;
use crate::policy::Job;
use crate::shape::plan::Plan;
use crate::text::format_bytes;

pub(crate) static LEVELING: Leveled = Leveled {
    name: "leveling",
    doc: "one run per level; a full level compacts whole into the next: fewest runs, most writing",
    targets: leveled::targets,
    first: leveled::nothing,
    sink,
    idle: compact_sought,
};

/// Compacts the whole level with the whole next level.
fn sink(job: &Job, over: &Over) -> Option<Plan> {
    let shape = job.shape;
    let output = job.output_to(over.level + 1);
    if job.busy.writes_into(output.level) {
        return None;
    }
    let sources = match over.level {
        0 => run_rows(0, job.idle_suffix(0)),
        level => level_rows(level, shape.level(level)),
    };
    let targets = level_rows(output.level, shape.level(output.level));
    let rows = [&*sources, &targets].concat();
    if rows.iter().any(|row| !job.is_idle(row.tables)) {
        return None;
    }
    let mut plan = Plan::default();
    let why;
    if any_overlap(rows.clone()) {
        plan.compactions.push(compaction_of(rows, output));
        let with = format_bytes(bytes(&targets));
        why = format!("whole level with {with} of L{}", output.level);
    } else {
        plan.moves = sources.iter().flat_map(|row| row.moves(output)).collect();
        why = format!("nothing overlaps, {} tables move", plan.moves.len());
    }
    plan.why = format!("{}; {why}", over.reason);
    Some(plan)
}
