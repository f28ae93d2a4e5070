//! Changes a value by an operand of the keyspace's merge operator.

use std::ffi::OsString;

use runstone::Durability;

use crate::arguments::{Encoding, KeyspaceArgument};
use crate::failure::Result;
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
}
