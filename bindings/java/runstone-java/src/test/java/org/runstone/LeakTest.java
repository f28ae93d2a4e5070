// The native memory of the process stays where it is, however often objects are opened and closed.
// A short run in the suite; `-Drunstone.leak.rounds=N` makes it longer.

package org.runstone;

import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.runstone.StoreTest.bytes;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class LeakTest {
    private static final int ROUNDS = Integer.getInteger("runstone.leak.rounds", 30);
    private static final String OPTIONS = "memory_budget_bytes = \"16M\"\n";
    /** Allocators and the JVM move by some megabytes without a leak. */
    private static final long SLACK_KILOBYTES = 24 << 10;

    @TempDir
    Path directory;

    private static long residentKilobytes() throws IOException {
        System.gc();
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith("VmRSS:")) {
                return Long.parseLong(line.replaceAll("[^0-9]", ""));
            }
        }
        throw new IOException("no VmRSS");
    }

    private interface Work {
        void run(int round) throws IOException;
    }

    /** Runs work until its memory has settled, and then a while longer. */
    private static void staysFlat(Work work) throws IOException {
        for (int round = 0; round < ROUNDS; round++) {
            work.run(round);
        }
        long settled = residentKilobytes();
        for (int round = 0; round < 2 * ROUNDS; round++) {
            work.run(round);
        }
        long grown = residentKilobytes() - settled;
        assertTrue(grown < SLACK_KILOBYTES,
                grown + " KiB more than " + settled + " in " + ROUNDS + " rounds");
    }

    @Test
    void openingAndClosing() throws IOException {
        staysFlat(round -> {
            try (Store store = Store.open(directory.resolve("store"), OPTIONS)) {
                Keyspace keyspace = store.openKeyspace("other");
                keyspace.put(bytes("key" + round), new byte[1000]);
            }
        });
    }

    @Test
    void readingAndWriting() throws IOException {
        try (Store store = Store.open(directory.resolve("store"), OPTIONS)) {
            Keyspace keyspace = store.defaultKeyspace();
            byte[] value = new byte[1000];
            staysFlat(round -> {
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
                // One that nobody closes goes with the store, and a small one at that.
                keyspace.get(bytes("absent"));
            });
        }
    }

    @Test
    void failures() throws IOException {
        try (Store store = Store.open(directory.resolve("store"), OPTIONS)) {
            Keyspace keyspace = store.defaultKeyspace();
            byte[] tooLong = new byte[70_000];
            staysFlat(round -> {
                for (int number = 0; number < 500; number++) {
                    try {
                        keyspace.put(tooLong, tooLong);
                    } catch (RunstoneException.InvalidArgument expected) {
                        continue;
                    }
                    throw new IllegalStateException("it is too long");
                }
            });
        }
    }
}
