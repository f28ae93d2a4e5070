//! `help`: topics, or a command's own help.

use clap::CommandFactory;
use runstone::KeyspaceOptions;
use runstone_policy::registry::{nearest, suggest};
use serde_json::json;

use super::{policies, presets};
use crate::arguments::Names;
use crate::devices;
use crate::failure::{EXIT_CODES, Exit, Failure, Result};
use crate::other_names::instead_of;
use crate::output::{Output, columns};

/// Explain a command or topic: encoding, options, policies, presets, devices, exit-codes
#[derive(clap::Args)]
pub struct Args {
    /// A command, or encoding, options, policies, presets, devices, exit-codes.
    #[arg(value_parser = topics(), hide_possible_values = true)]
    topic: Option<String>,
}

/// Topics that are no commands, in the order of help.
const TOPICS: &[&str] = &["encoding", "options", "policies", "presets", "devices", "exit-codes"];

/// Topics and commands, for completion.
fn topics() -> Names {
    Names(|| TOPICS.iter().copied().chain(super::NAMES.iter().copied()).collect())
}

/// What each option means; the defaults come from the options themselves.
const OPTIONS: &[(&str, &str)] = &[
    ("policy", "compaction policy; `runstone policies` lists them"),
    ("write_buffer_bytes", "a memtable is flushed at this size"),
    ("max_immutable_memtables", "memtables that may wait for their flush before writers wait"),
    ("block_bytes", "raw size of a data block"),
    ("restart_interval", "entries of a block for each key that is stored whole"),
    ("hash_index", "whether blocks carry a hash index for point reads"),
    ("filter_bits_per_key", "filter memory, such as 9.9; 0 for none"),
    (
        "filter_allocation",
        "how filter memory is divided: none, uniform, or optimal (more for small levels)",
    ),
    ("prefix", "adaptive-tiering: auto, fixed(8), delimiter(/) or custom(name); never changes"),
    (
        "compaction_install",
        "atomic, or incremental: parts of a large compaction take effect one by one",
    ),
    (
        "sub_compactions",
        "slices: compactions fall into equal parts; components: by whole tables (the paper)",
    ),
    (
        "partition_flushes",
        "whether the partitioner cuts flushes too, into tables of at most shape.table_bytes",
    ),
    ("merge_operator", "what `merge` does: add-i64, max, append(,) and others; never changes"),
    ("compaction_filter", "a filter that the program registers; compactions show it entries"),
    ("ttl_seconds", "seconds after which entries expire; `put --ttl` overrides it; 0 for never"),
    ("compression", "none, lz4 or zstd by level; the last holds for deeper levels"),
    ("l0_slowdown_runs", "level-0 runs at which writers are slowed down"),
    ("l0_stop_runs", "level-0 runs at which writers wait"),
    ("debt_slowdown_bytes", "compaction debt at which writers are slowed down; 0 for no limit"),
    ("[shape]", "the numbers of the compaction policy:"),
    ("size_ratio", "how many times larger a level is than the one above"),
    ("l0_trigger", "level-0 runs that call for a compaction into level 1"),
    ("l0_share_percent", "fragmented-leveling, garnering: share of level 1 that level 0 waits for"),
    ("base_bytes", "capacity of level 1"),
    ("table_bytes", "size at which an output table is closed"),
    ("c", "garnering: 1 is leveling, less means fewer levels"),
    ("max_runs", "K; fluid: most runs of a level above the last; guards: most tables of a guard"),
    ("last_level_runs", "fluid: Z, most runs of the last level"),
    ("split_bytes", "adaptive-tiering: T_s, least size of a table that is cut by prefix"),
    ("intra_level", "adaptive-tiering: which levels compact inside themselves: every or last"),
    ("charge", "adaptive-tiering: what counts as an access: probes or block-reads"),
    ("access_limit", "adaptive-tiering: fewest accesses that call for a compaction inside a level"),
    ("access_bytes", "adaptive-tiering: bytes that such a compaction may rewrite per access"),
    ("stack_runs", "stack policies: k, most runs; universal: where sizes no longer matter"),
    ("universal_trigger", "universal: runs at which sizes are first compared"),
    (
        "universal_amp_percent",
        "universal: all runs compact once the newer have this percentage of the oldest",
    ),
    ("universal_ratio_percent", "universal: how many percent larger the next run may be"),
    ("universal_min_width", "universal: fewest runs gathered by size"),
    ("universal_max_width", "universal: most runs gathered"),
    ("max_space_percent", "all is compacted above this percentage of what is live; 0: no bound"),
    ("partitioner", "where compactions cut: none, size, local-range, global-range, .. or prefix"),
    ("[values]", "where values lie:"),
    ("placement", "inline, vlog (a log, WiscKey) or hash-grouped (HashKV)"),
    ("separate_at", "values of this many bytes or more lie apart from their keys"),
    ("groups", "hash-grouped: groups by hash of the key; never changes"),
    ("slot_bytes", "unit in which space of the value file is given out; never changes"),
    ("capacity_bytes", "value bytes that the file is made for; 0: as many as are live"),
    ("cold_stream", "whether collections of groups move what is not updated to a cold stream"),
    ("reserve", "space for garbage, as a share of the capacity"),
    ("when_full", "when nothing can be freed: grow, stall (then grow), or error"),
    ("stall_ms", "when_full = stall: longest wait for snapshots to go"),
    ("gc_pointers", "hash-grouped: stable, or writeback: collections write pointers (HashKV)"),
    ("scan_ahead_bytes", "value bytes that a scan reads ahead; 0: each value when its turn comes"),
    ("vlog_chunk_bytes", "vlog: bytes that one collection takes from the tail"),
];

