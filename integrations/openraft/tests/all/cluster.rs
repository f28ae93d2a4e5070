//! Three nodes in one process, over a network in memory, on disks that lose power at any operation:
//! one of them or all, in the middle of a run or of a start. A node starts again from the remains
//! of its disk and joins the others. Then no acknowledged write is lost or applied twice, all state
//! machines are equal, and no node has forgotten a vote.
//!
//! Time is virtual. Seeds decide what the disks, the network and the clients do; openraft itself
//! chooses the times of elections, so two runs of a seed differ.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use openraft::storage::RaftLogStorage;
use openraft::{Config, Raft, SnapshotPolicy, Vote};
use runstone_fault_storage::{Fault, FaultKind, SimStorage};
use runstone_openraft::{Bug, Reader};
use runstone_random::Random;
use tokio::time::{sleep, timeout};

use crate::network::{Wire, World};
use crate::node::{Content, Jobs, Types, Write, content, in_virtual_time, number, open};

const NODES: [u64; 3] = [1, 2, 3];
const ROUNDS: u64 = 4;

/// Keys from here on are written again and again; each key below is written once.
const SHARED_KEYS: u64 = 1 << 40;

struct Node {
    raft: Raft<Types>,
    reader: Reader,
    _jobs: Jobs,
}

struct Cluster {
    seed: u64,
    bug: Option<Bug>,
    random: Random,
    world: Arc<Mutex<World>>,
    disks: BTreeMap<u64, SimStorage>,
    nodes: BTreeMap<u64, Node>,
    /// The keys whose write was acknowledged.
    acknowledged: BTreeSet<u64>,
    last_value: u64,
}

fn config() -> Arc<Config> {
    let config = Config {
        heartbeat_interval: 50,
        election_timeout_min: 150,
        election_timeout_max: 300,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(15),
        max_in_snapshot_log_to_keep: 3,
        purge_batch_size: 1,
        replication_lag_threshold: 10,
        snapshot_max_chunk_size: 700,
        ..Config::default()
    };
    Arc::new(config.validate().expect("a valid configuration"))
}

impl Cluster {
    fn new(seed: u64, bug: Option<Bug>) -> Cluster {
        let disk = |id: u64| (id, SimStorage::new(seed * 8 + id));
        Cluster {
            seed,
            bug,
            random: Random::new(seed),
            world: World::new(seed),
            disks: NODES.map(disk).into(),
            nodes: BTreeMap::new(),
            acknowledged: BTreeSet::new(),
            last_value: 0,
        }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().expect("no panic")
    }

    /// Starts a node on its disk. It must still know the vote that it sent to other nodes.
    async fn start(&mut self, id: u64) -> Result<(), Box<dyn Error>> {
        let disk = Arc::new(self.disks[&id].clone());
        let mut parts = open(disk, self.seed * 8 + id, self.bug)?;
        let vote = parts.log.read_vote().await?.unwrap_or_default();
        let told = self.world().votes.get(&id).copied().unwrap_or(Vote::default());
        assert!(vote >= told, "node {id} forgot its vote {told}: {vote}");
        let wire = Wire { world: Arc::clone(&self.world), from: id };
        let raft = Raft::new(id, config(), wire, parts.log, parts.machine).await?;
        self.world().rafts.insert(id, raft.clone());
        self.nodes.insert(id, Node { raft, reader: parts.reader, _jobs: parts.jobs });
        Ok(())
    }

    /// Cuts the power of a node. Its disk keeps what the seed lets survive.
    async fn cut(&mut self, id: u64) {
        self.world().rafts.remove(&id);
        let left = self.disks[&id].power_cut(self.random.draw()).0;
        self.disks.insert(id, left);
        if let Some(node) = self.nodes.remove(&id) {
            // An error means that the node has already stopped by itself.
            let _ = node.raft.shutdown().await;
        }
    }

    /// Starts a node, which may lose power several times before it is up.
    async fn restart(&mut self, id: u64) {
        while !self.nodes.contains_key(&id) {
            if self.random.one_in(3) {
                let at_op = self.random.below(40);
                self.arm(id, at_op);
            }
            let started = self.start(id).await;
            let was_hit = !self.disks[&id].fired().is_empty();
            if was_hit {
                self.cut(id).await;
            } else if let Err(error) = started {
                panic!("seed {}: node {id} does not start: {error}", self.seed);
            }
            self.disks[&id].clear_faults();
        }
    }

    fn arm(&self, id: u64, more_ops: u64) {
        let disk = &self.disks[&id];
        let at_op = disk.ops() + more_ops;
        disk.inject(Fault { at_op, kind: FaultKind::Crash, sticky: true, category: None });
    }

