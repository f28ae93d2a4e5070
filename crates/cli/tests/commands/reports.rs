//! Pictures, numbers and long-running commands: shape, stats, compact, checkpoint, bench, demo.

use runstone::{Options, Store};

use crate::Place;

fn filled() -> Place {
    let place = Place::new();
    let line = |i: u32| format!("key{:06}\tvalue <{i}> & \"more\"\n", i * 7919 % 20_000);
    place.write("x.tsv", (0..20_000).map(line).collect::<String>());
    place.write("o.toml", "write_buffer_bytes = 131072\n[shape]\ntable_bytes = 65536\n");
    place.ok(&["import", "s", "x.tsv", "--options", "o.toml"]);
    place
}

#[test]
fn the_shape_is_drawn() {
    let place = filled();
    let text = place.ok(&["shape", "s"]);
    assert!(
        text.contains("L1") && text.contains("█") && text.contains("next compaction: "),
        "{text}"
    );
    let shape = place.json(&["shape", "s"]);
    let tables: usize = shape["levels"]
        .as_array()
        .expect("levels")
        .iter()
        .flat_map(|level| level["runs"].as_array().expect("runs"))
        .map(|run| run["tables"].as_array().expect("tables").len())
        .sum();
    assert_eq!(shape["tables"], tables);
    place.ok(&["shape", "s", "--svg", "s.svg", "--html", "s.html"]);
    let svg = std::fs::read_to_string(place.path("s.svg")).expect("a file");
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    let html = std::fs::read_to_string(place.path("s.html")).expect("a file");
    assert!(html.starts_with("<!DOCTYPE html>") && html.ends_with("</body></html>\n"));
    assert!(html.contains("<meta name=\"viewport\""));
    // A page has a wide and a narrow drawing.
    for (text, drawings) in [(&svg, 1), (&html, 2)] {
        assert_eq!(text.matches("<title>table ").count(), drawings * tables, "{text}");
        assert_eq!(text.matches("<text").count(), text.matches("</text>").count());
        for told in [">s, keyspace default<", " UTC<", "KiB", ">table without tombstones<"] {
            assert!(text.matches(told).count() >= drawings, "{told}: {text}");
        }
        assert!(text.contains(">key000000<") && text.contains(">key019999<"), "real keys: {text}");
    }
    assert_eq!(place.run(&["shape", "s", "--svg", "s.svg"]).code, 5, "nothing is overwritten");
}

#[test]
fn stats_verify_compact_checkpoint() {
    let place = filled();
    assert!(place.ok(&["stats", "s"]).contains("fragmented-leveling"));
    assert!(
        place.ok(&["stats", "s", "--prometheus"]).contains("# TYPE runstone_table_bytes gauge")
    );
    assert_eq!(place.json(&["stats", "s"])["keyspaces"][0]["name"], "default");
    assert!(place.ok(&["verify", "s"]).contains("no damage"));
    place.ok(&["checkpoint", "s", "copy"]);
    assert_eq!(place.ok(&["scan", "copy"]), place.ok(&["scan", "s"]));
    assert_eq!(place.run(&["checkpoint", "s", "copy"]).code, 5, "nothing is overwritten");
    place.ok(&["delete", "s", "key000000"]);
    place.ok(&["compact", "s"]);
    let shape = place.json(&["shape", "s"]);
    let runs = shape["levels"].as_array().expect("levels").iter().map(|level| &level["runs"]);
    assert_eq!(runs.filter_map(|runs| runs.as_array()).map(Vec::len).sum::<usize>(), 1);
    assert_eq!(place.ok(&["count", "s"]), "19999\n");
    assert_eq!(place.ok(&["count", "copy"]), "20000\n");
}

