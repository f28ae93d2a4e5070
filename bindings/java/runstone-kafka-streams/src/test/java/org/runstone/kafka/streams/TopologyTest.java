// Tests whole topologies over Runstone's stores in the test driver. Their output must equal that of
// RocksDB's stores for the same records.

package org.runstone.kafka.streams;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.function.Consumer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;
import org.apache.kafka.streams.state.WindowStore;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class TopologyTest {
    private static final Duration MINUTE = Duration.ofMinutes(1);
    private static final Duration SECOND = Duration.ofSeconds(1);
    private static final Duration FEW_SECONDS = Duration.ofSeconds(5);

    @TempDir
    Path directory;

    /** The output of a topology for fixed records, with one supplier of stores. */
    private List<String> run(Consumer<StreamsBuilder> topology, Class<?> suppliers,
            String guarantee, String format) {
        return run(topology, suppliers, guarantee, format, 1);
    }

    /** Before each tenth record, time advances {@code jump} times as far as before the others. */
    private List<String> run(Consumer<StreamsBuilder> topology, Class<?> suppliers,
            String guarantee, String format, int jump) {
        Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, "test");
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "nobody:1");
        config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        config.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, guarantee);
        config.put(StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG, suppliers);
        config.put(StreamsConfig.DSL_STORE_FORMAT_CONFIG, format);
        config.put(StreamsConfig.STATE_DIR_CONFIG,
                directory.resolve(suppliers.getSimpleName()).toString());
        StreamsBuilder builder = new StreamsBuilder();
        topology.accept(builder);
        List<String> out = new ArrayList<>();
        Random random = new Random(7);
        try (TopologyTestDriver driver = new TopologyTestDriver(builder.build(), config)) {
            List<TestInputTopic<String, String>> topics = new ArrayList<>();
            for (String topic : List.of("left", "right")) {
                topics.add(driver.createInputTopic(
                        topic, new StringSerializer(), new StringSerializer()));
            }
            var output = driver.createOutputTopic(
                    "out", new StringDeserializer(), new StringDeserializer());
            long time = 1_000_000;
            for (int number = 0; number < 300; number++) {
                time += random.nextInt(2_000) * (number % 10 == 0 ? jump : 1);
                long late = random.nextInt(10) == 0 ? random.nextInt(90_000) : 0;
                String key = "k".repeat(1 + random.nextInt(3)) + random.nextInt(10);
                String value = random.nextInt(12) == 0 ? null : "v" + number;
                topics.get(random.nextInt(2)).pipeInput(
                        key, value, Instant.ofEpochMilli(time - late));
            }
            output.readKeyValuesToList().forEach(pair -> out.add(pair.key + "=" + pair.value));
        }
        return out;
    }

    private void same(Consumer<StreamsBuilder> topology, String guarantee, String format) {
        List<String> theirs = run(topology, BuiltInDslStoreSuppliers.RocksDBDslStoreSuppliers.class,
                guarantee, format);
        List<String> ours = run(topology, RunstoneDslStoreSuppliers.class, guarantee, format);
        assertEquals(theirs, ours);
        assertTrue(ours.size() > 50, ours.size() + " results");
    }

    private static KStream<String, String> stream(StreamsBuilder builder, String topic) {
        return builder.<String, String>stream(topic).filter((key, value) -> value != null);
    }

    @ParameterizedTest
    @CsvSource({"at_least_once,default", "exactly_once_v2,default", "at_least_once,headers",
        "exactly_once_v2,headers"})
    void aggregationsAndTableJoins(String guarantee, String format) {
        same(builder -> {
            KTable<String, String> left = builder.table("left");
            KTable<String, String> right = builder.table("right");
            left.outerJoin(right, (one, other) -> one + "+" + other).toStream().to("out");
            left.toStream().filter((key, value) -> value != null).groupByKey()
                    .reduce((one, other) -> one + other.charAt(1)).toStream().to("out");
            left.leftJoin(right, value -> "k" + value.charAt(1), (one, other) -> one + other)
                    .toStream().to("out");
        }, guarantee, format);
    }

    @ParameterizedTest
    @CsvSource({"at_least_once,default", "exactly_once_v2,default", "at_least_once,headers"})
    void windowsSessionsAndSuppress(String guarantee, String format) {
        same(builder -> {
            var grouped = stream(builder, "left").merge(stream(builder, "right")).groupByKey();
            Materialized<String, Long, WindowStore<Bytes, byte[]>> counts =
                    Materialized.with(Serdes.String(), Serdes.Long());
            TimeWindows windows = TimeWindows.ofSizeAndGrace(MINUTE, SECOND.multipliedBy(30))
                    .advanceBy(SECOND.multipliedBy(20));
            grouped.windowedBy(windows).count(counts)
                    .suppress(Suppressed.untilWindowCloses(
                            Suppressed.BufferConfig.unbounded()))
                    .toStream((key, value) -> key.toString()).mapValues(Object::toString).to("out");
            grouped.windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(MINUTE, MINUTE)).count()
                    .toStream((key, value) -> key.toString()).mapValues(Object::toString).to("out");
            grouped.windowedBy(SessionWindows.ofInactivityGapAndGrace(FEW_SECONDS, MINUTE))
                    .count().toStream((key, value) -> key.toString())
                    .mapValues(value -> "" + value).to("out");
        }, guarantee, format);
    }

    /** Results that are emitted once arrive in the order of the store, which is not compared. */
    @ParameterizedTest
    @CsvSource({"at_least_once,default", "exactly_once_v2,default", "at_least_once,headers"})
    void resultsThatAreEmittedOnce(String guarantee, String format) {
        Consumer<StreamsBuilder> topology = builder -> {
            var grouped = stream(builder, "left").merge(stream(builder, "right")).groupByKey();
            grouped.windowedBy(TimeWindows.ofSizeAndGrace(MINUTE, SECOND))
                    .emitStrategy(EmitStrategy.onWindowClose()).count()
                    .toStream((key, value) -> key.toString()).mapValues(Object::toString).to("out");
            grouped.windowedBy(SessionWindows.ofInactivityGapAndGrace(FEW_SECONDS, SECOND))
                    .emitStrategy(EmitStrategy.onWindowClose()).count()
                    .toStream((key, value) -> key.toString()).mapValues(Object::toString).to("out");
        };
        List<String> theirs = run(topology, BuiltInDslStoreSuppliers.RocksDBDslStoreSuppliers.class,
                guarantee, format);
        List<String> ours = run(topology, RunstoneDslStoreSuppliers.class, guarantee, format);
        // RocksDB's store drops a segment whose sessions were not emitted yet. Ours drops it later.
        List<String> more = new ArrayList<>(ours);
        theirs.forEach(one -> assertTrue(more.remove(one), one));
        assertTrue(theirs.size() > 50 && more.size() < theirs.size() / 20, more.toString());
    }

    /**
     * Results on window close were once missing if caching was off and windows had no grace period:
     * a closing window is then beyond the retention by a millisecond, and the store did not show
     * it. Each result must arrive once. Where time jumps, windows that are further beyond the
     * retention have no result, as with RocksDB's stores; below a cache they have one.
     */
    @ParameterizedTest
    @CsvSource({"0,1", "0,40", "30,1", "30,40"})
    void resultsComeWhenWindowsClose(int graceSeconds, int jump) {
        for (boolean caches : new boolean[] {true, false}) {
            for (boolean slides : new boolean[] {false, true}) {
                Duration grace = SECOND.multipliedBy(graceSeconds);
                List<String> ours = closing(
                        RunstoneDslStoreSuppliers.class, caches, slides, grace, jump);
                List<String> theirs = closing(
                        BuiltInDslStoreSuppliers.RocksDBDslStoreSuppliers.class, caches, slides,
                        grace, jump);
                assertEquals(ours.size(), Set.copyOf(ours).size(), "each once");
                assertTrue(theirs.size() > 10, theirs.toString());
                if (caches && !slides) {
                    assertTrue(ours.containsAll(theirs), theirs.toString());
                } else {
                    assertEquals(theirs.stream().sorted().toList(),
                            ours.stream().sorted().toList());
                }
            }
        }
    }

    private List<String> closing(Class<?> suppliers, boolean caches, boolean slides,
            Duration grace, int jump) {
        Consumer<StreamsBuilder> topology = builder -> {
            Materialized<String, Long, WindowStore<Bytes, byte[]>> counts =
                    Materialized.with(Serdes.String(), Serdes.Long());
            var grouped = stream(builder, "left").merge(stream(builder, "right")).groupByKey();
            var windowed = slides
                    ? grouped.windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(MINUTE, grace))
                    : grouped.windowedBy(TimeWindows.ofSizeAndGrace(MINUTE, grace));
            windowed.emitStrategy(EmitStrategy.onWindowClose())
                    .count(caches ? counts : counts.withCachingDisabled())
                    .toStream((key, value) -> slides + key.toString())
                    .mapValues(Object::toString).to("out");
        };
        return run(topology, suppliers, "at_least_once", "default", jump);
    }

    @ParameterizedTest
    @CsvSource({"at_least_once,default", "exactly_once_v2,default", "at_least_once,headers"})
    void streamJoins(String guarantee, String format) {
        same(builder -> {
            KStream<String, String> left = stream(builder, "left");
            KStream<String, String> right = stream(builder, "right");
            JoinWindows windows = JoinWindows.ofTimeDifferenceAndGrace(FEW_SECONDS, MINUTE);
            left.join(right, (one, other) -> one + "+" + other, windows).to("out");
            left.outerJoin(right, (one, other) -> one + "?" + other, windows).to("out");
        }, guarantee, format);
    }

    /** Kafka reads the offsets of global stores in a different way. */
    @ParameterizedTest
    @CsvSource({"at_least_once,default", "exactly_once_v2,default", "exactly_once_v2,headers"})
    void globalTableJoins(String guarantee, String format) {
        same(builder -> {
            GlobalKTable<String, String> table = builder.globalTable("right");
            stream(builder, "left").join(table, (key, value) -> key, (one, other) ->
                    one + "+" + other).to("out");
            stream(builder, "left").leftJoin(table, (key, value) -> key, (one, other) ->
                    one + "?" + other).to("out");
        }, guarantee, format);
    }

    /** With a grace period, events wait until the table has reached their time. */
    @ParameterizedTest
    @CsvSource({"at_least_once,0", "exactly_once_v2,0", "at_least_once,60",
        "exactly_once_v2,60"})
    void versionedTableJoins(String guarantee, int graceSeconds) {
        Joined<String, String, String> with =
                Joined.with(Serdes.String(), Serdes.String(), Serdes.String());
        Joined<String, String, String> joined = graceSeconds == 0 ? with
                : with.withGracePeriod(SECOND.multipliedBy(graceSeconds));
        List<List<String>> results = new ArrayList<>();
        for (boolean own : new boolean[] {false, true}) {
            var supplier = own
                    ? RunstoneStores.versionedKeyValueStore("versions", Duration.ofMinutes(2))
                    : org.apache.kafka.streams.state.Stores.persistentVersionedKeyValueStore(
                            "versions", Duration.ofMinutes(2));
            results.add(run(builder -> {
                KTable<String, String> table = builder.table("right",
                        Materialized.<String, String>as(supplier));
                stream(builder, "left").join(table, (one, other) -> one + "@" + other, joined)
                        .to("out");
                table.leftJoin(stream(builder, "left").toTable(),
                        (one, other) -> one + "&" + other).toStream().to("out");
            }, RunstoneDslStoreSuppliers.class, guarantee, "default"));
        }
        assertEquals(results.get(0), results.get(1));
        assertTrue(results.get(1).size() > 50);
    }
}
