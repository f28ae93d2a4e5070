//! The messages between nodes and clients: a length (u32, little-endian), then MessagePack.

use std::collections::BTreeMap;
use std::io;

use openraft::error::{InstallSnapshotError, RaftError};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    VoteRequest, VoteResponse,
};
use runstone_openraft::SnapshotData;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

openraft::declare_raft_types!(
    /// A map of texts.
    pub Types:
        D = Put,
        R = (),
        SnapshotData = SnapshotData,
);

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Put {
    pub key: String,
    pub value: String,
}

/// A request to a node.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    Append(AppendEntriesRequest<Types>),
    Vote(VoteRequest<u64>),
    Snapshot(InstallSnapshotRequest<Types>),
    Init(BTreeMap<u64, String>),
    Put(Put),
    Get {
        key: String,
        /// Answer with what this node has, whether it is recent or not.
        is_stale: bool,
    },
    State,
}

/// The answer of a node. The first three are for nodes.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    Append(Result<AppendEntriesResponse<u64>, RaftError<u64>>),
    Vote(Result<VoteResponse<u64>, RaftError<u64>>),
    Snapshot(Result<InstallSnapshotResponse<u64>, RaftError<u64, InstallSnapshotError>>),
    Done,
    Value(Option<String>),
    State(State),
    /// Nothing was done: another node may be the leader.
    NotLeader(Option<u64>),
    /// Nobody knows whether it was done.
    Failed(String),
}

/// What a node reports about itself, to be compared with other nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    pub last_applied: Option<u64>,
    pub last_log: Option<u64>,
    pub entries: u64,
    /// A hash of all entries.
    pub hash: u64,
    /// How often a snapshot was installed since the store was made.
    pub installed: u64,
}

/// Longest message. A part of a snapshot is far shorter.
const MOST_BYTES: u32 = 64 << 20;

pub async fn send<T: Serialize>(to: &mut TcpStream, message: &T) -> io::Result<()> {
    let body = rmp_serde::to_vec_named(message).map_err(io::Error::other)?;
    let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(&body);
    to.write_all(&bytes).await
}

pub async fn receive<T: DeserializeOwned>(from: &mut TcpStream) -> io::Result<T> {
    let length = from.read_u32_le().await?;
    if length > MOST_BYTES {
        return Err(io::Error::other(format!("a message of {length} bytes is too long")));
    }
    let mut body = Vec::new();
    if from.take(length.into()).read_to_end(&mut body).await? < length as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    rmp_serde::from_slice(&body).map_err(io::Error::other)
}

/// A connection that is made when it is needed, and again after a failure.
#[derive(Default)]
pub struct Line(Option<TcpStream>);

impl Line {
    /// Sends a request and waits for the answer. After a failure, or if the caller stops waiting,
    /// the connection is not used again: the next answer on it would belong to this request.
    pub async fn ask(&mut self, address: &str, request: &Request) -> io::Result<Answer> {
        let mut stream = match self.0.take() {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                stream
            }
        };
        send(&mut stream, request).await?;
        let answer = receive(&mut stream).await?;
        self.0 = Some(stream);
        Ok(answer)
    }
}
