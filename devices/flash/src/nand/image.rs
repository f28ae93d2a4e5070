//! Where the bytes of an image are: a file with positioned I/O, or memory for tests. Files are not
//! mapped. This module knows nothing of blocks and pages.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::shared::SharedBytes;
use crate::error::{Error, Result};

/// Bytes with positioned I/O. Bytes that were never written read as zeros.
pub trait Image: Send + Sync {
    /// Fills `buf`. It is an error to read beyond the end.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()>;
    /// Writes all of `data`.
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()>;
    /// Writes bytes that an image may keep instead of copying them.
    fn write_shared(&self, offset: u64, data: &SharedBytes) -> Result<()> {
        self.write_at(offset, &data.flat())
    }
    /// Reads bytes. If the image kept exactly this range, returns the kept bytes themselves.
    fn read_shared(&self, offset: u64, len: usize) -> Result<SharedBytes> {
        let mut bytes = vec![0; len];
        self.read_at(offset, &mut bytes)?;
        Ok(bytes.into())
    }
    /// Length in bytes.
    fn len_bytes(&self) -> Result<u64>;
    /// Shortens the image, or extends it with zeros that take no space.
    fn set_len(&self, len_bytes: u64) -> Result<()>;
    /// Makes everything written so far survive a power loss of this machine.
    fn sync(&self) -> Result<()>;
    /// Path or name, for messages.
    fn place(&self) -> String;
}

/// An image in a file, locked for as long as it is open.
#[derive(Debug)]
pub struct FileImage {
    file: File,
    path: PathBuf,
    /// Whether a sync failed. The bytes that it should have made durable may be lost even if a
    /// later sync succeeds.
    has_lost: AtomicBool,
}

impl FileImage {
    /// Makes a new file; an existing one is not touched.
    pub fn create(path: &Path) -> Result<FileImage> {
        let mut options = OpenOptions::new();
        FileImage::locked(options.read(true).write(true).create_new(true).mode(0o600), path)
    }

    /// Opens an existing file.
    pub fn open(path: &Path) -> Result<FileImage> {
        FileImage::locked(OpenOptions::new().read(true).write(true), path)
    }

    fn locked(options: &OpenOptions, path: &Path) -> Result<FileImage> {
        let place = path.display().to_string();
        let failed = |what, source| Error::Image { what, place: place.clone(), source };
        let file = options.open(path).map_err(|source| failed("open", source))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(Error::InUse { place }),
            Err(errno) => return Err(failed("lock", errno.into())),
        }
        // The process that made the file may have died before its name was durable.
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let synced = File::open(directory.unwrap_or(Path::new("."))).and_then(|it| it.sync_all());
        synced.map_err(|source| failed("sync the directory of", source))?;
        Ok(FileImage { file, path: path.to_path_buf(), has_lost: AtomicBool::new(false) })
    }

    fn check<T>(&self, what: &'static str, result: io::Result<T>) -> Result<T> {
        result.map_err(|source| Error::Image { what, place: self.place(), source })
    }
}

impl Image for FileImage {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.check("read", self.file.read_exact_at(buf, offset))
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.check("write", self.file.write_all_at(data, offset))
    }

    fn len_bytes(&self) -> Result<u64> {
        self.check("take the length of", self.file.metadata().map(|metadata| metadata.len()))
    }

    fn set_len(&self, len_bytes: u64) -> Result<()> {
        self.check("set the length of", self.file.set_len(len_bytes))
    }

    fn sync(&self) -> Result<()> {
        let synced = match self.has_lost.load(Ordering::Relaxed) {
            true => Err(io::Error::other("an earlier sync failed; open the device again")),
            false => self.file.sync_data(),
        };
        self.has_lost.fetch_or(synced.is_err(), Ordering::Relaxed);
        self.check("sync", synced)
    }

    fn place(&self) -> String {
        self.path.display().to_string()
    }
}

/// An image that need not survive a power loss of this machine: syncs do nothing.
pub(crate) struct Unsynced(pub(crate) Box<dyn Image>);

impl Image for Unsynced {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.0.write_at(offset, data)
    }

    fn write_shared(&self, offset: u64, data: &SharedBytes) -> Result<()> {
        self.0.write_shared(offset, data)
    }

    fn read_shared(&self, offset: u64, len: usize) -> Result<SharedBytes> {
        self.0.read_shared(offset, len)
    }

    fn len_bytes(&self) -> Result<u64> {
        self.0.len_bytes()
    }

    fn set_len(&self, len_bytes: u64) -> Result<()> {
        self.0.set_len(len_bytes)
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn place(&self) -> String {
        self.0.place()
    }
}

