//! The committed changes of a store, in order, for other languages: with names of keyspaces instead
//! of their numbers, and with the writes of a load one after another.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Duration;

use runstone::{
    Batch, Change, Changes, ChangesFrom, Error, Gap, Kind, Load, NotedKeyspace, OnGap, Operation,
    Options, Position,
};

use crate::failure::{Code, Failure, Result};

/// Names of keyspaces by their ids.
type Names = Arc<BTreeMap<u32, Arc<str>>>;

/// Reads the committed changes of a store.
#[derive(Debug)]
pub struct ChangeReader {
    changes: Changes,
    /// Names of dropped keyspaces stay, because their changes may follow later.
    names: Names,
    /// A change that was read but could not be handed over. The next call returns it again.
    kept: Option<OneChange>,
    /// The position before that change.
    before: Position,
}

/// The kind of a change. The numbers are part of the bindings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum ChangeKind {
    /// Writes that became visible together.
    Writes = 0,
    /// A load into a keyspace: many writes that became visible together.
    Loaded = 1,
    /// A keyspace was made, or its options changed.
    Keyspace = 2,
    /// A keyspace was dropped.
    Dropped = 3,
    /// All keyspaces: after a crash, which may have happened between a change of a keyspace and its
    /// record; in a gap, before its state; or if the log begins after the position.
    Keyspaces = 4,
    /// The time of day.
    Time = 5,
    /// The log lacks the next changes. The state of the keys that they wrote follows.
    Gap = 6,
    /// Part of the state in a gap: the values of keys as of the end of the gap.
    State = 7,
    /// The end of a gap and of its state.
    GapEnd = 8,
}

/// Where to begin, and how to read.
#[derive(Clone, Debug)]
pub struct Reading {
    /// Where to begin.
    pub from: ChangesFrom,
    /// Options for reading the state, such as a follower takes. They must include the store's merge
    /// operators. The state is read if the log does not reach back to the position; without these
    /// options, that is an error. Only the state of everything is read without them, with default
    /// options.
    pub state: Option<Options>,
    /// Whether to also return changes that are not durable yet.
    pub unsynced: bool,
}

impl From<ChangesFrom> for Reading {
    fn from(from: ChangesFrom) -> Reading {
        Reading { from, state: None, unsynced: false }
    }
}

/// A change.
#[derive(Clone, Debug)]
pub struct OneChange {
    /// The position after it.
    pub position: Position,
    /// Its kind.
    pub kind: ChangeKind,
    /// The names of keyspaces, with their options if they were made or changed.
    pub keyspaces: Vec<(String, Option<String>)>,
    /// For a time: milliseconds since 1970.
    pub time_ms: Option<u64>,
    /// For a gap: the state contains the keys written after the first number, up to the second.
    pub gap: Option<(u64, u64)>,
    source: Source,
    names: Names,
}

/// The source of writes.
#[derive(Clone, Debug)]
enum Source {
    Nothing,
    Batch(Batch),
    Load(Load),
}

/// The kind of a write. The numbers are part of the bindings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum WriteKind {
    /// Stores a value.
    Put = 0,
    /// Removes a key.
    Delete = 1,
    /// Adds an operand of the merge operator.
    Merge = 2,
    /// Removes a range of keys.
    DeleteRange = 3,
}

/// A write of a change.
#[derive(Clone, Debug)]
pub struct OneWrite {
    /// Its kind.
    pub kind: WriteKind,
    /// The name of the keyspace.
    pub keyspace: Arc<str>,
    /// The key; of a range, the first one.
    pub key: Vec<u8>,
    /// The value or operand; of a range, the key before which it ends. `None` for a delete, and for
    /// a range without an end.
    pub value: Option<Vec<u8>>,
    /// When the value expires, in milliseconds since 1970.
    pub expires_ms: Option<u64>,
    /// Whether the store made this put itself: a get stored the value that it had merged from many
    /// operands.
    pub is_folded: bool,
}

