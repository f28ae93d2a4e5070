// Supplies session stores.

package org.runstone.kafka.streams;

import java.time.Duration;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.state.HeadersBytesStoreSupplier;
import org.apache.kafka.streams.state.SessionBytesStoreSupplier;
import org.apache.kafka.streams.state.SessionStore;

class SessionSupplier implements SessionBytesStoreSupplier {
    private final String name;
    private final long retention;
    private final boolean hasHeaders;

    private SessionSupplier(String name, long retention, boolean hasHeaders) {
        this.name = RunstoneStores.checkName(name);
        this.retention = retention;
        this.hasHeaders = hasHeaders;
    }

    static SessionSupplier of(String name, Duration retention, Format format) {
        long retentionMs = RunstoneStores.checkTime(retention, "retentionPeriod");
        return format == Format.HEADERS ? new WithHeaders(name, retentionMs)
                : new SessionSupplier(name, retentionMs, false);
    }

    /** Kafka Streams uses headers if the supplier implements this interface. */
    private static final class WithHeaders extends SessionSupplier
            implements HeadersBytesStoreSupplier {
        WithHeaders(String name, long retention) {
            super(name, retention, true);
        }
    }

    @Override
    public String name() {
        return name;
    }

    @Override
    public SessionStore<Bytes, byte[]> get() {
        return hasHeaders
                ? new SessionBytesStore.WithHeaders(this) : new SessionBytesStore(this);
    }

    @Override
    public String metricsScope() {
        return RunstoneStores.SCOPE;
    }

    @Override
    public long segmentIntervalMs() {
        return RunstoneStores.segmentInterval(retention);
    }

    @Override
    public long retentionPeriod() {
        return retention;
    }
}
