//! The records of the journal, as bytes. Little-endian:
//!
//! ```text
//! 1 volume:  block_count u64
//! 2 inode:   id u64 | category u8 | len u64 | runs u32 | runs x { file_block, start, count: u64 }
//! 3 name:    id u64 | place: u16 length, bytes | name: u16 length, bytes
//! 4 no name: place | name
//! ```
//!
//! Applying a sequence of records twice has the same result as applying it once.

use runstone_storage::Category;

use super::extents::{Extents, Run};
use crate::error::{Error, Result};
use crate::rest::Rest;

/// A place, and a name in that place.
pub(super) type Path = (String, String);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    Volume { block_count: u64 },
    Inode { id: u64, category: Category, len_bytes: u64, extents: Extents },
    Name { id: u64, path: Path },
    NoName { path: Path },
}

impl Record {
    pub(super) fn encode(&self, bytes: &mut Vec<u8>) {
        match self {
            Record::Volume { block_count } => {
                bytes.push(1);
                put_u64(bytes, *block_count);
            }
            Record::Inode { id, category, len_bytes, extents } => {
                bytes.push(2);
                put_u64(bytes, *id);
                bytes.push(*category as u8);
                put_u64(bytes, *len_bytes);
                bytes.extend_from_slice(&(extents.len() as u32).to_le_bytes());
                for (file_block, run) in extents.iter() {
                    put_u64(bytes, file_block);
                    put_u64(bytes, run.start);
                    put_u64(bytes, run.count);
                }
            }
            Record::Name { id, path } => {
                bytes.push(3);
                put_u64(bytes, *id);
                put_path(bytes, path);
            }
            Record::NoName { path } => {
                bytes.push(4);
                put_path(bytes, path);
            }
        }
    }

    pub(super) fn decode_all(bytes: &[u8]) -> Result<Vec<Record>> {
        let mut rest = Rest(bytes);
        let mut records = Vec::new();
        while !rest.0.is_empty() {
            let record = decode(&mut rest);
            records.push(record.ok_or_else(|| corrupt("a record of the journal is malformed"))?);
        }
        Ok(records)
    }
}

pub(super) fn corrupt(why: impl Into<String>) -> Error {
    Error::Corrupt { what: "directory of the block SSD", why: why.into() }
}

fn put_u64(bytes: &mut Vec<u8>, number: u64) {
    bytes.extend_from_slice(&number.to_le_bytes());
}

/// The lengths of names were checked before.
fn put_path(bytes: &mut Vec<u8>, path: &Path) {
    for part in [&path.0, &path.1] {
        bytes.extend_from_slice(&(part.len() as u16).to_le_bytes());
        bytes.extend_from_slice(part.as_bytes());
    }
}

fn path(rest: &mut Rest<'_>) -> Option<Path> {
    Some((rest.text()?, rest.text()?))
}

fn decode(rest: &mut Rest<'_>) -> Option<Record> {
    match rest.array::<1>()? {
        [1] => Some(Record::Volume { block_count: rest.u64()? }),
        [2] => {
            let id = rest.u64()?;
            let [category] = rest.array()?;
            let category = *Category::ALL.get(usize::from(category))?;
            let len_bytes = rest.u64().filter(|&len| len <= i64::MAX as u64)?;
            let extents = decode_extents(rest)?;
            Some(Record::Inode { id, category, len_bytes, extents })
        }
        [3] => Some(Record::Name { id: rest.u64()?, path: path(rest)? }),
        [4] => Some(Record::NoName { path: path(rest)? }),
        _ => None,
    }
}

fn decode_extents(rest: &mut Rest<'_>) -> Option<Extents> {
    let mut extents = Extents::default();
    let mut next_file_block = 0;
    for _ in 0..u32::from_le_bytes(rest.array()?) {
        let file_block = rest.u64().filter(|&block| block >= next_file_block)?;
        let run = Run { start: rest.u64()?, count: rest.u64().filter(|&count| count > 0)? };
        next_file_block = file_block.checked_add(run.count)?;
        run.start.checked_add(run.count)?;
        extents.insert(file_block, run);
    }
    Some(extents)
}
