//! The paper's machine, for files that are in memory: the time of an operation follows from the
//! reads and bytes that the storage counts, and from the tables, blocks and merges that the store
//! counts. So it is the same on every machine.
//!
//! The paper's machine has 64 GB of RAM. Its databases take at most 27 GB in table I, and by our
//! arithmetic 35 GB in figure 2 and 55 GB in figure 6. So its stores read from the page cache what
//! they do not cache themselves, and only writes reach the Intel D3-S4510. A second clock shows how
//! long the same reads take from that SSD. Its family's product specification (of the S4500) gives
//! 110 us for a random read, 500 MB/s of sequential reads and 490 MB/s of sequential writes. One
//! thing is done at a time. Jobs read ahead: their reads have no latency.
//!
//! The times of the processor are round numbers near those of LevelDB, on which the paper's store
//! is built. In LevelDB 1.23 with files in memory, a million records of 116 bytes, a get that
//! probes the filter of one table in vain took 0.73 us, a get that hits 1.5 us, and compactions
//! read and wrote 250 MB/s by LevelDB's statistics. They were measured before the machine first
//! used them.

use std::sync::Arc;

use runstone::metrics::CounterValues;
use runstone::storage::{Category, MemoryStorage, Storage};

/// The medium that files are read from.
struct Medium {
    /// Latency of a random read.
    read_ns: u64,
    read_bytes_per_us: u64,
}

/// A system call and a copy, in round numbers: the paper has no figure.
const PAGE_CACHE: Medium = Medium { read_ns: 1_000, read_bytes_per_us: 5_000 };
const SSD: Medium = Medium { read_ns: 110_000, read_bytes_per_us: 500 };
const WRITTEN_BYTES_PER_US: u64 = 490;

/// Time to find a table in a level and a key in its index or filter.
const TABLE_NS: u64 = 500;
/// Time to find a key in a block.
const BLOCK_NS: u64 = 1_000;
const MERGED_BYTES_PER_US: u64 = 250;

/// How long the machine was busy, for each medium from which files are read, and how much of this
/// time was processor time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Busy {
    pub(super) cached_ns: u64,
    pub(super) ssd_ns: u64,
    pub(super) processor_ns: u64,
}

/// See the module docs.
pub(super) struct Machine {
    pub(super) storage: Arc<MemoryStorage>,
    seen: Moved,
    busy: Busy,
}

/// The counters of the storage at a moment.
#[derive(Clone, Copy, Debug, Default)]
struct Moved {
    reads: u64,
    read_bytes: u64,
    written_bytes: u64,
}

impl Moved {
    /// How long this work takes if this many of its reads wait for the medium.
    fn busy_ns(self, from: &Medium, waiting: u64) -> u64 {
        waiting * from.read_ns
            + self.read_bytes * 1000 / from.read_bytes_per_us
            + self.written_bytes * 1000 / WRITTEN_BYTES_PER_US
    }
}

impl Machine {
    /// A machine that has done nothing.
    pub(super) fn new() -> Machine {
        let storage = Arc::new(MemoryStorage::new());
        Machine { storage, seen: Moved::default(), busy: Busy::default() }
    }

    /// How long the machine was busy with everything that was counted.
    pub(super) fn busy(&self) -> Busy {
        self.busy
    }

    /// Adds the time of a client's reads and writes since the last call.
    pub(super) fn operated(&mut self) {
        let moved = self.moved();
        self.count(moved, moved.reads);
    }

    /// Adds the time of the reads and writes of jobs since the last call.
    pub(super) fn worked(&mut self) {
        let moved = self.moved();
        self.count(moved, 0);
    }

    /// Adds the processor's time for the work that a store counted.
    pub(super) fn computed(&mut self, counted: &CounterValues) {
        let tables = counted.tables_probed + counted.runs_sought;
        let blocks = counted.blocks_searched + counted.runs_sought;
        let merged_bytes = counted.flush_bytes_written
            + counted.compaction_bytes_read
            + counted.compaction_bytes_written;
        let took_ns =
            tables * TABLE_NS + blocks * BLOCK_NS + merged_bytes * 1000 / MERGED_BYTES_PER_US;
        self.busy.cached_ns += took_ns;
        self.busy.ssd_ns += took_ns;
        self.busy.processor_ns += took_ns;
    }

    fn count(&mut self, moved: Moved, waiting: u64) {
        self.busy.cached_ns += moved.busy_ns(&PAGE_CACHE, waiting);
        self.busy.ssd_ns += moved.busy_ns(&SSD, waiting);
    }

    fn moved(&mut self) -> Moved {
        let counters = self.storage.counters();
        let mut now = Moved::default();
        for snapshot in Category::ALL.map(|category| counters.snapshot(category)) {
            now.reads += snapshot.reads;
            now.read_bytes += snapshot.read_bytes;
            now.written_bytes += snapshot.written_bytes;
        }
        let before = std::mem::replace(&mut self.seen, now);
        Moved {
            reads: now.reads - before.reads,
            read_bytes: now.read_bytes - before.read_bytes,
            written_bytes: now.written_bytes - before.written_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_waits_for_its_reads_and_jobs_for_their_bytes() {
        let mut machine = Machine::new();
        let file = machine.storage.create("file", Category::Table).expect("a name");
        file.write_at(0, &[1; 4900]).expect("memory");
        machine.operated();
        assert_eq!(machine.busy(), Busy { cached_ns: 10_000, ssd_ns: 10_000, processor_ns: 0 });
        file.read_at(0, &mut [0; 500]).expect("written");
        machine.operated();
        let operated =
            Busy { cached_ns: 10_000 + 1_100, ssd_ns: 10_000 + 111_000, processor_ns: 0 };
        assert_eq!(machine.busy(), operated);
        file.read_at(0, &mut [0; 500]).expect("written");
        machine.worked();
        let ssd_ns = operated.ssd_ns + 1_000;
        assert_eq!(
            machine.busy(),
            Busy { cached_ns: operated.cached_ns + 100, ssd_ns, ..operated }
        );
    }

    #[test]
    fn the_processor_looks_at_tables_and_blocks_and_merges_bytes() {
        let mut machine = Machine::new();
        let mut counted = CounterValues::default();
        (counted.tables_probed, counted.blocks_searched, counted.runs_sought) = (3, 1, 2);
        (counted.compaction_bytes_read, counted.compaction_bytes_written) = (500, 250);
        machine.computed(&counted);
        let busy_ns = 5 * 500 + 3 * 1_000 + 3_000;
        let busy = Busy { cached_ns: busy_ns, ssd_ns: busy_ns, processor_ns: busy_ns };
        assert_eq!(machine.busy(), busy);
    }
}
