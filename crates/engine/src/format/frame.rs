//! The frame around every block of a table file: compression, and a checksum that is bound to the
//! block's place.
//!
//! ```text
//! body | kind u8 | checksum u32      kind: 0 none, 1 lz4, 2 zstd
//! body of a compressed block: raw_len u32 | compressed bytes
//! ```
//!
//! The checksum is the low half of xxh3-64 over body and kind, seeded with the file's uid and the
//! block's offset: a block that was moved within a file or to another file does not verify.

use std::cell::Cell;
use std::io;
use std::ops::DerefMut;
use std::thread::LocalKey;

use zstd::bulk::{Compressor, Decompressor};

use crate::keys::codec::u32_at;
use crate::options::store::Compression;

const CHECKSUM_BYTES: usize = 4;
/// The largest raw length of a compressed block, which stores the length in 32 bits. A larger block
/// is stored raw.
const MAX_RAW_BYTES: u64 = u32::MAX as u64;
/// A byte of LZ4 input expands to at most this many bytes.
const LZ4_MAX_RATIO: u64 = 255;
/// A block of a zstd frame contains at most 128 KiB and takes at least 4 bytes, which gives this
/// ratio.
const ZSTD_MAX_RATIO: u64 = 32 << 10;
/// A block that compresses by less than 1/8 is stored raw: decoding would cost more than it saves.
const WORTH_NUMERATOR: usize = 7;
const WORTH_DENOMINATOR: usize = 8;
const ZSTD_LEVEL: i32 = 3;
/// A zstd context that has compressed a larger block takes up to a megabyte, and is not kept.
const MOST_RAW_BYTES_KEPT: usize = 64 << 10;

// Each thread keeps its contexts: 140 KiB for compression and 96 KiB for decompression. A new
// context for each block of 4 KiB took 8 of the 9 us of its decoding, and half of the 17 us of its
// encoding.
thread_local! {
    static COMPRESSOR: Cell<Option<Compressor<'static>>> = const { Cell::new(None) };
    static DECOMPRESSOR: Cell<Option<Decompressor<'static>>> = const { Cell::new(None) };
}

/// Lends `work` the context of this thread, or a new one.
fn with_kept<C, R>(
    kept: &'static LocalKey<Cell<Option<C>>>,
    new: impl FnOnce() -> io::Result<C>,
    work: impl FnOnce(&mut C) -> io::Result<R>,
) -> io::Result<R> {
    // A thread that is ending no longer keeps a context.
    let mut context = match kept.try_with(Cell::take) {
        Ok(Some(context)) => context,
        _ => new()?,
    };
    let result = work(&mut context);
    let _ = kept.try_with(|kept| kept.set(Some(context)));
    result
}

/// Compresses into the buffer. Returns the number of bytes.
fn zstd_compress(raw: &[u8], into: &mut [u8]) -> io::Result<usize> {
    let new = || Compressor::new(ZSTD_LEVEL);
    let mut work = |context: &mut Compressor<'_>| context.compress_to_buffer(raw, into);
    match raw.len() <= MOST_RAW_BYTES_KEPT {
        true => with_kept(&COMPRESSOR, new, work),
        false => work(&mut new()?),
    }
}

/// The hash of a block at its place. Its low half is the checksum.
fn hash(file_uid: u64, offset: u64, bytes: &[u8]) -> u64 {
    let seed = file_uid ^ offset.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    xxhash_rust::xxh3::xxh3_64_with_seed(bytes, seed)
}

/// Turns a raw block into its stored form at `offset`, appended to `out`. Returns the hash, whose
/// low half is the checksum.
pub fn seal(
    raw: &[u8],
    compression: Compression,
    file_uid: u64,
    offset: u64,
    out: &mut Vec<u8>,
) -> u64 {
    let start = out.len();
    let kind = compress(raw, compression, out).unwrap_or_else(|| {
        out.truncate(start);
        out.extend_from_slice(raw);
        0
    });
    out.push(kind);
    let hash = hash(file_uid, offset, &out[start..]);
    out.extend_from_slice(&(hash as u32).to_le_bytes());
    hash
}

