//! How a row is judged: one rule for each kind of claim, and five verdicts. A rule rests on what
//! the paper prints. If the paper prints "the same" or "close", the row names the permitted share
//! beforehand.
//!
//! An *effect* is the logarithm of a ratio: half as much and twice as fast are then the same size.
//! A result reproduces the paper if it has at least two thirds of the paper's effect.

use serde::Serialize;

/// The share of a paper's effect that counts as the same.
const SAME: f64 = 2.0 / 3.0;

/// Less than this share of a paper's effect counts as none.
const NONE: f64 = 0.1;

/// The verdict on a paper's claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Verdict {
    /// The effect is as large as in the paper, within the tolerance.
    #[serde(rename = "reproduced")]
    Reproduced,
    /// The paper claims that two designs are close, and here the paper's own design is better than
    /// that.
    #[serde(rename = "beyond")]
    Beyond,
    /// The effect has the same direction and is smaller.
    #[serde(rename = "weaker")]
    Weaker,
    /// There is no effect, or it has the opposite direction.
    #[serde(rename = "absent")]
    Absent,
    /// A claim whose conditions do not exist here.
    #[serde(rename = "not comparable")]
    NotComparable,
}

impl Verdict {
    /// All five, in the order of a summary.
    pub const ALL: [Verdict; 5] = [
        Verdict::Reproduced,
        Verdict::Beyond,
        Verdict::Weaker,
        Verdict::Absent,
        Verdict::NotComparable,
    ];

    /// The verdict in words.
    pub fn text(self) -> &'static str {
        match self {
            Verdict::Reproduced => "reproduced",
            Verdict::Beyond => "beyond",
            Verdict::Weaker => "weaker",
            Verdict::Absent => "absent",
            Verdict::NotComparable => "not comparable",
        }
    }
}

