//! The files that a copy of a store needs, as of one moment. They are found while another process
//! writes to them, without a flush and without a lock for which a writer could wait.
//!
//! The manifest is read after the log, so it names all values to which the log points. It may be
//! newer than the log, but its flushes and loads are at or below the last record (step 3 of
//! [`super`]).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use runstone_random::mix64;
use runstone_storage::support::copy_into;
use runstone_storage::{Access, Category, PosixStorage, Storage, StorageFile};

use super::Following;
use crate::error::{Error, Result};
use crate::keys::{KeyspaceId, SeqNo};
use crate::lease::holder::LeasePart;
use crate::options::store::Options;
use crate::store::resources::Parts;
use crate::table::handle::file_uid;
use crate::table::table_name;
use crate::tree::manifest::{KeyspaceState, Manifest, StoreState};
use crate::values::file::{FIRST_SLOT, header, values_name};
use crate::values::layout::{Layout, Segment};
use crate::wal::note::NotedKeyspace;
use crate::wal::segments::segment_name;

/// Memory for reading; a cut keeps no writes.
const BUDGET_BYTES: u64 = 16 << 20;

/// The files of a store as of one moment. They stay as long as this value exists.
#[derive(Debug)]
pub(crate) struct Cut {
    pub(crate) storage: Arc<dyn Storage>,
    /// The state that the manifest describes.
    pub(crate) state: StoreState,
    /// The last write.
    pub(crate) last_seq: SeqNo,
    /// The segments of the log, each with the number of bytes to copy.
    pub(crate) log: Vec<(u64, u64)>,
    /// Records to which only the log points, in order of files and places.
    early: Vec<Piece>,
    lease: Option<LeasePart>,
}

/// How a copy gets the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tables {
    /// As hard links where both places are on one file system.
    Linked,
    /// As files of its own.
    Copied,
}

/// A piece of a value file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Piece {
    /// Number of the file.
    pub(crate) file: u64,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// The storage of a store in a directory: for reading, and for leases.
pub(crate) fn open(path: &Path) -> Result<(Arc<dyn Storage>, Arc<dyn Storage>)> {
    let [reads, leases] = open_both(path)?;
    Ok((Arc::new(reads), Arc::new(leases)))
}

/// The same, in a process that opens many stores.
pub(super) fn open_one_of_many(path: &Path) -> Result<(Arc<dyn Storage>, Arc<dyn Storage>)> {
    let [reads, leases] = open_both(path)?.map(PosixStorage::with_few_descriptors);
    Ok((Arc::new(reads), Arc::new(leases)))
}

fn open_both(path: &Path) -> Result<[PosixStorage; 2]> {
    let open = |access| match PosixStorage::open(path, access) {
        Err(error) if error.is_not_found() => {
            Err(Error::NotAStore { path: path.display().to_string() })
        }
        opened => Ok(opened?),
    };
    Ok([open(Access::ReadOnly)?, open(Access::MustExist)?])
}

impl Cut {
    /// Takes a cut of a store as of now. O(bytes of the log).
    pub(crate) fn take(storage: Arc<dyn Storage>, leases: &Arc<dyn Storage>) -> Result<Cut> {
        Cut::take_with(storage, Some(leases))
    }

    /// Does the same for a caller who keeps the files.
    pub(crate) fn take_held(storage: Arc<dyn Storage>) -> Result<Cut> {
        Cut::take_with(storage, None)
    }

    fn take_with(storage: Arc<dyn Storage>, leases: Option<&Arc<dyn Storage>>) -> Result<Cut> {
        let options = Options::default().read_only(true).memory_budget_bytes(BUDGET_BYTES);
        let (both, parts) = ((Arc::clone(&storage), leases), Parts::of(&options));
        let mut following = Following::begin(both, options, parts, false)?;
        following.read_until_whole().map_err(|error| following.explain(error))?;
        following.into_cut(storage)
    }

    /// Returns the outcome of a copy from the files, or an error if the files did not stay until
    /// the copy ended.
    pub(crate) fn judge<T>(&self, copied: Result<T>) -> Result<T> {
        match &self.lease {
            Some(lease) => lease.judge(copied),
            None => copied,
        }
    }

    /// All keyspaces.
    pub(crate) fn keyspaces(&self) -> Vec<NotedKeyspace> {
        noted(&self.state)
    }

    /// The number of every table, and its bytes.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (u64, u64)> {
        let shapes = self.state.keyspaces.values().map(|keyspace| &keyspace.shape);
        shapes.flat_map(|shape| shape.tables()).map(|(_, table)| (table.id, table.bytes))
    }

    /// The layouts of all value files.
    pub(crate) fn layouts(&self) -> impl Iterator<Item = &Layout> {
        self.state.keyspaces.values().flat_map(|keyspace| &keyspace.values)
    }

    /// The first bytes of a value file.
    pub(crate) fn values_header(&self, layout: &Layout) -> Vec<u8> {
        header(layout.slot_bytes, file_uid(self.state.uid, layout.number))
    }
}

/// The keyspaces of a state.
pub(crate) fn noted(state: &StoreState) -> Vec<NotedKeyspace> {
    let describe = |(id, keyspace): (&KeyspaceId, &KeyspaceState)| NotedKeyspace {
        id: *id,
        name: keyspace.name.clone(),
        options: keyspace.options.clone(),
    };
    state.keyspaces.iter().map(describe).collect()
}

/// Where a segment of values is in its file.
pub(crate) fn piece_of(layout: &Layout, segment: &Segment) -> Piece {
    let offset = FIRST_SLOT + u64::from(segment.slot) * u64::from(layout.slot_bytes);
    Piece { file: layout.number, offset, bytes: segment.stored_bytes() }
}

