//! `verify`: reads everything and checks it. A store that does not open for damage is a finding,
//! not a failure: its files are then looked at one by one.

use std::path::{Path, PathBuf};

use runstone::{DEFAULT_KEYSPACE, Damage, Error, VerifyReport};
use serde_json::json;

use crate::failure::{Exit, Failure, Result};
use crate::kvssd;
use crate::opening::{self, Location};
use crate::output::{Output, size};

/// Check every byte of the store; exit code 2 if something is damaged
#[derive(clap::Args)]
pub struct Args {
    /// The store.
    store: PathBuf,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        if let Some(device) = opening::kvssd(&self.store, DEFAULT_KEYSPACE, false)? {
            return kvssd::verify(&device, output);
        }
        let (report, opens) = match opening::to_read(&self.store) {
            Ok(store) => (store.verify()?, true),
            Err(failure) if failure.exit == Exit::Damaged => (look(&self.store, &failure)?, false),
            Err(failure) => return Err(failure),
        };
        let damage = &report.damage;
        if output.is_json {
            output.json(&json!({
                "clean": damage.is_empty(),
                "opens": opens,
                "tables": report.tables,
                "entries": report.entries,
                "records": report.records,
                "bytes": report.bytes,
                "damage": damage,
            }))?;
        } else {
            for found in damage {
                let path = self.store.join(&found.file);
                output.line(format!("damaged: {}: {}", path.display(), found.what))?;
            }
            let verdict = match (damage.len(), opens) {
                (0, _) => "no damage".to_string(),
                (count, true) => format!("{count} damaged files"),
                (count, false) => format!("{count} damaged files; the store does not open"),
            };
            let (tables, entries) = (report.tables, report.entries);
            let bytes = size(report.bytes);
            output.line(format!("{tables} tables, {entries} entries, {bytes} read: {verdict}"))?;
        }
        Ok(if damage.is_empty() { Exit::Ok } else { Exit::Damaged })
    }
}

/// What is damaged in a store that does not open: what kept it from that, then what each file says.
fn look(path: &Path, failure: &Failure) -> Result<VerifyReport> {
    let mut report = VerifyReport::default();
    let storage = Location::of(path)?.files()?;
    for file in storage.list().map_err(Error::from)? {
        report.tables += u64::from(file.name.ends_with(".table"));
        report.bytes += file.len_bytes;
        match runstone::dump::dump_file(&*storage, &file.name, false) {
            Err(Error::Corruption { file, offset, what }) => {
                report.damage.push(Damage { file, what: format!("byte {offset}: {what}") });
            }
            // Files that are no part of a store have nothing to say.
            Ok(_) | Err(Error::InvalidArgument { .. }) => {}
            Err(error) => {
                report.damage.push(Damage { file: file.name, what: error.to_string() });
            }
        }
    }
    let is_told = report.damage.iter().any(|damage| failure.what.contains(&damage.file));
    if !is_told {
        let (file, what) = match failure.what.split_once(" is corrupt at ") {
            Some((file, what)) => (file.to_string(), what.to_string()),
            None => (file_name(failure), failure.what.clone()),
        };
        report.damage.insert(0, Damage { file, what });
    }
    Ok(report)
}

/// The file that a failure names.
fn file_name(failure: &Failure) -> String {
    let place = failure.place.as_deref().unwrap_or("the store");
    place.rsplit('/').next().unwrap_or(place).to_string()
}
