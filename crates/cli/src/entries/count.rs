//! Reads the keys and counts them, because the store keeps no count. Only the sizes of values need
//! the values.

use serde_json::json;

use crate::arguments::Selection;
use crate::failure::Result;
use crate::opened::Entries;
use crate::output::Output;
use crate::range::Range;

/// Arguments of `count`.
#[derive(clap::Args)]
pub struct Count {
    #[command(flatten)]
    pub selection: Selection,
}

impl Count {
    pub fn run(&self, entries: &dyn Entries, output: &Output) -> Result<()> {
        let keys_only = !output.is_json;
        let range = Range { keys_only, ..Range::of(&self.selection)? };
        let (mut key_bytes, mut value_bytes, mut failed) = (0, 0, 0);
        let count = entries.walk(&range, &mut |found| {
            let (key, value) = match &found {
                Ok(entry) => (entry.key, entry.value),
                Err(failed) => (failed.key, &[][..]),
            };
            key_bytes += key.len() as u64;
            value_bytes += value.len() as u64;
            failed += u64::from(found.is_err());
            Ok(())
        })?;
        output.figures(
            &format!("{count}\n"),
            &json!({
                "count": count,
                "key_bytes": key_bytes,
                "value_bytes": value_bytes,
                "failed": failed,
            }),
        )
    }
}
