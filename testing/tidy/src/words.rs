//! Words that the repository no longer uses, each with the one that it uses. The history in
//! CHANGELOG.md keeps them, and this file names them.

use crate::files::Files;

/// What may hold any word: options of an old name are refused with the new one.
const EXCEPT: [&str; 3] =
    ["CHANGELOG.md", "crates/engine/src/base/options.rs", "testing/tidy/src/words.rs"];

/// Words in a row as code and prose spell them (`MergePolicy`, `merge_policy`, "merge policy"), and
/// what to write instead. A word that ends in `*` is a stem. A plain merge is a k-way merge.
const RETIRED: [(&str, &str); 27] = [
    ("merge polic*", "compaction policy"),
    ("merge debt", "compaction debt"),
    ("merge install", "compaction install"),
    ("merge job*", "compaction"),
    ("merge plan*", "compaction plan"),
    ("merge slice*", "compaction slice"),
    ("merge thread*", "compaction thread"),
    ("merge trigger*", "compaction trigger"),
    ("merge cost*", "cost of compactions"),
    ("merge part*", "part of a compaction"),
    ("background merge*", "compaction"),
    ("sub merge*", "sub-compaction"),
    ("voff*", "stream offset"),
    ("ticket*", "publication"),
    ("gaps ignore*", "dead ranges"),
    ("gaps proved*", "dead ranges"),
    ("gaps for all*", "dead ranges"),
    ("doors", "testing"),
    ("rot", "corruption"),
    ("rots", "is corrupted"),
    ("rotten", "corrupt"),
    ("bury", "hide"),
    ("buries", "hides"),
    ("buried", "hidden"),
    ("rows of disjoint", "sublevels"),
    ("row of disjoint", "sublevel"),
    ("how manieth", "number of"),
];

/// None of the retired words is in the Rust files and documents.
pub fn retired(files: &Files) -> Vec<String> {
    let mut found = Vec::new();
    for (place, text) in files.iter().filter(|(place, _)| !EXCEPT.contains(&place.as_str())) {
        let is_rust = place.ends_with(".rs");
        if !is_rust && !place.ends_with(".md") {
            continue;
        }
        for (number, line) in (1..).zip(text.lines()) {
            let prose =
                if is_rust { line.split_once("//").map_or("", |(_, said)| said) } else { line };
            let findings = in_line(line).chain(in_prose(prose));
            found.extend(findings.map(|finding| format!("{place}:{number}: {finding}")));
        }
    }
    found
}

fn in_line(line: &str) -> impl Iterator<Item = String> {
    let words = words(line);
    let is_at = move |retired: &str| {
        let wanted: Vec<&str> = retired.split(' ').collect();
        words.windows(wanted.len()).any(|said| said.iter().zip(&wanted).all(|(a, b)| is_word(a, b)))
    };
    let met = RETIRED.iter().filter(move |(retired, _)| is_at(retired));
    met.map(|(retired, instead)| format!("\"{retired}\": write \"{instead}\""))
}

fn is_word(said: &str, wanted: &str) -> bool {
    wanted.strip_suffix('*').map_or(said == wanted, |stem| said.starts_with(stem))
}

/// Words of a line in lower case; names are split where a capital begins.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut is_small = false;
    for letter in line.chars() {
        let begins = letter.is_uppercase() && is_small;
        if (begins || !letter.is_alphanumeric()) && words.last().is_some_and(|one| !one.is_empty())
        {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| letter.is_alphanumeric()) {
            word.extend(letter.to_lowercase());
        }
        is_small = letter.is_lowercase();
    }
    words
}

fn in_prose(prose: &str) -> impl Iterator<Item = String> {
    let reference = names_a_missing_document(prose)
        .then(|| "a document that is not in the tree: write the reason".to_string());
    let is_bare = prose.trim_start_matches('/').trim() == "Which.";
    let bare = is_bare.then(|| "\"Which.\" says nothing: leave it out".to_string());
    reference.into_iter().chain(bare)
}

/// As in ``, `spec: policies` and `Spec, policies`.
fn names_a_missing_document(prose: &str) -> bool {
    let lower = prose.to_lowercase();
    let is_reference = |at: usize| {
        let (before, after) = (lower[..at].chars().next_back(), lower[at + 4..].chars().next());
        let is_whole = ![before, after].iter().flatten().any(|letter| letter.is_alphanumeric());
        is_whole && (before == Some('(') || matches!(after, Some(':' | ',')))
    };
    lower.match_indices("spec").any(|(at, _)| is_reference(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::of;

    fn found(line: &str) -> usize {
        let rust = retired(&of([("a.rs", line)])).len();
        assert_eq!(retired(&of([("CHANGELOG.md", line)])).len(), 0);
        rust
    }

    #[test]
    fn each_retired_word_is_found_however_it_is_spelled() {
        for (retired, _) in RETIRED {
            let plain = retired.replace('*', "y");
            let snake = plain.replace(' ', "_");
            let camel: String =
                plain.split(' ').map(|word| word[..1].to_uppercase() + &word[1..]).collect();
            for spelled in [plain, snake, camel] {
                assert!(found(&format!("let a = {spelled}; // why")) > 0, "{spelled}");
            }
        }
        let said = retired(&of([("a.md", "The\nsub-merge\n")]));
        assert_eq!(said, ["a.md:2: \"sub merge*\": write \"sub-compaction\""]);
    }

    #[test]
    fn words_that_stay_are_not_found() {
        let lines = [
            "// a k-way merge: merged runs, emerge policy, merging",
            "// protocol, rotate_right, brotli, doorkeeper, carrot",
            "let (spec, keys) = (bench.spec, spec: 1);",
            "// a specified order; special, inspect: all",
            "/// Which of them.",
        ];
        lines.into_iter().for_each(|line| assert_eq!(found(line), 0, "{line}"));
    }

    #[test]
    fn references_to_a_document_that_is_not_here_are_found() {
        for line in
            ["//! HashKV §3.3 (spec: value placement §3).", "// so (spec §4)", "/// Spec, §8"]
        {
            assert_eq!(found(line), 1, "{line}");
        }
        assert_eq!(found("    /// Which."), 1);
        assert_eq!(retired(&of([("a.md", "As the (spec) says.")])).len(), 1);
    }
}
