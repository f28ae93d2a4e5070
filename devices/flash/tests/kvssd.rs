//! A small tree of remapped tables against a model: precedence, snapshots, references. Pages are in
//! memory, and metadata pages are encoded and decoded each time. The same runs must give wrong
//! answers without clips, or with the fence of the table as the only clip.

use std::collections::{BTreeMap, BTreeSet};

use runstone_flash::kvssd::{
    Clip, CompactionInput, CutKey, Entry, FilterSize, KeyBlock, Kind, KvPage, Merged, Output,
    PageFilter, PageReader, PageWriter, Partitioner, Record, References, RemapLimits, Rewriter,
    TableMeta, find_record, plan_compaction,
};
use runstone_flash::nand::SharedBytes;
use runstone_flash::{Error, Result};
use runstone_random::Random;

const PAGE_BYTES: usize = 1024;
const TABLE_PAGES: u32 = 8;
const BLOCK_PAGES: u32 = 8;
const BLOCK_COUNT: u32 = 16_384;
const KEYS: u64 = 300;
const L0_TABLES: usize = 3;

/// How clips are kept; only the first is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clips {
    Kept,
    /// Seeded bug: an entry answers for all keys of its page.
    None,
    /// Seeded bug: an entry answers for all keys of its page inside the table's fence.
    FenceOnly,
}

/// Pages in memory. The number of a freed page is not reused.
#[derive(Default)]
struct Pages {
    bytes: BTreeMap<u32, SharedBytes>,
    next: u32,
}

impl PageReader for Pages {
    fn read_pages(&mut self, entry: &Entry) -> Result<SharedBytes> {
        let group = self.bytes.get(&entry.page).cloned();
        let group = group.filter(|bytes| bytes.len() == PAGE_BYTES * usize::from(entry.page_count));
        group.ok_or(Error::Corrupt { what: "test", why: format!("page {} is gone", entry.page) })
    }
}

impl PageWriter for Pages {
    fn write_pages(&mut self, bytes: SharedBytes) -> Result<u32> {
        let page = self.next;
        self.next += (bytes.len() / PAGE_BYTES) as u32;
        self.bytes.insert(page, bytes);
        Ok(page)
    }
}

type State = BTreeMap<Vec<u8>, Vec<u8>>;

struct Tree {
    limits: RemapLimits,
    clips: Clips,
    pages: Pages,
    references: References,
    /// Level 0 oldest first; the others by key.
    levels: Vec<Vec<TableMeta>>,
    cursors: Vec<Vec<u8>>,
    next_id: u64,
    seq: u64,
    memtable: Vec<Record>,
    state: State,
    snapshots: Vec<(u64, State)>,
    remapped: u64,
    rewritten: u64,
    shared: u64,
}

impl Tree {
    fn new(threshold: u8, clips: Clips, cuts: Partitioner) -> Tree {
        let (table_pages, page_bytes) = (TABLE_PAGES, PAGE_BYTES);
        Tree {
            limits: RemapLimits { threshold, table_pages, page_bytes, cuts },
            clips,
            pages: Pages::default(),
            references: References::new(BLOCK_COUNT, BLOCK_PAGES),
            levels: vec![Vec::new(); 4],
            cursors: vec![Vec::new(); 4],
            next_id: 1,
            seq: 0,
            memtable: Vec::new(),
            state: State::new(),
            snapshots: Vec::new(),
            remapped: 0,
            rewritten: 0,
            shared: 0,
        }
    }

    fn write(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) {
        self.seq += 1;
        let kind = if value.is_some() { Kind::Put } else { Kind::Delete };
        match &value {
            Some(value) => self.state.insert(key.clone(), value.clone()),
            None => self.state.remove(&key),
        };
        self.memtable.push(Record::new(self.seq, kind, &key, &value.unwrap_or_default()));
    }

