// Tests that all stores of an instance share the same threads, memory and files.

package org.runstone.kafka.streams;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.ProcessorStateException;
import org.apache.kafka.streams.processor.internals.ProcessorRecordContext;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.test.InternalMockProcessorContext;
import org.apache.kafka.test.StreamsTestUtils;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class SharedResourcesTest {
    @TempDir
    Path directory;

    private KeyValueStore<Bytes, byte[]> open(String instance, String name, String... settings)
            throws IOException {
        var config = StreamsTestUtils.getStreamsConfig();
        for (int at = 0; at < settings.length; at += 2) {
            config.put(settings[at], settings[at + 1]);
        }
        Path task = Files.createDirectories(directory.resolve(instance).resolve("0_0"));
        var context = new InternalMockProcessorContext<Object, Object>(task.toFile(),
                Serdes.Bytes(), Serdes.ByteArray(), new StreamsConfig(config));
        context.setRecordContext(
                new ProcessorRecordContext(0, 7, 0, "input", new RecordHeaders()));
        KeyValueStore<Bytes, byte[]> store = RunstoneStores.keyValueStore(name).get();
        store.init(context, store);
        return store;
    }

    /** The threads of stores in this process. */
    private static int threads() throws IOException {
        int count = 0;
        try (Stream<Path> all = Files.list(Path.of("/proc/self/task"))) {
            for (Path one : all.toList()) {
                try {
                    count += Files.readString(one.resolve("comm")).startsWith("runstone") ? 1 : 0;
                } catch (IOException endedMeanwhile) {
                    continue;
                }
            }
        }
        return count;
    }

    @Test
    void storesOfAnInstanceShareAndInstancesDoNot() throws IOException {
        int before = threads();
        String[] settings = {SharedResources.OPTIONS, "background_threads = 3"};
        List<KeyValueStore<Bytes, byte[]>> stores = new ArrayList<>();
        for (int at = 0; at < 50; at++) {
            stores.add(open("one", "store-" + at, settings));
            byte[] value = ("of " + at).getBytes(UTF_8);
            stores.get(at).put(Bytes.wrap(new byte[] {1}), value);
        }
        assertEquals(before + 3, threads());
        KeyValueStore<Bytes, byte[]> other = open("two", "store-0", settings);
        assertEquals(before + 6, threads());
        for (int at = 0; at < 50; at++) {
            byte[] value = ("of " + at).getBytes(UTF_8);
            assertArrayEquals(value, stores.get(at).get(Bytes.wrap(new byte[] {1})));
            stores.get(at).close();
        }
        assertEquals(before + 3, threads());
        other.close();
        assertEquals(before, threads());
    }

    @Test
    void aStoreThatCannotBeOpenedKeepsNothing() throws IOException {
        int before = threads();
        var refused = assertThrows(ProcessorStateException.class,
                () -> open("one", "store", Backing.OPTIONS, "memory_budget_bytes = '8M'"));
        assertTrue(refused.getMessage().contains("memory_budget_bytes"), refused.getMessage());
        refused = assertThrows(ProcessorStateException.class,
                () -> open("one", "store", SharedResources.OPTIONS, "threads = 8"));
        assertTrue(refused.getMessage().contains(SharedResources.OPTIONS), refused.getMessage());
        assertEquals(before, threads());
    }
}
