//! An image that fails after a number of writes, or refuses one write, of which it may store a
//! part.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use runstone_flash::nand::{Image, MemoryImage};
use runstone_flash::{Error, Result};

/// See the module docs.
pub struct Failing {
    image: MemoryImage,
    /// How many writes are left until it fails.
    pub left: Arc<AtomicU64>,
    refuses_one: bool,
}

#[allow(dead_code, reason = "not every test has both")]
impl Failing {
    /// Makes an image whose machine dies after this many writes. The device that is being opened
    /// cannot plan this fault itself, because it does not exist yet.
    pub fn dies_after(image: &MemoryImage, writes: u64) -> Failing {
        let left = Arc::new(AtomicU64::new(writes));
        Failing { image: image.clone(), left, refuses_one: false }
    }

    /// Makes an image that refuses one write, after the number of writes that `left` is set to.
    pub fn refuses_one(image: &MemoryImage) -> Failing {
        Failing { refuses_one: true, ..Failing::dies_after(image, u64::MAX) }
    }

    fn check(&self) -> Result<()> {
        let less = |left: u64| left.checked_sub(1);
        if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok() {
            return Ok(());
        }
        if !self.refuses_one {
            return Err(Error::PowerCut);
        }
        self.left.store(u64::MAX, Ordering::Relaxed);
        let source = io::ErrorKind::StorageFull.into();
        Err(Error::Image { what: "write", place: self.place(), source })
    }
}

impl Image for Failing {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.image.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        if let Err(error) = self.check() {
            // A disk that fills up stores what still fits, in whole sectors.
            let middle = offset + data.len() as u64 / 2;
            let taken = (middle - middle % 512).saturating_sub(offset) as usize;
            if self.refuses_one {
                self.image.write_at(offset, &data[..taken])?;
            }
            return Err(error);
        }
        self.image.write_at(offset, data)
    }

    fn len_bytes(&self) -> Result<u64> {
        self.image.len_bytes()
    }

    fn set_len(&self, len_bytes: u64) -> Result<()> {
        self.check()?;
        self.image.set_len(len_bytes)
    }

    fn sync(&self) -> Result<()> {
        self.image.sync()
    }

    fn place(&self) -> String {
        self.image.place()
    }
}
