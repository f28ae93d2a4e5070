//! Writes the tables of a flush or a compaction: merges the sources, leaves out the versions that
//! no reader can see, and ends a table where the cutter says.

use std::mem;
use std::sync::Arc;

use runstone_policy::shape::Table;

use crate::cache::{Cache, Reservation};
use crate::callbacks::compaction_filter::FilterDecision;
use crate::callbacks::event::Event;
use crate::catalog::Catalog;
use crate::error::{Error, Result};
use crate::format::block::BEFORE_ALL_VERSIONS;
use crate::format::record::{Place, Pointer, record_bytes};
use crate::jobs::copier::Copier;
use crate::jobs::cutter::Cutter;
use crate::jobs::filtering::Filter;
use crate::jobs::folding::{Below, Chain, Folding};
use crate::jobs::liveness::{Fate, Link, Liveness};
use crate::keys::expiry::expiry_of;
use crate::keys::{Kind, SeqNo, is_operand, is_pointer, kind_of, pack, seq_of};
use crate::metrics::Counter;
use crate::read::merge::MergeIter;
use crate::read::source::Source;
use crate::table::behind::Warmth;
use crate::table::builder::{BUILDER_BYTES, TableBuilder, TableLayout};
use crate::table::iterator::COMPACTION_READ_BYTES;
use crate::table::table_name;
use crate::values::separation::{Separated, Separation};

/// The number of entries between two checks whether the job should stop.
const CANCEL_INTERVAL: u64 = 4096;

/// A job's buffers take no more than this fraction of the budget from other users.
const BUFFERS_FRACTION: u64 = 16;

/// The tables to write.
pub(crate) struct Output<'a> {
    catalog: &'a Catalog,
    layout: TableLayout,
    cutter: Cutter,
    /// The id of the first cell's table if the cells are known beforehand. Otherwise each table
    /// gets a new id.
    first_id: Option<u64>,
    /// Separates values or moves them back into tables; `None` if entries stay as they are.
    pub(crate) separation: Option<Separation>,
    /// Shows entries to the keyspace's compaction filter; `None` if it has none.
    pub(crate) filter: Option<Filter>,
    /// Folds operands; `None` if the keyspace has none.
    pub(crate) folding: Option<Folding>,
    /// How much of each input was in memory; without inputs, the output stays in memory.
    pub(crate) warmth: Vec<Arc<Warmth>>,
}

impl<'a> Output<'a> {
    pub(crate) fn new(catalog: &'a Catalog, layout: TableLayout, cutter: Cutter) -> Output<'a> {
        let (first_id, separation, filter, folding) = (None, None, None, None);
        Output {
            catalog,
            layout,
            cutter,
            first_id,
            separation,
            filter,
            folding,
            warmth: Vec::new(),
        }
    }

    /// Tables of known cells, with consecutive ids from `first_id`. So a table is the same, byte by
    /// byte, whichever thread writes it and when.
    pub(crate) fn of_cells(
        catalog: &'a Catalog,
        layout: TableLayout,
        cutter: Cutter,
        first_id: u64,
    ) -> Output<'a> {
        Output { first_id: Some(first_id), ..Output::new(catalog, layout, cutter) }
    }

    fn create_table(&self) -> Result<(u64, TableBuilder)> {
        let id = match self.first_id {
            Some(first) => first + self.cutter.cell() as u64,
            None => self.catalog.env.new_file(),
        };
        let builder = TableBuilder::create(&self.catalog.tables, id, self.layout.clone())?;
        Ok((id, builder.made_of(&self.warmth)))
    }
}

/// User keys from `lo` (inclusive) to `hi` (exclusive); `None` means no bound.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeyRange<'a> {
    pub(crate) lo: Option<&'a [u8]>,
    pub(crate) hi: Option<&'a [u8]>,
}

/// The result of a flush or of a slice.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub(crate) tables: Vec<Arc<Table>>,
    pub(crate) dropped: u64,
    /// Records of value files that no version points to any more, with their bytes, unless a newer
    /// record of the key shows that they are dead.
    pub(crate) dead: Vec<(Pointer, u32)>,
    /// Records that a compaction filter dropped, with their bytes.
    pub(crate) filtered: Vec<(Pointer, u32)>,
    /// The sequence numbers of range deletes that were dropped.
    pub(crate) range_deletes_left: Vec<SeqNo>,
    /// Separated values, durable but not visible yet.
    pub(crate) separated: Option<Separated>,
}

