//! `simulate`: what a policy would cost at any size, from its decisions over metadata alone. The
//! model is `runstone_simulator`, and the run and its report are in [`crate::simulation`].
//! Here are the flags, and the refusals.

use std::path::PathBuf;

use clap::{Arg, Command, ValueEnum};
use runstone_policy::options::{Numbers, OptionError, PolicyOptions};
use runstone_policy::partition::{PARTITIONERS, Partitioner};
use runstone_policy::policy::CompactionPolicy;
use runstone_policy::registry;
use runstone_simulator::{Coarsening, FRESH_KEYS, KeyOrder, Loads, RangeDeletes, SimWorkload};

use crate::arguments::{parse_size, policy_names};
use crate::failure::{Exit, Failure, Result};
use crate::on_flash::{self, FlashArgs, OnFlash};
use crate::option_docs::{flag, summary};
use crate::output::Output;
use crate::simulation::{Setup, Simulation};
use crate::values_apart::{POINTER_ENTRY_BYTES, PlacementArgs, Written};

/// More flushes would take minutes, and tell no more than fewer, larger flushes.
const MOST_FLUSHES: u64 = 4_000_000;

/// An exbibyte: sizes of trees, levels and jobs stay below 2^64.
const MOST_BYTES: u64 = 1 << 60;

