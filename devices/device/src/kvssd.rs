//! A KVSSD as a key-value store. One lock guards it: the device does one operation at a time, in
//! simulated time too.

use parking_lot::{Mutex, MutexGuard};
use runstone::storage::{Error as StorageError, Full, Operation};
use runstone::{Durability, Value};
use runstone_flash::Error as FlashError;
use runstone_flash::kvssd::{self, Cause, KvSsd, Write};
use runstone_kv::{Direction, KvMetrics, KvStore, KvWrite, Visit};
use runstone_kv::{Error, Result};

/// The number of entries in the first stretch of a scan, and the most in any stretch. Each stretch
/// has twice as many as the one before. Other callers get their turn between two stretches. Each
/// separated value costs a page read, so a scan that ends early should not have read many values
/// ahead.
const FIRST_SCAN_ENTRIES: usize = 16;
const SCAN_ENTRIES: usize = 256;

/// A store on a KVSSD. Dropping it syncs the writes that the log still holds back.
#[derive(Debug)]
pub struct KvSsdStore {
    device: Mutex<KvSsd>,
    place: String,
}

impl Drop for KvSsdStore {
    /// Shuts down cleanly. Nobody is left to whom an error could be reported.
    fn drop(&mut self) {
        let _ = self.device.get_mut().sync();
    }
}

impl KvSsdStore {
    /// Turns an open device into a store. `place` is its name in messages.
    pub fn new(device: KvSsd, place: String) -> KvSsdStore {
        KvSsdStore { device: Mutex::new(device), place }
    }

    /// Path of the image.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Whether the device would accept a write, given enough room.
    pub fn check(&self, write: KvWrite<'_>) -> Result<()> {
        self.run(|device| device.check_size(&as_write(&write)))
    }

    /// The device itself: its tables, blocks and counters.
    pub fn device(&self) -> MutexGuard<'_, KvSsd> {
        self.device.lock()
    }

    fn run<T>(&self, step: impl FnOnce(&mut KvSsd) -> runstone_flash::Result<T>) -> Result<T> {
        step(&mut self.device.lock()).map_err(|error| explain(&self.place, error))
    }

    /// Makes all earlier writes durable. Dropping the store does the same, but ignores an error.
    ///
    /// # Errors
    /// Those of [`KvSsd::sync`].
    pub fn sync(&self) -> Result<()> {
        self.run(KvSsd::sync)
    }

    /// Reads everything and checks it.
    pub fn verify(&self) -> Result<kvssd::Verified> {
        self.run(KvSsd::verify)
    }

    fn scan_from(
        &self,
        from: Option<&[u8]>,
        direction: kvssd::Direction,
        snapshot: u64,
        count: usize,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut entries = Vec::with_capacity(count);
        self.run(|device| {
            device.scan(from, direction, snapshot, &mut |key, value| {
                entries.push((key.to_vec(), value.to_vec()));
                entries.len() < count
            })
        })?;
        Ok(entries)
    }

    fn scan_at(
        &self,
        from: Option<&[u8]>,
        direction: Direction,
        snapshot: u64,
        visit: &mut Visit<'_>,
    ) -> Result<()> {
        let way = match direction {
            Direction::Forward => kvssd::Direction::Forward,
            Direction::Reverse => kvssd::Direction::Reverse,
        };
        let mut from = from.map(<[u8]>::to_vec);
        let mut seen: Option<Vec<u8>> = None;
        let mut count = FIRST_SCAN_ENTRIES;
        loop {
            let entries = self.scan_from(from.as_deref(), way, snapshot, count)?;
            let is_last = entries.len() < count;
            count = (2 * count).min(SCAN_ENTRIES);
            for (key, value) in &entries {
                // A stretch begins with the last key of the stretch before.
                if seen.as_ref() != Some(key) && !visit(key, value) {
                    return Ok(());
                }
            }
            seen = entries.into_iter().next_back().map(|(key, _)| key);
            if is_last {
                return Ok(());
            }
            from.clone_from(&seen);
        }
    }
}

/// A snapshot that is released on drop, even if a visitor panicked. Nobody else could release it,
/// and deletes newer than a held snapshot are never dropped.
struct HeldSnapshot<'a> {
    store: &'a KvSsdStore,
    snapshot: u64,
}

impl<'a> HeldSnapshot<'a> {
    fn new(store: &'a KvSsdStore) -> HeldSnapshot<'a> {
        let snapshot = store.device.lock().snapshot();
        HeldSnapshot { store, snapshot }
    }
}

impl Drop for HeldSnapshot<'_> {
    fn drop(&mut self) {
        self.store.device.lock().release(self.snapshot);
    }
}

