//! Every scenario runs on every store, and yields the same figures for all stores that offer it.

use std::fs;

use super::*;
use crate::peers::PEERS;
use crate::plan::Task;

fn setup() -> Setup {
    let flags = ["peers", "--scale", "0.0005", "--cache-mib", "32", "--memtable-mib", "4"];
    <crate::plan::Flags as clap::Parser>::parse_from(flags).setup
}

fn names(scenario: &Scenario, peer: &Peer) -> Vec<String> {
    let directory = format!("peers-test-{}-{}-{}", scenario.name, peer.name, std::process::id());
    let path = std::env::temp_dir().join(directory);
    fs::create_dir(&path).expect("is made");
    let mut figures = Figures::default();
    for part in 0..scenario.parts {
        let path = path.join(part.to_string());
        fs::create_dir(&path).expect("is made");
        let task = Task::Scenario { name: scenario.name.into(), part };
        let plan = Plan { engine: peer.name.into(), task, path, setup: setup() };
        figures.0.extend(run(scenario.name, part, &plan).expect("runs").0);
    }
    fs::remove_dir_all(&path).expect("is removed");
    assert!(figures.0.iter().all(|figure| figure.value.is_finite()), "{figures:?}");
    figures.0.into_iter().map(|figure| figure.name).collect()
}

#[test]
fn every_scenario_runs_on_every_store() {
    for scenario in SCENARIOS {
        let wanted = names(scenario, &PEERS[0]);
        assert!(!wanted.is_empty(), "{}", scenario.name);
        for peer in &PEERS[1..] {
            let found = names(scenario, peer);
            let is_offered = match scenario.name {
                "range-deletes" => peer.has_range_deletes,
                "merge-chains" => peer.open_appending.is_some(),
                "value-logs" => peer.open_pointers.is_some(),
                _ => true,
            };
            let wanted = if is_offered { &wanted[..] } else { &[] };
            assert_eq!(found, wanted, "{} on {}", scenario.name, peer.name);
        }
    }
}

#[test]
fn scenarios_are_found_by_name() {
    let find =
        |names: &[&str]| find(&names.iter().map(|name| name.to_string()).collect::<Vec<_>>());
    assert_eq!(find(&["all"]).expect("is known").len(), SCENARIOS.len());
    assert_eq!(find(&["expiry"]).expect("is known")[0].name, "expiry");
    assert!(find(&["expiry", "another"]).is_err());
}
