//! Compares random calls of a storage with a model: every storage must give the same results, down
//! to the kind of an error and the counters. Loss and faults are tested elsewhere.
//!
//! For more seeds than a test run has time for: `RUNSTONE_SEED=100 RUNSTONE_SEEDS=900 cargo test
//! --release -p runstone-storage --test conformance any_calls`, and the same with `-p
//! runstone-flash`.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use runstone_storage::{
    Category, CountersSnapshot, LockMode, MemoryStorage, ReadRequest, Result, Storage, StorageFile,
    StorageLock,
};

const SEEDS: u64 = 12;
const STEPS: u64 = 250;
const NAMES: [&str; 5] = ["a", "b", "c.table", "000007.wal", "d"];
const LOCKS: [&str; 2] = ["LOCK", "OTHER"];
/// Random lengths and offsets are often near these numbers.
const EDGES: [u64; 7] = [0, 7, 512, 4096, 8192, 20_000, 65_536];
const MOST_HANDLES: usize = 12;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % bound
    }

    fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// Near an edge, or anywhere.
    fn place(&mut self) -> u64 {
        match self.one_in(3) {
            true => self.below(30_000),
            false => (self.of(&EDGES) + self.below(5)).saturating_sub(2),
        }
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = self.place() % 9000;
        let first = self.below(255) as u8;
        (0..len).map(|at| first.wrapping_add(at as u8) | 1).collect()
    }
}

/// A handle, the file it belongs to, and its category.
struct Handle {
    file: Arc<dyn StorageFile>,
    id: usize,
    category: Category,
    /// The fixed length of a file made by `create_mapped` or opened by `open_mapped`.
    capacity: Option<u64>,
    /// Whether it was opened by `open_mapped`, which promises nothing but writes inside the length.
    is_recycled: bool,
    /// The name that it was made or opened under.
    name: &'static str,
}

struct Run<'a> {
    storage: &'a dyn Storage,
    random: Random,
    names: BTreeMap<String, usize>,
    /// The contents by id. A file without a name stays here as long as it has handles.
    contents: Vec<Vec<u8>>,
    handles: Vec<Handle>,
    counted: BTreeMap<Category, CountersSnapshot>,
    locks: Vec<(&'static str, LockMode, Box<dyn StorageLock>)>,
}

/// Runs the seeds that the environment names, or else those of a test run. Each seed uses its own
/// files.
pub fn any_calls_do_as_a_model_says(storage: &dyn Storage, sibling: &Path) {
    let number = |name, otherwise| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
    };
    let from = number("RUNSTONE_SEED", 0);
    for seed in from..from + number("RUNSTONE_SEEDS", SEEDS) {
        let before = Category::ALL.map(|category| storage.counters().snapshot(category));
        let mut run = Run {
            storage,
            random: Random(seed),
            names: BTreeMap::new(),
            contents: Vec::new(),
            handles: Vec::new(),
            counted: Category::ALL.into_iter().zip(before).collect(),
            locks: Vec::new(),
        };
        for step in 0..STEPS {
            run.step(&format!("{}: seed {seed}, step {step}", storage.location()));
        }
        run.end(sibling, &format!("{}: seed {seed}, end", storage.location()));
    }
}

fn outcome<T>(result: Result<T>) -> std::result::Result<T, ErrorKind> {
    result.map_err(|error| error.kind())
}

