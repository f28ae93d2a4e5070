//! A file of fixed capacity whose `write_at` is a memory copy. Reads do not use the mapping: they
//! use a descriptor, where a failure is an ordinary error.
//!
//! A store into a shared mapping that the file system cannot back raises SIGBUS, which no caller
//! can handle. Four steps prevent this:
//!
//! 1. The blocks are reserved by `fallocate` before the mapping exists, so that a full disk causes
//!    an error at creation. Only file systems known to overwrite in place are mapped
//!    ([`OVERWRITING`]): a copy-on-write file system needs new blocks for every write, however much
//!    was reserved. A list of refused file systems was rejected, because an unknown one would be
//!    mapped.
//! 2. The file cannot shrink or lose blocks while mapped: `set_len` and `punch` are refused here,
//!    and on other handles of the same inode through [`refuse_if_mapped`]. Other processes are kept
//!    out by the store's lock.
//! 3. A page is populated (`MADV_POPULATE_WRITE`) before a store to it: instead of a SIGBUS, that
//!    call returns an error. `prepared_bytes` is the watermark below which this was done. Writes
//!    move it in steps of [`WRITER_STEP_BYTES`], so that few writes pay for the call.
//! 4. A sync write-protects the pages it cleaned, and the next store to such a page needs the file
//!    system again, which may have failed meanwhile. So pages below `cold_below_bytes`, the
//!    watermark at the last sync, are populated again, one page at a time: a longer step would
//!    dirty pages that the next sync then has to write. After a failed sync nothing is stored any
//!    more.
//!
//! What remains: the kernel's own writeback can clean a page between its population and the store,
//! and the file system can fail (journal abort, forced shutdown) in the same interval. Only a
//! system call per write would close that gap, and this file exists to avoid it.
//!
//! The mapping outlives its descriptor, so that an idle store has no descriptor open for its log.
//! Linux keeps the open file for the mapping: `msync` syncs the file just as `fdatasync` on the
//! descriptor would, and reports the same lost writes.
//!
//! Obligations of the unsafe code, cited by number below:
//!
//! * O1 `base` is the start of a live mapping of `map_bytes` bytes, unmapped once, in `drop`.
//! * O2 every byte changed is in `[base, base + capacity_bytes)`, checked before the copy. The word
//!   that contains the last byte is in the last page of the mapping.
//! * O3 references to mapped bytes are only ever made to atomic words.
//! * O4 all stores are of whole, aligned words, so that two racing stores have the same size.
//! * O5 the mapped pages stay backed by the file (steps 1 and 2).

use std::collections::BTreeSet;
use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, fallocate, fstatfs};
use rustix::io::{Errno, retry_on_intr};
use rustix::mm::{Advice, MapFlags, MsyncFlags, ProtFlags, madvise, mmap, msync, munmap};

use crate::names::checked_end;

/// How much `prepare` populates in one call. A longer call would hold the lock of the address space
/// for too long while others wait for it.
const PREPARE_STEP_BYTES: u64 = 256 << 10;

/// How far ahead of a write the watermark moves if nobody prepared the file. Pages that are not
/// free at once cost 15 to 60 us each, and 900 us at worst (measured on a machine whose hypervisor
/// reclaims free memory). One write pays for a whole step. The call itself is cheap compared with
/// the writes that fill a step of this size.
const WRITER_STEP_BYTES: u64 = 16 << 10;

/// Bytes of one store.
const WORD: usize = size_of::<u64>();

/// `f_type` of file systems that overwrite reserved blocks in place: ext2/3/4, XFS, tmpfs.
const OVERWRITING: [u64; 3] = [0xEF53, 0x5846_5342, 0x0102_1994];

/// Device and inode of every live mapping. The list belongs to the process, not to a storage: two
/// storages of one directory must see each other's mappings.
static MAPPED_INODES: Mutex<BTreeSet<(u64, u64)>> = Mutex::new(BTreeSet::new());

/// The result of [`create`] for a fresh file.
#[derive(Debug)]
pub(crate) enum Made {
    /// Writes are memory copies.
    Mapped(Mapping),
    /// Mapping is not possible or not safe here; the file still has its capacity.
    Ordinary(File),
}

/// Gives `file` its capacity, with blocks reserved, and maps it where that is safe. Existing bytes
/// stay. The caller removes a fresh file on an error.
pub(crate) fn create(file: File, capacity_bytes: u64) -> io::Result<Made> {
    if capacity_bytes == 0 {
        return Ok(Made::Ordinary(file));
    }
    match retry_on_intr(|| fallocate(&file, FallocateFlags::empty(), 0, capacity_bytes)) {
        Ok(()) => {}
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            file.set_len(capacity_bytes)?;
            return Ok(Made::Ordinary(file));
        }
        Err(error) => return Err(error.into()),
    }
    match overwrites(&file)? {
        true => Mapping::map(file, capacity_bytes),
        false => Ok(Made::Ordinary(file)),
    }
}

