// Supplies versioned key-value stores.

package org.runstone.kafka.streams;

import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.VersionedBytesStoreSupplier;

final class VersionedSupplier implements VersionedBytesStoreSupplier {
    private final String name;
    private final long historyRetention;

    VersionedSupplier(String name, long historyRetention) {
        this.name = RunstoneStores.checkName(name);
        this.historyRetention = historyRetention;
    }

    @Override
    public String name() {
        return name;
    }

    @Override
    public KeyValueStore<Bytes, byte[]> get() {
        return new VersionedStore(name, metricsScope(), historyRetention);
    }

    @Override
    public String metricsScope() {
        return RunstoneStores.SCOPE;
    }

    @Override
    public long historyRetentionMs() {
        return historyRetention;
    }
}
