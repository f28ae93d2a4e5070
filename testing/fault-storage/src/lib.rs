//! A disk that loses power, for tests: synced data is kept; unsynced data is kept, dropped, torn or
//! reordered, by seed. It is deterministic: equal seeds and equal calls give equal bytes. It is not
//! a model of speed.
//!
//! * `disk.rs`: files and directories, durable and live, and the counts of operations;
//! * `file.rs`: an open file; `fault.rs`: faults and when they fire; `cut.rs`: the power cut;
//! * `image.rs`: sparse bytes; `forward.rs`: for storages that wrap another one.

mod cut;
mod disk;
mod fault;
mod file;
mod forward;
mod image;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use cut::CrashReport;
pub use fault::{Fault, FaultKind};

use disk::{Directory, Disk, EntryOp, Inode, Op, Pending, State};
use fault::OpKind;
use file::SimFile;
use runstone_storage::support::{Handle, check_name, copy_into};
use runstone_storage::{
    Category, Counters, Error, FileInfo, LockMode, Operation, Result, Storage, StorageFile,
    StorageLock,
};

/// A directory of a simulated disk. Clones share the disk, and so do siblings: a power cut hits all
/// of them at once.
///
/// The disk lives until a crash: an injected one, [`SimStorage::power_cut`] or
/// [`SimStorage::process_crash`]. From then on every operation fails, on every handle. Either call
/// makes a new disk and can be repeated on the dead one, so that many seeds can decide what one
/// crash leaves.
#[derive(Clone, Debug)]
pub struct SimStorage {
    disk: Arc<Disk>,
    place: PathBuf,
    counters: Arc<Counters>,
}

impl SimStorage {
    /// An empty disk. The seed chooses the details of faults.
    pub fn new(seed: u64) -> Self {
        Self::on(State::new(seed), PathBuf::new())
    }

    fn on(state: State, place: PathBuf) -> Self {
        SimStorage { disk: Disk::new(state), place, counters: Arc::default() }
    }

    /// The storage that `create_sibling` made at `path`, with counters of its own.
    pub fn open_sibling(&self, path: &Path) -> Option<SimStorage> {
        self.disk.state.lock().directories.contains_key(path).then(|| self.sibling(path))
    }

    fn sibling(&self, path: &Path) -> SimStorage {
        let (disk, place) = (Arc::clone(&self.disk), path.to_path_buf());
        SimStorage { disk, place, counters: Arc::default() }
    }

    /// Number of operations so far that change or sync something, on the whole disk: create, write,
    /// sync, write-back, directory sync, rename, remove, `set_len`, `punch`, `allocate`, link.
    /// Failed ones count.
    pub fn ops(&self) -> u64 {
        self.disk.state.lock().op_count
    }

    /// Number of reads so far, on the whole disk.
    pub fn reads(&self) -> u64 {
        self.disk.state.lock().read_count
    }

    /// A hash of every operation counted by [`SimStorage::ops`]: kind, name, offset, length.
    pub fn ops_trace_hash(&self) -> u64 {
        self.disk.state.lock().trace_hash
    }

    /// Arms a fault. Several may be armed.
    pub fn inject(&self, fault: Fault) {
        self.disk.state.lock().faults.arm(fault);
    }

    /// Disarms every fault; those that fired stay listed.
    pub fn clear_faults(&self) {
        self.disk.state.lock().faults.disarm_all();
    }

    /// The faults that fired, each once, so that a test can check that its fault fired.
    pub fn fired(&self) -> Vec<Fault> {
        self.disk.state.lock().faults.fired()
    }

    /// Limits the capacity of the disk, or lifts the limit. Blocks of 4 KiB and reservations use
    /// space, holes do not. Of a write that does not fit, the blocks that fit are written.
    pub fn set_capacity_bytes(&self, capacity_bytes: Option<u64>) {
        self.disk.state.lock().capacity_bytes = capacity_bytes;
    }

    /// Makes the disk one that reserves no space, as file systems that write to new blocks only.
    pub fn reserve_nothing(&self) {
        self.disk.state.lock().reserves_nothing = true;
    }

