//! Restores a store as of a moment between backups: the newest backup before it, and then the
//! changes of the archive up to it.

use std::path::Path;
use std::sync::Arc;

use runstone_storage::{Access, PosixStorage, Storage};

use super::Backups;
use super::archived::{self, Archived, Chain, change_of};
use super::format::Description;
use crate::error::{Error, Result};
use crate::keys::SeqNo;
use crate::options::store::{Background, Options};
use crate::store::Store;
use crate::store::changes::apply::Applier;
use crate::store::changes::{Change, Position};
use crate::store::follow::cut::noted;
use crate::store::open::open_unfinished;
use crate::store::unfinished::{Unfinished, check_empty};

/// A moment to which a store is restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Moment {
    /// After the last batch whose sequence number is at most this.
    Number(SeqNo),
    /// The same, in the history of this position. After a power loss or a restore a store uses
    /// numbers again, so a number alone may mean a write of either history.
    Position(Position),
    /// After everything that had been committed by this time, in milliseconds since 1970. The
    /// archive records the time of a change to about a second.
    Time(u64),
    /// The end of the archive.
    End,
}

/// The result of a restore to a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    /// The backup that it began with.
    pub backup: u64,
    /// Changes that were applied to it.
    pub changes: u64,
    /// The last sequence number of the original store that the new one has.
    pub last_seq: SeqNo,
}

/// How far the changes of a chain are applied.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    seq: SeqNo,
    /// How many of the chain's times are before the end.
    times: usize,
}

impl Backups {
    /// Makes a store as of a moment in a directory that is new or empty. The directory becomes a
    /// store only when the restore is complete. O(the backup, and the archive up to the moment).
    ///
    /// # Errors
    /// If neither a backup nor the archive has the moment; if the clock of the store went back, so
    /// that several moments have that time (the error names their numbers); [`Error::Corruption`]
    /// if a file is damaged; if the directory is not empty; [`Error::InUse`] if somebody else
    /// writes to it; a storage error.
    pub fn restore_to(&self, moment: Moment, target: impl AsRef<Path>) -> Result<Restored> {
        let target = PosixStorage::open(target.as_ref(), Access::CreateIfMissing)?;
        self.restore_to_on(moment, &(Arc::new(target) as Arc<dyn Storage>))
    }

    /// Does the same as [`Backups::restore_to`] on a storage.
    ///
    /// # Errors
    /// Those of [`Backups::restore_to`].
    pub fn restore_to_on(&self, moment: Moment, target: &Arc<dyn Storage>) -> Result<Restored> {
        check_empty(&**target)?;
        self.at_moment(moment, |chain, end, backup| {
            let mut store = Unfinished::begin(target)?;
            let written = self.write_moment((chain, end, backup), target, &mut store);
            store.end(written)
        })
    }

    /// Finds a moment in the archive, and the backup from which it is reached.
    pub(super) fn at_moment<T>(
        &self,
        moment: Moment,
        act: impl FnOnce(&Chain, End, &Description) -> Result<T>,
    ) -> Result<T> {
        let chains = archived::chains(&*self.storage)?;
        let (chain, end) = find(&chains, moment)?;
        let backup = self.newest_before(chain, end.seq)?;
        act(chain, end, &backup).map_err(|error| self.explain(backup.number, error))
    }

    /// The newest backup in a chain at or before a number.
    fn newest_before(&self, chain: &Chain, seq: SeqNo) -> Result<Description> {
        let mut found = None;
        self.each(self.numbers()?.into_iter().rev(), |one| {
            let fits = one.last_seq <= seq && chain.holds(&one.state.history, one.last_seq);
            found = fits.then_some(one);
            Ok(!fits)
        })?;
        found.ok_or_else(|| {
            let what = format!("no backup lies between number {} and {seq}", chain.from);
            Error::invalid(what, "restore to a later moment, or to a backup")
        })
    }

    fn write_moment(
        &self,
        (chain, end, backup): (&Chain, End, &Description),
        target: &Arc<dyn Storage>,
        unfinished: &mut Unfinished,
    ) -> Result<Restored> {
        self.write_store(backup.clone(), target)?;
        let lock = unfinished.take_lock();
        let store = open_unfinished(Arc::clone(target), self.replaying(), lock)?;
        let (store, restored) = self.replay(chain, end, backup, store)?;
        store.close()?;
        Ok(restored)
    }

    /// The options of a store to which changes are applied.
    pub(super) fn replaying(&self) -> Options {
        let background = Background::Threads(2);
        Options {
            read_only: false,
            create_if_missing: false,
            keyspace: None,
            background,
            ..self.store.clone()
        }
    }

