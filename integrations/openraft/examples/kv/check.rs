//! Kills three nodes under load, and judges what their clients saw.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

use runstone_random::Random;
use tokio::process::{Child, Command};
use tokio::time::sleep;

use crate::Arguments;
use crate::client::{Client, Failure};
use crate::history::{Call, judge};
use crate::wire::State;

const CLIENTS: u64 = 6;
const KEYS: u64 = 4;

/// What clients did, by key.
type Histories = BTreeMap<String, Vec<Call>>;

pub async fn run(arguments: &Arguments) -> Result<(), String> {
    let seconds = arguments.number("seconds", 20)?;
    let seed = arguments.number("seed", 1)?;
    let is_stale = arguments.number("stale", 0)? == 1;
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let mut cluster = Cluster::start(directory.path())?;
    cluster.settle(Duration::from_secs(20)).await?;

    let clock = Arc::new(AtomicU64::new(1));
    let is_over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let mut client = Client::new(cluster.nodes.clone());
            client.is_stale = is_stale;
            let random = Random::new(seed * CLIENTS + number);
            tokio::spawn(work(client, number, random, Arc::clone(&clock), Arc::clone(&is_over)))
        })
        .collect();
    let kills = cluster.torment(Duration::from_secs(seconds), Random::new(seed)).await?;
    is_over.store(true, Release);
    let mut histories = Histories::new();
    for client in clients {
        for (key, calls) in client.await.map_err(|error| error.to_string())? {
            histories.entry(key).or_default().extend(calls);
        }
    }
    let state = cluster.settle(Duration::from_secs(60)).await?;
    let all = || histories.values().flatten();
    for (key, calls) in &histories {
        judge(calls).map_err(|what| format!("seed {seed}, {key} is not a register: {what}"))?;
    }
    println!(
        "{kills} kills; {} puts and {} gets were answered, {} puts were not; each key behaves as \
         a register. The nodes are equal: {} entries up to {:?}, {} snapshots installed",
        all().filter(|call| call.is_put && call.returned.is_some()).count(),
        all().filter(|call| !call.is_put).count(),
        all().filter(|call| call.returned.is_none()).count(),
        state.entries,
        state.last_applied,
        state.installed,
    );
    Ok(())
}

/// Writes and reads until the run is over.
async fn work(
    mut client: Client,
    number: u64,
    mut random: Random,
    clock: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
) -> Histories {
    let mut histories = Histories::new();
    let mut written = 0;
    while !is_over.load(Acquire) {
        let key = format!("key-{}", random.below(KEYS));
        let called = clock.fetch_add(1, SeqCst);
        let call = if random.one_in(2) {
            written += 1;
            let value = format!("{number}-{written}");
            let outcome = client.put(&key, &value).await;
            let returned = match outcome {
                Ok(()) => Some(clock.fetch_add(1, SeqCst)),
                Err(Failure::Unknown(_)) => None,
                Err(Failure::NotDone(_)) => continue,
            };
            Call { value: Some(value), is_put: true, called, returned }
        } else {
            // A get without an answer proves nothing.
            let Ok(value) = client.get(&key).await else { continue };
            Call { value, is_put: false, called, returned: Some(clock.fetch_add(1, SeqCst)) }
        };
        histories.entry(key).or_default().push(call);
    }
    histories
}

/// The processes of the nodes.
struct Cluster<'a> {
    directory: &'a Path,
    nodes: BTreeMap<u64, String>,
    children: BTreeMap<u64, Child>,
}

impl Cluster<'_> {
    fn start(directory: &Path) -> Result<Cluster<'_>, String> {
        // Finds free ports. All stay reserved until the last is found, so they differ.
        let free: Result<Vec<TcpListener>, _> =
            (0..3).map(|_| TcpListener::bind("127.0.0.1:0")).collect();
        let address = |free: &TcpListener| Ok(free.local_addr()?.to_string());
        let addresses: std::io::Result<Vec<String>> =
            free.and_then(|free| free.iter().map(address).collect());
        let addresses = addresses.map_err(|error| format!("no free port: {error}"))?;
        let nodes = (1..).zip(addresses).collect();
        let mut cluster = Cluster { directory, nodes, children: BTreeMap::new() };
        for id in 1..=3 {
            cluster.launch(id)?;
        }
        Ok(cluster)
    }

    fn launch(&mut self, id: u64) -> Result<(), String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let addresses: Vec<&str> = self.nodes.values().map(String::as_str).collect();
        let child = Command::new(program)
            .args(["node", "--id", &id.to_string(), "--nodes", &addresses.join(",")])
            .arg("--data")
            .arg(self.directory.join(id.to_string()))
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn();
        self.children.insert(id, child.map_err(|error| format!("node {id}: {error}"))?);
        Ok(())
    }

    /// Kills a node with signal 9, and waits until the process is gone.
    async fn kill(&mut self, id: u64) -> Result<(), String> {
        let Some(mut child) = self.children.remove(&id) else { return Ok(()) };
        if let Ok(Some(status)) = child.try_wait() {
            return Err(format!("node {id} ended by itself: {status}"));
        }
        child.kill().await.map_err(|error| format!("node {id}: {error}"))
    }

    /// Kills one node or all, waits, starts them again, and so on. Returns how many were killed.
    async fn torment(&mut self, time: Duration, mut random: Random) -> Result<u64, String> {
        let (begun, mut kills) = (Instant::now(), 0);
        while begun.elapsed() < time {
            sleep(Duration::from_millis(200 + random.below(1_300))).await;
            let all: Vec<u64> = self.nodes.keys().copied().collect();
            let victims = match random.below(4) {
                0 => all,
                _ => vec![all[random.below(all.len() as u64) as usize]],
            };
            for id in &victims {
                self.kill(*id).await?;
                kills += 1;
            }
            sleep(Duration::from_millis(random.below(1_500))).await;
            for id in victims {
                self.launch(id)?;
            }
        }
        Ok(kills)
    }

    /// Waits until all nodes have applied the same entries, and compares their contents.
    async fn settle(&mut self, time: Duration) -> Result<State, String> {
        let begun = Instant::now();
        let mut client = Client::new(self.nodes.clone());
        let mut why = String::new();
        while begun.elapsed() < time {
            sleep(Duration::from_millis(200)).await;
            if let Err(error) = client.init().await {
                why = error;
                continue;
            }
            // This put also commits the entries that are in the logs.
            if let Err(failure) = client.put("last", "one").await {
                why = failure.to_string();
                continue;
            }
            sleep(Duration::from_millis(300)).await;
            let mut states = Vec::new();
            for id in self.nodes.keys() {
                states.push(client.state(*id).await);
            }
            let states: Result<Vec<State>, String> = states.into_iter().collect();
            match states {
                Ok(states)
                    if states.iter().all(|state| state.last_applied == state.last_log)
                        && states
                            .windows(2)
                            .all(|pair| pair[0].last_applied == pair[1].last_applied) =>
                {
                    let is_equal = |pair: &[State]| pair[0].hash == pair[1].hash;
                    if !states.windows(2).all(is_equal) {
                        return Err(format!("the nodes differ: {states:?}"));
                    }
                    let installed = states.iter().map(|state| state.installed).sum();
                    let state = states.into_iter().next().ok_or("no nodes")?;
                    return Ok(State { installed, ..state });
                }
                Ok(states) => why = format!("{states:?}"),
                Err(error) => why = error,
            }
        }
        Err(format!("the nodes do not agree in time: {why}"))
    }
}