    /// Writes a value that nobody wrote before. Returns whether the write was acknowledged.
    async fn write(&mut self) -> bool {
        self.last_value += 1;
        let value = self.last_value;
        let key = if self.random.one_in(4) { SHARED_KEYS + value % 5 } else { value };
        let padding_bytes = self.random.below(200) as usize;
        let known =
            self.nodes.values().find_map(|node| node.raft.metrics().borrow().current_leader);
        let raft = known.and_then(|id| self.nodes.get(&id)).map(|node| node.raft.clone());
        if let Some(raft) = raft {
            let written = raft.client_write(Write { key, value, padding_bytes });
            if let Ok(Ok(_)) = timeout(Duration::from_millis(400), written).await {
                self.acknowledged.insert(key);
                return true;
            }
        }
        sleep(Duration::from_millis(30)).await;
        false
    }

    /// Makes some writes, and then cuts the power: of one node at any operation of its disk, or of
    /// all nodes at once, right after an acknowledgement.
    async fn round(&mut self) {
        let are_all_hit = self.random.one_in(3);
        let victim = 1 + self.random.below(3);
        if !are_all_hit {
            let more_ops = self.random.below(120);
            self.arm(victim, more_ops);
        }
        for _ in 0..10 + self.random.below(30) {
            self.write().await;
            if !self.disks[&victim].fired().is_empty() {
                break;
            }
        }
        if are_all_hit {
            let mut attempts = 0;
            while !self.write().await && attempts < 20 {
                attempts += 1;
            }
            for id in NODES {
                self.cut(id).await;
            }
            for id in NODES {
                self.restart(id).await;
            }
        } else {
            self.cut(victim).await;
            for _ in 0..self.random.below(40) {
                self.write().await;
            }
            self.restart(victim).await;
        }
    }

    /// Waits until every node has applied all entries that are in every log.
    async fn settle(&mut self) {
        self.world().lost_of = 0;
        let mut is_written = false;
        for _ in 0..2_000 {
            is_written = is_written || self.write().await;
            let all: Vec<_> =
                self.nodes.values().map(|node| node.raft.metrics().borrow().clone()).collect();
            let last = all.iter().map(|metrics| metrics.last_log_index).max().flatten();
            let is_there =
                |applied: Option<openraft::LogId<u64>>| applied.map(|at| at.index) == last;
            if is_written && all.iter().all(|metrics| is_there(metrics.last_applied)) {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
        let all: Vec<_> =
            self.nodes.values().map(|node| node.raft.metrics().borrow().clone()).collect();
        panic!("seed {}: the nodes do not agree in time: {all:#?}", self.seed);
    }

    fn judge(&self) {
        let contents: Vec<Content> =
            self.nodes.values().map(|node| content(&node.reader).expect("reads")).collect();
        let seed = self.seed;
        assert!(contents.iter().all(|one| *one == contents[0]), "seed {seed}: machines differ");
        for key in &self.acknowledged {
            let found = contents[0].get(key);
            let found = found.unwrap_or_else(|| panic!("seed {seed}: write {key} is lost"));
            let is_once = *key >= SHARED_KEYS || (found.value == *key && found.count == 1);
            assert!(is_once, "seed {seed}: {key}: {found:?}");
        }
    }
}

/// Makes one run. Returns how many keys have an acknowledged write, and how many snapshots were
/// installed.
async fn run(seed: u64, bug: Option<Bug>) -> (usize, u64) {
    let mut cluster = Cluster::new(seed, bug);
    for id in NODES {
        cluster.start(id).await.expect("no faults");
    }
    let first = cluster.nodes[&1].raft.clone();
    first.initialize(BTreeMap::from(NODES.map(|id| (id, ())))).await.expect("is new");
    for _ in 0..ROUNDS {
        cluster.round().await;
    }
    cluster.settle().await;
    cluster.judge();
    let snapshots = cluster.world().snapshots;
    (cluster.acknowledged.len(), snapshots)
}

#[test]
fn power_loss_of_any_node_loses_nothing_that_was_acknowledged() {
    let first = number("RUNSTONE_SEED", 1);
    let (mut written, mut installed) = (0, 0);
    for seed in first..first + number("RUNSTONE_SEEDS", 40) {
        let (writes, snapshots) = in_virtual_time(run(seed, None));
        written += writes;
        installed += snapshots;
    }
    println!("{written} writes, {installed} snapshots");
    assert!(written > 100 && installed > 0, "{written} writes, {installed} snapshots");
}

/// Both mistakes that break Raft are found.
#[test]
fn nodes_that_promise_too_early_are_found() {
    for bug in [Bug::VoteUnsynced, Bug::FlushedEarly] {
        let finds =
            |seed| std::panic::catch_unwind(|| in_virtual_time(run(seed, Some(bug)))).is_err();
        assert!((1..60).any(finds), "{bug:?} is not found");
    }
}
