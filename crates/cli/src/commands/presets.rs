//! `presets`: named sets of options, from their registry, with the options that they change.

use runstone::{KeyspaceOptions, PRESETS};
use serde_json::json;

use crate::failure::{Exit, Result};
use crate::output::{Output, columns};

/// List the presets
#[derive(clap::Args)]
pub struct Args {}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        let (mut objects, mut rows) = (Vec::new(), Vec::new());
        for preset in PRESETS {
            let options = KeyspaceOptions::preset(preset.name)?;
            objects.push(json!({ "name": preset.name, "doc": preset.doc, "options": options }));
            if output.is_json {
                continue;
            }
            rows.push(vec![preset.name.to_string(), preset.doc.to_string()]);
            rows.extend(changed_lines(&options).into_iter().map(|line| vec![String::new(), line]));
        }
        if output.is_json {
            output.json(&json!({ "presets": objects }))?;
            return Ok(Exit::Ok);
        }
        output.bytes(
            columns(&["preset", "what it is, and the options that it sets"], &rows).as_bytes(),
        )?;
        Ok(Exit::Ok)
    }
}

/// The options that differ from the default, one per line.
fn changed_lines(options: &KeyspaceOptions) -> Vec<String> {
    let default = KeyspaceOptions::default().to_toml();
    let known: Vec<&str> = default.lines().collect();
    let text = options.to_toml();
    text.lines().filter(|line| !known.contains(line)).map(str::to_string).collect()
}
