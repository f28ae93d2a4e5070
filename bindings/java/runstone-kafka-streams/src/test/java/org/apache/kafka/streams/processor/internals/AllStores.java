// A topology with a store of each kind, and the contents of the stores.

package org.apache.kafka.streams.processor.internals;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Function;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.TopologyWrapper;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.AggregationWithHeaders;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionBytesStoreSupplier;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.SessionStoreWithHeaders;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.TimestampedKeyValueStore;
import org.apache.kafka.streams.state.TimestampedKeyValueStoreWithHeaders;
import org.apache.kafka.streams.state.TimestampedWindowStore;
import org.apache.kafka.streams.state.TimestampedWindowStoreWithHeaders;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.ValueTimestampHeaders;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.WindowBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowStore;
import org.runstone.kafka.streams.RunstoneStores;

/** Each event of the topic {@code in} goes to all stores. */
final class AllStores {
    static final List<String> KEYS = List.of("a", "aa", "b", "c", "d");
    static final Duration RETENTION = Duration.ofMinutes(3);
    static final Duration SIZE = Duration.ofSeconds(10);
    private static final Serde<String> TEXT = Serdes.String();

    private AllStores() {
    }

    /** Which implementation of stores. */
    enum Maker {
        RUNSTONE {
            @Override
            KeyValueBytesStoreSupplier keyValues(String name, boolean timed) {
                return timed ? RunstoneStores.timestampedKeyValueStore(name)
                        : RunstoneStores.keyValueStore(name);
            }

            @Override
            WindowBytesStoreSupplier windows(String name, boolean timed, boolean duplicates) {
                return timed
                        ? RunstoneStores.timestampedWindowStore(name, RETENTION, SIZE, duplicates)
                        : RunstoneStores.windowStore(name, RETENTION, SIZE, duplicates);
            }

            @Override
            SessionBytesStoreSupplier sessions(String name) {
                return RunstoneStores.sessionStore(name, RETENTION);
            }
        },

        ROCKSDB {
            @Override
            KeyValueBytesStoreSupplier keyValues(String name, boolean timed) {
                return timed ? Stores.persistentTimestampedKeyValueStore(name)
                        : Stores.persistentKeyValueStore(name);
            }

            @Override
            WindowBytesStoreSupplier windows(String name, boolean timed, boolean duplicates) {
                return timed
                        ? Stores.persistentTimestampedWindowStore(
                                name, RETENTION, SIZE, duplicates)
                        : Stores.persistentWindowStore(name, RETENTION, SIZE, duplicates);
            }

            @Override
            SessionBytesStoreSupplier sessions(String name) {
                return Stores.persistentSessionStore(name, RETENTION);
            }
        },

        MEMORY {
            @Override
            KeyValueBytesStoreSupplier keyValues(String name, boolean timed) {
                return Stores.inMemoryKeyValueStore(name);
            }

            @Override
            WindowBytesStoreSupplier windows(String name, boolean timed, boolean duplicates) {
                return Stores.inMemoryWindowStore(name, RETENTION, SIZE, duplicates);
            }

            @Override
            SessionBytesStoreSupplier sessions(String name) {
                return Stores.inMemorySessionStore(name, RETENTION);
            }
        };

        abstract KeyValueBytesStoreSupplier keyValues(String name, boolean timed);

        abstract WindowBytesStoreSupplier windows(String name, boolean timed, boolean duplicates);

        abstract SessionBytesStoreSupplier sessions(String name);

        /** Stores that have neither headers nor versions. */
        Map<String, StoreBuilder<?>> builders() {
            Map<String, StoreBuilder<?>> all = new LinkedHashMap<>();
            all.put("plain", Stores.keyValueStoreBuilder(keyValues("plain", false), TEXT, TEXT));
            all.put("timed", Stores.timestampedKeyValueStoreBuilder(
                    keyValues("timed", true), TEXT, TEXT));
            all.put("windows", Stores.windowStoreBuilder(
                    windows("windows", false, false), TEXT, TEXT));
            all.put("duplicates", Stores.windowStoreBuilder(
                    windows("duplicates", false, true), TEXT, TEXT));
            all.put("timed-windows", Stores.timestampedWindowStoreBuilder(
                    windows("timed-windows", true, false), TEXT, TEXT));
            all.put("sessions", Stores.sessionStoreBuilder(sessions("sessions"), TEXT, TEXT));
            return all;
        }
    }

    /** Runstone's stores, including the kinds that do not exist in memory. */
    static Map<String, StoreBuilder<?>> builders() {
        Map<String, StoreBuilder<?>> all = Maker.RUNSTONE.builders();
        all.put("headed", Stores.timestampedKeyValueStoreWithHeadersBuilder(
                RunstoneStores.timestampedKeyValueStoreWithHeaders("headed"), TEXT, TEXT));
        all.put("versions", Stores.versionedKeyValueStoreBuilder(
                RunstoneStores.versionedKeyValueStore("versions", RETENTION), TEXT, TEXT));
        all.put("headed-windows", Stores.timestampedWindowStoreWithHeadersBuilder(
                RunstoneStores.timestampedWindowStoreWithHeaders(
                        "headed-windows", RETENTION, SIZE, false), TEXT, TEXT));
        all.put("headed-sessions", Stores.sessionStoreWithHeadersBuilder(
                RunstoneStores.sessionStoreWithHeaders("headed-sessions", RETENTION),
                TEXT, TEXT));
        return all;
    }

