//! Removes databases, and verifies them.

use std::fs;

use runstone::{Background, Error, Options, Store};
use runstone_boundary::{Code, Failure};

use crate::Result;

/// Removes a database, and its directory if nothing else is in it. It is not an error if the
/// database does not exist, as in LevelDB.
pub(crate) fn destroy(path: &str) -> Result<()> {
    match Store::destroy(path) {
        Ok(()) => {
            // Other files may be there; then the directory stays.
            let _ = fs::remove_dir(path);
            Ok(())
        }
        Err(Error::NotAStore { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Reads and checks every byte of a database.
pub(crate) fn verify(path: &str) -> Result<()> {
    let options =
        Options::default().create_if_missing(false).read_only(true).background(Background::Manual);
    let report = Store::open(path, options)?.verify()?;
    let Some(damage) = report.damage.first() else { return Ok(()) };
    let what = format!(
        "{path} has {} pieces of damage, the first in {}: {}; nothing was repaired: restore it \
         from a copy",
        report.damage.len(),
        damage.file,
        damage.what
    );
    Err(Failure::new(Code::Corruption, what))
}
