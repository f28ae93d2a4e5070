//! Keeps a walk over a table from filling the system's page cache: after the walk, the page cache
//! has no more of the table than before. A compaction reads each block only once, and its blocks
//! would push out blocks that are read often, for example by gets.
//!
//! 1. A file is divided into regions, and these into chunks. Before the walk reads a region, it
//!    asks the system which chunks are in memory. The kernel reads ahead, and chunks that it has
//!    read ahead must not seem to have been there before. So the walk asks about regions up to
//!    [`AHEAD_BYTES`] ahead.
//! 2. Once the walk is past a region, the system is told to drop the chunks that were not in memory
//!    before.
//! 3. If the system does not report which chunks are in memory, nothing is dropped, because others
//!    may read these blocks.
//!
//! A table counts how many of the walked chunks were in memory. If most chunks of a compaction's
//! inputs were not, the compaction keeps its output out of the page cache too ([`Warmth`]).

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use runstone_storage::StorageFile;

/// The kernel reads 128 KiB ahead, or as much as is set for the device: 8 MiB where this was
/// measured. Its reads reach twice as far, because it begins the next stretch in the middle of the
/// current one.
const AHEAD_BYTES: u64 = 32 << 20;
const REGION_BYTES: u64 = 256 << 10;
const CHUNK_BYTES: u64 = 16 << 10;
const CHUNKS: u64 = REGION_BYTES / CHUNK_BYTES;

/// Counts the chunks of a table that walks have reached.
#[derive(Debug, Default)]
pub struct Warmth {
    /// The chunks that the system had in memory, or about which it reports nothing.
    warm: AtomicU64,
    cold: AtomicU64,
}

impl Warmth {
    /// Whether more than half of the walked chunks of these tables were not in memory.
    pub fn is_cold<'a>(all: impl Iterator<Item = &'a Warmth>) -> bool {
        let sum = |(warm, cold): (u64, u64), one: &Warmth| {
            (warm + one.warm.load(Relaxed), cold + one.cold.load(Relaxed))
        };
        let (warm, cold) = all.fold((0, 0), sum);
        cold > warm
    }
}

/// The position of a walk, and which chunks of the regions around it were in memory before.
#[derive(Debug, Default)]
pub(crate) struct Behind {
    /// Numbers of regions, ascending, with a bit for each chunk that was in memory.
    asked: VecDeque<(u64, u16)>,
    /// The first region about which the system was not asked.
    next: u64,
}

impl Behind {
    /// Called when the walk is about to read a range of a file of `len` bytes. The walk no longer
    /// needs anything before the range.
    pub(crate) fn enter(
        &mut self,
        (file, len): (&dyn StorageFile, u64),
        range: Range<u64>,
        warmth: &Warmth,
    ) {
        let first = range.start / REGION_BYTES;
        let ends = self.asked.front().zip(self.asked.back());
        if ends.is_some_and(|((least, _), (most, _))| first < *least || first > *most) {
            // The walk jumped elsewhere.
            self.leave(file);
        }
        if self.asked.is_empty() {
            self.next = first;
        }
        let end = len.min(range.end + AHEAD_BYTES);
        while self.next * REGION_BYTES < end {
            self.asked.push_back((self.next, chunks_there((file, len), self.next, warmth)));
            self.next += 1;
        }
        while self.asked.front().is_some_and(|(region, _)| *region < first) {
            self.drop_first(file);
        }
    }

    /// Called when the walk has ended.
    pub(crate) fn leave(&mut self, file: &dyn StorageFile) {
        while !self.asked.is_empty() {
            self.drop_first(file);
        }
    }

    fn drop_first(&mut self, file: &dyn StorageFile) {
        let Some((region, there)) = self.asked.pop_front() else { return };
        let mut chunk = 0;
        while chunk < CHUNKS {
            let run = (chunk..CHUNKS).take_while(|chunk| there >> chunk & 1 == 0).count() as u64;
            if run > 0 {
                let begin = region * REGION_BYTES + chunk * CHUNK_BYTES;
                file.drop_cached(begin, run * CHUNK_BYTES);
            }
            chunk += run + 1;
        }
    }
}

