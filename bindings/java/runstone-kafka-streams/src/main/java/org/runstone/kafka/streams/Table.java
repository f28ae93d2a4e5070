// An ordered map of a state store: a keyspace, with the uncommitted writes above it.

package org.runstone.kafka.streams;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentNavigableMap;
import java.util.concurrent.ConcurrentSkipListMap;
import org.runstone.Cursor;
import org.runstone.Keyspace;
import org.runstone.RunstoneException;
import org.runstone.WriteBatch;

/**
 * A map of bytes. Writes that wait for the commit are kept here and hide the contents of the
 * keyspace. Other writes go to the keyspace at once. One thread writes; others may read.
 */
final class Table {
    /** The value of a key that was deleted since the last commit. It is compared by identity. */
    private static final byte[] GONE = new byte[0];

    private final Keyspace keyspace;
    private final boolean waits;
    private volatile ConcurrentNavigableMap<byte[], byte[]> pending = none();
    private long pendingBytes;
    private volatile boolean isDropped;

    Table(Keyspace keyspace, boolean waits) {
        this.keyspace = keyspace;
        this.waits = waits;
    }

    private static ConcurrentNavigableMap<byte[], byte[]> none() {
        return new ConcurrentSkipListMap<>(Arrays::compareUnsigned);
    }

    Keyspace keyspace() {
        return keyspace;
    }

    byte[] get(byte[] key) {
        if (waits) {
            byte[] value = pending.get(key);
            if (value != null) {
                return value == GONE ? null : value;
            }
        }
        try {
            return keyspace.get(key);
        } catch (RunstoneException error) {
            return absent(error, null);
        }
    }

    /** The empty result of a read while the table is being dropped. */
    private <T> T absent(RunstoneException error, T nothing) {
        if (isDropped) {
            return nothing;
        }
        throw Entries.shown(error);
    }

    /** Drops the keyspace with {@code work}. Readers during that time find nothing. */
    void drop(Runnable work) {
        isDropped = true;
        work.run();
        keyspace.close();
    }

    /** Stores a value; null removes the key. */
    void put(byte[] key, byte[] value) {
        if (waits) {
            byte[] kept = value == null ? GONE : value;
            // An entry of the map uses about as much memory as a small key and value.
            pendingBytes += 64 + key.length + kept.length;
            pending.put(key, kept);
        } else if (value == null) {
            keyspace.delete(key);
        } else {
            keyspace.put(key, value);
        }
    }

    /** Approximate memory of the waiting writes. The estimate is rather too high than too low. */
    long pendingBytes() {
        return pendingBytes;
    }

    /** How many keys have waiting writes. */
    int pendingCount() {
        return waits ? pending.size() : 0;
    }

    /** Adds the waiting writes to a batch. They stay visible here until {@link #forget}. */
    void addPending(WriteBatch batch) {
        pending.forEach((key, value) -> {
            if (value == GONE) {
                batch.delete(keyspace, key);
            } else {
                batch.put(keyspace, key, value);
            }
        });
    }

    /**
     * Releases the waiting writes, which are in the keyspace now. Open iterators keep their copies.
     */
    void forget() {
        if (pendingBytes > 0) {
            pending = none();
            pendingBytes = 0;
        }
    }

    /** Entries from {@code from} (inclusive) to {@code to} (exclusive); null means no bound. */
    Entries entries(byte[] from, byte[] to, boolean forward) {
        if (from != null && to != null && Arrays.compareUnsigned(from, to) >= 0) {
            return Entries.NONE;
        }
        // The waiting writes are read first, then the keyspace. So after a commit in between, an
        // entry is in both and never missing.
        List<Map.Entry<byte[], byte[]>> waiting = waits ? waiting(from, to, forward) : List.of();
        Entries stored;
        try {
            stored = stored(from, to, forward);
        } catch (RunstoneException error) {
            return absent(error, Entries.NONE);
        }
        return waiting.isEmpty() ? stored : new Merged(waiting.iterator(), stored, forward);
    }

    private Entries stored(byte[] from, byte[] to, boolean forward) {
        Cursor cursor = keyspace.cursor(from, to);
        try {
            return new Entries.Stored(cursor, forward);
        } catch (RunstoneException error) {
            cursor.close();
            throw error;
        }
    }

    /** A copy, so that an iterator does not see later writes. */
    private List<Map.Entry<byte[], byte[]>> waiting(byte[] from, byte[] to, boolean forward) {
        ConcurrentNavigableMap<byte[], byte[]> part = pending;
        if (part.isEmpty()) {
            return List.of();
        }
        part = from == null ? part : part.tailMap(from, true);
        part = to == null ? part : part.headMap(to, false);
        return new ArrayList<>((forward ? part : part.descendingMap()).entrySet());
    }

    /** Two sorted sources. The waiting writes hide the other source. */
    private static final class Merged implements Entries {
        private final Iterator<Map.Entry<byte[], byte[]>> waiting;
        private final Entries stored;
        private final int sign;
        private Map.Entry<byte[], byte[]> first;
        private boolean isWaiting;

        Merged(Iterator<Map.Entry<byte[], byte[]>> waiting, Entries stored, boolean forward) {
            this.waiting = waiting;
            this.stored = stored;
            this.sign = forward ? 1 : -1;
            this.first = waiting.hasNext() ? waiting.next() : null;
            settle();
        }

        /** Finds out which source is next, and skips hidden and deleted entries. */
        private void settle() {
            while (first != null) {
                int order = stored.isValid()
                        ? sign * Arrays.compareUnsigned(first.getKey(), stored.key()) : -1;
                if (order > 0) {
                    break;
                }
                if (order == 0) {
                    stored.next();
                }
                if (first.getValue() != GONE) {
                    isWaiting = true;
                    return;
                }
                first = waiting.hasNext() ? waiting.next() : null;
            }
            isWaiting = false;
        }

        @Override
        public boolean isValid() {
            return isWaiting || stored.isValid();
        }

        @Override
        public byte[] key() {
            return isWaiting ? first.getKey() : stored.key();
        }

        @Override
        public byte[] value() {
            return isWaiting ? first.getValue() : stored.value();
        }

        @Override
        public void next() {
            if (isWaiting) {
                first = waiting.hasNext() ? waiting.next() : null;
            } else {
                stored.next();
            }
            settle();
        }

        @Override
        public void close() {
            stored.close();
        }
    }
}
