//! The records of a source in the order of their keys. Of several records with the same key the
//! last one counts.
//!
//! The whole source is read first. Records that fit in memory together are sorted and written to a
//! file, a *run*, and at the end all runs are merged. A source that fits in memory writes no run.
//!
//! Rejected: the crate `extsort` bounds a run by its number of records, so that large values do not
//! fit in memory, and `ext-sort` bounds it by `deepsize`. With both, each record would need a
//! number so that the last record of a key wins.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use indicatif::ProgressBar;

use super::Record;
use super::directory::Skipped;
use super::source::{Item, Position, Source};
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::scratch::Scratch;

/// Bytes of a run. Records of this size are kept in memory.
pub const RUN_BYTES: usize = 256 << 20;
/// Memory of a record besides its bytes.
const RECORD_BYTES: usize = size_of::<Record>() + 32;
/// Buffer of a run that is written or read.
const BUFFER_BYTES: usize = 256 << 10;
/// Records between two checks for an interruption, and between two updates of the bar.
const LOOK_RECORDS: usize = 1000;

/// See the module docs.
pub struct Sorted {
    source: Box<dyn Source>,
    run_bytes: usize,
    bar: ProgressBar,
    held: Vec<Record>,
    held_bytes: usize,
    /// The files of the runs, and their directory.
    written: Vec<PathBuf>,
    scratch: Option<Scratch>,
    /// Present once the source is read.
    merge: Option<Merge>,
}

impl Sorted {
    /// Sorts a source, with runs of this many bytes. The bar moves while the source is read.
    pub fn new(source: Box<dyn Source>, run_bytes: usize, bar: ProgressBar) -> Sorted {
        Sorted {
            source,
            run_bytes,
            bar,
            held: Vec::new(),
            held_bytes: 0,
            written: Vec::new(),
            scratch: None,
            merge: None,
        }
    }

    fn hold(&mut self, record: Record) -> Result<()> {
        if self.held.len().is_multiple_of(LOOK_RECORDS) {
            interrupt::check().map_err(|interrupted| {
                interrupted.hint("nothing was stored yet: --sort reads the whole source first")
            })?;
            self.bar.set_position(self.source.position().offset_bytes);
        }
        self.held_bytes += record.key.len() + record.value.len() + RECORD_BYTES;
        self.held.push(record);
        if self.held_bytes >= self.run_bytes {
            self.write_run()?;
        }
        Ok(())
    }

    /// Sorts the records in memory, and keeps the last record of each key.
    fn take_held(&mut self) -> Vec<Record> {
        let mut records = std::mem::take(&mut self.held);
        self.held_bytes = 0;
        records.sort_by(|one, two| one.key.cmp(&two.key));
        records.dedup_by(|later, kept| {
            let is_same = later.key == kept.key;
            if is_same {
                std::mem::swap(later, kept);
            }
            is_same
        });
        records
    }

    fn write_run(&mut self) -> Result<()> {
        let records = self.take_held();
        let scratch = match &mut self.scratch {
            Some(scratch) => scratch,
            none => none.insert(Scratch::make("sort")?),
        };
        let path = scratch.path().join(format!("run-{:06}", self.written.len()));
        write_records(&path, &records).map_err(|error| failed(&path, "write", &error))?;
        self.written.push(path);
        Ok(())
    }

    fn begin_merge(&mut self) -> Result<Merge> {
        let mut runs: Vec<Run> = Vec::new();
        for path in &self.written {
            let file = File::open(path).map_err(|error| failed(path, "open", &error))?;
            let reader = BufReader::with_capacity(BUFFER_BYTES, file);
            runs.push(Run::Written { path: path.clone(), reader });
        }
        runs.push(Run::Held(self.take_held().into_iter()));
        let mut merge = Merge { runs, heads: BinaryHeap::new() };
        (0..merge.runs.len()).try_for_each(|run| merge.advance(run))?;
        Ok(merge)
    }
}

impl Source for Sorted {
    /// Malformed records are returned while the source is read, before all others.
    fn next(&mut self) -> Result<Option<Item>> {
        while self.merge.is_none() {
            match self.source.next()? {
                Some(Ok(record)) => self.hold(record)?,
                Some(Err(malformed)) => return Ok(Some(Err(malformed))),
                None => self.merge = Some(self.begin_merge()?),
            }
        }
        let merged = self.merge.as_mut().map_or(Ok(None), Merge::next)?;
        Ok(merged.map(Ok))
    }

    /// The line of a record is not known any more.
    fn place(&self) -> (String, u64) {
        let (file, line) = self.source.place();
        (file, if self.merge.is_some() { 0 } else { line })
    }

    fn position(&self) -> Position {
        self.source.position()
    }

    /// The sorted records are lost when the command ends.
    fn resume(&mut self, _position: &Position) -> Result<bool> {
        Ok(false)
    }

    fn total_bytes(&self) -> u64 {
        self.source.total_bytes()
    }

    fn skipped(&self) -> Skipped {
        self.source.skipped()
    }

    fn escaped(&self) -> u64 {
        self.source.escaped()
    }
}

