//! A NAND flash device over one image: the rules, the faults, the time and the wear. It knows no
//! firmware, so it does not interpret the tags of pages.
//!
//! The rules of flash: only erased pages are programmed, in order inside a block, and never after a
//! torn page. An erased page reads 0xFF. A retired block is neither programmed nor erased. A
//! violation is an error, and is never repaired.
//!
//! A power cut ends the device: every later operation fails until the image is opened again. After
//! a power loss of the machine that runs the emulator, the image opens as after a power cut of the
//! device.

mod cells;
mod counters;
mod faults;
mod header;
mod image;
mod oob;
mod order;
mod settle;
mod shared;
mod timing;

use crate::error::{Error, Result, Rule};
pub use crate::geometry::{Geometry, Ppa};
use cells::{BlockState, Cells, Stamp};
pub use counters::{NandCounters, TypeCounters, Wear};
use faults::{Fate, Faults, TornErase, TornProgram};
pub use faults::{FaultPlan, FiredFaults};
pub(crate) use image::Unsynced;
pub use image::{FileImage, Image, MemoryImage};
pub use oob::{Oob, PageTag, PageType, Spare};
pub use shared::{SharedBytes, SharedValue};
use timing::Clock;
pub use timing::Timing;

/// The byte that a cell reads as while nothing is programmed there.
const ERASED: u8 = 0xff;
/// The byte that the pages of a half-erased block read as.
const HALF_ERASED: u8 = 0xa5;

/// A flash device.
pub struct Nand {
    geometry: Geometry,
    cells: Cells,
    /// Type of the first page of each block, if that page is intact.
    block_types: Vec<Option<PageType>>,
    clock: Clock,
    /// When the page that was read last arrives.
    last_arrival_ns: u64,
    counters: NandCounters,
    faults: Faults,
    /// Spare bytes of one page.
    spare: Vec<u8>,
}

impl std::fmt::Debug for Nand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Nand({}, {})", self.place(), self.geometry)
    }
}

impl Nand {
    /// Makes a device of erased blocks over an empty image.
    pub fn create(image: Box<dyn Image>, geometry: Geometry, timing: Timing) -> Result<Nand> {
        geometry.check().map_err(Error::BadGeometry)?;
        header::write(&*image, &geometry)?;
        Ok(Nand::over(Cells::create(image, geometry)?, geometry, timing))
    }

    /// Opens a device. If a geometry is given, the device must have it.
    pub fn open(image: Box<dyn Image>, asked: Option<Geometry>, timing: Timing) -> Result<Nand> {
        Nand::open_checked(image, asked, timing, &|_| true)
    }

    /// Like [`Nand::open`]; `is_whole` judges unsynced pages whose values only the firmware checks.
    pub fn open_checked(
        image: Box<dyn Image>,
        asked: Option<Geometry>,
        timing: Timing,
        is_whole: &dyn Fn(&SharedBytes) -> bool,
    ) -> Result<Nand> {
        let geometry = header::read(&*image)?;
        if let Some(asked) = asked.filter(|asked| *asked != geometry) {
            return Err(Error::OtherGeometry { image: geometry, asked });
        }
        let mut nand = Nand::over(Cells::open(image, geometry)?, geometry, timing);
        nand.settle(is_whole)?;
        for block in 0..geometry.block_count {
            nand.block_types[block as usize] = match nand.spare_of(Ppa { block, page: 0 })? {
                Spare::Valid(oob) => Some(oob.tag.page_type),
                Spare::Erased | Spare::Damaged => None,
            };
        }
        Ok(nand)
    }

    fn over(cells: Cells, geometry: Geometry, timing: Timing) -> Nand {
        Nand {
            geometry,
            cells,
            block_types: vec![None; geometry.block_count as usize],
            clock: Clock::new(timing, &geometry),
            last_arrival_ns: 0,
            counters: NandCounters::default(),
            faults: Faults::default(),
            spare: vec![ERASED; geometry.spare_bytes as usize],
        }
    }

    /// Like [`Nand::program_shared`], with a copy of the data.
    pub fn program(&mut self, ppa: Ppa, data: &[u8], tag: PageTag) -> Result<()> {
        self.program_shared(ppa, &data.to_vec().into(), tag)
    }

