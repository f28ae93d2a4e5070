//! Histories show whether a sequence number in two stores, or at two times, means the same write.
//!
//! A power loss may destroy the end of the log, and the store then uses the sequence numbers of the
//! lost writes again. So each open that replays a log begins a new history, and the manifest
//! records up to which number the old and the new history are the same. A number has a meaning only
//! together with its history.
//!
//! A copy of the directory that was made by hand continues with the same numbers. Each manifest
//! records the number of its own file. In a copy the manifest is another file, so the first open of
//! the copy begins a new history.

use runstone_random::Random;

use crate::keys::SeqNo;

/// The most forks that are remembered. A position in an older history is refused.
const MOST_FORKS: usize = 64;

/// The history of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The random id of the history.
    pub id: u64,
    /// Earlier histories, the oldest first, and the last number that each has in common with the
    /// next one.
    pub forks: Vec<(u64, SeqNo)>,
    /// The number of the manifest's file, see [`Storage::file_number`].
    ///
    /// [`Storage::file_number`]: runstone_storage::Storage::file_number
    pub file: u64,
}

impl History {
    /// The history of a new store.
    pub(crate) fn first(id: u64) -> History {
        History { id, ..History::default() }
    }

    /// Begins another history after `last_seq`.
    pub(crate) fn fork(&mut self, id: u64, last_seq: SeqNo) {
        self.forks.push((self.id, last_seq));
        let most = self.forks.len().saturating_sub(MOST_FORKS);
        self.forks.drain(..most);
        self.id = id;
    }

    /// Begins another history after `last_seq`, in a copy of a store. Another copy, made of the
    /// same files, gets another id.
    pub(crate) fn fork_copy(&mut self, last_seq: SeqNo) {
        self.fork(Random::from_entropy().draw(), last_seq);
    }

    /// The last number that history `id` has in common with this history; `None` if `id` is not
    /// remembered. If `id` is this history, all numbers are in common.
    pub(crate) fn last_common(&self, id: u64) -> Option<SeqNo> {
        if id == self.id {
            return Some(SeqNo::MAX);
        }
        let from = self.forks.iter().position(|(earlier, _)| *earlier == id)?;
        self.forks[from..].iter().map(|(_, last)| *last).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_history_ends_where_the_first_fork_left_it() {
        let mut history = History::first(1);
        history.fork(2, 10);
        history.fork(3, 7);
        history.fork(4, 20);
        let common: Vec<_> = (0..=4).map(|id| history.last_common(id)).collect();
        assert_eq!(common, [None, Some(7), Some(7), Some(20), Some(u64::MAX)]);
    }

    #[test]
    fn old_forks_are_forgotten() {
        let mut history = History::first(0);
        (1..=100).for_each(|id| history.fork(id, id));
        assert_eq!((history.forks.len(), history.id), (MOST_FORKS, 100));
        assert_eq!((history.last_common(0), history.last_common(99)), (None, Some(100)));
    }
}
