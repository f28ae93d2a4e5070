//! Single keys and ranges: put, get, delete, scan, count, and the shell.

use crate::Place;
use crate::terminal::{Terminal, lines};

#[test]
fn put_get_delete_scan_count() {
    let place = Place::new();
    for (key, value) in [("a/1", "one"), ("a/2", "two"), ("b/1", "-3")] {
        place.ok(&["put", "s", key, value]);
    }
    assert_eq!(place.ok(&["get", "s", "a/2"]), "two");
    assert_eq!(place.run(&["get", "s", "a/2", "--raw"]).bytes, b"two");
    assert_eq!(place.ok(&["scan", "s"]), "a/1\tone\na/2\ttwo\nb/1\t-3\n");
    assert_eq!(
        place.ok(&["scan", "s", "--prefix", "a/", "--reverse", "--keys-only"]),
        "a/2\na/1\n"
    );
    assert_eq!(
        place.ok(&["scan", "s", "--from", "a/2", "--to", "b", "--limit", "5"]),
        "a/2\ttwo\n"
    );
    assert_eq!(place.ok(&["scan", "s", "--limit", "0"]), "");
    assert_eq!(place.ok(&["count", "s", "--prefix", "a/"]), "2\n");
    place.ok(&["delete", "s", "a/1", "b/1", "never-there"]);
    let absent = place.run(&["get", "s", "a/1"]);
    assert_eq!((absent.code, absent.stdout.as_str()), (1, ""));
    assert!(absent.stderr.contains("a/1 is absent"), "{}", absent.stderr);
    assert_eq!(place.json(&["count", "s"])["count"], 1);
}

/// Once, a value went into a file escaped and with a line feed, so that `put --file` stored a
/// different value.
#[test]
fn get_into_a_pipe_is_the_value_and_nothing_else() {
    let place = Place::new();
    for value in [&b"plain"[..], b"", b"ends\n", b"C:\\new\0\xff\r\n\ttab"] {
        place.write("value", value);
        place.ok(&["put", "s", "k", "--file", "value"]);
        assert_eq!(place.run(&["get", "s", "k"]).bytes, value);
        let bytes = place.run(&["get", "s", "k"]).bytes;
        assert_eq!(place.pipe(&["put", "s", "copy", "-"], bytes).code, 0);
        assert_eq!(place.run(&["get", "s", "copy"]).bytes, value);
    }
    assert_eq!(place.ok(&["get", "s", "k", "--text"]), "C:\\\\new\\x00\\xff\\x0d\\n\\ttab\n");
    let (_, seen) = Terminal::open(&place, "get s k").end();
    assert_eq!(lines(&seen)[0], "C:\\\\new\\x00\\xff\\x0d\\n\\ttab");
    assert_eq!(place.ok(&["get", "s", "6b", "--hex"]).len(), 2 * 14 + 1, "digits are text");
    // A shell that reads a pipe ends each value with a line feed.
    assert_eq!(place.pipe(&["shell", "s"], "get k\n").stdout.lines().count(), 1);
}

