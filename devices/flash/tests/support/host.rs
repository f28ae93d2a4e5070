//! The page cache of the machine that runs the emulator. After a power loss, each page of an image
//! is as it was at some moment since the last sync. The moment may differ from page to page.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use runstone_flash::nand::Image;
use runstone_flash::{Error, Result};
use runstone_random::Random;

const PAGE_BYTES: u64 = 4096;

type Page = Arc<[u8; PAGE_BYTES as usize]>;

/// A machine and the files on it.
#[derive(Clone)]
pub struct Host(Arc<Mutex<State>>);

struct State {
    files: Vec<File>,
    ops: u64,
    /// The operation in which the power fails.
    dies_at: u64,
    syncs: u64,
    written_bytes: u64,
}

#[derive(Clone, Default)]
struct File {
    /// What is on the disk for certain.
    pages: BTreeMap<u64, Page>,
    len_bytes: u64,
    /// Later versions of pages: one of these, or the one above, survives.
    newer_pages: BTreeMap<u64, Vec<Page>>,
    newer_lens: Vec<u64>,
}

impl File {
    fn len(&self) -> u64 {
        self.newer_lens.last().copied().unwrap_or(self.len_bytes)
    }

    fn page(&self, number: u64) -> Page {
        let newer = self.newer_pages.get(&number).and_then(|versions| versions.last());
        let page = newer.or_else(|| self.pages.get(&number));
        page.cloned().unwrap_or_else(|| Arc::new([0; PAGE_BYTES as usize]))
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let inside = (at % PAGE_BYTES) as usize;
            let step = (PAGE_BYTES as usize - inside).min(data.len() - done);
            let mut page = self.page(at / PAGE_BYTES);
            Arc::make_mut(&mut page)[inside..inside + step]
                .copy_from_slice(&data[done..done + step]);
            self.newer_pages.entry(at / PAGE_BYTES).or_default().push(page);
            done += step;
        }
    }

    fn set_len(&mut self, len_bytes: u64) {
        let first_gone = len_bytes.div_ceil(PAGE_BYTES);
        let known = self.pages.range(first_gone..).map(|(&number, _)| number);
        let newer = self.newer_pages.range(first_gone..).map(|(&number, _)| number);
        let gone: Vec<u64> = known.chain(newer).collect();
        let inside = len_bytes % PAGE_BYTES;
        if len_bytes < self.len() && inside > 0 {
            self.write(len_bytes, &vec![0; (PAGE_BYTES - inside) as usize]);
        }
        for number in gone {
            self.write(number * PAGE_BYTES, &[0; PAGE_BYTES as usize]);
        }
        self.newer_lens.push(len_bytes);
    }

    fn sync(&mut self) {
        self.len_bytes = self.len();
        self.newer_lens.clear();
        for (number, mut versions) in std::mem::take(&mut self.newer_pages) {
            self.pages.extend(versions.pop().map(|page| (number, page)));
        }
    }

    /// What the next boot finds.
    fn survivor(&self, random: &mut Random, extent: u64) -> File {
        let mut choose = |count: usize| match extent {
            0 => 0,
            1 => count,
            _ => random.below(count as u64 + 1) as usize,
        };
        let mut survivor = File { len_bytes: self.len_bytes, ..File::default() };
        survivor.pages = self.pages.clone();
        if let Some(at) = choose(self.newer_lens.len()).checked_sub(1) {
            survivor.len_bytes = self.newer_lens[at];
        }
        for (&number, versions) in &self.newer_pages {
            if let Some(at) = choose(versions.len()).checked_sub(1) {
                survivor.pages.insert(number, Arc::clone(&versions[at]));
            }
        }
        survivor.clear_behind_end();
        survivor
    }

    /// Clears the bytes past the end. A file that grows later has zeros there, whatever the disk
    /// has.
    fn clear_behind_end(&mut self) {
        let (last, inside) = (self.len_bytes / PAGE_BYTES, self.len_bytes % PAGE_BYTES);
        self.pages.retain(|&number, _| number <= last);
        if let Some(page) = self.pages.get_mut(&last) {
            Arc::make_mut(page)[inside as usize..].fill(0);
        }
    }
}

impl Host {
    /// A machine with this many empty files.
    pub fn new(file_count: usize) -> Host {
        Host::over(vec![File::default(); file_count])
    }

    fn over(files: Vec<File>) -> Host {
        let state = State { files, ops: 0, dies_at: u64::MAX, syncs: 0, written_bytes: 0 };
        Host(Arc::new(Mutex::new(state)))
    }

    /// A file, over which a device can be opened.
    pub fn file(&self, number: usize) -> Box<dyn Image> {
        Box::new(HostFile { host: self.clone(), number })
    }

    /// The power fails after this many operations.
    pub fn dies_in(&self, ops: u64) {
        let mut state = self.0.lock();
        state.dies_at = state.ops.saturating_add(ops);
    }

    /// Writes, changes of length and syncs so far.
    pub fn ops(&self) -> u64 {
        self.0.lock().ops
    }

    /// Syncs so far, and bytes written.
    pub fn cost(&self) -> (u64, u64) {
        let state = self.0.lock();
        (state.syncs, state.written_bytes)
    }

    /// The machine after its power loss and the next boot: one seed in four keeps nothing that was
    /// not synced, one in four keeps all, and the others keep any part.
    pub fn survivor(&self, seed: u64) -> Host {
        let mut random = Random::new(seed);
        let state = self.0.lock();
        let survive = |file: &File| file.survivor(&mut random, seed % 4);
        Host::over(state.files.iter().map(survive).collect())
    }
}

impl State {
    fn check_alive(&self) -> Result<()> {
        if self.ops > self.dies_at { Err(Error::PowerCut) } else { Ok(()) }
    }

    /// Counts an operation; true if the power fails in it.
    fn begin(&mut self) -> Result<bool> {
        self.check_alive()?;
        self.ops += 1;
        Ok(self.ops > self.dies_at)
    }

    fn end(&self) -> Result<()> {
        self.check_alive()
    }
}

struct HostFile {
    host: Host,
    number: usize,
}

impl Image for HostFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let state = self.host.0.lock();
        state.check_alive()?;
        let file = &state.files[self.number];
        assert!(offset + buf.len() as u64 <= file.len(), "reads end where the file does");
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let inside = (at % PAGE_BYTES) as usize;
            let step = (PAGE_BYTES as usize - inside).min(buf.len() - done);
            let page = file.page(at / PAGE_BYTES);
            buf[done..done + step].copy_from_slice(&page[inside..inside + step]);
            done += step;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        let mut state = self.host.0.lock();
        state.begin()?;
        state.written_bytes += data.len() as u64;
        let file = &mut state.files[self.number];
        file.write(offset, data);
        let end = offset + data.len() as u64;
        if end > file.len() {
            file.newer_lens.push(end);
        }
        state.end()
    }

    fn len_bytes(&self) -> Result<u64> {
        let state = self.host.0.lock();
        state.check_alive()?;
        Ok(state.files[self.number].len())
    }

    fn set_len(&self, len_bytes: u64) -> Result<()> {
        let mut state = self.host.0.lock();
        state.begin()?;
        state.files[self.number].set_len(len_bytes);
        state.end()
    }

    fn sync(&self) -> Result<()> {
        let mut state = self.host.0.lock();
        if state.begin()? {
            return Err(Error::PowerCut);
        }
        state.syncs += 1;
        state.files[self.number].sync();
        Ok(())
    }

    fn place(&self) -> String {
        format!("file {}", self.number)
    }
}
