//! Removes keys, or a range of them.

use std::ffi::OsString;

use runstone::Durability;
use runstone_kv::KvWrite;
use serde_json::{Value, json};

use crate::arguments::Selection;
use crate::failure::{Failure, Result};
use crate::layout::plural;
use crate::opened::Entries;
use crate::output::note;
use crate::range::Range;

/// The number of keys of a range that are deleted at once.
const BATCH_KEYS: u64 = 1000;

/// Arguments of `delete`.
#[derive(clap::Args)]
pub struct Delete {
    /// The keys; without them, --prefix, --from, --to or --limit says which.
    #[arg(allow_negative_numbers = true,
          conflicts_with_all = ["prefix", "from", "to", "limit", "reverse"])]
    keys: Vec<OsString>,
    /// Wait until the deletes survive a power loss.
    #[arg(long)]
    sync: bool,
    #[command(flatten)]
    pub selection: Selection,
}

impl Delete {
    /// Refuses a command that names nothing, because it would delete everything.
    pub fn check(&self) -> Result<()> {
        let Selection { part, limit, .. } = &self.selection;
        let is_range = part.prefix.is_some() || part.from.is_some() || part.to.is_some();
        if self.keys.is_empty() && !is_range && limit.is_none() {
            let hint = "name keys, or --prefix, --from, --to or --limit; --prefix '' is all keys";
            return Err(Failure::usage("nothing to delete is named", hint));
        }
        Ok(())
    }

    pub fn run(&self, entries: &dyn Entries) -> Result<Deleted> {
        self.check()?;
        let durability = if self.sync { Durability::Sync } else { Durability::Buffered };
        if self.keys.is_empty() {
            return delete_range(entries, Range::of(&self.selection)?, durability);
        }
        let encoding = self.selection.part.encoding;
        let keys = self.keys.iter().map(|key| encoding.read(key)).collect::<Result<Vec<_>>>()?;
        delete_keys(entries, &keys, durability)?;
        Ok(Deleted::Keys(keys.len() as u64))
    }
}

/// What was deleted.
pub enum Deleted {
    /// This many keys.
    Keys(u64),
    /// A range, with one record and without reading its entries: about this many.
    Range(u64),
}

impl Deleted {
    /// Reports to people the estimated number of entries of a deleted range.
    pub fn tell(&self) {
        if let Deleted::Range(about) = self {
            note(format!("the range is deleted; it held about {}", plural(*about, "entry")));
        }
    }

    /// Returns the count as JSON, for programs.
    pub fn to_json(&self) -> Value {
        let (keys, about) = match self {
            Deleted::Keys(keys) => (Some(keys), None),
            Deleted::Range(about) => (None, Some(about)),
        };
        json!({ "deletes": keys, "about": about })
    }
}

fn delete_keys(entries: &dyn Entries, keys: &[Vec<u8>], durability: Durability) -> Result<()> {
    let writes: Vec<KvWrite<'_>> = keys.iter().map(|key| KvWrite::Delete { key }).collect();
    entries.write(&writes, durability)
}

/// Deletes the keys of a range, all or none, with one record, however many there are. With a limit,
/// or in a store without such records, it deletes the keys in batches: if a batch fails, the
/// entries of earlier batches stay deleted.
fn delete_range(entries: &dyn Entries, range: Range, durability: Durability) -> Result<Deleted> {
    let mut range = Range { keys_only: true, ..range };
    if range.is_empty() {
        return Ok(Deleted::Keys(0));
    }
    if range.limit.is_none()
        && let Some(about) = entries.delete_range(&range, durability)?
    {
        return Ok(Deleted::Range(about));
    }
    let mut left = range.limit.unwrap_or(u64::MAX);
    let mut deleted = 0;
    loop {
        range.limit = Some(left.min(BATCH_KEYS));
        let mut keys = Vec::new();
        entries.walk(&range, &mut |found| {
            keys.push(found?.key.to_vec());
            Ok(())
        })?;
        let Some(last) = keys.last() else { return Ok(Deleted::Keys(deleted)) };
        match range.reverse {
            true => range.end = Some(last.clone()),
            false => range.start = Some([last, &[0][..]].concat()),
        }
        delete_keys(entries, &keys, durability)?;
        left -= keys.len() as u64;
        deleted += keys.len() as u64;
    }
}
