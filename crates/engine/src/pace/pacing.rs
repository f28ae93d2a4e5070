//! The pace of compactions while there are synced writes. On a machine with few cores, or with a
//! disk that both use, a synced write takes longer while a compaction works. So a compaction pauses
//! now and then while there are synced writes. The pauses also show how long these writes take
//! undisturbed. Flushes never pause, because writers wait for them.
//!
//! 1. A synced write is calm if no compaction worked from its beginning to its end, and disturbed
//!    otherwise. The mean of each kind is kept, and recent writes weigh most.
//! 2. A compaction works for a turn. Then [`share_permille`] gives the share of the time for work:
//!    the largest share that leaves writers [`KEPT_PERMILLE`] of their undisturbed rate.
//! 3. All compactions of the store pause at the same time. Otherwise the writes would never be
//!    calm.
//! 4. There is no pause if there was no synced write lately, if a pause makes no difference, or if
//!    writers would have to be slowed down soon: see [`Seen::pause`].
//!
//! A machine that is slow for another reason, such as other programs, slows calm writes and
//! disturbed ones alike. Then a pause would help nobody, and step 2 gives none.

use std::time::{Duration, Instant};

use crate::sync::{Mutex, rank};

/// The part of their undisturbed rate that writers keep.
const KEPT_PERMILLE: u64 = 870;
/// The smallest share of the time in which compactions work.
const LEAST_SHARE_PERMILLE: u64 = 250;
/// The largest share as long as there are synced writes: the rest of the time shows how long they
/// take undisturbed.
const MOST_SHARE_PERMILLE: u64 = 960;
/// The share while one of the means is not known.
const FIRST_SHARE_PERMILLE: u64 = 500;
/// Pauses get shorter beyond this fraction of the way to the slowdown of writers.
const NEAR_PERMILLE: u64 = 750;

/// A turn of work must have room for several writes, and the latency of the disk is not known in
/// advance.
const LEAST_TURN: Duration = Duration::from_millis(4);
const MOST_TURN: Duration = Duration::from_millis(25);
const WRITES_PER_TURN: u32 = 16;
/// Pauses shorter than this are added up, because they would show no undisturbed write.
const LEAST_PAUSE: Duration = Duration::from_millis(4);
/// A synced write that ended longer ago than this does not count, unless writes take a long time.
const LATELY: Duration = Duration::from_millis(20);

/// The share of the time in which compactions may work, if synced writes take this long on average.
///
/// Writes per second are (1 - share) / calm + share / disturbed. This is `KEPT_PERMILLE` of the
/// calm rate if share x (1 - calm / disturbed) is what remains of 1000.
fn share_permille(calm: Option<Duration>, disturbed: Option<Duration>) -> u64 {
    let (Some(calm), Some(disturbed)) = (calm, disturbed) else { return FIRST_SHARE_PERMILLE };
    let calm_permille = (calm.as_nanos() * 1000 / disturbed.as_nanos().max(1)).min(1000) as u64;
    let share = (1000 - KEPT_PERMILLE) * 1000 / (1000 - calm_permille).max(1);
    share.clamp(LEAST_SHARE_PERMILLE, MOST_SHARE_PERMILLE)
}

/// The measurements at the end of a turn of work.
#[derive(Clone, Copy, Debug)]
struct Seen {
    calm: Option<Duration>,
    disturbed: Option<Duration>,
    /// The time since the last synced write; zero while one is under way.
    since_last: Duration,
    /// How far the store is on the way to the slowdown of writers.
    fullness_permille: u64,
}

impl Seen {
    /// The pause for this much work.
    fn pause(&self, worked: Duration) -> Duration {
        let lately = LATELY.max(self.calm.unwrap_or_default() * 4);
        if self.since_last > lately || self.fullness_permille >= 1000 {
            return Duration::ZERO;
        }
        let share = share_permille(self.calm, self.disturbed);
        let room = (1000 - self.fullness_permille).min(1000 - NEAR_PERMILLE);
        let nanos = worked.as_nanos() as u64 * (1000 - share) / share;
        Duration::from_nanos(nanos * room / (1000 - NEAR_PERMILLE))
    }

    fn turn(&self) -> Duration {
        (self.calm.unwrap_or_default() * WRITES_PER_TURN).clamp(LEAST_TURN, MOST_TURN)
    }
}

/// A mean. Each turn that ends lowers the weight of all earlier writes.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum: Duration,
    count: u32,
}

impl Mean {
    /// The largest number of writes that keep their full weight if no turn ends.
    const MOST: u32 = 4096;

    fn add(&mut self, took: Duration) {
        if self.count >= Mean::MOST {
            *self = Mean { sum: self.sum / 2, count: self.count / 2 };
        }
        self.sum += took;
        self.count += 1;
    }

    /// Ends a turn: earlier writes weigh an eighth less. A few writes keep their weight, so that
    /// the mean does not become unknown.
    fn fade(&mut self) {
        if self.count >= 8 {
            let count = self.count - self.count / 8;
            *self = Mean { sum: self.sum / self.count * count, count };
        }
    }

