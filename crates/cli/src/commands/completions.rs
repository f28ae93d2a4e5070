//! `completions`: what a shell needs to complete the command line.

use clap::CommandFactory;
use clap_complete::Shell;
use serde_json::json;

use crate::CommandLine;
use crate::failure::{Exit, Result};
use crate::output::Output;

/// Print a completion script: source it, or put it where the shell looks
#[derive(clap::Args)]
pub struct Args {
    /// The shell that the script is for.
    shell: Shell,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut CommandLine::command(), "runstone", &mut script);
        match output.is_json {
            true => output.json(&json!({ "script": String::from_utf8_lossy(&script) }))?,
            false => output.bytes(&script)?,
        }
        Ok(Exit::Ok)
    }
}
