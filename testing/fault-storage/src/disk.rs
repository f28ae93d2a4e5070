//! The state of a simulated disk: files, directories, the durable part of both, and the count of
//! operations. `cut.rs` chooses which pending changes survive a power cut.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::fault::{FaultKind, Faults, OpKind};
use crate::image::{Image, PAGE_BYTES};
use runstone_random::Random;
use runstone_storage::Category;
use runstone_storage::support::LockTable;

/// Distinguishes disks of one process, for `location`; plays no part in the simulation.
static NEXT_DISK_ID: AtomicU64 = AtomicU64::new(1);

/// A disk and who holds locks on it.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) id: u64,
    pub(super) state: Mutex<State>,
    pub(super) locks: LockTable,
}

impl Disk {
    pub(super) fn new(state: State) -> Arc<Self> {
        let id = NEXT_DISK_ID.fetch_add(1, Relaxed);
        Arc::new(Disk { id, state: Mutex::new(state), locks: LockTable::default() })
    }
}

/// Everything on the disk. Ordered maps only: a hash order would make runs differ.
#[derive(Debug)]
pub(super) struct State {
    /// Makes the choices of each boot different.
    pub(super) salt: u64,
    pub(super) is_crashed: bool,
    /// Identifies this disk: all its files have this number. A copy made by hand has another one.
    pub(super) copy_number: u64,
    pub(super) random: Random,
    pub(super) faults: Faults,
    pub(super) op_count: u64,
    pub(super) read_count: u64,
    pub(super) trace_hash: u64,
    pub(super) capacity_bytes: Option<u64>,
    /// The most handles that may be open at a time, like the descriptors of a process.
    pub(super) most_handles: Option<usize>,
    /// Whether reservations of space do nothing.
    pub(super) reserves_nothing: bool,
    pub(super) handle_count: usize,
    pub(super) next_inode: u64,
    pub(super) inodes: BTreeMap<u64, Inode>,
    pub(super) directories: BTreeMap<PathBuf, Directory>,
}

/// A file, with or without a name.
#[derive(Clone, Debug)]
pub(super) struct Inode {
    pub(super) category: Category,
    /// What a power cut keeps for certain.
    pub(super) synced: Image,
    /// The content that readers see.
    pub(super) live: Image,
    /// Changes that may or may not be on the disk, in the order in which they were made.
    pub(super) pending: Vec<Pending>,
    /// Made by `create_mapped`: the kernel writes its pages back one by one.
    pub(super) is_mapped: bool,
    /// Space that is reserved, whether written or not.
    pub(super) reserved_bytes: u64,
    pub(super) handle_count: usize,
    pub(super) mapped_handle_count: usize,
}

/// A change to a file's content since its last sync.
#[derive(Clone, Debug)]
pub(super) enum Pending {
    Write { offset: u64, data: Arc<[u8]> },
    SetLen(u64),
    Punch { offset: u64, len_bytes: u64 },
}

#[derive(Clone, Debug, Default)]
pub(super) struct Directory {
    pub(super) synced: BTreeMap<String, u64>,
    pub(super) live: BTreeMap<String, u64>,
    pub(super) pending: Vec<EntryOp>,
}

/// A change to a directory since its last sync.
#[derive(Clone, Debug)]
pub(super) enum EntryOp {
    Link { name: String, inode: u64 },
    Unlink { name: String },
    Rename { from: String, to: String },
}

/// An operation as the trace and the faults see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Op<'a> {
    pub(super) kind: OpKind,
    pub(super) name: &'a str,
    pub(super) category: Option<Category>,
    pub(super) offset: u64,
    pub(super) len_bytes: u64,
}

