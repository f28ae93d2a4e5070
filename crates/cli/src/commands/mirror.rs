//! `mirror`: a copy that follows a store, change by change.

use std::path::PathBuf;
use std::time::Duration;

use runstone::{Changes, ChangesFrom, Mirror, Options};
use serde_json::json;

use crate::failure::{Exit, Failure, Result};
use crate::interrupt::{self, SIGINT, SIGTERM};
use crate::nesting;
use crate::opening::Location;
use crate::output::{Output, note};

/// How long the command waits before it checks whether it was interrupted.
const WAIT: Duration = Duration::from_millis(200);

/// Copy a store and apply its changes to the copy, even while an application writes to it
///
/// The first run copies the files of the store. Later runs apply the changes committed since, as
/// long as the log reaches back so far: see `keep_log_bytes`. The mirror keeps its position in a
/// separate keyspace. Programs may open it for reading once the command has ended.
#[derive(clap::Args)]
pub struct Args {
    /// The store.
    store: PathBuf,
    /// The mirror: a directory that is new or empty, or the mirror of this store.
    target: PathBuf,
    /// Continue until Ctrl-C.
    #[arg(long)]
    follow: bool,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        if !Location::of(&self.store)?.is_directory() {
            let what = "mirrors are of stores in directories";
            let hint = "`runstone export` reads the entries of any store";
            return Err(Failure::usage(what, hint).at(self.store.display()));
        }
        if !nesting::is_store(&self.target) {
            nesting::check_new(&self.target)?;
        }
        interrupt::watch(&[SIGINT, SIGTERM]);
        let mut mirror = Mirror::open(&self.store, &self.target, Options::default())?;
        // The command ends at the present position, because a busy writer always adds more.
        let end = Changes::open(&self.store, ChangesFrom::Now)?.position().seq();
        let mut changes = 0;
        loop {
            let round = mirror.advance(if self.follow { WAIT } else { Duration::ZERO })?;
            changes += round.changes;
            let is_behind = !round.is_drained && mirror.position().seq() < end;
            if interrupt::check().is_err() || !(self.follow || is_behind) {
                break;
            }
        }
        let position = mirror.position().to_string();
        mirror.close()?;
        match output.is_json {
            true => output.json(&json!({ "changes": changes, "position": position }))?,
            false => note(format!("applied {changes} changes, up to {position}")),
        }
        Ok(Exit::Ok)
    }
}