impl ChangeReader {
    /// Reads the committed changes of the store in a directory.
    ///
    /// # Errors
    /// If `state` is given but the beginning needs none. Also those of [`Changes::open`] and
    /// [`Changes::resume`].
    pub fn open(path: impl AsRef<Path>, reading: Reading) -> Result<ChangeReader> {
        let changes = match (reading.from, reading.state) {
            (ChangesFrom::Oldest | ChangesFrom::Now, Some(_)) => {
                return Err(Failure::invalid(
                    "the state is handed out behind a position, or as the beginning of \
                     everything; give one of them, too",
                ));
            }
            (from, Some(options)) => Changes::resume(path, from, OnGap::State(Box::new(options)))?,
            (from, None) => Changes::open(path, from)?,
        };
        let changes = changes.unsynced(reading.unsynced);
        let before = changes.position();
        let mut reader = ChangeReader { changes, names: Names::default(), kept: None, before };
        let known = reader.changes.keyspaces();
        known.iter().for_each(|one| reader.know(one));
        Ok(reader)
    }

    /// The next change; `None` if there is none within `wait`.
    ///
    /// # Errors
    /// Those of [`Changes::next`].
    pub fn next(&mut self, wait: Duration) -> runstone::Result<Option<OneChange>> {
        self.read(wait)?;
        Ok(self.kept.take())
    }

    /// Passes the next change to `give` and returns its result; `None` if there is no change within
    /// `wait`. If `give` fails, the next call returns the same change again, and the position stays
    /// before it.
    ///
    /// # Errors
    /// Those of [`Changes::next`] and those of `give`.
    pub fn hand_over<T>(
        &mut self,
        wait: Duration,
        give: impl FnOnce(&OneChange) -> Result<T>,
    ) -> Result<Option<T>> {
        self.read(wait)?;
        let given = self.kept.as_ref().map(give).transpose()?;
        self.kept = None;
        Ok(given)
    }

    fn read(&mut self, wait: Duration) -> runstone::Result<()> {
        while self.kept.is_none() {
            self.before = self.changes.position();
            let Some(changed) = self.changes.wait(wait)? else { break };
            self.kept = self.tell(changed.position, changed.change);
        }
        Ok(())
    }

    /// The position after the last change that was returned.
    pub fn position(&self) -> Position {
        if self.kept.is_some() { self.before } else { self.changes.position() }
    }

    fn know(&mut self, one: &NotedKeyspace) {
        if self.names.get(&one.id).is_none_or(|name| **name != *one.name) {
            Arc::make_mut(&mut self.names).insert(one.id, one.name.as_str().into());
        }
    }

    fn tell(&mut self, position: Position, change: Change) -> Option<OneChange> {
        let (mut keyspaces, mut source) = (Vec::new(), Source::Nothing);
        let (mut time_ms, mut gap) = (None, None);
        let noted = |one: &NotedKeyspace| (one.name.clone(), Some(one.options.clone()));
        let kind = match change {
            Change::Writes(batch) => {
                source = Source::Batch(batch);
                ChangeKind::Writes
            }
            Change::State(batch) => {
                source = Source::Batch(batch);
                ChangeKind::State
            }
            Change::Gap(Gap { after, through, .. }) => {
                gap = Some((after, through));
                ChangeKind::Gap
            }
            Change::GapEnd => ChangeKind::GapEnd,
            Change::Loaded(load) => {
                keyspaces.push((name_of(&self.names, load.keyspace()).to_string(), None));
                source = Source::Load(load);
                ChangeKind::Loaded
            }
            Change::Keyspace(one) => {
                self.know(&one);
                keyspaces.push(noted(&one));
                ChangeKind::Keyspace
            }
            Change::Dropped(id) => {
                keyspaces.push((name_of(&self.names, id).to_string(), None));
                ChangeKind::Dropped
            }
            Change::Keyspaces(all) => {
                all.iter().for_each(|one| self.know(one));
                keyspaces.extend(all.iter().map(noted));
                ChangeKind::Keyspaces
            }
            Change::Time(ms) => {
                time_ms = Some(ms);
                ChangeKind::Time
            }
            // A kind that a later release adds.
            _ => return None,
        };
        let names = Arc::clone(&self.names);
        Some(OneChange { position, kind, keyspaces, time_ms, gap, source, names })
    }
}

fn name_of(names: &Names, id: u32) -> Arc<str> {
    names.get(&id).cloned().unwrap_or_else(|| format!("#{id}").into())
}