    static TopologyWrapper topology(Map<String, StoreBuilder<?>> builders) {
        TopologyWrapper topology = new TopologyWrapper();
        topology.addSource("source", TEXT.deserializer(), TEXT.deserializer(), "in");
        topology.addProcessor("writer", () -> new Writer(List.copyOf(builders.keySet())),
                "source");
        builders.values().forEach(builder -> topology.addStateStore(builder, "writer"));
        return topology;
    }

    /** Writes each event to all stores. An event without a value deletes. */
    private static final class Writer extends ContextualProcessor<String, String, Void, Void> {
        private final List<String> names;

        Writer(List<String> names) {
            this.names = names;
        }

        @Override
        public void process(Record<String, String> event) {
            for (String name : names) {
                put(name, event);
            }
        }

        private void put(String name, Record<String, String> event) {
            String key = event.key();
            String value = event.value();
            long time = event.timestamp();
            var headed = ValueTimestampHeaders.make(value, time, event.headers());
            Windowed<String> session = new Windowed<>(key, new SessionWindow(time - 500, time));
            switch (name) {
                case "plain" -> this.<KeyValueStore<String, String>>store(name).put(key, value);
                case "timed" -> this.<TimestampedKeyValueStore<String, String>>store(name)
                        .put(key, ValueAndTimestamp.make(value, time));
                case "headed" -> this.<TimestampedKeyValueStoreWithHeaders<String, String>>
                        store(name).put(key, headed);
                case "versions" -> this.<VersionedKeyValueStore<String, String>>store(name)
                        .put(key, value, time);
                case "windows" -> this.<WindowStore<String, String>>store(name)
                        .put(key, value, time);
                case "duplicates" -> putDuplicate(this.store(name), event);
                case "timed-windows" -> this.<TimestampedWindowStore<String, String>>store(name)
                        .put(key, ValueAndTimestamp.make(value, time), time);
                case "headed-windows" -> this.<TimestampedWindowStoreWithHeaders<String, String>>
                        store(name).put(key, headed, time);
                case "sessions" -> this.<SessionStore<String, String>>store(name)
                        .put(session, value);
                case "headed-sessions" -> this.<SessionStoreWithHeaders<String, String>>
                        store(name).put(session, value == null ? null
                                : AggregationWithHeaders.make(value, event.headers()));
                default -> throw new IllegalStateException(name);
            }
        }

        /** Duplicates are never deleted, because Kafka gives deletions numbers of their own. */
        private void putDuplicate(
                WindowStore<String, String> store, Record<String, String> event) {
            if (event.value() != null) {
                store.put(event.key(), event.value(), event.timestamp());
            }
        }

        private <S extends StateStore> S store(String name) {
            return context().getStateStore(name);
        }
    }

    /** The contents of each store, as text. */
    static Map<String, List<String>> contents(Function<String, StateStore> stores) {
        Map<String, List<String>> contents = new TreeMap<>();
        for (String name : builders().keySet()) {
            StateStore store = stores.apply(name);
            if (store != null) {
                contents.put(name, contents(store));
            }
        }
        return contents;
    }

    private static List<String> contents(StateStore store) {
        List<String> all = new ArrayList<>();
        if (store instanceof VersionedKeyValueStore<?, ?>) {
            @SuppressWarnings("unchecked")
            var versions = (VersionedKeyValueStore<String, String>) store;
            for (String key : KEYS) {
                all.add(key + "=" + versions.get(key));
                for (long time = 0; time <= Events.LAST_MS; time += 1_000) {
                    all.add(key + "@" + time + "=" + versions.get(key, time));
                }
            }
        } else if (store instanceof SessionStore<?, ?>) {
            @SuppressWarnings("unchecked")
            var sessions = (SessionStore<String, Object>) store;
            KEYS.forEach(key -> add(sessions.fetch(key), all));
        } else if (store instanceof WindowStore<?, ?> windows) {
            add(windows.all(), all);
        } else {
            add(((KeyValueStore<?, ?>) store).all(), all);
        }
        return all;
    }

    private static void add(KeyValueIterator<?, ?> entries, List<String> all) {
        try (entries) {
            entries.forEachRemaining(entry -> all.add(entry.key + "=" + entry.value));
        }
    }

    /** Reports only a difference. */
    static void assertSame(Map<String, List<String>> one, Map<String, List<String>> other) {
        assertEquals(one.keySet(), other.keySet());
        for (String name : one.keySet()) {
            List<String> less = new ArrayList<>(one.get(name));
            less.removeAll(other.get(name));
            List<String> more = new ArrayList<>(other.get(name));
            more.removeAll(one.get(name));
            assertEquals(less, more, name);
            assertEquals(one.get(name), other.get(name), name);
        }
    }
}
