//! Reads the manifest while another process appends to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use runstone_policy::shape::{Placement, SeqNo, Table};
use runstone_storage::Storage;

use crate::error::{Error, Gone, Result};
use crate::keys::KeyspaceId;
use crate::log::{LogReader, Next};
use crate::tree::history::History;
use crate::tree::manifest::{
    CURRENT, Current, StoreState, apply_record, manifest_name, open_manifest, read_current,
};
use crate::tree::record::Change;
use crate::tree::replay::Replay;

/// A manifest, read up to some edit.
#[derive(Debug)]
pub struct ManifestTail {
    storage: Arc<dyn Storage>,
    number: u64,
    /// The content of `CURRENT` when it was last read, and the number of the manifest's file.
    named: (Current, u64),
    reader: LogReader,
    /// The offset of a record that does not fit, and the reason. After such a record nothing more
    /// is read: the state lacks the changes of that record, and perhaps of earlier ones.
    refused: Option<(u64, String)>,
    /// The state after the edits that were read.
    pub state: StoreState,
    /// The keyspaces that these edits changed and that were not returned to the caller yet.
    changed: BTreeSet<KeyspaceId>,
    /// The tables whose entries all have the same sequence number, by that number, as they were
    /// added to the tree. A load makes such tables. `None` unless somebody watches loads.
    loads: Option<Loads>,
}

type Loads = BTreeMap<SeqNo, Vec<Arc<Table>>>;

/// How many times the tail tries to open the manifest in force, because the writer may be replacing
/// it at that moment.
const MOST_LOOKS: usize = 16;

impl ManifestTail {
    /// Reads the manifest in force.
    pub fn open(storage: &Arc<dyn Storage>) -> Result<ManifestTail> {
        for _ in 0..MOST_LOOKS {
            let not_a_store = || Error::NotAStore { path: storage.location() };
            let current = read_current(&**storage)?.ok_or_else(not_a_store)?;
            let reader = match open_manifest(&**storage, current.number) {
                // The writer has switched to another manifest since.
                Err(_) if read_current(&**storage)?.is_some_and(|now| now > current) => continue,
                opened => opened?,
            };
            let (storage, number) = (Arc::clone(storage), current.number);
            let named = (current, storage.file_number(&manifest_name(number)));
            let (state, changed) = (StoreState::default(), BTreeSet::new());
            let (refused, loads) = (None, None);
            let mut tail =
                ManifestTail { storage, number, named, reader, refused, state, changed, loads };
            tail.read(current.least_bytes)?;
            if tail.state.log_start_seq == 0 {
                let what = "no record says where the log is";
                return Err(Error::corruption(
                    manifest_name(number),
                    tail.place().least_bytes,
                    what,
                ));
            }
            return Ok(tail);
        }
        Err(Error::corruption(CURRENT, 0, "it names manifests that are not there"))
    }

    /// From now on, notes the tables of loads. Those that are in the tree already are noted too.
    pub fn watch_loads(&mut self) {
        self.loads = Some(self.loads_of_state());
    }

    fn loads_of_state(&self) -> Loads {
        let mut loads = Loads::new();
        let shapes = self.state.keyspaces.values().map(|keyspace| &keyspace.shape);
        for shape in shapes {
            for (_, table) in shape.tables() {
                // A table that shows only a part of its keys is no longer as the load made it.
                if table.min_seq == table.max_seq && !shape.trims.contains_key(&table.id) {
                    loads.entry(table.max_seq).or_default().push(Arc::clone(table));
                }
            }
        }
        loads
    }

    /// The tables that were added to the tree with only this sequence number, in the order of their
    /// keys.
    pub fn loaded(&self, seq: SeqNo) -> Vec<Arc<Table>> {
        let tables = self.loads.iter().find_map(|loads| loads.get(&seq));
        let mut tables = tables.cloned().unwrap_or_default();
        tables.sort_by(|a, b| a.min_key.cmp(&b.min_key));
        tables
    }

    /// Forgets loads up to this sequence number.
    pub fn forget_loads(&mut self, through: SeqNo) {
        if let Some(loads) = &mut self.loads {
            *loads = loads.split_off(&(through + 1));
        }
    }

    /// The location of the store.
    pub fn location(&self) -> String {
        self.storage.location()
    }

    /// The manifest, and how much of it was read.
    pub fn place(&self) -> Current {
        Current::at(self.number, self.reader.position())
    }

