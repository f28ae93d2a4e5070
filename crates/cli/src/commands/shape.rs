//! `shape`: draws the tree of a keyspace.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::arguments::KeyspaceArgument;
use crate::failure::{Exit, Failure, Result};
use crate::opening;
use crate::output::{Output, note, terminal_columns};
use crate::picture::{Picture, svg, terminal};

/// Draw levels, runs and tables, and say why the next merge would run
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
        let store = opening::to_read(&self.store)?;
        let keyspace = opening::keyspace(&store, &self.keyspace.keyspace)?;
        let picture = Picture::of(&keyspace)?;
        if let Some(path) = &self.svg {
            write(path, &svg::svg(&picture), self.force)?;
        }
        if let Some(path) = &self.html {
            write(path, &svg::html(&picture), self.force)?;
        }
        if output.is_json {
            output.json(&picture.to_json())?;
        } else if self.svg.is_none() && self.html.is_none() {
            output.bytes(terminal::draw(&picture, terminal_columns()).as_bytes())?;
        }
        Ok(Exit::Ok)
    }
}

fn write(path: &Path, text: &str, force: bool) -> Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).truncate(force).create(force).create_new(!force);
    let written = options.open(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| Failure::file(path, "write", &error))?;
    note(format!("wrote {}", path.display()));
    Ok(())
}
