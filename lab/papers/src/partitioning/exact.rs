//! Figures 2 and 3 of the paper, with their own keys, and one like figure 4, by the partitioners
//! alone.

use std::sync::Arc;

use runstone_kv::Result;
use runstone_policy::partition::slices::components;
use runstone_policy::partition::{CutKey, Histogram, Input, Partitioner, Point};
use runstone_policy::shape::Table;
use runstone_workloads::generators::Rng;
use runstone_workloads::median;

use crate::numbers::strokes;
use crate::report::{bars_beside, rows};
use crate::sides::Side;
use crate::verdict::Rule::*;
use crate::{Context, PaperReport};

rows! {
    FIGURE_2 = "sub-compactions and moves of {1,3..13} and {4,6..14}, theta = 3 (figure 2)",
        "Size 1, 0; Global-Range 2, 1" => Exactly(&[1.0, 0.0, 2.0, 1.0]);
    FIGURE_3 = "cuts of 8-bit keys from 4 to 254, in key order (figure 3)",
        "Local 66, 129, 191; Global 63, 127, 191"
        => Exactly(&[66.0, 129.0, 191.0, 63.0, 127.0, 191.0]);
    FIGURE_4 = "sub-compactions, moves, tables of three runs of 40 random keys: Size; Local-Range; \
                Global-Range; medians of 99 (figure 4)",
        "1, 0, 10; 1, 0, 16; 3, 1, 15" => NotComparable("one example, whose keys are not printed");
}

const CUT_BY: [(&str, Partitioner); 3] = [
    ("Size", Partitioner::Size),
    ("Local-Range", Partitioner::LocalRange),
    ("Global-Range", Partitioner::GlobalRange),
];

/// The keys at which a run of these keys is cut, if each key counts as one byte.
fn cuts_of<const N: usize>(partitioner: Partitioner, keys: &[[u8; N]], most: u64) -> Vec<CutKey> {
    let points = keys.iter().map(|key| Point { last_key: Box::new(*key), bytes: 1 });
    let histogram = Histogram::new(points.collect());
    let input = Input {
        histogram: &histogram,
        min_key: &keys[0],
        max_key: &keys[keys.len() - 1],
        table_bytes: most,
        prefixer: None,
    };
    partitioner.rule().cuts(&input)
}

/// The tables of runs of these keys, each run with its largest table.
fn tables_of<const N: usize>(
    partitioner: Partitioner,
    runs: &[(Vec<[u8; N]>, u64)],
) -> Vec<Arc<Table>> {
    let mut tables = Vec::new();
    for (keys, most) in runs {
        let cuts = cuts_of(partitioner, keys, *most);
        let cell = |key: &[u8; N]| cuts.partition_point(|cut| **cut <= key[..]);
        for table in keys.chunk_by(|a, b| cell(a) == cell(b)) {
            tables.push(meta(tables.len() as u64 + 1, table));
        }
    }
    tables
}

pub(super) fn figures(_: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    report.compare(&[Side::new("each partitioner", "keys count as a byte")], &[])?;
    figure_2(report);
    figure_3(report);
    figure_4(report);
    Ok(())
}

fn figure_2(report: &mut PaperReport) {
    let runs: [&[u8]; 2] = [&[1, 3, 5, 7, 9, 11, 13], &[4, 6, 8, 10, 12, 14]];
    let runs = runs.map(|run| (single(run), 3));
    let parts = |partitioner| {
        let parts = components(&tables_of(partitioner, &runs));
        [parts.compactions.len() as f64, parts.moves.len() as f64]
    };
    let (size, global) = (parts(Partitioner::Size), parts(Partitioner::GlobalRange));
    report.judge(
        FIGURE_2,
        format!("Size {}, {}; Global-Range {}, {}", size[0], size[1], global[0], global[1]),
        &[size, global].concat(),
    );
    let titles = ["A compaction of two runs, theta = 3", "", "sub-compactions; moves"];
    let all =
        vec![bars_beside("Size", size, [1.0, 0.0]), bars_beside("Global", global, [2.0, 1.0])];
    report.draw_bars("figure-2", titles, ["sub-compactions", "moves"], all);
}

