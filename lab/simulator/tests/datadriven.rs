//! Runs the text tests in `testdata/`: each gives a policy and a workload, and the expected report
//! of the simulator.
//!
//! A test is a line `simulate POLICY key=value ..`, options of the policy as TOML, `----`, and the
//! expected report up to an empty line. `REWRITE=1` writes the actual reports into the files. Lines
//! that start with `#` between tests are comments.
//!
//! The keys: `flushes` and `flush` (their bytes), `entry` (bytes), `keys` (how many there may be),
//! `order` (`uniform`, `sequential`), `seed`, `prefixes`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use runstone_policy::options::PolicyOptions;
use runstone_policy::registry;
use runstone_policy::text::format_bytes;
use runstone_simulator::{KeyOrder, SimReport, SimWorkload, Simulator};

#[test]
fn testdata() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/testdata");
    let mut paths: Vec<_> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    let rewrite = std::env::var_os("REWRITE").is_some();
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap();
        let actual = text.trim_end().split("\n\n").map(run_block).collect::<Vec<_>>().join("\n\n");
        match rewrite {
            true => std::fs::write(&path, actual + "\n").unwrap(),
            false => assert_eq!(text.trim_end(), actual, "{}; REWRITE=1 accepts", path.display()),
        }
    }
}

/// A test with its actual report in place of the expected one.
fn run_block(block: &str) -> String {
    let Some((input, _)) = block.split_once("\n----") else {
        return block.to_owned();
    };
    let mut lines = input.lines().skip_while(|line| line.starts_with('#'));
    let directive = lines.next().unwrap_or("");
    let options = lines.collect::<Vec<_>>().join("\n");
    let report = simulate(directive, &options).unwrap_or_else(|error| format!("error: {error}"));
    format!("{input}\n----\n{}", report.trim_end())
}

fn simulate(directive: &str, options: &str) -> Result<String, String> {
    let mut words = directive.split_whitespace();
    if words.next() != Some("simulate") {
        return Err(format!("unknown directive {directive}"));
    }
    let policy = registry::find(words.next().unwrap_or("")).map_err(|error| error.to_string())?;
    let words: BTreeMap<&str, &str> = words.filter_map(|word| word.split_once('=')).collect();
    let number = |key: &str, default: u64| match words.get(key) {
        Some(text) => parse_number(text),
        None => Ok(default),
    };
    let workload = SimWorkload {
        flush_bytes: number("flush", 64 << 20)?,
        entry_bytes: number("entry", 128)?,
        key_space: number("keys", 1 << 40)?,
        order: match words.get("order") {
            None | Some(&"uniform") => KeyOrder::Uniform,
            Some(&"sequential") => KeyOrder::Sequential,
            Some(other) => return Err(format!("unknown order {other}")),
        },
        seed: number("seed", 1)?,
        prefix_count: number("prefixes", 128)?,
    };
    // The trigger is fixed here, so that the reports do not change with the default.
    let options = format!("l0_trigger = 4\n{options}");
    let options: PolicyOptions = toml::from_str(&options).map_err(|error| error.to_string())?;
    policy.check(&options).map_err(|error| error.to_string())?;
    let mut simulator = Simulator::new(policy, options, workload);
    let report = simulator.run(number("flushes", 100)?).map_err(|error| error.to_string())?;
    Ok(show(&report))
}

fn show(report: &SimReport) -> String {
    let mut out = String::new();
    let sizes = [
        ("user", report.user_bytes),
        ("flushed", report.flushed_bytes),
        ("compaction read", report.compaction_read_bytes),
        ("compacted", report.compacted_bytes),
        ("moved", report.moved_bytes),
    ];
    for (name, bytes) in sizes {
        writeln!(out, "{name} {}", format_bytes(bytes)).unwrap();
    }
    writeln!(out, "wa {} / 1000", report.write_amplification_permille).unwrap();
    writeln!(out, "runs per get {} / 1000", report.tables_probed_per_get_permille).unwrap();
    writeln!(out, "plans {}, L0 runs <= {}", report.plan_count, report.max_l0_run_count).unwrap();
    for level in &report.levels {
        let (size, tables) = (format_bytes(level.bytes), level.table_count);
        writeln!(out, "L{} {size} tables={tables} runs={}", level.level, level.run_count).unwrap();
    }
    out
}

/// `400K`: digits and a power of 1,024.
fn parse_number(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(['K', 'M', 'G', 'T']);
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(format!("bad number {text}")),
    };
    digits
        .parse::<u64>()
        .map(|number| number << shift)
        .map_err(|error| format!("bad number {text}: {error}"))
}
