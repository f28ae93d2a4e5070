//! Leases: how readers in other processes keep the files that they read.
//!
//! A follower reads the files of a store while another process writes to it. It holds a lease: a
//! file `NN.lease` of the store, which the kernel locks, and which says up to which edit of the
//! manifest the follower has read. Everything that a later edit freed is kept.
//!
//! ```text
//! lease := magic "RunLease" | id u64 | manifest u64 | bytes u64 | checksum u64
//! ```
//!
//! 1. The follower locks a lease file, writes that it needs everything, and only then reads
//!    `CURRENT`. Once it knows which edits its view has, it writes their place.
//! 2. The writer appends an edit, then looks for leases, and then removes, recycles or frees what
//!    the edit made obsolete. A lease that it does not see was locked after the edit, so its holder
//!    reads the edit. A lease that does not verify counts as one that needs everything.
//! 3. The lock of a reader that died is free, and its lease no longer counts.
//! 4. A writer that cannot wait any longer revokes leases, from the one with the oldest place on,
//!    until what is kept for the others is within the limits: it replaces the lease with another
//!    file. A reader that then does not find a file, or finds other bytes, reads its lease and
//!    learns why.
//!
//! Lease files are numbered from 0 on and never removed, so the writer stops at the first missing
//! one: a store without followers pays one failed open per edit.

pub(crate) mod holder;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use runstone_storage::{Category, LockMode, Storage};

use crate::error::Result;
use crate::keys::codec::u64_at;
use crate::log::number_in;
use crate::sync::{Mutex, rank};

/// The most leases at once.
pub(crate) const MOST_LEASES: u64 = 64;
const MAGIC: &[u8; 8] = b"RunLease";
const LEASE_BYTES: usize = 40;
/// The name under which the replacement of a revoked lease is made.
const REPLACEMENT: &str = "revoked.lease";

/// File name of a lease.
pub(crate) fn lease_name(number: u64) -> String {
    format!("{number:02}.lease")
}

/// Whether a file of this name belongs to leases.
pub(crate) fn is_lease(name: &str) -> bool {
    name == REPLACEMENT || number_in(name, "lease").is_some()
}

/// A place between two edits of the manifest. Later edits compare greater, across manifests too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EditPlace {
    /// Number of the manifest.
    pub(crate) manifest: u64,
    /// A length of the manifest in bytes.
    pub(crate) bytes: u64,
}

impl EditPlace {
    /// Before every edit: a reader at this place needs everything.
    pub(crate) const START: EditPlace = EditPlace { manifest: 0, bytes: 0 };
    /// After every edit: a reader at this place needs no file of the store.
    pub(crate) const END: EditPlace = EditPlace { manifest: u64::MAX, bytes: u64::MAX };

    fn encode(self, id: u64) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        [id, self.manifest, self.bytes].iter().for_each(|n| bytes.extend(n.to_le_bytes()));
        bytes.extend(xxhash_rust::xxh3::xxh3_64(&bytes).to_le_bytes());
        bytes
    }

    /// The lease's id and place. `None` if it does not verify.
    fn decode(bytes: &[u8]) -> Option<(u64, EditPlace)> {
        let sum = xxhash_rust::xxh3::xxh3_64(bytes.get(..LEASE_BYTES - 8)?);
        let is_whole = bytes.starts_with(MAGIC) && u64_at(bytes, LEASE_BYTES - 8) == Some(sum);
        let place = EditPlace { manifest: u64_at(bytes, 16)?, bytes: u64_at(bytes, 24)? };
        is_whole.then_some((u64_at(bytes, 8)?, place))
    }
}

/// A file that an edit made obsolete and that stays for leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HeldFile {
    /// A table, and its bytes.
    Table(u64, u64),
    /// A value file.
    Values(u64),
    /// A file that an open found and that the manifest does not name.
    Orphan(String),
}

/// Limits on what the writer keeps for leases before it revokes them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeepLimits {
    pub(crate) bytes: u64,
    pub(crate) time: Duration,
}

impl KeepLimits {
    /// The limits of a store without followers.
    pub(crate) const NONE: KeepLimits = KeepLimits { bytes: 0, time: Duration::ZERO };
}

