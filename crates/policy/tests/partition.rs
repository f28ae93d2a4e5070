//! Tests the partitioners against the figures of the paper and the promises of every partitioner,
//! and the division of compactions into parts. The engine's use of partitioners is tested
//! elsewhere.

mod support;

use std::ops::Range;
use std::sync::Arc;

use proptest::prelude::*;
use runstone_policy::partition::slices::{
    Block, CellRule, SliceInput, Slices, components, slice, slice_by_components, slice_count,
};
use runstone_policy::partition::{
    CutKey, Histogram, Input, PARTITIONERS, Partitioner, Point, cells, check_cuts, successor,
};
use runstone_policy::prefix::PrefixRule;
use runstone_policy::shape::Table;

use runstone_random::mix64;
use support::table;

/// Each key is a point of one byte: sizes are counts of keys, as in the paper's figures.
fn histogram<K: AsRef<[u8]>>(keys: &[K]) -> Histogram {
    let point = |key: &K| Point { last_key: key.as_ref().into(), bytes: 1 };
    Histogram::new(keys.iter().map(point).collect())
}

fn cuts_of(partitioner: Partitioner, histogram: &Histogram, table_bytes: u64) -> Vec<CutKey> {
    let points = histogram.points();
    let key = |point: Option<&Point>| point.map_or(Vec::new(), |p| p.last_key.to_vec());
    let (min_key, max_key) = (key(points.first()), key(points.last()));
    let input =
        Input { histogram, min_key: &min_key, max_key: &max_key, table_bytes, prefixer: None };
    partitioner.rule().cuts(&input)
}

/// The keys of each table.
fn tables_of<K: AsRef<[u8]> + Clone>(
    partitioner: Partitioner,
    keys: &[K],
    table_bytes: u64,
) -> Vec<Vec<Vec<u8>>> {
    let histogram = histogram(keys);
    let cuts = cuts_of(partitioner, &histogram, table_bytes);
    assert!(check_cuts(&histogram, &cuts), "{partitioner:?}: {cuts:?}");
    let keys_of = |cell: Range<usize>| {
        histogram.points()[cell].iter().map(|point| point.last_key.to_vec()).collect()
    };
    cells(&histogram, &cuts).into_iter().map(keys_of).collect()
}

fn numbers(keys: &[u8]) -> Vec<[u8; 1]> {
    keys.iter().map(|key| [*key]).collect()
}

/// Table metadata with these keys, unencoded.
fn meta(id: u64, keys: &[Vec<u8>], bytes: u64) -> Arc<Table> {
    let plain = table(id, ("", ""), (1, 1), bytes);
    let (min_key, max_key) = (keys[0].as_slice().into(), keys[keys.len() - 1].as_slice().into());
    Arc::new(Table { min_key, max_key, ..(*plain).clone() })
}

/// Largest part / sum of all parts, in thousandths: the share of the work that one core must do.
fn critical_path_permille(parts: &[u64]) -> u64 {
    parts.iter().max().unwrap() * 1000 / parts.iter().sum::<u64>()
}

/// Figure 2: runs of {1, 3 .. 13} and {4, 6 .. 14}, at most three keys per table.
#[test]
fn figure_2_size_chains_and_global_range_does_not() {
    let parts = |partitioner| {
        let runs = [numbers(&[1, 3, 5, 7, 9, 11, 13]), numbers(&[4, 6, 8, 10, 12, 14])];
        let tables = runs.iter().flat_map(|keys| tables_of(partitioner, keys, 3));
        let tables: Vec<Arc<Table>> =
            (1..).zip(tables).map(|(id, keys)| meta(id, &keys, keys.len() as u64)).collect();
        let parts = components(&tables);
        (
            parts.compactions.len(),
            parts.moves.len(),
            critical_path_permille(&parts.compaction_bytes),
        )
    };
    assert_eq!(parts(Partitioner::Size), (1, 0, 1000));
    // {1,3} moves; {5,7} with {4,6}; {9,11,13} with {8,10} and {12,14}: 7 of 11 keys.
    assert_eq!(parts(Partitioner::GlobalRange), (2, 1, 636));
}

