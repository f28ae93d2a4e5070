//! The pages that contain the tree: checkpoints, and a journal page for each commit since.

use std::collections::VecDeque;

use crate::error::Result;
use crate::kvssd::counters::Cause;
use crate::kvssd::options::KvSsdOptions;
use crate::kvssd::space::{Owner, Space, Stream};
use crate::kvssd::tree::{Commit, Tree, journal};
use crate::nand::PageType;

/// How many checkpoints are kept. If the newest is damaged, the older one and the journal since
/// then give the same tree.
const KEPT_CHECKPOINTS: usize = 2;

/// See the module docs.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// Live journal pages: transaction and page.
    pub(crate) journal: VecDeque<(u64, u32)>,
    /// Live checkpoints: transaction and pages.
    pub(crate) checkpoints: VecDeque<(u64, Vec<u32>)>,
    /// Largest number of a checkpoint ever used.
    pub(crate) last_number: u64,
    /// The size from which the options of the newest checkpoint separate values. A flush with other
    /// options first saves its options, so that an open without options continues with them.
    pub(crate) apart_from: Option<usize>,
}

impl History {
    /// Programs the journal page of a commit. Returns `false` if the commit does not fit a page.
    pub(crate) fn log(&mut self, space: &mut Space, commit: &Commit) -> Result<bool> {
        let Some(bytes) = journal::encode_commit(commit, space.page_bytes()) else {
            return Ok(false);
        };
        let owner = Owner { txn: commit.txn, ..Owner::default() };
        let page = space.program(Stream::Journal, bytes.into(), owner)?;
        space.keep();
        self.journal.push_back((commit.txn, page));
        Ok(true)
    }

    /// Saves the tree. All older checkpoints but one become garbage, and so does the journal before
    /// that one.
    pub(crate) fn save(
        &mut self,
        space: &mut Space,
        options: &KvSsdOptions,
        tree: &Tree,
    ) -> Result<()> {
        let pages = self.program(space, options, &tree.snapshot());
        if pages.is_err() {
            space.give_up();
        }
        self.checkpoints.push_back((tree.txn, pages?));
        self.apart_from = options.apart_from();
        if self.checkpoints.len() > KEPT_CHECKPOINTS {
            let old = self.checkpoints.pop_front();
            old.into_iter().flat_map(|(_, pages)| pages).for_each(|page| space.release(page, 1));
        }
        let kept_txn = self.checkpoints.front().map_or(0, |(txn, _)| *txn);
        while self.journal.front().is_some_and(|(txn, _)| *txn <= kept_txn) {
            if let Some((_, page)) = self.journal.pop_front() {
                space.release(page, 1);
            }
        }
        Ok(())
    }

    fn program(
        &mut self,
        space: &mut Space,
        options: &KvSsdOptions,
        saved: &Commit,
    ) -> Result<Vec<u32>> {
        let page_bytes = space.page_bytes();
        let bytes = journal::encode_checkpoint(options, saved, page_bytes);
        self.last_number += 1;
        space.cause = Cause::Checkpoint;
        let mut pages = Vec::new();
        for (index, page) in (0..).zip(bytes.chunks_exact(page_bytes)) {
            let owner = Owner { level: 0, txn: saved.txn, id: self.last_number, index };
            pages.push(space.program(Stream::Checkpoint, page.to_vec().into(), owner)?);
        }
        space.keep();
        Ok(pages)
    }

    /// The transaction of the newest checkpoint.
    pub(crate) fn saved_txn(&self) -> u64 {
        self.checkpoints.back().map_or(0, |(txn, _)| *txn)
    }

    /// Pages of the newest checkpoint.
    pub(crate) fn newest_pages(&self) -> u32 {
        self.checkpoints.back().map_or(0, |(_, pages)| pages.len() as u32)
    }

    /// Pages of all live checkpoints.
    pub(crate) fn saved_pages(&self) -> u64 {
        self.checkpoints.iter().map(|(_, pages)| pages.len() as u64).sum()
    }

    /// Every live page and its type.
    pub(crate) fn pages(&self) -> impl Iterator<Item = (u32, PageType)> + '_ {
        let journal = self.journal.iter().map(|(_, page)| (*page, PageType::Journal));
        let saved = self.checkpoints.iter().flat_map(|(_, pages)| pages);
        journal.chain(saved.map(|page| (*page, PageType::Checkpoint)))
    }
}