/// The writer's side: the files and places that are held, and for whom.
#[derive(Debug)]
pub(crate) struct Leases {
    storage: Arc<dyn Storage>,
    limits: KeepLimits,
    state: Mutex<rank::Leases, State>,
}

#[derive(Debug, Default)]
struct State {
    /// The last edit.
    last: EditPlace,
    /// No lease needs anything that an edit up to here freed.
    unleased_to: EditPlace,
    /// No reader at all needs a file or slot that an edit up to here freed.
    free_to: EditPlace,
    /// The same for segments of the log.
    log_free_to: EditPlace,
    /// In order of the edits.
    held: HeldList<HeldFile>,
    /// Log segments, and whether their files can be used again.
    segments: HeldList<(u64, bool)>,
    /// Freed places inside value files.
    slots: FreedSlots,
    /// The leases found by the last look.
    live: u64,
    /// The readers in this process: the first file number that each of them does not need, by the
    /// number of the reader.
    holds: BTreeMap<u64, u64>,
    /// How many of them need the log.
    log_holds: u64,
    /// The number of the next such reader.
    next_hold: u64,
    /// If leases were held when the store was opened: the end of the manifest that was found.
    found: Option<EditPlace>,
    /// The number of leases that were revoked.
    revoked: u64,
}

impl State {
    /// Stops keeping what edits up to `free_to` made obsolete, unless a reader in this process
    /// needs it.
    fn pass(&mut self, free_to: EditPlace) {
        self.unleased_to = self.unleased_to.max(free_to);
        if self.log_holds == 0 || seeded!(HoldsIgnored) {
            self.log_free_to = self.unleased_to;
        }
        if self.holds.is_empty() || seeded!(HoldsIgnored) {
            self.free_to = self.unleased_to;
            self.slots.release(self.free_to);
        }
    }

    /// Whether a reader needs a file that the last edit made obsolete. A reader in this process
    /// needs no file that is newer than what it reads: a slow copy does not keep what compactions
    /// write and remove meanwhile.
    fn needs(&self, file: &HeldFile) -> bool {
        let is_read = || match file {
            HeldFile::Table(number, _) | HeldFile::Values(number) => {
                self.holds.values().any(|end| number < end)
            }
            HeldFile::Orphan(_) => true,
        };
        self.last > self.free_to && (self.last > self.unleased_to || is_read())
    }

    /// The bytes of all that edits after `free_to` made obsolete.
    fn kept_bytes(&self, free_to: EditPlace) -> u64 {
        self.held.kept(free_to).0 + self.segments.kept(free_to).0 + self.slots.kept(free_to)
    }
}

#[derive(Debug)]
struct Held<File> {
    left_at: EditPlace,
    file: File,
    bytes: u64,
    /// The bytes of all files that were added before this one.
    before: u64,
    since: Instant,
}

/// The files that are held, in order of the edits. Their bytes are read at each edit, and a slow
/// reader may hold 100,000 files, so nothing here looks at each of them.
#[derive(Debug)]
struct HeldList<File> {
    queue: VecDeque<Held<File>>,
    /// The bytes of all files that were ever added.
    added: u64,
}

impl<File> Default for HeldList<File> {
    fn default() -> HeldList<File> {
        HeldList { queue: VecDeque::new(), added: 0 }
    }
}

impl<File> HeldList<File> {
    fn add(&mut self, left_at: EditPlace, file: File, bytes: u64) {
        let (before, since) = (self.added, Instant::now());
        self.queue.push_back(Held { left_at, file, bytes, before, since });
        self.added += bytes;
    }

    fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Counts the oldest files, those that edits up to this place made obsolete. O(log n).
    fn count_to(&self, free_to: EditPlace) -> usize {
        self.queue.partition_point(|held| held.left_at <= free_to)
    }

    /// The bytes of files that edits after `free_to` made obsolete, and since when they are held.
    fn kept(&self, free_to: EditPlace) -> (u64, Option<Instant>) {
        let oldest = self.queue.get(self.count_to(free_to));
        (oldest.map_or(0, |oldest| self.added - oldest.before), oldest.map(|oldest| oldest.since))
    }

