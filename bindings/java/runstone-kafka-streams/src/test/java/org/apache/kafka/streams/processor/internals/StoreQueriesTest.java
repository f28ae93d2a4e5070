// Tests interactive queries of single stores: Runstone's stores answer as those of RocksDB and
// those in memory.

package org.apache.kafka.streams.processor.internals;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collections;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Stream;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.query.FailureReason;
import org.apache.kafka.streams.query.KeyQuery;
import org.apache.kafka.streams.query.Position;
import org.apache.kafka.streams.query.PositionBound;
import org.apache.kafka.streams.query.Query;
import org.apache.kafka.streams.query.QueryConfig;
import org.apache.kafka.streams.query.QueryResult;
import org.apache.kafka.streams.query.RangeQuery;
import org.apache.kafka.streams.query.TimestampedKeyQuery;
import org.apache.kafka.streams.query.TimestampedRangeQuery;
import org.apache.kafka.streams.query.WindowKeyQuery;
import org.apache.kafka.streams.query.WindowRangeQuery;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class StoreQueriesTest {
    /** Times from before the retention to beyond the last event. */
    private static final long[] TIMES = {0, Events.LAST_MS - AllStores.RETENTION.toMillis(),
        Events.LAST_MS - AllStores.RETENTION.toMillis() + 1, Events.LAST_MS * 3 / 4,
        Events.LAST_MS, Events.LAST_MS * 2};
    private static final List<String> KEYS =
            Stream.concat(AllStores.KEYS.stream(), Stream.of("", "ab", "none")).toList();

    @TempDir
    Path directory;

    private static List<Query<?>> queries() {
        List<Query<?>> all = new ArrayList<>();
        for (String key : KEYS) {
            all.add(KeyQuery.withKey(key));
            all.add(KeyQuery.withKey(key).skipCache());
            all.add(TimestampedKeyQuery.withKey(key));
            all.add(WindowRangeQuery.withKey(key));
            for (long from : TIMES) {
                for (long to : TIMES) {
                    all.add(WindowKeyQuery.withKeyAndWindowStartRange(
                            key, Instant.ofEpochMilli(from), Instant.ofEpochMilli(to)));
                }
            }
        }
        for (long from : TIMES) {
            for (long to : TIMES) {
                all.add(WindowRangeQuery.withWindowStartRange(
                        Instant.ofEpochMilli(from), Instant.ofEpochMilli(to)));
            }
        }
        List<String> bounds = new ArrayList<>(KEYS);
        bounds.add(null);
        for (String from : bounds) {
            for (String to : bounds) {
                RangeQuery<String, Object> range = RangeQuery.withRange(from, to);
                all.addAll(List.of(range, range.withAscendingKeys(), range.withDescendingKeys()));
                TimestampedRangeQuery<String, Object> timed =
                        TimestampedRangeQuery.withRange(from, to);
                all.addAll(List.of(timed, timed.withAscendingKeys(), timed.withDescendingKeys()));
            }
        }
        return all;
    }

    /**
     * Stores in memory order windows of several keys by their times, so all answers are sorted
     * here.
     */
    private static String answer(Query<?> query, QueryResult<?> result) {
        if (result.isFailure()) {
            return "failed: " + result.getFailureReason();
        }
        if (!(result.getResult() instanceof KeyValueIterator<?, ?> entries)) {
            return String.valueOf(result.getResult());
        }
        List<String> all = new ArrayList<>();
        try (entries) {
            while (entries.hasNext()) {
                KeyValue<?, ?> entry = entries.next();
                all.add(entry.key + "=" + entry.value);
            }
        }
        if (query instanceof WindowRangeQuery<?, ?> range && range.getKey().isEmpty()) {
            Collections.sort(all);
        }
        return all.toString();
    }

    /** Answers of all stores to all queries, before and after the commit. */
    private Map<String, String> answers(AllStores.Maker maker, String guarantee) {
        Map<String, String> answers = new TreeMap<>();
        Instance instance = new Instance(AllStores.topology(maker.builders()),
                Instance.config(directory.resolve(maker.name()), guarantee), new Topics());
        StreamTask task = instance.active(new TaskId(0, 0));
        instance.process(task, 0, Events.COUNT / 2);
        instance.commit(task);
        instance.process(task, Events.COUNT / 2, Events.COUNT);
        for (String when : List.of("uncommitted", "committed")) {
            for (String store : maker.builders().keySet()) {
                int number = 0;
                for (Query<?> query : queries()) {
                    QueryResult<?> result = task.store(store).query(
                            query, PositionBound.unbounded(), new QueryConfig(false));
                    answers.put(when + " " + store + " " + number++ + " " + name(query),
                            answer(query, result) + " at " + result.getPosition());
                }
            }
            instance.commit(task);
        }
        instance.close(task);
        return answers;
    }

    private static String name(Query<?> query) {
        return query.getClass().getSimpleName();
    }

    @ParameterizedTest
    @ValueSource(strings = {StreamsConfig.AT_LEAST_ONCE, StreamsConfig.EXACTLY_ONCE_V2})
    void answersAreThoseOfKafkasStores(String guarantee) {
        Map<AllStores.Maker, Map<String, String>> answers = new EnumMap<>(AllStores.Maker.class);
        for (AllStores.Maker maker : AllStores.Maker.values()) {
            answers.put(maker, answers(maker, guarantee));
        }
        Map<String, String> ours = answers.get(AllStores.Maker.RUNSTONE);
        assertTrue(ours.values().stream().filter(one -> one.startsWith("[[")).count() > 100);
        for (AllStores.Maker maker : AllStores.Maker.values()) {
            Map<String, String> theirs = answers.get(maker);
            assertEquals(theirs.keySet(), ours.keySet());
            theirs.forEach((query, answer) ->
                    assertEquals(answer, ours.get(query), maker + " " + query));
        }
    }

    /**
     * RocksDB's stores with headers answer no query. Runstone's answer like stores without headers.
     */
    @ParameterizedTest
    @ValueSource(strings = {StreamsConfig.AT_LEAST_ONCE, StreamsConfig.EXACTLY_ONCE_V2})
    void storesWithHeadersAnswerAsThoseWithout(String guarantee) {
        Instance instance = new Instance(AllStores.topology(AllStores.builders()),
                Instance.config(directory, guarantee), new Topics());
        StreamTask task = instance.active(new TaskId(0, 0));
        instance.process(task, 0, Events.COUNT);
        Map<String, String> others = Map.of("headed", "timed", "headed-windows", "timed-windows",
                "headed-sessions", "sessions");
        PositionBound none = PositionBound.unbounded();
        QueryConfig config = new QueryConfig(false);
        for (Query<?> query : queries()) {
            others.forEach((headed, plain) -> assertEquals(
                    answer(query, task.store(plain).query(query, none, config)),
                    answer(query, task.store(headed).query(query, none, config)),
                    headed + " " + query));
        }
        instance.commit(task);
        instance.close(task);
    }

    /** A bound of another partition is ignored; a bound of another topic is never reached. */
    @ParameterizedTest
    @ValueSource(strings = {StreamsConfig.AT_LEAST_ONCE, StreamsConfig.EXACTLY_ONCE_V2})
    void boundsOfPositionsAreHeeded(String guarantee) {
        Map<String, Position> bounds = Map.of(
                "reached", Position.emptyPosition().withComponent("in", 0, 99),
                "passed", Position.emptyPosition().withComponent("in", 0, 50),
                "other partition", Position.emptyPosition().withComponent("in", 1, 1000),
                "later", Position.emptyPosition().withComponent("in", 0, 100),
                "other topic", Position.emptyPosition().withComponent("elsewhere", 0, 0));
        Map<String, Query<?>> queries = Map.of("plain", KeyQuery.withKey("a"),
                "timed", TimestampedKeyQuery.withKey("a"),
                "windows", WindowKeyQuery.withKeyAndWindowStartRange(
                        "a", Instant.EPOCH, Instant.ofEpochMilli(Events.LAST_MS)),
                "sessions", WindowRangeQuery.withKey("a"));
        for (AllStores.Maker maker : AllStores.Maker.values()) {
            Instance instance = new Instance(AllStores.topology(maker.builders()),
                    Instance.config(directory.resolve(maker.name()), guarantee), new Topics());
            StreamTask task = instance.active(new TaskId(0, 0));
            instance.process(task, 0, 100);
            bounds.forEach((kind, bound) -> queries.forEach((store, query) -> {
                QueryResult<?> result = task.store(store).query(
                        query, PositionBound.at(bound), new QueryConfig(true));
                String what = maker + " " + store + " " + kind;
                boolean isBeyond = kind.equals("later") || kind.equals("other topic");
                assertEquals(isBeyond, result.isFailure(), what);
                if (isBeyond) {
                    assertEquals(FailureReason.NOT_UP_TO_BOUND, result.getFailureReason(), what);
                }
                assertEquals(Map.of(0, 99L),
                        result.getPosition().getPartitionPositions("in"), what);
                answer(query, result);
            }));
            instance.commit(task);
            instance.close(task);
        }
    }
}
