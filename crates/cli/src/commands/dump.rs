//! `dump`: shows the contents of a single file of a store. It opens the file, not the store.

use std::path::{Path, PathBuf};

use runstone::storage::Storage;
use runstone::{DEFAULT_KEYSPACE, Error};
use serde_json::json;

use crate::failure::{Exit, Failure, Result};
use crate::lost_log;
use crate::opened::Figures;
use crate::opening::Location;
use crate::output::{Output, size};

/// Show what a file of a store holds, or list its files
#[derive(clap::Args)]
pub struct Args {
    /// The store.
    store: PathBuf,
    /// Name of the file inside the store; without it, all files are listed.
    file: Option<String>,
    /// Show every entry or operation too.
    #[arg(long)]
    entries: bool,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        let location = Location::of(&self.store)?;
        let Some(files) = location.files()? else {
            if let Some(file) = &self.file {
                let hint = "leave it out: tables and blocks are shown";
                return Err(Failure::usage("a KVSSD has no files", hint).at(file));
            }
            let Figures { text, json } = location.to_read(DEFAULT_KEYSPACE)?.dump(self.entries)?;
            output.figures(&text, &json)?;
            return Ok(Exit::Ok);
        };
        let Some(file) = &self.file else { return list(&self.store, &*files, output) };
        // The files of a store have unique names, so the path of one names it too.
        let name = file.rsplit('/').next().unwrap_or(file);
        let known = files.list().map_err(Error::from)?;
        if !known.iter().any(|known| known.name == name) {
            let what = format!("there is no file {name}");
            let hint = "`runstone dump STORE` lists the files";
            return Err(Failure::new(Exit::Io, what).at(self.store.display()).hint(hint));
        }
        let dumped = runstone::dump::dump_file(&*files, name, self.entries);
        let text = dumped.map_err(|error| {
            let failure = Failure::from(error);
            let place = failure.place.clone().unwrap_or_else(|| name.to_string());
            // A place is a path already, or begins with the name of the file.
            match place.starts_with(name) {
                true => failure.at(self.store.join(place).display()),
                false => failure,
            }
        })?;
        match output.is_json {
            true => output.json(&json!({
                "file": name, "lines": text.lines().collect::<Vec<_>>(),
            }))?,
            false => output.bytes(text.as_bytes())?,
        }
        Ok(Exit::Ok)
    }
}

fn list(store: &Path, storage: &dyn Storage, output: &Output) -> Result<Exit> {
    let files = storage.list().map_err(Error::from)?;
    if !files.iter().any(|file| is_of_store(&file.name)) {
        let error = Error::NotAStore { path: store.display().to_string() };
        return Err(Failure::from(error).hint("check the path"));
    }
    if output.is_json {
        let files = files.iter().map(|file| {
            let is_lost = lost_log::is_kept(&file.name);
            json!({ "name": file.name, "bytes": file.len_bytes, "is_lost": is_lost })
        });
        output.json(&json!({ "files": files.collect::<Vec<_>>() }))?;
        return Ok(Exit::Ok);
    }
    for file in files {
        let what = match lost_log::is_kept(&file.name) {
            true => "  (of a lost end of the log; not used)",
            false => "",
        };
        output.line(format!("{:>8}  {}{what}", size(file.len_bytes), file.name))?;
    }
    Ok(Exit::Ok)
}

/// Whether a file belongs to a store, even to one that is too damaged to open.
fn is_of_store(name: &str) -> bool {
    let ends = [".table", ".wal", ".manifest", ".values"];
    name == "CURRENT" || ends.iter().any(|end| name.ends_with(end))
}