    /// Removes the files that nobody needs any more from the list, and returns them.
    fn release(&mut self, free_to: EditPlace) -> impl Iterator<Item = Held<File>> {
        let count = self.count_to(free_to);
        self.queue.drain(..count)
    }
}

/// The bytes of slots that edits freed and that are not in use again.
#[derive(Debug, Default)]
struct FreedSlots {
    by_edit: BTreeMap<EditPlace, u64>,
    total: u64,
}

impl FreedSlots {
    fn free(&mut self, left_at: EditPlace, bytes: u64) {
        if bytes > 0 {
            *self.by_edit.entry(left_at).or_default() += bytes;
            self.total += bytes;
        }
    }

    fn take(&mut self, left_at: EditPlace, bytes: u64) {
        if let Entry::Occupied(mut freed) = self.by_edit.entry(left_at) {
            let taken = bytes.min(*freed.get());
            *freed.get_mut() -= taken;
            self.total -= taken;
            if *freed.get() == 0 {
                freed.remove();
            }
        }
    }

    /// Forgets what edits up to `free_to` freed: no reader keeps these slots, and files that were
    /// dropped never use them again.
    fn release(&mut self, free_to: EditPlace) {
        while let Some(oldest) = self.by_edit.first_entry()
            && *oldest.key() <= free_to
        {
            self.total -= oldest.remove();
        }
    }

    /// The bytes that edits after `free_to` freed.
    fn kept(&self, free_to: EditPlace) -> u64 {
        self.total - self.by_edit.range(..=free_to).map(|(_, bytes)| bytes).sum::<u64>()
    }
}

/// The files and slots that a store keeps for followers in other processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeaseUse {
    /// Leases.
    pub(crate) leases: u64,
    /// Bytes of files and slots that only these leases need.
    pub(crate) bytes: u64,
    /// Leases revoked since the store was opened.
    pub(crate) revoked: u64,
}

/// Keeps what a reader in this process needs, until it is dropped. Nobody revokes it.
#[derive(Debug)]
pub(crate) struct Hold<'a> {
    leases: &'a Leases,
    number: u64,
    holds_log: bool,
}

impl Hold<'_> {
    /// The reader knows its files. It needs none from the number `end` on.
    pub(crate) fn narrow(&self, end: u64) {
        self.leases.state.lock().holds.insert(self.number, end);
    }

    /// The reader has copied the log.
    pub(crate) fn release_log(&mut self) {
        if std::mem::take(&mut self.holds_log) {
            self.leases.state.lock().log_holds -= 1;
        }
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.release_log();
        self.leases.state.lock().holds.remove(&self.number);
        self.leases.look();
    }
}

impl Leases {
    pub(crate) fn new(storage: Arc<dyn Storage>, limits: KeepLimits) -> Leases {
        Leases { storage, limits, state: Mutex::default() }
    }

    /// Looks for leases that an earlier writer left behind. `manifest` is the end of the manifest
    /// that was found. It is not known what the edits of that manifest freed.
    pub(crate) fn open(&self, manifest: u64) {
        let is_needed = !self.needed().is_empty();
        let place = EditPlace { manifest, bytes: u64::MAX };
        self.state.lock().found = is_needed.then_some(place);
    }

    /// Once all readers have reached this place, they need nothing that was free at the open.
    /// `None` if there are no readers.
    pub(crate) fn found(&self) -> Option<EditPlace> {
        self.state.lock().found
    }

    /// Notes an edit that was appended, and looks for leases.
    pub(crate) fn edited(&self, at: EditPlace) {
        {
            let mut state = self.state.lock();
            state.last = state.last.max(at);
        }
        self.look();
    }

    /// Looks for leases, after the last edit, and revokes those that keep too much. O(leases).
    pub(crate) fn look(&self) {
        self.look_and_revoke(|state, free_to| self.is_too_much(state, free_to));
    }

    /// Revokes every lease that keeps bytes on the disk.
    pub(crate) fn revoke_holders(&self) {
        self.look_and_revoke(|state, free_to| state.kept_bytes(free_to) > 0);
    }