/// Runs, the oldest first, and the next record of each.
struct Merge {
    runs: Vec<Run>,
    heads: BinaryHeap<Head>,
}

enum Run {
    Written { path: PathBuf, reader: BufReader<File> },
    Held(std::vec::IntoIter<Record>),
}

/// The greatest item of the heap has the least key, and the newest run among equal keys.
#[derive(PartialEq, Eq)]
struct Head {
    record: Record,
    run: usize,
}

impl Ord for Head {
    fn cmp(&self, other: &Head) -> Ordering {
        other.record.key.cmp(&self.record.key).then(self.run.cmp(&other.run))
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Head) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Merge {
    fn advance(&mut self, run: usize) -> Result<()> {
        let record = match &mut self.runs[run] {
            Run::Held(records) => records.next(),
            Run::Written { path, reader } => {
                read_record(reader).map_err(|error| failed(path, "read", &error))?
            }
        };
        self.heads.extend(record.map(|record| Head { record, run }));
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Record>> {
        let Some(newest) = self.heads.pop() else { return Ok(None) };
        self.advance(newest.run)?;
        while let Some(older) =
            self.heads.peek().filter(|head| head.record.key == newest.record.key)
        {
            let run = older.run;
            self.heads.pop();
            self.advance(run)?;
        }
        Ok(Some(newest.record))
    }
}

/// Records as lengths of key and value and the expiry, u64 each, and their bytes. The largest
/// number stands for never; no clock reaches that instant.
fn write_records(path: &Path, records: &[Record]) -> io::Result<()> {
    let mut writer = BufWriter::with_capacity(BUFFER_BYTES, File::create_new(path)?);
    for Record { key, value, expires_ms } in records {
        writer.write_all(&(key.len() as u64).to_le_bytes())?;
        writer.write_all(&(value.len() as u64).to_le_bytes())?;
        writer.write_all(&expires_ms.unwrap_or(u64::MAX).to_le_bytes())?;
        writer.write_all(key)?;
        writer.write_all(value)?;
    }
    writer.flush()
}

fn read_record(reader: &mut BufReader<File>) -> io::Result<Option<Record>> {
    use std::io::BufRead;
    if reader.fill_buf()?.is_empty() {
        return Ok(None);
    }
    let mut numbers = [[0; 8]; 3];
    numbers.iter_mut().try_for_each(|number| reader.read_exact(number))?;
    let [key_bytes, value_bytes, at_ms] = numbers.map(u64::from_le_bytes);
    let [mut key, mut value] = [key_bytes, value_bytes].map(|len| vec![0; len as usize]);
    reader.read_exact(&mut key)?;
    reader.read_exact(&mut value)?;
    Ok(Some(Record { key, value, expires_ms: (at_ms != u64::MAX).then_some(at_ms) }))
}

fn failed(path: &Path, what: &str, error: &io::Error) -> Failure {
    Failure::file(path, what, error).hint("TMPDIR names the directory of sorted runs")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::transfer::Malformed;

    /// Yields items from memory.
    struct Items(std::vec::IntoIter<Item>);

    impl Source for Items {
        fn next(&mut self) -> Result<Option<Item>> {
            Ok(self.0.next())
        }

        fn place(&self) -> (String, u64) {
            ("items".to_string(), 7)
        }

        fn position(&self) -> Position {
            Position::default()
        }

        fn resume(&mut self, _position: &Position) -> Result<bool> {
            Ok(true)
        }

        fn total_bytes(&self) -> u64 {
            0
        }
    }

    #[test]
    fn the_last_of_each_key_comes_in_order_whatever_fits_in_a_run() {
        let mut random = 1u64;
        let mut draw = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            random >> 33
        };
        let record = |key: u64, at: u64| Record {
            key: key.to_string().into_bytes(),
            value: vec![at as u8; (at % 50) as usize],
            expires_ms: at.is_multiple_of(3).then_some(at),
        };
        let records: Vec<Record> = (0..2000).map(|at| record(draw() % 600, at)).collect();
        let expected: BTreeMap<Vec<u8>, Record> =
            records.iter().map(|record| (record.key.clone(), record.clone())).collect();
        for run_bytes in [1, 5_000, 50_000, RUN_BYTES] {
            let mut items: Vec<Item> = records.iter().cloned().map(Ok).collect();
            let what = "no record".to_string();
            items.insert(1000, Err(Malformed { file: "items".to_string(), line: 7, what }));
            let source = Box::new(Items(items.into_iter()));
            let mut sorted = Sorted::new(source, run_bytes, ProgressBar::hidden());
            let first = sorted.next().expect("reads").expect("an item");
            assert!(first.is_err(), "malformed records come first");
            let mut found = Vec::new();
            while let Some(item) = sorted.next().expect("reads") {
                found.push(item.expect("no other is malformed"));
            }
            assert!(found.iter().eq(expected.values()), "runs of {run_bytes} bytes");
            let directory = sorted.scratch.as_ref().map(|scratch| scratch.path().to_path_buf());
            assert_eq!(directory.is_some(), run_bytes < RUN_BYTES);
            drop(sorted);
            assert!(directory.is_none_or(|path| !path.exists()), "runs are removed");
        }
    }
}
