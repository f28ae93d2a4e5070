//! Prints the content of a file of a store without opening the store, for debugging.

pub(crate) mod values;

use std::fmt::Write as _;
use std::sync::Arc;

use runstone_storage::{Category, Storage};

use crate::cache::Cache;
use crate::dump::values::dump_values;
use crate::error::{Error, Result};
use crate::format::properties::Properties;
use crate::keys::codec::Reader;
use crate::keys::expiry::split;
use crate::keys::{Kind, expires, kind_of, seq_of};
use crate::log::{HEADER_BYTES, LogHeader, LogKind, LogReader, Next, number_in};
use crate::table::iterator::{Access, TableIter};
use crate::table::reader::TableReader;
use crate::tree::manifest::CURRENT;
use crate::tree::record::{self, BadRecord};
use crate::wal::batch::take_operation;
use crate::wal::segments::lost_number;

/// Describes a table, value file, log segment, manifest or `CURRENT` as text. If `entries` is set,
/// also describes every entry, record or operation.
pub fn dump_file(storage: &dyn Storage, name: &str, entries: bool) -> Result<String> {
    if let Some(id) = number_in(name, "table") {
        return dump_table(storage, id, entries);
    }
    if number_in(name, "manifest").is_some() {
        return dump_log(storage, name, LogKind::Manifest, dump_manifest_record);
    }
    if number_in(name, "wal").is_some() || lost_number(name).is_some() {
        return dump_log(storage, name, LogKind::Wal, |bytes| dump_wal_record(bytes, entries));
    }
    if let Some(number) = number_in(name, "values") {
        return dump_values(storage, number, entries);
    }
    if name == CURRENT {
        return dump_current(storage);
    }
    Err(Error::invalid(
        format!("{name} is not a table, value file, log segment or manifest"),
        "name a file such as 000012.table, 000013.wal or 000014.manifest",
    ))
}

fn text(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(80)];
    let more = if shown.len() < bytes.len() { "..." } else { "" };
    format!("\"{}\"{more}", shown.escape_ascii())
}

/// The value of an entry, and when it expires.
fn entry(expires: bool, bytes: &[u8]) -> String {
    if !expires {
        return text(bytes);
    }
    let (value, at_ms) = split(bytes);
    format!("{} expires {at_ms} ms after 1970", text(value))
}

/// What a table contains besides puts and deletes. Most tables contain only puts and deletes.
fn features(properties: &Properties, ranges: usize) -> String {
    let mut out = String::new();
    let expiries = &properties.expiries;
    // Writing to a string cannot fail.
    if ranges > 0 {
        let _ = writeln!(out, "range deletes {ranges}");
    }
    if expiries.entries > 0 {
        let (count, first, last) = (expiries.entries, expiries.first_ms, expiries.last_ms);
        let _ = writeln!(out, "expiring {count} from {first} to {last} ms after 1970");
    }
    if properties.is_numbered_later {
        let _ = writeln!(out, "loaded {}: the manifest gives their number", properties.entries);
    }
    out
}

fn dump_table(storage: &dyn Storage, id: u64, entries: bool) -> Result<String> {
    let reader = Arc::new(TableReader::inspect(storage, id, Arc::new(Cache::new(8 << 20)))?);
    let mut out = format!("table {id}\n");
    let p = reader.properties();
    // Writing to a string cannot fail.
    let _ = writeln!(out, "keys {} .. {}", text(&p.min_key), text(&p.max_key));
    let _ = writeln!(
        out,
        "entries {} tombstones {} seq {}..{} user bytes {} blocks {} filter bits {}",
        p.entries, p.tombstones, p.min_seq, p.max_seq, p.user_bytes, p.block_count, p.filter_bits
    );
    out.push_str(&features(p, reader.range_deletes()?.len()));
    for i in 0..reader.partition_count() {
        let partition = reader.partition(i)?;
        let _ = writeln!(
            out,
            "partition {i}: {} blocks, from byte {}, filter {} bytes",
            partition.block_count(),
            partition.block_range(0).map_or(0, |(offset, _)| offset),
            partition.filter.as_ref().map_or(0, |filter| filter.size_bytes())
        );
    }
    if entries {
        let mut iter = TableIter::new(reader, Access::Sequential);
        iter.seek_to_first()?;
        while let Some(cursor) = iter.cursor().filter(|cursor| cursor.valid()) {
            let number = kind_of(cursor.trailer());
            let kind = Kind::from_u8(number)
                .map_or_else(|| format!("kind {number}"), |kind| format!("{kind:?}"));
            let _ = writeln!(
                out,
                "  {} #{} {kind} {}",
                text(cursor.key()),
                seq_of(cursor.trailer()),
                entry(expires(cursor.trailer()), cursor.value())
            );
            iter.next()?;
        }
    }
    Ok(out)
}