    /// Revokes leases from the one with the oldest place on, until what is kept for the others is
    /// not `too_much`. The lease of a reader that keeps up keeps little, whatever a slow reader
    /// does.
    fn look_and_revoke(&self, too_much: impl Fn(&State, EditPlace) -> bool) {
        // The place is read first: a lease that is taken from now on may be after a later edit.
        let last = self.state.lock().last;
        let mut needed = if seeded!(LeasesIgnored) { Vec::new() } else { self.needed() };
        needed.sort_by_key(|(_, place)| *place);
        let free_to = |kept: &[(u64, EditPlace)]| {
            kept.first().map_or(last, |(_, oldest)| (*oldest).min(last))
        };
        let mut state = self.state.lock();
        state.live = needed.len() as u64;
        state.pass(free_to(&needed));
        let holds_too_much =
            |from: &usize| too_much(&state, state.unleased_to.max(free_to(&needed[*from..])));
        let count = (0..needed.len()).take_while(holds_too_much).count();
        drop(state);
        if count > 0 {
            let (gone, kept) = needed.split_at(count);
            self.revoke(gone, kept.len() as u64, free_to(kept));
        }
    }

    /// Whether what is kept for a lease with this place exceeds the limits.
    fn is_too_much(&self, state: &State, free_to: EditPlace) -> bool {
        let is_old = |since: Option<Instant>| since.is_some_and(|s| s.elapsed() > self.limits.time);
        let (files_since, segments_since) =
            (state.held.kept(free_to).1, state.segments.kept(free_to).1);
        state.kept_bytes(free_to) > self.limits.bytes
            || is_old(files_since)
            || is_old(segments_since)
    }

    /// Revokes these leases. Afterwards nothing is held that edits up to `free_to` freed.
    fn revoke(&self, gone: &[(u64, EditPlace)], kept: u64, free_to: EditPlace) {
        for (number, _) in gone {
            if let Err(error) = self.replace(*number) {
                tracing::warn!(%error, "a lease cannot be revoked");
                return;
            }
        }
        let mut state = self.state.lock();
        state.pass(free_to);
        state.revoked += gone.len() as u64;
        state.live = kept;
        let revoked = gone.len();
        tracing::warn!(revoked, "followers held more than they may, and lost their leases");
    }

    fn replace(&self, number: u64) -> Result<()> {
        match self.storage.remove(REPLACEMENT) {
            Err(error) if !error.is_not_found() => return Err(error.into()),
            _ => {}
        }
        self.storage.create(REPLACEMENT, Category::Other)?;
        Ok(self.storage.rename(REPLACEMENT, &lease_name(number))?)
    }

    /// The numbers of the leases that are held, and the places up to which their holders have read.
    /// A lease that cannot be read counts as one that needs everything.
    fn needed(&self) -> Vec<(u64, EditPlace)> {
        let mut needed = Vec::new();
        for number in 0..MOST_LEASES {
            match self.lease(&lease_name(number)) {
                Ok(None) => break,
                Ok(Some(None)) => {}
                Ok(Some(Some(place))) => needed.push((number, place)),
                Err(error) => {
                    tracing::debug!(%error, "a lease cannot be read");
                    needed.push((number, EditPlace::START));
                }
            }
        }
        needed
    }

    /// The place up to which the holder of a lease has read. `None` if there is no such file;
    /// `Some(None)` if nobody holds it.
    fn lease(&self, name: &str) -> Result<Option<Option<EditPlace>>> {
        let file = match self.storage.open(name, Category::Other) {
            Err(error) if error.is_not_found() => return Ok(None),
            file => file?,
        };
        if self.storage.lock(name, LockMode::Shared)?.is_some() {
            return Ok(Some(None));
        }
        let mut bytes = [0; LEASE_BYTES];
        let is_whole = file.len()? >= LEASE_BYTES as u64;
        let read = is_whole.then(|| file.read_at(0, &mut bytes)).transpose()?;
        let place = read.and_then(|()| EditPlace::decode(&bytes));
        Ok(Some(Some(place.map_or(EditPlace::START, |(_, place)| place))))
    }

