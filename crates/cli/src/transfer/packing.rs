//! Compressed files: gzip and zstd, read and written.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;

use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;

use crate::output::amount;

const BUFFER_BYTES: usize = 256 << 10;

/// The largest window that the library accepts; `zstd --long=31` writes such frames. Memory for
/// such a window is used only for a frame that requires it.
const MOST_WINDOW_LOG: u32 = if cfg!(target_pointer_width = "64") { 31 } else { 30 };

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    Gzip,
    Zstd,
}

/// How a file of this name is compressed.
pub fn named(path: &Path) -> Option<Packing> {
    let extension = path.extension()?.to_ascii_lowercase();
    match extension.to_str()? {
        "gz" => Some(Packing::Gzip),
        "zst" => Some(Packing::Zstd),
        _ => None,
    }
}

/// How bytes that begin like this are compressed. A file of zstd may begin with a frame to be
/// skipped.
pub fn begins(first: &[u8]) -> Option<Packing> {
    match first {
        [0x1f, 0x8b, ..] => Some(Packing::Gzip),
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Packing::Zstd),
        _ => None,
    }
}

impl Packing {
    /// The unpacked bytes.
    pub fn decode<R: BufRead + 'static>(self, mut input: R) -> io::Result<Box<dyn BufRead>> {
        let reader: Box<dyn Read> = match self {
            Packing::Gzip => Box::new(Members(Some(GzDecoder::new(input)))),
            Packing::Zstd => {
                let window_bytes = window_bytes(input.fill_buf()?);
                let mut decoder = zstd::Decoder::with_buffer(input)?;
                decoder.window_log_max(MOST_WINDOW_LOG)?;
                Box::new(Frames { decoder, window_bytes })
            }
        };
        Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, Packed(reader))))
    }
}

/// A reader that reports errors in the packed bytes, but not errors of the device, as invalid data.
struct Packed(Box<dyn Read>);

impl Read for Packed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer).map_err(|error| match (error.raw_os_error(), error.kind()) {
            (Some(_), _) | (_, io::ErrorKind::OutOfMemory | io::ErrorKind::Interrupted) => error,
            _ => io::Error::new(io::ErrorKind::InvalidData, error.to_string()),
        })
    }
}

/// All members of a gzip file: `cat` and appended logs make files with several. Zeros may fill the
/// end of the file, as tapes and some tools leave it; `gzip` skips them too.
struct Members<R>(Option<GzDecoder<R>>);

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.0 {
            let read = member.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            let rest = self.0.take().map(GzDecoder::into_inner);
            self.0 = rest.map(next_member).transpose()?.flatten();
        }
        Ok(0)
    }
}

fn next_member<R: BufRead>(mut rest: R) -> io::Result<Option<GzDecoder<R>>> {
    if rest.fill_buf()?.first() == Some(&0x1f) {
        return Ok(Some(GzDecoder::new(rest)));
    }
    loop {
        let found = rest.fill_buf()?;
        if found.iter().any(|byte| *byte != 0) {
            let what = "behind the compressed data are bytes that are no gzip";
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        match found.len() {
            0 => return Ok(None),
            zeros => rest.consume(zeros),
        }
    }
}

/// The frames of a file of zstd. An out-of-memory error says how much memory the first frame
/// requires.
struct Frames<R: BufRead> {
    decoder: zstd::Decoder<'static, R>,
    window_bytes: Option<u64>,
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.decoder.read(buffer).map_err(|error| {
            if !error.to_string().contains("memory") {
                return error;
            }
            let window = self.window_bytes.map_or("a larger window".to_string(), amount);
            let most = amount(1 << MOST_WINDOW_LOG);
            let what = format!("its window takes {window} of memory; the most is {most}: {error}");
            io::Error::new(io::ErrorKind::OutOfMemory, what)
        })
    }
}

/// The memory that a frame of zstd with this header requires (RFC 8878, 3.1.1.1).
fn window_bytes(frame: &[u8]) -> Option<u64> {
    let descriptor = *frame.get(4)?;
    if descriptor & 0x20 == 0 {
        let window = *frame.get(5)?;
        let base = 1u64 << (10 + (window >> 3));
        return Some(base + base / 8 * u64::from(window & 7));
    }
    // The frame is one segment: its whole content is the window.
    let content_at = 5 + [0, 1, 2, 4][usize::from(descriptor & 3)];
    let content_len = [1, 2, 4, 8][usize::from(descriptor >> 6)];
    let mut content = [0; 8];
    content[..content_len].copy_from_slice(frame.get(content_at..content_at + content_len)?);
    Some(u64::from_le_bytes(content) + if content_len == 2 { 256 } else { 0 })
}

