//! Measures what the papers measured: each paper's claims are rows of numbers. A paper has one file
//! or folder, and one registry line. Verdicts rest on counters, simulated time and ratios of
//! processor time, and never on the clock of a machine.

use headlines::Headlines;
use runstone_kv::{Error, Result};
use runstone_policy::registry::{nearest, suggest};

mod autumn;
mod context;
mod device_time;
mod engine;
mod hashkv;
mod headlines;
mod kvssd;
mod kvssd_axes;
mod kvssd_beyond;
mod kvssd_lab;
mod kvssd_reckoned;
mod kvssd_runs;
mod log_apart;
mod numbers;
mod page;
mod partitioning;
mod ptierdb;
mod report;
mod sides;
mod simulated;
mod verdict;

pub use context::{Context, Scale};
pub use page::filled;
pub use report::{Figure, Headline, PaperReport, PaperRow};
pub use verdict::Verdict;

/// A paper.
pub struct Paper {
    /// Its name on the command line.
    pub name: &'static str,
    /// One line for help: authors, title, year.
    pub doc: &'static str,
    /// Measures the paper's claims.
    run: fn(&Context<'_>, &mut PaperReport) -> Result<()>,
    headlines: Headlines,
    /// Whether its workloads can have the sizes of [`Scale::T1`].
    has_t1: bool,
    /// Whether it measures counters and simulated time alone, so that others may run beside it.
    pub only_counts: bool,
    /// Whether it draws figures.
    pub has_figures: bool,
}

impl Paper {
    /// Fails, before anything is measured, if the paper does not have the scale or the part.
    pub fn check(&self, scale: Scale, only: Option<String>) -> Result<()> {
        self.measure(&Context::new(scale, &|_| {})?.only(only).checking()).map(drop)
    }

    /// Measures the paper's claims. Fails if the paper does not have the scale or the requested
    /// part.
    pub fn measure(&self, context: &Context<'_>) -> Result<PaperReport> {
        if context.is_t1 && !self.has_t1 {
            let names = PAPERS.iter().filter(|paper| paper.has_t1).map(|paper| paper.name);
            let hint = format!("give a factor; these have it: {}", joined(names));
            return Err(Error::invalid(format!("paper {} has no scale t1", self.name), hint));
        }
        let mut report = PaperReport::new(self.name, context.scale);
        (self.run)(context, &mut report)?;
        report.open_with(self.headlines);
        Ok(report)
    }
}

fn joined(names: impl Iterator<Item = &'static str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// Every paper, in the order of help.
pub static PAPERS: &[Paper] = &[
    Paper {
        name: "autumn",
        doc: "Zhao et al., Autumn: A Scalable Read Optimized LSM-tree based Key-Value Store (2023)",
        run: autumn::run,
        headlines: headlines::AUTUMN,
        has_t1: false,
        only_counts: false,
        has_figures: true,
    },
    Paper {
        name: "hashkv",
        doc: "Chan et al., HashKV: Enabling Efficient Updates in KV Storage via Hashing (2018)",
        run: hashkv::run,
        headlines: headlines::HASHKV,
        has_t1: false,
        only_counts: false,
        has_figures: true,
    },
    Paper {
        name: "kvssd",
        doc: "Wu, Lin and Chang, KVSSD: Close Integration of LSM Trees and Flash Translation Layer",
        run: kvssd::run,
        headlines: headlines::KVSSD,
        has_t1: true,
        only_counts: true,
        has_figures: true,
    },
    Paper {
        name: "kvssd-beyond",
        doc: "Beyond KVSSD: policies on flash; remapping under Garnering and Global-Range",
        run: kvssd_beyond::run,
        headlines: &[],
        has_t1: true,
        only_counts: true,
        has_figures: false,
    },
    Paper {
        name: "partitioning",
        doc: "Mao and Hristidis, Increase Merge Efficiency .. Through Coordinated Partitioning",
        run: partitioning::run,
        headlines: headlines::PARTITIONING,
        has_t1: false,
        only_counts: false,
        has_figures: true,
    },
    Paper {
        name: "ptierdb",
        doc: "Liu and Zhou, PTierDB: Building Better Read-Write Cost Balanced Key-Value Stores",
        run: ptierdb::run,
        headlines: headlines::PTIERDB,
        has_t1: false,
        only_counts: true,
        has_figures: true,
    },
];

/// Finds a paper by its name.
pub fn find(name: &str) -> Result<&'static Paper> {
    PAPERS.iter().find(|paper| paper.name == name).ok_or_else(|| {
        let names: Vec<&'static str> = PAPERS.iter().map(|paper| paper.name).collect();
        let guess = suggest(&nearest(name, &names));
        let choice = format!("choose among: {}, all", joined(names.into_iter()));
        Error::invalid(format!("no paper is named {name:?}{guess}"), choice)
    })
}

#[cfg(test)]
mod tests {
    use super::sides::{BUFFER, COMPRESSION, FILTERS, MEMORY, SEEKS, THREADS, TRIGGER, handicap};
    use super::*;

    /// The second side of each comparison is given a handicap: every paper notices, and stops.
    #[test]
    fn a_handicap_stops_every_paper() {
        for paper in PAPERS.iter().filter(|paper| paper.name != "kvssd-beyond") {
            let of_stores = [BUFFER, COMPRESSION, FILTERS, MEMORY, SEEKS, THREADS, TRIGGER];
            let settings = match paper.name {
                "kvssd" => &["memtable pages", FILTERS, TRIGGER][..],
                _ => &of_stores,
            };
            for setting in settings {
                handicap::SETTING.set(Some(setting));
                let context = Context::new(Scale::Factor(0.001), &|_| {}).expect("a directory");
                let refused = paper.measure(&context).map(drop).expect_err(setting).to_string();
                let what = format!("{}: {setting} is ", paper.name);
                assert!(refused.contains(&what) && refused.contains("handicapped"), "{refused}");
            }
        }
        handicap::SETTING.set(None);
    }

    #[test]
    fn names_are_unique_and_found() {
        for paper in PAPERS {
            assert_eq!(find(paper.name).expect("listed").name, paper.name);
            assert_eq!(PAPERS.iter().filter(|other| other.name == paper.name).count(), 1);
        }
        let error = find("autum").err().expect("unknown");
        assert!(error.to_string().contains("did you mean autumn?"), "{error}");
        assert!(!find("zzzzzz").err().expect("unknown").to_string().contains("did you mean"));
    }
}
