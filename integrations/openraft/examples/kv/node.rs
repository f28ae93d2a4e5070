//! One node: a store, a Raft, and a listener.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use openraft::error::{
    CheckIsLeaderError, InitializeError, InstallSnapshotError, NetworkError, RPCError, RaftError,
    RemoteError, Unreachable,
};
use openraft::network::RPCOption;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    VoteRequest, VoteResponse,
};
use openraft::{BasicNode, Config, Raft, RaftNetwork, RaftNetworkFactory, SnapshotPolicy};
use runstone::Store;
use runstone_openraft::{Machine, Reader, Settings, open};
use tokio::net::{TcpListener, TcpStream};

use crate::Arguments;
use crate::wire::{Answer, Line, Put, Request, State, Types, receive, send};

/// The replicated map.
struct Map;

impl Machine<Types> for Map {
    fn apply(
        &self,
        state: &mut runstone_openraft::State<'_>,
        Put { key, value }: Put,
    ) -> runstone::Result<()> {
        state.put(key, value)
    }

    fn nothing(&self) {}
}

struct Network;

/// The way to another node.
struct Peer {
    id: u64,
    address: String,
    line: Line,
}

impl RaftNetworkFactory<Types> for Network {
    type Network = Peer;

    async fn new_client(&mut self, id: u64, node: &BasicNode) -> Peer {
        Peer { id, address: node.addr.clone(), line: Line::default() }
    }
}

impl Peer {
    /// Sends a request, and unpacks the answer.
    async fn ask<T, E: std::error::Error>(
        &mut self,
        request: Request,
        answer: impl FnOnce(Answer) -> Option<Result<T, E>>,
    ) -> Result<T, RPCError<u64, BasicNode, E>> {
        let found = self.line.ask(&self.address, &request).await;
        let found = found.map_err(|error| RPCError::Unreachable(Unreachable::new(&error)))?;
        let unexpected = || NetworkError::new(&io::Error::other("an answer to something else"));
        let outcome = answer(found).ok_or_else(unexpected)?;
        outcome.map_err(|error| RPCError::RemoteError(RemoteError::new(self.id, error)))
    }
}

impl RaftNetwork<Types> for Peer {
    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, RPCError<u64, BasicNode, RaftError<u64>>> {
        let answer = |answer| if let Answer::Append(found) = answer { Some(found) } else { None };
        self.ask(Request::Append(request), answer).await
    }

    async fn install_snapshot(
        &mut self,
        request: InstallSnapshotRequest<Types>,
        _: RPCOption,
    ) -> Result<
        InstallSnapshotResponse<u64>,
        RPCError<u64, BasicNode, RaftError<u64, InstallSnapshotError>>,
    > {
        let answer = |answer| if let Answer::Snapshot(found) = answer { Some(found) } else { None };
        self.ask(Request::Snapshot(request), answer).await
    }

    async fn vote(
        &mut self,
        request: VoteRequest<u64>,
        _: RPCOption,
    ) -> Result<VoteResponse<u64>, RPCError<u64, BasicNode, RaftError<u64>>> {
        let answer = |answer| if let Answer::Vote(found) = answer { Some(found) } else { None };
        self.ask(Request::Vote(request), answer).await
    }
}

/// Runs until it is killed.
pub async fn run(arguments: &Arguments) -> Result<(), String> {
    let id = arguments.number("id", 1)?;
    let nodes = arguments.nodes()?;
    let address = nodes.get(&id).ok_or(format!("--nodes has no node {id}"))?;
    let data = std::path::Path::new(arguments.value("data")?);
    std::fs::create_dir_all(data).map_err(|error| format!("{}: {error}", data.display()))?;
    let node = start(id, data).await.map_err(|error| format!("node {id}: {error}"))?;
    let listener =
        TcpListener::bind(address).await.map_err(|error| format!("{address}: {error}"))?;
    println!("node {id} listens on {address}");
    let node = Arc::new(node);
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(Arc::clone(&node), stream));
        }
    }
}

struct Node {
    id: u64,
    raft: Raft<Types>,
    reader: Reader,
}

