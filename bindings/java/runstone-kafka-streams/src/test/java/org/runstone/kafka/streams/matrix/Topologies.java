// Everything that the DSL keeps in stores: aggregations, windows, sessions, joins.

package org.runstone.kafka.streams.matrix;

import java.time.Duration;
import java.util.function.BiConsumer;
import java.util.function.Function;
import java.util.function.Supplier;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.TimeWindowedKStream;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.WindowStore;

enum Topologies implements BiConsumer<StreamsBuilder, Setting> {
    WINDOWS(true, true) {
        @Override
        public void accept(StreamsBuilder builder, Setting setting) {
            KGroupedStream<String, String> grouped = merged(builder).groupByKey();
            TimeWindows windows =
                    TimeWindows.ofSizeAndGrace(Setting.WINDOW, setting.gracePeriod());
            SlidingWindows sliding = SlidingWindows.ofTimeDifferenceAndGrace(
                    Setting.WINDOW, setting.gracePeriod());
            each("tumbling ", setting, () -> grouped.windowedBy(windows));
            each("hopping ", setting, () -> grouped.windowedBy(windows.advanceBy(GAP)));
            each("sliding ", setting, () -> grouped.windowedBy(sliding));
        }

        private void each(String name, Setting setting,
                Supplier<TimeWindowedKStream<String, String>> windowed) {
            say(name + "count", windowed.get().emitStrategy(setting.emitStrategy())
                    .count(setting.stored(Materialized.<String, Long, WindowStore<Bytes, byte[]>>
                            with(Serdes.String(), Serdes.Long()))));
            say(name + "reduce", windowed.get().emitStrategy(setting.emitStrategy())
                    .reduce(Topologies::joined, setting.stored(Materialized
                            .<String, String, WindowStore<Bytes, byte[]>>
                            with(Serdes.String(), Serdes.String()))));
            say(name + "aggregate", windowed.get().emitStrategy(setting.emitStrategy())
                    .aggregate(() -> "", (key, value, all) -> joined(all, value), setting.stored(
                            Materialized.<String, String, WindowStore<Bytes, byte[]>>
                            with(Serdes.String(), Serdes.String()))));
        }
    },

    SESSIONS(true, true) {
        @Override
        public void accept(StreamsBuilder builder, Setting setting) {
            KGroupedStream<String, String> grouped = merged(builder).groupByKey();
            SessionWindows sessions =
                    SessionWindows.ofInactivityGapAndGrace(GAP, setting.gracePeriod());
            say("session count", grouped.windowedBy(sessions)
                    .emitStrategy(setting.emitStrategy()).count(setting.stored(
                            Materialized.<String, Long, SessionStore<Bytes, byte[]>>
                            with(Serdes.String(), Serdes.Long()))));
            say("session reduce", grouped.windowedBy(sessions)
                    .emitStrategy(setting.emitStrategy()).reduce(Topologies::joined,
                            setting.stored(Materialized
                            .<String, String, SessionStore<Bytes, byte[]>>
                            with(Serdes.String(), Serdes.String()))));
            say("session aggregate", grouped.windowedBy(sessions)
                    .emitStrategy(setting.emitStrategy()).aggregate(() -> "",
                            (key, value, all) -> joined(all, value),
                            (key, one, other) -> joined(one, other),
                            setting.stored(Materialized
                            .<String, String, SessionStore<Bytes, byte[]>>
                            with(Serdes.String(), Serdes.String()))));
        }
    },

