// The report of the process that writes to a store.

package org.runstone;

import java.time.Duration;
import java.util.Map;

/**
 * The last report of the process that writes to a store about its measurements.
 *
 * @param process the id of that process
 * @param age how long ago it reported
 * @param isCurrent whether the report is from the last seconds; if not, the process ended, hangs,
 *     or does not report
 * @param metrics the result of {@link Store#metrics} in that process
 */
public record LiveState(
        long process, Duration age, boolean isCurrent, Map<String, Double> metrics) {
    static LiveState of(Answer answer) {
        return new LiveState(answer.number(), Duration.ofMillis(answer.number()),
                answer.number() == 1, Store.byName(answer.text()));
    }
}
