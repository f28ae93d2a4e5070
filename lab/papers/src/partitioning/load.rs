//! Loads of 640 flushes under each partitioner and a leveled tree: write time, tables, compactions.
//! Each tree is loaded with random and with skewed keys, and with whole and with cut flushes.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use runstone::metrics::CounterValues;
use runstone::{Event, EventListener, KeyspaceOptions};
use runstone_kv::Result;
use runstone_policy::partition::Partitioner;
use runstone_workloads::median;

use super::{FLUSH_BYTES, Flushes, THREADS, data, paper_stack, side_of, tree};
use crate::device_time::Lanes;
use crate::engine::Loaded;
use crate::numbers::strokes;
use crate::report::{Row, bars_beside, line, rows};
use crate::sides::{self, SUB_COMPACTIONS};
use crate::verdict::Rule::*;
use crate::{Context, PaperReport};

rows! {
    WRITE = "time of the writes by its bytes, {}",
        "Global-Range 8% faster than none, 13% than Size" => Ratios(&[1.08, 1.13]);
    THROUGHPUT = "bytes compacted per byte of the critical path, {}",
        "Global-Range up to 30% above Size" => Ratios(&[1.3]);
    ORDER = "the same in order: Global-Range, Local-Range, Size; {}",
        "highest, second, last" => Falls;
    FEWER_THREADS = "the same on 4 threads, {}",
        "" => Beside("the paper has 16 threads");
    GLOBAL_TABLES = "tables at the end, {}: Global-Range over Size",
        "8% more; elsewhere 1.5 to 2 times as many" => AtMost(1.08);
    LOCAL_TABLES = "the same: Local-Range over Size; {}",
        "70% more" => Ratios(&[1.7]);
    CUT_TABLES = "tables at the end, {}",
        "" => Beside("the paper's tables are as large as a flush");
    SKEWED_TABLES = "tables of skewed keys over random ones, Local-Range and Global-Range",
        "13% fewer and 38% more" => Ratios(&[0.87, 1.38]);
    BYTES = "bytes written and moved by compactions, {}",
        "write amplification unchanged but for moves" => Alike(0.01);
    CUT_BYTES = "bytes written and moved by compactions, {}",
        "" => Beside("smaller tables have more indexes and footers");
    PARTS = "parts of the median compaction, {}",
        "Size and No-partitioning cannot be split" => Exactly(&[1.0, 1.0]);
    PARTS_SPREAD = "parts of a compaction, and moves: median, nine of ten, most; {}",
        "" => Beside("figure 7 is not in the text");
    CLOCK = "compactions by the clock, Size over Global-Range, on 1 and 2 threads; {}",
        "" => Beside("by the clock: the critical path is judged");
}

/// The partitioners of the paper.
pub(super) const STACKED: [(&str, Partitioner); 4] = [
    ("none", Partitioner::None),
    ("size", Partitioner::Size),
    ("local", Partitioner::LocalRange),
    ("global", Partitioner::GlobalRange),
];
const RANDOM: &str = "random keys";
const SKEWED: &str = "skewed keys";

impl Flushes {
    /// The size of a table: to cut a flush into cells, tables must be smaller than a flush.
    pub(super) fn theta(self) -> u64 {
        match self {
            Flushes::Whole => FLUSH_BYTES,
            Flushes::Cut => FLUSH_BYTES / 4,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Flushes::Whole => "whole flushes",
            Flushes::Cut => "cut flushes",
        }
    }
}

/// Reports compactions, one by one.
#[derive(Debug)]
struct Compactions(Sender<Compacted>);

#[derive(Clone, Copy, Debug)]
struct Compacted {
    parts: usize,
    moves: usize,
    took: Duration,
}

impl EventListener for Compactions {
    fn on_event(&self, event: &Event) {
        if let Event::Compacted { parts, moved_tables: moves, took, .. } = *event {
            // The receiver may be gone when the tree is closed.
            let _ = self.0.send(Compacted { parts, moves, took });
        }
    }
}

/// The results of one tree under a load.
pub(super) struct Seen {
    pub(super) counters: CounterValues,
    pub(super) tables: usize,
    pub(super) bytes: u64,
    compactions: Vec<Compacted>,
}

