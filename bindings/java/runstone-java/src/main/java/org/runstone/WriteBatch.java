// Many writes, collected in one array, so that one native call writes them all.

package org.runstone;

import java.lang.ref.Reference;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.Objects;

/**
 * Writes that happen together or not at all, in order, over any keyspaces of one store. The bytes
 * are copied when they are added. One thread at a time may use the batch. {@link Store#write} does
 * not change it, and {@link #clear} prepares it for the next writes without freeing its memory.
 */
public final class WriteBatch {
    /** The largest size of an array: some JVMs cannot allocate the last bytes. */
    static final int MOST_BYTES = Integer.MAX_VALUE - 8;

    private static final int HEAD_BYTES = 10;
    private static final int MOST_KEYSPACES = 256;
    private static final byte PUT = 1;
    private static final byte DELETE = 2;
    private static final byte MERGE = 3;
    private static final byte DELETE_RANGE = 4;
    private static final byte[] NOTHING = new byte[0];
    private static final VarHandle INT =
            MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.LITTLE_ENDIAN);

    private Keyspace[] keyspaces = new Keyspace[1];
    private int keyspaceCount;
    private byte[] operations;
    private int used;
    private int count;

    /** An empty batch. */
    public WriteBatch() {
        this(1024);
    }

    /** An empty batch with room for this many bytes. */
    public WriteBatch(int bytes) {
        operations = new byte[bytes];
    }

    /** Adds a put. */
    public WriteBatch put(Keyspace keyspace, byte[] key, byte[] value) {
        return add(PUT, keyspace, key, Objects.requireNonNull(value, "value"));
    }

    /** Adds a put. The buffers' positions stay. */
    public WriteBatch put(Keyspace keyspace, ByteBuffer key, ByteBuffer value) {
        int at = head(PUT, keyspace, key.remaining(), value.remaining());
        key.duplicate().get(operations, at, key.remaining());
        value.duplicate().get(operations, at + key.remaining(), value.remaining());
        return this;
    }

    /** Adds a delete. */
    public WriteBatch delete(Keyspace keyspace, byte[] key) {
        return add(DELETE, keyspace, key, NOTHING);
    }

    /** Adds an operand of the keyspace's merge operator. */
    public WriteBatch merge(Keyspace keyspace, byte[] key, byte[] operand) {
        return add(MERGE, keyspace, key, Objects.requireNonNull(operand, "operand"));
    }

    /**
     * Adds a delete of the keys from {@code from} up to but not including {@code to}. Null means no
     * bound.
     */
    public WriteBatch deleteRange(Keyspace keyspace, byte[] from, byte[] to) {
        if (to != null && to.length == 0) {
            return this;
        }
        byte[] first = from == null ? NOTHING : from;
        return add(DELETE_RANGE, keyspace, first, to == null ? NOTHING : to);
    }

    /** The number of writes in the batch. */
    public int size() {
        return count;
    }

    /** The size of its writes in bytes. */
    public int bytes() {
        return used;
    }

    /** Whether the batch contains no writes. */
    public boolean isEmpty() {
        return count == 0;
    }

    /** Removes all writes. */
    public void clear() {
        used = 0;
        count = 0;
        keyspaceCount = 0;
        Arrays.fill(keyspaces, null);
    }

    void writeTo(long store, WriteOptions options) {
        long[] handles = new long[keyspaceCount];
        for (int place = 0; place < keyspaceCount; place++) {
            handles[place] = keyspaces[place].handle();
        }
        try {
            Native.write(store, handles, operations, used,
                    options.durability(), options.ttlMs());
        } finally {
            // The batch keeps its keyspaces reachable.
            Reference.reachabilityFence(this);
        }
    }

    private WriteBatch add(byte kind, Keyspace keyspace, byte[] key, byte[] value) {
        int at = head(kind, keyspace, key.length, value.length);
        System.arraycopy(key, 0, operations, at, key.length);
        System.arraycopy(value, 0, operations, at + key.length, value.length);
        return this;
    }

    /** Writes the head of an operation, and returns the position of its key. */
    private int head(byte kind, Keyspace keyspace, int keyBytes, int valueBytes) {
        int place = place(keyspace);
        long end = (long) used + HEAD_BYTES + keyBytes + valueBytes;
        if (end > operations.length) {
            grow(end);
        }
        operations[used] = kind;
        operations[used + 1] = (byte) place;
        INT.set(operations, used + 2, keyBytes);
        INT.set(operations, used + 6, valueBytes);
        int at = used + HEAD_BYTES;
        used = (int) end;
        count++;
        return at;
    }

    private int place(Keyspace keyspace) {
        Objects.requireNonNull(keyspace, "keyspace");
        for (int place = 0; place < keyspaceCount; place++) {
            if (keyspaces[place] == keyspace) {
                return place;
            }
        }
        if (keyspaceCount == MOST_KEYSPACES) {
            throw new RunstoneException.InvalidArgument("a batch writes to at most "
                    + MOST_KEYSPACES + " keyspaces; make it several batches");
        }
        if (keyspaceCount == keyspaces.length) {
            keyspaces = Arrays.copyOf(keyspaces, 2 * keyspaceCount);
        }
        keyspaces[keyspaceCount] = keyspace;
        return keyspaceCount++;
    }

    private void grow(long end) {
        if (end > MOST_BYTES) {
            throw new RunstoneException.InvalidArgument(
                    "a batch holds at most " + MOST_BYTES + " bytes; write it in parts");
        }
        long wanted = Math.min(MOST_BYTES, Math.max(end, 2L * used));
        operations = Arrays.copyOf(operations, (int) wanted);
    }
}
