//! Keyspaces beside those of the model: one of counters under a merge operator, one that is filled
//! only by loads, one under a compaction filter that removes and changes entries, and accounts for
//! transactions of other threads. The content of the first three follows from the number of
//! operations alone, so neither process keeps a model of it. The accounts always add up to zero.

use std::collections::BTreeMap;
use std::path::Path;

use runstone::{
    CompactionFilter, Error, FilterDecision, Keyspace, KeyspaceOptions, ReadOptions, Snapshot,
    SortedWriter, Store, Transaction, TransactionOptions, ValueOptions, ValuePlacement,
    WriteOptions,
};

use super::text;

const COUNTERS: u64 = 16;
/// One in this many turns of a counter deletes the counter instead of raising it.
const TURNS_PER_DELETE: u64 = 100;
/// One operation in this many follows a load.
const OPERATIONS_PER_LOAD: u64 = 2_000;
/// Loads write to this many ranges in turn.
const LOADED_RANGES: u64 = 12;
const KEYS_PER_LOAD: u64 = 300;

/// Keys under the filter, a third of each kind.
const SWEPT_KEYS: u64 = 300;
const KINDS: [&str; 3] = ["kept", "done", "gone"];
/// The value that the filter gives to values of the second kind.
const SWEPT: u64 = u64::MAX;
const ACCOUNTS: [&str; 2] = ["a", "b"];

/// See the module docs.
#[derive(Debug)]
pub(super) struct Beside {
    counters: Keyspace,
    loaded: Keyspace,
    swept: Keyspace,
    accounts: Keyspace,
}

/// Removes one kind of keys and changes another.
#[derive(Debug)]
pub(super) struct Sweeper;

impl CompactionFilter for Sweeper {
    fn name(&self) -> &str {
        "sweeper"
    }

    fn decide(&self, _level: u32, key: &[u8], _value: &[u8]) -> FilterDecision {
        match &key[..4] {
            b"done" => FilterDecision::Change(SWEPT.to_le_bytes().to_vec()),
            b"gone" => FilterDecision::Remove,
            _ => FilterDecision::Keep,
        }
    }
}

impl Beside {
    /// Opens these keyspaces with the tree of `options` and mostly inline values, because some
    /// other placements refuse operands and loads of old keys.
    pub(super) fn open(store: &Store, mut options: KeyspaceOptions) -> Result<Beside, Error> {
        options.merge_operator.clear();
        options.compaction_filter = Sweeper.name().to_string();
        let is_grouped = options.values.placement == ValuePlacement::HashGrouped;
        if is_grouped && !options.values.writes_back() {
            options.values.separate_at = 1;
        } else {
            options.values = ValueOptions::default();
        }
        let swept = store.open_keyspace("swept", Some(options.clone()))?;
        options.values = ValueOptions::default();
        options.compaction_filter.clear();
        let loaded = store.open_keyspace("loaded", Some(options.clone()))?;
        let accounts = store.open_keyspace("accounts", Some(options.clone()))?;
        options.merge_operator = "add-u64".to_string();
        let counters = store.open_keyspace("counters", Some(options))?;
        Ok(Beside { counters, loaded, swept, accounts })
    }

    /// The writes of operation `number` under the filter.
    pub(super) fn swept(&self, number: u64) -> (&Keyspace, String, [u8; 8]) {
        (&self.swept, swept_key(number % SWEPT_KEYS), number.to_le_bytes())
    }

    /// Moves an amount from one account to the other, by each kind of transaction in turn. Returns
    /// whether the transaction committed: another thread may have conflicted with it.
    pub(super) fn transfer(&self, store: &Store, turn: u64) -> Result<bool, String> {
        let [from, to] = match turn % 2 {
            0 => [0, 1],
            _ => [1, 0],
        };
        let options = match turn % 3 {
            0 => TransactionOptions::default(),
            1 => TransactionOptions::serializable(),
            _ => TransactionOptions::pessimistic(),
        };
        let is_locked = turn % 3 == 2;
        let work = || -> Result<(), Error> {
            let mut transaction = store.begin(options)?;
            for (account, change) in [(from, -1), (to, 1)] {
                let account = ACCOUNTS[account];
                let old = balance(&mut transaction, &self.accounts, account, is_locked)?;
                transaction.put(&self.accounts, account, (old + change).to_le_bytes())?;
            }
            transaction.commit(WriteOptions::default())
        };
        match work() {
            Ok(()) => Ok(true),
            Err(Error::Conflict { .. } | Error::LockTimeout { .. } | Error::Deadlock { .. }) => {
                Ok(false)
            }
            Err(error) => Err(format!("transfer: {error}")),
        }
    }