impl KvStore for KvSsdStore {
    fn name(&self) -> String {
        format!("kvssd-{}", self.device.lock().options().name())
    }

    fn write(&self, writes: &[KvWrite<'_>], durability: Durability) -> Result<()> {
        let writes: Vec<Write<'_>> = writes.iter().map(as_write).collect();
        self.run(|device| {
            device.write(&writes)?;
            if durability == Durability::Sync { device.sync() } else { Ok(()) }
        })
    }

    fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        Ok(self.run(|device| device.get(key))?.map(Value::owned))
    }

    /// The whole scan reads one snapshot, and other callers may use the device between stretches.
    fn scan(&self, from: Option<&[u8]>, direction: Direction, visit: &mut Visit<'_>) -> Result<()> {
        let held = HeldSnapshot::new(self);
        self.scan_at(from, direction, held.snapshot, visit)
    }

    fn flush(&self) -> Result<()> {
        self.run(|device| {
            device.flush()?;
            device.sync()
        })
    }

    /// The device is idle after each operation.
    fn wait_idle(&self) -> Result<()> {
        Ok(())
    }

    fn compact(&self) -> Result<()> {
        self.run(KvSsd::compact)
    }

    fn metrics(&self) -> Result<KvMetrics> {
        let device = self.device.lock();
        let page_bytes = u64::from(device.nand().geometry().page_bytes);
        let total = device.nand().counters().total();
        let programs = device.programs();
        Ok(KvMetrics {
            bytes_written: total.programs * page_bytes,
            bytes_read: total.reads * page_bytes,
            user_bytes_written: device.counters().user_bytes,
            disk_bytes: device.live_pages() * page_bytes,
            memory_bytes: device.ram().total_bytes() + device.memtable_bytes().0,
            flush_bytes_written: programs.by(Cause::Flush) * page_bytes,
            compaction_bytes_written: programs.by(Cause::Compaction) * page_bytes,
            log_bytes_written: programs.by(Cause::Log) * page_bytes,
        })
    }
}

fn as_write<'a>(write: &KvWrite<'a>) -> Write<'a> {
    match *write {
        KvWrite::Put { key, value } => Write::Put { key, value },
        KvWrite::Delete { key } => Write::Delete { key },
    }
}

/// Converts an error of an open device into an error of the engine.
pub fn explained(error: FlashError) -> Error {
    explain("the device", error)
}

/// Converts an error of the flash into an error of the engine.
pub(crate) fn explain(place: &str, error: FlashError) -> Error {
    let (file, what) = (place.to_string(), error.to_string());
    let explained = match error {
        FlashError::InUse { place } => runstone::Error::InUse { path: place, process: None },
        // This is reported like a directory that cannot be opened. Later failures remain errors of
        // the device: free space does not help a device that has failed.
        FlashError::Image { what: "open", place, source } => {
            StorageError::new(Operation::Open, place, source).into()
        }
        FlashError::NewerFormat { found, supported } => {
            runstone::Error::NewerFormat { file, found, supported }
        }
        FlashError::Full { .. } | FlashError::OutOfBlocks | FlashError::VersionsHeld { .. } => {
            runstone::Error::NoSpace { full: Full::Space, path: file, what }
        }
        FlashError::KeySize { .. } | FlashError::ValueSize { .. } => {
            runstone::Error::invalid(what, "shorten it, or make a device with larger pages")
        }
        FlashError::JournalFull => {
            runstone::Error::invalid(what, "shorten the keys, or make a device with larger pages")
        }
        FlashError::BadGeometry(_) | FlashError::BadOption { .. } => {
            runstone::Error::invalid(what, "change the options of the URL")
        }
        FlashError::OtherGeometry { .. } => {
            runstone::Error::invalid(what, "leave the geometry out of the URL: the image knows it")
        }
        FlashError::NotAnImage
        | FlashError::HeaderDamaged
        | FlashError::CutShort { .. }
        | FlashError::BlockRecordDamaged { .. }
        | FlashError::Uncorrectable(_)
        | FlashError::PageDamaged(..)
        | FlashError::PageErased(_)
        | FlashError::Corrupt { .. } => runstone::Error::corruption(file, 0, what),
        FlashError::NotAKvSsd { .. } => {
            runstone::Error::invalid(what, "check the path and the scheme")
        }
        _ => return Error::Foreign { engine: "flash".into(), what },
    };
    explained.into()
}
