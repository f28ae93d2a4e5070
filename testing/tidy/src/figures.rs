//! The figures in documents equal those in the files that they come from. A comment before a table
//! or a paragraph names its file, from the folder of the document:
//!
//! ```text
//! <!-- figures: figures/NAME.json -->
//! <!-- figures: figures/NAME.json; CLAIM; CLAIM -->
//! <!-- figures: figures/NAME.json; /pointer/to/a/number -->
//! ```
//!
//! A file has `rows`, each with a `claim` and the result `here`: numbers, or a text with numbers.
//! The first form is for tables whose first column contains claims. In the others, a table has all
//! numbers of these rows in this order, outside its first column; a paragraph may have further
//! numbers. Comments may follow one another. A document may round.
//!
//! The page of a paper has the rows of its results, by name and in order, each once, five to eight
//! headlines, and not too many words.

use serde_json::Value;

use crate::files::Files;
use crate::links::joined;

const MARK: &str = "<!-- figures: ";
const MARK_BEGINS: &str = "<!-- figure";
/// What the papers' pages are made from, by `docs/papers/make.sh`.
const RESULTS: &str = "docs/papers/results/";
/// A row that is shown beside the claims, without a verdict, is not on the page if its result has
/// more characters than this.
const MOST_SHOWN: usize = 40;
/// Words on the page of a paper, tables included.
const MOST_WORDS: usize = 2500;

/// Marked figures are those of their files, and rows of papers are on the page of their paper.
pub fn differing(files: &Files) -> Vec<String> {
    let mut found = Vec::new();
    for (place, text) in files.iter().filter(|(place, _)| place.ends_with(".md")) {
        let is_wrong = |line: &&str| line.contains(MARK_BEGINS) && mark(line).is_none();
        let wrong = text.lines().filter(is_wrong);
        found.extend(wrong.map(|line| format!("{place}: no mark of figures: {line}")));
        for (number, marks, block) in marked(text) {
            if let Err(why) = check(files, place, &marks, &block) {
                found.push(format!("{place}:{number}: {why}"));
            }
        }
    }
    for (place, text) in files.iter().filter(|(place, _)| place.ends_with(".json")) {
        let file: Value = match serde_json::from_str(text) {
            Ok(file) => file,
            Err(error) => {
                found.push(format!("{place}: {error}"));
                continue;
            }
        };
        let Some(paper) = file["paper"].as_str() else { continue };
        let page = format!("docs/papers/{paper}.md");
        let judged = rows(&file).iter().filter(|row| row["verdict"].is_string());
        let lost = judged.filter(|row| {
            let lines = [&["claim", "paper", "here"][..], &["claim", "here"]].map(|cells| {
                let cells: Vec<&str> = cells.iter().map(|cell| text_of(&row[cell])).collect();
                format!("| {} |", cells.join(" | "))
            });
            let is_there = |one: &str| lines.iter().any(|line| one.starts_with(line));
            files.get(&page).is_none_or(|text| !text.lines().any(is_there))
        });
        found.extend(lost.map(|row| format!("{page}: not as in {place}: {}", row["claim"])));
        if place.starts_with(RESULTS) {
            let text = files.get(&page).map_or("", |text| text);
            let of_page = differing_page(&file, text);
            found.extend(of_page.into_iter().map(|what| format!("{page}: {what}")));
        }
    }
    found
}

/// What the page of a paper has that its results do not have, or the other way round.
fn differing_page(results: &Value, page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let names_of = |rows: &str| -> Vec<&str> {
        results[rows].as_array().into_iter().flatten().map(|row| text_of(&row["claim"])).collect()
    };
    let headlines = names_of("headlines");
    let mut claims = names_of("rows");
    claims.retain(|claim| !headlines.contains(claim));
    let beside = results["beside"].as_array().into_iter().flatten();
    let shown = beside.filter(|row| text_of(&row["here"]).chars().count() <= MOST_SHOWN);
    let beside = shown.map(|row| text_of(&row["claim"])).collect();
    let sections = [("headlines", headlines), ("claims", claims), ("beside", beside)];
    for (section, names) in sections {
        let mark = format!("<!-- paper: {section} -->");
        let block = page.split_once(&mark).and_then(|(_, rest)| rest.split_once("<!-- end -->"));
        let rows =
            block.map_or("", |(block, _)| block).lines().filter(|line| line.starts_with('|'));
        let told = rows.skip(2).map(|line| line[1..].split(" | ").next().unwrap_or("").trim());
        if names != told.collect::<Vec<_>>() {
            found.push(format!("its {section} are not the {} of the results", names.len()));
        }
        if section == "headlines" && !(5..=8).contains(&names.len()) {
            found.push(format!("{} headlines, not five to eight", names.len()));
        }
    }
    let words = page.split_whitespace().count();
    if words > MOST_WORDS {
        found.push(format!("{words} words, above {MOST_WORDS}"));
    }
    found
}

