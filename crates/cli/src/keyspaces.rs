//! Keyspaces by name: which there are, and which a name may mean that none has.

use runstone::policy::registry::{nearest, suggest};
use runstone::{Error, Keyspace, Store};

use crate::failure::{Failure, Result};
use crate::transfer::progress;

/// At most this many keyspaces are listed in an error.
const MOST_LISTED: usize = 20;

/// An existing keyspace; of one that does not exist, the error names those that do.
pub fn find(store: &Store, name: &str) -> Result<Keyspace> {
    store.keyspace(name).map_err(|error| unknown(store, name, error))
}

/// The error for a name that no keyspace has, with the names that may be meant.
fn unknown(store: &Store, name: &str, error: Error) -> Failure {
    let failure = Failure::from(error);
    let known = store.keyspaces();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    if known.contains(&name) {
        return failure;
    }
    let mut listed = known[..known.len().min(MOST_LISTED)].join(", ");
    if known.len() > MOST_LISTED {
        listed.push_str(&format!(" and {} more", known.len() - MOST_LISTED));
    }
    let what = format!("{}{}", failure.what, suggest(&nearest(name, &known)));
    Failure { what, ..failure }.hint(format!("the store has: {listed}"))
}

/// Refuses to write where imports keep how far they are.
pub fn refuse_reserved(keyspace: &str) -> Result<()> {
    match keyspace == progress::KEYSPACE {
        true => Err(Failure::usage(format!("{keyspace} is reserved"), "choose another keyspace")),
        false => Ok(()),
    }
}