impl Written {
    /// Joins the results of slices into one.
    pub(crate) fn in_key_order(slices: impl Iterator<Item = Written>) -> Written {
        let mut all = Written::default();
        for one in slices {
            all.tables.extend(one.tables);
            all.dropped += one.dropped;
            all.dead.extend(one.dead);
            all.filtered.extend(one.filtered);
            all.range_deletes_left.extend(one.range_deletes_left);
            all.separated = all.separated.or(one.separated);
        }
        all
    }

    /// Notes a dropped pointer if its group has no newer record of the key after it.
    fn note_dead(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.dead.push(record_of(key, value)?);
        Ok(())
    }
}

/// Writes a range of the merged sources to tables. After an error it removes the tables written so
/// far.
pub(crate) fn write_streams(
    sources: Vec<Source>,
    range: KeyRange<'_>,
    output: Output<'_>,
    live: Liveness,
    cancelled: &dyn Fn() -> Result<()>,
) -> Result<Written> {
    let catalog = output.catalog;
    let _buffers = charge_buffers(&catalog.tables.cache, &sources);
    let mut writing = Writing {
        output,
        live,
        copier: Copier::default(),
        open: None,
        written: Written::default(),
        seen: 0,
        expired: 0,
        folded: 0,
        failed: None,
        passed: Passed::default(),
        last_place: None,
        chain: None,
    };
    let outcome = writing.run(MergeIter::new(sources), range, cancelled);
    writing.tell_of_operands();
    let Writing { output, live, copier, open, mut written, expired, folded, passed, .. } = writing;
    catalog.env.metrics.add_all(&[
        (Counter::blocks_copied, copier.blocks),
        (Counter::block_bytes_copied, copier.bytes),
        (Counter::entries_expired, expired),
        (Counter::operands_folded, folded),
        (Counter::operands_passed, passed.operands),
        (
            Counter::entries_removed_by_filters,
            output.filter.as_ref().map_or(0, |filter| filter.removed),
        ),
        (
            Counter::entries_changed_by_filters,
            output.filter.as_ref().map_or(0, |filter| filter.changed),
        ),
    ]);
    written.range_deletes_left = live.range_deletes_left();
    if let Some((id, builder)) = open {
        drop(builder);
        let _ = catalog.env.storage.remove(&table_name(id));
    }
    let separated = outcome.and_then(|()| output.separation.map(Separation::finish).transpose());
    match separated {
        Ok(separated) => {
            written.separated = separated.flatten();
            Ok(written)
        }
        Err(error) => {
            catalog.discard(&written.tables);
            Err(error)
        }
    }
}

/// Takes the memory of a job's buffers from the budget: what it reads of each run, and the table
/// that it writes. A small budget has them beside it.
fn charge_buffers(cache: &Arc<Cache>, sources: &[Source]) -> Reservation {
    let runs = sources.iter().filter(|source| matches!(source, Source::Run(_))).count() as u64;
    let bytes = runs * COMPACTION_READ_BYTES + BUILDER_BYTES;
    cache.pin(bytes.min(cache.bytes() / BUFFERS_FRACTION))
}

/// The operands that passed unfolded.
#[derive(Debug, Default)]
struct Passed {
    /// The number of chains that they belong to.
    times: u64,
    /// The key of the first of those chains.
    key: Vec<u8>,
    operands: u64,
    bytes: u64,
}

/// The state of one write of tables.
struct Writing<'a> {
    output: Output<'a>,
    live: Liveness,
    copier: Copier,
    open: Option<(u64, TableBuilder)>,
    written: Written,
    /// Entries read so far.
    seen: u64,
    /// Versions that had expired. They were dropped, or turned into tombstones.
    expired: u64,
    /// Operands that became part of a value or of another operand.
    folded: u64,
    /// How often the merge operator failed, and its first error.
    failed: Option<(u64, Error)>,
    /// The operands that passed unfolded because there were too many to hold.
    passed: Passed,
    /// The place of the value of the key's previous version, if that version is a pointer.
    last_place: Option<Place>,
    /// The operands of the key whose base was not found yet.
    chain: Option<Chain>,
}

