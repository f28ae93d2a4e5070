// Tests the task directories that Kafka removes: nothing of a closed store is left, and the store
// is restored later.

package org.apache.kafka.streams.processor.internals;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.test.MockClientSupplier;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class DirectoriesTest {
    private static final TaskId ONE = new TaskId(0, 0);
    private static final TaskId OTHER = new TaskId(0, 1);

    @TempDir
    Path temporary;

    private final Topics topics = new Topics();
    private Path directory;

    /** The system names open files by their real paths. */
    @BeforeEach
    void resolve() throws IOException {
        directory = temporary.toRealPath().resolve("state");
    }

    private Instance instance(String guarantee) {
        return new Instance(AllStores.topology(AllStores.builders()),
                Instance.config(directory, guarantee), topics);
    }

    /** Files that are or were in the directory, and that this process has open or mapped. */
    private List<String> inUse() throws IOException {
        List<String> inUse = new ArrayList<>();
        Path self = Path.of("/proc/self");
        if (!Files.isDirectory(self)) {
            return inUse;
        }
        try (Stream<Path> open = Files.list(self.resolve("fd"))) {
            for (Path one : open.toList()) {
                // The descriptor that listed them is closed by now.
                if (Files.isSymbolicLink(one)) {
                    inUse.add(Files.readSymbolicLink(one).toString());
                }
            }
        }
        inUse.addAll(Files.readAllLines(self.resolve("maps")));
        inUse.removeIf(name -> !name.contains(directory.toString()));
        return inUse;
    }

    private static List<Path> files(Path directory) throws IOException {
        if (!Files.exists(directory)) {
            return List.of();
        }
        try (Stream<Path> all = Files.walk(directory)) {
            return all.filter(Files::isRegularFile).toList();
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {StreamsConfig.AT_LEAST_ONCE, StreamsConfig.EXACTLY_ONCE_V2})
    void cleanUpLeavesNothing(String guarantee) throws IOException {
        Instance instance = instance(guarantee);
        StreamTask task = instance.active(ONE);
        instance.process(task, 0, Events.COUNT);
        instance.commit(task);
        var contents = Instance.contents(task);
        assertNotEquals(List.of(), inUse(), "this finds what is open");
        instance.close(task);
        assertEquals(List.of(), inUse());
        assertFalse(files(directory).isEmpty());

        MockClientSupplier clients = new MockClientSupplier();
        if (guarantee.equals(StreamsConfig.EXACTLY_ONCE_V2)) {
            clients.setApplicationIdForProducer("app");
        }
        try (KafkaStreams streams = new KafkaStreams(
                AllStores.topology(AllStores.builders()),
                Instance.config(directory, guarantee), clients)) {
            streams.cleanUp();
        }
        assertFalse(Files.exists(directory.resolve("app").resolve("0_0")));
        assertEquals(List.of(), files(directory).stream().filter(
                file -> !file.endsWith("kafka-streams-process-metadata")
                        && !file.endsWith(".lock")).toList());

        instance = instance(guarantee);
        task = instance.active(ONE);
        assertTrue(instance.told.contains("plain from 0 to " + Events.COUNT),
                instance.told.toString());
        AllStores.assertSame(contents, Instance.contents(task));
        instance.close(task);
    }

    /** A Kafka thread removes the directories of tasks that have moved elsewhere. */
    @ParameterizedTest
    @ValueSource(strings = {StreamsConfig.AT_LEAST_ONCE, StreamsConfig.EXACTLY_ONCE_V2})
    void anotherTaskGoesOnWhenADirectoryIsRemoved(String guarantee) throws IOException {
        Instance instance = instance(guarantee);
        StreamTask one = instance.active(ONE);
        StreamTask other = instance.active(OTHER);
        instance.process(one, 0, 200);
        instance.process(other, 0, 200);
        instance.commit(one);
        instance.commit(other);
        var contents = Instance.contents(one);
        var others = Instance.contents(other);
        assertNotEquals(contents, others);
        instance.close(one);
        instance.cleanRemovedTasks();
        assertFalse(Files.exists(directory.resolve("app").resolve("0_0")));
        assertTrue(inUse().stream().noneMatch(name -> name.contains("/0_0/")));

        AllStores.assertSame(others, Instance.contents(other));
        instance.process(other, 200, Events.COUNT);
        instance.commit(other);
        one = instance.active(ONE);
        AllStores.assertSame(contents, Instance.contents(one));
        instance.process(one, 200, Events.COUNT);
        others = Instance.contents(other);
        instance.commit(one);
        instance.close(other);
        other = instance.active(OTHER);
        AllStores.assertSame(others, Instance.contents(other));
        instance.close(other);
        instance.close(one);
    }

    /** Kafka opens stores before any task is assigned, to find the progress of each. */
    @ParameterizedTest
    @ValueSource(strings = {StreamsConfig.AT_LEAST_ONCE, StreamsConfig.EXACTLY_ONCE_V2})
    void anInstanceThatBeginsKnowsHowFarItsStoresAre(String guarantee) throws IOException {
        Instance instance = instance(guarantee);
        List<StreamTask> tasks = List.of(instance.active(ONE), instance.active(OTHER));
        for (StreamTask task : tasks) {
            instance.process(task, 0, 100 + task.id.partition());
            instance.commit(task);
        }
        var contents = Instance.contents(tasks.get(0));
        tasks.forEach(instance::close);

        instance = instance(guarantee);
        assertEquals(Map.of(ONE, sum(0), OTHER, sum(1)), instance.lookAtStores());
        assertEquals(List.of(), inUse());
        StreamTask task = instance.active(ONE);
        assertTrue(instance.told.contains("plain from 100 to 100"), instance.told.toString());
        AllStores.assertSame(contents, Instance.contents(task));
        instance.close(task);
    }

    /** The number of records in the changelogs of a partition. */
    private long sum(int partition) {
        return AllStores.builders().keySet().stream().mapToLong(store -> topics.end(
                new TopicPartition("app-" + store + "-changelog", partition))).sum();
    }

    /**
     * Kafka does not trust the state after an error: it removes it and restores the committed
     * state.
     */
    @Test
    void exactlyOnceAnUncleanEndWipesAndRestores() throws IOException {
        Instance instance = instance(StreamsConfig.EXACTLY_ONCE_V2);
        StreamTask task = instance.active(ONE);
        instance.process(task, 0, 200);
        instance.commit(task);
        var contents = Instance.contents(task);
        instance.process(task, 200, Events.COUNT);
        assertNotEquals(contents, Instance.contents(task));
        instance.closeDirty(task);
        assertEquals(List.of(), files(directory.resolve("app").resolve("0_0")));
        assertEquals(List.of(), inUse());

        instance.told.clear();
        task = instance.active(ONE);
        assertTrue(instance.told.contains("plain from 0 to 200"), instance.told.toString());
        AllStores.assertSame(contents, Instance.contents(task));
        instance.process(task, 200, Events.COUNT);
        instance.commit(task);
        contents = Instance.contents(task);
        instance.close(task);
        task = instance.active(ONE);
        AllStores.assertSame(contents, Instance.contents(task));
        instance.close(task);
    }

    /** Nothing is wiped, and the records since the last commit are read again. */
    @Test
    void atLeastOnceAnUncleanEndReadsTheRestAgain() throws IOException {
        Instance instance = instance(StreamsConfig.AT_LEAST_ONCE);
        StreamTask task = instance.active(ONE);
        instance.process(task, 0, 200);
        instance.commit(task);
        instance.process(task, 200, Events.COUNT);
        var contents = Instance.contents(task);
        instance.closeDirty(task);
        assertEquals(List.of(), inUse());

        instance.told.clear();
        task = instance.active(ONE);
        assertTrue(instance.told.contains("plain from 200 to " + Events.COUNT),
                instance.told.toString());
        AllStores.assertSame(contents, Instance.contents(task));
        instance.close(task);
    }
}
