//! Figures 2 and 3 of the paper, with their own keys, by the partitioners alone.

use std::sync::Arc;

use runstone::Result;
use runstone::policy::partition::slices::components;
use runstone::policy::partition::{CutKey, Histogram, Input, Partitioner, Point};
use runstone::policy::shape::Table;

use crate::report::rows;
use crate::verdict::Rule::*;
use crate::{Context, PaperReport};

rows! {
    FIGURE_2 = "sub-compactions and moves of {1,3..13} and {4,6..14}, theta = 3 (figure 2)",
        "Size 1, 0; Global-Range 2, 1" => Exactly(&[1.0, 0.0, 2.0, 1.0]);
    FIGURE_3 = "cuts of 8-bit keys from 4 to 254, in key order (figure 3)",
        "Local 66, 129, 191; Global 63, 127, 191"
        => Exactly(&[66.0, 129.0, 191.0, 63.0, 127.0, 191.0]);
}

/// Where a run of these keys is cut, each counting as one byte.
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
    let parts = |partitioner| {
        let runs: [&[u8]; 2] = [&[1, 3, 5, 7, 9, 11, 13], &[4, 6, 8, 10, 12, 14]];
        let parts = components(&tables_of(partitioner, &runs.map(|run| (single(run), 3))));
        (parts.compactions.len(), parts.moves.len())
    };
    let (size, global) = (parts(Partitioner::Size), parts(Partitioner::GlobalRange));
    report.judge(
        FIGURE_2,
        format!("Size {}, {}; Global-Range {}, {}", size.0, size.1, global.0, global.1),
        &[size.0, size.1, global.0, global.1].map(|count| count as f64),
    );
    let spread = |from: u8, to: u8| (0..10u8).map(move |i| from + i * ((to - from) / 10));
    let keys = [(4, 63), (67, 127), (130, 191), (192, 254)].into_iter();
    let keys: Vec<u8> = keys.flat_map(|(from, to)| spread(from, to)).chain([254]).collect();
    let lasts = |partitioner| -> Vec<u8> {
        let cuts = cuts_of(partitioner, &single(&keys), 10);
        let last = |cut: &CutKey| (0..=255).rev().find(|key| [*key].as_slice() < &**cut);
        cuts.iter().filter_map(last).collect()
    };
    let (local, global) = (lasts(Partitioner::LocalRange), lasts(Partitioner::GlobalRange));
    let cuts = local.iter().take(3).chain(global.iter().take(3));
    let cuts: Vec<f64> = cuts.map(|key| f64::from(*key)).collect();
    report.judge(FIGURE_3, format!("Local {local:?}; Global {global:?}"), &cuts);
    Ok(())
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