/// The compression of a stored block; `None` if the bytes are too short to be a block.
pub fn kind(stored: &[u8]) -> Option<u8> {
    stored.get(stored.len().checked_sub(CHECKSUM_BYTES + 1)?).copied()
}

/// Appends a stored block that the caller has checked, and binds it to another file and place.
/// Returns the hash, as [`seal`] does.
pub fn rebind(stored: &[u8], file_uid: u64, offset: u64, out: &mut Vec<u8>) -> u64 {
    let covered = &stored[..stored.len() - CHECKSUM_BYTES];
    out.extend_from_slice(covered);
    let hash = hash(file_uid, offset, covered);
    out.extend_from_slice(&(hash as u32).to_le_bytes());
    hash
}

fn compress(raw: &[u8], compression: Compression, out: &mut Vec<u8>) -> Option<u8> {
    let raw_len = u32::try_from(raw.len()).ok()?;
    let start = out.len();
    let kind = match compression {
        Compression::None => return None,
        Compression::Lz4 => {
            out.extend_from_slice(&raw_len.to_le_bytes());
            let body_at = out.len();
            out.resize(body_at + lz4_flex::block::get_maximum_output_size(raw.len()), 0);
            let written = lz4_flex::block::compress_into(raw, &mut out[body_at..]).ok()?;
            out.truncate(body_at + written);
            1
        }
        Compression::Zstd => {
            out.extend_from_slice(&raw_len.to_le_bytes());
            let body_at = out.len();
            out.resize(body_at + zstd::zstd_safe::compress_bound(raw.len()), 0);
            let written = zstd_compress(raw, &mut out[body_at..]).ok()?;
            out.truncate(body_at + written);
            2
        }
    };
    let stored = out.len() - start;
    (stored * WORTH_DENOMINATOR <= raw.len() * WORTH_NUMERATOR).then_some(kind)
}

/// Checks a stored block and returns its raw bytes.
pub fn open(stored: &[u8], file_uid: u64, offset: u64) -> Result<Vec<u8>, &'static str> {
    open_in(stored, file_uid, offset, zeroed)
}

/// As `open`, but into memory of the requested length that the caller allocates.
pub fn open_in<B: DerefMut<Target = [u8]>>(
    stored: &[u8],
    file_uid: u64,
    offset: u64,
    memory: impl FnOnce(usize) -> Option<B>,
) -> Result<B, &'static str> {
    let memory = |len| memory(len).ok_or("not enough memory for the block");
    let body_and_kind =
        stored.len().checked_sub(CHECKSUM_BYTES).ok_or("block shorter than its trailer")?;
    let sum = u32_at(stored, body_and_kind).ok_or("block shorter than its trailer")?;
    let covered = &stored[..body_and_kind];
    if hash(file_uid, offset, covered) as u32 != sum && !seeded!(BlocksUnchecked) {
        return Err("block checksum does not match");
    }
    let (kind, body) = covered.split_last().ok_or("block shorter than its trailer")?;
    match kind {
        0 => {
            let mut raw = memory(body.len())?;
            raw.copy_from_slice(body);
            Ok(raw)
        }
        1 => {
            let (raw_len, packed) = raw_len(body, LZ4_MAX_RATIO)?;
            let mut raw = memory(raw_len)?;
            match lz4_flex::block::decompress_into(packed, &mut raw) {
                Ok(written) if written == raw_len => Ok(raw),
                _ => Err("lz4 block does not decode"),
            }
        }
        2 => {
            let (raw_len, packed) = raw_len(body, ZSTD_MAX_RATIO)?;
            let mut raw = memory(raw_len)?;
            let written = with_kept(&DECOMPRESSOR, Decompressor::new, |context| {
                context.decompress_to_buffer(packed, &mut raw[..])
            });
            match written {
                Ok(written) if written == raw_len => Ok(raw),
                _ => Err("zstd block does not decode"),
            }
        }
        _ => Err("unknown compression; written by a newer release"),
    }
}

