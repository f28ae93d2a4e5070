// Runs upstream's suite of window stores over Runstone. It is in upstream's package, because the
// suites and their helpers are not public.

package org.apache.kafka.streams.state.internals;

import static java.time.Duration.ofMillis;

import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;
import org.runstone.kafka.streams.RunstoneStores;

class RunstoneWindowStoreTest extends AbstractWindowBytesStoreTest {
    /**
     * Counts stores: some tests open a second store. Upstream's second store shares the directory
     * of the first.
     */
    private int built;

    @Override
    <K, V> WindowStore<K, V> buildWindowStore(long retention, long size, boolean retainDuplicates,
            Serde<K> keySerde, Serde<V> valueSerde) {
        return Stores.windowStoreBuilder(
                RunstoneStores.windowStore(
                        "windows-" + built++, ofMillis(retention), ofMillis(size),
                        retainDuplicates),
                keySerde, valueSerde).build();
    }
}
