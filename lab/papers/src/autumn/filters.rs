//! Section 3: blocks that gets of absent keys read in vain, with uniform and with optimal filters.

use runstone::KeyspaceOptions;
use runstone_kv::Result;
use runstone_policy::filters::FilterAllocation;
use runstone_policy::shape::{Shape, Table};

use super::{FIGURE_2, Setting, decimal};
use crate::engine::Loaded;
use crate::numbers::strokes;
use crate::report::rows;
use crate::sides::Side;
use crate::verdict::Rule::*;
use crate::{Context, PaperReport};

rows! {
    OPTIMAL = "reads in vain, optimal filters over uniform, c = 1 and 0.8, 2 and 5 bits (3)",
        "fewer reads for the same memory" => AtMost(1.0);
    MEMORY = "bits per key that these filters hold, optimal and uniform",
        "" => Beside("at most 5% more memory, or the row is absent");
    VAIN = "reads in vain over the sum of the filters' false-positive rates, all ten trees (3)",
        "the same" => AtMost(1.1);
}

/// Measures section 3: the cost of gets of absent keys is the sum of the filters' false-positive
/// rates. The optimal allocation makes that sum smaller for the same memory. The first trees have
/// few levels. The others have a level 1 that is small compared with the data, so that the
/// allocation matters.
pub(super) fn run(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let figure = Setting { records: 500_000, ..FIGURE_2 };
    let few = Setting {
        c_permille: 800,
        base_bytes: 10 << 18,
        table_bytes: 2 << 18,
        flush_bytes: 2 << 18,
        ..figure
    };
    let mut vain = Vec::new();
    for bits in [2, 5] {
        let options = options(context, &few, bits, FilterAllocation::Uniform);
        report.compare(&[Side::keyspace("uniform", &options)], &[])?;
        vain.push(vain_reads(context, &few, bits, FilterAllocation::Uniform)?.over_rates());
    }
    let (mut gains, mut memory, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
    for c_permille in [1000, 800] {
        let setting = Setting { c_permille, ..figure };
        for bits in [2, 5] {
            let side = |allocation| {
                let options = options(context, &setting, bits, allocation);
                let name = format!("{allocation:?}").to_lowercase();
                Side::keyspace(&name, &options).apart_by(&format!("filters {name}"))
            };
            let optimal = vain_reads(context, &setting, bits, FilterAllocation::Optimal)?;
            let uniform = vain_reads(context, &setting, bits, FilterAllocation::Uniform)?;
            report
                .compare(&[FilterAllocation::Optimal, FilterAllocation::Uniform].map(side), &[])?;
            vain.extend([optimal.over_rates(), uniform.over_rates()]);
            memory.extend([optimal.bits_per_key, uniform.bits_per_key]);
            let gain = optimal.blocks / uniform.blocks;
            gains.push(gain);
            // Fewer reads would be no gain if they took more memory.
            let is_same_memory = optimal.bits_per_key <= 1.05 * uniform.bits_per_key;
            numbers.push(if is_same_memory { gain } else { f64::NAN });
        }
    }
    report.judge(OPTIMAL, strokes(&gains, 2), &numbers);
    report.show(MEMORY, strokes(&memory, 2));
    let apart: Vec<f64> = vain.iter().map(|ratio| ratio.max(ratio.recip())).collect();
    report.judge(VAIN.uncounted(), strokes(&vain, 2), &apart);
    Ok(())
}

/// The reads in vain that filters did not prevent.
struct VainReads {
    /// Blocks read per get of an absent key.
    blocks: f64,
    sum_of_rates: f64,
    /// Filter memory of the tree, divided by its keys.
    bits_per_key: f64,
}

impl VainReads {
    fn over_rates(&self) -> f64 {
        self.blocks / self.sum_of_rates
    }
}

fn options(
    context: &Context<'_>,
    setting: &Setting,
    bits: u32,
    filter_allocation: FilterAllocation,
) -> KeyspaceOptions {
    setting
        .options(context)
        .filter_bits_per_key(f64::from(bits))
        .filter_allocation(filter_allocation)
}

/// Gets of absent keys from the tree with filters of `bits` bits per key.
fn vain_reads(
    context: &Context<'_>,
    setting: &Setting,
    bits: u32,
    filter_allocation: FilterAllocation,
) -> Result<VainReads> {
    let c = decimal(setting.c_permille);
    context
        .say(&format!("500,000 entries of 66 bytes, c = {c}, {bits} bits, {filter_allocation:?}"));
    let options = options(context, setting, bits, filter_allocation);
    let mut tree = Loaded::new(options, &setting.data(context))?;
    let before = tree.counters();
    let gets = tree.get_absent(context.scaled(200_000))?;
    let read = tree.counters().blocks_searched - before.blocks_searched;
    let shape = tree.shape();
    let sum = |of: fn(&Table) -> u64| shape.tables().map(|(_, table)| of(table)).sum::<u64>();
    Ok(VainReads {
        blocks: read as f64 / gets as f64,
        sum_of_rates: sum_of_rates(&shape),
        bits_per_key: sum(|table| table.filter_bits) as f64
            / sum(|table| table.entries).max(1) as f64,
    })
}

/// Sum over the tables of p = e^(-bits / keys * ln^2 2), each weighted by the share of the key
/// space that the table's bounds cover; keys are spread evenly over eight bytes. p = 1 without a
/// filter.
fn sum_of_rates(shape: &Shape) -> f64 {
    let number = |key: &[u8]| {
        let head: [u8; 8] = key[..8].try_into().expect("keys have eight bytes or more");
        u64::from_be_bytes(head) as f64
    };
    let rate = |bits: u64, keys: u64| {
        let ln_2 = std::f64::consts::LN_2;
        (-(bits as f64) / keys.max(1) as f64 * ln_2 * ln_2).exp()
    };
    let of = |table: &Table| {
        let share = (number(&table.max_key) - number(&table.min_key)) / 2_f64.powi(64);
        share * rate(table.filter_bits, table.entries)
    };
    shape.tables().map(|(_, table)| of(table)).sum()
}
