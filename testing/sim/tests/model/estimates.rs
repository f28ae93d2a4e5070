//! Estimates of ranges are near what a scan counts.

use std::sync::Arc;

use runstone::storage::MemoryStorage;
use runstone::{Background, KeyspaceOptions, Options, Store};

#[test]
fn estimates_are_near_the_truth() {
    for policy in ["fragmented-leveling", "tiering", "adaptive-tiering"] {
        let mut keyspace = KeyspaceOptions { policy: policy.into(), ..Default::default() };
        keyspace.write_buffer_bytes = 256 << 10;
        keyspace.shape.table_bytes = 64 << 10;
        keyspace.shape.base_bytes = 256 << 10;
        let options = Options {
            background: Background::Manual,
            keyspace: Some(keyspace),
            ..Options::default()
        };
        let store = Store::open_on(Arc::new(MemoryStorage::new()), options).expect("opens");
        let keyspace = store.default_keyspace();
        let key = |number: u64| format!("key{number:06}");
        for number in 0..20_000u64 {
            let number = number * 7919 % 20_000;
            keyspace.put(key(number), vec![number as u8; 50 + (number % 100) as usize]).expect("p");
            store.run_one_job().expect("a job");
        }
        let all = keyspace.estimate::<&str>(..).expect("estimates");
        assert_eq!(all.entries, 20_000, "{policy}");
        for (from, to) in [(0, 10_000), (5_000, 15_000), (18_000, 20_000), (4_000, 7_000)] {
            let found = keyspace.estimate(key(from)..key(to)).expect("estimates");
            let share = (to - from) as f64 / 20_000.0;
            let (entries, bytes) = (20_000.0 * share, all.bytes as f64 * share);
            let is_near = |found: u64, truth: f64| (found as f64 - truth).abs() <= truth / 10.0;
            assert!(is_near(found.entries, entries), "{policy} {from}..{to}: {found:?}");
            assert!(is_near(found.bytes, bytes), "{policy} {from}..{to}: {found:?} of {all:?}");
        }
        assert_eq!(keyspace.estimate("x".."y").expect("estimates"), Default::default());
        assert!(keyspace.estimate("y".."x").is_err());
    }
}
