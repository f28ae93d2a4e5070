//! Open files of a directory: an ordinary one and a mapped one. How they are created and found is
//! in `posix.rs`, what makes a mapping safe in `mapped.rs`.

use std::fs::{File, Metadata};
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;

use rustix::buffer::spare_capacity;
use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate};
use rustix::io::{Errno, pread};

use crate::mapped::{self, Mapping};
use crate::names::{checked_end, fixed_capacity};
use crate::uring::Rings;
use crate::{Category, Counters, Error, Operation, ReadRequest, Result, StorageFile, announce};

/// `stat` counts the space of a file in this unit, whatever the unit of the file system is.
const STAT_BLOCK_BYTES: u64 = 512;

/// What every handle needs besides its file, to report errors and to count.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) path: PathBuf,
    pub(crate) category: Category,
    pub(crate) counters: Arc<Counters>,
}

impl Context {
    fn failed(&self, operation: Operation, source: io::Error) -> Error {
        Error::new(operation, self.path.display().to_string(), source)
    }
}

#[derive(Debug)]
pub(crate) struct PosixFile {
    pub(crate) file: File,
    pub(crate) context: Context,
    pub(crate) is_read_only: bool,
    /// Set where `create_mapped` could not map: the handle keeps the rules of a mapped file, so
    /// that the engine sees the same behaviour on every file system.
    pub(crate) fixed_capacity_bytes: Option<u64>,
    /// For many reads at once, if the storage has them.
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
        if self.fixed_capacity_bytes.is_some() {
            return Err(fixed_capacity());
        }
        mapped::refuse_if_mapped(&self.file)
    }

    fn metadata(&self) -> Result<Metadata> {
        self.file.metadata().map_err(|source| self.context.failed(Operation::Length, source))
    }

    fn try_write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check_writable()?;
        checked_end(offset, data.len(), self.fixed_capacity_bytes.unwrap_or(u64::MAX))?;
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
        // The allocator may give more room than was asked for, and a read fills it too.
        bytes.truncate(len_bytes);
        Ok(bytes)
    }

    fn try_fallocate(&self, flags: FallocateFlags, offset: u64, len_bytes: u64) -> io::Result<()> {
        if len_bytes == 0 {
            return Ok(());
        }
        loop {
            match fallocate(&self.file, flags, offset, len_bytes) {
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl StorageFile for PosixFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.file
            .read_exact_at(buf, offset)
            .map_err(|source| self.context.failed(Operation::Read, source))?;
        self.context.counters.read(self.context.category, buf.len());
        Ok(())
    }

    fn read_vec(&self, offset: u64, len_bytes: usize) -> Result<Vec<u8>> {
        let bytes = self
            .try_read_vec(offset, len_bytes)
            .map_err(|source| self.context.failed(Operation::Read, source))?;
        self.context.counters.read(self.context.category, len_bytes);
        Ok(bytes)
    }

    fn read_many(&self, reads: &mut [ReadRequest]) -> Result<()> {
        if let Some(rings) = self.rings.as_ref().filter(|_| reads.len() > 1) {
            let outcome = rings.read(&self.file, reads);
            if outcome.map_err(|source| self.context.failed(Operation::Read, source))? {
                let counters = &self.context.counters;
                reads.iter().for_each(|r| counters.read(self.context.category, r.buffer.len()));
                return Ok(());
            }
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
        self.try_write(offset, data)
            .map_err(|source| self.context.failed(Operation::Write, source))?;
        self.context.counters.wrote(self.context.category, data.len());
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(|source| self.context.failed(Operation::Sync, source))?;
        self.context.counters.synced(self.context.category);
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn disk_bytes(&self) -> Result<u64> {
        Ok(self.metadata()?.blocks() * STAT_BLOCK_BYTES)
    }

    fn set_len(&self, len_bytes: u64) -> Result<()> {
        self.check_resizable()
            .and_then(|()| self.file.set_len(len_bytes))
            .map_err(|source| self.context.failed(Operation::SetLen, source))
    }

    /// The length stays, because it would otherwise depend on whether the file system can reserve.
    fn allocate(&self, offset: u64, len_bytes: u64) -> Result<()> {
        self.check_writable()
            .and_then(|()| self.try_fallocate(FallocateFlags::KEEP_SIZE, offset, len_bytes))
            .map_err(|source| self.context.failed(Operation::Allocate, source))
    }

    fn punch(&self, offset: u64, len_bytes: u64) -> Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        self.check_resizable()
            .and_then(|()| self.try_fallocate(flags, offset, len_bytes))
            .map_err(|source| self.context.failed(Operation::Punch, source))
    }

    fn read_ahead(&self, offset: u64, len_bytes: u64) {
        // A zero length would mean "to the end"; a refused hint is no loss.
        if let Some(len_bytes) = NonZeroU64::new(len_bytes) {
            let _ = fadvise(&self.file, offset, Some(len_bytes), Advice::WillNeed);
        }
    }
}

#[derive(Debug)]
pub(crate) struct PosixMappedFile {
    pub(crate) mapping: Mapping,
    pub(crate) context: Context,
}

impl StorageFile for PosixMappedFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.mapping
            .read_at(offset, buf)
            .map_err(|source| self.context.failed(Operation::Read, source))?;
        self.context.counters.read(self.context.category, buf.len());
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.mapping
            .write_at(offset, data)
            .map_err(|source| self.context.failed(Operation::Write, source))?;
        self.context.counters.wrote(self.context.category, data.len());
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.mapping.sync().map_err(|source| self.context.failed(Operation::Sync, source))?;
        self.context.counters.synced(self.context.category);
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        Ok(self.mapping.capacity_bytes())
    }

    fn set_len(&self, _len_bytes: u64) -> Result<()> {
        Err(self.context.failed(Operation::SetLen, self.mapping.refuse_resize()))
    }

    /// Creation has reserved everything.
    fn allocate(&self, _offset: u64, _len_bytes: u64) -> Result<()> {
        Ok(())
    }

    fn punch(&self, _offset: u64, _len_bytes: u64) -> Result<()> {
        Err(self.context.failed(Operation::Punch, self.mapping.refuse_resize()))
    }

    fn prepare(&self, offset: u64, len_bytes: u64) -> Result<()> {
        self.mapping
            .prepare(offset, len_bytes)
            .map_err(|source| self.context.failed(Operation::Allocate, source))
    }
}
