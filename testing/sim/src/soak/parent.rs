//! The process that kills the child. It knows the expected contents, and opens the store to check
//! them.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use runstone::{Keyspace, ValuePlacement};

use super::beside::Beside;
use super::{
    GROUPS, Model, Opened, RECORD_BYTES, RESERVE_PERMILLE, SEPARATE_AT, SLOT_BYTES, Soak,
    TAG_FOOTER_BYTES, TOLD, VLOG_CHUNK_BYTES, count_in, difference, model_in, text,
};
use crate::random::Random;

/// Totals of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Times that the child was killed.
    pub kills: u64,
    /// Operations that the store contained at the end.
    pub operations: u64,
    /// Times that everything was compared after a kill.
    pub checks: u64,
    /// What children reported, in the order of `TOLD`.
    pub told: [u64; TOLD.len()],
    /// Times that the space was measured.
    pub settled: u64,
    /// The most bytes of slots in use that were seen per thousand bytes of records, with everything
    /// compacted and collected.
    pub worst_permille: u64,
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = self.told.iter().zip(TOLD).map(|(count, what)| format!("{count} {what}"));
        write!(
            f,
            "{} operations, {} kills, {} comparisons, {}, \
             space at most {}.{:03} of the data in {} looks",
            self.operations,
            self.kills,
            self.checks,
            told.collect::<Vec<_>>().join(", "),
            self.worst_permille / 1000,
            self.worst_permille % 1000,
            self.settled
        )
    }
}

/// What a child reported.
#[derive(Clone, Copy, Debug, Default)]
struct Said {
    at: u64,
    told: [u64; TOLD.len()],
}

/// Kills children for `time`; `command` starts one for an opening. `say` reports progress.
///
/// # Errors
/// What is wrong with the store, which is left as it is.
pub fn run(
    soak: &Soak,
    time: Duration,
    command: impl Fn(u64) -> Command,
    say: impl Fn(&str),
) -> Result<Totals, String> {
    let started = Instant::now();
    let mut random = Random::new(soak.seed ^ 0x50a4);
    let (mut model, mut totals) = (Model::new(), Totals::default());
    let mut promised = 0;
    let mut told = Instant::now();
    let mut opening = 0;
    while started.elapsed() < time {
        opening += 1;
        // Mostly short times: killing an open is as good a test as killing a compaction.
        let most = [60, 500, 3_000, 8_000][random.below(4) as usize];
        let said = kill_after(command(opening), Duration::from_millis(random.below(most)))?;
        promised = promised.max(said.at);
        totals.kills += 1;
        totals.told.iter_mut().zip(said.told).for_each(|(total, count)| *total += count);
        // Sometimes the next child recovers the store instead of the parent.
        let is_last = started.elapsed() >= time;
        if is_last || !random.one_in(3) {
            opening += 1;
            check(soak, opening, &mut model, promised, &mut totals, is_last || random.one_in(4))?;
        }
        if told.elapsed() > Duration::from_secs(60) {
            told = Instant::now();
            say(&totals.to_string());
        }
    }
    Ok(totals)
}

/// Returns the reports of a child until it was killed.
fn kill_after(mut command: Command, time: Duration) -> Result<Said, String> {
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(text)?;
    let out = child.stdout.take().ok_or("no pipe")?;
    let reader = std::thread::spawn(move || listen(out));
    std::thread::sleep(time);
    let ended = child.try_wait().map_err(text)?;
    child.kill().map_err(text)?;
    let status = child.wait().map_err(text)?;
    let said = reader.join().map_err(|_| "the reader panicked".to_string())?;
    match ended.is_some() || status.code().is_some() {
        true => Err(format!("the child ended by itself: {status}")),
        false => Ok(said),
    }
}

fn listen(out: ChildStdout) -> Said {
    let mut said = Said::default();
    for line in BufReader::new(out).lines() {
        // The last line may be cut off. A number that lost digits only promises less.
        let Ok(line) = line else { break };
        let mut words = line.split(' ');
        let word = words.next();
        let numbers: Vec<u64> = words.map_while(|number| number.parse().ok()).collect();
        match (word, &numbers[..]) {
            (Some("at"), [number]) => said.at = said.at.max(*number),
            (Some("told"), numbers) => {
                let told = said.told.iter_mut().zip(numbers);
                told.for_each(|(most, count)| *most = (*most).max(*count));
            }
            _ => {}
        }
    }
    said
}

/// Brings the model up to the number of operations that the store reports, and compares the two.
fn check(
    soak: &Soak,
    opening: u64,
    model: &mut Model,
    promised: u64,
    totals: &mut Totals,
    settles: bool,
) -> Result<(), String> {
    let opened = soak.open(opening).map_err(|error| format!("open: {error}"))?;
    let Opened { store, keyspaces, beside } = opened;
    let count = count_in(&store).map_err(text)?;
    if count < promised || count < totals.operations {
        return Err(format!("{count} operations are there, {promised} were acknowledged"));
    }
    soak.replay(model, totals.operations + 1, count);
    totals.operations = count;
    totals.checks += 1;
    let compare = |when: &str, is_compacted| match difference(model, &model_in(&keyspaces, None)?) {
        None => beside
            .check(count, None, is_compacted)
            .and_then(|()| Beside::check_accounts(&store, &store.snapshot()))
            .map_err(|what| format!("{when}: {what}")),
        Some(what) => Err(format!("{when}, after {count} operations: {what}")),
    };
    compare("after a kill", false)?;
    if settles {
        store.compact().map_err(|error| format!("compact: {error}"))?;
        if let [keyspace] = &keyspaces[..] {
            check_space(keyspace, model, totals)?;
        }
        compare("compacted and collected", true)?;
        let report = store.verify().map_err(text)?;
        if !report.is_clean() {
            return Err(format!("verify: {:?}", report.damage));
        }
    }
    store.close().map_err(|error| format!("close: {error}"))
}

/// The bound is (1 + r) times the data plus one group. A group also fills one slot and leaves one
/// partly filled.
fn check_space(keyspace: &Keyspace, model: &Model, totals: &mut Totals) -> Result<(), String> {
    let records = model.values().map(|(_, len)| *len as u64);
    let records = records.filter(|len| *len >= u64::from(SEPARATE_AT));
    // A record longer than a slot has slots of its own.
    let room = |len: u64| match RECORD_BYTES + len {
        bytes if bytes > SLOT_BYTES => bytes.div_ceil(SLOT_BYTES) * SLOT_BYTES,
        bytes => bytes,
    };
    let data: u64 = records.map(room).sum();
    let usage = keyspace.value_usage();
    let used: u64 = usage.iter().map(|file| file.used_bytes()).sum();
    let groups = usage.iter().flat_map(|file| file.groups.iter());
    let group = match keyspace.options().values.placement {
        ValuePlacement::HashGrouped => groups.map(|group| group.slots * SLOT_BYTES).max(),
        _ => Some(VLOG_CHUNK_BYTES),
    };
    // The cold stream also fills a slot and has less than a slot of garbage. Its tags are not data.
    let tags = model.len() as u64 * (RECORD_BYTES + TAG_FOOTER_BYTES);
    let slack = 2 * u64::from(GROUPS + 1) * SLOT_BYTES + group.unwrap_or(0) + tags;
    let bound = data * (1000 + RESERVE_PERMILLE) / 1000 + slack;
    totals.settled += 1;
    totals.worst_permille = totals.worst_permille.max(used * 1000 / data.max(1));
    match used <= bound {
        true => Ok(()),
        false => Err(format!("{used} bytes are used for {data} of data, {bound} are allowed")),
    }
}