    fn get(self) -> Option<Duration> {
        (self.count > 0).then(|| self.sum / self.count)
    }
}

/// Measures synced writes and tells compactions when to pause.
#[derive(Debug, Default)]
pub(crate) struct Pace(Mutex<rank::Pacing, State>);

#[derive(Debug, Default)]
struct State {
    calm: Mean,
    disturbed: Mean,
    /// Synced writes under way.
    writing: usize,
    last_write: Option<Instant>,
    /// Compactions that are working and not pausing.
    working: usize,
    /// Increases whenever a compaction begins to work.
    beginnings: u64,
    /// When the present turn began.
    turn_began: Option<Instant>,
    paused_until: Option<Instant>,
    /// The sum of pauses that were too short.
    owed: Duration,
}

/// A synced write under way.
#[derive(Debug)]
pub(crate) struct SyncedWrite {
    began: Instant,
    /// The value of `beginnings` when the write began, if no compaction worked then.
    calm_at: Option<u64>,
}

/// A compaction that works or pauses.
#[derive(Debug)]
pub(crate) struct Worker<'a>(&'a Pace);

impl Pace {
    /// Begins to measure a synced write.
    pub(crate) fn begin_write(&self, now: Instant) -> SyncedWrite {
        let mut state = self.0.lock();
        state.writing += 1;
        SyncedWrite { began: now, calm_at: (state.working == 0).then_some(state.beginnings) }
    }

    /// Ends the measurement.
    pub(crate) fn end_write(&self, write: SyncedWrite, now: Instant) {
        let mut state = self.0.lock();
        state.writing -= 1;
        state.last_write = Some(now);
        let is_calm = write.calm_at == Some(state.beginnings);
        let mean = if is_calm { &mut state.calm } else { &mut state.disturbed };
        mean.add(now - write.began);
    }

    /// Notes that a compaction begins to work.
    pub(crate) fn work(&self, now: Instant) -> Worker<'_> {
        self.0.lock().begin_work(now);
        Worker(self)
    }
}

impl Worker<'_> {
    /// Compactions call this at intervals. If the compaction should pause, it counts as paused from
    /// now on, and calls [`Worker::resume`] after this much time.
    pub(crate) fn pause(&self, now: Instant, fullness: impl FnOnce() -> u64) -> Option<Duration> {
        let mut state = self.0.0.lock();
        if state.paused_until.is_none_or(|until| until <= now) && !state.begin_pause(now, fullness)
        {
            return None;
        }
        let until = state.paused_until.filter(|until| *until > now)?;
        state.end_work();
        Some(until - now)
    }

    /// Ends the pause.
    pub(crate) fn resume(&self, now: Instant) {
        self.0.0.lock().begin_work(now);
    }
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        self.0.0.lock().end_work();
    }
}

impl State {
    fn begin_work(&mut self, now: Instant) {
        if self.working == 0 {
            self.calm.fade();
            self.turn_began = Some(now);
        }
        self.working += 1;
        self.beginnings += 1;
    }

    fn end_work(&mut self) {
        self.working -= 1;
    }

