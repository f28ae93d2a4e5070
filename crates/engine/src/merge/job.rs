//! Executes a plan: reads the inputs as merged streams, keeps what somebody can see, writes tables.
//! Decides nothing about the tree; where tables are cut and what may go follows from the plan.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::time::Instant;

use runstone_policy::drop_guard::DropGuard;
use runstone_policy::edit::edit_for;
use runstone_policy::plan::{Cut, Merge, Plan};
use runstone_policy::prefix::{PrefixHistogram, Prefixer};
use runstone_policy::shape::{Level, Table};

use crate::error::{Error, Result};
use crate::event::Event;
use crate::key::{Kind, SeqNo, kind_of, seq_of};
use crate::metrics::Counter;
use crate::read::merge::MergeIter;
use crate::read::source::{RunIter, Source};
use crate::store::{Inner, KeyspaceInner};
use crate::table::builder::{TableBuilder, TableLayout};
use crate::table::iterator::Access;
use crate::version::handle::TableHandle;
use crate::version::record::Change;
use crate::version::{RunTables, Version, chains};

/// Entries between two looks at whether the job should stop.
const CANCEL_INTERVAL: u64 = 4096;

/// Which versions stay (rule I4). Fed with all versions of a key, newest first.
pub(crate) struct KeepRule {
    /// Sequence numbers that readers look from, ascending; never empty.
    points: Vec<SeqNo>,
    /// Says whether a tombstone hides nothing outside of the merge; `None` keeps all of them.
    guard: Option<DropGuard>,
    key: Vec<u8>,
    /// Stripe of the last version of `key` that was kept or spent; `None` before the first.
    stripe: Option<usize>,
}

impl KeepRule {
    pub(crate) fn new(points: Vec<SeqNo>, guard: Option<DropGuard>) -> KeepRule {
        assert!(!points.is_empty(), "at least the present is visible");
        KeepRule { points, guard, key: Vec::new(), stripe: None }
    }

    /// Whether the key differs from that of the previous call.
    fn enter(&mut self, key: &[u8]) -> bool {
        if self.stripe.is_some() && self.key == key {
            return false;
        }
        self.key.clear();
        self.key.extend_from_slice(key);
        self.stripe = None;
        true
    }

    /// Whether a version of the entered key stays.
    fn keeps(&mut self, trailer: u64) -> bool {
        let seq = seq_of(trailer);
        // The first point that sees this version. Versions newer than every point (written after
        // the merge began) each have a stripe of their own.
        let stripe = self.points.partition_point(|point| *point < seq);
        let shadowed = self.stripe == Some(stripe) && stripe < self.points.len();
        self.stripe = Some(stripe);
        if shadowed {
            return false;
        }
        let spent = kind_of(trailer) == Kind::Delete as u8
            && stripe == 0
            && self.guard.as_mut().is_some_and(|guard| guard.allows(&self.key, seq));
        !spent
    }
}

/// Where merged entries go.
pub(crate) struct Output<'a> {
    inner: &'a Inner,
    layout: TableLayout,
    cutter: Cutter,
}

impl<'a> Output<'a> {
    pub(crate) fn new(inner: &'a Inner, layout: TableLayout, cut: Cut) -> Output<'a> {
        let cutter = Cutter { cut, last_prefix: Vec::new(), input_bytes: 0, input_entries: 0 };
        Output { inner, layout, cutter }
    }

    /// Says how much there is to merge, for cuts that look at what is left.
    pub(crate) fn of_input(mut self, bytes: u64, entries: u64) -> Output<'a> {
        (self.cutter.input_bytes, self.cutter.input_entries) = (bytes, entries.max(1));
        self
    }
}

/// Decides where one table ends and the next begins.
struct Cutter {
    cut: Cut,
    last_prefix: Vec<u8>,
    input_bytes: u64,
    input_entries: u64,
}

