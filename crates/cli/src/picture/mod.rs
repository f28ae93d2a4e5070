//! The tree as a picture: levels, runs and tables on one axis of keys. This file gathers the data
//! of the picture; `terminal` draws it, and `rows` prepares it for `runstone-plot`.

pub mod rows;
pub mod terminal;

use std::sync::Arc;

use runstone::policy::custom;
use runstone::{GroupUsage, Keyspace, ValueUsage, unstable};
use runstone_plot::keys::{KeyAxis, Span};
use runstone_plot::page;
use runstone_policy::partition::CutKey;
use runstone_policy::partition::slices::{Slice, Slices};
use runstone_policy::plan::{Busy, Heat, Plan};
use runstone_policy::policy::{LevelTarget, next_plan};
use runstone_policy::shape::{Level, Shape, Table};
use runstone_policy::units::Thousandths;
use serde_json::{Value, json};

use crate::encoding::shown;
use crate::failure::Result;
use crate::keyspaces;
use crate::layout::plural;
use crate::opened::{Caption, Drawing};

/// A tree to be drawn.
pub struct Picture {
    pub keyspace: String,
    pub policy: String,
    /// The effects of its options on puts and deletes, in words.
    pub features: Vec<String>,
    pub levels: Vec<LevelPicture>,
    /// The places of keys.
    pub axis: KeyAxis,
    pub memtable_bytes: u64,
    pub next_compaction: Option<Plan>,
    /// The cells and parts of its compactions, in the plan's order.
    pub slices: Vec<Slices>,
    /// Whether the next compaction has begun, and parts of it are installed.
    pub is_begun: bool,
    /// Value files, if values are separated.
    pub values: Vec<ValueUsage>,
}

/// A level.
pub struct LevelPicture {
    pub index: usize,
    pub bytes: u64,
    pub target: LevelTarget,
    pub score: Thousandths,
    /// Newest first. An overlapping level is laid out in sublevels.
    pub runs: Vec<RunPicture>,
    pub is_overlapping: bool,
}

/// A run.
pub struct RunPicture {
    /// `None` in an overlapping level.
    pub id: Option<u64>,
    pub tables: Vec<Arc<Table>>,
}

impl Picture {
    /// Makes the picture of a keyspace.
    pub fn of(keyspace: &Keyspace) -> Result<Picture> {
        let shape = unstable::shape(keyspace);
        let options = keyspace.options();
        let policy = custom::policy_of(&options)?;
        let targets = unstable::level_targets(keyspace);
        let levels = levels(&shape, &targets);
        let pending = shape.pending.as_deref().cloned();
        let is_begun = pending.is_some();
        let (busy, heat) = (Busy::default(), Heat::default());
        let pick = || next_plan(policy, &shape, &busy, &heat, custom::options_of(&options));
        let next_compaction = pending.or_else(pick);
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let slices = match &next_compaction {
            Some(plan) => unstable::slices(keyspace, plan, cores)?,
            None => Vec::new(),
        };
        Ok(Picture {
            keyspace: keyspace.name().to_string(),
            policy: policy.name().to_string(),
            features: keyspaces::features(keyspace),
            axis: axis_of(&levels),
            levels,
            memtable_bytes: keyspace.memtable_bytes(),
            next_compaction,
            slices,
            is_begun,
            values: keyspace.value_usage(),
        })
    }

    /// Bytes of all tables.
    pub fn bytes(&self) -> u64 {
        self.levels.iter().map(|level| level.bytes).sum()
    }

    /// Number of tables.
    pub fn table_count(&self) -> usize {
        let runs = self.levels.iter().flat_map(|level| &level.runs);
        runs.map(|run| run.tables.len()).sum()
    }

    /// The place of a part of a compaction: from, to.
    pub fn part(&self, part: &Slice) -> (f64, f64) {
        let from = part.lo.as_ref().map_or(0.0, |key| self.axis.at(key));
        let to = part.hi.as_ref().map_or(1.0, |key| self.axis.at(key));
        (from, to)
    }

