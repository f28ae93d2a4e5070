//! Under any policy, the layers of the unchanged engine on a block SSD account for every page that
//! the flash programmed.

use std::sync::Arc;

use runstone::policy::Policy;
use runstone::unstable;
use runstone::{Background, KeyspaceOptions, Options, Store, WalMode};
use runstone_flash::block::{BlockOptions, BlockStorage};
use runstone_flash::ftl::{FtlOptions, GcFrontier, HOST_BLOCK_BYTES};
use runstone_flash::nand::{Geometry, MemoryImage};
use runstone_policy::registry;

/// 40 MiB of blocks, so that files fill the device several times.
const GEOMETRY: Geometry = Geometry {
    page_bytes: 16 << 10,
    spare_bytes: 64,
    block_pages: 32,
    block_count: 80,
    channel_count: 1,
    die_count: 1,
};

fn storage(gc_frontier: GcFrontier) -> BlockStorage {
    let ftl = FtlOptions { over_provision_percent: 3, gc_frontier, is_trim_on: false };
    let options = BlockOptions { ftl, syncs_image: false, ..BlockOptions::default() };
    BlockStorage::create(Box::new(MemoryImage::new()), GEOMETRY, options).unwrap()
}

fn store(storage: &BlockStorage, policy: &str) -> Store {
    let mut keyspace = KeyspaceOptions::default().policy(Policy::named(policy));
    let shape = unstable::numbers_mut(&mut keyspace);
    shape.table_bytes = 256 << 10;
    shape.base_bytes = 1 << 20;
    let options = Options::default()
        .background(Background::Manual)
        .seed(1)
        .wal_mode(WalMode::Write)
        .keyspace(keyspace);
    Store::open_on(Arc::new(storage.clone()), options).unwrap()
}

#[test]
fn layers_multiply_to_what_the_flash_programmed_for_every_policy() {
    let mut most_collected = 0;
    for (at, policy) in registry::POLICIES.iter().enumerate() {
        let frontier = if at % 2 == 0 { GcFrontier::Split } else { GcFrontier::Shared };
        let storage = storage(frontier);
        let store = store(&storage, policy.name());
        let mut mixed = 1_u64;
        for write in 0..80_000_u64 {
            mixed = mixed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(write);
            let key = (mixed % 13_000).to_be_bytes();
            store.put(key, [mixed.to_le_bytes(); 40].concat()).unwrap();
            if write % 1000 == 999 {
                store.flush().unwrap();
                while store.run_one_job().unwrap() {}
            }
        }
        let user_bytes = store.metrics().counters.user_bytes_written;
        store.close().unwrap();
        let layers = storage.layers();
        let device = layers.device;
        let host_bytes = layers.blocks.total() * u64::from(HOST_BLOCK_BYTES);
        let programs = storage.with_nand(|nand| nand.counters().total().programs);
        assert_eq!(host_bytes, device.host_bytes, "{}", policy.name());
        assert_eq!(programs * u64::from(GEOMETRY.page_bytes), device.flash_bytes);
        let ratio = |over: u64, under: u64| over as f64 / under as f64;
        let product = ratio(host_bytes, user_bytes)
            * ratio(device.page_bytes, host_bytes)
            * ratio(device.flash_bytes, device.page_bytes);
        let measured = ratio(programs * u64::from(GEOMETRY.page_bytes), user_bytes);
        assert!((product / measured - 1.0).abs() < 1e-9, "{}", policy.name());
        assert!(device.rmw_milli() > 1000, "{}: {device}", policy.name());
        most_collected = most_collected.max(device.gc_milli());
    }
    assert!(most_collected > 1000, "no policy met a collection that moved pages");
}
