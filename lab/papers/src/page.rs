//! The tables of a paper's page, written from the report, so that page and command cannot differ.
//! A page marks each place with two comments, `<!-- paper: SECTION -->` and `<!-- end -->`; the
//! text around these places is the page's own.

use runstone_kv::{Error, Result};

use super::report::{PaperReport, PaperRow};

/// If the result of a row other than a claim is longer than this, the row is in the JSON only.
const MOST_SHOWN: usize = 40;
const END: &str = "<!-- end -->";

/// The page with the tables of this report in their places. Fails if a place is not marked.
pub fn filled(page: &str, report: &PaperReport) -> Result<String> {
    let sections = [("headlines", headlines(report)), ("claims", claims(report))];
    let sections = sections.into_iter().chain([("beside", beside(report))]);
    sections.into_iter().try_fold(page.to_string(), |page, (section, table)| {
        let mark = format!("<!-- paper: {section} -->\n");
        let place = page.split_once(&mark).and_then(|(before, rest)| {
            let (_, after) = rest.split_once(END)?;
            Some(format!("{before}{mark}\n{table}\n{END}{after}"))
        });
        let what = || format!("the page of paper {} has no place for its {section}", report.paper);
        let hint = || format!("add a line {:?} and, below it, {END:?}", mark.trim_end());
        place.ok_or_else(|| Error::invalid(what(), hint()))
    })
}

fn headlines(report: &PaperReport) -> String {
    let header = row(["claim", "paper", "here", "verdict", "cause"].map(String::from));
    let lines = report.headlines.iter().map(|one| {
        let verdict = format!("**{}**", one.verdict.text());
        let [claim, paper, here] = [&one.claim, &one.paper, &one.here].map(String::clone);
        row([claim, paper, here, verdict, one.cause.to_string()])
    });
    format!("{header}|---|---|---|---|---|\n{}", lines.collect::<String>())
}

/// The claims that are not headlines.
fn claims(report: &PaperReport) -> String {
    let is_headline = |row: &&PaperRow| report.headlines.iter().any(|one| one.claim == row.claim);
    let header = row(["claim", "paper", "here", "judged by", "verdict"].map(String::from));
    let others = report.rows.iter().filter(|row| !is_headline(row));
    let lines = others.map(|one| row(cells(one)));
    format!("{header}|---|---|---|---|---|\n{}", lines.collect::<String>())
}

fn beside(report: &PaperReport) -> String {
    let header = row(["what", "here", "verdict"].map(String::from));
    let shown = report.beside.iter().filter(|one| one.here.chars().count() <= MOST_SHOWN);
    let lines = shown.map(|one| {
        let [claim, _, here, _, verdict] = cells(one);
        row([claim, here, verdict])
    });
    format!("{header}|---|---|---|\n{}", lines.collect::<String>())
}

/// The cells of a row in the order of the program's table.
fn cells(one: &PaperRow) -> [String; 5] {
    let verdict = one.verdict.map_or(String::new(), |verdict| verdict.text().to_string());
    let texts = [&one.claim, &one.paper, &one.here, &one.judged_by];
    let [claim, paper, here, judged_by] = texts.map(String::clone);
    [claim, paper, here, judged_by, verdict]
}

fn row<const N: usize>(cells: [String; N]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{PaperReport, rows};
    use crate::sides::Side;
    use crate::verdict::Rule;

    rows! {
        HEADLINE = "a", "3" => Rule::Ratios(&[3.0]);
        CLAIM = "c", "3" => Rule::Ratios(&[3.0]);
        DATA = "b", "" => Rule::Beside("a reason");
        LONG = "long", "" => Rule::Beside("a reason");
    }

    const PAGE: &str = "# P\n\n<!-- paper: headlines -->\nold\n<!-- end -->\n\ntext\n\n\
        <!-- paper: claims -->\n<!-- end -->\n<!-- paper: beside -->\n<!-- end -->\nmore\n";

    #[test]
    fn tables_go_to_their_places_and_the_text_stays() {
        let mut report = PaperReport::new("x", 1.0);
        report.compare(&[Side::new("s", "alone")], &[]).expect("one side");
        report.judge(HEADLINE, "2.9", &[2.9]);
        report.judge(CLAIM, "2.9", &[2.9]);
        report.show(DATA, "5");
        report.show(LONG, "1, ".repeat(40));
        report.open_with(&[("a", "It is so.")]);
        let page = filled(PAGE, &report).expect("marked");
        for line in [
            "| a | 3 | 2.9 | **reproduced** | It is so. |\n",
            "| c | 3 | 2.9 | two thirds: >= 2.08 | reproduced |\n",
            "| b | 5 |  |\n",
            "\ntext\n",
            "<!-- end -->\nmore\n",
        ] {
            assert!(page.contains(line), "{line}: {page}");
        }
        assert!(!page.contains("old") && !page.contains("long"));
        assert_eq!(page.matches("| a |").count(), 1, "a headline is told once");
        assert_eq!(filled(&page, &report).expect("marked"), page, "again the same");
        let unmarked = PAGE.replace("paper: beside", "beside");
        let error = filled(&unmarked, &report).expect_err("no place").to_string();
        assert!(error.contains("no place for its beside"), "{error}");
    }
}
