//! `shape`: draws the tree of a keyspace.

use std::path::PathBuf;

use crate::arguments::KeyspaceArgument;
use crate::failure::{Exit, Failure, Result};
use crate::kvssd;
use crate::opening;
use crate::output::{Output, terminal_columns};
use crate::picture::{Picture, svg, terminal};

/// Draw levels, runs and tables, and say why the next compaction would run
#[derive(clap::Args)]
pub struct Args {
    /// The store.
    store: PathBuf,
    /// Writes the picture as SVG.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Writes the picture as a page that needs no other file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Replaces what exists.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    keyspace: KeyspaceArgument,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        if let Some(device) = opening::kvssd(&self.store, &self.keyspace.keyspace, false)? {
            if self.html.is_some() {
                let what = "the map of a KVSSD is no page";
                return Err(Failure::usage(what, "pass --svg").at("--html"));
            }
            return kvssd::shape(&device, self.svg.as_deref(), self.force, output);
        }
        let store = opening::to_read(&self.store)?;
        let keyspace = opening::keyspace(&store, &self.keyspace.keyspace)?;
        let picture = Picture::of(&keyspace)?;
        if let Some(path) = &self.svg {
            output.write_file(path, &svg::svg(&picture), self.force)?;
        }
        if let Some(path) = &self.html {
            output.write_file(path, &svg::html(&picture), self.force)?;
        }
        if output.is_json {
            output.json(&picture.to_json())?;
        } else if self.svg.is_none() && self.html.is_none() {
            output.bytes(terminal::draw(&picture, terminal_columns()).as_bytes())?;
        }
        Ok(Exit::Ok)
    }
}
