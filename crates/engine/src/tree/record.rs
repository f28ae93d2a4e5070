//! Manifest records: the content of an atomic change to the store, and its encoding.
//!
//! ```text
//! record     := synced_to varint | (tag varint | bytes)*
//! tags       1 store: uid u64
//!            2 counters: next file, last seq, log floor, its first seq
//!            3 keyspace: id, name, options TOML   4 dropped keyspace: id
//!            5 edit: keyspace id, flushed seq, shape edit, trims (new smallest keys), plan
//!            6 whole shape: keyspace id, flushed seq, state, levels, trims (files' keys), plan
//!            7 value file: keyspace id, layout        8 value edit: keyspace id, edit
//!            9 value file gone: keyspace id, number   (layout, edit: `values/layout.rs`)
//!            a record without changes is a seal; trims and plans are drawn in `pending`
//!            10 log: synced seq, next keyspace id
//!            11 history: id u64, count, (earlier id u64, last common seq)*, file u64
//!            12 no log: (nothing)
//! table      := id | min key | max key | bytes | entries | tombstones | min seq | max seq
//!               | filter bits | prefix count | prefixes | sketch | range deletes | expiries
//!               (`format/properties.rs`)
//! ```
//!
//! Numbers are varints. A tag that a reader does not know is a newer format. Counts are checked
//! against the bytes that are left before anything is allocated.

use std::sync::Arc;

use runstone_policy::overlapping::OverlappingTables;
use runstone_policy::prefix::PrefixRule;
use runstone_policy::shape::{
    Edit, Level, Placement, PolicyState, Run, RunSlot, SeqNo, Shape, Table,
};
use runstone_policy::sketch::Sketch;

use crate::format::properties::{put_expiries, take_expiries};
use crate::keys::KeyspaceId;
use crate::keys::codec::{
    Decoded, Reader, Truncated, put_bytes, put_varint, take_list, take_number, take_size, take_u32,
};
use crate::tree::history::History;
use crate::tree::pending::{put_plan, put_trims, take_plan, take_trims};
use crate::values::layout::{self, Layout, ValueEdit, put_edit, put_layout};

/// One part of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The identity of the store. It is in the first record of every manifest.
    Store {
        /// Random id.
        uid: u64,
    },
    /// Counters; each replaces the earlier value.
    Counters {
        /// Next file number to use.
        next_file: u64,
        /// No sequence number above this is in a table.
        last_seq: SeqNo,
        /// Log segments below this number are no longer needed.
        log_floor: u64,
        /// Sequence number of the first record of segment `log_floor`.
        log_start_seq: SeqNo,
    },
    /// Bounds on the content of the log. If the log contains less or more, either the log or the
    /// manifest is damaged.
    Log {
        /// Everything up to this sequence number was durable when the record was written.
        synced_seq: SeqNo,
        /// Every keyspace that was ever made has a smaller id.
        next_keyspace: KeyspaceId,
    },
    /// The history that sequence numbers belong to, and the places where it forked from earlier
    /// histories.
    History(History),
    /// Writes do not go to a log.
    NoLog,
    /// A keyspace was made, or its options changed.
    Keyspace {
        /// The id of the keyspace. No other keyspace of the store ever gets it.
        id: KeyspaceId,
        /// The name of the keyspace.
        name: String,
        /// The options of the keyspace as TOML.
        options: String,
    },
    /// A keyspace was dropped, with its tables.
    Dropped {
        /// The id of the keyspace.
        id: KeyspaceId,
    },
    /// The tree of a keyspace changed.
    Edit {
        /// The id of the keyspace.
        id: KeyspaceId,
        /// All its writes up to this sequence number are in tables now.
        flushed_seq: SeqNo,
        /// The change.
        edit: Edit,
    },
    /// The whole tree of a keyspace, at the start of a new manifest.
    Shape {
        /// The id of the keyspace.
        id: KeyspaceId,
        /// All its writes up to this sequence number are in tables.
        flushed_seq: SeqNo,
        /// The tree.
        shape: Shape,
    },
    /// A value file of a keyspace was made, or its whole layout is recorded again.
    ValueFile {
        /// The id of the keyspace.
        id: KeyspaceId,
        /// The file.
        layout: Layout,
    },
    /// A value file changed.
    Values {
        /// The id of the keyspace.
        id: KeyspaceId,
        /// The change.
        edit: ValueEdit,
    },
    /// No table points to a value file any more.
    ValueFileGone {
        /// The id of the keyspace.
        id: KeyspaceId,
        /// The number of the file.
        number: u64,
    },
}

