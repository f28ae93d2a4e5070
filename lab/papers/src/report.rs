//! The result of reproducing a paper: rows of claim, paper, here, expectation and verdict;
//! measurements other than the claims; headlines; figures; notes. JSON has no figures and notes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Display;

use runstone_kv::{Error, Result};
use serde::Serialize;

use runstone_plot::{Axis, BarChart, Bars, Chart, Line, LineChart, Marks};

use crate::headlines::Headlines;
use crate::sides::{self, Side};
use crate::verdict::{Rule, Verdict};

/// Below this scale trees have too few levels for the papers' claims.
const LEAST_SCALE: f64 = 0.1;
const TOO_SMALL: &str = "at a scale below 0.1 trees have too few levels for the paper's effects";

/// A claim of a paper before it is measured. If a claim is measured several times, its texts have
/// a `{}` where they differ.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) claim: Cow<'static, str>,
    pub(super) paper: Cow<'static, str>,
    pub(super) rule: Rule,
    /// Whether the row counts as a claim.
    pub(super) is_claim: bool,
}

impl Row {
    /// The row, judged but not counted: an extension of ours, a check of our own model, or a claim
    /// that another row judges.
    pub(super) fn uncounted(self) -> Row {
        Row { is_claim: false, ..self }
    }

    /// The row with its texts in place of each `{}`, in order.
    pub(super) fn of(mut self, texts: &[&dyn Display]) -> Row {
        let mut texts = texts.iter();
        for part in [&mut self.claim, &mut self.paper] {
            for _ in 0..part.matches("{}").count() {
                let text = texts.next().map(ToString::to_string).unwrap_or_default();
                *part = part.replacen("{}", &text, 1).into();
            }
        }
        self
    }

    /// The row, judged by another rule, if the paper prints another number for each `{}`.
    pub(super) fn by(mut self, rule: Rule) -> Row {
        self.rule = rule;
        self
    }
}

/// The rows of a paper: a name, the claim with its place in the paper, the paper's result, and the
/// rule that judges our numbers.
macro_rules! rows {
    ($($name:ident = $claim:literal, $paper:literal => $rule:expr;)+) => {
        $(const $name: $crate::report::Row = $crate::report::Row {
            claim: std::borrow::Cow::Borrowed($claim),
            paper: std::borrow::Cow::Borrowed($paper),
            rule: $rule,
            is_claim: true,
        };)+
    };
}
pub(super) use rows;

/// A claim that was measured, or another measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PaperRow {
    /// The claim, with its place in the paper.
    pub claim: String,
    /// What the paper measured.
    pub paper: String,
    /// What was measured here.
    pub here: String,
    /// The basis of the verdict: the tolerance, or the reason why nothing can be compared.
    pub judged_by: String,
    /// The configuration of both sides, in one line.
    pub sides: String,
    /// The verdict; `None` if the paper claims nothing about this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
}

/// A claim that a reader looks for first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Headline {
    /// What is claimed: the claim of a row.
    pub claim: String,
    /// What the paper measured.
    pub paper: String,
    /// What was measured here.
    pub here: String,
    /// The verdict.
    pub verdict: Verdict,
    /// The cause of the result, in one sentence.
    pub cause: &'static str,
}

/// A chart with the name of its file.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// File name without ending.
    pub name: String,
    /// The chart.
    pub chart: Chart,
}

/// All of a paper's claims.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PaperReport {
    /// Name of the paper.
    pub paper: String,
    /// The factor by which the workloads were scaled; 1 is the scale of docs/papers.
    pub scale: f64,
    /// The claims that a reader looks for first.
    pub headlines: Vec<Headline>,
    /// The paper's claims, one row each, in the order of the paper. They have verdicts.
    pub rows: Vec<PaperRow>,
    /// Measurements other than the claims: numbers that the paper says nothing about, and, with
    /// verdicts, extensions of ours and claims that a row judges already.
    pub beside: Vec<PaperRow>,
    /// The configuration of the rows that are added next.
    #[serde(skip)]
    sides: String,
    /// The charts; not in JSON.
    #[serde(skip)]
    pub figures: Vec<Figure>,
    /// What a reader should know about the method; not in JSON.
    #[serde(skip)]
    pub notes: Vec<String>,
}

