//! Imports into a KVSSD. It has no keyspace for the progress, so an import that was cut short
//! begins again: writing the same records twice changes nothing.

use std::time::Instant;

use runstone::Durability;
use runstone::kv::{KvStore, KvWrite};
use runstone_device::KvSsdStore;
use serde_json::json;

use crate::failure::{Exit, Failure, Result};
use crate::output::{Output, duration, note, rounded, size};
use crate::transfer::source::Source;

/// A batch also ends at this size.
const MOST_BATCH_BYTES: usize = 1 << 20;

/// Writes all records, so many at a time.
pub fn import(
    device: &KvSsdStore,
    source: &mut dyn Source,
    batch_records: u64,
    is_strict: bool,
    durability: Durability,
    output: &Output,
) -> Result<Exit> {
    let bar = output.bytes_bar("import", source.total_bytes());
    let started = Instant::now();
    let (mut records, mut bytes, mut malformed) = (0_u64, 0_u64, 0_u64);
    let mut batch: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let mut batch_bytes = 0;
    loop {
        let next = source.next()?;
        let is_end = next.is_none();
        match next {
            Some(Ok(record)) => {
                records += 1;
                batch_bytes += record.key.len() + record.value.len();
                bytes += (record.key.len() + record.value.len()) as u64;
                batch.push((record.key, record.value));
            }
            Some(Err(wrong)) if is_strict => {
                let hint = "correct it and import again, or leave out --strict";
                return Err(Failure::new(Exit::Different, wrong).hint(hint));
            }
            Some(Err(wrong)) => {
                malformed += 1;
                bar.suspend(|| note(wrong));
            }
            None => {}
        }
        if is_end || batch.len() as u64 >= batch_records || batch_bytes >= MOST_BATCH_BYTES {
            let writes: Vec<KvWrite<'_>> =
                batch.iter().map(|(key, value)| KvWrite::Put { key, value }).collect();
            device.write(&writes, durability)?;
            batch.clear();
            batch_bytes = 0;
            bar.set_position(source.position().offset_bytes);
        }
        if is_end {
            break;
        }
    }
    bar.finish_and_clear();
    let took = started.elapsed();
    match output.is_json {
        true => output.json(&json!({
            "records": records, "bytes": bytes, "malformed": malformed, "complete": true,
            "seconds": rounded(took.as_secs_f64()),
        }))?,
        false => note(format!("{records} records, {}, {}", size(bytes), duration(took))),
    }
    Ok(Exit::Ok)
}
