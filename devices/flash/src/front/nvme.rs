//! The NVMe key-value command set: Store, Retrieve, Delete, Exist, List, with its status codes.

use crate::error::Error;
use crate::kvssd::{Direction, KvSsd};

/// The longest key of the command set; the shortest has one byte.
const MAX_KEY_BYTES: usize = 16;
/// Bytes of the count with which a list begins. Each entry is padded to a multiple of this number.
const LIST_ALIGN_BYTES: usize = 4;

/// When a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreIf {
    /// Always.
    Always,
    /// Only over an older value.
    Exists,
    /// Only if there is no older value.
    Missing,
}

/// The result of deleting a key that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnMissing {
    /// Success.
    Succeed,
    /// [`NvmeError::KeyNotExist`], as with the bit EDNEK.
    Fail,
}

/// A status other than success.
#[derive(Debug, thiserror::Error)]
pub enum NvmeError {
    /// The device is full.
    #[error("capacity exceeded")]
    CapacityExceeded,
    /// The value is too long for the device, or the buffer of a list has no room for its count.
    #[error("invalid value size")]
    InvalidValueSize,
    /// The key does not have 1 to 16 bytes.
    #[error("invalid key size")]
    InvalidKeySize,
    /// The key does not exist.
    #[error("the key does not exist")]
    KeyNotExist,
    /// The key exists.
    #[error("the key exists")]
    KeyExists,
    /// The stored data cannot be read.
    #[error("unrecovered: {0}")]
    Unrecovered(Error),
    /// The device failed in another way.
    #[error("internal: {0}")]
    Internal(Error),
}

impl NvmeError {
    /// The status code, of the generic type.
    pub fn code(&self) -> u8 {
        match self {
            NvmeError::Internal(_) => 0x06,
            NvmeError::CapacityExceeded => 0x81,
            NvmeError::InvalidValueSize => 0x85,
            NvmeError::InvalidKeySize => 0x86,
            NvmeError::KeyNotExist => 0x87,
            NvmeError::Unrecovered(_) => 0x88,
            NvmeError::KeyExists => 0x89,
        }
    }
}

impl From<Error> for NvmeError {
    fn from(error: Error) -> NvmeError {
        match error {
            Error::Full { .. } | Error::OutOfBlocks | Error::VersionsHeld { .. } => {
                NvmeError::CapacityExceeded
            }
            Error::KeySize { .. } => NvmeError::InvalidKeySize,
            Error::ValueSize { .. } => NvmeError::InvalidValueSize,
            Error::Uncorrectable(_)
            | Error::PageDamaged(..)
            | Error::PageErased(_)
            | Error::Corrupt { .. } => NvmeError::Unrecovered(error),
            other => NvmeError::Internal(other),
        }
    }
}

type Result<T> = std::result::Result<T, NvmeError>;

/// One namespace: all keys of a device. Keys have 1 to 16 bytes.
#[derive(Debug)]
pub struct NvmeKv<'a> {
    device: &'a mut KvSsd,
}

impl<'a> NvmeKv<'a> {
    /// Makes the namespace of a device.
    pub fn new(device: &'a mut KvSsd) -> NvmeKv<'a> {
        NvmeKv { device }
    }

    /// Store: keeps a value if the condition holds, else [`NvmeError::KeyNotExist`] or
    /// [`NvmeError::KeyExists`]. The value may be empty.
    pub fn store(&mut self, key: &[u8], value: &[u8], condition: StoreIf) -> Result<()> {
        check_key(key)?;
        // An impossible size is refused before the key is looked up.
        if value.len() > self.device.max_value_bytes() {
            return Err(NvmeError::InvalidValueSize);
        }
        match condition {
            StoreIf::Always => {}
            StoreIf::Exists => self.exist(key)?,
            StoreIf::Missing => match self.exist(key) {
                Ok(()) => return Err(NvmeError::KeyExists),
                Err(NvmeError::KeyNotExist) => {}
                Err(other) => return Err(other),
            },
        }
        Ok(self.device.put(key, value)?)
    }

    /// Retrieve: fills the buffer with the beginning of the value and returns the value's full size
    /// in bytes, so that a host whose buffer is too small can repeat the command.
    pub fn retrieve(&mut self, key: &[u8], buffer: &mut [u8]) -> Result<usize> {
        check_key(key)?;
        let value = self.device.get(key)?.ok_or(NvmeError::KeyNotExist)?;
        let part_bytes = value.len().min(buffer.len());
        buffer[..part_bytes].copy_from_slice(&value[..part_bytes]);
        Ok(value.len())
    }

    /// Delete: removes a key. If the key does not exist, `on_missing` decides the result.
    pub fn delete(&mut self, key: &[u8], on_missing: OnMissing) -> Result<()> {
        check_key(key)?;
        if on_missing == OnMissing::Fail {
            self.exist(key)?;
        }
        Ok(self.device.delete(key)?)
    }

    /// Exist: succeeds, or fails with [`NvmeError::KeyNotExist`].
    pub fn exist(&mut self, key: &[u8]) -> Result<()> {
        check_key(key)?;
        self.device.get(key)?.map(|_| ()).ok_or(NvmeError::KeyNotExist)
    }

    /// List: the keys from `from` on, in order. The key `from` need not exist; an empty `from`
    /// means the first key. Fills the buffer with a count (u32) and for each key its length (u16)
    /// and its bytes, padded with zeros to 4; little-endian. Returns the bytes used. A host
    /// continues from the last key, which it then gets again, until it gets only that key. Keys
    /// with lengths outside the command set, which were not written through it, are skipped.
    pub fn list(&mut self, from: &[u8], buffer: &mut [u8]) -> Result<usize> {
        if from.len() > MAX_KEY_BYTES {
            return Err(NvmeError::InvalidKeySize);
        }
        if buffer.len() < LIST_ALIGN_BYTES {
            return Err(NvmeError::InvalidValueSize);
        }
        let (mut used, mut count) = (LIST_ALIGN_BYTES, 0_u32);
        self.device.scan(Some(from), Direction::Forward, u64::MAX, &mut |key, _| {
            if key.len() > MAX_KEY_BYTES {
                return true;
            }
            let entry_bytes = (2 + key.len()).next_multiple_of(LIST_ALIGN_BYTES);
            let Some(entry) = buffer.get_mut(used..used + entry_bytes) else { return false };
            entry.fill(0);
            entry[..2].copy_from_slice(&(key.len() as u16).to_le_bytes());
            entry[2..2 + key.len()].copy_from_slice(key);
            used += entry_bytes;
            count += 1;
            true
        })?;
        buffer[..LIST_ALIGN_BYTES].copy_from_slice(&count.to_le_bytes());
        Ok(used)
    }
}

fn check_key(key: &[u8]) -> Result<()> {
    let is_legal = (1..=MAX_KEY_BYTES).contains(&key.len());
    if is_legal { Ok(()) } else { Err(NvmeError::InvalidKeySize) }
}
