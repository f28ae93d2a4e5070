// Key-value stores.

package org.runstone.kafka.streams;

import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.state.HeadersBytesStore;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.TimestampedBytesStore;
import org.runstone.WriteBatch;

/** A key-value store. The wrapper of the store determines the contents of its values. */
class KeyValueBytesStore extends BytesStore implements KeyValueStore<Bytes, byte[]> {
    private static final String TABLE = "default";

    private Table table;

    KeyValueBytesStore(String name, String scope) {
        super(name, scope);
    }

    /** Values begin with a timestamp. */
    static final class Timestamped extends KeyValueBytesStore implements TimestampedBytesStore {
        Timestamped(String name, String scope) {
            super(name, scope);
        }
    }

    /** Values begin with headers and a timestamp. */
    static final class WithHeaders extends KeyValueBytesStore
            implements TimestampedBytesStore, HeadersBytesStore {
        WithHeaders(String name, String scope) {
            super(name, scope);
        }
    }

    @Override
    void opened(Backing backing, StateStoreContext context) {
        table = backing.table(TABLE);
    }

    @Override
    void restore(ConsumerRecord<byte[], byte[]> record, WriteBatch batch) {
        if (record.value() == null) {
            batch.delete(table.keyspace(), record.key());
        } else {
            batch.put(table.keyspace(), record.key(), record.value());
        }
    }

    @Override
    public byte[] get(Bytes key) {
        backing();
        return table.get(key.get());
    }

    @Override
    public void put(Bytes key, byte[] value) {
        Objects.requireNonNull(key, "key cannot be null");
        writing();
        write(() -> table.put(key.get(), value));
    }

    @Override
    public byte[] putIfAbsent(Bytes key, byte[] value) {
        Objects.requireNonNull(key, "key cannot be null");
        byte[] present = get(key);
        if (present == null && value != null) {
            put(key, value);
        }
        return present;
    }

    @Override
    public void putAll(List<KeyValue<Bytes, byte[]>> entries) {
        for (KeyValue<Bytes, byte[]> entry : entries) {
            Objects.requireNonNull(entry.key, "key cannot be null");
        }
        writing();
        write(() -> entries.forEach(entry -> table.put(entry.key.get(), entry.value)));
    }

    @Override
    public byte[] delete(Bytes key) {
        Objects.requireNonNull(key, "key cannot be null");
        byte[] present = get(key);
        put(key, null);
        return present;
    }

    @Override
    public KeyValueIterator<Bytes, byte[]> range(Bytes from, Bytes to) {
        return walk(from, to, true);
    }

    @Override
    public KeyValueIterator<Bytes, byte[]> reverseRange(Bytes from, Bytes to) {
        return walk(from, to, false);
    }

    @Override
    public KeyValueIterator<Bytes, byte[]> all() {
        return walk(null, null, true);
    }

    @Override
    public KeyValueIterator<Bytes, byte[]> reverseAll() {
        return walk(null, null, false);
    }

    /** Iterates over a range. Both bounds are inclusive. */
    private KeyValueIterator<Bytes, byte[]> walk(Bytes from, Bytes to, boolean forward) {
        backing();
        if (isTurnedRound(from, to)) {
            return new Walk<>(Entries.NONE, Bytes::wrap);
        }
        byte[] first = from == null ? null : from.get();
        byte[] behind = to == null ? null : RecordKey.after(to.get());
        return new Walk<>(table.entries(first, behind, forward), Bytes::wrap);
    }

    @Override
    public <PS extends Serializer<P>, P> KeyValueIterator<Bytes, byte[]> prefixScan(
            P prefix, PS serializer) {
        Objects.requireNonNull(prefix, "prefix cannot be null");
        Objects.requireNonNull(serializer, "prefixKeySerializer cannot be null");
        backing();
        byte[] bytes = serializer.serialize(null, prefix);
        return new Walk<>(table.entries(bytes, behindPrefix(bytes), true), Bytes::wrap);
    }

    private static byte[] behindPrefix(byte[] prefix) {
        int count = prefix.length;
        while (count > 0 && prefix[count - 1] == (byte) 0xff) {
            count--;
        }
        if (count == 0) {
            return null;
        }
        byte[] behind = Arrays.copyOf(prefix, count);
        behind[count - 1]++;
        return behind;
    }

    @Override
    public long approximateNumEntries() {
        backing();
        return estimate();
    }

    @Override
    long estimate() {
        return table.keyspace().estimateEntries(null, null) + table.pendingCount();
    }
}
