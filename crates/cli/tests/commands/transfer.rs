//! Import and export: all formats there and back, malformed records, and a killed import.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::{Place, files_below};

#[test]
fn a_directory_comes_back_byte_for_byte() {
    let place = Place::new();
    let all: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    for (name, content) in
        [("d/a.txt", &b"text\n"[..]), ("d/sub/deep/b", &all), ("d/empty", b""), ("d/ü \n", b"x")]
    {
        place.write(name, content);
    }
    std::os::unix::fs::symlink("a.txt", place.path("d/link")).expect("a link");
    let report = place.json(&["import", "s", "d", "--batch", "2"]);
    assert_eq!((&report["records"], &report["skipped"]["special"]), (&4.into(), &1.into()));
    place.ok(&["export", "s", "out", "--format", "dir"]);
    std::fs::remove_file(place.path("d/link")).expect("a link");
    assert_eq!(files_below(&place.path("d")), files_below(&place.path("out")));
    assert_eq!(place.ok(&["get", "s", "a.txt", "--raw"]), "text\n");
    let again = place.run(&["export", "s", "out", "--format", "dir"]);
    assert_eq!(again.code, 5, "nothing is overwritten: {}", again.stderr);
    place.ok(&["export", "s", "out", "--format", "dir", "--force"]);
    assert_eq!(files_below(&place.path("d")), files_below(&place.path("out")));
}

#[test]
fn nasty_values_survive_every_line_format() {
    let place = Place::new();
    let nasty: [&[u8]; 7] =
        [b"", b"a,b\"c\"", b"\t\r\n\\n\\", b"\xff\xfe\0", "ü".as_bytes(), b" ", b"\n"];
    for (i, value) in nasty.iter().enumerate() {
        let file = place.write("value", value);
        let file = file.to_str().expect("text");
        let key: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
        place.ok(&["put", "s", &format!("{key}{i:02x}"), "--hex", "--file", file]);
    }
    let right = place.ok(&["scan", "s", "--hex", "--json"]);
    for format in ["jsonl", "csv", "tsv"] {
        let (file, store) = (format!("out.{format}"), format!("s-{format}"));
        place.ok(&["export", "s", &file]);
        place.ok(&["import", &store, &file, "--strict"]);
        assert_eq!(place.ok(&["scan", &store, "--hex", "--json"]), right, "{format}");
        assert_eq!(place.run(&["export", "s", &file]).code, 5, "nothing is overwritten");
        place.ok(&["export", "s", &file, "--force"]);
        let printed = place.run(&["export", "s", "-", "--format", format]).bytes;
        assert_eq!(printed, std::fs::read(place.path(&file)).expect("a file"), "{format}");
    }
    let names: Vec<_> = files_below(&place.path(".")).into_keys().collect();
    assert!(names.iter().all(|name| !name.to_string_lossy().contains("partial")), "{names:?}");
}

