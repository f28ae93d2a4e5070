// A transaction.

package org.runstone;

import java.util.Objects;

/**
 * Reads and writes over any keyspaces of a store that happen together or not at all. They are
 * protected from concurrent writes of others. Closing the transaction without a commit rolls it
 * back. One thread at a time may use it.
 */
public final class Transaction extends Handle {
    /** The protection of a transaction, and when it detects conflicts. */
    public enum Mode {
        /**
         * Reads see one moment. The commit fails if another writer has written one of its keys
         * since.
         */
        SNAPSHOT,
        /**
         * Transactions behave as if they ran one after another: the commit also checks the reads.
         */
        SERIALIZABLE,
        /** Writes and reads for update lock their keys and wait for the locks of others. */
        PESSIMISTIC
    }

    Transaction(Store store, long handle) {
        super("transaction", handle, Native::closeTransaction, store);
    }

    /** The value of a key as the transaction sees it, or null. */
    public byte[] get(Keyspace keyspace, byte[] key) {
        Objects.requireNonNull(key, "key");
        try {
            return Native.transactionGet(handle(), keyspace.handle(), key, false);
        } finally {
            keep(this, keyspace);
        }
    }

    /** The value of a key, which no other writer can change before the commit. */
    public byte[] getForUpdate(Keyspace keyspace, byte[] key) {
        Objects.requireNonNull(key, "key");
        try {
            return Native.transactionGet(handle(), keyspace.handle(), key, true);
        } finally {
            keep(this, keyspace);
        }
    }

    /** Stores a value, which others see after the commit. */
    public void put(Keyspace keyspace, byte[] key, byte[] value) {
        Objects.requireNonNull(key, "key");
        Objects.requireNonNull(value, "value");
        try {
            Native.transactionPut(handle(), keyspace.handle(), key, value);
        } finally {
            keep(this, keyspace);
        }
    }

    /** Removes a key. Others see the removal after the commit. */
    public void delete(Keyspace keyspace, byte[] key) {
        try {
            Native.transactionDelete(handle(), keyspace.handle(), Objects.requireNonNull(key, "key"));
        } finally {
            keep(this, keyspace);
        }
    }

    /** Makes all writes visible at once, and ends the transaction. */
    public void commit() {
        commit(WriteOptions.DEFAULT);
    }

    /**
     * Makes all writes visible at once, as durable as the options say, and ends the transaction.
     * A commit has no time to live.
     *
     * @throws RunstoneException.Conflict if another writer wrote a key that it read or wrote; then
     *     nothing is written
     */
    public void commit(WriteOptions options) {
        try {
            Native.commit(handle(), options.durability(), options.ttlMs());
        } finally {
            close();
        }
    }
}
