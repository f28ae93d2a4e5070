// One setting in which topologies run.

package org.runstone.kafka.streams.matrix;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.stream.Stream;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.processor.StateStore;

/**
 * Everything that may affect how a store is called.
 *
 * @param emitsOnClose whether windows are emitted once, when they close
 * @param grace the grace period, in windows
 */
record Setting(
        Cache cache, boolean emitsOnClose, int grace, String guarantee, String format, Pace pace) {
    static final Duration WINDOW = Duration.ofSeconds(40);

    /** A small cache evicts entries between commits, the latest first or last. */
    enum Cache {
        OFF(0),
        SMALL(3_000),
        LARGE(10 << 20);

        final int bytes;

        Cache(int bytes) {
            this.bytes = bytes;
        }
    }

    /** The test driver commits after each incoming record; a batch is one such record. */
    enum Pace {
        EACH(1, false),
        BATCHES(16, false),
        JUMPS(5, true);

        final int batch;
        final boolean jumps;

        Pace(int batch, boolean jumps) {
            this.batch = batch;
            this.jumps = jumps;
        }
    }

    /** All settings. Those without windows have neither grace periods nor emit strategies. */
    static Stream<Setting> all(boolean hasWindows, boolean emits) {
        List<Setting> all = new ArrayList<>();
        for (Cache cache : Cache.values()) {
            for (boolean onClose : emits ? new boolean[] {false, true} : new boolean[] {false}) {
                for (int grace : hasWindows ? new int[] {0, 1, 3} : new int[] {0}) {
                    for (String guarantee : new String[] {
                        StreamsConfig.AT_LEAST_ONCE, StreamsConfig.EXACTLY_ONCE_V2}) {
                        for (String format : new String[] {"default", "headers"}) {
                            for (Pace pace : Pace.values()) {
                                all.add(new Setting(
                                        cache, onClose, grace, guarantee, format, pace));
                            }
                        }
                    }
                }
            }
        }
        return all.stream();
    }

    Duration gracePeriod() {
        return WINDOW.multipliedBy(grace);
    }

    EmitStrategy emitStrategy() {
        return emitsOnClose ? EmitStrategy.onWindowClose() : EmitStrategy.onWindowUpdate();
    }

    /** Configures a store of one kind as this setting requires. */
    <V, S extends StateStore> Materialized<String, V, S> stored(Materialized<String, V, S> kept) {
        return cache == Cache.OFF ? kept.withCachingDisabled() : kept.withCachingEnabled();
    }

    Properties config() {
        Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, "test");
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "nobody:1");
        config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        config.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, guarantee);
        config.put(StreamsConfig.DSL_STORE_FORMAT_CONFIG, format);
        config.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, cache.bytes);
        if (pace == Pace.EACH) {
            // Otherwise the results of one second of real time are emitted together.
            config.put(StreamsConfig.InternalConfig
                    .EMIT_INTERVAL_MS_KSTREAMS_WINDOWED_AGGREGATION, 0L);
            config.put(StreamsConfig.InternalConfig
                    .EMIT_INTERVAL_MS_KSTREAMS_OUTER_JOIN_SPURIOUS_RESULTS_FIX, 0L);
        }
        return config;
    }
}
