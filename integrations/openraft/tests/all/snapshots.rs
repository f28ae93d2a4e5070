//! Snapshots of machines that continue to apply entries, streams that are damaged, and stores that
//! are closed and opened again in one process.

use std::collections::BTreeMap;
use std::sync::Arc;

use openraft::storage::RaftStateMachine;
use openraft::{
    CommittedLeaderId, Config, Entry, EntryPayload, LogId, Raft, RaftSnapshotBuilder, SnapshotMeta,
};
use runstone::storage::MemoryStorage;
use runstone::{Options, Store};
use runstone_openraft::{Reader, Settings, SnapshotData, StateMachine};
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};

use crate::network::{Wire, World};
use crate::node::{Registers, Types, Write, content};

type Machine = StateMachine<Types, Registers>;

fn writes(range: std::ops::Range<u64>, keys: u64) -> Vec<Entry<Types>> {
    let entry = |index: u64| Entry {
        log_id: LogId::new(CommittedLeaderId::new(1, 1), index),
        payload: EntryPayload::Normal(Write {
            key: index % keys,
            value: index,
            padding_bytes: 100,
        }),
    };
    range.map(entry).collect()
}

fn machine(settings: Settings) -> Machine {
    let options = Options::default().memory_budget_bytes(8 << 20);
    let store = Store::open_on(Arc::new(MemoryStorage::new()), options).expect("opens");
    runstone_openraft::open(store, Registers, settings).expect("opens").1
}

/// Sends a stream in parts, each after a seek, as openraft does.
async fn transfer(from: &mut SnapshotData, to: &mut SnapshotData) -> u64 {
    let end = from.seek(std::io::SeekFrom::End(0)).await.expect("its length");
    let mut at = 0;
    while at < end {
        from.seek(std::io::SeekFrom::Start(at)).await.expect("a place");
        let mut part = vec![0; 10_000.min((end - at) as usize)];
        from.read_exact(&mut part).await.expect("a part");
        to.write_all(&part).await.expect("room");
        at += part.len() as u64;
    }
    to.shutdown().await.expect("room");
    end
}

/// Takes a snapshot, applies more entries before and while the snapshot is written, and installs it
/// in another store.
async fn of_one_moment(settings: Settings) {
    let mut sender = machine(settings.clone());
    sender.apply(writes(0..30_000, 10_000)).await.expect("applies");
    let held = content(&sender.reader()).expect("reads");
    let mut taken = sender.get_snapshot_builder().await.build_snapshot().await.expect("builds");
    sender.apply(writes(30_000..31_000, 20_000)).await.expect("applies");
    let mut receiver = machine(settings);
    receiver.apply(writes(0..500, 400)).await.expect("applies");
    let reader = receiver.reader();
    let mut received = receiver.begin_receiving_snapshot().await.expect("room");
    let later = sender.apply(writes(31_000..40_000, 20_000));
    let (sent_bytes, later) = tokio::join!(transfer(&mut taken.snapshot, &mut received), later);
    later.expect("applies");
    assert!(sent_bytes > 1_000_000, "{sent_bytes} bytes");
    receiver.install_snapshot(&taken.meta, received).await.expect("installs");
    assert!(content(&reader).expect("reads") == held, "as of another moment");
    assert_ne!(content(&sender.reader()).expect("reads"), held);
    let (applied, _) = receiver.applied_state().await.expect("reads");
    assert_eq!(applied.map(|applied| applied.index), Some(29_999));
    assert_eq!(reader.store().keyspaces(), ["default", "meta", "log", "state-1"]);
    // The receiver continues from there, and can pass the snapshot on.
    receiver.apply(writes(30_000..30_010, 20_000)).await.expect("applies");
    let mut current = receiver.get_current_snapshot().await.expect("reads").expect("installed");
    assert_eq!(current.meta, taken.meta);
    let mut passed_on = Vec::new();
    current.snapshot.read_to_end(&mut passed_on).await.expect("reads");
    assert_eq!(passed_on.len() as u64, sent_bytes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_is_of_one_moment_while_entries_are_applied() {
    of_one_moment(Settings::default()).await;
    let directory = tempfile::tempdir().expect("a directory");
    let snapshots = directory.path().join("snapshots");
    of_one_moment(Settings { snapshots: Some(snapshots.clone()), ..Settings::default() }).await;
    let left = std::fs::read_dir(snapshots).expect("made").count();
    assert_eq!(left, 0, "files without a name leave nothing");
}

/// A stream that is cut or changed is refused. The machine stays as it was, and accepts the next
/// stream.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_snapshot_leaves_the_machine_as_it_was() {
    let mut sender = machine(Settings::default());
    sender.apply(writes(0..3_000, 2_000)).await.expect("applies");
    let held = content(&sender.reader()).expect("reads");
    let mut taken = sender.get_snapshot_builder().await.build_snapshot().await.expect("builds");
    let mut bytes = Vec::new();
    taken.snapshot.read_to_end(&mut bytes).await.expect("reads");
    let mut receiver = machine(Settings::default());
    receiver.apply(writes(0..10, 10)).await.expect("applies");
    let before = content(&receiver.reader()).expect("reads");
    let middle = bytes.len() / 2;
    let changed = [&bytes[..middle], &[bytes[middle] ^ 1], &bytes[middle + 1..]].concat();
    for damaged in [&[][..], &bytes[..7], &bytes[..middle], &bytes[..bytes.len() - 1], &changed] {
        let refused = install(&mut receiver, &taken.meta, damaged).await;
        assert!(refused.is_err());
        assert_eq!(content(&receiver.reader()).expect("reads"), before);
    }
    install(&mut receiver, &taken.meta, &bytes).await.expect("it is whole");
    assert_eq!(content(&receiver.reader()).expect("reads"), held);
}

async fn install(
    machine: &mut Machine,
    meta: &SnapshotMeta<u64, ()>,
    bytes: &[u8],
) -> Result<(), openraft::StorageError<u64>> {
    let mut received = machine.begin_receiving_snapshot().await?;
    received.write_all(bytes).await.expect("room");
    machine.install_snapshot(meta, received).await
}

/// When openraft is shut down, it does not wait for the machine. `Reader::close` does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_starts_again_in_one_process() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = Arc::new(Config::default().validate().expect("valid"));
    for round in 0..20 {
        let options = Options::default().memory_budget_bytes(8 << 20);
        let store = Store::open(directory.path(), options).expect("nobody else has it");
        let opened = runstone_openraft::open(store, Registers, Settings::default());
        let (log, machine) = opened.expect("opens");
        let reader: Reader = machine.reader();
        let wire = Wire { world: World::new(1), from: 1 };
        let raft = Raft::new(1, Arc::clone(&config), wire, log, machine).await.expect("starts");
        if round == 0 {
            raft.initialize(BTreeMap::from([(1, ())])).await.expect("is new");
        }
        let wait = raft.wait(Some(std::time::Duration::from_secs(20)));
        wait.current_leader(1, "it is alone").await.expect("it leads");
        assert_eq!(content(&reader).expect("reads").len(), round);
        let write = Write { key: round as u64, value: 1, padding_bytes: 10 };
        raft.client_write(write.clone()).await.expect("writes");
        // The answer to the last write is not awaited.
        let waiting = raft.client_write_ff(write).await.expect("runs");
        raft.shutdown().await.expect("ends");
        drop((raft, waiting));
        reader.close().await.expect("closes");
    }
}
