//! An ordinary block SSD: a page-mapped translation layer over [`Nand`]. It accepts writes of host
//! blocks of 4 KiB and does not know what they mean. It has no write cache, so a write is durable
//! when it returns.
//!
//! The pages of a block are spread over all dies, so that one frontier keeps all of them busy. If
//! requests may be queued, the pages of a read are read side by side, and a write waits only for
//! places in the queue. The pages that a collection moves are read and written in the same way.
//!
//! A request that covers a mapped page in part costs one read and one program of the page. A
//! request that covers the whole page costs one program.

mod counters;
mod map;
mod recover;
mod space;

use crate::error::{Error, Result};
use crate::nand::{Geometry, Image, Nand, PageType, Ppa, Timing};
pub use counters::{FtlCounters, WriteAmplification};
use map::Map;
use space::{MIN_SPARE_BLOCKS, Stream, Use};

/// Bytes of a host block.
pub const HOST_BLOCK_BYTES: u32 = 4096;

/// Where moved pages are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GcFrontier {
    /// To a block of their own, separate from the blocks that the host writes.
    Split,
    /// To the block that the host writes to.
    Shared,
}

/// How the layer works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FtlOptions {
    /// The part of the flash that the host does not see. A device keeps the value that it was made
    /// with.
    pub over_provision_percent: u32,
    /// Where moved pages are written.
    pub gc_frontier: GcFrontier,
    /// Whether `trim` does anything. Trimmed data may come back after a restart.
    pub is_trim_on: bool,
}

impl Default for FtlOptions {
    fn default() -> Self {
        FtlOptions { over_provision_percent: 5, gc_frontier: GcFrontier::Split, is_trim_on: false }
    }
}

/// A block SSD.
#[derive(Debug)]
pub struct Ftl {
    nand: Nand,
    options: FtlOptions,
    map: Map,
    uses: Vec<Use>,
    /// The next page of the block of the host, of the collection (unused if they share a block),
    /// and of recovery.
    frontiers: [Option<Ppa>; 3],
    program_seq: u64,
    counters: FtlCounters,
}

impl Ftl {
    /// Makes an empty device over an empty image.
    pub fn create(
        image: Box<dyn Image>,
        geometry: Geometry,
        timing: Timing,
        options: FtlOptions,
    ) -> Result<Ftl> {
        logical_pages(&geometry, &options)?;
        Ftl::over(Nand::create(image, geometry, timing)?, options)
    }

    /// Opens a device and rebuilds its mapping.
    pub fn open(
        image: Box<dyn Image>,
        geometry: Option<Geometry>,
        timing: Timing,
        options: FtlOptions,
    ) -> Result<Ftl> {
        let mut ftl = Ftl::over(Nand::open(image, geometry, timing)?, options)?;
        ftl.recover()?;
        Ok(ftl)
    }

    fn over(mut nand: Nand, options: FtlOptions) -> Result<Ftl> {
        let geometry = nand.geometry();
        nand.stripe_blocks();
        Ok(Ftl {
            map: Map::new(geometry, logical_pages(&geometry, &options)?),
            uses: vec![Use::Free; geometry.block_count as usize],
            frontiers: [None; 3],
            program_seq: 0,
            counters: FtlCounters::default(),
            nand,
            options,
        })
    }

    /// Host blocks of the device.
    pub fn block_count(&self) -> u64 {
        u64::from(self.map.logical_pages()) * self.blocks_per_page()
    }

    /// Writes whole host blocks, from `first` on. Each mapped page is written as a whole or not at
    /// all. A power cut may happen between two pages.
    pub fn write(&mut self, first: u64, data: &[u8]) -> Result<()> {
        self.check_range(first, data.len())?;
        self.counters.host_blocks_written += data.len() as u64 / u64::from(HOST_BLOCK_BYTES);
        let mut rest = data;
        for part in self.parts(first, data.len()) {
            let (piece, after) = rest.split_at(part.bytes);
            rest = after;
            if part.bytes == self.nand.geometry().page_bytes as usize {
                self.place(part.logical, &piece.to_vec().into(), Stream::Host)?;
            } else {
                self.modify(&part, piece)?;
            }
            self.counters.host_programs += 1;
            self.retire_failing()?;
        }
        Ok(())
    }

    /// Reads whole host blocks. Blocks that were never written read as zeros.
    pub fn read(&mut self, first: u64, data: &mut [u8]) -> Result<()> {
        let mut last_ns = 0;
        let read =
            self.read_queued(first, data, &mut |_, arrival_ns| last_ns = arrival_ns.max(last_ns));
        self.nand.wait_until(last_ns);
        read
    }

    /// Does the same as [`Ftl::read`], without waiting for the pages. Reports to `arrives` how many
    /// bytes each page supplies, and when it arrives.
    pub(crate) fn read_queued(
        &mut self,
        first: u64,
        data: &mut [u8],
        arrives: &mut dyn FnMut(usize, u64),
    ) -> Result<()> {
        self.check_range(first, data.len())?;
        let mut rest = data;
        for part in self.parts(first, rest.len()) {
            let (piece, after) = rest.split_at_mut(part.bytes);
            rest = after;
            let Some(ppa) = self.map.find(part.logical) else {
                piece.fill(0);
                arrives(part.bytes, 0);
                continue;
            };
            self.counters.host_reads += 1;
            let (page, _) = self.nand.queued(|nand| nand.read_shared(ppa))?;
            arrives(part.bytes, self.nand.last_arrival_ns());
            piece.copy_from_slice(&page.flat()[part.inside..][..part.bytes]);
        }
        Ok(())
    }

