//! An open file of the simulated disk: what each operation does to the live bytes and the pending
//! list, with and without a fault.

use std::io;
use std::sync::Arc;

use super::disk::{Disk, Inode, Op, Pending, State, eio, no_space};
use super::fault::{FaultKind, OpKind};
use crate::names::{checked_end, fixed_capacity};
use crate::{Category, Counters, Error, Operation, Result, StorageFile};

const SECTOR_BYTES: u64 = 512;

/// Longest file: offsets must stay clear of overflow in sums.
const MAX_LEN_BYTES: u64 = i64::MAX as u64;

/// A handle. It dies with its disk and follows the inode, not the name.
#[derive(Debug)]
pub(super) struct SimFile {
    disk: Arc<Disk>,
    inode: u64,
    /// The name at opening, for the trace.
    name: String,
    path: String,
    category: Category,
    counters: Arc<Counters>,
    fixed_capacity_bytes: Option<u64>,
}

/// What a handle is made from.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) disk: Arc<Disk>,
    pub(super) inode: u64,
    pub(super) name: String,
    pub(super) path: String,
    pub(super) category: Category,
    pub(super) counters: Arc<Counters>,
    pub(super) fixed_capacity_bytes: Option<u64>,
}

impl SimFile {
    /// `State::acquire` has counted the handle already, under the lock that found the inode.
    pub(super) fn new(opened: Opened) -> Self {
        let Opened { disk, inode, name, path, category, counters, fixed_capacity_bytes } = opened;
        SimFile { disk, inode, name, path, category, counters, fixed_capacity_bytes }
    }

    fn op(&self, kind: OpKind, offset: u64, len_bytes: u64) -> Op<'_> {
        Op { kind, name: &self.name, category: Some(self.category), offset, len_bytes }
    }

    fn failed(&self, operation: Operation, source: io::Error) -> Error {
        Error::new(operation, self.path.clone(), source)
    }

    fn limit_bytes(&self) -> u64 {
        self.fixed_capacity_bytes.unwrap_or(MAX_LEN_BYTES)
    }

    fn try_read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let state = &mut *self.disk.state.lock();
        state.check_alive()?;
        let number = state.read_count;
        state.read_count += 1;
        let fault = state.faults.take(number, OpKind::Read, Some(self.category));
        if fault == Some(FaultKind::EioOnRead) {
            return Err(eio());
        }
        let live = &state.inode(self.inode)?.live;
        let is_short = fault == Some(FaultKind::ShortRead);
        if is_short || checked_end(offset, buf.len(), live.len_bytes()).is_err() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        live.read(offset, buf);
        if fault == Some(FaultKind::BitFlipOnRead) && !buf.is_empty() {
            let bit = state.random.below(buf.len() as u64 * 8);
            buf[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
        Ok(())
    }

    fn try_write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let end = checked_end(offset, data.len(), self.limit_bytes())?;
        let state = &mut *self.disk.state.lock();
        match state.begin(self.op(OpKind::Write, offset, data.len() as u64))? {
            Some(FaultKind::ShortWrite) => {
                self.write_prefix(state, offset, data)?;
                Err(eio())
            }
            Some(FaultKind::NoSpace) => {
                self.write_prefix(state, offset, data)?;
                Err(no_space())
            }
            Some(FaultKind::LostWrite) => {
                extend(state.inode(self.inode)?, end);
                Ok(())
            }
            Some(FaultKind::MisdirectedWrite) => self.misdirect(state, offset, end, data),
            fault => {
                let fitting = self.fitting_len(state, offset, data.len())?;
                put(state.inode(self.inode)?, offset, &data[..fitting]);
                match fitting < data.len() {
                    true => Err(no_space()),
                    false => State::end(fault),
                }
            }
        }
    }

    fn write_prefix(&self, state: &mut State, offset: u64, data: &[u8]) -> io::Result<()> {
        let prefix_len = state.random.below(data.len() as u64) as usize;
        put(state.inode(self.inode)?, offset, &data[..prefix_len]);
        Ok(())
    }

    fn misdirect(&self, state: &mut State, offset: u64, end: u64, data: &[u8]) -> io::Result<()> {
        let inode = state.inode(self.inode)?;
        extend(inode, end);
        let len_bytes = inode.live.len_bytes();
        let sector_count = len_bytes / SECTOR_BYTES;
        if sector_count < 2 {
            return Ok(());
        }
        let step = 1 + state.random.below(sector_count - 1);
        let sector = (offset / SECTOR_BYTES + step) % sector_count;
        let wrong_offset = sector * SECTOR_BYTES;
        let clipped = (data.len() as u64).min(len_bytes - wrong_offset) as usize;
        put(state.inode(self.inode)?, wrong_offset, &data[..clipped]);
        Ok(())
    }

    /// How much of a write fits on the disk; a real one, too, writes what fits and then fails.
    fn fitting_len(&self, state: &mut State, offset: u64, len: usize) -> io::Result<usize> {
        let free_bytes = state.free_bytes().unwrap_or(u64::MAX);
        let inode = state.inode(self.inode)?;
        if offset + len as u64 <= inode.reserved_bytes {
            return Ok(len);
        }
        Ok(inode.live.fitting_len(offset, len, free_bytes))
    }

    fn try_sync(&self) -> io::Result<()> {
        let state = &mut *self.disk.state.lock();
        let fault = state.begin(self.op(OpKind::Sync, 0, 0))?;
        let inode = state.inode(self.inode)?;
        match fault {
            Some(FaultKind::Crash) => {}
            Some(kind @ (FaultKind::FailedSync | FaultKind::NoSpaceOnSync)) => {
                inode.pending.clear();
                return Err(if kind == FaultKind::FailedSync { eio() } else { no_space() });
            }
            _ => inode.settle(),
        }
        State::end(fault)
    }

    fn try_set_len(&self, len_bytes: u64) -> io::Result<()> {
        checked_end(len_bytes, 0, MAX_LEN_BYTES)?;
        let state = &mut *self.disk.state.lock();
        let fault = state.begin(self.op(OpKind::SetLen, len_bytes, 0))?;
        let inode = self.resizable(state)?;
        inode.reserved_bytes = inode.reserved_bytes.min(len_bytes);
        inode.change(Pending::SetLen(len_bytes));
        State::end(fault)
    }

    fn try_allocate(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
        let state = &mut *self.disk.state.lock();
        let fault = state.begin(self.op(OpKind::Allocate, offset, len_bytes))?;
        let end = offset.saturating_add(len_bytes);
        let taken_bytes = state.inode(self.inode)?.taken_bytes();
        state.check_room(taken_bytes, end)?;
        let inode = state.inode(self.inode)?;
        inode.reserved_bytes = inode.reserved_bytes.max(end);
        State::end(fault)
    }

    fn try_punch(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
        let state = &mut *self.disk.state.lock();
        let fault = state.begin(self.op(OpKind::Punch, offset, len_bytes))?;
        let inode = self.resizable(state)?;
        inode.reserved_bytes = 0;
        inode.change(Pending::Punch { offset, len_bytes });
        State::end(fault)
    }

    /// The inode, if its length and blocks may change.
    fn resizable<'a>(&self, state: &'a mut State) -> io::Result<&'a mut Inode> {
        if self.fixed_capacity_bytes.is_some() {
            return Err(fixed_capacity());
        }
        let inode = state.inode(self.inode)?;
        match inode.mapped_handle_count {
            0 => Ok(inode),
            _ => Err(io::ErrorKind::ResourceBusy.into()),
        }
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let mut state = self.disk.state.lock();
        if let Ok(inode) = state.inode(self.inode) {
            inode.handle_count -= 1;
            inode.mapped_handle_count -= usize::from(self.fixed_capacity_bytes.is_some());
        }
    }
}

