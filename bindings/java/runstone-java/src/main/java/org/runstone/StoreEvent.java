// An event of a store, as its listener receives it.

package org.runstone;

import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * An event of a store.
 *
 * @param kind the kind, for programs: {@code flushed}, {@code compacted}, {@code loaded}, {@code
 *     values_collected}, {@code pressure}, {@code recovered}; and, as warnings, {@code
 *     log_end_lost} (a crash left records of the log that are not used), {@code background_error},
 *     {@code merge_failed}, {@code budget_above_limit}, {@code compaction_filter_missing}, {@code
 *     kept_log_given_up} (on a full disk) and {@code damage_found} (by a scrub). Later releases may
 *     add kinds
 * @param isWarning whether the event needs attention
 * @param message what happened, for people
 * @param fields details: each is a {@link Long}, a {@link String} or a list of these; durations
 *     are in microseconds
 */
public record StoreEvent(
        String kind, boolean isWarning, String message, Map<String, Object> fields) {

    /** An event from the native side, which passes the fields in a flat list. */
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