/// Options of an open store, which are not kept in it; the defaults are those of [`Options`].
const STORE_OPTIONS: &[(&str, &str, &str)] = &[
    ("create_if_missing", "true", "whether an open makes a store where there is none"),
    ("read_only", "false", "whether nothing on the disk may change; `shell --read-only`"),
    ("memory_budget_bytes", "512M", "buffers, log, cache, index, filters; --memory-budget"),
    ("background", "cores, 2 to 8", "threads for flushes and compactions"),
    ("compaction_slices", "idle cores", "threads of one large compaction"),
    ("wal_segment_bytes", "8M", "size of a log segment; this command writes 256K at a time"),
    ("max_wal_bytes", "1G", "a log of this size flushes the keyspace that holds it up"),
    ("wal_mode", "mapped", "how log records reach the system: mapped or write"),
    ("flush_at_close", "true", "whether a close writes memtables to tables; here `import` does"),
    ("max_open_files", "half of ulimit -n", "tables and value files that are open at a time"),
    ("io_uring", "false", "whether scans read many separated values at once by io_uring"),
    ("durability", "buffered", "of writes that choose none: buffered, or sync as with --sync"),
    ("max_delayed_bytes_per_second", "256M", "highest rate of writes that are held back"),
    ("idle_after", "5s", "rest after which leftovers of deletes are compacted"),
    ("seed", "of the system", "of random ids, for tests"),
    ("listener", "none", "receives events; this command tells of a lost end of the log"),
    ("clock", "of the system", "by which entries expire"),
    ("prefix_extractors", "none", "rules that prefix = \"custom(NAME)\" names"),
    ("compaction_filters", "none", "filters that compaction_filter names"),
    ("merge_operators", "none", "operators that merge_operator names beside the built-in ones"),
    ("keyspace", "stored, or balanced", "options of the default keyspace, as above"),
];

/// The section of the TOML that an option of a keyspace stands in, empty for those above all
/// sections; `None` if there is no such option.
pub fn section_of(name: &str) -> Option<&'static str> {
    let mut section = "";
    for (known, _) in OPTIONS {
        match known.strip_prefix('[').and_then(|known| known.strip_suffix(']')) {
            Some(next) => section = next,
            None if *known == name => return Some(section),
            None => {}
        }
    }
    None
}

/// The names of the options of a keyspace.
pub fn option_names() -> impl Iterator<Item = &'static str> {
    OPTIONS.iter().map(|(name, _)| *name).filter(|name| !name.starts_with('['))
}

/// Whether it is an option of an open store.
pub fn is_of_store(name: &str) -> bool {
    STORE_OPTIONS.iter().any(|(known, ..)| *known == name)
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

/// The defaults as TOML, with those that are not written because they say nothing.
fn defaults() -> String {
    format!(
        "merge_operator = \"\"\ncompaction_filter = \"\"\nttl_seconds = 0\n{}",
        KeyspaceOptions::default().to_toml()
    )
}

fn print_options(output: &Output) -> Result<Exit> {
    let text = defaults();
    let default = |name: &str| {
        let start = format!("{name} = ");
        text.lines().find_map(|line| line.strip_prefix(&start)).unwrap_or_default().to_string()
    };
    if output.is_json {
        let options = OPTIONS.iter().filter(|(name, _)| !name.starts_with('['));
        let options = options
            .map(|(name, doc)| json!({ "name": name, "default": default(name), "doc": doc }));
        let of_store = STORE_OPTIONS
            .iter()
            .map(|(name, default, doc)| json!({ "name": name, "default": default, "doc": doc }));
        output.json(&json!({
            "options": options.collect::<Vec<_>>(), "store_options": of_store.collect::<Vec<_>>(),
        }))?;
        return Ok(Exit::Ok);
    }
    let row =
        |(name, doc): &(&str, &str)| vec![name.to_string(), default(name), (*doc).to_string()];
    let rows: Vec<Vec<String>> = OPTIONS.iter().map(row).collect();
    output.text(
        "Options of a keyspace, as a TOML file for --options.\n\
         `runstone options STORE` prints those of a store, and\n\
         `runstone set STORE OPTION=VALUE` changes one.\n\n",
    )?;
    output.bytes(columns(&["option", "default", "what it means"], &rows).as_bytes())?;
    output.text(
        "\nAn option that the file does not name takes its default; with\n`reshape`, it stays.\n\n\
         Options of an open store, which are not kept in it: a program gives\n\
         them at each open (`Options`), the command those that name a flag.\n\n",
    )?;
    let row = |(name, default, doc): &(&str, &str, &str)| {
        [name, default, doc].map(|cell| cell.to_string()).to_vec()
    };
    let rows: Vec<Vec<String>> = STORE_OPTIONS.iter().map(row).collect();
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
    use runstone::Options;

    use super::*;

    #[test]
    fn every_option_is_explained() {
        let text = defaults();
        let names: Vec<&str> =
            text.lines().filter_map(|line| line.split(" = ").next()).map(str::trim).collect();
        for name in names.iter().filter(|name| !name.is_empty()) {
            assert!(OPTIONS.iter().any(|(known, _)| known == name), "{name} has no explanation");
        }
        for (known, _) in OPTIONS {
            assert!(names.contains(known), "{known} is no option");
        }
        assert_eq!((section_of("policy"), section_of("groups")), (Some(""), Some("values")));
        assert_eq!(section_of("[shape]"), None);
    }

    #[test]
    fn every_option_of_a_store_is_explained() {
        let explained = STORE_OPTIONS.iter().map(|(name, ..)| name);
        assert!(Options::FIELDS.iter().eq(explained));
    }
}
