//! Checks the text for Prometheus against the rules of `promtool check metrics`, with our own
//! checker and, if it is installed, with promtool itself. Promtool is in Debian's package
//! `prometheus`, or comes with `go install github.com/prometheus/prometheus/cmd/promtool@v0.316.0`.
//! Hosted CI installs it, and there a test without it fails.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;

use runstone::storage::MemoryStorage;
use runstone::unstable;
use runstone::{
    Background, Batch, KeyspaceOptions, Options, Store, TransactionOptions, ValuePlacement,
    WriteOptions,
};

/// A name that must be escaped in a label.
const TRICKY: &str = "or\\ders \"<new>\" {a=\"b\"} 7";

fn open() -> Store {
    let mut keyspace = KeyspaceOptions::default();
    keyspace.write_buffer_bytes = 64 << 10;
    let shape = unstable::numbers_mut(&mut keyspace);
    shape.table_bytes = 32 << 10;
    shape.base_bytes = 128 << 10;
    let options = Options::default()
        .memory_budget_bytes(4 << 20)
        .wal_segment_bytes(256 << 10)
        .keyspace(keyspace)
        .background(Background::Manual);
    Store::open_on(Arc::new(MemoryStorage::new()), options).expect("open")
}

/// The samples, by name and labels.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let sample = |line: &str| {
        let (series, value) = line.rsplit_once(' ').expect("a name and a value");
        (series.to_string(), value.parse().expect("a number"))
    };
    lines.map(sample).collect()
}

/// The kind of each metric.
fn kinds(text: &str) -> BTreeMap<String, String> {
    let typed = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let split = typed.map(|line| line.split_once(' ').expect("a name and a kind"));
    split.map(|(name, kind)| (name.to_string(), kind.to_string())).collect()
}

/// The name of a series, without labels.
fn name_of(series: &str) -> &str {
    series.split('{').next().unwrap_or(series)
}

/// The metric that a sample belongs to, and its kind.
fn metric_of<'a>(name: &'a str, kinds: &'a BTreeMap<String, String>) -> Option<(&'a str, &'a str)> {
    let of_summary = || {
        let mut names = ["_sum", "_count"].iter().filter_map(|end| name.strip_suffix(end));
        names.find(|name| kinds.get(*name).is_some_and(|kind| kind == "summary"))
    };
    let metric = kinds.contains_key(name).then_some(name).or_else(of_summary)?;
    Some((metric, &kinds[metric]))
}

/// Checks what promtool checks, and a little more: every metric has one HELP and one TYPE before
/// its samples, which are together; only counters end in `_total`; summaries have `_sum` and
/// `_count`; units are base units, written out.
fn check(text: &str) -> Vec<String> {
    const NO_BASE_UNITS: [&str; 18] = [
        "ns",
        "us",
        "ms",
        "s",
        "sec",
        "nanoseconds",
        "microseconds",
        "milliseconds",
        "minutes",
        "hours",
        "b",
        "kb",
        "mb",
        "kib",
        "bits",
        "permille",
        "percent",
        "pct",
    ];
    let mut wrong = Vec::new();
    let (mut metric, mut seen) = (String::new(), BTreeSet::new());
    let kinds = kinds(text);
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap_or((rest, ""));
            if help.is_empty() || !seen.insert(name.to_string()) {
                wrong.push(format!("{name}: no help, or twice"));
            }
            metric = name.to_string();
            let words: Vec<&str> = name.split('_').collect();
            if words.iter().any(|word| NO_BASE_UNITS.contains(word)) {
                wrong.push(format!("{name}: not in bytes, seconds or as a ratio"));
            }
            let is_counter = kinds.get(name).is_some_and(|kind| kind == "counter");
            if is_counter != name.ends_with("_total") {
                wrong.push(format!("{name}: counters end in _total, and nothing else does"));
            }
        } else if !line.starts_with("# TYPE ") {
            let name = name_of(line.rsplit_once(' ').map_or(line, |(series, _)| series));
            if metric_of(name, &kinds).is_none_or(|(of, _)| of != metric) {
                wrong.push(format!("{name}: a sample outside of its metric"));
            }
        }
    }
    for (name, _) in kinds.iter().filter(|(_, kind)| *kind == "summary") {
        for end in ["_sum", "_count"] {
            if !text.contains(&format!("\n{name}{end} ")) {
                wrong.push(format!("{name}: no {end}"));
            }
        }
    }
    wrong
}

/// Reports that a check was left out. Hosted CI must leave nothing out, and sets the variable.
fn without_promtool(what: &str) {
    let is_needed = std::env::var_os("RUNSTONE_NEEDS_PROMTOOL").is_some();
    assert!(!is_needed, "promtool is not installed: ci.yml should install it for {what}");
    eprintln!("promtool is not installed: {what} was not run");
}

