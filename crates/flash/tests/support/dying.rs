//! A machine that dies while a device is being opened.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use runstone_flash::nand::{Image, MemoryImage};
use runstone_flash::{Error, Result};

/// An image of a machine that dies after so many writes: what is being opened has no plan of faults
/// yet.
pub struct Dying {
    pub image: MemoryImage,
    pub left: Arc<AtomicU64>,
}

impl Dying {
    pub fn after(image: &MemoryImage, writes: u64) -> Dying {
        Dying { image: image.clone(), left: Arc::new(AtomicU64::new(writes)) }
    }

    fn check(&self) -> Result<()> {
        let less = |left: u64| left.checked_sub(1);
        let lives = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        lives.map(|_| ()).map_err(|_| Error::PowerCut)
    }
}

impl Image for Dying {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.image.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.check()?;
        self.image.write_at(offset, data)
    }

    fn len_bytes(&self) -> Result<u64> {
        self.image.len_bytes()
    }

    fn set_len(&self, len_bytes: u64) -> Result<()> {
        self.image.set_len(len_bytes)
    }

    fn sync(&self) -> Result<()> {
        self.image.sync()
    }

    fn place(&self) -> String {
        self.image.place()
    }
}