/// Why a record does not decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadRecord {
    /// The bytes do not fit the format.
    Malformed,
    /// The tag is of a newer release.
    Newer,
}

impl From<Truncated> for BadRecord {
    fn from(_: Truncated) -> BadRecord {
        BadRecord::Malformed
    }
}

/// Encodes a record.
pub fn encode(changes: &[Change]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut body = Vec::new();
    for change in changes {
        body.clear();
        let tag = encode_change(change, &mut body);
        put_varint(&mut out, tag);
        put_bytes(&mut out, &body);
    }
    out
}

fn encode_change(change: &Change, out: &mut Vec<u8>) -> u64 {
    match change {
        Change::Store { uid } => {
            put_varint(out, *uid);
            1
        }
        Change::Counters { next_file, last_seq, log_floor, log_start_seq } => {
            for number in [next_file, last_seq, log_floor, log_start_seq] {
                put_varint(out, *number);
            }
            2
        }
        Change::Keyspace { id, name, options } => {
            put_varint(out, u64::from(*id));
            put_bytes(out, name.as_bytes());
            put_bytes(out, options.as_bytes());
            3
        }
        Change::Dropped { id } => {
            put_varint(out, u64::from(*id));
            4
        }
        Change::Edit { id, flushed_seq, edit } => {
            put_varint(out, u64::from(*id));
            put_varint(out, *flushed_seq);
            encode_edit(edit, out);
            5
        }
        Change::Shape { id, flushed_seq, shape } => {
            put_varint(out, u64::from(*id));
            put_varint(out, *flushed_seq);
            encode_shape(shape, out);
            6
        }
        Change::ValueFile { id, layout } => {
            put_varint(out, u64::from(*id));
            put_layout(out, layout);
            7
        }
        Change::Values { id, edit } => {
            put_varint(out, u64::from(*id));
            put_edit(out, edit);
            8
        }
        Change::ValueFileGone { id, number } => {
            put_varint(out, u64::from(*id));
            put_varint(out, *number);
            9
        }
        Change::Log { synced_seq, next_keyspace } => {
            put_varint(out, *synced_seq);
            put_varint(out, u64::from(*next_keyspace));
            10
        }
        Change::History(history) => {
            out.extend(history.id.to_le_bytes());
            put_varint(out, history.forks.len() as u64);
            for (id, last_common) in &history.forks {
                out.extend(id.to_le_bytes());
                put_varint(out, *last_common);
            }
            out.extend(history.file.to_le_bytes());
            11
        }
        Change::NoLog => 12,
    }
}

fn encode_edit(edit: &Edit, out: &mut Vec<u8>) {
    put_varint(out, edit.remove.len() as u64);
    for id in &edit.remove {
        put_varint(out, *id);
    }
    put_varint(out, edit.place.len() as u64);
    for placement in &edit.place {
        put_varint(out, u64::from(placement.level));
        put_slot(out, placement.slot);
        encode_table(&placement.table, out);
    }
    put_varint(out, edit.cursors.len() as u64);
    for (level, key) in &edit.cursors {
        put_varint(out, u64::from(*level));
        put_bytes(out, key);
    }
    put_varint(out, edit.last_level.map_or(0, |level| u64::from(level) + 1));
    put_varint(out, edit.flushes);
    put_varint(out, edit.relabel.len() as u64);
    for (from, to) in &edit.relabel {
        put_varint(out, u64::from(*from));
        put_varint(out, u64::from(*to));
    }
    put_prefix_rule(out, edit.prefix.as_ref());
    put_trims(out, edit.trim.iter().map(|(id, key)| (*id, &**key)));
    put_plan(out, edit.pending.as_deref());
}

pub(super) fn put_slot(out: &mut Vec<u8>, slot: RunSlot) {
    let number = match slot {
        RunSlot::Join(_) => 0,
        RunSlot::New(_) => 1,
        RunSlot::Overlapping => 2,
        RunSlot::Oldest(_) => 3,
    };
    put_varint(out, number);
    put_varint(out, slot.run().unwrap_or(0));
}

/// An empty string means no rule.
fn put_prefix_rule(out: &mut Vec<u8>, rule: Option<&PrefixRule>) {
    put_bytes(out, rule.map(PrefixRule::to_string).unwrap_or_default().as_bytes());
}

