//! Figure 7 prints no numbers. So what the paper's text says about it is judged, sentence by
//! sentence, by the time of the simulated machine. Section I gives the only size: 1.2 to 2.5 times
//! as fast as leveling.

use runstone_plot::Axis;

use super::ycsb::{C, E, F, Run, mix_names};
use super::{EVERY, FRAGMENTED, GUARDS, LAST, LAZY, LEVELED, OTHERS, TIERED, WISCKEY};
use crate::PaperReport;
use crate::numbers::{list, ratio};
use crate::report::{bars_beside, rows};
use crate::verdict::Rule::*;

/// The mixes of the paper's text: those with mostly writes, and those with mostly reads.
const A_F: [usize; 2] = [0, F];
const B_C_D_E: [usize; 4] = [1, C, 4, E];
const B_C_D: [usize; 3] = [1, C, 4];

rows! {
    LATENCY = "time of YCSB {}, PTierDB over leveled (figure 7)",
        "0.40 to 0.83" => Ratios(&[0.833]);
    LATENCY_EVERY = "time of all mixes, PTierDB over leveled, merges inside every level",
        "0.40 to 0.83" => Ratios(&[0.833; 6]);
    BEST = "time of all mixes, PTierDB over the fastest other (figure 7)",
        "consistently outperforms" => AtMost(1.0);
    BEST_EVERY = "the same, merges inside every level",
        "consistently outperforms" => AtMost(1.0);
    ADVANTAGE = "mean of the others over PTierDB's time: A and F, then B, C, D and E (figure 7)",
        "the advantage of B, C, D, E is larger" => Rises;
    ADVANTAGE_APART = "mean of the others over PTierDB's time: A and F, then B, C and D, without E",
        "the advantage of B, C, D, E is larger" => Rises;
    LAZY_LEVELED = "time of YCSB A, B, F, D, E, lazy leveling over leveled (figure 7)",
        "slightly better" => AtMost(1.0);
    LAZY_LEVELED_C = "time of YCSB C, lazy leveling over leveled (figure 7)",
        "not better" => Rises;
    SLOWER = "time of all mixes, {} over the slower of leveled and SILK (figure 7)",
        "consistently worse" => Rises;
    TIERED_C_F = "time of tiered over leveled: most of A, B, D, E, least of C, F (figure 7)",
        "worse especially in C and F" => Rises;
    SLOWEST = "time of all mixes, WiscKey over leveled (figure 7)",
        "separation does not work for small data" => Rises;
    LATENCIES_SSD = "us in YCSB {} with all reads from the SSD, all nine",
        "" => Beside("the paper's databases fit into its page cache");
    PROCESSOR = "us of them that the processor takes in YCSB {}, all nine",
        "" => Beside("the rest is reads and writes");
    LATENCIES_MOVED = "time of all mixes, PTierDB over leveled, reads and writes alone",
        "0.40 to 0.83" => Beside("what the processor's time decides");
    LATENCIES = "us in YCSB {}, all nine (figure 7)",
        "" => Beside("the figure prints no numbers");
}

/// Times of the stores, mix by mix.
struct Times<'a>(&'a [Run]);

impl Times<'_> {
    fn us(&self, store: usize, mix: usize) -> f64 {
        self.0[store].mixes[mix].us
    }

    fn over(&self, store: usize, other: usize, mix: usize) -> f64 {
        self.us(store, mix) / self.us(other, mix)
    }

    /// The time of the fastest of the paper's other stores in a mix.
    fn fastest_other(&self, mix: usize) -> f64 {
        OTHERS.map(|other| self.us(other, mix)).into_iter().fold(f64::INFINITY, f64::min)
    }

    /// How many times as long as PTierDB the others take: the geometric mean over all others and
    /// all of the mixes.
    fn advantage(&self, mixes: &[usize]) -> f64 {
        let logarithms = mixes.iter().flat_map(|mix| OTHERS.map(|other| (other, *mix)));
        let logarithms: Vec<f64> =
            logarithms.map(|(other, mix)| self.over(other, LAST, mix).ln()).collect();
        (logarithms.iter().sum::<f64>() / logarithms.len() as f64).exp()
    }
}