impl StorageFile for SimFile {
    /// Hints have no effect here, but callers then take the path that they take on disks.
    fn heeds_hints(&self) -> bool {
        true
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.try_read(offset, buf).map_err(|source| self.failed(Operation::Read, source))?;
        self.counters.read(self.category, buf.len());
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.try_write(offset, data).map_err(|source| self.failed(Operation::Write, source))?;
        self.counters.wrote(self.category, data.len());
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.try_sync().map_err(|source| self.failed(Operation::Sync, source))?;
        self.counters.synced(self.category);
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        let state = &mut *self.disk.state.lock();
        let alive = state.check_alive();
        let inode = alive.and_then(|()| state.inode(self.inode));
        Ok(inode.map_err(|source| self.failed(Operation::Length, source))?.live.len_bytes())
    }

    fn set_len(&self, len_bytes: u64) -> Result<()> {
        self.try_set_len(len_bytes).map_err(|source| self.failed(Operation::SetLen, source))
    }

    fn allocate(&self, offset: u64, len_bytes: u64) -> Result<()> {
        self.try_allocate(offset, len_bytes)
            .map_err(|source| self.failed(Operation::Allocate, source))
    }

    fn punch(&self, offset: u64, len_bytes: u64) -> Result<()> {
        self.try_punch(offset, len_bytes).map_err(|source| self.failed(Operation::Punch, source))
    }
}

impl State {
    /// Counts a handle, so that the inode outlives its name.
    pub(super) fn acquire(&mut self, inode: u64, is_mapped: bool) -> io::Result<()> {
        let inode = self.inode(inode)?;
        inode.handle_count += 1;
        inode.mapped_handle_count += usize::from(is_mapped);
        Ok(())
    }
}

fn put(inode: &mut Inode, offset: u64, data: &[u8]) {
    if !data.is_empty() {
        inode.change(Pending::Write { offset, data: data.into() });
    }
}

fn extend(inode: &mut Inode, end: u64) {
    if end > inode.live.len_bytes() {
        inode.change(Pending::SetLen(end));
    }
}
