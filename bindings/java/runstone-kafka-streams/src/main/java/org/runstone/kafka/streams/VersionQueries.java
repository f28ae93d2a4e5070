// Interactive queries of versioned stores. Kafka's dispatch supports only its own store.

package org.runstone.kafka.streams;

import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.query.FailureReason;
import org.apache.kafka.streams.query.MultiVersionedKeyQuery;
import org.apache.kafka.streams.query.Position;
import org.apache.kafka.streams.query.PositionBound;
import org.apache.kafka.streams.query.Query;
import org.apache.kafka.streams.query.QueryConfig;
import org.apache.kafka.streams.query.QueryResult;
import org.apache.kafka.streams.query.ResultOrder;
import org.apache.kafka.streams.query.VersionedKeyQuery;
import org.apache.kafka.streams.state.VersionedRecord;
import org.apache.kafka.streams.state.VersionedRecordIterator;

final class VersionQueries {
    private VersionQueries() {
    }

    static <R> QueryResult<R> answer(Query<R> query, PositionBound bound, QueryConfig config,
            VersionedStore store, Position position, StateStoreContext context) {
        long began = System.nanoTime();
        QueryResult<R> result;
        synchronized (position) {
            int partition = context.taskId().partition();
            if (!Internals.isPermitted(position, bound, partition)) {
                result = QueryResult.notUpToBound(position, bound, partition);
            } else {
                result = run(query, store);
            }
            result.setPosition(position.copy());
        }
        if (config.isCollectExecutionInfo()) {
            result.addExecutionInfo("Handled in " + store.getClass() + " in "
                    + (System.nanoTime() - began) + "ns");
        }
        return result;
    }

    @SuppressWarnings("unchecked")
    private static <R> QueryResult<R> run(Query<R> query, VersionedStore store) {
        try {
            if (query instanceof VersionedKeyQuery<?, ?> one) {
                Bytes key = (Bytes) one.key();
                VersionedRecord<byte[]> record = one.asOfTimestamp().isPresent()
                        ? store.record(key, one.asOfTimestamp().get().toEpochMilli())
                        : store.record(key);
                return (QueryResult<R>) QueryResult.forResult(record);
            }
            if (query instanceof MultiVersionedKeyQuery<?, ?> many) {
                long from = many.fromTime().map(time -> time.toEpochMilli()).orElse(0L);
                long to = many.toTime().map(time -> time.toEpochMilli()).orElse(Long.MAX_VALUE);
                List<VersionedRecord<byte[]>> records =
                        new ArrayList<>(store.records((Bytes) many.key(), from, to));
                if (many.resultOrder() != ResultOrder.ASCENDING) {
                    Collections.reverse(records);
                }
                return (QueryResult<R>) QueryResult.forResult(new Records(records.iterator()));
            }
            return QueryResult.forUnknownQueryType(query, store);
        } catch (RuntimeException error) {
            return QueryResult.forFailure(FailureReason.STORE_EXCEPTION,
                    store.name() + " failed to answer " + query + ": " + error);
        }
    }

    private record Records(Iterator<VersionedRecord<byte[]>> records)
            implements VersionedRecordIterator<byte[]> {
        @Override
        public boolean hasNext() {
            return records.hasNext();
        }

        @Override
        public VersionedRecord<byte[]> next() {
            return records.next();
        }

        @Override
        public void close() {
            // The results are in memory.
        }
    }
}
