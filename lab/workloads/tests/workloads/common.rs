//! A store made of a BTreeMap, and the counts that every workload must yield on any store.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::RwLock;

use runstone::{Durability, Value};
use runstone_kv::Result;
use runstone_kv::{Direction, KvMetrics, KvStore, KvWrite, Visit};
use runstone_workloads::{BenchReport, BenchSpec, NoProgress, WORKLOADS, run};

/// A map behind a lock. Counts the bytes written.
#[derive(Default)]
pub struct MapStore {
    content: RwLock<Content>,
}

#[derive(Default)]
struct Content {
    map: BTreeMap<Vec<u8>, Vec<u8>>,
    written_bytes: u64,
}

impl KvStore for MapStore {
    fn name(&self) -> String {
        "map".into()
    }

    fn write(&self, writes: &[KvWrite<'_>], _durability: Durability) -> Result<()> {
        let mut locked = self.content.write().expect("no holder panics");
        let Content { map, written_bytes } = &mut *locked;
        for write in writes {
            match *write {
                KvWrite::Put { key, value } => {
                    *written_bytes += (key.len() + value.len()) as u64;
                    map.insert(key.to_vec(), value.to_vec());
                }
                KvWrite::Delete { key } => {
                    *written_bytes += key.len() as u64;
                    map.remove(key);
                }
            }
        }
        Ok(())
    }

    fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        let locked = self.content.read().expect("no holder panics");
        Ok(locked.map.get(key).map(|value| Value::owned(value.as_slice())))
    }

    fn scan(&self, from: Option<&[u8]>, direction: Direction, visit: &mut Visit<'_>) -> Result<()> {
        let locked = self.content.read().expect("no holder panics");
        let bound = from.map_or(Bound::Unbounded, Bound::Included);
        let mut entries: Box<dyn Iterator<Item = (&Vec<u8>, &Vec<u8>)>> = match direction {
            Direction::Forward => Box::new(locked.map.range::<[u8], _>((bound, Bound::Unbounded))),
            Direction::Reverse => {
                Box::new(locked.map.range::<[u8], _>((Bound::Unbounded, bound)).rev())
            }
        };
        entries.all(|(key, value)| visit(key, value));
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn wait_idle(&self) -> Result<()> {
        Ok(())
    }

    fn compact(&self) -> Result<()> {
        Ok(())
    }

    fn metrics(&self) -> Result<KvMetrics> {
        let bytes = self.content.read().expect("no holder panics").written_bytes;
        Ok(KvMetrics { bytes_written: bytes, user_bytes_written: bytes, ..KvMetrics::default() })
    }
}

/// Runs every workload on `store`, which is empty, and checks the counts. The counts depend on the
/// order of the workloads.
pub fn check_all(store: &dyn KvStore, spec: &BenchSpec) {
    let names = [
        "fillseq",
        "overwrite",
        "fillrandom",
        "filluniquerandom",
        "readrandom",
        "readmissing",
        "multireadrandom",
        "readseq",
        "readreverse",
        "seekrandom",
        "readwhilewriting",
        "compact",
        "readseq",
        "deleterandom",
        "readrandom",
        "stats",
        "hotfill",
        "hotscan",
        "shortscan",
        "pop",
        "ycsb-load",
        "ycsb-a",
        "ycsb-b",
        "ycsb-c",
        "ycsb-d",
        "ycsb-e",
        "ycsb-f",
        "bulkload",
    ];
    assert!(WORKLOADS.iter().all(|workload| names.contains(&workload.name)), "all are covered");
    let report = run(store, &names, spec, &NoProgress).expect("no errors");
    assert_eq!(report.benchmarks.len(), names.len());
    for benchmark in &report.benchmarks {
        let expected = match benchmark.name.as_str() {
            "compact" | "stats" => 1,
            _ => spec.num,
        };
        assert_eq!(benchmark.operations, expected, "{}", benchmark.name);
        assert!(benchmark.max_us >= benchmark.p50_us && benchmark.seconds > 0.0);
        assert!(benchmark.line().contains("ops/sec"));
    }
    check_found(&report, spec);
    let payload = (spec.key_bytes + spec.value_bytes) as u64 * spec.num;
    assert_eq!(report.benchmarks[0].mb_per_second > 0.0, payload > 0);
    assert!(report.metrics.live_bytes.expect("counted") > payload, "the YCSB table is there");
}

fn check_found(report: &BenchReport, spec: &BenchSpec) {
    let found = |index: usize| (report.benchmarks[index].lookups, report.benchmarks[index].found);
    assert_eq!(found(4), (spec.num, spec.num), "readrandom on a full store");
    assert_eq!(found(5), (spec.num, 0), "readmissing");
    assert_eq!(found(6), (spec.num, spec.num), "multireadrandom");
    assert_eq!(found(9), (spec.num, spec.num), "seekrandom");
    assert_eq!(found(10), (spec.num, spec.num), "readwhilewriting");
    assert!(report.benchmarks[10].note.contains("writes meanwhile"));
    assert!((spec.num / 5..spec.num / 2).contains(&found(14).1), "37% survive the deletes");
    assert!(report.benchmarks[15].text.as_ref().expect("a text").contains("written in all"));
    assert_eq!(found(17), (spec.num, spec.num), "hotscan");
    let left = found(19);
    assert!(left.0 == spec.num && (1..spec.num).contains(&left.1), "pop: {left:?}");
    for index in 21..27 {
        let (lookups, found) = found(index);
        assert!(lookups > 0 && lookups == found, "{}", report.benchmarks[index].name);
    }
}