    /// Whether the accounts of a store add up to zero.
    pub(super) fn check_accounts(store: &Store, snapshot: &Snapshot) -> Result<(), String> {
        let Ok(accounts) = store.keyspace("accounts") else { return Ok(()) };
        let values = accounts.multi_get_at(&ACCOUNTS, snapshot).map_err(text)?;
        let numbers = values.iter().map(|value| value.as_deref().map_or(0, number_of));
        match numbers.clone().sum::<i64>() {
            0 => Ok(()),
            _ => Err(format!("the accounts hold {:?}", numbers.collect::<Vec<_>>())),
        }
    }

    /// The counter of operation `number`, which raises or deletes it.
    pub(super) fn counter(&self, number: u64) -> (&Keyspace, String) {
        (&self.counters, counter_key(number % COUNTERS))
    }

    pub(super) fn is_reset_by(&self, number: u64) -> bool {
        (number / COUNTERS).is_multiple_of(TURNS_PER_DELETE)
    }

    /// Loads the entries that must be there before operation `number`, in turn from an iterator and
    /// from a file. If a child is killed in between, the next child loads the entries again.
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
        // The file is beside the store, because the directory of a store may contain only its own
        // files.
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

    /// Compares all these keyspaces with their expected contents after `count` operations. Without
    /// a snapshot nobody else may write; with a snapshot, `count` is the number of operations
    /// before it. If `is_compacted`, the filter has seen everything.
    pub(super) fn check(
        &self,
        count: u64,
        snapshot: Option<&Snapshot>,
        is_compacted: bool,
    ) -> Result<(), String> {
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
        check_swept(&of(&self.swept)?, count, is_compacted)?;
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

/// Compares the keys under the filter: a kind that it changes or removes shows the last write, or
/// what the filter made of that write, and nothing older.
fn check_swept(found: &[(String, u64)], count: u64, is_compacted: bool) -> Result<(), String> {
    let found: BTreeMap<&str, u64> = found.iter().map(|(key, value)| (&key[..], *value)).collect();
    let is_known = |key: &&str| (0..SWEPT_KEYS).any(|index| swept_key(index) == **key);
    if let Some(key) = found.keys().find(|key| !is_known(key)) {
        return Err(format!("{key} was never written"));
    }
    for index in 0..SWEPT_KEYS {
        let key = swept_key(index);
        let seen = found.get(&key[..]).copied();
        let last = count.checked_sub(index).map(|since| count - since % SWEPT_KEYS);
        let last = last.filter(|number| *number > 0);
        let filtered = match index % 3 {
            0 => last,
            1 => last.map(|_| SWEPT),
            _ => None,
        };
        if seen != filtered && (seen != last || is_compacted) {
            return Err(format!("{key} after {count}: {seen:?}, written {last:?}"));
        }
    }
    Ok(())
}

fn swept_key(index: u64) -> String {
    format!("{}{index:03}", KINDS[(index % 3) as usize])
}

fn balance(
    transaction: &mut Transaction,
    accounts: &Keyspace,
    account: &str,
    is_locked: bool,
) -> Result<i64, Error> {
    let value = match is_locked {
        true => transaction.get_for_update(accounts, account)?,
        false => transaction.get(accounts, account)?,
    };
    Ok(value.as_deref().map_or(0, number_of))
}

fn number_of(value: &[u8]) -> i64 {
    value.try_into().map_or(0, i64::from_le_bytes)
}

fn counter_key(counter: u64) -> String {
    format!("counter{counter:02}")
}

fn loaded_key(range: u64, index: u64) -> String {
    format!("range{range:02}-{index:04}")
}

/// The value of a counter, 0 if it does not exist.
fn counter_after(counter: u64, count: u64) -> u64 {
    // The first turn of each counter, which is one of operations 0 to 15, deletes it.
    count.checked_sub(counter).map_or(0, |since| since / COUNTERS % TURNS_PER_DELETE)
}

fn loaded_after(count: u64) -> Vec<(String, u64)> {
    let last = count / OPERATIONS_PER_LOAD;
    // The last load of a range is the load of the latest turn for that range. Turns begin at 1.
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