/// `CURRENT` is one line: the manifest in use, its length when it was installed, and a checksum of
/// both.
fn dump_current(storage: &dyn Storage) -> Result<String> {
    const MOST_BYTES: u64 = 4096;
    let file = storage.open(CURRENT, Category::Manifest)?;
    let bytes = file.read_vec(0, file.len()?.min(MOST_BYTES) as usize)?;
    Ok(format!("{}\n", bytes.trim_ascii_end().escape_ascii()))
}

fn dump_log(
    storage: &dyn Storage,
    name: &str,
    kind: LogKind,
    describe: impl Fn(&[u8]) -> String,
) -> Result<String> {
    let category = match kind {
        LogKind::Archive => Category::Other,
        LogKind::Wal => Category::Wal,
        LogKind::Manifest => Category::Manifest,
    };
    let file = storage.open(name, category)?;
    let bytes = file.read_vec(0, file.len()?.min(HEADER_BYTES) as usize)?;
    let decoded = LogHeader::decode(&bytes, kind);
    let number = number_in(name, "wal").or(lost_number(name));
    let is_of_another = |header: &LogHeader| Some(header.number) != number;
    if kind == LogKind::Wal
        && (bytes.iter().all(|byte| *byte == 0) || decoded.as_ref().is_ok_and(is_of_another))
    {
        return Ok("prepared for coming records; it holds none\n".to_string());
    }
    if (bytes.len() as u64) < HEADER_BYTES {
        return Err(Error::corruption(name, 0, "shorter than its header"));
    }
    let header = decoded.map_err(|bad| bad.in_file(name))?;
    let mut out = format!("{header:?}\n");
    let mut reader = LogReader::new(file, &header)?;
    loop {
        match reader.next()? {
            Next::Record { offset, bytes } => {
                let _ = writeln!(out, "record at {offset}, {} bytes", bytes.len());
                out.push_str(&describe(&bytes));
            }
            Next::End { offset } => match reader.pass_gap(offset)? {
                Some(next) => {
                    let _ = writeln!(out, "gap from {offset} to {next}: a record is damaged");
                }
                None => {
                    let _ = writeln!(out, "end at {offset}");
                    return Ok(out);
                }
            },
        }
    }
}

fn dump_manifest_record(bytes: &[u8]) -> String {
    let mut reader = Reader::new(bytes);
    let synced_to = reader.take_varint().unwrap_or(0);
    let rest = reader.take(reader.remaining()).unwrap_or(&[]);
    let mut out = format!("  synced before to {synced_to}\n");
    match record::decode(rest) {
        Ok(changes) => changes.iter().for_each(|change| {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "  {change:?}");
        }),
        Err(BadRecord::Newer) => out.push_str("  written by a newer release\n"),
        Err(BadRecord::Malformed) => out.push_str("  does not decode\n"),
    }
    out
}

fn dump_wal_record(bytes: &[u8], entries: bool) -> String {
    let mut reader = Reader::new(bytes);
    let mut number = || reader.take_varint().unwrap_or(0);
    let (first_seq, unsynced, count) = (number(), number(), number());
    let mut out = format!("  seq {first_seq} count {count} unsynced before {unsynced}\n");
    if count == 0 {
        let (manifest, bytes) = (number(), number());
        return out + &format!("  manifest {manifest} was durable to byte {bytes}\n");
    }
    while entries && !reader.is_empty() {
        let Ok(operation) = take_operation(&mut reader) else {
            out.push_str("  operation does not decode\n");
            break;
        };
        let _ = writeln!(
            out,
            "  {:?}{} keyspace {} {} {}",
            operation.kind,
            if operation.is_folded { " (folded by a get)" } else { "" },
            operation.keyspace,
            text(operation.key),
            entry(operation.kind == Kind::ExpiringPut, operation.value)
        );
    }
    out
}
