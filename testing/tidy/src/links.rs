//! Links and section numbers lead somewhere.

use std::collections::BTreeSet;

use crate::files::Files;

/// Links of documents lead to a file or folder among `places`, and to a heading of it if they name
/// one. `section N` or `§N` after the name of a document, or in a document with numbered sections,
/// is one of its sections.
pub fn dead(files: &Files, places: &BTreeSet<String>) -> Vec<String> {
    let mut found = Vec::new();
    for (place, text) in files.iter().filter(|(place, _)| place.ends_with(".md")) {
        for (number, line) in (1..).zip(prose(text)) {
            let links = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
            for (target, _) in links.filter(|(target, _)| !target.contains("://")) {
                if !leads_somewhere(files, places, place, target) {
                    found.push(format!("{place}:{number}: {target} leads nowhere"));
                }
            }
        }
    }
    for (place, text) in files {
        for (number, line) in (1..).zip(text.lines()) {
            let dead = sections(line).filter(|(document, section)| {
                let named = document.and_then(|name| document_of(files, name));
                // Without a document, numbers like 4.3 are sections of papers.
                let own = || own(place, text).filter(|_| !section.contains('.'));
                named.or_else(own).is_some_and(|text| !has_section(text, section))
            });
            found
                .extend(dead.map(|(_, section)| format!("{place}:{number}: no section {section}")));
        }
    }
    found
}

/// The lines of a document; those inside a fence are empty.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().map(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        if is_code || is_fence { "" } else { line }
    })
}

fn leads_somewhere(files: &Files, places: &BTreeSet<String>, from: &str, target: &str) -> bool {
    let (path, heading) = target.split_once('#').unwrap_or((target, ""));
    let place = if path.is_empty() { from.to_string() } else { joined(from, path) };
    let is_there = places.contains(&place);
    is_there
        && (heading.is_empty()
            || files.get(&place).is_some_and(|text| prose(text).any(|line| slug(line) == heading)))
}

/// The place that a path from another place's folder names.
pub(crate) fn joined(from: &str, path: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.trim_end_matches('/').split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The name of a heading in links; nothing for other lines.
fn slug(line: &str) -> String {
    let Some(title) = line.strip_prefix('#') else { return String::new() };
    let title = title.trim_start_matches('#').trim().to_lowercase();
    let kept = title.chars().filter(|letter| letter.is_alphanumeric() || "- _".contains(*letter));
    kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

/// Each `section N` or `§N` of a line, and the document that is named before it.
fn sections(line: &str) -> impl Iterator<Item = (Option<&str>, &str)> {
    let signs = ["section ", "§"].into_iter().flat_map(|sign| line.match_indices(sign));
    let ends = signs.map(|(at, sign)| (at, at + sign.len()));
    ends.filter_map(|(start, end)| {
        let behind = line[end..].trim_start();
        let number = behind.split(|letter: char| !(letter.is_ascii_digit() || letter == '.'));
        let number = number.into_iter().next()?.trim_end_matches('.');
        let before = line[..start].trim_end_matches(['`', '(', ')', ',', ' ', ']']);
        let name = before.ends_with(".md").then(|| {
            before.rsplit(|letter: char| !(letter.is_alphanumeric() || "._-/".contains(letter)))
        });
        (!number.is_empty()).then_some((name.and_then(|mut words| words.next()), number))
    })
}

/// The document of that name, wherever it is.
fn document_of<'a>(files: &'a Files, name: &str) -> Option<&'a str> {
    let last = name.rsplit('/').next().unwrap_or(name);
    let is_it = |place: &str| place.rsplit('/').next() == Some(last);
    files.iter().find(|(place, _)| is_it(place)).map(|(_, text)| &**text)
}

/// A document whose sections are numbered.
fn own<'a>(place: &str, text: &'a str) -> Option<&'a str> {
    (place.ends_with(".md") && has_section(text, "1")).then_some(text)
}

fn has_section(text: &str, section: &str) -> bool {
    let is_it = |line: &str| {
        let title = line.strip_prefix('#').map(|rest| rest.trim_start_matches('#').trim_start());
        title.and_then(|title| title.strip_prefix(section)).is_some_and(|rest| {
            rest.starts_with(". ") || section.contains('.') && rest.starts_with(' ')
        })
    };
    text.lines().any(is_it)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::of;

    #[test]
    fn what_leads_nowhere_is_found() {
        let guide = "# Guide\n## 1. What it is\n### 2.1 More\nSee [a](a.md), \
                     [b](../b.md#the-second-one) and [c](a.md#none).\n\
                     As section 2 says, and section 1.\n```\n[no](link)\n```\n";
        let files = of([
            ("docs/guide.md", guide),
            ("b.md", "# The second, one?\nSee `docs/guide.md` section 1, `guide.md` section 3.\n"),
            ("c.rs", "//! As docs/guide.md section 4 says; section 9 of the paper.\n"),
            ("d.rs", "//! By b.md §7.4, docs/guide.md §1, docs/guide.md §1.1; HashKV §3.3.2.\n"),
            ("e.rs", "//! By docs/guide.md §2.1 and `docs/guide.md` § 5.\n"),
        ]);
        let places = ["docs/guide.md", "b.md", "c.rs"].map(str::to_string).into();
        let found = dead(&files, &places);
        assert_eq!(
            found,
            [
                "docs/guide.md:4: a.md leads nowhere",
                "docs/guide.md:4: a.md#none leads nowhere",
                "b.md:2: no section 3",
                "c.rs:1: no section 4",
                "d.rs:1: no section 7.4",
                "d.rs:1: no section 1.1",
                "docs/guide.md:5: no section 2",
                "e.rs:1: no section 5",
            ]
        );
    }
}
