//! Copies a file between two storages through the traits, as `link_into` does where it cannot make
//! a link. Independent of both implementations.

use crate::{Category, Result, Storage, StorageFile};

const COPY_CHUNK_BYTES: u64 = 1 << 20;

/// Copies `name` into `target` under the same name and syncs it. As for any new name, the name is
/// durable only after the target's `sync_dir`. A partial copy is removed.
pub fn copy_into(
    source: &dyn Storage,
    name: &str,
    category: Category,
    target: &dyn Storage,
) -> Result<()> {
    let from = source.open(name, category)?;
    let to = target.create(name, category)?;
    let copied = copy_bytes(&*from, &*to);
    if copied.is_err() {
        // The first error is reported. If the removal fails too, the orphan is reclaimed later.
        let _ = target.remove(name);
    }
    copied
}

fn copy_bytes(from: &dyn StorageFile, to: &dyn StorageFile) -> Result<()> {
    let len_bytes = from.len()?;
    let mut chunk = vec![0; COPY_CHUNK_BYTES.min(len_bytes) as usize];
    let mut offset = 0;
    while offset < len_bytes {
        let step = COPY_CHUNK_BYTES.min(len_bytes - offset);
        let piece = &mut chunk[..step as usize];
        from.read_at(offset, piece)?;
        to.write_at(offset, piece)?;
        offset += step;
    }
    to.sync()
}
