//! Names that other stores and shells use for commands, and their replacements here. Misspelt names
//! are not here: clap reports those.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::failure::Failure;

/// What to do instead, by names that no command has.
const NAMES: &[(&[&str], &str)] = &[
    (
        &["keyspaces", "families", "info", "status", "size", "list_column_families"],
        "`runstone stats STORE` lists the keyspaces with their sizes",
    ),
    (
        &["ls", "list", "cat", "dir", "idump"],
        "`runstone scan STORE --keys-only` lists the keys, `runstone stats STORE` the keyspaces",
    ),
    (
        &["recover", "fix", "fsck", "check"],
        "`runstone verify STORE` names what is damaged; `runstone repair STORE TARGET` makes a new \
         store out of what is left",
    ),
    (
        &["copy", "cp", "clone", "snapshot"],
        "`runstone checkpoint STORE TARGET` copies a store, and `runstone backup create STORE DIR` \
         what changed; `runstone export STORE FILE` writes its entries",
    ),
    (
        &["restore"],
        "`runstone backup restore DIR TARGET` makes a store of a backup; a checkpoint is a store: \
         put a copy of it in the place of the other",
    ),
    (
        &["rm", "del", "remove", "unset", "delete_range", "deleterange"],
        "`runstone delete STORE KEY` removes keys, with --prefix or --from and --to a range; \
         `runstone drop STORE NAME` removes a keyspace",
    ),
    (&["load", "ingest"], "`runstone import STORE SOURCE` writes files into a store"),
    (
        &["create", "init", "open", "new", "make"],
        "`runstone put` and `runstone import` make a store, and `runstone shell` one to type in",
    ),
    (
        &["begin", "commit", "rollback", "transaction"],
        "transactions are made by programs; of the commands, `delete` of several keys and each \
         batch of `import --batch N` are atomic",
    ),
    (
        &["metrics", "prometheus"],
        "`runstone stats STORE --prometheus` prints counters, and `runstone stats STORE` sizes",
    ),
    (&["incr", "incrby", "add"], "`runstone merge STORE KEY NUMBER` adds to a counter"),
    (&["expire"], "`runstone put STORE KEY VALUE --ttl TIME` lets an entry expire"),
    (&["fillrandom", "readrandom", "fillseq"], "`runstone bench NAME` runs a benchmark"),
];

/// What to do instead of a command that does not exist.
pub fn instead_of(name: &str) -> Option<&'static str> {
    let found = NAMES.iter().find(|(names, _)| names.contains(&name));
    found.map(|(_, advice)| *advice)
}

/// The failure for such a name, if clap refused one.
pub fn refusal(error: &clap::Error) -> Option<Failure> {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    let advice = instead_of(name)?;
    Some(Failure::usage(format!("there is no command {name:?}"), advice).at("the command line"))
}

/// Clap advises passing an unknown option as a value, after `--`. A key may begin with one dash,
/// but two dashes mean an option of another command: who follows the advice only gets the next
/// error.
pub fn without_vain_advice(mut error: clap::Error) -> clap::Error {
    let is_long = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(argument)) => argument.starts_with("--"),
        _ => false,
    };
    if is_long && error.kind() == ErrorKind::UnknownArgument {
        error.remove(ContextKind::Suggested);
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_command_is_said_not_to_be_there() {
        for (names, _) in NAMES {
            for name in *names {
                assert!(!crate::commands::NAMES.contains(name), "{name} is a command");
                assert_eq!(NAMES.iter().filter(|(all, _)| all.contains(name)).count(), 1, "{name}");
            }
        }
    }
}
