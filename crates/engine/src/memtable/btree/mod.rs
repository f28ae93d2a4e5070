//! A concurrent B+tree over key heads: the ordered map inside a memtable. It supports only inserts:
//! nothing is removed, and all memory is freed with the arena.
//!
//! Algorithm (optimistic lock coupling; Leis et al., DaMoN 2016):
//! 1. Every node has a version word; its lowest bit is the write lock. A reader notes the version,
//!    reads, and reads the version again: if it changed, it starts over. Readers never write.
//! 2. A writer descends like a reader, splits every full node on its way (so that a parent always
//!    has room), locks the leaf by compare-and-swap on the version that it noted, and inserts.
//! 3. A node knows its fences: all keys that it may ever contain are in [low, high). The common
//!    prefix of the fences is a prefix of all its keys. So the heads (eight bytes after that
//!    prefix) differ even for keys like user0001 and user0002, which share their beginning. Whole
//!    keys are compared only where heads are equal.
//! 4. A writer may find its leaf and write its record before it has a sequence number (`prepare`),
//!    and insert afterwards; if the leaf changed, it descends again.
//! 5. An iterator copies the record pointers of one leaf at a time, and continues from the leaf's
//!    fence.
//!
//! Rejected: a skiplist, which has one cache miss per hop, and is 4-5 times slower at 500k entries
//! (docs/limits.md).
//!
//! Obligations that keep the unsafe code here sound:
//! 1. Node and record memory comes from the arena of the same tree and lives as long as the tree. A
//!    pinned record lives as long as its pin.
//! 2. A record is written completely before its pointer is stored (Release), and is not written
//!    again, except for its atomic trailer. So any non-null record pointer that a reader loads
//!    (Acquire), even from a node that is being changed, may be dereferenced.
//! 3. Child pointers are dereferenced only after the version check that covers their load.
//! 4. All fields that change after a node is published are atomics. A racing read returns a stale
//!    value, which step 1 discards, and is never undefined behaviour.
//! 5. A node of level 0 has no child array. `children` is called on inner nodes only, `level` never
//!    changes, and an inner node is allocated with room for the array after it.
#![allow(unsafe_code)]

mod position;
pub mod tally;

use std::cmp::Ordering::Less;
use std::ptr::null_mut;
use std::sync::Arc;

use super::NODE_KEYS as CAP;
use super::latch::{Latch, Restart};
use super::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};
use super::sync::pause;
use crate::keys::{SeqNo, common_prefix_len, compare, head};
use crate::memory::prefetch::{LINE_BYTES, prefetch};
use crate::memtable::arena::{Arena, Pin};

pub use position::Position;

/// Header of an entry; key and value bytes follow it.
#[repr(C)]
#[derive(Debug)]
pub struct Record {
    /// Changes only in [`Tree::number`]. It is an atomic of the standard library, not one that a
    /// model checker schedules, because nobody waits for it.
    trailer: std::sync::atomic::AtomicU64,
    key_len: u32,
    value_len: u32,
}

impl Record {
    /// Sequence number and kind.
    #[inline]
    pub fn trailer(&self) -> u64 {
        self.trailer.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// User key.
    #[inline]
    pub fn key(&self) -> &[u8] {
        // SAFETY: obligation 2; `Tree::record` wrote key_len bytes right after the header.
        unsafe { std::slice::from_raw_parts(self.bytes(), self.key_len as usize) }
    }

    /// Value.
    #[inline]
    pub fn value(&self) -> &[u8] {
        // SAFETY: as for the key; the value follows it.
        unsafe {
            let at = self.bytes().add(self.key_len as usize);
            std::slice::from_raw_parts(at, self.value_len as usize)
        }
    }

    /// How many bytes of the arena the record takes.
    fn len(&self) -> usize {
        size_of::<Record>() + self.key_len as usize + self.value_len as usize
    }

    fn bytes(&self) -> *const u8 {
        let header = std::ptr::from_ref(self);
        // `Tree::record` exposes the address, so that the pointer may reach beyond the header.
        std::ptr::with_exposed_provenance::<u8>(header.addr() + size_of::<Record>())
    }
}

#[repr(C, align(64))]
struct Node {
    latch: Latch,
    low: AtomicPtr<Record>,
    high: AtomicPtr<Record>,
    count: AtomicU32,
    prefix_len: AtomicU32,
    level: u32,
    heads: [AtomicU64; CAP],
    keys: [AtomicPtr<Record>; CAP],
}

/// A walk prefetches this many records ahead, and this many lines of each. Records are in the order
/// in which they were written, so each costs a cache miss or two. Eight records, or two lines, are
/// no faster.
const PREFETCH_RECORDS: usize = 4;
const PREFETCH_LINES: usize = 3;

/// The array that follows an inner node in memory.
type Children = [AtomicPtr<Node>; CAP + 1];

/// The internal key that is searched for.
#[derive(Clone, Copy)]
struct Target<'a> {
    key: &'a [u8],
    trailer: u64,
}