    /// The place of a table in `width` characters: from, to.
    pub fn place(&self, table: &Table, width: usize) -> (usize, usize) {
        cells(self.axis.span(&table.min_key, &table.max_key), width)
    }

    /// Why the next compaction would run.
    pub fn next_compaction_text(&self) -> String {
        match &self.next_compaction {
            Some(plan) if self.is_begun => format!("goes on: {}", plan.why),
            Some(plan) => plan.why.clone(),
            None => "none is due".to_string(),
        }
    }

    /// Where the outputs are cut, over all of its compactions.
    pub fn cuts(&self) -> impl Iterator<Item = &CutKey> {
        self.slices.iter().flat_map(|slices| &slices.cuts)
    }

    /// The parts of all compactions of the next plan, in the order of plan and keys.
    pub fn parts(&self) -> impl Iterator<Item = &Slice> {
        self.slices.iter().flat_map(|slices| &slices.slices)
    }

    /// The picture for machines.
    pub fn to_json(&self) -> Value {
        json!({
            "keyspace": self.keyspace,
            "policy": self.policy,
            "bytes": self.bytes(),
            "tables": self.table_count(),
            "memtable_bytes": self.memtable_bytes,
            "values": self.values,
            "levels": self.levels.iter().map(LevelPicture::to_json).collect::<Vec<_>>(),
            "next_compaction": self.next_compaction.as_ref().map(|plan| json!({
                "why": plan.why,
                "begun": self.is_begun,
                "compactions": self.slices.iter().map(slices_to_json).collect::<Vec<_>>(),
                "tables": plan.table_ids().collect::<Vec<_>>(),
                "output_levels": plan.compactions.iter().map(|compaction| compaction.output_level)
                    .chain(plan.moves.iter().map(|step| step.to_level)).collect::<Vec<_>>(),
            })),
        })
    }
}

fn slices_to_json(slices: &Slices) -> Value {
    let key = |key: &Option<CutKey>| key.as_ref().map(|key| shown(key));
    let part = |part: &Slice| {
        let (from_key, to_key) = (key(&part.lo), key(&part.hi));
        json!({ "from_key": from_key, "to_key": to_key, "bytes": part.bytes })
    };
    json!({
        "cell_bounds": slices.cuts.iter().map(|cut| shown(cut)).collect::<Vec<_>>(),
        "parts": slices.slices.iter().map(part).collect::<Vec<_>>(),
        "moves": slices.moves,
    })
}

fn axis_of(levels: &[LevelPicture]) -> KeyAxis {
    fn span(table: &Arc<Table>) -> Span<'_> {
        Span { min: &table.min_key, max: &table.max_key, bytes: table.bytes }
    }
    let runs = levels.iter().flat_map(|level| &level.runs);
    KeyAxis::of(&runs.map(|run| run.tables.iter().map(span).collect()).collect::<Vec<_>>())
}

/// The range of `width` characters that a stretch of the axis covers: rounded, at least one.
pub fn cells((from, to): (f64, f64), width: usize) -> (usize, usize) {
    let at = |place: f64| (place * width as f64).round() as usize;
    let from = at(from).min(width.saturating_sub(1));
    (from, at(to).clamp(from + 1, width.max(from + 1)))
}

/// The number of bytes that labels of keys leave out, because all keys begin with them. These bytes
/// end after a character that separates parts of keys, and never inside a character.
pub fn left_out(axis: &KeyAxis) -> usize {
    /// A common prefix shorter than this is shown.
    const LEAST: usize = 8;
    let Some((first, _)) = axis.ends() else { return 0 };
    let common = &first[..axis.common_prefix()];
    let divides = |byte: &u8| b"/:|\\-_.#".contains(byte);
    match common.iter().rposition(divides).map(|at| at + 1) {
        Some(from) if from >= LEAST => from,
        // The labels still show a part of the common prefix.
        _ if common.len() >= 2 * LEAST => {
            let starts = |at: &usize| common[*at] & 0xc0 != 0x80;
            (0..=common.len() - LEAST / 2).rev().find(starts).unwrap_or(0)
        }
        _ => 0,
    }
}

