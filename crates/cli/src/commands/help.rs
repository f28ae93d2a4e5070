//! `help`: topics, or a command's own help.

use clap::CommandFactory;
use runstone_policy::options::OptionDoc;
use runstone_policy::registry::{nearest, suggest};
use serde_json::{Value, json};

use super::{policies, presets};
use crate::arguments::Names;
use crate::devices;
use crate::failure::{EXIT_CODES, Exit, Failure, Result};
use crate::option_docs::{self, OF_STORES};
use crate::other_names::instead_of;
use crate::output::{Output, columns};

/// Explain a command or topic: encoding, options, policies, presets, devices, exit-codes
#[derive(clap::Args)]
pub struct Args {
    /// A command, or encoding, options, policies, presets, devices, exit-codes.
    #[arg(value_parser = topics(), hide_possible_values = true)]
    topic: Option<String>,
}

/// Topics that are not commands, in the order of help.
const TOPICS: &[&str] = &["encoding", "options", "policies", "presets", "devices", "exit-codes"];

/// Topics and commands, for completion.
fn topics() -> Names {
    Names(|| TOPICS.iter().copied().chain(super::NAMES.iter().copied()).collect())
}

/// The flag that takes an option of an open store but has a help text of its own.
const SYNC: (&str, &str) = ("durability", "--sync");

/// All flags, each with the command that has it.
fn all_flags<'c>(
    command: &'c clap::Command,
    name: &str,
) -> impl Iterator<Item = (String, &'c clap::Arg)> {
    let own = command.get_arguments().filter(|arg| arg.get_long().is_some());
    let mut all: Vec<_> = own.map(|arg| (name.to_string(), arg)).collect();
    for inner in command.get_subcommands() {
        all.extend(all_flags(inner, format!("{name} {}", inner.get_name()).trim_start()));
    }
    all.into_iter()
}

/// The flag of this command that takes an option of an open store. Its help is the text of the
/// option's declaration, so no list of these flags is kept.
fn store_flag(line: &clap::Command, option: &OptionDoc) -> Option<String> {
    if option.name == SYNC.0 {
        return Some(SYNC.1.to_string());
    }
    let summary = option.summary();
    let is_help = |help: &clap::builder::StyledStr| help.to_string().starts_with(&summary);
    let mut all = all_flags(line, "").filter(|(_, arg)| arg.get_help().is_some_and(is_help));
    let (command, arg) = all.next()?;
    let flag = format!("--{}", arg.get_long()?);
    Some(if all.next().is_some() { flag } else { format!("{command} {flag}") })
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        match self.topic.as_deref() {
            None => print_help(None, output),
            Some("policies") => policies::Args {}.run(output),
            Some("presets") => presets::Args {}.run(output),
            Some("encoding") => print_encoding(output),
            Some("options") => print_options(output),
            Some("devices") => print_devices(output),
            Some("exit-codes") => print_exit_codes(output),
            Some(command) => print_help(Some(command), output),
        }
    }
}

fn print_help(command: Option<&str>, output: &Output) -> Result<Exit> {
    let mut line = crate::CommandLine::command();
    line.build();
    let help = match command {
        None => line.render_long_help(),
        Some(name) => match line.find_subcommand_mut(name) {
            Some(command) => command.render_long_help(),
            None => {
                let known: Vec<&str> = super::NAMES.iter().chain(TOPICS).copied().collect();
                let meant = suggest(&nearest(name, &known));
                let what = format!("there is no command {name:?}, and no topic{meant}");
                let hint = instead_of(name).unwrap_or(
                    "`runstone help` lists the commands; topics are encoding, options, policies, \
                     presets, devices, exit-codes",
                );
                return Err(Failure::usage(what, hint));
            }
        },
    };
    match output.is_json {
        true => output.json(&json!({ "help": help.to_string() }))?,
        false => output.line(help)?,
    }
    Ok(Exit::Ok)
}

/// How keys and values are written.
const ENCODING: &str = r#"Keys and values are bytes. On the command line, in the shell and in
every output they are written in one way, so that what is printed can
be typed again:

  printable text   as it is
  \\               a backslash
  \n  \t           a line feed, a tab
  \xNN             the byte with these two hexadecimal digits

Quote backslashes on the command line, and blanks and quotes there and
in the shell: runstone get STORE 'C:\\new folder'. With --hex, keys and
values are two hexadecimal digits a byte instead, in and out.

With --json the texts are the same, inside of JSON. An object whose
texts differ from the bytes says "encoding":"escaped", or "hex".

put --file and put STORE KEY - take the value as it is, and get prints
it so into a pipe or file, without a line feed. get --text prints it
there as on a terminal, and get --raw on a terminal as it is.

Of the files of import and export, tsv is what scan prints, so that a
backslash in it begins an escape. In a file of another program that
means itself: sed 's/\\/\\\\/g' doubles each, for the import. csv and
directories hold the bytes themselves, and jsonl holds text as it is
and other bytes in base64. All but directories tell when an entry
expires: expires_ms, in milliseconds since 1970.
"#;

fn print_encoding(output: &Output) -> Result<Exit> {
    output.figures(ENCODING, &json!({ "help": ENCODING }))?;
    Ok(Exit::Ok)
}

