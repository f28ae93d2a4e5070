//! Options of keyspaces: section 9 of docs/formats.md.

use std::collections::BTreeSet;

use runstone::{KeyspaceOptions, ValueOptions};
use runstone_policy::options::{Numbers, OptionDoc};

/// The text of the page's list of defaults.
fn defaults() -> String {
    let page = include_str!("../../../../docs/formats.md");
    let (_, section) = page.split_once("\n## 9.").expect("section 9");
    let (section, _) = section.split_once("\n## ").expect("section 10");
    let listed = section.lines().filter_map(|line| line.strip_prefix("    "));
    listed.collect::<Vec<_>>().join("\n")
}

/// A keyspace with the options of the page equals a keyspace with the defaults, and the page names
/// every option.
#[test]
fn the_page_lists_every_option_with_its_default() {
    let text = defaults();
    let read = KeyspaceOptions::from_toml(&text).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(read, KeyspaceOptions::default());
    let all: toml::Table = text.parse().expect("it was just read");
    let sections = [
        ("shape", Numbers::FIELDS),
        ("values", ValueOptions::FIELDS),
        ("", KeyspaceOptions::FIELDS),
    ];
    // `refused` holds the reason why the text of an option was refused, and is not stored.
    for (section, fields) in sections {
        let table = match section {
            "" => &all,
            section => all[section].as_table().expect("a section"),
        };
        let is_stored = |field: &&OptionDoc| field.name != "refused";
        let known: BTreeSet<&str> =
            fields.iter().filter(is_stored).map(|field| field.name).collect();
        let listed: BTreeSet<&str> = table.keys().map(String::as_str).collect();
        assert_eq!(listed, known, "[{section}]");
    }
}
