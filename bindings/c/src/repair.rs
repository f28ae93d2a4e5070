//! Repairs, which make a new store from the data of a damaged one.

use std::ffi::c_char;

use runstone::{Doubt, RepairOptions, RepairReport, Store};
use serde_json::{Value, json};

use runstone_boundary::pointers::Kept;

use crate::bytes::{Place, runstone_bytes, text};
use crate::handles::runstone_options;
use crate::status::{answer, runstone_status};

/// The result of a repair.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct runstone_repaired {
    /// Whether the store was found healthy. Then nothing was done, and there is no new store.
    pub is_healthy: bool,
    /// Tables read, including damaged ones.
    pub tables: u64,
    /// How many of these tables the new store has unchanged. A link shares the file with the
    /// damaged store.
    pub carried_tables: u64,
    /// Records of the log that were used.
    pub log_records: u64,
    /// Entries of the new store.
    pub entries: u64,
    /// Bytes of its tables.
    pub bytes: u64,
    /// The largest sequence number that the repair found. Later writes are lost.
    pub last_seq: u64,
    /// How many files, or parts of them, are damaged or missing.
    pub lost: u64,
    /// How many ranges of keys may be wrong. 0 means that every key of the new store is right and
    /// none is missing.
    pub doubts: u64,
}

/// Makes a new store in `to` from the data of the damaged one in `from`. `from` is only read; `to`
/// must be new or empty. Every key of the new store is right, or the report lists it as a doubt. A
/// healthy store is left alone.
///
/// `options` are those with which the application opens the store, because of their merge
/// operators; null if it uses none. With `lost_log`, the repair also restores writes that an
/// earlier open put aside in `lost-NNNNNN.wal`, for keys that were not written since.
///
/// `repaired` and `report` may be null. `report` gets a JSON object: `basis` (`manifest`,
/// `part-of-manifest` or `tables`), `keyspaces`, `lost` (`file` and `what`), `notes`, and `doubts`.
/// Each doubt has a `keyspace` (null: all), `from_hex` and `to_hex` (its first and last key as
/// hexadecimal digits; a null `to_hex` means that there is no last key), `numbers` (null, or the
/// first and last number of the writes), a `reason` (`may-be-old`, `may-be-back`, `value-lost`,
/// `operands-may-repeat` or `from-lost-log`) and a text `what`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_repair(
    from: *const c_char,
    to: *const c_char,
    options: *const runstone_options,
    lost_log: bool,
    repaired: *mut runstone_repaired,
    report: *mut runstone_bytes,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises a valid place.
        let report = unsafe { (!report.is_null()).then(|| Place::empty("report", report)) };
        let report = report.transpose()?;
        // SAFETY: the caller promises valid strings.
        let (from, to) = unsafe { (text("from", from)?, text("to", to)?) };
        let store = match runstone_options::get_some(options)? {
            Some(options) => options.lock()?.to_repair(),
            None => runstone::Options::default(),
        };
        let found =
            Store::repair(from, to, RepairOptions::default().store(store).lost_log(lost_log));
        let found = found?;
        if !repaired.is_null() {
            // SAFETY: the caller promises a valid place.
            unsafe { Place::new("repaired", repaired) }?.set(counts(&found));
        }
        if let Some(place) = report {
            place.set(runstone_bytes::of_text(to_json(&found).to_string()));
        }
        Ok(())
    })
}

fn counts(report: &RepairReport) -> runstone_repaired {
    runstone_repaired {
        is_healthy: report.is_healthy,
        tables: report.tables,
        carried_tables: report.carried_tables,
        log_records: report.log_records,
        entries: report.entries,
        bytes: report.bytes,
        last_seq: report.last_seq,
        lost: report.lost.len() as u64,
        doubts: report.doubts.len() as u64,
    }
}

fn to_json(report: &RepairReport) -> Value {
    let hex = |key: &[u8]| key.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let doubt = |doubt: &Doubt| {
        json!({
            "keyspace": doubt.keyspace,
            "from_hex": hex(&doubt.from),
            "to_hex": doubt.to.as_deref().map(hex),
            "numbers": doubt.numbers,
            "reason": doubt.reason,
            "what": doubt.what,
        })
    };
    json!({
        "basis": report.basis,
        "keyspaces": report.keyspaces,
        "lost": report.lost,
        "doubts": report.doubts.iter().map(doubt).collect::<Vec<_>>(),
        "notes": report.notes,
    })
}
