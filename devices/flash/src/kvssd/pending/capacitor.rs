//! The side file that takes the place of a memtable protected by a capacitor. An acknowledged write
//! is stored there once, as a capacitor would save it. It is not flash, so no program is counted.
//!
//! A power loss of the machine that runs the emulator may destroy any pages of the file that were
//! not synced. So only the frames before the first damaged one count, and the device knows how far
//! they must reach.

use crate::error::Result;
use crate::kvssd::pending::Write;
use crate::kvssd::pending::frames::{self, Decoded};
use crate::nand::Image;

/// The side file, open at its end.
pub(crate) struct Capacitor {
    image: Box<dyn Image>,
    end_bytes: u64,
    buffer: Vec<u8>,
    /// Whether frames were added since the last sync.
    is_unsynced: bool,
}

impl Capacitor {
    /// Makes an empty side file. The frames of an earlier device do not come back.
    pub(crate) fn create(image: Box<dyn Image>) -> Result<Capacitor> {
        image.set_len(0)?;
        image.sync()?;
        Ok(Capacitor { image, end_bytes: 0, buffer: Vec::new(), is_unsynced: false })
    }

    /// Opens the saved file. The caller then calls [`Capacitor::cut`].
    pub(crate) fn open(image: Box<dyn Image>) -> Result<(Capacitor, Decoded)> {
        let mut bytes = vec![0; image.len_bytes()? as usize];
        image.read_at(0, &mut bytes)?;
        let end_bytes = bytes.len() as u64;
        let capacitor = Capacitor { image, end_bytes, buffer: Vec::new(), is_unsynced: true };
        Ok((capacitor, frames::decode_all(&bytes)))
    }

    /// Cuts off the frames that do not count, and syncs. Otherwise old frames could follow new ones
    /// and would count again.
    pub(crate) fn cut(&mut self, end_bytes: u64) -> Result<()> {
        if end_bytes < self.end_bytes {
            self.image.set_len(end_bytes)?;
            self.image.sync()?;
            (self.end_bytes, self.is_unsynced) = (end_bytes, false);
        }
        Ok(())
    }

    /// Saves a group of writes.
    pub(crate) fn save(&mut self, first_seq: u64, writes: &[Write<'_>]) -> Result<()> {
        self.buffer.clear();
        frames::encode(first_seq, writes, &mut self.buffer);
        if let Err(error) = self.image.write_at(self.end_bytes, &self.buffer) {
            // A remainder of this frame after a shorter one would be mistaken for damage.
            self.image.set_len(self.end_bytes)?;
            return Err(error);
        }
        self.end_bytes += self.buffer.len() as u64;
        self.is_unsynced = true;
        Ok(())
    }

    /// Empties the file, because the memtable is in tables now, and the tables are synced. If the
    /// frames cannot be cut off, the next frames follow them. Frames that come back because the cut
    /// was not synced do not count: their writes are in tables.
    pub(crate) fn clear(&mut self) -> Result<()> {
        self.image.set_len(0)?;
        self.end_bytes = 0;
        Ok(())
    }

    pub(crate) fn sync(&mut self) -> Result<()> {
        if self.is_unsynced {
            self.image.sync()?;
            self.is_unsynced = false;
        }
        Ok(())
    }

    pub(crate) fn place(&self) -> String {
        self.image.place()
    }

    pub(crate) fn len_bytes(&self) -> u64 {
        self.end_bytes
    }
}