    /// Flushes the memtable as a table of level 0, through the same rewriting as a compaction.
    fn flush(&mut self) {
        let mut records = std::mem::take(&mut self.memtable);
        records.sort_by(|one, two| (one.key(), two.seq()).cmp(&(two.key(), one.seq())));
        let mut keys: Vec<KeyBlock> = Vec::new();
        for record in records {
            if keys.last().is_none_or(|block| block.key != record.key()) {
                keys.push(KeyBlock::default());
            }
            let block = keys.last_mut().expect("just pushed");
            block.push(record.key(), record.version().clone());
        }
        let mut entries = Vec::new();
        let pages = &mut self.pages;
        let mut keys = keys.iter();
        let next_key = |block: &mut KeyBlock| {
            let next = keys.next();
            block.clone_from(next.unwrap_or(&KeyBlock::default()));
            Ok(next.is_some())
        };
        runstone_flash::kvssd::build_pages(next_key, PAGE_BYTES, |page| {
            let records: Vec<Record> = page.records().collect();
            let clip = Clip::of_keys(records[0].key(), records[records.len() - 1].key());
            let page_count = (page.bytes().len() / PAGE_BYTES) as u16;
            entries.push(Entry {
                page: pages.write_pages(page.bytes().clone())?,
                page_count,
                stratum: 0,
                is_charged: true,
                has_tombstones: records.iter().any(|record| record.kind() == Kind::Delete),
                record_count: records.len() as u32,
                clip,
                // Pages that a rewriting makes have filters; those that a flush makes here do not.
                filter: PageFilter::default(),
            });
            Ok(())
        })
        .unwrap();
        let table = self.table(0, 1, entries);
        self.references.add(&table);
        self.levels[0].push(table);
    }

    /// Makes a table by encoding and decoding its page.
    fn table(&mut self, level: usize, counter: u8, entries: Vec<Entry>) -> TableMeta {
        let (id, tombstones) = (self.next_id, 0);
        self.next_id += 1;
        let (level, txn, min_seq, max_seq) = (level as u8, id, 1, self.seq);
        let table = TableMeta {
            id,
            level,
            txn,
            counter,
            min_seq,
            max_seq,
            tombstones,
            entries,
            ..TableMeta::default()
        };
        let mut table = TableMeta::decode(&table.encode(PAGE_BYTES).unwrap()).unwrap();
        let fence = table.fence().unwrap();
        for entry in &mut table.entries {
            let bytes = self.pages.read_pages(entry).unwrap();
            let page = KvPage::decode(bytes, PAGE_BYTES).unwrap();
            let records: Vec<Record> = page.records().collect();
            let whole = Clip::of_keys(records[0].key(), records[records.len() - 1].key());
            entry.clip = match self.clips {
                Clips::Kept => continue,
                Clips::None => whole,
                Clips::FenceOnly => {
                    Clip { lo: whole.lo.max(fence.lo.clone()), hi: whole.hi.min(fence.hi.clone()) }
                }
            };
        }
        table.entries.sort_by(|one, two| one.clip.lo.cmp(&two.clip.lo));
        table
    }

    fn is_over(&self, level: usize) -> bool {
        let pages: u32 = self.levels[level].iter().map(TableMeta::charged_pages).sum();
        match level {
            0 => self.levels[0].len() >= L0_TABLES,
            1 => pages > 24,
            2 => pages > 80,
            _ => false,
        }
    }

    fn settle(&mut self) {
        while let Some(level) = (0..self.levels.len()).find(|&level| self.is_over(level)) {
            self.compact(level);
        }
    }

    fn take_inputs(&mut self, level: usize) -> (Vec<TableMeta>, Vec<TableMeta>) {
        let upper = if level == 0 {
            std::mem::take(&mut self.levels[0])
        } else {
            let cursor = &self.cursors[level];
            let next = |table: &TableMeta| *table.entries[0].clip.lo > **cursor;
            let at = self.levels[level].iter().position(next).unwrap_or(0);
            let victim = self.levels[level].remove(at);
            self.cursors[level] = victim.entries[0].clip.lo.to_vec();
            vec![victim]
        };
        let fences: Vec<Clip> = upper.iter().filter_map(TableMeta::fence).collect();
        let lo = fences.iter().map(|fence| fence.lo.clone()).min().unwrap();
        let hi = fences.iter().map(|fence| fence.hi.clone()).max().unwrap();
        let range = Clip { lo, hi };
        let below = std::mem::take(&mut self.levels[level + 1]);
        let (lower, rest) =
            below.into_iter().partition(|table| table.fence().unwrap().overlaps(&range));
        self.levels[level + 1] = rest;
        (upper, lower)
    }

