// Tests restoring stores from their changelogs by Kafka's own tasks, without brokers.

package org.apache.kafka.streams.processor.internals;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TopologyWrapper;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.query.Position;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;
import org.runstone.kafka.streams.RunstoneStores;

class RestoreTest {
    private static final TaskId TASK = new TaskId(0, 0);

    @TempDir
    Path directory;

    private final Topics topics = new Topics();

    /** An instance with a store of each kind. */
    private Instance instance(String name, String guarantee) {
        return instance(name, guarantee, AllStores.builders());
    }

    private Instance instance(String name, String guarantee, String store) {
        var builders = AllStores.builders();
        builders.keySet().retainAll(List.of(store));
        return instance(name, guarantee, builders);
    }

    private Instance instance(
            String name, String guarantee, Map<String, StoreBuilder<?>> builders) {
        return new Instance(AllStores.topology(builders),
                Instance.config(directory.resolve(name), guarantee), topics);
    }

    private Instance instanceWithIdleStore(String guarantee) {
        TopologyWrapper topology = AllStores.topology(AllStores.builders());
        topology.addStateStore(Stores.keyValueStoreBuilder(RunstoneStores.keyValueStore("idle"),
                Serdes.String(), Serdes.String()), "writer");
        return new Instance(topology, Instance.config(directory.resolve("one"), guarantee), topics);
    }

    static Stream<Arguments> storesAndGuarantees() {
        List<Arguments> all = new ArrayList<>();
        for (String store : AllStores.builders().keySet()) {
            all.add(Arguments.of(store, StreamsConfig.AT_LEAST_ONCE));
            all.add(Arguments.of(store, StreamsConfig.EXACTLY_ONCE_V2));
        }
        return all.stream();
    }

    @ParameterizedTest
    @ValueSource(strings = {StreamsConfig.AT_LEAST_ONCE, StreamsConfig.EXACTLY_ONCE_V2})
    void aStandbyHasWhatTheActiveTaskHas(String guarantee) {
        Instance one = instance("one", guarantee);
        Instance two = instance("two", guarantee);
        StreamTask active = one.active(TASK);
        one.process(active, 0, 150);
        one.commit(active);
        StandbyTask standby = two.standby(TASK);
        var first = Instance.contents(active);
        AllStores.assertSame(first, Instance.contents(standby));
        two.commit(standby);

        one.process(active, 150, Events.COUNT);
        two.follow();
        var last = Instance.contents(active);
        assertNotEquals(first, last);
        if (guarantee.equals(StreamsConfig.EXACTLY_ONCE_V2)) {
            // Nothing was committed.
            AllStores.assertSame(first, Instance.contents(standby));
        }
        one.commit(active);
        two.follow();
        AllStores.assertSame(last, Instance.contents(standby));
        two.close(standby);
        one.close(active);
    }

    /** Tests both a standby that is closed and one whose open stores become the active ones. */
    @ParameterizedTest
    @MethodSource("takeovers")
    void aStandbyTakesOver(String guarantee, boolean closes) {
        Instance one = instance("one", guarantee);
        Instance two = instance("two", guarantee);
        StreamTask active = one.active(TASK);
        one.process(active, 0, 200);
        one.commit(active);
        StandbyTask standby = two.standby(TASK);
        one.process(active, 200, 250);
        one.commit(active);
        var contents = Instance.contents(active);
        one.close(active);

        two.told.clear();
        if (closes) {
            two.close(standby);
            active = two.active(TASK);
        } else {
            active = two.activeOf(standby);
        }
        AllStores.assertSame(contents, Instance.contents(active));
        assertTrue(two.told.contains("headed end after 50"), two.told.toString());
        two.process(active, 250, Events.COUNT);
        two.commit(active);
        contents = Instance.contents(active);

        // The first instance returns and catches up.
        standby = one.standby(TASK);
        AllStores.assertSame(contents, Instance.contents(standby));
        // The instances swap roles again, with open stores.
        standby = becomesStandby(one, two, standby, active, contents);
        two.close(standby);
    }

    private static StandbyTask becomesStandby(Instance one, Instance two, StandbyTask standby,
            StreamTask active, Map<String, List<String>> contents) {
        StandbyTask next = two.standbyOf(active);
        StreamTask last = one.activeOf(standby);
        AllStores.assertSame(contents, Instance.contents(last));
        one.process(last, 0, 20);
        one.commit(last);
        two.follow();
        AllStores.assertSame(Instance.contents(last), Instance.contents(next));
        one.close(last);
        return next;
    }

    static Stream<Arguments> takeovers() {
        return Stream.of(StreamsConfig.AT_LEAST_ONCE, StreamsConfig.EXACTLY_ONCE_V2)
                .flatMap(guarantee -> Stream.of(
                        Arguments.of(guarantee, true), Arguments.of(guarantee, false)));
    }

    /**
     * The notifications that a listener receives when a store is restored in polls of 150 records.
     */
    private static List<String> told(String store, long from, long end) {
        List<String> told = new ArrayList<>();
        told.add(store + " from " + from + " to " + end);
        for (long at = from; at < end; at += 150) {
            long count = Math.min(150, end - at);
            told.add(store + " batch of " + count + " up to " + (at + count - 1));
        }
        told.add(store + " end after " + (end - from));
        return told;
    }

