//! A [`Storage`] on an emulated block SSD: what an LSM store uses on an ordinary device. It is not
//! a general file system: each place is one flat directory, and there are no permissions and no
//! timestamps.
//!
//! The emulating process is the machine, and its memory is the page cache: a kill loses unsynced
//! data, as a power cut does. Dropping the last handle writes everything. Locks are held in memory;
//! the image file itself is locked against other processes.

mod ahead;
mod counters;
mod extents;
mod journal;
mod records;
mod volume;

use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use runstone_storage::support::{Handle, LockTable, check_len, check_name, checked_end, copy_into};
use runstone_storage::{
    Category, Counters, Error as StorageError, FileInfo, LockMode, Operation, Storage, StorageFile,
    StorageLock,
};

use crate::error::Result;
use crate::ftl::{Ftl, FtlOptions, HOST_BLOCK_BYTES};
use crate::nand::{Geometry, Image, Nand, Timing, Unsynced};
pub use counters::{BlockCounters, LayerReport};
use volume::{Volume, no_space};

type StorageResult<T> = std::result::Result<T, StorageError>;

const MAX_NAME_BYTES: usize = 255;
const MAX_PLACE_BYTES: usize = 4096;
/// Zeros are written in pieces of this size when a file is made with its space reserved.
const ZEROS_BYTES: usize = 64 << 10;

/// Options of the block SSD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockOptions {
    /// The translation layer.
    pub ftl: FtlOptions,
    /// The times that flash operations take.
    pub timing: Timing,
    /// How many one-page requests may be in flight at once, at least 1. With 1 a host waits for
    /// each request before the next one. With more, reads of several pages run side by side, hints
    /// read ahead, and only syncs wait for writes. It changes only simulated time.
    pub queue_depth: u32,
    /// Whether the image file is synced, at each sync and where the order of its writes requires
    /// it. Then the image survives a power loss of the machine that runs the emulator. Otherwise it
    /// survives only the end of the process.
    pub syncs_image: bool,
}

impl BlockOptions {
    fn synced(&self, image: Box<dyn Image>) -> Box<dyn Image> {
        if self.syncs_image { image } else { Box::new(Unsynced(image)) }
    }
}

impl Default for BlockOptions {
    fn default() -> Self {
        BlockOptions {
            ftl: FtlOptions::default(),
            timing: Timing::PAPER,
            queue_depth: 1,
            syncs_image: true,
        }
    }
}

/// A directory on a block SSD. Clones share the device.
#[derive(Clone, Debug)]
pub struct BlockStorage {
    device: Arc<Device>,
    place: String,
    counters: Arc<Counters>,
}

#[derive(Debug)]
struct Device {
    volume: Mutex<Volume>,
    locks: LockTable,
    image: String,
    has_queue: bool,
}

impl Drop for Device {
    /// Shuts down cleanly. After a power cut there is nothing to do. Nobody is left to whom an
    /// error could be reported.
    fn drop(&mut self) {
        let _ = self.volume.get_mut().sync_all();
    }
}

impl BlockStorage {
    /// Makes an empty device over an empty image.
    pub fn create(
        image: Box<dyn Image>,
        geometry: Geometry,
        options: BlockOptions,
    ) -> Result<BlockStorage> {
        let ftl = Ftl::create(options.synced(image), geometry, options.timing, options.ftl)?;
        Ok(BlockStorage::over(Volume::create(ftl)?, options.queue_depth))
    }

    /// Opens a device as its last sync, or its clean shutdown, left it.
    pub fn open(
        image: Box<dyn Image>,
        geometry: Option<Geometry>,
        options: BlockOptions,
    ) -> Result<BlockStorage> {
        let ftl = Ftl::open(options.synced(image), geometry, options.timing, options.ftl)?;
        Ok(BlockStorage::over(Volume::open(ftl)?, options.queue_depth))
    }

    fn over(mut volume: Volume, queue_depth: u32) -> BlockStorage {
        volume.ftl.nand_mut().set_queue_depth(queue_depth);
        let image = volume.ftl.nand().place();
        let locks = LockTable::default();
        let has_queue = queue_depth > 1;
        let device = Device { volume: Mutex::new(volume), locks, image, has_queue };
        BlockStorage { device: Arc::new(device), place: String::new(), counters: Arc::default() }
    }

    /// The storage that `create_sibling` made at `path`, with counters of its own.
    pub fn open_sibling(&self, path: &Path) -> BlockStorage {
        BlockStorage {
            device: Arc::clone(&self.device),
            place: path.display().to_string(),
            counters: Arc::default(),
        }
    }

