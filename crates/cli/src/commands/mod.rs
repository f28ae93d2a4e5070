//! Every command, one registry line each; a command is a file here with `Args` and `Args::run`.

use crate::failure::{Exit, Result};
use crate::output::Output;

mod backup;
#[cfg(feature = "lab")]
mod bench;
mod changes;
mod checkpoint;
mod compact;
mod completions;
mod count;
mod delete;
mod demo;
mod drop;
mod dump;
mod export;
mod get;
mod help;
mod import;
mod keys;
mod man;
mod merge;
mod mirror;
mod options;
#[cfg(feature = "lab")]
mod paper;
mod policies;
mod presets;
mod put;
mod repair;
mod reshape;
mod scan;
mod set;
mod shape;
mod shell;
mod simulate;
mod stats;
mod ttl;
mod verify;

macro_rules! commands {
    ($($(#[$on:meta])* $variant:ident => $module:ident),+ $(,)?) => {
        /// The modules of the commands. Each has the name of its command.
        pub const NAMES: &[&str] = &[$($(#[$on])* stringify!($module)),+];

        /// What to do.
        #[derive(clap::Subcommand)]
        pub enum Command {
            $($(#[$on])* $variant($module::Args)),+
        }

        impl Command {
            /// Runs the command.
            pub fn run(self, output: &Output) -> Result<Exit> {
                match self {
                    $($(#[$on])* Command::$variant(args) => args.run(output)),+
                }
            }
        }
    };
}

// In the order of help.
commands! {
    Demo => demo,
    Import => import,
    Export => export,
    Put => put,
    Get => get,
    Merge => merge,
    Delete => delete,
    Ttl => ttl,
    Scan => scan,
    Count => count,
    Drop => drop,
    Shell => shell,
    Shape => shape,
    Stats => stats,
    Keys => keys,
    Verify => verify,
    Compact => compact,
    Options => options,
    Set => set,
    Reshape => reshape,
    Checkpoint => checkpoint,
    Backup => backup,
    Changes => changes,
    Mirror => mirror,
    Repair => repair,
    Dump => dump,
    #[cfg(feature = "lab")]
    Bench => bench,
    #[cfg(feature = "lab")]
    Paper => paper,
    Simulate => simulate,
    Policies => policies,
    Presets => presets,
    Completions => completions,
    Man => man,
    Help => help,
}
