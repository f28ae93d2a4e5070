//! Transactions behind handles, and cursors over the entries that they see.
//!
//! A cursor of the engine borrows its transaction, which is impossible in another language. The
//! cursor here shares the transaction with other objects, and reads a page of entries at a time. A
//! write of the transaction invalidates the page, so the cursor also shows writes made since it
//! began.

use std::sync::Arc;

use runstone::{
    Keyspace, ReadOptions, Store, Transaction, TransactionCursor, TransactionOptions, Value,
    WriteOptions,
};

use crate::alone::Alone;
use crate::failure::{Code, Failure, Result};

/// How many entries a cursor reads at a time.
const PAGE: usize = 64;

/// A transaction that several objects share. One thread at a time may use it.
#[derive(Clone, Debug)]
pub struct SharedTransaction(Arc<Alone<State>>);

#[derive(Debug)]
struct State {
    /// `None` once the transaction has ended.
    transaction: Option<Transaction>,
    /// The number of writes in the transaction.
    writes: u64,
}

impl SharedTransaction {
    /// Begins a transaction.
    pub fn begin(store: &Store, options: TransactionOptions) -> Result<SharedTransaction> {
        let transaction = Some(store.begin(options)?);
        Ok(SharedTransaction(Arc::new(Alone::new(State { transaction, writes: 0 }))))
    }

    /// Runs an operation that reads.
    pub fn read<T>(&self, work: impl FnOnce(&Transaction) -> Result<T>) -> Result<T> {
        work(self.0.lock()?.transaction.as_ref().ok_or_else(ended)?)
    }

    /// Runs an operation that changes the data visible to readers of the transaction.
    pub fn write<T>(
        &self,
        work: impl FnOnce(&mut Transaction) -> runstone::Result<T>,
    ) -> Result<T> {
        let mut state = self.0.lock()?;
        state.writes += 1;
        Ok(work(state.transaction.as_mut().ok_or_else(ended)?)?)
    }

    /// Commits the transaction. After an error it has ended, and none of its writes take effect.
    pub fn commit(&self, options: WriteOptions) -> Result<()> {
        let transaction = self.0.lock()?.transaction.take().ok_or_else(ended)?;
        Ok(transaction.commit(options)?)
    }

    /// Ends the transaction without its writes.
    pub fn rollback(&self) -> Result<()> {
        self.0.lock()?.transaction.take().ok_or_else(ended).map(Transaction::rollback)
    }
}

fn ended() -> Failure {
    Failure::new(Code::Closed, "the transaction has ended; begin another")
}