    /// What each layer wrote since the device was opened. Asserts that the layers account for
    /// every host block and every program.
    pub fn layers(&self) -> LayerReport {
        let volume = self.device.volume.lock();
        let device = volume.ftl.write_amplification();
        let block_bytes = volume.counters.total() * u64::from(HOST_BLOCK_BYTES);
        assert_eq!(block_bytes, device.host_bytes, "each host block has a purpose");
        LayerReport {
            blocks: volume.counters,
            device,
            timing: volume.ftl.nand().timing().name,
            elapsed_ns: volume.ftl.nand().elapsed_ns(),
        }
    }

    /// Runs `f` on the flash, so that tests can set faults or read counters.
    pub fn with_nand<T>(&self, f: impl FnOnce(&mut Nand) -> T) -> T {
        f(self.device.volume.lock().ftl.nand_mut())
    }

    fn key(&self, operation: Operation, name: &str) -> StorageResult<records::Path> {
        check_name(operation, name)?;
        if name.len() > MAX_NAME_BYTES || self.place.len() > MAX_PLACE_BYTES {
            return Err(self.failed(operation, name, io::ErrorKind::InvalidFilename.into()));
        }
        Ok((self.place.clone(), name.to_string()))
    }

    fn failed(&self, operation: Operation, name: &str, source: io::Error) -> StorageError {
        StorageError::new(operation, self.path_text(name), source)
    }

    fn path_text(&self, name: &str) -> String {
        let directory = Path::new(&self.place).join(name);
        format!("blockssd:{}/{}", self.device.image, directory.display())
    }

    /// Runs an operation of the volume and adds its context to an error.
    fn run<T>(
        &self,
        operation: Operation,
        name: &str,
        f: impl FnOnce(&mut Volume) -> io::Result<T>,
    ) -> StorageResult<T> {
        let result = f(&mut self.device.volume.lock());
        result.map_err(|source| self.failed(operation, name, source))
    }

    fn file(
        &self,
        id: u64,
        name: &str,
        category: Category,
        fixed_capacity_bytes: Option<u64>,
    ) -> Arc<dyn StorageFile> {
        let (path, counters) = (self.path_text(name), Arc::clone(&self.counters));
        let handle = Handle { path, category, counters, fixed_capacity_bytes };
        Arc::new(BlockFile { device: Arc::clone(&self.device), id, handle })
    }
}

impl Storage for BlockStorage {
    fn create(&self, name: &str, category: Category) -> StorageResult<Arc<dyn StorageFile>> {
        let key = self.key(Operation::Create, name)?;
        let id = self.run(Operation::Create, name, |volume| volume.create_file(key, category))?;
        Ok(self.file(id, name, category, None))
    }

    /// The zeros are written, so that later writes need no new blocks.
    fn create_mapped(
        &self,
        name: &str,
        category: Category,
        capacity_bytes: u64,
    ) -> StorageResult<Arc<dyn StorageFile>> {
        let key = self.key(Operation::Create, name)?;
        let id = self.run(Operation::Create, name, |volume| {
            if volume.names.contains_key(&key) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            let block_count = capacity_bytes.div_ceil(u64::from(HOST_BLOCK_BYTES));
            if block_count > volume.available_count() {
                return Err(no_space());
            }
            let id = volume.create_file(key.clone(), category)?;
            let zeros = [0; ZEROS_BYTES];
            let filled = (0..capacity_bytes).step_by(ZEROS_BYTES).try_for_each(|offset| {
                let len = (capacity_bytes - offset).min(ZEROS_BYTES as u64);
                volume.write(id, offset, &zeros[..len as usize])
            });
            if filled.is_err() {
                volume.discard_file(&key, id);
            }
            filled.map(|()| id)
        })?;
        Ok(self.file(id, name, category, Some(capacity_bytes)))
    }

    fn open(&self, name: &str, category: Category) -> StorageResult<Arc<dyn StorageFile>> {
        let key = self.key(Operation::Open, name)?;
        let id = self.run(Operation::Open, name, |volume| volume.open_file(&key))?;
        Ok(self.file(id, name, category, None))
    }

    fn rename(&self, from: &str, to: &str) -> StorageResult<()> {
        let from_key = self.key(Operation::Rename, from)?;
        let to_key = self.key(Operation::Rename, to)?;
        self.run(Operation::Rename, from, |volume| volume.rename(from_key, to_key))
    }

    fn remove(&self, name: &str) -> StorageResult<()> {
        let key = self.key(Operation::Remove, name)?;
        self.run(Operation::Remove, name, |volume| volume.remove(&key))
    }

