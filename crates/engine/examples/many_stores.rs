//! A store for each customer, a hundred of them in one process: they share one memory budget, two
//! threads and one limit on open files, so that a hundred stores need no more than a few do.

use std::sync::Arc;

use runstone::storage::MemoryStorage;
use runstone::{Resources, Result, Store};

const STORES: usize = 100;
const BUDGET_BYTES: u64 = 64 << 20;

pub(crate) fn main() -> Result<()> {
    let shared = Resources::builder()
        .memory_budget(BUDGET_BYTES)
        .threads(2)
        .max_open_files(50)
        .background_bytes_per_second(100 << 20)
        .build()?;

    // In memory for speed; a path to `Store::builder` does the same on disk.
    let storages = [(); STORES].map(|()| Arc::new(MemoryStorage::new()));
    let open =
        |storage: &Arc<MemoryStorage>| Store::builder_on(storage.clone()).resources(&shared).open();
    let mut stores = storages.iter().map(open).collect::<Result<Vec<_>>>()?;
    for (customer, store) in stores.iter().enumerate() {
        store.put("name", format!("customer {customer}"))?;
    }
    assert_eq!(shared.stores(), STORES as u64);
    let memory = shared.memory();
    println!("{STORES} stores take {} KiB of memtables and log", memory.memtable_bytes >> 10);
    assert!(memory.memtable_bytes < BUDGET_BYTES);

    // One store is closed while the others continue. It is then opened again beside them.
    stores.remove(0).close()?;
    assert_eq!(shared.stores(), STORES as u64 - 1);
    assert_eq!(stores[98].get("name")?.as_deref(), Some(&b"customer 99"[..]));
    let first = open(&storages[0])?;
    assert_eq!(first.get("name")?.as_deref(), Some(&b"customer 0"[..]));
    println!("the first was closed and opened again, beside the others");

    // The threads end with the last store. Here, dropping the last handle of a store closes it.
    drop((first, stores));
    assert_eq!(shared.stores(), 0);
    Ok(())
}
