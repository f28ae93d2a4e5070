// When Kafka has committed. Exactly once, Kafka Streams 4.3 tells a running store nothing about
// commits, so it is seen from what the thread measures.

package org.runstone.kafka.streams;

import java.util.Map;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.streams.processor.StateStoreContext;

/**
 * Watches the number of commits of the stream thread that writes to a store.
 *
 * <p>A commit takes all tasks of a thread, since they share one transaction; the thread counts it
 * when it has succeeded, and before it goes on to the next record. So at the first write for which
 * the number has grown, all earlier writes are committed. A commit that is missed is no harm: the
 * writes wait for the next one.
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

    /** The thread's metric; there is none outside of a running application. */
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