/// A move of a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move<'a> {
    /// To the first entry.
    First,
    /// To the last entry.
    Last,
    /// To the next entry, or to none after the last.
    Next,
    /// To the previous entry, or to none before the first.
    Previous,
    /// To the first key that is not less than this one.
    Seek(&'a [u8]),
    /// To the last key that is not greater than this one.
    SeekForPrevious(&'a [u8]),
}

/// A cursor over the entries that a transaction sees.
#[derive(Debug)]
pub struct PagedCursor {
    transaction: SharedTransaction,
    keyspace: Keyspace,
    options: ReadOptions,
    /// Entries in the direction of the last move.
    page: Vec<(Vec<u8>, Value)>,
    is_upward: bool,
    /// The index of the current entry. If it is beyond the page, the cursor is not on an entry.
    at: usize,
    /// Whether the page ends because of an error. A move beyond its end causes the error again.
    is_cut: bool,
    /// The number of writes of the transaction when the page was read.
    writes: u64,
}

impl PagedCursor {
    /// Makes a cursor that is not on an entry yet.
    ///
    /// # Errors
    /// If the transaction has ended, or the options do not apply to transactions.
    pub fn new(
        transaction: SharedTransaction,
        keyspace: Keyspace,
        options: ReadOptions,
    ) -> Result<PagedCursor> {
        transaction.read(|inner| Ok(inner.cursor(&keyspace, options.clone()).map(drop)?))?;
        Ok(PagedCursor {
            transaction,
            keyspace,
            options,
            page: Vec::new(),
            is_upward: true,
            at: 0,
            is_cut: false,
            writes: 0,
        })
    }

    /// The current entry.
    pub fn entry(&self) -> Option<(&[u8], &[u8])> {
        self.page.get(self.at).map(|(key, value)| (&key[..], &value[..]))
    }

    /// Moves the cursor. After an error it is not on an entry.
    pub fn go(&mut self, to: Move<'_>) -> Result<()> {
        let transaction = self.transaction.clone();
        let state = transaction.0.lock()?;
        let inner = state.transaction.as_ref().ok_or_else(ended)?;
        let is_upward = matches!(to, Move::First | Move::Next | Move::Seek(_));
        if matches!(to, Move::Next | Move::Previous) {
            if self.entry().is_none() {
                return Ok(());
            }
            let is_fresh = self.writes == state.writes && is_upward == self.is_upward;
            // The entries after a page are unknown if the page is full or ends before an error.
            let is_whole = self.page.len() < PAGE && !self.is_cut;
            if is_fresh && (self.at + 1 < self.page.len() || is_whole) {
                self.at += 1;
                return Ok(());
            }
        }
        let key = self.entry().map_or(Vec::new(), |(key, _)| key.to_vec());
        self.page.clear();
        (self.at, self.is_upward, self.is_cut, self.writes) = (0, is_upward, false, state.writes);
        let mut cursor = inner.cursor(&self.keyspace, self.options.clone())?;
        position(&mut cursor, to, &key)?;
        while cursor.valid() && self.page.len() < PAGE && !self.is_cut {
            self.page.push((cursor.key().to_vec(), cursor.pin_value()));
            let step = if is_upward { cursor.next() } else { cursor.prev() };
            self.is_cut = step.is_err();
        }
        Ok(())
    }
}

/// Moves a new cursor as if it had been on `key`.
fn position(cursor: &mut TransactionCursor<'_>, to: Move<'_>, key: &[u8]) -> runstone::Result<()> {
    match to {
        Move::First => cursor.seek_to_first(),
        Move::Last => cursor.seek_to_last(),
        Move::Seek(key) => cursor.seek(key),
        Move::SeekForPrevious(key) => cursor.seek_for_prev(key),
        Move::Next => {
            cursor.seek(key)?;
            // The key may have been deleted since.
            if cursor.valid() && cursor.key() == key { cursor.next() } else { Ok(()) }
        }
        Move::Previous => {
            cursor.seek_for_prev(key)?;
            if cursor.valid() && cursor.key() == key { cursor.prev() } else { Ok(()) }
        }
    }
}

#[cfg(test)]
mod tests {
    use runstone::Options;

    use super::*;

    fn key(number: u32) -> [u8; 4] {
        number.to_be_bytes()
    }

    fn number(cursor: &PagedCursor) -> Option<u32> {
        cursor.entry().map(|(key, _)| u32::from_be_bytes(key.try_into().expect("four bytes")))
    }

    #[test]
    fn a_cursor_shows_what_is_written_on_the_way() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path(), Options::default()).expect("opens");
        let keyspace = store.default_keyspace();
        (0..200).step_by(2).for_each(|even| keyspace.put(key(even), "").expect("room"));
        let transaction =
            SharedTransaction::begin(&store, TransactionOptions::default()).expect("begins");
        let mut cursor =
            PagedCursor::new(transaction.clone(), keyspace.clone(), ReadOptions::default())
                .expect("is open");
        cursor.go(Move::First).expect("moves");
        let mut shown = Vec::new();
        while let Some(at) = number(&cursor) {
            shown.push(at);
            // Deletes keys before and after the current key, and the key itself.
            transaction.write(|inner| inner.delete(keyspace, key(at))).expect("is open");
            if at % 20 == 0 {
                transaction.write(|inner| inner.put(keyspace, key(at + 1), "")).expect("is open");
            }
            cursor.go(Move::Next).expect("moves");
        }
        let all = (0..200).filter(|number| number % 2 == 0 || number % 20 == 1);
        assert_eq!(shown, all.collect::<Vec<u32>>());
        transaction.rollback().expect("is open");
        assert_eq!(cursor.go(Move::First).expect_err("it has ended").code, Code::Closed);
    }

    /// If the operands of any of the next 64 keys could not be merged, the first move already
    /// returned the error, and the cursor still showed an entry. Now the cursor shows the entries
    /// before such a key, and returns the error at the key.
    #[test]
    fn an_error_comes_at_its_place() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path(), Options::default()).expect("opens");
        let sums = runstone::KeyspaceOptions::default().merge_operator("add-u64");
        let keyspace = store.open_keyspace("sums", Some(sums)).expect("valid");
        (0..20).for_each(|at| keyspace.put(key(at), "no number").expect("room"));
        keyspace.merge(key(10), 1u64.to_le_bytes()).expect("room");
        let begun = SharedTransaction::begin(&store, TransactionOptions::default()).expect("room");
        let mut cursor = PagedCursor::new(begun, keyspace, ReadOptions::default()).expect("open");
        for (begin, step, shown) in
            [(Move::First, Move::Next, [0u32, 9]), (Move::Last, Move::Previous, [19, 11])]
        {
            cursor.go(begin).expect("moves");
            let count = shown[0].abs_diff(shown[1]);
            assert_eq!(number(&cursor), Some(shown[0]));
            (0..count).for_each(|_| cursor.go(step).expect("moves"));
            assert_eq!(number(&cursor), Some(shown[1]));
            assert_eq!(cursor.go(step).expect_err("no number").code, Code::MergeFailed);
            assert_eq!(number(&cursor), None);
        }
    }

    #[test]
    fn a_cursor_turns_and_crosses_pages() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path(), Options::default()).expect("opens");
        let keyspace = store.default_keyspace();
        let last = 3 * PAGE as u32;
        (0..=last).for_each(|number| keyspace.put(key(number), "").expect("room"));
        let transaction =
            SharedTransaction::begin(&store, TransactionOptions::default()).expect("begins");
        let mut cursor = PagedCursor::new(transaction, keyspace.clone(), ReadOptions::default())
            .expect("is open");
        cursor.go(Move::First).expect("moves");
        for at in 0..=last {
            assert_eq!(number(&cursor), Some(at));
            cursor.go(Move::Next).expect("moves");
        }
        assert_eq!(number(&cursor), None);
        cursor.go(Move::Last).expect("moves");
        for at in (0..=last).rev() {
            assert_eq!(number(&cursor), Some(at));
            cursor.go(Move::Previous).expect("moves");
        }
        assert_eq!(number(&cursor), None);
        cursor.go(Move::Seek(&key(70))).expect("moves");
        cursor.go(Move::Previous).expect("moves");
        assert_eq!(number(&cursor), Some(69));
        cursor.go(Move::Next).expect("moves");
        assert_eq!(number(&cursor), Some(70));
        cursor.go(Move::SeekForPrevious(&[0, 0, 0, 9, 9])).expect("moves");
        assert_eq!(number(&cursor), Some(9));
    }
}
