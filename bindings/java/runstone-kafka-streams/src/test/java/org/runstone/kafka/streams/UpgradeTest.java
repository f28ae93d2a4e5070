// Tests stores whose application requires another value format than they were made with.

package org.runstone.kafka.streams;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.time.Duration;
import java.util.function.UnaryOperator;
import java.util.stream.Stream;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.ProcessorStateException;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.state.HeadersBytesStore;
import org.apache.kafka.streams.state.TimestampedBytesStore;
import org.apache.kafka.test.InternalMockProcessorContext;
import org.apache.kafka.test.StreamsTestUtils;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import org.runstone.Store;
import org.runstone.WriteBatch;

class UpgradeTest {
    private static final Duration HOUR = Duration.ofHours(1);
    private static final int KEYS = 3_000;

    @TempDir
    Path directory;

    private <S extends StateStore> S open(S store) {
        var config = new StreamsConfig(StreamsTestUtils.getStreamsConfig());
        store.init(new InternalMockProcessorContext<>(
                directory.toFile(), Serdes.Bytes(), Serdes.ByteArray(), config), store);
        return store;
    }

    private static Bytes key(int number) {
        return Bytes.wrap("key%05d".formatted(number).getBytes(UTF_8));
    }

    /** Values of a kilobyte, so that a store needs several batches. */
    private static byte[] value(int number) {
        return ("v" + number + "x".repeat(1_000)).getBytes(UTF_8);
    }

    private KeyValueBytesStore keyValues(Format format) {
        return open((KeyValueBytesStore) KeyValueSupplier.of("store", format).get());
    }

    private WindowBytesStore windows(Format format) {
        return open((WindowBytesStore) WindowSupplier.of("store", HOUR, HOUR, false, format).get());
    }

    private SessionBytesStore sessions(Format format) {
        return open((SessionBytesStore) SessionSupplier.of("store", HOUR, format).get());
    }

    private static Windowed<Bytes> session(int number) {
        return new Windowed<>(key(number), new SessionWindow(number * 1_000L, number * 1_000L));
    }

    static Stream<Arguments> upgrades() {
        UnaryOperator<byte[]> time = TimestampedBytesStore::convertToTimestampedFormat;
        UnaryOperator<byte[]> headers = HeadersBytesStore::convertToHeaderFormat;
        UnaryOperator<byte[]> both = HeadersBytesStore::convertFromPlainToHeaderFormat;
        return Stream.of(Arguments.of(Format.PLAIN, Format.TIMESTAMPED, time),
                Arguments.of(Format.TIMESTAMPED, Format.HEADERS, headers),
                Arguments.of(Format.PLAIN, Format.HEADERS, both));
    }

    /**
     * Values are converted as in Kafka's own stores. They were once returned unchanged, and
     * misread.
     */
    @ParameterizedTest
    @MethodSource("upgrades")
    void valuesGetTheLaterFormat(Format old, Format later, UnaryOperator<byte[]> conversion) {
        KeyValueBytesStore store = keyValues(old);
        for (int number = 0; number < KEYS; number++) {
            store.put(key(number), value(number));
        }
        store.close();
        for (int time = 0; time < 2; time++) {
            KeyValueBytesStore upgraded = keyValues(later);
            for (int number = 0; number < KEYS; number++) {
                assertArrayEquals(conversion.apply(value(number)), upgraded.get(key(number)));
            }
            upgraded.close();
        }
    }

    @ParameterizedTest
    @MethodSource("upgrades")
    void windowsOfAllSegmentsDo(Format old, Format later, UnaryOperator<byte[]> conversion) {
        WindowBytesStore store = windows(old);
        for (int number = 0; number < KEYS; number++) {
            store.put(key(number), value(number), number * 1_000L);
        }
        store.close();
        WindowBytesStore upgraded = windows(later);
        assertTrue(upgraded.backing().tableNames().size() > 1);
        for (int number = 0; number < KEYS; number++) {
            assertArrayEquals(conversion.apply(value(number)),
                    upgraded.fetch(key(number), number * 1_000L));
        }
        upgraded.close();
    }

    @Test
    void sessionsGetHeadersWithoutATime() {
        SessionBytesStore store = sessions(Format.PLAIN);
        for (int number = 0; number < KEYS; number++) {
            store.put(session(number), value(number));
        }
        store.close();
        SessionBytesStore upgraded = sessions(Format.HEADERS);
        for (int number = 0; number < KEYS; number++) {
            assertArrayEquals(HeadersBytesStore.convertToHeaderFormat(value(number)),
                    upgraded.fetchSession(key(number), number * 1_000L, number * 1_000L));
        }
        upgraded.close();
    }

    /**
     * The state after a crash: some values are rewritten, and the last of their keys is recorded.
     */
    @Test
    void anUpgradeThatWasBrokenOffGoesOn() {
        KeyValueBytesStore store = keyValues(Format.TIMESTAMPED);
        for (int number = 0; number < 10; number++) {
            store.put(key(number), value(number));
        }
        store.close();
        try (Store raw = Store.open(directory.resolve("runstone/store"))) {
            var table = raw.openKeyspace("default");
            var meta = raw.openKeyspace("meta");
            WriteBatch batch = new WriteBatch();
            for (int number = 0; number < 4; number++) {
                batch.put(table, key(number).get(),
                        HeadersBytesStore.convertToHeaderFormat(value(number)));
            }
            raw.write(batch.put(meta, "format".getBytes(UTF_8),
                            "TIMESTAMPED>HEADERS".getBytes(UTF_8))
                    .put(meta, "upgraded".getBytes(UTF_8), "default\0key00003".getBytes(UTF_8)));
        }
        assertThrows(ProcessorStateException.class, () -> keyValues(Format.TIMESTAMPED));
        KeyValueBytesStore upgraded = keyValues(Format.HEADERS);
        for (int number = 0; number < 10; number++) {
            assertArrayEquals(HeadersBytesStore.convertToHeaderFormat(value(number)),
                    upgraded.get(key(number)));
        }
        upgraded.close();
    }

    @Test
    void thereIsNoWayBack() {
        KeyValueBytesStore store = keyValues(Format.HEADERS);
        store.put(key(1), value(1));
        store.close();
        String message = assertThrows(ProcessorStateException.class,
                () -> keyValues(Format.TIMESTAMPED)).getMessage();
        assertTrue(message.contains("HEADERS") && message.contains("Remove"), message);
        KeyValueBytesStore again = keyValues(Format.HEADERS);
        assertEquals(value(1).length, again.get(key(1)).length);
        again.close();
    }
}