fn print_exit_codes(output: &Output) -> Result<Exit> {
    if output.is_json {
        let codes = EXIT_CODES.iter().map(|(exit, doc)| json!({ "code": *exit as u8, "doc": doc }));
        output.json(&json!({ "exit_codes": codes.collect::<Vec<_>>() }))?;
        return Ok(Exit::Ok);
    }
    for (exit, doc) in EXIT_CODES {
        output.text(&format!("{:>3}  {doc}\n", *exit as u8))?;
    }
    Ok(Exit::Ok)
}

fn object(option: &OptionDoc, default: String) -> Value {
    json!({ "name": option.name, "default": default, "doc": option.summary() })
}

fn print_options(output: &Output) -> Result<Exit> {
    if output.is_json {
        let options = option_docs::of_keyspaces()
            .map(|(_, option)| object(option, option_docs::default(option.name)));
        let of_store = OF_STORES.iter().map(|option| object(option, option.default().into()));
        output.json(&json!({
            "options": options.collect::<Vec<_>>(), "store_options": of_store.collect::<Vec<_>>(),
        }))?;
        return Ok(Exit::Ok);
    }
    let (mut rows, mut last) = (Vec::new(), "");
    for (section, option) in option_docs::of_keyspaces() {
        if section != last {
            rows.push(vec![format!("[{section}]"), String::new(), option_docs::summary(section)]);
            last = section;
        }
        let default = option_docs::default(option.name);
        rows.push(vec![option.name.to_string(), default, option.summary()]);
    }
    output.text(
        "Options of a keyspace, as a TOML file for --options.\n\
         `runstone options STORE` prints those of a store, and\n\
         `runstone set STORE OPTION=VALUE` changes one.\n\n",
    )?;
    output.bytes(columns(&["option", "default", "what it means"], &rows).as_bytes())?;
    output.text(
        "\nAn option that the file does not name takes its default; with\n`reshape`, it stays.\n\n\
         Options of an open store, which are not kept in it: a program gives\n\
         them at each open (`Options`), the command those that have a flag.\n\n",
    )?;
    let line = crate::CommandLine::command();
    let row = |option: &OptionDoc| {
        let flag = store_flag(&line, option).map(|flag| format!("; {flag}")).unwrap_or_default();
        let meaning = option.summary() + &flag;
        vec![option.name.to_string(), option.default().to_string(), meaning]
    };
    let rows: Vec<Vec<String>> = OF_STORES.iter().map(row).collect();
    output.bytes(columns(&["option", "default", "what it means"], &rows).as_bytes())?;
    Ok(Exit::Ok)
}

fn print_devices(output: &Output) -> Result<Exit> {
    let devices = devices::options();
    if devices.is_empty() {
        let what = "this runstone opens no devices";
        return Err(Failure::usage(what, "build it with the feature devices"));
    }
    if output.is_json {
        let option = |(name, doc): &(&str, &str)| json!({ "name": name, "doc": doc });
        let device = |(scheme, options): (&str, Vec<(&str, &str)>)| {
            let options: Vec<_> = options.iter().map(option).collect();
            json!({ "scheme": scheme, "options": options })
        };
        output.json(&json!({ "devices": devices.map(device) }))?;
        return Ok(Exit::Ok);
    }
    for (scheme, options) in devices {
        output.line(format!("{scheme}:IMAGE?name=value&name=value\n"))?;
        let row = |(name, doc): &(&str, &str)| vec![name.to_string(), doc.to_string()];
        let rows: Vec<Vec<String>> = options.iter().map(row).collect();
        output.bytes(columns(&["option", "what it means"], &rows).as_bytes())?;
        output.line("")?;
    }
    output.text("A device keeps its options; blocks, page and block_pages are its for ever.\n")?;
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Flags that have the name of an option of a store, and mean something else.
    const OTHERS: [(&str, &str); 2] =
        [("keyspace", "the name of a keyspace"), ("seed", "keys and values of a benchmark")];

    /// Guards against a bug: help lacked `bench --compaction-slices`, because it kept a list of
    /// flags of its own.
    #[test]
    fn help_names_each_flag_that_takes_an_option_of_a_store() {
        let line = crate::CommandLine::command();
        let mut told = Vec::new();
        for option in OF_STORES {
            let name = option.name.trim_end_matches("_bytes").trim_end_matches("_seconds");
            let is_namesake = |arg: &clap::Arg| {
                let flag = arg.get_long().unwrap_or_default().replace('-', "_");
                flag == name && !OTHERS.iter().any(|(other, _)| *other == flag)
            };
            let flag = store_flag(&line, option);
            for (command, arg) in all_flags(&line, "").filter(|(_, arg)| is_namesake(arg)) {
                let long = format!("--{}", arg.get_long().unwrap_or_default());
                let is_told = flag.as_ref().is_some_and(|flag| flag.ends_with(&long));
                assert!(
                    is_told,
                    "{command} {long} takes {}, and help does not say so",
                    option.name
                );
            }
            told.extend(flag);
        }
        let expected = match cfg!(feature = "lab") {
            true => {
                vec!["shell --read-only", "--memory-budget", "bench --compaction-slices", "--sync"]
            }
            false => vec!["shell --read-only", "--memory-budget", "--sync"],
        };
        assert_eq!(told, expected);
    }
}
