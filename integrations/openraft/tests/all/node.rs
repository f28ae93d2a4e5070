//! The replicated machine of the tests, and a store on a disk that fails, whose jobs run in virtual
//! time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use runstone::storage::Storage;
use runstone::{Background, KeyspaceOptions, Options, Store};
use runstone_openraft::{
    Bug, LogStore, Machine, Reader, Settings, SnapshotData, State, StateMachine,
};
use serde::{Deserialize, Serialize};

openraft::declare_raft_types!(
    /// Registers that are numbers.
    pub Types:
        D = Write,
        R = Option<u64>,
        NodeId = u64,
        Node = (),
        SnapshotData = SnapshotData,
);

/// A request: stores a number and some more bytes under a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    pub key: u64,
    pub value: u64,
    pub padding_bytes: usize,
}

/// The machine: each request replaces a number, and counts how often its key was written.
pub struct Registers;

impl Machine<Types> for Registers {
    fn apply(&self, state: &mut State<'_>, write: Write) -> runstone::Result<Option<u64>> {
        let old = state.get(write.key.to_be_bytes())?;
        let old = old.map(|old| Register::of(&old));
        let new = Register { value: write.value, count: old.map_or(0, |old| old.count) + 1 };
        state.put(write.key.to_be_bytes(), new.bytes(write.padding_bytes))?;
        Ok(old.map(|old| old.value))
    }

    fn nothing(&self) -> Option<u64> {
        None
    }
}

/// A value of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register {
    pub value: u64,
    pub count: u64,
}

impl Register {
    fn of(bytes: &[u8]) -> Register {
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        Register { value: number(0), count: number(8) }
    }

    fn bytes(&self, padding_bytes: usize) -> Vec<u8> {
        let mut bytes = [self.value.to_le_bytes(), self.count.to_le_bytes()].concat();
        bytes.resize(16 + padding_bytes, 7);
        bytes
    }
}

/// The machine's content.
pub type Content = BTreeMap<u64, Register>;

/// Everything that a machine contains.
pub fn content(reader: &Reader) -> runstone::Result<Content> {
    reader.with(|keyspace| {
        let entry = |item: runstone::Result<(Vec<u8>, runstone::Value)>| {
            let (key, value) = item?;
            let key = u64::from_be_bytes(key[..].try_into().expect("a number"));
            Ok((key, Register::of(&value)))
        };
        keyspace.iter()?.map(entry).collect()
    })
}

/// Both halves of a node, and the task that runs the jobs of its store.
pub struct Parts {
    pub log: LogStore<Types>,
    pub machine: StateMachine<Types, Registers>,
    pub reader: Reader,
    pub jobs: Jobs,
}

/// The task that runs the jobs of a store, until this value is dropped.
pub struct Jobs(tokio::task::JoinHandle<()>);

impl Drop for Jobs {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Opens a node. Its jobs, and so its syncs, run when nothing else can continue, a millisecond of
/// virtual time later.
pub fn open(
    storage: Arc<dyn Storage>,
    seed: u64,
    bug: Option<Bug>,
) -> Result<Parts, Box<dyn std::error::Error>> {
    let options = Options::default()
        .background(Background::Manual)
        .wal_segment_bytes(64 << 10)
        .memory_budget_bytes(8 << 20)
        .seed(seed)
        .keyspace(KeyspaceOptions::default().write_buffer_bytes(64 << 10));
    let store = Store::open_on(storage, options)?;
    let settings = Settings { bug, ..Settings::default() };
    let (log, machine) = runstone_openraft::open(store, Registers, settings)?;
    let reader = machine.reader();
    let worked = reader.clone();
    let jobs = tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(1)).await;
            while let Ok(true) = worked.store().run_one_job() {}
        }
    });
    Ok(Parts { log, machine, reader, jobs: Jobs(jobs) })
}

/// Runs a test in virtual time, in one thread: sleeps end at once when nothing else can continue.
pub fn in_virtual_time<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(test)
}

/// A number from the environment.
pub fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}
