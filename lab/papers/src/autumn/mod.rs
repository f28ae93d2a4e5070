//! Autumn: what Garnering's c does to levels, reads, writes and space (Zhao et al., 2023), on the
//! engine. Sizes are the paper's divided by 1024 where the size of a whole database matters
//! (section 4.3), by 64 in figure 3, and its own in figure 2. They scale together, so that the
//! ratio of data to level 1, which decides the shape, does not change.
//!
//! This module counts the causes of the paper's latencies, not the latencies: runs that a seek
//! positions, tables that a get probes, bytes written per byte. A load continues until level 0 is
//! empty, so that reads search one run per level, except in YCSB D, which writes as it reads.
//!
//! The judged stores compact level 0 at its trigger, as the paper's system does. Our default lets
//! level 0 wait (`l0_share_percent`). Its savings, and the simulator's figures for the same trees,
//! are shown next to the results.

mod client;
mod files;
mod filters;
mod latest;
mod operations;
mod sizes;
mod ycsb;

use runstone::KeyspaceOptions;
use runstone::unstable;
use runstone_kv::Result;
use runstone_plot::{Axis, Line};
use runstone_policy::options::{MIN_TABLE_BYTES, Numbers};
use runstone_policy::shape::Shape;
use runstone_simulator::SimReport;
use runstone_workloads::generators::{Latest, Rng};

use crate::context::Part;
use crate::engine::{Data, Loaded, MEMORY_BYTES, cpu_time, plain_options, write_amplification};
use crate::numbers::{ratio, strokes};
use crate::report::{line, rows};
use crate::sides::{BUFFER, Side};
use crate::simulated::{Writes, simulate_shape};
use crate::verdict::Rule::*;
use crate::{Context, PaperReport};
use runstone::Thousandths;

const POLICY: &str = "garnering";
/// `l0_share_percent` of the paper's system: level 0 does not wait.
const AT_TRIGGER: u32 = 0;

rows! {
    LEVELS = "levels of more than a table, of 80 GB, c = 1 / 0.8 / 0.4 (4.3)",
        "5 / 4 / 3 and one table" => Exactly(&[5.0, 4.0, 3.0]);
    RUNS_SOUGHT = "runs that a seek positions, c = 1 / 0.8 / 0.4 (4.2.2)",
        "range reads get faster as c falls"
        => Beside("the number of levels once more: reads are judged");
    SEEK_BLOCKS = "reads of a scan of 10 without a cache, c = 1 / 0.8 / 0.4 (as 4.2.2)",
        "range reads get faster as c falls" => Falls;
    SEEK_TIME = "processor time of such a scan in us, c = 1 / 0.8 / 0.4 (as 4.2.2)",
        "range reads get faster as c falls"
        => Beside("the trees are not timed in turns: their reads are judged");
    WRITTEN = "write amplification, c = 1 / 0.8 / 0.4 (4.3)",
        "load 15% faster at c = 0.4" => Beside("bytes; figure 3a has the paper's writes");
    WAITING = "the same where level 0 waits, and by the simulator",
        "" => Beside("our default: level 0 waits for half of what it would rewrite");
    HITS = "YCSB D: hits in level 1, c = 0.8 and 0.4 over 1 (4.3)",
        "33% and 40% over 9%" => Ratios(&[3.67, 4.44]);
    SPACE = "space amplification after the load, c = 1 / 0.8 / 0.4 (4.3)",
        "87.42 / 87.49 / 87.61 GB, within 0.3%" => Alike(0.003);
    ABSENT = "tables probed by absent gets without filters, c = 0.8 over 1, T = 2 (figure 2b)",
        "97.5 us / 119.9 us = 0.81" => Ratios(&[0.813]);
    ABSENT_SMALL = "the same over a level 1 of 256 KiB",
        "" => Beside("more data over level 1 than the paper has");
    OWN_LEVELS = "levels of more than a table, simulator at 80 GB, c = 1 / 0.8 / 0.4 (4.3)",
        "5 / 4 / 3 and one table" => Exactly(&[5.0, 4.0, 3.0]);
    OWN_WRITTEN = "write amplification, simulator at 80 GB: at the trigger; where level 0 waits",
        "load 15% faster at c = 0.4" => Beside("bytes, not times");
    OWN_READS = "tables probed by an absent get; runs that a seek positions: simulator at 80 GB",
        "" => Beside("the number of levels once more");
    SWEPT_WRITTEN = "write amplification, {}, c = 1 / 0.8 / 0.6 / 0.4 (figure 3a)",
        "random writes get slower as c falls" => Rises;
    SWEPT_WAITING = "the same where level 0 waits (figure 3a)",
        "" => Beside("our default");
    SWEPT_SIMULATED = "the same by the simulator (figure 3a)",
        "" => Beside("level 0 is compacted at its trigger");
    SWEPT_SOUGHT = "runs that a seek positions, {}, c = 1 / 0.8 / 0.6 / 0.4 (figure 3b)",
        "" => Beside("the number of levels once more: reads are judged");
    SWEPT_BLOCKS = "reads of a scan of 10 without a cache, {}, c = 1 / 0.8 / 0.6 / 0.4 (figure 3b)",
        "small range reads get faster as c falls" => Falls;
}