/// Once, a store whose value file had holes reported a size as if nothing had been freed: a
/// compaction seemed to make the store larger. Punched space is not counted, nor is the log,
/// which is removed when the command ends.
#[test]
fn sizes_leave_out_what_was_given_back() {
    let place = Place::new();
    let line = |i: u32| format!("key{i:04}\t{i:01000}\n");
    let all: String = (0..2_000).map(line).collect();
    place.write("all.tsv", &all);
    // An import that fails does not compact the entries that it replaced.
    place.write("bad.tsv", all + "bad\n");
    let values = "[values]\nplacement = \"hash-grouped\"\ngroups = 4\nslot_bytes = 16384\n\
                  separate_at = 100\n";
    for pointers in ["stable", "writeback"] {
        place.write("o.toml", format!("{values}gc_pointers = \"{pointers}\"\n"));
        place.ok(&["import", pointers, "all.tsv", "--options", "o.toml"]);
        assert_eq!(place.run(&["import", pointers, "bad.tsv", "--strict"]).code, 1);
        let compacted = place.json(&["compact", pointers]);
        let bytes = |name: &str| compacted[name].as_u64().expect("bytes");
        assert!(bytes("after_bytes") * 3 < bytes("before_bytes") * 2, "{compacted}");
        let stats = place.json(&["stats", pointers]);
        let file = &stats["keyspaces"][0]["values"][0];
        let (disk, file) = (stats["disk_bytes"].as_u64(), file["disk_bytes"].as_u64());
        assert!(disk > file && disk < Some(bytes("after_bytes") + (64 << 10)), "{stats}");
    }
}

/// Each field that a command prints is in JSON.md: scripts may rely on these fields only.
#[test]
fn every_field_is_documented() {
    let place = filled();
    place.write("v.toml", "[values]\nplacement = \"hash-grouped\"\nseparate_at = 1\n");
    place.ok(&["import", "v", "x.tsv", "--options", "v.toml"]);
    for arguments in [
        &["stats", "v"][..],
        &["shape", "v"],
        &["verify", "v"],
        &["compact", "v"],
        &["checkpoint", "v", "copy"],
        &["dump", "v"],
        &["dump", "v", "CURRENT"],
        &["import", "i", "x.tsv"],
        &["export", "v", "out.jsonl"],
        &["count", "v"],
        &["scan", "v", "--limit", "2"],
        &["get", "v", "key000000"],
        &["put", "v", "k", "v"],
        &["delete", "v", "k"],
        &["put", "v", "k", "v", "--keyspace", "gone"],
        &["drop", "v", "gone", "--yes"],
        &["bench", "fillseq,readseq,stats", "--num", "1000", "--histogram"],
        &["bench"],
        &["reshape", "s", "--policy", "tiering"],
        &["set", "s", "policy=leveling", "l0_trigger=6"],
        &["options", "s"],
        &["simulate", "--size", "1G", "--policy", "leveling"],
        &["demo", env!("CARGO_MANIFEST_DIR")],
        &["policies"],
        &["presets"],
        &["paper"],
        &["help", "options"],
        &["help", "devices"],
        &["help", "exit-codes"],
    ] {
        check_fields(&place.json(arguments), arguments);
    }
}

/// Names of options and counters are listed by `help options` and `stats --prometheus`.
fn check_fields(value: &serde_json::Value, arguments: &[&str]) {
    match value {
        serde_json::Value::Array(all) => all.iter().for_each(|one| check_fields(one, arguments)),
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                let is_told = include_str!("../../JSON.md").contains(&format!("`{name}`"));
                assert!(is_told, "{arguments:?} prints `{name}`");
                if arguments[0] != "presets" && !["options", "counters"].contains(&name.as_str()) {
                    check_fields(value, arguments);
                }
            }
        }
        _ => {}
    }
}

/// Every policy in turn takes the store over; nothing is lost, and the choice is stored.
#[test]
fn reshape_goes_through_every_policy() {
    let place = filled();
    let all = place.ok(&["scan", "s"]);
    let policies = place.json(&["policies"]);
    let policies = policies["policies"].as_array().expect("a list");
    let names = policies.iter().map(|policy| policy["name"].as_str().expect("a name"));
    let mut last = "fragmented-leveling".to_owned();
    for name in names.chain(["fragmented-leveling"]) {
        let report = place.json(&["reshape", "s", "--policy", name]);
        assert_eq!((&report["from"], &report["to"]), (&last.into(), &name.into()));
        assert_eq!(place.json(&["shape", "s"])["policy"], name);
        assert_eq!(place.ok(&["scan", "s"]), all, "{name}");
        assert!(place.ok(&["verify", "s"]).contains("no damage"), "{name}");
        last = name.to_owned();
    }
    for (wrong, hint) in [
        (&["reshape", "s"][..], "--policy"),
        (&["reshape", "s", "--policy", "tierin"], "tiering"),
        (&["reshape", "s", "--preset", "ptierd"], "ptierdb"),
        (&["reshape", "s", "--policy", "fluid", "--keyspace", "x"], "default"),
    ] {
        let ran = place.run(wrong);
        assert!(ran.code != 0 && ran.stderr.contains(hint), "{wrong:?}: {}", ran.stderr);
    }
    assert_eq!(place.ok(&["scan", "s"]), all);
}

