//! Runs the text tests in `testdata/`: shape in, plan out. The expectations are in those files, not
//! here.
//!
//! A test is a directive line (name and `key=value` arguments), body lines, `----`, and the
//! expected output up to an empty line. `REWRITE=1` writes the actual output into the files.
//! Lines that start with `#` between tests are comments.
//!
//! | directive | effect |
//! |---|---|
//! | `policy NAME fanout= base= table= l0= ..` | chooses (see `set_policy`); `ok` or why not |
//! | `tree` | replaces the tree and the busy set with the lines below |
//! | `flush` | adds the tables below, each a new run of its own |
//! | `busy` | replaces the busy set; words: table ids, and ranges `L2[a..d]` |
//! | `heat` | replaces the access counters; words: `11=150`; a new tree resets them |
//! | `seeks` | replaces the counters of seeks, in the same form |
//! | `targets` | score and target of each level, and the compaction debt |
//! | `pick` | the next plan, stored for `apply` |
//! | `apply` | carries out the last plan and prints the tree |
//! | `drop inputs=1,2` | per body line `key@seq` or `[a..c]@seq`: may the tombstone be dropped? |
//! | `link inputs=1,2 without=3` | per body line `key@newer>older`: does `older` directly follow? |
//! | `newest inputs=1,2 without=3` | per body line `key@seq`: is there no newer version elsewhere?
//! |
//!
//! Lines of a tree: `L1 r1 11:[a..h]=64M#3-9 tomb=2 n=50 12:..` is a run (newest first in a level;
//! sequence numbers, tombstones, range deletes `ranges=2` among them, entries and prefixes
//! `p=ab,ac` may be left out; `keys=0-999` gives the table a sketch of the keys of these numbers,
//! without it the keys are unknown), `L1 overlapping 11:..` are tables of an overlapping level, `L0
//! r1@7 ..` is a run whose last flush is number 7, `flushes 9` (the first line) counts flushes,
//! `cursor L1 k` is a round-robin cursor, `last L3` is the stored last level.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use runstone_policy::drop_guard::{DropGuard, LinkGuard, NewerGuard, RangeGuard};
use runstone_policy::edit::edit_for;
use runstone_policy::options::{IntraLevel, Numbers, PolicyOptions};
use runstone_policy::partition::{PARTITIONERS, Partitioner};
use runstone_policy::plan::{Busy, BusyRange, Compaction, Heat, Plan};
use runstone_policy::policy::{
    CompactionPolicy, LevelTarget, compaction_debt_bytes, expired_plan, idle_plan, next_plan,
    score, space_percent,
};
use runstone_policy::registry;
use runstone_policy::shape::expiry::Expiries;
use runstone_policy::shape::range_delete::RangeDelete;
use runstone_policy::shape::{Edit, Level, Placement, RunSlot, Shape, Table, TableId};
use runstone_policy::sketch::Sketch;
use runstone_policy::text::format_bytes;

use runstone_policy::units::Thousandths;
use runstone_random::mix64;

#[test]
fn testdata() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/testdata");
    let mut paths: Vec<_> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    let rewrite = std::env::var_os("REWRITE").is_some();
    let mut failures = String::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap();
        let actual = run_file(&text);
        if rewrite {
            std::fs::write(&path, actual).unwrap();
        } else if actual != text {
            let name = path.file_name().unwrap().to_string_lossy();
            failures.push_str(&first_difference(&name, &text, &actual));
        }
    }
    assert!(failures.is_empty(), "{failures}\nREWRITE=1 accepts the actual output");
}

fn first_difference(name: &str, expected: &str, actual: &str) -> String {
    let at = expected.lines().zip(actual.lines()).take_while(|(a, b)| a == b).count();
    let line = |text: &str| text.lines().nth(at).unwrap_or("<end>").to_owned();
    format!("{name}:{}\n  expected: {}\n  actual:   {}\n", at + 1, line(expected), line(actual))
}