    /// Limits how many handles may be open at a time, or lifts the limit. A further open or create
    /// fails as in a process that has no descriptor left.
    pub fn set_most_handles(&self, most_handles: Option<usize>) {
        self.disk.state.lock().most_handles = most_handles;
    }

    /// How many handles are open.
    pub fn handle_count(&self) -> usize {
        self.disk.state.lock().handle_count
    }

    /// Cuts the power. This disk is dead. The returned disk has the data that the seed let survive,
    /// no armed faults, and all counts at zero. A copy of the disk of a running machine looks the
    /// same.
    pub fn power_cut(&self, seed: u64) -> (SimStorage, CrashReport) {
        let mut state = self.disk.state.lock();
        state.is_crashed = true;
        let (next, report) = cut::power_cut(&state, seed);
        (Self::on(next, self.place.clone()), report)
    }

    /// Kills the process but not the machine: everything written is still there and still pending.
    /// Handles and locks are gone, faults are disarmed, and the counts are zero.
    pub fn process_crash(&self) -> SimStorage {
        let mut state = self.disk.state.lock();
        state.is_crashed = true;
        Self::on(Self::all_of(&state), self.place.clone())
    }

    /// Copies all files as `cp -r` does: into new files, while nobody writes. All files of the copy
    /// have this number, see [`Storage::file_number`].
    pub fn copy_by_hand(&self, number: u64) -> SimStorage {
        let mut next = Self::all_of(&self.disk.state.lock());
        next.copy_number = number;
        Self::on(next, self.place.clone())
    }

    fn all_of(state: &State) -> State {
        let mut next = state.next_boot(state.op_count);
        next.salt = state.salt;
        next.directories = state.directories.clone();
        next.inodes = state.inodes.clone();
        for inode in next.inodes.values_mut() {
            inode.handle_count = 0;
            inode.mapped_handle_count = 0;
        }
        next.collect_garbage();
        next
    }

    /// The bytes of a file as readers see them. This is not an operation, and works on a dead disk.
    pub fn read_all(&self, name: &str) -> Result<Vec<u8>> {
        self.with_inode(Operation::Read, name, |inode| inode.live.to_vec())
    }

    /// Replaces the bytes of a file, on the disk and for readers. Like all damage, this is not an
    /// operation.
    pub fn overwrite(&self, name: &str, bytes: &[u8]) -> Result<()> {
        self.with_inode(Operation::Write, name, |inode| {
            inode.settle();
            inode.live.set_len(0);
            inode.live.write(0, bytes);
            inode.synced = inode.live.clone();
        })
    }

    /// Flips one bit of a file, on the disk and for readers. Past the end it is an error.
    pub fn flip_bit(&self, name: &str, byte_offset: u64, bit: u8) -> Result<()> {
        let mut bytes = self.read_all(name)?;
        let Some(byte) = usize::try_from(byte_offset).ok().and_then(|at| bytes.get_mut(at)) else {
            return Err(self.failed(Operation::Write, name, io::ErrorKind::UnexpectedEof.into()));
        };
        *byte ^= 1 << (bit % 8);
        self.overwrite(name, &bytes)
    }

    /// Cuts or zero-extends a file, on the disk and for readers.
    pub fn truncate(&self, name: &str, len_bytes: u64) -> Result<()> {
        self.with_inode(Operation::SetLen, name, |inode| {
            inode.settle();
            inode.live.set_len(len_bytes);
            inode.synced.set_len(len_bytes);
        })
    }

    fn with_inode<T>(
        &self,
        operation: Operation,
        name: &str,
        f: impl FnOnce(&mut Inode) -> T,
    ) -> Result<T> {
        self.run(operation, name, |state| {
            let id = state.lookup(&self.place, name)?;
            state.inode(id).map(f)
        })
    }

    /// Runs an operation of the disk and adds its context to an error.
    fn run<T>(
        &self,
        operation: Operation,
        name: &str,
        f: impl FnOnce(&mut State) -> io::Result<T>,
    ) -> Result<T> {
        let done = f(&mut self.disk.state.lock());
        done.map_err(|source| self.failed(operation, name, source))
    }