impl Writing<'_> {
    fn run(
        &mut self,
        mut streams: MergeIter,
        range: KeyRange<'_>,
        cancelled: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        match range.lo {
            Some(lo) => streams.seek(lo, BEFORE_ALL_VERSIONS)?,
            None => streams.seek_to_first()?,
        }
        let mut next_look = CANCEL_INTERVAL;
        while let Some((key, trailer)) = streams.current() {
            if range.hi.is_some_and(|hi| key >= hi) {
                break;
            }
            if self.seen >= next_look {
                cancelled()?;
                next_look = self.seen + CANCEL_INTERVAL;
            }
            if self.live.enter(key) {
                self.end_chain_of_key()?;
                // A range delete may hide all versions of a key.
                self.last_place = None;
                if self.begin_key(&streams, key)? {
                    streams.skip_block()?;
                    continue;
                }
            }
            self.write_version(&streams, key, trailer)?;
            streams.step()?;
        }
        self.end_chain_of_key()?;
        self.close_table()
    }

    /// Begins a new user key: ends the table if the cutter says so. Returns `true` if the block
    /// that begins here was copied whole.
    fn begin_key(&mut self, streams: &MergeIter, key: &[u8]) -> Result<bool> {
        let table_bytes = self.open.as_ref().map_or(0, |(_, builder)| builder.estimated_bytes());
        let Output { cutter, layout, .. } = &mut self.output;
        if cutter.cuts_before(key, layout.prefixer.as_ref(), table_bytes, self.seen) {
            self.close_table()?;
        }
        let Output { cutter, layout, separation, filter, .. } = &self.output;
        let table = self.open.as_ref().map(|(_, builder)| builder);
        if separation.is_some()
            || filter.is_some()
            || !self.copier.finds(streams, cutter, layout, table)?
        {
            return Ok(false);
        }
        let (min_key, max_key, min_seq) = self.copier.bounds();
        if self.live.covers_any(min_key, max_key, min_seq) {
            return Ok(false);
        }
        let builder = opened(&self.output, &mut self.open)?;
        self.copier.copy(streams, builder)?;
        let (last_key, last_trailer, entries) = self.copier.last();
        self.live.pass(last_key, last_trailer);
        self.last_place = self.copier.last_place();
        self.seen += entries;
        Ok(true)
    }

    fn write_version(&mut self, streams: &MergeIter, key: &[u8], trailer: u64) -> Result<()> {
        self.seen += 1;
        let fate = self.live.judge(trailer, streams.value());
        if fate.has_expired {
            return self.expire(key, trailer, streams.value(), fate);
        }
        self.settle(key, trailer, streams.value(), fate)
    }

    /// Writes an expired version as a tombstone.
    #[inline(never)]
    fn expire(&mut self, key: &[u8], trailer: u64, value: &[u8], fate: Fate) -> Result<()> {
        self.expired += 1;
        let is_dead =
            is_pointer(trailer) && !is_behind(self.last_place, Pointer::place_of_entry(value));
        if is_dead && !seeded!(ExpiredValuesLive) {
            self.written.note_dead(key, value)?;
        }
        self.settle(key, pack(seq_of(trailer), Kind::Delete), &[], fate)
    }

    /// Writes or drops a version, as `fate` says.
    fn settle(&mut self, key: &[u8], trailer: u64, value: &[u8], fate: Fate) -> Result<()> {
        let is_apart = is_pointer(trailer);
        let place = if is_apart { Pointer::place_of_entry(value) } else { None };
        let newer = mem::replace(&mut self.last_place, place);
        if self.chain.is_some() {
            if self.link(key, trailer, value, fate)? {
                return Ok(());
            }
        } else if fate.stays && self.begins_chain(trailer) {
            self.chain = Some(Chain::new(key));
            return self.hold(trailer, value);
        }
        if !fate.stays {
            self.written.dropped += 1;
            if is_apart && !is_behind(newer, place) {
                self.written.note_dead(key, value)?;
            }
            return Ok(());
        }
        if let Some(filter) = &mut self.output.filter
            && !fate.is_below_operands
            && self.live.is_of_now(seq_of(trailer))
            && filter.may_see(key, seq_of(trailer))
        {
            return self.filter(key, trailer, value);
        }
        self.add(key, trailer, value).map(drop)
    }

    /// Writes the compaction filter's result for a version that only current readers see.
    #[inline(never)]
    fn filter(&mut self, key: &[u8], trailer: u64, value: &[u8]) -> Result<()> {
        let has_value = Kind::from_u8(kind_of(trailer))
            .is_some_and(|kind| !matches!(kind, Kind::Delete | Kind::RangeDelete | Kind::Merge));
        let decision = match &mut self.output.filter {
            Some(filter) if has_value => {
                filter.decide(&self.output.catalog.env, key, trailer, value)?
            }
            _ => FilterDecision::Keep,
        };
        let seq = seq_of(trailer);
        let newest = match decision {
            FilterDecision::Keep => return self.add(key, trailer, value).map(drop),
            FilterDecision::Remove if self.live.may_go(seq) || seeded!(FilterUncoversOlder) => {
                self.written.dropped += 1;
                None
            }
            FilterDecision::Remove => self.add(key, pack(seq, Kind::Delete), &[])?,
            FilterDecision::Change(mut new) => match expiry_of(trailer, value) {
                Some(_) if seeded!(FilterForgetsExpiry) => {
                    self.add(key, pack(seq, Kind::Put), &new)?
                }
                None => self.add(key, pack(seq, Kind::Put), &new)?,
                Some(at_ms) => {
                    new.extend_from_slice(&at_ms.to_le_bytes());
                    self.add(key, pack(seq, Kind::ExpiringPut), &new)?
                }
            },
        };
        let place = mem::replace(&mut self.last_place, newest);
        if is_pointer(trailer) {
            self.written.filtered.push(record_of(key, value)?);
            if !is_behind(newest, place) {
                self.written.note_dead(key, value)?;
            }
        }
        Ok(())
    }

    /// Adds a version to the open table, and puts its value where the options want it. Returns the
    /// place of the value if it is separated.
    fn add(&mut self, key: &[u8], trailer: u64, value: &[u8]) -> Result<Option<Place>> {
        let builder = opened(&self.output, &mut self.open)?;
        let (trailer, value) = match &mut self.output.separation {
            None => (trailer, value),
            Some(separation) => separation.place(key, trailer, value)?,
        };
        builder.add(key, trailer, value)?;
        Ok(if is_pointer(trailer) { Pointer::place_of_entry(value) } else { None })
    }

    fn begins_chain(&self, trailer: u64) -> bool {
        self.output.folding.is_some() && is_operand(trailer)
    }

    /// Handles a version of the chain's key that is below the chain. Returns whether the version
    /// needs nothing more.
    fn link(&mut self, key: &[u8], trailer: u64, value: &[u8], fate: Fate) -> Result<bool> {
        let version = || (trailer, value.to_vec());
        match fate.link {
            Some(Link::Operand)
                if seeded!(OperandsFoldedOverDeletes) && kind_of(trailer) == Kind::Delete as u8 =>
            {
                return Ok(true);
            }
            Some(Link::Operand) => {
                self.hold(trailer, value)?;
                return Ok(true);
            }
            Some(Link::Base) => self.end_chain(Below::Base(version()))?,
            Some(Link::Deleted) if kind_of(trailer) == Kind::Delete as u8 => {
                self.end_chain(Below::Delete(version()))?;
            }
            Some(Link::Beneath) => {
                let base_bytes = value_bytes(trailer, value)?;
                let is_worth = self.chain.as_ref().is_some_and(|chain| chain.is_worth(base_bytes));
                self.end_chain(if is_worth { Below::Beneath(version()) } else { Below::Unknown })?;
                return Ok(false);
            }
            // The range delete hides this version too, or this version is the delete.
            Some(Link::Deleted) => {
                self.end_chain(Below::Nothing)?;
                return Ok(false);
            }
            None => {
                let beneath = self.chain.as_ref().map(Chain::beneath);
                self.end_chain(Below::Unknown)?;
                if fate.stays && self.begins_chain(trailer) {
                    self.chain = beneath.or_else(|| Some(Chain::new(key)));
                    self.hold(trailer, value)?;
                    return Ok(true);
                }
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Adds an operand to the chain, and keeps the chain within its limit.
    fn hold(&mut self, trailer: u64, operand: &[u8]) -> Result<()> {
        let Some((mut chain, folding)) = self.chain.take().zip(self.output.folding.as_ref()) else {
            return Ok(());
        };
        let passed = if chain.passes {
            vec![(trailer, operand.to_vec())]
        } else {
            chain.push(trailer, operand);
            let had = chain.operands.len();
            let passed = folding.relieve(&mut chain);
            let gone = (had - chain.operands.len() - passed.len()) as u64;
            self.folded += gone;
            self.written.dropped += gone;
            if chain.passes {
                self.passed.times += 1;
                if self.passed.times == 1 {
                    self.passed.key.clone_from(&chain.key);
                }
            }
            passed
        };
        for (trailer, operand) in passed {
            self.passed.operands += 1;
            self.passed.bytes += operand.len() as u64;
            self.add(&chain.key, trailer, &operand)?;
        }
        self.chain = Some(chain);
        Ok(())
    }

    /// Reports operands that were not folded to the listener.
    fn tell_of_operands(&mut self) {
        let Some(folding) = &self.output.folding else { return };
        let (env, keyspace) = (&self.output.catalog.env, folding.keyspace.to_string());
        let limit_bytes = folding.limit_bytes;
        if let Some((times, error)) = self.failed.take() {
            env.emit(|| Event::MergeFailed { keyspace: keyspace.clone(), times, error });
        }
        let Passed { times, operands, bytes, .. } = self.passed;
        if times > 0 {
            let key = mem::take(&mut self.passed.key);
            let told =
                || Event::OperandsPassed { keyspace, times, key, operands, bytes, limit_bytes };
            env.emit(told);
        }
    }

    /// Ends the chain, if there is one, with the last version of its key.
    fn end_chain_of_key(&mut self) -> Result<()> {
        let Some(Chain { key, operands, .. }) = &self.chain else { return Ok(()) };
        let oldest = operands.last().map_or(0, |(trailer, _)| seq_of(*trailer));
        let below = if self.live.is_lowest(key, oldest) { Below::Nothing } else { Below::Unknown };
        self.end_chain(below)
    }

    /// Writes the result of the chain.
    fn end_chain(&mut self, below: Below) -> Result<()> {
        let Some((chain, folding)) = self.chain.take().zip(self.output.folding.clone()) else {
            return Ok(());
        };
        if chain.passes {
            return match below {
                Below::Base((trailer, value)) | Below::Delete((trailer, value)) => {
                    self.add(&chain.key, trailer, &value).map(drop)
                }
                Below::Beneath(_) | Below::Nothing | Below::Unknown => Ok(()),
            };
        }
        let key = chain.key.clone();
        let operands = chain.operands.len();
        let had = operands + usize::from(matches!(below, Below::Base(_)));
        let folded = folding.fold(chain, below)?;
        if let Some(error) = folded.failed {
            self.failed.get_or_insert((0, error)).0 += 1;
        }
        let is_operand = |(trailer, _): &&(u64, Vec<u8>)| is_operand(*trailer);
        self.folded += (operands - folded.versions.iter().filter(is_operand).count()) as u64;
        self.written.dropped += (had - folded.versions.len().min(had)) as u64;
        let mut newest = None;
        for (trailer, value) in folded.versions {
            newest = newest.or(self.add(&key, trailer, &value)?);
        }
        if let Some(dead) = folded.dead
            && !is_behind(newest, Pointer::place_of_entry(&dead))
        {
            self.written.note_dead(&key, &dead)?;
        }
        Ok(())
    }

    fn close_table(&mut self) -> Result<()> {
        let Some((id, builder)) = self.open.take() else { return Ok(()) };
        let table = builder.finish().inspect_err(|_| {
            tracing::debug!(id, "a table was not finished");
        })?;
        let is_above = |last: &Arc<Table>| last.max_key < table.min_key;
        let is_cut = self.written.tables.last().is_none_or(is_above);
        assert!(is_cut, "a table is cut inside the versions of a key (I2)");
        self.written.tables.push(Arc::new(table));
        Ok(())
    }
}

/// The open table, or a new one.
fn opened<'t>(
    output: &Output<'_>,
    open: &'t mut Option<(u64, TableBuilder)>,
) -> Result<&'t mut TableBuilder> {
    let (_, builder) = match open {
        Some(table) => table,
        None => open.insert(output.create_table()?),
    };
    Ok(builder)
}