/// Returns the file with actual outputs in place of the expected ones.
fn run_file(text: &str) -> String {
    let mut world = World::default();
    let mut out = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        writeln!(out, "{line}").unwrap();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut body = Vec::new();
        for line in lines.by_ref() {
            writeln!(out, "{line}").unwrap();
            if line == "----" {
                break;
            }
            body.push(line);
        }
        let result = world.run(line, &body).unwrap_or_else(|error| format!("error: {error}"));
        writeln!(out, "{}", result.trim_end()).unwrap();
        // The expected output: compared as part of the whole file.
        lines.by_ref().take_while(|line| !line.is_empty()).for_each(drop);
        out.push('\n');
    }
    // The last test needs no empty line after it.
    format!("{}\n", out.trim_end())
}

/// The state that directives share.
struct World {
    policy: &'static dyn CompactionPolicy,
    options: PolicyOptions,
    shape: Shape,
    busy: Busy,
    heat: Heat,
    plan: Option<Plan>,
}

impl Default for World {
    fn default() -> Self {
        World {
            policy: registry::POLICIES[0],
            options: PolicyOptions::default(),
            shape: Shape::default(),
            busy: Busy::default(),
            heat: Heat::default(),
            plan: None,
        }
    }
}

impl World {
    fn run(&mut self, directive: &str, body: &[&str]) -> Result<String, String> {
        let mut words = directive.split_whitespace();
        let name = words.next().unwrap_or("");
        let words: Vec<&str> = words.collect();
        let args = Args::parse(&words);
        match name {
            "policy" => self.set_policy(words.first().copied().unwrap_or(""), &args),
            "tree" => self.set_tree(body),
            "flush" => self.flush(body),
            "busy" => self.set_busy(body),
            "heat" => set_counts(&mut self.heat.accesses, body),
            "seeks" => set_counts(&mut self.heat.seeks, body),
            "targets" => Ok(self.show_targets()),
            "pick" => {
                self.plan =
                    next_plan(self.policy, &self.shape, &self.busy, &self.heat, &self.options);
                Ok(self.show_plan())
            }
            "space" => {
                let percent =
                    space_percent(&self.shape, Numbers::of(&self.options).max_space_percent);
                Ok(format!("{percent}%"))
            }
            "idle" => {
                let least = 100;
                self.plan = idle_plan(self.policy, &self.shape, &self.busy, &self.options, least);
                Ok(self.show_plan())
            }
            "expired" => {
                let (now_ms, snapshot) = (args.number("now", 0)?, args.number("snapshot", 0)?);
                let past_ms = |seq| if seq > snapshot { now_ms } else { 0 };
                self.plan = expired_plan(&self.shape, &self.busy, past_ms);
                Ok(self.show_plan())
            }
            "apply" => self.apply(),
            "drop" => self.drop_guard(&args, body),
            "link" => self.link_guard(&args, body),
            "newest" => self.newer_guard(&args, body),
            other => Err(format!("unknown directive {other}")),
        }
    }

