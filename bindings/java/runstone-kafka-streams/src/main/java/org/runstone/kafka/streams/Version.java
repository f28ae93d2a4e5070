// One version of a key in a versioned store, as its tables store it.

package org.runstone.kafka.streams;

import java.util.Arrays;
import org.apache.kafka.streams.state.VersionedRecord;

/**
 * A value, or its absence, from one time up to but not including another.
 *
 * <pre>
 * in the table of latest versions:  key         ->  time i64     | present u8 | value
 * in a table of older ones:         key | time  ->  valid to i64 | present u8 | value
 * </pre>
 *
 * @param value null if the key was deleted
 * @param validTo {@link #FOREVER} for the latest version
 */
record Version(long time, long validTo, byte[] value) {
    static final long FOREVER = Long.MAX_VALUE;
    private static final int HEAD_BYTES = 9;

    static Version latest(byte[] stored) {
        return new Version(RecordKey.longAt(stored, 0), FOREVER, valueOf(stored));
    }

    static Version older(byte[] key, byte[] stored) {
        return new Version(
                RecordKey.versionTime(key), RecordKey.longAt(stored, 0), valueOf(stored));
    }

    private static byte[] valueOf(byte[] stored) {
        return stored[8] == 0 ? null : Arrays.copyOfRange(stored, HEAD_BYTES, stored.length);
    }

    byte[] storedAsLatest() {
        return stored(time);
    }

    byte[] storedAsOlder() {
        return stored(validTo);
    }

    private byte[] stored(long number) {
        byte[] bytes = new byte[HEAD_BYTES + (value == null ? 0 : value.length)];
        RecordKey.setLong(bytes, 0, number);
        if (value != null) {
            bytes[8] = 1;
            System.arraycopy(value, 0, bytes, HEAD_BYTES, value.length);
        }
        return bytes;
    }

    /** The version as Kafka Streams shows it; null for a deletion. */
    VersionedRecord<byte[]> shown() {
        if (value == null) {
            return null;
        }
        return validTo == FOREVER ? new VersionedRecord<>(value, time)
                : new VersionedRecord<>(value, time, validTo);
    }
}
