// Versioned key-value stores.

package org.runstone.kafka.streams;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.query.PositionBound;
import org.apache.kafka.streams.query.Query;
import org.apache.kafka.streams.query.QueryConfig;
import org.apache.kafka.streams.query.QueryResult;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.VersionedBytesStore;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.VersionedRecord;
import org.runstone.WriteBatch;

/**
 * A store that keeps all versions of its keys that are not older than the history retention.
 *
 * <p>The latest version of each key, which may be a deletion, is in one table; older versions are
 * in {@link VersionHistory}. If the latest version is a deletion, it is also stored by time, and is
 * removed when it is older than the retention. Then the versions before it can no longer be
 * queried.
 */
final class VersionedStore extends BytesStore implements VersionedBytesStore {
    private static final String LATEST = "latest";
    private static final String DELETIONS = "deletions";
    private static final long SHORTEST_SEGMENT_MS = 2_000;

    private final long retention;
    private Table latest;
    /** The times and keys of deletions. */
    private Table deletions;
    private VersionHistory history;
    private Sensor dropped;

    VersionedStore(String name, String scope, long retention) {
        super(name, scope);
        this.retention = retention;
    }

    @Override
    boolean gathersWrites() {
        return true;
    }

    @Override
    void opened(Backing backing, StateStoreContext context) {
        latest = backing.table(LATEST);
        deletions = backing.table(DELETIONS);
        long interval = Math.max(retention / 3, SHORTEST_SEGMENT_MS);
        history = new VersionHistory(new Segments(backing, interval));
        dropped = Internals.droppedRecords(context);
    }

    /**
     * Each record depends on the results of earlier records, so the results are kept beside the
     * batch.
     */
    @Override
    void restore(ConsumerRecord<byte[], byte[]> record, WriteBatch batch) {
        if (record.timestamp() >= horizon()) {
            backing().advanceStreamTime(record.timestamp());
            insert(record.key(), new Version(record.timestamp(), Version.FOREVER, record.value()));
        }
    }

    @Override
    void settled() {
        long horizon = horizon();
        if (horizon <= 0) {
            return;
        }
        history.dropBefore(horizon);
        try (Entries old = deletions.entries(null, RecordKey.ofLong(horizon), true)) {
            for (; old.isValid(); old.next()) {
                byte[] note = old.key();
                byte[] key = Arrays.copyOfRange(note, 8, note.length);
                Version version = latestOf(key);
                if (version != null && version.value() == null
                        && version.time() == RecordKey.longAt(note, 0)) {
                    latest.put(key, null);
                }
                deletions.put(note, null);
            }
        }
    }

    @Override
    long estimate() {
        return latest.keyspace().estimateEntries(null, null) + latest.pendingCount();
    }

    private long horizon() {
        return backing().streamTime() - retention;
    }

    private Version latestOf(byte[] key) {
        byte[] stored = latest.get(key);
        return stored == null ? null : Version.latest(stored);
    }

    /** Returns the time up to which the inserted version is valid. */
    private long insert(byte[] key, Version version) {
        Version present = latestOf(key);
        if (present != null && version.time() < present.time()) {
            return history.insert(key, version, present.time());
        }
        if (present != null && version.time() > present.time()) {
            history.add(key, new Version(present.time(), version.time(), present.value()));
        }
        latest.put(key, version.storedAsLatest());
        if (version.value() == null) {
            byte[] note = new byte[8 + key.length];
            RecordKey.setLong(note, 0, version.time());
            System.arraycopy(key, 0, note, 8, key.length);
            deletions.put(note, new byte[0]);
        }
        return VersionedKeyValueStore.PUT_RETURN_CODE_VALID_TO_UNDEFINED;
    }

    @Override
    public long put(Bytes key, byte[] value, long time) {
        Objects.requireNonNull(key, "key cannot be null");
        writing();
        if (time < horizon()) {
            dropped.record(1.0, System.currentTimeMillis());
            write(() -> { });
            return VersionedKeyValueStore.PUT_RETURN_CODE_NOT_PUT;
        }
        long[] validTo = new long[1];
        write(() -> {
            backing().advanceStreamTime(time);
            validTo[0] = insert(key.get(), new Version(time, Version.FOREVER, value));
        });
        return validTo[0];
    }

    @Override
    public byte[] delete(Bytes key, long time) {
        Objects.requireNonNull(key, "key cannot be null");
        if (time < horizon()) {
            dropped.record(1.0, System.currentTimeMillis());
            return null;
        }
        byte[] present = get(key, time);
        put(key, null, time);
        return present;
    }

    @Override
    public byte[] get(Bytes key) {
        backing();
        return bytesOf(latestOf(key.get()));
    }

    @Override
    public byte[] get(Bytes key, long time) {
        return bytesOf(asOf(key.get(), time));
    }

    private Version asOf(byte[] key, long time) {
        long horizon = horizon();
        Version present = latestOf(key);
        if (present != null && present.time() <= time) {
            return present;
        }
        // The latest version is shown at any age; older ones are not shown beyond the retention.
        return present == null || time < horizon ? null : history.asOf(key, time);
    }

    /** The time, followed by the value. */
    private static byte[] bytesOf(Version version) {
        if (version == null || version.value() == null) {
            return null;
        }
        byte[] bytes = new byte[8 + version.value().length];
        RecordKey.setLong(bytes, 0, version.time());
        System.arraycopy(version.value(), 0, bytes, 8, version.value().length);
        return bytes;
    }

    /** The latest version, for queries. */
    VersionedRecord<byte[]> record(Bytes key) {
        backing();
        Version version = latestOf(key.get());
        return version == null ? null : version.shown();
    }

    /** The version at a time, for queries. */
    VersionedRecord<byte[]> record(Bytes key, long time) {
        Version version = asOf(key.get(), time);
        return version == null ? null : version.shown();
    }

    /** The versions that were valid in a period, oldest first, for queries. */
    List<VersionedRecord<byte[]>> records(Bytes key, long from, long to) {
        List<Version> versions = to < horizon()
                ? new ArrayList<>() : history.between(key.get(), from, to);
        Version present = latestOf(key.get());
        if (present != null && present.time() <= to) {
            versions.add(present);
        }
        return versions.stream().map(Version::shown).filter(Objects::nonNull).toList();
    }

    @Override
    public <R> QueryResult<R> query(Query<R> query, PositionBound bound, QueryConfig config) {
        return VersionQueries.answer(query, bound, config, this, backing().position(), context());
    }

    private static UnsupportedOperationException unsupported(String method) {
        return new UnsupportedOperationException(
                "a versioned store has no " + method + "; its records have times");
    }

    @Override
    public void put(Bytes key, byte[] value) {
        throw unsupported("put(key, value)");
    }

    @Override
    public byte[] putIfAbsent(Bytes key, byte[] value) {
        throw unsupported("putIfAbsent(key, value)");
    }

    @Override
    public void putAll(List<KeyValue<Bytes, byte[]>> entries) {
        throw unsupported("putAll(entries)");
    }

    @Override
    public byte[] delete(Bytes key) {
        throw unsupported("delete(key)");
    }

    @Override
    public KeyValueIterator<Bytes, byte[]> range(Bytes from, Bytes to) {
        throw unsupported("range(from, to)");
    }

    @Override
    public KeyValueIterator<Bytes, byte[]> all() {
        throw unsupported("all()");
    }

    @Override
    public long approximateNumEntries() {
        throw unsupported("approximateNumEntries()");
    }
}
