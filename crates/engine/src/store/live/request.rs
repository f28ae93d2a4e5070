//! How another process changes settings of an open store, and options of its keyspaces.
//!
//! ```text
//! file := "RunSet01" | bytes of the text u64 | text (JSON) | xxh3 of all before u64
//! ```
//!
//! 1. The requesting process holds the lock `set.lock`, so there is one request at a time. It
//!    writes the request under another name, and renames it to `set.request`.
//! 2. The writer looks for a request twice a second, and takes it by removing the file. So a
//!    request is either carried out once or withdrawn. A request whose sender died is removed and
//!    not carried out: nobody would learn of the result, and the request may be old. A request that
//!    does not verify is refused.
//! 3. A separate thread carries out the request, because a change of options waits for compactions,
//!    and flushes must not wait meanwhile. It writes `set.answer`, with the number of the request.
//! 4. The requesting process removes the answer. If no answer arrives in time, it withdraws the
//!    request by removing the file. If the file is already gone, the writer is working on the
//!    request.
//!
//! Nothing is synced: after a power loss nobody waits for an answer. A changed option is as durable
//! as after [`Store::open_keyspace`].

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use runstone_random::Random;
use runstone_storage::{Access, Category, LockMode, PosixStorage, Storage};
use serde::{Deserialize, Serialize};

use super::forget;
use super::settings::{LiveChange, Open};
use crate::error::{Error, Result};
use crate::keys::codec::u64_at;
use crate::options::store::KeyspaceOptions;
use crate::store::Store;
use crate::store::engine::Engine;
use crate::store::open::LOCK_NAME;
use crate::store::resources::Parts;
use crate::sync::{Mutex, rank};
use crate::tree::manifest::read_current;

pub(super) const LOCK: &str = "set.lock";
pub(super) const REQUEST: &str = "set.request";
pub(super) const ANSWER: &str = "set.answer";
/// A request or an answer that is not complete yet. Each has one writer at a time.
pub(super) const REQUEST_NEW: &str = "set.request.new";
pub(super) const ANSWER_NEW: &str = "set.answer.new";
const MAGIC: &[u8; 8] = b"RunSet01";
/// A longer file is not a request.
const MOST_BYTES: u64 = 1 << 20;
/// How often the requesting process looks for the answer.
const LOOK: Duration = Duration::from_millis(20);
/// The number of an answer to a request that cannot be read.
const UNREADABLE: u64 = 0;

/// Asks the process that has a store open to change settings of the store ([`Store::set_live`]), or
/// options of keyspaces as [`Store::open_keyspace`] does. A request with an impossible change is
/// refused before anything is changed.
///
/// ```
/// # fn main() -> runstone::Result<()> {
/// # let dir = tempfile::tempdir().expect("a directory");
/// use std::time::Duration;
///
/// use runstone::{LiveRequest, Options, Store};
///
/// let writer = Store::open(dir.path(), Options::default())?;
/// // Usually in another process.
/// let request = LiveRequest::new()
///     .setting("memory_budget_bytes", "256M")
///     .options("default", "[shape]\nl0_trigger = 6\n");
/// let changes = request.send(dir.path(), Duration::from_secs(60))?;
/// assert_eq!((changes[0].name.as_str(), changes[0].new.as_str()), ("shape.l0_trigger", "6"));
/// assert_eq!(writer.metrics().memory.budget_bytes, 256 << 20);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[must_use = "`send` sends it"]
pub struct LiveRequest {
    number: u64,
    settings: Vec<(String, String)>,
    /// Keyspaces, and new options for each as TOML.
    options: Vec<(String, String)>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    number: u64,
    changes: Vec<(String, String, String)>,
    /// What failed, and what to do.
    refused: Option<(String, String)>,
}

impl LiveRequest {
    /// An empty request.
    pub fn new() -> LiveRequest {
        LiveRequest::default()
    }

    /// Adds a setting of the store.
    pub fn setting(mut self, name: impl Into<String>, value: impl Into<String>) -> LiveRequest {
        self.settings.push((name.into(), value.into()));
        self
    }

    /// Adds options of a keyspace, as TOML. Options that the text does not name stay as they are.
    pub fn options(mut self, keyspace: impl Into<String>, toml: impl Into<String>) -> LiveRequest {
        self.options.push((keyspace.into(), toml.into()));
        self
    }