fn levels(shape: &Shape, targets: &[LevelTarget]) -> Vec<LevelPicture> {
    let describe = |(index, level): (usize, &Level)| {
        let target = *targets.get(index).unwrap_or(&LevelTarget::UNBOUNDED);
        let (bytes, run_count) = (level.bytes(), level.runs().len());
        LevelPicture {
            index,
            bytes,
            target,
            score: target.score(bytes, run_count),
            runs: match level {
                Level::Runs(runs) => runs
                    .iter()
                    .map(|run| RunPicture { id: Some(run.id), tables: run.tables.clone() })
                    .collect(),
                Level::Overlapping(tables) => sublevels_of(tables),
            },
            is_overlapping: matches!(level, Level::Overlapping(_)),
        }
    };
    shape.levels.iter().enumerate().map(describe).collect()
}

/// Puts each table into the first row where it overlaps none.
fn sublevels_of(tables: &[Arc<Table>]) -> Vec<RunPicture> {
    let mut rows: Vec<RunPicture> = Vec::new();
    for table in tables {
        let fits = |row: &&mut RunPicture| {
            row.tables.last().is_none_or(|last| *last.max_key < *table.min_key)
        };
        match rows.iter_mut().find(fits) {
            Some(row) => row.tables.push(Arc::clone(table)),
            None => rows.push(RunPicture { id: None, tables: vec![Arc::clone(table)] }),
        }
    }
    rows
}

impl Drawing for Picture {
    fn svg(&self, caption: &Caption) -> String {
        page::svg(&rows::rows(self, caption))
    }

    fn html(&self, caption: &Caption) -> String {
        page::html(&rows::rows(self, caption), &rows::below(self))
    }

    fn to_json(&self) -> Value {
        Picture::to_json(self)
    }

    fn to_text(&self, columns: usize) -> String {
        terminal::draw(self, columns)
    }
}

impl LevelPicture {
    /// `96M of 256M (37%)`, with sizes in the form of `size`.
    pub fn fill_text(&self, size: fn(u64) -> String) -> String {
        let bytes = size(self.bytes);
        match self.target.capacity_bytes {
            u64::MAX => format!("{bytes}, no limit"),
            capacity => format!(
                "{bytes} of {} ({}%)",
                size(capacity),
                u128::from(self.bytes) * 100 / u128::from(capacity.max(1))
            ),
        }
    }

    /// `3 runs, wanted 4, of 12 tables`.
    pub fn runs_text(&self) -> String {
        let tables = self.runs.iter().map(|run| run.tables.len() as u64).sum();
        let runs = plural(self.runs.len() as u64, "run");
        match (self.is_overlapping, self.target.max_runs) {
            (true, _) => plural(tables, "overlapping table"),
            (false, u32::MAX) => format!("{runs} of {}", plural(tables, "table")),
            // The number of runs is what the policy aims at, not a limit: there may be more for a
            // while.
            (false, most) => format!("{runs}, wanted {most}, of {}", plural(tables, "table")),
        }
    }

    /// Share of tombstones among the entries, in thousandths.
    pub fn tombstone_permille(&self) -> u64 {
        tombstone_permille(self.runs.iter().flat_map(|run| &run.tables))
    }

    /// Range deletes, and entries that expire.
    pub fn range_deletes_and_expiring(&self) -> (u64, u64) {
        let tables = self.runs.iter().flat_map(|run| &run.tables);
        tables.fold((0, 0), |(ranges, expiring), table| {
            (ranges + table.range_deletes, expiring + table.expiries.entries)
        })
    }