impl Cutter {
    /// Whether a table of `table_bytes` ends before the new user key `key`; `seen` input entries
    /// came before it. Called once per user key, also where no table is open.
    fn cuts_before(
        &mut self,
        key: &[u8],
        prefixer: Option<&Prefixer>,
        table_bytes: u64,
        seen: u64,
    ) -> bool {
        let Cut::Prefix { split_bytes, cap_bytes } = self.cut else {
            return table_bytes >= self.cut.cap_bytes();
        };
        let prefix = prefixer.map_or(key, |prefixer| prefixer.prefix(key));
        if self.last_prefix == prefix {
            return table_bytes >= cap_bytes;
        }
        self.last_prefix.clear();
        self.last_prefix.extend_from_slice(prefix);
        table_bytes >= cap_bytes
            || (table_bytes >= split_bytes && self.remaining_bytes(seen) >= split_bytes)
    }

    fn remaining_bytes(&self, seen: u64) -> u64 {
        let left = u128::from(self.input_entries.saturating_sub(seen));
        (u128::from(self.input_bytes) * left / u128::from(self.input_entries.max(1))) as u64
    }
}

/// What a merge made.
#[derive(Debug, Default)]
pub(crate) struct Merged {
    pub(crate) tables: Vec<Arc<Table>>,
    pub(crate) dropped: u64,
}

/// Merges streams into tables. On an error, the tables written so far are removed.
pub(crate) fn merge_streams(
    sources: Vec<Source>,
    mut output: Output<'_>,
    keep: KeepRule,
    cancelled: &dyn Fn() -> Result<()>,
) -> Result<Merged> {
    let mut merged = Merged::default();
    let mut open = None;
    let outcome = fill_tables(sources, &mut output, keep, cancelled, &mut merged, &mut open);
    if let Err(error) = outcome {
        if let Some((id, builder)) = open {
            drop(builder);
            let _ = output.inner.storage.remove(&crate::table::table_name(id));
        }
        output.inner.discard(&merged.tables);
        return Err(error);
    }
    Ok(merged)
}

fn fill_tables(
    sources: Vec<Source>,
    output: &mut Output<'_>,
    mut keep: KeepRule,
    cancelled: &dyn Fn() -> Result<()>,
    merged: &mut Merged,
    open: &mut Option<(u64, TableBuilder)>,
) -> Result<()> {
    let mut streams = MergeIter::new(sources);
    streams.seek_to_first()?;
    let mut seen: u64 = 0;
    while let Some((key, trailer)) = streams.current() {
        seen += 1;
        if seen.is_multiple_of(CANCEL_INTERVAL) {
            cancelled()?;
        }
        let new_key = keep.enter(key);
        if new_key {
            let table_bytes = open.as_ref().map_or(0, |(_, builder)| builder.estimated_bytes());
            let prefixer = output.layout.prefixer.as_ref();
            if output.cutter.cuts_before(key, prefixer, table_bytes, seen - 1) {
                close_table(open, merged)?;
            }
        }
        if keep.keeps(trailer) {
            let (_, builder) = match open {
                Some(table) => table,
                None => open.insert(create_table(output)?),
            };
            builder.add(key, trailer, streams.value())?;
        } else {
            merged.dropped += 1;
        }
        streams.step()?;
    }
    close_table(open, merged)
}

fn create_table(output: &Output<'_>) -> Result<(u64, TableBuilder)> {
    let inner = output.inner;
    let id = inner.next_file.fetch_add(1, Relaxed);
    Ok((id, TableBuilder::create(&inner.tables, id, output.layout.clone())?))
}

fn close_table(open: &mut Option<(u64, TableBuilder)>, merged: &mut Merged) -> Result<()> {
    if let Some((id, builder)) = open.take() {
        match builder.finish() {
            Ok(table) => merged.tables.push(Arc::new(table)),
            Err(error) => {
                tracing::debug!(id, "a table was not finished");
                return Err(error);
            }
        }
    }
    Ok(())
}

/// The inputs of a merge as streams: one per run, or per chain of an overlapping level's tables.
fn merge_sources(version: &Version, merge: &Merge) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    for input in &merge.inputs {
        let handles = input.tables.iter().map(|id| {
            let missing = || Error::corruption("manifest", 0, format!("no table {id} to merge"));
            version.handle(*id).cloned().ok_or_else(missing)
        });
        let handles: Vec<Arc<TableHandle>> = handles.collect::<Result<_>>()?;
        let chains = match version.shape.level(input.level) {
            Level::Runs(_) => vec![handles],
            Level::Overlapping(_) => chains(handles),
        };
        sources.extend(chains.into_iter().map(|tables| {
            Source::Run(RunIter::new(Arc::new(RunTables::new(tables)), Access::Sequential))
        }));
    }
    Ok(sources)
}

