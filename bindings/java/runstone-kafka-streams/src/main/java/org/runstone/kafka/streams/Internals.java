// Calls of Kafka Streams classes that are not public API but that stores need. All such calls are
// here, so that an upgrade of Kafka concerns only one file.

package org.runstone.kafka.streams;

import java.nio.ByteBuffer;
import java.util.Collection;
import java.util.Map;
import java.util.Set;
import java.util.function.Consumer;
import java.util.function.DoubleSupplier;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.streams.StreamsConfig.InternalConfig;
import org.apache.kafka.streams.kstream.Window;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.kstream.internals.TimeWindow;
import org.apache.kafka.streams.processor.StateRestoreCallback;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.processor.internals.ChangelogRecordDeserializationHelper;
import org.apache.kafka.streams.processor.internals.GlobalProcessorContextImpl;
import org.apache.kafka.streams.processor.internals.ProcessorContextUtils;
import org.apache.kafka.streams.processor.internals.RecordCollector;
import org.apache.kafka.streams.processor.internals.RecordBatchingStateRestoreCallback;
import org.apache.kafka.streams.processor.internals.metrics.StreamsMetricsImpl;
import org.apache.kafka.streams.processor.internals.metrics.TaskMetrics;
import org.apache.kafka.streams.query.Position;
import org.apache.kafka.streams.query.PositionBound;
import org.apache.kafka.streams.query.Query;
import org.apache.kafka.streams.query.QueryConfig;
import org.apache.kafka.streams.query.QueryResult;
import org.apache.kafka.streams.state.internals.CachingWindowStore;
import org.apache.kafka.streams.state.internals.OffsetCheckpoint;
import org.apache.kafka.streams.state.internals.PositionSerde;
import org.apache.kafka.streams.state.internals.StoreQueryUtils;
import org.apache.kafka.streams.state.internals.WrappedStateStore;

final class Internals {
    /** The offset that a store reports when it must be restored from the beginning. */
    static final Long FROM_THE_BEGINNING = OffsetCheckpoint.OFFSET_UNKNOWN;

    private Internals() {
    }

    /** A callback that gets whole records of the changelog, with headers and times. */
    static StateRestoreCallback restoring(
            Consumer<Collection<ConsumerRecord<byte[], byte[]>>> take) {
        return new RecordBatchingStateRestoreCallback() {
            @Override
            public void restoreBatch(Collection<ConsumerRecord<byte[], byte[]>> records) {
                take.accept(records);
            }
        };
    }

    /** Whether one of the stores around a window store, from the outermost on, is a cache. */
    static boolean hasWindowCache(StateStore outermost) {
        StateStore store = outermost;
        while (store instanceof WrappedStateStore<?, ?, ?> wrapper) {
            if (store instanceof CachingWindowStore) {
                return true;
            }
            store = wrapper.wrapped();
        }
        return false;
    }

    /** Whether a store belongs to a global table, of which every instance has a full copy. */
    static boolean isGlobal(StateStoreContext context) {
        return context instanceof GlobalProcessorContextImpl;
    }

    /** Whether changelog records carry positions. */
    static boolean recordsCarryPositions(StateStoreContext context) {
        return InternalConfig.getBoolean(context.appConfigs(),
                InternalConfig.IQ_CONSISTENCY_OFFSET_VECTOR_ENABLED, false);
    }

    /** Reads the position that a changelog record carries. */
    static void takePosition(ConsumerRecord<byte[], byte[]> record, Position position) {
        ChangelogRecordDeserializationHelper.applyChecksAndUpdatePosition(record, true, position);
    }

    /** Adds the record that is being processed to the position. */
    static void advance(Position position, StateStoreContext context) {
        StoreQueryUtils.updatePosition(position, context);
    }

    /** The offset of the last record of a changelog that the brokers have, or null. */
    static Long writtenOffset(StateStoreContext context, TopicPartition partition) {
        return context instanceof RecordCollector.Supplier supplier
                && supplier.recordCollector() != null
                ? supplier.recordCollector().offsets().get(partition) : null;
    }

    static byte[] bytesOf(Position position) {
        return PositionSerde.serialize(position).array();
    }

    static Position positionOf(byte[] bytes) {
        return PositionSerde.deserialize(ByteBuffer.wrap(bytes));
    }

    /** Answers the queries that all stores of a kind support, by calling the store's methods. */
    static <R> QueryResult<R> answer(Query<R> query, PositionBound bound, QueryConfig config,
            StateStore store, Position position, StateStoreContext context) {
        return StoreQueryUtils.handleBasicQueries(query, bound, config, store, position, context);
    }

    static boolean isPermitted(Position position, PositionBound bound, int partition) {
        return StoreQueryUtils.isPermitted(position, bound, partition);
    }

    static Window timeWindow(long start, long size) {
        long end = start + size;
        return new TimeWindow(start, end < 0 ? Long.MAX_VALUE : end);
    }

    static Window sessionWindow(long start, long end) {
        return new SessionWindow(start, end);
    }

    /** The task's sensor for records that arrived too late. */
    static Sensor droppedRecords(StateStoreContext context) {
        return TaskMetrics.droppedRecordsSensor(Thread.currentThread().getName(),
                context.taskId().toString(), ProcessorContextUtils.metricsImpl(context));
    }

    /** Adds gauges to the metrics of a store. Kafka's wrapper of the store removes them. */
    static void addGauges(StateStoreContext context, String scope, String store,
            Map<String, String> descriptions, Map<String, DoubleSupplier> gauges) {
        StreamsMetricsImpl metrics = ProcessorContextUtils.metricsImpl(context);
        Set<String> names = descriptions.keySet();
        for (String name : names) {
            DoubleSupplier gauge = gauges.get(name);
            metrics.addStoreLevelMutableMetric(context.taskId().toString(), scope, store, name,
                    descriptions.get(name), Sensor.RecordingLevel.INFO,
                    (config, now) -> gauge.getAsDouble());
        }
    }
}
