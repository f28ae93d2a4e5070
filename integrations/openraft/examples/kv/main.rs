//! Three nodes with a replicated map, as processes that speak TCP on loopback.
//!
//! ```text
//! kv node --id 1 --nodes 127.0.0.1:7101,127.0.0.1:7102,127.0.0.1:7103 --data DIR
//! kv init --nodes ...          once: makes the three nodes a cluster
//! kv put  --nodes ... KEY VALUE
//! kv get  --nodes ... KEY
//! kv check [--seconds 20] [--seed 1] [--stale 1]
//! ```
//!
//! `check` starts three nodes, lets clients write and read, kills nodes with `kill -9` meanwhile
//! and starts them again, and then judges every answer: each key must have behaved as one register.
//! With `--stale 1` gets read from any node, and `check` must notice it.

mod check;
mod client;
mod history;
mod node;
mod wire;

use std::collections::BTreeMap;
use std::process::ExitCode;

use client::Client;

const USAGE: &str = "usage: kv node|init|put|get|check ..., see the head of examples/kv/main.rs";

/// The command line: words, and values of `--name value`.
pub struct Arguments {
    words: Vec<String>,
    values: BTreeMap<String, String>,
}

impl Arguments {
    fn read() -> Result<Arguments, String> {
        let (mut words, mut values) = (Vec::new(), BTreeMap::new());
        let mut all = std::env::args().skip(1);
        while let Some(argument) = all.next() {
            match argument.strip_prefix("--") {
                Some(name) => {
                    let value = all.next().ok_or(format!("--{name} needs a value; {USAGE}"))?;
                    values.insert(name.to_string(), value);
                }
                None => words.push(argument),
            }
        }
        Ok(Arguments { words, values })
    }

    /// A required value.
    pub fn value(&self, name: &str) -> Result<&str, String> {
        self.values.get(name).map(String::as_str).ok_or(format!("--{name} is missing; {USAGE}"))
    }

    /// An optional number among the arguments; `usual` if it is absent.
    pub fn number(&self, name: &str, usual: u64) -> Result<u64, String> {
        let text = self.values.get(name);
        text.map_or(Ok(usual), |text| {
            text.parse().map_err(|_| format!("--{name} {text} is not a number"))
        })
    }

    /// The addresses of the nodes; the first is that of node 1.
    pub fn nodes(&self) -> Result<BTreeMap<u64, String>, String> {
        Ok((1..).zip(self.value("nodes")?.split(',').map(str::to_string)).collect())
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), String> {
    let arguments = Arguments::read()?;
    let words: Vec<&str> = arguments.words.iter().map(String::as_str).collect();
    match words[..] {
        ["node"] => node::run(&arguments).await,
        ["check"] => check::run(&arguments).await,
        ["init"] => Client::new(arguments.nodes()?).init().await,
        ["put", key, value] => {
            let outcome = Client::new(arguments.nodes()?).put(key, value).await;
            outcome.map_err(|failure| failure.to_string())
        }
        ["get", key] => {
            let value = Client::new(arguments.nodes()?).get(key).await;
            let value = value.map_err(|failure| failure.to_string())?;
            println!("{}", value.ok_or("no such key")?);
            Ok(())
        }
        _ => Err(USAGE.to_string()),
    }
}
