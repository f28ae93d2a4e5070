//! Every option is explained once: by the doc comment of its declaration, from which help and flags
//! are made.

use std::collections::BTreeSet;

use crate::files::{Files, rust};

/// Where options are declared.
const DECLARED: [&str; 2] = ["crates/engine/src/options/", "crates/policy/src/options.rs"];

/// Who shows options to users.
const SHOWN: [&str; 2] = ["crates/cli/src/", "bindings/"];

/// A text of fewer words than this names a flag or a value.
const LEAST_WORDS: usize = 3;

/// The names of options that consist of several words, because such names mean nothing else.
pub fn names(files: &Files) -> BTreeSet<&str> {
    let declared = rust(files).filter(|(place, _)| DECLARED.iter().any(|at| place.starts_with(at)));
    declared.flat_map(|(_, text)| text.lines().filter_map(declared_name)).collect()
}

/// The name in a line such as `pub hash_index: bool = false,` or `trigger(u32) name: u32 = 4;`.
fn declared_name(line: &str) -> Option<&str> {
    let (head, rest) = line.trim().split_once(": ")?;
    let (before, name) = head.rsplit_once(' ')?;
    let is_option = before == "pub" || before.ends_with(')');
    let is_name = name.contains('_') && name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    (is_option && is_name && rest.contains(" = ")).then_some(name)
}

/// Nobody else explains an option: not by the doc comment or help of a field of its name, and not
/// by a text beside its name.
pub fn explained_again(files: &Files) -> Vec<String> {
    let names = names(files);
    let mut found = Vec::new();
    for (place, text) in rust(files) {
        if !SHOWN.iter().any(|folder| place.starts_with(folder)) {
            continue;
        }
        let again = documented(text).into_iter().chain(beside(text));
        found.extend(again.filter(|name| names.contains(name)).map(|name| {
            format!("{place}: {name} is explained again; take the text from its declaration")
        }));
    }
    found
}

/// Names of fields with a doc comment, or with help that is written out.
fn documented(text: &str) -> Vec<&str> {
    let (mut found, mut is_documented) = (Vec::new(), false);
    for line in text.lines().map(str::trim) {
        let visible = ["pub ", "pub(crate) "].iter().find_map(|word| line.strip_prefix(word));
        let field = visible.unwrap_or(line).strip_suffix(',');
        let name = field.and_then(|field| field.split_once(": ")).map(|(name, _)| name);
        let is_text = ["///", "#[doc = \""].iter().any(|start| line.starts_with(start));
        if is_text || line.contains("help = \"") {
            is_documented = true;
        } else if line.contains("fn ") {
            is_documented = false;
        } else if let Some(name) = name {
            found.extend(is_documented.then_some(name));
            is_documented = false;
        } else if line.ends_with(['{', '}', ';']) {
            is_documented = false;
        }
    }
    found
}

/// Texts in quotes before another text of several words, as in a tuple or a match. The arguments of
/// a call are not an explanation.
fn beside(text: &str) -> impl Iterator<Item = &str> {
    let pieces: Vec<&str> = text.split('"').collect();
    let starts = 0..pieces.len().saturating_sub(3);
    starts.filter_map(move |at| {
        let [before, name, between, text] = pieces[at..at + 4] else { return None };
        let opened = before.trim_end().strip_suffix('(');
        let is_tuple = opened.is_some_and(|before| !before.ends_with(is_of_call));
        let is_table = match between.trim() {
            "," => is_tuple,
            between => matches!(between, "=>" | "=> Some("),
        };
        (is_table && text.split_whitespace().count() >= LEAST_WORDS).then_some(name)
    })
}

/// Whether a letter before a parenthesis ends the name of a function or a macro.
fn is_of_call(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_' || letter == '!'
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::of;

    const OPTIONS: &str = "/// Runs at which writers wait.\npub stop_runs: u32 = 8,\n\
                           pub hash_index: bool = false,\npub seed: Option<u64> = None,\n";
    const NUMBERS: &str = "    trigger(u32) first_trigger: u32 = 4;\n    pub const A_B: u32 = 1;\n";

    fn found(shown: &str) -> usize {
        let files = of([
            ("crates/engine/src/options/keyspace.rs", OPTIONS),
            ("crates/policy/src/options.rs", NUMBERS),
            ("crates/cli/src/help.rs", shown),
        ]);
        let all = ["first_trigger", "hash_index", "stop_runs"];
        assert!(names(&files).into_iter().eq(all));
        explained_again(&files).len()
    }

    #[test]
    fn a_second_explanation_is_found() {
        for bad in [
            "const HELP: &[(&str, &str)] = &[(\"stop_runs\", \"runs at which writers wait\")];",
            "(\n    \"first_trigger\",\n    \"runs at which sizes are compared\",\n)",
            "match name {\n    \"hash_index\" => \"whether there is an index\",\n}",
            "/// Runs at which writers wait.\n#[arg(long,\n    short)]\nstop_runs: u32,",
            "#[arg(long, help = \"Whether there is an index\")]\npub hash_index: bool,",
            "#[doc = \"Runs at which writers wait.\"]\npub(crate) stop_runs: u32,",
        ] {
            assert_eq!(found(bad), 1, "{bad}");
        }
        for good in [
            "const FLAGS: &[(&str, &str)] = &[(\"stop_runs\", \"--stop-runs\")];",
            "#[arg(long, help = summary(\"hash_index\"))]\nhash_index: bool,",
            "/// Of random numbers that are drawn.\nseed: u64,\n",
            "struct A {\n    /// Something else.\n    a: u32,\n    stop_runs: u32,\n}\n",
            "/// Opens.\npub fn opened(\n    hash_index: bool,\n) {}",
            "assert_eq!(name, \"stop_runs\", \"it is the first one\");",
            "Failure::usage(\"hash_index\", \"change the flag, or leave it out\")",
        ] {
            assert_eq!(found(good), 0, "{good}");
        }
    }
}
