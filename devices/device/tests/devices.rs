//! Devices by URL: made, opened again, used through the store's trait, refused.

use runstone::{Durability, Error, Options, Store};
use runstone_device::DeviceUrl;
use runstone_flash::Error as FlashError;
use runstone_flash::nand::FaultPlan;
use runstone_kv::{Direction, Error as KvError, KvStore, KvWrite};

fn url(path: &std::path::Path, scheme: &str, query: &str) -> DeviceUrl {
    let text = format!("{scheme}:{}?{query}", path.display());
    DeviceUrl::parse(&text).expect("a device").expect("sound")
}

const SMALL: &str = "blocks=48&page=2048&block_pages=8&memtable=8&l1=24&ratio=4&l0=2";

#[test]
fn a_kvssd_is_a_store_and_keeps_what_it_holds() {
    let directory = tempfile::tempdir().expect("writable");
    let path = directory.path().join("nand.img");
    assert!(matches!(
        url(&path, "kvssd", SMALL).open_kvssd(false).err(),
        Some(KvError::Store(Error::NotAStore { .. }))
    ));
    for query in [SMALL, "", "policy=nlsm&memtable=8&l1=24&ratio=4&l0=2"] {
        let store = url(&path, "kvssd", query).open_kvssd(true).expect("opens");
        for number in 0..900_u32 {
            let key = format!("key{number:05}");
            store.put(key.as_bytes(), &[7; 50], Durability::Buffered).expect("room");
        }
        let writes = [
            KvWrite::Delete { key: b"key00003" },
            KvWrite::Put { key: b"last", value: query.as_bytes() },
        ];
        store.write(&writes, Durability::Sync).expect("room");
        assert!(store.get(b"key00003").expect("sound").is_none());
        let mut found = Vec::new();
        let from = Some(b"key00500".as_slice());
        store
            .scan(from, Direction::Reverse, &mut |key, _| {
                // The device is free between two stretches of the scan.
                store.get(key).expect("sound");
                found.push(key.to_vec());
                found.len() < 400
            })
            .expect("sound");
        assert_eq!((found.len(), found[399].as_slice()), (400, b"key00101".as_slice()));
        let mut count = 0;
        let mut visit = |_: &[u8], _: &[u8]| {
            count += 1;
            true
        };
        store.scan(None, Direction::Forward, &mut visit).expect("sound");
        assert_eq!(count, 900);
        store.verify().expect("sound");
        assert!(store.metrics().expect("counted").bytes_written > 0);
        let again = url(&path, "kvssd", "").open_kvssd(false).err();
        assert!(matches!(again, Some(KvError::Store(Error::InUse { .. }))), "{again:?}");
    }
    let other = url(&path, "kvssd", "blocks=64").open_kvssd(false).err();
    assert!(other.is_some_and(|error| error.to_string().contains("48 blocks")));
    let block = url(&path, "blockssd", "").open_block(false).err();
    assert!(block.is_some());
}

#[test]
fn the_engine_runs_on_a_block_ssd() {
    let directory = tempfile::tempdir().expect("writable");
    let path = directory.path().join("block.img");
    let open = |may_create| {
        let storage = url(&path, "blockssd", "blocks=64").open_block(may_create).expect("opens");
        Store::open_on(std::sync::Arc::new(storage), Options::default()).expect("opens")
    };
    let store = open(true);
    store.put(b"a", b"1").expect("room");
    store.close().expect("sound");
    let store = open(false);
    assert_eq!(store.get(b"a").expect("sound").as_deref(), Some(b"1".as_slice()));
    drop(store);
    let error = url(&path, "kvssd", "").open_kvssd(false).expect_err("not a KVSSD");
    assert!(error.to_string().contains("block SSD"), "{error}");
}

/// Once, a scan whose visitor panicked held its snapshot until the device was opened again. Deletes
/// newer than the snapshot could not be dropped, so a full device could not be emptied.
#[test]
fn a_scan_that_panics_holds_no_snapshot() {
    let directory = tempfile::tempdir().expect("writable");
    let store = url(&directory.path().join("nand.img"), "kvssd", SMALL);
    let store = store.open_kvssd(true).expect("opens");
    let keys: Vec<String> = (0..1000).map(|number| format!("k{number:05}")).collect();
    for key in &keys {
        store.put(key.as_bytes(), b"value", Durability::Buffered).expect("room");
    }
    store.flush().expect("room");
    let scan = || store.scan(None, Direction::Forward, &mut |_, _| panic!("the visitor's own"));
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(scan)).expect_err("it panics");
    for key in &keys {
        store
            .write(&[KvWrite::Delete { key: key.as_bytes() }], Durability::Buffered)
            .expect("room");
    }
    store.compact().expect("room");
    let verified = store.verify().expect("sound");
    assert_eq!((verified.records, verified.tombstones), (0, 0));
}

