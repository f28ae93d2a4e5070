//! One key with thousands of operands of 1 KB in several tables, by an operator that folds none of
//! them without the base. What a store makes of them at a read or a compaction is its own affair.

use super::{Bench, Figures, Lap, megabytes};
use crate::Result;
use crate::disk::allocated_bytes;
use crate::extras::Appending;

const OPERANDS: u64 = 16_000;
const OPERAND_BYTES: usize = 1_000;
const TABLES: u64 = 4;
const KEY: &[u8] = b"chain";

pub fn run(bench: &Bench<'_>) -> Result<Figures> {
    let mut figures = Figures::default();
    let Some(open) = bench.peer.open_appending else { return Ok(figures) };
    let opened = open(&bench.path.join("store"), bench.setup)?;
    let appending = opened.as_ref();
    let store = appending.store();
    let operands = bench.scaled(OPERANDS);
    let (_, lap) = Lap::of(|| {
        for number in 1..=operands {
            appending.append(KEY, &[number as u8; OPERAND_BYTES])?;
            if number.is_multiple_of((operands / TABLES).max(1)) {
                store.flush()?;
            }
        }
        Ok(())
    })?;
    figures.took("append and flush", &lap);
    for what in ["first get", "second get"] {
        figures.took(what, &get(bench, appending, operands)?);
    }
    let compact = || {
        store.compact()?;
        Ok(store.wait_idle()?)
    };
    figures.took("compact", &Lap::of(compact)?.1);
    figures.took("get after it", &get(bench, appending, operands)?);
    figures.add("disk at the end, MB", megabytes(allocated_bytes(bench.path)?));
    Ok(figures)
}

fn get(bench: &Bench<'_>, appending: &dyn Appending, operands: u64) -> Result<Lap> {
    let (value, lap) = Lap::of(|| Ok(appending.store().get(KEY)?))?;
    let whole = operands as usize * OPERAND_BYTES;
    if value.is_none_or(|value| value.len() != whole || value[whole - 1] != operands as u8) {
        return bench.fault("operands are lost");
    }
    Ok(lap)
}
