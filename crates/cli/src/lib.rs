//! The `runstone` command as a library: reads the command line, runs one command, reports its
//! error. Each command is a file in `commands/`. This is not an interface: the binary calls
//! [`run`], and the feature `lab` adds the commands of the laboratory.

mod arguments;
mod commands;
mod counters;
mod demo;
#[cfg(feature = "devices")]
mod devices;
mod dropping;
mod encoding;
mod entries;
mod failure;
mod failures;
mod files;
mod interrupt;
mod keyspaces;
mod layout;
mod live;
mod lost_log;
mod nesting;
#[cfg(not(feature = "devices"))]
mod no_devices;
mod on_flash;
mod opened;
mod opening;
mod option_docs;
mod other_names;
mod output;
mod picture;
mod range;
mod reshaping;
mod scratch;
mod shell;
mod simulation;
mod transfer;
mod values_apart;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

#[cfg(not(feature = "devices"))]
use no_devices as devices;

use crate::commands::Command;
use crate::failure::{Exit, Failure};
use crate::output::Output;

/// An embedded LSM key-value store: try it, fill it, look into it, measure it.
#[derive(Parser)]
#[command(
    name = "runstone",
    version,
    disable_help_subcommand = true,
    after_help = "STORE is a directory, or mem: for a store that ends with the command.\n\
                  `runstone help encoding|options|policies|presets|devices|exit-codes` explains."
)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
    /// One JSON object on standard output; errors as JSON on standard error.
    #[arg(long, global = true)]
    json: bool,
}

/// Runs the command that the process was called with.
pub fn run() -> ExitCode {
    interrupt::fail_at_limit();
    let line = match CommandLine::try_parse() {
        Ok(line) => line,
        Err(error) => return refuse(other_names::without_vain_advice(error)),
    };
    let output = Output::new(line.json);
    let outcome = line.command.run(&output);
    // Output from before a failure is printed whole.
    let flushed = output.flush();
    match outcome.and_then(|exit| flushed.map(|()| exit)) {
        Ok(exit) => exit.into(),
        Err(failure) => failure.report(line.json).into(),
    }
}

/// Reports what clap found wrong; help and version are not errors.
fn refuse(error: clap::Error) -> ExitCode {
    let is_json = std::env::args_os().any(|argument| argument == "--json");
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // Only a closed pipe can make this fail.
        let _ = error.print();
        return Exit::Ok.into();
    }
    if let Some(failure) = other_names::refusal(&error) {
        return failure.report(is_json).into();
    }
    if !is_json {
        let text = layout::fold(&error.render().to_string(), layout::stderr_columns());
        // Nobody is left to hear of an error here.
        let _ = write!(std::io::stderr(), "{text}");
        return Exit::Usage.into();
    }
    let failure = Failure::command_line(&error, "see `runstone help`").at("the command line");
    failure.report(true).into()
}
