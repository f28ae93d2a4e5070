// Iteration over entries in one direction.

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

    /**
     * The exception that Kafka expects from a read of a closed store. Kafka closes stores while
     * other threads query them, and repeats a query after the store has moved.
     */
    static RuntimeException shown(RunstoneException error) {
        return error instanceof RunstoneException.Closed
                ? new InvalidStateStoreException("the iterator or its store is closed", error)
                : error;
    }

    /** Entries of a keyspace. Each key is fetched only once. */
    final class Stored implements Entries {
        private final Cursor cursor;
        private final boolean forward;
        private byte[] key;

        /** Begins on the first entry in its direction. */
        Stored(Cursor cursor, boolean forward) {
            this.cursor = cursor;
            this.forward = forward;
            if (forward) {
                cursor.seekToFirst();
            } else {
                cursor.seekToLast();
            }
        }

        @Override
        public boolean isValid() {
            try {
                return cursor.isValid();
            } catch (RunstoneException error) {
                throw shown(error);
            }
        }

        @Override
        public byte[] key() {
            try {
                if (key == null) {
                    key = cursor.key();
                }
                return key;
            } catch (RunstoneException error) {
                throw shown(error);
            }
        }

        @Override
        public byte[] value() {
            try {
                return cursor.value();
            } catch (RunstoneException error) {
                throw shown(error);
            }
        }

        @Override
        public void next() {
            key = null;
            try {
                if (forward) {
                    cursor.next();
                } else {
                    cursor.prev();
                }
            } catch (RunstoneException error) {
                throw shown(error);
            }
        }

        @Override
        public void close() {
            cursor.close();
        }
    }
}
