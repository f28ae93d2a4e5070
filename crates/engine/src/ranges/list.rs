//! Range deletes in the order of their sequence numbers, packed: 16 bytes each besides the bytes of
//! their bounds.

use std::sync::Arc;

use runstone_policy::shape::range_delete::RangeDelete;

use crate::keys::SeqNo;

/// The number of range deletes in a leaf.
pub(super) const LEAF: usize = 64;

/// At most [`LEAF`] range deletes.
#[derive(Debug, Default)]
pub(super) struct Leaf {
    /// The start and the end of each range delete, one after another. An empty end means that there
    /// is no bound.
    bytes: Box<[u8]>,
    /// The offset at which each start or end ends.
    ends: Box<[u32]>,
    seqs: Box<[SeqNo]>,
}

impl Leaf {
    pub(super) fn of(ranges: &[Arc<RangeDelete>]) -> Leaf {
        assert!(ranges.len() <= LEAF, "a leaf is full");
        let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(2 * ranges.len()));
        for range in ranges {
            for bound in [&*range.start, range.end.as_deref().unwrap_or_default()] {
                bytes.extend_from_slice(bound);
                let Ok(end) = u32::try_from(bytes.len()) else {
                    unreachable!("keys are far shorter than 2^25 bytes");
                };
                ends.push(end);
            }
        }
        let seqs = ranges.iter().map(|range| range.seq).collect();
        Leaf { bytes: bytes.into(), ends: ends.into(), seqs }
    }

    #[inline]
    fn bound(&self, at: usize) -> &[u8] {
        let from = if at == 0 { 0 } else { self.ends[at - 1] as usize };
        &self.bytes[from..self.ends[at] as usize]
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.len() + size_of_val(&*self.ends) + size_of_val(&*self.seqs)
    }
}

/// A bound of a range delete: the start is twice the index in a list, and the end is one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Edge(pub(super) u32);

/// Range deletes by sequence number. All leaves but the last are full.
#[derive(Clone, Debug, Default)]
pub(super) struct List {
    leaves: Vec<Arc<Leaf>>,
    len: usize,
}

impl List {
    pub(super) fn push(&mut self, leaf: Arc<Leaf>) {
        assert!(self.len.is_multiple_of(LEAF), "only the last leaf may have room");
        self.len += leaf.seqs.len();
        self.leaves.push(leaf);
    }

    /// Appends a list. All leaves of this list must be full.
    pub(super) fn append(&mut self, other: &List) {
        other.leaves.iter().for_each(|leaf| self.push(Arc::clone(leaf)));
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The sequence number of the range delete at this index.
    #[inline]
    pub(super) fn seq(&self, at: usize) -> SeqNo {
        self.leaves[at / LEAF].seqs[at % LEAF]
    }

    /// The key of a bound. It is empty if the range has no end.
    #[inline]
    pub(super) fn key(&self, edge: Edge) -> &[u8] {
        let at = edge.0 as usize;
        self.leaves[at / (2 * LEAF)].bound(at % (2 * LEAF))
    }

    /// Start and end of the range delete at this index.
    #[inline]
    pub(super) fn bounds(&self, at: usize) -> (&[u8], Option<&[u8]>) {
        let at = 2 * at as u32;
        let end = self.key(Edge(at + 1));
        (self.key(Edge(at)), (!end.is_empty()).then_some(end))
    }

    /// The index of the first range delete whose sequence number is above `seq`. O(log n).
    pub(super) fn above(&self, seq: SeqNo) -> usize {
        let full = self.leaves.partition_point(|leaf| leaf.seqs.last() <= Some(&seq));
        let inside = self.leaves.get(full);
        let inside = inside.map_or(0, |leaf| leaf.seqs.partition_point(|one| *one <= seq));
        (full * LEAF + inside).min(self.len)
    }

    /// Bytes of the leaves.
    pub(super) fn leaf_bytes(&self) -> usize {
        self.leaves.iter().map(|leaf| leaf.bytes()).sum()
    }
}
