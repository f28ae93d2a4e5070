// Tests which records window and session stores show and keep at the edge of the retention,
// compared with RocksDB's stores.

package org.runstone.kafka.streams;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import java.util.stream.Stream;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.DslStoreFormat;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.internals.ProcessorRecordContext;
import org.apache.kafka.streams.processor.internals.metrics.ThreadMetrics;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;
import org.apache.kafka.streams.state.DslSessionParams;
import org.apache.kafka.streams.state.DslStoreSuppliers;
import org.apache.kafka.streams.state.DslWindowParams;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.test.InternalMockProcessorContext;
import org.apache.kafka.test.StreamsTestUtils;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

class RetentionTest {
    private static final long RETENTION_MS = 90_000;
    private static final Duration RETENTION = Duration.ofMillis(RETENTION_MS);
    private static final Bytes KEY = Bytes.wrap("k".getBytes(UTF_8));

    @TempDir
    Path directory;

    private InternalMockProcessorContext<Object, Object> context;

    static Stream<DslStoreSuppliers> suppliers() {
        return Stream.of(BuiltInDslStoreSuppliers.ROCKS_DB, new RunstoneDslStoreSuppliers());
    }

    private <S extends StateStore> S open(S store, String guarantee) {
        var config = StreamsTestUtils.getStreamsConfig();
        config.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, guarantee);
        context = new InternalMockProcessorContext<>(directory.toFile(), Serdes.Bytes(),
                Serdes.ByteArray(), new StreamsConfig(config));
        context.setRecordContext(new ProcessorRecordContext(0, 7, 0, "in", new RecordHeaders()));
        store.init(context, store);
        return store;
    }

    private WindowStore<Bytes, byte[]> windows(
            DslStoreSuppliers suppliers, String name, EmitStrategy emits) {
        return open(suppliers.windowStore(new DslWindowParams(name, RETENTION, RETENTION, false,
                emits, false, DslStoreFormat.TIMESTAMPED)).get(), StreamsConfig.AT_LEAST_ONCE);
    }

    private SessionStore<Bytes, byte[]> sessions(
            DslStoreSuppliers suppliers, String name, EmitStrategy emits) {
        return open(suppliers.sessionStore(new DslSessionParams(
                name, RETENTION, emits, DslStoreFormat.PLAIN)).get(), StreamsConfig.AT_LEAST_ONCE);
    }

    private static byte[] value(String text) {
        return text.getBytes(UTF_8);
    }

    private static Windowed<Bytes> session(long time) {
        return new Windowed<>(KEY, new SessionWindow(time, time));
    }

    private static <K> List<String> drain(
            KeyValueIterator<K, byte[]> entries, Function<K, Long> time) {
        List<String> seen = new ArrayList<>();
        try (entries) {
            while (entries.hasNext()) {
                KeyValue<K, byte[]> entry = entries.next();
                seen.add(time.apply(entry.key) + "=" + new String(entry.value, UTF_8));
            }
        }
        return seen;
    }

    private static List<String> starts(KeyValueIterator<Windowed<Bytes>, byte[]> entries) {
        return drain(entries, key -> key.window().start());
    }

    /**
     * A sliding window is updated during an iteration over the windows of its key. Meanwhile a full
     * cache moves other windows into the store. Their old values were once shown, and counts were
     * lost.
     */
    @ParameterizedTest
    @MethodSource("suppliers")
    void aWalkShowsWhatIsWrittenToLaterSegments(DslStoreSuppliers suppliers) {
        WindowStore<Bytes, byte[]> store =
                windows(suppliers, "windows", EmitStrategy.onWindowUpdate());
        store.put(KEY, value("1"), 10_000);
        store.put(KEY, value("2"), 70_000);
        try (var forward = store.fetch(KEY, 0, 80_000);
                var backward = store.backwardFetch(KEY, 0, 80_000)) {
            assertEquals(10_000, forward.next().key);
            store.put(KEY, value("3"), 70_000);
            assertEquals("3", new String(forward.next().value, UTF_8));
            assertEquals("3", new String(backward.next().value, UTF_8));
            store.put(KEY, value("4"), 10_000);
            assertEquals("4", new String(backward.next().value, UTF_8));
        }
        store.close();
        SessionStore<Bytes, byte[]> sessions =
                sessions(suppliers, "sessions", EmitStrategy.onWindowUpdate());
        sessions.put(session(10_000), value("1"));
        sessions.put(session(70_000), value("2"));
        try (var walk = sessions.fetch(KEY)) {
            assertEquals("1", new String(walk.next().value, UTF_8));
            sessions.put(session(70_000), value("3"));
            assertEquals("3", new String(walk.next().value, UTF_8));
        }
        sessions.close();
    }

    /** A record late by exactly the retention is not too late. Its session was once lost. */
    @ParameterizedTest
    @MethodSource("suppliers")
    void aSessionAtTheEdgeIsEmitted(DslStoreSuppliers suppliers) {
        SessionStore<Bytes, byte[]> store =
                sessions(suppliers, "sessions", EmitStrategy.onWindowClose());
        store.put(session(RETENTION_MS + 10_000), value("now"));
        store.put(session(10_000), value("edge"));
        assertEquals(List.of("10000=edge"), starts(store.findSessions(0, 10_000)));
        store.close();
    }

    /**
     * A window without a grace period closes when its start is as old as the retention. At that
     * time every kind of read shows it, and the changelog restores it. A millisecond later no read
     * shows it.
     */
    @ParameterizedTest
    @MethodSource("suppliers")
    void aWindowThatClosesIsShown(DslStoreSuppliers suppliers) {
        WindowStore<Bytes, byte[]> store =
                windows(suppliers, "windows", EmitStrategy.onWindowClose());
        store.put(KEY, value("now"), RETENTION_MS + 10_000);
        store.put(KEY, value("edge"), 10_000);
        List<String> both = List.of("10000=edge", "100000=now");
        assertEquals(both, drain(store.fetch(KEY, 0, RETENTION_MS * 2), start -> start));
        assertEquals(both, starts(store.fetch(KEY, KEY, 0, RETENTION_MS * 2)));
        assertEquals(both, starts(store.fetchAll(0, RETENTION_MS * 2)));
        assertEquals(both, starts(store.all()));
        assertEquals("edge", new String(store.fetch(KEY, 10_000), UTF_8));
        assertEquals(List.of("100000=now", "10000=edge"), starts(store.backwardAll()));
        store.put(KEY, value("later"), RETENTION_MS + 10_001);
        assertNull(store.fetch(KEY, 10_000));
        assertEquals(List.of("100000=now", "100001=later"),
                starts(store.fetchAll(0, RETENTION_MS * 2)));
        store.close();

        store = windows(suppliers, "restored", EmitStrategy.onWindowClose());
        context.restore("restored", Stream.of(RETENTION_MS + 10_000, 10_000L).map(start ->
                KeyValue.pair(RecordKey.window(KEY.get(), start, 0), value("x"))).toList());
        assertEquals(List.of("10000=x", "100000=x"), starts(store.all()));
        store.close();
    }

    /** If results are emitted on update, nothing is shown beyond the retention. */
    @ParameterizedTest
    @MethodSource("suppliers")
    void aWindowBeyondTheRetentionIsHidden(DslStoreSuppliers suppliers) {
        WindowStore<Bytes, byte[]> store =
                windows(suppliers, "windows", EmitStrategy.onWindowUpdate());
        store.put(KEY, value("now"), RETENTION_MS + 10_000);
        store.put(KEY, value("edge"), 10_000);
        assertNull(store.fetch(KEY, 10_000));
        assertEquals(List.of("100000=now"), starts(store.fetchAll(0, RETENTION_MS * 2)));
        store.close();
    }

    /**
     * The length of segments depends on the retention. After a change of the retention, windows
     * were once not found, or were wrongly dropped.
     */
    @Test
    void aStoreKeepsItsWindowsWhenTheRetentionChanges() {
        // All writes are within the shortest retention, so all are shown.
        long first = 10_000_000;
        List<String> expected = new ArrayList<>();
        for (long factor : new long[] {1, 4, 1, 3}) {
            var store = open((WindowBytesStore) RunstoneStores.windowStore("windows",
                    RETENTION.multipliedBy(factor), RETENTION, false).get(),
                    StreamsConfig.AT_LEAST_ONCE);
            for (int step = 0; step < 2; step++) {
                long start = first + expected.size() * 12_000L;
                store.put(KEY, value("x"), start);
                expected.add(start + "=x");
                assertEquals(expected, starts(store.all()));
                assertEquals(expected, drain(store.fetch(KEY, first, start), found -> found));
                assertNotNull(store.fetch(KEY, first));
            }
            store.commit(Map.of());
            store.close();
        }
        var store = open((WindowBytesStore) RunstoneStores.windowStore(
                "windows", RETENTION, RETENTION, false).get(), StreamsConfig.AT_LEAST_ONCE);
        store.put(KEY, value("x"), first + 40 * RETENTION_MS);
        store.commit(Map.of());
        // Nothing is left of the earlier segments.
        assertEquals(1, store.backing().tableNames().stream()
                .filter(name -> name.startsWith("segment-")).count());
        store.close();
    }

    /** Kafka does not call a store at an exactly-once commit, so expired segments once stayed. */
    @Test
    void exactlyOnceExpiredSegmentsGoToo() {
        var store = open((WindowBytesStore) RunstoneStores.windowStore(
                "windows", RETENTION, RETENTION, false).get(), StreamsConfig.EXACTLY_ONCE_V2);
        var commits = ThreadMetrics.commitSensor(
                Thread.currentThread().getName(), context.metrics());
        for (long time = 0; time < 20 * RETENTION_MS; time += 10_000) {
            store.put(KEY, value("x"), time);
            commits.record();
        }
        assertNotNull(store.fetch(KEY, 20 * RETENTION_MS - 10_000));
        // These are the segments of the retention and the current one.
        assertEquals(3, store.backing().tableNames().size());
        store.close();
    }
}