    /// Says that host blocks are no longer needed. If trimming is on, mapped pages that are covered
    /// as a whole become garbage and read as zeros.
    pub fn trim(&mut self, first: u64, block_count: u64) -> Result<()> {
        let per_page = self.blocks_per_page();
        let end = self.check_end(first, block_count)?;
        if self.options.is_trim_on {
            for logical in first.div_ceil(per_page)..end / per_page {
                self.map.remove(logical as u32);
            }
        }
        Ok(())
    }

    /// Waits for all requests, and makes everything survive a power loss of the machine that runs
    /// the emulator.
    pub fn sync(&mut self) -> Result<()> {
        self.nand.drain();
        self.nand.sync()
    }

    /// The counters since opening.
    pub fn counters(&self) -> FtlCounters {
        self.counters
    }

    /// The device below.
    pub fn nand(&self) -> &Nand {
        &self.nand
    }

    /// The device below, to set faults.
    pub fn nand_mut(&mut self) -> &mut Nand {
        &mut self.nand
    }

    /// Write amplification since opening. Asserts that the layer's counters explain every program
    /// that the device counted.
    pub fn write_amplification(&self) -> WriteAmplification {
        let counters = &self.counters;
        let flash_programs = self.nand.counters().of(PageType::Host).programs;
        let explained = counters.host_programs + counters.gc_programs + counters.failed_programs;
        assert_eq!(flash_programs, explained, "each program is the host's or the collection's");
        let page_bytes = u64::from(self.nand.geometry().page_bytes);
        WriteAmplification {
            host_bytes: counters.host_blocks_written * u64::from(HOST_BLOCK_BYTES),
            page_bytes: counters.host_programs * page_bytes,
            flash_bytes: flash_programs * page_bytes,
        }
    }

    /// Checks the mapping's invariant; for tests.
    pub fn is_consistent(&self) -> bool {
        self.map.is_consistent()
    }

    /// Rewrites a mapped page that the request covers in part.
    fn modify(&mut self, part: &Part, piece: &[u8]) -> Result<()> {
        let mut page = match self.map.find(part.logical) {
            Some(ppa) => {
                self.counters.rmw_reads += 1;
                self.nand.read_shared(ppa)?.0.flat().into_owned()
            }
            None => vec![0; self.nand.geometry().page_bytes as usize],
        };
        page[part.inside..part.inside + part.bytes].copy_from_slice(piece);
        self.counters.partial_programs += 1;
        self.place(part.logical, &page.into(), Stream::Host)
    }

    fn blocks_per_page(&self) -> u64 {
        u64::from(self.nand.geometry().page_bytes / HOST_BLOCK_BYTES)
    }

    fn check_end(&self, first: u64, block_count: u64) -> Result<u64> {
        let (end, limit) = (first.saturating_add(block_count), self.block_count());
        if end > limit { Err(Error::PastTheEnd { first, end, limit }) } else { Ok(end) }
    }

    fn check_range(&self, first: u64, len: usize) -> Result<()> {
        self.check_end(first, len as u64 / u64::from(HOST_BLOCK_BYTES))?;
        if !len.is_multiple_of(HOST_BLOCK_BYTES as usize) {
            return Err(Error::BadRequest { bytes: len });
        }
        Ok(())
    }

    /// The mapped pages that a range touches, in order.
    fn parts(&self, first: u64, len: usize) -> impl Iterator<Item = Part> + use<> {
        let page_bytes = u64::from(self.nand.geometry().page_bytes);
        let mut at = first * u64::from(HOST_BLOCK_BYTES);
        let end = at + len as u64;
        std::iter::from_fn(move || {
            let inside = at % page_bytes;
            let bytes = (page_bytes - inside).min(end - at);
            let part = Part {
                logical: (at / page_bytes) as u32,
                inside: inside as usize,
                bytes: bytes as usize,
            };
            at += bytes;
            (bytes > 0).then_some(part)
        })
    }
}

/// The part of a request that is in one mapped page.
struct Part {
    logical: u32,
    inside: usize,
    bytes: usize,
}

/// The number of logical pages of a device: as many as over-provisioning leaves, but never so many
/// that collection could stop making progress.
fn logical_pages(geometry: &Geometry, options: &FtlOptions) -> Result<u32> {
    geometry.check().map_err(Error::BadGeometry)?;
    if geometry.page_bytes < HOST_BLOCK_BYTES {
        return Err(Error::BadGeometry("a page must hold at least one host block of 4096 bytes"));
    }
    if options.over_provision_percent > 90 {
        return Err(Error::BadGeometry("at most 90 percent may be set aside"));
    }
    let visible_percent = u64::from(100 - options.over_provision_percent);
    let usable_blocks = geometry.block_count.saturating_sub(MIN_SPARE_BLOCKS);
    let usable_pages = u64::from(usable_blocks) * u64::from(geometry.block_pages);
    let pages = (geometry.page_count() * visible_percent / 100).min(usable_pages);
    if pages == 0 {
        return Err(Error::BadGeometry("a block SSD must have more than 5 blocks"));
    }
    Ok(pages as u32)
}
