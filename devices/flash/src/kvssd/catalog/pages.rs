//! The pages of tables on flash: metadata pages and records.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::kvssd::format::kv_page::KvPage;
use crate::kvssd::format::meta_page::{Entry, TableMeta};
use crate::kvssd::format::record::Record;
use crate::kvssd::space::{Owner, Space, Stream};
use crate::kvssd::tree::Node;

/// The number of metadata pages whose content is kept in memory.
const KNOWN_METAS: usize = 4096;

/// The content of the metadata pages that were written or read last, by page. It saves the emulator
/// a read and a decoding per look-up. The device reads the page each time.
#[derive(Debug, Default)]
pub(crate) struct Metas(BTreeMap<u32, Arc<TableMeta>>);

impl Metas {
    /// Reads the metadata page of a table for a get; its content may be in memory already.
    pub(crate) fn read(&mut self, space: &mut Space, node: &Node) -> Result<Arc<TableMeta>> {
        let known = self.0.get(&node.meta_page).filter(|table| table.id == node.id);
        if let Some(table) = known {
            if table.reals.is_empty() {
                space.read_again(node.meta_page)?;
            }
            return Ok(Arc::clone(table));
        }
        let table = Arc::new(read_meta(space, node)?);
        // A device of many gigabytes has fewer tables than this limit. Forgetting all of them is
        // simple, and rarely needed.
        if self.0.len() >= KNOWN_METAS {
            self.0.clear();
        }
        self.0.insert(node.meta_page, Arc::clone(&table));
        Ok(table)
    }

    /// Programs the metadata page of a table and returns its node for the tree.
    pub(crate) fn write(&mut self, space: &mut Space, table: &TableMeta) -> Result<Node> {
        let bytes = table.encode(space.page_bytes()).ok_or(Error::JournalFull)?;
        let owner = Owner { level: table.level, txn: table.txn, id: table.id, index: 0 };
        let meta_page = space.program(Stream::Meta, bytes.into(), owner)?;
        self.0.remove(&meta_page);
        let empty = || Error::Corrupt { what: "table", why: "it has no entries".to_string() };
        Ok(Node {
            id: table.id,
            level: table.level,
            meta_page,
            counter: table.counter,
            charged_pages: table.charged_pages(),
            record_count: table.entries.iter().map(|entry| u64::from(entry.record_count)).sum(),
            tombstones: table.tombstones,
            min_seq: table.min_seq,
            max_seq: table.max_seq,
            fence: table.fence().ok_or_else(empty)?,
        })
    }

    /// Copies a metadata page and returns where the copy is.
    pub(crate) fn copy(&mut self, space: &mut Space, page: u32, owner: Owner) -> Result<u32> {
        let bytes = space.read(page, 1)?;
        let copy = space.program(Stream::Meta, bytes, owner)?;
        self.0.remove(&copy);
        Ok(copy)
    }
}

/// Reads the metadata page of a table.
pub(crate) fn read_meta(space: &mut Space, node: &Node) -> Result<TableMeta> {
    let mut table = TableMeta::decode(&space.read(node.meta_page, 1)?.flat())?;
    for stratum in 0..table.reals.len() {
        let page = table.reals[stratum].page;
        let real = TableMeta::decode(&space.read(page, 1)?.flat())?;
        table.expand(stratum as u8, &real);
    }
    table.sort();
    let wrong = |why: &str| Error::Corrupt { what: "metadata page", why: why.to_string() };
    table.check().map_err(wrong)?;
    if table.id != node.id {
        let why = format!("page {} is of table {}, not {}", node.meta_page, table.id, node.id);
        return Err(Error::Corrupt { what: "metadata page", why });
    }
    Ok(table)
}

pub(crate) fn read_metas(space: &mut Space, nodes: &[Arc<Node>]) -> Result<Vec<TableMeta>> {
    nodes.iter().map(|node| read_meta(space, node)).collect()
}

/// The records of an entry that are inside its clip.
pub(crate) fn read_records(space: &mut Space, entry: &Entry) -> Result<Vec<Record>> {
    let bytes = space.read(entry.page, u32::from(entry.page_count))?;
    let page = KvPage::decode(bytes, space.page_bytes())?;
    Ok(page.records_in(page.inside(&entry.clip)).collect())
}
