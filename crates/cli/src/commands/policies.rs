//! `policies`: the compaction policies, from their registry.

use runstone::KeyspaceOptions;
use runstone_policy::registry::POLICIES;
use serde_json::json;

use crate::failure::{Exit, Result};
use crate::output::{Output, columns};

/// List the compaction policies
#[derive(clap::Args)]
pub struct Args {}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        let default = KeyspaceOptions::default().policy;
        if output.is_json {
            let policies = POLICIES.iter().map(|policy| {
                let is_default = policy.name() == default;
                json!({ "name": policy.name(), "doc": policy.doc(), "default": is_default })
            });
            output.json(&json!({ "policies": policies.collect::<Vec<_>>() }))?;
            return Ok(Exit::Ok);
        }
        let rows: Vec<Vec<String>> = POLICIES
            .iter()
            .map(|policy| {
                let mark = if policy.name() == default { " (default)" } else { "" };
                vec![format!("{}{mark}", policy.name()), policy.doc().to_string()]
            })
            .collect();
        output.bytes(columns(&["policy", "what it does"], &rows).as_bytes())?;
        Ok(Exit::Ok)
    }
}
