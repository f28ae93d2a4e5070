//! Reads all tables and value files now and then, slowly, so that damage is found while a backup
//! still has the undamaged data.
//!
//! 1. Each file is read from the disk, not from the store's memory, and nothing enters the store's
//!    cache. The scrub opens each table once more, with a small cache of its own.
//! 2. A rate limits the reads. It can change while the scrub runs; 0 ends the scrub.
//! 3. Damage is reported at once, by an event and a counter. The scrub then continues with the next
//!    file.
//! 4. Collections overwrite slots of value files meanwhile. A segment that does not verify counts
//!    as damaged only if it is still in use and a second read does not verify either.
//!
//! In the background, a scrub runs in a thread of its own with the lowest priority. It records its
//! end in the file `scrubbed`, so that a store that is opened every day is scrubbed every week.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::thread;
use std::time::{Duration, SystemTime};

use runstone_storage::{Category, Storage};

use super::Store;
use super::live::{SCRUBBED, SCRUBBED_NEW, forget, since_1970_ms};
use super::verify::{VerifyReport, verify_entries};
use crate::cache::Cache;
use crate::callbacks::event::Event;
use crate::catalog::keyspace::KeyspaceCore;
use crate::error::{Error, Result};
use crate::metrics::Counter;
use crate::store::engine::Engine;
use crate::sync::{Mutex, rank};
use crate::table::handle::TableHandle;
use crate::values::file::ValueFile;
use crate::values::layout::Segment;

/// Memory for partitions of the table that is read. It is not part of the store's budget.
const CACHE_BYTES: u64 = 1 << 20;
/// The scrub sleeps after it has read this many bytes.
const STEP_BYTES: u64 = 128 << 10;
/// How often the scrub checks whether it should end.
const NAP: Duration = Duration::from_millis(50);
/// Added to the niceness of the process.
const NICENESS: i32 = 19;

/// Whether a scrub runs, and how fast.
#[derive(Debug, Default)]
pub(crate) struct Scrubbing {
    /// Held by the running scrub.
    running: Mutex<rank::Scrubbing, ()>,
    has_thread: AtomicBool,
    /// 0 if no scrub runs, or if the running scrub should end.
    rate: AtomicU64,
    /// When the last scrub ended, in milliseconds since 1970. 0 until the background has read it.
    last_ms: AtomicU64,
}

impl Scrubbing {
    /// The rate of the running scrub, in bytes per second.
    pub(crate) fn rate(&self) -> Option<u64> {
        Some(self.rate.load(Acquire)).filter(|rate| *rate > 0)
    }

    /// Asks the running scrub to end soon.
    pub(crate) fn stop(&self) {
        self.rate.store(0, Release);
    }

    /// Waits for the end of the running scrub.
    pub(crate) fn wait(&self) {
        self.stop();
        drop(self.running.lock());
    }
}

impl Store {
    /// Reads all tables and value files and checks every checksum, at this many bytes a second, in
    /// the calling thread, while the store continues to work. Unlike [`Store::verify`], it reads
    /// the disk even where the data is in memory, leaves the cache alone, and reports damage as
    /// soon as it finds it ([`Event::DamageFound`]; `scrub_errors` of the metrics). With the option
    /// [`crate::Options::scrub_every`] the background does this.
    ///
    /// # Errors
    /// If another scrub runs, or the rate is below 16 KiB; [`Error::Closed`] if the store is closed
    /// or somebody ends the scrub; or a storage error. Damage is in the report, and is not an
    /// error.
    pub fn scrub(&self, bytes_per_second: u64) -> Result<VerifyReport> {
        let inner = &self.inner;
        inner.env.check_caller()?;
        let least = crate::options::store::LEAST_RATE_BYTES;
        if bytes_per_second < least {
            let what = format!("a scrub of {bytes_per_second} bytes a second would not end");
            return Err(Error::invalid(what, format!("use {least} or more")));
        }
        let Some(_one) = inner.scrubbing.running.try_lock() else {
            return Err(Error::invalid("another scrub runs", "wait for its end"));
        };
        inner.scrubbing.rate.store(bytes_per_second, Release);
        inner.scrub()
    }
}