/// Figure 3: 40 8-bit keys from 4 to 254, at most ten per table. The test compares the largest key
/// that may be left of each cut.
#[test]
fn figure_3_local_and_global_range() {
    let spread = |from: u8, to: u8| (0..10u8).map(move |i| from + i * ((to - from) / 10));
    let keys: Vec<u8> = [(4, 63), (67, 127), (130, 191), (192, 254)]
        .into_iter()
        .flat_map(|(from, to)| spread(from, to))
        .chain([254])
        .filter(|key| *key != 192 + 9 * 6)
        .collect();
    assert_eq!((keys.len(), keys[0], keys[39]), (40, 4, 254));
    let lasts = |partitioner| -> Vec<u8> {
        let cuts = cuts_of(partitioner, &histogram(&numbers(&keys)), 10);
        let last = |cut: &CutKey| (0..=255).rev().find(|key| [*key].as_slice() < &**cut).unwrap();
        cuts.iter().map(last).collect()
    };
    assert_eq!(lasts(Partitioner::LocalRange), [66, 129, 191]);
    assert_eq!(lasts(Partitioner::GlobalRange), [63, 127, 191]);
    assert!(lasts(Partitioner::None).is_empty());
    assert_eq!(tables_of(Partitioner::Size, &numbers(&keys), 10).len(), 4);
}

#[test]
fn uniform_keys_make_a_power_of_two_of_tables() {
    let theta: u64 = 1 << 12;
    let tables = |partitioner, count: u64| {
        let keys: Vec<[u8; 8]> = (0..count).map(|i| mix64(i).to_be_bytes()).collect();
        tables_of(partitioner, &keys, theta).len() as u64
    };
    for m in [3, 5] {
        // N / theta is 0.93 or 1.25 times 2^m, which gives 8 % and 60 % more tables.
        for (hundredths, expected) in [(93, 1 << m), (125, 2 << m)] {
            let count = (theta << m) * hundredths / 100;
            assert_eq!(tables(Partitioner::GlobalRange, count), expected);
            let by_size = count.div_ceil(theta);
            assert_eq!(tables(Partitioner::Size, count), by_size);
            // Cells of 8 tables, cut evenly. Only the rounding inside a cell adds tables.
            let grouped = tables(Partitioner::GroupedGlobalRange, count);
            assert!(grouped <= by_size * 5 / 4 + 1, "{grouped} of {by_size}");
        }
    }
}

#[test]
fn keys_that_differ_in_zero_bytes_are_cut_by_size() {
    let keys: Vec<Vec<u8>> = (0..9).map(|zeros| [b"a".to_vec(), vec![0; zeros]].concat()).collect();
    for partitioner in [Partitioner::GlobalRange, Partitioner::LocalRange] {
        let sizes: Vec<usize> = tables_of(partitioner, &keys, 4).iter().map(Vec::len).collect();
        assert_eq!(sizes, [4, 4, 1], "{partitioner:?}");
    }
    // Next to another key, the group is a cell of its own.
    let keys = [keys, vec![b"b".to_vec()]].concat();
    let sizes: Vec<usize> =
        tables_of(Partitioner::GlobalRange, &keys, 9).iter().map(Vec::len).collect();
    assert_eq!(sizes, [9, 1]);
}

#[test]
fn a_user_key_larger_than_a_table_stays_whole() {
    let point = |key: &[u8], bytes| Point { last_key: key.into(), bytes };
    // Three blocks of one key, from several inputs.
    let points = vec![point(b"k", 50), point(b"a", 5), point(b"k", 60), point(b"z", 5)];
    let histogram = Histogram::new(points);
    assert_eq!(histogram.points().len(), 3);
    for partitioner in PARTITIONERS.iter().filter(|one| **one != Partitioner::None) {
        let cuts = cuts_of(*partitioner, &histogram, 20);
        assert!(check_cuts(&histogram, &cuts));
        let around = cells(&histogram, &cuts);
        assert!(around.contains(&(1..2)), "{partitioner:?}: {around:?}");
    }
}

#[test]
fn prefixes_stay_together_up_to_the_cap() {
    let keys: Vec<String> = ["a/", "b/", "c/"]
        .iter()
        .flat_map(|p| (0..40).map(move |i| format!("{p}{i:02}")))
        .collect();
    let histogram = histogram(&keys);
    let prefixer = PrefixRule::Delimiter((*b"/").into()).resolve(&[]).unwrap();
    let cuts = |table_bytes| {
        let (min_key, max_key) = (b"a/00".as_slice(), b"c/39".as_slice());
        let prefixer = Some(&prefixer);
        let input = Input { histogram: &histogram, min_key, max_key, table_bytes, prefixer };
        Partitioner::Prefix.rule().cuts(&input)
    };
    assert_eq!(cuts(160), [Box::from(*b"b/"), Box::from(*b"c/")], "T_s is 10");
    assert_eq!(cuts(32).len(), 5, "capped inside each prefix, and between");
}

