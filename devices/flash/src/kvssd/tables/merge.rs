//! The k-way merge of clipped pages: records in key order. The caller decides which records stay.

use std::cmp::Ordering;
use std::ops::Range;

use crate::error::Result;
use crate::kvssd::format::key::Key;
use crate::kvssd::format::kv_page::KvPage;
use crate::kvssd::format::meta_page::Entry;
use crate::kvssd::format::record::{KeyBlock, Kind, Record};
use crate::kvssd::tables::PageReader;

/// The records of some entries, by key, newest versions first. Records outside the clips of their
/// entries are left out. A page is read when the merge reaches its clip, and kept until it is used
/// up.
///
/// Records are taken in runs: while one page has keys below all keys of the other pages, the others
/// need not be checked. Few pages are open at a time, one for each table or stratum. They are kept
/// sorted, which compares fewer keys than a heap does.
pub struct Merged<'a> {
    reader: &'a mut dyn PageReader,
    page_bytes: usize,
    /// Entries that are not read yet. The last one is next.
    waiting: Vec<Entry>,
    /// Open pages, sorted; the last one is next. The run is the first `run` records of that page,
    /// if `run` is not 0.
    open: Vec<OpenPage>,
    run: usize,
    /// Whether no other page has a key of the run.
    is_alone: bool,
}

/// A page with its remaining records. Ordered by key, then newest first.
struct OpenPage {
    page: KvPage,
    rest: Range<usize>,
    /// The first key of the rest, if there is any. It is compared most often, and a copy here is
    /// compared fastest.
    head: Key,
}

impl OpenPage {
    /// `None` if there are no records.
    fn of(page: KvPage, rest: Range<usize>) -> Option<OpenPage> {
        let head = Key::from(rest.clone().next().map(|at| page.key(at))?);
        Some(OpenPage { page, rest, head })
    }

    fn is_before(&self, other: &OpenPage) -> bool {
        let seq = |page: &OpenPage| page.page.stamp(page.rest.start).0;
        let order = self.head.cmp(&other.head).then_with(|| seq(other).cmp(&seq(self)));
        order == Ordering::Less
    }

    /// Takes this many records off the front.
    fn skip(&mut self, count: usize) {
        self.rest.start += count;
        if !self.rest.is_empty() {
            self.head = self.key(0).into();
        }
    }

    fn key(&self, at: usize) -> &[u8] {
        self.page.key(self.rest.start + at)
    }

    /// Whether a record is a value or a pointer, and the last version of its key in this page. The
    /// first record of a run is always the first version.
    fn is_plain(&self, at: usize) -> bool {
        let is_last = at + 1 == self.rest.len() || self.key(at) != self.key(at + 1);
        is_last && self.page.stamp(self.rest.start + at).1 != Kind::Delete
    }

    /// How many keys are below `limit`. Most runs are short, so the search widens from the start.
    fn count_below(&self, limit: &Key) -> usize {
        if self.head >= *limit {
            return 0;
        }
        let (mut from, mut to) = (1, 2);
        while to <= self.rest.len() && self.key(to - 1) < &**limit {
            (from, to) = (to, 2 * to);
        }
        to = (to - 1).min(self.rest.len());
        while from < to {
            let middle = from.midpoint(to);
            if self.key(middle) < &**limit {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        from
    }
}

impl<'a> Merged<'a> {
    /// The entries may be in any order.
    pub fn new(
        mut entries: Vec<Entry>,
        page_bytes: usize,
        reader: &'a mut dyn PageReader,
    ) -> Merged<'a> {
        entries.sort_by(|one, two| two.clip.lo.cmp(&one.clip.lo));
        let (waiting, open) = (entries, Vec::new());
        Merged { reader, page_bytes, waiting, open, run: 0, is_alone: true }
    }

    /// Opens every page whose clip begins at or before the smallest open key.
    fn open_pages(&mut self) -> Result<()> {
        while let Some(next) = self.waiting.last() {
            if self.open.last().is_some_and(|first| first.head < next.clip.lo) {
                break;
            }
            let Some(entry) = self.waiting.pop() else { break };
            let page = KvPage::decode(self.reader.read_pages(&entry)?, self.page_bytes)?;
            page.fetch();
            let rest = page.inside(&entry.clip);
            if let Some(page) = OpenPage::of(page, rest) {
                page.page.fetch_values(page.rest.clone());
                self.open.push(page);
                self.sink();
            }
        }
        Ok(())
    }

    /// Moves the last open page to its place in the order.
    fn sink(&mut self) {
        let mut at = self.open.len().saturating_sub(1);
        while at > 0 && self.open[at - 1].is_before(&self.open[at]) {
            self.open.swap(at - 1, at);
            at -= 1;
        }
    }

    /// Makes sure that there is a run. Returns `false` after the last record.
    fn find_run(&mut self) -> Result<bool> {
        if self.run > 0 {
            return Ok(true);
        }
        match self.open.last() {
            Some(page) if page.rest.is_empty() => drop(self.open.pop()),
            _ => self.sink(),
        }
        self.open_pages()?;
        let Some((first, others)) = self.open.split_last() else { return Ok(false) };
        let others = others.last().map(|page| &page.head);
        let unread = self.waiting.last().map(|entry| &entry.clip.lo);
        let below = match others.into_iter().chain(unread).min() {
            Some(limit) => first.count_below(limit),
            None => first.rest.len(),
        };
        self.is_alone = below > 0;
        self.run = below.max(1);
        Ok(true)
    }

    /// The records at the start of the run that are values and the only versions of their keys, if
    /// there is more than one.
    fn take_run(&mut self) -> Option<(KvPage, Range<usize>)> {
        let first = self.open.last_mut()?;
        let count = (0..self.run).take_while(|at| first.is_plain(*at)).count();
        if count < 2 {
            return None;
        }
        let taken = first.rest.start..first.rest.start + count;
        first.skip(count);
        self.run -= count;
        Some((first.page.clone(), taken))
    }

    /// The next record of the run: page and position.
    fn take(&mut self) -> Option<(&KvPage, usize)> {
        self.run -= 1;
        let first = self.open.last_mut()?;
        let at = first.rest.start;
        first.skip(1);
        Some((&first.page, at))
    }

    /// Adds all versions of the next key, newest first, or a run. Returns `false` after the last
    /// key.
    pub(crate) fn next_key(&mut self, block: &mut KeyBlock) -> Result<bool> {
        while self.find_run()? {
            if block.versions.is_empty() && self.is_alone && self.run > 1 {
                block.run = self.take_run();
                if block.run.is_some() {
                    return Ok(true);
                }
            }
            let key = self.open.last().map(|page| &*page.head);
            if !block.versions.is_empty() && Some(&block.key[..]) != key {
                break;
            }
            if let Some((page, at)) = self.take() {
                block.push(page.key(at), page.version(at));
            }
            if self.run == 0 && self.is_alone {
                break;
            }
        }
        Ok(!block.versions.is_empty())
    }
}

impl Iterator for Merged<'_> {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Result<Record>> {
        match self.find_run() {
            Ok(true) => self.take().map(|(page, at)| Ok(page.record(at))),
            Ok(false) => None,
            Err(error) => {
                self.waiting.clear();
                self.open.clear();
                Some(Err(error))
            }
        }
    }
}