impl Following {
    fn into_cut(self, storage: Arc<dyn Storage>) -> Result<Cut> {
        let lease = self.lease_part()?;
        let mut state = self.manifest.state;
        let last_seq = self.log.last_seq();
        // The manifest was read after the log.
        state.log_synced_seq = state.log_synced_seq.min(last_seq);
        let layouts = state.keyspaces.values().flat_map(|keyspace| &keyspace.values);
        let slot_bytes: BTreeMap<u64, u64> =
            layouts.map(|layout| (layout.number, u64::from(layout.slot_bytes))).collect();
        let early = self.recent.early_records().filter_map(|(file, slot, offset, bytes)| {
            let position = FIRST_SLOT + u64::from(slot) * slot_bytes.get(&file)? + offset;
            Some(Piece { file, offset: position, bytes })
        });
        let mut early: Vec<Piece> = early.collect();
        early.sort_unstable();
        let log = self.log.segments_from(state.log_floor).collect();
        Ok(Cut { storage, state, last_seq, log, early, lease })
    }
}

/// Copies are made in steps of this many bytes.
const STEP_BYTES: u64 = 1 << 20;

/// Copies bytes from one file to a place in another.
pub(crate) fn copy_range(
    from: &dyn StorageFile,
    (mut offset, mut bytes): (u64, u64),
    to: &dyn StorageFile,
    mut target_offset: u64,
    mut see: impl FnMut(&[u8]),
) -> Result<()> {
    while bytes > 0 {
        let step = bytes.min(STEP_BYTES);
        let piece = from.read_vec(offset, step as usize)?;
        see(&piece);
        to.write_at(target_offset, &piece)?;
        (offset, target_offset, bytes) = (offset + step, target_offset + step, bytes - step);
    }
    Ok(())
}

impl Cut {
    /// Writes a store of this moment into an empty storage.
    pub(crate) fn write_store(&self, target: &Arc<dyn Storage>, tables: Tables) -> Result<()> {
        let copied = self.copy_log(target).and_then(|()| self.copy_files(target, tables));
        self.judge(copied)?;
        self.finish_store(target)
    }

    /// Makes a store of the files that were copied.
    pub(crate) fn finish_store(&self, target: &Arc<dyn Storage>) -> Result<()> {
        write_manifest(target, self.state.clone(), self.last_seq)
    }

    /// Copies the log, which the writer continues to change.
    pub(crate) fn copy_log(&self, target: &Arc<dyn Storage>) -> Result<()> {
        for (number, bytes) in &self.log {
            let name = segment_name(*number);
            let from = self.storage.open(&name, Category::Wal)?;
            let file = target.create(&name, Category::Wal)?;
            copy_range(&*from, (0, *bytes), &*file, 0, |_| {})?;
            file.sync()?;
        }
        Ok(())
    }

    /// Links or copies the tables, and copies the values, whose files the writer continues to
    /// change.
    pub(crate) fn copy_files(&self, target: &Arc<dyn Storage>, tables: Tables) -> Result<()> {
        for table in self.tables() {
            copy_table(&*self.storage, table, &**target, tables)?;
        }
        for layout in self.layouts() {
            let file = target.create(&values_name(layout.number), Category::Value)?;
            file.write_at(0, &self.values_header(layout))?;
            let from = self.storage.open(&values_name(layout.number), Category::Value)?;
            for Piece { offset, bytes, .. } in self.pieces(layout) {
                copy_range(&*from, (offset, bytes), &*file, offset, |_| {})?;
            }
            file.sync()?;
        }
        Ok(())
    }

    /// The parts of a value file that a copy needs.
    pub(crate) fn pieces(&self, layout: &Layout) -> impl Iterator<Item = Piece> {
        let segments = layout.groups.iter().flat_map(|group| group.segments.iter());
        let named = segments.map(|segment| piece_of(layout, segment));
        named.chain(self.early_in(layout.number).iter().copied())
    }

    /// The records in a value file to which only the log points. O(log n): there may be 100,000
    /// files and as many records.
    pub(crate) fn early_in(&self, file: u64) -> &[Piece] {
        let begin = self.early.partition_point(|piece| piece.file < file);
        let own = self.early[begin..].partition_point(|piece| piece.file == file);
        &self.early[begin..begin + own]
    }
}

/// Copies or links a table, given by number and bytes. Its content is not read, so links take no
/// longer for more data. A table whose length differs from that in the manifest is refused.
pub(crate) fn copy_table(
    storage: &dyn Storage,
    (id, bytes): (u64, u64),
    target: &dyn Storage,
    tables: Tables,
) -> Result<()> {
    let name = table_name(id);
    let found = storage.open(&name, Category::Table)?.len()?;
    if found != bytes {
        let what = format!("length is {found}, the manifest says {bytes}");
        return Err(Error::corruption(name, found.min(bytes), what));
    }
    match tables {
        Tables::Linked => storage.link_into(&name, Category::Table, target)?,
        Tables::Copied => copy_into(storage, &name, Category::Table, target)?,
    }
    Ok(())
}

/// Writes the manifest of a copy, and makes it current: from then on the copy is a store.
pub(crate) fn write_manifest(
    target: &Arc<dyn Storage>,
    mut state: StoreState,
    last_seq: SeqNo,
) -> Result<()> {
    state.history.fork_copy(last_seq);
    // The log may name manifests, and say how much of each was durable. The new manifest gets a
    // larger number than all of them.
    let number = state.next_file;
    state.next_file += 1;
    let id = mix64(state.uid ^ number.rotate_left(32));
    Manifest::create(Arc::clone(target), number, id, &state)?.switch_current()
}
