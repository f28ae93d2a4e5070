//! A snapshot as one stream: the entries of a keyspace in the order of their keys. The stream does
//! not say who sent it, nor which entry of the log was the last: openraft sends these separately.
//!
//! ```text
//! "RSRAFT01"                                            8 bytes, ends with the format's number
//! block:  length u32 | entries | xxh3 u64               length of the entries, at least 1
//! entry:  key length u32 | value length u32 | key | value
//! end:    0 u32 | number of entries u64 | xxh3 u64      of the 8 bytes before it
//! ```
//!
//! Numbers are little-endian. The seed of a checksum is the number of its block, from 0, so a
//! misplaced block is noticed. An entry is in one block. A block ends at 64 KiB, or with the entry
//! that exceeds this size.

use std::io::{self, Read, Write};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::error::Error;

const MAGIC: &[u8; 8] = b"RSRAFT01";

/// The size at which a block ends.
const BLOCK_BYTES: usize = 64 << 10;

const ENTRY_HEAD_BYTES: usize = 8;

/// A key and its value.
type Entry = (Vec<u8>, Vec<u8>);

/// Writes entries, and returns how many there were.
pub(crate) fn write<K: AsRef<[u8]>, V: AsRef<[u8]>>(
    to: &mut impl Write,
    entries: impl IntoIterator<Item = runstone::Result<(K, V)>>,
) -> Result<u64, Error> {
    to.write_all(MAGIC)?;
    let (mut block, mut number, mut count) = (Vec::new(), 0, 0u64);
    for entry in entries {
        let (key, value) = entry?;
        let (key, value) = (key.as_ref(), value.as_ref());
        block.extend_from_slice(&(key.len() as u32).to_le_bytes());
        block.extend_from_slice(&(value.len() as u32).to_le_bytes());
        block.extend_from_slice(key);
        block.extend_from_slice(value);
        count += 1;
        if block.len() >= BLOCK_BYTES {
            write_block(to, number, &block)?;
            block.clear();
            number += 1;
        }
    }
    if !block.is_empty() {
        write_block(to, number, &block)?;
        number += 1;
    }
    to.write_all(&0u32.to_le_bytes())?;
    let end = count.to_le_bytes();
    to.write_all(&end)?;
    to.write_all(&xxh3_64_with_seed(&end, number).to_le_bytes())?;
    to.flush()?;
    Ok(count)
}

fn write_block(to: &mut impl Write, number: u64, block: &[u8]) -> io::Result<()> {
    // An entry is far below 4 GiB, and a block is at most one entry longer than its bound.
    to.write_all(&(block.len() as u32).to_le_bytes())?;
    to.write_all(block)?;
    to.write_all(&xxh3_64_with_seed(block, number).to_le_bytes())
}

/// The entries of a stream. They end with the first error.
pub(crate) struct Entries<R> {
    from: R,
    block: Vec<u8>,
    /// Where the next entry begins in the block.
    at: usize,
    /// Blocks so far, and entries so far.
    number: u64,
    count: u64,
    is_begun: bool,
    is_over: bool,
}

impl<R: Read> Entries<R> {
    pub(crate) fn new(from: R) -> Entries<R> {
        let block = Vec::new();
        Entries { from, block, at: 0, number: 0, count: 0, is_begun: false, is_over: false }
    }

    fn read_entry(&mut self) -> Result<Option<Entry>, Error> {
        if !self.is_begun {
            self.is_begun = true;
            if self.read_array::<8>()? != *MAGIC {
                return Err(self.bad("it does not begin as a snapshot of this format"));
            }
        }
        if self.at == self.block.len() && !self.read_block()? {
            return Ok(None);
        }
        let left = &self.block[self.at..];
        let length = |at: usize| {
            let bytes = left.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            bytes.map(|bytes| u32::from_le_bytes(bytes) as usize)
        };
        let found = length(0).zip(length(4)).and_then(|(key, value)| {
            let entry = left.get(ENTRY_HEAD_BYTES..)?.get(..key.checked_add(value)?)?;
            Some(entry.split_at(key))
        });
        let Some((key, value)) = found else {
            return Err(self.bad("an entry is longer than its block"));
        };
        let entry = (key.to_vec(), value.to_vec());
        self.at += ENTRY_HEAD_BYTES + entry.0.len() + entry.1.len();
        self.count += 1;
        Ok(Some(entry))
    }

