//! Reserved disk space for a full disk: a file of zeros, `RESERVE`. It is removed to make room for
//! the manifest that an open writes, and for changes that free space: deletes, and the drop of a
//! keyspace or of tables that range deletes cover. Nothing else may use it, or it would be gone
//! when it is needed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};

use crate::sync::{Mutex, rank};
use runstone_storage::{Category, Result, Storage};

/// Name of the file.
pub const RESERVE: &str = "RESERVE";
/// Room for a small log segment and for `CURRENT`, besides the room for the manifest.
const BYTES: u64 = 128 << 10;
/// The unit in which most file systems allocate space.
const BLOCK_BYTES: u64 = 4096;

/// The reserve of an open store.
#[derive(Debug)]
pub struct Reserve {
    storage: Arc<dyn Storage>,
    /// Held while the file is made or removed.
    is_kept: Mutex<rank::Reserve, bool>,
    manifest_bytes: AtomicU64,
}

impl Reserve {
    /// A reserve that is not kept yet.
    pub fn new(storage: Arc<dyn Storage>) -> Reserve {
        Reserve { storage, is_kept: Mutex::new(false), manifest_bytes: AtomicU64::new(0) }
    }

    /// Sets how large the manifest is, and keeps the reserve.
    pub fn begin(&self, manifest_bytes: u64) {
        self.manifest_bytes.store(manifest_bytes, Relaxed);
        self.keep();
    }

    /// Keeps the reserve, if it is not kept. A disk without room has no reserve; that is no reason
    /// to stop. A storage without a limit has no reserve either.
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

    /// Makes the file, unless an earlier open left it. The file and its length are synced, because
    /// a power loss might otherwise free the space. If there is less space than wanted, the file
    /// uses all that is left: otherwise a flush that does not fit would use it.
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

    /// Gives the space up. Returns `false` if there is none.
    pub fn spend(&self) -> bool {
        let mut is_kept = self.is_kept.lock();
        std::mem::take(&mut *is_kept) && self.storage.remove(RESERVE).is_ok()
    }
}
