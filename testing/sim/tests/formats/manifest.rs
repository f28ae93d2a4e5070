//! Manifest records: section 6 of docs/formats.md, and the layouts of section 12.

use std::collections::{BTreeMap, BTreeSet};

use super::bytes::{Bytes, at};

/// The state at the end of a manifest.
#[derive(Default)]
pub struct Store {
    pub uid: u64,
    pub log_floor: u64,
    pub log_start_seq: u64,
    pub log_synced_seq: u64,
    pub next_keyspace: u64,
    pub keyspaces: BTreeMap<u64, Keyspace>,
    /// Every tag that occurred.
    pub tags: BTreeSet<u64>,
    /// Tags of the changes that contain a plan.
    pub planned: BTreeSet<u64>,
}

#[derive(Default)]
pub struct Keyspace {
    pub name: String,
    pub options: String,
    pub flushed_seq: u64,
    pub flush_count: u64,
    pub prefix_rule: String,
    /// Tables by id, each with its level and run (none in a level whose tables overlap).
    pub tables: BTreeMap<u64, (u64, Option<u64>, Table)>,
    pub values: BTreeMap<u64, ValueFile>,
}

/// First key, end (empty if there is none) and sequence number.
pub type RangeDelete = (Vec<u8>, Vec<u8>, u64);

#[derive(Clone)]
pub struct Table {
    pub id: u64,
    /// The smallest key that the tree shows of this file.
    pub min_key: Vec<u8>,
    pub max_key: Vec<u8>,
    pub bytes: u64,
    pub entries: u64,
    pub tombstones: u64,
    pub min_seq: u64,
    pub max_seq: u64,
    pub filter_bits: u64,
    pub prefixes: Vec<Vec<u8>>,
    pub sketch: Vec<u8>,
    pub range_deletes: u64,
    pub expiries: Expiries,
    /// The smallest key of the file.
    pub file_min_key: Vec<u8>,
}

pub struct ValueFile {
    pub placement: u64,
    pub slot_bytes: u64,
    pub groups: Vec<Group>,
}

#[derive(Default)]
pub struct Group {
    pub stream_end: u64,
    /// Segments, ordered by `stream_offset`.
    pub segments: Vec<Segment>,
    pub dead: BTreeMap<u64, u64>,
}

#[derive(Clone)]
pub struct Segment {
    pub slot: u64,
    pub slots: u64,
    pub is_collected: bool,
    pub generation: u64,
    pub stream_offset: u64,
    pub bytes: u64,
    pub records: u64,
    pub tags: u64,
    pub cold_bytes: u64,
}

impl Store {
    /// Applies one record, which is at `offset`.
    pub fn apply(&mut self, offset: u64, record: &[u8]) {
        let mut reader = at(record, 0);
        assert!(reader.varint() <= offset, "only what lies before can be synced");
        while !reader.is_empty() {
            let tag = reader.varint();
            let mut body = Bytes(reader.bytes());
            self.change(tag, &mut body);
            assert!(body.is_empty(), "tag {tag}: {} bytes more", body.0.len());
            self.tags.insert(tag);
        }
    }

    fn change(&mut self, tag: u64, body: &mut Bytes<'_>) {
        match tag {
            1 => self.uid = body.varint(),
            2 => {
                let (_next_file, _last_seq) = (body.varint(), body.varint());
                (self.log_floor, self.log_start_seq) = (body.varint(), body.varint());
            }
            3 => {
                let keyspace = self.keyspaces.entry(body.varint()).or_default();
                (keyspace.name, keyspace.options) = (body.text(), body.text());
            }
            4 => drop(self.keyspaces.remove(&body.varint()).expect("is there")),
            5 => {
                let keyspace = self.keyspace(body);
                keyspace.flushed_seq = keyspace.flushed_seq.max(body.varint());
                if keyspace.edit(body) {
                    self.planned.insert(tag);
                }
            }
            6 => {
                let keyspace = self.keyspace(body);
                keyspace.flushed_seq = body.varint();
                if keyspace.shape(body) {
                    self.planned.insert(tag);
                }
            }
            7 => {
                let keyspace = self.keyspace(body);
                let number = body.varint();
                keyspace.values.insert(number, take_layout(body));
            }
            8 => {
                let keyspace = self.keyspace(body);
                let number = body.varint();
                keyspace.values.get_mut(&number).expect("is there").edit(body);
            }
            9 => {
                let keyspace = self.keyspace(body);
                keyspace.values.remove(&body.varint()).expect("is there");
            }
            10 => {
                self.log_synced_seq = self.log_synced_seq.max(body.varint());
                self.next_keyspace = body.varint();
                assert!(self.keyspaces.keys().all(|id| *id < self.next_keyspace));
            }
            11 => {
                let _history = body.u64();
                for _ in 0..body.varint() {
                    let (_earlier, last_common) = (body.u64(), body.varint());
                    assert!(last_common < 1 << 56);
                }
                assert_eq!(body.u64(), 0, "files in memory have no numbers");
            }
            12 => {}
            _ => panic!("tag {tag}"),
        }
    }

