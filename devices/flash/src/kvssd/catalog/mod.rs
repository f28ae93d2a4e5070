//! What is on the flash and where: the tree, the references to pages, the separated values, and the
//! pages that contain all this. It changes in only one way, by [`Catalog::commit`] of a
//! transaction.

mod history;
mod pages;
mod stuck;

use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) use history::History;
pub(super) use pages::{Metas, read_meta, read_metas, read_records};
pub(super) use stuck::{Stuck, mark_stuck};

use super::counters::{Cause, KvSsdCounters};
use super::format::meta_page::TableMeta;
use super::options::{self, Form, KvSsdOptions, Placement};
use super::snapshots::Snapshots;
use super::space::{Space, Stream};
use super::tree::references::References;
use super::tree::{Commit, Node, Tree};
use super::values::{ValueChange, ValueMap};
use crate::error::Result;

/// See the module docs.
pub(super) struct Catalog {
    pub(super) space: Space,
    pub(super) options: KvSsdOptions,
    pub(super) tree: Tree,
    pub(super) references: References,
    pub(super) values: ValueMap,
    pub(super) metas: Metas,
    pub(super) history: History,
    pub(super) snapshots: Snapshots,
    pub(super) stuck: Stuck,
    pub(super) counters: KvSsdCounters,
    /// Pages that are reserved for segments of tables.
    pub(super) reserved_pages: u64,
}

/// A transaction: what its journal page says, and what it does to references and values.
pub(super) struct Transaction {
    pub(super) commit: Commit,
    /// Tables that are removed, with their metadata pages.
    pub(super) removed: Vec<(TableMeta, u32)>,
    /// Tables that are added.
    pub(super) added: Vec<TableMeta>,
    /// Values that move, are added, or lose their pointers.
    pub(super) values: ValueChange,
}

impl Catalog {
    /// An empty tree over this flash.
    pub(super) fn new(space: Space, options: KvSsdOptions) -> Catalog {
        let geometry = space.nand.geometry();
        let bands = options.bands().expect("the options were checked");
        Catalog {
            tree: Tree::new(bands, options::max_key_bytes(&geometry)),
            references: References::new(geometry.block_count, geometry.block_pages),
            values: ValueMap::new(options.group_count(&geometry)),
            metas: Metas::default(),
            history: History::default(),
            snapshots: Snapshots::default(),
            stuck: Stuck::default(),
            counters: KvSsdCounters::default(),
            reserved_pages: 0,
            space,
            options,
        }
    }

    /// A transaction that changes nothing yet.
    pub(super) fn begin(&self) -> Transaction {
        let commit = self.tree.next_commit();
        Transaction { commit, removed: vec![], added: vec![], values: ValueChange::default() }
    }

    /// Runs the steps of a transaction. If a step fails, the pages that the transaction programmed
    /// are garbage.
    pub(super) fn transact<T>(
        &mut self,
        cause: Cause,
        steps: impl FnOnce(&mut Catalog) -> Result<T>,
    ) -> Result<T> {
        self.space.cause = cause;
        let done = steps(self);
        if done.is_err() {
            self.space.give_up();
        }
        done
    }

    /// Writes the metadata page of a new table.
    pub(super) fn add_table(
        &mut self,
        table: TableMeta,
        level: u8,
        transaction: &mut Transaction,
    ) -> Result<()> {
        let commit = &mut transaction.commit;
        let table = TableMeta { id: commit.next_table_id, level, txn: commit.txn, ..table };
        commit.next_table_id += 1;
        commit.added.push(self.metas.write(&mut self.space, &table)?);
        transaction.added.push(table);
        Ok(())
    }

    /// Programs the journal page, which is the only commit point, and applies the commit. A commit
    /// that does not fit a page becomes a checkpoint of the resulting tree, which is also either
    /// whole or absent.
    pub(super) fn commit(&mut self, transaction: Transaction) -> Result<()> {
        let Transaction { commit, removed, added, values } = transaction;
        if self.history.log(&mut self.space, &commit)? {
            self.tree.apply(&commit)?;
        } else {
            let mut tree = self.tree.clone();
            tree.apply(&commit)?;
            self.history.save(&mut self.space, &self.options, &tree)?;
            self.counters.checkpoints += 1;
            self.tree = tree;
        }
        self.values.install(&mut self.space, values);
        added.iter().for_each(|table| self.references.add(table));
        for (table, meta_page) in removed {
            self.drop_references(&table);
            // The metadata page of a table that became a real table is still referenced.
            if self.references.count(meta_page) == 0 {
                self.space.release(meta_page, 1);
            }
        }
        self.space.deep_level = self.deepest_kv_level();
        self.count_reserved();
        Ok(())
    }

    fn drop_references(&mut self, table: &TableMeta) {
        let garbage = self.references.remove(table);
        let sizes: BTreeMap<u32, u16> =
            table.entries.iter().map(|entry| (entry.page, entry.page_count)).collect();
        for page in garbage {
            self.space.release(page, sizes.get(&page).map_or(1, |count| u32::from(*count)));
        }
    }

    /// Saves the tree if enough was committed since the last save.
    pub(super) fn checkpoint_if_due(&mut self) -> Result<()> {
        let interval = self.options.checkpoint_interval(&self.space.nand.geometry());
        let is_due = self.tree.txn - self.history.saved_txn() >= interval;
        if is_due { self.checkpoint() } else { Ok(()) }
    }

    /// Saves the tree.
    pub(super) fn checkpoint(&mut self) -> Result<()> {
        self.history.save(&mut self.space, &self.options, &self.tree)?;
        self.counters.checkpoints += 1;
        Ok(())
    }

    /// Computes the budget of all tables again, because the tree has changed. Under lLSM each table
    /// below level 0 reserves the pages that it lacks to be full. No block is set aside for a
    /// table: its segments are written to the open block, and the budget ensures that there is an
    /// open block.
    pub(super) fn count_reserved(&mut self) {
        let block_pages = self.space.block_pages();
        let open = |node: &Arc<Node>| u64::from(block_pages.saturating_sub(node.charged_pages));
        self.reserved_pages = match self.options.form {
            Form::Append => self.tree.nodes().filter(|node| node.level > 0).map(open).sum(),
            Form::Remap | Form::Delay => 0,
        };
    }

    /// The stream of a level's pages of keys and values.
    pub(super) fn kv_stream(&self, level: u8) -> Stream {
        Stream::Kv(self.kv_level(level))
    }

    /// The deepest level that has a stream of its own.
    pub(super) fn deepest_kv_level(&self) -> u8 {
        self.kv_level(self.tree.level_count().saturating_sub(1).max(1) as u8)
    }

    /// The runs of one policy level become garbage together, so they share a stream. If a policy
    /// finds the runs of another policy, there may be more levels than a device needs. Then the
    /// deep levels share one stream.
    fn kv_level(&self, level: u8) -> u8 {
        const DEEPEST: u8 = 7;
        match self.options.placement {
            Placement::PerLevel => (self.tree.bands.band(level.into()) as u8).min(DEEPEST),
            Placement::Mixed | Placement::PerTable => 0,
        }
    }
}
