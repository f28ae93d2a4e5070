//! One node loses power at every operation of its disk, while it appends, votes, truncates,
//! applies, purges, takes snapshots and installs them. What the node promised is there, and log and
//! machine fit together.
//!
//! The request in an entry is a function of the entry's term and index. The content of a machine is
//! a function of the last index that it applied. So the oracle keeps little: which vote was saved,
//! how far the log is durable and in which terms, and what was purged and installed.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::sync::Arc;

use openraft::storage::{RaftLogStorage, RaftLogStorageExt, RaftStateMachine};
use openraft::{
    CommittedLeaderId, Entry, EntryPayload, LogId, Membership, RaftLogReader, RaftSnapshotBuilder,
    StorageHelper, StoredMembership, Vote,
};
use runstone::storage::MemoryStorage;
use runstone_fault_storage::{Fault, FaultKind, SimStorage};
use runstone_openraft::Bug;
use runstone_random::{Random, mix64};

use crate::node::{Content, Parts, Register, Types, Write, content, in_virtual_time, number, open};

const STEPS: u64 = 60;

fn log_id(term: u64, index: u64) -> LogId<u64> {
    LogId::new(CommittedLeaderId::new(term, 1), index)
}

/// The entry of a term and an index. Whether it changes the membership depends on the index alone.
fn entry(term: u64, index: u64) -> Entry<Types> {
    let drawn = mix64(index);
    let payload = match drawn % 9 {
        0 => EntryPayload::Blank,
        1 => EntryPayload::Membership(membership(index)),
        _ => {
            let padding_bytes =
                if drawn.is_multiple_of(40) { 30_000 } else { drawn as usize % 700 };
            EntryPayload::Normal(Write { key: drawn / 9 % 20, value: index, padding_bytes })
        }
    };
    Entry { log_id: log_id(term, index), payload }
}

fn membership(index: u64) -> Membership<u64, ()> {
    Membership::new(vec![BTreeSet::from([1, 2, index])], ())
}

/// The content of a machine that has applied everything up to an index. It does not depend on
/// terms.
fn expected(last: Option<u64>) -> (Content, Option<u64>) {
    let (mut content, mut member_index) = (Content::new(), None);
    for index in 0..last.map_or(0, |last| last + 1) {
        match entry(0, index).payload {
            EntryPayload::Normal(write) => {
                let count = content.get(&write.key).map_or(0, |old: &Register| old.count) + 1;
                content.insert(write.key, Register { value: write.value, count });
            }
            EntryPayload::Membership(_) => member_index = Some(index),
            EntryPayload::Blank => {}
        }
    }
    (content, member_index)
}

/// What the script has done, and what was promised to it.
#[derive(Default)]
struct Oracle {
    /// The terms in which an entry was ever appended at each index.
    terms: BTreeMap<u64, BTreeSet<u64>>,
    term: u64,
    /// One more than the last index of the log.
    next: u64,
    /// One more than the last index that is durable.
    durable: u64,
    /// The terms of the entries that are durable.
    durable_terms: BTreeMap<u64, u64>,
    /// One more than the last applied index. An installed snapshot is durable.
    applied: u64,
    installed: u64,
    vote_saved: u64,
    vote_wanted: u64,
    /// One more than the last index that was purged, or that a purge should have removed.
    purged: u64,
}

type Outcome = Result<(), Box<dyn Error>>;

async fn append(parts: &mut Parts, oracle: &mut Oracle, count: u64) -> Outcome {
    let entries: Vec<_> =
        (oracle.next..oracle.next + count).map(|index| entry(oracle.term, index)).collect();
    for index in oracle.next..oracle.next + count {
        oracle.terms.entry(index).or_default().insert(oracle.term);
    }
    parts.log.blocking_append(entries).await?;
    for index in oracle.next..oracle.next + count {
        oracle.durable_terms.insert(index, oracle.term);
    }
    oracle.next += count;
    oracle.durable = oracle.next;
    Ok(())
}

async fn apply(parts: &mut Parts, oracle: &mut Oracle, count: u64) -> Outcome {
    let end = (oracle.applied + count).min(oracle.next);
    if end == oracle.applied {
        return Ok(());
    }
    parts.log.save_committed(Some(log_id(oracle.term, end - 1))).await?;
    let entries = parts.log.try_get_log_entries(oracle.applied..end).await?;
    assert_eq!(entries.len() as u64, end - oracle.applied);
    parts.machine.apply(entries).await?;
    oracle.applied = end;
    Ok(())
}

