//! Functions and messages about backups for all bindings.

use runstone::{Backups, Damage, Error, Result};

/// The number of the newest backup. To use an older one, a program gives its number.
///
/// # Errors
/// If there is none, if its description is damaged, or if the storage fails.
pub fn newest(backups: &Backups) -> Result<u64> {
    let newest = backups.list()?.last().map(|info| info.number);
    let damaged = backups.damaged()?.pop().filter(|(number, _)| newest < Some(*number));
    if let Some((number, what)) = damaged {
        let hint = match newest {
            Some(whole) => format!("name backup {whole}, the newest that is whole"),
            None => "create another one".to_string(),
        };
        let what = format!("backup {number}, the newest, is damaged: {what}");
        return Err(Error::invalid(what, hint));
    }
    newest.ok_or_else(|| Error::invalid("the directory has no backup", "create one first"))
}

/// The message about `count` pieces of damage in a backup or an archive.
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