    fn compact(&mut self, level: usize) {
        let (upper, lower) = self.take_inputs(level);
        let of_a_run = |_: &TableMeta, _: &TableMeta| level > 0;
        let runs: Vec<&[TableMeta]> = upper.chunk_by(of_a_run).collect();
        let input = CompactionInput { upper: &runs, lower: &lower };
        let outputs = plan_compaction(&input, &self.references, &self.limits);
        let mut made = Vec::new();
        for output in outputs {
            match output {
                Output::Delay(_) | Output::Append { .. } => unreachable!("the plan is rLSM's"),
                Output::Remap { entries, counter } => {
                    assert!(counter <= self.limits.threshold);
                    self.remapped += 1;
                    self.shared += entries.iter().filter(|entry| !entry.is_charged).count() as u64;
                    made.push(self.table(level + 1, counter, entries));
                }
                Output::Rewrite { entries, cuts } => {
                    self.rewritten += 1;
                    for entries in self.rewrite(level + 1, entries, &cuts) {
                        made.push(self.table(level + 1, 1, entries));
                    }
                }
            }
        }
        made.iter().for_each(|table| self.references.add(table));
        for table in upper.iter().chain(&lower) {
            for page in self.references.remove(table) {
                self.pages.bytes.remove(&page);
            }
        }
        let below = &mut self.levels[level + 1];
        below.extend(made);
        below.sort_by(|one, two| one.entries[0].clip.lo.cmp(&two.entries[0].clip.lo));
    }

    fn rewrite(&mut self, level: usize, entries: Vec<Entry>, cuts: &[CutKey]) -> Vec<Vec<Entry>> {
        let snapshots: Vec<u64> = self.snapshots.iter().map(|(seq, _)| *seq).collect();
        let deeper: Vec<Clip> =
            self.levels[level + 1..].iter().flatten().filter_map(TableMeta::fence).collect();
        let rewriter = Rewriter {
            snapshots: &snapshots,
            is_deeper: &|key| deeper.iter().any(|fence| fence.contains(key)),
            page_bytes: PAGE_BYTES,
            table_pages: TABLE_PAGES,
            is_even: false,
            filter: FilterSize {
                millibits_per_key: 10_000,
                most_bytes: PAGE_BYTES / (2 * TABLE_PAGES as usize),
            },
            cuts,
            on_drop: &|_, _| {},
        };
        let mut written = Pages { next: self.pages.next, ..Pages::default() };
        let compacted = Merged::new(entries, PAGE_BYTES, &mut self.pages);
        let tables = rewriter.rewrite(compacted, &mut written).unwrap();
        self.pages.next = written.next;
        self.pages.bytes.append(&mut written.bytes);
        tables.into_iter().map(|table| table.entries).collect()
    }

    fn get(&mut self, key: &[u8], snapshot: u64) -> Result<Option<Vec<u8>>> {
        let newest_first = self.levels[0].iter().rev().chain(self.levels[1..].iter().flatten());
        for table in newest_first {
            if !table.fence().is_some_and(|fence| fence.contains(key)) {
                continue;
            }
            let found = find_record(table, key, snapshot, PAGE_BYTES, &mut self.pages)?;
            if let Some(record) = found {
                let is_put = record.kind() == Kind::Put;
                return Ok(is_put.then(|| record.value().to_vec()));
            }
        }
        Ok(None)
    }

    fn scan(&mut self, snapshot: u64) -> Result<State> {
        let entries =
            self.levels.iter().flatten().flat_map(|table| table.entries.clone()).collect();
        let mut state = State::new();
        let mut decided: Option<Vec<u8>> = None;
        for record in Merged::new(entries, PAGE_BYTES, &mut self.pages) {
            let record = record?;
            if record.seq() > snapshot || decided.as_deref() == Some(record.key()) {
                continue;
            }
            decided = Some(record.key().to_vec());
            if record.kind() == Kind::Put {
                state.insert(record.key().to_vec(), record.value().to_vec());
            }
        }
        Ok(state)
    }

    /// Whether every answer equals that of the model. A seeded bug may also end in a missing page.
    fn is_right(&mut self) -> bool {
        let mut views = self.snapshots.clone();
        views.push((self.seq, self.state.clone()));
        views.into_iter().all(|(snapshot, state)| {
            let gets = (0..KEYS + 2).all(|at| {
                let key = key(at);
                self.get(&key, snapshot).is_ok_and(|found| found.as_ref() == state.get(&key))
            });
            gets && self.scan(snapshot).is_ok_and(|found| found == state)
        })
    }