/// Starts a scrub in its own thread, or changes the rate of the running scrub.
pub(crate) fn start(engine: &Arc<Engine>, rate: u64) -> io::Result<()> {
    engine.scrubbing.rate.store(rate, Release);
    if engine.scrubbing.has_thread.swap(true, AcqRel) {
        return Ok(());
    }
    let scrubbed = Arc::clone(engine);
    let begin = move || {
        // Only latency suffers if the call fails.
        let _ = rustix::process::nice(NICENESS);
        let scrubbing = &scrubbed.scrubbing;
        loop {
            let one = scrubbing.running.lock();
            match scrubbed.scrub() {
                Ok(_) => scrubbed.note_scrubbed(),
                Err(Error::Closed) => {}
                Err(error) => tracing::warn!(%error, "a scrub failed"),
            }
            drop(one);
            scrubbing.has_thread.store(false, Release);
            // Somebody may have requested another scrub meanwhile.
            if scrubbing.rate().is_none() || scrubbing.has_thread.swap(true, AcqRel) {
                break;
            }
        }
    };
    let started = thread::Builder::new().name("runstone-scrub".into()).spawn(begin);
    started.map(drop).inspect_err(|_| {
        engine.scrubbing.stop();
        engine.scrubbing.has_thread.store(false, Release);
    })
}

/// Starts a scrub if the last one was long enough ago.
pub(crate) fn start_if_due(engine: &Arc<Engine>) {
    let options = &engine.env.options;
    let Some(every) = options.scrub_every else { return };
    let (now_ms, last) = (since_1970_ms(SystemTime::now()), &engine.scrubbing.last_ms);
    if last.load(Acquire) == 0 {
        match read_last(&*engine.env.storage) {
            Some(last_ms) => last.store(last_ms, Release),
            // The first scrub is due after the usual interval.
            None => engine.note_scrubbed(),
        }
    }
    // A clock that was set back must not delay the scrub for ever.
    let last_ms = last.load(Acquire);
    let due = last_ms > now_ms || Duration::from_millis(now_ms - last_ms) >= every;
    if !due || engine.scrubbing.has_thread.load(Acquire) {
        return;
    }
    // The time is set even if the scrub then fails: otherwise each tick would try again.
    last.store(now_ms.max(1), Release);
    if let Err(error) = start(engine, options.scrub_bytes_per_second) {
        tracing::warn!(%error, "a scrub cannot start");
    }
}

fn read_last(storage: &dyn Storage) -> Option<u64> {
    let file = storage.open(SCRUBBED, Category::Other).ok()?;
    let text = file.read_vec(0, file.len().ok()?.min(64) as usize).ok()?;
    std::str::from_utf8(&text).ok()?.trim().parse().ok().filter(|last_ms| *last_ms > 0)
}

impl Engine {
    /// Records the present time as the end of a scrub. On a full disk this fails, and the next open
    /// does not know of the scrub.
    fn note_scrubbed(&self) {
        let (storage, now_ms) = (&*self.env.storage, since_1970_ms(SystemTime::now()).max(1));
        self.scrubbing.last_ms.store(now_ms, Release);
        forget(storage, SCRUBBED_NEW);
        let text = format!("{now_ms}\n");
        let written = storage
            .create(SCRUBBED_NEW, Category::Other)
            .and_then(|file| file.write_at(0, text.as_bytes()))
            .and_then(|()| storage.rename(SCRUBBED_NEW, SCRUBBED));
        if let Err(error) = written {
            forget(storage, SCRUBBED_NEW);
            tracing::debug!(%error, "the time of a scrub is not kept");
        }
    }

    fn scrub(&self) -> Result<VerifyReport> {
        let mut scrub = Scrub {
            engine: self,
            cache: Arc::new(Cache::new(CACHE_BYTES)),
            report: VerifyReport::default(),
            unpaid_bytes: 0,
        };
        let keyspaces = self.catalog.all();
        let outcome = keyspaces.iter().try_for_each(|keyspace| scrub.keyspace(keyspace));
        self.env.metrics.add(Counter::scrub_bytes, scrub.unpaid_bytes);
        self.scrubbing.stop();
        outcome?;
        self.env.metrics.add(Counter::scrubs, 1);
        Ok(scrub.report)
    }
}

