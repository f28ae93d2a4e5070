//! The parameters of a run: how many, how large, how long. The names and defaults are those of
//! db_bench, if db_bench has them.

use std::time::Duration;

use runstone::{Durability, MAX_KEY_BYTES, MAX_VALUE_BYTES};
use runstone_kv::{Error, Result};

use crate::generators::{KeyCodec, KeyFormat};

/// The largest batch: each thread keeps the keys of a batch, and their places, in memory.
const MOST_BATCH: u64 = 1 << 20;
/// The most threads: each has a buffer of 1 MiB or more for values.
const MOST_THREADS: u64 = 1024;
/// The longest run, more than a century: the clock cannot represent every duration.
const MOST_SECONDS: u64 = 1 << 32;

/// The numbers of a run. Counts are totals that the threads share (db_bench counts per thread).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BenchSpec {
    /// Key numbers are drawn from `0..num`; a filling benchmark does this many writes.
    pub num: u64,
    /// Operations of a reading benchmark; `None`: `num`.
    pub reads: Option<u64>,
    /// Threads that share the operations.
    pub threads: u32,
    /// Size of a value; YCSB's own records would be 1000.
    pub value_bytes: usize,
    /// Size of a key; YCSB keys always take 24.
    pub key_bytes: usize,
    /// How key numbers become keys.
    pub key_format: KeyFormat,
    /// Writes per atomic batch, and keys per multi-get.
    pub batch_size: u64,
    /// Whether every write is synced.
    pub sync: bool,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Ends the benchmarks that draw keys at random after this long instead of by count.
    pub duration: Option<Duration>,
    /// Whether reports carry the latency histogram as text.
    pub histogram: bool,
    /// Entries read after a seek, and the longest scan of YCSB E.
    pub scan_length: u64,
    /// Times one call in this many; 1 times all, at about 50 ns each.
    pub latency_every: u64,
    /// Records that `ycsb-load` writes and the mixes expect; `None`: `num`.
    pub ycsb_records: Option<u64>,
    /// Operations of a YCSB mix; `None`: as many as `reads`.
    pub ycsb_operations: Option<u64>,
    /// Whether a final scan counts the live bytes, so that space amplification is known.
    pub measure_space: bool,
}

impl Default for BenchSpec {
    fn default() -> Self {
        BenchSpec {
            num: 1_000_000,
            reads: None,
            threads: 1,
            value_bytes: 100,
            key_bytes: 16,
            key_format: KeyFormat::Decimal,
            batch_size: 1,
            sync: false,
            seed: 301,
            duration: None,
            histogram: false,
            scan_length: 100,
            latency_every: 1,
            ycsb_records: None,
            ycsb_operations: None,
            measure_space: true,
        }
    }
}

impl BenchSpec {
    /// Refuses numbers that cannot work.
    pub fn check(&self) -> Result<()> {
        let least_one = [
            ("num", self.num),
            ("threads", self.threads.into()),
            ("batch size", self.batch_size),
            ("scan length", self.scan_length),
            ("latency sampling", self.latency_every),
            ("YCSB record count", self.ycsb_records()),
        ];
        if let Some((name, _)) = least_one.iter().find(|(_, value)| *value == 0) {
            return Err(Error::invalid(format!("{name} is 0"), "set it to 1 or more"));
        }
        let most = [
            ("the value size", self.value_bytes as u64, MAX_VALUE_BYTES),
            ("the key size", self.key_bytes as u64, MAX_KEY_BYTES as u64),
            ("the batch size", self.batch_size, MOST_BATCH),
            ("threads", self.threads.into(), MOST_THREADS),
            ("the duration in seconds", self.duration.map_or(0, |d| d.as_secs()), MOST_SECONDS),
        ];
        if let Some((name, value, most)) = most.iter().find(|(_, value, most)| value > most) {
            let what = format!("{name} is {value}; the most is {most}");
            return Err(Error::invalid(what, format!("set it to {most} or less")));
        }
        if self.keys().capacity() < self.num {
            return Err(Error::invalid(
                format!("{} keys do not fit into {} key bytes", self.num, self.key_bytes),
                "use 16 key bytes",
            ));
        }
        Ok(())
    }

    /// Operations of a reading benchmark.
    pub fn reads(&self) -> u64 {
        self.reads.unwrap_or(self.num)
    }

    /// Records of the YCSB table.
    pub fn ycsb_records(&self) -> u64 {
        self.ycsb_records.unwrap_or(self.num)
    }

    /// Operations of a YCSB mix.
    pub fn ycsb_operations(&self) -> u64 {
        self.ycsb_operations.unwrap_or_else(|| self.reads())
    }

    /// How writes are acknowledged.
    pub fn durability(&self) -> Durability {
        match self.sync {
            true => Durability::Sync,
            false => Durability::Buffered,
        }
    }

    /// How keys are made.
    pub fn keys(&self) -> KeyCodec {
        KeyCodec::new(self.key_bytes, self.key_format)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senseless_numbers_are_refused() {
        BenchSpec::default().check().expect("defaults are sound");
        let refused = |spec: BenchSpec| spec.check().expect_err("refused").to_string();
        assert!(refused(BenchSpec { num: 0, ..Default::default() }).contains("num is 0"));
        assert!(refused(BenchSpec { threads: 0, ..Default::default() }).contains("threads"));
        assert!(refused(BenchSpec { key_bytes: 5, ..Default::default() }).contains("do not fit"));
        let large = [
            BenchSpec { value_bytes: 1 << 32, ..Default::default() },
            BenchSpec { key_bytes: 1 << 16, ..Default::default() },
            BenchSpec { batch_size: u64::MAX, ..Default::default() },
            BenchSpec { threads: u32::MAX, ..Default::default() },
            BenchSpec { duration: Some(Duration::MAX), ..Default::default() },
        ];
        for spec in large {
            assert!(refused(spec.clone()).contains("the most is"), "{spec:?}");
        }
        let hashed =
            BenchSpec { key_bytes: 7, key_format: KeyFormat::Hashed, ..Default::default() };
        assert!(refused(hashed).contains("do not fit"));
    }
}