    /// Reads what was appended. Returns the keyspaces that changed; `None` if the writer has begun
    /// a new manifest, so that any keyspace may have changed. The new manifest may belong to a
    /// later history, so the caller must compare what it has read with that history. O(bytes read).
    ///
    /// # Errors
    /// [`Error::LeaseRevoked`] if another copy of the store was put in its place, because the open
    /// files may belong to either copy. [`Error::HistoryGone`] if the store does not know the
    /// history that was read. Every later call fails as well.
    pub fn advance(&mut self) -> Result<Option<BTreeSet<KeyspaceId>>> {
        let current = read_current(&*self.storage)?;
        let Some(current) = current else {
            return Err(Error::NotAStore { path: self.storage.location() });
        };
        let file = self.storage.file_number(&manifest_name(current.number));
        let (known, known_file) = self.named;
        let is_same = current.number != self.number || may_be_one(file, known_file);
        if current < known || !is_same {
            return Err(Error::LeaseRevoked { path: self.storage.location() });
        }
        if current.number == self.number {
            self.named.0 = current;
            return self.read(current.least_bytes).map(Some);
        }
        let mut next = ManifestTail::open(&self.storage)?;
        if next.state.uid != self.state.uid {
            return Err(Error::invalid(
                format!("{} holds another store now", self.storage.location()),
                "follow it again",
            ));
        }
        next.check_continues(&self.state.history)?;
        if let Some(mut loads) = self.loads.take() {
            // Where both lists have the load, the older list is right: a compaction may have
            // changed the tables since.
            let rest = next.loads_of_state();
            for (seq, tables) in rest {
                loads.entry(seq).or_insert(tables);
            }
            next.loads = Some(loads);
        }
        *self = next;
        Ok(None)
    }

    /// Refuses a store that does not know an earlier history. Refuses a manifest that is a copy,
    /// because the reader's open files are then not those in the directory.
    fn check_continues(&self, history: &History) -> Result<()> {
        let (path, own) = (self.storage.location(), &self.state.history);
        if !may_be_one(own.file, self.named.1) {
            return Err(Error::LeaseRevoked { path });
        }
        match own.last_common(history.id) {
            Some(_) => Ok(()),
            None => {
                let (first, why) = (self.state.log_start_seq - 1, Gone::History);
                Err(Error::HistoryGone { path, first, why })
            }
        }
    }

    /// Reads the available records. At least `least_bytes` bytes are durable. If the call fails in
    /// the middle, the next call returns the keyspaces that the earlier records changed.
    fn read(&mut self, least_bytes: u64) -> Result<BTreeSet<KeyspaceId>> {
        let name = manifest_name(self.number);
        if let Some((offset, what)) = &self.refused {
            return Err(Error::corruption(name, *offset, what.clone()));
        }
        let ManifestTail { reader, state, changed, loads, refused, .. } = self;
        let mut replay = Replay::of(state);
        // The file has grown.
        reader.rewind(reader.position())?;
        loop {
            let before = reader.position();
            let Next::Record { offset, bytes } = reader.next()? else {
                // The writer may be about to write here.
                reader.rewind(before)?;
                if before < least_bytes {
                    let what = format!("valid to here, but {least_bytes} bytes were written");
                    return Err(Error::corruption(name, before, what));
                }
                return Ok(std::mem::take(changed));
            };
            let applied = apply_record(&mut replay, &name, offset, &bytes);
            if let Err(Error::Corruption { offset, what, .. }) = &applied {
                *refused = Some((*offset, what.clone()));
            }
            for change in applied? {
                loads.iter_mut().for_each(|loads| note_load(loads, &change));
                changed.extend(keyspace_of(&change));
            }
        }
    }
}

fn note_load(loads: &mut Loads, change: &Change) {
    let Change::Edit { edit, .. } = change else { return };
    let mut own = Loads::new();
    for Placement { table, .. } in &edit.place {
        if table.min_seq == table.max_seq {
            own.entry(table.max_seq).or_default().push(Arc::clone(table));
        }
    }
    for (seq, tables) in own {
        loads.entry(seq).or_insert(tables);
    }
}

/// Whether two file numbers may be of the same file. 0 is the number of a file that the writer has
/// just removed, and of all files if the storage gives them no numbers.
fn may_be_one(one: u64, other: u64) -> bool {
    one == other || one == 0 || other == 0
}

/// The keyspace that a change belongs to.
fn keyspace_of(change: &Change) -> Option<KeyspaceId> {
    match change {
        Change::Store { .. }
        | Change::Counters { .. }
        | Change::Log { .. }
        | Change::History(_)
        | Change::NoLog => None,
        Change::Keyspace { id, .. }
        | Change::Dropped { id }
        | Change::Edit { id, .. }
        | Change::Shape { id, .. }
        | Change::ValueFile { id, .. }
        | Change::Values { id, .. }
        | Change::ValueFileGone { id, .. } => Some(*id),
    }
}