#[test]
fn values_from_files_and_pipes_and_keys_in_hexadecimal() {
    let place = Place::new();
    let all: Vec<u8> = (0..=255).collect();
    place.write("value", &all);
    place.ok(&["put", "s", "00ff", "--hex", "--file", "value"]);
    assert_eq!(place.run(&["get", "s", "00ff", "--hex", "--raw"]).bytes, all);
    assert_eq!(place.pipe(&["put", "s", "p", "-"], "from a pipe").code, 0);
    assert_eq!(place.ok(&["get", "s", "p"]), "from a pipe");
    assert_eq!(place.ok(&["scan", "s", "--hex", "--keys-only"]), "00ff\n70\n");
    let entry = place.json(&["get", "s", "00ff", "--hex"]);
    assert_eq!((&entry["encoding"], &entry["key"]), (&"hex".into(), &"00ff".into()));
    assert!(entry["value"].as_str().is_some_and(|value| value.starts_with("000102")), "{entry}");
    let entries = place.json(&["scan", "s", "--prefix", "p"]);
    assert_eq!(entries["entries"].to_string(), r#"[{"key":"p","value":"from a pipe"}]"#);
    assert_eq!((&entries["count"], &entries["failed"]), (&1.into(), &0.into()));
    for (key, value) in [("0", "00"), ("00", "v")] {
        let ran = place.run(&["put", "s", key, value, "--hex"]);
        assert!(ran.code == 3 && ran.stderr.contains("is not hexadecimal"), "{}", ran.stderr);
    }
    let ran = place.run(&["get", "s", "C:\\q"]);
    assert!(ran.code == 3 && ran.stderr.contains("\\q is no escape"), "{}", ran.stderr);
}

/// Once, `scan` escaped some records and not others, `--hex` printed base64 with `--json`, and the
/// command line did not read the escapes that the shell prints. Now every command reads what any of
/// them prints.
#[test]
fn what_is_printed_goes_in_again() {
    let place = Place::new();
    let all: Vec<u8> = (0..=255).collect();
    let nasty: [&[u8]; 9] = [
        b"",
        b"two words",
        b"C:\\temp\\x41",
        b"-",
        b"it's \"quoted\"",
        b"\0\t\r\n",
        "ü\u{202e}\u{85}".as_bytes(),
        b"\xff\xfe",
        &all,
    ];
    let store = runstone::Store::open(place.path("s"), runstone::Options::default());
    let store = store.expect("a store");
    for (key, value) in nasty.iter().zip(nasty.iter().rev()) {
        store.put(key, value).expect("it takes any bytes");
    }
    store.close().expect("it closes");
    for hex in [&[][..], &["--hex"]] {
        let printed = place.ok(&with(hex, &["scan", "s"]));
        assert_eq!(printed.lines().count(), nasty.len(), "{printed}");
        let mut script = String::new();
        let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\\\""));
        for (line, entry) in printed
            .lines()
            .zip(place.json(&with(hex, &["scan", "s"]))["entries"].as_array().expect("entries"))
        {
            let (key, value) = line.split_once('\t').expect("two fields");
            assert_eq!((&entry["key"], &entry["value"]), (&key.into(), &value.into()));
            assert_eq!(place.ok(&with(hex, &["get", "s", key, "--text"])), format!("{value}\n"));
            script.push_str(&format!("put {} {}\n", quoted(key), quoted(value)));
            let typed = if value == "-" { "\\x2d" } else { value };
            place.ok(&with(hex, &["put", "arguments", key, typed]));
        }
        let ran = place.pipe(&with(hex, &["shell", "typed"]), script);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, "made a new store in typed\n"));
        for copy in ["arguments", "typed"] {
            assert_eq!(place.ok(&with(hex, &["scan", copy])), printed, "{copy}");
            let ran = place.pipe(&with(hex, &["shell", copy]), "scan\n");
            assert_eq!((ran.code, ran.stdout), (0, printed.clone()), "{copy}");
            std::fs::remove_dir_all(place.path(copy)).expect("a store");
        }
    }
    place.write("x.tsv", place.ok(&["scan", "s"]));
    place.ok(&["import", "file", "x.tsv", "--strict"]);
    assert_eq!(place.ok(&["scan", "file"]), place.ok(&["scan", "s"]));
}