/// Show what compaction policies would cost at any size, without data
#[derive(clap::Args)]
#[command(override_usage = "runstone simulate [OPTIONS] --policy <NAME,..>\n       --size <SIZE>")]
pub struct Args {
    /// Names, separated by commas, or all; `runstone policies` lists them.
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', required = true,
          value_parser = policy_names(), hide_possible_values = true)]
    policy: Vec<String>,
    /// Bytes that the user writes.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    size: u64,
    #[arg(long = "T", value_name = "N", visible_alias = "size-ratio", help = flag("size_ratio"))]
    size_ratio: Option<u32>,
    #[arg(long = "c", value_name = "C", help = flag("c"))]
    c: Option<f64>,
    #[arg(long = "K", value_name = "N", visible_alias = "max-runs", help = flag("max_runs"))]
    max_runs: Option<u32>,
    #[arg(long = "Z", value_name = "N", visible_alias = "last-level-runs",
          help = flag("last_level_runs"))]
    last_level_runs: Option<u32>,
    #[arg(long = "Ts", value_name = "SIZE", value_parser = parse_size, help = flag("split_bytes"))]
    split_bytes: Option<u64>,
    /// Bytes per flush.
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = parse_size)]
    memtable: u64,
    #[arg(long, value_name = "N", help = flag("l0_trigger"))]
    l0_trigger: Option<u32>,
    #[arg(long = "l0-share", value_name = "PERCENT", help = flag("l0_share_percent"))]
    l0_share_percent: Option<u32>,
    #[arg(long = "max-space", value_name = "PERCENT", help = flag("max_space_percent"))]
    max_space_percent: Option<u32>,
    #[arg(long = "base", value_name = "SIZE", value_parser = parse_size,
          help = summary("base_bytes") + ". [default: four memtables]")]
    base_bytes: Option<u64>,
    #[arg(long = "table-size", value_name = "SIZE", value_parser = parse_size,
          help = flag("table_bytes").trim_end_matches(']').to_string() + ", with --flash 4M]")]
    table_bytes: Option<u64>,
    #[arg(long, value_name = "NAME", help = flag("partitioner"))]
    partitioner: Option<String>,
    #[arg(long = "cut-flushes", help = summary("partition_flushes"))]
    partition_flushes: bool,
    /// Bytes of a key with its value.
    #[arg(long, value_name = "SIZE", default_value = "128", value_parser = parse_size)]
    entry_size: u64,
    /// Number of possible keys; without it, so many that hardly any is drawn twice.
    #[arg(long, value_name = "N", conflicts_with = "overwrite")]
    keys: Option<u64>,
    /// Share of the writes that overwrite a key, from 0 to below 1.
    #[arg(long, value_name = "SHARE")]
    overwrite: Option<f64>,
    /// Bytes written until an entry expires; without it, no entry expires.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    ttl: Option<u64>,
    /// Bytes written between two range deletes; without it, nothing is deleted.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    delete_every: Option<u64>,
    /// Share of the keys per range delete; each starts where the last one ended. [default: 0.1]
    #[arg(long, value_name = "SHARE", requires = "delete_every")]
    delete_share: Option<f64>,
    /// Share of the bytes that come from bulk loads, from 0 to below 1; without it, none.
    #[arg(long, value_name = "SHARE", conflicts_with = "ttl")]
    load_share: Option<f64>,
    /// Bytes of each bulk load, at least as many as a flush writes. [default: 1G]
    #[arg(long, value_name = "SIZE", requires = "load_share", value_parser = parse_size)]
    load_size: Option<u64>,
    /// How keys arrive.
    #[arg(long, value_enum, default_value = "uniform")]
    order: Order,
    /// Number of key prefixes; without it, as many as the engine would choose.
    #[arg(long, value_name = "N")]
    prefixes: Option<u64>,
    /// Number of gets of uniformly drawn keys after the load; they may cause compactions.
    #[arg(long, value_name = "N", default_value_t = 0)]
    gets: u64,
    #[arg(long, value_name = "N", help = flag("access_limit"))]
    access_limit: Option<u32>,
    #[command(flatten)]
    placement: PlacementArgs,
    #[command(flatten)]
    flash: FlashArgs,
    /// Tables that the model may hold; larger sizes get larger tables.
    #[arg(long, value_name = "N", default_value_t = 4096)]
    max_tables: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Plot costs over the size of the data.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Replace existing files.
    #[arg(long, requires = "svg")]
    force: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Order {
    Uniform,
    Sequential,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        let policies = self.policies()?;
        let mut setup = self.setup()?;
        for policy in &policies {
            policy.check(&setup.options).map_err(|error| self.refused(*policy, &error))?;
        }
        setup.flash = self.on_flash(&policies, &setup)?;
        let simulation = Simulation::run(&setup, &policies, output)?;
        match output.is_json {
            true => output.json(&simulation.to_json())?,
            false => output.text(&simulation.to_text())?,
        }
        // The file comes last: if it cannot be written, the figures have been printed.
        if let Some(path) = &self.svg {
            output.write_file(path, &runstone_plot::svg(&simulation.charts()), self.force)?;
        }
        Ok(Exit::Ok)
    }

    fn policies(&self) -> Result<Vec<&'static dyn CompactionPolicy>> {
        if self.policy == ["all"] {
            return Ok(registry::POLICIES.to_vec());
        }
        let find = |name: &String| {
            registry::find(name).map_err(|unknown| {
                let hint = "`runstone policies` describes them; `all` selects every one";
                Failure::usage(unknown, hint).at(format!("--policy {name}"))
            })
        };
        self.policy.iter().map(find).collect()
    }

    fn on_flash(
        &self,
        policies: &[&'static dyn CompactionPolicy],
        setup: &Setup,
    ) -> Result<Vec<OnFlash>> {
        let refused = [
            ("--placement", setup.values.is_some(), "separated values"),
            (
                "--partitioner",
                Numbers::of(&setup.options).partitioner != Partitioner::Size,
                "tables not cut by size",
            ),
            ("--ttl", self.ttl.is_some(), "expiry"),
            ("--delete-every", self.delete_every.is_some(), "range deletes"),
            ("--load-share", self.load_share.is_some(), "bulk loads"),
            ("--order", matches!(self.order, Order::Sequential), "ascending keys"),
        ];
        let is_asked = self.flash.is_asked();
        if let Some((flag, _, what)) = refused.iter().find(|(_, is_given, _)| is_asked && *is_given)
        {
            let what = format!("the model of flash does not support {what}");
            let hint = format!("leave {flag} or --flash out");
            return Err(Failure::usage(what, hint).at(format!("{flag} with --flash")));
        }
        self.flash.reckon(
            policies,
            &on_flash::Written {
                size_bytes: self.size,
                entry_bytes: self.entry_size,
                memtable_bytes: self.memtable,
                keys: setup.workload.key_space,
                seed: self.seed,
                options: &setup.options,
            },
        )
    }

    fn setup(&self) -> Result<Setup> {
        self.check_sizes()?;
        let options = self.options()?;
        let entries = (self.size / self.entry_size).max(1);
        let workload = SimWorkload {
            flush_bytes: self.memtable,
            entry_bytes: self.entry_size,
            key_space: self.keys.unwrap_or(FRESH_KEYS),
            order: match self.order {
                Order::Uniform => KeyOrder::Uniform,
                Order::Sequential => KeyOrder::Sequential,
            },
            seed: self.seed,
            // As many as there are pieces of T_s bytes in the first compaction out of level 0.
            prefix_count: self.prefixes.unwrap_or_else(|| {
                let first = self.memtable.saturating_mul(options.l0_trigger().into());
                first.div_ceil(Numbers::of(&options).split_bytes.max(1))
            }),
        };
        let workload = match self.overwrite {
            Some(share) => {
                let permille = thousandths(share, 0.0..=0.999).ok_or_else(|| {
                    let hint = "write a share such as 0.5; --keys 1 overwrites one key for ever";
                    Failure::usage("the share of overwrites is not from 0 to 0.999", hint)
                        .at(format!("--overwrite {share}"))
                })?;
                if permille == 0 { workload } else { workload.overwriting(permille, entries) }
            }
            None => workload,
        };
        let values = self.placement.reckon(&Written {
            size_bytes: self.size,
            entry_bytes: self.entry_size,
            memtable_bytes: self.memtable,
            keys: workload.key_space,
        })?;
        let (workload, size_bytes) = match &values {
            None => (workload, self.size),
            Some(values) => {
                let flush_bytes = values.pointers_per_flush * POINTER_ENTRY_BYTES;
                let entry_bytes = POINTER_ENTRY_BYTES;
                let workload = SimWorkload { flush_bytes, entry_bytes, ..workload };
                (workload, values.pointers * POINTER_ENTRY_BYTES)
            }
        };
        let coarsening = Coarsening::of(&options, &workload, size_bytes, self.max_tables);
        let unknown = [
            ("--ttl", self.ttl.is_some()),
            ("--delete-every", self.delete_every.is_some()),
            ("--load-share", self.load_share.is_some()),
        ];
        if let Some((flag, _)) = unknown.iter().find(|(_, is_given)| values.is_some() && *is_given)
        {
            let what = "separated values are reckoned without what vanishes or is loaded";
            return Err(Failure::usage(what, format!("leave out {flag} or --placement")).at(*flag));
        }
        Ok(Setup {
            size_bytes,
            options,
            workload,
            coarsening,
            gets: self.gets,
            cuts_flushes: self.partition_flushes,
            ttl_bytes: self.ttl,
            range_deletes: self.range_deletes()?,
            loads: self.loads()?,
            values,
            flash: Vec::new(),
        })
    }

    fn range_deletes(&self) -> Result<Option<RangeDeletes>> {
        let Some(every_bytes) = self.delete_every else { return Ok(None) };
        let share = self.delete_share.unwrap_or(0.1);
        let share_permille = thousandths(share, 0.001..=1.0).ok_or_else(|| {
            let what = "the share of a range delete is not from 0.001 to 1";
            Failure::usage(what, "write a share such as 0.1").at(format!("--delete-share {share}"))
        })?;
        Ok(Some(RangeDeletes { every_bytes, share_permille }))
    }

    fn loads(&self) -> Result<Option<Loads>> {
        let Some(share) = self.load_share else { return Ok(None) };
        let share_permille = thousandths(share, 0.0..=0.999).ok_or_else(|| {
            let what = "the share of bulk loads is not from 0 to 0.999";
            Failure::usage(what, "write a share such as 0.5").at(format!("--load-share {share}"))
        })?;
        // Smaller loads would be like flushes, and each causes jobs.
        let bytes = self.load_size.unwrap_or(1 << 30).max(self.memtable);
        if self.load_size.is_some_and(|asked| asked < bytes) {
            let what = "a bulk load is smaller than a flush";
            return Err(Failure::usage(what, "raise it to --memtable").at("--load-size"));
        }
        let loads = Loads { share_permille, bytes };
        if share_permille > 0 && self.size - loads.flushed_of(self.size) < bytes {
            let what = "the share of bulk loads is less than one load";
            let hint = "lower --load-size, or raise --load-share or --size";
            return Err(Failure::usage(what, hint).at("--load-share"));
        }
        Ok(Some(loads))
    }

    fn check_sizes(&self) -> Result<()> {
        let counts = [
            ("--size", self.size),
            ("--memtable", self.memtable),
            ("--entry-size", self.entry_size),
            ("--keys", self.keys.unwrap_or(1)),
            ("--prefixes", self.prefixes.unwrap_or(1)),
            ("--max-tables", self.max_tables),
            ("--ttl", self.ttl.unwrap_or(1)),
            ("--delete-every", self.delete_every.unwrap_or(1)),
        ];
        if let Some((flag, _)) = counts.iter().find(|(_, value)| *value == 0) {
            return Err(Failure::usage("0 leaves nothing to simulate", "write 1 or more").at(flag));
        }
        if self.entry_size > self.memtable {
            let what = "an entry is larger than the memtable";
            return Err(Failure::usage(what, "raise --memtable").at("--entry-size"));
        }
        if self.keys.is_some_and(|keys| keys > FRESH_KEYS) {
            let what = format!("more than {FRESH_KEYS} keys");
            return Err(Failure::usage(what, "leave it out for fresh keys").at("--keys"));
        }
        let sizes = [("--size", self.size), ("--memtable", self.memtable)];
        if let Some((flag, _)) = sizes.iter().find(|(_, bytes)| *bytes > MOST_BYTES) {
            let what = "more than 1048576T cannot be simulated";
            return Err(Failure::usage(what, format!("lower {flag}")).at(flag));
        }
        let flushes = self.size / self.memtable;
        if flushes > MOST_FLUSHES {
            let what = format!("{flushes} flushes would take too long");
            let hint = format!("raise --memtable: at most {MOST_FLUSHES} flushes are simulated");
            return Err(Failure::usage(what, hint).at("--size"));
        }
        Ok(())
    }

    fn options(&self) -> Result<PolicyOptions> {
        let default = Numbers::default();
        let c = match self.c {
            None => default.c,
            Some(c) => {
                thousandths(c, 0.001..=1.0).ok_or_else(|| {
                    let hint = "write a number such as 0.8; 1 is leveling";
                    Failure::usage("c is not from 0.001 to 1", hint).at(format!("--c {c}"))
                })?;
                c.into()
            }
        };
        Ok(Numbers {
            size_ratio: self.size_ratio.unwrap_or(default.size_ratio),
            l0_trigger: self.l0_trigger.unwrap_or(default.l0_trigger),
            l0_share_percent: self.l0_share_percent.unwrap_or(default.l0_share_percent),
            base_bytes: self.base_bytes.unwrap_or(self.memtable.saturating_mul(4)),
            table_bytes: self.table_bytes.unwrap_or(match self.flash.is_asked() {
                true => on_flash::TABLE_BYTES,
                false => default.table_bytes,
            }),
            c,
            max_runs: self.max_runs.unwrap_or(default.max_runs),
            last_level_runs: self.last_level_runs.unwrap_or(default.last_level_runs),
            split_bytes: self.split_bytes.unwrap_or(default.split_bytes),
            access_limit: self.access_limit.unwrap_or(default.access_limit),
            max_space_percent: self.max_space_percent.unwrap_or(default.max_space_percent),
            partitioner: self.partitioner()?,
            ..default
        }
        .into_options())
    }

    fn partitioner(&self) -> Result<Partitioner> {
        let Some(name) = &self.partitioner else { return Ok(Partitioner::Size) };
        PARTITIONERS.iter().copied().find(|one| one.rule().name() == name).ok_or_else(|| {
            let names: Vec<&str> = PARTITIONERS.iter().map(|one| one.rule().name()).collect();
            let what = format!("no partitioner is named {name:?}");
            Failure::usage(what, format!("choose among: {}", names.join(", ")))
                .at(format!("--partitioner {name}"))
        })
    }

    /// A policy's refusal, with the flag that caused it.
    fn refused(&self, policy: &dyn CompactionPolicy, error: &OptionError) -> Failure {
        let command = <Args as clap::Args>::augment_args(Command::new("simulate"));
        let arguments = command.get_arguments();
        let long = arguments.filter(|one| one.get_id() == error.option()).find_map(Arg::get_long);
        let flag = match error.option() {
            // Without --base, the capacity of level 1 comes from --memtable.
            "base_bytes" if self.base_bytes.is_none() => "--memtable".to_string(),
            other => long.map_or(other.into(), |long| format!("--{long}")),
        };
        let place = format!("{flag}, for {}", policy.name());
        Failure::usage(error, format!("change {flag}, or leave it out")).at(place)
    }
}

/// A number in thousandths, if it is in the range.
fn thousandths(number: f64, range: std::ops::RangeInclusive<f64>) -> Option<u64> {
    range.contains(&number).then(|| (number * 1000.0).round() as u64)
}
