// Rewrites the values of a store when its application requires a later format, such as headers.

package org.runstone.kafka.streams;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.Arrays;
import java.util.List;
import org.apache.kafka.streams.errors.ProcessorStateException;
import org.runstone.Cursor;
import org.runstone.Keyspace;
import org.runstone.Store;
import org.runstone.WriteBatch;

/**
 * <ol>
 * <li>A new store records the format of its values.
 * <li>If it is opened for a later format, it first records both formats. From then on it can be
 * opened only for the later one.
 * <li>Table by table, in the order of keys, a prefix is added to each value. Each batch of values
 * is written together with a record of the last key. So an interrupted upgrade continues from that
 * key, and no value is changed twice.
 * <li>At the end it records only the later format.
 * </ol>
 */
final class Upgrade {
    private static final byte[] FORMAT = "format".getBytes(UTF_8);
    /** The table, a zero byte, and the last key that has been rewritten. */
    private static final byte[] DONE = "upgraded".getBytes(UTF_8);
    private static final String TO = ">";
    private static final int BATCH_BYTES = 1 << 20;

    private final String name;
    private final Store store;
    private final Keyspace meta;

    Upgrade(String name, Store store, Keyspace meta) {
        this.name = name;
        this.store = store;
        this.meta = meta;
    }

    /** Makes sure that values have this format; {@code tables} are the tables of the store. */
    void to(Format format, boolean hasTimes, List<Table> tables) {
        byte[] noted = meta.get(FORMAT);
        if (noted == null || tables.isEmpty()) {
            meta.put(FORMAT, format.name().getBytes(UTF_8));
            return;
        }
        String[] formats = new String(noted, UTF_8).split(TO);
        String latest = formats[formats.length - 1];
        boolean isBegun = formats.length == 2;
        if (!isBegun && latest.equals(format.name())) {
            return;
        }
        byte[] before = Format.valueOf(formats[0]).before(format, hasTimes);
        if (before == null || isBegun && !latest.equals(format.name())) {
            throw new ProcessorStateException("Store " + name + " has values of the format "
                    + latest + ", and the application asks for "
                    + format + ". Remove the store's directory from the state directory: Kafka"
                    + " restores it from its changelog");
        }
        meta.put(FORMAT, (formats[0] + TO + format).getBytes(UTF_8));
        for (Table table : tables) {
            rewrite(table.keyspace(), before);
        }
        store.write(new WriteBatch()
                .put(meta, FORMAT, format.name().getBytes(UTF_8)).delete(meta, DONE));
    }

    private void rewrite(Keyspace table, byte[] before) {
        byte[] mark = (table.name() + '\0').getBytes(UTF_8);
        byte[] done = meta.get(DONE);
        byte[] from = null;
        if (done != null) {
            int end = 0;
            while (done[end] != 0) {
                end++;
            }
            int order = Arrays.compareUnsigned(done, 0, end, mark, 0, mark.length - 1);
            if (order > 0) {
                return;
            }
            from = order == 0
                    ? RecordKey.after(Arrays.copyOfRange(done, end + 1, done.length)) : null;
        }
        WriteBatch batch = new WriteBatch();
        int bytes = 0;
        try (Cursor cursor = table.cursor(from, null)) {
            for (cursor.seekToFirst(); cursor.isValid(); ) {
                byte[] key = cursor.key();
                byte[] value = joined(before, cursor.value());
                batch.put(table, key, value);
                bytes += key.length + value.length;
                cursor.next();
                if (bytes > BATCH_BYTES || !cursor.isValid()) {
                    store.write(batch.put(meta, DONE, joined(mark, key)));
                    batch.clear();
                    bytes = 0;
                }
            }
        }
    }

    private static byte[] joined(byte[] one, byte[] other) {
        byte[] both = Arrays.copyOf(one, one.length + other.length);
        System.arraycopy(other, 0, both, one.length, other.length);
        return both;
    }
}