    /// Applies the changes of a chain to the store of a backup.
    pub(super) fn replay(
        &self,
        chain: &Chain,
        end: End,
        backup: &Description,
        store: Store,
    ) -> Result<(Store, Restored)> {
        let applier = Applier::new(store, &noted(&backup.state), None)?;
        applier.check_dropped()?;
        let mut replay = Replay {
            applier,
            after: backup.last_seq,
            end,
            times: 0,
            load: None,
            last_seq: backup.last_seq,
            changes: 0,
        };
        for file in chain.files_after(backup.last_seq) {
            // The end may be given by its place among the times of the chain.
            replay.times = file.times_before;
            archived::each(&*self.storage, file.number, |record| replay.take(record))?;
        }
        let Replay { applier, last_seq, changes, .. } = replay;
        Ok((applier.into_store(), Restored { backup: backup.number, changes, last_seq }))
    }
}

/// Applies the records of a chain.
struct Replay {
    applier: Applier,
    /// Everything up to here is in the backup.
    after: SeqNo,
    end: End,
    /// The number of times read so far.
    times: usize,
    /// The load whose entries follow, and whether they are applied.
    load: Option<(Position, bool)>,
    last_seq: SeqNo,
    changes: u64,
}

impl Replay {
    /// Returns `false` after the end.
    fn take(&mut self, record: Archived) -> Result<bool> {
        let wanted = |position: &Position| position.seq() > self.after;
        match record {
            Archived::Begin(..) => {}
            Archived::Writes(position, batch) => {
                if position.seq() > self.end.seq {
                    return Ok(false);
                }
                if wanted(&position) {
                    self.apply(position, Change::Writes(batch))?;
                }
            }
            Archived::Note(position, note) => {
                let is_time = matches!(note, crate::wal::note::Note::Time(_));
                if position.seq() > self.end.seq || self.times >= self.end.times {
                    return Ok(false);
                }
                self.times += usize::from(is_time);
                // A note at the sequence number of the backup may be older or newer than the
                // backup: applying it twice has the same result.
                let is_new = position.seq() >= self.after && !is_time;
                if let Some(change) = change_of(note).filter(|_| is_new) {
                    self.apply(position, change)?;
                }
            }
            Archived::Load(position, _) => {
                if position.seq() > self.end.seq {
                    return Ok(false);
                }
                self.load = Some((position, wanted(&position)));
            }
            Archived::Entries(batch) => {
                if let Some((position, true)) = self.load {
                    self.applier.apply(Change::Writes(batch), |_| Ok(()))?;
                    self.last_seq = position.seq();
                }
            }
            Archived::LoadEnd => {
                self.changes += u64::from(self.load.take().is_some_and(|(_, applied)| applied));
            }
        }
        Ok(true)
    }

    fn apply(&mut self, position: Position, change: Change) -> Result<()> {
        self.applier.apply(change, |_| Ok(()))?;
        self.last_seq = self.last_seq.max(position.seq());
        self.changes += 1;
        Ok(())
    }
}

/// The part of the archive that has a moment, the newest if there are several, and the place of the
/// moment in it.
fn find(chains: &[Chain], moment: Moment) -> Result<(&Chain, End)> {
    let all = |chain: &Chain| End { seq: chain.through.seq(), times: usize::MAX };
    let found = match moment {
        Moment::End => chains.last().map(|chain| (chain, all(chain))),
        Moment::Number(seq) => {
            let holds = |chain: &&Chain| chain.from <= seq && seq <= chain.through.seq();
            let chain = chains.iter().rev().find(holds);
            chain.map(|chain| (chain, End { seq, times: usize::MAX }))
        }
        Moment::Position(at) => {
            let chain = chains.iter().rev().find(|one| one.has(at.history(), at.seq()));
            chain.map(|chain| (chain, End { seq: at.seq(), times: usize::MAX }))
        }
        Moment::Time(ms) => find_time(chains, ms)?,
    };
    found.ok_or_else(|| no_such(chains, moment))
}

/// The error for a moment that no part of the archive has.
fn no_such(chains: &[Chain], moment: Moment) -> Error {
    let parts: Vec<String> =
        chains.iter().map(|chain| format!("{} to {}", chain.from, chain.through.seq())).collect();
    let what = match (parts.is_empty(), moment) {
        (true, _) => "there is no archive".to_string(),
        (false, Moment::Position(at)) => format!(
            "the archive has no position {at}; it has numbers {}, up to position {}",
            parts.join(", "),
            chains.last().map_or_else(String::new, |chain| chain.through.to_string())
        ),
        (false, _) => {
            format!("the archive has no such moment; it has numbers {}", parts.join(", "))
        }
    };
    Error::invalid(what, "choose a moment of the archive, or restore a backup")
}

/// How a user names a moment of a chain: a number is enough if only one history has it.
fn told(chains: &[Chain], chain: &Chain, seq: SeqNo) -> String {
    let history = chain.through.history();
    let is_only = chains.iter().all(|one| one.through.history() == history);
    if is_only { seq.to_string() } else { Position::new(history, seq).to_string() }
}

