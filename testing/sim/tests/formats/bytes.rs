//! A cursor over bytes that must be as docs/formats.md says: it panics at anything else. It shares
//! no code with the store.

/// The remaining bytes.
#[derive(Clone, Copy)]
pub struct Bytes<'a>(pub &'a [u8]);

impl<'a> Bytes<'a> {
    pub fn take(&mut self, n: usize) -> &'a [u8] {
        self.0.split_off(..n).expect("as many bytes as the document says")
    }

    fn fixed<const N: usize>(&mut self) -> [u8; N] {
        self.take(N).try_into().expect("N bytes")
    }

    pub fn u8(&mut self) -> u8 {
        self.fixed::<1>()[0]
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.fixed())
    }

    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.fixed())
    }

    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.fixed())
    }

    pub fn u128(&mut self) -> u128 {
        u128::from_le_bytes(self.fixed())
    }

    pub fn varint(&mut self) -> u64 {
        let mut value = 0;
        for shift in (0..70).step_by(7) {
            let byte = self.u8();
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return value;
            }
        }
        panic!("a varint of more than 10 bytes");
    }

    /// A `varint` length, then that many bytes.
    pub fn bytes(&mut self) -> &'a [u8] {
        let len = self.varint() as usize;
        self.take(len)
    }

    pub fn text(&mut self) -> String {
        String::from_utf8(self.bytes().to_vec()).expect("UTF-8")
    }

    /// A count, then the elements.
    pub fn list<T>(&mut self, element: impl Fn(&mut Self) -> T) -> Vec<T> {
        (0..self.varint()).map(|_| element(self)).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A reader at an offset.
pub fn at(bytes: &[u8], offset: u64) -> Bytes<'_> {
    Bytes(&bytes[offset as usize..])
}

pub const PHI: u64 = 0x9e37_79b9_7f4a_7c15;

pub fn xxh3(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

pub fn xxh3_seeded(bytes: &[u8], seed: u64) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(bytes, seed)
}

pub fn low32(n: u64) -> u32 {
    n as u32
}

/// Eight bytes of a key as a big-endian number, padded with zeros.
pub fn head(key: &[u8]) -> u64 {
    let mut padded = [0; 8];
    let len = key.len().min(8);
    padded[..len].copy_from_slice(&key[..len]);
    u64::from_be_bytes(padded)
}

pub fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