    fn keyspace(&mut self, body: &mut Bytes<'_>) -> &mut Keyspace {
        self.keyspaces.get_mut(&body.varint()).expect("is there")
    }
}

impl Keyspace {
    /// Applies an edit. Returns whether a plan remains.
    fn edit(&mut self, body: &mut Bytes<'_>) -> bool {
        let remove = body.list(Bytes::varint);
        let place = body.list(|body| {
            let (level, run) = (body.varint(), take_slot(body));
            (level, run, take_table(body))
        });
        let _cursors = body.list(|body| (body.varint(), body.bytes().to_vec()));
        let _last_level = body.varint();
        self.flush_count += body.varint();
        let relabel = body.list(|body| (body.varint(), body.varint()));
        let rule = body.text();
        // Trims are applied before removals.
        for (id, min_key) in body.list(|body| (body.varint(), body.bytes().to_vec())) {
            let table = &mut self.tables.get_mut(&id).expect("is there").2;
            assert!(table.min_key < min_key && min_key <= table.max_key);
            table.min_key = min_key;
        }
        let has_plan = take_plan(body);
        for id in remove {
            self.tables.remove(&id).expect("is there");
        }
        for (from, to) in relabel {
            assert!(self.tables.values().all(|(level, ..)| *level != to), "{to} is empty");
            let levels = self.tables.values_mut().map(|(level, ..)| level);
            levels.filter(|level| **level == from).for_each(|level| *level = to);
        }
        for (level, run, table) in place {
            assert!(self.tables.insert(table.id, (level, run, table)).is_none());
        }
        assert!(rule.is_empty() || self.prefix_rule.is_empty() || rule == self.prefix_rule);
        if !rule.is_empty() {
            self.prefix_rule = rule;
        }
        has_plan
    }

    /// Applies a shape. Returns whether a plan remains.
    fn shape(&mut self, body: &mut Bytes<'_>) -> bool {
        let _cursors = body.list(|body| (body.varint(), body.bytes().to_vec()));
        let _last_level = body.varint();
        self.flush_count = body.varint();
        self.prefix_rule = body.text();
        self.tables.clear();
        for level in 0..body.varint() {
            let runs = match body.varint() {
                0 => body.list(|body| {
                    let (run, last_flush) = (body.varint(), body.varint());
                    (Some(run), last_flush, body.list(|body| take_table(body)))
                }),
                1 => vec![(None, 0, body.list(|body| take_table(body)))],
                kind => panic!("level of kind {kind}"),
            };
            for (run, last_flush, tables) in runs {
                assert!(last_flush <= self.flush_count);
                for table in tables {
                    assert!(self.tables.insert(table.id, (level, run, table)).is_none());
                }
            }
        }
        for (id, file_min_key) in body.list(|body| (body.varint(), body.bytes().to_vec())) {
            self.tables.get_mut(&id).expect("is there").2.file_min_key = file_min_key;
        }
        take_plan(body)
    }
}

/// Start, end and sequence number.
pub fn take_range_delete(body: &mut Bytes<'_>) -> RangeDelete {
    (body.bytes().to_vec(), body.bytes().to_vec(), body.varint())
}

/// The run; none for a level whose tables overlap.
fn take_slot(body: &mut Bytes<'_>) -> Option<u64> {
    let (slot, run) = (body.varint(), body.varint());
    assert!(slot <= 3 && (slot != 2 || run == 0));
    (slot != 2).then_some(run)
}

