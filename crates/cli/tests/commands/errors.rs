//! Mistakes of users: paths, options, names, a store in use. Each report says what is wrong,
//! where, and what to do, and the exit code is the documented one.

use std::process::Stdio;

use crate::Place;

#[test]
fn reading_makes_no_store() {
    let place = Place::new();
    for arguments in [
        &["get", "s", "k"][..],
        &["scan", "s"],
        &["count", "s"],
        &["shape", "s"],
        &["stats", "s"],
        &["verify", "s"],
        &["export", "s", "o.csv"],
        &["delete", "s", "k"],
        &["compact", "s"],
        &["reshape", "s", "--policy", "leveling"],
        &["checkpoint", "s", "t"],
    ] {
        let ran = place.run(arguments);
        assert_eq!(ran.code, 4, "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.starts_with("error: ") && ran.stderr.contains("is not a store"));
        assert!(ran.stderr.contains("\n  where: s\n  hint: "), "{}", ran.stderr);
        assert!(!place.path("s").exists() && !place.path("o.csv").exists(), "{arguments:?}");
    }
    let ran = place.run(&["get", "mem:", "k"]);
    assert_eq!(ran.code, 4);
}

/// Once, these errors were attributed to "flash", with a reference to its documentation, and
/// without a place.
#[test]
fn images_that_cannot_be_opened_are_told_with_a_place() {
    let place = Place::new();
    place.write("d/file", "x");
    for scheme in ["kvssd", "blockssd"] {
        for (image, word) in
            [("d", "names a directory"), ("none/x.img", "check the path"), ("d/file/x", "check")]
        {
            let url = format!("{scheme}:{image}");
            let ran = place.run(&["put", &url, "k", "v"]);
            assert_eq!(ran.code, 4, "{url}: {}", ran.stderr);
            assert!(ran.stderr.starts_with(&format!("error: cannot open {image}")), "{url}");
            assert!(ran.stderr.contains(&format!("\n  where: {url}\n")), "{url}: {}", ran.stderr);
            assert!(ran.stderr.contains(word), "{url}: {}", ran.stderr);
        }
    }
}

/// Once, a file of options that does not parse was reported without its name by `reshape`.
#[test]
fn a_file_of_options_that_is_wrong_is_named() {
    let place = Place::new();
    place.write("bad.toml", "polic = \"x\"\n");
    place.ok(&["put", "s", "k", "v"]);
    for arguments in [
        &["reshape", "s", "--options", "bad.toml"][..],
        &["put", "s", "k", "--options", "bad.toml", "v"],
    ] {
        let ran = place.run(arguments);
        assert_eq!(ran.code, 3, "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("\n  where: bad.toml\n"), "{arguments:?}: {}", ran.stderr);
    }
}

/// Once, a shell that neither makes nor changes a store ignored the options for doing so.
#[test]
fn a_shell_that_only_reads_takes_no_options() {
    let place = Place::new();
    place.ok(&["put", "s", "k", "v"]);
    for (name, value) in [("--policy", "leveling"), ("--preset", "balanced"), ("--options", "x")] {
        let ran = place.run(&["shell", "s", "--read-only", name, value]);
        assert_eq!(ran.code, 3, "{name}: {}", ran.stderr);
        assert!(ran.stderr.contains(name), "{name}: {}", ran.stderr);
    }
    assert_eq!(place.pipe(&["shell", "s", "--read-only"], "get k").stdout, "v\n");
}

#[test]
fn places_that_are_no_store() {
    let place = Place::new();
    place.write("d/readme.txt", "x");
    for (arguments, code, word) in [
        (&["get", "d", "k"][..], 4, "readme.txt"),
        (&["put", "d", "k", "v"], 4, "readme.txt"),
        (&["get", "d/readme.txt", "k"], 4, "directory"),
        (&["put", "d/readme.txt", "k", "v"], 4, "directory"),
        (&["get", "kvssd:none.img", "k"], 4, "is not a store"),
        (&["get", "kvssd:image?speed=9", "k"], 3, "no option \"speed\""),
        (&["checkpoint", "kvssd:image", "k"], 3, "does not work on a KVSSD"),
        (&["get", "", "k"], 3, "<STORE>"),
        (&["import", "s", "nowhere"], 5, "nowhere"),
        (&["import", "s", "d/readme.txt"], 3, "--format"),
        (&["import", "s", "d", "--format", "csv"], 3, "--format dir"),
        (&["demo", "nowhere"], 5, "nowhere"),
        (&["put", "s", "k", "--file", "nowhere"], 5, "nowhere"),
        (&["put", "s", "k", "v", "--options", "nowhere"], 5, "nowhere"),
    ] {
        let ran = place.run(arguments);
        assert_eq!(ran.code, code, "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(word), "{arguments:?}: {}", ran.stderr);
    }
    assert!(!place.path("s").exists(), "no store is made for a command that cannot work");
}

#[test]
fn wrong_names_get_suggestions() {
    let place = Place::new();
    place.write("o.toml", "polcy = 'leveling'\n");
    for (arguments, word) in [
        (&["scna", "s"][..], "'scan'"),
        (&["scan", "s", "--prefx", "a"], "--prefix"),
        (&["put", "s", "k", "v", "--policy", "levelling"], "did you mean leveling?"),
        (&["put", "s", "k", "v", "--preset", "balancd"], "balanced"),
        (&["put", "s", "k", "v", "--options", "o.toml"], "policy"),
        (&["bench", "fillrandm"], "fillrandom"),
        (&["bench", "fillrandom", "--num", "0"], "num is 0"),
        (&["bench", "fillseq", "--value-size", "1T"], "the value size is 1099511627776"),
        (&["bench", "fillseq", "--key-size", "64K"], "the key size is 65536"),
        (&["bench", "fillseq", "--batch-size", "18446744073709551615"], "the batch size is 1844"),
        (&["bench", "fillseq", "--threads", "4294967295"], "threads is 4294967295"),
        (&["bench", "fillrandom", "--duration", "18446744073709551615"], "duration"),
        (&["demo", "--max-bytes", "12Q"], "64M"),
        (&["help", "optoins"], "options"),
        (&["shell", "s", "--json"], "--json"),
    ] {
        let ran = place.run(arguments);
        assert_eq!(ran.code, 3, "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(word), "{arguments:?}: {}", ran.stderr);
    }
    assert!(!place.path("s").exists());
}

fn assert_error_object(stderr: &str) {
    let error: serde_json::Value = serde_json::from_str(stderr).expect("one object");
    for field in ["error", "where", "hint"] {
        assert!(error[field].is_string(), "{field}: {error}");
    }
}

#[test]
fn errors_are_objects_under_json() {
    let place = Place::new();
    for (arguments, code) in
        [(&["get", "s", "k", "--json"][..], 4), (&["put", "s", "--json"], 3), (&["--json"], 3)]
    {
        let ran = place.run(arguments);
        assert_eq!((ran.code, ran.stdout.as_str()), (code, ""), "{}", ran.stderr);
        assert_error_object(&ran.stderr);
    }
}

#[test]
fn a_store_in_use() {
    let place = Place::new();
    let store = runstone::Store::open(place.path("s"), runstone::Options::default());
    let store = store.expect("a store");
    for arguments in [&["put", "s", "k", "v"][..], &["delete", "s", "k"], &["compact", "s"]] {
        let ran = place.run(arguments);
        assert_eq!(ran.code, 4, "{arguments:?}");
        assert!(ran.stderr.contains("in use"), "{}", ran.stderr);
    }
    store.close().expect("it closes");
    place.ok(&["put", "s", "k", "v"]);
    assert_eq!(place.ok(&["get", "s", "k"]), "v");
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let place = Place::new();
    let lines: String = (0..20_000).map(|i| format!("key{i:06}\tvalue {i}\n")).collect();
    place.write("x.tsv", lines);
    place.ok(&["import", "s", "x.tsv"]);
    let mut command = place.command(&["scan", "s"]);
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
}

#[test]
fn help_is_there() {
    let place = Place::new();
    assert!(place.ok(&["help"]).contains("demo"));
    assert!(place.ok(&["--help"]).contains("demo"));
    assert!(place.ok(&["--version"]).starts_with("runstone "));
    assert!(place.ok(&["help", "import"]).contains("--strict"));
    assert!(place.ok(&["help", "options"]).contains("write_buffer_bytes"));
    assert!(place.ok(&["help", "policies"]).contains("leveling"));
    assert!(place.ok(&["presets"]).contains("balanced"));
    assert_eq!(place.ok(&["help", "exit-codes"]).lines().count(), 7);
    let devices = place.ok(&["help", "devices"]);
    assert!(devices.contains("kvssd:IMAGE") && devices.contains("cuts"), "{devices}");
    let longest = devices.lines().map(|line| line.chars().count()).max();
    assert!(longest.is_some_and(|longest| longest <= 80), "{longest:?} columns:\n{devices}");
    assert_eq!(place.json(&["help", "devices"])["devices"][1]["scheme"], "blockssd");
    assert!(place.ok(&["help", "paper"]).contains("t1"));
    assert!(place.ok(&["bench"]).contains("ycsb-a"));
}

/// A script that reads standard error finds one object there and nothing else, with all of its
/// parts.
#[test]
fn every_error_says_where_under_json() {
    let place = Place::new();
    place.ok(&["put", "s", "k", "v"]);
    for (arguments, code) in [
        (&["get", "s", "k", "--keyspace", "nope"][..], 3),
        (&["bench", "nope"], 3),
        (&["dump", "s", "nope"], 5),
        (&["dump", "s", "LOCK"], 3),
        (&["get", "s", "zz"], 1),
        (&["shape", "s", "--svg", "x.svg", "--html", "no/x.html"], 5),
        (&["reshape", "s"], 3),
    ] {
        let ran = place.run(&[arguments, &["--json"]].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (code, ""), "{arguments:?}: {}", ran.stderr);
        assert_error_object(&ran.stderr);
    }
}

/// Some options of a keyspace can never change. The error names the store, and says what to do
/// instead.
#[test]
fn options_that_a_store_cannot_take_name_the_store() {
    let place = Place::new();
    let options = |groups| {
        format!("[values]\nplacement = \"hash-grouped\"\ngroups = {groups}\nseparate_at = 1\n")
    };
    place.write("8.toml", options(8));
    place.write("9.toml", options(9));
    for keyspace in ["default", "other"] {
        let of = ["--keyspace", keyspace, "--json", "--options"];
        place.ok(&[&["put", "s", "k", "v"][..], &of, &["8.toml"]].concat());
        let ran = place.run(&[&["reshape", "s"][..], &of, &["9.toml"]].concat());
        let error: serde_json::Value = serde_json::from_str(&ran.stderr).expect("an object");
        assert_eq!((ran.code, &error["where"]), (3, &"s".into()), "{error}");
        assert!(error["hint"].as_str().is_some_and(|hint| hint.contains("into a new keyspace")));
    }
}

#[test]
fn bounds_the_wrong_way_round_are_refused() {
    let place = Place::new();
    place.ok(&["put", "s", "k", "v"]);
    let ran = place.run(&["scan", "s", "--from", "z", "--to", "a", "--reverse"]);
    assert!(ran.code == 3 && ran.stderr.contains("--from is behind --to"), "{}", ran.stderr);
    assert_eq!(place.ok(&["scan", "s", "--from", "k", "--to", "k"]), "");
}

#[test]
fn bench_takes_flags_as_db_bench_writes_them() {
    let place = Place::new();
    let flags = ["--num=100", "--value_size=10", "--key_size=8", "--batch_size=2"];
    let more = ["--cache_size=16M", "--write_buffer_size=1M", "--bloom_bits=8"];
    let report = place.json(&[&["bench", "fillseq"], &flags[..], &more[..]].concat());
    assert_eq!((&report["value_bytes"], &report["key_bytes"]), (&10.into(), &8.into()));
}

/// Runs what a user of db_bench types. Once, `--benchmarks=` and `--db=` were refused.
#[test]
fn bench_takes_a_command_line_of_db_bench() {
    let place = Place::new();
    let db = ["--db=b", "--num=500", "--threads=2", "--seed=7"];
    let fill = ["bench", "--benchmarks=fillseq,stats", "--compression_type=lz4", "--sync=0"];
    let report = place.json(&[&fill[..], &db, &["--histogram=1", "--use_existing_db=0"]].concat());
    assert_eq!(report["benchmarks"].as_array().map(Vec::len), Some(2));
    assert_eq!(report["threads"], 2);
    let text = report["benchmarks"][0]["text"].as_str();
    assert!(text.is_some_and(|text| text.contains("Percentiles")), "{report}");
    let read = ["bench", "--benchmarks=readrandom,seekrandom", "--reads=50", "--seek_nexts=5"];
    let report =
        place.json(&[&read[..], &db, &["--use_existing_db=true", "--duration=0"]].concat());
    assert_eq!(report["benchmarks"][0]["found"], 50, "{report}");
    let ran = place.run(&["bench", "--benchmarks=readrandom", "--use_existing_db=1"]);
    assert!(ran.code == 3 && ran.stderr.contains("--store"), "{}", ran.stderr);
}

#[test]
fn dump_lists_stores_only() {
    let place = Place::new();
    place.write("d/readme.txt", "x");
    let ran = place.run(&["dump", "d"]);
    assert!(ran.code == 4 && ran.stderr.contains("is not a store"), "{}", ran.stderr);
    place.ok(&["put", "s", "k", "v"]);
    assert!(place.ok(&["dump", "s", "CURRENT"]).contains(".manifest"));
    let ran = place.run(&["dump", "s", "000099.table"]);
    assert!(ran.code == 5 && ran.stderr.contains("lists the files"), "{}", ran.stderr);
}

#[test]
fn a_database_of_leveldb_is_recognised() {
    let place = Place::new();
    place.write("theirs/CURRENT", "MANIFEST-000002\n");
    for command in
        [&["get", "theirs", "k"][..], &["put", "theirs", "k", "v"], &["verify", "theirs"]]
    {
        let ran = place.run(command);
        assert!(ran.code == 4 && ran.stderr.contains("is a database of LevelDB"), "{}", ran.stderr);
        assert!(ran.stderr.contains("leveldb:"), "{}", ran.stderr);
    }
}

/// Once, SIGXFSZ, the signal for a file that exceeds its limit, ended the command without a word,
/// and a half-written file was left.
#[test]
fn a_limit_of_file_sizes_is_told() {
    let place = Place::new();
    let lines: String = (0..20_000).map(|i| format!("key{i:06}\tvalue {i}\n")).collect();
    place.write("x.tsv", lines);
    place.ok(&["import", "s", "x.tsv"]);
    let runstone = env!("CARGO_BIN_EXE_runstone");
    for arguments in ["put t k v", "import u x.tsv", "export s y.csv", "scan s > out"] {
        let line = format!("ulimit -f 100; {runstone} {arguments}");
        let mut command = std::process::Command::new("sh");
        let output = command.args(["-c", &line]).current_dir(place.path(".")).output();
        let output = output.expect("a shell");
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(5), "{arguments}: {told}");
        assert!(told.contains("`ulimit -f`") && !told.contains("no space"), "{arguments}: {told}");
        assert!(told.contains("\n  where: "), "{arguments}: {told}");
    }
    let names: Vec<_> = crate::files_below(&place.path(".")).into_keys().collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().contains("y.csv")), "{names:?}");
    assert_eq!(place.ok(&["count", "s"]), "20000\n");
}