impl Seen {
    /// Loads a tree whose compactions have this many threads.
    pub(super) fn of(
        context: &Context<'_>,
        options: KeyspaceOptions,
        is_skewed: bool,
        threads: usize,
    ) -> Result<Seen> {
        Ok(Seen::with_tree(context, options, is_skewed, threads, None, &mut |_| Ok(()))?.0)
    }

    /// Does the same, and also returns the tree. The tree may have lanes. `look` is called with the
    /// tree near the end.
    pub(super) fn with_tree(
        context: &Context<'_>,
        options: KeyspaceOptions,
        is_skewed: bool,
        threads: usize,
        lanes: Option<Lanes>,
        look: &mut dyn FnMut(&mut Loaded) -> Result<()>,
    ) -> Result<(Seen, Loaded)> {
        let (sender, compactions) = channel();
        let listener: Arc<dyn EventListener> = Arc::new(Compactions(sender));
        let mut tree = Loaded::listening(options, &data(context), Some(threads), Some(listener))?;
        if is_skewed {
            tree = tree.skewed();
        }
        if let Some(lanes) = lanes {
            tree = tree.in_lanes(lanes);
        }
        let tree = tree.load_watched(look)?;
        let shape = tree.shape();
        let (counters, tables, bytes) = (tree.counters(), shape.tables().count(), shape.bytes());
        let compactions = compactions.try_iter().collect();
        Ok((Seen { counters, tables, bytes, compactions }, tree))
    }

    /// Bytes that all threads compacted per byte that the busiest thread compacted.
    pub(super) fn throughput(&self) -> f64 {
        let CounterValues { sliced_bytes, slice_critical_bytes, .. } = self.counters;
        match slice_critical_bytes {
            // Nothing was cut into slices, so the busiest thread did everything.
            0 => 1.0,
            critical => sliced_bytes as f64 / critical as f64,
        }
    }

    /// Bytes of the longest chain of work per byte that the user wrote: flushes, and the busiest
    /// thread of each compaction.
    pub(super) fn write_time(&self) -> f64 {
        let CounterValues { flush_bytes_written, slice_critical_bytes, user_bytes_written, .. } =
            self.counters;
        (flush_bytes_written + slice_critical_bytes) as f64 / user_bytes_written as f64
    }

    /// Bytes that compactions wrote and moved.
    pub(super) fn handled(&self) -> f64 {
        (self.counters.compaction_bytes_written + self.counters.bytes_moved) as f64
    }

    /// One number for each compaction, sorted.
    fn sorted(&self, of: fn(&Compacted) -> usize) -> Vec<usize> {
        let mut numbers: Vec<usize> = self.compactions.iter().map(of).collect();
        numbers.sort_unstable();
        numbers
    }

    /// The median, the 90th percentile and the maximum.
    fn spread(&self, of: fn(&Compacted) -> usize) -> String {
        let sorted = self.sorted(of);
        let at = |percent: usize| sorted.get(sorted.len() * percent / 100).copied();
        let most = sorted.last().copied();
        [at(50), at(90), most].map(|one| one.unwrap_or(0).to_string()).join(", ")
    }

    fn median_parts(&self) -> f64 {
        let sorted = self.sorted(|one| one.parts);
        sorted.get(sorted.len() / 2).map_or(0.0, |parts| *parts as f64)
    }

    fn seconds(&self) -> f64 {
        self.compactions.iter().map(|one| one.took.as_secs_f64()).sum()
    }
}

/// The four stacks with one set of options.
struct Stacks {
    seen: Vec<Seen>,
    flushes: Flushes,
    is_skewed: bool,
}

impl Stacks {
    fn load(
        context: &Context<'_>,
        report: &mut PaperReport,
        flushes: Flushes,
        is_skewed: bool,
    ) -> Result<Stacks> {
        let options = |one| paper_stack(one, flushes.theta(), flushes);
        let sides = STACKED.map(|(name, one)| side_of(name, &options(one)));
        report.compare(&sides.map(|side| side.with(sides::THREADS, THREADS)), &[])?;
        let mut seen = Vec::new();
        for (name, one) in STACKED {
            context.say(&format!("load, {name}, {}, skewed: {is_skewed}", flushes.text()));
            seen.push(Seen::of(context, options(one), is_skewed, THREADS)?);
        }
        Ok(Stacks { seen, flushes, is_skewed })
    }

    fn at(&self) -> String {
        let keys = if self.is_skewed { SKEWED } else { RANDOM };
        match self.flushes {
            Flushes::Whole => keys.to_string(),
            Flushes::Cut => format!("{keys}, cut flushes"),
        }
    }