fn encode_table(table: &Table, out: &mut Vec<u8>) {
    put_varint(out, table.id);
    put_bytes(out, &table.min_key);
    put_bytes(out, &table.max_key);
    let numbers = [
        table.bytes,
        table.entries,
        table.tombstones,
        table.min_seq,
        table.max_seq,
        table.filter_bits,
        table.prefixes.len() as u64,
    ];
    for number in numbers {
        put_varint(out, number);
    }
    for prefix in &table.prefixes {
        put_bytes(out, prefix);
    }
    put_bytes(out, table.sketch.as_bytes());
    put_varint(out, table.range_deletes);
    put_expiries(out, &table.expiries);
}

fn encode_shape(shape: &Shape, out: &mut Vec<u8>) {
    put_varint(out, shape.state.cursors.len() as u64);
    for (level, key) in &shape.state.cursors {
        put_varint(out, u64::from(*level));
        put_bytes(out, key);
    }
    put_varint(out, u64::from(shape.state.last_level));
    put_varint(out, shape.state.flush_count);
    put_prefix_rule(out, shape.state.prefix.as_ref());
    put_varint(out, shape.levels.len() as u64);
    for level in &shape.levels {
        match level {
            Level::Runs(runs) => {
                put_varint(out, 0);
                put_varint(out, runs.len() as u64);
                for run in runs {
                    put_varint(out, run.id);
                    put_varint(out, run.last_flush);
                    encode_tables(&run.tables, out);
                }
            }
            Level::Overlapping(tables) => {
                put_varint(out, 1);
                encode_tables(tables, out);
            }
        }
    }
    put_trims(out, shape.trims.iter().map(|(id, key)| (*id, &**key)));
    put_plan(out, shape.pending.as_deref());
}

fn encode_tables(tables: &[Arc<Table>], out: &mut Vec<u8>) {
    put_varint(out, tables.len() as u64);
    for table in tables {
        encode_table(table, out);
    }
}

/// Decodes a record.
pub fn decode(bytes: &[u8]) -> Result<Vec<Change>, BadRecord> {
    let mut reader = Reader::new(bytes);
    let mut changes = Vec::new();
    while !reader.is_empty() {
        let tag = reader.take_varint()?;
        let mut body = Reader::new(reader.take_bytes()?);
        changes.push(decode_change(tag, &mut body)?);
        if !body.is_empty() {
            return Err(BadRecord::Malformed);
        }
    }
    Ok(changes)
}

fn decode_change(tag: u64, body: &mut Reader<'_>) -> Result<Change, BadRecord> {
    Ok(match tag {
        1 => Change::Store { uid: body.take_varint()? },
        2 => Change::Counters {
            next_file: take_number(body)?,
            last_seq: take_number(body)?,
            log_floor: take_number(body)?,
            log_start_seq: take_number(body)?,
        },
        3 => Change::Keyspace {
            id: take_u32(body)?,
            name: take_string(body)?,
            options: take_string(body)?,
        },
        4 => Change::Dropped { id: take_u32(body)? },
        5 => Change::Edit {
            id: take_u32(body)?,
            flushed_seq: take_number(body)?,
            edit: take_edit(body)?,
        },
        6 => Change::Shape {
            id: take_u32(body)?,
            flushed_seq: take_number(body)?,
            shape: take_shape(body)?,
        },
        7 => Change::ValueFile { id: take_u32(body)?, layout: layout::take_layout(body)? },
        8 => Change::Values { id: take_u32(body)?, edit: layout::take_edit(body)? },
        9 => Change::ValueFileGone { id: take_u32(body)?, number: body.take_varint()? },
        10 => Change::Log { synced_seq: take_number(body)?, next_keyspace: take_u32(body)? },
        11 => Change::History(History {
            id: body.take_u64()?,
            forks: take_list(body, |body| Ok((body.take_u64()?, take_number(body)?)))?,
            file: body.take_u64()?,
        }),
        12 => Change::NoLog,
        _ => return Err(BadRecord::Newer),
    })
}

pub(super) fn take_string(reader: &mut Reader<'_>) -> Decoded<String> {
    String::from_utf8(reader.take_bytes()?.to_vec()).map_err(|_| Truncated)
}

pub(super) fn take_cursor(reader: &mut Reader<'_>) -> Decoded<(u32, Box<[u8]>)> {
    Ok((take_u32(reader)?, reader.take_bytes()?.into()))
}

