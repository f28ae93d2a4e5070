//! The common part of open files of all storages: the name for errors, the counters, and whether
//! the length is fixed. It does not handle contents.

use std::io;
use std::sync::Arc;

use crate::names::{checked_end, fixed_capacity};
use crate::{Category, Counters, Error, Operation, Result};

/// The longest file. The limit keeps sums of offsets from overflowing.
const MAX_LEN_BYTES: u64 = i64::MAX as u64;

/// The properties of an open file, without its contents.
#[derive(Debug)]
pub struct Handle {
    /// Its path, for errors.
    pub path: String,
    /// Its purpose.
    pub category: Category,
    /// The counters of its storage.
    pub counters: Arc<Counters>,
    /// The fixed capacity of a file that `create_mapped` made. If the file could not be mapped, the
    /// rules of a mapped file still apply, so the engine sees the same behaviour everywhere.
    pub fixed_capacity_bytes: Option<u64>,
}

impl Handle {
    /// Adds the context to an error.
    pub fn result<T>(&self, operation: Operation, result: io::Result<T>) -> Result<T> {
        result.map_err(|source| Error::new(operation, self.path.clone(), source))
    }

    /// Counts a read of this many bytes, if it succeeded, and adds the context to its error.
    pub fn read<T>(&self, len_bytes: usize, result: io::Result<T>) -> Result<T> {
        let read = self.result(Operation::Read, result)?;
        self.counters.read(self.category, len_bytes);
        Ok(read)
    }

    /// Counts a write of this many bytes, if it succeeded, and adds the context to its error.
    pub fn wrote(&self, len_bytes: usize, result: io::Result<()>) -> Result<()> {
        self.result(Operation::Write, result)?;
        self.counters.wrote(self.category, len_bytes);
        Ok(())
    }

    /// Counts a sync, if it succeeded, and adds the context to its error.
    pub fn synced(&self, result: io::Result<()>) -> Result<()> {
        self.result(Operation::Sync, result)?;
        self.counters.synced(self.category);
        Ok(())
    }

    /// Counts a write-back, if it succeeded, and adds the context to its error.
    pub fn wrote_back(&self, result: io::Result<()>) -> Result<()> {
        self.result(Operation::Sync, result)?;
        self.counters.wrote_back(self.category);
        Ok(())
    }

    /// The end of a write, or an error if the file may not be that long.
    pub fn end_of_write(&self, offset: u64, len_bytes: usize) -> io::Result<u64> {
        checked_end(offset, len_bytes, self.fixed_capacity_bytes.unwrap_or(MAX_LEN_BYTES))
    }

    /// Refuses a new length or a hole where the capacity is fixed.
    pub fn check_resizable(&self) -> io::Result<()> {
        match self.fixed_capacity_bytes {
            Some(_) => Err(fixed_capacity()),
            None => Ok(()),
        }
    }
}

/// Refuses a length that no file may have.
pub fn check_len(len_bytes: u64) -> io::Result<()> {
    checked_end(len_bytes, 0, MAX_LEN_BYTES).map(|_| ())
}
