//! `docs/papers/scales.md` lists the claims whose word changes with the scale, as the results at
//! each scale say.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::files::Files;

const PAGE: &str = "docs/papers/scales.md";
const RESULTS: &str = "docs/papers/results/";
/// What the folder of a scale begins with; a number follows.
const SCALE: &str = "docs/papers/results/scale-";
/// The word of all claims of a paper that was not measured at a scale.
const NOT_MEASURED: &str = "not measured";

/// Lines that the page lacks, and lines that it should not have.
pub fn differing(files: &Files) -> Vec<String> {
    let lines = files.get(PAGE).map_or("", |page| page).lines();
    let mut told: BTreeSet<&str> = lines.filter(|line| line.starts_with("| ")).collect();
    let scales: BTreeSet<&str> = files
        .keys()
        .filter_map(|place| place.strip_prefix(SCALE)?.split_once('/'))
        .map(|(scale, _)| scale)
        .collect();
    if scales.is_empty() {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut tell = |line: String| {
        if !told.remove(&*line) {
            found.push(format!("{PAGE}: not there: {line}"));
        }
    };
    tell(line("paper", "claim", scales.iter().copied().chain(["1"])));
    for (place, text) in files {
        let paper = place.strip_prefix(RESULTS).and_then(|name| name.strip_suffix(".json"));
        let Some(paper) = paper.filter(|name| !name.contains('/')) else { continue };
        let others: Vec<Option<Value>> = scales
            .iter()
            .map(|scale| parsed(files, &format!("{SCALE}{scale}/{paper}.json")))
            .collect();
        let results: Value = serde_json::from_str(text).unwrap_or_default();
        for row in results["rows"].as_array().into_iter().flatten() {
            let [claim, word] = ["claim", "verdict"].map(|cell| row[cell].as_str().unwrap_or(""));
            let of_others = others.iter().map(|words| match words {
                Some(words) => words[claim].as_str().unwrap_or("not there"),
                None => NOT_MEASURED,
            });
            let words: Vec<&str> = of_others.chain([word]).collect();
            if words.iter().any(|other| ![word, NOT_MEASURED].contains(other)) {
                tell(line(paper, claim, words));
            }
        }
    }
    found.extend(told.iter().map(|line| format!("{PAGE}: not so: {line}")));
    found
}

/// `None` if there is no such file.
fn parsed(files: &Files, place: &str) -> Option<Value> {
    files.get(place).map(|text| serde_json::from_str(text).unwrap_or_default())
}

fn line<'a>(paper: &str, claim: &str, words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<&str> = words.into_iter().collect();
    format!("| {paper} | {claim} | {} |", words.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::of;

    #[test]
    fn a_word_that_differs_is_listed_and_no_other_is() {
        let page = "| paper | claim | 0.5 | 2 | 1 |\n|---|---|---|---|---|\n\
            | p | a | weaker | absent | weaker |\n| p | c | weaker | not there | weaker |\n";
        let found = |page: &str| {
            differing(&of([
                (PAGE, page),
                (
                    "docs/papers/results/p.json",
                    r#"{"rows": [{"claim": "a", "verdict": "weaker"},
                        {"claim": "b", "verdict": "absent"},
                        {"claim": "c", "verdict": "weaker"}]}"#,
                ),
                (
                    "docs/papers/results/scale-0.5/p.json",
                    r#"{"a": "weaker", "b": "absent", "c": "weaker"}"#,
                ),
                ("docs/papers/results/scale-2/p.json", r#"{"a": "absent", "b": "absent"}"#),
            ]))
        };
        assert_eq!(found(page), [""; 0]);
        let unmeasured = [
            (PAGE, "| paper | claim | 2 | 4 | 1 |\n| p | a | absent | not measured | weaker |\n"),
            (
                "docs/papers/results/p.json",
                r#"{"rows": [{"claim": "a", "verdict": "weaker"},
                    {"claim": "b", "verdict": "absent"}]}"#,
            ),
            ("docs/papers/results/scale-2/p.json", r#"{"a": "absent", "b": "absent"}"#),
            ("docs/papers/results/scale-4/another.json", "{}"),
        ];
        assert_eq!(differing(&of(unmeasured)), [""; 0]);
        let stale = found(&page.replace("| a | weaker | absent", "| a | weaker | weaker"));
        assert_eq!(stale.len(), 2, "{stale:?}");
        assert_eq!(found(&page.replace("| 2 | 1 |", "| 1 |")).len(), 2);
        let more = found(&format!("{page}| p | b | absent | absent | absent |\n"));
        assert_eq!(more, [format!("{PAGE}: not so: | p | b | absent | absent | absent |")]);
    }
}