fn take_edit(reader: &mut Reader<'_>) -> Decoded<Edit> {
    Ok(Edit {
        remove: take_list(reader, |reader| reader.take_varint())?,
        place: take_list(reader, |reader| {
            let level = take_u32(reader)?;
            let slot = take_slot(reader)?;
            Ok(Placement { level, slot, table: Arc::new(take_table(reader)?) })
        })?,
        cursors: take_list(reader, take_cursor)?,
        last_level: match take_u32(reader)? {
            0 => None,
            level => Some(level - 1),
        },
        flushes: take_size(reader)?,
        relabel: take_list(reader, |reader| Ok((take_u32(reader)?, take_u32(reader)?)))?,
        prefix: take_prefix_rule(reader)?,
        trim: take_trims(reader)?,
        pending: take_plan(reader)?,
    })
}

pub(super) fn take_slot(reader: &mut Reader<'_>) -> Decoded<RunSlot> {
    let (slot, run) = (reader.take_varint()?, take_number(reader)?);
    match slot {
        0 => Ok(RunSlot::Join(run)),
        1 => Ok(RunSlot::New(run)),
        2 => Ok(RunSlot::Overlapping),
        3 => Ok(RunSlot::Oldest(run)),
        _ => Err(Truncated),
    }
}

fn take_prefix_rule(reader: &mut Reader<'_>) -> Decoded<Option<PrefixRule>> {
    match take_string(reader)?.as_str() {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|_| Truncated),
    }
}

fn take_table(reader: &mut Reader<'_>) -> Decoded<Table> {
    Ok(Table {
        id: take_number(reader)?,
        min_key: reader.take_bytes()?.into(),
        max_key: reader.take_bytes()?.into(),
        bytes: take_size(reader)?,
        entries: take_size(reader)?,
        tombstones: take_size(reader)?,
        min_seq: take_number(reader)?,
        max_seq: take_number(reader)?,
        filter_bits: take_size(reader)?,
        prefixes: take_list(reader, |reader| Ok(reader.take_bytes()?.into()))?,
        sketch: Sketch::from_bytes(reader.take_bytes()?).ok_or(Truncated)?,
        range_deletes: take_size(reader)?,
        expiries: take_expiries(reader)?,
    })
}

fn take_shape(reader: &mut Reader<'_>) -> Decoded<Shape> {
    let cursors = take_list(reader, take_cursor)?.into_iter().collect();
    let last_level = take_u32(reader)?;
    let flush_count = take_number(reader)?;
    let prefix = take_prefix_rule(reader)?;
    let table = |reader: &mut Reader<'_>| take_table(reader).map(Arc::new);
    let levels = take_list(reader, |reader| match reader.take_varint()? {
        0 => Ok(Level::Runs(take_list(reader, |reader| {
            let (id, last_flush) = (take_number(reader)?, take_number(reader)?);
            Ok(Run { id, last_flush, tables: take_list(reader, table)? })
        })?)),
        1 => Ok(Level::Overlapping(OverlappingTables::new(take_list(reader, table)?))),
        _ => Err(Truncated),
    })?;
    let state = PolicyState { cursors, last_level, flush_count, prefix };
    let trims = take_trims(reader)?.into_iter().collect();
    Ok(Shape { levels, state, trims, pending: take_plan(reader)? })
}

#[cfg(test)]
mod tests {
    use runstone_policy::partition::Partitioner;
    use runstone_policy::plan::{Compaction, CompactionInput, Cut, Move, Plan};
    use runstone_policy::shape::expiry::Expiries;

    use super::*;

    fn table(id: u64) -> Arc<Table> {
        Arc::new(Table {
            id,
            min_key: (*b"a").into(),
            max_key: (*b"m").into(),
            bytes: 1000 + id,
            entries: 10,
            tombstones: 1,
            min_seq: 5,
            max_seq: 500,
            filter_bits: 512,
            prefixes: vec![(*b"a").into()],
            sketch: Sketch::of_nothing(),
            range_deletes: 0,
            expiries: Expiries::default(),
        })
    }

