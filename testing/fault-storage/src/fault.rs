//! Faults that a simulated disk is set to show, and the rule that says when each fires. The
//! operations themselves apply what a fault does to the bytes.

use runstone_storage::Category;

/// One fault to inject.
///
/// It fires at the first operation, from number `at_op` on, that its kind can apply to and that has
/// the requested category. Operations are numbered from 0: the next one has the number
/// `SimStorage::ops()`. Faults of reads use the numbers of `SimStorage::reads()` instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Number of the operation, or of the read for faults of reads.
    pub at_op: u64,
    /// What goes wrong.
    pub kind: FaultKind,
    /// Whether it fires at every later operation as well, not only once.
    pub sticky: bool,
    /// Only for files of this category. A directory sync has none and is then never hit.
    pub category: Option<Category>,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The machine stops in the middle: a write or an entry change counts as pending, a sync as not
    /// done. This operation and every later one fail, until `power_cut` or `process_crash`.
    Crash,
    /// `EIO` without any effect. On a file sync it is the same as [`FaultKind::FailedSync`].
    Eio,
    /// The disk is full. A write leaves a prefix behind, of a length chosen by the seed. Applies to
    /// operations that take space: create, write, `set_len`, `allocate`, rename, link.
    NoSpace,
    /// A write leaves a prefix behind, of a length chosen by the seed, and fails with `EIO`.
    ShortWrite,
    /// A sync fails with `EIO`, and the data that it should have made durable are marked clean and
    /// lost: readers still see them, a later sync succeeds without them, and the next power cut
    /// removes them. A write-back fails in the same way.
    FailedSync,
    /// Like [`FaultKind::FailedSync`], with `ENOSPC`: a file system that finds space only when it
    /// syncs.
    NoSpaceOnSync,
    /// A sync of a directory fails with `EIO`, without effect.
    FailedDirSync,
    /// The removal of a file fails with `EIO`, and the file stays.
    FailedRemove,
    /// A write is acknowledged and never happens: readers and the disk keep the old bytes. The
    /// length grows as if it had happened, with zeros, because lengths are kept elsewhere.
    LostWrite,
    /// A write is acknowledged and lands on another 512-byte sector of the same file, clipped to
    /// the end of the file; the right place is left as with [`FaultKind::LostWrite`]. In a file of
    /// fewer than two sectors it is a lost write.
    MisdirectedWrite,
    /// A read fails with `EIO`.
    EioOnRead,
    /// A read succeeds with one bit wrong, chosen by the seed. The disk keeps the right one.
    BitFlipOnRead,
    /// A read ends early, with `UnexpectedEof`.
    ShortRead,
}

/// The kinds of operations that faults and the trace distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpKind {
    Create,
    CreateMapped,
    Write,
    Sync,
    SyncDir,
    Rename,
    Remove,
    SetLen,
    Punch,
    Allocate,
    Link,
    Read,
    WriteBack,
}

impl FaultKind {
    fn applies_to(self, op: OpKind) -> bool {
        match self {
            FaultKind::Crash | FaultKind::Eio => op != OpKind::Read,
            FaultKind::NoSpace => matches!(
                op,
                OpKind::Create
                    | OpKind::CreateMapped
                    | OpKind::Write
                    | OpKind::SetLen
                    | OpKind::Allocate
                    | OpKind::Rename
                    | OpKind::Link
            ),
            FaultKind::ShortWrite | FaultKind::LostWrite | FaultKind::MisdirectedWrite => {
                op == OpKind::Write
            }
            FaultKind::FailedSync | FaultKind::NoSpaceOnSync => {
                matches!(op, OpKind::Sync | OpKind::WriteBack)
            }
            FaultKind::FailedDirSync => op == OpKind::SyncDir,
            FaultKind::FailedRemove => op == OpKind::Remove,
            FaultKind::EioOnRead | FaultKind::BitFlipOnRead | FaultKind::ShortRead => {
                op == OpKind::Read
            }
        }
    }
}

/// The faults that are armed and those that fired.
#[derive(Debug, Default)]
pub(super) struct Faults {
    armed: Vec<(Fault, bool)>,
    fired: Vec<Fault>,
}

impl Faults {
    pub(super) fn arm(&mut self, fault: Fault) {
        self.armed.push((fault, false));
    }

    pub(super) fn disarm_all(&mut self) {
        self.armed.clear();
    }

    /// Every fault that fired at least once, in the order of the first time.
    pub(super) fn fired(&self) -> Vec<Fault> {
        self.fired.clone()
    }

    /// The fault of this operation, if any. If there are several, the one injected first fires.
    pub(super) fn take(
        &mut self,
        number: u64,
        op: OpKind,
        category: Option<Category>,
    ) -> Option<FaultKind> {
        let hits = |fault: &Fault| {
            fault.at_op <= number
                && fault.kind.applies_to(op)
                && (fault.category.is_none() || fault.category == category)
        };
        let at = self.armed.iter().position(|(fault, _)| hits(fault))?;
        let (fault, has_fired) = self.armed[at];
        if !has_fired {
            self.fired.push(fault);
        }
        if fault.sticky {
            self.armed[at].1 = true;
        } else {
            self.armed.remove(at);
        }
        Some(fault.kind)
    }
}
