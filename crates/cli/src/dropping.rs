//! Dropping a keyspace, on the command line and in the shell. A drop cannot be undone, so a person
//! must confirm it.

use std::io::{IsTerminal, stdin};

use runstone::unstable;
use runstone::{DEFAULT_KEYSPACE, Store};

use crate::failure::{Exit, Failure, Result};
use crate::keyspaces;
use crate::layout::plural;
use crate::output::{ask, size};

/// Which keyspace, and whether to ask.
#[derive(clap::Args)]
pub struct Dropping {
    /// Name of the keyspace.
    pub name: String,
    /// Do not ask. Without a terminal nobody can be asked, so this flag is required.
    #[arg(long)]
    yes: bool,
}

impl Dropping {
    /// Drops the keyspace, if the user agrees.
    pub fn run(&self, store: &Store) -> Result<()> {
        let name = &self.name;
        keyspaces::refuse_reserved(name)?;
        let keyspace = keyspaces::find(store, name)?;
        if name == DEFAULT_KEYSPACE {
            // The store refuses this name, so the user is not asked.
            return Ok(store.drop_keyspace(name)?);
        }
        if !self.yes {
            if !stdin().is_terminal() {
                let what = format!(
                    "keyspace {name} would be dropped with all its entries; nothing was done"
                );
                return Err(Failure::usage(what, "pass --yes if that is meant"));
            }
            let shape = unstable::shape(&keyspace);
            let tables = plural(shape.tables().count() as u64, "table");
            let bytes = shape.bytes() + keyspace.memtable_bytes();
            let question = format!("drop keyspace {name}, {tables} and {} in all?", size(bytes));
            if !ask(&question) {
                return Err(Failure::new(Exit::Different, format!("{name} was not dropped")));
            }
        }
        drop(keyspace);
        Ok(store.drop_keyspace(name)?)
    }
}