    /// Sends the request to the process that has the store in a directory open, and waits for the
    /// answer. A change of options waits for running compactions of the keyspace.
    ///
    /// # Errors
    /// [`Error::NotAStore`]; if another request takes too long; if nobody answers in time; the
    /// reason, if the process refuses; or a storage error.
    pub fn send(self, path: impl AsRef<Path>, patience: Duration) -> Result<Vec<LiveChange>> {
        let not_a_store = || Error::NotAStore { path: path.as_ref().display().to_string() };
        let opened = PosixStorage::open(path.as_ref(), Access::MustExist);
        let storage = opened.map_err(|error| match error.is_not_found() {
            true => not_a_store(),
            false => error.into(),
        })?;
        self.send_on(&storage, patience)
    }

    /// Does the same as [`LiveRequest::send`] on a storage.
    ///
    /// # Errors
    /// Those of [`LiveRequest::send`].
    pub fn send_on(mut self, storage: &dyn Storage, patience: Duration) -> Result<Vec<LiveChange>> {
        if read_current(storage)?.is_none() {
            return Err(Error::NotAStore { path: storage.location() });
        }
        // There is no end if the patience exceeds the range of the clock.
        let end = Instant::now().checked_add(patience);
        let is_over = || end.is_some_and(|end| Instant::now() >= end);
        let _lock = loop {
            if let Some(lock) = storage.lock(LOCK, LockMode::Exclusive)? {
                break lock;
            }
            if is_over() {
                let what = "another process asks this store for changes";
                return Err(Error::invalid(what, "try again"));
            }
            thread::sleep(LOOK);
        };
        self.number = Random::from_entropy().draw().max(UNREADABLE + 1);
        // A sender that died may have left an answer.
        forget(storage, ANSWER);
        put(storage, (REQUEST_NEW, REQUEST), &self)?;
        while !is_over() {
            if let Some(answer) = self.answer(storage)? {
                return answer;
            }
            thread::sleep(LOOK);
        }
        self.withdraw(storage)
    }

    fn answer(&self, storage: &dyn Storage) -> Result<Option<Result<Vec<LiveChange>>>> {
        let Some(Some(answer)) = whole::<Answer>(storage, ANSWER)? else { return Ok(None) };
        if ![self.number, UNREADABLE].contains(&answer.number) {
            return Ok(None);
        }
        forget(storage, ANSWER);
        if let Some((what, hint)) = answer.refused {
            return Ok(Some(Err(Error::invalid(what, hint))));
        }
        let change = |(name, old, new)| LiveChange { name, old, new };
        Ok(Some(Ok(answer.changes.into_iter().map(change).collect())))
    }

    /// Withdraws the request, because no answer arrived in time.
    fn withdraw(&self, storage: &dyn Storage) -> Result<Vec<LiveChange>> {
        let who = match storage.lock_holder(LOCK_NAME) {
            Some(process) => format!("process {process}"),
            None => "the process that writes to it".to_string(),
        };
        match storage.remove(REQUEST) {
            Ok(()) => Err(Error::invalid(
                format!("{who} has the store open, and did not answer"),
                "one that runs its jobs by hand answers when its program calls `answer_requests`",
            )),
            Err(error) if error.is_not_found() => match self.answer(storage)? {
                Some(answer) => answer,
                None => Err(Error::invalid(
                    format!("{who} has the store open, and is still at it"),
                    "a change of options waits for compactions that run; look again later",
                )),
            },
            Err(error) => Err(error.into()),
        }
    }
}

/// The writer's side. The lock is held while a request is carried out.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    answering: Mutex<rank::Answering, IsClosed>,
    is_busy: AtomicBool,
}

#[derive(Debug, Default)]
struct IsClosed(bool);

impl Requests {
    /// Stops answering, and waits for an answer that is being made.
    pub(crate) fn close(&self) {
        self.answering.lock().0 = true;
    }
}

impl Store {
    /// Answers requests of other processes to this open store: see [`LiveRequest`]. The threads of
    /// a store do so twice a second. A store whose jobs are run by hand answers only when this is
    /// called. Returns whether there was a request.
    ///
    /// # Errors
    /// If the request cannot be read or answered.
    pub fn answer_requests(&self) -> Result<bool> {
        self.inner.env.check_caller()?;
        if self.inner.env.options.read_only {
            // The requests are for the process that writes.
            return Err(Error::ReadOnly);
        }
        let parts = self.opening.parts.lock().clone().ok_or(Error::Closed)?;
        let mut closed = self.inner.requests.answering.lock();
        answer(&self.inner, &parts, &mut closed)
    }
}

