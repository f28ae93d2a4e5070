//! Batches, snapshots and transactions, through which typed keyspaces can write and read.

use runstone::{
    Batch, Keyspace, ReadOptions, Result, Scan, Snapshot, Transaction, TransactionScan, Value,
};

mod sealed {
    pub trait Sealed {}
    impl Sealed for runstone::Batch {}
    impl Sealed for runstone::Snapshot {}
    impl Sealed for runstone::Transaction {}
}

/// Gathers writes: a [`Batch`] or a [`Transaction`].
pub trait Writes: sealed::Sealed {
    #[doc(hidden)]
    fn put_bytes(&mut self, keyspace: &Keyspace, key: &[u8], value: &[u8]) -> Result<()>;
    #[doc(hidden)]
    fn delete_bytes(&mut self, keyspace: &Keyspace, key: &[u8]) -> Result<()>;
}

impl Writes for Batch {
    fn put_bytes(&mut self, keyspace: &Keyspace, key: &[u8], value: &[u8]) -> Result<()> {
        self.put(keyspace, key, value)
    }

    fn delete_bytes(&mut self, keyspace: &Keyspace, key: &[u8]) -> Result<()> {
        self.delete(keyspace, key)
    }
}

impl Writes for Transaction {
    fn put_bytes(&mut self, keyspace: &Keyspace, key: &[u8], value: &[u8]) -> Result<()> {
        self.put(keyspace, key, value)
    }

    fn delete_bytes(&mut self, keyspace: &Keyspace, key: &[u8]) -> Result<()> {
        self.delete(keyspace, key)
    }
}

/// A view of a store at one moment: a [`Snapshot`], or a [`Transaction`] with its own writes.
pub trait Reads: sealed::Sealed {
    /// An iterator over bytes.
    type Scan<'r>: DoubleEndedIterator<Item = Result<(Vec<u8>, Value)>>
    where
        Self: 'r;

    #[doc(hidden)]
    fn get_bytes(&self, keyspace: &Keyspace, key: &[u8]) -> Result<Option<Value>>;
    #[doc(hidden)]
    fn scan_bytes(&self, keyspace: &Keyspace, options: ReadOptions) -> Result<Self::Scan<'_>>;
}

impl Reads for Snapshot {
    type Scan<'r> = Scan;

    fn get_bytes(&self, keyspace: &Keyspace, key: &[u8]) -> Result<Option<Value>> {
        keyspace.get_at(key, self)
    }

    fn scan_bytes(&self, keyspace: &Keyspace, options: ReadOptions) -> Result<Scan> {
        keyspace.scan(options.at(self))
    }
}

impl Reads for Transaction {
    type Scan<'r> = TransactionScan<'r>;

    fn get_bytes(&self, keyspace: &Keyspace, key: &[u8]) -> Result<Option<Value>> {
        self.get(keyspace, key)
    }

    fn scan_bytes(&self, keyspace: &Keyspace, options: ReadOptions) -> Result<TransactionScan<'_>> {
        self.scan(keyspace, options)
    }
}
