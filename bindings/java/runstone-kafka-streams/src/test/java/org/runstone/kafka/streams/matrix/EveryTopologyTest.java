// Tests all topologies in all settings: Runstone's stores must give the same output as RocksDB's.

package org.runstone.kafka.streams.matrix;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers.RocksDBDslStoreSuppliers;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import org.runstone.kafka.streams.RunstoneDslStoreSuppliers;

/**
 * {@code -Drunstone.matrix.every=1} runs all 684 settings, in up to an hour. The default runs only
 * some.
 */
class EveryTopologyTest {
    /**
     * The default has no factor in common with the numbers of choices, so all choices are combined.
     */
    private static final int EVERY = Integer.getInteger("runstone.matrix.every", 61);
    private static final Pattern WINDOWED = Pattern.compile("(.*) \\[k+\\d@(\\d+)/(\\d+)]");
    private static final long SHORTEST_SEGMENT_MS = 60_000;

    @TempDir
    Path directory;

    static Stream<Arguments> all() {
        List<Arguments> all = new ArrayList<>();
        int number = 0;
        for (Topologies topology : Topologies.values()) {
            for (Setting setting : Setting.all(topology.hasWindows, topology.emits).toList()) {
                if (number++ % EVERY == 0) {
                    all.add(Arguments.of(topology, setting));
                }
            }
        }
        return all.stream();
    }

    private Map<String, List<Driven.Result>> run(
            Topologies topology, Setting setting, Class<?> suppliers) {
        return Driven.run(topology, setting, suppliers, directory);
    }

    @ParameterizedTest
    @MethodSource("all")
    void saysTheSame(Topologies topology, Setting setting) {
        var theirs = run(topology, setting, RocksDBDslStoreSuppliers.class);
        var ours = run(topology, setting, RunstoneDslStoreSuppliers.class);
        assertTrue(theirs.values().stream().mapToInt(List::size).sum() > 50, "too few to compare");
        if (setting.emitsOnClose()) {
            assertEquals(Map.of(), less(theirs, ours), "lost");
            assertOnlyLostByRocks(less(ours, theirs), setting);
            return;
        }
        assertSame(theirs, ours);
        if (setting.cache() != Setting.Cache.SMALL) {
            assertEndsAs(run(topology, setting, InMemoryDslStoreSuppliers.class), ours, setting);
        }
    }

    /** Limits the report to the difference, instead of thousands of results. */
    private static void assertSame(
            Map<String, List<Driven.Result>> theirs, Map<String, List<Driven.Result>> ours) {
        assertEquals(less(theirs, ours), less(ours, theirs));
        assertEquals(theirs, ours);
    }

    /** The results that occur more often in one output than in the other, or only in one. */
    private static Map<String, List<Driven.Result>> less(
            Map<String, List<Driven.Result>> one, Map<String, List<Driven.Result>> other) {
        Map<String, List<Driven.Result>> less = new HashMap<>();
        one.forEach((key, results) -> {
            List<Driven.Result> left = new ArrayList<>(results);
            other.getOrDefault(key, List.of()).forEach(left::remove);
            if (!left.isEmpty()) {
                less.put(key, left);
            }
        });
        return less;
    }

    private static void assertOnlyLostByRocks(
            Map<String, List<Driven.Result>> more, Setting setting) {
        Events events = new Events(setting);
        more.forEach((key, results) -> results.forEach(result -> assertTrue(
                isLostByRocks(key, events.streamTimeAt(result.number()), setting),
                () -> "only ours: " + key + " " + result)));
    }

    /**
     * Whether RocksDB's stores lose a result on window close. A window is emitted by the first
     * event after its end, and not more often than once a second of wall-clock time. By then stream
     * time may have advanced further. A window store of RocksDB hides windows whose start is then
     * older than the retention. So does Runstone's, except below a cache. Sliding windows never
     * have a cache here. A session store of RocksDB has dropped its segments by then. Runstone
     * shows the existing sessions, and drops segments at the next commit.
     */
    private static boolean isLostByRocks(String key, long streamTime, Setting setting) {
        Matcher window = WINDOWED.matcher(key);
        assertTrue(window.matches(), key);
        long start = Long.parseLong(window.group(2));
        long end = Long.parseLong(window.group(3));
        if (window.group(1).startsWith("session")) {
            long retention = Topologies.GAP.plus(setting.gracePeriod()).toMillis();
            long segment = Math.max(retention / 2, SHORTEST_SEGMENT_MS);
            return end / segment < (streamTime - retention) / segment;
        }
        boolean hasCache = setting.cache() != Setting.Cache.OFF
                && !window.group(1).startsWith("sliding");
        return hasCache
                && start < streamTime - Setting.WINDOW.plus(setting.gracePeriod()).toMillis();
    }

    /**
     * Compares with Kafka's stores in memory. Below a cache, Kafka reads them in a different way,
     * which gives different results before the last one. They are not compared
     *
     * <ul>
     * <li>on window close: they hide a session just when it closes. They also hide a window if the
     *     grace period is zero or a multiple of the window, as a store of RocksDB would if it were
     *     not made for that strategy;
     * <li>below a small cache, which writes to the store in the middle of an iteration over it:
     *     their iteration shows these writes. An iteration of RocksDB or Runstone shows them only
     *     in segments that it has not begun.
     * </ul>
     */
    private static void assertEndsAs(Map<String, List<Driven.Result>> theirs,
            Map<String, List<Driven.Result>> ours, Setting setting) {
        if (setting.cache() == Setting.Cache.OFF) {
            assertSame(theirs, ours);
        }
        Set<String> keys = new HashSet<>(theirs.keySet());
        keys.addAll(ours.keySet());
        for (String key : keys) {
            assertEquals(last(theirs, key), last(ours, key), key);
        }
    }

    /**
     * A session that was added and removed below the cache may be reported as removed or not at
     * all.
     */
    private static String last(Map<String, List<Driven.Result>> results, String key) {
        List<Driven.Result> all = results.getOrDefault(key, List.of());
        return all.isEmpty() ? "null" : all.get(all.size() - 1).value();
    }
}