    /// Programs a page. After any error except a broken rule, the page is lost.
    pub fn program_shared(&mut self, ppa: Ppa, data: &SharedBytes, tag: PageTag) -> Result<()> {
        self.check_alive(ppa)?;
        self.check_program(ppa, data.len())?;
        self.cells.before_program(ppa, tag.program_seq)?;
        let fate = self.faults.fate_of_program(data.len());
        if ppa.page == 0 {
            self.block_types[ppa.block as usize] = Some(tag.page_type);
        }
        self.counters.live(Some(tag.page_type)).programs += 1;
        self.clock.program(ppa, self.transfer_bytes(data.len()));
        let erase_count = self.cells.block(ppa.block).erase_count;
        let flat;
        let (data, front_bytes) = match u16::try_from(data.front().len()) {
            _ if data.is_flat() => (data, 0),
            Ok(front_bytes) => (data, front_bytes),
            Err(_) => {
                flat = data.flat().into_owned().into();
                (&flat, 0)
            }
        };
        let oob = Oob { tag, erase_count, front_bytes, data_crc: data.checksum() };
        oob.encode(&self.geometry, ppa, &mut self.spare);
        let done = match fate {
            Fate::Done => self.write_page(ppa, data),
            Fate::Fails => {
                self.spare.fill(ERASED);
                self.write_page(ppa, data)?;
                Err(Error::ProgramFailed(ppa))
            }
            Fate::PowerCut(torn) => {
                self.tear_program(ppa, &data.flat(), torn)?;
                Err(Error::PowerCut)
            }
        };
        // A failed program leaves a gap in the numbers.
        done.inspect(|()| self.cells.after_program(tag.program_seq))
    }

    /// Like [`Nand::read_shared`], into a buffer.
    pub fn read(&mut self, ppa: Ppa, data: &mut [u8]) -> Result<Oob> {
        if data.len() != self.geometry.page_bytes as usize {
            return Err(Error::RuleBroken(ppa, Rule::WholePage));
        }
        let (bytes, oob) = self.read_shared(ppa)?;
        data.copy_from_slice(&bytes.flat());
        Ok(oob)
    }

    /// Reads a whole page and checks the part that its checksum covers. If a gathered page is
    /// returned flat, only its front was checked.
    pub fn read_shared(&mut self, ppa: Ppa) -> Result<(SharedBytes, Oob)> {
        self.read_again(ppa)?;
        let oob = match self.spare_of(ppa)? {
            Spare::Erased => return Err(Error::PageErased(ppa)),
            Spare::Damaged => return Err(Error::PageDamaged(ppa, "spare bytes")),
            Spare::Valid(oob) => oob,
        };
        let data = self.cells.read_data_shared(ppa)?;
        if !oob.covers(&data) {
            return Err(Error::PageDamaged(ppa, "data checksum"));
        }
        Ok((data, oob))
    }

    /// Reads the bytes of a page, whatever they are: 0xFF if it is erased.
    pub fn read_unchecked(&mut self, ppa: Ppa, data: &mut [u8]) -> Result<Spare> {
        if data.len() != self.geometry.page_bytes as usize {
            return Err(Error::RuleBroken(ppa, Rule::WholePage));
        }
        self.read_again(ppa)?;
        let state = self.cells.block(ppa.block);
        if state.is_half_erased {
            data.fill(HALF_ERASED);
        } else if ppa.page >= state.programmed_pages {
            data.fill(ERASED);
        } else {
            self.cells.read_data(ppa, data)?;
        }
        self.spare_of(ppa)
    }

    /// Reads a page whose content the caller knows. The read is counted, timed and refused like any
    /// other, but returns no bytes. It saves work for the emulator, not for the device.
    pub fn read_again(&mut self, ppa: Ppa) -> Result<()> {
        self.check_alive(ppa)?;
        self.count_read(ppa, self.geometry.page_bytes as usize);
        let is_lost = self.faults.is_uncorrectable(ppa);
        if is_lost { Err(Error::Uncorrectable(ppa)) } else { Ok(()) }
    }

    /// Reads the spare bytes of a page only.
    pub fn read_spare(&mut self, ppa: Ppa) -> Result<Spare> {
        self.check_alive(ppa)?;
        self.count_read(ppa, 0);
        if self.faults.is_uncorrectable(ppa) {
            return Ok(Spare::Damaged);
        }
        self.spare_of(ppa)
    }

    /// Reads the spare bytes of all pages of a block, as a scan at boot does.
    pub fn read_spares(&mut self, block: u32) -> Result<Vec<Spare>> {
        self.check_alive(Ppa { block, page: 0 })?;
        let mut bytes = Vec::new();
        self.cells.read_spares(block, &mut bytes)?;
        let mut spares = Vec::with_capacity(self.geometry.block_pages as usize);
        for (page, slot) in (0..).zip(bytes.chunks_exact(self.cells.slot_bytes())) {
            let ppa = Ppa { block, page };
            self.count_read(ppa, 0);
            let is_unreadable = self.faults.is_uncorrectable(ppa);
            let spare = &slot[..self.geometry.spare_bytes as usize];
            spares.push(if is_unreadable { Spare::Damaged } else { self.judge(ppa, spare) });
        }
        Ok(spares)
    }

    /// Erases a block. Its content may have been needed until now.
    pub fn erase(&mut self, block: u32) -> Result<()> {
        self.erase_unneeded(block, u64::MAX)
    }

