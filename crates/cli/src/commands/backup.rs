//! `backup`: copies of a store in a separate directory, each as of one moment.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use runstone::{
    ArchiveInfo, BackupInfo, Backups, Changes, ChangesFrom, Damage, DeepReport, Moment,
};
use serde_json::{Value, json};

use crate::arguments::parse_size;
use crate::entries::ttl;
use crate::failure::{Exit, Failure, Result};
use crate::interrupt::{self, SIGINT, SIGTERM};
use crate::layout::plural;
use crate::nesting;
use crate::opening::Location;
use crate::output::{
    Output, amount, columns, duration, minute_of, note, rounded, seconds_of, size,
};

/// How often an archiver looks for changes, or checks whether its directory is free.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Back up a store, even while an application has it open; list, check and restore backups
///
/// A backup is a copy on any disk, as of one moment. Later backups copy only what changed. The
/// application does not flush, and waits for nothing.
///
/// Most users need only `backup create STORE DIR` every night, with `backup prune DIR --keep 30`.
/// `backup restore DIR TARGET` makes a new store from the newest backup.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Add a backup of a store as it is now
    Create {
        /// The store.
        store: PathBuf,
        /// The directory of backups; new, empty, or with backups of this store.
        dir: PathBuf,
        /// Also read what earlier backups have of the store as it is now, and copy again what is
        /// damaged. Earlier backups that lack only tables which the store still has are whole
        /// again.
        #[arg(long)]
        check: bool,
        #[command(flatten)]
        rate: Rate,
    },
    /// Add every change of a store to the archive in the directory, beginning with a backup
    ///
    /// Later runs continue where the last one ended, as long as the log of the store reaches back
    /// so far: see `keep_log_bytes`. Otherwise they begin again with a backup, and say what is
    /// missing.
    Archive {
        /// The store.
        store: PathBuf,
        /// The directory of backups; new, empty, or with backups of this store.
        dir: PathBuf,
        /// Continue until Ctrl-C. A change is in the archive about a second after its commit. Waits
        /// while another process archives into the directory.
        #[arg(long)]
        follow: bool,
        #[command(flatten)]
        rate: Rate,
    },
    /// List the backups
    List {
        /// The directory of backups.
        dir: PathBuf,
    },
    /// Check every byte of the backups; exit code 2 if something is damaged
    Verify {
        /// The directory of backups.
        dir: PathBuf,
        /// Only this backup.
        #[arg(long, value_name = "NUMBER")]
        backup: Option<u64>,
        /// Also open the store of each backup, and that of the end of the archive, in memory, and
        /// read every entry with its value. Nothing is written. It takes as much memory as the log
        /// and the archive hold.
        #[arg(long)]
        deep: bool,
        #[command(flatten)]
        rate: Rate,
    },
    /// Make a store from a backup
    Restore {
        /// The directory of backups.
        dir: PathBuf,
        /// A directory that is new or empty.
        target: PathBuf,
        /// This backup, not the newest.
        #[arg(long, value_name = "NUMBER")]
        backup: Option<u64>,
        /// Restore the store as of a moment of the archive: a time in UTC, such as "2026-11-27
        /// 17:30:05", the number of a write, a position, or `end`.
        #[arg(long, value_name = "MOMENT", conflicts_with = "backup")]
        to: Option<String>,
        #[command(flatten)]
        rate: Rate,
    },
    /// Remove old backups, and files that only they need
    ///
    /// With both --keep and --older-than, a backup is removed if both say so. If there is an
    /// archive, one older backup stays, because the archive continues from it.
    Prune {
        /// The directory of backups.
        dir: PathBuf,
        /// How many of the newest backups stay; with --older-than at least 1.
        #[arg(long, value_name = "COUNT", required_unless_present = "older_than")]
        keep: Option<usize>,
        /// Only backups that are older: 30d, 12h.
        #[arg(long, value_name = "TIME", value_parser = ttl::parse)]
        older_than: Option<Duration>,
    },
}

#[derive(clap::Args, Clone, Copy)]
struct Rate {
    /// Copy or read at most this many bytes a second, such as 20M.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    rate: Option<u64>,
}