#[test]
fn keys_that_are_no_paths_are_refused_by_a_directory() {
    let place = Place::new();
    for key in ["../out-of-it", "/absolute", "a", "a/b", "good"] {
        place.ok(&["put", "s", key, "x"]);
    }
    let ran = place.run(&["export", "s", "out", "--format", "dir"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("3 entries have keys that cannot be files"), "{}", ran.stderr);
    let names: Vec<_> = files_below(&place.path("out")).into_keys().collect();
    assert_eq!(names, [std::path::PathBuf::from("a"), "good".into()]);
    assert!(!place.path("out-of-it").exists());
}

/// Random keys and values, made of bytes that some format treats as special, come back from each
/// format with their expiry times, whichever record is first. Once, a key that began with a byte
/// order mark lost it in TSV.
#[test]
fn random_records_survive_every_line_format() {
    const PIECES: [&[u8]; 16] = [
        b"",
        b"\xef\xbb\xbf",
        b"\t",
        b"\n",
        b"\r",
        b"\r\n",
        b"\\",
        b"\"",
        b",",
        b"\0",
        b"\xff",
        b" ",
        b"../",
        "\u{2028}".as_bytes(),
        b"key,value",
        b"{\"key\":",
    ];
    let mut rng = runstone_random::Random::new(17);
    let text = |rng: &mut runstone_random::Random| -> Vec<u8> {
        let count = rng.below(5);
        (0..count).flat_map(|_| PIECES[rng.below(16) as usize]).copied().collect()
    };
    for round in 0..24 {
        let place = Place::new();
        let store = runstone::Store::open(place.path("s"), runstone::Options::default());
        let store = store.expect("a store");
        let keyspace = store.default_keyspace();
        if round == 0 {
            keyspace.put(b"\xef\xbb\xbfkey", b"\xef\xbb\xbf").expect("it takes the first");
        }
        for _ in 0..round {
            let (key, value) = (text(&mut rng), text(&mut rng));
            let ttl = Duration::from_secs(3600 << rng.below(30));
            match rng.below(3) {
                0 => keyspace.put_with_ttl(key, value, ttl),
                _ => keyspace.put(key, value),
            }
            .expect("it takes any bytes");
        }
        store.close().expect("it closes");
        let right = place.ok(&["scan", "s", "--hex", "--json"]);
        for format in ["jsonl", "csv", "tsv"] {
            let (file, copy) = (format!("out.{format}"), format!("s-{format}"));
            place.ok(&["export", "s", &file]);
            place.ok(&["import", &copy, &file, "--strict"]);
            let found = place.ok(&["scan", &copy, "--hex", "--json"]);
            assert_eq!(found, right, "round {round}, {format}");
        }
    }
}

/// Once, with `--force`, a link in the target directory led an export outside the directory.
#[test]
fn an_export_stays_inside_its_directory() {
    let place = Place::new();
    place.write("outside/kept", "x");
    place.write("out/old", "y");
    std::os::unix::fs::symlink("../outside", place.path("out/link")).expect("a link");
    std::os::unix::fs::symlink("../outside/kept", place.path("out/one")).expect("a link");
    for key in ["link/kept", "link/new", "old/below", "one", "good"] {
        place.ok(&["put", "s", key, "z"]);
    }
    let ran = place.run(&["export", "s", "out", "--force"]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    for key in ["link/kept", "link/new", "old/below"] {
        let told = format!("key {key}: a file, directory or link is in the way");
        assert!(ran.stderr.contains(&told), "{}", ran.stderr);
    }
    let outside: Vec<_> = files_below(&place.path("outside")).into_iter().collect();
    assert_eq!(outside, [("kept".into(), b"x".to_vec())]);
    assert_eq!(std::fs::read(place.path("out/one")).expect("a file"), b"z", "no link any more");
    assert_eq!(std::fs::read(place.path("out/good")).expect("a file"), b"z");
}

/// Once, with `--force`, an export replaced the files of the store that it read. After that was
/// fixed, it still replaced the capacitor file of a KVSSD.
#[test]
fn an_export_leaves_its_store_alone() {
    let place = Place::new();
    std::fs::create_dir(place.path("d")).expect("a directory");
    place.ok(&["put", "d/s", "CURRENT", "x"]);
    place.ok(&["put", "d/s", "s/CURRENT", "y"]);
    place.ok(&["put", "kvssd:d/n.img?blocks=48", "n.img", "z"]);
    place.ok(&["put", "kvssd:d/n.img", "n.img.plp", "z"]);
    for arguments in [
        &["export", "d/s", "d/s", "--format", "dir", "--force"][..],
        &["export", "d/s", "d", "--force"],
        &["export", "d/s", "d/s/CURRENT", "--format", "tsv", "--force"],
        &["export", "kvssd:d/n.img", "d", "--force"],
        &["export", "kvssd:d/n.img", "d/n.img", "--format", "csv", "--force"],
        &["export", "kvssd:d/n.img", "d/n.img.plp", "--format", "csv", "--force"],
    ] {
        let ran = place.run(arguments);
        assert!([1, 3].contains(&ran.code), "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("the store"), "{arguments:?}: {}", ran.stderr);
    }
    assert_eq!(place.ok(&["get", "d/s", "CURRENT"]), "x");
    assert_eq!(place.ok(&["get", "kvssd:d/n.img", "n.img"]), "z");
    assert_eq!(place.ok(&["get", "kvssd:d/n.img", "n.img.plp"]), "z");
    assert_eq!(std::fs::read(place.path("d/CURRENT")).expect("a file"), b"x");
}

/// `--force` does not replace a device, a pipe or a directory.
#[test]
fn an_export_replaces_files_only() {
    let place = Place::new();
    place.ok(&["put", "s", "k", "v"]);
    let socket = std::os::unix::net::UnixListener::bind(place.path("socket")).expect("a socket");
    std::fs::create_dir(place.path("d")).expect("a directory");
    std::os::unix::fs::symlink("socket", place.path("link")).expect("a link");
    for target in ["socket", "d", "link"] {
        let ran = place.run(&["export", "s", target, "--format", "csv", "--force"]);
        assert!(ran.code == 3 && ran.stderr.contains("no regular file"), "{}", ran.stderr);
    }
    drop(socket);
    assert!(place.path("d").is_dir() && !place.path("socket").is_file());
    assert!(place.path("link").is_symlink());
}

/// Once, an export removed a socket or pipe with a key's name to make room for a file.
#[test]
fn only_files_and_links_in_a_directory_are_replaced() {
    let place = Place::new();
    for key in ["link", "old", "socket"] {
        place.ok(&["put", "s", key, "new"]);
    }
    place.write("out/old", "old");
    std::os::unix::fs::symlink("nowhere", place.path("out/link")).expect("a link");
    let socket = std::os::unix::net::UnixListener::bind(place.path("out/socket"));
    let ran = place.run(&["export", "s", "out", "--force"]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("key socket: "), "{}", ran.stderr);
    drop(socket.expect("a socket"));
    let found = place.path("out/socket").symlink_metadata().expect("it is there");
    assert!(!found.is_file());
    for name in ["out/old", "out/link"] {
        let found = place.path(name).symlink_metadata().expect("it is there");
        assert!(found.is_file(), "{name}");
    }
}

/// A target that ends like a directory is refused immediately. Once, the export wrote all its
/// records and then had no name for the file.
#[test]
fn a_file_is_not_named_as_a_directory() {
    let place = Place::new();
    place.ok(&["put", "s", "k", "v"]);
    for target in ["x.tsv/", "x.tsv/.", "x.tsv//"] {
        for force in [&[][..], &["--force"]] {
            let export = ["export", "s", target, "--format", "tsv"];
            let ran = place.run(&[&export[..], force].concat());
            assert_eq!(ran.code, 3, "{target}: {}", ran.stderr);
            assert!(ran.stderr.contains("named as a directory"), "{target}: {}", ran.stderr);
        }
    }
    place.ok(&["export", "s", "./x.tsv", "--format", "tsv"]);
}

#[test]
fn a_store_is_not_imported_into_itself() {
    let place = Place::new();
    place.ok(&["put", "s", "k", "v"]);
    place.ok(&["put", "kvssd:n.img?blocks=48", "k", "v"]);
    std::os::unix::fs::symlink("s", place.path("link")).expect("a link");
    for (store, source) in [("s", "s"), ("s", "./link"), ("link", "s"), ("kvssd:n.img", "n.img")] {
        let format = if source == "n.img" { "tsv" } else { "dir" };
        let ran = place.run(&["import", store, source, "--format", format]);
        assert_eq!(ran.code, 3, "{store} {source}: {}", ran.stderr);
        assert!(ran.stderr.contains("the source is the store itself"), "{}", ran.stderr);
        assert_eq!(place.ok(&["scan", store]), "k\tv\n");
    }
}

#[test]
fn malformed_lines_are_told_by_number() {
    let place = Place::new();
    let cases = [
        (
            "x.jsonl",
            "{\"key\":\"a\",\"value\":\"1\"}\nnonsense\n\n[]\n{\"key\":\"b\",\"value\":2}\n",
        ),
        ("x.csv", "key,value\na,1\nonly-one\n\n\"never closed,3\nb,2\n"),
        ("x.tsv", "a\t1\nno tab\n\nb\\q\t2\nb\t2\n"),
    ];
    for (file, text) in cases {
        place.write(file, text);
        let store = format!("s-{file}");
        let ran = place.run(&["import", &store, file]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let bad = if file == "x.csv" { [3, 5] } else { [2, 4] };
        for line in bad {
            assert!(ran.stderr.contains(&format!("{file}:{line}: ")), "{}", ran.stderr);
        }
        assert!(ran.stderr.contains("2 malformed records left out"), "{}", ran.stderr);
        assert_eq!(place.ok(&["scan", &store]), "a\t1\nb\t2\n");
        let store = format!("strict-{file}");
        let ran = place.run(&["import", &store, file, "--strict"]);
        assert_eq!(ran.code, 1);
        let place_told = format!("where: {file}:{}", bad[0]);
        assert!(ran.stderr.contains(&place_told), "{}", ran.stderr);
        assert_eq!(place.ok(&["scan", &store]), "a\t1\n", "what came before is kept");
    }
    let report = place.json(&["import", "json", "x.tsv"]);
    assert_eq!(report["malformed_records"][0]["line"], 2);
}

/// An unclosed quote ends at the next quote, which is on a later line. Once, the good lines between
/// the two were skipped as well.
#[test]
fn a_quote_that_is_not_closed_costs_its_line_only() {
    let place = Place::new();
    place.write("x.csv", "key,value\na,1\n\"open,2\nb,3\nc,4\nd,\"5\"\ne,\"6\n7\"\n");
    let report = place.json(&["import", "s", "x.csv"]);
    let told = &report["malformed_records"];
    assert_eq!((told.as_array().map(Vec::len), &told[0]["line"]), (Some(1), &3.into()), "{told}");
    let what = "its quote goes on to line 6, which has text behind a closing quote";
    assert_eq!(told[0]["what"], what);
    let keys = place.ok(&["scan", "s", "--keys-only"]);
    assert_eq!(keys, "a\nb\nc\nd\ne\n");
    assert_eq!(place.ok(&["get", "s", "e"]), "6\n7");
}

#[test]
fn foreign_fields_become_keys_and_values() {
    let place = Place::new();
    place.write("x.csv", "id,name,note\n7,\"x, y\",\"l1\nl2\"\n");
    place.write("x.jsonl", "{\"id\":8,\"name\":\"z\"}\n");
    place.ok(&["import", "s", "x.csv", "--key", "id", "--value", "note"]);
    place.ok(&["import", "s", "x.jsonl", "--key", "id"]);
    assert_eq!(place.ok(&["get", "s", "7"]), "l1\nl2");
    assert_eq!(place.ok(&["get", "s", "8"]), "{\"id\":8,\"name\":\"z\"}");
    let ran = place.run(&["import", "s", "x.csv", "--key", "nope"]);
    assert_eq!(ran.code, 3);
    assert!(ran.stderr.contains("id, name, note"), "{}", ran.stderr);
    let ran = place.run(&["import", "s", "x.csv"]);
    assert!(ran.code == 3 && ran.stderr.contains("x.csv:1"), "{}", ran.stderr);
}

/// With `--sort`, all records are loaded, and of several with the same key only the last one.
#[test]
fn records_can_be_sorted_first() {
    let place = Place::new();
    let line = |i: u32, round: u32| format!("{:05}\t{round}\n", i * 7919 % 20_011);
    let text: String = (0..3u32).flat_map(|round| (0..5000).map(move |i| line(i, round))).collect();
    place.write("x.tsv", &text);
    let report = place.json(&["import", "s", "x.tsv", "--sort"]);
    assert_eq!((&report["records"], &report["loaded_records"]), (&5000.into(), &5000.into()));
    assert!(place.ok(&["scan", "s"]).lines().all(|line| line.ends_with("\t2")));
    let tsv = ["import", "p", "-", "--format", "tsv", "--sort"];
    assert_eq!(place.pipe(&tsv, &text).code, 0);
    assert_eq!(place.ok(&["scan", "p"]), place.ok(&["scan", "s"]));
    // The report names the line of a malformed record. A strict import ends there, with nothing
    // stored.
    place.write("bad.tsv", "b\t1\nno tab\na\t2\n");
    let ran = place.run(&["import", "bad", "bad.tsv", "--sort"]);
    assert!(ran.code == 0 && ran.stderr.contains("bad.tsv:2"), "{}", ran.stderr);
    assert_eq!(place.ok(&["scan", "bad"]), "a\t2\nb\t1\n");
    let ran = place.run(&["import", "strict", "bad.tsv", "--sort", "--strict"]);
    assert!(ran.code == 1 && ran.stderr.contains("bad.tsv:2"), "{} {}", ran.code, ran.stderr);
    assert_eq!(place.ok(&["count", "strict"]), "0\n");
    let ran = place.run(&["import", "s", "x.tsv", "--sort", "--batch", "10"]);
    assert!(ran.code != 0 && ran.stderr.contains("--batch"), "{}", ran.stderr);
}

/// Records whose keys ascend are loaded, and those after them are put; later records replace
/// earlier ones, as they do in batches.
#[test]
fn sorted_records_are_loaded() {
    let place = Place::new();
    let line = |i: u32, value: &str| format!("k{i:06}\t{value}\n");
    let mut lines: Vec<String> = (0..3000).map(|i| line(i, "one")).collect();
    lines.insert(1500, "malformed\n".into());
    place.write("sorted.tsv", lines.concat());
    let report = place.json(&["import", "s", "sorted.tsv"]);
    assert_eq!((&report["records"], &report["loaded_records"]), (&3000.into(), &3000.into()));
    assert_eq!(
        (&report["malformed"], &report["malformed_records"][0]["line"]),
        (&1.into(), &1501.into())
    );
    let right: String = (0..3000).map(|i| line(i, "one")).collect();
    assert!(place.ok(&["scan", "s"]) == right);

    let again = (1000..2500).map(|i| line(i, "two"));
    let behind = [line(7, "three"), line(2999, "three"), line(7, "four"), line(3001, "three")];
    place.write("partly.tsv", again.chain(behind).collect::<String>());
    let report = place.json(&["import", "s", "partly.tsv"]);
    assert_eq!((&report["records"], &report["loaded_records"]), (&1504.into(), &1500.into()));
    let value = |key: &str| place.ok(&["get", "s", key, "--raw"]);
    let values = ["k000006", "k000007", "k001000", "k002999", "k003001"].map(value);
    assert_eq!(values, ["one", "four", "two", "three", "three"]);
    assert!(place.run(&["verify", "s"]).code == 0);

    for batches in
        [&["import", "other", "sorted.tsv", "--batch", "10"][..], &["import", "few", "few.tsv"]]
    {
        place.write("few.tsv", lines[..900].concat());
        assert_eq!(place.json(batches)["loaded_records"], 0, "{batches:?}");
    }
}

/// A strict import that loads keeps the records before the first malformed one.
#[test]
fn a_strict_import_stops_a_load() {
    let place = Place::new();
    let line = |i: u32| format!("k{i:06}\tv\n");
    let lines = (0..2000).map(|i| if i == 1500 { "bad\n".to_string() } else { line(i) });
    place.write("x.tsv", lines.collect::<String>());
    let ran = place.run(&["import", "s", "x.tsv", "--strict"]);
    assert!(ran.code == 1 && ran.stderr.contains("x.tsv:1501"), "{}", ran.stderr);
    assert_eq!(place.ok(&["count", "s"]).trim(), "1500");
    let report = place.json(&["import", "s", "x.tsv"]);
    assert_eq!((&report["records"], &report["resumed_records"]), (&1999.into(), &1500.into()));
    assert_eq!(place.ok(&["count", "s"]).trim(), "1999");
}

/// An import killed at any moment resumes where it was. No record is lost, and the records of the
/// first run are not read again.
#[test]
fn a_killed_import_goes_on() {
    let place = Place::new();
    let forget = || drop(std::fs::remove_dir_all(place.path("s")));
    goes_on_after_a_kill(&place, "s", "s/CURRENT", forget);
    let names = place.json(&["stats", "s"])["keyspaces"].as_array().map(Vec::len);
    assert_eq!(names, Some(1), "the progress is gone with the end of the import");
}

#[test]
fn a_killed_import_into_a_kvssd_goes_on() {
    for durability in ["plp", "log"] {
        let place = Place::new();
        let store = format!("kvssd:n.img?blocks=48&durability={durability}");
        let forget = || {
            let names = ["n.img", "n.img.plp", "n.img.import"];
            names.iter().for_each(|name| drop(std::fs::remove_file(place.path(name))));
        };
        goes_on_after_a_kill(&place, &store, "n.img.import", forget);
        assert!(!place.path("n.img.import").exists(), "the progress is gone");
    }
}

fn goes_on_after_a_kill(place: &Place, store: &str, begun: &str, forget: impl Fn()) {
    const LINES: u64 = 20_000;
    let value = "v".repeat(80);
    let line = |i: u64| format!("{{\"key\":\"k{i:06}\",\"value\":\"{i}-{value}\"}}\n");
    place.write("x.jsonl", (0..LINES).map(line).collect::<String>());
    let import = ["import", store, "x.jsonl", "--batch", "4", "--sync", "--json"];
    // How long an import takes depends on the disk, so the wait shrinks until a kill lands in the
    // middle of the import.
    let mut wait = Duration::from_millis(400);
    let resumed = loop {
        forget();
        let mut command = place.command(&import);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut child = child.expect("the command starts");
        let started = Instant::now();
        while !place.path(begun).exists() && started.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(wait);
        child.kill().expect("it can be killed");
        let ended = child.wait().expect("it ends").code();
        let report = place.json(&["import", store, "x.jsonl"]);
        assert_eq!(report["complete"], true);
        let resumed = report["resumed_records"].as_u64().expect("a number");
        if ended.is_none() && resumed > 0 {
            assert_eq!(report["records"], LINES);
            break resumed;
        }
        wait = wait * 2 / 3;
        assert!(wait > Duration::from_micros(100), "no kill came in the middle of an import");
    };
    assert!(resumed % 4 == 0 && resumed < LINES, "whole batches: {resumed}");
    let scan = place.ok(&["scan", store]);
    let right: String = (0..LINES).map(|i| format!("k{i:06}\t{i}-{value}\n")).collect();
    assert!(scan == right, "every record is there once");
}

#[test]
fn an_import_that_stopped_can_begin_again() {
    for store in ["s", "kvssd:n.img?blocks=48"] {
        begins_again(&Place::new(), store);
    }
}

fn begins_again(place: &Place, s: &str) {
    place.write("x.tsv", "a\t1\nbad\nb\t2\n");
    assert_eq!(place.run(&["import", s, "x.tsv", "--strict"]).code, 1);
    place.ok(&["delete", s, "a"]);
    let report = place.json(&["import", s, "x.tsv"]);
    assert_eq!((&report["resumed_records"], &report["resumed_line"]), (&1.into(), &1.into()));
    assert_eq!(place.ok(&["scan", s]), "b\t2\n", "it went on after the first line");
    assert_eq!(place.run(&["import", s, "x.tsv", "--strict"]).code, 1);
    place.ok(&["delete", s, "a"]);
    place.ok(&["import", s, "x.tsv", "--restart"]);
    assert_eq!(place.ok(&["scan", s]), "a\t1\nb\t2\n");
}

/// Once, the end of an import dropped the saved position of another import of the same file into
/// another keyspace.
#[test]
fn imports_of_a_file_into_two_keyspaces_are_apart() {
    let place = Place::new();
    place.write("x.tsv", "a\t1\nbad\nb\t2\n");
    let other = ["import", "s", "x.tsv", "--keyspace", "other"];
    assert_eq!(place.run(&[&other[..], &["--strict"]].concat()).code, 1);
    place.ok(&["import", "s", "x.tsv"]);
    assert_eq!(place.json(&other)["resumed_records"], 1);
    let names = place.json(&["stats", "s"])["keyspaces"].as_array().map(Vec::len);
    assert_eq!(names, Some(2), "the progress is gone with the end of both");

    // The saved position of a file that has changed since stays until the import begins again.
    assert_eq!(place.run(&[&other[..], &["--strict"]].concat()).code, 1);
    place.write("x.tsv", "b\t1\n");
    place.ok(&["import", "s", "x.tsv"]);
    assert_eq!(place.run(&other).code, 1);
    place.ok(&[&other[..], &["--restart"]].concat());
    let names = place.json(&["stats", "s"])["keyspaces"].as_array().map(Vec::len);
    assert_eq!(names, Some(2), "nothing is left of an older file");
}

/// A directory's own metadata does not show changes inside its files or new files in directories
/// below it. Once, after an import that was cut short, changed and new files before the saved
/// position were skipped. After that was fixed, the import began again, but kept the records of
/// files that had been removed from the directory.
#[test]
fn a_directory_that_changed_is_not_gone_on_with() {
    for store in ["s", "kvssd:n.img?blocks=48"] {
        for change in ["same length", "another", "new", "old time", "none"] {
            let place = Place::new();
            let first = place.write("d/a/first", "old");
            place.write("d/a/second", "x");
            let large = place.write("d/b", "");
            let cut = std::fs::File::options().write(true).open(&large).expect("a file");
            cut.set_len(1 << 32).expect("a file with a hole");
            assert_eq!(place.run(&["import", store, "d", "--strict"]).code, 1);
            cut.set_len(1).expect("a file");
            let time = first.metadata().and_then(|found| found.modified()).expect("a time");
            match change {
                "same length" => drop(place.write("d/a/first", "new")),
                "another" => drop(place.write("d/a/first", "newer")),
                "new" => drop(place.write("d/a/0", "z")),
                "old time" => {
                    place.write("d/a/first", "new");
                    let file = std::fs::File::options().write(true).open(&first);
                    file.and_then(|file| file.set_modified(time)).expect("a time");
                }
                _ => {}
            }
            if change == "none" {
                assert_eq!(place.json(&["import", store, "d"])["resumed_records"], 2);
            } else {
                let ran = place.run(&["import", store, "d"]);
                assert!(ran.code == 1 && ran.stderr.contains("has changed"), "{}", ran.stderr);
                place.ok(&["import", store, "d", "--restart"]);
            }
            place.ok(&["export", store, "out/"]);
            assert_eq!(files_below(&place.path("d")), files_below(&place.path("out")), "{change}");
        }
    }
}

/// An error about a record names its file and line even when the store refuses the record.
#[test]
fn records_that_no_store_takes_are_told_by_place() {
    let place = Place::new();
    let long = "k".repeat(65_536);
    place.write("x.tsv", format!("a\t1\n\n{long}\t2\nb\t2\n"));
    let report = place.json(&["import", "s", "x.tsv"]);
    let told = &report["malformed_records"][0];
    assert_eq!((&told["file"], &told["line"]), (&"x.tsv".into(), &3.into()), "{report}");
    assert_eq!(place.ok(&["scan", "s"]), "a\t1\nb\t2\n");
    let ran = place.run(&["import", "strict", "x.tsv", "--strict"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("where: x.tsv:3\n"), "{}", ran.stderr);

    // A file too large for a value is not even read.
    place.write("d/small", "x");
    let large = std::fs::File::create(place.path("d/large")).expect("a file");
    large.set_len(1 << 32).expect("a file with a hole");
    let ran = place.run(&["import", "t", "d"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let told = "d/large: the value has 4294967296 bytes; the most is 4294967295";
    assert!(ran.stderr.contains(told), "{}", ran.stderr);
    assert_eq!(place.ok(&["scan", "t"]), "small\tx\n");
    let ran = place.run(&["put", "t", "k", "--file", "d/large"]);
    assert_eq!(ran.code, 3, "{}", ran.stderr);
    assert!(ran.stderr.contains("where: d/large"), "{}", ran.stderr);
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_first_record() {
    let place = Place::new();
    for (file, text) in [
        ("x.jsonl", "{\"key\":\"a\",\"value\":\"1\"}\n"),
        ("x.csv", "key,value\na,1\n"),
        ("x.tsv", "a\t1\n"),
    ] {
        place.write(file, format!("\u{feff}{text}"));
        place.ok(&["import", file.trim_start_matches("x."), file]);
        assert_eq!(place.ok(&["scan", file.trim_start_matches("x.")]), "a\t1\n");
    }
}

#[test]
fn headers_that_say_too_little() {
    let place = Place::new();
    place.write("empty.csv", "");
    place.write("twice.csv", "key,key,value\na,b,c\n");
    let ran = place.run(&["import", "s", "empty.csv"]);
    assert!(ran.code == 3 && ran.stderr.contains("the file is empty"), "{}", ran.stderr);
    let ran = place.run(&["import", "s", "twice.csv"]);
    assert!(ran.code == 3 && ran.stderr.contains("more than one field"), "{}", ran.stderr);
    // A whole record as the value cannot keep two fields of the same name, or bytes that are not
    // UTF-8.
    place.write("whole.csv", "id,x,x\n1,a,b\n");
    let ran = place.run(&["import", "s", "whole.csv", "--key", "id"]);
    assert!(ran.code == 3 && ran.stderr.contains("more than one field"), "{}", ran.stderr);
    place.write("latin.csv", b"id,name\n1,M\xfcller\n2,Meyer\n");
    let ran = place.run(&["import", "latin", "latin.csv", "--key", "id"]);
    assert!(ran.stderr.contains("latin.csv:2: field name is no UTF-8"), "{}", ran.stderr);
    assert_eq!(place.ok(&["scan", "latin", "--keys-only"]), "2\n");
    place.ok(&["import", "latin", "latin.csv", "--key", "id", "--value", "name"]);
    assert_eq!(place.run(&["get", "latin", "1", "--raw"]).bytes, b"M\xfcller");
    place.write("x.jsonl", "{\"key\":\"a\",\n");
    let ran = place.run(&["import", "s", "x.jsonl"]);
    assert!(ran.stderr.contains("x.jsonl:1: the line is no JSON: EOF while"), "{}", ran.stderr);
    assert!(ran.stderr.contains(" at column "), "{}", ran.stderr);
}

/// Once, the second import of a directory that contains the store read the store's own files as
/// records. After that was fixed, it still read the capacitor file of a KVSSD.
#[test]
fn a_store_inside_its_source_is_left_out() {
    let place = Place::new();
    place.write("d/a", "1");
    place.write("d/sub/store/b", "2");
    for store in ["d/store", "d/sub/../deep", "kvssd:d/n.img?blocks=48"] {
        for _ in 0..2 {
            place.ok(&["import", store, "d", "--restart"]);
        }
        let keys = place.ok(&["scan", store, "--keys-only"]);
        let own = match store {
            "d/store" => "store/",
            "d/sub/../deep" => "deep/",
            _ => "n.img",
        };
        assert!(keys.contains("a\n") && keys.contains("sub/store/b\n"), "{store}: {keys}");
        assert!(!keys.lines().any(|key| key.starts_with(own)), "{store}: {keys}");
    }
}

#[test]
fn a_directory_can_be_named_by_its_end() {
    let place = Place::new();
    place.ok(&["put", "s", "a/b", "x"]);
    let ran = place.run(&["export", "s", "out"]);
    assert!(ran.code == 3 && ran.stderr.contains("--format dir"), "{}", ran.stderr);
    place.ok(&["export", "s", "out/"]);
    assert_eq!(files_below(&place.path("out")).len(), 1);
}

/// `import -`, a path that is a pipe, and a named pipe.
#[test]
fn a_pipe_is_a_source() {
    let place = Place::new();
    let text = "a\t1\nb\t2\n";
    let ran = place.pipe(&["import", "s", "-"], text);
    assert!(ran.code == 3 && ran.stderr.contains("--format"), "{}", ran.stderr);
    assert!(!place.path("s").exists());
    let tsv = ["import", "s", "-", "--format", "tsv"];
    let ran = place.pipe(&tsv, text);
    assert!(ran.code == 0 && ran.stderr.contains("2 records"), "{}", ran.stderr);
    assert_eq!(place.ok(&["scan", "s"]), text);
    assert_eq!(place.pipe(&["import", "p", "/dev/stdin", "--format", "tsv"], text).code, 0);
    assert_eq!(place.ok(&["scan", "p"]), text);
    assert_eq!(place.ok(&["stats", "p"]).matches("_runstone.import").count(), 0, "no progress");
    // A named pipe, which is opened by both sides at once.
    let made = Command::new("mkfifo").arg(place.path("pipe.tsv")).status();
    assert!(made.expect("mkfifo is there").success());
    let (path, text_of) = (place.path("pipe.tsv"), text.to_string());
    let writer = std::thread::spawn(move || std::fs::write(path, text_of));
    place.ok(&["import", "named", "pipe.tsv"]);
    writer.join().expect("no panic").expect("writes");
    assert_eq!(place.ok(&["scan", "named"]), text);
    // After a quote that is never closed, reading continues after its line, in a pipe too.
    let ran = place.pipe(&["import", "q", "-", "--format", "csv"], "key,value\na,\"1\nb,2\nc,3\n");
    assert!(ran.code == 0 && ran.stderr.contains("-:2: a quote is not closed"), "{}", ran.stderr);
    assert_eq!(place.ok(&["scan", "q"]), "b\t2\nc\t3\n");
}

/// Several members one after another: `cat a.gz b.gz` makes them, and so does a log that is
/// appended to.
#[test]
fn compressed_files_and_pipes_are_unpacked() {
    use std::io::Write;
    let place = Place::new();
    let gz = |text: &str| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text.as_bytes()).expect("memory");
        encoder.finish().expect("memory")
    };
    let zst = |text: &str| zstd::encode_all(text.as_bytes(), 1).expect("memory");
    for (name, pack) in [("gz", &gz as &dyn Fn(&str) -> Vec<u8>), ("zst", &zst)] {
        let bytes = [pack("a\t1\n"), pack("b\t2\n")].concat();
        let file = format!("x.tsv.{name}");
        place.write(&file, &bytes);
        place.ok(&["import", &format!("s-{name}"), &file, "--strict"]);
        assert_eq!(place.ok(&["scan", &format!("s-{name}")]), "a\t1\nb\t2\n");
        let piped = format!("p-{name}");
        assert_eq!(place.pipe(&["import", &piped, "-", "--format", "tsv"], &bytes).code, 0);
        assert_eq!(place.ok(&["scan", &piped]), "a\t1\nb\t2\n");
        // Truncated input is an error, and not the end of the file.
        let cut = place.write(&file, &bytes[..bytes.len() - 5]);
        let ran = place.run(&["import", "cut", cut.to_str().expect("text")]);
        assert_eq!(ran.code, 5, "{}", ran.stderr);
    }
}

/// Once, an import with the wrong options succeeded and reported that it had stored nothing.
#[test]
fn an_import_that_stores_nothing_fails_with_advice() {
    let place = Place::new();
    let empty = place.run(&{
        place.write("empty.tsv", "\n\n");
        ["import", "s", "empty.tsv"]
    });
    assert!(empty.code == 1 && empty.stderr.contains("holds no records"), "{}", empty.stderr);
    place.write("x.jsonl", "{\"props\":{\"id\":\"k\"}}\n");
    let wrong = place.run(&["import", "s", "x.jsonl", "--key", "id"]);
    assert!(wrong.code == 3 && wrong.stderr.contains("no field \"id\""), "{}", wrong.stderr);
    assert!(wrong.stderr.contains("--key"), "{}", wrong.stderr);
    place.ok(&["import", "s", "x.jsonl", "--key", "props.id"]);
    assert_eq!(place.ok(&["get", "s", "k"]).trim(), "{\"props\":{\"id\":\"k\"}}");
}

/// An import names the files that it cannot read. The superuser can read everything, so the test
/// skips there.
#[test]
fn unreadable_files_are_named() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    place.write("d/open", "x");
    let closed = place.write("d/closed", "y");
    let mode = std::fs::Permissions::from_mode(0o0);
    std::fs::set_permissions(&closed, mode).expect("its owner may");
    if std::fs::read(&closed).is_ok() {
        return;
    }
    let ran = place.run(&["import", "s", "d"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("cannot read d/closed: Permission denied"), "{}", ran.stderr);
}

/// Values that are JSON objects become columns, and those that are not are named.
#[test]
fn objects_are_exported_as_columns() {
    let place = Place::new();
    place.ok(&["put", "s", "1", r#"{"name":"Ann, the first","at":{"city":"Bern"},"age":7}"#]);
    place.ok(&["put", "s", "2", r#"{"name":"Bob"}"#]);
    let columns = "name,at.city,age";
    let csv = place.ok(&["export", "s", "-", "--format", "csv", "--columns", columns]);
    let expected = "key,name,at.city,age,expires_ms\n1,\"Ann, the first\",Bern,7,\n2,Bob,,,\n";
    assert_eq!(csv, expected);
    place.ok(&["put", "s", "3", "text"]);
    let ran = place.run(&["export", "s", "out.csv", "--columns", columns]);
    assert!(ran.code == 1 && ran.stderr.contains("key 3: its value is no"), "{}", ran.stderr);
    assert!(ran.stderr.contains("1 entry has a value that is no JSON object"), "{}", ran.stderr);
    let ran = place.run(&["export", "s", "out.jsonl", "--columns", columns]);
    assert!(ran.code == 3 && ran.stderr.contains("--columns is for csv"), "{}", ran.stderr);
}