    fn set_policy(&mut self, name: &str, args: &Args) -> Result<String, String> {
        let policy = registry::find(name).map_err(|error| error.to_string())?;
        // Fixed here, so that the texts do not change with the defaults.
        let defaults = Numbers { l0_trigger: 4, access_bytes: 16 << 10, ..Numbers::default() };
        let small = |number: u64| u32::try_from(number).map_err(|error| error.to_string());
        let options = Numbers {
            size_ratio: small(args.number("fanout", defaults.size_ratio.into())?)?,
            l0_trigger: small(args.number("l0", defaults.l0_trigger.into())?)?,
            l0_share_percent: small(args.number("share", defaults.l0_share_percent.into())?)?,
            base_bytes: args.number("base", defaults.base_bytes)?,
            table_bytes: args.number("table", defaults.table_bytes)?,
            c: Thousandths::of_parts(small(args.number("c", defaults.c.parts().into())?)?),
            max_runs: small(args.number("k", defaults.max_runs.into())?)?,
            last_level_runs: small(args.number("z", defaults.last_level_runs.into())?)?,
            split_bytes: args.number("split", defaults.split_bytes)?,
            intra_level: match args.0.get("intra").map(String::as_str) {
                Some("last") => IntraLevel::Last,
                _ => IntraLevel::Every,
            },
            access_limit: small(args.number("accesses", defaults.access_limit.into())?)?,
            seek_compaction: args.0.get("seeks").is_some_and(|word| word == "true"),
            seek_bytes: args.number("seek", defaults.seek_bytes)?,
            least_seeks: small(args.number("least", defaults.least_seeks.into())?)?,
            stack_runs: small(args.number("runs", defaults.stack_runs.into())?)?,
            universal_trigger: small(args.number("trigger", 4)?)?,
            universal_amp_percent: small(args.number("amp", 200)?)?,
            universal_ratio_percent: small(args.number("ratio", 1)?)?,
            universal_min_width: small(args.number("min", 2)?)?,
            universal_max_width: small(args.number("max", u32::MAX.into())?)?,
            max_space_percent: small(args.number("space", 0)?)?,
            partitioner: match args.0.get("partitioner") {
                None => defaults.partitioner,
                Some(name) => {
                    let named = |one: &&Partitioner| one.rule().name() == name;
                    *PARTITIONERS.iter().find(named).ok_or(format!("no partitioner {name}"))?
                }
            },
            ..defaults
        }
        .into_options();
        policy.check(&options).map_err(|error| error.to_string())?;
        (self.policy, self.options) = (policy, options);
        Ok("ok".to_owned())
    }

    fn set_tree(&mut self, body: &[&str]) -> Result<String, String> {
        let mut shape = Shape::default();
        // The last line is applied first, since a new run is the newest of its level.
        for line in body.iter().rev() {
            let mut edit = parse_tree_line(line)?;
            // The number in the text is the flush count after the edit.
            edit.flushes = edit.flushes.saturating_sub(shape.state.flush_count);
            shape = shape.into_applied(&edit).map_err(|error| error.to_string())?;
        }
        (self.shape, self.plan, self.busy) = (shape, None, Busy::default());
        self.heat = Heat::default();
        Ok(self.show_fill())
    }

    /// One flush per line.
    fn flush(&mut self, body: &[&str]) -> Result<String, String> {
        for line in body {
            let table = Arc::new(parse_table(line)?);
            let place = vec![Placement { level: 0, slot: RunSlot::New(table.id), table }];
            let edit = Edit { place, flushes: 1, ..Edit::default() };
            self.shape = self.shape.apply(&edit).map_err(|error| error.to_string())?;
        }
        Ok(show_tree(&self.shape))
    }

    fn set_busy(&mut self, body: &[&str]) -> Result<String, String> {
        self.busy = Busy::default();
        for word in body.iter().flat_map(|line| line.split_whitespace()) {
            if let Ok(id) = word.parse::<TableId>() {
                self.busy.tables.insert(id);
                continue;
            }
            let (level, keys) = word.split_once('[').ok_or(format!("bad range {word}"))?;
            let (min_key, max_key) = parse_keys(keys.trim_end_matches(']'))?;
            self.busy.ranges.push(BusyRange::new(parse_level(level)?, min_key, max_key));
        }
        Ok("ok".to_owned())
    }