impl Rate {
    fn limit(self, backups: Backups) -> Result<Backups> {
        match self.rate {
            Some(rate) => Ok(backups.rate(rate)?),
            None => Ok(backups),
        }
    }
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        match self.what {
            What::Create { store, dir, check, rate } => create(output, &store, &dir, check, rate),
            What::Archive { store, dir, follow, rate } => {
                archive(output, &store, &dir, follow, rate)
            }
            What::List { dir } => list(output, &dir),
            What::Verify { dir, backup, deep, rate } => {
                let backups = rate.limit(Backups::open_existing(&dir)?)?;
                verify(output, &backups, backup, deep)
            }
            What::Restore { dir, target, backup, to, rate } => {
                nesting::check_new(&target)?;
                let backups = rate.limit(Backups::open_existing(&dir)?)?;
                match to {
                    None => restore(output, &backups, &target, backup),
                    Some(to) => restore_to(output, &backups, &target, &to),
                }
            }
            What::Prune { dir, keep, older_than } => {
                let backups = Backups::open_existing(&dir)?;
                let keep = keep.unwrap_or(1);
                let removed = match older_than {
                    Some(age) => backups.prune_older_than(age, keep)?,
                    None => backups.prune(keep)?,
                };
                let kept = backups.list()?.len();
                let text = format!("removed {removed}, kept {kept}\n");
                output.figures(&text, &json!({ "removed": removed, "kept": kept }))?;
                Ok(Exit::Ok)
            }
        }
    }
}

fn check_places(store: &Path, dir: &Path) -> Result<()> {
    if !Location::of(store)?.is_directory() {
        let what = "backups are of stores in directories";
        let hint = "copy the image of a device, or `runstone export` the entries";
        return Err(Failure::usage(what, hint).at(store.display()));
    }
    nesting::refuse_inside(dir)
}

fn archive(output: &Output, store: &Path, dir: &Path, follow: bool, rate: Rate) -> Result<Exit> {
    check_places(store, dir)?;
    interrupt::watch(&[SIGINT, SIGTERM]);
    let backups = rate.limit(Backups::open(dir)?)?;
    let Some(mut archiver) = when_free(follow, || backups.archive(store))? else {
        return Ok(Exit::Ok);
    };
    // The command ends at the present position, because a busy writer always adds more.
    let end = Changes::open(store, ChangesFrom::Now)?.position().seq();
    let (mut changes, mut bytes, mut wait) = (0, 0, Duration::ZERO);
    while let Some(done) = when_free(follow, || archiver.advance(wait))? {
        changes += done.changes;
        bytes += done.bytes;
        if let Some(based) = done.based {
            let began = format!("the archive begins with backup {}", based.backup.number);
            note(match based.lacks {
                None => began,
                Some((from, to)) => format!("{began}; it lacks numbers {} to {to}", from + 1),
            });
        }
        let has_all = done.is_drained || archiver.position().seq() >= end;
        if interrupt::check().is_err() || (has_all && !follow) {
            break;
        }
        if done.is_drained {
            // Lets changes gather, so that one sync covers them.
            std::thread::sleep(wait);
            wait = LOOK_EVERY;
        }
    }
    let position = archiver.position();
    let text = format!("archived {changes} changes, {}, up to {position}\n", amount(bytes));
    let position = position.to_string();
    let json = json!({ "changes": changes, "bytes": bytes, "position": position });
    output.figures(&text, &json)?;
    Ok(Exit::Ok)
}

/// With `--follow`, waits while another process changes the directory. A backup or a prune ends by
/// itself, and another archiver may end too. `None` if a signal ends the wait.
fn when_free<T>(follow: bool, mut act: impl FnMut() -> runstone::Result<T>) -> Result<Option<T>> {
    let mut is_told = false;
    loop {
        match act() {
            Err(error) if follow && error.is_in_use() => {
                if !is_told {
                    note(format!("{error}; waiting for it"));
                }
                is_told = true;
            }
            done => return Ok(Some(done?)),
        }
        std::thread::sleep(LOOK_EVERY);
        if interrupt::check().is_err() {
            return Ok(None);
        }
    }
}

fn create(output: &Output, store: &Path, dir: &Path, check: bool, rate: Rate) -> Result<Exit> {
    check_places(store, dir)?;
    let started = Instant::now();
    let made = rate.limit(Backups::open(dir)?)?.check_copies(check).create(store)?;
    let took = started.elapsed();
    if made.copied_again > 0 {
        note(format!(
            "{} had a missing or damaged copy, which was made again",
            plural(made.copied_again, "table")
        ));
    }
    let text = format!(
        "backup {} of {}: {}, of which {} are new, {}\n",
        made.number,
        store.display(),
        size(made.bytes),
        size(made.added_bytes),
        duration(took)
    );
    let mut json = json_of(&made);
    json["copied_again"] = made.copied_again.into();
    json["seconds"] = rounded(took.as_secs_f64()).into();
    output.figures(&text, &json)?;
    Ok(Exit::Ok)
}

