//! Removes backups by count and by age, but never a file that a remaining backup needs.

use std::collections::BTreeSet;
use std::time::Duration;

use super::create::{CHANGING, now_ms};
use super::{Backups, archived, backup_name, numbers};
use crate::error::{Error, Result};
use crate::log::number_in;

impl Backups {
    /// Removes all backups but the newest `keep`, and the files that only they needed. Returns the
    /// number of removed backups.
    ///
    /// # Errors
    /// If `keep` is zero, or another process uses the directory; or a storage error.
    pub fn prune(&self, keep: usize) -> Result<u64> {
        self.prune_by(keep, None)
    }

    /// Removes the backups that are older than `age`, but none of the newest `keep`. If there is an
    /// archive, the newest of the older backups stays too: from it the archive reaches every moment
    /// within `age`. Ages are measured by the clock of the machine, so a clock that was set far
    /// forward leaves only the newest `keep`.
    ///
    /// # Errors
    /// Those of [`Backups::prune`].
    pub fn prune_older_than(&self, age: Duration, keep: usize) -> Result<u64> {
        self.prune_by(keep, Some(age))
    }

    fn prune_by(&self, keep: usize, age: Option<Duration>) -> Result<u64> {
        if keep == 0 {
            return Err(Error::invalid(
                "no backup would be left",
                "keep at least one, or remove the directory",
            ));
        }
        let _lock = self.lock()?;
        let mut all = Vec::new();
        let damaged = self.each(self.numbers()?, |one| {
            all.push(one.info());
            Ok(true)
        })?;
        let is_archived = !archived::archives(&*self.storage)?.is_empty();
        let times: Vec<u64> = all.iter().map(|one| one.time_ms).collect();
        let count = gone(&times, keep, age.map(|age| (age, now_ms())), is_archived);
        let oldest_kept = all.get(count).map_or(0, |one| one.number);
        let damaged = damaged.into_iter().map(|(number, _)| number);
        let damaged = damaged.filter(|number| *number < oldest_kept);
        match self.begin_change() {
            // A prune frees space, and it looks for files that no backup needs anyway.
            Err(error) if error.is_no_space() => {}
            begun => begun?,
        }
        for number in all[..count].iter().map(|one| one.number).chain(damaged) {
            self.storage.remove(&backup_name(number))?;
        }
        // Otherwise a crash could leave a backup without its files.
        self.storage.sync_dir()?;
        if is_archived {
            self.remove_archives()?;
        }
        if self.remove_unneeded()? {
            self.end_change()?;
        }
        Ok(count as u64)
    }

    /// Removes the files of the archive that end before the oldest backup.
    fn remove_archives(&self) -> Result<()> {
        let mut oldest = None;
        let damaged = self.each(self.numbers()?, |one| {
            oldest.get_or_insert(one);
            Ok(true)
        })?;
        let Some(oldest) = oldest.filter(|_| damaged.is_empty()) else { return Ok(()) };
        let history = &oldest.state.history;
        let needed = archived::first_needed(&*self.storage, history, oldest.last_seq)?;
        for number in archived::archives(&*self.storage)? {
            if needed.is_some_and(|needed| number < needed) {
                self.storage.remove(&archived::archive_name(number))?;
            }
        }
        Ok(())
    }

    /// Removes files that no backup needs. Returns `false` if it is not known which files these
    /// are.
    pub(super) fn remove_unneeded(&self) -> Result<bool> {
        let (mut tables, mut packs) = (BTreeSet::new(), BTreeSet::new());
        let files = self.storage.list()?;
        let damaged = self.each(numbers(&files, "backup"), |one| {
            tables.extend(one.table_ids());
            packs.extend(one.pack_numbers());
            Ok(true)
        })?;
        if !damaged.is_empty() {
            // It is not known which files a damaged backup needs.
            return Ok(false);
        }
        for file in files {
            let needed = match (number_in(&file.name, "table"), number_in(&file.name, "pack")) {
                (Some(id), _) => tables.contains(&id),
                (_, Some(number)) => packs.contains(&number),
                _ => !file.name.ends_with(".part") || file.name == CHANGING,
            };
            if !needed {
                self.storage.remove(&file.name)?;
            }
        }
        self.storage.sync_dir()?;
        Ok(true)
    }
}

/// How many of the oldest backups are removed. `times` are those of all backups, the oldest first.
/// With an age, all backups before the first one that is young enough are removed: after a clock
/// went back, a later backup may seem old although it is not. A time in the future is wrong,
/// because the clock was ahead. A backup with such a time is at least as old as the next one, and
/// stays if there is no next one: otherwise nothing would be removed until that time.
fn gone(times: &[u64], keep: usize, age: Option<(Duration, u64)>, is_archived: bool) -> usize {
    let beyond = times.len().saturating_sub(keep);
    let Some((age, now_ms)) = age else { return beyond };
    let age_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
    let is_old = |at: &usize| {
        let told = times[*at..].iter().find(|time_ms| **time_ms <= now_ms);
        told.is_some_and(|time_ms| now_ms - time_ms > age_ms)
    };
    let old = (0..times.len()).take_while(is_old).count();
    beyond.min(if is_archived { old.saturating_sub(1) } else { old })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_and_count_both_keep() {
        let day = |days: u64| days * 86_400_000;
        let times: Vec<u64> = (0..40).map(day).collect();
        let older = |days: u64| Some((Duration::from_millis(day(days)), day(40)));
        assert_eq!(gone(&times, 7, None, false), 33);
        assert_eq!(gone(&times, 7, older(30), false), 10, "those of 31 to 40 days");
        assert_eq!(gone(&times, 7, older(30), true), 9, "the archive goes on from the tenth");
        assert_eq!(gone(&times, 35, older(30), false), 5);
        assert_eq!(gone(&times, 1, older(0), false), 39, "the newest stays at any age");
        assert_eq!(gone(&times, 1, older(400), true), 0);
        assert_eq!(gone(&[], 1, older(0), true), 0);
        // The clock went back by a hundred days after the second backup, and forward again after
        // the third.
        assert_eq!(
            gone(
                &[day(100), day(139), day(1), day(140)],
                1,
                Some((Duration::from_millis(day(30)), day(140))),
                false
            ),
            1
        );
        assert_eq!(gone(&[day(900)], 1, older(0), false), 0, "a time to come is not old");
        // A backup was made while the clock was far ahead. It is at least as old as the next one.
        let times = [day(1), day(900), day(901), day(2), day(20)];
        assert_eq!(gone(&times, 1, older(30), false), 4);
        assert_eq!(gone(&[day(1), day(900), day(20)], 1, older(30), false), 1);
    }
}