fn text_of(cell: &Value) -> &str {
    cell.as_str().unwrap_or("")
}

/// The marked blocks: the line where each begins, what its marks say, and its lines up to an empty
/// line.
fn marked(text: &str) -> Vec<(usize, Vec<&str>, Vec<&str>)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let marks: Vec<&str> = lines[at..].iter().map_while(|line| mark(line)).collect();
        at += marks.len().max(1);
        if !marks.is_empty() {
            let block = lines[at..].iter().skip_while(|line| line.is_empty());
            found.push((at, marks, block.take_while(|line| !line.is_empty()).copied().collect()));
        }
    }
    found
}

/// What a mark names.
fn mark(line: &str) -> Option<&str> {
    line.strip_prefix(MARK)?.strip_suffix(" -->")
}

fn check(files: &Files, place: &str, marks: &[&str], block: &[&str]) -> Result<(), String> {
    let (mut expected, mut of_labels) = (Vec::new(), None);
    for mark in marks {
        let mut parts = mark.split("; ");
        let name = joined(place, parts.next().unwrap_or_default());
        let text = files.get(&name).ok_or(format!("there is no {name}"))?;
        let file: Value = serde_json::from_str(text).map_err(|error| format!("{name}: {error}"))?;
        let claims: Vec<&str> = parts.collect();
        for claim in &claims {
            expected.extend(figures(&file, claim).ok_or(format!("{name} has no {claim:?}"))?);
        }
        of_labels = claims.is_empty().then_some((name, file));
    }
    if of_labels.is_some() && marks.len() > 1 {
        return Err("a mark without claims stands alone".into());
    }
    let is_table = block.first().is_some_and(|line| line.starts_with('|'));
    let (labels, data): (Vec<String>, Vec<&str>) = block
        .iter()
        .skip(if is_table { 2 } else { block.len() })
        .filter_map(|line| line.strip_prefix("| ")?.split_once(" |"))
        .map(|(label, data)| (label.replace('`', ""), data))
        .unzip();
    if let Some((name, file)) = of_labels {
        for (label, data) in labels.iter().zip(&data) {
            let here = figures(&file, label).ok_or(format!("{name} has no {label:?}"))?;
            same(&numbers(data), &here).map_err(|why| format!("{label}: {why}"))?;
        }
        return if data.is_empty() { Err("no table follows".into()) } else { Ok(()) };
    }
    if is_table {
        return same(&numbers(&data.join("|")), &expected);
    }
    let told = numbers(&block.join(" "));
    let mut told = told.iter();
    match expected.iter().find(|value| !told.any(|text| is_rounded(text, **value))) {
        Some(value) => Err(format!("{value} is not told, or not in its place")),
        None => Ok(()),
    }
}

fn rows(file: &Value) -> &[Value] {
    file["rows"].as_array().map_or(&[], Vec::as_slice)
}

/// The numbers of a claim, or the one that a pointer leads to.
fn figures(file: &Value, claim: &str) -> Option<Vec<f64>> {
    if claim.starts_with('/') {
        return Some(vec![file.pointer(claim)?.as_f64()?]);
    }
    let beside = file["beside"].as_array().into_iter().flatten();
    let row = rows(file).iter().chain(beside).find(|row| row["claim"].as_str() == Some(claim))?;
    match &row["here"] {
        Value::String(text) => Some(numbers(text).iter().map(|text| value(text)).collect()),
        here => here.as_array()?.iter().map(Value::as_f64).collect(),
    }
}

fn same(told: &[String], expected: &[f64]) -> Result<(), String> {
    let is_same = told.len() == expected.len()
        && told.iter().zip(expected).all(|(text, value)| is_rounded(text, *value));
    match is_same {
        true => Ok(()),
        false => Err(format!("{} are not {expected:?}", told.join(" "))),
    }
}

/// Whether a number is the exact one, rounded to the last significant digit that it shows.
fn is_rounded(text: &str, exact: f64) -> bool {
    let whole = text.replace(',', "");
    let last = match whole.split_once('.') {
        Some((_, digits)) => -(digits.len() as i32),
        // Zeros at the end may stand for other digits only in a long number.
        None if text.contains(',') => (whole.len() - whole.trim_end_matches('0').len()) as i32,
        None => 0,
    };
    (value(text) - exact).abs() <= 0.5 * 10f64.powi(last) * 1.000_001
}

fn value(text: &str) -> f64 {
    text.replace(',', "").parse().unwrap_or(f64::NAN)
}

