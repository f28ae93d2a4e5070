//! Gives a keyspace other options, and runs the compactions that follow to their end: for `reshape`
//! and `set`.

use std::path::Path;
use std::time::{Duration, Instant};

use runstone::metrics::CounterValues;
use runstone::unstable;
use runstone::{KeyspaceOptions, Store};
use serde_json::{Value, json};

use crate::failure::{Exit, Failure, Result};
use crate::keyspaces;
use crate::layout::plural;
use crate::opened::Figures;
use crate::opening;
use crate::output::{Output, duration, rounded, size};

/// How often the progress bar moves.
const TICK: Duration = Duration::from_millis(100);

/// Gives a keyspace the options that `wanted` makes from its present options. Returns the cost.
pub fn change(
    path: &Path,
    name: &str,
    wanted: impl FnOnce(&KeyspaceOptions) -> Result<KeyspaceOptions>,
    output: &Output,
) -> Result<Figures> {
    keyspaces::refuse_reserved(name)?;
    let store = opening::to_change(path)?;
    let keyspace = keyspaces::find_to_change(&store, name)?;
    let old = keyspace.options();
    let new = wanted(&old)?;
    new.check()?;
    let before = store.metrics().counters;
    let started = Instant::now();
    let changed = store.open_keyspace(name, Some(new.clone()));
    changed.map_err(|error| Failure::from(error).at(path.display()))?;
    settle(&store, output, unstable::shape(&keyspace).bytes())?;
    let took = started.elapsed();
    let done = store.metrics().counters.since(&before);
    let levels: Vec<Value> = (0u32..)
        .zip(&unstable::shape(&keyspace).levels)
        .filter(|(_, level)| !level.is_empty())
        .map(|(index, level)| {
            json!({ "level": index, "tables": level.table_count(), "bytes": level.bytes() })
        })
        .collect();
    store.close()?;
    let json = json!({
        "keyspace": name, "from": old.policy, "to": new.policy,
        "seconds": rounded(took.as_secs_f64()), "compactions": done.compactions,
        "read_bytes": done.compaction_bytes_read,
        "written_bytes": done.compaction_bytes_written,
        "moved_bytes": done.bytes_moved, "levels": levels,
    });
    let policies = match old.policy == new.policy {
        true => new.policy.clone(),
        false => format!("{} -> {}", old.policy, new.policy),
    };
    let text = format!(
        "{policies}: {} wrote {}, {} moved, {}",
        plural(done.compactions, "compaction"),
        size(done.compaction_bytes_written),
        size(done.bytes_moved),
        duration(took)
    );
    Ok(Figures { text, json })
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
