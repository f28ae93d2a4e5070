//! Simulated policies side by side: the run on all cores, the table, the charts, the JSON. The
//! model is `runstone_simulator`.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use runstone_plot::{Axis, BarChart, Bars, Chart, Line, LineChart};
use runstone_policy::options::{Numbers, PolicyOptions};
use runstone_policy::policy::CompactionPolicy;
use runstone_simulator::{
    Coarsening, Loads, RangeDeletes, SimGets, SimPoint, SimReport, SimWorkload, Simulator,
};
use serde_json::{Value, json};

use crate::failure::{Exit, Failure, Result};
use crate::layout::{fold, plural, terminal_columns};
use crate::on_flash::{self, OnFlash};
use crate::output::{Output, columns, size};
use crate::values_apart::Values;

/// What is simulated.
pub struct Setup {
    pub size_bytes: u64,
    pub options: PolicyOptions,
    pub workload: SimWorkload,
    pub coarsening: Coarsening,
    pub gets: u64,
    pub cuts_flushes: bool,
    /// Bytes written until an entry expires.
    pub ttl_bytes: Option<u64>,
    /// `None` if nothing is deleted.
    pub range_deletes: Option<RangeDeletes>,
    /// `None` if nothing is loaded.
    pub loads: Option<Loads>,
    /// Separated values, if any; the tree then contains pointers.
    pub values: Option<Values>,
    /// The flash below, if any.
    pub flash: Vec<OnFlash>,
}

/// The result of one policy.
struct Outcome {
    policy: &'static str,
    report: SimReport,
    gets: Option<SimGets>,
}

impl Outcome {
    fn tree(&self) -> (&str, &SimReport) {
        (self.policy, &self.report)
    }
}

/// The outcomes of all policies, in the order of the arguments.
pub struct Simulation<'a> {
    setup: &'a Setup,
    outcomes: Vec<Outcome>,
}

impl<'a> Simulation<'a> {
    /// Simulates the policies, as many at once as there are cores.
    pub fn run(
        setup: &'a Setup,
        policies: &[&'static dyn CompactionPolicy],
        output: &Output,
    ) -> Result<Simulation<'a>> {
        let bar = output.count_bar("policies", Some(policies.len() as u64));
        let next = AtomicUsize::new(0);
        let done: Mutex<Vec<(usize, Result<Outcome>)>> = Mutex::default();
        let work = || {
            while let Some((at, policy)) = take(&next, policies) {
                let outcome = simulate(setup, policy);
                done.lock().expect("no holder panics").push((at, outcome));
                bar.inc(1);
            }
        };
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        std::thread::scope(|scope| {
            for _ in 0..cores.min(policies.len()) {
                scope.spawn(work);
            }
        });
        bar.finish_and_clear();
        let mut done = done.into_inner().expect("no holder panics");
        done.sort_by_key(|(at, _)| *at);
        let outcomes = done.into_iter().map(|(_, outcome)| outcome).collect::<Result<_>>()?;
        Ok(Simulation { setup, outcomes })
    }

    /// The object of `--json`; its fields are in JSON.md.
    pub fn to_json(&self) -> Value {
        let Coarsening { table_factor, split_factor, flush_factor } = self.setup.coarsening;
        let policies = self.outcomes.iter().map(|outcome| {
            json!({ "policy": outcome.policy, "load": outcome.report, "gets": outcome.gets })
        });
        json!({
            "size_bytes": self.setup.size_bytes,
            "options": self.setup.options,
            "workload": self.setup.workload,
            "ttl_bytes": self.setup.ttl_bytes,
            "range_deletes": self.setup.range_deletes,
            "loads": self.setup.loads,
            "coarsening": {
                "table_factor": table_factor,
                "split_factor": split_factor,
                "flush_factor": flush_factor,
            },
            "values": self.setup.values.as_ref().map(Values::to_json),
            "flash": on_flash::to_json(&self.setup.flash),
            "policies": policies.collect::<Vec<_>>(),
            "stall_order": self.stall_order().iter().map(|o| o.policy).collect::<Vec<_>>(),
        })
    }

