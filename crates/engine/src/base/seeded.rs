//! Bugs that tests switch on, to show that they would find them, and places where a test can step
//! in, so that a race needs no luck. Compiled only with the feature `seeded-bugs`, which no user
//! turns on. Both belong to the thread that asked for them.

use std::cell::{Cell, RefCell};

use crate::base::threads;

/// A known way to get it wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A get in a level whose tables overlap stops at the first table that holds the key, instead
    /// of going on while a newer version is possible (rule I3).
    FirstHitInOverlappingLevel,
    /// A compaction drops tombstones whenever its output is the deepest level, although tables
    /// outside the compaction may overlap there (rule I4).
    TombstonesDroppedByDepth,
    /// A reader sees the range deletes that came after its snapshot.
    RangeDeletesForAllSnapshots,
    /// A compaction drops a range tombstone whatever other tables hold in its range.
    RangeTombstonesDroppedEarly,
    /// A newer put of the first key of a range takes the range tombstone for an old version of that
    /// key.
    RangeTombstonesShadowed,
    /// A range delete hides what was written after it.
    RangeDeletesHideNewer,
    /// A range tombstone takes its own range for that of a newer one, and goes.
    RangeTombstonesHideThemselves,
    /// A compaction with range tombstones is installed in parts: the tombstone may go with its own
    /// part, before the part with what it hides.
    RangeDeletesInParts,
    /// Range deletes act in the first slice of a compaction only.
    RangeDeletesEndWithTheirSlice,
    /// Collection of a log takes a value that a range delete hides for live.
    HiddenValuesLive,
    /// Collection of a log takes each value under a range delete for dead, newer ones too.
    ValuesUnderRangesDead,
    /// A compaction copies whole blocks although a range tombstone deletes entries of theirs.
    CoveredBlocksCopied,
    /// A covered table is dropped although a snapshot from before the range delete sees it.
    CoveredTablesDroppedUnderSnapshots,
    /// A collection that writes pointers does not ask whether a range delete hides the record.
    RelocationsIgnoreRangeDeletes,
    /// Collection of values keeps only the newest version of each key, whatever snapshots see.
    CollectionForgetsSnapshots,
    /// Collection of a log writes the new place of a value although its key was written since it
    /// was looked up.
    RelocationOverwritesNewer,
    /// Collection of a group leaves the segment that is being filled open: what a flush appends
    /// meanwhile goes with the segments that are replaced.
    CollectionWithoutClosing,
    /// Slots are free as soon as an edit says so, although readers hold segments that name them.
    SlotsFreedEarly,
    /// Checksums of records do not depend on the generation of the slot.
    ChecksumsWithoutGeneration,
    /// A cursor does not register the number that it reads at.
    CursorDoesNotRegister,
    /// A cursor that was parked goes on as of the present.
    ParkedCursorSeesThePresent,
    /// Whoever wants the memory of a cursor does not ask whether it is in use.
    VisitedWhileInside,
    /// Puts leave what is known of a dead range as it is.
    DeadRangesIgnorePuts,
    /// A dead range is proved by walks from before it was watched.
    DeadRangesProvedUnwatched,
    /// Walks jump over a dead range whatever they were to see.
    DeadRangesForAllSnapshots,
    /// Walks jump over a dead range whose entries expire after the walk's clock.
    DeadRangesIgnoreClocks,
    /// A cursor that seeks behind the versions of a key passes those that its snapshot sees.
    VersionsSkippedForAllSnapshots,
    /// A get whose record was collected reports the key absent instead of looking again.
    GetDoesNotLookAgain,
    /// A flush logs its table first and the values that it points to in a record of its own.
    PointersLoggedBeforeValues,
    /// A flush does not sync the log although other keyspaces have earlier writes in it only.
    FlushOutrunsTheLog,
    /// The edit of a collection is logged before its copies are synced.
    CollectionNotSynced,
    /// The slots of a collected group are free before the edit that replaces them is logged.
    SlotsFreedBeforeTheEdit,
    /// The edit of a flush is logged before the values that it appended are synced, so that a power
    /// loss tears them.
    AppendsNotSynced,
    /// Records are taken as they are read, whatever their checksum says.
    RecordsUnchecked,
    /// The segments that a collection leaves are known in memory only.
    CollectionNotLogged,
    /// The log does not tell of edits that readers see and no record carries.
    EditsNotLogged,
    /// A log that ends before what the manifest calls durable is taken for whole.
    ShortLogsPass,
    /// A failed sync of a value file counts as a success.
    FailedSyncIgnored,
    /// Collection of a log looks up what a compaction has published before the tree points to it.
    CollectionBesideInstall,
    /// Slots are free again although it is not known whether the edit that names them was logged.
    UnknownSlotsFreed,
    /// A write that the log could not take counts as logged.
    RefusedWritesAcknowledged,
    /// A write that wants to be durable is acknowledged before the log is synced.
    AcknowledgedBeforeSync,
    /// Names of new files are not synced before an edit names them.
    DirectoryNotSynced,
    /// Tables are not synced before an edit names them.
    TableNotSynced,
    /// An edit counts as logged before it is synced.
    EditNotSynced,
    /// Blocks are taken as they are read, whatever their checksum says.
    BlocksUnchecked,
    /// A record that moves to the cold stream and its tag are logged one after the other.
    TagsLoggedBeforeColdRecords,
    /// Readers see a tag before they see the record in the cold stream that it leads to.
    TagsPublishedFirst,
    /// Deletions and inline values leave no marker in their group, although collections that write
    /// pointers judge by the group.
    VersionsNotMarked,
    /// A flush does not tell the collection of a group which keys it wrote there.
    WrittenKeysForgotten,
    /// A pointer that a collection wrote counts as a write of the user, so that the next collection
    /// leaves the value where it is.
    RelocationsTakenForWrites,
    /// Values that moved free their old slots although an older snapshot needs those.
    OldSlotsFreedUnderSnapshots,
    /// Values that moved free their old slots before their new pointers are durable.
    RelocationsNotSynced,
    /// A group is judged by its records although older tables were never brought into it.
    GroupTrustedTooEarly,
    /// Values are cached under their place in the file, although slots are used again, and a
    /// value that is cached is taken for that of any version.
    ValuesCachedByPlace,
    /// A writer inserts into the leaf that it found although the leaf changed since.
    LeafNotChecked,
    /// Who descends does not look whether the parent changed before the child was noted.
    ChildNotChecked,
    /// A look-up in a leaf counts although the leaf changed meanwhile.
    LookupNotChecked,
    /// A writer makes its batch visible without waiting for the earlier ones.
    PublishedOutOfOrder,
    /// A batch's mark takes the place of one that is not visible yet.
    MarkOverwritten,
    /// Who waited for a sync of another writer takes it for one of its own record.
    SyncNotChecked,
    /// A failed sync is forgotten: the next writer tries again.
    FailedSyncForgotten,
    /// A serializable transaction does not track the stretches that its cursors pass.
    ScansNotTracked,
    /// The check of a transaction is not repeated under the commit lock.
    CheckedBeforeTheLock,
    /// The writes of a transaction go to the store at once.
    WrittenBeforeCommit,
    /// The check of a transaction looks at memtables only.
    TablesNotChecked,
    /// The check of a transaction overlooks range deletes.
    RangeDeletesNotChecked,
    /// A writer of sorted files takes keys in any order.
    SortedFilesUnsorted,
    /// A reader does not look whether a bulk load came between its view and its number.
    LoadsMissedInViews,
    /// A bulk load is installed above memtables with older writes, which are flushed later.
    LoadsAboveOlderWrites,
    /// The number of a bulk load is published before its edit is logged.
    LoadsPublishedFirst,
    /// A bulk load ends beside a checkpoint, whose copy has it then and not what came before it.
    LoadsBesideCheckpoints,
    /// The edit of a bulk load is logged although earlier writes are in the unsynced log only.
    LoadsOutrunTheLog,
    /// The check of a transaction overlooks bulk loads that came behind its view.
    LoadsNotChecked,
    /// A value that a collection moved counts as a write that a transaction conflicts with.
    RelocationsConflict,
    /// A waiter for a lock does not look whether it closes a circle.
    DeadlocksNotSought,
    /// A commit deletes a range although another transaction has locked a key inside.
    LocksIgnoredByRanges,
    /// A tag that is dropped tells the cold stream nothing: its record looks live for ever.
    DroppedTagsForgotten,
    /// Operands are folded onto what a compaction sees next, whatever other tables hold between.
    OperandsFoldedPastTables,
    /// A compaction filter is shown what lies below operands that the compaction does not see.
    FilterIgnoresNewer,
    /// Operands are folded with older ones that a snapshot sees.
    OperandsFoldedAcrossSnapshots,
    /// A delete among operands does not end their chain when they are folded.
    OperandsFoldedOverDeletes,
    /// A delete among operands does not end their chain when it is read.
    OperandsReadOverDeletes,
    /// A get writes what it made of operands over what came since.
    FoldedOverNewer,
    /// An expired entry goes, whatever older version of its key it hid.
    ExpiredDroppedEarly,
    /// What has expired goes although a snapshot, and so perhaps a cursor, sees it.
    ExpiryIgnoresSnapshots,
    /// A clock that is set back shows entries again that were past.
    ClockGoesBack,
    /// The record of a value that expired counts as live.
    ExpiredValuesLive,
    /// What a compaction filter removes uncovers older versions.
    FilterUncoversOlder,
    /// The record of a value that a compaction filter dropped is collected under readers that still
    /// come to it.
    FilteredValuesDeadAtOnce,
    /// A compaction filter decides about what a snapshot sees.
    FilterIgnoresSnapshots,
    /// An entry that a compaction filter changes does not expire any more.
    FilterForgetsExpiry,
}

