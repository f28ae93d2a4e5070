//! `set`: changes single options of a keyspace, and settings of a store that another process has
//! open.

use std::path::PathBuf;
use std::time::Duration;

use runstone::{KeyspaceOptions, LiveRequest, LiveSetting};
use runstone_policy::registry::{nearest, suggest};

use crate::arguments::{KeyspaceArgument, Names};
use crate::failure::{Exit, Failure, Result};
use crate::keyspaces;
use crate::opening::{self, Location};
use crate::option_docs::{self, OF_STORES};
use crate::output::{Output, note};
use crate::reshaping;
use serde_json::{Value, json};

/// How long to wait for the process that has the store open. It looks for requests twice a second,
/// and a change of options waits for the running compactions.
const PATIENCE: Duration = Duration::from_secs(10);

/// Change options of a store, such as l0_trigger=6, and compact as they require
///
/// `runstone help options` lists them, and `runstone options STORE` prints their present values.
/// Either all are changed or none.
///
/// If another process has the store open, it is asked to change them, and its compactions follow.
/// Then it can also be asked for memory_budget_bytes, background_threads,
/// background_io_bytes_per_second (or unlimited), target_p99 (a latency for which background I/O
/// slows down, such as 5ms, or off) and compactions (paused or running), which act until it closes
/// the store, and scrub (read all files at this many bytes a second, or off).
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
        let is_setting = |option: &&String| {
            let name = option.split('=').next().unwrap_or_default().trim();
            LiveSetting::names().any(|known| known == name)
        };
        let settings: Vec<&String> = self.options.iter().filter(is_setting).collect();
        let options: Vec<&String> = self.options.iter().filter(|one| !is_setting(one)).collect();
        let texts = options.iter().map(|option| to_toml(option)).collect::<Result<Vec<_>>>()?;
        let location = Location::of(&self.store)?;
        if location.is_in_use()? {
            return self.ask(&settings, &texts, output);
        }
        if let Some(first) = settings.first() {
            let what = "this is a setting of an open store, and is not kept in it";
            let hint = "no process has this one open; a program gives it in `Options` at each open";
            return Err(Failure::usage(what, hint).at(first));
        }
        let wanted = |old: &KeyspaceOptions| {
            let mut new = old.clone();
            for (option, text) in options.iter().zip(&texts) {
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

    /// Requests the changes from the process that has the store open.
    fn ask(&self, settings: &[&String], options: &[String], output: &Output) -> Result<Exit> {
        let name = self.keyspace.name();
        keyspaces::refuse_reserved(name)?;
        let mut request = LiveRequest::new();
        for setting in settings {
            let Some((name, value)) = setting.split_once('=') else {
                return Err(no_value().at(setting));
            };
            request = request.setting(name.trim(), value.trim());
        }
        for option in options {
            request = request.options(name, option);
        }
        let path = self.store.display();
        let changes =
            request.send(&self.store, PATIENCE).map_err(|error| Failure::from(error).at(&path))?;
        if output.is_json {
            let change = |one: &runstone::LiveChange| -> Value {
                json!({ "name": one.name, "old": one.old, "new": one.new })
            };
            output.json(&json!({ "changes": changes.iter().map(change).collect::<Vec<_>>() }))?;
            return Ok(Exit::Ok);
        }
        for change in &changes {
            note(format!("{}: {} -> {}", change.name, change.old, change.new));
        }
        if changes.is_empty() {
            note("nothing changed: the options have these values");
        }
        Ok(Exit::Ok)
    }
}

/// All options, for completion.
fn names() -> Names {
    Names(|| option_docs::names().chain(LiveSetting::names()).collect())
}

/// A setting `NAME=VALUE` as TOML, in the section of the option.
fn to_toml(option: &str) -> Result<String> {
    let Some((name, value)) = option.split_once('=') else {
        return Err(no_value().at(option));
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

fn no_value() -> Failure {
    Failure::usage("an option has no value", "write OPTION=VALUE, such as l0_trigger=6")
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
