// Tests interactive queries of windows and sessions: Runstone's stores answer as RocksDB's do.

package org.runstone.kafka.streams.matrix;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.stream.Stream;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.query.PositionBound;
import org.apache.kafka.streams.query.Query;
import org.apache.kafka.streams.query.QueryConfig;
import org.apache.kafka.streams.query.QueryResult;
import org.apache.kafka.streams.query.WindowKeyQuery;
import org.apache.kafka.streams.query.WindowRangeQuery;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers.RocksDBDslStoreSuppliers;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.WindowStore;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.runstone.kafka.streams.RunstoneDslStoreSuppliers;

class QueriesTest {
    private static final List<String> KEYS = List.of("k0", "k1", "k2", "kk0", "kk1", "kk2");

    @TempDir
    Path directory;

    /** The answers of a cache above the stores are not compared. */
    static Stream<Setting> settings() {
        return Setting.all(true, true).filter(setting -> setting.cache() == Setting.Cache.OFF
                && setting.pace() == Setting.Pace.EACH && setting.grace() < 3);
    }

    private static void topology(StreamsBuilder builder, Setting setting) {
        var grouped = Topologies.merged(builder).groupByKey();
        grouped.windowedBy(TimeWindows.ofSizeAndGrace(Setting.WINDOW, setting.gracePeriod())
                        .advanceBy(Topologies.GAP))
                .emitStrategy(setting.emitStrategy())
                .count(setting.stored(Materialized
                        .<String, Long, WindowStore<Bytes, byte[]>>as("windows")
                        .withKeySerde(Serdes.String()).withValueSerde(Serdes.Long())));
        grouped.windowedBy(SessionWindows.ofInactivityGapAndGrace(
                        Topologies.GAP, setting.gracePeriod()))
                .emitStrategy(setting.emitStrategy())
                .count(setting.stored(Materialized
                        .<String, Long, SessionStore<Bytes, byte[]>>as("sessions")
                        .withKeySerde(Serdes.String()).withValueSerde(Serdes.Long())));
    }

    private static <K> List<String> ask(TopologyTestDriver driver, String store,
            Query<? extends KeyValueIterator<K, ?>> query) {
        QueryResult<? extends KeyValueIterator<K, ?>> result = driver.getAllStateStores()
                .get(store).query(query, PositionBound.unbounded(), new QueryConfig(false));
        assertTrue(result.isSuccess(), () -> result.getFailureMessage());
        List<String> answer = new ArrayList<>();
        try (var entries = result.getResult()) {
            while (entries.hasNext()) {
                KeyValue<K, ?> entry = entries.next();
                answer.add(entry.key + "=" + entry.value);
            }
        }
        return answer;
    }

    /** All answers, after a third of the events and at the end. */
    private List<List<String>> answers(Setting setting, Class<?> suppliers) {
        List<List<String>> answers = new ArrayList<>();
        Events events = new Events(setting);
        int size = events.batches().size();
        Driven.drive(QueriesTest::topology, setting, suppliers, directory, (driver, fed) -> {
            if (fed != size / 3 && fed != size) {
                return;
            }
            long now = events.streamTimeAt(fed - 1);
            // From the oldest kept moment to far beyond the present.
            Instant from = Instant.ofEpochMilli(
                    now - Setting.WINDOW.plus(setting.gracePeriod()).toMillis());
            Instant to = Instant.ofEpochMilli(now + 1_000_000);
            for (String key : KEYS) {
                answers.add(ask(driver, "windows",
                        WindowKeyQuery.<String, ValueAndTimestamp<Long>>
                        withKeyAndWindowStartRange(key, from, to)));
                answers.add(ask(driver, "windows",
                        WindowKeyQuery.<String, ValueAndTimestamp<Long>>
                        withKeyAndWindowStartRange(key, Instant.EPOCH, to)));
                answers.add(ask(driver, "sessions",
                        WindowRangeQuery.<String, Long>withKey(key)));
            }
            List<String> all = ask(driver, "windows",
                    WindowRangeQuery.<String, ValueAndTimestamp<Long>>
                    withWindowStartRange(from, to));
            // On window close, RocksDB sorts the results of a store by their times.
            all.sort(Comparator.naturalOrder());
            answers.add(all);
        });
        return answers;
    }

    @ParameterizedTest
    @MethodSource("settings")
    void answersAreTheSame(Setting setting) {
        // RocksDB's stores with headers do not answer such a query.
        List<List<String>> theirs = answers(new Setting(setting.cache(), setting.emitsOnClose(),
                setting.grace(), setting.guarantee(), "default", setting.pace()),
                RocksDBDslStoreSuppliers.class);
        assertEquals(theirs, answers(setting, RunstoneDslStoreSuppliers.class));
        assertEquals(2 * (3 * KEYS.size() + 1), theirs.size());
        assertTrue(theirs.stream().mapToInt(List::size).sum() > 100);
    }
}