/// 1. The end is where the recorded times pass `ms`, in any part. The clock may have been far ahead
///    when a part began, so each part is searched, whatever its first time is.
/// 2. The last time of a part is an end only in the last part: elsewhere it is not known when the
///    next change was made.
/// 3. If the clock went back, it passes a time more than once.
fn find_time(chains: &[Chain], ms: u64) -> Result<Option<(&Chain, End)>> {
    let mut ends: Vec<(usize, usize)> = Vec::new();
    for (at, Chain { times, .. }) in chains.iter().enumerate() {
        let is_last = at + 1 == chains.len();
        let passes = |i: &usize| {
            let next = times.get(i + 1);
            times[*i].1 <= ms && next.map_or(is_last, |(_, next)| *next > ms)
        };
        ends.extend((0..times.len()).filter(passes).map(|end| (at, end)));
    }
    let seq_of = |(at, end): &(usize, usize)| chains[*at].times[*end].0;
    if let Some(last) = ends.last()
        && ends.iter().all(|one| one.0 == last.0 && seq_of(one) == seq_of(last))
    {
        return Ok(Some((&chains[last.0], End { seq: seq_of(last), times: last.1 + 1 })));
    }
    let told = |at: usize, seq| told(chains, &chains[at], seq);
    if !ends.is_empty() {
        let mut numbers: Vec<String> = ends.iter().map(|one| told(one.0, seq_of(one))).collect();
        numbers.dedup();
        let numbers = numbers.join(" and ");
        let what = format!("the clock went back: that time was at numbers {numbers}");
        return Err(Error::invalid(what, "restore to one of these numbers"));
    }
    // The clock passes the time in no part, so a part that has begun by then has also ended.
    let has_any = |chain: &Chain| chain.times.iter().any(|(_, told)| *told <= ms);
    let Some(at) = chains.iter().rposition(has_any) else { return Ok(None) };
    let seq = chains[at].times.last().map_or(chains[at].from, |(seq, _)| *seq);
    let ends = told(at, seq);
    let begins = chains.get(at + 1).map_or_else(|| ends.clone(), |next| told(at + 1, next.from));
    let what = format!(
        "the archive has nothing of that time: one part ends at number {ends}, and the next one \
         begins with number {begins}"
    );
    Err(Error::invalid(what, "restore to one of these numbers"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::history::History;

    /// Parts of an archive with these times. The sequence number of the n-th time is 10 n.
    fn chains(parts: &[&[u64]]) -> Vec<Chain> {
        let mut seq = 0;
        let mut of_part = |times: &&[u64]| {
            let mut chain = Chain::begin(1, History::first(7), seq);
            for ms in *times {
                seq += 10;
                chain.times.push((seq, *ms));
            }
            chain.through = Position::new(7, seq);
            chain
        };
        parts.iter().map(&mut of_part).collect()
    }

    #[test]
    fn a_time_is_found_wherever_the_clock_passed_it() {
        // Guards against two bugs. In a part that is not the last one, a time that the clock passed
        // once was refused if the clock went back before the end. A time before the first one of
        // the archive was refused, too. The times of a part that began while the clock was far
        // ahead were ignored.
        let cases: [(&[&[u64]], u64, &str); 16] = [
            (&[&[10, 20, 30]], 20, "20"),
            (&[&[10, 20, 30]], 99, "30"),
            (&[&[10, 20, 30]], 9, "None"),
            (&[&[10, 100, 50]], 75, "10 and 30"),
            (&[&[10, 100, 50], &[200]], 75, "10"),
            (&[&[10, 100, 50], &[200]], 150, "ends at number 30"),
            (&[&[2000, 10, 100]], 50, "20"),
            (&[&[10, 20], &[40, 50]], 30, "ends at number 20"),
            (&[&[10, 20], &[40, 50]], 60, "40"),
            (&[&[10, 20], &[900, 30, 40]], 35, "40"),
            (&[&[10, 20], &[900, 30, 40]], 50, "50"),
            (&[&[10, 20], &[900, 30, 40]], 15, "10"),
            (&[&[10, 20], &[900, 30, 40]], 25, "ends at number 20"),
            (&[&[10, 30, 50], &[20, 60]], 40, "20 and 40"),
            (&[&[10, 20], &[900], &[50, 60]], 55, "40"),
            (&[&[10, 20], &[900], &[50, 60]], 30, "ends at number 20"),
        ];
        for (parts, ms, wanted) in cases {
            let chains = chains(parts);
            let found = match find_time(&chains, ms) {
                Ok(found) => format!("{:?}", found.map(|(_, end)| end.seq)),
                Err(error) => error.to_string(),
            };
            assert!(found.contains(wanted), "{parts:?} at {ms}: {found}");
        }
        // Two parts are of different histories, which use the same numbers.
        let mut two = chains(&[&[10, 50], &[20, 60]]);
        two[1].through = Position::new(8, 40);
        let refused = find_time(&two, 30).expect_err("twice").to_string();
        let positions = [Position::new(7, 10), Position::new(8, 30)];
        assert!(refused.contains(&format!("{} and {}", positions[0], positions[1])), "{refused}");
        // The clock went back between two writes.
        let mut one = chains(&[&[10]]);
        one[0].times.extend([(10, 90), (10, 40), (30, 200)]);
        let found = find_time(&one, 50).expect("one number").map(|(_, end)| (end.seq, end.times));
        assert_eq!(found, Some((10, 3)));
    }
}
