// Supplies key-value stores.

package org.runstone.kafka.streams;

import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.state.HeadersBytesStoreSupplier;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.KeyValueStore;

class KeyValueSupplier implements KeyValueBytesStoreSupplier {
    private final String name;
    private final Format format;

    private KeyValueSupplier(String name, Format format) {
        this.name = RunstoneStores.checkName(name);
        this.format = format;
    }

    static KeyValueSupplier of(String name, Format format) {
        return format == Format.HEADERS
                ? new WithHeaders(name) : new KeyValueSupplier(name, format);
    }

    /** Kafka Streams uses headers if the supplier implements this interface. */
    private static final class WithHeaders extends KeyValueSupplier
            implements HeadersBytesStoreSupplier {
        WithHeaders(String name) {
            super(name, Format.HEADERS);
        }
    }

    @Override
    public String name() {
        return name;
    }

    @Override
    public KeyValueStore<Bytes, byte[]> get() {
        return switch (format) {
            case PLAIN -> new KeyValueBytesStore(name, metricsScope());
            case TIMESTAMPED -> new KeyValueBytesStore.Timestamped(name, metricsScope());
            case HEADERS -> new KeyValueBytesStore.WithHeaders(name, metricsScope());
        };
    }

    @Override
    public String metricsScope() {
        return RunstoneStores.SCOPE;
    }
}
