// The measurements of a store, under the names of the corresponding RocksDB metrics.

package org.runstone.kafka.streams;

import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.DoubleSupplier;
import java.util.function.LongSupplier;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.runstone.RunstoneException;
import org.runstone.Store;

/** Gauges of one store. Those that have no counterpart in RocksDB or in Runstone are left out. */
final class Gauges {
    /** Kafka's name, Runstone's name, and the description. */
    private static final String[][] NAMES = {
        {"cur-size-all-mem-tables", "runstone_memtable_bytes",
            "Bytes of memtables and log segments in memory"},
        {"block-cache-capacity", "runstone_memory_budget_bytes",
            "Bytes that memtables, log, cache, index and filters may take together"},
        {"block-cache-usage", "runstone_cache_bytes", "Bytes in the block cache"},
        {"estimate-table-readers-mem", "runstone_pinned_bytes",
            "Bytes of index and filters in memory"},
        {"live-sst-files-size", "runstone_table_bytes", "Bytes of live tables"},
        {"total-sst-files-size", "runstone_table_file_bytes",
            "Bytes of all tables, also of those that left the tree and have readers"},
        {"estimate-pending-compaction-bytes", "runstone_compaction_debt_bytes",
            "Bytes that are still to be compacted"},
    };
    /** One reading serves all gauges for this long. */
    private static final long FRESH_NANOS = 1_000_000_000L;

    private final Store store;
    private Map<String, Double> reading = Map.of();
    private long readAt;

    private Gauges(Store store) {
        this.store = store;
    }

    static void add(StateStoreContext context, String scope, String name, Store store,
            LongSupplier estimate) {
        Gauges gauges = new Gauges(store);
        Map<String, String> descriptions = new LinkedHashMap<>();
        Map<String, DoubleSupplier> readers = new HashMap<>();
        for (String[] line : NAMES) {
            descriptions.put(line[0], line[2]);
            readers.put(line[0], () -> gauges.read(line[1]));
        }
        descriptions.put("estimate-num-keys", "About how many entries the store has");
        readers.put("estimate-num-keys", () -> open(estimate));
        Internals.addGauges(context, scope, name, descriptions, readers);
    }

    private static double open(LongSupplier estimate) {
        try {
            return estimate.getAsLong();
        } catch (RuntimeException closed) {
            return 0;
        }
    }

    private synchronized double read(String name) {
        long now = System.nanoTime();
        if (reading.isEmpty() || now - readAt > FRESH_NANOS) {
            try {
                reading = store.metrics();
            } catch (RunstoneException.Closed closed) {
                return 0;
            }
            readAt = now;
        }
        return reading.getOrDefault(name, 0.0);
    }
}
