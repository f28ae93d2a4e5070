//! Every command, one registry line each; a command is a file here with `Args` and `Args::run`.

use crate::failure::{Exit, Result};
use crate::output::Output;

mod bench;
mod checkpoint;
mod compact;
mod count;
mod delete;
mod demo;
mod dump;
mod export;
pub mod get;
mod help;
mod import;
mod paper;
mod policies;
mod presets;
mod put;
mod scan;
mod shape;
mod shell;
mod simulate;
pub mod stats;
mod verify;

macro_rules! commands {
    ($($variant:ident => $module:ident),+ $(,)?) => {
        /// What to do.
        #[derive(clap::Subcommand)]
        pub enum Command {
            $(#[allow(missing_docs)] $variant($module::Args)),+
        }

        impl Command {
            /// Runs the command.
            pub fn run(self, output: &Output) -> Result<Exit> {
                match self {
                    $(Command::$variant(args) => args.run(output)),+
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
    Delete => delete,
    Scan => scan,
    Count => count,
    Shell => shell,
    Shape => shape,
    Stats => stats,
    Verify => verify,
    Compact => compact,
    Checkpoint => checkpoint,
    Dump => dump,
    Bench => bench,
    Paper => paper,
    Simulate => simulate,
    Policies => policies,
    Presets => presets,
    Help => help,
}