impl State {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let salt = random.draw() ^ random.draw();
        State {
            salt,
            is_crashed: false,
            copy_number: 0,
            random,
            faults: Faults::default(),
            op_count: 0,
            read_count: 0,
            trace_hash: FNV_START,
            capacity_bytes: None,
            most_handles: None,
            reserves_nothing: false,
            handle_count: 0,
            next_inode: 1,
            inodes: BTreeMap::new(),
            directories: BTreeMap::from([(PathBuf::new(), Directory::default())]),
        }
    }

    /// A disk with the same capacity and nothing on it, as the next boot finds it.
    pub(super) fn next_boot(&self, seed: u64) -> Self {
        let mut next = State::new(seed ^ self.salt);
        next.capacity_bytes = self.capacity_bytes;
        next.most_handles = self.most_handles;
        next.reserves_nothing = self.reserves_nothing;
        next.copy_number = self.copy_number;
        next.next_inode = self.next_inode;
        next
    }

    pub(super) fn check_alive(&self) -> io::Result<()> {
        match self.is_crashed {
            true => Err(crashed()),
            false => Ok(()),
        }
    }

    /// Counts and traces an operation and finds its fault. Faults that need no knowledge of the
    /// operation end it here. The caller acts on the fault that is returned, and passes it to
    /// [`State::end`] after the operation took effect.
    pub(super) fn begin(&mut self, op: Op<'_>) -> io::Result<Option<FaultKind>> {
        self.check_alive()?;
        let number = self.op_count;
        self.op_count += 1;
        self.trace(op);
        match self.faults.take(number, op.kind, op.category) {
            Some(FaultKind::Eio) if matches!(op.kind, OpKind::Sync | OpKind::WriteBack) => {
                Ok(Some(FaultKind::FailedSync))
            }
            Some(FaultKind::Eio | FaultKind::FailedDirSync | FaultKind::FailedRemove) => Err(eio()),
            Some(FaultKind::NoSpace) if op.kind != OpKind::Write => Err(no_space()),
            Some(FaultKind::Crash) => {
                self.is_crashed = true;
                Ok(Some(FaultKind::Crash))
            }
            fault => Ok(fault),
        }
    }

    /// The result of an operation that took effect.
    pub(super) fn end(fault: Option<FaultKind>) -> io::Result<()> {
        match fault {
            Some(FaultKind::Crash) => Err(crashed()),
            _ => Ok(()),
        }
    }

    /// FNV-1a over the operation. It covers the length of the data and not its bytes, because the
    /// images show those.
    fn trace(&mut self, op: Op<'_>) {
        let numbers = [op.kind as u64, op.offset, op.len_bytes, op.name.len() as u64];
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes()).chain(op.name.bytes());
        for byte in bytes {
            self.trace_hash = (self.trace_hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME);
        }
    }

    pub(super) fn inode(&mut self, id: u64) -> io::Result<&mut Inode> {
        self.inodes.get_mut(&id).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub(super) fn directory(&mut self, place: &Path) -> &mut Directory {
        self.directories.entry(place.to_path_buf()).or_default()
    }

    /// The inode of a name as readers see it.
    pub(super) fn lookup(&mut self, place: &Path, name: &str) -> io::Result<u64> {
        self.directory(place).live.get(name).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Space that files use: whole pages, or the space that they reserved. A removed file uses its
    /// space as long as it is open.
    pub(super) fn used_bytes(&self) -> u64 {
        let linked: BTreeSet<u64> = self
            .directories
            .values()
            .flat_map(|directory| directory.live.values().copied())
            .collect();
        self.inodes
            .iter()
            .filter(|(id, inode)| inode.handle_count > 0 || linked.contains(id))
            .map(|(_, inode)| inode.taken_bytes())
            .sum()
    }

    pub(super) fn free_bytes(&self) -> Option<u64> {
        Some(self.capacity_bytes?.saturating_sub(self.used_bytes()))
    }

    /// Fails if a file that now uses `taken_bytes` cannot grow to `wanted_bytes`.
    pub(super) fn check_room(&self, taken_bytes: u64, wanted_bytes: u64) -> io::Result<()> {
        let more_bytes = wanted_bytes.saturating_sub(taken_bytes);
        match self.free_bytes() {
            Some(free_bytes) if more_bytes > free_bytes => Err(no_space()),
            _ => Ok(()),
        }
    }

    /// Fails if no further file can be opened.
    pub(super) fn check_handles(&self) -> io::Result<()> {
        match self.most_handles.is_some_and(|most| self.handle_count >= most) {
            true => Err(io::Error::from_raw_os_error(EMFILE)),
            false => Ok(()),
        }
    }

    /// Forgets files that no name, durable or not, and no handle leads to.
    pub(super) fn collect_garbage(&mut self) {
        let mut reachable = BTreeSet::new();
        for directory in self.directories.values() {
            reachable.extend(directory.synced.values().copied());
            reachable.extend(directory.live.values().copied());
            reachable.extend(directory.pending.iter().filter_map(|op| match op {
                EntryOp::Link { inode, .. } => Some(*inode),
                _ => None,
            }));
        }
        self.inodes.retain(|id, inode| inode.handle_count > 0 || reachable.contains(id));
    }
}

impl Inode {
    pub(super) fn new(category: Category) -> Self {
        Inode {
            category,
            synced: Image::default(),
            live: Image::default(),
            pending: Vec::new(),
            is_mapped: false,
            reserved_bytes: 0,
            handle_count: 0,
            mapped_handle_count: 0,
        }
    }

    pub(super) fn taken_bytes(&self) -> u64 {
        self.live.allocated_bytes().max(self.reserved_bytes.next_multiple_of(PAGE_BYTES))
    }

    /// Applies a change: readers see it, and it may reach the disk.
    pub(super) fn change(&mut self, change: Pending) {
        change.apply(&mut self.live);
        self.pending.push(change);
    }

    /// Makes the changes durable. The durable image is not a copy of the live one: after a failed
    /// sync they differ for good.
    pub(super) fn settle(&mut self) {
        for change in self.pending.drain(..) {
            change.apply(&mut self.synced);
        }
    }
}

impl Pending {
    pub(super) fn apply(&self, image: &mut Image) {
        match self {
            Pending::Write { offset, data } => image.write(*offset, data),
            Pending::SetLen(len_bytes) => image.set_len(*len_bytes),
            Pending::Punch { offset, len_bytes } => image.punch(*offset, *len_bytes),
        }
    }
}

impl Directory {
    /// Applies a change: readers see it, and it may reach the disk.
    pub(super) fn change(&mut self, op: EntryOp) {
        op.apply(&mut self.live);
        self.pending.push(op);
    }

    pub(super) fn settle(&mut self) {
        self.pending.clear();
        self.synced = self.live.clone();
    }
}

impl EntryOp {
    pub(super) fn apply(&self, entries: &mut BTreeMap<String, u64>) {
        match self {
            EntryOp::Link { name, inode } => {
                entries.insert(name.clone(), *inode);
            }
            EntryOp::Unlink { name } => {
                entries.remove(name);
            }
            EntryOp::Rename { from, to } => {
                if let Some(inode) = entries.remove(from) {
                    entries.insert(to.clone(), inode);
                }
            }
        }
    }

    /// The names that the operation changes.
    pub(super) fn names(&self) -> [&str; 2] {
        match self {
            EntryOp::Link { name, .. } | EntryOp::Unlink { name } => [name, name],
            EntryOp::Rename { from, to } => [from, to],
        }
    }
}

const FNV_START: u64 = 0xCBF2_9CE4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01B3;
const EIO: i32 = 5;
const EMFILE: i32 = 24;

pub(super) fn crashed() -> io::Error {
    io::Error::other("simulated crash")
}

pub(super) fn eio() -> io::Error {
    io::Error::from_raw_os_error(EIO)
}

pub(super) fn no_space() -> io::Error {
    io::ErrorKind::StorageFull.into()
}
