//! Writes that are in no table yet, and what makes them survive.

pub(super) mod capacitor;
pub(super) mod frames;
pub(super) mod log;
pub(super) mod memtable;

use capacitor::Capacitor;
use log::Log;
use memtable::Memtable;

use super::format::record::Kind;
use super::options::Durability;
use super::space::Space;
use crate::error::Result;

/// See the module docs.
pub(super) struct Pending {
    pub(super) memtable: Memtable,
    pub(super) saved: Saved,
}

/// Where acknowledged writes survive.
pub(super) enum Saved {
    Capacitor(Capacitor),
    Log(Log),
}

impl Pending {
    pub(super) fn new(durability: Durability, capacitor: Capacitor) -> Pending {
        let saved = match durability {
            Durability::Capacitor => Saved::Capacitor(capacitor),
            Durability::Log => Saved::Log(Log::default()),
        };
        Pending { memtable: Memtable::default(), saved }
    }

    /// Forgets the writes, because they are in tables now.
    pub(super) fn forget(&mut self, space: &mut Space, flushed_seq: u64) -> Result<()> {
        self.memtable = Memtable::default();
        match &mut self.saved {
            Saved::Capacitor(capacitor) => {
                // The tables are synced first, so that after a power loss of the machine the writes
                // are in the tables or in the file.
                space.nand.sync()?;
                capacitor.clear()
            }
            Saved::Log(log) => {
                log.forget(flushed_seq, space);
                Ok(())
            }
        }
    }

    /// Bytes that are saved outside the flash.
    pub(super) fn saved_bytes(&self) -> u64 {
        match &self.saved {
            Saved::Capacitor(capacitor) => capacitor.len_bytes(),
            Saved::Log(_) => 0,
        }
    }

    /// Live pages of the log.
    pub(super) fn log_pages(&self) -> Vec<u32> {
        match &self.saved {
            Saved::Capacitor(_) => Vec::new(),
            Saved::Log(log) => log.pages().collect(),
        }
    }
}

/// One write of an atomic group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write<'a> {
    /// Stores a value.
    Put {
        /// Key.
        key: &'a [u8],
        /// Value.
        value: &'a [u8],
    },
    /// Removes a key.
    Delete {
        /// Key.
        key: &'a [u8],
    },
}

impl<'a> Write<'a> {
    /// Kind, key and value. The value of a delete is empty.
    pub(super) fn parts(&self) -> (Kind, &'a [u8], &'a [u8]) {
        match self {
            Write::Put { key, value } => (Kind::Put, key, value),
            Write::Delete { key } => (Kind::Delete, key, &[]),
        }
    }
}
