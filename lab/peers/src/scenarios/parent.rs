//! Rounds of scenarios: every store runs once in each, A B C A B C; then medians by name.

use std::fs;
use std::path::Path;

use runstone_workloads::median;
use serde::Serialize;

use super::{Figures, Scenario};
use crate::Result;
use crate::allocator::Runner;
use crate::parent::{child, in_directory};
use crate::plan::{Setup, Task};
use crate::table::align;

/// Everything measured.
#[derive(Debug, Serialize)]
pub struct Compared {
    pub setup: Setup,
    pub rounds: usize,
    pub scenarios: Vec<Outcome>,
}

/// One scenario.
#[derive(Debug, Serialize)]
pub struct Outcome {
    pub name: &'static str,
    /// The stores, in the order of the command line.
    pub stores: Vec<StoreOutcome>,
}

#[derive(Debug, Serialize)]
pub struct StoreOutcome {
    pub store: String,
    pub medians: Figures,
    pub rounds: Vec<Figures>,
}

/// Runs all rounds of each scenario in temporary directories below `base`.
pub fn compare(
    scenarios: &[&'static Scenario],
    runners: &[Runner],
    rounds: usize,
    setup: &Setup,
    base: &Path,
) -> Result<Compared> {
    let outcome = |root: &Path, scenario: &&'static Scenario| {
        let mut stores: Vec<StoreOutcome> = runners.iter().map(StoreOutcome::new).collect();
        for round in 1..=rounds {
            for (runner, store) in runners.iter().zip(&mut stores) {
                eprintln!("{}, round {round} of {rounds}: {}", scenario.name, runner.label);
                let mut figures = Figures::default();
                for part in 0..scenario.parts {
                    let path = root.join("run");
                    fs::create_dir(&path)?;
                    let task = Task::Scenario { name: scenario.name.into(), part };
                    figures.0.extend(child::<Figures>(runner, task, &path, setup)?.0);
                    fs::remove_dir_all(&path)?;
                }
                store.rounds.push(figures);
            }
        }
        stores.iter_mut().for_each(|store| store.medians = medians(&store.rounds));
        Ok(Outcome { name: scenario.name, stores })
    };
    let run_all = |root: &Path| scenarios.iter().map(|one| outcome(root, one)).collect();
    let scenarios = in_directory(base, run_all)?;
    Ok(Compared { setup: setup.clone(), rounds, scenarios })
}

impl StoreOutcome {
    fn new(runner: &Runner) -> StoreOutcome {
        StoreOutcome {
            store: runner.label.clone(),
            medians: Figures::default(),
            rounds: Vec::new(),
        }
    }
}

/// The median of each figure. The figures of all rounds have the same names in the same order.
fn medians(rounds: &[Figures]) -> Figures {
    let mut medians = rounds[0].clone();
    for (at, figure) in medians.0.iter_mut().enumerate() {
        figure.value = median(rounds.iter().map(|round| round.0[at].value).collect());
    }
    medians
}

/// A table for each scenario: a line for each figure, a column for each store.
pub fn render(compared: &Compared) -> String {
    let mut text = String::new();
    for outcome in &compared.scenarios {
        let head = outcome.stores.iter().map(|store| store.store.clone());
        let mut rows: Vec<Vec<String>> =
            vec![std::iter::once(outcome.name.to_string()).chain(head).collect()];
        let names = outcome.stores.iter().map(|store| &store.medians.0).max_by_key(|all| all.len());
        for figure in names.into_iter().flatten() {
            let cell = |store: &StoreOutcome| {
                let same = store.medians.0.iter().find(|other| other.name == figure.name);
                same.map_or(String::new(), |same| in_short(same.value))
            };
            let cells = outcome.stores.iter().map(cell);
            rows.push(std::iter::once(figure.name.clone()).chain(cells).collect());
        }
        text.push_str(&align(rows));
        text.push('\n');
    }
    text
}

/// A number with three digits, or with all digits before the point.
fn in_short(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(values: &[(&str, f64)]) -> Figures {
        let mut figures = Figures::default();
        values.iter().for_each(|(name, value)| figures.add(*name, *value));
        figures
    }

    #[test]
    fn each_figure_has_a_median() {
        let rounds = [[1.0, 9.0], [5.0, 7.0], [3.0, 8.0]];
        let rounds = rounds.map(|[one, other]| figures(&[("one", one), ("other", other)]));
        let found: Vec<f64> = medians(&rounds).0.iter().map(|figure| figure.value).collect();
        assert_eq!(found, [3.0, 8.0]);
    }

    #[test]
    fn what_a_store_lacks_is_left_empty() {
        let store =
            |name: &str, medians| StoreOutcome { store: name.into(), medians, rounds: Vec::new() };
        let stores =
            vec![store("none", figures(&[])), store("some", figures(&[("put/s", 1234.0)]))];
        let scenarios = vec![Outcome { name: "load", stores }];
        let flags = <crate::plan::Flags as clap::Parser>::parse_from(["peers"]);
        let text = render(&Compared { setup: flags.setup, rounds: 1, scenarios });
        assert_eq!(text, "load   none  some\nput/s        1234\n\n");
    }
}