impl Node {
    fn lock(&self, version: u64) -> Result<Locked<'_>, Restart> {
        let version = if seeded!(LeafNotChecked) { self.latch.read() } else { version };
        self.latch.lock(version)?;
        Ok(Locked { node: self, version })
    }

    /// Inserts into a leaf that covers the target and has room, unless the leaf has changed.
    fn insert(&self, version: u64, record: &Record, target: Target<'_>) -> Result<(), Restart> {
        let leaf = self.lock(version)?;
        debug_assert!(self.covers(target), "a key is put into a leaf that does not cover it");
        let at = self.lower_bound(target)?;
        leaf.insert_key(at, record);
        Ok(())
    }

    /// Whether the target is between the fences of a locked node.
    fn covers(&self, target: Target<'_>) -> bool {
        let order = |fence: &AtomicPtr<Record>| {
            // SAFETY: fences are null or records (obligation 2).
            let fence = unsafe { fence.load(Acquire).as_ref() }?;
            Some(compare(target.key, target.trailer, fence.key(), fence.trailer()))
        };
        order(&self.low).is_none_or(|order| order != Less)
            && order(&self.high).is_none_or(|order| order == Less)
    }

    /// Prefetches the cache lines that an insert may shift.
    fn prefetch(&self) {
        for at in (0..self.count()).step_by(LINE_BYTES / size_of::<u64>()) {
            prefetch(&self.heads, at);
            prefetch(&self.keys, at);
        }
    }

    #[inline]
    fn count(&self) -> usize {
        (self.count.load(Relaxed) as usize).min(CAP)
    }

    fn is_leaf(&self) -> bool {
        self.level == 0
    }

    fn children(&self) -> &Children {
        debug_assert!(self.level > 0, "a leaf is asked for its children");
        let after = std::ptr::from_ref(self).addr() + size_of::<Node>();
        // SAFETY: obligation 5; `Tree::new_node` exposed the allocation and wrote the array.
        unsafe { &*std::ptr::with_exposed_provenance::<Children>(after) }
    }

    /// First position whose key is >= the target; `Err` on a torn read.
    #[inline]
    fn lower_bound(&self, target: Target<'_>) -> Result<usize, Restart> {
        let count = self.count();
        let skip = self.prefix_len.load(Relaxed) as usize;
        let wanted = head(target.key, skip);
        let heads = &self.heads[..count];
        let first = partition(count, |i| heads[i].load(Relaxed) < wanted);
        if first == count || heads[first].load(Relaxed) != wanted {
            return Ok(first);
        }
        // Equal heads decide nothing, but usually only one head is equal.
        let mut low = first;
        let mut high = match heads.get(first + 1) {
            Some(next) if next.load(Relaxed) == wanted => {
                partition(count, |i| heads[i].load(Relaxed) <= wanted)
            }
            _ => first + 1,
        };
        while low < high {
            let middle = low + (high - low) / 2;
            let record = self.keys[middle].load(Acquire);
            if record.is_null() {
                return Err(Restart);
            }
            // SAFETY: obligation 2.
            let record = unsafe { &*record };
            match compare(record.key(), record.trailer(), target.key, target.trailer) {
                Less => low = middle + 1,
                _ => high = middle,
            }
        }
        Ok(low)
    }

    /// The index of the child that covers the target: the number of separators <= it.
    #[inline]
    fn child_index(&self, target: Target<'_>) -> Result<usize, Restart> {
        let at = self.lower_bound(target)?;
        if at < self.count() {
            let record = self.keys[at].load(Acquire);
            // SAFETY: obligation 2.
            let equal = unsafe { record.as_ref() }.is_some_and(|record| {
                record.trailer() == target.trailer && record.key() == target.key
            });
            return Ok(at + usize::from(equal));
        }
        Ok(at)
    }
}

