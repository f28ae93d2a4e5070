//! `presets`: named sets of options, from their registry, with what they change.

use runstone::{KeyspaceOptions, PRESETS};
use serde_json::json;

use crate::failure::{Exit, Result};
use crate::output::Output;

/// List the presets
#[derive(clap::Args)]
pub struct Args {}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        let mut objects = Vec::new();
        for preset in PRESETS {
            let options = KeyspaceOptions::preset(preset.name)?;
            objects.push(json!({ "name": preset.name, "doc": preset.doc, "options": options }));
            if output.is_json {
                continue;
            }
            output.line(format!("{:<14}{}", preset.name, preset.doc))?;
            for line in changed_lines(&options) {
                output.line(format!("{:14}  {line}", ""))?;
            }
        }
        if output.is_json {
            output.json(&json!({ "presets": objects }))?;
        }
        Ok(Exit::Ok)
    }
}

/// The lines of the options that differ from the default.
fn changed_lines(options: &KeyspaceOptions) -> Vec<String> {
    let default = KeyspaceOptions::default().to_toml();
    let known: Vec<&str> = default.lines().collect();
    let text = options.to_toml();
    text.lines().filter(|line| !known.contains(line)).map(str::to_string).collect()
}