fn with<'a>(flags: &[&'a str], arguments: &[&'a str]) -> Vec<&'a str> {
    [arguments, flags].concat()
}

#[test]
fn keyspaces_are_apart() {
    let place = Place::new();
    place.ok(&["put", "s", "k", "default"]);
    place.ok(&["put", "s", "k", "other", "--keyspace", "two", "--preset", "small-space"]);
    assert_eq!(place.ok(&["get", "s", "k"]), "default");
    assert_eq!(place.ok(&["get", "s", "k", "--keyspace", "two"]), "other");
    let stats = place.json(&["stats", "s"]);
    assert_eq!(stats["keyspaces"][1]["options"]["policy"], "leveling");
    let unknown = place.run(&["get", "s", "k", "--keyspace", "three"]);
    assert_eq!(unknown.code, 3);
    assert!(unknown.stderr.contains("default, two"), "{}", unknown.stderr);
}

/// Once, the shell created a keyspace for every mistyped name, and nothing suggested a similar one.
#[test]
fn a_typing_error_makes_no_keyspace() {
    let place = Place::new();
    place.ok(&["put", "s", "k", "v", "--keyspace", "users"]);
    for arguments in [
        &["get", "s", "k", "--keyspace", "usres"][..],
        &["scan", "s", "--keyspace", "usres"],
        &["count", "s", "--keyspace", "usres"],
        &["stats", "s", "--keyspace", "usres"],
        &["compact", "s", "--keyspace", "usres"],
        &["shape", "s", "--keyspace", "usres"],
        &["export", "s", "x.csv", "--keyspace", "usres"],
        &["reshape", "s", "--policy", "leveling", "--keyspace", "usres"],
        &["delete", "s", "k", "--keyspace", "usres"],
        &["delete", "s", "--prefix", "k", "--keyspace", "usres"],
        &["drop", "s", "usres", "--yes"],
    ] {
        let ran = place.run(arguments);
        assert_eq!(ran.code, 3, "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("did you mean users?"), "{arguments:?}: {}", ran.stderr);
    }
    for line in ["keyspace usres", "get k --keyspace usres", "put k w --keyspace usres"] {
        let ran = place.pipe(&["shell", "s"], line);
        assert!(ran.code == 3 && ran.stderr.contains("did you mean users?"), "{}", ran.stderr);
    }
    let ran = place.pipe(&["shell", "s"], "keyspace usres");
    assert!(ran.stderr.contains("`keyspace NAME --make`"), "{}", ran.stderr);
    let names = place.pipe(&["shell", "s"], "keyspace");
    assert_eq!(names.stdout, "default\nusers\n");
}

/// Once, `count` took only a prefix, `delete` took no range, `compact` and `stats` took no
/// keyspace, and the shell took no keyspace but the current one.
#[test]
fn ranges_and_keyspaces_are_the_same_everywhere() {
    let place = Place::new();
    let make = || {
        let _ = std::fs::remove_dir_all(place.path("s"));
        for keyspace in ["default", "two"] {
            let lines: String = (0..30).map(|i| format!("k{i:02}\t{keyspace}\n")).collect();
            place.write("x.tsv", lines);
            place.ok(&["import", "s", "x.tsv", "--keyspace", keyspace]);
        }
    };
    make();
    for (range, count) in [
        (&["--prefix", "k1"][..], 10),
        (&["--from", "k05", "--to", "k11"], 6),
        (&["--prefix", "k1", "--from", "k12", "--limit", "5"], 5),
        (&["--to", "6b3134", "--hex"], 14),
        (&["--limit", "3", "--reverse"], 3),
    ] {
        let command = |name: &'static str| {
            let two = ["--keyspace", "two"];
            let line = [&[name][..], &two, range].concat().join(" ");
            (line, [&[name, "s"][..], &two, range].concat())
        };
        let (line, arguments) = command("count");
        assert_eq!(place.ok(&arguments), format!("{count}\n"), "{range:?}");
        assert_eq!(place.pipe(&["shell", "s"], line).stdout, format!("{count}\n"), "{range:?}");
        let (line, arguments) = command("scan");
        let scanned = place.ok(&arguments);
        assert_eq!(scanned.lines().count(), count, "{range:?}");
        assert_eq!(place.pipe(&["shell", "s"], line).stdout, scanned, "{range:?}");
        let (line, arguments) = command("delete");
        let deleted = place.json(&arguments);
        match range.contains(&"--limit") {
            true => assert_eq!(deleted["deletes"], count, "{range:?}"),
            false => assert!(deleted["deletes"].is_null() && deleted["about"].is_u64()),
        }
        let left = 30 - count;
        assert_eq!(place.json(&["count", "s", "--keyspace", "two"])["count"], left, "{range:?}");
        make();
        assert_eq!(place.pipe(&["shell", "s"], line).code, 0);
        assert_eq!(place.json(&["count", "s", "--keyspace", "two"])["count"], left, "{range:?}");
        assert_eq!(place.json(&["count", "s"])["count"], 30, "{range:?}: another keyspace");
        make();
    }
    let nothing = place.run(&["delete", "s"]);
    assert!(nothing.code == 3 && nothing.stderr.contains("--prefix ''"), "{}", nothing.stderr);
    let both = place.run(&["delete", "s", "k01", "--prefix", "k"]);
    assert_eq!(both.code, 3, "{}", both.stderr);
    let tables = |flags: &[&str]| {
        let stats = place.json(&[&["stats", "s", "--keyspace", "two"], flags].concat());
        let keyspaces = stats["keyspaces"].as_array().expect("keyspaces").clone();
        assert_eq!((keyspaces.len(), &keyspaces[0]["name"]), (1, &"two".into()));
        keyspaces[0]["tables"].as_u64().expect("a number")
    };
    assert_eq!((tables(&[]), tables(&["--from", "k3"])), (1, 0));
    let shell = place.pipe(&["shell", "s"], "stats --keyspace two\ncompact --keyspace two\n");
    assert!(shell.code == 0 && !shell.stdout.contains("default "), "{}", shell.stdout);
    place.ok(&["delete", "s", "k01", "--keyspace", "two"]);
    place.ok(&["delete", "s", "k01"]);
    let runs = |name: &str| {
        let stats = place.json(&["stats", "s", "--keyspace", name]);
        stats["keyspaces"][0]["tables"].as_u64().expect("a number")
    };
    place.ok(&["compact", "s", "--keyspace", "two"]);
    assert_eq!((runs("default"), runs("two")), (2, 1), "only one is compacted");
}

/// One table contains a delete, and is above the table with the deleted key. A range compaction
/// reads both or neither.
#[test]
fn a_range_is_compacted() {
    let place = Place::new();
    let lines: String = (0..30).map(|i| format!("k{i:02}\tvalue\n")).collect();
    place.write("x.tsv", lines);
    place.ok(&["import", "s", "x.tsv"]);
    let tables = || {
        let stats = place.json(&["stats", "s"]);
        stats["keyspaces"][0]["tables"].as_u64().expect("a number")
    };
    place.ok(&["delete", "s", "k01"]);
    for (range, left) in [("--from k5", 2), ("--prefix k0", 1)] {
        assert_eq!(place.pipe(&["shell", "s"], format!("compact {range}")).code, 0);
        assert_eq!(tables(), left, "{range:?}");
    }
    place.ok(&["delete", "s", "k02"]);
    place.ok(&["compact", "s", "--from", "k01", "--to", "k03"]);
    assert_eq!(tables(), 1);
    assert_eq!(place.ok(&["count", "s"]), "28\n");
}

/// Once, ninety calls of `put` left seventy tables.
#[test]
fn single_puts_leave_no_tables_behind() {
    let place = Place::new();
    for i in 0..90 {
        place.ok(&["put", "s", &format!("k{i}"), "v"]);
    }
    place.ok(&["delete", "s", "k0"]);
    let stats = place.json(&["stats", "s"]);
    assert_eq!(stats["keyspaces"][0]["tables"], 0, "{stats}");
    assert_eq!(place.ok(&["count", "s"]), "89\n");
    let report = place.json(&["verify", "s"]);
    assert_eq!((&report["clean"], &report["log_entries"]), (&true.into(), &91.into()));
    let logs = std::fs::read_dir(place.path("s")).expect("a store").flatten();
    let logs = logs.filter(|file| file.path().extension().is_some_and(|found| found == "wal"));
    assert_eq!(logs.count(), 1);
}

/// Deletes more keys than fit in one batch, in both directions.
#[test]
fn a_large_range_is_deleted() {
    let place = Place::new();
    place.write("x.tsv", (0..2_500).map(|i| format!("k{i:04}\t{i}\n")).collect::<String>());
    place.ok(&["import", "s", "x.tsv"]);
    let delete = ["delete", "s", "--reverse", "--limit", "1100"];
    assert_eq!(place.json(&delete)["deletes"], 1100);
    assert_eq!(place.ok(&["scan", "s", "--reverse", "--limit", "1"]), "k1399\t1399\n");
    let deleted = place.json(&["delete", "s", "--prefix", ""]);
    assert!(deleted["deletes"].is_null(), "{deleted}");
    // Keys that were deleted one by one are still entries, and so are their deletes.
    assert!((1400..=3600).contains(&deleted["about"].as_u64().expect("a number")), "{deleted}");
    assert_eq!(place.ok(&["count", "s"]), "0\n");
}

/// Once, a range was counted before its one record was written. That took as long as a scan, and if
/// the merge operator could not read a value, nothing could be deleted.
#[test]
fn a_range_is_deleted_without_a_walk() {
    let place = Place::new();
    place.write("o.toml", "merge_operator = \"json-merge-patch\"\n");
    place.write("x.tsv", "a\ttext\nb\tmore\nc\tend\n");
    place.ok(&["import", "s", "x.tsv", "--options", "o.toml"]);
    place.ok(&["merge", "s", "a", "1"]);
    assert_ne!(place.run(&["scan", "s"]).code, 0, "the value of a is no JSON");
    let deleted = place.run(&["delete", "s", "--from", "a", "--to", "c"]);
    assert_eq!(deleted.code, 0, "{}", deleted.stderr);
    assert!(
        deleted.stderr.starts_with("the range is deleted; it held about "),
        "{}",
        deleted.stderr
    );
    assert_eq!(place.ok(&["scan", "s"]), "c\tend\n");
    let nothing = place.run(&["delete", "s", "--prefix", "a", "--from", "b"]);
    assert_eq!((nothing.code, &nothing.stderr[..]), (0, ""), "no key can lie there");
}

#[test]
fn a_keyspace_is_dropped() {
    let place = Place::new();
    for keyspace in ["one", "two"] {
        place.ok(&["put", "s", "k", "v", "--keyspace", keyspace]);
    }
    let asked = place.run(&["drop", "s", "one"]);
    assert!(asked.code == 3 && asked.stderr.contains("--yes"), "{}", asked.stderr);
    assert_eq!(place.json(&["drop", "s", "one", "--yes"])["dropped"], "one");
    let shell = "keyspace two\ndrop two\nget k\ndrop two --yes\nkeyspace\nput k w\n";
    let ran = place.pipe(&["shell", "s"], shell);
    assert!(ran.code == 3 && ran.stderr.contains("--yes"), "{}", ran.stderr);
    assert_eq!(ran.stdout, "v\ndefault\n");
    assert_eq!(place.ok(&["get", "s", "k"]), "w", "the shell went on in the default one");
    for name in ["default", "_runstone.import"] {
        assert_eq!(place.run(&["drop", "s", name, "--yes"]).code, 3, "{name}");
    }
}

/// Once, only `import` refused to write to the place where it keeps its progress.
#[test]
fn the_keyspace_of_imports_is_reserved() {
    let place = Place::new();
    place.write("x.tsv", "a\t1\nbad\n");
    let name = "_runstone.import";
    let refused = |arguments: &[&str]| {
        let ran = place.run(&[arguments, &["--keyspace", name]].concat());
        assert_eq!(ran.code, 3, "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("_runstone.import is reserved"), "{}", ran.stderr);
    };
    refused(&["put", "s", "k", "v"]);
    refused(&["import", "s", "x.tsv"]);
    refused(&["shell", "s"]);
    assert!(!place.path("s").exists());
    assert_eq!(place.run(&["import", "s", "x.tsv", "--strict"]).code, 1);
    let count = ["count", "s", "--keyspace", name];
    assert_eq!(place.ok(&count), "1\n", "it may be read");
    refused(&["delete", "s", "k"]);
    refused(&["reshape", "s", "--policy", "leveling"]);
    let ran = place.pipe(&["shell", "s"], format!("keyspace {name}\nput k v\n"));
    assert!(ran.code == 3 && ran.stderr.contains("is reserved"), "{}", ran.stderr);
    assert_eq!(place.ok(&count), "1\n");
    assert_eq!(place.ok(&["get", "s", "k"]), "v", "the shell stays where it was");
}

#[test]
fn options_come_from_files_and_are_kept() {
    let place = Place::new();
    place.write("o.toml", "block_bytes = 8192\n[shape]\nsize_ratio = 4\n");
    place.ok(&["put", "s", "k", "v", "--options", "o.toml"]);
    place.ok(&["put", "s", "k", "v", "--policy", "leveling", "--keyspace", "two"]);
    let keyspaces = place.json(&["stats", "s"])["keyspaces"].clone();
    assert_eq!(keyspaces[0]["options"]["block_bytes"], 8192);
    assert_eq!(keyspaces[0]["options"]["shape"]["size_ratio"], 4);
    assert_eq!(keyspaces[1]["options"]["policy"], "leveling");
}

/// Once, `put --policy` silently changed the policy of an existing keyspace.
#[test]
fn options_of_a_keyspace_that_exists_are_refused() {
    let place = Place::new();
    place.write("o.toml", "block_bytes = 8192\n");
    place.write("x.tsv", "a\t1\n");
    place.ok(&["put", "s", "k", "v"]);
    place.ok(&["put", "s", "k", "v", "--keyspace", "two", "--options", "o.toml"]);
    for keyspace in ["default", "two"] {
        let of = ["--keyspace", keyspace];
        for options in [["--policy", "leveling"], ["--preset", "write-heavy"]] {
            for command in [&["put", "s", "k", "w"][..], &["import", "s", "x.tsv"], &["shell", "s"]]
            {
                let ran = place.run(&[command, &of, &options].concat());
                assert_eq!(ran.code, 3, "{command:?} {options:?}: {}", ran.stderr);
                assert!(ran.stderr.contains("`runstone reshape`"), "{}", ran.stderr);
            }
        }
        assert_eq!(place.ok(&[&["get", "s", "k"][..], &of].concat()), "v");
        assert_eq!(place.ok(&[&["count", "s"][..], &of].concat()), "1\n");
    }
    // Naming the present policy is allowed, because scripts do that.
    place.ok(&["put", "s", "k", "w", "--policy", "fragmented-leveling"]);
    place.ok(&["put", "s", "k", "w", "--keyspace", "two", "--options", "o.toml"]);
    place.ok(&["reshape", "s", "--policy", "leveling"]);
    assert_eq!(place.json(&["stats", "s"])["keyspaces"][0]["options"]["policy"], "leveling");
}

#[test]
fn the_shell_reads_a_pipe() {
    let place = Place::new();
    let script = "# a script\nput a 'one two'\nsnapshot before\nput a 2\nget a\nat before\nget a\n\
                  at\nput \"\\x00\" x\ncount\nscan --reverse --limit 1\nflush\nshape\nstats\n\
                  keyspace other --make\nput z 1\nkeyspace\nexit\nput a 3\n";
    let ran = place.pipe(&["shell", "s"], script);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.starts_with("2\none two\n2\na\t2\n"), "{}", ran.stdout);
    assert!(ran.stdout.contains("keyspace default:") && ran.stdout.ends_with("default\nother\n"));
    assert_eq!(place.ok(&["get", "s", "a"]), "2", "the line behind exit is not run");
    let wrong = place.pipe(&["shell", "s"], "gett a\nput 'a\nat nowhere\nget a\n");
    assert_eq!(wrong.code, 3);
    assert!(wrong.stderr.contains("get") && wrong.stderr.contains("line 2"), "{}", wrong.stderr);
    assert_eq!(wrong.stdout, "2\n", "it goes on behind a wrong line");
    let negative = place.pipe(&["shell", "s"], "put -1 -2\nget -1\ndelete -1\n\"\"\n");
    assert_eq!(negative.stdout, "-2\n", "{}", negative.stderr);
    assert!(negative.stderr.contains("error: no command is named"), "{}", negative.stderr);
    let read_only = place.pipe(&["shell", "s", "--read-only"], "put a 9\nget a\n");
    assert_eq!((read_only.code, read_only.stdout.as_str()), (3, "2\n"));
}

/// Once, bytes that are not UTF-8 ended the shell, and the lines after them did not run.
#[test]
fn the_shell_goes_on_behind_bytes_that_are_no_text() {
    let place = Place::new();
    let ran = place.pipe(&["shell", "s"], b"put a 1\r\nput \xff 2\nget a");
    assert_eq!((ran.code, ran.stdout.as_str()), (3, "1\n"), "{}", ran.stderr);
    assert!(ran.stderr.contains("where: line 2\n"), "{}", ran.stderr);
}

/// A value with a time to live exists until that time has passed, and `ttl` shows how long.
#[test]
fn values_expire() {
    let place = Place::new();
    place.ok(&["put", "s", "short", "1", "--ttl", "1ms"]);
    place.ok(&["put", "s", "long", "2", "--ttl", "2h"]);
    place.ok(&["put", "s", "plain", "3"]);
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert_eq!(place.run(&["get", "s", "short"]).code, 1);
    assert_eq!(place.run(&["ttl", "s", "short"]).code, 1);
    assert_eq!(place.ok(&["ttl", "s", "plain"]), "never\n");
    let left: f64 = place.ok(&["ttl", "s", "long"]).trim().parse().expect("a number");
    assert!((7000.0..=7200.0).contains(&left), "{left}");
    assert_eq!(place.json(&["ttl", "s", "plain"]).to_string(), r#"{"ttl_seconds":null}"#);
    assert_eq!(place.ok(&["count", "s"]), "2\n");
    for (ttl, what) in
        [("2 weeks", "with ms, s, m, h or d"), ("0", "has ended when the write begins")]
    {
        let ran = place.run(&["put", "s", "k", "v", "--ttl", ttl]);
        assert!(ran.code == 3 && ran.stderr.contains(what), "{}", ran.stderr);
    }
}