impl OneChange {
    /// Begins to read the writes of the change.
    ///
    /// # Errors
    /// If the thread that reads a load cannot be started.
    pub fn writes(&self) -> Result<WriteReader> {
        let source = match &self.source {
            Source::Nothing => Pieces::One(None),
            Source::Batch(batch) => Pieces::One(Some(batch.clone())),
            Source::Load(load) => Pieces::Many(pieces_of(load.clone())?),
        };
        Ok(WriteReader { source, names: Arc::clone(&self.names) })
    }
}

/// Reads the writes of a change, one piece at a time.
#[derive(Debug)]
pub struct WriteReader {
    source: Pieces,
    names: Names,
}

#[derive(Debug)]
enum Pieces {
    One(Option<Batch>),
    Many(Receiver<Result<Option<Batch>>>),
    /// Reading failed. Each call reports this, because a load with a missing part must not look
    /// complete.
    Failed(Failure),
}

/// Reads a load in a thread, because a load passes its entries to a function and cannot return them
/// one by one. The thread is at most one piece ahead, and ends with the receiver. `None` marks the
/// end.
fn pieces_of(load: Load) -> Result<Receiver<Result<Option<Batch>>>> {
    let (sender, receiver) = sync_channel(0);
    let read = move || {
        let mut is_over = false;
        let outcome = load.read(|batch| {
            is_over = sender.send(Ok(Some(batch.clone()))).is_err();
            if is_over { Err(Error::Closed) } else { Ok(()) }
        });
        if !is_over {
            // The receiver may be gone already.
            let _ = sender.send(outcome.map(|()| None).map_err(Failure::from));
        }
    };
    let begun = thread::Builder::new().name("runstone-load".into()).spawn(read);
    begun.map(|_| receiver).map_err(|error| {
        Failure::new(Code::Storage, format!("no thread can be had to read a load: {error}"))
    })
}

impl WriteReader {
    /// The next writes, in order; `None` if there are no more.
    ///
    /// # Errors
    /// Those of [`Load::read`]. Later calls return the same error.
    pub fn read(&mut self) -> Result<Option<Vec<OneWrite>>> {
        let read = match &mut self.source {
            Pieces::One(batch) => Ok(batch.take()),
            Pieces::Failed(failure) => Err(failure.clone()),
            Pieces::Many(receiver) => receiver.recv().unwrap_or_else(|_| {
                Err(Failure::new(Code::Internal, "the thread that reads a load has panicked"))
            }),
        };
        match &read {
            Ok(None) => self.source = Pieces::One(None),
            Err(failure) => self.source = Pieces::Failed(failure.clone()),
            Ok(Some(_)) => {}
        }
        let piece = read?;
        Ok(piece.map(|batch| batch.operations().map(|one| self.write(&one)).collect()))
    }

    fn write(&self, one: &Operation<'_>) -> OneWrite {
        let kind = match one.kind {
            Kind::Delete => WriteKind::Delete,
            Kind::Merge => WriteKind::Merge,
            Kind::RangeDelete => WriteKind::DeleteRange,
            _ => WriteKind::Put,
        };
        let value = one.plain_value();
        let is_none = match kind {
            WriteKind::Delete => true,
            WriteKind::DeleteRange => value.is_empty(),
            _ => false,
        };
        OneWrite {
            kind,
            keyspace: name_of(&self.names, one.keyspace),
            key: one.key.to_vec(),
            value: (!is_none).then(|| value.to_vec()),
            expires_ms: one.expires_ms(),
            is_folded: one.is_folded,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use runstone::{KeyspaceOptions, Options, Store, WriteOptions};

    use super::*;

    fn all(change: &OneChange) -> Vec<OneWrite> {
        let mut reader = change.writes().expect("a thread");
        let mut writes = Vec::new();
        while let Some(more) = reader.read().expect("readable") {
            writes.extend(more);
        }
        writes
    }

    fn open(dir: &Path, from: ChangesFrom) -> ChangeReader {
        ChangeReader::open(dir, from.into()).expect("a store")
    }

    /// A failed read of a load once made the load look complete at the next call.
    #[test]
    fn a_load_that_cannot_be_read_never_ends() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path(), Options::default()).expect("opens");
        let mut reader = open(dir.path(), ChangesFrom::Now);
        let entries = (0..1_000u32).map(|i| (i.to_be_bytes(), [7; 100]));
        store.default_keyspace().bulk_load(entries).expect("room");
        let mut found = std::iter::from_fn(|| reader.next(Duration::ZERO).expect("readable"));
        let load = found.find(|change| change.kind == ChangeKind::Loaded);
        let mut writes = load.expect("it was loaded").writes().expect("a thread");
        for file in std::fs::read_dir(dir.path()).expect("lists") {
            let path = file.expect("reads").path();
            if path.extension().is_some_and(|extension| extension == "table") {
                let len = path.metadata().expect("is there").len() as usize;
                std::fs::write(path, vec![0; len]).expect("damages");
            }
        }
        let first = writes.read().expect_err("damaged");
        for _ in 0..3 {
            assert_eq!(writes.read().expect_err("still"), first);
        }
    }