#[inline]
fn partition(count: usize, before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut len) = (0, count);
    while len > 0 {
        let half = len / 2;
        let take = before(low + half);
        low = if take { low + half + 1 } else { low };
        len = if take { len - half - 1 } else { half };
    }
    low
}

/// A write-locked node; unlocking increments the version.
struct Locked<'a> {
    node: &'a Node,
    version: u64,
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.node.latch.unlock(self.version);
    }
}

impl Locked<'_> {
    fn insert_key(&self, at: usize, record: &Record) {
        let node = self.node;
        let count = node.count();
        debug_assert!(count < CAP && at <= count, "a key has no room in its leaf");
        for i in (at..count).rev() {
            node.heads[i + 1].store(node.heads[i].load(Relaxed), Relaxed);
            node.keys[i + 1].store(node.keys[i].load(Relaxed), Release);
        }
        let word = head(record.key(), node.prefix_len.load(Relaxed) as usize);
        node.heads[at].store(word, Relaxed);
        node.keys[at].store(std::ptr::from_ref(record).cast_mut(), Release);
        node.count.store(count as u32 + 1, Relaxed);
    }

    fn insert_child(&self, at: usize, separator: &Record, right: *mut Node) {
        let children = self.node.children();
        for i in (at + 1..=self.node.count()).rev() {
            children[i + 1].store(children[i].load(Relaxed), Release);
        }
        children[at + 1].store(right, Release);
        self.insert_key(at, separator);
    }

    /// Sets the prefix to the common prefix of the fences. If it changed, rewrites the heads.
    fn refresh_prefix(&self) {
        let node = self.node;
        let (low, high) = (node.low.load(Relaxed), node.high.load(Relaxed));
        // SAFETY: fences are null or records (obligation 2).
        let prefix_len = match unsafe { (low.as_ref(), high.as_ref()) } {
            (Some(low), Some(high)) => common_prefix_len(low.key(), high.key()) as u32,
            _ => 0,
        };
        if prefix_len != node.prefix_len.load(Relaxed) {
            node.prefix_len.store(prefix_len, Relaxed);
            for i in 0..node.count() {
                // SAFETY: obligation 2; keys below count are set.
                let record = unsafe { &*node.keys[i].load(Relaxed) };
                node.heads[i].store(head(record.key(), prefix_len as usize), Relaxed);
            }
        }
    }
}

/// The tree. Keys are internal keys; a key is inserted at most once.
#[derive(Debug)]
pub struct Tree {
    root: AtomicPtr<Node>,
    /// Shared with pins.
    arena: Arc<Arena>,
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.arena.retire();
    }
}

impl Tree {
    /// An empty tree in `arena`, which takes no memory before the first insert.
    pub fn new(arena: Arena) -> Tree {
        Tree { root: AtomicPtr::new(null_mut()), arena: Arc::new(arena) }
    }

    /// Makes the first leaf. A second writer that does the same wastes one node.
    #[cold]
    fn plant(&self) {
        let leaf = self.new_node(0);
        let _ = self.root.compare_exchange(null_mut(), leaf, AcqRel, Acquire);
    }

    /// Bytes taken from the arena.
    pub fn allocated_bytes(&self) -> usize {
        self.arena.allocated_bytes()
    }

    /// See [`Arena::leave`].
    pub fn leave(&self) {
        self.arena.leave();
    }

    /// Counts memory elsewhere that belongs to the entries.
    pub fn count_beside(&self, bytes: usize) {
        self.arena.count_beside(bytes);
    }

    /// Bytes that the arena took from the memory budget.
    pub fn reserved_bytes(&self) -> usize {
        self.arena.reserved_bytes()
    }

    /// Keeps one of the tree's records after the tree is dropped. O(log pins).
    pub fn pin(&self, record: &Record) -> PinnedRecord {
        let at = std::ptr::from_ref(record).addr();
        PinnedRecord { record: RecordRef(record), _pin: Pin::new(&self.arena, at, record.len()) }
    }