/// A running scrub.
struct Scrub<'a> {
    engine: &'a Engine,
    cache: Arc<Cache>,
    report: VerifyReport,
    /// Bytes read since the last sleep.
    unpaid_bytes: u64,
}

impl Scrub<'_> {
    fn keyspace(&mut self, keyspace: &KeyspaceCore) -> Result<()> {
        // The scrub does not hold the version, because that would keep files that compactions
        // replaced.
        let ids = || -> Vec<u64> {
            keyspace.view.load().version.handles().map(|handle| handle.meta().id).collect()
        };
        for id in ids() {
            let found = keyspace.view.load().version.handle(id).cloned();
            let Some(handle) = found else { continue };
            self.rate()?;
            let entries = self.table(&handle);
            self.report.tables += 1;
            self.report.bytes += handle.meta().bytes;
            self.report.entries += entries.as_ref().copied().unwrap_or(0);
            self.note(entries.map(drop))?;
        }
        let values = keyspace.values.load_full();
        for file in values.all() {
            let layout = file.layout();
            for segment in layout.groups.iter().flat_map(|group| group.segments.iter()) {
                self.rate()?;
                self.read(segment.stored_bytes() as usize)?;
                self.report.bytes += segment.stored_bytes();
                let records = records_of(file, segment);
                let is_used = |one: &Arc<ValueFile>| one.number == file.number;
                if keyspace.check_exists().is_err() || !keyspace.values.load().all().any(is_used) {
                    // The file of the table may be gone.
                    break;
                }
                self.report.records += records.as_ref().copied().unwrap_or(0);
                self.note(records.map(drop))?;
            }
        }
        Ok(())
    }

    fn table(&mut self, handle: &TableHandle) -> Result<u64> {
        let reader = handle.open_anew(&self.cache)?;
        verify_entries(&reader, handle.file_meta(), &mut |bytes| self.read(bytes))
    }

    /// Reports the findings in a file.
    fn note(&mut self, outcome: Result<()>) -> Result<()> {
        let known = self.report.damage.len();
        self.report.note(outcome)?;
        let env = &self.engine.env;
        for damage in &self.report.damage[known..] {
            env.metrics.add(Counter::scrub_errors, 1);
            tracing::error!(file = %damage.file, what = %damage.what, "a scrub found damage");
            let (file, what) = (damage.file.clone(), damage.what.clone());
            env.emit(|| Event::DamageFound { file, what });
        }
        Ok(())
    }

    /// The rate in bytes per second. Fails once the scrub should end.
    fn rate(&self) -> Result<u64> {
        let rate = self.engine.scrubbing.rate().filter(|_| !self.engine.schedule.is_closing());
        rate.ok_or(Error::Closed)
    }

    /// Counts the bytes read, and sleeps as the rate demands. Fails once the scrub should end.
    fn read(&mut self, bytes: usize) -> Result<()> {
        self.unpaid_bytes += bytes as u64;
        if self.unpaid_bytes < STEP_BYTES {
            return Ok(());
        }
        self.engine.env.metrics.add(Counter::scrub_bytes, self.unpaid_bytes);
        let mut unpaid = std::mem::take(&mut self.unpaid_bytes) as f64;
        loop {
            // The rate is read again after each sleep, because it can change.
            let rate = self.rate()? as f64;
            let wait = Duration::from_secs_f64(unpaid / rate).min(NAP);
            if wait.is_zero() {
                return Ok(());
            }
            thread::sleep(wait);
            unpaid -= wait.as_secs_f64() * rate;
            if unpaid < 1.0 {
                return Ok(());
            }
        }
    }
}

/// Reads the records of a segment. A segment that was freed meanwhile has none.
fn records_of(file: &ValueFile, segment: &Segment) -> Result<u64> {
    let outcome = file.verify([segment]);
    if outcome.is_ok() {
        return outcome;
    }
    let is_same = |one: &&Segment| one.generation == segment.generation && one.slot == segment.slot;
    let layout = file.layout();
    match layout.groups.iter().flat_map(|group| group.segments.iter()).find(is_same) {
        Some(now) => file.verify([now]),
        None => Ok(0),
    }
}
