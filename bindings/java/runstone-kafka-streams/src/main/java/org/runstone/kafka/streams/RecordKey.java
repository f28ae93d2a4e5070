// The layout of keys with times. Kafka's changelogs have the same layout, so a restored record is
// stored unchanged.

package org.runstone.kafka.streams;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.util.Arrays;
import org.apache.kafka.common.utils.Bytes;

/**
 * <pre>
 * window  := key | start of the window i64 | number i32, which distinguishes duplicates
 * session := key | end of the session i64 | its start i64
 * version := key | time of the record i64
 * </pre>
 *
 * <p>Numbers are big-endian and not negative, so they sort as their bytes do. Keys have no end
 * mark: between the records of a key there may be records of longer keys that begin with it.
 */
final class RecordKey {
    static final int WINDOW_BYTES = 12;
    static final int SESSION_BYTES = 16;
    static final int VERSION_BYTES = 8;

    private static final VarHandle LONG =
            MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.BIG_ENDIAN);
    private static final VarHandle INT =
            MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.BIG_ENDIAN);

    private RecordKey() {
    }

    static byte[] window(byte[] key, long start, int number) {
        byte[] record = Arrays.copyOf(key, key.length + WINDOW_BYTES);
        LONG.set(record, key.length, start);
        INT.set(record, key.length + 8, number);
        return record;
    }

    static byte[] session(byte[] key, long start, long end) {
        byte[] record = Arrays.copyOf(key, key.length + SESSION_BYTES);
        LONG.set(record, key.length, end);
        LONG.set(record, key.length + 8, start);
        return record;
    }

    static byte[] version(byte[] key, long time) {
        byte[] record = Arrays.copyOf(key, key.length + VERSION_BYTES);
        LONG.set(record, key.length, time);
        return record;
    }

    static long windowStart(byte[] record) {
        return (long) LONG.get(record, record.length - WINDOW_BYTES);
    }

    static long sessionEnd(byte[] record) {
        return (long) LONG.get(record, record.length - SESSION_BYTES);
    }

    static long sessionStart(byte[] record) {
        return (long) LONG.get(record, record.length - 8);
    }

    static long versionTime(byte[] record) {
        return (long) LONG.get(record, record.length - VERSION_BYTES);
    }

    /** The key in a record whose times take {@code times} bytes. */
    static Bytes key(byte[] record, int times) {
        return Bytes.wrap(Arrays.copyOf(record, record.length - times));
    }

    /** Whether a record belongs to this key. */
    static boolean isOf(byte[] record, byte[] key, int times) {
        return record.length == key.length + times
                && Arrays.equals(record, 0, key.length, key, 0, key.length);
    }

    /** Whether the key of a record is between two keys, both included. Null means no bound. */
    static boolean isBetween(byte[] record, int times, Bytes from, Bytes to) {
        int end = record.length - times;
        if (from != null
                && Arrays.compareUnsigned(record, 0, end, from.get(), 0, from.get().length) < 0) {
            return false;
        }
        return to == null
                || Arrays.compareUnsigned(record, 0, end, to.get(), 0, to.get().length) <= 0;
    }

    /**
     * The smallest bytes greater than all records whose key is at most {@code to} and whose first
     * time is at most {@code latest}. The time of a shorter key is compared with the rest of {@code
     * to}. So each prefix of {@code to} is tried, and the greatest result wins.
     */
    static byte[] behind(byte[] to, long latest, int times) {
        byte[] greatest = null;
        for (int length = 0; length <= to.length; length++) {
            byte[] record = Arrays.copyOf(to, length + times + 1);
            Arrays.fill(record, length, record.length - 1, (byte) 0xff);
            LONG.set(record, length, latest);
            if (greatest == null || Arrays.compareUnsigned(record, greatest) > 0) {
                greatest = record;
            }
        }
        return greatest;
    }

    /** The smallest bytes greater than one record. */
    static byte[] after(byte[] record) {
        return Arrays.copyOf(record, record.length + 1);
    }

    static long longAt(byte[] bytes, int at) {
        return (long) LONG.get(bytes, at);
    }

    static void setLong(byte[] bytes, int at, long number) {
        LONG.set(bytes, at, number);
    }

    static byte[] ofLong(long number) {
        byte[] bytes = new byte[8];
        LONG.set(bytes, 0, number);
        return bytes;
    }
}
