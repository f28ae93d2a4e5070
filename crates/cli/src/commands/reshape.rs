//! `reshape`: gives a keyspace another compaction policy (or other numbers for it) and runs the
//! compactions that follow to their end. Unlike a dump and reload, it rewrites only the tables that
//! the policy selects.

use std::path::PathBuf;

use runstone::KeyspaceOptions;

use crate::arguments::{KeyspaceArgument, policy_names, preset_names};
use crate::failure::{Exit, Failure, Result};
use crate::opening;
use crate::output::{Output, note};
use crate::reshaping;

/// Change the compaction policy of a store, and compact until the tree is as the policy wants it
#[derive(clap::Args)]
pub struct Args {
    /// The store.
    store: PathBuf,
    /// The policy; `runstone policies` lists them.
    #[arg(long, value_name = "NAME", value_parser = policy_names(), hide_possible_values = true)]
    policy: Option<String>,
    /// All options of a preset, except those that describe the entries: merge_operator,
    /// compaction_filter, ttl_seconds and prefix stay. `runstone presets` lists them.
    #[arg(long, value_name = "NAME", value_parser = preset_names(), hide_possible_values = true,
          conflicts_with = "policy")]
    preset: Option<String>,
    /// The options that a TOML file names, such as the output of `runstone options`; the others
    /// stay.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["policy", "preset"])]
    options: Option<PathBuf>,
    #[command(flatten)]
    keyspace: KeyspaceArgument,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        let wanted = |old: &KeyspaceOptions| self.wanted(old);
        let done = reshaping::change(&self.store, self.keyspace.name(), wanted, output)?;
        match output.is_json {
            true => output.json(&done.json)?,
            false => note(done.text),
        }
        Ok(Exit::Ok)
    }

    fn wanted(&self, old: &KeyspaceOptions) -> Result<KeyspaceOptions> {
        match (&self.policy, &self.preset, &self.options) {
            (Some(policy), ..) => {
                let mut options = old.clone();
                options.policy.clone_from(policy);
                Ok(options)
            }
            (_, Some(preset), _) => Ok(KeyspaceOptions::preset(preset)?
                .merge_operator(old.merge_operator.clone())
                .compaction_filter(old.compaction_filter.clone())
                .ttl_seconds(old.ttl_seconds)
                .prefix(old.prefix.clone())),
            (.., Some(path)) => opening::options_over(old, path),
            _ => {
                let hint = "name a --policy, a --preset or a file of --options; `runstone set` \
                            changes one option";
                Err(Failure::usage("nothing to change", hint))
            }
        }
    }
}