/// Looks for a request, and answers it in a separate thread.
pub(super) fn look(engine: &Arc<Engine>, parts: &Weak<Parts>) {
    let is_there = engine.env.storage.open(REQUEST, Category::Other).is_ok();
    if !is_there || engine.requests.is_busy.swap(true, AcqRel) {
        return;
    }
    let (asked, parts) = (Arc::clone(engine), Weak::clone(parts));
    let started = thread::Builder::new().name("runstone-set".into()).spawn(move || {
        let mut closed = asked.requests.answering.lock();
        // If the parts are gone, the store is being closed.
        let Some(parts) = parts.upgrade() else { return };
        if let Err(error) = answer(&asked, &parts, &mut closed) {
            tracing::warn!(%error, "a request of another process is not answered");
        }
        drop(closed);
        asked.requests.is_busy.store(false, Release);
    });
    if let Err(error) = started {
        tracing::warn!(%error, "no thread for a request of another process");
        engine.requests.is_busy.store(false, Release);
    }
}

/// Removes files of senders that died. Called at open.
pub(crate) fn clear(storage: &dyn Storage, name: &str) {
    if ![REQUEST, ANSWER, REQUEST_NEW, ANSWER_NEW].contains(&name) {
        return;
    }
    // A process that holds the lock now sends its request to the store that is being opened.
    if matches!(storage.lock(LOCK, LockMode::Shared), Ok(Some(_))) {
        forget(storage, name);
    }
}

fn answer(engine: &Arc<Engine>, parts: &Parts, closed: &mut IsClosed) -> Result<bool> {
    let storage = &*engine.env.storage;
    if closed.0 {
        return Err(Error::Closed);
    }
    let Some(asked) = whole::<LiveRequest>(storage, REQUEST)? else { return Ok(false) };
    let is_left = storage.lock(LOCK, LockMode::Shared)?.is_some();
    match storage.remove(REQUEST) {
        // The request was withdrawn.
        Err(error) if error.is_not_found() => return Ok(true),
        removed => removed?,
    }
    if is_left {
        return Ok(true);
    }
    let number = asked.as_ref().map_or(UNREADABLE, |asked| asked.number);
    let done = match &asked {
        Some(asked) => Open { engine, parts }.fulfil(asked),
        None => Err(Error::invalid("the request does not verify", "ask again")),
    };
    let texts = |change: LiveChange| (change.name, change.old, change.new);
    let (changes, refused) = match done {
        Ok(changes) => (changes.into_iter().map(texts).collect(), None),
        Err(error) => (Vec::new(), Some((error.to_string(), error.hint()))),
    };
    put(storage, (ANSWER_NEW, ANSWER), &Answer { number, changes, refused })?;
    Ok(true)
}

impl Open<'_> {
    /// Carries out the whole request, or refuses it and changes nothing. Only an error of the
    /// storage, or another thread that changes the same keyspaces, can interrupt it.
    fn fulfil(&self, asked: &LiveRequest) -> Result<Vec<LiveChange>> {
        for (name, value) in &asked.settings {
            self.check(name, value)?;
        }
        let mut wanted: BTreeMap<&str, KeyspaceOptions> = BTreeMap::new();
        for (name, text) in &asked.options {
            let so_far = match wanted.get(name.as_str()) {
                Some(options) => options.clone(),
                None => self.options_of(name)?,
            };
            wanted.insert(name, so_far.with_toml(text)?);
        }
        // All options are checked first: if a keyspace refuses, those before it must not be
        // changed.
        for (name, options) in &wanted {
            self.engine.check_options(name, options)?;
        }
        let mut changes = Vec::new();
        for (name, options) in wanted {
            let old = self.options_of(name)?.to_toml();
            changes.extend(differences(&old, &options.to_toml()));
            self.engine.open_keyspace(name, Some(options))?;
        }
        for (name, value) in &asked.settings {
            changes.push(self.change(name, value)?);
        }
        Ok(changes)
    }

    fn options_of(&self, name: &str) -> Result<KeyspaceOptions> {
        let found = self.engine.catalog.find_keyspace(name);
        let keyspace = found.ok_or_else(|| Error::UnknownKeyspace { name: name.to_string() })?;
        Ok(KeyspaceOptions::clone(&keyspace.options.load()))
    }
}