#[test]
fn bench_prints_db_bench_lines_and_json() {
    let place = Place::new();
    let small = ["--num", "5000", "--reads", "500", "--compression", "none", "--bloom-bits", "8"];
    let names = "fillrandom,readrandom,seekrandom";
    let text = place.ok(&[&["bench", names][..], &small, &["--histogram"]].concat());
    for name in names.split(',') {
        assert!(text.lines().any(|line| line.starts_with(name) && line.contains("micros/op")));
    }
    assert!(text.contains("Percentiles: P50"), "{text}");
    let report = place.json(&[&["bench", names, "--store", "b"][..], &small].concat());
    assert_eq!(report["benchmarks"].as_array().map(Vec::len), Some(3));
    assert_eq!(report["benchmarks"][1]["operations"], 500);
    for field in ["engine", "num", "threads", "metrics", "seed"] {
        assert!(!report[field].is_null(), "{field}");
    }
    assert!(report["metrics"]["write_amplification"].as_f64().is_some_and(|wa| wa > 0.0));
    let again = place.run(&["bench", "readrandom", "--store", "b"]);
    assert!(again.code == 3 && again.stderr.contains("--use-existing"), "{}", again.stderr);
    let again = &["bench", "readrandom", "--store", "b", "--use-existing", "--num", "5000"];
    assert!(place.json(again)["benchmarks"][0]["found"].as_u64().is_some_and(|found| found > 2000));
    let options = &place.json(&["stats", "b"])["keyspaces"][0]["options"];
    assert_eq!(options["filter_bits_per_key"], 8.0, "stored options stay");
}

#[test]
fn the_demonstration_verifies_every_value() {
    let place = Place::new();
    for i in 0..200_usize {
        let content = format!("file {i}\n").repeat(i * 10);
        place.write(&format!("tree/d{}/f{i}.txt", i % 7), content);
    }
    std::os::unix::fs::symlink("d0", place.path("tree/link")).expect("a link");
    for store in [&[][..], &["--store", "kept"], &["--store", "mem:"]] {
        let report = place.json(&[&["demo", "tree", "--seconds-limit", "2"][..], store].concat());
        assert_eq!(report["verified"], true, "{report}");
        assert_eq!((&report["files"], &report["skipped"]["special"]), (&200.into(), &1.into()));
        assert_eq!((&report["values_equal"], &report["absences_right"]), (&190.into(), &10.into()));
        assert_eq!(report["phases"].as_array().map(Vec::len), Some(10));
        assert!(report["write_amplification"].as_f64().is_some_and(|wa| wa > 0.9), "{report}");
        assert!(report["shape"]["levels"].is_array());
    }
    assert_eq!(place.ok(&["count", "kept"]), "190\n");
    let again = place.run(&["demo", "tree", "--store", "kept"]);
    assert!(again.code == 3 && again.stderr.contains("holds data"), "{}", again.stderr);
    let text = place.ok(&["demo", "tree", "--max-bytes", "100K", "--seconds-limit", "2"]);
    assert!(text.contains("are left out") && text.contains("verified: "), "{text}");
    let left = std::fs::read_dir(place.path(".")).expect("a directory");
    let names = left.map(|entry| entry.expect("an entry").file_name().into_string());
    assert!(names.flatten().all(|name| !name.starts_with("runstone-")), "nothing is left behind");
}

#[test]
fn an_empty_memtable_holds_nothing_that_waits() {
    let place = Place::new();
    place.write("x.tsv", "k\tv\n");
    place.ok(&["import", "s", "x.tsv"]);
    assert_eq!(place.json(&["shape", "s"])["memtable_bytes"], 0);
}

