//! A client: finds the leader, and distinguishes requests that were certainly not carried out from
//! those whose outcome is unknown.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::wire::{Answer, Line, Put, Request, State};

const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(50);
const ATTEMPTS: usize = 100;

/// Why there is no answer.
#[derive(Debug)]
pub enum Failure {
    /// A write may have been made, or may be made later.
    Unknown(String),
    /// Nothing was done.
    NotDone(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Unknown(why) => write!(f, "nobody knows whether it was done: {why}"),
            Failure::NotDone(why) => write!(f, "it was not done: {why}"),
        }
    }
}

pub struct Client {
    nodes: BTreeMap<u64, String>,
    lines: BTreeMap<u64, Line>,
    /// The last known leader.
    leader: u64,
    /// Whether gets read from any node. This is wrong, and shows that `check` finds the mistake.
    pub is_stale: bool,
}

impl Client {
    pub fn new(nodes: BTreeMap<u64, String>) -> Client {
        let lines = nodes.keys().map(|id| (*id, Line::default())).collect();
        Client { nodes, lines, leader: 1, is_stale: false }
    }

    /// Sends a request to one node.
    pub async fn ask(&mut self, id: u64, request: &Request) -> Result<Answer, String> {
        let (Some(address), Some(line)) = (self.nodes.get(&id), self.lines.get_mut(&id)) else {
            return Err(format!("there is no node {id}"));
        };
        let answer = timeout(PATIENCE, line.ask(address, request)).await;
        let answer = answer.map_err(|_| format!("node {id} does not answer"))?;
        answer.map_err(|error| format!("node {id}: {error}"))
    }

    /// Makes the nodes a cluster. Repeating it does no harm.
    pub async fn init(&mut self) -> Result<(), String> {
        match self.ask(1, &Request::Init(self.nodes.clone())).await? {
            Answer::Done => Ok(()),
            other => Err(format!("{other:?}")),
        }
    }

    /// Sends a request to the leader. If there is no answer, the request is sent again only if it
    /// changes nothing.
    async fn lead(&mut self, request: Request) -> Result<Answer, Failure> {
        let changes = matches!(request, Request::Put(_));
        let mut why = String::new();
        for _ in 0..ATTEMPTS {
            match self.ask(self.leader, &request).await {
                Ok(Answer::NotLeader(Some(leader))) if leader != self.leader => {
                    self.leader = leader;
                    continue;
                }
                Ok(Answer::NotLeader(_)) => why = "nobody leads".to_string(),
                Ok(Answer::Failed(failed)) if changes => return Err(Failure::Unknown(failed)),
                Ok(Answer::Failed(failed)) => why = failed,
                Ok(answer) => return Ok(answer),
                // Even a refused connection proves nothing: an earlier one may have sent the put.
                Err(failed) if changes => {
                    self.next();
                    return Err(Failure::Unknown(failed));
                }
                Err(failed) => why = failed,
            }
            self.next();
            sleep(PAUSE).await;
        }
        Err(Failure::NotDone(why))
    }

    fn next(&mut self) {
        self.leader = self.leader % self.nodes.len() as u64 + 1;
    }

    pub async fn put(&mut self, key: &str, value: &str) -> Result<(), Failure> {
        let put = Put { key: key.to_string(), value: value.to_string() };
        match self.lead(Request::Put(put)).await? {
            Answer::Done => Ok(()),
            other => Err(Failure::Unknown(format!("an answer to something else: {other:?}"))),
        }
    }

    pub async fn get(&mut self, key: &str) -> Result<Option<String>, Failure> {
        let is_stale = self.is_stale;
        if is_stale {
            self.next();
        }
        match self.lead(Request::Get { key: key.to_string(), is_stale }).await? {
            Answer::Value(value) => Ok(value),
            other => Err(Failure::NotDone(format!("an answer to something else: {other:?}"))),
        }
    }

    pub async fn state(&mut self, id: u64) -> Result<State, String> {
        match self.ask(id, &Request::State).await? {
            Answer::State(state) => Ok(state),
            other => Err(format!("{other:?}")),
        }
    }
}