type Keys = Vec<Vec<u8>>;

/// Keys of many kinds.
fn key() -> impl Strategy<Value = Vec<u8>> {
    let url = (0u8..4, 0u8..4, 0u16..300);
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..6),
        // Long shared prefixes.
        prop::collection::vec(0u8..3, 0..3)
            .prop_map(|end| [&b"shared-prefix-0123456"[..], &end].concat()),
        // Zero bytes at the end.
        (0u8..3, 0usize..4).prop_map(|(head, zeros)| [vec![head], vec![0; zeros]].concat()),
        any::<u64>().prop_map(|number| number.to_be_bytes().to_vec()),
        (0u64..1000).prop_map(|number| number.to_be_bytes().to_vec()),
        url.prop_map(|(host, path, id)| format!("https://h{host}.org/{path}/{id}").into_bytes()),
        any::<u128>().prop_map(|id| format!("{id:032x}").into_bytes()),
    ]
}

fn keys() -> impl Strategy<Value = Keys> {
    let same = prop::collection::vec(any::<u8>(), 0..2)
        .prop_map(|end| [&b"one-huge-group"[..], &end].concat());
    prop_oneof![
        4 => prop::collection::vec(key(), 1..80),
        1 => prop::collection::vec(same, 1..80),
    ]
}

/// A cell, as its smallest and largest bit string, which are longer than any key here.
type Cell = ([u8; 64], [u8; 64]);

/// The cell of each table: the range of all bit strings that start with the bits its keys share.
/// Tables separated by zero bytes alone are one cell.
fn cells_of(keys: &Keys, theta: u64) -> Vec<Cell> {
    let mut found: Vec<Cell> = Vec::new();
    for keys in tables_of(Partitioner::GlobalRange, keys, theta) {
        let padded = |key: &Vec<u8>| -> [u8; 64] {
            std::array::from_fn(|at| key.get(at).copied().unwrap_or(0))
        };
        let (mut low, mut high) = (padded(&keys[0]), padded(&keys[keys.len() - 1]));
        if found.last().is_some_and(|(other, _)| *other == low && *other == high) {
            continue;
        }
        if let Some(at) = (0..64).find(|at| low[*at] != high[*at]) {
            let rest = 0xff_u8 >> (low[at] ^ high[at]).leading_zeros();
            (low[at], high[at]) = (low[at] & !rest, high[at] | rest);
            low[at + 1..].fill(0);
            high[at + 1..].fill(0xff);
        }
        found.push((low, high));
    }
    found
}

