//! The suite that every storage passes, on a disk without faults.

#[macro_use]
#[path = "../../../crates/storage/tests/checks/mod.rs"]
mod checks;

use std::path::Path;

use checks::{names, put};
use runstone_fault_storage::SimStorage;
use runstone_storage::Storage;

fn each(check: impl Fn(&dyn Storage, &Path)) {
    check(&SimStorage::new(1), Path::new("sibling"));
}

tests_of_checks!(each);

#[test]
fn siblings_can_be_opened_again() {
    let sim = SimStorage::new(1);
    put(&*sim.create_sibling(Path::new("x/y")).unwrap(), "a", b"1");
    assert_eq!(names(&sim.open_sibling(Path::new("x/y")).unwrap()), ["a"]);
    assert!(sim.open_sibling(Path::new("x")).is_none());
}