    /// Erases a block. Its content was no longer needed after the program with this number. If that
    /// program is synced, the erase costs no sync.
    pub fn erase_unneeded(&mut self, block: u32, seq: u64) -> Result<()> {
        let ppa = Ppa { block, page: 0 };
        self.check_alive(ppa)?;
        if self.cells.block(block).is_retired {
            return Err(Error::RuleBroken(ppa, Rule::NotRetired));
        }
        let fate = self.faults.fate_of_erase();
        self.counters.live(self.block_types[block as usize]).erases += 1;
        self.clock.erase(block);
        let erase_count = self.cells.block(block).erase_count;
        let erased = BlockState { erase_count: erase_count + 1, ..BlockState::default() };
        let half = BlockState { is_half_erased: true, ..self.cells.block(block).clone() };
        match fate {
            Fate::Done => {
                self.block_types[block as usize] = None;
                self.cells.set_block(block, erased, seq)
            }
            Fate::Fails => {
                self.cells.set_block(block, half, seq)?;
                Err(Error::EraseFailed { block })
            }
            Fate::PowerCut(torn) => {
                match torn {
                    TornErase::NotBegun => {}
                    TornErase::Half => self.cells.set_block(block, half, seq)?,
                    TornErase::Complete => self.cells.set_block(block, erased, seq)?,
                }
                Err(Error::PowerCut)
            }
        }
    }

    /// Marks a block as bad for ever. Its content stays readable. The mark is synced, because
    /// without it the page that failed would be taken for corruption.
    pub fn retire(&mut self, block: u32) -> Result<()> {
        self.check_alive(Ppa { block, page: 0 })?;
        let state = BlockState { is_retired: true, ..self.cells.block(block).clone() };
        self.cells.set_block(block, state, u64::MAX)?;
        self.cells.flush()
    }

    /// Makes everything survive a power loss of the machine that runs the emulator. The emulated
    /// device needs no such call: a program that returned is durable.
    pub fn sync(&mut self) -> Result<()> {
        if self.faults.is_power_cut {
            return Err(Error::PowerCut);
        }
        self.cells.sync()
    }

    /// Notes a number of the firmware that never decreases. From the next sync on the image keeps
    /// it, but a power loss of the machine may bring back the number of an earlier sync.
    pub fn set_note(&mut self, note: u64) {
        self.cells.order.note = note;
    }

    /// The number that was noted last, if the image kept it.
    pub fn note(&self) -> u64 {
        self.cells.order.note
    }

    /// The largest `program_seq` in use. Programs that continue from there cost no sync.
    pub fn last_seq(&self) -> u64 {
        self.cells.order.last_seq
    }

    /// Syncs of the image since opening: those that were requested, and those that the order
    /// requires.
    pub fn image_syncs(&self) -> u64 {
        self.cells.order.sync_count
    }

    /// Sizes of the device.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Times of the device.
    pub fn timing(&self) -> Timing {
        self.clock.timing()
    }

    /// Spreads the pages of each block over all dies from now on. It changes only simulated time.
    pub(crate) fn stripe_blocks(&mut self) {
        self.clock.is_striped = true;
    }

    /// The most one-page requests that may be queued.
    pub(crate) fn set_queue_depth(&mut self, depth: u32) {
        self.clock.set_queue_depth(depth as usize);
    }

    /// The most requests that may be queued; 1 without a queue.
    pub(crate) fn queue_depth(&self) -> usize {
        self.clock.queue_depth()
    }

    /// Runs `f`, whose requests are queued: it waits only for places in the queue.
    pub(crate) fn queued<T>(&mut self, f: impl FnOnce(&mut Nand) -> T) -> T {
        self.clock.set_queued(true);
        let done = f(self);
        self.clock.set_queued(false);
        done
    }

    /// When the page that was read last arrives, in simulated time.
    pub(crate) fn last_arrival_ns(&self) -> u64 {
        self.last_arrival_ns
    }

    /// Waits until a moment of simulated time.
    pub(crate) fn wait_until(&mut self, ns: u64) {
        self.clock.wait_until(ns);
    }

    /// Waits for all queued requests.
    pub(crate) fn drain(&mut self) {
        self.clock.drain();
    }

    /// The simulated time from opening until everything issued so far is done.
    pub fn elapsed_ns(&self) -> u64 {
        self.clock.idle_ns()
    }

    /// Operations since opening.
    pub fn counters(&self) -> NandCounters {
        self.counters
    }

    /// Erases of a block in its life.
    pub fn erase_count(&self, block: u32) -> u64 {
        self.cells.block(block).erase_count
    }

    /// Whether a block is marked as bad.
    pub fn is_retired(&self, block: u32) -> bool {
        self.cells.block(block).is_retired
    }