impl PaperReport {
    /// A report without rows yet.
    pub fn new(paper: &str, scale: f64) -> PaperReport {
        let (paper, sides) = (paper.into(), String::new());
        let (headlines, rows, beside) = (vec![], vec![], vec![]);
        let (figures, notes) = (vec![], vec![]);
        PaperReport { paper, scale, headlines, rows, beside, sides, figures, notes }
    }

    /// Names the sides that the following rows compare. Fails if the sides differ in a setting that
    /// is not the subject of those rows: such a comparison would measure the setting.
    pub(super) fn compare(&mut self, sides: &[Side], about: &[&str]) -> Result<()> {
        self.sides = sides::line(sides, about).map_err(|what| {
            let hint = "give both sides the same, or say that the rows are about it";
            Error::invalid(format!("paper {}: {what}", self.paper), hint)
        })?;
        Ok(())
    }

    /// Adds a claim that is judged by these numbers.
    ///
    /// # Panics
    ///
    /// If no sides of the comparison were given.
    pub(super) fn judge(&mut self, row: Row, here: impl Into<String>, numbers: &[f64]) {
        let rule = match row.rule {
            Rule::NotComparable(_) | Rule::Beside(_) => row.rule,
            _ if self.scale < LEAST_SCALE => Rule::NotComparable(TOO_SMALL),
            rule => rule,
        };
        let (judged_by, verdict) = (rule.text(), rule.judge(numbers));
        let is_said = !self.sides.is_empty() || verdict == Verdict::NotComparable;
        assert!(is_said, "{}: the sides are not declared", row.claim);
        let [claim, paper] = [row.claim, row.paper].map(Cow::into_owned);
        let (here, sides) = (here.into(), self.sides.clone());
        let verdict = (!matches!(rule, Rule::Beside(_))).then_some(verdict);
        let section = match row.is_claim && verdict.is_some() {
            true => &mut self.rows,
            false => &mut self.beside,
        };
        section.push(PaperRow { claim, paper, here, judged_by, sides, verdict });
    }

    /// Adds a measurement that cannot be compared with the paper, or about which the paper claims
    /// nothing.
    pub(super) fn show(&mut self, row: Row, here: impl Into<String>) {
        let is_shown = matches!(row.rule, Rule::NotComparable(_) | Rule::Beside(_));
        assert!(is_shown, "{}: nothing was measured", row.claim);
        self.judge(row, here, &[]);
    }

    /// Begins the report with these claims and the cause of each result. A claim that was not
    /// measured, because a part was left out, is skipped.
    pub(super) fn open_with(&mut self, headlines: Headlines) {
        let found = headlines.iter().filter_map(|(claim, cause)| {
            let row = self.rows.iter().find(|row| row.claim == *claim)?;
            let [claim, paper, here] = [&row.claim, &row.paper, &row.here].map(String::clone);
            Some(Headline { claim, paper, here, verdict: row.verdict?, cause })
        });
        self.headlines = found.collect();
    }

    /// How many claims there are of each verdict.
    pub fn counts(&self) -> BTreeMap<Verdict, usize> {
        let mut counts: BTreeMap<_, _> = Verdict::ALL.map(|verdict| (verdict, 0)).into();
        let verdicts = self.rows.iter().filter_map(|row| row.verdict);
        verdicts.for_each(|verdict| *counts.entry(verdict).or_default() += 1);
        counts
    }

    /// Adds what a reader should know about the method.
    pub fn note(&mut self, text: &str) {
        self.notes.push(text.into());
    }

    /// Adds a chart with one group of bars per category; `titles` are the chart's and its axes'.
    pub fn draw_bars<C: Into<String>>(
        &mut self,
        name: &str,
        titles: [&str; 3],
        categories: impl IntoIterator<Item = C>,
        bars: Vec<Bars>,
    ) {
        let [title, x, y] = titles;
        self.draw_bars_over(name, [title, x], Axis::linear(y), categories, bars);
    }

    /// Does the same over this vertical axis.
    pub fn draw_bars_over<C: Into<String>>(
        &mut self,
        name: &str,
        titles: [&str; 2],
        y: Axis,
        categories: impl IntoIterator<Item = C>,
        bars: Vec<Bars>,
    ) {
        let ([title, x], categories) = (titles.map(String::from), categories.into_iter());
        let (categories, marks) = (categories.map(C::into).collect(), "the paper".into());
        let chart = BarChart { title, x, y, categories, bars, marks };
        self.draw(name, Chart::Bar(chart));
    }