#[test]
fn completions_and_manual_pages_name_every_command() {
    let place = Place::new();
    let script = place.ok(&["completions", "bash"]);
    std::fs::create_dir(place.path("man")).expect("directory");
    let pages = place.json(&["man", "man"]);
    let pages = pages["pages"].as_array().expect("pages").len();
    for command in ["import", "reshape", "verify", "bench"] {
        assert!(script.contains(command), "{command}");
        let page = place.path(&format!("man/runstone-{command}.1"));
        let page = std::fs::read_to_string(page).expect("a page for each");
        assert!(page.contains(".SH OPTIONS") || page.contains(".SH SYNOPSIS"), "{page}");
    }
    let files = std::fs::read_dir(place.path("man")).expect("directory").count();
    assert_eq!(files, pages, "what is named is written");
    let refused = place.run(&["man", "man"]);
    assert!(refused.code != 0 && refused.stderr.contains("--force"), "{}", refused.stderr);
}

/// Reports show the range deletes, expiring entries and operands in the tables.
#[test]
fn what_lies_in_the_tables_is_shown() {
    let place = Place::new();
    place.write("o.toml", "merge_operator = \"max\"\n");
    place.write("a.tsv", "a\t1\nb\t2\nc\t3\nd\t4\n");
    place.ok(&["import", "s", "a.tsv", "--batch", "1", "--options", "o.toml"]);
    let stats = place.ok(&["stats", "s"]);
    assert!(!stats.contains("tables of") && stats.contains("default: merge operator max\n"));
    assert!(place.ok(&["shape", "s"]).contains("\nmerge operator max\n"));
    assert!(!place.ok(&["shape", "s"]).contains("expiry"));
    place.ok(&["put", "s", "e", "5", "--ttl", "1h"]);
    place.ok(&["put", "s", "f", "6", "--ttl", "10d"]);
    place.ok(&["delete", "s", "--from", "b", "--to", "c"]);
    place.ok(&["checkpoint", "s", "t"]);
    let copy = Store::open(place.path("t"), Options::default()).expect("a store");
    copy.flush().and_then(|()| copy.close()).expect("its tables hold what was in the log");
    let stats = place.ok(&["stats", "t"]);
    let line = "tables of default: 1 range delete; 2 entries with an expiry, about 0 expired\n";
    assert!(stats.contains(line), "{stats}");
    let shape = place.ok(&["shape", "t"]);
    let words = shape.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("range deletes 1 expiring 2"), "{shape}");
    let json: serde_json::Value =
        serde_json::from_str(&place.ok(&["stats", "t", "--json"])).expect("json");
    assert_eq!(json["keyspaces"][0]["expiring"], 2);
    assert_eq!(json["keyspaces"][0]["range_deletes"], 1);
    let files = std::fs::read_dir(place.path("t")).expect("a store");
    let names = files.map(|file| file.expect("a file").file_name().into_string().expect("text"));
    let tables = names.filter(|name| name.ends_with(".table"));
    let dumps: String = tables.map(|name| place.ok(&["dump", "t", &name, "--entries"])).collect();
    assert!(dumps.contains("\nrange deletes 1\n"), "{dumps}");
    assert!(dumps.contains("\nexpiring 2 from 1"), "{dumps}");
    assert!(dumps.contains("\" expires 1") && dumps.contains(" ms after 1970\n"), "{dumps}");
}

/// Once, a filter that only the application has registered was named in a warning of the log, and
/// nowhere else.
#[test]
fn options_that_change_entries_are_shown() {
    let place = Place::new();
    place.write("o.toml", "compaction_filter = \"left\"\nttl_seconds = 90\n");
    place.write("a.tsv", "a\t1\n");
    place.ok(&["import", "s", "a.tsv", "--options", "o.toml"]);
    let words = "compaction filter left, not registered here, so all entries stay; \
                 entries expire after 90 s";
    let unfolded = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for command in ["stats", "shape"] {
        let told = unfolded(place.ok(&[command, "s"]));
        assert!(told.contains(words), "{told}");
    }
    assert_eq!(place.json(&["stats", "s"])["keyspaces"][0]["missing_compaction_filter"], "left");
}
