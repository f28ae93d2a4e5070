//! One key with thousands of operands of 1 KB in several tables, with an operator that folds none
//! of them without the base. Each store decides whether it folds them at a read or a compaction.

use super::{Bench, Figures, Lap, megabytes};
use crate::Result;
use crate::data::Data;
use crate::disk::allocated_bytes;
use crate::extras::Appending;

const OPERANDS: u64 = 16_000;
const OPERAND_BYTES: usize = 1_000;
/// So few tables that no store compacts level 0 by itself.
const TABLES: u64 = 3;
const KEY: &[u8] = b"chain";

pub fn run(bench: &Bench<'_>) -> Result<Figures> {
    let mut figures = Figures::default();
    let Some(open) = bench.peer.open_appending else { return Ok(figures) };
    let opened = open(&bench.path.join("store"), bench.setup)?;
    let appending = opened.as_ref();
    let store = appending.store();
    let (operands, data) = (bench.scaled(OPERANDS), Data::of_sizes(KEY.len(), OPERAND_BYTES));
    let (_, lap) = Lap::of(|| {
        for table in 0..TABLES {
            for number in operands * table / TABLES..operands * (table + 1) / TABLES {
                appending.append(KEY, data.value(number))?;
            }
            store.flush()?;
        }
        Ok(())
    })?;
    figures.took("append and flush", &lap);
    for what in ["first get", "second get"] {
        figures.took(what, &get(bench, appending, &data, operands)?);
    }
    let compact = || {
        store.compact()?;
        Ok(store.wait_idle()?)
    };
    figures.took("compact", &Lap::of(compact)?.1);
    figures.took("get after it", &get(bench, appending, &data, operands)?);
    figures.add("disk at the end, MB", megabytes(allocated_bytes(bench.path)?));
    Ok(figures)
}

fn get(bench: &Bench<'_>, appending: &dyn Appending, data: &Data, operands: u64) -> Result<Lap> {
    let (value, lap) = Lap::of(|| Ok(appending.store().get(KEY)?))?;
    let Some(value) = value else { return bench.fault("the chain is lost") };
    if !value.chunks(OPERAND_BYTES).eq((0..operands).map(|number| data.value(number))) {
        return bench.fault("operands are lost");
    }
    Ok(lap)
}
