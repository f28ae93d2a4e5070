//! `verify`: reads everything and checks it.

use std::path::PathBuf;

use crate::failure::{Exit, Result};
use crate::files;
use crate::opening::Location;
use crate::output::Output;

/// Check every byte of the store; exit code 2 if something is damaged
#[derive(clap::Args)]
pub struct Args {
    /// The store.
    store: PathBuf,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        let location = Location::of(&self.store)?;
        let found = match location.to_verify() {
            Ok(opened) => opened.verify()?,
            Err(failure) if failure.exit == Exit::Damaged => match location.files()? {
                Some(storage) => files::verify::look(&self.store, &*storage, &failure)?,
                None => return Err(failure),
            },
            Err(failure) => return Err(failure),
        };
        output.figures(&found.figures.text, &found.figures.json)?;
        Ok(if found.is_clean { Exit::Ok } else { Exit::Damaged })
    }
}