impl Run<'_> {
    fn step(&mut self, at: &str) {
        match self.random.below(100) {
            0..8 => self.create(at),
            8..12 => self.create_mapped(at),
            12..18 => self.open(at),
            18..22 => self.rename(at),
            22..26 => self.remove(at),
            26..30 => self.locks(at),
            30..33 => self.list(at),
            33..35 => self.storage.sync_dir().expect(at),
            35..40 if !self.handles.is_empty() => {
                let at = self.random.below(self.handles.len() as u64) as usize;
                drop(self.handles.swap_remove(at));
            }
            40..60 => self.with_handle(at, Run::write),
            60..75 => self.with_handle(at, Run::read),
            75..82 => self.with_handle(at, Run::resize),
            82..88 => self.with_handle(at, Run::punch),
            _ => self.with_handle(at, Run::look),
        }
    }

    fn name(&mut self) -> &'static str {
        self.random.of(&NAMES)
    }

    fn counted(&mut self, category: Category) -> &mut CountersSnapshot {
        self.counted.entry(category).or_default()
    }

    fn add(&mut self, name: &str, content: Vec<u8>) -> usize {
        let id = self.contents.len();
        self.contents.push(content);
        self.names.insert(name.to_string(), id);
        id
    }

    fn hold(&mut self, handle: Handle) {
        if self.handles.len() == MOST_HANDLES {
            self.handles.remove(0);
        }
        self.handles.push(handle);
    }

    fn create(&mut self, at: &str) {
        let (name, category) = (self.name(), self.random.of(&Category::ALL));
        let made = outcome(self.storage.create(name, category));
        if self.names.contains_key(name) {
            assert_eq!(made.err(), Some(ErrorKind::AlreadyExists), "{at}: {name}");
            return;
        }
        let id = self.add(name, Vec::new());
        let file = made.expect(at);
        self.hold(Handle { file, id, category, capacity: None, is_recycled: false, name });
    }

    fn create_mapped(&mut self, at: &str) {
        let (name, category) = (self.name(), self.random.of(&Category::ALL));
        let capacity = self.random.place();
        let made = outcome(self.storage.create_mapped(name, category, capacity));
        if self.names.contains_key(name) {
            assert_eq!(made.err(), Some(ErrorKind::AlreadyExists), "{at}: {name}");
            return;
        }
        let id = self.add(name, vec![0; capacity as usize]);
        let (file, capacity) = (made.expect(at), Some(capacity));
        self.hold(Handle { file, id, category, capacity, is_recycled: false, name });
    }

    /// Opens some files as recycled logs are opened.
    fn open(&mut self, at: &str) {
        let (name, category) = (self.name(), self.random.of(&Category::ALL));
        let Some(&id) = self.names.get(name) else {
            let found = outcome(self.storage.open(name, category));
            assert_eq!(found.err(), Some(ErrorKind::NotFound), "{at}: {name}");
            let found = outcome(self.storage.open_mapped(name, category));
            assert_eq!(found.err(), Some(ErrorKind::NotFound), "{at}: {name}");
            return;
        };
        let is_alone = self.handles.iter().all(|handle| handle.id != id);
        let is_recycled = is_alone && self.random.one_in(3);
        let opened = match is_recycled {
            true => self.storage.open_mapped(name, category),
            false => self.storage.open(name, category),
        };
        let capacity = is_recycled.then_some(self.contents[id].len() as u64);
        self.hold(Handle { file: opened.expect(at), id, category, capacity, is_recycled, name });
    }

    fn rename(&mut self, at: &str) {
        let (from, to) = (self.name(), self.name());
        let renamed = outcome(self.storage.rename(from, to));
        match self.names.remove(from) {
            Some(id) => {
                assert_eq!(renamed, Ok(()), "{at}: {from} to {to}");
                self.names.insert(to.to_string(), id);
            }
            None => assert_eq!(renamed, Err(ErrorKind::NotFound), "{at}: {from} to {to}"),
        }
    }

    fn remove(&mut self, at: &str) {
        let name = self.name();
        let expected = self.names.remove(name).map(drop).ok_or(ErrorKind::NotFound);
        assert_eq!(outcome(self.storage.remove(name)), expected, "{at}: {name}");
    }

    fn locks(&mut self, at: &str) {
        if !self.locks.is_empty() && self.random.one_in(2) {
            let which = self.random.below(self.locks.len() as u64) as usize;
            drop(self.locks.swap_remove(which));
            return;
        }
        let (name, mode) =
            (self.random.of(&LOCKS), self.random.of(&[LockMode::Shared, LockMode::Exclusive]));
        let mut held = self.locks.iter().filter(|(held, ..)| *held == name);
        let is_free =
            held.all(|(_, held, _)| (*held, mode) == (LockMode::Shared, LockMode::Shared));
        let taken = self.storage.lock(name, mode).expect(at);
        assert_eq!(taken.is_some(), is_free, "{at}: {name} {mode:?}");
        self.locks.extend(taken.map(|lock| (name, mode, lock)));
    }

    /// A directory lists its lock files, and other storages have none.
    fn list(&mut self, at: &str) {
        let listed = self.storage.list().expect(at);
        let listed = listed.into_iter().filter(|file| !LOCKS.contains(&&*file.name));
        let listed: Vec<_> = listed.map(|file| (file.name, file.len_bytes)).collect();
        let len = |(name, id): (&String, &usize)| (name.clone(), self.contents[*id].len() as u64);
        let expected: Vec<_> = self.names.iter().map(len).collect();
        assert_eq!(listed, expected, "{at}");
        for extension in ["wal", "able"] {
            let is_of = |name: &&String| name.ends_with(&format!(".{extension}"));
            let expected: Vec<_> = self.names.keys().filter(is_of).cloned().collect();
            assert_eq!(self.storage.names(extension).expect(at), expected, "{at}: .{extension}");
        }
    }

    fn with_handle(&mut self, at: &str, step: fn(&mut Self, &Handle, &str)) {
        if self.handles.is_empty() {
            return;
        }
        let which = self.random.below(self.handles.len() as u64) as usize;
        let handle = self.handles.swap_remove(which);
        step(self, &handle, at);
        self.handles.push(handle);
    }

    /// The contract does not say whether another handle may make a mapped file longer.
    fn write(&mut self, handle: &Handle, at: &str) {
        let (offset, data) = (self.random.place(), self.random.bytes());
        let end = offset + data.len() as u64;
        let at = format!("{at}: {} bytes at {offset}", data.len());
        let is_beyond = handle.capacity.is_some_and(|capacity| end > capacity);
        let is_longer = end > self.contents[handle.id].len() as u64;
        if (is_beyond && handle.is_recycled) || (is_longer && self.is_mapped(handle.id)) {
            return;
        }
        let written = outcome(handle.file.write_at(offset, &data));
        if is_beyond {
            assert_eq!(written, Err(ErrorKind::InvalidInput), "{at}");
            return;
        }
        assert_eq!(written, Ok(()), "{at}");
        let counted = self.counted(handle.category);
        counted.written_bytes += data.len() as u64;
        counted.writes += 1;
        let content = &mut self.contents[handle.id];
        if !data.is_empty() && content.len() < end as usize {
            content.resize(end as usize, 0);
        }
        if !data.is_empty() {
            content[offset as usize..end as usize].copy_from_slice(&data);
        }
    }

    /// Reads by one of the calls. A read that ends past the end of the file must fail. The contract
    /// does not say whether a mapped file can still be read after its name was removed.
    fn read(&mut self, handle: &Handle, at: &str) {
        if !self.is_readable(handle) {
            return;
        }
        let content = self.contents[handle.id].clone();
        let mut requests = Vec::new();
        for _ in 0..=self.random.below(3) {
            let offset = self.random.place();
            let room = (content.len() as u64).saturating_sub(offset);
            // The contract does not say whether an empty read past the end succeeds.
            let len = match self.random.below(4) {
                0 => 1 + self.random.place(),
                1 => room.max(1),
                2 => room + 1,
                _ => 1 + self.random.below(room.max(1)),
            };
            requests.push((offset, len as usize));
        }
        let part = |(offset, len): (u64, usize)| {
            let end = (offset as usize).checked_add(len)?;
            content.get(offset as usize..end).map(<[u8]>::to_vec)
        };
        let at = format!("{at}: {requests:?} of {}", content.len());
        if self.random.one_in(2) {
            let empty = |&(offset, len): &_| ReadRequest { offset, buffer: vec![0xAA; len] };
            let mut reads: Vec<ReadRequest> = requests.iter().map(empty).collect();
            let read = outcome(handle.file.read_many(&mut reads));
            let expected: Option<Vec<Vec<u8>>> = requests.iter().map(|&read| part(read)).collect();
            let Some(expected) = expected else {
                assert_eq!(read, Err(ErrorKind::UnexpectedEof), "{at}");
                // The contract does not say how many reads count before the one that failed.
                let counted = self.storage.counters().snapshot(handle.category);
                *self.counted(handle.category) = counted;
                return;
            };
            assert_eq!(read, Ok(()), "{at}");
            assert!(reads.into_iter().map(|read| read.buffer).eq(expected), "{at}");
            let bytes: usize = requests.iter().map(|(_, len)| len).sum();
            let counted = self.counted(handle.category);
            counted.read_bytes += bytes as u64;
            counted.reads += requests.len() as u64;
            return;
        }
        for (offset, len) in requests {
            let expected = part((offset, len)).ok_or(ErrorKind::UnexpectedEof);
            let read = match self.random.one_in(2) {
                true => outcome(handle.file.read_vec(offset, len)),
                false => {
                    let mut buffer = vec![0xAA; len];
                    outcome(handle.file.read_at(offset, &mut buffer)).map(|()| buffer)
                }
            };
            assert!(read == expected, "{at}: {:?}", read.err());
            if expected.is_ok() {
                let counted = self.counted(handle.category);
                counted.read_bytes += len as u64;
                counted.reads += 1;
            }
        }
    }

    /// The contract does not say whether another handle may change the length of a mapped file.
    fn resize(&mut self, handle: &Handle, at: &str) {
        let len = self.random.place();
        if handle.is_recycled {
            return;
        }
        if handle.capacity.is_some() {
            assert_eq!(outcome(handle.file.set_len(len)), Err(ErrorKind::Unsupported), "{at}");
        } else if !self.is_mapped(handle.id) {
            assert_eq!(outcome(handle.file.set_len(len)), Ok(()), "{at}: {len}");
            self.contents[handle.id].resize(len as usize, 0);
        }
    }

    fn punch(&mut self, handle: &Handle, at: &str) {
        let (offset, len) = (self.random.place(), self.random.place());
        if handle.is_recycled {
            return;
        }
        if handle.capacity.is_some() {
            let punched = outcome(handle.file.punch(offset, len));
            assert_eq!(punched, Err(ErrorKind::Unsupported), "{at}");
        } else if !self.is_mapped(handle.id) {
            let punched = outcome(handle.file.punch(offset, len));
            assert_eq!(punched, Ok(()), "{at}: {offset}, {len}");
            let content = &mut self.contents[handle.id];
            let end = content.len().min((offset + len) as usize);
            content[end.min(offset as usize)..end].fill(0);
        }
    }

    fn is_readable(&self, handle: &Handle) -> bool {
        handle.capacity.is_none() || self.names.get(handle.name) == Some(&handle.id)
    }

    fn is_mapped(&self, id: usize) -> bool {
        self.handles.iter().any(|handle| handle.id == id && handle.capacity.is_some())
    }

    /// Makes calls that change nothing visible to readers.
    fn look(&mut self, handle: &Handle, at: &str) {
        let (offset, len) = (self.random.place(), self.random.place());
        match self.random.below(6) {
            0 => {
                handle.file.sync().expect(at);
                self.counted(handle.category).syncs += 1;
            }
            1 => handle.file.allocate(offset, len).expect(at),
            2 => handle.file.prepare(offset, len).expect(at),
            3 => handle.file.read_ahead(offset, len),
            _ => {}
        }
        let expected = self.contents[handle.id].len() as u64;
        assert_eq!(handle.file.len().expect(at), expected, "{at}");
        assert_eq!(handle.file.is_empty().expect(at), expected == 0, "{at}");
    }

    /// Checks everything at the end, here and in copies. Then removes all files.
    fn end(mut self, sibling: &Path, at: &str) {
        self.list(at);
        for (category, counted) in &self.counted {
            let found = self.storage.counters().snapshot(*category);
            assert_eq!(found, *counted, "{at}: {category:?}");
        }
        for handle in self.handles.iter().filter(|handle| self.is_readable(handle)) {
            let content = super::contents(&*handle.file);
            assert!(content == self.contents[handle.id], "{at}: a handle");
        }
        self.handles.clear();
        let (near, far) = (self.storage.create_sibling(sibling).expect(at), MemoryStorage::new());
        for (name, id) in &self.names {
            for target in [&*near, &far as &dyn Storage] {
                self.storage.link_into(name, Category::Table, target).expect(at);
                let copy = target.open(name, Category::Table).expect(at);
                assert!(super::contents(&*copy) == self.contents[*id], "{at}: copy of {name}");
            }
            near.remove(name).expect(at);
            self.storage.remove(name).expect(at);
        }
        near.sync_dir().expect(at);
        self.storage.sync_dir().expect(at);
    }
}