fn list(output: &Output, dir: &PathBuf) -> Result<Exit> {
    let backups = Backups::open_existing(dir)?;
    let all = backups.list()?;
    let row = |one: &BackupInfo| {
        vec![
            one.number.to_string(),
            minute_of(one.time_ms / 1000),
            size(one.bytes),
            size(one.added_bytes),
            one.last_seq.to_string(),
        ]
    };
    let header = ["backup", "made", "bytes", "added", "last write"];
    let text = columns(&header, &all.iter().map(row).collect::<Vec<_>>());
    let json: Vec<Value> = all.iter().map(json_of).collect();
    let archives = backups.archives()?;
    for (number, what) in backups.damaged()? {
        note(format!("backup {number} is damaged: {what}"));
    }
    let text = archives.iter().fold(text, |text, one| text + &archive_text(one));
    let archives: Vec<Value> = archives.iter().map(archive_json).collect();
    output.figures(&text, &json!({ "backups": json, "archives": archives }))?;
    Ok(Exit::Ok)
}

/// The findings of a check.
#[derive(Default)]
struct Found {
    text: String,
    damage: Vec<Value>,
    deep: Vec<Value>,
}

impl Found {
    /// Adds damage of a backup, or of the archive.
    fn note(&mut self, backup: Option<u64>, all: &[Damage]) {
        for one in all {
            self.text.push_str(&format!("{}: {}: {}\n", place_of(backup), one.file, one.what));
            self.damage.push(json!({ "backup": backup, "file": one.file, "what": one.what }));
        }
    }

    fn note_deep(&mut self, backup: Option<u64>, deep: &DeepReport) {
        self.note(backup, &deep.report.damage);
        let read = plural(deep.read, "entry");
        let mut text = format!("{}: opened in memory, {read} read", place_of(backup));
        if backup.is_none() {
            text.push_str(&format!(", {} applied", plural(deep.changes, "change")));
        }
        if deep.unfolded > 0 {
            let count = plural(deep.unfolded, "entry");
            text.push_str(&format!("; {count} not read: a program has their merge operator"));
        }
        self.text.push_str(&format!("{text}\n"));
        self.deep.push(json!({
            "backup": backup, "read": deep.read, "unfolded": deep.unfolded,
            "changes": deep.changes, "tables": deep.report.tables,
            "log_entries": deep.report.log_entries, "records": deep.report.records,
        }));
    }
}

fn place_of(backup: Option<u64>) -> String {
    backup.map_or("archive".to_string(), |number| format!("backup {number}"))
}

fn verify(output: &Output, backups: &Backups, backup: Option<u64>, is_deep: bool) -> Result<Exit> {
    let all = backups.list()?.into_iter().map(|one| one.number);
    let chosen: Vec<u64> = match backup {
        Some(number) => vec![number],
        None => all.collect(),
    };
    let mut found = Found::default();
    for number in &chosen {
        let before = found.damage.len();
        let outcome = match is_deep {
            true => backups.verify_deep(*number).map(|one| found.note_deep(Some(*number), &one)),
            false => backups.verify(*number).map(|one| found.note(Some(*number), &one)),
        };
        if let Err(error) = outcome {
            // A prune may run during the check of all backups.
            if backup.is_some() || backups.list()?.iter().any(|one| one.number == *number) {
                return Err(error.into());
            }
            found.text.push_str(&format!("backup {number}: pruned meanwhile\n"));
            continue;
        }
        if found.damage.len() == before {
            found.text.push_str(&format!("backup {number}: whole\n"));
        }
    }
    if backup.is_none() {
        for (number, what) in backups.damaged()? {
            found.text.push_str(&format!("backup {number}: its description: {what}\n"));
            found.damage.push(json!({ "backup": number, "file": null, "what": what }));
        }
        match is_deep {
            true => {
                if let Some(deep) = backups.verify_archive_deep()? {
                    found.note_deep(None, &deep);
                }
            }
            false => found.note(None, &backups.verify_archives()?),
        }
    }
    let is_clean = found.damage.is_empty();
    // `backup create` does not copy the archive.
    if found.damage.iter().any(|one| !one["backup"].is_null()) {
        note(
            "`runstone backup create STORE DIR --check` makes a backup without this damage, and \
             copies again the tables that STORE still has",
        );
    }
    let mut json = json!({ "backups": chosen, "damage": found.damage });
    if is_deep {
        json["deep"] = found.deep.into();
    }
    output.figures(&found.text, &json)?;
    Ok(if is_clean { Exit::Ok } else { Exit::Damaged })
}

