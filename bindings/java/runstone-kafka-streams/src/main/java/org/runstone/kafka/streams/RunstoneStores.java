// Suppliers of single stores, like those for RocksDB in `Stores` of Kafka Streams.

package org.runstone.kafka.streams;

import java.time.Duration;
import java.util.Objects;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.SessionBytesStoreSupplier;
import org.apache.kafka.streams.state.VersionedBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowBytesStoreSupplier;

/**
 * Suppliers of stores that keep their data in Runstone, for {@code Materialized.as} and for the
 * builders of {@link org.apache.kafka.streams.state.Stores}.
 */
public final class RunstoneStores {
    /** Names the stores in metrics. */
    static final String SCOPE = "runstone";
    private static final long SHORTEST_SEGMENT_MS = 60_000;

    private RunstoneStores() {
    }

    /** A key-value store. */
    public static KeyValueBytesStoreSupplier keyValueStore(String name) {
        return KeyValueSupplier.of(name, Format.PLAIN);
    }

    /** A key-value store that keeps the time of each record. */
    public static KeyValueBytesStoreSupplier timestampedKeyValueStore(String name) {
        return KeyValueSupplier.of(name, Format.TIMESTAMPED);
    }

    /** A key-value store that keeps the time and the headers of each record. */
    public static KeyValueBytesStoreSupplier timestampedKeyValueStoreWithHeaders(String name) {
        return KeyValueSupplier.of(name, Format.HEADERS);
    }

    /**
     * A window store.
     *
     * @param retention how far behind the stream time windows are kept
     * @param size the size of a window
     * @param retainDuplicates whether several records with the same key and time are kept
     */
    public static WindowBytesStoreSupplier windowStore(
            String name, Duration retention, Duration size, boolean retainDuplicates) {
        return WindowSupplier.of(name, retention, size, retainDuplicates, Format.PLAIN);
    }

    /** A window store that keeps the time of each record; see {@link #windowStore}. */
    public static WindowBytesStoreSupplier timestampedWindowStore(
            String name, Duration retention, Duration size, boolean retainDuplicates) {
        return WindowSupplier.of(name, retention, size, retainDuplicates, Format.TIMESTAMPED);
    }

    /**
     * A window store that keeps the time and the headers of each record; see {@link #windowStore}.
     */
    public static WindowBytesStoreSupplier timestampedWindowStoreWithHeaders(
            String name, Duration retention, Duration size, boolean retainDuplicates) {
        return WindowSupplier.of(name, retention, size, retainDuplicates, Format.HEADERS);
    }

    /** A session store; {@code retention} is how far behind the stream time sessions are kept. */
    public static SessionBytesStoreSupplier sessionStore(String name, Duration retention) {
        return SessionSupplier.of(name, retention, Format.PLAIN);
    }

    /** A session store that keeps headers; see {@link #sessionStore}. */
    public static SessionBytesStoreSupplier sessionStoreWithHeaders(
            String name, Duration retention) {
        return SessionSupplier.of(name, retention, Format.HEADERS);
    }

    /**
     * A versioned key-value store.
     *
     * @param historyRetention how far behind the stream time versions are kept and accepted
     */
    public static VersionedBytesStoreSupplier versionedKeyValueStore(
            String name, Duration historyRetention) {
        return new VersionedSupplier(name, checkTime(historyRetention, "historyRetention"));
    }

    static String checkName(String name) {
        return Objects.requireNonNull(name, "name cannot be null");
    }

    static long checkTime(Duration time, String what) {
        long ms = Objects.requireNonNull(time, what + " cannot be null").toMillis();
        if (ms < 0) {
            throw new IllegalArgumentException(what + " cannot be negative");
        }
        return ms;
    }

    /**
     * The same duration as in Kafka Streams, because the settings of the changelog topic depend on
     * it.
     */
    static long segmentInterval(long retention) {
        return Math.max(retention / 2, SHORTEST_SEGMENT_MS);
    }
}
