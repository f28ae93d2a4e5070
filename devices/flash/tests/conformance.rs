//! The suite that every storage passes, on a block SSD in memory and in a file.

#[macro_use]
#[path = "../../../crates/storage/tests/checks/mod.rs"]
mod checks;

use std::path::Path;

use checks::{names, put};
use runstone_flash::block::{BlockOptions, BlockStorage};
use runstone_flash::nand::{FileImage, Geometry, MemoryImage};
use runstone_storage::Storage;

const GEOMETRY: Geometry = Geometry {
    page_bytes: 32 << 10,
    spare_bytes: 128,
    block_pages: 16,
    block_count: 64,
    channel_count: 2,
    die_count: 1,
};

fn each(check: impl Fn(&dyn Storage, &Path)) {
    for queue_depth in [1, 8] {
        let options = BlockOptions { queue_depth, ..BlockOptions::default() };
        let image = Box::new(MemoryImage::new());
        let memory = BlockStorage::create(image, GEOMETRY, options).unwrap();
        check(&memory, Path::new("sibling"));
        memory.layers();
    }
    let root = tempfile::tempdir().unwrap();
    let image = Box::new(FileImage::create(&root.path().join("nand.img")).unwrap());
    let file = BlockStorage::create(image, GEOMETRY, BlockOptions::default()).unwrap();
    check(&file, Path::new("a/sibling"));
    file.layers();
}

tests_of_checks!(each);

#[test]
fn siblings_can_be_opened_again() {
    let image = Box::new(MemoryImage::new());
    let storage = BlockStorage::create(image, GEOMETRY, BlockOptions::default()).unwrap();
    put(&*storage.create_sibling(Path::new("x/y")).unwrap(), "a", b"1");
    assert_eq!(names(&storage.open_sibling(Path::new("x/y"))), ["a"]);
    assert!(names(&storage).is_empty());
}
