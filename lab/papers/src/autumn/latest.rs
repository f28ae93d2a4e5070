//! Why level 1 answers fewer gets of YCSB D here than in the paper, on the trees of section 4.3.
//! The database is smaller than the paper's by a factor of 1024. Sizes that would otherwise stay
//! the same, such as that of the memtable, are divided by this factor too.
//!
//! * *Inserts.* The paper's million operations insert 50,000 records, less than one of its
//!   memtables (65,536): nothing is flushed while they run. Divided by 1024, these are 48 inserts;
//!   the gets between them are enough for a measurement.
//! * *Ages.* YCSB draws how old a record is from a zipfian curve over all records. In the paper a
//!   memtable has 65,536 of 80 million records, here it has 64 of 80 thousand, to which the curve
//!   gives less weight. So ages are also drawn from the curve over as many records as the paper
//!   has, and then divided.
//! * *Level 0.* The mix may begin with none to three runs in level 0; they contain the newest
//!   records, and level 1 answers gets of older ones.

use runstone_kv::Result;
use runstone_workloads::generators::{Latest, Rng, THETA, Zipfian};

use super::{Setting, WHOLE_DATABASE, c_name};
use crate::engine::Loaded;
use crate::numbers::strokes;
use crate::report::{bars_beside, rows};
use crate::verdict::Rule::*;
use crate::{Context, PaperReport};

/// The divisor of the database size.
const DIVISOR: u64 = 1024;
/// The paper's operations, a twentieth of them inserts.
const OPERATIONS: u64 = 1_000_000;
const GETS: u64 = 40_000;

rows! {
    HITS = "YCSB D, level 1 of the gets that tables answer, c = 1 / 0.8 / 0.4, {}, 0 to 3 runs in \
        level 0",
        "9% / 33% / 40%, of which gets is not said: 3.67 and 4.44 times"
        => Beside("beside the judged row of 4.3: all that does not shrink, divided");
}

/// The most runs that wait in level 0: with one more, they are compacted.
const MOST_RUNS: usize = 3;

/// For each number of runs: the share of the gets that level 1 answers, and the KiB in level 1.
type Shares = Vec<[f64; 2]>;

pub(super) fn run(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let cs = [1000, 800, 400];
    let of = |c_permille| Setting { c_permille, ..WHOLE_DATABASE };
    report.compare(&cs.map(|c| of(c).side(context)), &[])?;
    let mut series = Vec::new();
    for (draw, is_divided) in [("ages as YCSB draws", false), ("ages divided", true)] {
        let mut seen: Vec<Shares> = Vec::new();
        for c in cs {
            context.say(&format!("YCSB D, {draw}, {}", c_name(c)));
            seen.push(shares(context, &mut of(c).load(context)?, is_divided)?);
        }
        let mut here = Vec::new();
        for runs in 0..=MOST_RUNS {
            let [column, held] =
                [0, 1].map(|at| seen.iter().map(|shares| shares[runs][at]).collect::<Vec<f64>>());
            let ratios = column[1..].iter().map(|share| share / column[0]);
            let (percent, ratios) = (strokes(&column, 1), strokes(ratios, 2));
            here.push(format!("{percent} %: {ratios}; it holds {} KiB", strokes(&held, 0)));
            series.push(bars_beside(&format!("{draw}, {runs} runs"), column, [9.0, 33.0, 40.0]));
        }
        report.show(HITS.of(&[&draw]), here.join("; "));
    }
    let titles = ["YCSB D: level 1 of the gets that tables answer", "c", "%"];
    report.draw_bars("level-1", titles, ["1", "0.8", "0.4"], series);
    Ok(())
}

fn shares(context: &Context<'_>, tree: &mut Loaded, is_divided: bool) -> Result<Shares> {
    let mut shares = Vec::new();
    for runs in 0..=MOST_RUNS {
        // The memtable of the earlier tree becomes the next run.
        while tree.shape().level(0).runs().len() < runs {
            tree.insert()?;
        }
        let held_kib = tree.shape().level(1).bytes() as f64 / 1024.0;
        shares.push([answered_by_level_1(context, tree, is_divided)?, held_kib]);
    }
    Ok(shares)
}

/// The share that level 1 answers of the gets of the mix that no memtable answers, in percent.
fn answered_by_level_1(context: &Context<'_>, tree: &mut Loaded, is_divided: bool) -> Result<f64> {
    let gets = context.scaled(GETS);
    let inserts = context.scaled(OPERATIONS / 20) / DIVISOR;
    let mut ages = Ages::new(tree.records(), is_divided);
    let mut rng = Rng::new(2);
    let before = tree.counters();
    for get in 0..gets {
        // The inserts are spread evenly.
        if (get + 1) * inserts / gets > get * inserts / gets {
            tree.insert()?;
        }
        let record = ages.record(&mut rng, tree.records());
        let value = tree.store.get(tree.key(record))?;
        assert!(value.is_some(), "record {record} was written");
    }
    let of = tree.counters().since(&before);
    Ok(of.hits_level_1 as f64 * 100.0 / (of.get_hits - of.hits_memtable).max(1) as f64)
}

/// Draws records, the newest most often.
enum Ages {
    Own(Latest),
    /// Draws ages from a curve over more records, and divides them.
    Divided(Zipfian),
}

impl Ages {
    fn new(records: u64, is_divided: bool) -> Ages {
        match is_divided {
            true => Ages::Divided(Zipfian::new(records * DIVISOR, THETA)),
            false => Ages::Own(Latest::new(records)),
        }
    }

    fn record(&mut self, rng: &mut Rng, records: u64) -> u64 {
        match self {
            Ages::Own(latest) => latest.next(rng, records),
            Ages::Divided(curve) => records - 1 - curve.next(rng) / DIVISOR,
        }
    }
}
