//! Encodes the rest of a plan that is installed part by part, and the trims of its inputs.
//! `runstone_policy::parts` explains them.
//!
//! ```text
//! trims   := count | (table id | key)*          a key per table, see the tags in `record`
//! plan    := 0 | 1 moves compactions cursors why
//! moves   := count | (table id | from level | to level | slot | run)*
//! compactions  := count | (inputs | output level | slot | run | cut)*
//! inputs  := count | (level | count | table id*)*
//! cut     := 0 bytes | 1 split bytes, cap bytes | 2 partitioner, bytes
//! ```
//!
//! Numbers are varints; slots are encoded as in an edit. A plan with a new last level or with
//! relabels is never stored.

use std::sync::Arc;

use runstone_policy::partition::{PARTITIONERS, Partitioner};
use runstone_policy::plan::{Compaction, CompactionInput, Cut, Move, Plan};
use runstone_policy::shape::TableId;

use crate::keys::codec::{Decoded, Reader, Truncated, put_bytes, put_varint, take_list, take_u32};
use crate::tree::record::{put_slot, take_cursor, take_slot, take_string};

/// Appends trims.
pub(super) fn put_trims<'a>(
    out: &mut Vec<u8>,
    trims: impl ExactSizeIterator<Item = (TableId, &'a [u8])>,
) {
    put_varint(out, trims.len() as u64);
    for (id, key) in trims {
        put_varint(out, id);
        put_bytes(out, key);
    }
}

/// Decodes trims.
pub(super) fn take_trims(reader: &mut Reader<'_>) -> Decoded<Vec<(TableId, Box<[u8]>)>> {
    take_list(reader, |reader| Ok((reader.take_varint()?, reader.take_bytes()?.into())))
}

/// Appends a plan, or a zero if there is none.
pub(super) fn put_plan(out: &mut Vec<u8>, plan: Option<&Plan>) {
    let Some(plan) = plan else { return put_varint(out, 0) };
    put_varint(out, 1);
    put_varint(out, plan.moves.len() as u64);
    for step in &plan.moves {
        put_varint(out, step.table);
        put_varint(out, u64::from(step.from_level));
        put_varint(out, u64::from(step.to_level));
        put_slot(out, step.slot);
    }
    put_varint(out, plan.compactions.len() as u64);
    for compaction in &plan.compactions {
        put_varint(out, compaction.inputs.len() as u64);
        for input in &compaction.inputs {
            put_varint(out, u64::from(input.level));
            put_varint(out, input.tables.len() as u64);
            input.tables.iter().for_each(|id| put_varint(out, *id));
        }
        put_varint(out, u64::from(compaction.output_level));
        put_slot(out, compaction.slot);
        put_cut(out, compaction.cut);
    }
    put_varint(out, plan.cursors.len() as u64);
    for (level, key) in &plan.cursors {
        put_varint(out, u64::from(*level));
        put_bytes(out, key);
    }
    put_bytes(out, plan.why.as_bytes());
}

/// Decodes a plan.
pub(super) fn take_plan(reader: &mut Reader<'_>) -> Decoded<Option<Arc<Plan>>> {
    match reader.take_varint()? {
        0 => return Ok(None),
        1 => {}
        _ => return Err(Truncated),
    }
    let moves = take_list(reader, |reader| {
        let (table, levels) = (reader.take_varint()?, (take_u32(reader)?, take_u32(reader)?));
        Ok(Move::new(table, levels, take_slot(reader)?))
    })?;
    let compactions = take_list(reader, |reader| {
        let inputs = take_list(reader, take_input)?;
        let output = (take_u32(reader)?, take_slot(reader)?);
        Ok(Compaction::new(inputs, output, take_cut(reader)?))
    })?;
    let cursors = take_list(reader, take_cursor)?;
    let mut plan = Plan::new(take_string(reader)?);
    (plan.moves, plan.compactions, plan.cursors) = (moves, compactions, cursors);
    Ok(Some(Arc::new(plan)))
}

fn take_input(reader: &mut Reader<'_>) -> Decoded<CompactionInput> {
    let level = take_u32(reader)?;
    Ok(CompactionInput::new(level, take_list(reader, |reader| reader.take_varint())?))
}

fn put_cut(out: &mut Vec<u8>, cut: Cut) {
    match cut {
        Cut::Size(bytes) => [0, bytes].iter().for_each(|number| put_varint(out, *number)),
        Cut::Prefix { split_bytes, cap_bytes } => {
            [1, split_bytes, cap_bytes].iter().for_each(|number| put_varint(out, *number));
        }
        Cut::Cells { partitioner, table_bytes } => {
            let place = PARTITIONERS.iter().position(|one| *one == partitioner).unwrap_or(0);
            [2, place as u64, table_bytes].iter().for_each(|number| put_varint(out, *number));
        }
    }
}

fn take_cut(reader: &mut Reader<'_>) -> Decoded<Cut> {
    match reader.take_varint()? {
        0 => Ok(Cut::Size(reader.take_varint()?)),
        1 => {
            Ok(Cut::Prefix { split_bytes: reader.take_varint()?, cap_bytes: reader.take_varint()? })
        }
        2 => Ok(Cut::Cells {
            partitioner: take_partitioner(reader)?,
            table_bytes: reader.take_varint()?,
        }),
        _ => Err(Truncated),
    }
}

/// A partitioner by its index in the list, which only grows at its end.
fn take_partitioner(reader: &mut Reader<'_>) -> Decoded<Partitioner> {
    let place = usize::try_from(reader.take_varint()?).map_err(|_| Truncated)?;
    PARTITIONERS.get(place).copied().ok_or(Truncated)
}
