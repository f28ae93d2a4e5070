//! The explanations of options for help and flags, taken from their declarations. Nothing is
//! explained here: `testing/tidy` refuses a second explanation of an option.

use std::sync::LazyLock;

use runstone::{KeyspaceOptions, Options, ValueOptions};
use runstone_policy::options::{Numbers, OptionDoc};

use crate::output::size;

/// The sections of a keyspace's TOML and their options; `""` is above all sections, and has a field
/// for each of the others.
const SECTIONS: [(&str, &[OptionDoc]); 3] =
    [("", KeyspaceOptions::FIELDS), ("shape", Numbers::FIELDS), ("values", ValueOptions::FIELDS)];

/// Options of an open store, which are not kept in it.
pub const OF_STORES: &[OptionDoc] = Options::FIELDS;

/// The options of a keyspace, each with its section, in the order of their declarations.
pub fn of_keyspaces() -> impl Iterator<Item = (&'static str, &'static OptionDoc)> {
    let is_section = |name: &str| SECTIONS.iter().any(|(section, _)| *section == name);
    SECTIONS
        .iter()
        .flat_map(|(section, options)| options.iter().map(move |option| (*section, option)))
        .filter(move |(_, option)| !option.lines.is_empty() && !is_section(option.name))
}

/// The names of the options of a keyspace.
pub fn names() -> impl Iterator<Item = &'static str> {
    of_keyspaces().map(|(_, option)| option.name)
}

/// The first sentence about an option of a keyspace or store, or about a section.
pub fn summary(name: &str) -> String {
    let all = SECTIONS.iter().flat_map(|(_, options)| *options).chain(OF_STORES);
    let found = all.into_iter().find(|option| option.name == name);
    debug_assert!(found.is_some(), "no option is named {name}");
    found.map(OptionDoc::summary).unwrap_or_default()
}

/// The default of an option of a keyspace as TOML.
pub fn default(name: &str) -> String {
    // Each start of the command asks for the defaults of all its flags.
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        // These defaults are not written as TOML, because they carry no information.
        let unset = "merge_operator = \"\"\ncompaction_filter = \"\"\nttl_seconds = 0\n";
        format!("{unset}{}", KeyspaceOptions::default().to_toml())
    });
    let value = |line: &str| line.strip_prefix(name)?.strip_prefix(" = ").map(str::to_string);
    TEXT.lines().find_map(value).unwrap_or_default()
}

/// Help of a flag for an option of a keyspace. Without the flag, the option keeps its default.
pub fn flag(name: &str) -> String {
    let default = default(name);
    let default = match default.parse() {
        Ok(bytes) if name.ends_with("_bytes") => size(bytes),
        _ => default.trim_matches('"').to_string(),
    };
    format!("{}. [default: {default}]", summary(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_has_a_sentence_and_a_default() {
        for (section, option) in of_keyspaces() {
            assert!(!default(option.name).is_empty(), "{section} {}", option.name);
        }
        for option in of_keyspaces().map(|(_, option)| option).chain(OF_STORES) {
            let text = option.summary();
            assert!((10..=120).contains(&text.len()), "{}: {text}", option.name);
            assert!(!text.contains("[`") && !option.defaults.is_empty(), "{}", option.name);
        }
        assert!(names().all(|name| !["shape", "values", "refused"].contains(&name)));
        assert_eq!(flag("split_bytes").rsplit(' ').next(), Some("4M]"));
    }
}