/// Where a test may step in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waypoint {
    /// A group is sealed and its survivors are copied; the edit is not logged.
    GroupCopied,
    /// The live values of a log's tail are known; nothing of them is moved.
    LiveValuesFound,
    /// A cursor or a get of many keys has its view and no number.
    ViewLoaded,
    /// A get has its view and no number.
    GetViewLoaded,
    /// A bulk load has its number, which is not published.
    LoadNumbered,
    /// A bulk load holds the jobs of its keyspace back, and has no number.
    LoadSettled,
    /// A large batch is logged and in the view; its entries have no numbers yet.
    LargeBatchLogged,
    /// A get has its view and its number, and has looked at nothing.
    GetBegun,
    /// A look-up has found a pointer; it does not know yet which value files there are.
    PointerFound,
    /// Values that a compaction placed are published; the tree does not point to them yet.
    ValuesPublished,
    /// A reader has found the place of a record, and has not read it.
    RecordFound,
    /// One group of an edit is visible, another is not.
    GroupPublished,
    /// A keyspace to be dropped or changed was looked up; nothing is done with it.
    KeyspaceFound,
    /// A keyspace is marked as dropped; the manifest does not say so yet.
    KeyspaceMarked,
    /// A checkpoint knows its moment; the memtables from before it are not replaced.
    MomentKnown,
    /// A checkpoint has replaced the memtables; they are not in tables yet.
    MemtablesReplaced,
    /// A checkpoint has waited until the memtables are in tables; its state is not taken.
    FlushesAwaited,
    /// A memtable was replaced; what that means for writers is not known yet.
    MemtableReplaced,
    /// A batch has its numbers, and its record a place in the log; it is not written.
    RecordPlaced,
    /// What a sync of the log has to cover is known; nothing of it is synced.
    LogSyncBegun,
    /// A compaction looks whether it should go on.
    CompactionGoesOn,
    /// A load has put its tables into the view, and publishes its number next.
    LoadShown,
    /// A get has made a value of many operands, which it writes back next.
    ValueFolded,
    /// A transaction is checked as far as that needs no commit lock, which it takes next.
    TransactionChecked,
}

type Step = Box<dyn FnOnce()>;

thread_local! {
    static ON: Cell<Option<Bug>> = const { Cell::new(None) };
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

/// Runs `step` when this thread next comes to `place`, once.
pub fn step_in(place: Waypoint, step: impl FnOnce() + 'static) {
    STEP.set(Some((place, Box::new(step))));
}

/// Whether the step that was asked for last has been taken.
pub fn has_stepped_in() -> bool {
    STEP.with_borrow(Option::is_none)
}

/// Whether the bug is on in this thread.
pub(crate) fn is_on(bug: Bug) -> bool {
    ON.get() == Some(bug)
}

/// This thread is at a place: takes the step that waits for it.
pub(crate) fn at(place: Waypoint) {
    let due = threads::lend(&STEP, |step| step.take_if(|(wanted, _)| *wanted == place));
    if let Some((_, step)) = due {
        step();
    }
}