impl Inner {
    /// Executes and installs a plan that was made on `version`.
    pub(crate) fn run_plan(
        &self,
        keyspace: &Arc<KeyspaceInner>,
        version: &Arc<Version>,
        plan: &Plan,
    ) -> Result<()> {
        let started = Instant::now();
        let mut outputs: Vec<Vec<Arc<Table>>> = Vec::new();
        let mut dropped = 0;
        for merge in &plan.merges {
            match self.run_merge(keyspace, version, merge) {
                Ok(merged) => {
                    outputs.push(merged.tables);
                    dropped += merged.dropped;
                }
                Err(error) => {
                    outputs.iter().for_each(|tables| self.discard(tables));
                    return Err(error);
                }
            }
        }
        if let Err(error) = self.install_plan(keyspace, plan, &outputs) {
            outputs.iter().for_each(|tables| self.discard_uninstalled(tables));
            return Err(error);
        }
        self.report_merge(keyspace, version, plan, &outputs, dropped, started);
        Ok(())
    }

    fn run_merge(
        &self,
        keyspace: &KeyspaceInner,
        version: &Version,
        merge: &Merge,
    ) -> Result<Merged> {
        let sources = merge_sources(version, merge)?;
        let ids: BTreeSet<u64> = merge.input_ids().collect();
        let guard = DropGuard::new(&version.shape, &ids);
        #[cfg(feature = "seeded-bugs")]
        let guard = match version.shape.deepest() {
            Some(deepest)
                if deepest == merge.output_level
                    && crate::seeded::is_on(crate::seeded::Bug::TombstonesDroppedByDepth) =>
            {
                DropGuard::new(&Default::default(), &ids)
            }
            _ => guard,
        };
        let keep = KeepRule::new(self.visible_points(), Some(guard));
        let mut layout = keyspace.options.load().layout(merge.output_level);
        if matches!(merge.cut, Cut::Prefix { .. }) {
            layout.prefixer = Some(self.prefixer_for(keyspace, version, merge)?);
        }
        let metas = || ids.iter().filter_map(|id| version.handle(*id)).map(|table| table.meta());
        let bytes = metas().map(|table| table.bytes).sum();
        let entries = metas().map(|table| table.entries).sum();
        let output = Output::new(self, layout, merge.cut).of_input(bytes, entries);
        merge_streams(sources, output, keep, &|| self.check_cancelled())
    }

    /// The rule by which the merge cuts its outputs. The first such merge of a keyspace with
    /// `prefix = "auto"` chooses it: the shortest prefix that tells apart as many groups as there
    /// would be tables of T_s, over the keys of this merge (spec: merge policies §3).
    fn prefixer_for(
        &self,
        keyspace: &KeyspaceInner,
        version: &Version,
        merge: &Merge,
    ) -> Result<Prefixer> {
        let mut prefixer = keyspace.prefixer.lock();
        if let Some(chosen) = &*prefixer {
            return Ok(chosen.clone());
        }
        let mut streams = MergeIter::new(merge_sources(version, merge)?);
        streams.seek_to_first()?;
        let mut histogram = PrefixHistogram::default();
        while let Some((key, _)) = streams.current() {
            histogram.add(key);
            streams.step()?;
        }
        let bytes: u64 =
            merge.input_ids().filter_map(|id| version.handle(id)).map(|t| t.meta().bytes).sum();
        let split_bytes = keyspace.options.load().shape.split_bytes;
        let rule = histogram.choose((bytes / split_bytes).max(1));
        let chosen = rule.resolve(&[]).map_err(|error| Error::invalid(error.to_string(), ""))?;
        tracing::info!(keyspace = keyspace.name, prefix = %rule, "chose the prefix to cut tables by");
        Ok(prefixer.insert(chosen).clone())
    }

    /// Called now and then while a merge runs, with no lock held.
    fn check_cancelled(&self) -> Result<()> {
        self.scheduler.let_flushes_pass();
        self.check_open()
    }

    fn check_open(&self) -> Result<()> {
        if self.scheduler.is_closing() { Err(Error::Closed) } else { Ok(()) }
    }