/// What a paper says about a row's numbers, and therefore how they are judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rule {
    /// The paper prints these ratios of one side to the other. The ratio with the smallest share of
    /// the paper's effect counts.
    Ratios(&'static [f64]),
    /// The paper bounds what something costs: a ratio is at most this.
    AtMost(f64),
    /// The paper says that these are the same: they must be within this share of the least.
    Alike(f64),
    /// The paper says that its design costs about as much as another: each ratio is at most this
    /// share above 1. Ratios that are all as far below 1 are better than the claim.
    Close(f64),
    /// The paper prints these numbers, and they do not depend on a machine or a scale.
    Exactly(&'static [f64]),
    /// The paper gives an order but no size: each number is larger than the one before.
    Rises,
    /// The paper gives an order but no size: each number is smaller than the one before.
    Falls,
    /// The reason why the paper's number and ours cannot be compared.
    NotComparable(&'static str),
    /// The paper claims nothing about this, or another row measures it better. The text says why
    /// the row is shown.
    Beside(&'static str),
}

impl Rule {
    /// The verdict on these numbers.
    pub(super) fn judge(self, numbers: &[f64]) -> Verdict {
        let is_measured = numbers.iter().all(|number| number.is_finite());
        match self {
            Rule::NotComparable(_) | Rule::Beside(_) => Verdict::NotComparable,
            _ if !is_measured || numbers.is_empty() => Verdict::Absent,
            Rule::Ratios(paper) => {
                assert_eq!(paper.len(), numbers.len(), "one ratio for each of the paper's");
                if numbers.iter().any(|number| *number <= 0.0) {
                    return Verdict::Absent;
                }
                let shares = paper.iter().zip(numbers).map(|(paper, here)| here.ln() / paper.ln());
                by_share(shares.fold(f64::INFINITY, f64::min))
            }
            Rule::AtMost(most) => {
                let cost = numbers.iter().copied().fold(0.0, f64::max).ln();
                match cost {
                    _ if cost <= most.ln() => Verdict::Reproduced,
                    _ if cost * SAME <= most.ln() => Verdict::Weaker,
                    _ => Verdict::Absent,
                }
            }
            Rule::Alike(_) | Rule::Rises | Rule::Falls if numbers.len() < 2 => {
                panic!("{self:?} compares two numbers or more")
            }
            Rule::Alike(share) => {
                let least = numbers.iter().copied().fold(f64::INFINITY, f64::min);
                either(numbers.iter().all(|number| *number <= least * (1.0 + share)))
            }
            Rule::Close(share) => {
                let is_better = numbers.iter().all(|number| number * (1.0 + share) < 1.0);
                match numbers.iter().all(|number| *number <= 1.0 + share) {
                    true if is_better => Verdict::Beyond,
                    is_close => either(is_close),
                }
            }
            Rule::Exactly(paper) => either(paper == numbers),
            Rule::Rises => by_order(numbers, |before, after| before < after),
            Rule::Falls => by_order(numbers, |before, after| before > after),
        }
    }

    /// The rule in words, for the reader.
    pub(super) fn text(self) -> String {
        match self {
            Rule::Ratios(paper) => {
                let bound = |paper: &f64| {
                    let way = if *paper < 1.0 { "<=" } else { ">=" };
                    format!("{way} {:.2}", paper.powf(SAME))
                };
                let bounds: Vec<String> = paper.iter().map(bound).collect();
                format!("two thirds: {}", bounds.join(", "))
            }
            Rule::AtMost(most) => format!("<= {most:.2}"),
            Rule::Alike(share) => format!("within {}%", percent(share)),
            Rule::Close(share) => format!("within {}%, or less", percent(share)),
            Rule::Exactly(_) => "equal".into(),
            Rule::Rises => "rises".into(),
            Rule::Falls => "falls".into(),
            Rule::NotComparable(reason) | Rule::Beside(reason) => reason.into(),
        }
    }
}

/// A share in percent, to a tenth.
fn percent(share: f64) -> f64 {
    (share * 1000.0).round() / 10.0
}

fn by_share(share: f64) -> Verdict {
    match share {
        _ if share >= SAME => Verdict::Reproduced,
        _ if share >= NONE => Verdict::Weaker,
        _ => Verdict::Absent,
    }
}

fn either(is_so: bool) -> Verdict {
    if is_so { Verdict::Reproduced } else { Verdict::Absent }
}

/// An order that holds only between the first and the last number is weaker.
fn by_order(numbers: &[f64], is_before: fn(&f64, &f64) -> bool) -> Verdict {
    let ends = [numbers[0], numbers[numbers.len() - 1]];
    let is_ordered = |numbers: &[f64]| numbers.windows(2).all(|pair| is_before(&pair[0], &pair[1]));
    match (is_ordered(numbers), is_ordered(&ends)) {
        (true, _) => Verdict::Reproduced,
        (false, true) => Verdict::Weaker,
        (false, false) => Verdict::Absent,
    }
}

#[cfg(test)]
mod tests {
    use super::Verdict::*;
    use super::*;

    #[test]
    fn an_effect_counts_the_same_either_way_it_is_written() {
        for (here, verdict) in
            [(4.0, Reproduced), (2.6, Reproduced), (2.4, Weaker), (1.1, Absent), (0.5, Absent)]
        {
            assert_eq!(Rule::Ratios(&[4.0]).judge(&[here]), verdict, "{here} for 4");
            assert_eq!(Rule::Ratios(&[0.25]).judge(&[1.0 / here]), verdict, "{here} for a fourth");
        }
        assert_eq!(Rule::Ratios(&[2.0, 4.0]).judge(&[2.0, 1.0]), Absent, "the smallest counts");
        assert_eq!(Rule::Ratios(&[4.0]).judge(&[f64::NAN]), Absent);
        assert_eq!(Rule::Ratios(&[0.25]).judge(&[0.0]), Absent, "nothing was measured");
    }

    #[test]
    fn bounds_equality_and_order() {
        assert_eq!(Rule::AtMost(1.2).judge(&[0.8, 1.2]), Reproduced);
        assert_eq!(Rule::AtMost(1.2).judge(&[1.3]), Weaker);
        assert_eq!(Rule::AtMost(1.2).judge(&[1.4]), Absent);
        assert_eq!(Rule::AtMost(1.2).judge(&[f64::NAN]), Absent);
        assert_eq!(Rule::Alike(0.05).judge(&[1.0, 1.05, 1.02]), Reproduced);
        assert_eq!(Rule::Alike(0.05).judge(&[1.0, 1.06]), Absent);
        assert_eq!(Rule::Exactly(&[2.0, 1.0]).judge(&[2.0, 1.0]), Reproduced);
        assert_eq!(Rule::Exactly(&[2.0]).judge(&[2.1]), Absent);
        assert_eq!(Rule::Rises.judge(&[1.0, 2.0, 3.0]), Reproduced);
        assert_eq!(Rule::Rises.judge(&[1.0, 3.0, 2.0]), Weaker);
        assert_eq!(Rule::Falls.judge(&[1.0, 3.0, 2.0]), Absent);
        assert_eq!(Rule::NotComparable("why").judge(&[]), NotComparable);
    }

    #[test]
    fn what_is_better_than_close_is_beyond() {
        let close = Rule::Close(0.1);
        assert_eq!(close.judge(&[1.1, 0.95]), Reproduced);
        assert_eq!(close.judge(&[0.92]), Reproduced);
        assert_eq!(close.judge(&[0.9, 0.6]), Beyond);
        assert_eq!(close.judge(&[0.95, 0.6]), Reproduced, "one is no better");
        assert_eq!(close.judge(&[1.2, 0.6]), Absent);
        assert_eq!(close.judge(&[f64::NAN]), Absent);
        assert_eq!(close.text(), "within 10%, or less");
    }

    #[test]
    fn the_text_of_a_rule_says_what_it_judges_by() {
        assert_eq!(Rule::Ratios(&[0.49]).text(), "two thirds: <= 0.62");
        assert_eq!(Rule::Ratios(&[8.0]).text(), "two thirds: >= 4.00");
        assert_eq!(Rule::Alike(0.003).text(), "within 0.3%");
        assert_eq!(Rule::Alike(0.05).text(), "within 5%");
        assert_eq!(Rule::NotComparable("why").text(), "why");
    }
}