    /// Whether the arena's limit was reached.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.arena.is_full()
    }

    /// Inserts an entry. O(log n); safe from any number of threads.
    pub fn insert(&self, key: &[u8], trailer: u64, value: &[u8]) {
        let record = self.record(key, trailer, value);
        // SAFETY: just made and complete.
        self.insert_record(unsafe { &*record });
    }

    /// All entries, for [`Tree::number`]. O(n).
    pub fn records(&self) -> Vec<RecordRef> {
        let (mut position, mut records) = (Position::default(), Vec::new());
        position.seek_to_first(self);
        while let Some(record) = position.record(self) {
            records.push(RecordRef::new(record));
            position.next(self);
        }
        records
    }

    /// Lowers the sequence numbers of all entries, and keeps their order. Readers may read
    /// meanwhile if both the old and the new numbers are too large for them to see. Nobody may
    /// insert any more.
    pub fn number(&self, records: &[RecordRef], less: SeqNo) {
        for record in records {
            let trailer = &record.get(self).trailer;
            trailer.fetch_sub(less << 8, std::sync::atomic::Ordering::Relaxed);
        }
    }

    /// Does the part of an insert that needs no trailer: the copy, and the descent to the leaf. So
    /// a writer that gets its sequence number late has little left to do, and others wait less for
    /// it. The entry will be the newest of its key. Dropping the result wastes its memory. The
    /// function is inlined into the commit, its only hot caller: as a call it would cost 50 more
    /// instructions, and a put has 3,300.
    #[inline(always)]
    pub fn prepare(&self, key: &[u8], value: &[u8]) -> Prepared<'_> {
        let record = self.record(key, u64::MAX, value);
        // The largest trailer sorts before all versions of the key. That is where the newest
        // version is inserted.
        let target = Target { key, trailer: u64::MAX };
        loop {
            if let Ok((leaf, version)) = self.find_leaf(target) {
                leaf.prefetch();
                return Prepared { tree: self, record, leaf, version };
            }
            pause(false);
        }
    }

    fn insert_record(&self, record: &Record) {
        let target = Target { key: record.key(), trailer: record.trailer() };
        let insert = || {
            let (leaf, version) = self.find_leaf(target)?;
            leaf.insert(version, record, target)
        };
        while insert().is_err() {
            pause(false);
        }
    }

    /// The first entry at or after the internal key. O(log n); never waits for writers for long.
    pub fn lower_bound(&self, key: &[u8], trailer: u64) -> Option<&Record> {
        let target = Target { key, trailer };
        loop {
            if let Ok(found) = self.try_lower_bound(target) {
                return found;
            }
        }
    }

    fn try_lower_bound(&self, target: Target<'_>) -> Result<Option<&Record>, Restart> {
        let Some((leaf, version)) = self.descend(|node| node.child_index(target))? else {
            return Ok(None);
        };
        let at = leaf.lower_bound(target)?;
        // The high fence is itself a record: the first record of the next leaf.
        let record = if at < leaf.count() { &leaf.keys[at] } else { &leaf.high }.load(Acquire);
        if !seeded!(LookupNotChecked) {
            leaf.latch.check(version)?;
        }
        // SAFETY: obligation 2, and obligation 1 for the lifetime.
        Ok(unsafe { record.as_ref() })
    }

    /// From the root to a leaf, by optimistic lock coupling.
    fn descend(
        &self,
        choose: impl Fn(&Node) -> Result<usize, Restart>,
    ) -> Result<Option<(&Node, u64)>, Restart> {
        let Some((mut node, mut version)) = self.read_root()? else { return Ok(None) };
        while !node.is_leaf() {
            let child = node.children()[choose(node)?].load(Acquire);
            node.latch.check(version)?;
            // SAFETY: obligation 3; after the check, the pointer is that of a live child.
            let child = unsafe { &*child };
            let child_version = child.latch.read();
            if !seeded!(ChildNotChecked) {
                node.latch.check(version)?;
            }
            (node, version) = (child, child_version);
        }
        Ok(Some((node, version)))
    }

    /// The root, unless the tree is empty.
    fn read_root(&self) -> Result<Option<(&Node, u64)>, Restart> {
        let root = self.root.load(Acquire);
        // SAFETY: the root is null or never freed (obligation 1).
        let Some(node) = (unsafe { root.as_ref() }) else { return Ok(None) };
        let version = node.latch.read();
        if self.root.load(Acquire) == root { Ok(Some((node, version))) } else { Err(Restart) }
    }

    /// The leaf that covers the target and has room for one more record, and its version.
    fn find_leaf(&self, target: Target<'_>) -> Result<(&Node, u64), Restart> {
        let Some((mut node, mut version)) = self.read_root()? else {
            self.plant();
            return Err(Restart);
        };
        let mut parent = None;
        loop {
            if node.count() == CAP {
                self.split(parent, (node, version), target)?;
                return Err(Restart);
            }
            if node.is_leaf() {
                return Ok((node, version));
            }
            let child = node.children()[node.child_index(target)?].load(Acquire);
            node.latch.check(version)?;
            // SAFETY: obligation 3.
            let child = unsafe { &*child };
            let child_version = child.latch.read();
            if !seeded!(ChildNotChecked) {
                node.latch.check(version)?;
            }
            parent = Some((node, version));
            (node, version) = (child, child_version);
        }
    }

    /// Splits a full node; its parent, if any, has room and is unchanged since it was read.
    fn split(
        &self,
        parent: Option<(&Node, u64)>,
        (node, version): (&Node, u64),
        target: Target<'_>,
    ) -> Result<(), Restart> {
        let locked_parent = parent.map(|(node, version)| node.lock(version)).transpose()?;
        let locked = node.lock(version)?;
        let node_ptr = std::ptr::from_ref(node).cast_mut();
        if locked_parent.is_none() && self.root.load(Relaxed) != node_ptr {
            return Err(Restart);
        }
        // With ascending keys, a split leaves a full node behind instead of a half-empty one.
        let appending = node.high.load(Relaxed).is_null() && node.lower_bound(target)? == CAP;
        let middle = if appending { CAP - 1 } else { CAP / 2 };
        let (separator, right) = self.split_off(&locked, middle);
        match locked_parent {
            Some(parent) => {
                let at = parent
                    .node
                    .child_index(Target { key: separator.key(), trailer: separator.trailer() })?;
                parent.insert_child(at, separator, right);
            }
            None => self.grow_root(node_ptr, separator, right, node.level + 1),
        }
        Ok(())
    }

    /// Moves the upper part of a locked node into a new one; returns the separator between them.
    fn split_off(&self, locked: &Locked<'_>, middle: usize) -> (&Record, *mut Node) {
        let node = locked.node;
        let right_ptr = self.new_node(node.level);
        // SAFETY: just made, not shared yet.
        let right = Locked { node: unsafe { &*right_ptr }, version: 0 };
        let separator_ptr = node.keys[middle].load(Relaxed);
        // SAFETY: obligation 2; the node is full, so the key is set.
        let separator = unsafe { &*separator_ptr };
        // The separator of inner nodes moves up. The separator of leaves stays as the first record
        // of the right leaf.
        let from = if node.is_leaf() { middle } else { middle + 1 };
        for i in from..CAP {
            let (word, key) = (node.heads[i].load(Relaxed), node.keys[i].load(Relaxed));
            right.node.heads[i - from].store(word, Relaxed);
            right.node.keys[i - from].store(key, Relaxed);
        }
        if !node.is_leaf() {
            let (old, new) = (node.children(), right.node.children());
            for i in from..=CAP {
                new[i - from].store(old[i].load(Relaxed), Relaxed);
            }
        }
        right.node.prefix_len.store(node.prefix_len.load(Relaxed), Relaxed);
        right.node.count.store((CAP - from) as u32, Relaxed);
        right.node.low.store(separator_ptr, Relaxed);
        right.node.high.store(node.high.load(Relaxed), Relaxed);
        right.refresh_prefix();
        node.count.store(middle as u32, Relaxed);
        node.high.store(separator_ptr, Release);
        locked.refresh_prefix();
        (separator, right_ptr)
    }

    fn grow_root(&self, left: *mut Node, separator: &Record, right: *mut Node, level: u32) {
        let root_ptr = self.new_node(level);
        // SAFETY: just made, not shared yet.
        let root = Locked { node: unsafe { &*root_ptr }, version: 0 };
        root.node.children()[0].store(left, Relaxed);
        root.insert_child(0, separator, right);
        drop(root);
        self.root.store(root_ptr, Release);
    }

    fn new_node(&self, level: u32) -> *mut Node {
        let children_bytes = if level > 0 { size_of::<Children>() } else { 0 };
        let memory = self.arena.alloc(size_of::<Node>() + children_bytes, align_of::<Node>());
        memory.expose_provenance();
        let node = memory.cast::<Node>();
        // SAFETY: the allocation is large enough and aligned for both parts; nobody else sees it.
        unsafe {
            node.write(Node {
                latch: Latch::default(),
                low: AtomicPtr::new(null_mut()),
                high: AtomicPtr::new(null_mut()),
                count: AtomicU32::new(0),
                prefix_len: AtomicU32::new(0),
                level,
                heads: [const { AtomicU64::new(0) }; CAP],
                keys: [const { AtomicPtr::new(null_mut()) }; CAP],
            });
            if level > 0 {
                memory
                    .add(size_of::<Node>())
                    .cast::<Children>()
                    .write([const { AtomicPtr::new(null_mut()) }; CAP + 1]);
            }
        }
        node
    }

    /// Copies an entry into the arena. The record is complete, and nobody else knows it.
    fn record(&self, key: &[u8], trailer: u64, value: &[u8]) -> *mut Record {
        let len = size_of::<Record>() + key.len() + value.len();
        let memory = self.arena.alloc(len, 8);
        memory.expose_provenance();
        let trailer = trailer.into();
        let header = Record { trailer, key_len: key.len() as u32, value_len: value.len() as u32 };
        // SAFETY: the allocation contains header, key and value, is 8-aligned, and is not shared
        // yet.
        unsafe {
            memory.cast::<Record>().write(header);
            let bytes = memory.add(size_of::<Record>());
            bytes.copy_from_nonoverlapping(key.as_ptr(), key.len());
            bytes.add(key.len()).copy_from_nonoverlapping(value.as_ptr(), value.len());
        }
        memory.cast::<Record>()
    }
}