    /// The tables for people.
    pub fn to_text(&self) -> String {
        let mut text = self.header();
        text.push_str(&self.costs());
        for outcome in self.outcomes.iter().take(if self.outcomes.len() == 1 { 1 } else { 0 }) {
            text.push('\n');
            text.push_str(&levels(&outcome.report));
        }
        if let Some(values) = &self.setup.values {
            let trees: Vec<_> = self.outcomes.iter().map(Outcome::tree).collect();
            text.push('\n');
            text.push_str(&values.to_text(&trees));
        }
        if !self.setup.flash.is_empty() {
            text.push('\n');
            text.push_str(&on_flash::to_text(&self.setup.flash));
        }
        if self.setup.gets > 0 {
            text.push('\n');
            text.push_str(&self.gets());
        }
        text.push_str("\nStall order, by the largest single job:\n");
        for (rank, outcome) in self.stall_order().iter().enumerate() {
            let report = &outcome.report;
            text.push_str(&match report.largest_job_bytes {
                0 => format!("{}. {}: no job\n", rank + 1, outcome.policy),
                bytes => format!(
                    "{}. {}: {} ({})\n",
                    rank + 1,
                    outcome.policy,
                    size(bytes),
                    report.largest_job_why
                ),
            });
        }
        text
    }

    /// Costs over the size of the data, and the largest jobs.
    pub fn charts(&self) -> Vec<Chart> {
        let chart = |title: &str, y: &str, value: fn(&SimPoint) -> u64| {
            let point = |p: &SimPoint| (p.user_bytes as f64, value(p) as f64 / 1000.0);
            let line = |outcome: &Outcome| Line {
                name: outcome.policy.into(),
                points: outcome.report.curve.iter().map(point).collect(),
                ..Line::default()
            };
            Chart::Line(LineChart {
                title: title.into(),
                x: Axis::bytes("written by the user (bytes)"),
                y: Axis::linear(y),
                lines: self.outcomes.iter().map(line).collect(),
            })
        };
        let jobs = |outcome: &Outcome| Bars {
            name: outcome.policy.into(),
            values: vec![outcome.report.largest_job_bytes as f64 / f64::from(1 << 30)],
            ..Bars::default()
        };
        vec![
            chart("Write amplification", "bytes written to tables per byte of the user", |point| {
                point.write_amplification_permille
            }),
            chart("Gets of absent keys, without filters", "tables probed per get", |point| {
                point.tables_probed_per_get_permille
            }),
            chart("Short scans", "runs sought per scan", |point| {
                point.runs_sought_per_scan_permille
            }),
            Chart::Bar(BarChart {
                title: "Largest single job".into(),
                x: "policy".into(),
                y: Axis::linear("read by the job (GiB)"),
                categories: vec![String::new()],
                bars: self.outcomes.iter().map(jobs).collect(),
                ..BarChart::default()
            }),
        ]
    }

    fn stall_order(&self) -> Vec<&Outcome> {
        let mut order: Vec<&Outcome> = self.outcomes.iter().collect();
        order.sort_by_key(|outcome| outcome.report.largest_job_bytes);
        order
    }

    fn header(&self) -> String {
        let Setup { options, workload, coarsening, .. } = self.setup;
        let mut text = format!(
            "{} written in entries of {} bytes, memtable {}, T={}, level 1 of {}\n",
            size(self.setup.size_bytes),
            workload.entry_bytes,
            size(workload.flush_bytes),
            options.size_ratio(),
            size(options.base_bytes()),
        );
        let (coarse, coarse_workload) = coarsening.apply(options, workload);
        let mut say = |name: &str, from: u64, to: u64| {
            if from != to {
                let (from, to) = (size(from), size(to));
                text.push_str(&format!("simulated with {name} of {to} instead of {from}\n"));
            }
        };
        say("tables", options.table_bytes(), coarse.table_bytes());
        say(
            "prefix pieces (T_s)",
            Numbers::of(options).split_bytes,
            Numbers::of(&coarse).split_bytes,
        );
        say("flushes", workload.flush_bytes, coarse_workload.flush_bytes);
        if coarsening.table_factor > 1 {
            text.push_str(
                "  (--max-tables raises the detail; whole-level policies cost the same, policies \
                 that\n  sink single tables act like full leveling where a level is smaller than a \
                 table)\n",
            );
        }
        text.push('\n');
        text
    }

