// The base of window and session stores: segments of time, and a retention period.

package org.runstone.kafka.streams;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.runstone.WriteBatch;

/**
 * A store whose records have a time, and are removed when they are older than the retention period.
 * As in Kafka's stores, records are removed with their segment. Until then an old record is
 * accepted and kept, but only the code that emits the results of closed windows or sessions sees
 * it.
 */
abstract class SegmentedBytesStore extends BytesStore {
    private final long segmentIntervalMs;
    private final long retentionMs;
    private Segments segments;
    private Sensor dropped;

    SegmentedBytesStore(String name, String scope, long segmentIntervalMs, long retentionMs) {
        super(name, scope);
        this.segmentIntervalMs = segmentIntervalMs;
        this.retentionMs = retentionMs;
    }

    /** The time of a record, by its key. */
    abstract long timeOf(byte[] record);

    @Override
    void opened(Backing backing, StateStoreContext context) {
        segments = new Segments(backing, segmentIntervalMs);
        dropped = Internals.droppedRecords(context);
    }

    @Override
    void restore(ConsumerRecord<byte[], byte[]> record, WriteBatch batch) {
        long time = timeOf(record.key());
        backing().advanceStreamTime(time);
        if (isGone(time)) {
            return;
        }
        Table table = segments.makeAt(time);
        if (record.value() == null) {
            batch.delete(table.keyspace(), record.key());
        } else {
            batch.put(table.keyspace(), record.key(), record.value());
        }
    }

    @Override
    void settled() {
        segments.dropBefore(firstKept());
    }

    @Override
    long estimate() {
        return segments.estimate();
    }

    Segments segments() {
        return segments;
    }

    /** The first time whose records are shown. */
    long firstLive() {
        return firstKept() + 1;
    }

    /** The first time whose segment is kept. */
    final long firstKept() {
        return backing().streamTime() - retentionMs;
    }

    /** Whether the segment for a time has been removed for good. */
    final boolean isGone(long time) {
        return segments.isBefore(time, firstKept());
    }

    /** Counts a record that arrived too late. */
    void drop() {
        dropped.record(1.0, System.currentTimeMillis());
    }
}