/// The output of promtool; `None` if promtool is not installed.
fn promtool(text: &str) -> Option<String> {
    let (input, output) = (Stdio::piped(), Stdio::piped());
    let mut command = Command::new("promtool");
    let command = command.args(["check", "metrics"]).stdin(input).stderr(output);
    let mut child = match command.stdout(Stdio::null()).spawn() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            without_promtool("check metrics");
            return None;
        }
        spawned => spawned.expect("promtool starts"),
    };
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(text.as_bytes()).expect("promtool reads");
    drop(stdin);
    let done = child.wait_with_output().expect("promtool ends");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.success(), said.is_empty(), "{said}");
    Some(said)
}

/// Once, samples had no help and type, latencies had no sum, and times were in nanoseconds.
#[test]
fn the_text_passes_promtool() {
    let store = open();
    let check_text = || {
        let text = store.metrics().to_prometheus();
        assert_eq!(check(&text), [""; 0], "{text}");
        assert_eq!(promtool(&text).unwrap_or_default(), "", "{text}");
    };
    check_text();
    let tricky = store.open_keyspace(TRICKY, None).expect("made");
    (0..2000u32).for_each(|i| tricky.put(i.to_be_bytes(), [7; 100]).expect("put"));
    store.compact().expect("compacted");
    check_text();
}

#[test]
fn the_checker_finds_what_promtool_finds() {
    let good = "# HELP a_seconds_total A.\n# TYPE a_seconds_total counter\na_seconds_total 1\n";
    assert_eq!(check(good), [""; 0]);
    for bad in [
        "a_total 1\n",
        "# HELP a A.\n# TYPE a counter\na 1\n",
        "# HELP a_total A.\n# TYPE a_total gauge\na_total 1\n",
        "# HELP a_ns_total A.\n# TYPE a_ns_total counter\na_ns_total 1\n",
        "# HELP a_seconds A.\n# TYPE a_seconds gauge\na_seconds 1\na_seconds_count 1\n",
    ] {
        assert!(!check(bad).is_empty(), "{bad}");
        // For a metric without its own help and type, promtool exits with success, but prints a
        // warning.
        assert!(promtool(bad).is_none_or(|said| !said.is_empty()), "{bad}");
    }
    let no_sum = "# HELP a_seconds A.\n# TYPE a_seconds summary\na_seconds_count 1\n";
    assert_eq!(check(no_sum), ["a_seconds: no _sum"]);
}

/// Takes the samples, and checks that no counter fell except those of a dropped keyspace.
fn none_fell(store: &Store, before: &mut BTreeMap<String, f64>, step: &str) {
    let text = store.metrics().to_prometheus();
    let (now, kinds) = (samples(&text), kinds(&text));
    for (series, was) in before.iter() {
        let (_, kind) = metric_of(name_of(series), &kinds).expect("a metric");
        let is_counter = kind == "counter" || !series.contains('{') && kind == "summary";
        match now.get(series) {
            Some(is) => assert!(!is_counter || is >= was, "{step}: {series}: {was}, {is}"),
            None => assert!(series.contains("keyspace=\"apart\""), "{step}: {series} is gone"),
        }
    }
    *before = now;
}

/// The counters that the workload below changes.
const MOVED: &str = r#"
    gets_total get_hits_total writes_total commits_total user_bytes_written_total
    value_bytes_written_total values_read_total seeks_total iterated_total runs_sought_total
    hits_memtable_total hits_level_0_total tables_probed_total filter_negatives_total
    blocks_searched_total flushes_total flush_bytes_written_total compactions_total
    compaction_bytes_read_total compaction_bytes_written_total entries_dropped_total
    transactions_committed_total wal_syncs_total commit_seconds_count commit_seconds_sum
    get_seconds_count get_seconds_sum sync_seconds_count table_bytes table_entries filter_bytes
    storage_bytes_total{category="table",direction="written"}
    storage_operations_total{category="table",operation="write"}
"#;
const MOVED_OF_BOTH: &str = "flushes_total flush_bytes_written_total compactions_total
    compaction_bytes_read_total compaction_bytes_written_total table_bytes";

/// Every metric that a text names.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'));
    words.filter(|word| word.starts_with("runstone_")).map(str::to_string).collect()
}

