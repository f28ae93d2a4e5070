// What the process that writes to a store tells those who follow it.

package org.runstone;

import java.time.Duration;
import java.util.Map;

/**
 * What the process that writes to a store told last of what it measures.
 *
 * @param process the id of that process
 * @param age how long ago it told
 * @param isCurrent whether that is of the last seconds; if not, the process ended, hangs, or does
 *     not tell
 * @param metrics what {@link Store#metrics} gives in that process
 */
public record LiveState(
        long process, Duration age, boolean isCurrent, Map<String, Double> metrics) {
    static LiveState of(Answer answer) {
        return new LiveState(answer.number(), Duration.ofMillis(answer.number()),
                answer.number() == 1, Store.byName(answer.text()));
    }
}
