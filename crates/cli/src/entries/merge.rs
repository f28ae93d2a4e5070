//! Changes a value with an operand of the keyspace's merge operator.

use std::ffi::OsString;

use runstone::{Durability, KeyspaceOptions};

use crate::arguments::{Encoding, KeyspaceArgument};
use crate::counters::Counter;
use crate::failure::{Failure, Result};
use crate::opened::Entries;

/// Arguments of `merge`.
#[derive(clap::Args)]
pub struct Merge {
    /// The key.
    #[arg(allow_negative_numbers = true)]
    key: OsString,
    /// The operand; a decimal number for `add-i64` and `add-u64`.
    #[arg(allow_negative_numbers = true)]
    operand: OsString,
    /// Wait until the operand survives a power loss.
    #[arg(long)]
    sync: bool,
    #[command(flatten)]
    pub keyspace: KeyspaceArgument,
    #[command(flatten)]
    pub encoding: Encoding,
}

impl Merge {
    pub fn run(&self, entries: &dyn Entries) -> Result<()> {
        let durability = if self.sync { Durability::Sync } else { Durability::Buffered };
        let operand = self.encoding.read(&self.operand)?;
        entries.merge(&self.encoding.read(&self.key)?, &operand, durability)
    }

    /// Refuses key and operand if a keyspace with these options would refuse them.
    pub fn check(&self, options: &KeyspaceOptions) -> Result<()> {
        if options.merge_operator.is_empty() {
            let what = "the options have no merge operator";
            let hint = "name a merge_operator in the file; `runstone help options`";
            return Err(Failure::usage(what, hint));
        }
        self.encoding.read(&self.key)?;
        let operand = self.encoding.read(&self.operand)?;
        let counter = Counter::of(&options.merge_operator);
        counter.map_or(Ok(()), |counter| counter.bytes(&operand).map(drop))
    }
}
