// A walk over entries in one direction.

package org.runstone.kafka.streams;

import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.runstone.Cursor;
import org.runstone.RunstoneException;

/** A position among sorted entries. It begins on the first entry. */
interface Entries extends AutoCloseable {
    boolean isValid();

    byte[] key();

    byte[] value();

    void next();

    @Override
    void close();

    /** No entries. */
    Entries NONE = new Entries() {
        @Override
        public boolean isValid() {
            return false;
        }

        @Override
        public byte[] key() {
            throw new IllegalStateException("there are no entries");
        }

        @Override
        public byte[] value() {
            throw new IllegalStateException("there are no entries");
        }

        @Override
        public void next() {
            throw new IllegalStateException("there are no entries");
        }

        @Override
        public void close() {
            // Nothing has to be closed.
        }
    };

    /** Entries of a keyspace. Each key is fetched only once. */
    final class Stored implements Entries {
        private final Cursor cursor;
        private final boolean forward;
        private byte[] key;

        Stored(Cursor cursor, boolean forward) {
            this.cursor = cursor;
            this.forward = forward;
        }

        @Override
        public boolean isValid() {
            try {
                return cursor.isValid();
            } catch (RunstoneException.Closed closed) {
                throw new InvalidStateStoreException("the iterator or its store is closed", closed);
            }
        }

        @Override
        public byte[] key() {
            if (key == null) {
                key = cursor.key();
            }
            return key;
        }

        @Override
        public byte[] value() {
            return cursor.value();
        }

        @Override
        public void next() {
            key = null;
            if (forward) {
                cursor.next();
            } else {
                cursor.prev();
            }
        }

        @Override
        public void close() {
            cursor.close();
        }
    }
}