fn take_table(body: &mut Bytes<'_>) -> Table {
    let (id, min_key, max_key) = (body.varint(), body.bytes().to_vec(), body.bytes().to_vec());
    Table {
        id,
        file_min_key: min_key.clone(),
        min_key,
        max_key,
        bytes: body.varint(),
        entries: body.varint(),
        tombstones: body.varint(),
        min_seq: body.varint(),
        max_seq: body.varint(),
        filter_bits: body.varint(),
        prefixes: body.list(|body| body.bytes().to_vec()),
        sketch: body.bytes().to_vec(),
        range_deletes: body.varint(),
        expiries: take_expiries(body),
    }
}

/// When the first entry expires, and how many expire by which instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expiries {
    pub first_ms: u64,
    pub steps: Vec<(u64, u64)>,
}

pub fn take_expiries(body: &mut Bytes<'_>) -> Expiries {
    let count = body.varint();
    if count == 0 {
        return Expiries::default();
    }
    let first_ms = body.u64();
    let mut at_ms = first_ms;
    let step = |_| {
        at_ms += body.varint();
        (at_ms, body.varint())
    };
    let steps = (0..count).map(step).collect();
    Expiries { first_ms, steps }
}

/// Takes a plan from the body. Returns whether there is one.
fn take_plan(body: &mut Bytes<'_>) -> bool {
    if body.varint() == 0 {
        return false;
    }
    body.list(|body| (body.varint(), body.varint(), body.varint(), take_slot(body)));
    body.list(|body| {
        body.list(|body| (body.varint(), body.list(Bytes::varint)));
        let (_output_level, _run) = (body.varint(), take_slot(body));
        let numbers = match body.varint() {
            0 => 1,
            1 | 2 => 2,
            cut => panic!("cut {cut}"),
        };
        (0..numbers).for_each(|_| _ = body.varint());
    });
    body.list(|body| (body.varint(), body.bytes().to_vec()));
    body.text();
    true
}

fn take_layout(body: &mut Bytes<'_>) -> ValueFile {
    let (placement, slot_bytes, _retired_at) = (body.varint(), body.varint(), body.varint());
    let groups = body.list(|body| {
        let (stream_end, _live_bytes, _live_keys) = (body.varint(), body.varint(), body.varint());
        take_sketch(body);
        let segments = body.list(take_segment);
        let dead = body.list(|body| (body.varint(), body.varint())).into_iter().collect();
        Group { stream_end, segments, dead }
    });
    assert!((1..=4).contains(&placement));
    ValueFile { placement, slot_bytes, groups }
}

fn take_segment(body: &mut Bytes<'_>) -> Segment {
    let (slot, word) = (body.varint(), body.varint());
    let mut segment = Segment {
        slot,
        slots: word >> 2,
        is_collected: word & 1 == 1,
        generation: body.varint(),
        stream_offset: body.varint(),
        bytes: body.varint(),
        records: body.varint(),
        tags: 0,
        cold_bytes: 0,
    };
    if word & 2 != 0 {
        (segment.tags, segment.cold_bytes) = (body.varint(), body.varint());
        assert!(segment.tags > 0);
    }
    segment
}

/// 256 registers; or a zero and pairs of register and rank.
fn take_sketch(body: &mut Bytes<'_>) {
    let bytes = body.bytes();
    if bytes.len() % 2 == 1 {
        assert_eq!(bytes[0], 0);
    } else {
        assert!(bytes.is_empty() || bytes.len() == 256);
    }
}

impl ValueFile {
    fn edit(&mut self, body: &mut Bytes<'_>) {
        for _ in 0..body.varint() {
            let group = &mut self.groups[body.varint() as usize];
            group.stream_end = group.stream_end.max(body.varint());
            for generation in body.list(Bytes::varint) {
                let at = group.segments.iter().position(|one| one.generation == generation);
                group.segments.remove(at.expect("is there"));
            }
            for segment in body.list(take_segment) {
                group.segments.retain(|one| one.generation != segment.generation);
                group.segments.push(segment);
            }
            group.segments.sort_by_key(|segment| segment.stream_offset);
            group.dead.extend(body.list(|body| (body.varint(), body.varint())));
            for stream_offset in body.list(Bytes::varint) {
                group.dead.remove(&stream_offset);
            }
            take_sketch(body);
            if body.varint() == 1 {
                let (_live_bytes, _live_keys) = (body.varint(), body.varint());
            }
        }
    }
}
