//! Which keys are big and which are hot, compared with the known content of a store.

use std::sync::Arc;

use runstone::storage::{Category, MemoryStorage, Storage};
use runstone::unstable;
use runstone::{
    Background, Batch, KeySurvey, Keyspace, KeyspaceOptions, Options, Store, SurveyedKey,
    ValueOptions, ValuePlacement, WriteOptions,
};
use runstone_random::Random;

fn options(table_bytes: u64, values: Option<ValuePlacement>) -> Options {
    let mut keyspace = KeyspaceOptions::default();
    keyspace.write_buffer_bytes = 1 << 20;
    unstable::numbers_mut(&mut keyspace).table_bytes = table_bytes;
    if let Some(placement) = values {
        let mut values = ValueOptions::default();
        (values.placement, values.separate_at) = (placement, 512);
        (values.slot_bytes, values.groups) = (64 << 10, 8);
        keyspace.values = values;
    }
    Options::default()
        .memory_budget_bytes(8 << 20)
        .wal_segment_bytes(256 << 10)
        .keyspace(keyspace)
        .background(Background::Manual)
}

/// Puts entries in a random order with a fixed seed, so that tables overlap.
fn fill(store: &Store, mut keys: Vec<(String, usize)>) {
    let mut random = Random::new(7);
    for at in (1..keys.len()).rev() {
        keys.swap(at, random.below(at as u64 + 1) as usize);
    }
    let keyspace = store.default_keyspace();
    for part in keys.chunks(100) {
        let mut batch = Batch::new();
        for (key, bytes) in part {
            let value: Vec<u8> = (0..*bytes).map(|_| random.draw() as u8).collect();
            batch.put(keyspace, key, &value).expect("a put");
        }
        store.write(&batch, WriteOptions::default()).expect("a write");
        while store.run_one_job().expect("a job") {}
    }
    store.flush().expect("a flush");
    while store.run_one_job().expect("a job") {}
}

/// Opens the store again, so that no table is open and no block is in memory.
fn cold(storage: &Arc<dyn Storage>) -> Store {
    Store::open_on(Arc::clone(storage), Options::default().read_only(true)).expect("an open")
}

fn reads(storage: &Arc<dyn Storage>) -> u64 {
    let of = |category| storage.counters().snapshot(category).reads;
    of(Category::Table) + of(Category::Value)
}

/// The share of a prefix in a survey, in thousandths of the total.
fn permille(survey: &KeySurvey, prefix: &[u8]) -> u64 {
    let under = survey.prefixes.iter().filter(|one| one.prefix.starts_with(prefix));
    under.map(|one| one.bytes).sum::<u64>() * 1000 / survey.bytes
}

fn surveyed(storage: &Arc<dyn Storage>, keyspace: &Keyspace, limit: usize) -> KeySurvey {
    let before = reads(storage);
    let survey = keyspace.survey(limit).expect("a survey");
    let took = reads(storage) - before;
    assert!(took <= survey.reads && survey.reads <= 400, "{took} of at most {}", survey.reads);
    survey
}

/// A store of thousands of blocks in hundreds of tables. Three tenths of the bytes are under one
/// prefix, and six tenths under another.
#[test]
fn a_survey_of_a_large_store_takes_few_reads() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    for table_bytes in [64 << 10, 4 << 20] {
        let store = Store::open_on(Arc::clone(&storage), options(table_bytes, None)).expect("open");
        let (mut keys, mut made) = (Vec::new(), 0);
        for number in 0..60_000 {
            keys.push((format!("log/{number:08}"), 300));
            if number % 2 == 0 {
                keys.push((format!("user/{number:08}"), 300));
            }
            if number % 6 == 0 {
                keys.push((format!("x/{number:08}"), 300));
            }
            made += 300;
        }
        fill(&store, keys);
        let tables = store.metrics().keyspaces[0].tables;
        store.close().expect("a close");
        let store = cold(&storage);
        for _ in 0..10 {
            let survey = surveyed(&storage, store.default_keyspace(), 1000);
            let all = store.default_keyspace().estimate(..).expect("an estimate");
            assert_eq!(survey.entries, all.entries);
            assert!(survey.looked_at < survey.entries / 10, "{}", survey.looked_at);
            assert!(survey.bytes.abs_diff(all.bytes) < all.bytes / 20, "{survey:?} of {all:?}");
            assert!(survey.bytes > made, "{survey:?}");
            for (prefix, share) in [(&b"log/"[..], 600), (b"user/", 300), (b"x/", 100)] {
                let found = permille(&survey, prefix);
                assert!(found.abs_diff(share) < 60, "{prefix:?}: {found} of {share}, {tables}");
            }
        }
        let drawn = store.default_keyspace().survey(400).expect("a survey").sample;
        assert!(drawn.len().abs_diff(400) <= 1 && drawn.is_sorted_by_key(|one| one.key.clone()));
        let logs = drawn.iter().filter(|one| one.key.starts_with(b"log/")).count();
        assert!(logs.abs_diff(240) < 24, "{logs} of 400");
        assert!(drawn.iter().all(|one| one.bytes >= 300 && !one.is_separated && !one.is_delete));
        store.close().expect("a close");
        for file in storage.list().expect("a list") {
            storage.remove(&file.name).expect("removed");
        }
    }
}

/// One inline value among thousands makes a block that stands out in the index.
#[test]
fn a_large_value_is_found_wherever_it_lies() {
    let placements = [None, Some(ValuePlacement::Vlog), Some(ValuePlacement::HashGrouped)];
    for placement in placements {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let store =
            Store::open_on(Arc::clone(&storage), options(256 << 10, placement)).expect("open");
        let mut keys: Vec<(String, usize)> =
            (0..20_000).map(|number| (format!("key{number:06}"), 100)).collect();
        keys.push(("key012345large".into(), 300_000));
        // A small value replaces this one below, and a delete hides key000999.
        keys.push(("key000777".into(), 200_000));
        fill(&store, keys);
        let keyspace = store.default_keyspace();
        keyspace.put("key000777", "small").expect("a put");
        keyspace.put("key000999", vec![7; 150_000]).expect("a put");
        store.flush().expect("a flush");
        keyspace.delete("key000999").expect("a delete");
        if placement.is_none() {
            store.compact().expect("compacted");
            keyspace.delete("key000999").expect("a delete");
        }
        // Places are drawn at random, and a block that is read also shows replaced values. A
        // segment of separated values does not, so most surveys show only the live large value.
        let mut others = Vec::new();
        for _ in 0..30 {
            let survey = surveyed(&storage, keyspace, 3);
            let largest = &survey.largest[0];
            assert_eq!(largest.key, b"key012345large", "{placement:?}: {survey:?}");
            assert_eq!((largest.bytes, largest.is_separated), (300_014, placement.is_some()));
            others.push(survey.largest[1].clone());
        }
        let replaced = |one: &SurveyedKey| one.key == b"key000777" || one.key == b"key000999";
        assert!(others.iter().all(|one| one.bytes < 1000 || replaced(one)), "{others:?}");
        assert!(others.iter().any(|one| one.bytes < 1000), "{placement:?}: {others:?}");
    }
}
