//! An open file of the simulated disk: what each operation does to the live bytes and the pending
//! list, with and without a fault.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::disk::{Disk, Inode, Op, Pending, State, eio, no_space};
use crate::fault::{FaultKind, OpKind};
use runstone_storage::support::checked_end;
use runstone_storage::support::{Handle, check_len};
use runstone_storage::{Operation, Result, StorageFile};

const SECTOR_BYTES: u64 = 512;

/// A handle. It dies with its disk and follows the inode, not the name. `State::acquire` counts it,
/// under the lock that finds the inode.
#[derive(Debug)]
pub(super) struct SimFile {
    pub(super) disk: Arc<Disk>,
    pub(super) inode: u64,
    /// The name at opening, for the trace.
    pub(super) name: String,
    pub(super) handle: Handle,
}

impl SimFile {
    fn op(&self, kind: OpKind, offset: u64, len_bytes: u64) -> Op<'_> {
        Op { kind, name: &self.name, category: Some(self.handle.category), offset, len_bytes }
    }

    fn try_read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let state = &mut *self.disk.state.lock();
        state.check_alive()?;
        let number = state.read_count;
        state.read_count += 1;
        let fault = state.faults.take(number, OpKind::Read, Some(self.handle.category));
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
        let end = self.handle.end_of_write(offset, data.len())?;
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

    /// How much of a write fits on the disk. A real disk, too, writes what fits and then fails.
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

    /// Data written back may survive a power cut, like anything pending. So a write-back only
    /// counts as an operation, and may have a fault.
    fn try_write_back(&self, begin: &Range<u64>, wait_for: &Range<u64>) -> io::Result<()> {
        let state = &mut *self.disk.state.lock();
        let range = if begin.is_empty() { wait_for } else { begin };
        let len_bytes = range.end.saturating_sub(range.start);
        match state.begin(self.op(OpKind::WriteBack, range.start, len_bytes))? {
            Some(kind @ (FaultKind::FailedSync | FaultKind::NoSpaceOnSync)) => {
                state.inode(self.inode)?.pending.clear();
                Err(if kind == FaultKind::FailedSync { eio() } else { no_space() })
            }
            fault => State::end(fault),
        }
    }

    fn try_set_len(&self, len_bytes: u64) -> io::Result<()> {
        check_len(len_bytes)?;
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
        if state.reserves_nothing {
            return State::end(fault);
        }
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
        self.handle.check_resizable()?;
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
        state.handle_count -= 1;
        if let Ok(inode) = state.inode(self.inode) {
            inode.handle_count -= 1;
            inode.mapped_handle_count -= usize::from(self.handle.fixed_capacity_bytes.is_some());
        }
    }
}

impl StorageFile for SimFile {
    /// Hints have no effect here, but callers then take the same path as on real disks.
    fn heeds_hints(&self) -> bool {
        true
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.handle.read(buf.len(), self.try_read(offset, buf))
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.handle.wrote(data.len(), self.try_write(offset, data))
    }

    fn is_mapped(&self) -> bool {
        self.handle.fixed_capacity_bytes.is_some()
    }

    fn sync(&self) -> Result<()> {
        self.handle.synced(self.try_sync())
    }

    fn write_back(&self, begin: Range<u64>, wait_for: Range<u64>) -> Result<()> {
        self.handle.wrote_back(self.try_write_back(&begin, &wait_for))
    }

    fn len(&self) -> Result<u64> {
        let state = &mut *self.disk.state.lock();
        let inode = state.check_alive().and_then(|()| state.inode(self.inode));
        Ok(self.handle.result(Operation::Length, inode)?.live.len_bytes())
    }

    fn set_len(&self, len_bytes: u64) -> Result<()> {
        self.handle.result(Operation::SetLen, self.try_set_len(len_bytes))
    }

    fn allocate(&self, offset: u64, len_bytes: u64) -> Result<()> {
        self.handle.result(Operation::Allocate, self.try_allocate(offset, len_bytes))
    }

    fn can_reserve(&self) -> bool {
        !self.disk.state.lock().reserves_nothing
    }

    fn punch(&self, offset: u64, len_bytes: u64) -> Result<()> {
        self.handle.result(Operation::Punch, self.try_punch(offset, len_bytes))
    }
}

impl State {
    /// Counts a handle, so that the inode outlives its name.
    pub(super) fn acquire(&mut self, inode: u64, is_mapped: bool) -> io::Result<()> {
        let inode = self.inode(inode)?;
        inode.handle_count += 1;
        inode.mapped_handle_count += usize::from(is_mapped);
        self.handle_count += 1;
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
