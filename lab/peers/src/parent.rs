//! Rounds: A B C A B C, every run in a fresh child process with a fresh directory; then medians.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Result;
use crate::goals::{self, Judged};
use crate::plan::{Measured, Median, Opened, Plan, Setup, Task};

/// Everything measured, and what follows from it.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// The terms.
    pub setup: Setup,
    /// Cache and memtable.
    pub budget_bytes: u64,
    /// Every run, in the order of the rounds.
    pub runs: Vec<Measured>,
    /// Medians by store, in the order given.
    pub medians: Vec<Median>,
    /// The goals that the stores compared allow to judge.
    pub goals: Vec<Judged>,
}

/// Runs all rounds in directories below `base` that do not survive.
pub fn compare(
    engines: &[String],
    rounds: usize,
    setup: &Setup,
    base: &Path,
) -> Result<Comparison> {
    let root = base.join(format!("peers-{}", std::process::id()));
    fs::create_dir_all(base)?;
    fs::create_dir(&root)?;
    let runs = all_rounds(engines, rounds, setup, &root);
    fs::remove_dir_all(&root)?;
    let by_engine = runs?;
    let medians: Vec<Median> = engines
        .iter()
        .map(|name| Median { name: name.clone(), measured: median(&by_engine[name]) })
        .collect();
    let goals = goals::judge(&medians, setup);
    let runs = (0..rounds)
        .flat_map(|round| engines.iter().map(move |engine| (round, engine)))
        .map(|(round, engine)| by_engine[engine][round].clone())
        .collect();
    Ok(Comparison {
        setup: setup.clone(),
        budget_bytes: setup.budget_bytes(),
        runs,
        medians,
        goals,
    })
}

fn all_rounds(
    engines: &[String],
    rounds: usize,
    setup: &Setup,
    root: &Path,
) -> Result<BTreeMap<String, Vec<Measured>>> {
    let mut runs: BTreeMap<String, Vec<Measured>> = BTreeMap::new();
    for round in 1..=rounds {
        for engine in engines {
            eprint!("round {round} of {rounds}: {engine:<18}");
            let measured = one_run(engine, setup, &root.join(engine))?;
            eprintln!(
                " load {:.0}/s, hit {:.0}/s, miss {:.0}/s, scan {:.0}/s",
                measured.loads_per_second,
                measured.hits_per_second,
                measured.misses_per_second,
                measured.scans_per_second
            );
            runs.entry(engine.clone()).or_default().push(measured);
        }
    }
    Ok(runs)
}

fn one_run(engine: &str, setup: &Setup, path: &Path) -> Result<Measured> {
    fs::create_dir(path)?;
    let plan =
        |task| Plan { engine: engine.into(), task, path: path.to_path_buf(), setup: setup.clone() };
    let mut measured: Measured = child(&plan(Task::Measure))?;
    if setup.reopen {
        measured.open = Some(child::<Opened>(&plan(Task::Open))?);
    }
    fs::remove_dir_all(path)?;
    Ok(measured)
}

/// Runs this program again as a child; its last word is a line of JSON.
fn child<T: DeserializeOwned>(plan: &Plan) -> Result<T> {
    let output = Command::new(std::env::current_exe()?)
        .arg("--child")
        .arg(serde_json::to_string(plan)?)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(format!("the run of {} ended with {}", plan.engine, output.status).into());
    }
    let text = String::from_utf8(output.stdout)?;
    let line = text.lines().last().ok_or("a run ended without a word")?;
    Ok(serde_json::from_str(line)?)
}

fn median(runs: &[Measured]) -> Measured {
    let of = |field: fn(&Measured) -> f64| middle(runs.iter().map(field).collect());
    let bytes = |field: fn(&Measured) -> u64| {
        middle(runs.iter().map(|run| field(run) as f64).collect()) as u64
    };
    let opened: Vec<Opened> = runs.iter().filter_map(|run| run.open).collect();
    let of_open = |field: fn(&Opened) -> f64| middle(opened.iter().map(field).collect());
    Measured {
        engine: runs[0].engine.clone(),
        loads_per_second: of(|run| run.loads_per_second),
        put_p50_us: of(|run| run.put_p50_us),
        put_p999_us: of(|run| run.put_p999_us),
        put_worst_ms: of(|run| run.put_worst_ms),
        put_own_worst_ms: of(|run| run.put_own_worst_ms),
        settle_seconds: of(|run| run.settle_seconds),
        hits_per_second: of(|run| run.hits_per_second),
        misses_per_second: of(|run| run.misses_per_second),
        scans_per_second: of(|run| run.scans_per_second),
        peak_bytes: bytes(|run| run.peak_bytes),
        disk_bytes: bytes(|run| run.disk_bytes),
        disk_open_bytes: bytes(|run| run.disk_open_bytes),
        written_bytes: bytes(|run| run.written_bytes),
        write_call_bytes: bytes(|run| run.write_call_bytes),
        compacted_bytes: bytes(|run| run.compacted_bytes),
        compaction_seconds: of(|run| run.compaction_seconds),
        compaction_cpu_seconds: of(|run| run.compaction_cpu_seconds),
        pops_per_second: of(|run| run.pops_per_second),
        updates_per_second: of(|run| run.updates_per_second),
        update_cpu_us: of(|run| run.update_cpu_us),
        update_disk_bytes: bytes(|run| run.update_disk_bytes),
        open: (!opened.is_empty()).then(|| Opened {
            open_ms: of_open(|open| open.open_ms),
            first_get_us: of_open(|open| open.first_get_us),
        }),
    }
}

/// The middle one; of an even number, the mean of the middle two.
fn middle(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_unstable_by(f64::total_cmp);
    match numbers.len() {
        0 => 0.0,
        count if count % 2 == 1 => numbers[count / 2],
        count => (numbers[count / 2 - 1] + numbers[count / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_counts() {
        assert_eq!(middle(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(middle(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        let runs: Vec<Measured> =
            [5, 9, 7].map(|bytes| Measured { peak_bytes: bytes, ..Measured::default() }).to_vec();
        assert_eq!(median(&runs).peak_bytes, 7);
    }
}