/// Installs a snapshot of another machine, which has applied more.
async fn install(parts: &mut Parts, oracle: &mut Oracle, ahead: u64) -> Outcome {
    let end = oracle.next + ahead;
    let mut other = open(Arc::new(MemoryStorage::new()), 1, None)?;
    other.machine.apply((0..end).map(|index| entry(oracle.term, index))).await?;
    let taken = other.machine.get_snapshot_builder().await.build_snapshot().await?;
    let mut received = parts.machine.begin_receiving_snapshot().await?;
    let mut sent = taken.snapshot;
    tokio::io::copy(&mut sent, &mut received).await?;
    // As in openraft, the purge follows at once, and perhaps the next entry, while the machine is
    // still at work.
    purge(parts, oracle, end).await?;
    let next = entry(oracle.term, end);
    oracle.terms.entry(end).or_default().insert(oracle.term);
    let (log, machine) = (&mut parts.log, &mut parts.machine);
    let installed = async {
        machine.install_snapshot(&taken.meta, received).await?;
        Ok::<_, Box<dyn Error>>(())
    };
    if end.is_multiple_of(2) {
        let (installed, appended) = tokio::join!(installed, log.blocking_append([next]));
        installed?;
        (oracle.applied, oracle.installed) = (end, end);
        appended?;
        oracle.next = end + 1;
        oracle.durable_terms.insert(end, oracle.term);
    } else {
        installed.await?;
        (oracle.applied, oracle.installed) = (end, end);
        oracle.next = end;
    }
    oracle.durable = oracle.next;
    Ok(())
}

async fn purge(parts: &mut Parts, oracle: &mut Oracle, end: u64) -> Outcome {
    if end <= oracle.purged {
        return Ok(());
    }
    oracle.purged = end;
    Ok(parts.log.purge(log_id(oracle.term, end - 1)).await?)
}

/// Makes one step. Before it, the oracle notes what is about to happen, and after it, what is
/// promised.
async fn step(parts: &mut Parts, oracle: &mut Oracle, random: &mut Random) -> Outcome {
    match random.below(20) {
        0 | 1 => {
            oracle.vote_wanted += 1;
            parts.log.save_vote(&Vote::new(oracle.vote_wanted, 1)).await?;
            oracle.vote_saved = oracle.vote_wanted;
        }
        2 if oracle.next > oracle.applied => {
            // Another leader replaces the end of the log.
            let from = oracle.applied + random.below(oracle.next - oracle.applied);
            oracle.durable = oracle.durable.min(from);
            parts.log.truncate(log_id(oracle.term, from)).await?;
            oracle.next = from;
            oracle.term += 1;
            let count = 1 + random.below(4);
            append(parts, oracle, count).await?;
        }
        3 | 4 => {
            let built = parts.machine.get_snapshot_builder().await.build_snapshot().await?;
            assert_eq!(built.meta.last_log_id.map_or(0, |last| last.index + 1), oracle.applied);
            let end = oracle.applied.saturating_sub(random.below(5));
            purge(parts, oracle, end).await?;
        }
        5 => {
            let ahead = random.below(40);
            install(parts, oracle, ahead).await?;
        }
        6..12 => {
            let count = 1 + random.below(6);
            apply(parts, oracle, count).await?;
        }
        _ => {
            let count = 1 + random.below(6);
            append(parts, oracle, count).await?;
        }
    }
    Ok(())
}

/// Runs the script until it ends or the disk fails.
async fn run(storage: &SimStorage, seed: u64, bug: Option<Bug>) -> (Oracle, Outcome) {
    let (mut oracle, mut random) = (Oracle::default(), Random::new(seed));
    oracle.term = 1;
    let mut parts = match open(Arc::new(storage.clone()), seed, bug) {
        Ok(parts) => parts,
        Err(error) => return (oracle, Err(error)),
    };
    for _ in 0..STEPS {
        if let Err(error) = step(&mut parts, &mut oracle, &mut random).await {
            return (oracle, Err(error));
        }
    }
    (oracle, Ok(()))
}