    /** Windows whose results wait in a buffer, and windows over several streams. */
    SUPPRESSED(true, false) {
        @Override
        public void accept(StreamsBuilder builder, Setting setting) {
            KGroupedStream<String, String> grouped = merged(builder).groupByKey();
            TimeWindows windows =
                    TimeWindows.ofSizeAndGrace(Setting.WINDOW, setting.gracePeriod());
            SessionWindows sessions =
                    SessionWindows.ofInactivityGapAndGrace(GAP, setting.gracePeriod());
            Materialized<String, Long, WindowStore<Bytes, byte[]>> counts =
                    Materialized.with(Serdes.String(), Serdes.Long());
            say("until close", grouped.windowedBy(windows).count(setting.stored(counts))
                    .suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded())));
            say("until time", grouped.windowedBy(windows).count(setting.stored(counts))
                    .suppress(Suppressed.untilTimeLimit(Setting.WINDOW.dividedBy(2),
                            BufferConfig.maxRecords(5).emitEarlyWhenFull())));
            Materialized<String, Long, SessionStore<Bytes, byte[]>> sizes =
                    Materialized.with(Serdes.String(), Serdes.Long());
            say("session until close", grouped.windowedBy(sessions).count(setting.stored(sizes))
                    .suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded())));
            say("cogrouped", grouped.<String>cogroup((key, value, all) -> joined(all, value))
                    .windowedBy(windows).aggregate(() -> "", setting.stored(
                            Materialized.<String, String, WindowStore<Bytes, byte[]>>
                            with(Serdes.String(), Serdes.String()))));
            say("cogrouped session",
                    grouped.<String>cogroup((key, value, all) -> joined(all, value))
                    .windowedBy(sessions).aggregate(() -> "",
                            (key, one, other) -> joined(one, other), setting.stored(
                            Materialized.<String, String, SessionStore<Bytes, byte[]>>
                            with(Serdes.String(), Serdes.String()))));
        }
    },

    STREAM_JOINS(true, false) {
        @Override
        public void accept(StreamsBuilder builder, Setting setting) {
            KStream<String, String> left = present(Events.of(builder, "left"));
            KStream<String, String> right = present(Events.of(builder, "right"));
            JoinWindows windows =
                    JoinWindows.ofTimeDifferenceAndGrace(GAP, setting.gracePeriod());
            JoinWindows before = windows.before(Setting.WINDOW).after(Duration.ZERO);
            StreamJoined<String, String, String> with =
                    StreamJoined.with(Serdes.String(), Serdes.String(), Serdes.String());
            tell("inner", left.join(right, Topologies::joined, windows, with));
            tell("left", left.leftJoin(right, Topologies::joined, windows, with));
            tell("outer", left.outerJoin(right, Topologies::joined, windows, with));
            tell("inner before", left.join(right, Topologies::joined, before, with));
            tell("outer before", left.outerJoin(right, Topologies::joined, before, with));
            tell("self", left.join(left, Topologies::joined, windows, with));
        }
    },

    TABLES(false, false) {
        @Override
        public void accept(StreamsBuilder builder, Setting setting) {
            KTable<String, String> left = table(builder, "left", setting);
            KTable<String, String> right = table(builder, "right", setting);
            Function<String, String> foreign = value -> "k" + value.charAt(value.length() - 1);
            KStream<String, String> events = present(left.toStream());
            say("inner", left.join(right, Topologies::joined, kept(setting)));
            say("left", left.leftJoin(right, Topologies::joined, kept(setting)));
            say("outer", left.outerJoin(right, Topologies::joined, kept(setting)));
            say("foreign", left.join(right, foreign, Topologies::joined, kept(setting)));
            say("foreign left",
                    left.leftJoin(right, foreign, Topologies::joined, kept(setting)));
            say("late", left.suppress(Suppressed.untilTimeLimit(
                    Setting.WINDOW.dividedBy(2), BufferConfig.unbounded())));
            tell("with table", events.leftJoin(right, Topologies::joined));
            say("reduce", events.groupByKey().reduce(Topologies::joined, kept(setting)));
            say("regrouped", left.groupBy((key, value) -> KeyValue.pair(
                            value.substring(value.length() - 1), value),
                            Grouped.with(Serdes.String(), Serdes.String()))
                    .aggregate(() -> "", (key, value, all) -> all + "+" + value,
                            (key, value, all) -> all + "-" + value, kept(setting)));
            say("filtered", right.filter((key, value) -> value.endsWith("1"), kept(setting)));
        }
    };

    /** The gap that separates sessions, and the largest distance of joined events. */
    static final Duration GAP = Setting.WINDOW.dividedBy(4);

    final boolean hasWindows;
    final boolean emits;

    Topologies(boolean hasWindows, boolean emits) {
        this.hasWindows = hasWindows;
        this.emits = emits;
    }

    private static String joined(String one, String other) {
        String text = one + "," + other;
        // Both ends of the text show its parts, and results do not grow without limit.
        return text.length() < 60 ? text
                : text.substring(0, 20) + ".." + text.substring(text.length() - 36);
    }

    private static KStream<String, String> present(KStream<String, String> stream) {
        return stream.filter((key, value) -> value != null);
    }

    /** The events with values of both topics. */
    static KStream<String, String> merged(StreamsBuilder builder) {
        return present(Events.of(builder, "left").merge(Events.of(builder, "right")));
    }

    private static Materialized<String, String, KeyValueStore<Bytes, byte[]>> kept(
            Setting setting) {
        return setting.stored(Materialized.with(Serdes.String(), Serdes.String()));
    }

    private static KTable<String, String> table(
            StreamsBuilder builder, String topic, Setting setting) {
        return Events.of(builder, topic).toTable(kept(setting));
    }

    private static void say(String kind, KTable<?, ?> table) {
        tell(kind, table.toStream());
    }

    private static void tell(String kind, KStream<?, ?> stream) {
        stream.map((key, value) -> KeyValue.pair(kind + " " + key, "" + value))
                .to("out", Produced.with(Serdes.String(), Serdes.String()));
    }
}
