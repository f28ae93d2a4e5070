// Runs upstream's suite of session stores over Runstone. It is in upstream's package, because the
// suites and their helpers are not public.

package org.apache.kafka.streams.state.internals;

import static java.time.Duration.ofMillis;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.test.MockRecordCollector;
import org.junit.jupiter.api.Test;
import org.runstone.kafka.streams.RunstoneStores;

class RunstoneSessionStoreTest extends AbstractSessionBytesStoreTest {
    /**
     * Counts stores: some tests open a second store. Upstream's second store shares the directory
     * of the first.
     */
    private int built;

    @Override
    <K, V> SessionStore<K, V> buildSessionStore(
            long retention, Serde<K> keySerde, Serde<V> valueSerde) {
        return Stores.sessionStoreBuilder(
                RunstoneStores.sessionStore("sessions-" + built++, ofMillis(retention)),
                keySerde, valueSerde).build();
    }

    /**
     * The suite uses this type where stores differ. Ours finds sessions by time, as this type does.
     */
    @Override
    StoreType storeType() {
        return StoreType.RocksDBTimeOrderedSessionStoreWithIndex;
    }

    /**
     * Upstream's test continues with a store that it has closed: its segments open again. Our store
     * refuses that, so this test restores into a new store.
     */
    @Override
    @Test
    public void shouldRestore() {
        List<KeyValue<Windowed<String>, Long>> expected = new ArrayList<>();
        for (long time : new long[] {0, 10, 100, 1000}) {
            expected.add(KeyValue.pair(
                    new Windowed<>("a", new SessionWindow(time, time)), time + 1));
        }
        expected.forEach(session -> sessionStore.put(session.key, session.value));
        sessionStore.close();
        assertThrows(InvalidStateStoreException.class, () -> sessionStore.fetch("a"));

        List<KeyValue<byte[], byte[]>> changelog = new ArrayList<>();
        MockRecordCollector collector = (MockRecordCollector) context.recordCollector();
        collector.collected().forEach(record -> changelog.add(
                KeyValue.pair(((Bytes) record.key()).get(), (byte[]) record.value())));
        sessionStore = buildSessionStore(RETENTION_PERIOD, Serdes.String(), Serdes.Long());
        sessionStore.init(context, sessionStore);
        context.restore(sessionStore.name(), changelog);
        try (KeyValueIterator<Windowed<String>, Long> sessions = sessionStore.fetch("a")) {
            List<KeyValue<Windowed<String>, Long>> found = new ArrayList<>();
            sessions.forEachRemaining(found::add);
            assertEquals(expected, found);
        }
    }
}
