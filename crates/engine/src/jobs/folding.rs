//! Folds operands of a merge operator in flushes and compactions. A stripe is a row of versions
//! between which no reader looks. Its operands become
//!
//! 1. a value, if their base is among the inputs, or if there is no base anywhere. A base that only
//!    older readers see stays for them. Then the value would be a second copy. It is made only if
//!    one operand cannot replace the operands, and once these use as much memory as the base;
//! 2. one operand, if the base is elsewhere and the operator can express them as one operand;
//! 3. the same operands otherwise, and whenever the operator fails or is not registered: nothing is
//!    lost.
//!
//! The operator gets all operands at once, so they are held in memory until their base is found.
//! This memory has a limit. Operands beyond it become one operand before their base is found, if
//! that makes them small. Otherwise they pass as they are.

use std::sync::Arc;

use crate::callbacks::merge_operator::Merging;
use crate::catalog::keyspace::KeyspaceCore;
use crate::error::{Error, Result};
use crate::keys::{Kind, expires, is_pointer, kind_of, pack, seq_of};
use crate::table::iterator::Access;
use crate::values::Value;
use crate::values::separation::ValueFiles;

/// The operator of the keyspace, and the value files with the bases of operands.
#[derive(Clone, Debug)]
pub(crate) struct Folding {
    pub(crate) keyspace: Arc<str>,
    pub(crate) merging: Arc<Merging>,
    pub(crate) values: Arc<ValueFiles>,
    /// The memory that the operands of a chain may use.
    pub(crate) limit_bytes: u64,
}

/// The most memory that one chain may use, in bytes and as a fraction of the memory budget. A job
/// has one chain in each of its threads.
const MOST_HELD_BYTES: u64 = 64 << 20;
const HELD_FRACTION: u64 = 8;

/// A version, owned.
pub(super) type Version = (u64, Vec<u8>);

/// The operands of a key in one stripe, newest first.
#[derive(Debug)]
pub(super) struct Chain {
    pub(super) key: Vec<u8>,
    pub(super) operands: Vec<Version>,
    /// Whether there were too many operands to hold. Then none is held, and later ones pass as they
    /// arrive.
    pub(super) passes: bool,
    /// The memory that `operands` use.
    bytes: u64,
    /// The memory of the operands of newer stripes directly above, which wait for this chain to
    /// become a value.
    above_bytes: u64,
}

impl Chain {
    pub(super) fn new(key: &[u8]) -> Chain {
        Chain { key: key.to_vec(), operands: Vec::new(), passes: false, bytes: 0, above_bytes: 0 }
    }

    /// The chain below this one, of an older stripe.
    pub(super) fn beneath(&self) -> Chain {
        Chain { above_bytes: self.above_bytes + self.bytes, ..Chain::new(&self.key) }
    }

    /// Whether the chain should become a value, which is a second copy of a base that older readers
    /// keep.
    pub(super) fn is_worth(&self, base_bytes: u64) -> bool {
        !self.passes && self.bytes + self.above_bytes >= base_bytes
    }

    /// Adds the next older operand.
    pub(super) fn push(&mut self, trailer: u64, operand: &[u8]) {
        self.operands.push((trailer, operand.to_vec()));
        self.bytes += bytes_of(operand.len());
    }
}

/// The memory that an operand uses.
fn bytes_of(operand_bytes: usize) -> u64 {
    (operand_bytes + size_of::<Version>()) as u64
}

/// What is below a chain.
#[derive(Debug)]
pub(super) enum Below {
    /// A put or a pointer of the same stripe.
    Base(Version),
    /// A delete of the same stripe.
    Delete(Version),
    /// A put, a pointer or a delete of an older stripe. It is written separately.
    Beneath(Version),
    /// Nothing that any reader sees.
    Nothing,
    /// Possibly something in another stripe or in another table.
    Unknown,
}

/// The result of a chain: versions, newest first, and a pointer that no version has any more.
#[derive(Debug, Default)]
pub(super) struct Folded {
    pub(super) versions: Vec<Version>,
    pub(super) dead: Option<Vec<u8>>,
    /// Why the operator could not fold the operands, which then stay as they are.
    pub(super) failed: Option<Error>,
}

