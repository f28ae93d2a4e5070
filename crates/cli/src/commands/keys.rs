//! `keys`: which keys are big or hot, estimated without a scan.

use std::path::PathBuf;

use clap::ArgGroup;
use runstone::metrics::KeyspaceHeat;
use runstone::{KeySurvey, SurveyedKey};
use serde_json::{Map, Value, json};

use crate::arguments::{Encoding, KeyspaceArgument};
use crate::failure::{Exit, Result};
use crate::layout::plural;
use crate::opened::Figures;
use crate::opening::Location;
use crate::output::{Output, amount, columns, rounded, size};

/// Find big and hot keys, without reading the whole store
///
/// All results are estimates, and the output says from how many reads. --big and --sample look at
/// about fifty blocks that are spread over the tables, at large blocks and at pointers to separated
/// values: at most 400 reads, however big the store is. They count replaced and deleted entries as
/// long as these take space.
///
/// --hot asks the process that has the store open: it remembers the keys of about one in 64 of its
/// last reads (gets, and seeks of scans). No file holds these keys, so they are unknown if no
/// process has the store open.
#[derive(clap::Args)]
#[command(group(ArgGroup::new("which").required(true).args(["big", "hot", "sample"])))]
pub struct Args {
    /// The store.
    store: PathBuf,
    /// Prefixes that take the most space, and the largest entries that were found.
    #[arg(long)]
    big: bool,
    /// Keys and prefixes that are read most.
    #[arg(long)]
    hot: bool,
    /// Keys drawn at random: a key that takes twice the space is twice as likely.
    #[arg(long)]
    sample: bool,
    /// How many to list of each kind.
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
    #[command(flatten)]
    keyspace: KeyspaceArgument,
    #[command(flatten)]
    encoding: Encoding,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        let opened = Location::of(&self.store)?.to_read(self.keyspace.name())?;
        let figures = match self.hot {
            true => {
                let heat = opened.heat().map_err(|failure| failure.at(self.store.display()))?;
                self.heat(&heat)
            }
            false => self.survey(&opened.survey(self.limit)?),
        };
        output.figures(&figures.text, &figures.json)?;
        Ok(Exit::Ok)
    }

    fn survey(&self, survey: &KeySurvey) -> Figures {
        let KeySurvey { reads, looked_at, entries, bytes, .. } = *survey;
        let name = self.keyspace.name();
        let is_whole = looked_at >= entries;
        let from = match is_whole {
            true => "all of it was looked at".to_string(),
            false => {
                format!(
                    "estimated from {} and {}",
                    plural(looked_at, "entry"),
                    plural(reads, "read")
                )
            }
        };
        let stored = format!("{} of {name}, {}", plural(entries, "entry"), amount(bytes));
        let mut text = format!("{stored}; {from}\n");
        let mut json = json!({
            "keyspace": name, "entries": entries, "bytes": bytes,
            "looked_at": looked_at, "reads": reads,
        });
        if self.sample {
            let sample = survey.sample.iter();
            text.push_str(&self.entries("key", &survey.sample));
            json["sample"] = sample.map(|entry| self.entry_json(entry)).collect();
            return Figures { text, json };
        }
        let prefixes = survey.prefixes.iter().map(|one| {
            let shown = self.prefix(&one.prefix, one.is_key);
            vec![shown, percent(one.bytes, bytes), size(one.bytes)]
        });
        text.push('\n');
        text.push_str(&columns(&["keys", "share", "bytes"], &prefixes.collect::<Vec<_>>()));
        text.push('\n');
        text.push_str(&self.entries("largest found", &survey.largest));
        json["prefixes"] = survey
            .prefixes
            .iter()
            .map(|one| {
                let mut object = self.key_json("prefix", &one.prefix);
                object.insert("bytes".into(), one.bytes.into());
                object.insert("is_key".into(), one.is_key.into());
                Value::Object(object)
            })
            .collect();
        json["largest"] = survey.largest.iter().map(|entry| self.entry_json(entry)).collect();
        Figures { text, json }
    }

    fn heat(&self, heat: &[KeyspaceHeat]) -> Figures {
        let name = self.keyspace.name();
        let none = KeyspaceHeat::default();
        let of = heat.iter().find(|one| one.keyspace == name).unwrap_or(&none);
        let (keys, prefixes) = (first(&of.keys, self.limit), first(&of.prefixes, self.limit));
        let json_of = |field: &str, list: &[runstone::metrics::Hot]| -> Value {
            let object = |hot: &runstone::metrics::Hot| {
                let mut object = self.key_json(field, &hot.key);
                object.insert("samples".into(), hot.samples.into());
                Value::Object(object)
            };
            list.iter().map(object).collect()
        };
        let json = json!({
            "keyspace": name, "samples": of.samples, "store_samples": of.store_samples,
            "over_ms": of.over_ms, "keys": json_of("key", keys),
            "prefixes": json_of("prefix", prefixes),
        });
        if of.samples == 0 {
            let text = format!(
                "no read of {name} is among those that were sampled in the last 10 minutes, about \
                 one in 64\n"
            );
            return Figures { text, json };
        }
        let share = |samples: u64| vec![percent(samples, of.samples), samples.to_string()];
        let row = |shown: String, samples: u64| [vec![shown], share(samples)].concat();
        let mut text = format!(
            "{} of {name} sampled in {} s, about one in 64; {} of the whole store\n\n",
            plural(of.samples, "read"),
            rounded(of.over_ms as f64 / 1e3),
            of.store_samples,
        );
        let rows = keys.iter().map(|hot| row(self.encoding.show(&hot.key), hot.samples));
        let rows: Vec<_> = rows.collect();
        match rows.is_empty() {
            true => text.push_str("no key was sampled twice\n"),
            false => text.push_str(&columns(&["key", "share", "samples"], &rows)),
        }
        text.push('\n');
        let rows = prefixes.iter().map(|hot| row(self.prefix(&hot.key, false), hot.samples));
        text.push_str(&columns(&["prefix", "share", "samples"], &rows.collect::<Vec<_>>()));
        Figures { text, json }
    }

    /// Prints entries one below the other.
    fn entries(&self, name: &str, entries: &[SurveyedKey]) -> String {
        let row = |entry: &SurveyedKey| {
            let what = match (entry.is_delete, entry.is_separated) {
                (true, _) => "delete",
                (false, true) => "separated value",
                (false, false) => "",
            };
            vec![self.encoding.show(&entry.key), size(entry.bytes), what.to_string()]
        };
        columns(&[name, "bytes", ""], &entries.iter().map(row).collect::<Vec<_>>())
    }

    fn prefix(&self, prefix: &[u8], is_key: bool) -> String {
        let shown = self.encoding.show(prefix);
        if is_key { shown } else { format!("{shown}*") }
    }

    fn key_json(&self, field: &str, key: &[u8]) -> Map<String, Value> {
        let mut object = match self.encoding.object(key, None, None) {
            Value::Object(object) => object,
            _ => Map::new(),
        };
        if let Some(key) = object.remove("key") {
            object.insert(field.into(), key);
        }
        object
    }

    fn entry_json(&self, entry: &SurveyedKey) -> Value {
        let mut object = self.key_json("key", &entry.key);
        object.insert("bytes".into(), entry.bytes.into());
        object.insert("is_separated".into(), entry.is_separated.into());
        object.insert("is_delete".into(), entry.is_delete.into());
        Value::Object(object)
    }
}

fn first<T>(all: &[T], limit: usize) -> &[T] {
    &all[..all.len().min(limit)]
}

fn percent(part: u64, whole: u64) -> String {
    let tenths = u128::from(part) * 1000 / u128::from(whole.max(1));
    format!("{}.{}%", tenths / 10, tenths % 10)
}