    fn show_fill(&self) -> String {
        let targets = self.policy.targets(&self.shape, &self.options);
        let mut out = String::new();
        for (index, level) in (0usize..).zip(&self.shape.levels) {
            let bytes = level.bytes();
            let capacity = targets.get(index).unwrap_or(&LevelTarget::UNBOUNDED).capacity_bytes;
            let size = format_bytes(bytes);
            if capacity == u64::MAX {
                let runs = level.runs().len();
                writeln!(out, "L{index} {size} in {runs} runs").unwrap();
            } else {
                let percent = u128::from(bytes) * 100 / u128::from(capacity);
                writeln!(out, "L{index} {size}/{} {percent}%", format_bytes(capacity)).unwrap();
            }
        }
        if out.is_empty() { "empty".to_owned() } else { out }
    }

    fn show_targets(&self) -> String {
        let mut out = String::new();
        let targets = self.policy.targets(&self.shape, &self.options);
        for (index, target) in (0u32..).zip(&targets) {
            let score = score(self.shape.level(index), target).signed_parts();
            let capacity = match target.capacity_bytes {
                u64::MAX => "any size".to_owned(),
                bytes => format_bytes(bytes),
            };
            writeln!(out, "L{index} {score} of 1000; {capacity}, {} runs", target.max_runs)
                .unwrap();
        }
        let debt = compaction_debt_bytes(&self.shape, self.policy, &self.options);
        writeln!(out, "debt {}", format_bytes(debt)).unwrap();
        out
    }

    fn show_plan(&self) -> String {
        let Some(plan) = &self.plan else {
            return "nothing".to_owned();
        };
        let mut out = String::new();
        for step in &plan.moves {
            let (from, to) = (step.from_level, step.to_level);
            let slot = show_slot(step.slot);
            writeln!(out, "move {} L{from} -> L{to} {slot}", step.table).unwrap();
        }
        let mut read = 0;
        for id in &plan.drops {
            writeln!(out, "drop {id}").unwrap();
        }
        for compaction in &plan.compactions {
            let inputs: Vec<String> = compaction
                .inputs
                .iter()
                .map(|input| {
                    let ids: Vec<String> = input.tables.iter().map(u64::to_string).collect();
                    format!("L{}{{{}}}", input.level, ids.join(","))
                })
                .collect();
            let slot = show_slot(compaction.slot);
            writeln!(
                out,
                "compaction {} -> L{} {slot}",
                inputs.join(" + "),
                compaction.output_level
            )
            .unwrap();
            read += inputs_of(&self.shape, compaction).iter().map(|table| table.bytes).sum::<u64>();
        }
        if read > 0 {
            writeln!(out, "read {0} write<={0}", format_bytes(read)).unwrap();
        }
        for (from, to) in &plan.relabel {
            writeln!(out, "relabel L{from} -> L{to}").unwrap();
        }
        for (level, key) in &plan.cursors {
            writeln!(out, "cursor L{level} {}", key.escape_ascii()).unwrap();
        }
        if let Some(level) = plan.last_level {
            writeln!(out, "last L{level}").unwrap();
        }
        writeln!(out, "why {}", plan.why).unwrap();
        out
    }

    fn apply(&mut self) -> Result<String, String> {
        let plan = self.plan.take().ok_or("nothing was picked")?;
        let mut next_id = self.shape.tables().map(|(_, table)| table.id).max().unwrap_or(0) + 1;
        let mut outputs = Vec::new();
        for compaction in &plan.compactions {
            let tables =
                compacted(&inputs_of(&self.shape, compaction), compaction.cut.cap_bytes(), next_id);
            next_id += tables.len() as u64;
            outputs.push(tables);
        }
        let edit = edit_for(&self.shape, &plan, &outputs);
        self.shape = self.shape.apply(&edit).map_err(|error| error.to_string())?;
        Ok(show_tree(&self.shape))
    }

