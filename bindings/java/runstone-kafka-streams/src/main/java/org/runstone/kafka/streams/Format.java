// What is in the values of a store, which decides the interfaces that Kafka Streams looks for.

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
     * What goes before a value of this format to make it one of a later format, as Kafka's own
     * stores have it: no headers, and no time (-1); null if there is no such way.
     *
     * @param hasTimes whether later formats have a time; sessions have none in their values
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
