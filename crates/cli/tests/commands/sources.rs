//! Files that an import or export cannot use are reported at once, with what to do.

use crate::Place;

/// Once, every line of the file was read and reported as malformed.
#[test]
fn lines_without_the_fields_are_told_at_the_first() {
    let place = Place::new();
    let lines: String = (0..500).map(|i| format!("{{\"id\":{i},\"name\":\"n\"}}\n")).collect();
    place.write("x.jsonl", &lines);
    for (rest, absent) in [
        (&[][..], "key"),
        (&["--key", "nope"], "nope"),
        (&["--key", "id", "--value", "nope"], "nope"),
        (&["--key", "id.deep"], "id.deep"),
    ] {
        for source in ["x.jsonl", "-"] {
            let import = [&["import", "s", source, "--format", "jsonl"][..], rest].concat();
            let ran = place.pipe(&import, &lines);
            assert_eq!(ran.code, 3, "{rest:?}: {}", ran.stderr);
            let told = format!("error: the first line has no field {absent:?}\n");
            assert!(ran.stderr.starts_with(&told), "{rest:?}: {}", ran.stderr);
            assert!(ran.stderr.contains(&format!("where: {source}:1\n")), "{}", ran.stderr);
            assert!(ran.stderr.contains("it has: id, name; pass "), "{}", ran.stderr);
        }
    }
    let only_key = place.pipe(&["import", "s", "-", "--format", "jsonl"], "{\"key\":\"a\"}\n");
    assert!(only_key.stderr.contains("no field \"value\""), "{}", only_key.stderr);
    assert!(!place.path("s").exists(), "no store is made");
    // The hint advises this.
    place.ok(&["import", "s", "x.jsonl", "--key", "id", "--value", "name"]);
    assert_eq!(place.ok(&["count", "s"]), "500\n");
    assert_eq!(
        place.pipe(&["import", "t", "-", "--format", "jsonl", "--key", "id"], &lines).code,
        0
    );
    assert_eq!(place.ok(&["count", "t"]), "500\n", "the line that was looked at is not lost");
}

#[test]
fn json_is_not_lines_of_json() {
    let place = Place::new();
    place.write("x.json", "[{\"key\":\"a\",\"value\":\"b\"}]\n");
    place.write("y.json", "{\n  \"key\": \"a\"\n}\n");
    for arguments in [&["import", "s", "x.json"][..], &["export", "x", "new.json"]] {
        place.ok(&["put", "x", "k", "v"]);
        let ran = place.run(arguments);
        assert_eq!(ran.code, 3, "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("jsonl is one object on each line"), "{}", ran.stderr);
        assert!(ran.stderr.contains("--format jsonl"), "{}", ran.stderr);
    }
    for name in ["x.json", "y.json"] {
        let ran = place.run(&["import", "s", name, "--format", "jsonl"]);
        assert_eq!(ran.code, 3, "{name}: {}", ran.stderr);
        assert!(ran.stderr.contains("not one object on each line"), "{}", ran.stderr);
        assert!(ran.stderr.contains("jq -c"), "{}", ran.stderr);
    }
    assert!(!place.path("s").exists() && !place.path("new.json").exists());
}

/// Once, `-` was taken for a file name, and with `--format dir` it became a directory.
#[test]
fn a_pipe_has_no_name() {
    let place = Place::new();
    place.ok(&["put", "s", "k", "v"]);
    for arguments in [&["export", "s", "-"][..], &["import", "t", "-"]] {
        let ran = place.run(arguments);
        assert!(ran.code == 3 && ran.stderr.contains("`-` has no name"), "{}", ran.stderr);
        assert!(ran.stderr.contains("--format jsonl, csv or tsv"), "{}", ran.stderr);
        let ran = place.run(&[arguments, &["--format", "dir"]].concat());
        assert!(ran.code == 3 && ran.stderr.contains("is a pipe"), "{}", ran.stderr);
    }
    assert!(!place.path("-").exists());
    assert_eq!(place.ok(&["export", "s", "-", "--format", "tsv"]), "k\tv\n");
}

/// Once, a misspelt column was empty in every line, and no error was reported.
#[test]
fn columns_that_no_value_has_are_told() {
    let place = Place::new();
    place.write("x.tsv", "a\t{\"n\":1}\nb\t{\"n\":2,\"m\":3}\n");
    place.ok(&["import", "s", "x.tsv"]);
    let ran = place.run(&["export", "s", "y.csv", "--columns", "n,m,nn"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("which are empty: nn\n"), "{}", ran.stderr);
    let export = ["export", "s", "z.csv", "--columns", "n,m,nn"];
    assert_eq!(place.json(&export)["empty_columns"], serde_json::json!(["nn"]));
}

/// Once, small imports took "0 ns".
#[test]
fn an_import_took_some_time() {
    let place = Place::new();
    for i in 0..5 {
        place.write("x.tsv", format!("k{i}\tv\n"));
        let ran = place.run(&["import", "s", "x.tsv"]);
        let told = ran.stderr.lines().last().unwrap_or_default().to_string();
        assert!(told.starts_with("1 record, ") && !told.contains(" 0 ns"), "{told}");
    }
}

/// Once, `stats --prefix` reported the entries of whole tables.
#[test]
fn a_part_of_a_store_is_estimated() {
    let place = Place::new();
    let lines: String = (0..4000).map(|i| format!("key{i:04}\tvalue {i}\n")).collect();
    place.write("x.tsv", lines);
    place.ok(&["import", "s", "x.tsv"]);
    let about = |prefix: &str| {
        let stats = place.json(&["stats", "s", "--prefix", prefix]);
        let about = stats["keyspaces"][0]["about_keys"].as_u64().expect("a number");
        let text = place.ok(&["stats", "s", "--prefix", prefix]);
        let keys = if about == 1 { "key" } else { "keys" };
        assert!(
            text.contains(&format!("the range holds about {about} {keys} of default")),
            "{text}"
        );
        about
    };
    assert!((500..=2000).contains(&about("key1")), "{}", about("key1"));
    place.ok(&["delete", "s", "--prefix", "key1"]);
    assert_eq!(about("key1"), 0, "what is deleted does not count");
    assert!((1500..=6000).contains(&about("key")), "{}", about("key"));
    assert_eq!(about("none"), 0);
}
