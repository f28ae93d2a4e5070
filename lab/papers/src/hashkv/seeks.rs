//! Experiment 1 with LevelDB's seek compaction on every side, without filters: what the look-ups
//! of a value log's collections make its tree write. On the block SSD, where all compactions share
//! one lane as LevelDB's share one thread, and in memory, where they take no time.

use runstone_kv::Result;

use super::bench::{ALL, Bench, Phase};
use super::designs::{Design, RECORDS, SCALED_SEEKS, SEEKS, Workload};
use super::device::{self, SMALL_PAGE_BYTES};
use crate::numbers::{mib, ratio};
use crate::report::rows;
use crate::sides;
use crate::verdict::Rule::*;
use crate::{Context, PaperReport};

rows! {
    BYTES_LEVELED = "1: bytes of load and updates with seek compaction in one lane, HashKV over \
        leveled (figure 5b)",
        "0.285, -71.5%" => Ratios(&[0.285]);
    BYTES_VLOG = "1: bytes of load and updates with seek compaction in one lane, HashKV over vLog \
        (figure 5b)",
        "0.504, -49.6%" => Ratios(&[0.504]);
    UPDATES_LEVELED = "1: updates on a block SSD with seek compaction in one lane, HashKV over \
        leveled (figure 5a)",
        "6.3 to 7.9" => Ratios(&[6.3]);
    UPDATES_VLOG = "1: updates on a block SSD with seek compaction in one lane, HashKV over vLog \
        (figure 5a)",
        "3.7 to 4.6" => Ratios(&[3.7]);
    SWITCH = "1: HashKV over vLog with seek compaction off, scaled and unscaled, in one lane: \
        bytes; updates; values and tables of P2",
        "" => NotComparable("judged above; LevelDB cannot switch it off");
    NO_TIME = "1: the same in memory: bytes; values and tables of P2",
        "" => NotComparable("the most there can be: compactions take no time");
}

/// What the limits are called, and the fewest seeks.
const LIMITS: [(&str, Option<u32>); 3] =
    [("off", None), ("scaled", Some(SCALED_SEEKS)), ("unscaled", Some(SEEKS))];

pub(super) fn run(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let workload = Workload::of_pairs(context.scaled(RECORDS), 1024);
    for (row, in_lane) in [(SWITCH, true), (NO_TIME, false)] {
        let (mut texts, mut sides_of_vlog) = (Vec::new(), Vec::new());
        for (limits, least) in LIMITS {
            let seeking = |design: Design| match least {
                Some(least) => design.without_filters().seeking(least),
                None => design.without_filters(),
            };
            let designs =
                [Design::inline(), Design::paper_vlog(&workload), Design::paper(&workload)];
            let [leveled, vlog, hashkv] = designs.map(seeking);
            let sides = [leveled.side("leveled"), vlog.side("vLog"), hashkv.side("HashKV")];
            report.compare(&sides, &[])?;
            sides_of_vlog.push(vlog.side(&format!("vLog, {limits}")));
            let run = |name: &str, design: &Design| {
                let place = if in_lane { "on flash" } else { "in memory" };
                context.say(&format!("experiment 1: {name} {place}, seek compaction {limits}"));
                Run::measure(context, design, &workload, in_lane)
            };
            let [vlog, hashkv] = [run("vLog", &vlog)?, run("HashKV", &hashkv)?];
            if in_lane && least == Some(SCALED_SEEKS) {
                judge(report, &run("leveled", &leveled)?, &vlog, &hashkv);
            }
            let updates = match in_lane {
                true => format!("; {:.2}", hashkv.per_second() / vlog.per_second()),
                false => String::new(),
            };
            let bytes = hashkv.written_mib() / vlog.written_mib();
            let phase_2 = ratio_of_phase_2(&hashkv, &vlog);
            texts.push(format!("{limits}: {bytes:.2}{updates}; {phase_2}"));
        }
        report.compare(&sides_of_vlog, &[sides::SEEKS])?;
        report.show(row, texts.join("; "));
    }
    Ok(())
}

/// P0 to P3.
struct Run([Phase; 4]);

impl Run {
    fn measure(
        context: &Context<'_>,
        design: &Design,
        workload: &Workload,
        in_lane: bool,
    ) -> Result<Run> {
        let mut bench = match in_lane {
            true => {
                let device = device::create(device::geometry(context, SMALL_PAGE_BYTES))?;
                Bench::on_device(design, workload, &device)?.in_one_lane()
            }
            false => Bench::in_memory(design, workload)?,
        };
        Ok(Run([bench.load()?, bench.update()?, bench.update()?, bench.update()?]))
    }

    fn written_mib(&self) -> f64 {
        mib(self.0.iter().map(|phase| phase.written(ALL)).sum())
    }

    /// Updates of P3.
    fn per_second(&self) -> f64 {
        self.0[3].per_second()
    }
}

/// Leveled has no look-ups, so the rule changes nothing there.
fn judge(report: &mut PaperReport, leveled: &Run, vlog: &Run, hashkv: &Run) {
    for (other, bytes, updates) in
        [(leveled, BYTES_LEVELED, UPDATES_LEVELED), (vlog, BYTES_VLOG, UPDATES_VLOG)]
    {
        let (text, of_all) = ratio(hashkv.written_mib(), other.written_mib(), 0, " MiB");
        report.judge(bytes, text, &[of_all]);
        let (text, faster) =
            ratio(hashkv.per_second(), other.per_second(), 0, " per simulated second");
        report.judge(updates, text, &[faster]);
    }
}

/// Values and tables that P2 wrote per byte of the user, without logs.
fn ratio_of_phase_2(hashkv: &Run, vlog: &Run) -> String {
    let parts = |run: &Run| ["value", "table"].map(|files| run.0[2].written_part(files));
    let [[values, tables], [values_vlog, tables_vlog]] = [hashkv, vlog].map(parts);
    let of_all = (values + tables) / (values_vlog + tables_vlog);
    let compactions = vlog.0[2].counters.compactions;
    format!(
        "{values:.2} + {tables:.2} / {values_vlog:.2} + {tables_vlog:.2} = {of_all:.2}, \
         {compactions} compactions of vLog"
    )
}