    /// Reads the next block; `false` at the end of the stream.
    fn read_block(&mut self) -> Result<bool, Error> {
        let length = u32::from_le_bytes(self.read_array()?);
        self.block.clear();
        self.at = 0;
        if length == 0 {
            let end = self.read_array::<8>()?;
            self.check(&end)?;
            if u64::from_le_bytes(end) != self.count {
                return Err(self.bad("blocks are missing before its end"));
            }
            return match self.from.read(&mut [0])? {
                0 => Ok(false),
                _ => Err(self.bad("it goes on behind its end")),
            };
        }
        // Memory grows with the arriving bytes: a length alone reserves nothing.
        let mut block = std::mem::take(&mut self.block);
        let read = self.from.by_ref().take(length.into()).read_to_end(&mut block)?;
        if read < length as usize {
            return Err(self.bad("it ends inside a block"));
        }
        self.check(&block)?;
        self.block = block;
        self.number += 1;
        Ok(true)
    }

    fn check(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let written = u64::from_le_bytes(self.read_array()?);
        match written == xxh3_64_with_seed(bytes, self.number) {
            true => Ok(()),
            false => Err(self.bad("its checksum differs")),
        }
    }

    fn read_array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let mut bytes = [0; N];
        match self.from.read_exact(&mut bytes) {
            Ok(()) => Ok(bytes),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(self.bad("it ends before its end mark"))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn bad(&self, what: &'static str) -> Error {
        Error::Stream { block: self.number, what }
    }
}

impl<R: Read> Iterator for Entries<R> {
    type Item = Result<Entry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let entry = self.read_entry().transpose();
        self.is_over = !matches!(entry, Some(Ok(_)));
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(count: u32) -> Vec<Entry> {
        let value = |n: u32| vec![n as u8; (n % 7 * 5_000) as usize];
        (0..count).map(|n| (n.to_be_bytes().to_vec(), value(n))).collect()
    }

    fn written(entries: &[Entry]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let count = write(&mut bytes, entries.iter().cloned().map(Ok)).expect("memory");
        assert_eq!(count, entries.len() as u64);
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Vec<Entry>, Error> {
        Entries::new(bytes).collect()
    }

    #[test]
    fn what_was_written_is_read() {
        for count in [0, 1, 100] {
            let entries = entries(count);
            assert_eq!(read(&written(&entries)).expect("whole"), entries);
        }
        let empty = [(Vec::new(), Vec::new())];
        assert_eq!(read(&written(&empty)).expect("whole"), empty);
    }

    /// The reader notices if a stream is cut short at any byte, has any byte changed, or has one
    /// byte more.
    #[test]
    fn a_damaged_stream_is_refused() {
        let bytes = written(&entries(20));
        for at in (0..300).chain((300..bytes.len() - 100).step_by(997)) {
            assert!(read(&bytes[..at]).is_err(), "cut at {at}");
        }
        for at in
            (0..300).chain((300..bytes.len()).step_by(997)).chain(bytes.len() - 60..bytes.len())
        {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            assert!(read(&damaged).is_err(), "changed at {at}");
        }
        assert!(read(&[&bytes[..], &[0]].concat()).is_err());
    }

    #[test]
    fn blocks_in_another_order_are_told() {
        let entry = |n: u8| (vec![n], vec![n; BLOCK_BYTES]);
        let bytes = written(&[entry(1), entry(2)]);
        let block = (bytes.len() - MAGIC.len() - 20) / 2;
        let (first, second) = bytes[8..8 + 2 * block].split_at(block);
        let swapped = [&bytes[..8], second, first, &bytes[8 + 2 * block..]].concat();
        assert!(matches!(read(&swapped), Err(Error::Stream { block: 0, .. })));
        let short = [&bytes[..8], first, &bytes[8 + 2 * block..]].concat();
        assert!(read(&short).is_err());
    }
}
