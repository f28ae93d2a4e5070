//! `repair`: makes a new store from the readable contents of a damaged one.

use std::fmt::Write as _;
use std::path::PathBuf;

use runstone::{Doubt, RepairBasis, RepairOptions, RepairReport, Store};
use serde_json::{Value, json};

use crate::arguments::Encoding;
use crate::failure::{Exit, Failure, Result};
use crate::layout::plural;
use crate::nesting;
use crate::opening::Location;
use crate::output::Output;

/// At most this many files, doubts and notes are shown to people; `--json` shows all.
const MOST_SHOWN: usize = 50;

/// Make a new store from the readable contents of a damaged one; exit code 2 if something may be
/// wrong
///
/// The damaged store is only read. Every key of the new store is right, or the output lists it as
/// perhaps wrong: as a range of keys of a keyspace, with the reason. For a healthy store, nothing
/// is done.
///
/// If the manifest is lost, nothing says which tables are in force and which names the keyspaces
/// have: they come back as `keyspace-3`, with default options.
#[derive(clap::Args)]
pub struct Args {
    /// The damaged store.
    store: PathBuf,
    /// The directory of the new store, which is new or empty.
    target: PathBuf,
    /// Also restore writes from lost-NNNNNN.wal, for keys that were not written since. Writes
    /// before them are missing.
    #[arg(long)]
    lost_log: bool,
    #[command(flatten)]
    encoding: Encoding,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        if !Location::of(&self.store)?.is_directory() {
            let what = "only the store of a directory can be repaired";
            let hint = "name its directory; a device repairs itself when it is opened";
            return Err(Failure::usage(what, hint).at(self.store.display()));
        }
        nesting::refuse_inside(&self.target)?;
        let options = RepairOptions::default().lost_log(self.lost_log);
        let report = Store::repair(&self.store, &self.target, options)?;
        output.figures(&self.text(&report), &self.json(&report))?;
        let is_sure = report.doubts.is_empty() && report.lost.is_empty();
        Ok(if is_sure { Exit::Ok } else { Exit::Damaged })
    }

    fn text(&self, report: &RepairReport) -> String {
        let (store, target) = (self.store.display(), self.target.display());
        if report.is_healthy {
            return format!("{store} is healthy; nothing was done\n");
        }
        let mut text = format!("{target} is made of {store}\n");
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "  {} in {}, {}, up to sequence number {}",
            plural(report.entries, "entry"),
            plural(report.keyspaces.len() as u64, "keyspace"),
            basis(report.basis),
            report.last_seq
        );
        if report.carried_tables > 0 {
            let (carried, tables) = (report.carried_tables, plural(report.tables, "table"));
            let _ = writeln!(text, "  {carried} of {tables} carried over unchanged");
        }
        let lost = report.lost.iter().map(|lost| format!("{}: {}", lost.file, lost.what));
        list(&mut text, "damaged or missing", lost);
        let doubts = report.doubts.iter().map(|doubt| self.doubt(doubt));
        list(&mut text, "perhaps wrong", doubts);
        list(&mut text, "also", report.notes.iter().cloned());
        text
    }

    fn doubt(&self, doubt: &Doubt) -> String {
        let whose = doubt.keyspace.as_deref().unwrap_or("all keyspaces");
        let from = self.encoding.show(&doubt.from);
        let keys = match (&doubt.to, doubt.from.is_empty()) {
            (Some(to), _) if *to == doubt.from => format!("key {from}"),
            (Some(to), _) => format!("keys {from} to {}", self.encoding.show(to)),
            (None, true) => "all keys".to_string(),
            (None, false) => format!("keys from {from} on"),
        };
        let reason = json!(doubt.reason);
        let reason = reason.as_str().unwrap_or_default().replace('-', " ");
        format!("{whose}, {keys}: {reason}; {}", doubt.what)
    }

    fn json(&self, report: &RepairReport) -> Value {
        let key = |key: &[u8]| self.encoding.object(key, None, None);
        let doubt = |doubt: &Doubt| {
            json!({
                "keyspace": doubt.keyspace,
                "from": key(&doubt.from),
                "to": doubt.to.as_deref().map(key),
                "numbers": doubt.numbers,
                "reason": doubt.reason,
                "what": doubt.what,
            })
        };
        json!({
            "healthy": report.is_healthy,
            "basis": report.basis,
            "keyspaces": report.keyspaces,
            "tables": report.tables,
            "carried_tables": report.carried_tables,
            "log_records": report.log_records,
            "entries": report.entries,
            "bytes": report.bytes,
            "last_sequence_number": report.last_seq,
            "lost": report.lost,
            "doubts": report.doubts.iter().map(doubt).collect::<Vec<_>>(),
            "notes": report.notes,
        })
    }
}

fn basis(basis: RepairBasis) -> &'static str {
    match basis {
        RepairBasis::Manifest => "by a whole manifest",
        RepairBasis::PartOfManifest => "by what is left of a manifest",
        _ => "by tables alone: no manifest can be read",
    }
}

fn list(text: &mut String, title: &str, lines: impl ExactSizeIterator<Item = String>) {
    let count = lines.len();
    if count > 0 {
        let _ = writeln!(text, "{title}:");
    }
    lines.take(MOST_SHOWN).for_each(|line| _ = writeln!(text, "  {line}"));
    if count > MOST_SHOWN {
        let _ = writeln!(text, "  and {} more (--json)", count - MOST_SHOWN);
    }
}
