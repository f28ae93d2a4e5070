//! Finds the damage in a store of files. A store that does not open because of damage is a finding,
//! not a failure: its files are then checked one by one.

use std::path::Path;

use runstone::storage::Storage;
use runstone::{Damage, Error, VerifyReport};
use serde_json::json;

use crate::failure::{Failure, Result};
use crate::layout::plural;
use crate::lost_log;
use crate::opened::{Figures, Verified};
use crate::output::amount;

/// The findings; `opens` says whether the store opens.
pub fn report(path: &Path, report: &VerifyReport, opens: bool) -> Verified {
    let damage = &report.damage;
    let tables = plural(report.tables, "table");
    let entries = plural(report.entries, "entry");
    let mut text = String::new();
    for found in damage {
        let path = path.join(&found.file);
        text.push_str(&format!("damaged: {}: {}\n", path.display(), found.what));
    }
    if report.lost_records > 0 {
        let records = plural(report.lost_records, "record");
        text.push_str(&format!(
            "not used: {records} of the log, because something before them is gone. An ordinary \
             power loss looks the same, so it is no damage. An open for writing keeps them as \
             lost-NNNNNN.wal; `runstone dump {} lost-NNNNNN.wal` reads such a file\n",
            path.display()
        ));
    }
    let verdict = match (damage.len(), opens) {
        (0, _) => "no damage".to_string(),
        (count, true) => plural(count as u64, "damaged file"),
        (count, false) => {
            format!("{}; the store does not open", plural(count as u64, "damaged file"))
        }
    };
    let bytes = amount(report.bytes);
    let in_log = match report.log_entries {
        0 => String::new(),
        count => format!(", {count} more in the log"),
    };
    text.push_str(&format!("{tables}, {entries}{in_log}, {bytes} read: {verdict}\n"));
    for hint in hints(damage) {
        text.push_str(&format!("  hint: {hint}\n"));
    }
    let json = json!({
        "clean": damage.is_empty(),
        "opens": opens,
        "tables": report.tables,
        "entries": report.entries,
        "log_entries": report.log_entries,
        "lost_records": report.lost_records,
        "records": report.records,
        "bytes": report.bytes,
        "damage": damage,
    });
    Verified { is_clean: damage.is_empty(), figures: Figures { text, json } }
}

/// The hints, one for each kind of file.
fn hints(damage: &[Damage]) -> Vec<String> {
    let mut hints: Vec<String> = Vec::new();
    for found in damage {
        let hint = match found.what.contains("one of two copies") {
            true => "nothing is lost: the other copy serves".to_string(),
            false => Error::corruption(found.file.as_str(), 0, "").hint(),
        };
        if !hints.contains(&hint) {
            hints.push(hint);
        }
    }
    hints
}

/// The damage of a store that does not open: first the cause, then the findings in each file.
pub fn look(path: &Path, storage: &dyn Storage, failure: &Failure) -> Result<Verified> {
    let mut report = VerifyReport::default();
    let mut files = storage.list().map_err(Error::from)?;
    // The store does not need the kept ends of logs, and they are known to be damaged.
    files.retain(|file| !lost_log::is_kept(&file.name));
    for file in files {
        report.tables += u64::from(file.name.ends_with(".table"));
        report.bytes += file.len_bytes;
        match runstone::dump::dump_file(storage, &file.name, false) {
            Err(Error::Corruption { file, offset, what }) => {
                report.damage.push(Damage::new(file, format!("byte {offset}: {what}")));
            }
            // Files that are whole, or not part of a store.
            Ok(_) | Err(Error::InvalidArgument { .. }) => {}
            Err(error) => {
                report.damage.push(Damage::new(file.name, error.to_string()));
            }
        }
    }
    let (file, what) = match failure.what.split_once(" is corrupt at ") {
        Some((file, what)) => (file.to_string(), what.to_string()),
        None => (file_name(failure), failure.what.clone()),
    };
    // If the header of a log segment is unreadable, the failure names the segment
    // before it, after which records are missing.
    let is_log = |file: &str| file.ends_with(".wal");
    let tells = |damage: &Damage| damage.file == file || is_log(&damage.file) && is_log(&file);
    if !report.damage.iter().any(tells) {
        report.damage.insert(0, Damage::new(file, what));
    }
    Ok(self::report(path, &report, false))
}

/// The file that a failure names.
fn file_name(failure: &Failure) -> String {
    let place = failure.place.as_deref().unwrap_or("the store");
    place.rsplit('/').next().unwrap_or(place).to_string()
}