pub(super) fn judge(report: &mut PaperReport, runs: &[Run]) {
    let times = Times(runs);
    let mixes: Vec<&str> = mix_names().collect();
    let all = 0..mixes.len();
    for (mix, name) in mixes.iter().enumerate() {
        let (text, faster) = ratio(times.us(LAST, mix), times.us(LEVELED, mix), 2, " us");
        report.judge(LATENCY.of(&[name]), text, &[faster]);
    }
    let every: Vec<f64> = all.clone().map(|mix| times.over(EVERY, LEVELED, mix)).collect();
    report.judge(LATENCY_EVERY.uncounted(), list(&every, 2), &every);
    for (row, store) in [(BEST, LAST), (BEST_EVERY.uncounted(), EVERY)] {
        let over = |mix| times.us(store, mix) / times.fastest_other(mix);
        let over: Vec<f64> = all.clone().map(over).collect();
        report.judge(row, list(&over, 2), &over);
    }
    let advantages = [times.advantage(&A_F), times.advantage(&B_C_D_E)];
    report.judge(ADVANTAGE, list(advantages, 2), &advantages);
    let advantages = [times.advantage(&A_F), times.advantage(&B_C_D)];
    report.judge(ADVANTAGE_APART.uncounted(), list(advantages, 2), &advantages);
    judge_policies(report, &times, all);
    for (mix, name) in mixes.iter().enumerate() {
        let us = (0..runs.len()).map(|store| times.us(store, mix));
        report.show(LATENCIES.of(&[name]), list(us.collect::<Vec<_>>(), 2));
        let us = runs.iter().map(|run| run.mixes[mix].processor_us);
        report.show(PROCESSOR.of(&[name]), list(us, 2));
        let us = runs.iter().map(|run| run.mixes[mix].ssd_us);
        report.show(LATENCIES_SSD.of(&[name]), list(us.collect::<Vec<_>>(), 1));
    }
    let moved = |store: usize, mix: usize| {
        let phase = &runs[store].mixes[mix];
        phase.us - phase.processor_us
    };
    let over = (0..mixes.len()).map(|mix| moved(LAST, mix) / moved(LEVELED, mix));
    report.show(LATENCIES_MOVED, list(over, 2));
    draw(report, runs);
}

/// Judges the paper's claims about the other policies.
fn judge_policies(report: &mut PaperReport, times: &Times<'_>, all: std::ops::Range<usize>) {
    let lazy = |mix| times.over(LAZY, LEVELED, mix);
    let over: Vec<f64> = all.clone().filter(|mix| *mix != C).map(lazy).collect();
    report.judge(LAZY_LEVELED, list(&over, 2), &over);
    report.judge(LAZY_LEVELED_C, format!("{:.2}", lazy(C)), &[1.0, lazy(C)]);
    let least = |over: &[f64]| over.iter().copied().fold(f64::INFINITY, f64::min);
    for (store, name) in [(TIERED, "tiered"), (GUARDS, "guards for PebblesDB")] {
        let slower = |mix| times.us(LEVELED, mix).max(times.us(FRAGMENTED, mix));
        let over: Vec<f64> = all.clone().map(|mix| times.us(store, mix) / slower(mix)).collect();
        report.judge(SLOWER.of(&[&name]), list(&over, 2), &[1.0, least(&over)]);
    }
    let tiered = |mix| times.over(TIERED, LEVELED, mix);
    let most = [A_F[0], 1, 4, 5].map(tiered).into_iter().fold(0.0, f64::max);
    let in_c_f = least(&[C, F].map(tiered));
    report.judge(TIERED_C_F, list([most, in_c_f], 2), &[most, in_c_f]);
    let over: Vec<f64> = all.map(|mix| times.over(WISCKEY, LEVELED, mix)).collect();
    report.judge(SLOWEST, list(&over, 2), &[1.0, least(&over)]);
}

/// Draws times relative to leveled, because mix E takes ten times as long as the others.
fn draw(report: &mut PaperReport, runs: &[Run]) {
    let mixes = mix_names().map(|mix| format!("YCSB {mix}"));
    let times = Times(runs);
    // The least that the paper prints for its own rule: 1.2 times as fast as leveling.
    let paper = [1.0 / 1.2; E + 1];
    let over = |(at, run): (usize, &Run)| {
        let marks = if at == LAST { &paper[..] } else { &[] };
        let ratios = (0..=E).map(|mix| times.over(at, LEVELED, mix));
        bars_beside(run.name, ratios, marks.iter().copied())
    };
    let titles = ["Average latency by the simulated machine", "mix"];
    let (y, bars) =
        (Axis::doubling("times leveled's"), runs.iter().enumerate().map(over).collect());
    report.draw_bars_over("figure-7", titles, y, mixes, bars);
}
