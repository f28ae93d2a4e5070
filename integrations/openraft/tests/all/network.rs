//! A network in memory that delays and loses messages, and remembers what nodes told each other.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use openraft::error::{InstallSnapshotError, RPCError, RaftError, RemoteError, Unreachable};
use openraft::network::RPCOption;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    VoteRequest, VoteResponse,
};
use openraft::{Raft, RaftNetwork, RaftNetworkFactory, Vote};
use runstone_random::Random;

use crate::node::Types;

/// The outcome of a message.
type Told<T, E = RaftError<u64>> = Result<T, RPCError<u64, (), E>>;

/// All nodes that have power, and what they told each other.
pub struct World {
    pub rafts: BTreeMap<u64, Raft<Types>>,
    /// The latest vote that each node sent to another. The node must never forget it.
    pub votes: BTreeMap<u64, Vote<u64>>,
    random: Random,
    /// One in this many messages is lost; 0 for none.
    pub lost_of: u64,
    /// How many snapshots arrived.
    pub snapshots: u64,
}

impl World {
    pub fn new(seed: u64) -> Arc<Mutex<World>> {
        Arc::new(Mutex::new(World {
            rafts: BTreeMap::new(),
            votes: BTreeMap::new(),
            random: Random::new(seed),
            lost_of: 40,
            snapshots: 0,
        }))
    }

    fn heard(&mut self, from: u64, vote: Vote<u64>) {
        let known = self.votes.entry(from).or_insert(vote);
        if vote > *known {
            *known = vote;
        }
    }
}

/// The network as one node sees it.
#[derive(Clone)]
pub struct Wire {
    pub world: Arc<Mutex<World>>,
    pub from: u64,
}

/// A connection to another node.
pub struct Link {
    wire: Wire,
    to: u64,
}

impl RaftNetworkFactory<Types> for Wire {
    type Network = Link;

    async fn new_client(&mut self, to: u64, _: &()) -> Link {
        Link { wire: self.clone(), to }
    }
}

impl Link {
    fn world(&self) -> MutexGuard<'_, World> {
        self.wire.world.lock().expect("no panic")
    }

    /// Carries a message that shows a vote to the other node, unless it is lost.
    async fn reach(&self, vote: Vote<u64>) -> Result<Raft<Types>, Unreachable> {
        let (delay_ms, is_lost) = {
            let mut world = self.world();
            world.heard(self.wire.from, vote);
            let delay_ms = if world.random.one_in(2) { 0 } else { world.random.below(3) };
            let lost_of = world.lost_of;
            (delay_ms, lost_of > 0 && world.random.one_in(lost_of))
        };
        if delay_ms > 0 {
            tokio::time::sleep(Duration::from_millis(delay_ms)).await;
        }
        let raft = self.world().rafts.get(&self.to).cloned().filter(|_| !is_lost);
        raft.ok_or_else(|| Unreachable::new(&io::Error::other("no answer")))
    }

    fn answered<T, E: std::error::Error>(&self, answer: Result<T, E>) -> Told<T, E> {
        answer.map_err(|error| RemoteError::new(self.to, error).into())
    }
}

impl RaftNetwork<Types> for Link {
    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types>,
        _: RPCOption,
    ) -> Told<AppendEntriesResponse<u64>> {
        let raft = self.reach(request.vote).await?;
        let answer = raft.append_entries(request).await;
        if let Ok(AppendEntriesResponse::HigherVote(vote)) = &answer {
            self.world().heard(self.to, *vote);
        }
        self.answered(answer)
    }

    async fn install_snapshot(
        &mut self,
        request: InstallSnapshotRequest<Types>,
        _: RPCOption,
    ) -> Told<InstallSnapshotResponse<u64>, RaftError<u64, InstallSnapshotError>> {
        let raft = self.reach(request.vote).await?;
        let is_last = request.done;
        let answer = raft.install_snapshot(request).await;
        if let Ok(answer) = &answer {
            let mut world = self.world();
            world.heard(self.to, answer.vote);
            world.snapshots += u64::from(is_last);
        }
        self.answered(answer)
    }

    async fn vote(&mut self, request: VoteRequest<u64>, _: RPCOption) -> Told<VoteResponse<u64>> {
        let raft = self.reach(request.vote).await?;
        let answer = raft.vote(request).await;
        if let Ok(answer) = &answer {
            self.world().heard(self.to, answer.vote);
        }
        self.answered(answer)
    }
}