/// The numbers of a text: digits, with commas before three of them, and decimals. Digits of a name
/// such as LZ4 do not count.
fn numbers(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let is_word = |letter: char| letter.is_alphanumeric() || ".,_".contains(letter);
    for word in text.split(|letter: char| !is_word(letter)) {
        let word = word.trim_end_matches(['.', ',', 'x', '%']);
        let is_number = word.starts_with(|letter: char| letter.is_ascii_digit())
            && word.chars().all(|letter| letter.is_ascii_digit() || ".,".contains(letter));
        found.extend(is_number.then(|| word.to_string()));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::of;

    const DOCUMENT: &str = "<!-- figures: figures/a.json -->\n\n\
        | store | put/s | MB |\n|---|---|---|\n| `ours` | 1,508,000 | 2.5 |\n\n\
        <!-- figures: figures/a.json; bytes -->\n\n\
        | | 1 | 2 |\n|---|---|---|\n| a | 3.14 | 4 |\n| b | 5 | 6 |\n\n\
        <!-- figures: figures/a.json; bytes -->\n<!-- figures: figures/a.json; /deep/0/x -->\n\
        At 9 KiB it takes 3.1, then 4, 5 and 6; with LZ4 0.7.\n";
    const FIGURES: &str = r#"{"paper": "p", "deep": [{"x": 0.71}], "rows": [
        {"claim": "ours", "here": [1507820.4, 2.49]},
        {"claim": "bytes", "paper": "less", "here": "a 3.14, 4; b 5, 6", "verdict": "weaker"}]}"#;
    const PAGE: &str = "| bytes | less | a 3.14, 4; b 5, 6 | by rule | weaker |\n";

    fn found(document: &str, figures: &str, page: &str) -> Vec<String> {
        differing(&of([
            ("docs/a.md", document),
            ("docs/figures/a.json", figures),
            ("docs/papers/p.md", page),
        ]))
    }

    #[test]
    fn a_figure_that_differs_is_found() {
        assert_eq!(found(DOCUMENT, FIGURES, PAGE), [""; 0]);
        for (old, new, finding) in [
            ("1,508,000", "1,509,000", "docs/a.md:1: ours: 1,509,000 2.5 are not"),
            ("2.5 |", "2.4 |", "docs/a.md:1: ours"),
            ("`ours`", "theirs", "has no \"theirs\""),
            ("3.14 | 4", "4 | 3.14", "docs/a.md:7: 4 3.14 5 6 are not"),
            ("takes 3.1,", "takes 3.2,", "docs/a.md:15: 3.14 is not told"),
            ("LZ4 0.7", "LZ4 0.8", "0.71 is not told"),
            ("; bytes", "; byte", "has no \"byte\""),
            ("figures/a.json", "a.json", "there is no docs/a.json"),
            ("<!-- figures: figures/a.json -->", "<!-- figure: a -->", "no mark of figures"),
            ("; /deep/0/x", "", "stands alone"),
        ] {
            let found = found(&DOCUMENT.replace(old, new), FIGURES, PAGE);
            assert!(found.iter().any(|one| one.contains(finding)), "{new}: {found:?}");
        }
        let beside = PAGE.replace(" less |", "");
        assert_eq!(found(DOCUMENT, FIGURES, &beside), [""; 0], "without the paper's figure");
        let stale = found(DOCUMENT, FIGURES, &PAGE.replace("3.14", "3.15"));
        assert_eq!(stale, ["docs/papers/p.md: not as in docs/figures/a.json: \"bytes\""]);
    }

    #[test]
    fn the_page_of_a_paper_has_the_rows_of_its_results() {
        let rows = |count: usize, kind: &str| -> Value {
            (0..count).map(|i| serde_json::json!({ "claim": format!("{kind} {i}") })).collect()
        };
        let results = |headlines| {
            let (headlines, rows, beside) = (rows(headlines, "h"), rows(2, "r"), rows(1, "b"));
            serde_json::json!({ "headlines": headlines, "rows": rows, "beside": beside })
        };
        let table = |section: &str, names: &[&str]| {
            let lines: String = names.iter().map(|name| format!("| {name} | 1 |\n")).collect();
            format!("<!-- paper: {section} -->\n\n| a | b |\n|---|---|\n{lines}\n<!-- end -->\n")
        };
        let headlines = ["h 0", "h 1", "h 2", "h 3", "h 4"];
        let page = table("headlines", &headlines)
            + &table("claims", &["r 0", "r 1"])
            + &table("beside", &["b 0"]);
        assert_eq!(differing_page(&results(5), &page), [""; 0]);
        let few = differing_page(&results(4), &page);
        assert!(few.iter().any(|what| what.contains("not five to eight")), "{few:?}");
        let other = differing_page(&results(5), &page.replace("r 1", "r one"));
        assert_eq!(other, ["its claims are not the 2 of the results"]);
        let long = page + &"word ".repeat(MOST_WORDS);
        assert!(differing_page(&results(5), &long)[0].contains("words, above"));
    }
}
