//! Bugs that tests switch on, to show that the tests would find them; and places where a test can
//! run code, so that it does not depend on luck to cause a race. They are compiled only with the
//! feature `seeded-bugs`, which no user turns on. Both affect only the thread that requested them.

use std::cell::{Cell, RefCell};

use crate::sync::threads;

/// A known mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A get in a level whose tables overlap stops at the first table that contains the key,
    /// instead of continuing while a newer version is possible (rule I3).
    FirstHitInOverlappingLevel,
    /// A compaction drops tombstones whenever its output is the deepest level, although tables
    /// outside the compaction may overlap there (rule I4).
    TombstonesDroppedByDepth,
    /// A reader sees range deletes that are newer than its snapshot.
    RangeDeletesForAllSnapshots,
    /// A compaction drops a range tombstone whatever other tables contain in its range.
    RangeTombstonesDroppedEarly,
    /// A newer put of the first key of a range replaces the range tombstone, as if the tombstone
    /// were an old version of the key.
    RangeTombstonesShadowed,
    /// A range delete hides entries that were written after it.
    RangeDeletesHideNewer,
    /// A range tombstone is mistaken for a newer one over its own range, and is dropped.
    RangeTombstonesHideThemselves,
    /// A compaction with range tombstones is installed in parts. A tombstone may be dropped with
    /// its own part, before the part with the entries that it hides.
    RangeDeletesInParts,
    /// Range deletes act only in the first slice of a compaction.
    RangeDeletesEndWithTheirSlice,
    /// Collection of a log mistakes a value that a range delete hides for a live one.
    HiddenValuesLive,
    /// Collection of a log mistakes each value under a range delete for dead, even if the value is
    /// newer.
    ValuesUnderRangesDead,
    /// A compaction copies whole blocks although a range tombstone deletes some of their entries.
    CoveredBlocksCopied,
    /// A covered table is dropped although a snapshot from before the range delete sees it.
    CoveredTablesDroppedUnderSnapshots,
    /// On a full disk, tables leave the tree before the range delete that covers them is durable.
    TablesFreedBeforeTheLog,
    /// A collection that writes pointers does not check whether a range delete hides the record.
    RelocationsIgnoreRangeDeletes,
    /// Collection of values keeps only the newest version of each key, whatever snapshots see.
    CollectionForgetsSnapshots,
    /// Collection of a log writes the new place of a value although its key was written after the
    /// look-up.
    RelocationOverwritesNewer,
    /// Collection of a group does not close the segment that is being filled. Records that a flush
    /// appends to it meanwhile are removed with the segments that are replaced.
    CollectionWithoutClosing,
    /// A repair does not report the sequence numbers that are missing in the log.
    RepairPassesGaps,
    /// A repair without a whole manifest does not report that deleted keys may be back.
    RepairTrustsTables,
    /// A repair does not report the parts of a table that it cannot read.
    RepairPassesHoles,
    /// A repair carries a table over although its content does not verify.
    RepairTrustsContent,
    /// A repair forgets the deletes in the log when it carries tables over.
    RepairForgetsDeletes,
    /// A writer removes files and reuses slots that its followers read.
    LeasesIgnored,
    /// The writer frees files and slots that a checkpoint in its own process copies.
    HoldsIgnored,
    /// A power loss may take back changes that were handed out.
    HistoryNotSynced,
    /// Slots are free as soon as an edit frees them, although readers hold segments in these slots.
    SlotsFreedEarly,
    /// Checksums of records do not depend on the generation of the slot.
    ChecksumsWithoutGeneration,
    /// A cursor does not register the sequence number at which it reads.
    CursorDoesNotRegister,
    /// A parked cursor continues with the present state instead of its own.
    ParkedCursorSeesThePresent,
    /// A thread that wants the memory of a cursor does not check whether the cursor is in use.
    VisitedWhileInside,
    /// Puts do not narrow dead ranges.
    DeadRangesIgnorePuts,
    /// Walks with a sequence number from before a dead range was watched count as proof that it is
    /// dead.
    DeadRangesProvedUnwatched,
    /// Walks jump over a dead range, whatever snapshot they read.
    DeadRangesForAllSnapshots,
    /// Walks jump over a dead range although its entries expire later than the walk's time.
    DeadRangesIgnoreClocks,
    /// A cursor that seeks past the versions of a key skips versions that its snapshot sees.
    VersionsSkippedForAllSnapshots,
    /// A get whose record was collected reports the key as absent instead of looking again.
    GetDoesNotLookAgain,
    /// A flush logs its table first, and then, in a separate record, the values that the table
    /// points to.
    PointersLoggedBeforeValues,
    /// A flush does not sync the log although earlier writes of other keyspaces are only in the
    /// log.
    FlushOutrunsTheLog,
    /// A sync of the log, or a flush, does not sync the values that were in their file before their
    /// writes were logged.
    EarlyValuesNotSynced,
    /// A replay does not check whether values that were written early are in their file.
    EarlyValuesUnchecked,
    /// A collection takes a segment although a write whose value is in it is under way.
    EarlyValuesCollectedUnderWay,
    /// The segments that a collection emptied are freed although the log still leads to them.
    EarlyValuesFreedUnflushed,
    /// A flush leaves early values where a replay found them, although a sync of them may have
    /// failed.
    FoundValuesTrusted,
    /// Without a log, a keyspace of a generation is flushed alone.
    GenerationsInPieces,
    /// The edit of a collection is logged before its copies are synced.
    CollectionNotSynced,
    /// The slots of a collected group are free before the edit that replaces the segments is
    /// logged.
    SlotsFreedBeforeTheEdit,
    /// The edit of a flush is logged before the values that the flush appended are synced, so that
    /// a power loss tears them.
    AppendsNotSynced,
    /// Records are used as they are read, whatever their checksums say.
    RecordsUnchecked,
    /// The segments that a collection leaves are recorded only in memory.
    CollectionNotLogged,
    /// The log gets no note of edits that readers see and that no other record of the log contains.
    EditsNotLogged,
    /// A log that ends before the sequence number that the manifest records as durable is mistaken
    /// for complete.
    ShortLogsPass,
    /// A failed sync of a value file counts as a success.
    FailedSyncIgnored,
    /// Collection of a log looks up values that a compaction has published, before the tree points
    /// to them.
    CollectionBesideInstall,
    /// Slots are free again although nobody knows whether the edit that names them was logged.
    UnknownSlotsFreed,
    /// A write that the log could not take counts as logged.
    RefusedWritesAcknowledged,
    /// A write with a durability promise is acknowledged before the log is synced.
    AcknowledgedBeforeSync,
    /// An awaited commit is ready before the log is synced.
    AwaitedBeforeSync,
    /// Names of new files are not synced before an edit names them.
    DirectoryNotSynced,
    /// Tables are not synced before an edit names them.
    TableNotSynced,
    /// An edit counts as logged before it is synced.
    EditNotSynced,
    /// Blocks are used as they are read, whatever their checksums say.
    BlocksUnchecked,
    /// The record that moves to the cold stream and its tag are logged one after another.
    TagsLoggedBeforeColdRecords,
    /// Readers see a tag before they see its record in the cold stream.
    TagsPublishedFirst,
    /// If a version has a record and a tag, the tag counts. No pointer is written, although the
    /// tree may lead to the record.
    TagsTrustedOverRecords,
    /// Two places in different streams of a value file are compared.
    PlacesComparedAcrossStreams,
    /// A record of the cold stream is dead as soon as a collection drops its tag, although the
    /// range delete that hides it may still be lost.
    ColdRecordsDeadAtOnce,
    /// Deletions and inline values leave no marker in their group, although collections that write
    /// pointers decide by the group alone.
    VersionsNotMarked,
    /// A flush does not report to the collection of a group which keys it wrote there.
    WrittenKeysForgotten,
    /// A pointer that a collection wrote counts as a write of the user, so that the next collection
    /// leaves the value where it is.
    RelocationsTakenForWrites,
    /// Values that moved free their old slots although an older snapshot needs those slots.
    OldSlotsFreedUnderSnapshots,
    /// Values that moved free their old slots before their new pointers are durable.
    RelocationsNotSynced,
    /// A group is judged by its records although older tables were never counted in it.
    GroupTrustedTooEarly,
    /// Values are cached by their place in the file, although slots are reused, and a cached value
    /// is mistaken for the value of any version.
    ValuesCachedByPlace,
    /// A writer inserts into the leaf that it found although the leaf has changed since.
    LeafNotChecked,
    /// A descent does not check whether the parent changed before the child was noted.
    ChildNotChecked,
    /// The result of a look-up in a leaf is used although the leaf changed meanwhile.
    LookupNotChecked,
    /// A writer makes its batch visible without waiting for the earlier ones.
    PublishedOutOfOrder,
    /// The mark of a batch replaces the mark of another batch that is not visible yet.
    MarkOverwritten,
    /// A writer that waited for another writer's sync mistakes it for a sync of its own record.
    SyncNotChecked,
    /// A failed sync is forgotten: the next writer syncs again.
    FailedSyncForgotten,
    /// A serializable transaction does not track the key ranges that its cursors pass.
    ScansNotTracked,
    /// The check of a transaction is not repeated under the commit lock.
    CheckedBeforeTheLock,
    /// The writes of a transaction go to the store at once.
    WrittenBeforeCommit,
    /// The check of a transaction looks only at memtables.
    TablesNotChecked,
    /// The check of a transaction overlooks range deletes.
    RangeDeletesNotChecked,
    /// A writer of sorted files accepts keys in any order.
    SortedFilesUnsorted,
    /// A reader does not check whether a bulk load came between its view and its sequence number.
    LoadsMissedInViews,
    /// A bulk load is installed above memtables with older writes, which are flushed later.
    LoadsAboveOlderWrites,
    /// The sequence number of a bulk load is published before its edit is logged.
    LoadsPublishedFirst,
    /// The edit of a bulk load is logged although earlier writes are only in the unsynced log.
    LoadsOutrunTheLog,
    /// The check of a transaction overlooks bulk loads that ended after it loaded its view.
    LoadsNotChecked,
    /// A value that a collection moved counts as a write that a transaction conflicts with.
    RelocationsConflict,
    /// A waiter for a lock does not check whether it closes a cycle.
    DeadlocksNotSought,
    /// A commit deletes a range although another transaction has locked a key inside it.
    LocksIgnoredByRanges,
    /// The cold stream does not learn that a tag was dropped, so the tag's record looks live for
    /// ever.
    DroppedTagsForgotten,
    /// Operands are folded onto the next version that a compaction sees, although other tables may
    /// contain versions in between.
    OperandsFoldedPastTables,
    /// A compaction filter gets values that are below operands which the compaction does not see.
    FilterIgnoresNewer,
    /// Operands are folded with older operands that a snapshot sees.
    OperandsFoldedAcrossSnapshots,
    /// A delete among operands does not end their chain when they are folded.
    OperandsFoldedOverDeletes,
    /// A delete among operands does not end their chain when it is read.
    OperandsReadOverDeletes,
    /// A get writes the value that it computed from operands over newer writes.
    FoldedOverNewer,
    /// An expired entry is dropped although it hid an older version of its key.
    ExpiredDroppedEarly,
    /// Expired entries are dropped although a snapshot, and so perhaps a cursor, sees them.
    ExpiryIgnoresSnapshots,
    /// When the clock is set back, expired entries are visible again.
    ClockGoesBack,
    /// The record of an expired value counts as live.
    ExpiredValuesLive,
    /// A version that a compaction filter removes uncovers older versions.
    FilterUncoversOlder,
    /// The record of a value that a compaction filter dropped is collected although readers can
    /// still reach it.
    FilteredValuesDeadAtOnce,
    /// A compaction filter decides about versions that a snapshot sees.
    FilterIgnoresSnapshots,
    /// An entry that a compaction filter changes no longer expires.
    FilterForgetsExpiry,
    /// A table says that its entries expire earlier than they do.
    ExpiriesNotedEarly,
    /// Two slots of a slab share their memory.
    SlotsOverlap,
    /// An idle store does not collect the garbage of hash groups.
    IdleGarbageKept,
}

