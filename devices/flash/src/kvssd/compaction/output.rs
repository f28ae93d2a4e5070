//! Writes the tables of a flush or a compaction.

use std::cell::RefCell;

use runstone_policy::partition::CutKey;

use super::filters::filter_size;
use crate::error::Result;
use crate::kvssd::catalog::{Catalog, Transaction};
use crate::kvssd::format::kv_page::record_bytes;
use crate::kvssd::format::meta_page::{Entry, TableMeta};
use crate::kvssd::format::record::Version;
use crate::kvssd::options::{Form, Placement};
use crate::kvssd::space::{Owner, Space, Stream};
use crate::kvssd::tables::rewrite::Rewriter;
use crate::kvssd::tables::{PageReader, PageWriter};
use crate::nand::SharedBytes;

/// Where new tables belong, and where they are cut.
pub(super) struct Place<'a> {
    pub(super) level: u8,
    pub(super) cuts: &'a [CutKey],
    /// The most pages that a table may have.
    pub(super) fill_pages: u32,
}

/// How many pages of each table a rewrite fills. Under lLSM a quarter stays free for segments: a
/// full table would overflow at the next segment.
pub(super) fn fill_pages(catalog: &Catalog) -> u32 {
    match catalog.options.form {
        Form::Append => (catalog.space.block_pages() * 3 / 4).max(1),
        Form::Remap | Form::Delay => catalog.space.block_pages(),
    }
}

/// Writes new tables, and notes in `made` which pointers were dropped. `write` receives the
/// rewriter that packs them, and the flash to read and write.
pub(super) fn write_tables(
    catalog: &mut Catalog,
    Place { level, cuts, fill_pages }: Place<'_>,
    made: &mut Transaction,
    write: impl FnOnce(
        &Rewriter<'_>,
        &mut dyn PageReader,
        &mut dyn PageWriter,
    ) -> Result<Vec<TableMeta>>,
) -> Result<Vec<TableMeta>> {
    let snapshots = catalog.snapshots.all();
    let (tree, values) = (&catalog.tree, &catalog.values);
    let dropped = RefCell::new(&mut made.values.dropped);
    let on_drop = |key: &[u8], version: &Version| {
        if let Some(len) = version.apart_bytes() {
            let bytes = record_bytes(key.len(), len);
            dropped.borrow_mut().push((values.group_of(key), version.seq, bytes));
        }
    };
    let rewriter = Rewriter {
        snapshots: &snapshots,
        // Level 0 hides deeper levels, and its own older tables.
        is_deeper: &|key| level == 0 || tree.is_below(usize::from(level), key),
        page_bytes: catalog.space.page_bytes(),
        table_pages: fill_pages,
        is_even: catalog.options.form == Form::Append,
        filter: filter_size(catalog, level),
        cuts,
        on_drop: &on_drop,
    };
    let stream = catalog.kv_stream(level);
    let owner = Owner { level, txn: made.commit.txn, id: tree.next_table_id, index: 0 };
    let space = RefCell::new(&mut catalog.space);
    let mut writer = Writing { space: &space, stream, owner };
    let tables = write(&rewriter, &mut Reading(&space), &mut writer)?;
    end_table(catalog, stream);
    Ok(tables)
}

/// Under nLSM the next page belongs to another table and is written to another block.
fn end_table(catalog: &mut Catalog, stream: Stream) {
    if catalog.options.placement == Placement::PerTable {
        catalog.space.seal(stream);
    }
}

/// Lets reads and writes take turns on one flash.
struct Reading<'a, 'b>(&'a RefCell<&'b mut Space>);

impl PageReader for Reading<'_, '_> {
    fn read_pages(&mut self, entry: &Entry) -> Result<SharedBytes> {
        self.0.borrow_mut().read(entry.page, u32::from(entry.page_count))
    }
}

struct Writing<'a, 'b> {
    space: &'a RefCell<&'b mut Space>,
    stream: Stream,
    owner: Owner,
}

impl PageWriter for Writing<'_, '_> {
    fn write_pages(&mut self, bytes: SharedBytes) -> Result<u32> {
        self.space.borrow_mut().program(self.stream, bytes, self.owner)
    }
}
