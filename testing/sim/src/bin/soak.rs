//! Random work under `kill -9` for a given time: `runstone_sim::soak` on the command line.
//!
//! ```text
//! cargo run --release -p runstone-sim --bin soak -- --minutes 30 --placement hash-grouped
//! ```
//!
//! Ends with exit code 1 if a promise was broken, and then leaves the store behind.

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use runstone_policy::registry::find;
use runstone_sim::soak::{PLACEMENTS, Soak, run, run_child};

const USAGE: &str = "soak [--minutes N | --seconds N] [--seed N] [--keys N] [--directory PATH] \
    [--placement hash-grouped | written-back | vlog | inline | changing] \
    [--policy NAME | changing] [--keyspaces N] [--large-bytes N]";

struct Arguments {
    soak: Soak,
    time: Duration,
    /// Given to a child: which opening of the store it is.
    opening: Option<u64>,
}

fn main() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(what) => {
            eprintln!("{what}\nusage: {USAGE}");
            return ExitCode::from(2);
        }
    };
    let Arguments { soak, time, opening } = arguments;
    if let Some(opening) = opening {
        eprintln!("{}", run_child(&soak, opening));
        return ExitCode::from(3);
    }
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => {
            eprintln!("cannot find this program: {error}");
            return ExitCode::FAILURE;
        }
    };
    let command = |opening: u64| {
        let mut command = Command::new(&program);
        command.arg("--child").arg(opening.to_string()).args(std::env::args_os().skip(1));
        command.arg("--directory").arg(&soak.directory);
        command
    };
    match run(&soak, time, command, |text| println!("{text}")) {
        Ok(totals) => {
            println!("{totals}");
            // The files of a sound store are of no use.
            let _ = std::fs::remove_dir_all(&soak.directory);
            ExitCode::SUCCESS
        }
        Err(what) => {
            println!("{what}\nthe store is left in {}", soak.directory.display());
            ExitCode::FAILURE
        }
    }
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let directory = std::env::temp_dir().join(format!("runstone-soak-{}", std::process::id()));
    let policy = Some("fragmented-leveling");
    let soak = Soak {
        directory,
        seed: 1,
        placement: Some(0),
        policy,
        keys: 4_000,
        keyspaces: 1,
        large_bytes: 0,
    };
    let mut parsed = Arguments { soak, time: Duration::from_secs(60), opening: None };
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name} wants a value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{name} wants a number"));
        match name.as_str() {
            "--minutes" => parsed.time = Duration::from_secs(60 * number()?),
            "--seconds" => parsed.time = Duration::from_secs(number()?),
            "--seed" => parsed.soak.seed = number()?,
            "--keys" => parsed.soak.keys = number()?.max(1),
            "--keyspaces" => parsed.soak.keyspaces = number()?.max(1),
            "--large-bytes" => parsed.soak.large_bytes = number()?,
            "--directory" => parsed.soak.directory = PathBuf::from(value),
            "--placement" => parsed.soak.placement = placement_of(&value)?,
            "--policy" => parsed.soak.policy = policy_of(&value)?,
            "--child" => parsed.opening = Some(number()?),
            _ => return Err(format!("{name} is not known")),
        }
    }
    Ok(parsed)
}

fn placement_of(name: &str) -> Result<Option<usize>, String> {
    if name == "changing" {
        return Ok(None);
    }
    match PLACEMENTS.iter().position(|(placement, ..)| *placement == name) {
        Some(placement) => Ok(Some(placement)),
        None => Err(format!("there is no placement {name}")),
    }
}

fn policy_of(name: &str) -> Result<Option<&'static str>, String> {
    match name {
        "changing" => Ok(None),
        name => find(name).map(|policy| Some(policy.name())).map_err(|error| error.to_string()),
    }
}
