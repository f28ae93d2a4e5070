//! The side file that stands for a memtable protected by a capacitor: an acknowledged write is
//! stored there once, as a capacitor would save it. Not flash: no program is counted.

use super::Write;
use super::frames::{self, Frame};
use crate::error::Result;
use crate::nand::Image;

/// The side file, open at its end.
pub(super) struct Capacitor {
    image: Box<dyn Image>,
    end_bytes: u64,
    buffer: Vec<u8>,
}

impl Capacitor {
    /// Makes an empty side file.
    pub(super) fn create(image: Box<dyn Image>) -> Result<Capacitor> {
        image.set_len(0)?;
        Ok(Capacitor { image, end_bytes: 0, buffer: Vec::new() })
    }

    /// What was saved. A frame that was cut short was never acknowledged and is cut off.
    pub(super) fn open(image: Box<dyn Image>) -> Result<(Capacitor, Vec<Frame>)> {
        let mut bytes = vec![0; image.len_bytes()? as usize];
        image.read_at(0, &mut bytes)?;
        let (frames, used) = frames::decode_all(&bytes, &image.place())?;
        image.set_len(used as u64)?;
        Ok((Capacitor { image, end_bytes: used as u64, buffer: Vec::new() }, frames))
    }

    /// Saves a group of writes.
    pub(super) fn save(&mut self, first_seq: u64, writes: &[Write<'_>]) -> Result<()> {
        self.buffer.clear();
        frames::encode(first_seq, writes, &mut self.buffer);
        if let Err(error) = self.image.write_at(self.end_bytes, &self.buffer) {
            // What was written of this frame, behind a shorter one, would be taken for damage.
            self.image.set_len(self.end_bytes)?;
            return Err(error);
        }
        self.end_bytes += self.buffer.len() as u64;
        Ok(())
    }

    /// Empties the file, because the memtable is in tables now. If the frames cannot be cut off,
    /// the next frames follow them.
    pub(super) fn clear(&mut self) -> Result<()> {
        self.image.set_len(0)?;
        self.end_bytes = 0;
        Ok(())
    }

    pub(super) fn sync(&self) -> Result<()> {
        self.image.sync()
    }

    pub(super) fn len_bytes(&self) -> u64 {
        self.end_bytes
    }
}
