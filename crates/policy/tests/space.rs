//! Tests how well the space bound estimates the live bytes, on random sets of keys.
//! `testdata/space.txt` has its decisions, and `registry.rs` tests that they end.

use std::collections::BTreeSet;
use std::sync::Arc;

use runstone_policy::shape::{Edit, Placement, RunSlot, Shape, Table};
use runstone_policy::sketch::Sketch;
use runstone_policy::space::live_bytes;

use runstone_random::mix64;

const ENTRY_BYTES: u64 = 100;

/// The numbers of splitmix64 from 0 on; the bounds below are measured with these.
fn drawn(number: u64) -> u64 {
    mix64(number.wrapping_sub(1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// A run of tables of `per_table` keys each; its hashes depend on the seed.
fn run(shape: &Shape, keys: &BTreeSet<u64>, per_table: usize, seed: u64) -> Shape {
    let first_id = 1 + shape.tables().map(|(_, table)| table.id).max().unwrap_or(0);
    let keys: Vec<u64> = keys.iter().copied().collect();
    let table = |(id, keys): (u64, &[u64])| {
        let mut sketch = Sketch::of_nothing();
        keys.iter().for_each(|key| sketch.add(drawn(key ^ drawn(seed + 1))));
        Arc::new(Table {
            id,
            min_key: Box::new(keys[0].to_be_bytes()),
            max_key: Box::new(keys[keys.len() - 1].to_be_bytes()),
            bytes: keys.len() as u64 * ENTRY_BYTES,
            entries: keys.len() as u64,
            min_seq: id,
            max_seq: id,
            sketch,
            ..Table::default()
        })
    };
    let tables: Vec<_> = (first_id..).zip(keys.chunks(per_table)).map(table).collect();
    with_run(shape, first_id, tables)
}

fn with_run(shape: &Shape, id: u64, tables: Vec<Arc<Table>>) -> Shape {
    let place = |table| Placement { level: 1, slot: RunSlot::New(id), table };
    let place = tables.into_iter().map(place).collect();
    shape.apply(&Edit { place, ..Edit::default() }).unwrap()
}

/// The sketches of a run and of the tree err alike: the estimate neither reports garbage where
/// there is none, nor misses any in a run that others only overwrite.
#[test]
fn a_run_and_what_only_writes_it_over_are_known_exactly() {
    for seed in 0..200 {
        let keys: BTreeSet<u64> = (0..5_000).collect();
        let mut shape = run(&Shape::default(), &keys, 300, seed);
        assert_eq!(live_bytes(&shape), Some(500_000));
        shape = run(&shape, &keys, 5_000, seed);
        assert_eq!(live_bytes(&shape), Some(500_000));
        let over: BTreeSet<u64> = keys.iter().copied().filter(|key| key % 3 == 0).collect();
        shape = run(&shape, &over, 300, seed);
        let live = live_bytes(&shape).unwrap();
        // A sketch of the overwritten third errs by 6.5%, which is a quarter of the sum, so the
        // estimate errs by 1.6%.
        assert!(live.abs_diff(500_000) < 25_000, "seed {seed}: {live}");
    }
}

/// Two to six runs, each of up to 3,000 keys of 4,000. The ratio of the tree's keys to the sum of
/// the runs' keys, all by sketches, errs less than the ratio to the count of entries.
#[test]
fn what_is_live_in_random_trees_is_known_to_a_few_percent() {
    let (mut square_error, mut square_of_count, mut largest) = (0, 0, 0);
    let rounds = 400;
    for seed in 0..rounds {
        let draw = |number: u64, below: u64| drawn(seed * 1_000_003 + number) % below;
        let (mut shape, mut all, mut union) =
            (Shape::default(), BTreeSet::new(), Sketch::of_nothing());
        for number in 0..2 + draw(1, 5) {
            let count = 1 + draw(2 + number, 3_000);
            let keys: BTreeSet<u64> =
                (0..count).map(|at| draw(1_000 * (number + 1) + at, 4_000)).collect();
            shape = run(&shape, &keys, 1 + draw(9 + number, 900) as usize, seed);
            all.extend(keys);
        }
        shape.tables().for_each(|(_, table)| union.merge(&table.sketch));
        let permille =
            |keys: u64| (keys * 1000).abs_diff(all.len() as u64 * 1000) / all.len() as u64;
        let error = permille(live_bytes(&shape).unwrap() / ENTRY_BYTES);
        square_error += error * error;
        square_of_count += permille(union.estimate().unwrap()).pow(2);
        largest = largest.max(error);
    }
    let (error, of_count) = ((square_error / rounds).isqrt(), (square_of_count / rounds).isqrt());
    println!("{error} of 1000, at most {largest}; by the count of entries {of_count}");
    assert!(error < 50 && largest < 200 && error < of_count, "{error} {largest} {of_count}");
}

/// Tables of an older release have no sketch.
#[test]
fn one_table_of_unknown_keys_is_enough_not_to_know() {
    let keys: BTreeSet<u64> = (0..100).collect();
    let shape = run(&Shape::default(), &keys, 100, 0);
    let (_, known) = shape.tables().next().unwrap();
    let old = Arc::new(Table { id: 9, sketch: Sketch::default(), ..Table::clone(known) });
    let shape = with_run(&shape, 9, vec![old]);
    assert_eq!(live_bytes(&shape), None);
    assert_eq!(live_bytes(&Shape::default()), Some(0));
}
