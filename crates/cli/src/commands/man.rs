//! `man`: manual pages, one for the command and one for each of its commands.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use clap::CommandFactory;
use clap_mangen::Man;
use serde_json::json;

use crate::CommandLine;
use crate::failure::{Exit, Failure, Result};
use crate::layout::plural;
use crate::nesting;
use crate::output::Output;

/// Write the manual pages into a directory: one for each command
#[derive(clap::Args)]
pub struct Args {
    /// The directory for the pages; it is made if it does not exist.
    directory: PathBuf,
    /// Replace pages that exist.
    #[arg(long)]
    force: bool,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        nesting::refuse_inside(&self.directory.join("page"))?;
        fs::create_dir_all(&self.directory).map_err(|error| {
            let failure = Failure::file(&self.directory, "create", &error);
            match error.kind() {
                // The usual hint is `--force`, which only replaces pages.
                ErrorKind::AlreadyExists => failure.hint("name a directory: this is none"),
                _ => failure,
            }
        })?;
        let mut main = CommandLine::command();
        // `build` copies the global options to all commands, so that their pages show them.
        main.build();
        let mut pages = vec![("runstone".to_string(), main.clone())];
        for command in main.get_subcommands() {
            pages.push((format!("runstone-{}", command.get_name()), command.clone()));
        }
        let mut written = Vec::new();
        for (name, command) in pages {
            let mut page = Vec::new();
            // Writing to memory does not fail.
            let _ = Man::new(command).render(&mut page);
            let path = self.directory.join(format!("{name}.1"));
            output.write_file(&path, &String::from_utf8_lossy(&page), self.force)?;
            written.push(path.display().to_string());
        }
        match output.is_json {
            true => output.json(&json!({ "pages": written }))?,
            false => output.line(plural(written.len() as u64, "page"))?,
        }
        Ok(Exit::Ok)
    }
}