impl Folding {
    /// The folding for a keyspace; `None` if it has no merge operator.
    pub(super) fn of(keyspace: &KeyspaceCore, memory_budget_bytes: u64) -> Option<Folding> {
        let merging = keyspace.merging.load_full();
        merging.is_used().then(|| Folding {
            keyspace: keyspace.name.as_str().into(),
            merging,
            values: keyspace.values.load_full(),
            limit_bytes: MOST_HELD_BYTES.min(memory_budget_bytes / HELD_FRACTION),
        })
    }

    /// Makes room in a chain that exceeds its limit, and returns the operands that must pass
    /// unfolded. One operand replaces all of them, if it needs at most half of the room. So the
    /// operator gets each byte of the operands at most twice. Afterwards the chain is within its
    /// limit.
    pub(super) fn relieve(&self, chain: &mut Chain) -> Vec<Version> {
        if chain.bytes <= self.limit_bytes {
            return Vec::new();
        }
        let seq = chain.operands.first().map_or(0, |(trailer, _)| seq_of(*trailer));
        let one = self.partial(&chain.key, &oldest_first(&chain.operands));
        let is_small = |(_, one): &(Kind, Vec<u8>)| bytes_of(one.len()) <= self.limit_bytes / 2;
        let held = std::mem::take(&mut chain.operands);
        chain.bytes = 0;
        match one.filter(is_small) {
            Some((kind, one)) => {
                chain.push(pack(seq, kind), &one);
                Vec::new()
            }
            None => {
                chain.passes = true;
                held
            }
        }
    }

    pub(super) fn fold(&self, chain: Chain, below: Below) -> Result<Folded> {
        let Chain { key, operands, .. } = chain;
        let seq = operands.first().map_or(0, |(trailer, _)| seq_of(*trailer));
        let oldest_first = oldest_first(&operands);
        let mut failed = None;
        let mut full = |base: Option<&[u8]>| {
            let merged = self.merging.full(&key, base, &oldest_first);
            merged.map_err(|error| failed = Some(error)).ok()
        };
        let put = |value: Option<Vec<u8>>| value.map(|value| (Kind::Put, value));
        // If the operands were folded onto the base, they would be lost when it expires.
        let on_expiring = matches!(&below, Below::Base((trailer, _)) if expires(*trailer));
        let folded = match &below {
            _ if on_expiring => self.partial(&key, &oldest_first),
            Below::Base((trailer, bytes)) => {
                let base = self.base(&key, *trailer, bytes)?;
                base.and_then(|base| put(full(Some(&base))))
            }
            Below::Beneath((trailer, bytes)) => match self.partial(&key, &oldest_first) {
                Some(one) => Some(one),
                None if kind_of(*trailer) == Kind::Delete as u8 => put(full(None)),
                None => {
                    let base = self.base(&key, *trailer, bytes)?;
                    base.and_then(|base| put(full(Some(&base))))
                }
            },
            Below::Delete(_) | Below::Nothing => put(full(None)),
            Below::Unknown => self.partial(&key, &oldest_first),
        };
        Ok(match (folded, below) {
            (Some((kind, operand)), Below::Base(last)) if on_expiring => {
                let versions = vec![(pack(seq, kind), operand), last];
                Folded { versions, dead: None, failed }
            }
            (Some((kind, value)), below) => {
                let dead = match below {
                    Below::Base((trailer, bytes)) => is_pointer(trailer).then_some(bytes),
                    _ => None,
                };
                Folded { versions: vec![(pack(seq, kind), value)], dead, failed }
            }
            (None, Below::Base(last) | Below::Delete(last)) => {
                let versions = operands.into_iter().chain([last]).collect();
                Folded { versions, dead: None, failed }
            }
            (None, _) => Folded { versions: operands, dead: None, failed },
        })
    }

    /// One operand that replaces several.
    fn partial(&self, key: &[u8], oldest_first: &[&[u8]]) -> Option<(Kind, Vec<u8>)> {
        if oldest_first.len() < 2 {
            return None;
        }
        self.merging.partial(key, oldest_first).map(|operand| (Kind::Merge, operand))
    }

    /// The value of a base; `None` if its record is gone, because a newer version outside hides it.
    fn base(&self, key: &[u8], trailer: u64, bytes: &[u8]) -> Result<Option<Value>> {
        match is_pointer(trailer) {
            true => self.values.resolve(key, trailer, bytes, Access::Sequential),
            false => Ok(Some(Value::owned(bytes))),
        }
    }
}

fn oldest_first(operands: &[Version]) -> Vec<&[u8]> {
    operands.iter().rev().map(|(_, operand)| operand.as_slice()).collect()
}