    fn to_json(&self) -> Value {
        let bounded = |value: u64, none: u64| (value != none).then_some(value);
        json!({
            "level": self.index,
            "bytes": self.bytes,
            "target_bytes": bounded(self.target.capacity_bytes, u64::MAX),
            "max_runs": bounded(self.target.max_runs.into(), u32::MAX.into()),
            "score": self.score,
            "tombstone_share": self.tombstone_permille() as f64 / 1000.0,
            "overlapping": self.is_overlapping,
            "runs": self.runs.iter().map(RunPicture::to_json).collect::<Vec<_>>(),
        })
    }
}

impl RunPicture {
    /// Sum of the table sizes.
    pub fn bytes(&self) -> u64 {
        self.tables.iter().map(|table| table.bytes).sum()
    }

    fn to_json(&self) -> Value {
        let expiry = |at_ms: u64| (at_ms > 0).then_some(at_ms);
        let tables = self.tables.iter().map(|table| {
            json!({
                "id": table.id,
                "bytes": table.bytes,
                "entries": table.entries,
                "tombstones": table.tombstones,
                "range_deletes": table.range_deletes,
                "expiring": table.expiries.entries,
                "first_expiry_ms": expiry(table.expiries.first_ms),
                "last_expiry_ms": expiry(table.expiries.last_ms),
                "min_key": shown(&table.min_key),
                "max_key": shown(&table.max_key),
            })
        });
        json!({ "id": self.id, "bytes": self.bytes(), "tables": tables.collect::<Vec<_>>() })
    }
}

/// Share of tombstones among the entries of tables, in thousandths.
pub fn tombstone_permille<'a>(tables: impl Iterator<Item = &'a Arc<Table>>) -> u64 {
    let (entries, tombstones) = tables.fold((0, 0), |(entries, tombstones), table| {
        (entries + table.entries, tombstones + table.tombstones)
    });
    (tombstones * 1000).checked_div(entries).unwrap_or(0)
}

/// A group of a value file, as it is drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueRow {
    /// `group 3`, or `cold`.
    pub name: String,
    /// Bytes: live, garbage, kept for snapshots only, in the cold stream.
    pub parts: [u64; 4],
    /// Whether a damaged record keeps the group from being collected.
    pub quarantined: bool,
}

impl ValueRow {
    fn of(name: String, group: &GroupUsage) -> ValueRow {
        let garbage = group.garbage_bytes.min(group.bytes);
        let pinned = group.pinned_bytes.min(garbage);
        let parts = [group.bytes - garbage, garbage - pinned, pinned, group.cold_bytes];
        ValueRow { name, parts, quarantined: group.quarantined }
    }

    /// All bytes of the group; those in the cold stream are drawn there as well.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().sum()
    }
}

