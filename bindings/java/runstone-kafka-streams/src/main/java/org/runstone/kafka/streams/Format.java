// The contents of a store's values, which determine the interfaces that Kafka Streams looks for.

package org.runstone.kafka.streams;

import java.util.Arrays;
import org.apache.kafka.streams.DslStoreFormat;

enum Format {
    PLAIN,
    TIMESTAMPED,
    HEADERS;

    static Format of(DslStoreFormat format) {
        return format == null ? TIMESTAMPED : switch (format) {
            case PLAIN -> PLAIN;
            case TIMESTAMPED -> TIMESTAMPED;
            case HEADERS -> HEADERS;
        };
    }

    /**
     * The prefix that turns a value of this format into one of a later format, as in Kafka's own
     * stores: no headers, and no time (-1). Null if there is no such prefix.
     *
     * @param hasTimes whether later formats have a time; values of sessions have none
     */
    byte[] before(Format later, boolean hasTimes) {
        if (later.compareTo(this) <= 0) {
            return null;
        }
        int headers = later == HEADERS ? 1 : 0;
        int time = this == PLAIN && hasTimes ? 8 : 0;
        byte[] before = new byte[headers + time];
        Arrays.fill(before, headers, before.length, (byte) 0xff);
        return before;
    }
}