pub fn run(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    report.note(
        "reads are counted when all jobs are done and level 0 is empty; c = 1 is leveling, in the \
         paper RocksDB",
    );
    let parts: [Part<Context<'_>>; 11] = [
        ("whole-database", whole_database),
        ("own-size", own_size),
        ("latest", latest::run),
        ("zero-result-gets", zero_result_gets),
        ("operations", operations::run),
        ("sensitivity", sensitivity),
        ("filters", filters::run),
        ("ycsb", ycsb::run),
        ("files", files::run),
        ("sizes", sizes::run),
        ("sizes-simulated", sizes::own_size),
    ];
    context.measure(context, report, &parts)
}

/// A tree and its data, as they are at scale 1.
#[derive(Clone, Copy)]
struct Setting {
    size_ratio: u32,
    c_permille: u32,
    l0_share_percent: u32,
    /// Capacity of level 1.
    base_bytes: u64,
    table_bytes: u64,
    flush_bytes: u64,
    records: u64,
    key_bytes: usize,
    value_bytes: usize,
}

/// Section 4.3: 80 GB of YCSB records, tables of 64 MB, level 1 of 256 MB; all / 1024.
const WHOLE_DATABASE: Setting = Setting {
    size_ratio: 5,
    c_permille: 1000,
    l0_share_percent: AT_TRIGGER,
    base_bytes: 256 << 10,
    table_bytes: 64 << 10,
    flush_bytes: 64 << 10,
    records: (80 << 20) / (24 + 1000),
    key_bytes: 24,
    value_bytes: 1000,
};

/// Figure 2 with a level 1 that is small compared with the data, as in section 4.3.
const FIGURE_2: Setting =
    Setting { size_ratio: 2, records: 1_500_000, key_bytes: 16, value_bytes: 50, ..WHOLE_DATABASE };

/// Figure 3: 2 GB, with the sizes of figure 2; all / 64.
const FIGURE_3: Setting = Setting {
    base_bytes: 160 << 10,
    table_bytes: 32 << 10,
    flush_bytes: 32 << 10,
    records: (32 << 20) / (16 + 100),
    key_bytes: 16,
    value_bytes: 100,
    ..WHOLE_DATABASE
};

impl Setting {
    fn shape(&self, context: &Context<'_>) -> Numbers {
        Numbers {
            size_ratio: self.size_ratio,
            c: Thousandths::of_parts(self.c_permille),
            l0_trigger: 4,
            l0_share_percent: self.l0_share_percent,
            base_bytes: context.scaled(self.base_bytes).max(MIN_TABLE_BYTES),
            table_bytes: context.scaled(self.table_bytes).max(MIN_TABLE_BYTES),
            ..Numbers::default()
        }
    }

    fn options(&self, context: &Context<'_>) -> KeyspaceOptions {
        plain_options(POLICY).policy(unstable::policy(POLICY, self.shape(context)))
    }

    /// One side of a comparison of values of c. The bytes of its records decide when a memtable is
    /// flushed.
    fn side(&self, context: &Context<'_>) -> Side {
        let side = Side::keyspace(&c_name(self.c_permille), &self.options(context));
        side.with(BUFFER, context.scaled(self.flush_bytes))
    }

    fn data(&self, context: &Context<'_>) -> Data {
        Data {
            records: context.scaled(self.records),
            key_bytes: self.key_bytes,
            value_bytes: self.value_bytes,
            flush_bytes: context.scaled(self.flush_bytes),
        }
    }

