//! `reshape`: gives a keyspace another compaction policy (or other numbers for it) and runs the
//! compactions that follow to their end. Not a dump and reload: it rewrites only what the policy
//! wants rewritten.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use runstone::metrics::CounterValues;
use runstone::{KeyspaceOptions, Store};
use serde_json::json;

use crate::arguments::KeyspaceArgument;
use crate::failure::{Exit, Failure, Result};
use crate::keyspaces;
use crate::layout::plural;
use crate::opening;
use crate::output::{Output, duration, note, rounded, size};

/// How often the bar moves.
const TICK: Duration = Duration::from_millis(100);

/// Change the compaction policy of a store, and compact until the tree is as the policy wants it
#[derive(clap::Args)]
pub struct Args {
    /// The store.
    store: PathBuf,
    /// The policy; `runstone policies` lists them.
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// All options of a preset; `runstone presets` lists them.
    #[arg(long, value_name = "NAME", conflicts_with = "policy")]
    preset: Option<String>,
    /// The options that a TOML file names; the others stay.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["policy", "preset"])]
    options: Option<PathBuf>,
    #[command(flatten)]
    keyspace: KeyspaceArgument,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        let name = self.keyspace.name();
        keyspaces::refuse_reserved(name)?;
        let store = opening::to_change(&self.store)?;
        let keyspace = keyspaces::find(&store, name)?;
        let old = keyspace.options();
        let new = self.wanted(&old)?;
        let before = store.metrics().counters;
        let started = Instant::now();
        let changed = store.open_keyspace(name, Some(new.clone()));
        changed.map_err(|error| Failure::from(error).at(self.store.display()))?;
        settle(&store, output, keyspace.shape().bytes())?;
        let took = started.elapsed();
        let done = store.metrics().counters.since(&before);
        let levels: Vec<_> = (0u32..)
            .zip(&keyspace.shape().levels)
            .filter(|(_, level)| !level.is_empty())
            .map(|(index, level)| {
                json!({ "level": index, "tables": level.table_count(), "bytes": level.bytes() })
            })
            .collect();
        store.close()?;
        match output.is_json {
            true => output.json(&json!({
                "keyspace": name, "from": old.policy, "to": new.policy,
                "seconds": rounded(took.as_secs_f64()), "compactions": done.compactions,
                "read_bytes": done.compaction_bytes_read,
                "written_bytes": done.compaction_bytes_written,
                "moved_bytes": done.bytes_moved, "levels": levels,
            }))?,
            false => note(format!(
                "{} -> {}: {} wrote {}, {} moved, {}",
                old.policy,
                new.policy,
                plural(done.compactions, "compaction"),
                size(done.compaction_bytes_written),
                size(done.bytes_moved),
                duration(took)
            )),
        }
        Ok(Exit::Ok)
    }

    fn wanted(&self, old: &KeyspaceOptions) -> Result<KeyspaceOptions> {
        let new = match (&self.policy, &self.preset, &self.options) {
            (Some(policy), ..) => KeyspaceOptions { policy: policy.clone(), ..old.clone() },
            (_, Some(preset), _) => KeyspaceOptions::preset(preset)?,
            (.., Some(path)) => opening::options_over(old, path)?,
            _ => {
                let hint = "name a --policy, a --preset or a file of --options";
                return Err(Failure::usage("nothing to change", hint));
            }
        };
        new.check()?;
        Ok(new)
    }
}

/// Waits until nothing is due, with a bar over the bytes of the tree: each byte is written or moved
/// about once.
fn settle(store: &Store, output: &Output, bytes: u64) -> Result<()> {
    let bar = output.bytes_bar("reshape", bytes);
    let before = store.metrics().counters;
    let handled = |now: &CounterValues| {
        let since = now.since(&before);
        since.compaction_bytes_read + since.bytes_moved
    };
    let outcome = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| store.wait_idle());
        while !waiting.is_finished() {
            let done = handled(&store.metrics().counters);
            bar.set_length(bytes.max(done));
            bar.set_position(done);
            std::thread::sleep(TICK);
        }
        waiting.join()
    });
    bar.finish_and_clear();
    let panicked = || Failure::new(Exit::Io, "a compaction panicked").hint("report it");
    outcome.map_err(|_| panicked())??;
    Ok(())
}
