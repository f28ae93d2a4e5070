//! `checkpoint`: a copy of the store as of now, using hard links where possible.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use runstone::DEFAULT_KEYSPACE;
use serde_json::json;

use crate::failure::{Exit, Failure, Result};
use crate::layout::plural;
use crate::nesting;
use crate::opening::{self, Beside, Location};
use crate::output::{Output, duration, note, rounded};

/// Copy the store into a new directory, using hard links where possible
///
/// The names and lengths of the files and the manifest are checked. The contents of tables are not
/// read, so a damaged table is copied with its damage: see --verify.
///
/// A hard link is a second name of the same file. It protects from what users do to the store:
/// puts, deletes, drops, the removal of the store; the store never changes a table once it is
/// written. It does not protect from damage to the disk or to the file itself, which both names
/// share. With --copy, the checkpoint has files of its own. On another disk it always has.
#[derive(clap::Args)]
pub struct Args {
    /// The store.
    store: PathBuf,
    /// A directory that is new or empty.
    target: PathBuf,
    /// Copy tables instead of linking them.
    #[arg(long)]
    copy: bool,
    /// Read all of the copy and check it; exit code 2 if something is damaged. The copy stays.
    #[arg(long)]
    verify: bool,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        if Location::of(&self.store)?.has_files_on_device() {
            let what = "a checkpoint of this store would lie on its device, where nothing opens it";
            let hint = "copy the image, or `runstone export` the entries";
            return Err(Failure::usage(what, hint).at(self.store.display()));
        }
        nesting::refuse_inside(&self.target)?;
        let store = opening::beside(&self.store)?;
        let is_occupied = fs::read_dir(&self.target)
            .map(|mut entries| entries.next().is_some())
            .unwrap_or_else(|_| self.target.symlink_metadata().is_ok());
        if is_occupied {
            let what = format!("{} exists", self.target.display());
            let hint = "choose a new or empty directory; nothing is overwritten";
            return Err(Failure::new(Exit::Io, what).at(self.target.display()).hint(hint));
        }
        let started = Instant::now();
        let bytes = self.write(store)?;
        let took = started.elapsed();
        let linked = linked_files(&self.target);
        let verified = match self.verify {
            true => Some(Location::of(&self.target)?.to_read(DEFAULT_KEYSPACE)?.verify()?),
            false => None,
        };
        let damage = verified.as_ref().map(|verified| &verified.figures.json["damage"]);
        if output.is_json {
            output.json(&json!({
                "table_bytes": bytes,
                "verified": verified.is_some(),
                "damage": damage,
                "linked_files": linked,
                "seconds": rounded(took.as_secs_f64()),
            }))?;
        } else {
            let checked = match verified {
                Some(_) => "",
                None => {
                    "; names, lengths and the manifest were checked, contents were not read \
                         (--verify)"
                }
            };
            note(format!("wrote {}, {}{checked}", self.target.display(), duration(took)));
            if linked > 0 {
                let (files, are) = (plural(linked, "file"), if linked == 1 { "is" } else { "are" });
                note(format!(
                    "{files} of it {are} shared with the store (hard links): safe from what is \
                     done to the store, not from damage of the disk or of the file"
                ));
            }
            verified.iter().try_for_each(|verified| output.text(&verified.figures.text))?;
        }
        let is_clean = verified.is_none_or(|verified| verified.is_clean);
        Ok(if is_clean { Exit::Ok } else { Exit::Damaged })
    }
}

impl Args {
    /// Writes the checkpoint. Returns the size of the store's tables in bytes.
    fn write(&self, store: Beside) -> Result<u64> {
        let target = &self.target;
        match store {
            Beside::Alone(store) => {
                match self.copy {
                    true => store.checkpoint_copied(target)?,
                    false => store.checkpoint(target)?,
                }
                let bytes = store.metrics().table_bytes;
                store.close()?;
                Ok(bytes)
            }
            Beside::Follower(follower) => {
                match self.copy {
                    true => follower.checkpoint_copied(target)?,
                    false => follower.checkpoint(target)?,
                }
                Ok(follower.store().metrics().table_bytes)
            }
        }
    }
}

/// How many files of a new checkpoint have a second name in the store.
fn linked_files(target: &Path) -> u64 {
    let files = fs::read_dir(target).into_iter().flatten().flatten();
    files.filter(|file| file.metadata().is_ok_and(|found| found.nlink() > 1)).count() as u64
}
