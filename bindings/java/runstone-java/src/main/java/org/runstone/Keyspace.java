// A keyspace: reads and single writes.

package org.runstone;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/**
 * An ordered map of byte strings inside a store. Keys have up to 65,535 bytes. Methods may be
 * called from any number of threads; the bytes of an argument must not change while a call runs.
 */
public final class Keyspace extends Handle {
    private final Store store;
    private final String name;

    Keyspace(Store store, String name, long handle) {
        super("keyspace", handle, Native::closeKeyspace, store);
        this.store = store;
        this.name = name;
    }

    /** The name of the keyspace in the store. */
    public String name() {
        return name;
    }

    /** The store to which the keyspace belongs. */
    public Store store() {
        return store;
    }

    /** The value of a key, or null. */
    public byte[] get(byte[] key) {
        try {
            return Native.get(handle(), 0, Objects.requireNonNull(key, "key"));
        } finally {
            keep(this);
        }
    }

    /** The value that a key had at the snapshot, or null. */
    public byte[] get(byte[] key, Snapshot snapshot) {
        Objects.requireNonNull(key, "key");
        try {
            return Native.get(handle(), Objects.requireNonNull(snapshot, "snapshot").handle(), key);
        } finally {
            keep(this, snapshot);
        }
    }

    /**
     * Reads a value into a buffer, from its position on. Direct buffers need no additional copy.
     *
     * @return the size of the value, or -1 if there is none. If the buffer has less room, it gets
     *     as many bytes as fit. Its limit is set to the end of the written bytes; its position
     *     stays.
     */
    public int get(ByteBuffer key, ByteBuffer value) {
        return get(key, value, null);
    }

    /** Reads into a buffer the value that a key had at the snapshot. Null means now. */
    public int get(ByteBuffer key, ByteBuffer value, Snapshot snapshot) {
        int room = value.remaining();
        try {
            long moment = Snapshot.of(snapshot);
            int size;
            if (key.isDirect() && value.isDirect() && !value.isReadOnly()) {
                size = Native.getDirect(handle(), moment, key, key.position(), key.remaining(),
                        value, value.position(), room);
            } else {
                byte[] found = Native.get(handle(), moment, bytesOf(key));
                size = found == null ? -1 : found.length;
                if (found != null) {
                    value.duplicate().put(found, 0, Math.min(room, size));
                }
            }
            if (size >= 0) {
                value.limit(value.position() + Math.min(room, size));
            }
            return size;
        } finally {
            keep(this, snapshot);
        }
    }

    /** The values of many keys in order, all at one moment; null for keys without one. */
    public List<byte[]> multiGet(List<byte[]> keys) {
        long bytes = keys.stream().mapToLong(key -> 4 + key.length).sum();
        if (bytes > WriteBatch.MOST_BYTES) {
            throw new RunstoneException.InvalidArgument("the keys take " + bytes
                    + " bytes; the most is " + WriteBatch.MOST_BYTES + "; ask for them in parts");
        }
        ByteBuffer asked = ByteBuffer.allocate((int) bytes).order(ByteOrder.LITTLE_ENDIAN);
        keys.forEach(key -> asked.putInt(key.length).put(key));
        byte[] answer;
        try {
            answer = Native.multiGet(handle(), asked.array());
        } finally {
            keep(this);
        }
        ByteBuffer found = ByteBuffer.wrap(answer).order(ByteOrder.LITTLE_ENDIAN);
        List<byte[]> values = new ArrayList<>(keys.size());
        while (found.hasRemaining()) {
            int size = found.getInt();
            byte[] value = size < 0 ? null : new byte[size];
            if (value != null) {
                found.get(value);
            }
            values.add(value);
        }
        return values;
    }

    /** Stores a value. */
    public void put(byte[] key, byte[] value) {
        put(key, value, WriteOptions.DEFAULT);
    }

    /** Stores a value as durably, and for as long, as the options say. */
    public void put(byte[] key, byte[] value, WriteOptions options) {
        Objects.requireNonNull(key, "key");
        try {
            Native.put(handle(), key, Objects.requireNonNull(value, "value"),
                    options.durability(), options.ttlMs());
        } finally {
            keep(this);
        }
    }

    /** Stores a value. The buffers' positions stay. Direct buffers need no additional copy. */
    public void put(ByteBuffer key, ByteBuffer value) {
        put(key, value, WriteOptions.DEFAULT);
    }

    /** Stores a value as durably, and for as long, as the options say. */
    public void put(ByteBuffer key, ByteBuffer value, WriteOptions options) {
        if (key.isDirect() && value.isDirect()) {
            try {
                Native.putDirect(handle(), key, key.position(), key.remaining(),
                        value, value.position(), value.remaining(),
                        options.durability(), options.ttlMs());
            } finally {
                keep(this);
            }
        } else {
            put(bytesOf(key), bytesOf(value), options);
        }
    }

    /** Removes a key. It is not an error if the key is absent. */
    public void delete(byte[] key) {
        delete(key, WriteOptions.DEFAULT);
    }

    /** Removes a key as durably as the options say. */
    public void delete(byte[] key, WriteOptions options) {
        try {
            Native.delete(handle(), Objects.requireNonNull(key, "key"),
                    options.durability(), options.ttlMs());
        } finally {
            keep(this);
        }
    }