/// Once, a device whose last erased block had turned bad reported an unknown failure of a foreign
/// engine. Such a device is full, like a device with too many entries.
#[test]
fn a_device_without_erased_blocks_is_full() {
    let directory = tempfile::tempdir().expect("writable");
    let query = format!("{SMALL}&durability=log");
    let store = url(&directory.path().join("nand.img"), "kvssd", &query);
    let store = store.open_kvssd(true).expect("opens");
    let failing_programs = (0..10_000).collect();
    store.device().nand_mut().set_faults(FaultPlan { failing_programs, ..FaultPlan::default() });
    let put = |number: u32| store.put(&number.to_be_bytes(), &[1; 300], Durability::Buffered);
    let error = (0..1000).find_map(|number| put(number).err()).expect("no block is left");
    assert!(error.to_string().contains("no erased block is left"), "{error}");
    assert!(matches!(error, KvError::Store(Error::NoSpace { .. })), "{error:?}");
    let too_long = runstone_device::explained(FlashError::JournalFull);
    assert!(matches!(too_long, KvError::Store(Error::InvalidArgument { .. })), "{too_long:?}");
}

/// Once, messages named some options by their fields, which no URL has, and reported `th=300` as
/// 255.
#[test]
fn an_option_out_of_range_is_told_as_the_url_has_it() {
    let directory = tempfile::tempdir().expect("writable");
    let path = directory.path().join("nand.img");
    let names = ["th", "op", "memtable", "l1", "ratio", "l0"];
    for (name, value) in names.into_iter().flat_map(|name| [(name, 300_000_000), (name, u32::MAX)])
    {
        let url = format!("kvssd:{}?{name}={value}", path.display());
        let opened = DeviceUrl::parse(&url).expect("a device").and_then(|url| url.open_kvssd(true));
        let error = opened.expect_err("out of range").to_string();
        assert!(error.contains(&format!("option {name}: {value} is not from")), "{error}");
        assert!(!path.exists());
    }
}

/// Once, a command that was killed while it made an image left an image that never opened: it was
/// taken for an image that had been cut short or had lost its checkpoints. Now the next attempt
/// makes the device.
#[test]
fn an_image_that_was_not_finished_is_made_again() {
    let directory = tempfile::tempdir().expect("writable");
    let path = directory.path().join("nand.img");
    std::fs::write(&path, "").expect("writable");
    let refused = url(&path, "kvssd", SMALL).open_kvssd(false).err();
    assert!(matches!(refused, Some(KvError::Store(Error::NotAStore { .. }))), "{refused:?}");
    let unfinished = directory.path().join("nand.img.new");
    std::fs::write(&unfinished, [7; 100_000]).expect("writable");
    let maker = std::fs::File::open(&unfinished).expect("a file");
    maker.lock().expect("nobody has it");
    let refused = url(&path, "kvssd", SMALL).open_kvssd(true).err();
    assert!(matches!(refused, Some(KvError::Store(Error::InUse { .. }))), "{refused:?}");
    assert!(unfinished.exists(), "its maker goes on");
    drop(maker);
    let store = url(&path, "kvssd", SMALL).open_kvssd(true).expect("made");
    store.put(b"a", b"1", Durability::Sync).expect("room");
    drop(store);
    assert!(!unfinished.exists(), "it has its name");
    let store = url(&path, "kvssd", "").open_kvssd(false).expect("there");
    assert!(store.get(b"a").expect("sound").is_some());
    let path = directory.path().join("block.img");
    std::fs::write(&path, "").expect("writable");
    url(&path, "blockssd", "blocks=64").open_block(true).expect("made");
    url(&path, "blockssd", "").open_block(false).expect("there");
}

/// Once, a block SSD too small for its journal, and a KVSSD whose side file could not be opened,
/// left an empty image behind. The next attempt took it for a device that had been cut short, and
/// advised restoring it from a copy. Now a device that cannot be made leaves no image.
#[test]
fn a_device_that_cannot_be_made_leaves_no_image() {
    let directory = tempfile::tempdir().expect("writable");
    let path = directory.path().join("block.img");
    url(&path, "blockssd", "blocks=2").open_block(true).expect_err("too small");
    assert!(!path.exists());
    url(&path, "blockssd", "blocks=64").open_block(true).expect("nothing is in the way");
    let path = directory.path().join("nand.img");
    let side = directory.path().join("nand.img.plp");
    std::fs::create_dir(&side).expect("writable");
    url(&path, "kvssd", SMALL).open_kvssd(true).expect_err("no side file");
    assert!(!path.exists());
    std::fs::remove_dir(&side).expect("writable");
    url(&path, "kvssd", SMALL).open_kvssd(true).expect("nothing is in the way");
}
