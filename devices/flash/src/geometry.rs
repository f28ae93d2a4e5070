//! How large a flash device is, and where each of its pages is. It knows no image and no content.

use std::fmt;

/// The sizes of a device. The default is that of the paper: 32 KiB pages, and 128 pages in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of data in a page.
    pub page_bytes: u32,
    /// Spare (out-of-band) bytes of a page.
    pub spare_bytes: u32,
    /// Pages in a block.
    pub block_pages: u32,
    /// Blocks of the device.
    pub block_count: u32,
    /// Channels, each with its own bus.
    pub channel_count: u32,
    /// Dies on each channel.
    pub die_count: u32,
}

impl Default for Geometry {
    fn default() -> Self {
        Geometry {
            page_bytes: 32 << 10,
            spare_bytes: 128,
            block_pages: 128,
            block_count: 384,
            channel_count: 1,
            die_count: 1,
        }
    }
}

impl Geometry {
    /// Refuses an impossible geometry, and one that would overflow an address. The error says why.
    pub fn check(&self) -> Result<(), &'static str> {
        if !(512..=1 << 20).contains(&self.page_bytes) || !self.page_bytes.is_power_of_two() {
            return Err("a page is a power of two from 512 bytes to 1 MiB");
        }
        if !(64..=4096).contains(&self.spare_bytes) {
            return Err("a page has 64 to 4096 spare bytes");
        }
        if !(2..=4096).contains(&self.block_pages) {
            return Err("a block has 2 to 4096 pages");
        }
        if !(2..=1 << 20).contains(&self.block_count) {
            return Err("a device has 2 to 1,048,576 blocks");
        }
        if self.page_count() >= u64::from(u32::MAX) {
            return Err("a device has fewer than 2^32 - 1 pages");
        }
        if !(1..=64).contains(&self.channel_count) || !(1..=64).contains(&self.die_count) {
            return Err("a device has 1 to 64 channels with 1 to 64 dies each");
        }
        Ok(())
    }

    /// Pages of the device.
    pub fn page_count(&self) -> u64 {
        u64::from(self.block_pages) * u64::from(self.block_count)
    }

    /// Bytes of data in a block.
    pub fn block_bytes(&self) -> u64 {
        u64::from(self.block_pages) * u64::from(self.page_bytes)
    }

    /// Bytes of data in the device.
    pub fn data_bytes(&self) -> u64 {
        self.block_bytes() * u64::from(self.block_count)
    }

    /// The number of the page, counted through all blocks. `check` ensures that it fits.
    pub fn flat(&self, ppa: Ppa) -> u32 {
        ppa.block * self.block_pages + ppa.page
    }

    /// The page with this number.
    pub fn page(&self, flat: u32) -> Ppa {
        Ppa { block: flat / self.block_pages, page: flat % self.block_pages }
    }

    /// Whether the page exists.
    pub fn contains(&self, ppa: Ppa) -> bool {
        ppa.block < self.block_count && ppa.page < self.block_pages
    }
}

impl fmt::Display for Geometry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Geometry { page_bytes, spare_bytes, block_pages, block_count, .. } = self;
        write!(
            f,
            "{block_count} blocks of {block_pages} pages of {page_bytes}+{spare_bytes} bytes"
        )?;
        write!(f, " on {} channels of {} dies", self.channel_count, self.die_count)
    }
}

/// Physical page address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ppa {
    /// Block of the device.
    pub block: u32,
    /// Page of the block.
    pub page: u32,
}

impl fmt::Display for Ppa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {} of block {}", self.page, self.block)
    }
}
