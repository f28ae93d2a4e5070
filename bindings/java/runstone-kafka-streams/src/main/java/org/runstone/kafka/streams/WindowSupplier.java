// Supplies window stores.

package org.runstone.kafka.streams;

import java.time.Duration;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.state.HeadersBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowStore;

class WindowSupplier implements WindowBytesStoreSupplier {
    private final String name;
    private final long retention;
    private final long size;
    private final boolean retainDuplicates;
    private final Format format;
    private boolean emitsOnClose;

    private WindowSupplier(
            String name, long retention, long size, boolean retainDuplicates, Format format) {
        this.name = RunstoneStores.checkName(name);
        this.retention = retention;
        this.size = size;
        this.retainDuplicates = retainDuplicates;
        this.format = format;
    }

    static WindowSupplier of(String name, Duration retention, Duration size,
            boolean retainDuplicates, Format format) {
        long retentionMs = RunstoneStores.checkTime(retention, "retentionPeriod");
        long sizeMs = RunstoneStores.checkTime(size, "windowSize");
        if (sizeMs > retentionMs) {
            throw new IllegalArgumentException("The retention period of the window store " + name
                    + " must be no smaller than its window size. Got size=[" + sizeMs
                    + "], retention=[" + retentionMs + "]");
        }
        return format == Format.HEADERS
                ? new WithHeaders(name, retentionMs, sizeMs, retainDuplicates)
                : new WindowSupplier(name, retentionMs, sizeMs, retainDuplicates, format);
    }

    /** The same supplier for an aggregation that emits the result of a window when it closes. */
    WindowSupplier emittingOnClose(boolean emits) {
        emitsOnClose = emits;
        return this;
    }

    boolean emitsOnClose() {
        return emitsOnClose;
    }

    /** Kafka Streams uses headers if the supplier implements this interface. */
    private static final class WithHeaders extends WindowSupplier
            implements HeadersBytesStoreSupplier {
        WithHeaders(String name, long retention, long size, boolean retainDuplicates) {
            super(name, retention, size, retainDuplicates, Format.HEADERS);
        }
    }

    @Override
    public String name() {
        return name;
    }

    @Override
    public WindowStore<Bytes, byte[]> get() {
        return switch (format) {
            case PLAIN -> new WindowBytesStore(this);
            case TIMESTAMPED -> new WindowBytesStore.Timestamped(this);
            case HEADERS -> new WindowBytesStore.WithHeaders(this);
        };
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
    public long windowSize() {
        return size;
    }

    @Override
    public boolean retainDuplicates() {
        return retainDuplicates;
    }

    @Override
    public long retentionPeriod() {
        return retention;
    }
}
