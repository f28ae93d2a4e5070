//! Two keyspaces beside those of the model: one of counters under a merge operator, one that only
//! loads fill. What they hold follows from the number of operations alone, so neither process keeps
//! a model of it.

use std::path::Path;

use runstone::{
    Error, Keyspace, KeyspaceOptions, ReadOptions, Snapshot, SortedWriter, Store, ValueOptions,
};

use super::text;

const COUNTERS: u64 = 16;
/// A counter is deleted instead of raised once in this many of its turns.
const TURNS_PER_DELETE: u64 = 100;
/// One operation in this many comes after a load.
const OPERATIONS_PER_LOAD: u64 = 2_000;
/// Loads go to so many ranges in turn.
const LOADED_RANGES: u64 = 12;
const KEYS_PER_LOAD: u64 = 300;

/// The two keyspaces.
#[derive(Debug)]
pub(super) struct Beside {
    counters: Keyspace,
    loaded: Keyspace,
}

impl Beside {
    /// Opens them with the tree of `options`, values inline: operands and loads of old keys are
    /// refused beside some other placements.
    pub(super) fn open(store: &Store, mut options: KeyspaceOptions) -> Result<Beside, Error> {
        options.values = ValueOptions::default();
        options.compaction_filter.clear();
        options.merge_operator.clear();
        let loaded = store.open_keyspace("loaded", Some(options.clone()))?;
        options.merge_operator = "add-u64".to_string();
        let counters = store.open_keyspace("counters", Some(options))?;
        Ok(Beside { counters, loaded })
    }

    /// The counter of operation `number`, which raises or deletes it.
    pub(super) fn counter(&self, number: u64) -> (&Keyspace, String) {
        (&self.counters, counter_key(number % COUNTERS))
    }

    pub(super) fn is_reset_by(&self, number: u64) -> bool {
        (number / COUNTERS).is_multiple_of(TURNS_PER_DELETE)
    }

    /// Loads what has to be there before operation `number`, by turns from an iterator and from a
    /// file. Who was killed in between loads it once more.
    pub(super) fn load_before(&self, number: u64, directory: &Path) -> Result<(), String> {
        if !number.is_multiple_of(OPERATIONS_PER_LOAD) {
            return Ok(());
        }
        let turn = number / OPERATIONS_PER_LOAD;
        let entries = (0..KEYS_PER_LOAD).map(|i| (loaded_key(turn % LOADED_RANGES, i), number));
        if turn.is_multiple_of(2) {
            let entries = entries.map(|(key, number)| (key, number.to_le_bytes()));
            self.loaded.bulk_load(entries).map_err(|error| format!("bulk load: {error}"))?;
            return Ok(());
        }
        // Beside the store, whose directory holds nothing but its own.
        let path = directory.with_extension("load");
        let ingest = || -> Result<(), Error> {
            let _ = std::fs::remove_file(&path);
            let mut writer = SortedWriter::create(&path, &KeyspaceOptions::default())?;
            for (key, number) in entries {
                writer.put(key, number.to_le_bytes())?;
            }
            writer.finish()?;
            self.loaded.ingest(&[&path])?;
            Ok(())
        };
        let outcome = ingest().map_err(|error| format!("ingest: {error}"));
        let _ = std::fs::remove_file(&path);
        outcome
    }

    /// Compares both with what they hold after `count` operations. Without a snapshot nobody else
    /// may write; with one, `count` is the number at that moment.
    pub(super) fn check(&self, count: u64, snapshot: Option<&Snapshot>) -> Result<(), String> {
        let of = |keyspace: &Keyspace| {
            let read = ReadOptions::default();
            let read = snapshot.map_or(read.clone(), |snapshot| read.at(snapshot));
            let scan = keyspace.scan(read).map_err(text)?;
            scan.map(|entry| {
                let (key, value) = entry.map_err(text)?;
                let number = value[..].try_into().map_err(|_| "a value of another length")?;
                Ok((String::from_utf8(key).map_err(text)?, u64::from_le_bytes(number)))
            })
            .collect::<Result<Vec<(String, u64)>, String>>()
        };
        let expected: Vec<_> = (0..COUNTERS)
            .map(|counter| (counter_key(counter), counter_after(counter, count)))
            .filter(|(_, value)| *value > 0)
            .collect();
        let found = of(&self.counters)?;
        if found != expected {
            return Err(format!("counters after {count}: expected {expected:?}, found {found:?}"));
        }
        let found = of(&self.loaded)?;
        // The load before the next operation may be there already.
        let next = count + 1;
        let loads = match next.is_multiple_of(OPERATIONS_PER_LOAD) {
            true => vec![count, next],
            false => vec![count],
        };
        match loads.iter().any(|number| found == loaded_after(*number)) {
            true => Ok(()),
            false => Err(format!("loads after {count}: {} entries are there", found.len())),
        }
    }
}

fn counter_key(counter: u64) -> String {
    format!("counter{counter:02}")
}

fn loaded_key(range: u64, index: u64) -> String {
    format!("range{range:02}-{index:04}")
}

/// The value of a counter, 0 if it is not there.
fn counter_after(counter: u64, count: u64) -> u64 {
    // The first turn of each counter, of operations 0 to 15, deletes.
    count.checked_sub(counter).map_or(0, |since| since / COUNTERS % TURNS_PER_DELETE)
}

fn loaded_after(count: u64) -> Vec<(String, u64)> {
    let last = count / OPERATIONS_PER_LOAD;
    // The last load of a range is of the largest turn, from 1 on, that goes to it.
    let turn_of = |range: u64| {
        let turns = (1.max((last + 1).saturating_sub(LOADED_RANGES))..=last).rev();
        turns.into_iter().find(|turn| turn % LOADED_RANGES == range)
    };
    let entries = |range: u64, turn: u64| {
        (0..KEYS_PER_LOAD).map(move |i| (loaded_key(range, i), turn * OPERATIONS_PER_LOAD))
    };
    (0..LOADED_RANGES)
        .filter_map(|range| Some((range, turn_of(range)?)))
        .flat_map(|(range, turn)| entries(range, turn))
        .collect()
}