    fn drop_guard(&self, args: &Args, body: &[&str]) -> Result<String, String> {
        let ids = args.ids("inputs")?;
        let mut guard = DropGuard::new(&self.shape, &ids);
        let ranges = RangeGuard::new(&self.shape, &ids);
        let mut out = String::new();
        for line in body {
            let (key, seq) = line.rsplit_once('@').ok_or("expected key@seq")?;
            let seq = seq.parse().map_err(|_| format!("bad seq in {line}"))?;
            let allowed = match key.strip_prefix('[') {
                None => guard.allows(key.as_bytes(), seq),
                Some(keys) => {
                    let (min_key, max_key) = parse_keys(keys.trim_end_matches(']'))?;
                    let end = Some([&*max_key, &[0]].concat().into());
                    ranges.allows(&RangeDelete { start: min_key, end, seq })
                }
            };
            writeln!(out, "{line} {}", if allowed { "drop" } else { "keep" }).unwrap();
        }
        Ok(out)
    }

    fn link_guard(&self, args: &Args, body: &[&str]) -> Result<String, String> {
        let mut guard = LinkGuard::new(&self.shape, &args.ids("inputs")?);
        let without = args.ids("without").unwrap_or_default();
        let mut out = String::new();
        for line in body {
            let parts = line.rsplit_once('@').and_then(|(key, seqs)| {
                let (newer, older) = seqs.split_once('>')?;
                Some((key, newer.parse().ok()?, older.parse().ok()?))
            });
            let (key, newer, older) = parts.ok_or("expected key@newer>older")?;
            let may_hold = |table: &Table| !without.contains(&table.id);
            let links = guard.may_link(key.as_bytes(), newer, older, may_hold);
            writeln!(out, "{line} {}", if links { "next" } else { "unknown" }).unwrap();
        }
        Ok(out)
    }

    fn newer_guard(&self, args: &Args, body: &[&str]) -> Result<String, String> {
        let mut guard = NewerGuard::new(&self.shape, &args.ids("inputs")?);
        let without = args.ids("without").unwrap_or_default();
        let mut out = String::new();
        for line in body {
            let (key, seq) = line.rsplit_once('@').ok_or("expected key@seq")?;
            let seq = seq.parse().map_err(|_| format!("bad seq in {line}"))?;
            let may_hold = |table: &Table| !without.contains(&table.id);
            let is_newest = guard.is_newest(key.as_bytes(), seq, may_hold);
            writeln!(out, "{line} {}", if is_newest { "newest" } else { "unknown" }).unwrap();
        }
        Ok(out)
    }
}

/// `key=value` words.
struct Args(BTreeMap<String, String>);

impl Args {
    fn parse(words: &[&str]) -> Args {
        let pairs = words.iter().filter_map(|word| word.split_once('='));
        Args(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
    }

    fn ids(&self, key: &str) -> Result<BTreeSet<TableId>, String> {
        let ids = self.0.get(key).ok_or_else(|| format!("expected {key}="))?;
        let ids: Result<_, _> = ids.split(',').map(str::parse).collect();
        ids.map_err(|_| format!("bad {key}="))
    }

    fn number(&self, key: &str, default: u64) -> Result<u64, String> {
        self.0.get(key).map_or(Ok(default), |value| parse_bytes(value))
    }
}

fn parse_bytes(text: &str) -> Result<u64, String> {
    let bad = || format!("bad number {text}");
    let digits = text.trim_end_matches(['K', 'M', 'G', 'T']);
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(bad()),
    };
    digits.parse::<u64>().map(|number| number << shift).map_err(|_| bad())
}

fn parse_level(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix('L').and_then(|digits| digits.parse().ok());
    digits.ok_or(format!("bad level {text}"))
}

type Keys = (Box<[u8]>, Box<[u8]>);

fn parse_keys(text: &str) -> Result<Keys, String> {
    let (min_key, max_key) = text.split_once("..").ok_or(format!("bad key range {text}"))?;
    Ok((min_key.as_bytes().into(), max_key.as_bytes().into()))
}

