//! `shape`: draws the tree of a keyspace.

use std::path::PathBuf;

use crate::arguments::KeyspaceArgument;
use crate::failure::{Exit, Result};
use crate::layout::terminal_columns;
use crate::opened::Caption;
use crate::opening::Location;
use crate::output::{Output, minute_text};

/// Draw levels, runs and tables, and say why the next compaction would run
///
/// The horizontal axis shows keys: the place of a key is the fraction of the bytes that lie below
/// it, estimated from the bounds and sizes of tables. Tables above each other share keys.
#[derive(clap::Args)]
pub struct Args {
    /// The store.
    store: PathBuf,
    /// Write the picture as SVG.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write the picture as a page that needs no other file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Replace existing files.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    keyspace: KeyspaceArgument,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        let opened = Location::of(&self.store)?.to_read(self.keyspace.name())?;
        let drawing = opened.drawing()?;
        let caption = Caption { store: self.store.display().to_string(), taken: minute_text() };
        let html = self.html.as_ref().map(|_| drawing.html(&caption));
        let svg = self.svg.as_ref().map(|_| drawing.svg(&caption));
        let files = [(&self.svg, svg), (&self.html, html)];
        for (path, text) in files.iter().filter_map(|(p, text)| p.as_ref().zip(text.as_ref())) {
            output.write_file(path, text, self.force)?;
        }
        if output.is_json {
            output.json(&drawing.to_json())?;
        } else if self.svg.is_none() && self.html.is_none() {
            output.bytes(drawing.to_text(terminal_columns()).as_bytes())?;
        }
        Ok(Exit::Ok)
    }
}
