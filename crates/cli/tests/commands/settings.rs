//! Options of a store as people look them up, change them, and complete them.

use crate::Place;

fn options(place: &Place, store: &str) -> serde_json::Value {
    place.json(&["options", store])["options"].clone()
}

/// Once, only `stats --json` printed the options of a store, in a form that `--options` does not
/// accept.
#[test]
fn options_are_printed_as_they_are_given() {
    let place = Place::new();
    place.write("o.toml", "merge_operator = \"append(,)\"\nttl_seconds = 60\n[shape]\nc = 0.5\n");
    place.ok(&["put", "s", "k", "v", "--options", "o.toml"]);
    place.ok(&["put", "s", "k", "v", "--keyspace", "two", "--preset", "small-space"]);
    let text = place.ok(&["options", "s"]);
    assert!(text.contains("merge_operator = \"append(,)\"") && text.contains("c = 0.5"), "{text}");
    place.write("same.toml", &text);
    place.ok(&["put", "t", "k", "v", "--options", "same.toml"]);
    assert_eq!(place.ok(&["options", "t"]), text);
    place.ok(&["reshape", "s", "--options", "same.toml"]);
    assert_eq!(place.ok(&["options", "s"]), text);
    let two = place.ok(&["options", "s", "--keyspace", "two"]);
    assert!(two != text && !two.contains("append"), "{two}");
    assert_eq!(place.run(&["options", "none"]).code, 4);
}

/// Once, a change of one option needed a file, and a misspelt one was answered by a list of all
/// names.
#[test]
fn one_option_is_set_and_the_others_stay() {
    let place = Place::new();
    place.write("o.toml", "ttl_seconds = 3600\n[shape]\nl0_share_percent = 60\n");
    place.ok(&["put", "s", "k", "v", "--options", "o.toml"]);
    let before = options(&place, "s");
    for (option, pointer, value) in [
        ("l0_trigger=6", "/shape/l0_trigger", serde_json::json!(6)),
        ("shape.c=0.25", "/shape/c", 0.25.into()),
        ("policy=leveling", "/policy", "leveling".into()),
        ("write_buffer_bytes=32M", "/write_buffer_bytes", (32 << 20).into()),
        ("compression=[\"none\", \"zstd\"]", "/compression", serde_json::json!(["none", "zstd"])),
        ("values.separate_at = 4096", "/values/separate_at", 4096.into()),
        ("merge_operator=append(,)", "/merge_operator", "append(,)".into()),
    ] {
        let told = place.run(&["set", "s", option]);
        assert!(told.stderr.contains(&format!("set {option}; ")), "{}", told.stderr);
        assert_eq!(options(&place, "s").pointer(pointer), Some(&value), "{option}");
    }
    let after = options(&place, "s");
    for kept in ["/ttl_seconds", "/shape/l0_share_percent", "/shape/table_bytes", "/prefix"] {
        assert_eq!(after.pointer(kept), before.pointer(kept), "{kept}");
    }
}

#[test]
fn options_that_there_are_not_are_told() {
    let place = Place::new();
    place.ok(&["put", "s", "k", "v"]);
    let before = place.ok(&["options", "s"]);
    for (option, word) in [
        ("polcy=leveling", "did you mean policy?"),
        ("policy=levelling", "did you mean leveling?"),
        ("merge_operator=ad-i64", "did you mean add-i64"),
        ("values.l0_trigger=6", "no option is named \"values.l0_trigger\""),
        ("l0_trigger", "write OPTION=VALUE"),
        ("l0_trigger=many", "l0_trigger"),
        ("l0_trigger=0", "l0_trigger"),
        ("memory_budget_bytes=1G", "is not kept in it"),
    ] {
        // The first of the two is right, but it is not set unless both are.
        let ran = place.run(&["set", "s", "ttl_seconds=5", option]);
        assert_eq!(ran.code, 3, "{option}: {}", ran.stderr);
        assert!(ran.stderr.contains(word) && ran.stderr.contains("hint: "), "{}", ran.stderr);
    }
    assert_eq!(place.ok(&["options", "s"]), before);
}

/// Once, a keyspace with a merge operator could take no preset, because no preset names one.
#[test]
fn a_preset_leaves_what_says_what_entries_are() {
    let place = Place::new();
    place.write("o.toml", "merge_operator = \"add-i64\"\nttl_seconds = 3600\n");
    place.ok(&["put", "s", "6b", "0000000000000000", "--hex", "--options", "o.toml"]);
    place.ok(&["merge", "s", "k", "5"]);
    place.ok(&["reshape", "s", "--preset", "small-space"]);
    assert_eq!(place.ok(&["get", "s", "k", "--text"]), "5\n");
    let after = options(&place, "s");
    assert_eq!(
        (&after["merge_operator"], &after["ttl_seconds"]),
        (&"add-i64".into(), &3600.into())
    );
    place.ok(&["put", "t", "k", "v", "--preset", "small-space"]);
    let mut preset = options(&place, "t");
    for own in ["merge_operator", "ttl_seconds"] {
        preset[own] = after[own].clone();
    }
    assert_eq!(after, preset, "all the others are those of the preset");
}

/// Once, `help options` listed only the options of a keyspace.
#[test]
fn options_of_an_open_store_are_in_help() {
    let place = Place::new();
    let help = place.ok(&["help", "options"]);
    for option in ["memory_budget_bytes", "max_open_files", "idle_after", "--memory-budget"] {
        assert!(help.contains(option), "{option}");
    }
    let options = place.json(&["help", "options"])["store_options"].clone();
    assert!(options.as_array().is_some_and(|options| options.len() > 15), "{options}");
}

/// The shell's help takes a name, as the command's help does.
#[test]
fn help_inside_the_shell() {
    let place = Place::new();
    place.ok(&["put", "s", "k", "v"]);
    for line in ["help scan", "scan --help", "scan -h"] {
        let ran = place.pipe(&["shell", "s"], format!("{line}\n"));
        assert_eq!(ran.code, 0, "{line}: {}", ran.stderr);
        assert!(ran.stdout.contains("--keys-only"), "{line}: {}", ran.stdout);
        assert!(ran.stdout.contains("Usage: scan "), "{line}: {}", ran.stdout);
    }
    assert!(place.pipe(&["shell", "s"], "help\n").stdout.contains("snapshots"));
    let ran = place.pipe(&["shell", "s"], "help scna\n");
    assert!(ran.code == 3 && ran.stderr.contains("no command \"scna\""), "{}", ran.stderr);
}

/// Once, names that the command knows were not completed.
#[test]
fn completion_knows_names() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = place.ok(&["completions", shell]);
        // Clap's script for fish completes only arguments of flags.
        let argument = if shell == "fish" { "lazy-leveling" } else { "l0_share_percent" };
        for name in ["lazy-leveling", "small-space", "skip-failed", argument] {
            assert!(script.contains(name), "{shell}: {name}");
        }
    }
    // An unknown name is still reported, with the name that may be meant.
    let ran = place.run(&["put", "s", "k", "v", "--preset", "balancd"]);
    assert!(ran.code == 3 && ran.stderr.contains("balanced"), "{}", ran.stderr);
}