fn set_counts(counts: &mut BTreeMap<TableId, u64>, body: &[&str]) -> Result<String, String> {
    counts.clear();
    for word in body.iter().flat_map(|line| line.split_whitespace()) {
        let (id, count) = word.split_once('=').ok_or(format!("bad count {word}"))?;
        let id = id.parse().map_err(|_| format!("bad table {word}"))?;
        counts.insert(id, parse_bytes(count)?);
    }
    Ok("ok".to_owned())
}

fn parse_tree_line(line: &str) -> Result<Edit, String> {
    let mut words = line.split_whitespace().peekable();
    let first = words.next().unwrap_or("");
    if first == "cursor" {
        let level = parse_level(words.next().unwrap_or(""))?;
        let key = words.next().unwrap_or("").as_bytes().into();
        return Ok(Edit { cursors: vec![(level, key)], ..Edit::default() });
    }
    if first == "last" {
        let level = parse_level(words.next().unwrap_or(""))?;
        return Ok(Edit { last_level: Some(level), ..Edit::default() });
    }
    if first == "flushes" {
        let flushes = parse_bytes(words.next().unwrap_or(""))?;
        return Ok(Edit { flushes, ..Edit::default() });
    }
    let level = parse_level(first)?;
    let mut flushes = 0;
    let slot = match words.peek() {
        Some(&"overlapping") => RunSlot::Overlapping,
        Some(word) if word.starts_with('r') => {
            let (run, flush) = word[1..].split_once('@').unwrap_or((&word[1..], "0"));
            flushes = parse_bytes(flush)?;
            RunSlot::New(run.parse().map_err(|_| format!("bad run {word}"))?)
        }
        _ => RunSlot::New(u64::from(level)),
    };
    if words.peek().is_some_and(|word| word.starts_with(['r', 'o'])) {
        words.next();
    }
    let mut tables: Vec<Table> = Vec::new();
    for word in words {
        match (word.split_once('='), tables.last_mut()) {
            (Some(("tomb", count)), Some(table)) => table.tombstones = parse_bytes(count)?,
            (Some(("ranges", count)), Some(table)) => table.range_deletes = parse_bytes(count)?,
            (Some(("n", count)), Some(table)) => table.entries = parse_bytes(count)?,
            (Some(("keys", range)), Some(table)) => table.sketch = parse_sketch(range)?,
            (Some(("p", prefixes)), Some(table)) => {
                table.prefixes =
                    prefixes.split(',').map(|prefix| prefix.as_bytes().into()).collect();
            }
            _ => tables.push(parse_table(word)?),
        }
    }
    let place = |table| Placement { level, slot, table: Arc::new(table) };
    Ok(Edit { place: tables.into_iter().map(place).collect(), flushes, ..Edit::default() })
}