/// The options that differ, each named with its section.
fn differences(old: &str, new: &str) -> Vec<LiveChange> {
    let flat = |text: &str| {
        let mut all = BTreeMap::new();
        flatten("", &text.parse::<toml::Table>().unwrap_or_default(), &mut all);
        all
    };
    let (old, new) = (flat(old), flat(new));
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let value = |of: &BTreeMap<String, String>, name: &String| {
        of.get(name).cloned().unwrap_or_else(|| "default".to_string())
    };
    let change = |name: &String| LiveChange {
        name: name.clone(),
        old: value(&old, name),
        new: value(&new, name),
    };
    names.into_iter().map(change).filter(|change| change.old != change.new).collect()
}

fn flatten(above: &str, table: &toml::Table, all: &mut BTreeMap<String, String>) {
    for (name, value) in table {
        match value {
            toml::Value::Table(below) => flatten(&format!("{above}{name}."), below, all),
            value => drop(all.insert(format!("{above}{name}"), value.to_string())),
        }
    }
}

/// Writes a file under another name, and renames it.
fn put(storage: &dyn Storage, (new, name): (&str, &str), what: &impl Serialize) -> Result<()> {
    let text = serde_json::to_vec(what).unwrap_or_default();
    let mut bytes = MAGIC.to_vec();
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text);
    bytes.extend(xxhash_rust::xxh3::xxh3_64(&bytes).to_le_bytes());
    forget(storage, new);
    let written = storage.create(new, Category::Other).and_then(|file| file.write_at(0, &bytes));
    let renamed = written.and_then(|()| storage.rename(new, name));
    Ok(renamed.inspect_err(|_| forget(storage, new))?)
}

/// The content of a file. `None` means that there is no file, and `Some(None)` that the content
/// does not verify.
fn whole<T: for<'a> Deserialize<'a>>(
    storage: &dyn Storage,
    name: &str,
) -> Result<Option<Option<T>>> {
    let file = match storage.open(name, Category::Other) {
        Err(error) if error.is_not_found() => return Ok(None),
        opened => opened?,
    };
    let len = file.len()?;
    if len > MOST_BYTES {
        return Ok(Some(None));
    }
    Ok(Some(parse(&file.read_vec(0, len as usize)?)))
}

fn parse<T: for<'a> Deserialize<'a>>(bytes: &[u8]) -> Option<T> {
    let text_end = bytes.len().checked_sub(8).filter(|end| *end >= MAGIC.len() + 8)?;
    let sum = xxhash_rust::xxh3::xxh3_64(&bytes[..text_end]);
    let is_whole = bytes.starts_with(MAGIC) && u64_at(bytes, text_end) == Some(sum);
    let text = &bytes[MAGIC.len() + 8..text_end];
    let has_length = u64_at(bytes, MAGIC.len()) == Some(text.len() as u64);
    (is_whole && has_length).then(|| serde_json::from_slice(text).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use runstone_storage::MemoryStorage;

    #[test]
    fn a_request_that_was_cut_or_changed_is_none() {
        let storage = MemoryStorage::new();
        let request = LiveRequest::new().setting("a", "1").options("default", "b = 2");
        put(&storage, (REQUEST_NEW, REQUEST), &request).expect("memory");
        let file = storage.open(REQUEST, Category::Other).expect("it is there");
        let bytes = file.read_vec(0, file.len().expect("a length") as usize).expect("readable");
        let whole: LiveRequest = parse(&bytes).expect("whole");
        assert_eq!(whole.settings, [("a".to_string(), "1".to_string())]);
        assert_eq!(whole.options, [("default".to_string(), "b = 2".to_string())]);
        for at in 0..bytes.len() {
            assert!(parse::<LiveRequest>(&bytes[..at]).is_none(), "cut at {at}");
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(parse::<LiveRequest>(&changed).is_none(), "changed at {at}");
        }
    }

    #[test]
    fn what_differs_is_named_with_its_section() {
        let changes = differences("a = 1\nb = 2\n[c]\nd = 3\n", "a = 1\nb = 4\n[c]\nd = \"x\"\n");
        let named: Vec<String> =
            changes.iter().map(|one| format!("{} {} {}", one.name, one.old, one.new)).collect();
        assert_eq!(named, ["b 2 4", "c.d 3 \"x\""]);
    }
}
