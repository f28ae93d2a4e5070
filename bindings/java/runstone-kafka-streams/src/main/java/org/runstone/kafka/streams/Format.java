// What is in the values of a store, which decides the interfaces that Kafka Streams looks for.

package org.runstone.kafka.streams;

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
}