    /// Type of the first page of a block, if that page is intact.
    pub fn type_of(&self, block: u32) -> Option<PageType> {
        self.block_types[block as usize]
    }

    /// Whether every page of a block reads as erased. A disturbed first page does so too.
    pub fn looks_erased(&self, block: u32) -> bool {
        let state = self.cells.block(block);
        state.programmed_pages == 0 && !state.is_half_erased
    }

    /// How worn the device is.
    pub fn wear(&self) -> Wear {
        let in_use = || self.cells.blocks.iter().filter(|state| !state.is_retired);
        let block_count = in_use().count() as u32;
        Wear {
            min: in_use().map(|state| state.erase_count).min().unwrap_or(0),
            max: in_use().map(|state| state.erase_count).max().unwrap_or(0),
            sum: self.cells.blocks.iter().map(|state| state.erase_count).sum(),
            block_count,
            retired_count: self.geometry.block_count - block_count,
        }
    }

    /// Replaces the plan of faults; its ordinals count from here.
    pub fn set_faults(&mut self, plan: FaultPlan) {
        self.faults.set(plan);
    }

    /// Programs and erases since the plan of faults was set.
    pub fn mutation_count(&self) -> u64 {
        self.faults.mutation_count()
    }

    /// Faults that happened since the device was opened.
    pub fn fired_faults(&self) -> FiredFaults {
        self.faults.fired
    }

    /// Path or name of the image.
    pub fn place(&self) -> String {
        self.cells.place()
    }

    fn check_alive(&self, ppa: Ppa) -> Result<()> {
        if self.faults.is_power_cut {
            return Err(Error::PowerCut);
        }
        if !self.geometry.contains(ppa) {
            return Err(Error::NoSuchPage(ppa));
        }
        Ok(())
    }

    fn check_program(&self, ppa: Ppa, data_bytes: usize) -> Result<()> {
        let state = self.cells.block(ppa.block);
        let broken = |rule| Err(Error::RuleBroken(ppa, rule));
        if data_bytes != self.geometry.page_bytes as usize {
            return broken(Rule::WholePage);
        }
        if state.is_retired {
            return broken(Rule::NotRetired);
        }
        if state.is_half_erased || ppa.page < state.programmed_pages {
            return broken(Rule::ProgramErasedOnly);
        }
        if state.is_disturbed {
            return broken(Rule::NotPastTorn);
        }
        if ppa.page > state.programmed_pages {
            return broken(Rule::ProgramInOrder);
        }
        Ok(())
    }

    fn write_page(&mut self, ppa: Ppa, data: &SharedBytes) -> Result<()> {
        self.cells.write_data(ppa, data)?;
        self.cells.write_spare(ppa, &self.spare, Stamp::Programmed, settle::check(data.front()))
    }

    fn tear_program(&mut self, ppa: Ppa, data: &[u8], torn: TornProgram) -> Result<()> {
        let mut data = data.to_vec();
        match torn {
            TornProgram::NotBegun => return Ok(()),
            TornProgram::LooksErased => {
                return self.cells.write_spare(ppa, &self.spare, Stamp::Disturbed, 0);
            }
            TornProgram::Prefix { bytes } => {
                data[bytes..].fill(ERASED);
                self.spare.fill(ERASED);
            }
            TornProgram::Garbled { from, bytes } => {
                data[from..from + bytes].iter_mut().for_each(|byte| *byte ^= HALF_ERASED);
            }
            TornProgram::Complete => {}
        }
        self.write_page(ppa, &data.into())
    }

    fn count_read(&mut self, ppa: Ppa, data_bytes: usize) {
        self.counters.live(self.block_types[ppa.block as usize]).reads += 1;
        self.last_arrival_ns = self.clock.read(ppa, self.transfer_bytes(data_bytes));
    }

    fn transfer_bytes(&self, data_bytes: usize) -> u64 {
        data_bytes as u64 + u64::from(self.geometry.spare_bytes)
    }

    fn spare_of(&mut self, ppa: Ppa) -> Result<Spare> {
        let mut spare = std::mem::take(&mut self.spare);
        let read = self.cells.read_spare(ppa, &mut spare);
        let judged = self.judge(ppa, &spare);
        self.spare = spare;
        read.map(|()| judged)
    }

    /// Spare bytes with another erase count are damage: the image lost a page.
    fn judge(&self, ppa: Ppa, spare: &[u8]) -> Spare {
        let state = self.cells.block(ppa.block);
        if state.is_half_erased {
            return Spare::Damaged;
        }
        if ppa.page >= state.programmed_pages {
            return Spare::Erased;
        }
        match Oob::decode(&self.geometry, ppa, spare) {
            Some(oob) if oob.erase_count == state.erase_count => Spare::Valid(oob),
            _ => Spare::Damaged,
        }
    }
}
