//! The first steps of a user who does not know the names yet: names from other stores, options of
//! other commands, keyspaces that are still to be made. What goes wrong later is in `hints`.

use crate::Place;

/// The text without line breaks and the blanks after them.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The message of a call that is refused.
fn refused(place: &Place, arguments: &[&str], code: i32) -> String {
    let ran = place.run(arguments);
    assert_eq!(ran.code, code, "{arguments:?}: {}{}", ran.stdout, ran.stderr);
    flat(&ran.stderr)
}

/// `put` refuses numbers in such a keyspace. Once, it advised `merge`, which refused to make the
/// keyspace: a circle.
#[test]
fn a_counter_begins_in_a_keyspace_that_merge_makes() {
    let place = Place::new();
    place.write("o.toml", "merge_operator = \"add-i64\"\n");
    let counters = ["--keyspace", "counters", "--options", "o.toml"];
    let told = refused(&place, &[&["put", "s", "visits", "5"][..], &counters].concat(), 3);
    assert!(told.contains("`runstone merge STORE KEY 5`"), "{told}");
    for _ in 0..2 {
        place.ok(&[&["merge", "s", "visits", "5"][..], &counters].concat());
    }
    let get = ["get", "s", "visits", "--keyspace", "counters", "--text"];
    assert_eq!(place.ok(&get), "10\n");
    let made = place.json(&["merge", "t", "visits", "-2", "--options", "o.toml"]);
    assert_eq!(made["made"], true);
    assert_eq!(place.ok(&["get", "t", "visits", "--text"]), "-2\n");
}

#[test]
fn merge_makes_nothing_that_could_not_take_the_operand() {
    let place = Place::new();
    place.write("plain.toml", "ttl_seconds = 60\n");
    let told = refused(&place, &["merge", "s", "k", "5", "--options", "plain.toml"], 3);
    assert!(told.contains("name a merge_operator"), "{told}");
    place.write("adds.toml", "merge_operator = \"add-u64\"\n");
    refused(&place, &["merge", "s", "k", "five", "--options", "adds.toml"], 3);
    refused(&place, &["merge", "s", "k", "5"], 4);
    assert!(!place.path("s").exists(), "a store was made for nothing");
    place.ok(&["put", "s", "k", "v"]);
    let told = refused(&place, &["merge", "s", "k", "5", "--keyspace", "counters"], 3);
    assert!(told.contains("`runstone put` and `runstone import` make keyspaces"), "{told}");
    assert_eq!(place.ok(&["stats", "s"]).matches("fragmented-leveling").count(), 1);
}

/// The hint names `set`, which changes one option. Once, it named `reshape`, which needs a file.
#[test]
fn the_advice_for_a_merge_operator_is_one_command() {
    let place = Place::new();
    place.ok(&["put", "s", "k", "v", "--keyspace", "tags"]);
    let told = refused(&place, &["merge", "s", "n", "a", "--keyspace", "tags"], 3);
    let advice = "`runstone set STORE merge_operator=NAME --keyspace tags`";
    assert!(told.contains(advice), "{told}");
    place.ok(&["set", "s", "merge_operator=append(,)", "--keyspace", "tags"]);
    place.ok(&["merge", "s", "n", "a", "--keyspace", "tags"]);
    assert_eq!(place.ok(&["get", "s", "n", "--keyspace", "tags"]), "a");
    let told = refused(&place, &["merge", "s", "n", "a"], 3);
    assert!(told.contains("`runstone set STORE merge_operator=NAME --keyspace default`"), "{told}");
}

/// Once, the command advised `paper` for `repair`, and nothing for most of these names.
#[test]
fn names_that_other_stores_have_lead_to_ours() {
    let place = Place::new();
    for (name, hint) in [
        ("keyspaces", "`runstone stats STORE` lists the keyspaces"),
        ("ls", "`runstone scan STORE --keys-only`"),
        ("copy", "`runstone checkpoint STORE TARGET`"),
        ("recover", "`runstone repair STORE TARGET` makes a new store"),
        ("restore", "a checkpoint is a store"),
        ("rm", "`runstone delete STORE KEY`"),
        ("load", "`runstone import STORE SOURCE`"),
        ("create", "`runstone put` and `runstone import` make a store"),
        ("begin", "transactions are made by programs"),
        ("metrics", "`runstone stats STORE --prometheus`"),
    ] {
        let told = refused(&place, &[name, "s"], 3);
        assert!(told.contains(&format!("there is no command {name:?}")), "{name}: {told}");
        assert!(told.contains(hint), "{name}: {told}");
        let told = refused(&place, &[name, "s", "--json"], 3);
        let told: serde_json::Value = serde_json::from_str(&told).expect("an object");
        assert!(told["hint"].as_str().is_some_and(|text| text.contains(hint)), "{told}");
        let told = refused(&place, &["help", name], 3);
        assert!(told.contains(hint), "help {name}: {told}");
    }
    let told = refused(&place, &["help", "scna"], 3);
    assert!(told.contains("did you mean scan?"), "{told}");
    assert!(refused(&place, &["putt", "s"], 3).contains("'put'"));
}