/// The chunks of a region that the system has in memory, at least in part. Chunks beyond the end of
/// the file count as in memory, and are not part of the warmth: most tables of a small store end in
/// their first region.
fn chunks_there((file, len): (&dyn StorageFile, u64), region: u64, warmth: &Warmth) -> u16 {
    let begin = region * REGION_BYTES;
    let bytes = REGION_BYTES.min(len - begin);
    let (chunks, beyond) = match bytes.div_ceil(CHUNK_BYTES) {
        CHUNKS => (CHUNKS, 0),
        chunks => (chunks, u16::MAX << chunks),
    };
    let there = match file.cached_bytes(begin, bytes) {
        Some(0) => beyond,
        Some(cached) if cached < bytes => (0..chunks).fold(beyond, |there, chunk| {
            let cached = file.cached_bytes(begin + chunk * CHUNK_BYTES, CHUNK_BYTES);
            there | u16::from(cached != Some(0)) << chunk
        }),
        _ => u16::MAX,
    };
    let warm = u64::from((there & !beyond).count_ones());
    warmth.warm.fetch_add(warm, Relaxed);
    warmth.cold.fetch_add(chunks - warm, Relaxed);
    there
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Mutex;

    use runstone_storage::Result;

    use super::*;

    /// A file with some chunks in memory. It notes the chunks that it was told to drop.
    #[derive(Debug, Default)]
    struct Told {
        cached: BTreeSet<u64>,
        dropped: Mutex<Vec<Range<u64>>>,
        is_silent: bool,
    }

    impl StorageFile for Told {
        fn read_at(&self, _offset: u64, _buf: &mut [u8]) -> Result<()> {
            Ok(())
        }
        fn write_at(&self, _offset: u64, _data: &[u8]) -> Result<()> {
            Ok(())
        }
        fn sync(&self) -> Result<()> {
            Ok(())
        }
        fn len(&self) -> Result<u64> {
            Ok(1 << 30)
        }
        fn set_len(&self, _len_bytes: u64) -> Result<()> {
            Ok(())
        }
        fn allocate(&self, _offset: u64, _len_bytes: u64) -> Result<()> {
            Ok(())
        }
        fn punch(&self, _offset: u64, _len_bytes: u64) -> Result<()> {
            Ok(())
        }
        fn cached_bytes(&self, offset: u64, len_bytes: u64) -> Option<u64> {
            let chunks = offset / CHUNK_BYTES..(offset + len_bytes) / CHUNK_BYTES;
            let count = chunks.filter(|chunk| self.cached.contains(chunk)).count() as u64;
            (!self.is_silent).then_some(count * CHUNK_BYTES)
        }
        fn drop_cached(&self, offset: u64, len_bytes: u64) {
            let chunks = offset / CHUNK_BYTES..(offset + len_bytes) / CHUNK_BYTES;
            self.dropped.lock().expect("no panic").push(chunks);
        }
    }

    fn walk(file: &Told, from: u64, to: u64) -> (Vec<Range<u64>>, bool) {
        let (mut behind, warmth) = (Behind::default(), Warmth::default());
        for read in (from..to).step_by(REGION_BYTES as usize / 2) {
            behind.enter((file, 5 * REGION_BYTES), read..read + REGION_BYTES / 2, &warmth);
        }
        behind.leave(file);
        (
            std::mem::take(&mut file.dropped.lock().expect("no panic")),
            Warmth::is_cold([&warmth].into_iter()),
        )
    }

    #[test]
    fn what_was_there_stays_and_the_rest_goes() {
        // One chunk of the second region, and all of the third.
        let cached = [20].into_iter().chain(32..48).collect();
        let file = Told { cached, ..Told::default() };
        let dropped = vec![0..16, 16..20, 21..32, 48..64, 64..80];
        assert_eq!(walk(&file, 0, 4 * REGION_BYTES), (dropped, true));
        let rest = vec![16..20, 21..32, 48..64, 64..80];
        assert_eq!(walk(&file, REGION_BYTES, 2 * REGION_BYTES), (rest, true), "read ahead");
        let silent = Told { is_silent: true, ..Told::default() };
        assert_eq!(walk(&silent, 0, 4 * REGION_BYTES), (vec![], false), "nothing is known");
    }

    /// Once, chunks beyond the end of a small table counted as not in memory.
    #[test]
    fn a_small_file_in_memory_is_warm() {
        let cached = (0..6).collect();
        let file = Told { cached, ..Told::default() };
        for (chunks, is_cold) in [(4, false), (6, false), (11, false), (13, true)] {
            let (mut behind, warmth) = (Behind::default(), Warmth::default());
            let len = chunks * CHUNK_BYTES;
            behind.enter((&file, len), 0..len, &warmth);
            behind.leave(&file);
            assert_eq!(Warmth::is_cold([&warmth].into_iter()), is_cold, "{chunks} chunks");
            let dropped = std::mem::take(&mut *file.dropped.lock().expect("no panic"));
            let expected: Vec<_> = (chunks > 6).then_some(6..chunks).into_iter().collect();
            assert_eq!(dropped, expected, "{chunks} chunks");
        }
    }

    #[test]
    fn a_walk_that_goes_elsewhere_drops_what_it_came_from() {
        let (file, warmth) = (Told::default(), Warmth::default());
        let mut behind = Behind::default();
        let at = |region: u64| region * REGION_BYTES..region * REGION_BYTES + 1000;
        for region in [0, 200, 0] {
            behind.enter((&file, 1000 * REGION_BYTES), at(region), &warmth);
        }
        behind.leave(&file);
        let dropped = std::mem::take(&mut *file.dropped.lock().expect("no panic"));
        let regions = (0..129).chain(200..329).chain(0..129);
        let chunks = regions.map(|region| region * CHUNKS..(region + 1) * CHUNKS);
        assert_eq!(dropped, chunks.collect::<Vec<_>>());
    }
}
