//! The order of the engine's locks. ARCHITECTURE.md names its groups; the locks themselves are
//! ordered only here: a thread that holds a lock takes only locks that are later in this list.
//! There are three groups, in this order: locks that a call, a job or a commit holds while it
//! works; locks that the store, its schedule and its pressure hold for a step; and leaves, which
//! guard a few words.

/// The place of a lock in the order, which only debug assertions use.
pub trait Rank {
    /// Locks with larger places are taken later.
    #[cfg(debug_assertions)]
    const PLACE: u8;
    /// Whether a thread may hold several locks of this rank. These locks then need another order.
    #[cfg(debug_assertions)]
    const IS_SHARED: bool = false;
}

macro_rules! ranks {
    ($($(#[$doc:meta])* $name:ident $($shared:literal)?,)*) => {
        #[cfg(debug_assertions)]
        #[repr(u8)]
        enum Place { $($name),* }
        $(
            $(#[$doc])*
            #[derive(Debug)]
            pub enum $name {}
            impl Rank for $name {
                #[cfg(debug_assertions)]
                const PLACE: u8 = Place::$name as u8;
                $(#[cfg(debug_assertions)] const IS_SHARED: bool = $shared;)?
            }
        )*
        /// The names of the ranks, in order.
        #[cfg(debug_assertions)]
        pub(super) const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

ranks! {
    // Locks that a call, a job or a commit holds while it works.
    /// The outcome of a close; held during the close.
    StoreClosed,
    /// The lock of the store's directory.
    StoreLock,
    /// A request of another process, while it is carried out.
    Answering,
    /// A check of all files.
    Scrubbing,
    /// What a follower has read.
    Following,
    /// The lease of a watcher.
    Watching,
    /// The parts of a store, until it is closed.
    StoreParts,
    /// The threads of a store, or of many.
    Threads,
    /// The stores that a round of such a thread has visited.
    Round,
    /// What a thread knows about a store that may be idle.
    Rest,
    /// The stores that share threads.
    Members,
    /// The report to other processes, while it is written.
    Publishing,
    /// When a store checks its latencies again.
    NextLook,
    /// What a transaction has read.
    Reads,
    /// A checkpoint, while flushes have a limit.
    Checkpoint,
    /// A bulk load, while its sequence number is not published.
    Loading,
    /// The plan of a keyspace that is installed part by part.
    Parting,
    /// What a plan has installed.
    Progress,
    /// The first failure of the slices of a compaction.
    SliceFailed,
    /// The slices of a compaction that are done.
    SliceDone,
    /// Excludes flushes and collections that write pointers into a value file from each other. A
    /// flush holds the locks of all its keyspaces, and no other flush or collection has a claim to
    /// any of these keyspaces.
    Flushing true,
    /// The switch to a new generation of memtables.
    Turning,
    /// A large batch, from its segment to its publication.
    Large,
    /// The next batch that is too long to be noted for conditional commits.
    Unnoted,
    /// The open manifest, the flushed sequence numbers and the floor of the log; held during each
    /// append and its sync.
    Manifest,
    /// The rule that cuts the tables of a keyspace by prefix.
    Prefixer,

    // Locks that the store, its schedule and its pressure hold for a step.
    /// The claims of running jobs.
    Claiming,
    /// One measurement of pressure at a time.
    Refreshing,
    /// The keyspaces that exert pressure.
    Pressed,
    /// The stores that share a budget.
    SiblingStores,
    /// The map of keyspaces.
    Keyspaces,
    /// The range deletes of a memtable, while their set is replaced.
    CountedRanges,
    /// The entries of a memtable that expire, while they are counted.
    Expiries,
    /// The values that were appended to a file before their writes were logged.
    EarlyValues,
    /// The segments of a value file.
    ValueFile,
    /// Each sync of a value file, and its first failure.
    ValueSync,
    /// The next sequence number, the write end of the log, and the switch of memtables.
    Commit,
    /// The replacement of a keyspace's view.
    View,
    /// The keyspaces whose writes are only in the log.
    Unflushed,
    /// The ranges that commits are deleting.
    LockedRanges,
    /// Some of the keys that transactions have locked.
    LockShard,
    /// Which transaction waits for which other transaction.
    LockNotes,
    /// The moments that snapshots hold.
    Snapshots,
    /// The open cursors.
    StandingCursors,

    // Leaves.
    /// The segments of the log that are kept for readers of the history.
    KeptLog,
    /// The commits that wait for a sync.
    Awaited,
    /// The stores that are served by the thread for such syncs.
    Syncing,
    /// The value files that a sync of the log must sync first.
    UnsyncedValues,
    /// The segments of early values that readers see.
    ShownEarly,
    /// Why writes are refused.
    Health,
    /// The ends of the generations that are not flushed.
    Moments,
    /// The delay of writers.
    Throttling,
    /// The memory of memtables when it was last measured.
    MeasuredBuffers,
    /// The time at which the bytes that compactions wrote are paid for.
    IoRate,
    /// The latencies that stores which share a rate have measured.
    Target,
    /// How long synced writes take while compactions run.
    Pacing,
    /// The stores that may have work.
    ReadyStores,
    /// A table that is opened.
    OpeningTable,
    /// Tables whose files may be removed.
    Purge,
    /// What is kept for readers in other processes.
    Leases,
    /// The views of a reader beside a writer.
    LeaseViews,
    /// Tables that reads have searched in vain often enough.
    SpentSeeks,
    /// The reads that were sampled.
    Heat,
    /// Segments that are prepared for the log.
    Spares,
    /// The file that reserves space for deletes.
    Reserve,
    /// The files that somebody holds, by name.
    FileNames,
    /// The files that are open.
    OpenFiles,
    /// Each sync of the directory.
    DirectorySync,
    /// Filters for the next memtables.
    FreeFilters,
    /// A writer's part of a memtable's memory.
    ArenaSlab,
    /// The pages of a memtable that readers pin.
    Pins,
    /// The chunks of a memtable.
    Chunks,
    /// Memory elsewhere that belongs to a memtable.
    ChunksBeside,
    /// Chunks for the next memtables.
    FreeChunks,
    /// Chunks to be made again.
    StaleChunks,
    /// The capacity that the cache was last given.
    CacheCapacity,
    /// The slabs of one size.
    SlabClass,
    /// Regions that slabs do not use.
    SpareRegions,
    /// The files of a backup that is verified.
    OverlayFiles,
    /// The bytes that were written to one of these files.
    OverlayPages,
}