/// Writes a file, compressed or not.
pub enum Packer<W: Write> {
    Plain(W),
    Gzip(GzEncoder<W>),
    Zstd(zstd::Encoder<'static, W>),
}

impl<W: Write> Packer<W> {
    pub fn new(packing: Option<Packing>, to: W) -> io::Result<Packer<W>> {
        Ok(match packing {
            None => Packer::Plain(to),
            Some(Packing::Gzip) => Packer::Gzip(GzEncoder::new(to, flate2::Compression::default())),
            Some(Packing::Zstd) => {
                let mut encoder = zstd::Encoder::new(to, zstd::DEFAULT_COMPRESSION_LEVEL)?;
                encoder.include_checksum(true)?;
                Packer::Zstd(encoder)
            }
        })
    }

    pub fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Packer::Plain(to) => to.write_all(bytes),
            Packer::Gzip(to) => to.write_all(bytes),
            Packer::Zstd(to) => to.write_all(bytes),
        }
    }

    /// Writes the end, and returns the underlying file.
    pub fn finish(self) -> io::Result<W> {
        match self {
            Packer::Plain(to) => Ok(to),
            Packer::Gzip(to) => to.finish(),
            Packer::Zstd(to) => to.finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame of raw bytes whose window has this descriptor.
    fn frame(window: u8, bytes: &[u8]) -> Vec<u8> {
        let header = (bytes.len() as u32) << 3 | 1;
        [&[0x28, 0xb5, 0x2f, 0xfd, 0, window], &header.to_le_bytes()[..3], bytes].concat()
    }

    fn decode(packed: &[u8]) -> io::Result<Vec<u8>> {
        let packing = begins(packed).expect("it begins as such");
        let mut bytes = Vec::new();
        packing.decode(io::Cursor::new(packed.to_vec()))?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Once, a file of `zstd --long=31` was refused. An even larger window is refused, with the
    /// memory that it takes.
    #[test]
    fn long_windows_are_read() {
        assert_eq!(decode(&frame(21 << 3, b"text")).expect("2G"), b"text");
        let refused = decode(&frame(22 << 3, b"text")).expect_err("4G");
        assert_eq!(refused.kind(), io::ErrorKind::OutOfMemory);
        assert!(refused.to_string().contains("takes 4G of memory; the most is 2G"), "{refused}");
        let skippable = [&[0x53, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 9][..], &frame(0, b"a")].concat();
        assert_eq!(decode(&skippable).expect("a frame behind it"), b"a");
    }

    #[test]
    fn frames_tell_their_window() {
        let one = zstd::bulk::compress(&[7; 1000], 1).expect("memory");
        assert_eq!(window_bytes(&one), Some(1000));
        assert_eq!(window_bytes(&frame(3 << 3 | 4, b"")), Some(8192 + 4096));
        assert_eq!(window_bytes(&[0x28, 0xb5, 0x2f, 0xfd]), None);
    }

    /// Once, zeros at the end of a gzip file were an error.
    #[test]
    fn zeros_behind_the_last_member_are_passed_over() {
        let pack = |bytes: &[u8]| {
            let mut packer = Packer::new(Some(Packing::Gzip), Vec::new()).expect("memory");
            packer.write_all(bytes).expect("memory");
            packer.finish().expect("memory")
        };
        let members = [pack(b"one"), pack(b""), pack(b"two")].concat();
        for zeros in [0, 1, 1 << 20] {
            let filled = [&members[..], &vec![0; zeros]].concat();
            assert_eq!(decode(&filled).expect("it is whole"), b"onetwo", "{zeros}");
        }
        for bad in [&b"x"[..], b"\0\0x", b"\x1f", b"\x1f\x8b\x08"] {
            assert!(decode(&[&members[..], bad].concat()).is_err(), "{bad:?}");
        }
    }
}