    fn changes() -> Vec<Change> {
        let edit = Edit {
            remove: vec![1, 2],
            place: vec![
                Placement { level: 1, slot: RunSlot::New(7), table: table(9) },
                Placement { level: 3, slot: RunSlot::Overlapping, table: table(10) },
                Placement { level: 0, slot: RunSlot::Oldest(2), table: table(11) },
            ],
            cursors: vec![(1, (*b"k").into())],
            last_level: Some(0),
            flushes: 1,
            relabel: vec![(2, 3)],
            prefix: Some(PrefixRule::Fixed(8)),
            ..Edit::default()
        };
        let shape = Shape {
            levels: vec![
                Level::Runs(vec![Run { id: 4, last_flush: 76, tables: vec![table(3)] }]),
                Level::Overlapping(OverlappingTables::new(vec![table(5), table(6)])),
            ],
            state: PolicyState {
                cursors: [(2, (*b"c").into())].into(),
                last_level: 2,
                flush_count: 77,
                prefix: Some(PrefixRule::Delimiter((*b"/").into())),
            },
            ..Shape::default()
        };
        let cells = Cut::Cells { partitioner: Partitioner::GlobalRange, table_bytes: 1 << 40 };
        let prefix = Cut::Prefix { split_bytes: 300, cap_bytes: 4000 };
        let compaction = |cut| {
            let inputs = [CompactionInput::new(0, [3, 1 << 30]), CompactionInput::new(1, [5])];
            Compaction::new(inputs, (1, RunSlot::New(7)), cut)
        };
        let mut plan = Plan::new("because").move_table(Move::new(6, (0, 2), RunSlot::Join(9)));
        plan.compactions = [cells, prefix, Cut::Size(7)].map(compaction).to_vec();
        plan.cursors = vec![(3, (*b"c").into())];
        let part = Edit {
            trim: vec![(3, (*b"b").into()), (5, (*b"").into())],
            pending: Some(Arc::new(plan)),
            ..edit.clone()
        };
        let begun = Shape {
            trims: [(3, (*b"a").into())].into(),
            pending: part.pending.clone(),
            ..shape.clone()
        };
        vec![
            Change::Store { uid: u64::MAX },
            Change::Counters { next_file: 11, last_seq: 1 << 55, log_floor: 3, log_start_seq: 9 },
            Change::Keyspace { id: 1, name: "näme".into(), options: "a = 1".into() },
            Change::Dropped { id: 2 },
            Change::Edit { id: 1, flushed_seq: 500, edit },
            Change::Shape { id: 1, flushed_seq: 500, shape },
            Change::Edit { id: 1, flushed_seq: 501, edit: part },
            Change::Shape { id: 1, flushed_seq: 501, shape: begun },
        ]
    }

    /// Changes of tables with range deletes.
    fn changes_of_ranges() -> Vec<Change> {
        let with_ranges = || Arc::new(Table { range_deletes: 2, ..(*table(12)).clone() });
        let place = Placement { level: 0, slot: RunSlot::New(12), table: with_ranges() };
        let edit = Edit { place: vec![place], ..Edit::default() };
        let tables = vec![with_ranges(), table(13)];
        let levels = vec![Level::Overlapping(OverlappingTables::new(tables))];
        let shape = Shape { levels, ..Shape::default() };
        vec![
            Change::Edit { id: 1, flushed_seq: 502, edit },
            Change::Shape { id: 1, flushed_seq: 502, shape },
        ]
    }

    /// Changes of tables with entries that expire.
    fn changes_of_expiries() -> Vec<Change> {
        let expiries = Expiries::even(3, 1 << 40, u64::MAX);
        let table = Arc::new(Table { expiries, ..(*table(14)).clone() });
        let place = Placement { level: 0, slot: RunSlot::New(14), table: Arc::clone(&table) };
        let edit = Edit { place: vec![place], ..Edit::default() };
        let levels = vec![Level::Overlapping(OverlappingTables::new(vec![table]))];
        let shape = Shape { levels, ..Shape::default() };
        vec![
            Change::Edit { id: 1, flushed_seq: 503, edit },
            Change::Shape { id: 1, flushed_seq: 503, shape },
        ]
    }

    #[test]
    fn round_trip_and_every_truncation_is_refused() {
        let all = [changes(), changes_of_ranges(), changes_of_expiries()].concat();
        let bytes = encode(&all);
        assert_eq!(decode(&bytes), Ok(all.clone()));
        let whole: Vec<usize> = (0..=all.len()).map(|n| encode(&all[..n]).len()).collect();
        for cut in 0..bytes.len() {
            assert_eq!(decode(&bytes[..cut]).is_ok(), whole.contains(&cut), "cut at {cut}");
        }
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 0xff;
            let _ = decode(&bad);
        }
        assert_eq!(decode(&[99, 0]), Err(BadRecord::Newer));
    }
}
