//! Writes the tables of the repaired store: one sorted run for each keyspace, at the place where a
//! bulk load into an empty keyspace would put it.

use std::sync::Arc;

use runstone_policy::policy::load_edit;
use runstone_policy::shape::{Shape, Table};

use crate::error::{Error, Result};
use crate::keys::KeyspaceId;
use crate::options::store::KeyspaceOptions;
use crate::table::builder::{TableBuilder, TableLayout};
use crate::table::handle::TableContext;

/// Where tables are cut, in bytes. The first compactions cut them as the policy wants.
const TABLE_BYTES: u64 = 64 << 20;

/// The tables of a keyspace.
pub(super) struct Output<'a> {
    context: &'a TableContext,
    next_file: &'a mut u64,
    layout: TableLayout,
    builder: Option<TableBuilder>,
    last_key: Vec<u8>,
    tables: Vec<Arc<Table>>,
    pub(super) entries: u64,
}

impl<'a> Output<'a> {
    pub(super) fn new(
        context: &'a TableContext,
        next_file: &'a mut u64,
        keyspace: KeyspaceId,
        options: &KeyspaceOptions,
    ) -> Output<'a> {
        // The deepest level is the one that lasts.
        let layout = TableLayout::of_level(options, &Shape::default(), Shape::MAX_LEVELS - 1);
        let layout = layout.in_keyspace(keyspace);
        let (builder, tables) = (None, Vec::new());
        Output { context, next_file, layout, builder, last_key: Vec::new(), tables, entries: 0 }
    }

    /// Adds an entry. Tables are cut between keys only (I2).
    pub(super) fn add(&mut self, key: &[u8], trailer: u64, value: &[u8]) -> Result<()> {
        let is_full = |table: &TableBuilder| table.estimated_bytes() >= TABLE_BYTES;
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
        self.entries += 1;
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        if let Some(builder) = self.builder.take() {
            self.tables.push(Arc::new(builder.finish()?));
        }
        Ok(())
    }

    /// The tree of these tables, and how many bytes they have.
    pub(super) fn finish(mut self, options: &KeyspaceOptions) -> Result<(Shape, u64, u64)> {
        self.close()?;
        let bytes = self.tables.iter().map(|table| table.bytes).sum();
        let shape = Shape::default();
        let edit = load_edit(&shape, options.compaction_policy()?, &options.shape, &self.tables);
        let shape = shape.into_applied(&edit).map_err(|bad| {
            Error::corruption("the repaired store", 0, format!("tables do not fit: {bad}"))
        })?;
        Ok((shape, bytes, self.entries))
    }
}