    /**
     * Removes the keys from {@code from} (inclusive) to {@code to} (exclusive) with one record. A
     * null key leaves that end open.
     */
    public void deleteRange(byte[] from, byte[] to) {
        deleteRange(from, to, WriteOptions.DEFAULT);
    }

    /** Removes the keys of a range as durably as the options say. */
    public void deleteRange(byte[] from, byte[] to, WriteOptions options) {
        try {
            Native.deleteRange(handle(), from, to, options.durability(), options.ttlMs());
        } finally {
            keep(this);
        }
    }

    /** Removes the first entry and returns it; null if there is none. Other callers get others. */
    public Map.Entry<byte[], byte[]> popFirst() {
        return popFirst(WriteOptions.DEFAULT);
    }

    /** Removes the first entry as durably as the options say. */
    public Map.Entry<byte[], byte[]> popFirst(WriteOptions options) {
        return first(drain(null, null, 1, options));
    }

    /** Removes the last entry and returns it; null if there is none. Other callers get others. */
    public Map.Entry<byte[], byte[]> popLast() {
        return popLast(WriteOptions.DEFAULT);
    }

    /** Removes the last entry as durably as the options say. */
    public Map.Entry<byte[], byte[]> popLast(WriteOptions options) {
        try {
            return first(entries(
                    Native.popLast(handle(), options.durability(), options.ttlMs())));
        } finally {
            keep(this);
        }
    }

    /**
     * Removes the first entries from {@code from} (inclusive) to {@code to} (exclusive), up to
     * {@code most} of them, and returns them in order. Either all of them are removed or none. The
     * call returns fewer if others remove some meanwhile, or once it has 4 MiB. It returns none
     * only if the range is empty or {@code most} is 0: call it until it returns none. A null key
     * leaves that end open.
     */
    public List<Map.Entry<byte[], byte[]>> drain(byte[] from, byte[] to, int most) {
        return drain(from, to, most, WriteOptions.DEFAULT);
    }

    /** Removes the first entries of a range as durably as the options say. */
    public List<Map.Entry<byte[], byte[]>> drain(
            byte[] from, byte[] to, int most, WriteOptions options) {
        try {
            return entries(Native.drain(
                    handle(), from, to, most, options.durability(), options.ttlMs()));
        } finally {
            keep(this);
        }
    }

    private static Map.Entry<byte[], byte[]> first(List<Map.Entry<byte[], byte[]>> entries) {
        return entries.isEmpty() ? null : entries.get(0);
    }

    private static List<Map.Entry<byte[], byte[]>> entries(byte[] answer) {
        ByteBuffer found = ByteBuffer.wrap(answer).order(ByteOrder.LITTLE_ENDIAN);
        List<Map.Entry<byte[], byte[]>> entries = new ArrayList<>();
        while (found.hasRemaining()) {
            entries.add(Map.entry(sized(found), sized(found)));
        }
        return entries;
    }

    private static byte[] sized(ByteBuffer found) {
        byte[] bytes = new byte[found.getInt()];
        found.get(bytes);
        return bytes;
    }

    /**
     * The approximate number of entries in a range, including replaced and deleted ones. Null means
     * no bound.
     */
    public long estimateEntries(byte[] from, byte[] to) {
        return estimate(from, to)[0];
    }

    /** The approximate number of bytes in a range. Null means no bound. */
    public long estimateBytes(byte[] from, byte[] to) {
        return estimate(from, to)[1];
    }

    private long[] estimate(byte[] from, byte[] to) {
        try {
            return Native.estimate(handle(), from, to);
        } finally {
            keep(this);
        }
    }

    /** A cursor over all keys. */
    public Cursor cursor() {
        return cursor(null, null, null);
    }

    /**
     * A cursor over the keys from {@code from} up to but not including {@code to}. Null means no
     * bound.
     */
    public Cursor cursor(byte[] from, byte[] to) {
        return cursor(from, to, null);
    }

    /**
     * A cursor over the keys of a range as they were at a snapshot. Null means no bound, or now.
     */
    public Cursor cursor(byte[] from, byte[] to, Snapshot snapshot) {
        return cursor(from, to, snapshot, true);
    }

    /**
     * The same cursor. Without {@code fillCache}, the data that it reads is not added to the cache.
     */
    public Cursor cursor(byte[] from, byte[] to, Snapshot snapshot, boolean fillCache) {
        try {
            long cursor = Native.cursor(handle(), Snapshot.of(snapshot), from, to, fillCache);
            return new Cursor(store, cursor);
        } finally {
            keep(this, snapshot);
        }
    }

    /** A cursor over the keys that begin with a prefix. */
    public Cursor prefix(byte[] prefix) {
        return cursor(prefix, behindPrefix(prefix));
    }

    /** Compacts the whole keyspace. */
    public void compact() {
        try {
            Native.compact(handle());
        } finally {
            keep(this);
        }
    }

    /** The smallest key greater than all keys with a prefix, or null if there is none. */
    static byte[] behindPrefix(byte[] prefix) {
        int count = prefix.length;
        while (count > 0 && prefix[count - 1] == (byte) 0xff) {
            count--;
        }
        if (count == 0) {
            return null;
        }
        byte[] behind = java.util.Arrays.copyOf(prefix, count);
        behind[count - 1]++;
        return behind;
    }

    static byte[] bytesOf(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return bytes;
    }
}
