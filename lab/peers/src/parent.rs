//! Rounds: A B C A B C, every run in a fresh child process with a fresh directory; then medians.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use runstone_workloads::median;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::Result;
use crate::allocator::Runner;
use crate::goals::{self, Judged};
use crate::plan::{Measured, Median, Opened, Plan, Setup, Task};

/// Everything measured, and the results.
#[derive(Debug, Serialize)]
pub struct Comparison {
    pub setup: Setup,
    /// Bytes of cache and memtable.
    pub budget_bytes: u64,
    /// Every run, in the order of the rounds.
    pub runs: Vec<Measured>,
    /// Medians by store, in the order of the command line.
    pub medians: Vec<Median>,
    /// The goals that can be judged with the stores compared.
    pub goals: Vec<Judged>,
}

/// Runs all rounds in temporary directories below `base`.
pub fn compare(
    runners: &[Runner],
    rounds: usize,
    setup: &Setup,
    base: &Path,
) -> Result<Comparison> {
    let by_label = in_directory(base, |root| all_rounds(runners, rounds, setup, root))?;
    let of = |runner: &Runner| {
        let measured = medians(&by_label[&runner.label])?;
        Ok(Median { name: runner.label.clone(), measured })
    };
    let medians = runners.iter().map(of).collect::<Result<Vec<Median>>>()?;
    let goals = goals::judge(&medians, setup);
    let runs = (0..rounds)
        .flat_map(|round| runners.iter().map(move |runner| (round, runner)))
        .map(|(round, runner)| by_label[&runner.label][round].clone())
        .collect();
    Ok(Comparison {
        setup: setup.clone(),
        budget_bytes: setup.budget_bytes(),
        runs,
        medians,
        goals,
    })
}

/// Calls `call` with a new directory below `base`, and removes the directory.
pub fn in_directory<T>(base: &Path, call: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
    let root = base.join(format!("peers-{}", std::process::id()));
    fs::create_dir_all(base)?;
    fs::create_dir(&root)?;
    let result = call(&root);
    fs::remove_dir_all(&root)?;
    result
}

fn all_rounds(
    runners: &[Runner],
    rounds: usize,
    setup: &Setup,
    root: &Path,
) -> Result<BTreeMap<String, Vec<Measured>>> {
    let mut runs: BTreeMap<String, Vec<Measured>> = BTreeMap::new();
    for round in 1..=rounds {
        for runner in runners {
            eprint!("round {round} of {rounds}: {:<18}", runner.label);
            let measured = one_run(runner, setup, &root.join(&runner.label))?;
            eprintln!(
                " load {:.0}/s, hit {:.0}/s, miss {:.0}/s, scan {:.0}/s",
                measured.loads_per_second,
                measured.hits_per_second,
                measured.misses_per_second,
                measured.scans_per_second
            );
            runs.entry(runner.label.clone()).or_default().push(measured);
        }
    }
    Ok(runs)
}

fn one_run(runner: &Runner, setup: &Setup, path: &Path) -> Result<Measured> {
    fs::create_dir(path)?;
    let mut measured: Measured = child(runner, Task::Measure, path, setup)?;
    if let Some((_, allocator)) = runner.label.split_once('@') {
        measured.engine = format!("{}@{allocator}", measured.engine);
    }
    if setup.reopen {
        measured.open = Some(child::<Opened>(runner, Task::Open, path, setup)?);
    }
    fs::remove_dir_all(path)?;
    Ok(measured)
}

/// Runs one of these programs as a child; the last line of its output is JSON.
pub fn child<T: DeserializeOwned>(
    runner: &Runner,
    task: Task,
    path: &Path,
    setup: &Setup,
) -> Result<T> {
    let (engine, path) = (runner.engine.clone(), path.to_path_buf());
    let plan = Plan { engine, task, path, setup: setup.clone() };
    let output = Command::new(runner.program()?)
        .arg("--child")
        .arg(serde_json::to_string(&plan)?)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(format!("the run of {} ended with {}", runner.label, output.status).into());
    }
    let text = String::from_utf8(output.stdout)?;
    let line = text.lines().last().ok_or("a run ended without a word")?;
    Ok(serde_json::from_str(line)?)
}

/// The median of each number; a field that is not a number comes from the first run.
fn medians(runs: &[Measured]) -> Result<Measured> {
    let values: serde_json::Result<Vec<Value>> = runs.iter().map(serde_json::to_value).collect();
    Ok(serde_json::from_value(median_of(&values?))?)
}

fn median_of(values: &[Value]) -> Value {
    match &values[0] {
        Value::Object(fields) => {
            let of = |name: &String| {
                let each: Vec<Value> = values.iter().map(|value| value[name].clone()).collect();
                (name.clone(), median_of(&each))
            };
            Value::Object(fields.keys().map(of).collect())
        }
        Value::Number(first) => {
            let middle = median(values.iter().filter_map(Value::as_f64).collect());
            if first.is_u64() { json!(middle as u64) } else { json!(middle) }
        }
        first => first.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_has_a_median() {
        let runs: Vec<Measured> =
            [5, 9, 7].map(|bytes| Measured { peak_bytes: bytes, ..Measured::default() }).to_vec();
        let of_all = medians(&runs).expect("plain data");
        assert_eq!((of_all.peak_bytes, of_all.hits_per_second), (7, 0.0));
    }
}
