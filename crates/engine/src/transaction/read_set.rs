//! What a serializable transaction read: keys, and stretches of keys that cursors passed. Its size
//! is bounded. Not here: whether anybody has written there since (`check`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::catalog::keyspace::KeyspaceCore;
use crate::error::{Error, Result};
use crate::keys::KeyspaceId;

/// The memory that a key or a stretch needs besides its bytes: its vectors, and its share of a tree
/// node.
const ENTRY_BYTES: usize = 64;

/// What a transaction read.
#[derive(Debug)]
pub(crate) struct ReadSet {
    keyspaces: BTreeMap<KeyspaceId, KeyspaceReads>,
    bytes: usize,
    limit_bytes: usize,
}

/// What a transaction read in one keyspace.
#[derive(Debug)]
pub(crate) struct KeyspaceReads {
    pub(crate) core: Arc<KeyspaceCore>,
    pub(crate) keys: BTreeSet<Vec<u8>>,
    pub(crate) spans: Vec<Span>,
}

/// Keys from `low` on and below `high`, if there is one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) low: Vec<u8>,
    pub(crate) high: Option<Vec<u8>>,
}

impl Span {
    pub(crate) fn new(low: &[u8], high: Option<&[u8]>) -> Span {
        Span { low: low.to_vec(), high: high.map(<[u8]>::to_vec) }
    }

    fn bytes(&self) -> usize {
        ENTRY_BYTES + self.low.len() + self.high.as_ref().map_or(0, Vec::len)
    }
}

impl ReadSet {
    pub(crate) fn new(limit_bytes: usize) -> ReadSet {
        ReadSet { keyspaces: BTreeMap::new(), bytes: 0, limit_bytes }
    }

    /// Notes that a key is read.
    pub(crate) fn add_key(&mut self, core: &Arc<KeyspaceCore>, key: &[u8]) -> Result<()> {
        let reads = self.of(core);
        if !reads.keys.contains(key) {
            reads.keys.insert(key.to_vec());
            self.bytes += ENTRY_BYTES + key.len();
        }
        self.check()
    }

    /// Notes that a stretch is read, and returns its index in the keyspace.
    pub(crate) fn add_span(&mut self, core: &Arc<KeyspaceCore>, span: Span) -> Result<usize> {
        self.bytes += span.bytes();
        let reads = self.of(core);
        reads.spans.push(span);
        let number = reads.spans.len() - 1;
        self.check()?;
        Ok(number)
    }

    /// Notes how far the reader of a stretch actually got.
    pub(crate) fn narrow(&mut self, id: KeyspaceId, number: usize, span: Span) {
        let spans = self.keyspaces.get_mut(&id).map(|reads| &mut reads.spans);
        if let Some(known) = spans.and_then(|spans| spans.get_mut(number)) {
            self.bytes = (self.bytes + span.bytes()).saturating_sub(known.bytes());
            *known = span;
        }
    }

    /// The reads of each keyspace.
    pub(crate) fn all(&self) -> impl Iterator<Item = &KeyspaceReads> {
        self.keyspaces.values()
    }

    fn of(&mut self, core: &Arc<KeyspaceCore>) -> &mut KeyspaceReads {
        self.keyspaces.entry(core.id).or_insert_with(|| KeyspaceReads {
            core: Arc::clone(core),
            keys: BTreeSet::new(),
            spans: Vec::new(),
        })
    }

    /// Refuses the read that exceeds the limit. The read stays noted, to be on the safe side.
    fn check(&self) -> Result<()> {
        if self.bytes <= self.limit_bytes {
            return Ok(());
        }
        Err(Error::invalid(
            format!("the transaction tracks more than {} bytes of reads", self.limit_bytes),
            "raise max_tracked_bytes, scan a range instead of getting its keys, read what need \
             not be checked at a snapshot, or use Isolation::Snapshot",
        ))
    }
}