    fn failed(&self, operation: Operation, name: &str, source: io::Error) -> Error {
        Error::new(operation, self.path_text(name), source)
    }

    fn path_text(&self, name: &str) -> String {
        format!("sim{}:{}", self.disk.id, self.place.join(name).display())
    }

    fn file(
        &self,
        name: &str,
        category: Category,
        inode: u64,
        fixed_capacity_bytes: Option<u64>,
    ) -> Arc<dyn StorageFile> {
        let (path, counters) = (self.path_text(name), Arc::clone(&self.counters));
        let handle = Handle { path, category, counters, fixed_capacity_bytes };
        let (disk, name) = (Arc::clone(&self.disk), name.to_string());
        Arc::new(SimFile { disk, inode, name, handle })
    }

    fn create_file(
        &self,
        name: &str,
        category: Category,
        capacity_bytes: Option<u64>,
    ) -> Result<Arc<dyn StorageFile>> {
        check_name(Operation::Create, name)?;
        let create = |state: &mut State| self.try_create(state, name, category, capacity_bytes);
        let inode = self.run(Operation::Create, name, create)?;
        Ok(self.file(name, category, inode, capacity_bytes))
    }

    /// Creates an entry with a fresh inode, reserved to `capacity_bytes` if it is to be mapped.
    fn try_create(
        &self,
        state: &mut State,
        name: &str,
        category: Category,
        capacity_bytes: Option<u64>,
    ) -> io::Result<u64> {
        state.check_handles()?;
        let kind = if capacity_bytes.is_some() { OpKind::CreateMapped } else { OpKind::Create };
        let len_bytes = capacity_bytes.unwrap_or(0);
        let fault =
            state.begin(Op { kind, name, category: Some(category), offset: 0, len_bytes })?;
        if state.directory(&self.place).live.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.check_room(0, len_bytes)?;
        let mut inode = Inode::new(category);
        if let Some(capacity_bytes) = capacity_bytes {
            inode.is_mapped = true;
            inode.reserved_bytes = capacity_bytes;
            inode.change(Pending::SetLen(capacity_bytes));
        }
        let id = state.next_inode;
        state.next_inode += 1;
        state.inodes.insert(id, inode);
        state.directory(&self.place).change(EntryOp::Link { name: name.to_string(), inode: id });
        State::end(fault)?;
        state.acquire(id, capacity_bytes.is_some())?;
        Ok(id)
    }

    /// Runs an operation on an existing name: counts it, and applies `change` to the directory.
    fn try_change(
        &self,
        state: &mut State,
        kind: OpKind,
        name: &str,
        change: EntryOp,
    ) -> io::Result<()> {
        let category = match state.lookup(&self.place, name) {
            Ok(id) => state.inodes.get(&id).map(|inode| inode.category),
            Err(_) => None,
        };
        let trace_name = change.names().join("/");
        let op = Op { kind, name: &trace_name, category, offset: 0, len_bytes: 0 };
        let fault = state.begin(op)?;
        state.lookup(&self.place, name)?;
        state.directory(&self.place).change(change);
        State::end(fault)
    }

    fn try_sync_dir(&self, state: &mut State) -> io::Result<()> {
        let op = Op { kind: OpKind::SyncDir, name: "", category: None, offset: 0, len_bytes: 0 };
        let fault = state.begin(op)?;
        State::end(fault)?;
        state.directory(&self.place).settle();
        state.collect_garbage();
        Ok(())
    }

    /// Gives the file a second name in another directory of the same disk.
    fn try_link(
        &self,
        state: &mut State,
        name: &str,
        category: Category,
        target: &Path,
    ) -> io::Result<()> {
        let (kind, category) = (OpKind::Link, Some(category));
        let fault = state.begin(Op { kind, name, category, offset: 0, len_bytes: 0 })?;
        let inode = state.lookup(&self.place, name)?;
        let directory = state.directory(target);
        if directory.live.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        directory.change(EntryOp::Link { name: name.to_string(), inode });
        State::end(fault)
    }

