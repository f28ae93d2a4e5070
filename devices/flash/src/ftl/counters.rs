//! What the translation layer has done since it was opened, and the write amplification that
//! follows.

use std::fmt;

/// Counters of the layer. Each program writes a whole page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FtlCounters {
    /// Host blocks written.
    pub host_blocks_written: u64,
    /// Pages programmed for the host.
    pub host_programs: u64,
    /// How many of these pages a request covered only in part.
    pub partial_programs: u64,
    /// Pages read to complete them.
    pub rmw_reads: u64,
    /// Pages read for the host.
    pub host_reads: u64,
    /// Pages moved by garbage collection, wear levelling and the evacuation of bad blocks.
    pub gc_programs: u64,
    /// Pages read in order to move them.
    pub gc_reads: u64,
    /// Blocks collected.
    pub collections: u64,
    /// Blocks moved for wear levelling.
    pub wear_moves: u64,
    /// Erases.
    pub erases: u64,
    /// Programs that failed and were repeated elsewhere.
    pub failed_programs: u64,
    /// Pages that had to be moved but could not be read.
    pub unreadable_pages: u64,
}

/// Write amplification of the layers below the host, as exact counts of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteAmplification {
    /// Bytes that the host wrote.
    pub host_bytes: u64,
    /// Bytes of the pages programmed for the host.
    pub page_bytes: u64,
    /// Bytes of all programmed pages, as the device counted them.
    pub flash_bytes: u64,
}

impl WriteAmplification {
    /// Read-modify-write: page bytes over host bytes, in thousandths.
    pub fn rmw_milli(&self) -> u64 {
        milli(self.page_bytes, self.host_bytes)
    }

    /// Garbage collection: flash bytes over page bytes, in thousandths.
    pub fn gc_milli(&self) -> u64 {
        milli(self.flash_bytes, self.page_bytes)
    }

    /// Flash bytes over host bytes, in thousandths.
    pub fn total_milli(&self) -> u64 {
        milli(self.flash_bytes, self.host_bytes)
    }
}

impl fmt::Display for WriteAmplification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimal = |milli: u64| format!("{}.{:03}", milli / 1000, milli % 1000);
        let (rmw, gc) = (decimal(self.rmw_milli()), decimal(self.gc_milli()));
        write!(f, "read-modify-write {rmw} x collection {gc} = {}", decimal(self.total_milli()))
    }
}

/// Rounded to the nearest integer; 0 if the denominator is 0.
fn milli(numerator: u64, denominator: u64) -> u64 {
    let half = u128::from(denominator) / 2;
    let scaled = u128::from(numerator) * 1000 + half;
    scaled.checked_div(u128::from(denominator)).unwrap_or(0) as u64
}