fn contains(outer: &Cell, inner: &Cell) -> bool {
    outer.0 <= inner.0 && inner.1 <= outer.1
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        cases: ProptestConfig::default().cases.max(1000),
        ..ProptestConfig::default()
    })]

    /// The promises of every partitioner, on any keys and block sizes.
    #[test]
    fn cuts_ascend_and_tables_fit(
        keys in keys(),
        sizes in prop::collection::vec(1u64..9, 80),
        theta in 1u64..20,
    ) {
        let point = |(key, bytes): (&Vec<u8>, &u64)| {
            Point { last_key: key.as_slice().into(), bytes: *bytes }
        };
        let points = keys.iter().zip(&sizes).map(point);
        let histogram = Histogram::new(points.collect());
        let largest = histogram.points().iter().map(|point| point.bytes).max().unwrap();
        for partitioner in PARTITIONERS {
            let cuts = cuts_of(*partitioner, &histogram, theta);
            prop_assert_eq!(&cuts, &cuts_of(*partitioner, &histogram.clone(), theta));
            prop_assert!(check_cuts(&histogram, &cuts), "{:?}: {:?}", partitioner, cuts);
            for cell in cells(&histogram, &cuts) {
                let limit = match partitioner {
                    Partitioner::None => u64::MAX,
                    // An even share ends with the block that reaches it.
                    Partitioner::GroupedGlobalRange => theta + largest,
                    _ => theta,
                };
                let fits = histogram.bytes_of(&cell) <= limit || cell.len() == 1;
                prop_assert!(fits, "{:?}: {:?} of {:?}", partitioner, cell, cuts);
            }
        }
    }

    /// The theorem of `global_range.rs`: cells of one run are disjoint, and cells of two runs are
    /// disjoint or nested. So a component of overlap is one cell that contains the others.
    #[test]
    fn cells_of_global_range_are_nested_or_apart(
        runs in prop::collection::vec((keys(), 1u64..20), 2..4),
    ) {
        let cells_of = |(keys, theta): &(Keys, u64)| cells_of(keys, *theta);
        let runs: Vec<Vec<Cell>> = runs.iter().map(cells_of).collect();
        for cells in &runs {
            prop_assert!(cells.windows(2).all(|pair| pair[0].1 < pair[1].0), "{:?}", cells);
        }
        let mut all: Vec<Cell> = runs.concat();
        // A cell comes before the cells it contains.
        all.sort_by_key(|cell| (cell.0, std::cmp::Reverse(cell.1)));
        let mut maximal: Option<Cell> = None;
        for cell in all {
            match maximal {
                Some(outer) if cell.0 <= outer.1 => prop_assert!(contains(&outer, &cell)),
                _ => maximal = Some(cell),
            }
        }
    }

    /// Slices cover all keys in order, and their cuts do not depend on the number of slices. A
    /// table that moves overlaps nothing. More slices never make the largest slice larger.
    #[test]
    fn slices_are_a_division_of_the_compaction(
        runs in prop::collection::vec(keys(), 1..4),
        partitioner in prop::sample::select(PARTITIONERS),
        theta in 1u64..30,
    ) {
        let inputs = slice_inputs(&runs, theta);
        let mut last: Option<Slices> = None;
        for width in 1..6 {
            let slices = slice(&inputs, rule(partitioner, theta), width);
            check_slices(&inputs, &slices, width);
            if let Some(last) = last {
                prop_assert_eq!((&last.cuts, &last.moves), (&slices.cuts, &slices.moves));
                let largest = |slices: &Slices| slices.slices.iter().map(|s| s.bytes).max();
                prop_assert!(largest(&slices) <= largest(&last));
            }
            last = Some(slices);
        }
    }
}

/// Tables of a few blocks of a few keys each; one byte per key.
fn slice_inputs(runs: &[Keys], theta: u64) -> Vec<SliceInput> {
    let mut inputs = Vec::new();
    for keys in runs {
        for keys in tables_of(Partitioner::Size, keys, theta) {
            let blocks = keys.chunks(3).map(|block| Block {
                from_key: block[0].as_slice().into(),
                last_key: block[block.len() - 1].as_slice().into(),
                bytes: block.len() as u64,
            });
            let blocks = blocks.collect();
            let table = meta(inputs.len() as u64 + 1, &keys, keys.len() as u64);
            inputs.push(SliceInput { table, blocks });
        }
    }
    inputs
}

fn check_slices(inputs: &[SliceInput], slices: &Slices, width: usize) {
    assert!(slices.slices.len() <= width && slices.cuts.is_sorted());
    let moves = |input: &&SliceInput| slices.moves.contains(&input.table.id);
    let compacted: u64 = inputs.iter().filter(|i| !moves(i)).map(|input| input.table.bytes).sum();
    assert_eq!(slices.slices.iter().map(|slice| slice.bytes).sum::<u64>(), compacted);
    for pair in slices.slices.windows(2) {
        assert!(pair[0].hi.is_some() && pair[0].hi == pair[1].lo, "{slices:?}");
        assert!(slices.cuts.contains(pair[0].hi.as_ref().unwrap()));
    }
    if let (Some(first), Some(last)) = (slices.slices.first(), slices.slices.last()) {
        assert!(first.lo.is_none() && last.hi.is_none());
    }
    for moved in inputs.iter().filter(moves) {
        let Table { min_key, max_key, .. } = &*moved.table;
        let bounds = [min_key.clone(), successor(max_key)];
        assert!(slices.slices.is_empty() || bounds.iter().all(|cut| slices.cuts.contains(cut)));
        let meets = |block: &Block| block.from_key <= *max_key && block.last_key >= *min_key;
        let others = inputs.iter().filter(|other| other.table.id != moved.table.id);
        assert!(!others.flat_map(|other| &other.blocks).any(meets));
    }
}

