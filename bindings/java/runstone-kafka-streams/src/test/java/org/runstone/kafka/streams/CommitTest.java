// Tests which committed and uncommitted writes a store keeps, and its queries.

package org.runstone.kafka.streams;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.processor.internals.ProcessorRecordContext;
import org.apache.kafka.streams.query.KeyQuery;
import org.apache.kafka.streams.query.Position;
import org.apache.kafka.streams.query.PositionBound;
import org.apache.kafka.streams.query.QueryConfig;
import org.apache.kafka.streams.query.RangeQuery;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.test.InternalMockProcessorContext;
import org.apache.kafka.test.StreamsTestUtils;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class CommitTest {
    private static final TopicPartition CHANGELOG = new TopicPartition("changelog", 0);

    @TempDir
    Path directory;

    private InternalMockProcessorContext<Object, Object> context;
    private String options;

    private KeyValueStore<Bytes, byte[]> open(String guarantee, long maxUncommitted) {
        var config = StreamsTestUtils.getStreamsConfig();
        config.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, guarantee);
        config.put(Backing.MAX_UNCOMMITTED, Long.toString(maxUncommitted));
        if (options != null) {
            config.put(Backing.OPTIONS, options);
        }
        context = new InternalMockProcessorContext<>(directory.toFile(), Serdes.Bytes(),
                Serdes.ByteArray(), new StreamsConfig(config));
        context.setRecordContext(new ProcessorRecordContext(
                0, 7, 0, "input", new RecordHeaders()));
        KeyValueStore<Bytes, byte[]> store = RunstoneStores.keyValueStore("store").get();
        store.init(context, store);
        return store;
    }

    private static Bytes key(String text) {
        return Bytes.wrap(text.getBytes(UTF_8));
    }

    private static byte[] value(String text) {
        return text.getBytes(UTF_8);
    }

    private static List<String> drain(KeyValueIterator<Bytes, byte[]> entries) {
        List<String> seen = new ArrayList<>();
        try (entries) {
            while (entries.hasNext()) {
                Bytes next = entries.peekNextKey();
                KeyValue<Bytes, byte[]> entry = entries.next();
                assertEquals(next, entry.key);
                seen.add(new String(entry.key.get(), UTF_8) + "=" + new String(entry.value, UTF_8));
            }
        }
        return seen;
    }

    @Test
    void exactlyOnceOnlyWhatIsCommittedStays() {
        KeyValueStore<Bytes, byte[]> store = open(StreamsConfig.EXACTLY_ONCE_V2, 1 << 20);
        assertEquals(Internals.FROM_THE_BEGINNING, store.committedOffset(CHANGELOG));
        store.put(key("a"), value("1"));
        store.put(key("b"), value("2"));
        store.commit(Map.of(CHANGELOG, 41L));
        store.put(key("a"), value("3"));
        store.delete(key("b"));
        store.put(key("c"), value("4"));
        assertEquals(List.of("a=3", "c=4"), drain(store.all()));
        assertEquals(List.of("c=4", "a=3"), drain(store.reverseAll()));
        store.close();
        assertThrows(InvalidStateStoreException.class, () -> store.get(key("a")));

        KeyValueStore<Bytes, byte[]> again = open(StreamsConfig.EXACTLY_ONCE_V2, 1 << 20);
        assertEquals(List.of("a=1", "b=2"), drain(again.all()));
        assertEquals(41, again.committedOffset(CHANGELOG));
        assertEquals(Map.of(0, 7L), again.getPosition().getPartitionPositions("input"));
        again.commit(Map.of());
        assertNull(again.committedOffset(CHANGELOG), "no offsets: they are forgotten");
        again.close();
    }

    @Test
    void aStoreThatIsAheadTellsNoOffsets() {
        KeyValueStore<Bytes, byte[]> store = open(StreamsConfig.EXACTLY_ONCE_V2, 10_000);
        store.put(key("a"), value("1"));
        store.commit(Map.of(CHANGELOG, 5L));
        for (int number = 0; number < 100; number++) {
            store.put(key("key" + number), new byte[200]);
        }
        store.close();
        KeyValueStore<Bytes, byte[]> again = open(StreamsConfig.EXACTLY_ONCE_V2, 10_000);
        assertNull(again.committedOffset(CHANGELOG));
        again.commit(Map.of(CHANGELOG, 200L));
        again.close();
        KeyValueStore<Bytes, byte[]> settled = open(StreamsConfig.EXACTLY_ONCE_V2, 10_000);
        assertEquals(200, settled.committedOffset(CHANGELOG));
        settled.close();
    }

    @Test
    void atLeastOnceAllWritesStay() {
        KeyValueStore<Bytes, byte[]> store = open(StreamsConfig.AT_LEAST_ONCE, 1 << 20);
        store.put(key("a"), value("1"));
        store.commit(Map.of(CHANGELOG, 5L));
        store.put(key("a"), value("2"));
        store.close();
        KeyValueStore<Bytes, byte[]> again = open(StreamsConfig.AT_LEAST_ONCE, 1 << 20);
        assertArrayEquals(value("2"), again.get(key("a")));
        assertEquals(5, again.committedOffset(CHANGELOG));
        again.close();
    }

    /** Kafka repeats a query if the store is closed, but fails on other errors. */
    @ParameterizedTest
    @ValueSource(strings = {StreamsConfig.AT_LEAST_ONCE, StreamsConfig.EXACTLY_ONCE_V2})
    void aReadThatMeetsTheCloseSaysThatTheStoreIsClosed(String guarantee) throws Exception {
        for (int round = 0; round < 60; round++) {
            KeyValueStore<Bytes, byte[]> store = open(guarantee, 1 << 20);
            for (int number = 0; number < 100; number++) {
                store.put(key("key" + number), value("v"));
            }
            store.commit(Map.of());
            boolean walks = round % 2 == 0;
            CountDownLatch reads = new CountDownLatch(1);
            var reader = CompletableFuture.runAsync(() -> {
                while (true) {
                    if (walks) {
                        drain(store.all());
                    } else {
                        store.get(key("key7"));
                    }
                    reads.countDown();
                }
            });
            reads.await();
            store.close();
            var error = assertThrows(ExecutionException.class, reader::get);
            assertInstanceOf(InvalidStateStoreException.class, error.getCause());
        }
    }

    /** Compares with a map, while iterators are open during writes and commits. */
    @ParameterizedTest
    @ValueSource(strings = {StreamsConfig.AT_LEAST_ONCE, StreamsConfig.EXACTLY_ONCE_V2})
    void aStoreIsAMap(String guarantee) {
        TreeMap<String, String> model = new TreeMap<>();
        Random random = new Random(3);
        KeyValueStore<Bytes, byte[]> store = open(guarantee, 20_000);
        try {
            for (int step = 0; step < 3_000; step++) {
                String key = "key" + random.nextInt(200);
                if (random.nextInt(3) == 0) {
                    store.delete(key(key));
                    model.remove(key);
                } else {
                    store.put(key(key), value("v" + step));
                    model.put(key, "v" + step);
                }
                if (step % 250 == 0) {
                    store.commit(Map.of(CHANGELOG, (long) step));
                }
                if (step % 50 == 0) {
                    String from = "key" + random.nextInt(100);
                    String to = from + "9";
                    List<String> expected = new ArrayList<>();
                    model.subMap(from, true, to, true)
                            .forEach((one, value) -> expected.add(one + "=" + value));
                    KeyValueIterator<Bytes, byte[]> open = store.range(key(from), key(to));
                    store.put(key(from + "0"), value("later"));
                    model.put(from + "0", "later");
                    assertEquals(expected, drain(open), "step " + step);
                    assertEquals(model.size(), drain(store.all()).size());
                    assertEquals(model.tailMap("key1", true).headMap("key2", false).size(),
                            drain(store.prefixScan("key1", new StringSerializer())).size());
                }
            }
            assertTrue(store.approximateNumEntries() > 0);
        } finally {
            store.close();
        }
    }

    /** Default options differ between releases, and users set their own. */
    @Test
    void optionsMayChangeBetweenOpens() {
        String[] texts = {null, "[keyspace]\nwrite_buffer_bytes = '8M'\ncompression = 'lz4'",
            "max_wal_bytes = '64M'", null};
        for (int time = 0; time < texts.length; time++) {
            options = texts[time];
            KeyValueStore<Bytes, byte[]> store = open(StreamsConfig.AT_LEAST_ONCE, 1 << 20);
            store.put(key("key" + time), value("x".repeat(1000)));
            assertEquals(time + 1, drain(store.all()).size());
            store.close();
        }
    }

    @Test
    void queriesAreAnsweredUpToTheirBound() {
        KeyValueStore<Bytes, byte[]> store = open(StreamsConfig.EXACTLY_ONCE_V2, 1 << 20);
        store.put(key("a"), value("1"));
        store.put(key("b"), value("2"));
        QueryConfig config = new QueryConfig(true);
        var one = store.query(KeyQuery.<Bytes, byte[]>withKey(key("a")),
                PositionBound.unbounded(), config);
        assertArrayEquals(value("1"), one.getResult());
        assertEquals(Map.of(0, 7L), one.getPosition().getPartitionPositions("input"));
        var all = store.query(RangeQuery.<Bytes, byte[]>withNoBounds().withDescendingKeys(),
                PositionBound.unbounded(), config);
        assertEquals(List.of("b=2", "a=1"), drain(all.getResult()));
        Position later = Position.emptyPosition().withComponent("input", 0, 8);
        assertTrue(store.query(KeyQuery.<Bytes, byte[]>withKey(key("a")),
                PositionBound.at(later), config).isFailure());
        store.close();
    }

    @Test
    void metricsHaveKafkasNames() {
        KeyValueStore<Bytes, byte[]> store = open(StreamsConfig.AT_LEAST_ONCE, 1 << 20);
        store.put(key("a"), value("1"));
        Map<String, Object> gauges = new HashMap<>();
        context.metrics().metrics().forEach((name, metric) -> {
            if (name.tags().containsKey("runstone-state-id")) {
                gauges.put(name.name(), metric.metricValue());
            }
        });
        assertEquals(1.0, gauges.get("estimate-num-keys"));
        assertTrue((Double) gauges.get("block-cache-capacity") > 1 << 20, gauges.toString());
        store.close();
    }
}
