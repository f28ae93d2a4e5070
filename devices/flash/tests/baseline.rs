//! The models of delayed and lightweight compaction: maps first, counts second.

use std::collections::BTreeMap;

use runstone_flash::baseline::{DelayedTree, LightTree, Model, ModelCounts, ModelSizes};

const SIZES: ModelSizes = ModelSizes {
    page_records: 4,
    table_pages: 64,
    level1_pages: 160,
    size_ratio: 10,
    l0_trigger: 4,
};

const WRITES: u64 = 120_000;
const KEYS: u64 = 40_000;

/// Writes and reads keys in random order; every read must give the newest version.
fn run(mut step: impl FnMut(u64, bool) -> Option<u64>) {
    let (mut newest, mut mixed) = (BTreeMap::new(), 7_u64);
    for write in 0..WRITES {
        mixed = mixed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let key = ((mixed >> 20) % KEYS).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        step(key, true);
        newest.insert(key, write);
        let other = ((mixed >> 33) % (KEYS + 100)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        assert_eq!(step(other, false), newest.get(&other).copied(), "after {write}");
    }
}

fn delayed(most_tables: usize) -> ModelCounts {
    let mut tree = DelayedTree::new(SIZES, most_tables);
    run(|key, is_put| match is_put {
        true => {
            tree.put(key);
            None
        }
        false => tree.get(key),
    });
    tree.counts()
}

fn light() -> ModelCounts {
    let mut tree = LightTree::new(SIZES);
    run(|key, is_put| match is_put {
        true => {
            tree.put(key);
            None
        }
        false => tree.get(key),
    });
    tree.counts()
}

#[test]
fn models_are_maps_and_trade_writes_for_reads_and_space() {
    let (plain, delayed, light) = (delayed(0), delayed(20), light());
    for counts in [plain, delayed, light] {
        assert_eq!((counts.puts, counts.gets), (WRITES, WRITES));
    }
    assert!(delayed.written_pages < plain.written_pages, "{delayed:?} {plain:?}");
    assert!(light.written_pages < plain.written_pages, "{light:?} {plain:?}");
    assert!(delayed.get_pages > plain.get_pages, "{delayed:?} {plain:?}");
    assert!(light.get_pages > plain.get_pages, "{light:?} {plain:?}");
    assert!(light.most_reserved_pages > plain.most_reserved_pages, "{light:?} {plain:?}");
}