    #[test]
    fn changes_have_names_and_writes() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path(), Options::default()).expect("opens");
        let mut reader = open(dir.path(), ChangesFrom::Now);
        let apart = store.open_keyspace("apart", Some(KeyspaceOptions::default())).expect("room");
        let mut batch = Batch::new();
        batch.put(&apart, "k", "v").expect("small");
        batch.delete(store.default_keyspace(), "d").expect("small");
        batch.delete_range(&apart, "a".."b").expect("small");
        store.write(&batch, WriteOptions::default()).expect("room");
        store.drop_keyspace("apart").expect("room");
        let mut kinds = Vec::new();
        while let Some(change) = reader.next(Duration::ZERO).expect("readable") {
            assert_eq!(change.position, reader.position());
            match change.kind {
                ChangeKind::Time => continue,
                ChangeKind::Writes => {
                    let writes = all(&change);
                    let kinds: Vec<WriteKind> = writes.iter().map(|one| one.kind).collect();
                    let wanted = [WriteKind::Put, WriteKind::Delete, WriteKind::DeleteRange];
                    assert_eq!(kinds, wanted);
                    assert_eq!((&*writes[0].keyspace, &*writes[1].keyspace), ("apart", "default"));
                    assert_eq!(writes[2].value.as_deref(), Some(&b"b"[..]));
                    assert_eq!(writes[1].value, None);
                }
                _ => assert_eq!(change.keyspaces[0].0, "apart"),
            }
            kinds.push(change.kind);
        }
        assert_eq!(kinds, [ChangeKind::Keyspace, ChangeKind::Writes, ChangeKind::Dropped]);
    }

    #[test]
    fn a_change_that_was_not_taken_comes_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path(), Options::default()).expect("opens");
        let mut reader = open(dir.path(), ChangesFrom::Now);
        store.put("k", "v").expect("room");
        let (mut refused, mut taken) = (Vec::new(), Vec::new());
        loop {
            let before = reader.position();
            let given = reader.hand_over(Duration::ZERO, |change| {
                if refused.last() == Some(&change.position) {
                    return Ok((change.position, all(change)));
                }
                refused.push(change.position);
                Err(Failure::invalid("no memory"))
            });
            match given {
                Ok(None) => break,
                Ok(Some((position, writes))) => {
                    assert_eq!(reader.position(), position);
                    taken.extend(writes);
                }
                Err(_) => assert_eq!(reader.position(), before),
            }
        }
        let keys = taken.iter().map(|write| &write.key[..]);
        assert!(keys.eq([b"k"]), "{taken:?}");
    }

    /// If the log is gone, the state of the keys written since the position replaces it.
    #[test]
    fn behind_the_log_comes_the_state() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path(), Options::default()).expect("opens");
        store.put("old", "1").expect("room");
        store.put("gone", "1").expect("room");
        let mut reader = open(dir.path(), ChangesFrom::Oldest);
        while reader.next(Duration::ZERO).expect("readable").is_some() {}
        let after = reader.position();
        drop(reader);
        store.flush().expect("room");
        let apart = store.open_keyspace("apart", None).expect("room");
        apart.put("k", "v").expect("room");
        store.delete("gone").expect("room");
        store.close().expect("room");
        let store = Store::open(dir.path(), Options::default()).expect("opens");
        store.put("late", "2").expect("room");
        let from = ChangesFrom::After(after);
        let refused = ChangeReader::open(dir.path(), from.into()).expect_err("it is gone");
        assert_eq!(refused.code, Code::HistoryGone);
        let state = Some(Options::default());
        let nowhere = Reading { from: ChangesFrom::Now, state: state.clone(), unsynced: false };
        let refused = ChangeReader::open(dir.path(), nowhere).expect_err("behind what?");
        assert_eq!(refused.code, Code::InvalidArgument);
        let reading = Reading { from, state, unsynced: true };
        let mut reader = ChangeReader::open(dir.path(), reading).expect("it goes on");
        let (mut kinds, mut keys) = (Vec::new(), Vec::new());
        while let Some(change) = reader.next(Duration::ZERO).expect("readable") {
            if change.kind == ChangeKind::Gap {
                assert_eq!(change.gap.expect("told").0, after.seq());
            }
            if change.kind == ChangeKind::State {
                assert_eq!(change.position, after, "whoever is interrupted begins there again");
                keys.extend(all(&change).into_iter().map(|one| (one.keyspace, one.key)));
            }
            kinds.push(change.kind);
        }
        let found = keys.iter().map(|(keyspace, key)| (&**keyspace, &key[..]));
        let expected: [(&str, &[u8]); 3] =
            [("default", b"gone"), ("default", b"late"), ("apart", b"k")];
        assert!(found.eq(expected), "{keys:?}");
        kinds.dedup();
        let expected =
            [ChangeKind::Gap, ChangeKind::Keyspaces, ChangeKind::State, ChangeKind::GapEnd];
        assert_eq!(kinds, expected);
    }

    /// A consumer without data gets everything, although the log begins after a flush.
    #[test]
    fn everything_begins_with_the_state() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path(), Options::default()).expect("opens");
        store.put("flushed", "1").expect("room");
        store.put("gone", "1").expect("room");
        store.delete("gone").expect("room");
        store.flush().expect("room");
        for state in [None, Some(Options::default())] {
            let reading = Reading { from: ChangesFrom::Everything, state, unsynced: false };
            let mut reader = ChangeReader::open(dir.path(), reading).expect("a store");
            store.put("later", "2").expect("room");
            let (mut keys, mut kinds) = (Vec::new(), Vec::new());
            while let Some(change) = reader.next(Duration::ZERO).expect("readable") {
                if change.kind == ChangeKind::State {
                    assert_eq!(change.position, Position::START);
                }
                keys.extend(all(&change).into_iter().map(|one| one.key));
                kinds.push(change.kind);
            }
            let (first, last) = (keys.first().expect("some"), keys.last().expect("some"));
            assert_eq!((&first[..], &last[..]), (&b"flushed"[..], &b"later"[..]));
            assert!(!keys.contains(&b"gone".to_vec()));
            assert_eq!((kinds[0], kinds.contains(&ChangeKind::GapEnd)), (ChangeKind::Gap, true));
        }
    }

    /// A load larger than a piece is read in pieces, and its thread ends with the reader.
    #[test]
    fn a_load_comes_in_pieces() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path(), Options::default()).expect("opens");
        let mut reader = open(dir.path(), ChangesFrom::Now);
        let count = 30_000u32;
        let entries = (0..count).map(|at| (at.to_be_bytes(), [7; 100]));
        store.default_keyspace().bulk_load(entries).expect("loads");
        let mut loaded = None;
        while let Some(change) = reader.next(Duration::ZERO).expect("readable") {
            loaded = Some(change).filter(|one| one.kind == ChangeKind::Loaded).or(loaded);
        }
        let loaded = loaded.expect("told");
        let mut pieces = loaded.writes().expect("a thread");
        let first = pieces.read().expect("readable").expect("there is one").len();
        assert!(first > 0 && first < count as usize, "{first}");
        drop(pieces);
        assert_eq!(all(&loaded).len(), count as usize);
        let began = Instant::now();
        while threads_reading() > 0 && began.elapsed() < Duration::from_secs(60) {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(threads_reading(), 0);
    }

    fn threads_reading() -> usize {
        let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
        let named = tasks.flatten().filter(|task| {
            let name = std::fs::read_to_string(task.path().join("comm"));
            name.is_ok_and(|name| name.trim() == "runstone-load")
        });
        named.count()
    }
}
