// Tests that memory, threads and open files of the process stay constant, however often objects are
// opened and closed. The suite does a short run; `-Drunstone.leak.rounds=3600` corresponds to an
// hour of opens. The test's output shows its measurements.

package org.runstone;

import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.runstone.StoreTest.bytes;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInfo;
import org.junit.jupiter.api.io.TempDir;

class LeakTest {
    private static final int ROUNDS = Integer.getInteger("runstone.leak.rounds", 90);
    /** By this time, allocators, the JVM's compiler and the store's caches have settled. */
    private static final int SETTLING_ROUNDS = Math.max(30, ROUNDS / 10);
    private static final int COLLECTED_ROUNDS = 10;
    private static final String OPTIONS = "memory_budget_bytes = \"16M\"\n";
    /** Without a leak, allocators and the JVM vary by some megabytes, threads and files. */
    private static final Map<String, Long> SLACK =
            Map.of("resident KiB", 24L << 10, "threads", 8L, "open files", 8L);

    @TempDir
    Path directory;

    private static long status(String field) throws IOException {
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith(field)) {
                return Long.parseLong(line.replaceAll("[^0-9]", ""));
            }
        }
        throw new IOException("no " + field);
    }

    private static Map<String, Long> inUse() throws IOException {
        System.gc();
        try (Stream<Path> files = Files.list(Path.of("/proc/self/fd"))) {
            return new TreeMap<>(Map.of("resident KiB", status("VmRSS:"),
                    "threads", status("Threads:"), "open files", files.count()));
        }
    }

    private interface Work {
        void run(int round) throws IOException;
    }

    /** Runs work until the process has settled, and then for a while longer. */
    private static void staysFlat(TestInfo test, Work work) throws IOException {
        Map<String, Long> settled = Map.of();
        for (int round = 0; round < ROUNDS; round++) {
            if (round == SETTLING_ROUNDS) {
                settled = inUse();
            } else if (round % COLLECTED_ROUNDS == 0) {
                // Otherwise the heap, which is also resident, would fill up until its first
                // collection.
                System.gc();
            }
            work.run(round);
        }
        Map<String, Long> before = settled;
        Map<String, Long> end = inUse();
        String said = test.getDisplayName() + ": " + before + " after " + SETTLING_ROUNDS
                + " rounds, " + end + " after " + ROUNDS;
        System.out.println(said);
        SLACK.forEach((what, slack) ->
                assertTrue(end.get(what) - before.get(what) < slack, what + " of " + said));
    }

    @Test
    void openingAndClosing(TestInfo test) throws IOException {
        Path path = directory.resolve("store");
        Path foreign = Files.createDirectories(directory.resolve("foreign"));
        Files.writeString(foreign.resolve("CURRENT"), "MANIFEST-000002\n");
        staysFlat(test, round -> {
            Keyspace keyspace;
            try (Store store = Store.open(path, OPTIONS)) {
                keyspace = store.openKeyspace("other");
                store.write(new WriteBatch().put(keyspace, bytes("key" + round % 100),
                        new byte[1000]).put(store.defaultKeyspace(), bytes("key"), bytes("1")));
                store.openKeyspace("short-lived").put(bytes("key"), bytes("1"));
                store.dropKeyspace("short-lived");
                try (Cursor cursor = keyspace.cursor(); Transaction open = store.begin()) {
                    cursor.seekToFirst();
                    open.put(keyspace, cursor.key(), cursor.value());
                    open.commit();
                }
                // Objects that are not closed explicitly are closed with the store.
                keyspace.cursor(null, null, store.snapshot()).seekToFirst();
                store.begin().put(keyspace, bytes("lost"), bytes("1"));
                assertThrows(RunstoneException.InUse.class, () -> Store.open(path));
                assertThrows(RunstoneException.class, () -> Store.open(foreign));
                assertThrows(RunstoneException.class, () -> store.keyspace("none"));
            }
            assertThrows(RunstoneException.Closed.class, () -> keyspace.get(bytes("key")));
        });
    }

    @Test
    void readingAndWriting(TestInfo test) throws IOException {
        try (Store store = Store.open(directory.resolve("store"), OPTIONS)) {
            Keyspace keyspace = store.defaultKeyspace();
            byte[] value = new byte[1000];
            staysFlat(test, round -> {
                WriteBatch batch = new WriteBatch();
                for (int number = 0; number < 2000; number++) {
                    batch.put(keyspace, bytes("key" + number), value);
                }
                store.write(batch);
                try (Snapshot snapshot = store.snapshot();
                        Cursor cursor = keyspace.cursor(null, null, snapshot);
                        Transaction transaction = store.begin()) {
                    for (cursor.seekToFirst(); cursor.isValid(); cursor.next()) {
                        keyspace.get(cursor.key());
                    }
                    transaction.put(keyspace, bytes("key1"), value);
                }
                keyspace.get(bytes("absent"));
            });
        }
    }

    @Test
    void failures(TestInfo test) throws IOException {
        try (Store store = Store.open(directory.resolve("store"), OPTIONS)) {
            Keyspace keyspace = store.defaultKeyspace();
            byte[] tooLong = new byte[70_000];
            staysFlat(test, round -> {
                for (int number = 0; number < 500; number++) {
                    assertThrows(RunstoneException.InvalidArgument.class,
                            () -> keyspace.put(tooLong, tooLong));
                }
            });
        }
    }
}
