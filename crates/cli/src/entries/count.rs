//! Reads the keys and counts them, because the store keeps no count.

use serde_json::json;

use crate::arguments::Selection;
use crate::failure::Result;
use crate::opened::Entries;
use crate::output::Output;
use crate::range::{Entry, Range};

/// Arguments of `count`.
#[derive(clap::Args)]
pub struct Count {
    #[command(flatten)]
    pub selection: Selection,
}

impl Count {
    pub fn run(&self, entries: &dyn Entries, output: &Output) -> Result<()> {
        let (mut key_bytes, mut value_bytes) = (0, 0);
        let count =
            entries.walk(&Range::of(&self.selection)?, &mut |Entry { key, value, .. }| {
                key_bytes += key.len() as u64;
                value_bytes += value.len() as u64;
                Ok(())
            })?;
        output.figures(
            &format!("{count}\n"),
            &json!({ "count": count, "key_bytes": key_bytes, "value_bytes": value_bytes }),
        )
    }
}
