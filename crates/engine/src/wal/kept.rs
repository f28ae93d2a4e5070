//! Segments that no open needs, kept for readers of the log as a history. They are below the floor
//! of the log, under their own names. The oldest is removed first, and its file is reused.
//!
//! The age of a segment is the time since an open last needed it. No file records this moment, so a
//! later open counts from the last write to the segment, which is earlier. That age depends on the
//! clock of the machine. If the clock went back, or the storage reports no time, the age counts
//! from the open.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::options::store::Options;
use crate::sync::{Mutex, rank};

/// Limits on the part of the log that is kept although no open needs it.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogRetention {
    /// The most bytes. If it is 0, nothing is kept, unless `time` is set: then only `time` limits
    /// what is kept.
    pub bytes: u64,
    /// The longest time; `None` for no limit.
    pub time: Option<Duration>,
}

impl LogRetention {
    /// The limits in the options of a store.
    pub fn of(options: &Options) -> LogRetention {
        let seconds = Some(options.keep_log_seconds).filter(|seconds| *seconds > 0);
        LogRetention { bytes: options.keep_log_bytes, time: seconds.map(Duration::from_secs) }
    }
}

/// The segments that are kept.
#[derive(Debug)]
pub struct KeptSegments {
    retention: LogRetention,
    kept: Mutex<rank::KeptLog, List>,
}

/// The oldest segment is first. The sum of their bytes is kept with them: there may be many.
#[derive(Debug, Default)]
struct List {
    segments: VecDeque<Kept>,
    bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    number: u64,
    recyclable: bool,
    bytes: u64,
    since: Instant,
    /// The age of the segment at `since`.
    before: Duration,
}

impl KeptSegments {
    /// A list without segments.
    pub fn new(retention: LogRetention) -> KeptSegments {
        KeptSegments { retention, kept: Mutex::default() }
    }

    /// Whether any segments should be kept.
    pub fn keeps(&self) -> bool {
        self.retention.bytes > 0 || self.retention.time.is_some()
    }

    /// Keeps a segment of this age. `recyclable` says whether its file can be used again. Two
    /// threads may release segments at once, so a newer one may be in the list already.
    pub fn add(&self, (number, recyclable): (u64, bool), bytes: u64, before: Duration) {
        let since = Instant::now();
        let mut kept = self.kept.lock();
        let at = kept.segments.partition_point(|one| one.number < number);
        kept.segments.insert(at, Kept { number, recyclable, bytes, since, before });
        kept.bytes += bytes;
    }

    /// Removes from the list the segments beyond the allowed size or age, or all segments. Returns
    /// them with their bytes.
    pub fn take(&self, everything: bool) -> Vec<((u64, bool), u64)> {
        let LogRetention { bytes, time } = self.retention;
        let most_bytes = if bytes == 0 && time.is_some() { u64::MAX } else { bytes };
        let mut kept = self.kept.lock();
        let mut taken = Vec::new();
        while let Some(oldest) = kept.segments.front().copied() {
            let age = oldest.before.saturating_add(oldest.since.elapsed());
            let is_old = time.is_some_and(|most| age > most);
            if !everything && !is_old && kept.bytes <= most_bytes {
                break;
            }
            kept.bytes -= oldest.bytes;
            taken.push(((oldest.number, oldest.recyclable), oldest.bytes));
            kept.segments.pop_front();
        }
        taken
    }

    /// The size of the kept segments, in bytes.
    pub fn bytes(&self) -> u64 {
        self.kept.lock().bytes
    }

    /// Whether a segment is kept.
    pub fn holds(&self, number: u64) -> bool {
        self.kept.lock().segments.binary_search_by_key(&number, |one| one.number).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_first() {
        let kept = KeptSegments::new(LogRetention { bytes: 100, time: None });
        (1..=4).for_each(|number| kept.add((number, number % 2 == 0), 40, Duration::ZERO));
        assert_eq!(kept.take(false), [((1, false), 40), ((2, true), 40)]);
        assert_eq!((kept.bytes(), kept.holds(2), kept.holds(3)), (80, false, true));
        assert_eq!(kept.take(true), [((3, false), 40), ((4, true), 40)]);
        assert_eq!(kept.take(true), []);
    }

    /// Guards against a bug: the segment that was released last was kept longest, and a newer one
    /// was removed before it.
    #[test]
    fn they_may_come_in_any_order() {
        let kept = KeptSegments::new(LogRetention { bytes: 100, time: None });
        [7, 5, 6].into_iter().for_each(|number| kept.add((number, true), 40, Duration::ZERO));
        assert_eq!(kept.take(false), [((5, true), 40)]);
        assert!(kept.holds(6) && kept.holds(7) && !kept.holds(5));
    }

    /// Guards against two bugs: a limit of time alone kept nothing, and each open restarted the
    /// count.
    #[test]
    fn old_ones_go_too_however_many_bytes_stay() {
        let (second, hour) = (Duration::from_secs(1), Duration::from_secs(3600));
        for bytes in [0, 1 << 40] {
            let kept = KeptSegments::new(LogRetention { bytes, time: Some(hour) });
            assert!(kept.keeps());
            kept.add((1, true), 1 << 30, hour);
            kept.add((2, true), 1 << 30, hour - 10 * second);
            kept.add((3, true), 1 << 30, Duration::ZERO);
            // An hour and a moment is more than an hour.
            std::thread::sleep(Duration::from_millis(1));
            assert_eq!(kept.take(false), [((1, true), 1 << 30)]);
            assert!(kept.holds(2) && kept.holds(3));
        }
        assert!(!KeptSegments::new(LogRetention::default()).keeps());
    }
}