async fn start(id: u64, data: &std::path::Path) -> Result<Node, Box<dyn std::error::Error>> {
    let config = Config {
        heartbeat_interval: 100,
        election_timeout_min: 300,
        election_timeout_max: 600,
        // Snapshots are taken often and the log is short, so that a node that was away needs a
        // snapshot.
        snapshot_policy: SnapshotPolicy::LogsSinceLast(300),
        max_in_snapshot_log_to_keep: 50,
        replication_lag_threshold: 100,
        ..Config::default()
    };
    let store = Store::builder(data.join("store")).memory_budget(32 << 20).open()?;
    let settings = Settings { snapshots: Some(data.join("snapshots")), ..Settings::default() };
    let (log, machine) = open(store, Map, settings)?;
    let reader = machine.reader();
    let raft = Raft::new(id, Arc::new(config.validate()?), Network, log, machine).await?;
    Ok(Node { id, raft, reader })
}

/// Answers the requests of one connection, one by one.
async fn serve(node: Arc<Node>, mut stream: TcpStream) {
    // Without this option, an answer waits in the buffer for more data.
    let _ = stream.set_nodelay(true);
    while let Ok(request) = receive(&mut stream).await {
        let answer = node.answer(request).await;
        if send(&mut stream, &answer).await.is_err() {
            return;
        }
    }
}

impl Node {
    async fn answer(&self, request: Request) -> Answer {
        match request {
            Request::Append(request) => Answer::Append(self.raft.append_entries(request).await),
            Request::Vote(request) => Answer::Vote(self.raft.vote(request).await),
            Request::Snapshot(request) => {
                Answer::Snapshot(self.raft.install_snapshot(request).await)
            }
            Request::Init(nodes) => self.init(nodes).await,
            Request::Put(put) => self.put(put).await,
            Request::Get { key, is_stale } => self.get(key, is_stale).await,
            Request::State => self.state().await,
        }
    }

    async fn init(&self, nodes: BTreeMap<u64, String>) -> Answer {
        let nodes = nodes.into_iter().map(|(id, address)| (id, BasicNode::new(address)));
        match self.raft.initialize(nodes.collect::<BTreeMap<_, _>>()).await {
            Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => Answer::Done,
            Err(error) => Answer::Failed(error.to_string()),
        }
    }

    /// Passes the put to openraft only if this node leads. The error that openraft returns on a
    /// node that does not lead also occurs when a node stops leading while the entry is in its log,
    /// and the next leader may commit the entry.
    async fn put(&self, put: Put) -> Answer {
        let leader = self.raft.metrics().borrow().current_leader;
        if leader != Some(self.id) {
            return Answer::NotLeader(leader);
        }
        match self.raft.client_write(put).await {
            Ok(_) => Answer::Done,
            Err(error) => Answer::Failed(error.to_string()),
        }
    }

    /// Reads the machine once it is certain that this node leads and has applied all acknowledged
    /// entries.
    async fn get(&self, key: String, is_stale: bool) -> Answer {
        let is_recent = if is_stale { Ok(None) } else { self.raft.ensure_linearizable().await };
        match is_recent {
            Ok(_) => {}
            Err(RaftError::APIError(CheckIsLeaderError::ForwardToLeader(forward))) => {
                return Answer::NotLeader(forward.leader_id);
            }
            Err(error) => return Answer::Failed(error.to_string()),
        }
        let reader = self.reader.clone();
        let found = tokio::task::spawn_blocking(move || reader.get(key)).await;
        match found {
            Ok(Ok(value)) => {
                Answer::Value(value.map(|value| String::from_utf8_lossy(&value).into_owned()))
            }
            Ok(Err(error)) => Answer::Failed(error.to_string()),
            Err(error) => Answer::Failed(error.to_string()),
        }
    }

    async fn state(&self) -> Answer {
        let metrics = self.raft.metrics().borrow().clone();
        let reader = self.reader.clone();
        let content = tokio::task::spawn_blocking(move || {
            reader.with(|keyspace| {
                let (mut entries, mut hash) = (0, 0xcbf2_9ce4_8422_2325_u64);
                for item in keyspace.iter()? {
                    let (key, value) = item?;
                    entries += 1;
                    for byte in [&key[..], &[0], &value[..], &[0]].concat() {
                        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
                    }
                }
                let name = keyspace.name().trim_start_matches("state-");
                Ok((entries, hash, name.parse().unwrap_or(0)))
            })
        });
        match content.await {
            Ok(Ok((entries, hash, installed))) => Answer::State(State {
                last_applied: metrics.last_applied.map(|last| last.index),
                last_log: metrics.last_log_index,
                entries,
                hash,
                installed,
            }),
            Ok(Err(error)) => Answer::Failed(error.to_string()),
            Err(error) => Answer::Failed(error.to_string()),
        }
    }
}