    /// The directory of `target` if it is on this disk. It is found by its location, which names
    /// the disk: a trait object does not reveal its type.
    fn place_on_this_disk(&self, target: &dyn Storage) -> Option<PathBuf> {
        let location = target.location();
        let place = Path::new(location.strip_prefix(&format!("sim{}:", self.disk.id))?);
        let state = self.disk.state.lock();
        state.directories.keys().find(|known| known.as_path() == place).cloned()
    }
}

impl Storage for SimStorage {
    fn create(&self, name: &str, category: Category) -> Result<Arc<dyn StorageFile>> {
        self.create_file(name, category, None)
    }

    fn create_mapped(
        &self,
        name: &str,
        category: Category,
        capacity_bytes: u64,
    ) -> Result<Arc<dyn StorageFile>> {
        self.create_file(name, category, Some(capacity_bytes))
    }

    fn open(&self, name: &str, category: Category) -> Result<Arc<dyn StorageFile>> {
        check_name(Operation::Open, name)?;
        let inode = self.run(Operation::Open, name, |state| {
            state.check_alive()?;
            let id = state.lookup(&self.place, name)?;
            state.check_handles()?;
            state.acquire(id, false)?;
            Ok(id)
        })?;
        Ok(self.file(name, category, inode, None))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        check_name(Operation::Rename, from)?;
        check_name(Operation::Rename, to)?;
        let change = EntryOp::Rename { from: from.to_string(), to: to.to_string() };
        let rename = |state: &mut State| self.try_change(state, OpKind::Rename, from, change);
        self.run(Operation::Rename, from, rename)?;
        self.disk.locks.replace(&self.path_text(to));
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<()> {
        check_name(Operation::Remove, name)?;
        let change = EntryOp::Unlink { name: name.to_string() };
        let remove = |state: &mut State| self.try_change(state, OpKind::Remove, name, change);
        self.run(Operation::Remove, name, remove)
    }

    fn list(&self) -> Result<Vec<FileInfo>> {
        self.run(Operation::List, "", |state| {
            state.check_alive()?;
            let live = state.directories.get(&self.place).map(|directory| &directory.live);
            let info = |(name, id): (&String, &u64)| {
                let len_bytes = state.inodes.get(id).map_or(0, |inode| inode.live.len_bytes());
                FileInfo { name: name.clone(), len_bytes }
            };
            Ok(live.into_iter().flatten().map(info).collect())
        })
    }

    fn sync_dir(&self) -> Result<()> {
        self.run(Operation::SyncDir, "", |state| self.try_sync_dir(state))
    }

    fn file_number(&self, _name: &str) -> u64 {
        self.disk.state.lock().copy_number
    }

    /// The lock is held in a table of the disk; no file appears.
    fn lock(&self, name: &str, mode: LockMode) -> Result<Option<Box<dyn StorageLock>>> {
        check_name(Operation::Lock, name)?;
        self.run(Operation::Lock, name, |state| state.check_alive())?;
        Ok(self.disk.locks.take(self.path_text(name), mode))
    }

    /// The directory itself is durable at once, as `PosixStorage` makes it.
    fn create_sibling(&self, path: &Path) -> Result<Arc<dyn Storage>> {
        let state = &mut *self.disk.state.lock();
        let failed = |source| Error::new(Operation::Create, path.display().to_string(), source);
        state.check_alive().map_err(failed)?;
        let directory: &mut Directory = state.directory(path);
        if !directory.live.is_empty() {
            return Err(failed(io::ErrorKind::AlreadyExists.into()));
        }
        Ok(Arc::new(self.sibling(path)))
    }

    fn link_into(&self, name: &str, category: Category, target: &dyn Storage) -> Result<()> {
        check_name(Operation::Link, name)?;
        match self.place_on_this_disk(target) {
            Some(place) => self
                .run(Operation::Link, name, |state| self.try_link(state, name, category, &place)),
            None => copy_into(self, name, category, target),
        }
    }

    fn free_bytes(&self) -> Option<u64> {
        self.disk.state.lock().free_bytes()
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn location(&self) -> String {
        self.path_text("")
    }
}