fn figure_3(report: &mut PaperReport) {
    let spread = |from: u8, to: u8| (0..10u8).map(move |i| from + i * ((to - from) / 10));
    let keys = [(4, 63), (67, 127), (130, 191), (192, 254)].into_iter();
    let keys = keys.flat_map(|(from, to)| spread(from, to)).take(39).chain([254]);
    let keys: Vec<u8> = keys.collect();
    let lasts = |partitioner| -> Vec<u8> {
        let cuts = cuts_of(partitioner, &single(&keys), 10);
        let last = |cut: &CutKey| (0..=255).rev().find(|key| [*key].as_slice() < &**cut);
        cuts.iter().filter_map(last).collect()
    };
    let (local, global) = (lasts(Partitioner::LocalRange), lasts(Partitioner::GlobalRange));
    let cuts: Vec<f64> = local.iter().chain(&global).map(|key| f64::from(*key)).collect();
    report.judge(FIGURE_3, format!("Local {local:?}; Global {global:?}"), &cuts);
    let bars =
        |name, cuts: &[u8], paper| bars_beside(name, cuts.iter().map(|key| f64::from(*key)), paper);
    let titles = ["Cuts of 40 keys from 4 to 254, theta = 10", "cut", "last key before it"];
    let all = vec![
        bars("Local-Range", &local, [66.0, 129.0, 191.0]),
        bars("Global-Range", &global, [63.0, 127.0, 191.0]),
    ];
    report.draw_bars("figure-3", titles, ["first", "second", "third"], all);
}

fn figure_4(report: &mut PaperReport) {
    let mut seen = CUT_BY.map(|_| [const { Vec::new() }; 3]);
    let mut rng = Rng::new(4);
    for _ in 0..99 {
        let runs = [(); 3].map(|()| {
            let mut keys: Vec<[u8; 1]> = (0..40).map(|_| [rng.below(256) as u8]).collect();
            keys.sort_unstable();
            keys.dedup();
            (keys, 10)
        });
        for ((_, partitioner), seen) in CUT_BY.into_iter().zip(&mut seen) {
            for (all, one) in seen.iter_mut().zip(merged(partitioner, &runs)) {
                all.push(one as f64);
            }
        }
    }
    let medians = seen.map(|each| each.map(median));
    report.show(FIGURE_4, medians.map(|each| strokes(each, 0)).join("; "));
    // The numbers of the paper's example.
    let paper = [[1.0, 0.0, 10.0], [1.0, 0.0, 16.0], [3.0, 1.0, 15.0]];
    let all = CUT_BY.into_iter().zip(medians).zip(paper);
    let all = all.map(|(((name, _), each), paper)| bars_beside(name, each, paper));
    let titles = ["Three runs of 40 random keys, theta = 10", "", "medians of 99"];
    let categories = ["sub-compactions", "moves", "tables behind them"];
    report.draw_bars("figure-4", titles, categories, all.collect());
}

/// Sub-compactions and moves of runs that are cut, and the number of tables that they leave.
fn merged(partitioner: Partitioner, runs: &[(Vec<[u8; 1]>, u64)]) -> [usize; 3] {
    let tables = tables_of(partitioner, runs);
    let parts = components(&tables);
    let mut keys: Vec<[u8; 1]> = runs.iter().flat_map(|(keys, _)| keys.clone()).collect();
    keys.sort_unstable();
    keys.dedup();
    let behind = tables_of(partitioner, &[(keys, runs[0].1)]).len();
    [parts.compactions.len(), parts.moves.len(), behind]
}

/// Keys of one byte.
fn single(keys: &[u8]) -> Vec<[u8; 1]> {
    keys.iter().map(|key| [*key]).collect()
}

fn meta<const N: usize>(id: u64, keys: &[[u8; N]]) -> Arc<Table> {
    Arc::new(Table {
        id,
        min_key: Box::new(keys[0]),
        max_key: Box::new(keys[keys.len() - 1]),
        bytes: keys.len() as u64,
        entries: keys.len() as u64,
        min_seq: id,
        max_seq: id,
        ..Table::default()
    })
}
