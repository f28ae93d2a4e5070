// The base of all state stores in Runstone.

package org.runstone.kafka.streams;

import java.util.Collection;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.query.Position;
import org.apache.kafka.streams.query.PositionBound;
import org.apache.kafka.streams.query.Query;
import org.apache.kafka.streams.query.QueryConfig;
import org.apache.kafka.streams.query.QueryResult;
import org.apache.kafka.streams.state.HeadersBytesStore;
import org.apache.kafka.streams.state.TimestampedBytesStore;
import org.runstone.WriteBatch;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** A state store whose data, offsets and position are in one Runstone store. */
abstract class BytesStore implements StateStore {
    private static final Logger LOG = LoggerFactory.getLogger(BytesStore.class);

    private final String name;
    private final String scope;
    private StateStoreContext context;
    private Backing backing;
    private boolean recordsCarryPositions;
    private boolean isBelowCache;

    BytesStore(String name, String scope) {
        this.name = name;
        this.scope = scope;
    }

    /** The format of values, by the same interfaces that Kafka Streams checks. */
    private Format format() {
        return this instanceof HeadersBytesStore ? Format.HEADERS
                : this instanceof TimestampedBytesStore ? Format.TIMESTAMPED : Format.PLAIN;
    }

    /** Whether values in formats other than plain have a time. */
    boolean valuesHaveTimes() {
        return true;
    }

    /** Called when the store is open, before records are restored. */
    abstract void opened(Backing backing, StateStoreContext context);

    /** Adds a restored record to the batch. */
    abstract void restore(ConsumerRecord<byte[], byte[]> record, WriteBatch batch);

    /** Called after a restore and after a commit. Expired records may be removed. */
    void settled() {
        // Most stores keep everything.
    }

    /** Whether writes wait for a commit even if they need not, because that is faster. */
    boolean gathersWrites() {
        return false;
    }

    /** The approximate number of entries in the store. */
    abstract long estimate();

    @Override
    public final void init(StateStoreContext context, StateStore root) {
        this.context = context;
        isBelowCache = Internals.hasWindowCache(root);
        backing = new Backing(context, name, gathersWrites());
        try {
            backing.upgrade(format(), valuesHaveTimes());
            opened(backing, context);
            Gauges.add(context, scope, name, backing.store(), this::estimate);
            recordsCarryPositions = Internals.recordsCarryPositions(context);
            context.register(root, Internals.restoring(this::restoreAll), () -> { });
        } catch (RuntimeException error) {
            backing.close();
            throw error;
        }
    }

    private void restoreAll(Collection<ConsumerRecord<byte[], byte[]>> records) {
        synchronized (backing.position()) {
            WriteBatch batch = new WriteBatch(64 * records.size());
            for (ConsumerRecord<byte[], byte[]> record : records) {
                if (recordsCarryPositions) {
                    Internals.takePosition(record, backing.position());
                }
                restore(record, batch);
            }
            backing.restore(batch);
        }
        settled();
    }

    /** Runs a write for the record that is being processed. */
    final void write(Runnable write) {
        Backing open = backing();
        synchronized (open.position()) {
            write.run();
            Internals.advance(open.position(), context);
        }
        open.written();
    }

    /** The open Runstone store, for a write. Must be called before anything changes. */
    final Backing writing() {
        Backing open = backing();
        if (open.beforeWrite()) {
            settled();
        }
        return open;
    }

    /** The open Runstone store. */
    final Backing backing() {
        Backing open = backing;
        if (open == null) {
            throw new InvalidStateStoreException("Store " + name + " is not open");
        }
        open.checkOpen();
        return open;
    }

    final StateStoreContext context() {
        return context;
    }

    /** Whether Kafka keeps some of the windows in a cache above the store. */
    final boolean isBelowCache() {
        return isBelowCache;
    }

    /** Whether a range of keys ends before it begins. Such a range is empty, and is logged. */
    static boolean isTurnedRound(Bytes from, Bytes to) {
        boolean isTurned = from != null && to != null && from.compareTo(to) > 0;
        if (isTurned) {
            // Users and upstream's tests search for this text.
            LOG.warn("Returning empty iterator for fetch with invalid key range: from > to."
                    + " This may be due to range arguments set in the wrong order, "
                    + "or serdes that don't preserve ordering when lexicographically comparing the"
                    + " serialized bytes."
                    + " Note that the built-in numerical serdes do not follow this for negative"
                    + " numbers");
        }
        return isTurned;
    }

    @Override
    public final void commit(Map<TopicPartition, Long> offsets) {
        if (isOpen()) {
            backing.commit(offsets);
            settled();
        }
    }

    @Override
    public final Long committedOffset(TopicPartition partition) {
        return backing().committedOffset(partition);
    }

    @Override
    @SuppressWarnings("deprecation")
    public final boolean managesOffsets() {
        return true;
    }

    @Override
    public final Position getPosition() {
        return backing.position();
    }

    @Override
    public <R> QueryResult<R> query(Query<R> query, PositionBound bound, QueryConfig config) {
        return Internals.answer(query, bound, config, this, backing().position(), context);
    }

    @Override
    public final String name() {
        return name;
    }

    @Override
    public final boolean persistent() {
        return true;
    }

    @Override
    public final boolean isOpen() {
        return backing != null && backing.isOpen();
    }

    @Override
    public final void close() {
        if (backing != null) {
            backing.close();
        }
    }
}