fn restore(output: &Output, backups: &Backups, target: &Path, backup: Option<u64>) -> Result<Exit> {
    let newest = backups.list()?.last().map(|one| one.number);
    // Backups newer than the restored one that cannot be restored.
    let mut damaged = backups.damaged()?;
    damaged.retain(|(number, _)| backup.is_none() && newest < Some(*number));
    for (number, what) in &damaged {
        note(format!("backup {number} is damaged, and is passed over: {what}"));
    }
    let number = backup.or(newest).ok_or_else(|| {
        let what = match damaged.is_empty() {
            true => "there is no backup yet",
            false => "no backup is whole",
        };
        Failure::usage(what, "`runstone backup create STORE DIR` makes one")
    })?;
    let started = Instant::now();
    backups.restore(number, target)?;
    let took = started.elapsed();
    if output.is_json {
        let passed_over: Vec<u64> = damaged.iter().map(|(number, _)| *number).collect();
        output.json(&json!({
            "backup": number,
            "passed_over": passed_over,
            "seconds": rounded(took.as_secs_f64()),
        }))?;
    } else {
        note(format!("restored backup {number} to {}, {}", target.display(), duration(took)));
    }
    Ok(Exit::Ok)
}

fn restore_to(output: &Output, backups: &Backups, target: &Path, to: &str) -> Result<Exit> {
    let moment = moment_of(to)?;
    let started = Instant::now();
    let restored = backups.restore_to(moment, target)?;
    let took = started.elapsed();
    if output.is_json {
        output.json(&json!({
            "backup": restored.backup,
            "changes": restored.changes,
            "last_seq": restored.last_seq,
            "seconds": rounded(took.as_secs_f64()),
        }))?;
    } else {
        note(format!(
            "restored backup {} and {} changes, up to number {}, to {}, {}",
            restored.backup,
            restored.changes,
            restored.last_seq,
            target.display(),
            duration(took)
        ));
    }
    Ok(Exit::Ok)
}

fn archive_text(one: &ArchiveInfo) -> String {
    let time = |ms: Option<u64>| ms.map_or_else(String::new, |ms| minute_of(ms / 1000));
    let (from, through) = (time(one.from_ms), time(one.through_ms));
    let times = if from.is_empty() { from } else { format!(", {from} to {through}") };
    let (numbers, bytes) = (one.through.seq(), size(one.bytes));
    format!("archive: numbers {} to {numbers}{times}, {bytes}\n", one.from_seq)
}

fn archive_json(one: &ArchiveInfo) -> Value {
    json!({
        "from_seq": one.from_seq,
        "through_seq": one.through.seq(),
        "position": one.through.to_string(),
        "from_ms": one.from_ms,
        "through_ms": one.through_ms,
        "bytes": one.bytes,
    })
}

/// Reads a moment: `end`, a number of a write, a position, or a time.
fn moment_of(text: &str) -> Result<Moment> {
    if text.contains('@') {
        return Ok(Moment::Position(text.parse()?));
    }
    if let Ok(number) = text.parse() {
        return Ok(Moment::Number(number));
    }
    match (text, seconds_of(text)) {
        ("end", _) => Ok(Moment::End),
        // The moment includes the whole second.
        (_, Some(seconds)) => Ok(Moment::Time(seconds * 1000 + 999)),
        _ => {
            let hint = "give a time in UTC, such as \"2026-11-27 17:30:05\", a number, a position, \
                        or `end`";
            Err(Failure::usage(format!("{text} is no moment"), hint))
        }
    }
}

fn json_of(one: &BackupInfo) -> Value {
    json!({
        "number": one.number,
        "time_ms": one.time_ms,
        "last_seq": one.last_seq,
        "tables": one.tables,
        "value_segments": one.value_segments,
        "bytes": one.bytes,
        "added_bytes": one.added_bytes,
    })
}