const CHUNK_BYTES: u64 = 64 << 10;
/// The largest number of chunks that are kept for reuse: 16 MiB.
const MOST_SPARE_CHUNKS: usize = 256;

/// An image in memory. Clones share it, so that a test can open it again after a power cut.
#[derive(Clone, Debug, Default)]
pub struct MemoryImage {
    content: Arc<Mutex<Content>>,
}

/// Kept ranges hide the chunks below them, and are disjoint. Chunks that were never written are
/// absent.
#[derive(Clone, Debug, Default)]
struct Content {
    len_bytes: u64,
    /// The chunks that were written. Zeros follow.
    chunks: BTreeMap<u64, Vec<u8>>,
    /// Chunks that were cut off, for reuse. The allocator would return them to the system and get
    /// them back cleared. This matters for the file that stands for a device's capacitor-backed
    /// memory, which is truncated at each flush.
    spare_chunks: Vec<Vec<u8>>,
    kept: BTreeMap<u64, SharedBytes>,
}

impl Content {
    /// Kept bytes that reach into a range, last first.
    fn kept_in(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, &SharedBytes)> {
        let before = self.kept.range(..to).rev();
        let reaching = before.take_while(move |(at, data)| *at + data.len() as u64 > from);
        reaching.map(|(at, data)| (*at, data))
    }

    /// Turns the kept ranges inside a range into chunks, because part of the range is about to be
    /// changed.
    fn unkeep(&mut self, from: u64, to: u64) {
        let reaching: Vec<u64> = self.kept_in(from, to).map(|(at, _)| at).collect();
        for at in reaching {
            if let Some(data) = self.kept.remove(&at) {
                self.write(at, &data.flat());
            }
        }
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        for (chunk, inside, range) in pieces(offset, data.len()) {
            let empty = || {
                let spare = self.spare_chunks.pop();
                spare.unwrap_or_else(|| Vec::with_capacity(CHUNK_BYTES as usize))
            };
            let bytes = self.chunks.entry(chunk).or_insert_with(empty);
            let part = &data[range];
            if bytes.len() < inside {
                bytes.resize(inside, 0);
            }
            let (over, beyond) = part.split_at(part.len().min(bytes.len() - inside));
            bytes[inside..inside + over.len()].copy_from_slice(over);
            bytes.extend_from_slice(beyond);
        }
    }

    fn read(&self, offset: u64, buf: &mut [u8]) {
        let end = offset + buf.len() as u64;
        for (chunk, inside, range) in pieces(offset, buf.len()) {
            let part = &mut buf[range];
            let written = self.chunks.get(&chunk).and_then(|bytes| bytes.get(inside..));
            let written = written.unwrap_or_default();
            let (there, zeros) = part.split_at_mut(written.len().min(part.len()));
            there.copy_from_slice(&written[..there.len()]);
            zeros.fill(0);
        }
        for (at, data) in self.kept_in(offset, end) {
            let (from, to) = (at.max(offset), (at + data.len() as u64).min(end));
            let part = &mut buf[(from - offset) as usize..(to - offset) as usize];
            data.copy_to((from - at) as usize, part);
        }
    }
}

impl MemoryImage {
    /// An empty image that shares nothing with any other.
    pub fn new() -> MemoryImage {
        MemoryImage::default()
    }

    /// A copy that shares with this image only bytes that never change.
    pub fn duplicate(&self) -> MemoryImage {
        MemoryImage { content: Arc::new(Mutex::new(self.content.lock().clone())) }
    }
}

/// Splits a range at chunk borders: (chunk, offset inside, range of the buffer).
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let inside = (at % CHUNK_BYTES) as usize;
        let step = (CHUNK_BYTES as usize - inside).min(len - done);
        let piece = (at / CHUNK_BYTES, inside, done..done + step);
        done += step;
        (step > 0).then_some(piece)
    })
}