    fn load(&self, context: &Context<'_>) -> Result<Loaded> {
        Loaded::new(self.options(context), &self.data(context))
    }

    /// Write amplification of the same load, by metadata alone.
    fn simulate(&self, context: &Context<'_>) -> f64 {
        self.simulated(context).0.write_amplification_permille as f64 / 1000.0
    }

    /// The simulator's report for the same load, and its tree.
    fn simulated(&self, context: &Context<'_>) -> (SimReport, Shape) {
        let data = self.data(context);
        let entry_bytes = data.entry_bytes();
        let flush_bytes = data.flush_bytes.max(entry_bytes);
        let bytes = data.records * entry_bytes;
        let writes = Writes { bytes, flush_bytes, entry_bytes, keys: None, prefixes: 1 };
        simulate_shape(&self.options(context), &writes)
    }

    /// The tree once it is loaded, and its measurements.
    fn measure(&self, context: &Context<'_>, what: &str) -> Result<(Seen, Loaded)> {
        let (c, percent) = (decimal(self.c_permille), self.l0_share_percent);
        context.say(&format!("{what}, c = {c}, level 0 waits for {percent}%"));
        let tree = self.load(context)?;
        let mut seen = Seen {
            levels: level_count(&tree.shape()) as f64,
            space: tree.space_amplification(),
            written: write_amplification(&tree.counters()),
            simulated: self.simulate(context),
            scans: Scans::default(),
        };
        let mut tree = tree.without_cache()?;
        seen.scans = Scans::measure(context, &mut tree)?;
        Ok((seen, tree.reopened(MEMORY_BYTES)?))
    }
}

/// The measurements of one tree.
struct Seen {
    levels: f64,
    space: f64,
    written: f64,
    simulated: f64,
    scans: Scans,
}

/// The cost of a short scan from a random key, without a cache.
#[derive(Default)]
struct Scans {
    /// Runs that a seek positions.
    sought: f64,
    /// Blocks and index partitions that were read.
    blocks: f64,
    /// Processor time.
    us: f64,
}

impl Scans {
    fn measure(context: &Context<'_>, tree: &mut Loaded) -> Result<Scans> {
        let scans = context.scaled(5_000);
        let (before, reads_before) = (tree.counters(), tree.table_reads());
        // The least of five is the least disturbed.
        let mut us = f64::INFINITY;
        for _ in 0..5 {
            let started = cpu_time();
            tree.scan(scans, 10)?;
            us = us.min((cpu_time() - started).as_secs_f64() * 1e6 / scans as f64);
        }
        let counters = tree.counters().since(&before);
        let each = |count: u64| count as f64 / counters.seeks.max(1) as f64;
        let blocks = each(tree.table_reads() - reads_before);
        Ok(Scans { sought: each(counters.runs_sought), blocks, us })
    }
}

fn column(seen: &[Seen], value: fn(&Seen) -> f64) -> Vec<f64> {
    seen.iter().map(value).collect()
}