    /// Checks whether anybody holds a lease, for instance to get the measurements of the store.
    pub(crate) fn are_wanted(&self) -> bool {
        self.look();
        self.state.lock().live > 0
    }

    /// Whether anybody holds a lease now.
    pub(crate) fn are_held(&self) -> bool {
        !self.needed().is_empty()
    }

    /// Keeps everything that later edits free, for a reader in this process that is about to read
    /// the manifest.
    pub(crate) fn hold(&self) -> Hold<'_> {
        let mut state = self.state.lock();
        let number = state.next_hold;
        state.next_hold += 1;
        state.holds.insert(number, u64::MAX);
        state.log_holds += 1;
        Hold { leases: self, number, holds_log: true }
    }

    /// The last edit.
    pub(crate) fn last(&self) -> EditPlace {
        self.state.lock().last
    }

    /// Whether no reader needs what the edits up to this one freed.
    pub(crate) fn may_free(&self, left_at: EditPlace) -> bool {
        left_at <= self.state.lock().free_to
    }

    /// Keeps a file that the edits so far made obsolete, until [`Leases::release`] returns it. If
    /// nobody needs it, it is returned at once.
    pub(crate) fn hold_file(&self, file: HeldFile, bytes: u64) -> Option<HeldFile> {
        let mut state = self.state.lock();
        if !state.needs(&file) {
            return Some(file);
        }
        let left_at = state.last;
        state.held.add(left_at, file, bytes);
        None
    }

    /// Keeps a log segment, until [`Leases::release_segments`] returns it. `segment` is its number,
    /// and whether its file can be used again.
    pub(crate) fn hold_segment(&self, segment: (u64, bool), bytes: u64) {
        let mut state = self.state.lock();
        let left_at = state.last;
        state.segments.add(left_at, segment, bytes);
    }

    /// The files that nobody needs any more.
    pub(crate) fn release(&self) -> Vec<HeldFile> {
        let mut state = self.state.lock();
        let free_to = state.free_to;
        state.held.release(free_to).map(|held| held.file).collect()
    }

    /// The log segments that nobody needs any more, and their bytes.
    pub(crate) fn release_segments(&self) -> Vec<((u64, bool), u64)> {
        let mut state = self.state.lock();
        let free_to = state.log_free_to;
        state.segments.release(free_to).map(|held| (held.file, held.bytes)).collect()
    }

    /// Looks for leases again if something is held. Called now and then, even if nobody writes.
    pub(crate) fn look_again(&self) {
        let holds_any = {
            let state = self.state.lock();
            let is_empty = state.held.is_empty() && state.segments.is_empty();
            !is_empty || state.slots.total > 0
        };
        if holds_any {
            self.look();
        }
    }

    /// Counts places inside value files that the edits up to this one freed.
    pub(crate) fn count_freed(&self, left_at: EditPlace, bytes: u64) {
        self.state.lock().slots.free(left_at, bytes);
    }

    /// Counts such places as used again.
    pub(crate) fn count_taken(&self, left_at: EditPlace, bytes: u64) {
        self.state.lock().slots.take(left_at, bytes);
    }

    /// The number of leases, and the bytes that are kept for them.
    pub(crate) fn usage(&self) -> LeaseUse {
        let state = self.state.lock();
        let bytes = state.kept_bytes(state.unleased_to);
        LeaseUse { leases: state.live, bytes, revoked: state.revoked }
    }
}

#[cfg(test)]
mod tests {
    use runstone_storage::MemoryStorage;

    use super::holder::Lease;
    use super::*;

    /// The sums equal those of a look at each file, whatever was released before.
    #[test]
    fn what_is_held_is_counted_without_looking_at_each_file() {
        let place = |bytes| EditPlace { manifest: 1, bytes };
        let mut list = HeldList::default();
        for number in 0..100 {
            list.add(place(number / 3), number, number + 1);
            if number % 10 == 9 {
                let free_to = place(number / 6);
                list.release(free_to).for_each(|held| assert!(held.left_at <= free_to));
            }
            for free_to in [0, number / 4, number / 3, number].map(place) {
                let kept = list.queue.iter().filter(|held| held.left_at > free_to);
                let since = kept.clone().map(|held| held.since).next();
                let sum = kept.map(|held| held.bytes).sum();
                assert_eq!(list.kept(free_to), (sum, since), "{number}, {free_to:?}");
            }
        }
    }

