// Puts all stores of an application into Runstone with one line of its configuration.

package org.runstone.kafka.streams;

import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.state.DslKeyValueParams;
import org.apache.kafka.streams.state.DslSessionParams;
import org.apache.kafka.streams.state.DslStoreSuppliers;
import org.apache.kafka.streams.state.DslWindowParams;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.SessionBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowBytesStoreSupplier;

/**
 * Makes the DSL keep its stores in Runstone:
 *
 * <pre>
 * dsl.store.suppliers.class = org.runstone.kafka.streams.RunstoneDslStoreSuppliers
 * </pre>
 *
 * <p>{@code runstone.resources} contains, as TOML, the resources that all stores of an instance
 * share, such as {@code memory_budget_bytes = "512M"}. {@code runstone.options} contains the
 * options of each store, such as {@code durability = "sync"}. {@code
 * runstone.max.uncommitted.bytes} limits the bytes that wait in memory for a commit of Kafka's
 * transaction.
 *
 * <p>Results are those of RocksDB's stores, with one exception: on window close ({@link
 * EmitStrategy#onWindowClose}) there may be more. Kafka reads closed windows from a store after a
 * later event, and at most once a second. Stream time may have advanced by then. RocksDB's window
 * store hides windows whose start is then older than the retention, so their results are never
 * emitted. Runstone's does the same, except below a cache, which tumbling and hopping windows have
 * by default: there it returns every window that it contains. RocksDB's session store has dropped
 * whole segments by then. Runstone's returns every session, and drops segments at the next commit.
 * Stores in memory hide windows and sessions that are just closing. They emit no session, and no
 * window if the grace period is zero or a multiple of the window.
 */
public final class RunstoneDslStoreSuppliers implements DslStoreSuppliers {
    /** Used by Kafka Streams, which creates an instance by the name of the class. */
    public RunstoneDslStoreSuppliers() {
        // Nothing to set.
    }

    @Override
    public KeyValueBytesStoreSupplier keyValueStore(DslKeyValueParams params) {
        return KeyValueSupplier.of(params.name(), Format.of(params.dslStoreFormat()));
    }

    @Override
    public WindowBytesStoreSupplier windowStore(DslWindowParams params) {
        boolean emitsOnClose =
                params.emitStrategy().type() == EmitStrategy.StrategyType.ON_WINDOW_CLOSE;
        return WindowSupplier.of(params.name(), params.retentionPeriod(), params.windowSize(),
                        params.retainDuplicates(), Format.of(params.dslStoreFormat()))
                .emittingOnClose(emitsOnClose);
    }

    @Override
    public SessionBytesStoreSupplier sessionStore(DslSessionParams params) {
        return SessionSupplier.of(
                params.name(), params.retentionPeriod(), Format.of(params.storeFormat()));
    }
}