    fn install_plan(
        &self,
        keyspace: &Arc<KeyspaceInner>,
        plan: &Plan,
        outputs: &[Vec<Arc<Table>>],
    ) -> Result<()> {
        let mut manifest = self.manifest.lock();
        // Handles outlive the store and the keyspace: what they started must not be installed then.
        self.check_open()?;
        if keyspace.dropped.load(Acquire) {
            return Err(Error::UnknownKeyspace { name: keyspace.name.clone() });
        }
        let shape = keyspace.view.load().version.shape.clone();
        let mut edit = edit_for(&shape, plan, outputs);
        if shape.state.prefix.is_none()
            && plan.merges.iter().any(|merge| matches!(merge.cut, Cut::Prefix { .. }))
        {
            edit.prefix = keyspace.prefixer.lock().as_ref().map(|chosen| chosen.rule().clone());
        }
        let version = self.next_version(keyspace, &edit)?;
        let flushed_seq = manifest.flushed.get(&keyspace.id).copied().unwrap_or(0);
        let log_start = manifest.log_start;
        let change = Change::Edit { id: keyspace.id, flushed_seq, edit };
        self.append_edit(&mut manifest, change, log_start)?;
        self.swap_version(keyspace, version, 0);
        Ok(())
    }

    fn report_merge(
        &self,
        keyspace: &KeyspaceInner,
        version: &Version,
        plan: &Plan,
        outputs: &[Vec<Arc<Table>>],
        dropped: u64,
        started: Instant,
    ) {
        let bytes_of = |id: u64| version.handle(id).map_or(0, |handle| handle.meta().bytes);
        let inputs: Vec<u64> = plan.merges.iter().flat_map(Merge::input_ids).collect();
        let read_bytes: u64 = inputs.iter().map(|id| bytes_of(*id)).sum();
        let written_bytes: u64 = outputs.iter().flatten().map(|table| table.bytes).sum();
        let moved_bytes: u64 = plan.moves.iter().map(|step| bytes_of(step.table)).sum();
        self.metrics.add_all(&[
            (Counter::merges, 1),
            (Counter::merge_bytes_read, read_bytes),
            (Counter::merge_bytes_written, written_bytes),
            (Counter::bytes_moved, moved_bytes),
            (Counter::entries_dropped, dropped),
        ]);
        tracing::debug!(
            keyspace = keyspace.name,
            why = plan.why,
            read_bytes,
            written_bytes,
            "merged"
        );
        self.emit(|| Event::Merged {
            keyspace: keyspace.name.clone(),
            why: plan.why.clone(),
            input_tables: inputs.len(),
            output_tables: outputs.iter().map(Vec::len).sum(),
            moved_tables: plan.moves.len(),
            read_bytes,
            written_bytes,
            took: started.elapsed(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::pack;

    fn kept(points: &[SeqNo], versions: &[(u64, Kind)], guard: bool) -> Vec<u64> {
        let guard = guard.then(|| DropGuard::new(&Default::default(), &BTreeSet::new()));
        let mut rule = KeepRule::new(points.to_vec(), guard);
        let mut kept = Vec::new();
        for (seq, kind) in versions {
            rule.enter(b"k");
            if rule.keeps(pack(*seq, *kind)) {
                kept.push(*seq);
            }
        }
        kept
    }

    #[test]
    fn one_version_stays_per_stripe() {
        use Kind::{Delete, Put};
        let puts: Vec<(u64, Kind)> = [9, 7, 5, 4, 2, 1].map(|seq| (seq, Put)).to_vec();
        assert_eq!(kept(&[9], &puts, true), [9]);
        assert_eq!(kept(&[4, 9], &puts, true), [9, 4]);
        assert_eq!(kept(&[1, 2, 6, 9], &puts, true), [9, 5, 2, 1]);
        assert_eq!(kept(&[5], &puts, true), [9, 7, 5], "versions newer than the merge all stay");
        let deleted = [(9, Delete), (5, Put), (3, Delete), (1, Put)];
        assert_eq!(kept(&[9], &deleted, true), [0u64; 0], "a spent tombstone goes with its prey");
        assert_eq!(kept(&[9], &deleted, false), [9], "without proof it stays");
        assert_eq!(kept(&[4, 9], &deleted, true), [9], "only the oldest stripe's may go");
        assert_eq!(kept(&[5, 9], &deleted, true), [9, 5]);
    }
}
