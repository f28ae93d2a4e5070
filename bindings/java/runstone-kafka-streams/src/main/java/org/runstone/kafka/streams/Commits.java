// Detects when Kafka has committed. With exactly-once processing, Kafka Streams 4.3 does not notify
// a running store of commits, so this class reads the metrics of the thread.

package org.runstone.kafka.streams;

import java.util.Map;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.streams.processor.StateStoreContext;

/**
 * Watches the number of commits of the stream thread that writes to a store.
 *
 * <p>A commit covers all tasks of a thread, because they share one transaction. The thread counts
 * the commit after it has succeeded, and before it continues with the next record. So if the count
 * has grown when a write begins, all earlier writes are committed. A missed commit does no harm:
 * the writes wait for the next commit.
 */
final class Commits {
    private static final String NAME = "commit-total";
    private static final String GROUP = "stream-thread-metrics";

    private final StateStoreContext context;
    private Thread thread;
    private Metric total;
    private double seen;

    Commits(StateStoreContext context) {
        this.context = context;
    }

    /** Whether the thread has committed since the last call. */
    boolean hasCommitted() {
        if (thread != Thread.currentThread()) {
            thread = Thread.currentThread();
            total = find(thread.getName());
            seen = count();
            return false;
        }
        double now = count();
        boolean hasGrown = now > seen;
        seen = now;
        return hasGrown;
    }

    private double count() {
        return total == null ? 0 : ((Number) total.metricValue()).doubleValue();
    }

    /** The thread's metric, which exists only in a running application. */
    private Metric find(String threadName) {
        for (Map.Entry<MetricName, ? extends Metric> one : context.metrics().metrics().entrySet()) {
            MetricName name = one.getKey();
            if (name.name().equals(NAME) && name.group().equals(GROUP)
                    && threadName.equals(name.tags().get("thread-id"))) {
                return one.getValue();
            }
        }
        return null;
    }
}