/// Once, the advice "to pass '--keyspace' as a value, use '-- --keyspace'" led to the next refusal.
#[test]
fn an_option_of_another_command_is_no_value() {
    let place = Place::new();
    for arguments in [
        &["drop", "s", "--keyspace", "users"][..],
        &["scan", "s", "--memory-budget", "8M"],
        &["get", "s", "k", "--prefix", "x"],
    ] {
        let told = refused(&place, arguments, 3);
        assert!(told.contains("unexpected argument '--"), "{told}");
        assert!(!told.contains("as a value"), "{told}");
        let told = refused(&place, &[arguments, &["--json"]].concat(), 3);
        assert!(!told.contains("as a value"), "{told}");
    }
    // A key may begin with one dash, and clap's advice for such a key works.
    assert!(refused(&place, &["put", "s", "-k", "v"], 3).contains("use '-- -k'"));
    place.ok(&["put", "s", "--", "-k", "v"]);
}

#[test]
fn a_time_to_live_that_cannot_be_read_says_how_it_is_written() {
    let place = Place::new();
    for bad in ["2h30m", "1.5h", "", "-5", "1w", "soon"] {
        let told = refused(&place, &["put", "s", "k", "v", "--ttl", bad], 3);
        assert!(told.contains("write a whole number with ms, s, m, h or d"), "{bad}: {told}");
        assert!(!told.contains("invalid digit") && !told.contains("as a value"), "{bad}: {told}");
    }
    place.ok(&["put", "s", "k", "v", "--ttl", "150m"]);
}

/// Once, the advice for scripts lacked the store, and so did not run.
#[test]
fn the_advice_for_an_absent_key_runs() {
    let place = Place::new();
    place.ok(&["put", "s", "k1", "v"]);
    let told = refused(&place, &["get", "s", "k2", "--json"], 1);
    let advice = "`runstone scan STORE --prefix P`";
    assert!(told.contains(advice), "{told}");
    assert_eq!(place.ok(&["scan", "s", "--prefix", "k"]), "k1\tv\n");
}

#[test]
fn one_field_is_not_told_as_several() {
    let place = Place::new();
    place.write("x.csv", "key,value\na,1\nb\n");
    let ran = place.run(&["import", "s", "x.csv"]);
    assert!(ran.stderr.contains("x.csv:3: 1 field where the header has 2"), "{}", ran.stderr);
}

/// Tab-separated files of other programs contain backslashes that are not escapes. Once, they were
/// read as escapes without a word, so that `a\x2db` became another key.
#[test]
fn escapes_in_tsv_are_told() {
    let place = Place::new();
    let told = flat(&place.ok(&["help", "import"]));
    assert!(told.contains("a backslash begins an escape"), "{told}");
    let told = flat(&place.ok(&["help", "encoding"]));
    assert!(told.contains(r"sed 's/\\/\\\\/g'"), "{told}");
    place.write("x.tsv", "a\\x2db\t1\nplain\t2\n");
    for sort in [&["--sort"][..], &[]] {
        let ran = place.run(&[&["import", "s", "x.tsv"], sort].concat());
        assert!(flat(&ran.stderr).contains("escapes of 1 record were undone"), "{}", ran.stderr);
    }
    assert_eq!(place.json(&["import", "t", "x.tsv"])["escaped"], 1);
    assert_eq!(place.ok(&["get", "s", "a-b"]), "1");
    // The help advises this.
    place.write("y.tsv", "a\\\\x2db\t1\n");
    place.ok(&["import", "u", "y.tsv"]);
    assert_eq!(place.ok(&["scan", "u"]), "a\\\\x2db\t1\n");
}