    fn list(&self) -> StorageResult<Vec<FileInfo>> {
        self.run(Operation::List, "", |volume| {
            let here = volume.names.range((self.place.clone(), String::new())..);
            let here = here.take_while(|((place, _), _)| *place == self.place);
            here.map(|((_, name), &id)| {
                Ok(FileInfo { name: name.clone(), len_bytes: volume.inode(id)?.len_bytes })
            })
            .collect()
        })
    }

    fn sync_dir(&self) -> StorageResult<()> {
        self.run(Operation::SyncDir, "", Volume::sync_dir)
    }

    fn lock(&self, name: &str, mode: LockMode) -> StorageResult<Option<Box<dyn StorageLock>>> {
        check_name(Operation::Lock, name)?;
        Ok(self.device.locks.take(self.path_text(name), mode))
    }

    fn create_sibling(&self, path: &Path) -> StorageResult<Arc<dyn Storage>> {
        let sibling = self.open_sibling(path);
        if !sibling.list()?.is_empty() {
            return Err(sibling.failed(Operation::Create, "", io::ErrorKind::AlreadyExists.into()));
        }
        Ok(Arc::new(sibling))
    }

    fn link_into(&self, name: &str, category: Category, target: &dyn Storage) -> StorageResult<()> {
        copy_into(self, name, category, target)
    }

    fn free_bytes(&self) -> Option<u64> {
        let available = self.device.volume.lock().available_count();
        Some(available * u64::from(HOST_BLOCK_BYTES))
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn location(&self) -> String {
        self.path_text("")
    }
}

#[derive(Debug)]
struct BlockFile {
    device: Arc<Device>,
    id: u64,
    handle: Handle,
}

impl Drop for BlockFile {
    fn drop(&mut self) {
        self.device.volume.lock().close_file(self.id);
    }
}

impl BlockFile {
    fn run<T>(
        &self,
        operation: Operation,
        f: impl FnOnce(&mut Volume) -> io::Result<T>,
    ) -> StorageResult<T> {
        self.handle.result(operation, f(&mut self.device.volume.lock()))
    }

    fn try_read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut volume = self.device.volume.lock();
        let end = checked_end(offset, buf.len(), volume.inode(self.id)?.len_bytes);
        end.map_err(|_| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        volume.read(self.id, offset, buf)
    }
}

impl StorageFile for BlockFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> StorageResult<()> {
        self.handle.read(buf.len(), self.try_read(offset, buf))
    }

    fn read_ahead(&self, offset: u64, len_bytes: u64) {
        if self.device.has_queue {
            // A hint does not fail.
            let _ = self.device.volume.lock().read_ahead(self.id, offset, len_bytes);
        }
    }

    fn heeds_hints(&self) -> bool {
        self.device.has_queue
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> StorageResult<()> {
        let end = self.handle.end_of_write(offset, data.len());
        let written = end.and_then(|_| self.device.volume.lock().write(self.id, offset, data));
        self.handle.wrote(data.len(), written)
    }

    fn sync(&self) -> StorageResult<()> {
        self.handle.synced(self.device.volume.lock().sync_file(self.id))
    }

    fn len(&self) -> StorageResult<u64> {
        self.run(Operation::Length, |volume| Ok(volume.inode(self.id)?.len_bytes))
    }

    fn set_len(&self, len_bytes: u64) -> StorageResult<()> {
        self.run(Operation::SetLen, |volume| {
            self.handle.check_resizable()?;
            check_len(len_bytes)?;
            volume.set_len(self.id, len_bytes)
        })
    }

    /// Best effort: this detects a full device now, but reserves nothing.
    fn allocate(&self, offset: u64, len_bytes: u64) -> StorageResult<()> {
        self.run(Operation::Allocate, |volume| {
            let end = offset.saturating_add(len_bytes);
            let more_bytes = end.saturating_sub(volume.inode(self.id)?.len_bytes.max(offset));
            let block_count = more_bytes.div_ceil(u64::from(HOST_BLOCK_BYTES));
            if block_count > volume.available_count() { Err(no_space()) } else { Ok(()) }
        })
    }

    fn punch(&self, offset: u64, len_bytes: u64) -> StorageResult<()> {
        self.run(Operation::Punch, |volume| {
            self.handle.check_resizable()?;
            let limit_bytes = volume.inode(self.id)?.len_bytes;
            let start = offset.min(limit_bytes);
            let end = offset.saturating_add(len_bytes).min(limit_bytes);
            if start < end { volume.make_hole(self.id, start, end) } else { Ok(()) }
        })
    }
}
