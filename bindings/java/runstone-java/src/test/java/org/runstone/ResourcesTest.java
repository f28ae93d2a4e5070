// Tests many stores that share memory, threads and files, and stores that are never closed.

package org.runstone;

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
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class ResourcesTest {
    @TempDir
    Path directory;

    private static byte[] bytes(String text) {
        return text.getBytes(UTF_8);
    }

    /** The descriptors of files in the test's directory. */
    private int descriptors() throws IOException {
        int count = 0;
        try (Stream<Path> all = Files.list(Path.of("/proc/self/fd"))) {
            for (Path one : all.toList()) {
                try {
                    count += Files.readSymbolicLink(one).startsWith(directory) ? 1 : 0;
                } catch (IOException closedMeanwhile) {
                    // The descriptor of the listing itself is among them.
                    continue;
                }
            }
        }
        return count;
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

    private static void settles(BooleanSupplier isSo, String what) throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (!isSo.getAsBoolean()) {
            assertTrue(System.nanoTime() < end, what);
            Thread.sleep(20);
        }
    }

    @Test
    void aThousandStoresTakeFewThreadsAndDescriptors() throws Exception {
        int before = threads();
        List<Store> stores = new ArrayList<>();
        String options = "memory_budget_bytes = '256M'\nbackground_threads = 4\n"
                + "max_open_files = 100";
        try (Resources resources = Resources.of(options)) {
            for (int at = 0; at < 1000; at++) {
                stores.add(resources.open(directory.resolve("s" + at)));
                stores.get(at).defaultKeyspace().put(bytes("k"), bytes("of " + at));
            }
            assertEquals(1000, resources.stores());
        }
        assertEquals(before + 4, threads());
        for (int at = 0; at < 1000; at += 3) {
            stores.get(at).flush();
        }
        settles(() -> {
            try {
                return descriptors() < 1110;
            } catch (IOException failed) {
                throw new IllegalStateException(failed);
            }
        }, "a lock each, and a hundred more");
        for (int at = 0; at < 1000; at++) {
            assertArrayEquals(bytes("of " + at), stores.get(at).defaultKeyspace().get(bytes("k")));
        }
        stores.forEach(Store::close);
        assertEquals(before, threads(), "the last store takes the threads with it");
        assertEquals(0, descriptors());
    }

    private void open40() {
        for (int at = 0; at < 40; at++) {
            Store store = Store.open(directory.resolve("u" + at));
            store.defaultKeyspace().put(bytes("k"), bytes("of " + at));
            store.defaultKeyspace().cursor().seekToFirst();
        }
    }

    @Test
    void whatNobodyCanReachIsClosed() throws Exception {
        int before = threads();
        open40();
        settles(() -> {
            System.gc();
            try {
                return descriptors() == 0 && threads() == before;
            } catch (IOException failed) {
                throw new IllegalStateException(failed);
            }
        }, "stores that were forgotten are closed");
        try (Store again = Store.open(directory.resolve("u7"))) {
            assertArrayEquals(bytes("of 7"), again.defaultKeyspace().get(bytes("k")));
        }
    }

    /** A keyspace keeps its store open, although nothing else refers to the store. */
    @Test
    void whatIsUsedStays() {
        Keyspace keyspace = Store.open(directory.resolve("used")).defaultKeyspace();
        for (int round = 0; round < 20; round++) {
            System.gc();
            keyspace.put(bytes("k" + round), bytes("v"));
        }
        keyspace.store().close();
    }

    @Test
    void followersShareToo() throws Exception {
        int before = threads();
        Path path = directory.resolve("followed");
        try (Store store = Store.open(path, "background_threads = 1")) {
            Keyspace keyspace = store.defaultKeyspace();
            keyspace.put(bytes("k"), bytes("1"));
            Resources resources = Resources.of(
                    "memory_budget_bytes = '32M'\nbackground_threads = 2");
            List<Store> followers = new ArrayList<>();
            for (int at = 0; at < 10; at++) {
                followers.add(resources.follow(path));
            }
            // A store that is opened for reading follows its writer.
            followers.add(resources.open(path, "read_only = true"));
            assertEquals(11, resources.stores());
            assertEquals(before + 3, threads(), "one for the store, and two for all followers");
            keyspace.put(bytes("k"), bytes("2"));
            for (Store follower : followers) {
                assertArrayEquals(bytes("1"), follower.defaultKeyspace().get(bytes("k")));
                assertTrue(follower.refresh());
                assertArrayEquals(bytes("2"), follower.defaultKeyspace().get(bytes("k")));
                follower.close();
            }
            assertEquals(0, resources.stores());
            var twice = assertThrows(RunstoneException.InvalidArgument.class,
                    () -> resources.follow(path, "max_open_files = 30"));
            assertTrue(twice.getMessage().contains("max_open_files"), twice.getMessage());
            resources.close();
            assertThrows(RunstoneException.Closed.class, () -> resources.follow(path));
        }
        assertEquals(before, threads());
    }

    @Test
    void mistakesAreTold() {
        var unknown = assertThrows(RunstoneException.InvalidArgument.class,
                () -> Resources.of("threads = 3"));
        assertTrue(unknown.getMessage().contains("background_threads"), unknown.getMessage());
        Resources resources = Resources.of("");
        var twice = assertThrows(RunstoneException.InvalidArgument.class,
                () -> resources.open(directory.resolve("s"), "background_threads = 3"));
        assertTrue(twice.getMessage().contains("background_threads"), twice.getMessage());
        resources.close();
        assertThrows(RunstoneException.Closed.class,
                () -> resources.open(directory.resolve("s")));
        try (Store store = Store.open(directory.resolve("s"))) {
            var own = assertThrows(RunstoneException.InUse.class,
                    () -> Store.open(directory.resolve("s")));
            assertTrue(own.getMessage().contains("by this process"), own.getMessage());
            store.flush();
        }
    }
}
