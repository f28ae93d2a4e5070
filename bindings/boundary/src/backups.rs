//! Backups: what all bindings say of them.

use runstone::{Backups, Damage, Error, Result};

/// The number of the newest backup.
///
/// # Errors
/// If there is none; or a storage error.
pub fn newest(backups: &Backups) -> Result<u64> {
    let newest = backups.list()?.last().map(|info| info.number);
    newest.ok_or_else(|| Error::invalid("the directory has no backup", "create one first"))
}

/// The message for this many pieces of damage of a backup or an archive.
pub fn damage_message(count: usize, first: &Damage) -> String {
    let what = match count {
        1 => String::new(),
        count => format!("{count} pieces of damage, the first: "),
    };
    format!(
        "{what}{}: {}; restore another backup, or make a new one in another directory",
        first.file, first.what
    )
}