    /// Ends the turn if it is over; `true` if a pause begins.
    fn begin_pause(&mut self, now: Instant, fullness: impl FnOnce() -> u64) -> bool {
        let worked = self.turn_began.map_or(Duration::ZERO, |began| now - began);
        let since_last = match (self.writing, self.last_write) {
            (0, last) => last.map_or(Duration::MAX, |last| now.saturating_duration_since(last)),
            _ => Duration::ZERO,
        };
        let (calm, disturbed) = (self.calm.get(), self.disturbed.get());
        let mut seen = Seen { calm, disturbed, since_last, fullness_permille: 0 };
        if worked < seen.turn() {
            return false;
        }
        if self.last_write.is_some() || self.writing > 0 {
            seen.fullness_permille = fullness();
        }
        self.disturbed.fade();
        self.turn_began = Some(now);
        let pause = seen.pause(worked.min(2 * MOST_TURN));
        self.owed = if pause.is_zero() { pause } else { self.owed + pause };
        let is_due = self.owed >= LEAST_PAUSE;
        if is_due {
            self.paused_until = Some(now + std::mem::take(&mut self.owed));
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICRO: Duration = Duration::from_micros(1);
    const MILLI: Duration = Duration::from_millis(1);

    fn seen(calm: u32, disturbed: u32) -> Seen {
        let [calm, disturbed] =
            [calm, disturbed].map(|micros| (micros > 0).then(|| MICRO * micros));
        Seen { calm, disturbed, since_last: Duration::ZERO, fullness_permille: 0 }
    }

    /// One row: the means in microseconds, and the share of work.
    #[test]
    fn the_share_of_work_follows_what_work_costs_writers() {
        let rows = [
            // Work costs nothing, or the writes during it are even faster.
            (160, 160, 960),
            (160, 100, 960),
            // Work costs an eighth, a third, a half, nearly all of the rate.
            (160, 180, 960),
            (160, 240, 389),
            (160, 320, 260),
            (160, 16_000, 250),
            // A slow disk, or a busy machine: only the ratio counts.
            (16_000, 24_000, 389),
            // One of the means is not known yet.
            (0, 160, 500),
            (160, 0, 500),
            (0, 0, 500),
        ];
        for (calm, disturbed, share) in rows {
            let Seen { calm, disturbed, .. } = seen(calm, disturbed);
            assert_eq!(share_permille(calm, disturbed), share, "{calm:?}, {disturbed:?}");
        }
    }

    /// Unless the share is at its minimum, writers keep the intended part of their rate.
    #[test]
    fn writers_keep_their_part_of_the_rate() {
        for disturbed in 160..4000u32 {
            let Seen { calm, disturbed, .. } = seen(160, disturbed);
            let share = share_permille(calm, disturbed);
            let rate =
                |took: Option<Duration>| 1e9 / took.map_or(1.0, |took| took.as_nanos() as f64);
            let (calm, disturbed) = (rate(calm), rate(disturbed));
            let kept = (calm * (1000 - share) as f64 + disturbed * share as f64) / calm;
            assert!(kept >= KEPT_PERMILLE as f64 - 1.0 || share == LEAST_SHARE_PERMILLE, "{kept}");
        }
    }

    #[test]
    fn a_pause_ends_with_the_writes_and_before_writers_must_slow_down() {
        let busy = seen(160, 240);
        let full = busy.pause(4 * MILLI);
        assert!(full > 6 * MILLI && full < 7 * MILLI, "{full:?}: 611 parts of 389");
        assert_eq!(Seen { since_last: 21 * MILLI, ..busy }.pause(4 * MILLI), Duration::ZERO);
        let at = |fullness_permille| Seen { fullness_permille, ..busy }.pause(4 * MILLI);
        assert_eq!(at(750), full);
        assert!(at(875) < full / 2 + MICRO && at(875) > full / 2 - MICRO);
        assert_eq!((at(1000), at(5000)), (Duration::ZERO, Duration::ZERO));
        let most = seen(160, 1 << 30).pause(2 * MOST_TURN);
        assert_eq!(most, 6 * MOST_TURN, "no pause is longer");
    }

    /// For this many milliseconds, runs a compaction that calls `pause` every millisecond.
    /// Meanwhile, writes of 160 or 320 microseconds follow one another. Returns how long the
    /// compaction paused.
    fn run(pace: &Pace, start: Instant, milliseconds: u32, writes: bool) -> Duration {
        let (mut now, mut paused, end) = (start, Duration::ZERO, start + MILLI * milliseconds);
        let worker = pace.work(now);
        let write_until = |mut now: Instant, until: Instant, took: Duration| {
            while writes && now < until {
                let write = pace.begin_write(now);
                now += took;
                pace.end_write(write, now);
            }
            now.max(until)
        };
        while now < end {
            now = write_until(now, now + MILLI, 320 * MICRO);
            if let Some(pause) = worker.pause(now, || 0) {
                let begun = now;
                now = write_until(now, now + pause, 160 * MICRO);
                paused += now - begun;
                worker.resume(now);
            }
        }
        paused
    }

    #[test]
    fn a_compaction_beside_synced_writes_takes_its_share_and_an_undisturbed_one_all() {
        let (pace, start) = (Pace::default(), Instant::now());
        assert_eq!(run(&pace, start, 1000, false), Duration::ZERO, "nobody writes");
        let start = start + 1001 * MILLI;
        let paused = run(&pace, start, 4000, true);
        let share = 1000 - (paused.as_millis() * 1000 / 4000) as u64;
        assert!((240..330).contains(&share), "{share}: work doubles the latency");
        let later = start + 5000 * MILLI;
        assert_eq!(run(&pace, later, 1000, false), Duration::ZERO, "nobody writes any more");
    }

    /// If each compaction paused on its own, some compaction would always work, and no write would
    /// be calm.
    #[test]
    fn compactions_pause_together() {
        let (pace, start) = (Pace::default(), Instant::now());
        let (one, other) = (pace.work(start), pace.work(start));
        let write = pace.begin_write(start);
        let now = start + 5 * MILLI;
        let pause = one.pause(now, || 0).expect("a write is under way");
        assert_eq!(other.pause(now + MILLI, || 0), Some(pause - MILLI), "the rest of the same");
        pace.end_write(write, now + MILLI);
        let calm = pace.begin_write(now + MILLI);
        pace.end_write(calm, now + 2 * MILLI);
        let state = pace.0.lock();
        assert_eq!((state.disturbed.count, state.calm.count, state.working), (1, 1, 0));
        drop(state);
        one.resume(now + pause);
        other.resume(now + pause);
        drop((one, other));
        assert_eq!(pace.0.lock().working, 0);
    }

    #[test]
    fn old_writes_fade_and_the_last_ones_stay() {
        let mut mean = Mean::default();
        (0..100).for_each(|_| mean.add(MILLI));
        (0..50).for_each(|_| mean.fade());
        assert_eq!(mean.get(), Some(MILLI));
        assert!(mean.count < 8);
        (0..2 * Mean::MOST).for_each(|_| mean.add(MICRO));
        assert!(mean.get() < Some(3 * MICRO) && mean.count <= Mean::MOST, "{mean:?}");
    }
}