/// A run of eight tables, and a flushed run over all keys that overlaps two of them.
#[test]
fn a_flush_that_spans_all_keys_lets_what_it_does_not_touch_move() {
    let key = |number: u8| vec![number];
    let block = |from: u8, last: u8, bytes| Block {
        from_key: Box::from([from]),
        last_key: Box::from([last]),
        bytes,
    };
    let mut inputs: Vec<SliceInput> = (0..8u8)
        .map(|at| {
            let (from, last) = (at * 32 + 1, at * 32 + 30);
            let table = meta(at.into(), &[key(from), key(last)], 100);
            SliceInput { table, blocks: vec![block(from, last, 100)] }
        })
        .collect();
    let flushed = meta(100, &[key(0), key(240)], 20);
    let blocks = vec![block(0, 10, 10), block(230, 240, 10)];
    inputs.push(SliceInput { table: flushed, blocks });
    let tables: Vec<Arc<Table>> = inputs.iter().map(|input| Arc::clone(&input.table)).collect();
    let paper = components(&tables);
    assert_eq!((paper.compactions.len(), paper.moves.len()), (1, 0), "the flush joins everything");
    let slices = slice(&inputs, rule(Partitioner::GlobalRange, 100), 4);
    assert_eq!(slices.moves, [1, 2, 3, 4, 5, 6]);
    // Blocks of 10, 100, 10 and 100 bytes.
    let parts: Vec<u64> = slices.slices.iter().map(|slice| slice.bytes).collect();
    assert_eq!((parts.len(), critical_path_permille(&parts)), (4, 454));
    // A table below a quarter of theta is compacted although it overlaps nothing.
    let none = slice(&inputs, rule(Partitioner::GlobalRange, 404), 4);
    assert!(none.moves.is_empty());
}

/// Three components, of one, two and two tables. The last two are the sub-compactions of figure 2.
#[test]
fn by_components_whole_tables_are_parts() {
    let key = |number: u8| vec![number];
    let input = |id: u64, from: u8, last: u8| {
        let (from_key, last_key) = (Box::from([from]), Box::from([last]));
        let table = meta(id, &[key(from), key(last)], 100);
        SliceInput { table, blocks: vec![Block { from_key, last_key, bytes: 100 }] }
    };
    // The table that moves is small: whole tables move whatever their size.
    let inputs = [input(5, 40, 49), input(1, 10, 20), input(2, 15, 25), input(4, 45, 60)];
    let inputs = [&inputs[..], &[input(3, 30, 31)]].concat();
    let rule = rule(Partitioner::Size, 1000);
    let parts = slice_by_components(&inputs, rule);
    assert_eq!(parts.moves, [3]);
    let bounds: Vec<_> = parts.slices.iter().map(|s| (s.lo.clone(), s.hi.clone())).collect();
    let border = Some(Box::from([40u8]));
    assert_eq!(bounds, [(None, border.clone()), (border, None)]);
    assert_eq!(parts.slices.iter().map(|s| s.bytes).collect::<Vec<_>>(), [200, 200]);
    // A moved table is between two cuts.
    let cuts: Vec<&[u8]> = parts.cuts.iter().map(|cut| &**cut).collect();
    assert_eq!(cuts, [&[30][..], &[31, 0], &[40]]);
    // Where tables may overlap, nothing moves and each component is a part.
    let inside = slice_by_components(&inputs, CellRule { may_move: false, ..rule });
    assert!(inside.moves.is_empty());
    assert_eq!(inside.slices.len(), 3);
    assert!(slice_by_components(&[], rule).slices.is_empty());
}

#[test]
fn as_many_slices_as_are_free_and_worth_it() {
    assert_eq!(slice_count(16, 8, 1 << 40, 64 << 20), 8);
    assert_eq!(slice_count(4, 8, 1 << 40, 64 << 20), 4);
    assert_eq!(slice_count(16, 8, 512 << 20, 64 << 20), 2);
    assert_eq!(slice_count(16, 0, 0, 64 << 20), 1);
}

fn rule(partitioner: Partitioner, table_bytes: u64) -> CellRule<'static> {
    CellRule { partitioner, table_bytes, prefixer: None, may_move: true }
}