    /// Every kept page has a reference, every reference has a page, and tables are sound.
    fn check_references(&self) {
        let tables: Vec<&TableMeta> = self.levels.iter().flatten().collect();
        let mut counts: BTreeMap<u32, u8> = BTreeMap::new();
        for entry in tables.iter().flat_map(|table| &table.entries) {
            *counts.entry(entry.page).or_insert(0) += 1;
        }
        let kept: BTreeSet<u32> = self.pages.bytes.keys().copied().collect();
        assert_eq!(counts.keys().copied().collect::<BTreeSet<_>>(), kept, "no orphan pages");
        for (page, count) in counts {
            assert_eq!(self.references.count(page), count);
            assert!(count <= 7);
        }
        for table in &tables {
            table.check().unwrap();
            assert!(table.counter <= self.limits.threshold.max(1));
            let is_one_group = table.entries.len() == 1;
            let is_sized = table.charged_pages() <= TABLE_PAGES || is_one_group;
            assert!(table.level == 0 || is_sized, "{} pages", table.charged_pages());
        }
        for level in &self.levels[1..] {
            let fences: Vec<Clip> = level.iter().filter_map(TableMeta::fence).collect();
            assert!(fences.windows(2).all(|pair| pair[0].hi <= pair[1].lo), "tables are disjoint");
        }
    }
}

fn key(at: u64) -> Vec<u8> {
    format!("key{at:05}").into_bytes()
}

/// Runs a workload and stops at the first wrong answer. Returns whether all were right.
fn run(tree: &mut Tree, seed: u64) -> bool {
    let mut random = Random::new(seed);
    for round in 0..120 {
        // Each run writes neighbouring keys, so that flushes have different fences.
        let (base, spread) = (random.below(KEYS), 20 + random.below(KEYS));
        for _ in 0..30 {
            let at = (base + random.below(spread)) % KEYS;
            let size = if random.below(200) == 0 { 3000 } else { random.below(120) };
            let value = vec![random.below(256) as u8; size as usize];
            tree.write(key(at), (random.below(6) > 0).then_some(value));
        }
        tree.flush();
        tree.settle();
        if round % 10 == 3 {
            let seq = tree.seq;
            let state = tree.state.clone();
            tree.snapshots.push((seq, state));
        }
        if tree.snapshots.len() > 3 {
            tree.snapshots.remove(0);
        }
        if tree.clips == Clips::Kept {
            tree.check_references();
        }
        if round % 6 == 5 && !tree.is_right() {
            return false;
        }
    }
    true
}

const CUTS: [Partitioner; 3] =
    [Partitioner::Size, Partitioner::GlobalRange, Partitioner::GroupedGlobalRange];

#[test]
fn precedence_holds_at_every_threshold_and_cutting() {
    for (threshold, cuts) in [0, 2, 3, 4, 6].into_iter().flat_map(|th| CUTS.map(|cut| (th, cut))) {
        let (mut remapped, mut rewritten, mut shared) = (0, 0, 0);
        for seed in 0..6 {
            let mut tree = Tree::new(threshold, Clips::Kept, cuts);
            assert!(run(&mut tree, seed), "threshold {threshold}, {cuts:?}, seed {seed}");
            remapped += tree.remapped;
            rewritten += tree.rewritten;
            shared += tree.shared;
        }
        assert!(rewritten > 20, "threshold {threshold}: {rewritten} rewritten");
        let is_remapping = threshold > 0;
        assert_eq!(remapped > 20, is_remapping, "threshold {threshold}: {remapped} remapped");
        assert_eq!(shared > 5, is_remapping, "threshold {threshold}: {shared} shared");
    }
}

/// The test must detect the bugs that clips prevent; otherwise it proves nothing.
#[test]
fn missing_clips_are_found() {
    let finds = |threshold, clips, cuts| {
        (5..11).any(|seed| {
            let mut tree = Tree::new(threshold, clips, cuts);
            let silent = std::panic::AssertUnwindSafe(|| run(&mut tree, seed));
            !std::panic::catch_unwind(silent).unwrap_or(false)
        })
    };
    for cuts in CUTS {
        assert!(finds(2, Clips::None, cuts));
        for threshold in [3, 4, 6] {
            assert!(finds(threshold, Clips::None, cuts));
            assert!(finds(threshold, Clips::FenceOnly, cuts), "threshold {threshold}, {cuts:?}");
        }
    }
}

/// Without snapshots, compacting everything to the bottom leaves no delete behind.
#[test]
fn deletes_go_when_nothing_is_left_to_hide() {
    let mut tree = Tree::new(0, Clips::Kept, Partitioner::Size);
    for at in 0..KEYS {
        tree.write(key(at), Some(vec![1; 50]));
    }
    tree.flush();
    for at in 0..KEYS {
        tree.write(key(at), None);
    }
    tree.flush();
    tree.compact(0);
    assert!(tree.levels.iter().all(Vec::is_empty) && tree.pages.bytes.is_empty());
    assert!(tree.is_right());
}