/// The declared raw length. It is refused if no encoder could have compressed that many bytes into
/// so few.
fn raw_len(body: &[u8], max_ratio: u64) -> Result<(usize, &[u8]), &'static str> {
    let len = u64::from(u32_at(body, 0).ok_or("compressed block without a length")?);
    let packed = &body[4..];
    if len > MAX_RAW_BYTES || len / max_ratio > packed.len() as u64 {
        return Err("compressed block claims an impossible length");
    }
    Ok((len as usize, packed))
}

/// Zeros on the heap; `None` if there is not enough memory.
pub fn zeroed(len: usize) -> Option<Vec<u8>> {
    let mut raw = Vec::new();
    raw.try_reserve_exact(len).ok()?;
    raw.resize(len, 0);
    Some(raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by fuzzing: without a bound on the ratio, a few bytes of zstd could reserve 4 GiB, and
    /// a lack of memory would have ended the process.
    #[test]
    fn a_length_that_no_encoder_reaches_takes_no_memory() {
        let raw = vec![7; 1 << 20];
        for compression in [Compression::Lz4, Compression::Zstd] {
            let mut stored = Vec::new();
            seal(&raw, compression, 7, 0, &mut stored);
            assert!(open(&stored, 7, 0).is_ok_and(|found| found == raw), "the best that there is");
            let len = stored.len() as u32 * ZSTD_MAX_RATIO as u32;
            stored[..4].copy_from_slice(&len.to_le_bytes());
            let mut rebound = Vec::new();
            rebind(&stored, 7, 0, &mut rebound);
            assert_eq!(open(&rebound, 7, 0), Err("compressed block claims an impossible length"));
        }
    }

    /// Contexts of zstd are used again, even after a block that does not decode, after a large
    /// block, and while a thread ends.
    #[test]
    fn a_block_of_zstd_knows_nothing_of_the_one_before() {
        let sealed = |raw: &[u8]| {
            let mut stored = Vec::new();
            seal(raw, Compression::Zstd, 7, 0, &mut stored);
            assert_eq!(kind(&stored), Some(2));
            stored
        };
        let blocks = [500, 200_000, 4000].map(|len| b"over and over, ".repeat(len / 15));
        let check = move || {
            for raw in &blocks {
                let stored = sealed(raw);
                let mut bad = stored.clone();
                bad[8] ^= 0xff;
                let mut rebound = Vec::new();
                rebind(&bad, 7, 0, &mut rebound);
                assert_eq!(open(&rebound, 7, 0), Err("zstd block does not decode"));
                assert_eq!(open(&stored, 7, 0).as_ref(), Ok(raw));
            }
        };
        check();
        struct AtTheEnd(Box<dyn Fn()>);
        impl Drop for AtTheEnd {
            fn drop(&mut self) {
                self.0();
            }
        }
        thread_local! {
            static LAST: Cell<Option<AtTheEnd>> = const { Cell::new(None) };
        }
        let ends = std::thread::spawn(move || {
            // The value is made before the contexts, so it is dropped after them.
            LAST.set(Some(AtTheEnd(Box::new(check.clone()))));
            check();
        });
        ends.join().expect("the thread ends");
    }

    #[test]
    fn round_trips_and_notices_every_flip_and_swap() {
        let text = b"the same words, the same words, the same words, the same words".repeat(20);
        let noise: Vec<u8> =
            (0..700u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for raw in [&text[..], &noise[..], b""] {
            for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
                let mut stored = Vec::new();
                seal(raw, compression, 7, 4096, &mut stored);
                assert_eq!(open(&stored, 7, 4096).as_deref(), Ok(raw));
                assert!(open(&stored, 8, 4096).is_err(), "block of another file");
                assert!(open(&stored, 7, 8192).is_err(), "block of another place");
                let mut copy = Vec::new();
                rebind(&stored, 8, 8192, &mut copy);
                assert_eq!(open(&copy, 8, 8192).as_deref(), Ok(raw));
                assert_eq!(kind(&copy), kind(&stored));
                assert!(open(&copy, 7, 4096).is_err(), "a copy is of its new place");
                for at in 0..stored.len() {
                    let mut bad = stored.clone();
                    bad[at] ^= 1 << (at % 8);
                    assert!(open(&bad, 7, 4096).is_err());
                    assert!(open(&stored[..at], 7, 4096).is_err());
                }
            }
        }
    }
}