/// A place where a test may run code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waypoint {
    /// A group is sealed and its survivors are copied. The edit is not logged yet.
    GroupCopied,
    /// The live values of a log's tail are known. None of them is moved yet.
    LiveValuesFound,
    /// A cursor or a get of many keys has its view, but no sequence number yet.
    ViewLoaded,
    /// A get has its view, but no sequence number yet.
    GetViewLoaded,
    /// A bulk load has its sequence number, which is not published yet.
    LoadNumbered,
    /// A bulk load holds back the jobs of its keyspace, but has no sequence number yet.
    LoadSettled,
    /// A large batch is logged and in the view. Its entries have no sequence numbers yet.
    LargeBatchLogged,
    /// A get has its view and its sequence number, but has not searched yet.
    GetBegun,
    /// A look-up has found a pointer. It has not loaded the value files yet.
    PointerFound,
    /// Values that a compaction placed are published. The tree does not point to them yet.
    ValuesPublished,
    /// A reader has found the place of a record, but has not read the record yet.
    RecordFound,
    /// One group of an edit is visible, and another one is not visible yet.
    GroupPublished,
    /// A keyspace that is to be dropped or changed was looked up. It has not been changed yet.
    KeyspaceFound,
    /// A keyspace is marked as dropped. The manifest does not record this yet.
    KeyspaceMarked,
    /// A checkpoint without a log knows its moment. The memtables from before it are not replaced
    /// yet.
    MomentKnown,
    /// A checkpoint has replaced the memtables. Their entries are not in tables yet.
    MemtablesReplaced,
    /// A checkpoint has waited until the memtables are in tables. Its state is not taken yet.
    FlushesAwaited,
    /// A search for a job has released the claims, and continues.
    ClaimsReleased,
    /// A checkpoint knows the files and the bytes of the log that it copies. Nothing is copied yet.
    CutTaken,
    /// A memtable was replaced. What that means for writers is not known yet.
    MemtableReplaced,
    /// A batch has its sequence numbers, and its record has a place in the log but is not written
    /// yet.
    RecordPlaced,
    /// It is known which writes may point to retired value files. The memtables have not been
    /// checked yet.
    RetiredFilesLookedAt,
    /// A batch may be written, and goes to its files and the log next.
    BatchAdmitted,
    /// A value was appended to a file that syncs do not know about yet. The file is noted next.
    EarlyFileUnnoted,
    /// The values of a batch are in their file, but the batch has no sequence number yet.
    EarlyValuesWritten,
    /// A sync of the log knows what it has to cover, but has synced nothing yet.
    LogSyncBegun,
    /// A compaction checks whether it should continue.
    CompactionGoesOn,
    /// A load has put its tables into the view, and publishes its sequence number next.
    LoadShown,
    /// A get has computed a value from many operands, and writes it back next.
    ValueFolded,
    /// A transaction is checked as far as possible without the commit lock, which it takes next.
    TransactionChecked,
}

