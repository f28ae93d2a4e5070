//! Where stores, copies and files are made, and where not.

use std::fs;

use crate::{Place, files_below};

/// Once, a misspelt path made a store, and the directories above it, without a word.
#[test]
fn a_store_that_is_made_is_told() {
    let place = Place::new();
    place.write("x.tsv", "k\tv\n");
    for (store, arguments) in [
        ("a", &["put", "a", "k", "v"][..]),
        ("b", &["import", "b", "x.tsv"]),
        ("c", &["shell", "c"]),
    ] {
        for is_new in [true, false] {
            let ran = place.run(arguments);
            assert_eq!(ran.code, 0, "{}", ran.stderr);
            let told = format!("made a new store in {store}");
            assert_eq!(ran.stderr.contains(&told), is_new, "{arguments:?}: {}", ran.stderr);
        }
    }
    for image in ["kvssd:n.img", "blockssd:b.img?blocks=48"] {
        for is_new in [true, false] {
            let ran = place.run(&["put", image, "k", "v"]);
            let told = format!("made a new store in {image}");
            assert_eq!((ran.code, ran.stderr.contains(&told)), (0, is_new), "{}", ran.stderr);
        }
    }
    assert_eq!(place.run(&["put", "mem:", "k", "v"]).stderr, "", "it ends with the command");
    let ran = place.run(&["put", "d", "k", "v", "--json"]);
    assert_eq!(ran.stderr, "", "under --json it is a field");
    assert!(ran.stdout.contains("\"made\":true"), "{}", ran.stdout);
    assert_eq!(place.json(&["put", "d", "k", "v"])["made"], false);
}

#[test]
fn directories_above_a_store_are_not_made() {
    let place = Place::new();
    place.write("x.tsv", "k\tv\n");
    for arguments in [
        &["put", "no/dir/s", "k", "v"][..],
        &["import", "no/dir/s", "x.tsv"],
        &["shell", "no/dir/s"],
    ] {
        let ran = place.run(arguments);
        assert_eq!(ran.code, 4, "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("`mkdir -p no/dir`"), "{arguments:?}: {}", ran.stderr);
        assert!(!place.path("no").exists(), "{arguments:?}");
    }
    fs::create_dir_all(place.path("no/dir")).expect("as it says");
    place.ok(&["put", "no/dir/s", "k", "v"]);
}

/// A store removes files that do not belong to it, and a checkpoint of it does not contain them.
#[test]
fn nothing_is_made_inside_of_a_store() {
    let place = Place::new();
    for store in ["s", "other"] {
        place.ok(&["put", store, "k", "v"]);
    }
    std::os::unix::fs::symlink("s", place.path("link")).expect("a link");
    let before: Vec<_> = files_below(&place.path("s")).into_keys().collect();
    place.write("x.tsv", "k\tv\n");
    for arguments in [
        &["put", "s/below", "k", "v"][..],
        &["put", "link/below", "k", "v"],
        &["import", "s/below", "x.tsv"],
        &["shell", "s/below"],
        &["bench", "fillseq", "--num", "10", "--store", "s/below"],
        &["checkpoint", "s", "s/copy"],
        &["checkpoint", "other", "s/copy"],
        &["export", "other", "s/x.jsonl"],
        &["export", "other", "s/x/"],
        &["export", "other", "s", "--format", "dir", "--force"],
        &["shape", "other", "--svg", "s/x.svg"],
        &["man", "s"],
        &["man", "s/pages"],
    ] {
        let ran = place.run(arguments);
        assert_eq!(ran.code, 3, "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("lies in the directory of a store"), "{}", ran.stderr);
        assert!(ran.stderr.contains("choose a place outside of "), "{}", ran.stderr);
    }
    let after: Vec<_> = files_below(&place.path("s")).into_keys().collect();
    assert_eq!(after, before);
}

/// Once, the directory had to exist.
#[test]
fn manual_pages_make_their_directory() {
    let place = Place::new();
    place.ok(&["man", "share/man1"]);
    assert!(place.path("share/man1/runstone-set.1").exists());
}

/// Once, a hard link was called a copy, and nothing said against which losses it does not protect.
#[test]
fn a_checkpoint_says_what_it_shares() {
    let place = Place::new();
    let lines: String = (0..100).map(|i| format!("k{i}\tv\n")).collect();
    place.write("x.tsv", lines);
    place.ok(&["import", "s", "x.tsv"]);
    place.ok(&["compact", "s"]);
    let ran = place.run(&["checkpoint", "s", "copy"]);
    let told = "shared with the store (hard links): safe from what is done to the store, not from \
                damage";
    assert!(ran.code == 0 && ran.stderr.contains(told), "{}", ran.stderr);
    assert_eq!(place.json(&["checkpoint", "s", "copy2"])["linked_files"], 1);
    let ran = place.run(&["checkpoint", "s", "copy3", "--copy", "--verify"]);
    assert!(ran.code == 0 && !ran.stderr.contains("hard links"), "{}", ran.stderr);
    // As the help says, deletes, drops and the removal of the store leave it whole.
    place.ok(&["delete", "s", "--prefix", ""]);
    place.ok(&["compact", "s"]);
    fs::remove_dir_all(place.path("s")).expect("a directory");
    assert_eq!(place.ok(&["count", "copy"]), "100\n");
    let help = place.ok(&["help", "checkpoint"]);
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for word in ["puts, deletes, drops", "damage to the disk or to the file itself", "--copy"] {
        assert!(help.contains(word), "{word}: {help}");
    }
}