fn whole_database(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let (mut seen, mut hits, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
    let mut sides = Vec::new();
    for c_permille in [1000, 800, 400] {
        let setting = Setting { c_permille, ..WHOLE_DATABASE };
        let (one, mut tree) = setting.measure(context, WHOLE_DATABASE_TEXT)?;
        seen.push(one);
        hits.push(latest_hits(context, &mut tree)? * 100.0);
        sides.push(setting.side(context));
        let setting = Setting { l0_share_percent: default_share(), ..setting };
        waiting.push(setting.measure(context, WHOLE_DATABASE_TEXT)?.0);
    }
    let of = |value| column(&seen, value);
    report.compare(&sides, &[])?;
    let (levels, written) = (of(|seen| seen.levels), of(|seen| seen.written));
    report.judge(LEVELS, strokes(&levels, 0), &levels);
    report.show(RUNS_SOUGHT, strokes(of(|seen| seen.scans.sought), 2));
    let (blocks, us) = (of(|seen| seen.scans.blocks), of(|seen| seen.scans.us));
    report.judge(SEEK_BLOCKS, strokes(&blocks, 2), &blocks);
    report.show(SEEK_TIME, strokes(&us, 2));
    report.show(WRITTEN, strokes(&written, 2));
    let here = format!(
        "{}; simulator {}, at the trigger {}",
        strokes(column(&waiting, |seen| seen.written), 2),
        strokes(column(&waiting, |seen| seen.simulated), 2),
        strokes(of(|seen| seen.simulated), 2)
    );
    report.show(WAITING, here);
    report.judge(HITS, strokes(&hits, 1) + " %", &[hits[1] / hits[0], hits[2] / hits[0]]);
    let space = of(|seen| seen.space);
    report.judge(SPACE, strokes(&space, 4), &space);
    Ok(())
}

const WHOLE_DATABASE_TEXT: &str = "80 MiB of YCSB records";

/// Simulates section 4.3 at its own 80 GB, by metadata alone.
fn own_size(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let of = |c_permille, l0_share_percent| Setting {
        c_permille,
        l0_share_percent,
        base_bytes: WHOLE_DATABASE.base_bytes << 10,
        table_bytes: WHOLE_DATABASE.table_bytes << 10,
        flush_bytes: WHOLE_DATABASE.flush_bytes << 10,
        records: WHOLE_DATABASE.records << 10,
        ..WHOLE_DATABASE
    };
    report.compare(&[1000, 800, 400].map(|c| of(c, AT_TRIGGER).side(context)), &[])?;
    let (mut levels, mut reads, mut written) = (vec![], [vec![], vec![]], [vec![], vec![]]);
    for c in [1000, 800, 400] {
        context.say(&format!("80 GB by the simulator, {}", c_name(c)));
        let (seen, shape) = of(c, AT_TRIGGER).simulated(context);
        levels.push(level_count(&shape) as f64);
        let permilles = [seen.tables_probed_per_get_permille, seen.runs_sought_per_scan_permille];
        for (column, permille) in reads.iter_mut().zip(permilles) {
            column.push(permille as f64 / 1000.0);
        }
        written[0].push(seen.write_amplification_permille as f64 / 1000.0);
        written[1].push(of(c, default_share()).simulate(context));
    }
    report.judge(OWN_LEVELS.uncounted(), strokes(&levels, 0), &levels);
    report.show(OWN_WRITTEN, written.map(|column| strokes(&column, 2)).join("; "));
    report.show(OWN_READS, reads.map(|column| strokes(&column, 2)).join("; "));
    Ok(())
}

/// Measures figure 2: two million entries of 16 + 50 bytes, T = 2. It is judged with the paper's
/// sizes, those of `OptimizeForSmallDb`: level 1 of 10 MB and tables of 2 MB. With those sizes,
/// level 0 adds nearly a whole level 1 at once, and the few levels have holes. So a small level 1
/// is shown as well.
fn zero_result_gets(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let paper =
        Setting { base_bytes: 10 << 20, table_bytes: 2 << 20, flush_bytes: 2 << 20, ..FIGURE_2 };
    let mut seen = Vec::new();
    for setting in [FIGURE_2, paper] {
        let leveling = probes_of_absent(context, &setting)?;
        let probes = probes_of_absent(context, &Setting { c_permille: 800, ..setting })?;
        seen.push(ratio(probes, leveling, 2, ""));
    }
    let [(small, _), (own, of_leveling)] = <[_; 2]>::try_from(seen).expect("two settings");
    let side = |c_permille| Setting { c_permille, ..paper }.side(context);
    report.compare(&[1000, 800].map(side), &[])?;
    report.judge(ABSENT, own, &[of_leveling]);
    report.show(ABSENT_SMALL, small);
    Ok(())
}

/// Tables that a get of an absent key probes. Round-robin sinking leaves a hole in each level,
/// whose size changes all the time. A get of a key in the hole does not probe the level, so gets
/// are spread over the last quarter of the load.
fn probes_of_absent(context: &Context<'_>, setting: &Setting) -> Result<f64> {
    let (base, c) = (setting.base_bytes, decimal(setting.c_permille));
    context.say(&format!("2 million entries of 66 bytes, L1 of {base} bytes, c = {c}"));
    let mut tree = setting.load(context)?;
    let (mut gets, mut probed) = (0, 0);
    while tree.records() < context.scaled(2_000_000) {
        let before = tree.counters();
        gets += tree.get_absent(context.scaled(10_000))?;
        probed += tree.counters().tables_probed - before.tables_probed;
        tree.insert()?;
        tree.insert_until_calm()?;
    }
    Ok(probed as f64 / gets.max(1) as f64)
}

/// The values of c in figure 3, in thousandths.
const SWEEP: [u32; 4] = [1000, 800, 600, 400];
const SIZE_RATIOS: [u32; 2] = [3, 5];

/// The measurements of the trees of one T, for each c.
type Sweep = (String, Vec<Seen>);

/// Measures figure 3: c from 1 to 0.4, T = 3 and 5.
fn sensitivity(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let seen = sweep(context, AT_TRIGGER)?;
    let waiting = sweep(context, default_share())?;
    let text = |sweeps: &[Sweep], value| {
        let of = |(name, seen): &Sweep| format!("{name}: {}", strokes(column(seen, value), 2));
        sweeps.iter().map(of).collect::<Vec<_>>().join("; ")
    };
    for ((name, seen), size_ratio) in seen.iter().zip(SIZE_RATIOS) {
        let of = |c_permille| Setting { size_ratio, c_permille, ..FIGURE_3 }.side(context);
        report.compare(&SWEEP.map(of), &[])?;
        let written = column(seen, |seen| seen.written);
        report.judge(SWEPT_WRITTEN.of(&[name]), strokes(&written, 2), &written);
        let blocks = column(seen, |seen| seen.scans.blocks);
        report.judge(SWEPT_BLOCKS.of(&[name]), strokes(&blocks, 2), &blocks);
        let sought = column(seen, |seen| seen.scans.sought);
        report.show(SWEPT_SOUGHT.of(&[name]), strokes(&sought, 2));
    }
    report.compare(&[], &[])?;
    report.show(SWEPT_WAITING, text(&waiting, |seen| seen.written));
    report.show(SWEPT_SIMULATED, text(&seen, |seen| seen.simulated));
    let lines = |sweeps: &[Sweep], suffix: &str, value| -> Vec<Line> {
        let c = || SWEEP.map(|permille| f64::from(permille) / 1000.0).into_iter();
        let of =
            |(name, seen): &Sweep| line(&(name.clone() + suffix), c().zip(column(seen, value)));
        sweeps.iter().map(of).collect()
    };
    let mut written = lines(&seen, "", |seen| seen.written);
    written.extend(lines(&waiting, ", level 0 waits", |seen| seen.written));
    let reads = lines(&seen, "", |seen| seen.scans.blocks);
    let (x, y) = (Axis::linear("c"), "bytes written per byte of the user");
    report.draw_lines("figure-3a", "Random writes", x.clone(), y, written);
    report.draw_lines("figure-3b", "Short range reads", x, "reads per scan of 10", reads);
    Ok(())
}

/// Measures the trees of figure 3, with a level 0 that waits for this share.
fn sweep(context: &Context<'_>, l0_share_percent: u32) -> Result<Vec<Sweep>> {
    let mut sweeps = Vec::new();
    for size_ratio in SIZE_RATIOS {
        let mut seen = Vec::new();
        for c_permille in SWEEP {
            let setting = Setting { size_ratio, c_permille, l0_share_percent, ..FIGURE_3 };
            seen.push(setting.measure(context, &format!("32 MiB, T = {size_ratio}"))?.0);
        }
        sweeps.push((format!("T = {size_ratio}"), seen));
    }
    Ok(sweeps)
}

fn default_share() -> u32 {
    Numbers::default().l0_share_percent
}

/// The number of levels, other than level 0, that contain more than one table.
fn level_count(shape: &Shape) -> usize {
    shape.levels.iter().skip(1).filter(|level| level.tables().count() > 1).count()
}

/// Runs YCSB D: 95% gets of the latest records, 5% inserts. Returns the share of gets that hit
/// level 1.
fn latest_hits(context: &Context<'_>, tree: &mut Loaded) -> Result<f64> {
    let (mut latest, mut rng) = (Latest::new(tree.records()), Rng::new(2));
    let before = tree.counters();
    for _ in 0..context.scaled(100_000) {
        match rng.below(100) {
            0..5 => tree.insert()?,
            _ => {
                let key = tree.key(latest.next(&mut rng, tree.records()));
                let value = tree.store.get(key)?;
                assert!(value.is_some(), "a record that was written is found");
            }
        }
    }
    let after = tree.counters();
    let hits = (after.get_hits - before.get_hits).max(1);
    Ok((after.hits_level_1 - before.hits_level_1) as f64 / hits as f64)
}

fn c_name(permille: u32) -> String {
    format!("c = {}", decimal(permille))
}

fn decimal(permille: u32) -> String {
    format!("{}", f64::from(permille) / 1000.0)
}