    /// Adds a chart of lines over an even vertical axis.
    pub fn draw_lines(&mut self, name: &str, title: &str, x: Axis, y: &str, lines: Vec<Line>) {
        let chart = LineChart { title: title.into(), x, y: Axis::linear(y), lines };
        self.draw(name, Chart::Line(chart));
    }

    /// Whether an effect of the paper is missing or smaller.
    pub fn falls_short(&self) -> bool {
        let is_short =
            |row: &PaperRow| matches!(row.verdict, Some(Verdict::Weaker | Verdict::Absent));
        self.rows.iter().any(is_short)
    }

    fn draw(&mut self, name: &str, chart: Chart) {
        self.figures.push(Figure { name: name.into(), chart });
    }
}

/// The bars of one colour.
pub(super) fn bars(name: &str, values: impl IntoIterator<Item = f64>) -> Bars {
    Bars { name: name.into(), values: values.into_iter().collect(), marks: Vec::new() }
}

/// The bars of one colour, with the number that the paper prints for each; NaN where it prints
/// none.
pub(super) fn bars_beside(
    name: &str,
    values: impl IntoIterator<Item = f64>,
    paper: impl IntoIterator<Item = f64>,
) -> Bars {
    Bars { marks: paper.into_iter().collect(), ..bars(name, values) }
}

/// A line through points.
pub(super) fn line(name: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Line {
    Line { name: name.into(), points: points.into_iter().collect(), ..Line::default() }
}

/// A line with the points that the paper prints.
pub(super) fn line_beside(
    name: &str,
    points: impl IntoIterator<Item = (f64, f64)>,
    paper: impl IntoIterator<Item = (f64, f64)>,
) -> Line {
    let marks = Marks { name: "the paper".into(), points: paper.into_iter().collect() };
    Line { marks, ..line(name, points) }
}

#[cfg(test)]
mod tests {
    use super::*;

    rows! {
        A = "a", "3" => Rule::Ratios(&[3.0]);
        B = "b {}", "1" => Rule::NotComparable("why");
        OURS = "ours", "3" => Rule::Ratios(&[3.0]);
        DATA = "data", "" => Rule::Beside("what it is shown for");
    }

    #[test]
    fn json_has_the_rows_and_what_stands_beside_them() {
        let mut report = PaperReport::new("x", 0.5);
        report.compare(&[Side::new("a", "alone")], &[]).expect("one side");
        report.judge(A, "3", &[3.0]);
        report.show(B.of(&[&"text"]), "2");
        assert_eq!((&report.rows[1].claim[..], &report.rows[1].judged_by[..]), ("b text", "why"));
        report.judge(OURS.uncounted(), "1", &[1.0]);
        report.show(DATA, "7");
        assert!(!report.falls_short(), "what stands beside is not counted");
        report.judge(A, "2", &[2.0]);
        report.judge(A, "1", &[1.0]);
        assert!(report.falls_short());
        assert!(
            report.counts().iter().all(|(word, count)| *count == 1 || *word == Verdict::Beyond)
        );
        report.note("hidden");
        report.open_with(&[("a", "so it is"), ("not measured", "nothing")]);
        let json = serde_json::to_value(&report).expect("plain data");
        let fields: Vec<&String> = json.as_object().expect("an object").keys().collect();
        assert_eq!(fields, ["beside", "headlines", "paper", "rows", "scale"]);
        let verdicts = |section: &str| -> Vec<String> {
            let rows = json[section].as_array().expect("rows").iter();
            rows.map(|row| row["verdict"].as_str().unwrap_or("").to_string()).collect()
        };
        assert_eq!(verdicts("rows"), ["reproduced", "not comparable", "weaker", "absent"]);
        assert_eq!(verdicts("beside"), ["absent", ""]);
        assert_eq!(verdicts("headlines"), ["reproduced"]);
        assert_eq!(json["headlines"][0]["cause"], "so it is");
    }

    #[test]
    fn a_scale_too_small_to_mean_anything_judges_nothing() {
        let mut report = PaperReport::new("x", 0.05);
        report.judge(A, "3", &[3.0]);
        assert_eq!(report.rows[0].verdict, Some(Verdict::NotComparable));
        assert_eq!(report.rows[0].judged_by, TOO_SMALL);
    }

    #[test]
    #[should_panic(expected = "the sides are not declared")]
    fn a_judged_row_names_its_sides() {
        PaperReport::new("x", 1.0).judge(A, "3", &[3.0]);
    }
}