    fn all(&self, value: fn(&Seen) -> f64) -> Vec<f64> {
        self.seen.iter().map(value).collect()
    }

    /// Cut flushes are a second reading of the paper, and the shares of tables are printed for
    /// random keys only: those rows are not counted.
    fn judge(&self, report: &mut PaperReport) {
        let at = self.at();
        let counted = |row: Row| match self.flushes {
            Flushes::Whole => row,
            Flushes::Cut => row.uncounted(),
        };
        let times = self.all(Seen::write_time);
        let [none, size, _, global] = times[..] else { return };
        let row = counted(WRITE.of(&[&at]));
        report.judge(row, strokes(&times, 2), &[none / global, size / global]);
        let through = self.all(Seen::throughput);
        let [_, size, local, global] = through[..] else { return };
        let here = strokes(&through, 2);
        report.judge(counted(THROUGHPUT.of(&[&at])), &here[..], &[global / size]);
        report.judge(counted(ORDER.of(&[&at])), here, &[global, local, size]);
        let medians = self.all(Seen::median_parts);
        report.judge(counted(PARTS.of(&[&at])), strokes(&medians, 0), &medians[..2]);
        let parts = self.seen.iter().zip(STACKED).map(|(seen, (name, _))| {
            let [parts, moves] = [seen.spread(|one| one.parts), seen.spread(|one| one.moves)];
            format!("{name} {parts}, moves {moves}")
        });
        report.show(PARTS_SPREAD.of(&[&at]), parts.collect::<Vec<_>>().join("; "));
        let handled = self.all(Seen::handled);
        let megabytes = strokes(handled.iter().map(|bytes| bytes / 1e6).collect::<Vec<_>>(), 1);
        let tables = self.all(|one| one.tables as f64);
        let [_, size, local, global] = tables[..] else { return };
        match self.flushes {
            Flushes::Cut => {
                report.show(CUT_BYTES.of(&[&at]), format!("{megabytes} MB"));
                report.show(CUT_TABLES.of(&[&at]), strokes(&tables, 0));
            }
            Flushes::Whole => {
                report.judge(BYTES.of(&[&at]), format!("{megabytes} MB"), &handled);
                let rows = [GLOBAL_TABLES.of(&[&at]), LOCAL_TABLES.of(&[&at])];
                let [of_global, of_local] = match self.is_skewed {
                    false => rows,
                    true => rows.map(Row::uncounted),
                };
                report.judge(of_global, strokes(&tables, 0), &[global / size]);
                report.judge(of_local, format!("{:.2}", local / size), &[local / size]);
            }
        }
    }

    fn draw_parts(&self, report: &mut PaperReport, name: &str) {
        let curve = |seen: &Seen, name: &str| {
            let sorted = seen.sorted(|one| one.parts);
            let count = sorted.len() as f64;
            let place = |(i, parts): (usize, &usize)| (i as f64 / count, *parts as f64);
            line(name, sorted.iter().enumerate().map(place))
        };
        let lines = self.seen.iter().zip(STACKED).map(|(seen, (name, _))| curve(seen, name));
        let title = format!("Parts of compactions, {}", self.at());
        let x = runstone_plot::Axis::linear("share of the compactions");
        report.draw_lines(name, &title, x, "parts", lines.collect());
    }
}

/// Figures 5 to 7, 9, 10 and 12.
pub(super) fn load(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let mut random_tables = Vec::new();
    for is_skewed in [false, true] {
        for flushes in [Flushes::Whole, Flushes::Cut] {
            let stacks = Stacks::load(context, report, flushes, is_skewed)?;
            stacks.judge(report);
            let figures = match (is_skewed, flushes) {
                (false, Flushes::Whole) => ["figure-5", "figure-6", "figure-7"],
                (true, Flushes::Whole) => ["figure-9", "figure-12", "figure-10"],
                (false, Flushes::Cut) => ["figure-5-cut", "figure-6-cut", "figure-7-cut"],
                (true, Flushes::Cut) => ["figure-9-cut", "figure-12-cut", "figure-10-cut"],
            };
            let leveled = leveled(context, report, &stacks)?;
            draw(report, &stacks, &leveled, figures);
            if flushes == Flushes::Whole {
                let tables: Vec<f64> = stacks.all(|one| one.tables as f64);
                if is_skewed {
                    let share = [2, 3].map(|at: usize| tables[at] / random_tables[at]);
                    report.judge(SKEWED_TABLES, strokes(share, 2), &share);
                }
                random_tables = tables;
            } else if !is_skewed {
                fewer_threads(context, report, &stacks)?;
            }
        }
    }
    Ok(())
}

