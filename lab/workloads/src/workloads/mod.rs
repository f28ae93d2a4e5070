//! Every benchmark, one registry line each: the names of db_bench and YCSB.

use runstone_kv::Result;

use crate::bench::{Bench, Tally};

mod bulk;
mod delete;
mod fill;
mod hot;
mod maintenance;
mod pop;
mod read;
mod seek;
mod sequential;
mod while_writing;
mod ycsb;

/// A benchmark.
pub struct Workload {
    /// Its name.
    pub name: &'static str,
    /// One line for help.
    pub doc: &'static str,
    /// Runs it.
    pub run: fn(&Bench<'_>) -> Result<Tally>,
}

const fn workload(
    name: &'static str,
    doc: &'static str,
    run: fn(&Bench<'_>) -> Result<Tally>,
) -> Workload {
    Workload { name, doc, run }
}

/// Every benchmark, in the order of help.
pub static WORKLOADS: &[Workload] = &[
    workload("fillseq", "write num keys in order", fill::sequential),
    workload("bulkload", "write num keys in order, all at once and durable", bulk::load),
    workload("fillrandom", "write num keys drawn at random, some of them twice", fill::random),
    workload("filluniquerandom", "write num keys in random order, each once", fill::unique_random),
    workload("overwrite", "write num keys drawn at random over what is there", fill::random),
    workload("readrandom", "get keys drawn at random among num, present or not", read::random),
    workload("readmissing", "get keys that are next to written ones, but absent", read::missing),
    workload("multireadrandom", "get batch-size random keys per call", read::multi),
    workload("readseq", "scan from the first key on", sequential::forward),
    workload("readreverse", "scan from the last key back", sequential::reverse),
    workload("seekrandom", "seek to a random key and read scan-length entries", seek::random),
    workload("shortscan", "seek to a random key and read ten entries", seek::short),
    workload("hotfill", "write ten keys in turn, num times in all", hot::fill),
    workload("hotscan", "seek to one of those ten keys and read ten entries", hot::scan),
    workload("pop", "take the first key and delete it", pop::first),
    workload("readwhilewriting", "readrandom beside one thread that writes", while_writing::run),
    workload("deleterandom", "delete num keys drawn at random", delete::random),
    workload("compact", "rewrite everything into its smallest form", maintenance::compact),
    workload("stats", "print what the store cost so far", maintenance::stats),
    workload("ycsb-load", "insert the records of the YCSB table", ycsb::load),
    workload("ycsb-a", "50% reads, 50% updates, zipfian", |bench| ycsb::run(bench, &ycsb::A)),
    workload("ycsb-b", "95% reads, 5% updates, zipfian", |bench| ycsb::run(bench, &ycsb::B)),
    workload("ycsb-c", "reads only, zipfian", |bench| ycsb::run(bench, &ycsb::C)),
    workload("ycsb-d", "95% reads of the latest records, 5% inserts", |bench| {
        ycsb::run(bench, &ycsb::D)
    }),
    workload("ycsb-e", "95% scans of 1 to scan-length records, 5% inserts", |bench| {
        ycsb::run(bench, &ycsb::E)
    }),
    workload("ycsb-f", "50% reads, 50% read-modify-writes, zipfian", |bench| {
        ycsb::run(bench, &ycsb::F)
    }),
];