/// The groups of a value file, and its cold stream if there is something in it.
pub fn value_rows(file: &ValueUsage) -> Vec<ValueRow> {
    let groups = file.groups.iter().enumerate();
    let groups = groups.map(|(i, group)| ValueRow::of(format!("group {i}"), group));
    let cold = file.cold.iter().filter(|cold| cold.records > 0);
    groups.chain(cold.map(|cold| ValueRow::of("cold".into(), cold))).collect()
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// An axis for tables of one size.
    pub fn axis(bounds: &[(&'static [u8], &'static [u8])]) -> KeyAxis {
        let span = |(min, max): &(&'static [u8], &'static [u8])| Span { min, max, bytes: 1 };
        KeyAxis::of(&[bounds.iter().map(span).collect()])
    }

    /// A picture of three levels.
    pub fn sample() -> Picture {
        let table = |id, min: &str, max: &str| {
            Arc::new(Table {
                id,
                min_key: min.as_bytes().into(),
                max_key: max.as_bytes().into(),
                bytes: id << 20,
                entries: 100,
                tombstones: id,
                min_seq: 1,
                max_seq: 2,
                ..Table::default()
            })
        };
        let overlapping = vec![table(1, "a", "m"), table(2, "b", "<&>"), table(3, "n", "z")];
        let run = RunPicture { id: Some(7), tables: vec![table(4, "a", "k"), table(5, "p", "z")] };
        let level = |index, runs, is_overlapping| LevelPicture {
            index,
            bytes: 9 << 20,
            target: LevelTarget::UNBOUNDED.capacity_bytes(12 << 20).max_runs(1),
            score: Thousandths::of_parts(750),
            runs,
            is_overlapping,
        };
        let levels = vec![
            level(0, sublevels_of(&overlapping), true),
            level(1, vec![], false),
            level(2, vec![run], false),
        ];
        Picture {
            keyspace: "default".into(),
            policy: "leveling".into(),
            features: Vec::new(),
            axis: axis_of(&levels),
            levels,
            memtable_bytes: 100,
            next_compaction: None,
            slices: Vec::new(),
            is_begun: false,
            values: vec![value_file()],
        }
    }

    fn value_file() -> ValueUsage {
        let group = |bytes, garbage_bytes, pinned_bytes, cold_bytes| {
            let mut group = GroupUsage::default();
            (group.bytes, group.records, group.slots) = (bytes, 1, 1);
            (group.garbage_bytes, group.pinned_bytes) = (garbage_bytes, pinned_bytes);
            (group.cold_bytes, group.quarantined) = (cold_bytes, garbage_bytes > 0);
            group
        };
        let mut usage = ValueUsage::default();
        usage.file = "000009.values".into();
        usage.placement = runstone::ValuePlacement::HashGrouped;
        (usage.slot_bytes, usage.used_slots, usage.file_slots) = (4096, 3, 4);
        usage.disk_bytes = 5 * 4096;
        usage.groups = vec![group(1000, 500, 200, 250), group(100, 0, 0, 0)];
        usage.cold = Some(group(250, 0, 0, 0));
        usage
    }

    #[test]
    fn value_files_are_drawn_by_what_their_bytes_are() {
        let rows = value_rows(&value_file());
        let parts: Vec<_> = rows.iter().map(|row| (&row.name[..], row.parts)).collect();
        let expected = [
            ("group 0", [500, 300, 200, 250]),
            ("group 1", [100, 0, 0, 0]),
            ("cold", [250, 0, 0, 0]),
        ];
        assert_eq!(parts, expected);
        let drawn = terminal::draw(&sample(), 60 + 22);
        let bar = "█".repeat(24) + &"░".repeat(14) + &"▒".repeat(10) + &"▓".repeat(12);
        assert!(drawn.contains(&bar), "{drawn}");
    }

    #[test]
    fn tables_lie_on_the_axis_in_key_order() {
        let picture = sample();
        assert_eq!(picture.levels[0].runs.len(), 2, "the third table fits behind the first");
        for width in [1, 3, 8, 100] {
            for run in picture.levels.iter().flat_map(|level| &level.runs) {
                for table in &run.tables {
                    let (from, to) = picture.place(table, width);
                    assert!(from < to && to <= width, "{from} {to} {width}");
                }
            }
        }
        let run = &picture.levels[2].runs[0];
        let places: Vec<_> = run.tables.iter().map(|table| picture.place(table, 80)).collect();
        assert!(places[0].0 == 0 && places[0].1 < places[1].0 && places[1].1 == 80, "{places:?}");
        let newest = picture.place(&picture.levels[0].runs[0].tables[0], 80);
        assert_eq!(newest.0, places[0].0, "both begin with one key");
    }

    #[test]
    fn labels_leave_out_what_all_keys_share() {
        let cases: [(&'static [u8], &'static [u8], usize); 7] = [
            (b"user0001", b"user0999", 0),
            (b"some/directory/a", b"some/directory/b", 15),
            (b"a/b/c", b"a/b/d", 0),
            (b"0000000000000000000000001", b"0000000000000000000000002", 20),
            ("éééééééééa".as_bytes(), "éééééééééb".as_bytes(), 14),
            (b"k", b"k", 0),
            (b"", b"", 0),
        ];
        for (first, last, length) in cases {
            assert_eq!(left_out(&axis(&[(first, last)])), length, "{first:?}");
        }
    }
}
