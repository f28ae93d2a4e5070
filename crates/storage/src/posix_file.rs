//! Open files of a directory: an ordinary one and a mapped one. `posix.rs` creates and opens them,
//! and `mapped.rs` explains why a mapping is safe.

use std::fs::{File, Metadata};
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use rustix::buffer::spare_capacity;
use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate};
use rustix::io::{Errno, pread, retry_on_intr};

use crate::handle::Handle;
use crate::mapped::{self, Mapping};
use crate::names::fixed_capacity;
use crate::uring::Rings;
use crate::{Operation, ReadRequest, Result, StorageFile, announce, page_cache, write_back};

/// `stat` counts the space of a file in this unit, whatever the unit of the file system is.
const STAT_BLOCK_BYTES: u64 = 512;

#[derive(Debug)]
pub(crate) struct PosixFile {
    pub(crate) file: File,
    pub(crate) handle: Handle,
    pub(crate) is_read_only: bool,
    /// The rings for many reads at once, if the storage has them.
    pub(crate) rings: Option<Arc<Rings>>,
}

impl PosixFile {
    fn check_writable(&self) -> io::Result<()> {
        match self.is_read_only {
            true => Err(io::ErrorKind::ReadOnlyFilesystem.into()),
            false => Ok(()),
        }
    }

    fn check_resizable(&self) -> io::Result<()> {
        self.check_writable()?;
        self.handle.check_resizable()?;
        mapped::refuse_if_mapped(&self.file)
    }

    fn metadata(&self) -> Result<Metadata> {
        self.handle.result(Operation::Length, self.file.metadata())
    }

    fn try_write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check_writable()?;
        self.handle.end_of_write(offset, data.len())?;
        self.file.write_all_at(data, offset)
    }

    fn try_read_vec(&self, offset: u64, len_bytes: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(len_bytes);
        while bytes.len() < len_bytes {
            let at = offset + bytes.len() as u64;
            match pread(&self.file, spare_capacity(&mut bytes), at) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // The allocator may reserve more than was requested, and a read fills the surplus too.
        bytes.truncate(len_bytes);
        Ok(bytes)
    }

    fn try_fallocate(&self, flags: FallocateFlags, offset: u64, len_bytes: u64) -> io::Result<()> {
        if len_bytes == 0 {
            return Ok(());
        }
        match retry_on_intr(|| fallocate(&self.file, flags, offset, len_bytes)) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl StorageFile for PosixFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.handle.read(buf.len(), self.file.read_exact_at(buf, offset))
    }

    fn read_vec(&self, offset: u64, len_bytes: usize) -> Result<Vec<u8>> {
        self.handle.read(len_bytes, self.try_read_vec(offset, len_bytes))
    }

    fn read_many(&self, reads: &mut [ReadRequest]) -> Result<()> {
        if let Some(rings) = self.rings.as_ref().filter(|_| reads.len() > 1)
            && self.handle.result(Operation::Read, rings.read(&self.file, reads))?
        {
            return reads.iter().try_for_each(|read| self.handle.read(read.buffer.len(), Ok(())));
        }
        announce(self, reads);
        reads.iter_mut().try_for_each(|read| self.read_at(read.offset, &mut read.buffer))
    }

    fn reads_together(&self) -> bool {
        self.rings.is_some()
    }

    fn heeds_hints(&self) -> bool {
        true
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.handle.wrote(data.len(), self.try_write(offset, data))
    }

    fn sync(&self) -> Result<()> {
        self.handle.synced(self.file.sync_data())
    }

    fn write_back(&self, begin: Range<u64>, wait_for: Range<u64>) -> Result<()> {
        let begun = write_back::begin(&self.file, &begin);
        let done = begun.and_then(|()| write_back::wait(&self.file, &wait_for));
        self.handle.wrote_back(done)
    }

    fn len(&self) -> Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn disk_bytes(&self) -> Result<u64> {
        Ok(self.metadata()?.blocks() * STAT_BLOCK_BYTES)
    }

    fn modified(&self) -> Result<Option<SystemTime>> {
        Ok(self.metadata()?.modified().ok())
    }

    fn set_len(&self, len_bytes: u64) -> Result<()> {
        let done = self.check_resizable().and_then(|()| self.file.set_len(len_bytes));
        self.handle.result(Operation::SetLen, done)
    }

    /// The length stays the same. Otherwise it would depend on whether the file system can reserve
    /// space.
    fn allocate(&self, offset: u64, len_bytes: u64) -> Result<()> {
        let flags = FallocateFlags::KEEP_SIZE;
        let may = self.check_writable();
        let done = may.and_then(|()| self.try_fallocate(flags, offset, len_bytes));
        self.handle.result(Operation::Allocate, done)
    }

    fn can_reserve(&self) -> bool {
        mapped::overwrites(&self.file).unwrap_or(false)
    }

    fn punch(&self, offset: u64, len_bytes: u64) -> Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let may = self.check_resizable();
        let done = may.and_then(|()| self.try_fallocate(flags, offset, len_bytes));
        self.handle.result(Operation::Punch, done)
    }

    fn read_ahead(&self, offset: u64, len_bytes: u64) {
        // A zero length would mean "to the end"; a refused hint loses nothing.
        if let Some(len_bytes) = NonZeroU64::new(len_bytes) {
            let _ = fadvise(&self.file, offset, Some(len_bytes), Advice::WillNeed);
        }
    }

    fn cached_bytes(&self, offset: u64, len_bytes: u64) -> Option<u64> {
        page_cache::cached_bytes(&self.file, offset, len_bytes)
    }

    fn drop_cached(&self, offset: u64, len_bytes: u64) {
        if let Some(len_bytes) = NonZeroU64::new(len_bytes) {
            let _ = fadvise(&self.file, offset, Some(len_bytes), Advice::DontNeed);
        }
    }
}

#[derive(Debug)]
pub(crate) struct PosixMappedFile {
    pub(crate) mapping: Mapping,
    pub(crate) handle: Handle,
}

impl StorageFile for PosixMappedFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let read = self.mapping.read_at(Path::new(&self.handle.path), offset, buf);
        self.handle.read(buf.len(), read)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.handle.wrote(data.len(), self.mapping.write_at(offset, data))
    }

    fn is_mapped(&self) -> bool {
        true
    }

    fn sync(&self) -> Result<()> {
        self.handle.synced(self.mapping.sync())
    }

    fn len(&self) -> Result<u64> {
        Ok(self.mapping.capacity_bytes())
    }

    fn set_len(&self, _len_bytes: u64) -> Result<()> {
        self.handle.result(Operation::SetLen, Err(fixed_capacity()))
    }

    /// Does nothing: the creation has reserved all space.
    fn allocate(&self, _offset: u64, _len_bytes: u64) -> Result<()> {
        Ok(())
    }

    fn can_reserve(&self) -> bool {
        true
    }

    fn punch(&self, _offset: u64, _len_bytes: u64) -> Result<()> {
        self.handle.result(Operation::Punch, Err(fixed_capacity()))
    }

    fn prepare(&self, offset: u64, len_bytes: u64) -> Result<()> {
        self.handle.result(Operation::Allocate, self.mapping.prepare(offset, len_bytes))
    }
}
