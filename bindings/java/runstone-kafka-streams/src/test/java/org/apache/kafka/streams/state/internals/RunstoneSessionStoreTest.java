// Upstream's suite of session stores, over Runstone. In upstream's package, because the suites and
// what they use are not public.

package org.apache.kafka.streams.state.internals;

import static java.time.Duration.ofMillis;

import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.runstone.kafka.streams.RunstoneStores;

class RunstoneSessionStoreTest extends AbstractSessionBytesStoreTest {
    @Override
    <K, V> SessionStore<K, V> buildSessionStore(
            long retention, Serde<K> keySerde, Serde<V> valueSerde) {
        return Stores.sessionStoreBuilder(
                RunstoneStores.sessionStore("sessions", ofMillis(retention)),
                keySerde, valueSerde).build();
    }

    /** The suite asks where stores differ; ours is as RocksDB's. */
    @Override
    StoreType storeType() {
        return StoreType.RocksDBSessionStore;
    }
}
