//! Writes tables of the repaired store: the one sorted run of a merged keyspace, or those few
//! tables of a keyspace that cannot be carried over.

use std::sync::Arc;

use runstone_policy::policy::load_edit;
use runstone_policy::shape::range_delete::RangeDelete;
use runstone_policy::shape::{Shape, Table};

use crate::error::{Error, Result};
use crate::keys::{Kind, compare, pack};
use crate::options::store::KeyspaceOptions;
use crate::table::builder::{TableBuilder, TableLayout};
use crate::table::handle::TableContext;

/// Where tables are cut, in bytes. The first compactions cut them as the policy wants.
const TABLE_BYTES: u64 = 64 << 20;

/// Tables that are being written, in key order.
pub(super) struct Output<'a> {
    context: &'a TableContext,
    next_file: &'a mut u64,
    layout: TableLayout,
    most_bytes: u64,
    /// Range deletes that the tables get in addition to the entries, the next one last.
    range_deletes: Vec<RangeDelete>,
    builder: Option<TableBuilder>,
    last_key: Vec<u8>,
    tables: Vec<Arc<Table>>,
}

impl<'a> Output<'a> {
    pub(super) fn new(
        context: &'a TableContext,
        next_file: &'a mut u64,
        layout: TableLayout,
    ) -> Output<'a> {
        let (most_bytes, range_deletes) = (TABLE_BYTES, Vec::new());
        let (builder, last_key, tables) = (None, Vec::new(), Vec::new());
        Output { context, next_file, layout, most_bytes, range_deletes, builder, last_key, tables }
    }

    /// The same output, except that it never cuts: there is at most one table.
    pub(super) fn in_one_table(self) -> Output<'a> {
        Output { most_bytes: u64::MAX, ..self }
    }

    /// Adds range deletes to the entries that follow.
    pub(super) fn with_range_deletes(self, mut range_deletes: Vec<RangeDelete>) -> Output<'a> {
        let trailer = |range: &RangeDelete| pack(range.seq, Kind::RangeDelete);
        range_deletes
            .sort_by(|one, two| compare(&two.start, trailer(two), &one.start, trailer(one)));
        range_deletes.dedup();
        Output { range_deletes, ..self }
    }

    /// Adds an entry. Tables are cut between keys only (I2).
    pub(super) fn add(&mut self, key: &[u8], trailer: u64, value: &[u8]) -> Result<()> {
        let comes_first = |range: &mut RangeDelete| {
            compare(&range.start, pack(range.seq, Kind::RangeDelete), key, trailer).is_lt()
        };
        while let Some(range) = self.range_deletes.pop_if(comes_first) {
            self.put_range(&range)?;
        }
        self.put(key, trailer, value)
    }

    fn put_range(&mut self, range: &RangeDelete) -> Result<()> {
        let end = range.end.as_deref().unwrap_or_default();
        self.put(&range.start, pack(range.seq, Kind::RangeDelete), end)
    }

    fn put(&mut self, key: &[u8], trailer: u64, value: &[u8]) -> Result<()> {
        let is_full = |table: &TableBuilder| table.estimated_bytes() >= self.most_bytes;
        if self.last_key != key && self.builder.as_ref().is_some_and(is_full) {
            self.close()?;
        }
        let builder = match &mut self.builder {
            Some(builder) => builder,
            None => {
                let id = *self.next_file;
                *self.next_file += 1;
                let made = TableBuilder::create(self.context, id, self.layout.clone())?;
                self.builder.insert(made)
            }
        };
        builder.add(key, trailer, value)?;
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        if let Some(builder) = self.builder.take() {
            self.tables.push(Arc::new(builder.finish()?));
        }
        Ok(())
    }

    /// Returns the tables, which are durable except for their names.
    pub(super) fn finish(mut self) -> Result<Vec<Arc<Table>>> {
        while let Some(range) = self.range_deletes.pop() {
            self.put_range(&range)?;
        }
        self.close()?;
        Ok(self.tables)
    }
}

/// The tree for tables that contain a whole keyspace: they are placed where a bulk load into an
/// empty keyspace would put them.
pub(super) fn tree_of(tables: &[Arc<Table>], options: &KeyspaceOptions) -> Result<Shape> {
    let shape = Shape::default();
    let edit = load_edit(&shape, options.compaction_policy()?, &options.shape, tables);
    shape.into_applied(&edit).map_err(unfit)
}

/// The error for tables that do not fit their tree.
pub(super) fn unfit(bad: impl std::fmt::Display) -> Error {
    Error::corruption("the repaired store", 0, format!("tables do not fit: {bad}"))
}