/// An entry that lacks only its trailer.
pub struct Prepared<'a> {
    tree: &'a Tree,
    /// Not shared yet.
    record: *mut Record,
    /// The leaf for the record, if the leaf still has this version.
    leaf: &'a Node,
    version: u64,
}

impl Prepared<'_> {
    /// Inserts the entry. The trailer is larger than those of all versions of the key that were in
    /// the tree when the entry was prepared.
    #[inline]
    pub fn insert(self, trailer: u64) {
        let Prepared { tree, record, leaf, version } = self;
        // SAFETY: the record lives as long as the tree, and nobody else knows it yet.
        let record = unsafe {
            *(*record).trailer.get_mut() = trailer;
            &*record
        };
        let target = Target { key: record.key(), trailer };
        // A fence between the largest trailer and this trailer would be a newer version of the key,
        // and there is none. So a leaf that covered the largest trailer and has not changed covers
        // this trailer.
        if leaf.insert(version, record, target).is_err() {
            tree.insert_record(record);
        }
    }
}

/// A record by address. Its holder keeps the record's tree alive, and passes that tree to `get`.
#[derive(Clone, Copy, Debug)]
pub struct RecordRef(*const Record);

// SAFETY: records are immutable once published (obligation 2).
unsafe impl Send for RecordRef {}
// SAFETY: as above.
unsafe impl Sync for RecordRef {}

impl RecordRef {
    /// The address of a record.
    pub(crate) fn new(record: &Record) -> RecordRef {
        RecordRef(record)
    }

    /// The record; `_tree` must be the tree that contains it.
    #[inline]
    pub(crate) fn get<'a>(&self, _tree: &'a Tree) -> &'a Record {
        // SAFETY: obligation 1; the tree outlives the reference.
        unsafe { &*self.0 }
    }
}

/// A record that remains after its tree is dropped.
#[derive(Clone, Debug)]
pub struct PinnedRecord {
    record: RecordRef,
    _pin: Pin,
}

impl std::ops::Deref for PinnedRecord {
    type Target = Record;
    fn deref(&self) -> &Record {
        // SAFETY: obligation 1: pinned.
        unsafe { &*self.record.0 }
    }
}

// SAFETY: all shared state is atomic or immutable after publication (obligations 2-4).
unsafe impl Send for Tree {}
// SAFETY: as above.
unsafe impl Sync for Tree {}
