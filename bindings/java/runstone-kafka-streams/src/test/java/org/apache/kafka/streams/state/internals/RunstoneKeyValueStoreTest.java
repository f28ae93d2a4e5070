// Runs upstream's suite of key-value stores over Runstone. It is in upstream's package, because the
// suites and their helpers are not public.

package org.apache.kafka.streams.state.internals;

import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;
import org.runstone.kafka.streams.RunstoneStores;

class RunstoneKeyValueStoreTest extends AbstractKeyValueStoreTest {
    @Override
    @SuppressWarnings("unchecked")
    protected <K, V> KeyValueStore<K, V> createKeyValueStore(StateStoreContext context) {
        StoreBuilder<KeyValueStore<K, V>> builder = Stores.keyValueStoreBuilder(
                RunstoneStores.keyValueStore("my-store"),
                (Serde<K>) context.keySerde(), (Serde<V>) context.valueSerde());
        KeyValueStore<K, V> store = builder.build();
        store.init(context, store);
        return store;
    }
}