    /// Guards against a bug: when one reader had been slow for too long, the writer revoked every
    /// lease, even that of a backup which had just begun, and that of an archiver which had read
    /// everything.
    #[test]
    fn only_the_leases_that_hold_too_much_are_revoked() {
        let place = |bytes| EditPlace { manifest: 1, bytes };
        let file = |number| HeldFile::Table(number, 100);
        let (time, bytes) = (Duration::from_secs(600), u64::MAX);
        // Too old, too large, too large because of slots, and within the limits.
        let cases = [
            (KeepLimits { bytes, time: Duration::ZERO }, 0, 2),
            (KeepLimits { bytes: 299, time }, 0, 1),
            (KeepLimits { bytes: 300, time }, 50, 1),
            (KeepLimits { bytes: 300, time }, 0, 0),
        ];
        for (limits, slot_bytes, revoked) in cases {
            let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
            let leases = Leases::new(Arc::clone(&storage), limits);
            let take = |id, at| {
                let lease = Lease::take(&storage, id).expect("there is room");
                let part = lease.part(at).expect("it is told");
                (lease, part)
            };
            // The newest comes first: the order of the files does not decide.
            let all = [place(3), EditPlace::END, place(2), place(1)];
            let all: Vec<_> = (0..).zip(all).map(|(id, at)| take(id, at)).collect();
            for edit in 1..=3 {
                leases.edited(place(edit));
                if edit > 1 {
                    assert_eq!(leases.hold_file(file(edit), 50 * edit), None);
                    leases.count_freed(place(edit), slot_bytes);
                }
            }
            // Freed by the last edit: 150 bytes, and the slots. By the edit before it: 100, and the
            // slots.
            leases.hold_segment((9, true), 50);
            leases.look();
            let gone: Vec<bool> = all.iter().map(|(lease, _)| lease.is_revoked()).collect();
            assert_eq!(gone, [false, false, revoked > 1, revoked > 0], "{limits:?}, {slot_bytes}");
            let usage = leases.usage();
            assert_eq!((usage.revoked, usage.leases), (revoked, 4 - revoked), "{limits:?}");
            leases.revoke_holders();
            let gone: Vec<bool> = all.iter().map(|(lease, _)| lease.is_revoked()).collect();
            assert_eq!(gone, [false, false, true, true], "{limits:?}");
            assert_eq!(leases.usage().bytes, 0, "{limits:?}");
        }
    }

    /// Two readers in this process keep what both may read, and nothing that was made later.
    #[test]
    fn readers_in_the_process_keep_only_what_they_read() {
        let place = |bytes| EditPlace { manifest: 1, bytes };
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let leases = Leases::new(storage, KeepLimits::NONE);
        let table = |number| HeldFile::Table(number, 10);
        let is_kept = |number| leases.hold_file(table(number), 10).is_none();
        leases.edited(place(1));
        assert!(!is_kept(1), "nobody reads");
        let mut first = leases.hold();
        leases.edited(place(2));
        assert!(is_kept(2) && is_kept(100), "nobody knows what the first reads");
        first.narrow(50);
        assert!(is_kept(49) && !is_kept(50));
        let second = leases.hold();
        second.narrow(60);
        leases.edited(place(3));
        assert!(is_kept(59) && !is_kept(60));
        leases.hold_segment((7, true), 10);
        first.release_log();
        leases.edited(place(4));
        assert_eq!(leases.release_segments(), [], "the second has not copied the log");
        assert_eq!((leases.release(), leases.usage().bytes), (vec![], 0));
        drop(second);
        assert_eq!(leases.release_segments(), [((7, true), 10)]);
        assert_eq!(leases.release(), [], "the first still reads");
        drop(first);
        assert_eq!(leases.release(), [2, 100, 49, 59].map(table));
        leases.edited(place(5));
        assert!(!is_kept(3));
    }
}
