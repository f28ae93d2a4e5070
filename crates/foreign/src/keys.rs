//! Keys as tables store them: the user's key, then eight bytes with a sequence number and a kind.

use crate::error::Fault;

/// Which store wrote a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// LevelDB, of any release.
    LevelDb,
    /// RocksDB.
    RocksDb,
}

impl Dialect {
    /// The name as the store's authors write it.
    pub fn name(self) -> &'static str {
        match self {
            Dialect::LevelDb => "LevelDB",
            Dialect::RocksDb => "RocksDB",
        }
    }

    /// How the command line names it, before a colon.
    pub fn scheme(self) -> &'static str {
        match self {
            Dialect::LevelDb => "leveldb",
            Dialect::RocksDb => "rocksdb",
        }
    }
}

/// Larger than every sequence number that an entry has.
pub const MOST_SEQ: u64 = (1 << 56) - 1;

/// The kind of an entry, from the number in its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Delete,
    Value,
    Merge,
    SingleDelete,
    RangeDelete,
    BlobIndex,
    DeleteWithTimestamp,
    Entity,
    /// A value followed by its write time in eight bytes.
    TimedValue,
}

impl Kind {
    pub fn of(number: u8, dialect: Dialect) -> Option<Kind> {
        Some(match (number, dialect) {
            (0x00, _) => Kind::Delete,
            (0x01, _) => Kind::Value,
            (_, Dialect::LevelDb) => return None,
            (0x02, _) => Kind::Merge,
            (0x07, _) => Kind::SingleDelete,
            (0x0f, _) => Kind::RangeDelete,
            (0x11, _) => Kind::BlobIndex,
            (0x14, _) => Kind::DeleteWithTimestamp,
            (0x16, _) => Kind::Entity,
            (0x18, _) => Kind::TimedValue,
            _ => return None,
        })
    }

    /// The value of the newest version of a key, `None` if that is a delete. Values in a form that
    /// only RocksDB understands are refused.
    pub fn visible(self, stored: &[u8]) -> Result<Option<&[u8]>, Fault> {
        const COMPACT: &str = "read and put such entries with RocksDB, or leave them out, then \
                               import again";
        let (what, hint) = match self {
            Kind::Value => return Ok(Some(stored)),
            Kind::Delete | Kind::SingleDelete => return Ok(None),
            Kind::TimedValue => {
                let bytes = stored.len().checked_sub(8);
                let value = bytes.map(|bytes| Some(&stored[..bytes]));
                return value.ok_or_else(|| Fault::damaged("a timed value is too short"));
            }
            Kind::RangeDelete => return Err(Fault::damaged("a range delete among the entries")),
            Kind::Merge => (
                "its newest version is a merge operand, which only the database's merge operator \
                 can apply",
                "open it with RocksDB and its merge operator, compact it all, and import again",
            ),
            Kind::BlobIndex => (
                "its value lies in a blob file",
                "turn enable_blob_files off, compact with blob garbage collection, then import",
            ),
            Kind::Entity => ("it is an entity with wide columns", COMPACT),
            Kind::DeleteWithTimestamp => ("it has a user-defined timestamp", COMPACT),
        };
        Err(Fault::unsupported(what, hint))
    }
}

/// The parts of a stored key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts<'a> {
    pub user: &'a [u8],
    pub seq: u64,
    pub kind: u8,
}

/// Splits a stored key into its parts; `None` if it is too short.
pub fn parts(key: &[u8]) -> Option<Parts<'_>> {
    let (user, packed) = key.split_last_chunk::<8>()?;
    let packed = u64::from_le_bytes(*packed);
    Some(Parts { user, seq: packed >> 8, kind: packed as u8 })
}
