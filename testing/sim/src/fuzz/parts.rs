//! Cuts an input into the byte strings that a target needs. Also writes varints, and makes a
//! storage with one file.
//!
//! ```text
//! parts  (mark << 15 | length u16 | length bytes)*; the last one may be cut short
//! ```

use std::sync::Arc;

use runstone::storage::{Category, MemoryStorage, Storage, StorageFile};

/// A byte string of an input, and whether it carries the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    pub is_marked: bool,
    pub bytes: &'a [u8],
}

/// All parts of an input.
pub fn parts(mut bytes: &[u8]) -> Vec<Part<'_>> {
    let mut found = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<2>() {
        let head = u16::from_le_bytes(*head);
        let (part, behind) = rest.split_at(usize::from(head & 0x7fff).min(rest.len()));
        found.push(Part { is_marked: head >> 15 == 1, bytes: part });
        bytes = behind;
    }
    found
}

/// Appends a part; it is cut if it is longer than a part can be.
pub fn put_part(out: &mut Vec<u8>, is_marked: bool, bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(0x7fff)];
    let head = bytes.len() as u16 | u16::from(is_marked) << 15;
    out.extend_from_slice(&head.to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Appends a varint.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A new file with this content.
pub fn put_file(
    storage: &MemoryStorage,
    name: &str,
    category: Category,
    bytes: &[u8],
) -> Arc<dyn StorageFile> {
    let file = storage.create(name, category).expect("a new name");
    file.write_at(0, bytes).expect("memory");
    file
}

/// The content of a file.
pub fn get_file(storage: &dyn Storage, name: &str) -> Vec<u8> {
    let file = storage.open(name, Category::Other).expect("listed");
    let mut bytes = vec![0; file.len().expect("memory") as usize];
    file.read_at(0, &mut bytes).expect("whole");
    bytes
}
