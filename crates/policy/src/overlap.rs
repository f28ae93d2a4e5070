//! Components of key overlap among the inputs of a job, and the plan that follows from them. Not
//! a policy: which tables are inputs is decided before.

use std::sync::Arc;

use crate::plan::{Busy, Cut, Merge, MergeInput, Move, Plan};
use crate::shape::{Level, Run, RunSlot, Table};

/// A table of a job, with its place.
#[derive(Clone)]
pub(crate) struct Input {
    /// Its level.
    pub level: u32,
    /// Index of its run in the level (0 is the newest); 0 in an overlapping level.
    pub run: usize,
    /// The table.
    pub table: Arc<Table>,
}

/// Where a job's outputs go.
#[derive(Clone, Copy)]
pub(crate) struct Output {
    /// Level.
    pub level: u32,
    /// Run.
    pub slot: RunSlot,
    /// Where they are cut.
    pub cut: Cut,
}

/// Inputs connected by key overlap. Its bounds are the union of theirs: no gap inside, or it
/// would be two components. So a merge of it writes only keys that one of its inputs covers.
pub(crate) struct Component {
    /// Sorted by (`min_key`, `max_key`, id).
    pub inputs: Vec<Input>,
    /// Input whose `max_key` is the largest.
    widest: usize,
}

impl Component {
    /// Smallest key of any input.
    pub fn min_key(&self) -> &[u8] {
        &self.inputs[0].table.min_key
    }

    /// Largest key of any input.
    pub fn max_key(&self) -> &[u8] {
        &self.inputs[self.widest].table.max_key
    }
}

/// All tables of a level as inputs.
pub(crate) fn level_inputs(index: u32, level: &Level) -> Vec<Input> {
    let input = |table| Input { level: index, run: 0, table: Arc::clone(table) };
    match level {
        Level::Runs(runs) => run_inputs(index, 0, runs),
        Level::Overlapping(tables) => tables.iter().map(input).collect(),
    }
}

/// Tables of a row of runs of a level; `from` numbers the first run.
pub(crate) fn run_inputs(level: u32, from: usize, runs: &[Run]) -> Vec<Input> {
    let numbered = (from..).zip(runs);
    let inputs = numbered.flat_map(|(run, tables)| {
        let input = move |table| Input { level, run, table: Arc::clone(table) };
        tables.tables.iter().map(input)
    });
    inputs.collect()
}

/// Sorts by key and cuts where no table spans the gap. O(n log n).
pub(crate) fn components(mut inputs: Vec<Input>) -> Vec<Component> {
    inputs.sort_by(|a, b| {
        let (a, b) = (&a.table, &b.table);
        (&a.min_key, &a.max_key, a.id).cmp(&(&b.min_key, &b.max_key, b.id))
    });
    let mut components: Vec<Component> = Vec::new();
    for input in inputs {
        match components.last_mut() {
            Some(last) if *input.table.min_key <= *last.max_key() => {
                if *input.table.max_key > *last.max_key() {
                    last.widest = last.inputs.len();
                }
                last.inputs.push(input);
            }
            _ => components.push(Component { inputs: vec![input], widest: 0 }),
        }
    }
    components
}

/// Whether a running job writes where one of these components would.
pub(crate) fn collides(components: &[Component], level: u32, busy: &Busy) -> bool {
    let range = |c: &Component| busy.writes(level, c.min_key(), c.max_key());
    !busy.ranges.is_empty() && components.iter().any(range)
}

/// A lone table moves (or stays, if it is in the target already); every other component is one
/// merge.
///
/// `stays` tells that a lone input needs no move.
pub(crate) fn plan_components(
    components: Vec<Component>,
    output: Output,
    stays: impl Fn(&Input) -> bool,
) -> Plan {
    let mut plan = Plan::default();
    for component in components {
        match component.inputs.as_slice() {
            [lone] if stays(lone) => {}
            [lone] => plan.moves.push(move_to(lone, output)),
            _ => plan.merges.push(merge_of(component.inputs, output)),
        }
    }
    plan
}

/// One move.
pub(crate) fn move_to(input: &Input, output: Output) -> Move {
    Move {
        table: input.table.id,
        from_level: input.level,
        to_level: output.level,
        slot: output.slot,
    }
}

/// One merge of all inputs, in the order that [`Merge`] promises.
pub(crate) fn merge_of(mut inputs: Vec<Input>, output: Output) -> Merge {
    inputs.sort_by(|a, b| {
        let place = (a.level, a.run).cmp(&(b.level, b.run));
        place.then_with(|| a.table.min_key.cmp(&b.table.min_key)).then(a.table.id.cmp(&b.table.id))
    });
    let same_run = |a: &Input, b: &Input| (a.level, a.run) == (b.level, b.run);
    let inputs = inputs
        .chunk_by(same_run)
        .map(|run| MergeInput {
            level: run[0].level,
            tables: run.iter().map(|input| input.table.id).collect(),
        })
        .collect();
    Merge { inputs, output_level: output.level, slot: output.slot, cut: output.cut }
}

/// Sum of the table sizes.
pub(crate) fn bytes(inputs: &[Input]) -> u64 {
    inputs.iter().map(|input| input.table.bytes).sum()
}
