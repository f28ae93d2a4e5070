// Compares versioned stores with Kafka's own, record by record.

package org.runstone.kafka.streams;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.query.MultiVersionedKeyQuery;
import org.apache.kafka.streams.query.PositionBound;
import org.apache.kafka.streams.query.QueryConfig;
import org.apache.kafka.streams.query.VersionedKeyQuery;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.VersionedBytesStoreSupplier;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.VersionedRecord;
import org.apache.kafka.test.InternalMockProcessorContext;
import org.apache.kafka.test.StreamsTestUtils;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class VersionedStoreTest {
    private static final Duration RETENTION = Duration.ofSeconds(10);

    @TempDir
    Path directory;

    private VersionedKeyValueStore<String, String> open(
            VersionedBytesStoreSupplier supplier, String guarantee) {
        var config = StreamsTestUtils.getStreamsConfig();
        config.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, guarantee);
        var context = new InternalMockProcessorContext<String, String>(
                directory.resolve(supplier.metricsScope()).toFile(),
                Serdes.String(), Serdes.String(), new StreamsConfig(config));
        var store = Stores.versionedKeyValueStoreBuilder(
                supplier, Serdes.String(), Serdes.String()).withLoggingDisabled().build();
        store.init(context, store);
        return store;
    }

    private static List<String> versions(
            VersionedKeyValueStore<String, String> store, String key, long from, long to) {
        var query = MultiVersionedKeyQuery.<String, String>withKey(key)
                .fromTime(Instant.ofEpochMilli(from)).toTime(Instant.ofEpochMilli(to))
                .withAscendingTimestamps();
        List<String> versions = new ArrayList<>();
        try (var found = store.query(query, PositionBound.unbounded(), new QueryConfig(false))
                .getResult()) {
            found.forEachRemaining(version -> versions.add(text(version)));
        }
        return versions;
    }

    /** Records are compared as text, because their equals() compares a field by identity. */
    private static String text(VersionedRecord<String> record) {
        return record == null ? "none" : record.value() + " from " + record.timestamp() + " to "
                + record.validTo().map(time -> "" + time).orElse("now");
    }

    /** Stores whose records begin at 0 are also queried for times before 1970. */
    @ParameterizedTest
    @CsvSource({"at_least_once, 1000000", "exactly_once_v2, 1000000", "at_least_once, 0"})
    void itAnswersAsKafkasOwn(String guarantee, long begin) {
        try (var closing = new Both(
                open(Stores.persistentVersionedKeyValueStore("versions", RETENTION), guarantee),
                open(RunstoneStores.versionedKeyValueStore("versions", RETENTION), guarantee))) {
            Random random = new Random(11);
            long now = begin;
            for (int step = 0; step < 6_000; step++) {
                now += random.nextInt(20);
                String key = "k".repeat(1 + random.nextInt(3));
                long past = random.nextInt(3) == 0 ? random.nextInt(11_000) : 0;
                long time = Math.max(0, now - past);
                String value = random.nextInt(5) == 0 ? null : "v" + step;
                closing.write(key, value, time, random.nextInt(10) == 0, step);
                closing.read(key, now - random.nextInt(9_000), random.nextInt(3_000), step);
            }
        }
    }

    private record Both(VersionedKeyValueStore<String, String> theirs,
            VersionedKeyValueStore<String, String> ours) implements AutoCloseable {
        void write(String key, String value, long time, boolean deletes, int step) {
            if (deletes) {
                assertEquals(theirs.delete(key, time), ours.delete(key, time), "step " + step);
            } else {
                long validTo = theirs.put(key, value, time);
                long found = ours.put(key, value, time);
                if (found != validTo) {
                    // Kafka's store has forgotten a deletion that ends the version, so it returns
                    // the version again.
                    assertTrue(found > time && found < validTo && ours.get(key, found) == null,
                            "step " + step + ": theirs " + validTo + ", ours " + found);
                    theirs.put(key, null, found);
                }
            }
            if (step % 100 == 0) {
                ours.commit(java.util.Map.of());
            }
        }

        void read(String key, long time, long length, int step) {
            String at = "step " + step;
            assertEquals(theirs.get(key), ours.get(key), at);
            assertEquals(theirs.get(key, time), ours.get(key, time), at);
            // Kafka's store does not search for versions that ended in a later segment; ours
            // returns them too.
            List<String> found = versions(ours, key, time, time + length);
            assertTrue(found.containsAll(versions(theirs, key, time, time + length)), at);
            for (long moment = time; moment <= time + length; moment += 1 + length / 4) {
                VersionedRecord<String> valid = theirs.get(key, moment);
                assertTrue(valid == null || found.stream().anyMatch(one ->
                        one.startsWith(valid.value() + " from " + valid.timestamp())), at);
            }
            var query = VersionedKeyQuery.<String, String>withKey(key)
                    .asOf(Instant.ofEpochMilli(time));
            assertEquals(
                    text(theirs.query(query, PositionBound.unbounded(), new QueryConfig(false))
                            .getResult()),
                    text(ours.query(query, PositionBound.unbounded(), new QueryConfig(false))
                            .getResult()), at);
        }

        @Override
        public void close() {
            theirs.close();
            ours.close();
        }
    }
}
