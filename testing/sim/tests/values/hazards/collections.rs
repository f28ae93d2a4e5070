//! Collections against what happens beside them: puts, deletes, flushes, snapshots, and tables that
//! are older than the value file.

use super::*;

/// Once, a group knew of a deletion, and a later compaction brought the deleted value into the
/// group. A collection between the two forgot the deletion. The next collection trusted the group
/// at that point and brought the value back.
#[test]
fn a_collection_of_an_unsettled_tree_keeps_what_hides_older_values() {
    let inline = tiered(keyspace_options(ValuePlacement::Inline), 2, 10);
    let store = open_with(&Arc::default(), inline);
    write_two_runs(&store);
    let change = |size_ratio| {
        let keyspace = tiered(writing_back(), 50, size_ratio);
        store.open_keyspace("default", Some(keyspace)).expect("changes");
    };
    change(10);
    store.delete(key(3)).expect("deletes");
    store.put(key(4), "small").expect("puts");
    let update_and_collect = || {
        for turn in 1..8 {
            store.put(key(0), value(turn)).expect("puts");
            store.flush().expect("flushes");
        }
        let before = store.metrics().counters.value_collections;
        store.collect_values().expect("collects");
        assert!(store.metrics().counters.value_collections > before);
        assert!(store.get(key(3)).expect("reads").is_none());
        assert_eq!(store.get(key(4)).expect("reads").as_deref(), Some(&b"small"[..]));
    };
    update_and_collect();
    change(2);
    run_jobs(&store);
    assert_eq!(runs(&store)[1..], [0, 1], "the old values came along, the deletion did not");
    update_and_collect();
    store.compact().expect("compacts");
    update_and_collect();
}

/// Once, a compaction brought an old version into a group that already had a newer one, so the old
/// version was stored after the newer. When a deletion dropped both, only the newer was known to be
/// dead. A collection that rewrote the newer version's segment alone left the older one as garbage
/// for ever.
#[test]
fn a_version_behind_a_newer_one_is_collected_as_well() {
    let store = open_with(&Arc::default(), tiered(keyspace_options(ValuePlacement::Inline), 2, 10));
    write_two_runs(&store);
    let change = |size_ratio| {
        let groups = keyspace_options(ValuePlacement::HashGrouped);
        store.open_keyspace("default", Some(tiered(groups, 50, size_ratio))).expect("changes");
    };
    let put = |keys: &[u64]| {
        keys.iter().for_each(|k| store.put(key(*k), value(1)).expect("puts"));
        store.flush().expect("flushes");
    };
    let delete = |keys: &mut dyn Iterator<Item = u64>| {
        keys.for_each(|k| store.delete(key(k)).expect("deletes"));
        let keyspace = store.default_keyspace();
        keyspace.compact().expect("compacts and collects");
        let [usage] = &keyspace.value_usage()[..] else { panic!("one file") };
        usage.bytes()
    };
    change(10);
    // The newer version of key 9 is written first; three records fill a slot.
    put(&[9, 100, 101]);
    change(2);
    run_jobs(&store);
    put(&[200, 201]);
    put(&[0, 1, 2]);
    let bytes = delete(&mut [9, 100, 101].into_iter());
    assert!(bytes < 15_000, "{bytes}: collected");
    assert_eq!(delete(&mut (0..300)), 0);
}