    fn costs(&self) -> String {
        let header = [
            "policy",
            "write amp",
            "probes/get",
            "runs/scan",
            "space amp",
            "levels",
            "L0 most",
            "moved",
            "jobs",
            "largest job",
            "critical",
        ];
        let row = |outcome: &Outcome| {
            let report = &outcome.report;
            vec![
                outcome.policy.to_string(),
                thousandths(report.write_amplification_permille),
                thousandths(report.tables_probed_per_get_permille),
                thousandths(report.runs_sought_per_scan_permille),
                thousandths(report.space_amplification_permille),
                report.levels.len().to_string(),
                report.max_l0_run_count.to_string(),
                size(report.moved_bytes),
                report.plan_count.to_string(),
                size(report.largest_job_bytes),
                size(report.critical_read_bytes),
            ]
        };
        let mut text = columns(&header, &self.outcomes.iter().map(row).collect::<Vec<_>>());
        if self.setup.ttl_bytes.is_some() || self.setup.range_deletes.is_some() {
            let dropped = |outcome: &Outcome| {
                format!("{} {}", outcome.policy, size(outcome.report.dropped_bytes))
            };
            let dropped: Vec<String> = self.outcomes.iter().map(dropped).collect();
            let line = format!("\nTables that left unread: {}\n", dropped.join(", "));
            text.push_str(&fold(&line, terminal_columns()));
        }
        text
    }

    fn gets(&self) -> String {
        let header = ["after the load", "probes/get", "at first", "at last", "compacted", "jobs"];
        let row = |outcome: &Outcome| {
            outcome.gets.as_ref().map(|gets| {
                vec![
                    outcome.policy.to_string(),
                    thousandths(gets.tables_probed_per_get_permille),
                    thousandths(gets.first_tables_probed_per_get_permille),
                    thousandths(gets.last_tables_probed_per_get_permille),
                    size(gets.compacted_bytes),
                    gets.plan_count.to_string(),
                ]
            })
        };
        let rows: Vec<Vec<String>> = self.outcomes.iter().filter_map(row).collect();
        format!("{}:\n{}", plural(self.setup.gets, "get"), columns(&header, &rows))
    }
}

fn take(
    next: &AtomicUsize,
    policies: &[&'static dyn CompactionPolicy],
) -> Option<(usize, &'static dyn CompactionPolicy)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    policies.get(at).map(|policy| (at, *policy))
}

fn simulate(setup: &Setup, policy: &'static dyn CompactionPolicy) -> Result<Outcome> {
    let (options, workload) = setup.coarsening.apply(&setup.options, &setup.workload);
    let flush_bytes = workload.flush_bytes;
    let flushed = setup.loads.map_or(setup.size_bytes, |loads| loads.flushed_of(setup.size_bytes));
    let flushes = flushed.div_ceil(flush_bytes);
    let mut simulator = Simulator::new(policy, options, workload);
    if setup.cuts_flushes {
        simulator = simulator.with_cut_flushes();
    }
    if let Some(ttl_bytes) = setup.ttl_bytes {
        simulator = simulator.with_expiry(ttl_bytes);
    }
    if let Some(range_deletes) = setup.range_deletes {
        simulator = simulator.with_range_deletes(range_deletes);
    }
    if let Some(loads) = setup.loads {
        simulator = simulator.with_loads(Loads { bytes: loads.bytes.max(flush_bytes), ..loads });
    }
    let failed = |error| {
        let what = format!("the policy made a plan that does not fit the tree: {error}");
        Failure::new(Exit::Io, what).at(policy.name()).hint("this is a bug; please report it")
    };
    let report = simulator.run(flushes).map_err(failed)?;
    let gets = match setup.gets {
        0 => None,
        gets => Some(simulator.run_gets(gets).map_err(failed)?),
    };
    Ok(Outcome { policy: policy.name(), report, gets })
}

fn levels(report: &SimReport) -> String {
    let header = ["level", "bytes", "capacity", "tables", "runs", "probes/get"];
    let row = |level: &runstone_simulator::SimLevel| {
        let capacity = match level.capacity_bytes {
            u64::MAX => "by runs".to_string(),
            bytes => size(bytes),
        };
        let runs = match level.overlapping {
            true => "overlapping".to_string(),
            false => level.run_count.to_string(),
        };
        vec![
            format!("L{}", level.level),
            size(level.bytes),
            capacity,
            level.table_count.to_string(),
            runs,
            thousandths(level.tables_probed_per_get_permille),
        ]
    };
    columns(&header, &report.levels.iter().map(row).collect::<Vec<_>>())
}

fn thousandths(number: u64) -> String {
    format!("{}.{:02}", number / 1000, number % 1000 / 10)
}
