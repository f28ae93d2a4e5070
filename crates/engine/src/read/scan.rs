//! A standard iterator over a keyspace.

use std::sync::Arc;

use crate::catalog::keyspace::KeyspaceCore;
use crate::error::{Error, Result};
use crate::read::cursor::Cursor;
use crate::read::ends::{Ends, Entry};
use crate::read::get::Reader;
use crate::read::options::ReadOptions;
use crate::values::Value;

/// A double-ended standard iterator over keys and values. If the value of a key cannot be computed
/// or read, it returns the error in place of the entry and continues. After any other error it
/// ends.
#[derive(Debug)]
pub struct Scan {
    reader: Arc<Reader>,
    keyspace: Arc<KeyspaceCore>,
    options: ReadOptions,
    ends: Ends<Cursor>,
}

impl Scan {
    pub(crate) fn open(
        reader: &Arc<Reader>,
        keyspace: &Arc<KeyspaceCore>,
        mut options: ReadOptions,
    ) -> Result<Scan> {
        options.check_bounds()?;
        if options.snapshot.is_none() {
            keyspace.check_readable()?;
            // Both ends must see the same moment.
            options.snapshot = Some(reader.visibility.cursor_snapshot());
        }
        let (reader, keyspace) = (Arc::clone(reader), Arc::clone(keyspace));
        Ok(Scan { reader, keyspace, options, ends: Ends::default() })
    }

    /// Iterates over the keys only. Separated values are not read.
    pub fn keys(mut self) -> impl DoubleEndedIterator<Item = Result<Vec<u8>>> {
        self.options = self.options.keys_only();
        self.map(|item| Ok(item?.0))
    }

    /// Iterates over the values only.
    pub fn values(self) -> impl DoubleEndedIterator<Item = Result<Value>> {
        self.map(|item| Ok(item?.1))
    }

    fn advance(&mut self, is_upward: bool) -> Option<Result<Entry>> {
        let open = || match self.keyspace.is_at_home() {
            true => Cursor::open(&self.reader, &self.keyspace, self.options.clone()),
            false => Err(Error::OtherProcess),
        };
        self.ends.advance(is_upward, open)
    }
}

impl Iterator for Scan {
    type Item = Result<(Vec<u8>, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance(true)
    }
}

impl DoubleEndedIterator for Scan {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.advance(false)
    }
}