/// Whether the file system of a file overwrites reserved blocks in place.
pub(crate) fn overwrites(file: &File) -> io::Result<bool> {
    Ok(OVERWRITING.contains(&(fstatfs(file)?.f_type as u64)))
}

/// Refuses a change of `file` that could remove blocks under a mapping.
pub(crate) fn refuse_if_mapped(file: &File) -> io::Result<()> {
    match MAPPED_INODES.lock().contains(&inode_of(file)?) {
        true => Err(io::Error::new(io::ErrorKind::ResourceBusy, "the file is mapped for writing")),
        false => Ok(()),
    }
}

fn inode_of(file: &File) -> io::Result<(u64, u64)> {
    let metadata = file.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

#[derive(Debug)]
pub(crate) struct Mapping {
    inode: (u64, u64),
    base: NonNull<u8>,
    map_bytes: usize,
    page_bytes: u64,
    capacity_bytes: u64,
    /// Pages wholly below this offset were populated at least once.
    prepared_bytes: AtomicU64,
    /// Pages below this offset were cleaned by a sync after they were populated.
    cold_below_bytes: AtomicU64,
    /// Offset of the cold page that was last populated again, or `u64::MAX`.
    rewarmed_page: AtomicU64,
    /// Whether a sync failed: then nothing may be stored any more.
    failed: AtomicBool,
}

// SAFETY: `base` is a plain address, valid from every thread (O1); access through it is by atomic
// words (O3, O4).
unsafe impl Send for Mapping {}
// SAFETY: as for Send; everything else in the struct is Sync.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn map(file: File, capacity_bytes: u64) -> io::Result<Made> {
        let map_bytes = usize::try_from(capacity_bytes)
            .map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        let inode = inode_of(&file)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice aliases no Rust object. It is
        // owned by the value made below, whose drop unmaps it (O1).
        let address =
            unsafe { mmap(ptr::null_mut(), map_bytes, protection, MapFlags::SHARED, &file, 0)? };
        let base = NonNull::new(address.cast::<u8>())
            .ok_or_else(|| io::Error::other("mapped at address zero"))?;
        MAPPED_INODES.lock().insert(inode);
        let mapping = Mapping {
            inode,
            base,
            map_bytes,
            page_bytes: rustix::param::page_size() as u64,
            capacity_bytes,
            prepared_bytes: AtomicU64::new(0),
            cold_below_bytes: AtomicU64::new(0),
            rewarmed_page: AtomicU64::new(u64::MAX),
            failed: AtomicBool::new(false),
        };
        match mapping.populate(0, 1) {
            Ok(()) => Ok(Made::Mapped(mapping)),
            // Linux before 5.14 does not know the advice; without it step 3 is impossible.
            Err(Errno::INVAL) => Ok(Made::Ordinary(file)),
            Err(error) => Err(from_populate(error)),
        }
    }

    /// Reads through a descriptor of its own; Linux keeps it coherent with the mapping. `path` is
    /// the path of the file. This fails if another file has this path by now.
    pub(crate) fn read_at(&self, path: &Path, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let file = File::open(path)?;
        if inode_of(&file)? != self.inode {
            return Err(io::Error::other("another file has its name"));
        }
        file.read_exact_at(buf, offset)
    }

    pub(crate) fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let end = checked_end(offset, data.len(), self.capacity_bytes)?;
        if data.is_empty() {
            return Ok(());
        }
        self.check_alive()?;
        self.warm(offset, end)?;
        self.copy_in(offset as usize, data);
        Ok(())
    }

    /// Copies into checked bounds, word by word: two simultaneous copies to one place leave bytes
    /// of both, and do no other harm. A lock would be one more cache line that moves between the
    /// cores of two writers.
    fn copy_in(&self, offset: usize, data: &[u8]) {
        let (lead, body) = data.split_at(data.len().min(offset.next_multiple_of(WORD) - offset));
        let (words, tail) = body.as_chunks::<WORD>();
        self.merge_in(offset, lead);
        let first = (offset + lead.len()) / WORD;
        for (at, word) in (first..).zip(words) {
            self.word(at).store(u64::from_ne_bytes(*word), Relaxed);
        }
        self.merge_in((first + words.len()) * WORD, tail);
    }

    /// Copies a part of one word, whose other bytes stay unchanged.
    fn merge_in(&self, offset: usize, part: &[u8]) {
        if part.is_empty() {
            return;
        }
        let within = offset % WORD;
        let merged = |old: u64| {
            let mut bytes = old.to_ne_bytes();
            bytes[within..within + part.len()].copy_from_slice(part);
            Some(u64::from_ne_bytes(bytes))
        };
        let _ = self.word(offset / WORD).fetch_update(Relaxed, Relaxed, merged);
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at * WORD < self.map_bytes, "a word beyond the end of the mapping");
        // SAFETY: in bounds (O1, O2), aligned since the mapping starts on a page, accessed only as
        // a word (O4), backed (O5), and mapped for as long as `self`.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().cast::<u64>().add(at)) }
    }

    /// Populates the pages of a range, so that writes there only copy.
    pub(crate) fn prepare(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
        let end = offset.saturating_add(len_bytes).min(self.capacity_bytes);
        if offset >= end {
            return Ok(());
        }
        self.check_alive()?;
        let mut from = offset;
        while from < end {
            let to = end.min(from + PREPARE_STEP_BYTES);
            self.populate(from, to).map_err(from_populate)?;
            self.raise_watermark(from, to);
            from = to;
        }
        Ok(())
    }

    /// Makes everything written durable. After an error the mapping takes no more writes.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.check_alive()?;
        // SAFETY: the whole mapping, which is live (O1). It changes no byte.
        let synced = retry_on_intr(|| unsafe {
            msync(self.base.as_ptr().cast::<c_void>(), self.map_bytes, MsyncFlags::SYNC)
        });
        if synced.is_err() {
            self.failed.store(true, Relaxed);
        }
        self.rewarmed_page.store(u64::MAX, Relaxed);
        self.cold_below_bytes.store(self.prepared_bytes.load(Relaxed), Relaxed);
        Ok(synced?)
    }

    /// The capacity, which is also the length.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    fn check_alive(&self) -> io::Result<()> {
        match self.failed.load(Relaxed) {
            true => Err(io::Error::other("an earlier sync of this file failed")),
            false => Ok(()),
        }
    }

    /// Populates the pages for a write of `[offset, end)`: ahead in steps when it passes the
    /// watermark, page by page where a sync cleaned pages. The atomics are hints that are read and
    /// set without order. A stale value costs a call, or leads to the remaining risk that the
    /// module docs describe.
    fn warm(&self, offset: u64, end: u64) -> io::Result<()> {
        let prepared = self.prepared_bytes.load(Relaxed);
        if end > prepared {
            let from = offset.max(prepared);
            let to = end.max(from.saturating_add(WRITER_STEP_BYTES)).min(self.capacity_bytes);
            self.populate(from, to).map_err(from_populate)?;
            self.raise_watermark(from, to);
        }
        let cold_end = end.min(self.cold_below_bytes.load(Relaxed));
        if offset < cold_end {
            let first_page = self.page_of(offset);
            let last_page = self.page_of(cold_end - 1);
            let is_warm = first_page == last_page && self.rewarmed_page.load(Relaxed) == last_page;
            if !is_warm {
                self.populate(offset, cold_end).map_err(from_populate)?;
                self.rewarmed_page.store(last_page, Relaxed);
            }
        }
        Ok(())
    }

    /// Raises the watermark if the populated range joins it. A range after a gap does not raise it.
    fn raise_watermark(&self, from: u64, to: u64) {
        if from <= self.prepared_bytes.load(Relaxed) {
            self.prepared_bytes.fetch_max(to, Relaxed);
        }
    }

    /// Populates every page that `[from, to)` touches, for writing.
    fn populate(&self, from: u64, to: u64) -> Result<(), Errno> {
        debug_assert!(
            from < to && to <= self.capacity_bytes,
            "a range beyond the end of the mapping is populated"
        );
        let start = self.page_of(from);
        let len_bytes = (to - start) as usize;
        // SAFETY: the range starts on a page boundary inside the mapping and ends inside it; the
        // kernel rounds the length up to a page, which the mapping also covers (O1, O2).
        // Populating changes no byte.
        retry_on_intr(|| unsafe {
            let address = self.base.as_ptr().add(start as usize).cast::<c_void>();
            madvise(address, len_bytes, Advice::LinuxPopulateWrite)
        })
    }

    fn page_of(&self, offset: u64) -> u64 {
        offset - offset % self.page_bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `map`, unmapped here and nowhere else (O1). `&mut self`
        // proves that no copy is running.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast::<c_void>(), self.map_bytes) };
        debug_assert!(unmapped.is_ok(), "a mapping of ours is not there");
        MAPPED_INODES.lock().remove(&self.inode);
    }
}

/// `EFAULT` here means "a store would have raised SIGBUS", not a bad pointer of ours.
fn from_populate(error: Errno) -> io::Error {
    match error {
        Errno::FAULT => Errno::IO.into(),
        error => error.into(),
    }
}