/// Judges the paper's other baseline, a leveled tree, whose tables are cut by size and whose
/// compactions are split by key ranges as in RocksDB.
fn leveled(context: &Context<'_>, report: &mut PaperReport, beside: &Stacks) -> Result<Seen> {
    let options = tree("fragmented-leveling", Partitioner::Size, beside.flushes.theta());
    let global = paper_stack(Partitioner::GlobalRange, beside.flushes.theta(), Flushes::Whole);
    let sides = [side_of("global", &global), side_of("leveled", &options)];
    report.compare(&sides.map(|side| side.with(sides::THREADS, THREADS)), &[SUB_COMPACTIONS])?;
    context.say(&format!("load, leveled, {}", beside.at()));
    Seen::of(context, options, beside.is_skewed, THREADS)
}

fn draw(report: &mut PaperReport, stacks: &Stacks, leveled: &Seen, names: [&str; 3]) {
    let at = stacks.at();
    let all = || stacks.seen.iter().chain([leveled]);
    let categories = || STACKED.map(|(name, _)| name).into_iter().chain(["leveled"]);
    let size = &stacks.seen[1];
    // The paper prints times and, with random keys, tables relative to those of Size, and the
    // largest speed-up of compactions.
    let [time, tables] = [size.write_time(), size.tables as f64];
    let paper = [time * 1.08 / 1.13, time, f64::NAN, time / 1.13];
    let title = format!("Write time, {at}");
    let titles = [&title[..], "partitioner", "bytes in a row / byte of the user"];
    let times = bars_beside("here", all().map(Seen::write_time), paper);
    report.draw_bars(names[0], titles, categories(), vec![times]);
    let paper = match stacks.is_skewed {
        false => [f64::NAN, tables, tables * 1.7, tables * 1.08],
        true => [f64::NAN, tables, tables * 1.7 * 0.87, tables * 1.08 * 1.38],
    };
    let title = format!("Tables at the end, {at}");
    let titles = [&title[..], "partitioner", "tables"];
    let counts = bars_beside("here", all().map(|one| one.tables as f64), paper);
    report.draw_bars(names[1], titles, categories(), vec![counts]);
    let title = format!("Compactions, {at}");
    let titles = [&title[..], "partitioner", "bytes / byte of the critical path"];
    let paper = [f64::NAN, f64::NAN, f64::NAN, size.throughput() * 1.3];
    let through = bars_beside("16 threads", all().map(Seen::throughput), paper);
    report.draw_bars(names[2], titles, categories(), vec![through]);
    stacks.draw_parts(report, &format!("{}-parts", names[2]));
}

/// The trees are the same for any number of threads.
fn fewer_threads(context: &Context<'_>, report: &mut PaperReport, beside: &Stacks) -> Result<()> {
    let theta = beside.flushes.theta();
    let mut through = Vec::new();
    for (name, one) in STACKED {
        context.say(&format!("load on 4 threads, {name}"));
        let options = paper_stack(one, theta, beside.flushes);
        through.push(Seen::of(context, options, beside.is_skewed, 4)?.throughput());
    }
    report.show(FEWER_THREADS.of(&[&beside.at()]), strokes(through, 2));
    Ok(())
}

/// Measures by the clock, alternately, with the median of three.
pub(super) fn clock(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let flushes = Flushes::Cut;
    let mut here = Vec::new();
    for threads in [1, 2] {
        let mut ratios = Vec::new();
        for _ in 0..3 {
            context.say(&format!("compactions by the clock, {threads} threads"));
            let mut seconds = Vec::new();
            for one in [Partitioner::Size, Partitioner::GlobalRange] {
                let options = paper_stack(one, flushes.theta(), flushes);
                seconds.push(Seen::of(context, options, false, threads)?.seconds());
            }
            ratios.push(seconds[0] / seconds[1]);
        }
        here.push(median(ratios));
    }
    let at = format!("{RANDOM}, {}", flushes.text());
    report.show(CLOCK.of(&[&at]), strokes(here, 2));
    Ok(())
}
