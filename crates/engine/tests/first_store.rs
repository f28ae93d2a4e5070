//! The first store of a process, whose number is 0. This test needs its own process. Once, the
//! background threads never looked at the first store unless somebody called it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use runstone::{Options, Store};
use runstone_fault_storage::{Fault, FaultKind, SimStorage};
use runstone_storage::Category;

#[test]
fn the_first_store_of_a_process_goes_on_by_itself_when_there_is_space() {
    let storage = SimStorage::new(1);
    let store = Store::open_on(Arc::new(storage.clone()), Options::default()).expect("a store");
    store.put("k", "v").expect("a put");
    let (kind, category) = (FaultKind::NoSpace, Some(Category::Table));
    storage.inject(Fault { at_op: storage.ops(), kind, sticky: true, category });
    let full = store.flush().expect_err("there is no space");
    assert!(full.is_no_space(), "{full}");
    storage.clear_faults();
    let end = Instant::now() + Duration::from_secs(60);
    while store.metrics().counters.flushes == 0 {
        assert!(Instant::now() < end, "the flush is tried again");
        std::thread::sleep(Duration::from_millis(10));
    }
}
