//! Space on disk that is kept for when there is none: a file of zeros, `RESERVE`, which is given up
//! for the manifest that an open writes, and for writes that lead to space again: the drop of a
//! keyspace, and deletes. Nothing else may take it, or it would be gone when it is needed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};

use parking_lot::Mutex;
use runstone_storage::{Category, Result, Storage};

/// Name of the file.
pub const RESERVE: &str = "RESERVE";
/// Room for a small log segment and for `CURRENT`, beside that for the manifest.
const BYTES: u64 = 128 << 10;
/// What file systems give space in, on most machines.
const BLOCK_BYTES: u64 = 4096;

/// The reserve of an open store.
#[derive(Debug)]
pub struct Reserve {
    storage: Arc<dyn Storage>,
    /// Held while the file is made or removed.
    is_kept: Mutex<bool>,
    manifest_bytes: AtomicU64,
}

impl Reserve {
    /// Not kept yet.
    pub fn new(storage: Arc<dyn Storage>) -> Reserve {
        Reserve { storage, is_kept: Mutex::new(false), manifest_bytes: AtomicU64::new(0) }
    }

    /// Sets how large the manifest is, and keeps the reserve.
    pub fn begin(&self, manifest_bytes: u64) {
        self.manifest_bytes.store(manifest_bytes, Relaxed);
        self.keep();
    }

    /// Keeps the reserve, if it is not kept. A disk without room for it has none, and is no reason
    /// to stop. Nor has a storage that knows no limit.
    pub fn keep(&self) {
        let mut is_kept = self.is_kept.lock();
        if *is_kept {
            return;
        }
        let Some(free) = self.storage.free_bytes() else { return };
        *is_kept = self.make(free / BLOCK_BYTES * BLOCK_BYTES).is_ok();
        if !*is_kept {
            let _ = self.storage.remove(RESERVE);
        }
    }

    /// Makes the file, unless it is there from an earlier open. It is synced, with its length, or a
    /// power loss might take the space back. Where there is less than wanted, it takes all that is
    /// left, before a flush does that does not fit.
    fn make(&self, free: u64) -> Result<()> {
        let wanted = BYTES + self.manifest_bytes.load(Relaxed) * 2;
        let made = self.storage.create(RESERVE, Category::Other);
        let file = made.or_else(|_| self.storage.open(RESERVE, Category::Other))?;
        if file.len()? >= wanted {
            return Ok(());
        }
        let bytes = match file.allocate(0, wanted) {
            Err(error) if error.is_no_space() && free > 0 => {
                file.allocate(0, free)?;
                free
            }
            allocated => allocated.map(|()| wanted)?,
        };
        file.set_len(bytes)?;
        file.sync()
    }

    /// Gives the space up; `false` if there is none.
    pub fn spend(&self) -> bool {
        let mut is_kept = self.is_kept.lock();
        std::mem::take(&mut *is_kept) && self.storage.remove(RESERVE).is_ok()
    }
}