impl Image for MemoryImage {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let content = self.content.lock();
        let end = offset.checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > content.len_bytes) {
            let source = io::ErrorKind::UnexpectedEof.into();
            return Err(Error::Image { what: "read", place: self.place(), source });
        }
        content.read(offset, buf);
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        let mut content = self.content.lock();
        let end = offset + data.len() as u64;
        content.len_bytes = content.len_bytes.max(end);
        content.unkeep(offset, end);
        content.write(offset, data);
        Ok(())
    }

    fn write_shared(&self, offset: u64, data: &SharedBytes) -> Result<()> {
        let mut content = self.content.lock();
        let end = offset + data.len() as u64;
        content.len_bytes = content.len_bytes.max(end);
        match content.kept.get_mut(&offset) {
            Some(kept) if kept.len() == data.len() => *kept = data.clone(),
            _ => {
                content.unkeep(offset, end);
                content.kept.insert(offset, data.clone());
            }
        }
        Ok(())
    }

    fn read_shared(&self, offset: u64, len: usize) -> Result<SharedBytes> {
        let content = self.content.lock();
        if let Some(kept) = content.kept.get(&offset).filter(|kept| kept.len() == len) {
            return Ok(kept.clone());
        }
        drop(content);
        let mut bytes = vec![0; len];
        self.read_at(offset, &mut bytes)?;
        Ok(bytes.into())
    }

    fn len_bytes(&self) -> Result<u64> {
        Ok(self.content.lock().len_bytes)
    }

    fn set_len(&self, len_bytes: u64) -> Result<()> {
        let mut content = self.content.lock();
        content.unkeep(len_bytes, u64::MAX);
        content.len_bytes = len_bytes;
        let first_gone = len_bytes.div_ceil(CHUNK_BYTES);
        let gone = content.chunks.split_off(&first_gone);
        let room = MOST_SPARE_CHUNKS.saturating_sub(content.spare_chunks.len());
        content.spare_chunks.extend(gone.into_values().take(room));
        content.spare_chunks.iter_mut().for_each(Vec::clear);
        let inside = (len_bytes % CHUNK_BYTES) as usize;
        if let Some(last) = content.chunks.get_mut(&(len_bytes / CHUNK_BYTES)) {
            last.truncate(inside);
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn place(&self) -> String {
        "in memory".to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(image: &MemoryImage) -> Vec<u8> {
        let mut bytes = vec![0; image.len_bytes().unwrap() as usize];
        image.read_at(0, &mut bytes).unwrap();
        bytes
    }

    /// An image reads like plain bytes, whichever ranges are kept and however later writes overlap
    /// them.
    #[test]
    fn kept_bytes_read_as_any_others() {
        let (image, mut plain) = (MemoryImage::new(), vec![0; 300]);
        image.set_len(300).unwrap();
        let mut random = runstone_random::Random::new(5);
        for round in 0..2000 {
            let (at, len) = (random.below(250) as usize, 1 + random.below(50) as usize);
            let data = vec![round as u8; len];
            plain[at..at + len].copy_from_slice(&data);
            match random.below(3) {
                0 => image.write_at(at as u64, &data).unwrap(),
                _ => image.write_shared(at as u64, &data.into()).unwrap(),
            }
            let found = image.read_shared(at as u64, len).unwrap();
            assert_eq!((&*found.flat(), &content(&image)), (&plain[at..at + len], &plain));
        }
        let copy = image.duplicate();
        image.set_len(140).unwrap();
        image.set_len(300).unwrap();
        assert_eq!(content(&copy), plain);
        plain[140..].fill(0);
        assert_eq!(content(&image), plain);
    }

    /// Once, an image trusted a sync that succeeded after a failed one. The bytes of the first sync
    /// may be lost, because the system gives them up.
    #[test]
    fn a_sync_that_failed_is_not_tried_again() {
        let image = FileImage::open(Path::new("/dev/null")).unwrap();
        let first = image.sync().unwrap_err().to_string();
        let second = image.sync().unwrap_err().to_string();
        assert!(first.contains("/dev/null") && !first.contains("earlier"), "{first}");
        assert!(second.contains("an earlier sync failed; open the device again"), "{second}");
    }

    #[test]
    fn what_is_kept_is_not_copied() {
        let (image, data) = (MemoryImage::new(), SharedBytes::from(vec![7; 100]));
        image.write_shared(20, &data).unwrap();
        assert!(std::ptr::eq(image.read_shared(20, 100).unwrap().front(), data.front()));
        assert!(!std::ptr::eq(&image.read_shared(20, 99).unwrap().front()[0], &data.front()[0]));
    }
}
