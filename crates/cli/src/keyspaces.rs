//! Keyspaces by name: which exist, and which one a misspelt name may mean.

use runstone::{Error, Keyspace, KeyspaceOptions, Store};
use runstone_policy::registry::{nearest, suggest};

use crate::failure::{Failure, Result};
use crate::transfer::progress;

/// At most this many keyspaces are listed in an error.
const MOST_LISTED: usize = 20;

/// Opens an existing keyspace. If none has this name, the error names the existing ones.
pub fn find(store: &Store, name: &str) -> Result<Keyspace> {
    store.keyspace(name).map_err(|error| unknown(store, name, error))
}

/// Opens an existing keyspace for a command that changes something but cannot make a keyspace.
pub fn find_to_change(store: &Store, name: &str) -> Result<Keyspace> {
    let is_there = store.keyspaces().iter().any(|known| known == name);
    find(store, name).map_err(|failure| match (is_there, failure.hint.clone()) {
        (false, Some(known)) => {
            failure.hint(format!("{known}; `runstone put` and `runstone import` make keyspaces"))
        }
        _ => failure,
    })
}

/// The options that a user wants for a keyspace.
#[derive(Clone, Debug, Default)]
pub struct Wish {
    /// The options of the command line. A new keyspace gets them; an existing one must already have
    /// them.
    pub given: Option<KeyspaceOptions>,
    pub policy: Option<String>,
    /// Options of a new keyspace if none were given.
    pub base: Option<KeyspaceOptions>,
}

impl Wish {
    /// Options for a new keyspace.
    pub fn of_new(&self) -> KeyspaceOptions {
        self.with_policy(self.given.clone().or(self.base.clone()).unwrap_or_default())
    }

    /// The options with the policy that the user wants. The numbers of the policy stay.
    fn with_policy(&self, mut options: KeyspaceOptions) -> KeyspaceOptions {
        options.policy = self.policy.clone().unwrap_or(options.policy);
        options
    }
}

/// Opens or makes the keyspace. An existing one keeps its own options, and
/// refuses others.
pub fn open_or_make(store: &Store, name: &str, wish: &Wish) -> Result<Keyspace> {
    if !store.keyspaces().iter().any(|known| known == name) {
        return Ok(store.open_keyspace(name, Some(wish.of_new()))?);
    }
    let found = store.keyspace(name)?;
    let stored = KeyspaceOptions::clone(&found.options());
    if wish.with_policy(wish.given.clone().unwrap_or_else(|| stored.clone())) != stored {
        let what = format!("keyspace {name} exists, and has other options");
        let hint = "leave the options out, or change them with `runstone reshape`";
        return Err(Failure::usage(what, hint));
    }
    Ok(found)
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

/// Refuses to write to the keyspace in which imports keep their progress.
pub fn refuse_reserved(keyspace: &str) -> Result<()> {
    match keyspace == progress::KEYSPACE {
        true => Err(Failure::usage(format!("{keyspace} is reserved"), "choose another keyspace")),
        false => Ok(()),
    }
}

/// The effects of a keyspace's options on puts and deletes, in words; usually none.
pub fn features(keyspace: &Keyspace) -> Vec<String> {
    let options = keyspace.options();
    let mut features = Vec::new();
    if !options.merge_operator.is_empty() {
        features.push(format!("merge operator {}", options.merge_operator));
    }
    if !options.compaction_filter.is_empty() {
        let missing = match keyspace.missing_compaction_filter() {
            Some(_) => ", not registered here, so all entries stay",
            None => "",
        };
        features.push(format!("compaction filter {}{missing}", options.compaction_filter));
    }
    if options.ttl_seconds > 0 {
        features.push(format!("entries expire after {} s", options.ttl_seconds));
    }
    features
}