/// Bytes of the value of a version.
fn value_bytes(trailer: u64, value: &[u8]) -> Result<u64> {
    match is_pointer(trailer) {
        true => Ok(u64::from(Pointer::of_entry(value)?.value_bytes)),
        false => Ok(value.len() as u64),
    }
}

/// The record that an entry points to, with its bytes.
fn record_of(key: &[u8], entry: &[u8]) -> Result<(Pointer, u32)> {
    let pointer = Pointer::of_entry(entry)?;
    let bytes = record_bytes(key.len(), pointer.value_bytes as usize);
    Ok((pointer, u32::try_from(bytes).unwrap_or(u32::MAX)))
}

/// Whether the newer version has its record in the same file after the record that is dropped. If
/// so, the group itself shows that the dropped record is dead. In all other cases nothing shows it:
/// the newer version has no record, or one in another file, or one before it, whose segment may be
/// rewritten without the segment of the dropped record. The dropped version is never the newest of
/// its key.
///
/// One of the two records may be in the cold stream, if pointers are written back. Then the group
/// shows it too: it has a tag of the one and the record of the other, and whole groups are
/// rewritten. Noting a record as dead would be wrong even if both records are of the same version:
/// the note would mean that the version is dead in all places.
fn is_behind(newer: Option<Place>, dropped: Option<Place>) -> bool {
    newer.zip(dropped).is_some_and(|(newer, own)| {
        let is_elsewhere = newer.group != own.group && !seeded!(PlacesComparedAcrossStreams);
        newer.store == own.store && (is_elsewhere || newer.stream_offset > own.stream_offset)
    })
}