/// Opens the store that is left, compares it with what was promised, and continues to use it.
async fn judge(left: SimStorage, seed: u64, oracle: &Oracle, bug: Option<Bug>) -> Outcome {
    let mut parts = open(Arc::new(left), seed, bug)?;
    let vote = parts.log.read_vote().await?.map_or(0, |vote| vote.leader_id().term);
    let votes = oracle.vote_saved..=oracle.vote_wanted;
    assert!(votes.contains(&vote), "vote {vote} of {votes:?}");

    let (applied, members) = parts.machine.applied_state().await?;
    let applied = applied.map(|applied| applied.index);
    let applied_count = applied.map_or(0, |applied| applied + 1);
    assert!(applied_count >= oracle.installed, "{applied_count} of {}", oracle.installed);
    let (held, member_index) = expected(applied);
    assert_eq!(content(&parts.reader)?, held, "the machine at {applied:?}");
    let members_before = StoredMembership::default();
    let stored = member_index.map_or(members_before.membership().clone(), membership);
    assert_eq!(members.log_id().map(|log_id| log_id.index), member_index);
    assert_eq!(*members.membership(), stored);

    let state = parts.log.get_log_state().await?;
    let purged = state.last_purged_log_id.map_or(0, |purged| purged.index + 1);
    assert!(purged <= applied_count, "{purged} are purged, {applied_count} applied");
    assert!(purged <= oracle.purged);
    let entries = parts.log.try_get_log_entries(..).await?;
    for (index, found) in (purged..).zip(&entries) {
        let term = found.log_id.leader_id.term;
        assert_eq!(*found, entry(term, index), "a hole, or another entry");
        assert!(oracle.terms[&index].contains(&term));
        let is_durable = index < oracle.durable;
        assert!(!is_durable || oracle.durable_terms[&index] == term, "entry {index} of {term}");
    }
    let end = purged + entries.len() as u64;
    let is_covered = end.max(applied_count) >= oracle.durable;
    assert!(is_covered, "the log ends at {end}, and was durable up to {}", oracle.durable);
    let keyspaces = parts.reader.store().keyspaces();
    assert_eq!(keyspaces.len(), 4, "{keyspaces:?}");

    // openraft can start from this store: it applies what is committed, and closes a gap of the
    // log.
    let state = StorageHelper::new(&mut parts.log, &mut parts.machine).get_initial_state().await?;
    let applied = state.committed.map(|committed| committed.index);
    assert!(applied.map_or(0, |applied| applied + 1) >= applied_count);
    assert_eq!(content(&parts.reader)?, expected(applied).0, "after a restart at {applied:?}");
    let last = parts.log.get_log_state().await?.last_log_id.map_or(0, |last| last.index + 1);
    parts.log.blocking_append([entry(oracle.term + 1, last)]).await?;
    let rest = parts.log.try_get_log_entries(applied.map_or(0, |applied| applied + 1)..).await?;
    parts.machine.apply(rest).await?;
    assert_eq!(content(&parts.reader)?, expected(Some(last)).0, "after one more entry");
    Ok(())
}

/// Injects a fault at every `every`th operation of a seed's script. Returns how often something
/// failed.
fn strike(kind: FaultKind, seed: u64, every: u64, bug: Option<Bug>) -> u64 {
    let count = in_virtual_time(async {
        let storage = SimStorage::new(seed);
        let (_, outcome) = run(&storage, seed, bug).await;
        outcome.expect("no faults");
        storage.ops()
    });
    let mut struck = 0;
    for at in (seed % every..count).step_by(every as usize) {
        in_virtual_time(async {
            let storage = SimStorage::new(seed);
            let sticky = kind == FaultKind::Crash;
            storage.inject(Fault { at_op: at, kind, sticky, category: None });
            let (oracle, outcome) = run(&storage, seed, bug).await;
            struck += u64::from(outcome.is_err());
            storage.clear_faults();
            let judged = judge(storage.power_cut(at).0, seed, &oracle, bug).await;
            judged.unwrap_or_else(|error| panic!("{kind:?}, seed {seed}, operation {at}: {error}"));
        });
    }
    struck
}

#[test]
fn power_loss_at_every_operation_keeps_what_was_promised() {
    let first = number("RUNSTONE_SEED", 1);
    let every = number("RUNSTONE_EVERY", 3);
    for seed in first..first + number("RUNSTONE_SEEDS", 8) {
        let struck = strike(FaultKind::Crash, seed, every, None);
        assert!(struck > 20, "seed {seed}: {struck} crashes");
    }
}

/// The node stops at the first error, as openraft does, and then loses power.
#[test]
fn failed_syncs_and_full_disks_keep_what_was_promised() {
    let (first, count) = (number("RUNSTONE_SEED", 20), number("RUNSTONE_SEEDS", 2));
    for kind in [FaultKind::FailedSync, FaultKind::NoSpace, FaultKind::Eio] {
        let strike = |seed| strike(kind, seed, number("RUNSTONE_EVERY", 3), None);
        let struck: u64 = (first..first + count).map(strike).sum();
        assert!(struck > 3, "{kind:?}: {struck} errors");
    }
}

/// Each known mistake is found.
#[test]
fn mistakes_are_found() {
    let all = [
        Bug::VoteUnsynced,
        Bug::FlushedEarly,
        Bug::SwitchInTwo,
        Bug::PurgedEarly,
        Bug::LeftoversKept,
    ];
    for bug in all {
        let finds = |seed| {
            std::panic::catch_unwind(|| strike(FaultKind::Crash, seed, 2, Some(bug))).is_err()
        };
        assert!((1..9).any(finds), "{bug:?} is not found");
    }
}