    @ParameterizedTest
    @MethodSource("storesAndGuarantees")
    void aRestoredStoreEqualsTheOneThatWrote(String store, String guarantee) {
        Instance one = instance("one", guarantee, store);
        StreamTask active = one.active(TASK);
        one.process(active, 0, Events.COUNT);
        one.commit(active);
        var contents = Instance.contents(active);
        one.close(active);

        Instance two = instance("two", guarantee, store);
        long end = topics.end(new TopicPartition("app-" + store + "-changelog", 0));
        StreamTask restored = two.begun(TASK);
        two.restore(150, 10);
        assertEquals(told(store, 0, end), two.told);
        AllStores.assertSame(contents, Instance.contents(restored));
        assertTrue(contents.get(store).size() > 2);
        two.close(restored);

        // The store has all records of the changelog, and reads nothing again.
        two.told.clear();
        restored = two.begun(TASK);
        two.restore(150, 10);
        assertEquals(told(store, end, end), two.told);
        AllStores.assertSame(contents, Instance.contents(restored));
        two.close(restored);
    }

    /** A restore continues where the closed store was. After an error, it begins again. */
    @ParameterizedTest
    @MethodSource("storesAndGuarantees")
    void aRestoreThatIsInterruptedIsBegunAgain(String store, String guarantee) {
        Instance one = instance("one", guarantee, store);
        StreamTask active = one.active(TASK);
        one.process(active, 0, Events.COUNT);
        one.commit(active);
        var contents = Instance.contents(active);
        one.close(active);

        long end = topics.end(new TopicPartition("app-" + store + "-changelog", 0));
        for (boolean clean : new boolean[] {true, false}) {
            Instance two = instance("clean-" + clean, guarantee, store);
            StreamTask restored = two.begun(TASK);
            two.restore(50, 3);
            assertNotEquals(contents, Instance.contents(restored));
            if (clean) {
                two.close(restored);
            } else {
                two.closeDirty(restored);
            }
            assertTrue(two.told.contains(store + " suspended after 150"), two.told.toString());
            two.told.clear();
            restored = two.begun(TASK);
            two.restore(150, 10);
            assertEquals(told(store, clean ? 150 : 0, end), two.told);
            AllStores.assertSame(contents, Instance.contents(restored));
            two.close(restored);
        }
    }

    /**
     * With exactly-once processing, a running thread does not notify stores of its commits. A
     * killed instance has everything committed before its last event, and reads only later records.
     * One of its stores has never been written to. It once reported no offset, so Kafka removed the
     * stores of the whole task.
     */
    @ParameterizedTest
    @ValueSource(strings = {StreamsConfig.AT_LEAST_ONCE, StreamsConfig.EXACTLY_ONCE_V2})
    void aKilledInstanceGoesOnFromItsLastCommit(String guarantee) {
        Instance one = instanceWithIdleStore(guarantee);
        StreamTask active = one.active(TASK);
        for (int from = 0; from < 300; from += 100) {
            one.process(active, from, from + 100);
            one.commitRunning(active);
        }
        var committed = Instance.contents(active);
        one.process(active, 300, 350);
        var last = Instance.contents(active);
        one.kill(active);

        boolean isExactlyOnce = guarantee.equals(StreamsConfig.EXACTLY_ONCE_V2);
        Instance again = instanceWithIdleStore(guarantee);
        active = again.active(TASK);
        assertTrue(again.told.contains("plain from 300 to " + (isExactlyOnce ? 300 : 350)),
                again.told.toString());
        AllStores.assertSame(isExactlyOnce ? committed : last, Instance.contents(active));
        again.process(active, isExactlyOnce ? 300 : 350, Events.COUNT);
        again.commitRunning(active);
        last = Instance.contents(active);
        again.close(active);
        Instance two = instance("two", guarantee);
        active = two.active(TASK);
        AllStores.assertSame(last, Instance.contents(active));
        two.close(active);
    }

    /** If changelog records carry positions, a standby knows its progress. */
    @ParameterizedTest
    @ValueSource(strings = {StreamsConfig.AT_LEAST_ONCE, StreamsConfig.EXACTLY_ONCE_V2})
    void aStandbyHasThePositionOfTheActiveTask(String guarantee) {
        List<Instance> instances = new ArrayList<>();
        for (String name : List.of("one", "two")) {
            var config = Instance.config(directory.resolve(name), guarantee);
            config.put(StreamsConfig.InternalConfig.IQ_CONSISTENCY_OFFSET_VECTOR_ENABLED, true);
            instances.add(new Instance(
                    AllStores.topology(AllStores.Maker.RUNSTONE.builders()), config, topics));
        }
        StreamTask active = instances.get(0).active(TASK);
        StandbyTask standby = instances.get(1).standby(TASK);
        Map<String, Position> positions = new HashMap<>();
        for (int from = 0; from < Events.COUNT; from += 100) {
            instances.get(0).process(active, from, from + 100);
            instances.get(0).commit(active);
            instances.get(1).follow();
            for (String store : AllStores.Maker.RUNSTONE.builders().keySet()) {
                Position position = standby.store(store).getPosition();
                assertEquals(active.store(store).getPosition(), position);
                assertNotEquals(position, positions.put(store, position.copy()));
            }
        }
        instances.get(1).close(standby);
        instances.get(0).close(active);

        // The position is stored as well.
        standby = instances.get(1).standby(TASK);
        for (String store : AllStores.Maker.RUNSTONE.builders().keySet()) {
            assertEquals(positions.get(store), standby.store(store).getPosition());
        }
        instances.get(1).close(standby);
    }
}
