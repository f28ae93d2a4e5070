//! What reproducing a paper yields: rows of claim, paper, here, expectation and verdict; figures;
//! notes. In JSON the rows only.

use std::borrow::Cow;
use std::fmt::Display;

use serde::Serialize;

use runstone_plot::{Axis, BarChart, Bars, Chart, Line, LineChart};

/// Whether a claim holds here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Verdict {
    /// It does.
    #[serde(rename = "holds")]
    Holds,
    /// It does not.
    #[serde(rename = "falls short")]
    FallsShort,
    /// For comparison; nothing was expected of it.
    #[serde(rename = "shown")]
    Shown,
}

impl Verdict {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::FallsShort => "falls short",
            Verdict::Shown => "shown",
        }
    }
}

/// A claim of a paper before it is measured. The texts of one that is measured several times have
/// a `{}` where they differ.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) claim: Cow<'static, str>,
    pub(super) paper: Cow<'static, str>,
    pub(super) expected: Cow<'static, str>,
    /// Whether the numbers that were measured are as expected; `None` where nothing is.
    pub(super) holds: Option<fn(&[f64]) -> bool>,
}

impl Row {
    /// The row with a text for each `{}`, in their order.
    pub(super) fn of(mut self, texts: &[&dyn Display]) -> Row {
        let mut texts = texts.iter();
        for part in [&mut self.claim, &mut self.paper, &mut self.expected] {
            for _ in 0..part.matches("{}").count() {
                let text = texts.next().map(ToString::to_string).unwrap_or_default();
                *part = part.replacen("{}", &text, 1).into();
            }
        }
        self
    }
}

/// The rows of a paper: a name, what is claimed with its place in the paper, what the paper
/// measured, what is expected here, and when it holds: `by` a function of all numbers or `if` a
/// condition on named ones. A row without either is shown, and tells the reader something instead
/// of an expectation.
macro_rules! rows {
    ($($name:ident = $claim:literal, $paper:literal => $expected:literal
        $(by $rule:ident)? $(if |$($number:ident),+| $holds:expr)?;)+) => {
        $(const $name: $crate::report::Row = $crate::report::Row {
            claim: std::borrow::Cow::Borrowed($claim),
            paper: std::borrow::Cow::Borrowed($paper),
            expected: std::borrow::Cow::Borrowed($expected),
            holds: $crate::report::rule!($(by $rule)? $(if |$($number),+| $holds)?),
        };)+
    };
}
pub(super) use rows;

macro_rules! rule {
    () => { None };
    (by $rule:ident) => { Some($rule) };
    (if |$($number:ident),+| $holds:expr) => {
        Some(|numbers: &[f64]| {
            let &[$($number),+] = numbers else { panic!("the row is about other numbers") };
            $holds
        })
    };
}
pub(super) use rule;

/// A claim that was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PaperRow {
    /// What is claimed, with its place in the paper.
    pub claim: String,
    /// What the paper measured.
    pub paper: String,
    /// What was measured here.
    pub here: String,
    /// What was expected here, and on which grounds.
    pub expected: String,
    /// Whether it holds.
    pub verdict: Verdict,
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
    /// By which factor the workloads were scaled; 1 is what the expectations are for.
    pub scale: f64,
    /// In the order of the paper.
    pub rows: Vec<PaperRow>,
    /// Not in JSON.
    #[serde(skip)]
    pub figures: Vec<Figure>,
    /// What a reader should know of the method; not in JSON.
    #[serde(skip)]
    pub notes: Vec<String>,
}

impl PaperReport {
    /// A report without rows yet.
    pub fn new(paper: &str, scale: f64) -> PaperReport {
        let (rows, figures, notes) = (Vec::new(), Vec::new(), Vec::new());
        PaperReport { paper: paper.into(), scale, rows, figures, notes }
    }

    /// Adds a claim that holds or falls short by these numbers.
    pub(super) fn judge(&mut self, row: Row, here: impl Into<String>, numbers: &[f64]) {
        let holds = row.holds.expect("a row that is judged says when it holds")(numbers);
        self.push(row, here.into(), if holds { Verdict::Holds } else { Verdict::FallsShort });
    }

    /// Adds a number of which nothing is expected.
    pub(super) fn show(&mut self, row: Row, here: impl Into<String>) {
        self.push(row, here.into(), Verdict::Shown);
    }

    /// Adds what a reader should know of the method.
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
        let ([title, x, y], categories) = (titles.map(String::from), categories.into_iter());
        let categories = categories.map(C::into).collect();
        let chart = BarChart { title, x, y: Axis::linear(y), categories, bars };
        self.draw(name, Chart::Bar(chart));
    }

    /// Adds a chart of lines over an even vertical axis.
    pub fn draw_lines(&mut self, name: &str, title: &str, x: Axis, y: &str, lines: Vec<Line>) {
        let chart = LineChart { title: title.into(), x, y: Axis::linear(y), lines };
        self.draw(name, Chart::Line(chart));
    }

    /// Whether a row falls short.
    pub fn falls_short(&self) -> bool {
        self.rows.iter().any(|row| row.verdict == Verdict::FallsShort)
    }

    fn draw(&mut self, name: &str, chart: Chart) {
        self.figures.push(Figure { name: name.into(), chart });
    }

    fn push(&mut self, row: Row, here: String, verdict: Verdict) {
        let [claim, paper, expected] = [row.claim, row.paper, row.expected].map(Cow::into_owned);
        self.rows.push(PaperRow { claim, paper, here, expected, verdict });
    }
}

/// The bars of one colour.
pub(super) fn bars(name: &str, values: impl IntoIterator<Item = f64>) -> Bars {
    Bars { name: name.into(), values: values.into_iter().collect() }
}

/// A line through points.
pub(super) fn line(name: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Line {
    Line { name: name.into(), points: points.into_iter().collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    rows! {
        A = "a", "1" => "3" if |number| number >= 3.0;
        B = "b {}", "1" => "of {}";
    }

    #[test]
    fn json_has_the_rows_only() {
        let mut report = PaperReport::new("x", 0.5);
        report.judge(A, "3", &[3.0]);
        report.show(B.of(&[&"text", &3]), "2");
        assert_eq!((&report.rows[1].claim[..], &report.rows[1].expected[..]), ("b text", "of 3"));
        assert!(!report.falls_short());
        report.judge(A, "2", &[2.0]);
        assert!(report.falls_short());
        report.note("hidden");
        let json = serde_json::to_value(&report).expect("plain data");
        let fields: Vec<&String> = json.as_object().expect("an object").keys().collect();
        assert_eq!(fields, ["paper", "rows", "scale"]);
        let verdicts: Vec<&str> = json["rows"]
            .as_array()
            .expect("rows")
            .iter()
            .map(|row| {
                assert_eq!(row.as_object().expect("an object").len(), 5);
                row["verdict"].as_str().expect("text")
            })
            .collect();
        assert_eq!(verdicts, ["holds", "shown", "falls short"]);
    }
}
