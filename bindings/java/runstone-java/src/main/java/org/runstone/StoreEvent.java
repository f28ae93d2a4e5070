// What happened in a store, as its listener is told.

package org.runstone;

import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * What happened in a store.
 *
 * @param kind what programs act on: {@code flushed}, {@code compacted}, {@code loaded},
 *     {@code values_collected}, {@code pressure}, {@code recovered}, and as warnings
 *     {@code log_end_lost} (a crash left records of the log that are not used),
 *     {@code background_error}, {@code merge_failed}, {@code budget_above_limit} and
 *     {@code compaction_filter_missing}; more may come
 * @param isWarning whether somebody should look at it
 * @param message what happened, for people
 * @param fields more of it: each a {@link Long}, a {@link String} or a list of these; durations are
 *     microseconds
 */
public record StoreEvent(
        String kind, boolean isWarning, String message, Map<String, Object> fields) {

    /** An event of the native side, which gives fields in a row. */
    static StoreEvent of(String kind, boolean isWarning, String message, String[] row) {
        Map<String, Object> fields = new LinkedHashMap<>();
        int at = 0;
        while (at < row.length) {
            String name = row[at];
            String type = row[at + 1];
            String value = row[at + 2];
            at += 3;
            switch (type) {
                case "n" -> fields.put(name, Long.parseUnsignedLong(value));
                case "l" -> {
                    int count = Integer.parseInt(value);
                    fields.put(name, List.of(row).subList(at, at + count));
                    at += count;
                }
                default -> fields.put(name, value);
            }
        }
        return new StoreEvent(kind, isWarning, message, Collections.unmodifiableMap(fields));
    }
}
