//! `set`: changes single options of a keyspace.

use std::path::PathBuf;

use runstone::KeyspaceOptions;
use runstone_policy::registry::{nearest, suggest};

use crate::arguments::{KeyspaceArgument, Names};
use crate::failure::{Exit, Failure, Result};
use crate::opening;
use crate::option_docs::{self, OF_STORES};
use crate::output::{Output, note};
use crate::reshaping;

/// Change options of a store, such as l0_trigger=6, and compact as they require
///
/// `runstone help options` lists them, and `runstone options STORE` prints what they are. All are
/// changed or none.
#[derive(clap::Args)]
pub struct Args {
    /// The store.
    store: PathBuf,
    /// The options; a text needs no quotes, and a list is written as in TOML.
    #[arg(required = true, value_name = "OPTION=VALUE", value_parser = names(),
          hide_possible_values = true)]
    options: Vec<String>,
    #[command(flatten)]
    keyspace: KeyspaceArgument,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        let texts =
            self.options.iter().map(|option| to_toml(option)).collect::<Result<Vec<_>>>()?;
        let wanted = |old: &KeyspaceOptions| {
            let mut new = old.clone();
            for (option, text) in self.options.iter().zip(&texts) {
                new = opening::options_of(&new, text).map_err(|failure| failure.at(option))?;
            }
            Ok(new)
        };
        let done = reshaping::change(&self.store, self.keyspace.name(), wanted, output)?;
        match output.is_json {
            true => output.json(&done.json)?,
            false => note(format!("set {}; {}", self.options.join(", "), done.text)),
        }
        Ok(Exit::Ok)
    }
}

/// All options, for completion.
fn names() -> Names {
    Names(|| option_docs::names().collect())
}

/// One option as TOML, in its section.
fn to_toml(option: &str) -> Result<String> {
    let Some((name, value)) = option.split_once('=') else {
        let hint = "write OPTION=VALUE, such as l0_trigger=6";
        return Err(Failure::usage("an option has no value", hint).at(option));
    };
    let (name, value) = (name.trim(), value.trim());
    let bare = name.rsplit('.').next().unwrap_or(name);
    let found = option_docs::of_keyspaces().find(|(_, option)| option.name == bare);
    let section = found.map(|(section, _)| section).filter(|section| {
        let prefix = name.strip_suffix(bare).unwrap_or_default();
        prefix.is_empty() || prefix.strip_suffix('.') == Some(section)
    });
    let Some(section) = section else { return Err(unknown(name).at(option)) };
    let is_toml = value.starts_with(['[', '"', '\''])
        || matches!(value, "true" | "false")
        || value.parse::<f64>().is_ok();
    let value = match is_toml {
        true => value.to_string(),
        // JSON and TOML have the same escapes in texts.
        false => serde_json::Value::from(value).to_string(),
    };
    match section {
        "" => Ok(format!("{bare} = {value}\n")),
        section => Ok(format!("[{section}]\n{bare} = {value}\n")),
    }
}

fn unknown(name: &str) -> Failure {
    if OF_STORES.iter().any(|option| option.name == name) {
        let what = format!("{name} is an option of an open store, and is not kept in it");
        let hint = "a program gives it in `Options` at each open; see `runstone help options`";
        return Failure::usage(what, hint);
    }
    let known: Vec<&str> = option_docs::names().collect();
    let what = format!("no option is named {name:?}{}", suggest(&nearest(name, &known)));
    Failure::usage(what, "`runstone help options` lists them")
}