/// An alert on a metric that does not exist never fires.
#[test]
fn alerts_and_dashboard_name_metrics_that_are_there() {
    let text = open().metrics().to_prometheus();
    let series = samples(&text);
    let there: BTreeSet<&str> = series.keys().map(|series| name_of(series)).collect();
    let alerts = include_str!("../../../docs/how-to/monitoring/alerts.yml");
    let dashboard = include_str!("../../../docs/how-to/monitoring/dashboard.json");
    serde_json::from_str::<serde_json::Value>(dashboard).expect("JSON");
    for (name, least, text) in [("alerts", 8, alerts), ("dashboard", 20, dashboard)] {
        let named = named(text);
        assert!(named.len() > least, "{name}: {named:?}");
        let missing: Vec<&String> = named.iter().filter(|one| !there.contains(&***one)).collect();
        assert!(missing.is_empty(), "{name}: {missing:?}");
    }
}

/// Each alert has a case in which it fires. Promtool runs the cases, if it is installed.
#[test]
fn alerts_fire() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/how-to/monitoring");
    let read = |name: &str| std::fs::read_to_string(format!("{folder}/{name}")).expect("a file");
    let (alerts, tests) = (read("alerts.yml"), read("alerts_test.yml"));
    let names = alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    let names: Vec<&str> = names.collect();
    assert!(names.len() >= 7, "{names:?}");
    for name in names {
        let cases: Vec<&str> = tests.split(&format!("- alertname: {name}\n")).skip(1).collect();
        let expected = |case: &&&str| case.lines().nth(1).is_some_and(|line| line.ends_with(':'));
        let firing = cases.iter().filter(expected).count();
        assert!(firing > 0 && firing < cases.len(), "{name}: fires, and stays silent");
    }
    for what in [["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]] {
        match Command::new("promtool").args(what).current_dir(folder).output() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                without_promtool(&what.join(" "));
            }
            ran => {
                let ran = ran.expect("promtool starts");
                let said = [ran.stdout, ran.stderr].concat();
                assert!(ran.status.success(), "{}", String::from_utf8_lossy(&said));
            }
        }
    }
}

/// Counters count what happens, and never fall: not when compactions drop tables, nor when a
/// keyspace is dropped.
#[test]
fn counters_move_and_never_fall() {
    let store = open();
    let mut options = KeyspaceOptions::clone(&store.default_keyspace().options());
    options.values.placement = ValuePlacement::Vlog;
    options.values.separate_at = 50;
    let apart = store.open_keyspace("apart", Some(options)).expect("made");
    let mut seen = samples(&store.metrics().to_prometheus());
    let first = seen.clone();
    let key = |i: u32| (i.wrapping_mul(2_654_435_761) % 100_000).to_be_bytes();
    for round in 0..4u32 {
        for i in 0..3000 {
            store.put(key(i), [round as u8; 100]).expect("put");
            apart.put(key(i), [round as u8; 100]).expect("put");
        }
        none_fell(&store, &mut seen, "puts");
        (0..3000).for_each(|i| assert!(store.get(key(i)).expect("get").is_some()));
        (0..500).for_each(|i| assert!(store.get([i as u8; 7]).expect("get").is_none()));
        assert!(apart.get(key(1)).expect("get").is_some());
        assert_eq!(store.default_keyspace().iter().expect("a scan").count(), 3000);
        none_fell(&store, &mut seen, "reads");
        store.flush().expect("flushed");
        (0..300).for_each(|i| assert!(apart.get(key(i)).expect("get").is_some()));
        none_fell(&store, &mut seen, "a flush");
        while store.run_one_job().expect("a job") {
            none_fell(&store, &mut seen, "a compaction");
        }
    }
    write_the_rest(&store);
    none_fell(&store, &mut seen, "everything in one run");
    let moved = |series: &str| seen[series] > first.get(series).copied().unwrap_or(0.0);
    for name in MOVED.split_whitespace() {
        assert!(moved(&format!("runstone_{name}")), "{name}");
    }
    for name in MOVED_OF_BOTH.split_whitespace() {
        for keyspace in ["default", "apart"] {
            let series = format!("runstone_keyspace_{name}{{keyspace=\"{keyspace}\"}}");
            assert!(moved(&series), "{series}");
        }
    }
    store.drop_keyspace("apart").expect("dropped");
    store.default_keyspace().clear().expect("cleared");
    store.compact().expect("compacted");
    none_fell(&store, &mut seen, "dropped tables");
    assert_eq!(seen["runstone_table_bytes"], 0.0);
}

fn write_the_rest(store: &Store) {
    let mut transaction = store.begin(TransactionOptions::default()).expect("begun");
    transaction.put(store.default_keyspace(), "k", "v").expect("put");
    transaction.commit(WriteOptions::default()).expect("committed");
    let mut batch = Batch::new();
    batch.delete(store.default_keyspace(), "k").expect("added");
    store.write(&batch, WriteOptions::default()).expect("written");
    store.sync().expect("synced");
    store.compact().expect("compacted");
}