/// `0-999`: the keys of these numbers.
fn parse_sketch(range: &str) -> Result<Sketch, String> {
    let (first, last) = range.split_once('-').ok_or(format!("bad keys {range}"))?;
    let mut sketch = Sketch::of_nothing();
    for key in parse_bytes(first)?..=parse_bytes(last)? {
        // The numbers of splitmix64 from 0 on.
        sketch.add(mix64(key.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    }
    Ok(sketch)
}

/// `11:[a..h]=64M#3-9!50-60`; without `#` all of it has sequence number 1. All entries expire
/// between the two times after `!`, if there is one.
fn parse_table(word: &str) -> Result<Table, String> {
    let bad = || format!("bad table {word}");
    let (id, rest) = word.split_once(":[").ok_or_else(bad)?;
    let (keys, rest) = rest.split_once("]=").ok_or_else(bad)?;
    let (rest, times) = rest.split_once('!').unwrap_or((rest, ""));
    let (bytes, seqs) = rest.split_once('#').unwrap_or((rest, "1-1"));
    let (min_seq, max_seq) = seqs.split_once('-').ok_or_else(bad)?;
    let (min_key, max_key) = parse_keys(keys)?;
    let bytes = parse_bytes(bytes)?;
    let mut expiries = Expiries::default();
    if let Some((first, last)) = times.split_once('-') {
        let time = |text: &str| text.parse().map_err(|_| bad());
        expiries = Expiries::even(bytes / 100, time(first)?, time(last)?);
    }
    Ok(Table {
        id: id.parse().map_err(|_| bad())?,
        min_key,
        max_key,
        bytes,
        entries: bytes / 100,
        min_seq: min_seq.parse().map_err(|_| bad())?,
        max_seq: max_seq.parse().map_err(|_| bad())?,
        expiries,
        ..Table::default()
    })
}

fn show_slot(slot: RunSlot) -> String {
    match slot {
        RunSlot::Join(id) | RunSlot::New(id) => format!("r{id}"),
        RunSlot::Oldest(id) => format!("r{id}, oldest"),
        RunSlot::Overlapping => "overlapping".to_owned(),
    }
}

fn show_tree(shape: &Shape) -> String {
    let mut out = String::new();
    let show = |tables: &[Arc<Table>]| -> String {
        tables.iter().fold(String::new(), |line, table| {
            let (low, high) = (table.min_key.escape_ascii(), table.max_key.escape_ascii());
            format!("{line} {}:[{low}..{high}]={}", table.id, format_bytes(table.bytes))
        })
    };
    for (index, level) in (0u32..).zip(&shape.levels) {
        match level {
            Level::Overlapping(tables) => {
                writeln!(out, "L{index} overlapping{}", show(tables)).unwrap();
            }
            Level::Runs(runs) => {
                for run in runs {
                    let flush = match run.last_flush {
                        0 => String::new(),
                        flush => format!("@{flush}"),
                    };
                    writeln!(out, "L{index} r{}{flush}{}", run.id, show(&run.tables)).unwrap();
                }
            }
        }
    }
    for (level, key) in &shape.state.cursors {
        writeln!(out, "cursor L{level} {}", key.escape_ascii()).unwrap();
    }
    if shape.state.last_level > 0 {
        writeln!(out, "last L{}", shape.state.last_level).unwrap();
    }
    if out.is_empty() { "empty".to_owned() } else { out }
}

fn inputs_of(shape: &Shape, compaction: &Compaction) -> Vec<Arc<Table>> {
    let ids: BTreeSet<TableId> = compaction.input_ids().collect();
    let tables = shape.tables().filter(|(_, table)| ids.contains(&table.id));
    tables.map(|(_, table)| Arc::clone(table)).collect()
}

/// Outputs of a compaction that drops nothing. The only keys known to exist are the bounds of the
/// inputs, so the outputs are cut between those.
fn compacted(inputs: &[Arc<Table>], table_bytes: u64, first_id: TableId) -> Vec<Arc<Table>> {
    let bounds = inputs.iter().flat_map(|table| [&table.min_key, &table.max_key]);
    let keys: Vec<&Box<[u8]>> = bounds.collect::<BTreeSet<_>>().into_iter().collect();
    let bytes: u64 = inputs.iter().map(|table| table.bytes).sum();
    let count = usize::try_from(bytes.div_ceil(table_bytes)).unwrap().clamp(1, keys.len());
    let mut tables = Vec::new();
    for at in 0..count {
        let own = &keys[keys.len() * at / count..keys.len() * (at + 1) / count];
        let share =
            |total: u64| total * (at as u64 + 1) / count as u64 - total * at as u64 / count as u64;
        tables.push(Arc::new(Table {
            id: first_id + at as u64,
            min_key: own[0].clone(),
            max_key: own[own.len() - 1].clone(),
            bytes: share(bytes),
            entries: share(inputs.iter().map(|table| table.entries).sum()),
            tombstones: share(inputs.iter().map(|table| table.tombstones).sum()),
            min_seq: inputs.iter().map(|table| table.min_seq).min().unwrap(),
            max_seq: inputs.iter().map(|table| table.max_seq).max().unwrap(),
            ..Table::default()
        }));
    }
    tables
}
