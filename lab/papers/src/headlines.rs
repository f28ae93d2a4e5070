//! What a reader of a paper's page looks for first: the claims by which the paper is known, and the
//! cause of each result in a sentence. The sentences follow the measurements; whoever changes a
//! condition must read them again.

/// A claim, by the name of its row, and the cause of its result.
pub(super) type Headlines = &'static [(&'static str, &'static str)];

pub(super) const AUTUMN: Headlines = &[
    (
        "levels of more than a table, of 80 GB, c = 1 / 0.8 / 0.4 (4.3)",
        "The capacities are the paper's formula.",
    ),
    (
        "us per get, values of 50 B, c = 0.8 over 1 (figure 2b)",
        "Fewer levels are searched, each at the price of a read.",
    ),
    (
        "us per seek, values of 50 B, c = 0.8 over 1 (figure 2c)",
        "A seek positions one run per level.",
    ),
    (
        "us per seek and next 10, 30 GB, 1/512, c = 0.8 over 1 (figure 5c)",
        "The larger the tree, the more levels a smaller c saves.",
    ),
    (
        "throughput of the load in kops/s of simulated time, c = 1 / 0.8 / 0.4 (figure 4)",
        "Writers wait for compactions, and c = 0.4 writes 15% more bytes; beside a background 16 \
         times as fast no load waits, and all take as long.",
    ),
    (
        "write stalls of the load, c = 1 / 0.8 / 0.4 (4.3)",
        "Larger levels sink less often, in larger jobs; where flushes interrupt compactions it \
         is 2644 / 2308 / 1706.",
    ),
    (
        "YCSB D: hits in level 1, c = 0.8 and 0.4 over 1 (4.3)",
        "What waits in level 0 when the mix begins answers first; over three runs there it is 4.0.",
    ),
    (
        "reads in vain, optimal filters over uniform, c = 1 and 0.8, 2 and 5 bits (3)",
        "Small levels get more bits for the same memory.",
    ),
];

pub(super) const HASHKV: Headlines = &[
    (
        "1: bytes of load and updates, HashKV over leveled (figure 5b)",
        "HashKV's tree holds pointers only.",
    ),
    (
        "1: bytes of load and updates, HashKV over vLog (figure 5b)",
        "vLog's collections ask its tree, whose tables then sink; with seek compaction off it is \
         0.99.",
    ),
    (
        "1: updates on flash, HashKV over leveled (figure 5a)",
        "LevelDB compacts in one thread: at the 0.2 GB/s of the paper's figures, on six SSDs, it \
         is 3.41, without a limit 1.78.",
    ),
    (
        "1: updates on flash, HashKV over vLog (figure 5a)",
        "vLog's look-ups wait for one read after another; with seek compaction off it is 6.24.",
    ),
    (
        "2: bytes of updates at these reserves, HashKV over vLog (figure 6b)",
        "As in experiment 1; with seek compaction off it is 1.03 to 1.09.",
    ),
    (
        "4: updates of 4 KiB on flash, HashKV over leveled (figure 8a)",
        "The same thread: on six SSDs it is 3.94, without a limit 1.93.",
    ),
    (
        "5: scans of 1 MiB of six SSDs, HashKV over leveled: 256 B, 1, 4 KiB (figure 9)",
        "Reads side by side, and read-ahead, on all sides; one request at a time gives 0.13, 0.49, \
         1.02.",
    ),
    (
        "6: bytes of updates, a cold stream and 80% more space over none, reserve 20% (figure 10)",
        "Bought with space: the same space without a cold stream gives 0.40.",
    ),
];

pub(super) const KVSSD: Headlines = &[
    ("compaction, LSM = nLSM (figure 5b)", "Both have the same tree."),
    (
        "all writes, nLSM over LSM (split, shared) (figure 5a)",
        "The device knows when a table dies, and writes whole pages.",
    ),
    ("compaction, rLSM over nLSM (figure 5b)", "Pages whose keys fit are moved by their metadata."),
    (
        "collection, rLSM over rLSM(-) (figure 5b)",
        "There is little to save: rewrites end whole tables, and few collected blocks hold valid \
         pages.",
    ),
    ("all writes, rLSM over LSM (split, shared) (figure 5a)", "The product of the layers above."),
    (
        "simulated throughput, rLSM over LSM (split, shared) (figure 6a)",
        "Programs bound the throughput.",
    ),
    (
        "pages read per get, metadata included, rLSM over LSM (figure 6b)",
        "Remapped tables overlap a little more.",
    ),
    (
        "volume that lLSM needs, times the device's (IV-B)",
        "Linked segments own budgets of pages that are never full.",
    ),
];

pub(super) const PARTITIONING: Headlines = &[
    (
        "sub-compactions and moves of {1,3..13} and {4,6..14}, theta = 3 (figure 2)",
        "The example falls apart by the paper's rule.",
    ),
    (
        "time of the writes by its bytes, random keys",
        "Large compactions fall into parts, so their longest chain is shorter.",
    ),
    (
        "bytes compacted per byte of the critical path, random keys",
        "A fresh flush joins all tables of nine compactions in ten; in lanes, of all, and there \
         only cut flushes gain: 3.93.",
    ),
    (
        "tables at the end, random keys: Global-Range over Size",
        "Cells are halved until they fit: the power of two above N / theta; at 40 GiB, reckoned, \
         17% more.",
    ),
    (
        "tables of skewed keys over random ones, Local-Range and Global-Range",
        "With random keys Global-Range makes 79% more tables than Size here, 8% in the paper.",
    ),
    (
        "write amplification, Global-Range and leveled; random keys",
        "Flushes gather while a compaction runs; with all due jobs between two flushes it is 15.21 \
         / 14.15.",
    ),
    (
        "blocks of a get that hits, leveled and Global-Range; random keys",
        "It writes more, so it falls further behind; with all due jobs between two flushes it is \
         3.04 / 3.71, at other scales the other way.",
    ),
];

pub(super) const PTIERDB: Headlines = &[
    (
        "write amplification of PTierDB over leveled (table I)",
        "Levels sink unread; with merges inside every level it is 0.69.",
    ),
    (
        "size of PTierDB over leveled (table I)",
        "Tables are compressed, as in the paper; where they are not it is 0.73.",
    ),
    (
        "size of tiered over leveled (table I)",
        "The mixes overwrite little: a tree that never compacts would hold 1.75.",
    ),
    (
        "time of YCSB C, PTierDB over leveled (figure 7)",
        "Its gets look at 6.4 tables and leveling's at 3.4, which takes processor time; by reads \
         and writes alone it is 0.95.",
    ),
    (
        "time of YCSB E, PTierDB over leveled (figure 7)",
        "The load leaves tables that overlap, and few scans are sampled; after two gets a record \
         it is 1.63, merged inside every level 1.02 (`--only causes`).",
    ),
    (
        "mean of the others over PTierDB's time: A and F, then B, C, D and E (figure 7)",
        "Mix E takes what D gains: without it 0.95, 1.05.",
    ),
    (
        "time of writes of 124 to 1024 B, PTierDB over leveled (6a)",
        "Levels sink without reading the next one.",
    ),
    (
        "time per get of 124 to 1024 B, tiered over PTierDB (section I, 6b)",
        "At 512 B the last level's merges leave as many tables as tiering has; merged inside \
         every level it is 2.79, 2.92, 2.11, 2.51.",
    ),
];