type Step = Box<dyn FnOnce()>;

thread_local! {
    static ON: Cell<Option<Bug>> = const { Cell::new(None) };
    static ASSERTIONS_OFF: Cell<bool> = const { Cell::new(false) };
    static STEP: RefCell<Option<(Waypoint, Step)>> = const { RefCell::new(None) };
}

/// Runs `work` with the bug.
pub fn with<T>(bug: Bug, work: impl FnOnce() -> T) -> T {
    struct Off;
    impl Drop for Off {
        fn drop(&mut self) {
            ON.set(None);
        }
    }
    ON.set(Some(bug));
    let _off = Off;
    work()
}

/// Runs `work` without the assertions that would stop a seeded bug.
pub fn without_assertions<T>(work: impl FnOnce() -> T) -> T {
    struct On;
    impl Drop for On {
        fn drop(&mut self) {
            ASSERTIONS_OFF.set(false);
        }
    }
    ASSERTIONS_OFF.set(true);
    let _on = On;
    work()
}

pub(crate) fn are_assertions_off() -> bool {
    ASSERTIONS_OFF.get()
}

/// Runs `step` when this thread next reaches `place`, once.
pub fn step_in(place: Waypoint, step: impl FnOnce() + 'static) {
    STEP.set(Some((place, Box::new(step))));
}

/// Whether the last requested step has run.
pub fn has_stepped_in() -> bool {
    STEP.with_borrow(Option::is_none)
}

/// Whether the bug is on in this thread.
pub(crate) fn is_on(bug: Bug) -> bool {
    ON.get() == Some(bug)
}

/// Called when this thread is at a place: runs the step that waits for that place.
pub(crate) fn at(place: Waypoint) {
    let due = threads::lend(&STEP, |step| step.take_if(|(wanted, _)| *wanted == place));
    if let Some((_, step)) = due {
        step();
    }
}
