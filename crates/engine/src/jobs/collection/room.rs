//! Makes room for a flush in a value file: collects garbage, waits for snapshots, and decides what
//! to do when nothing can be freed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use runstone_storage::Full;

use crate::catalog::keyspace::KeyspaceCore;
use crate::error::{Error, Result, VALUES_OF};
use crate::format::record::record_bytes;
use crate::jobs::collection::{Collected, Collector};
use crate::keys::{SeqNo, is_operand};
use crate::memtable::{Memtable, MemtableIter};
use crate::metrics::Counter;
use crate::options::values::{ValueOptions, WhenFull};
use crate::values::file::ValueFile;

impl Collector {
    /// Makes room for a flush, and collects as long as that frees something. The keyspace's options
    /// decide what happens when nothing can be freed.
    pub(crate) fn make_room(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        memtable: &Arc<Memtable>,
    ) -> Result<()> {
        let values = keyspace.values.load_full();
        let Some(store) = &values.current else { return Ok(()) };
        if self.schedule.is_closing() {
            return Ok(());
        }
        let options = &keyspace.options.load().values;
        let follows = options.capacity_bytes == 0;
        let has_snapshots = self.visibility.points().len() > 1;
        let bytes = match follows {
            true => BTreeMap::new(),
            false => planned_bytes(store, options, memtable, has_snapshots),
        };
        let started = Instant::now();
        loop {
            let points = self.visibility.points();
            let over = {
                let mut state = store.state.lock();
                state.reclaim();
                let need = store.planned_slots(&state, &bytes);
                state.pool.used() + need > store.limit_slots(&state, options)
            };
            if !over {
                return Ok(());
            }
            match self.collect(keyspace, store)? {
                Collected::Freed => {}
                Collected::Busy => {
                    self.schedule.while_held_up(|| self.wait_for_collection(store))?;
                }
                Collected::Nothing if follows => return Ok(()),
                Collected::Nothing => {
                    if !self.wait_for_snapshots(options, started, &points)? {
                        return self.values_full(keyspace, options, &points);
                    }
                }
            }
        }
    }

    pub(crate) fn wait_for_collection(&self, store: &ValueFile) -> Result<()> {
        self.schedule.check_open()?;
        // A collection that panicked never ends.
        self.env.check_not_stopped()?;
        let mut state = store.state.lock();
        if state.collecting || state.appenders > 0 {
            store.ended.wait_for(&mut state, Duration::from_millis(50));
        }
        Ok(())
    }

    /// Waits a little if `when_full = "stall"`. Returns `false` once the longest wait has passed.
    fn wait_for_snapshots(
        &self,
        options: &ValueOptions,
        started: Instant,
        points: &[SeqNo],
    ) -> Result<bool> {
        let waits = options.when_full == WhenFull::Stall
            && started.elapsed().as_millis() < u128::from(options.stall_ms)
            && points.len() > 1;
        if waits {
            self.schedule.check_open()?;
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(waits)
    }

    /// Decides what to do with data that exceed the capacity. If the live data alone exceed it, the
    /// file grows: a refused flush would also refuse the deletions that can help. For the flush of
    /// a checkpoint the file grows too, if no other snapshot keeps garbage: the checkpoint releases
    /// its own snapshot as soon as it has its state.
    fn values_full(
        &self,
        keyspace: &KeyspaceCore,
        options: &ValueOptions,
        points: &[SeqNo],
    ) -> Result<()> {
        let own_snapshots = usize::from(self.schedule.flush_limit() != u64::MAX);
        if options.when_full != WhenFull::Error || points.len() <= 1 + own_snapshots {
            self.env.metrics.add(Counter::value_grown, 1);
            return Ok(());
        }
        Err(Error::NoSpace {
            full: Full::Space,
            path: format!("{VALUES_OF} {:?}", keyspace.name),
            what: format!(
                "{} bytes and the reserve are taken, and no garbage is free of snapshots",
                options.capacity_bytes
            ),
        })
    }
}

/// The largest number of record bytes that a flush of the memtable adds to each group. Without
/// snapshots a flush writes one version of a key: the newest, or what operands make of an older
/// one.
fn planned_bytes(
    store: &ValueFile,
    options: &ValueOptions,
    memtable: &Arc<Memtable>,
    has_snapshots: bool,
) -> BTreeMap<u32, u64> {
    let mut bytes: BTreeMap<u32, u64> = BTreeMap::new();
    let mut iter = MemtableIter::new(Arc::clone(memtable));
    iter.seek_to_first();
    let mut last: Option<Vec<u8>> = None;
    while let Some(record) = iter.record() {
        let (key, value) = (record.key(), record.value());
        let stays = has_snapshots || last.as_deref() != Some(key);
        let is_apart = value.len() >= options.separate_at as usize;
        if stays && (is_apart || store.writes_back) {
            let value_bytes = if is_apart { value.len() } else { 0 };
            *bytes.entry(store.group_of(key)).or_default() += record_bytes(key.len(), value_bytes);
        }
        if stays && !has_snapshots && !is_operand(record.trailer()) {
            last = Some(key.to_vec());
        }
        iter.next();
    }
    bytes
}
