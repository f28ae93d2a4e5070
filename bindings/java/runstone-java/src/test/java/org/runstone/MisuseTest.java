// What users do wrong: each is an exception that says so, and never a crash.

package org.runstone;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.runstone.StoreTest.bytes;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;
import org.runstone.RunstoneException.Code;

class MisuseTest {
    @TempDir
    Path directory;

    private Store store;
    private Keyspace keyspace;

    @BeforeEach
    void open() {
        store = Store.open(directory.resolve("store"));
        keyspace = store.defaultKeyspace();
        keyspace.put(bytes("a"), bytes("1"));
    }

    @AfterEach
    void close() {
        store.close();
    }

    private static void refuses(Code code, String word, Executable work) {
        RunstoneException refused = assertThrows(RunstoneException.class, work);
        assertEquals(code, refused.code(), refused.getMessage());
        assertTrue(refused.getMessage().contains(word), refused.getMessage());
    }

    @Test
    void whatIsClosedStaysClosed() {
        Cursor cursor = keyspace.cursor();
        cursor.seekToFirst();
        Snapshot snapshot = store.snapshot();
        Transaction transaction = store.begin();
        WriteBatch batch = new WriteBatch().put(keyspace, bytes("a"), bytes("2"));
        store.close();
        store.close();
        List<Executable> uses = List.of(
                () -> keyspace.get(bytes("a")), () -> keyspace.put(bytes("a"), bytes("2")),
                () -> keyspace.get(bytes("a"), snapshot), () -> keyspace.cursor(),
                () -> keyspace.deleteRange(null, null),
                () -> keyspace.multiGet(List.of(bytes("a"))),
                () -> cursor.isValid(), () -> cursor.next(), () -> cursor.seek(bytes("a")),
                () -> transaction.get(keyspace, bytes("a")), () -> transaction.commit(),
                () -> store.write(batch), () -> store.flush(), () -> store.snapshot(),
                () -> store.begin(), () -> store.metrics(), () -> store.keyspaces());
        for (Executable use : uses) {
            assertThrows(RunstoneException.Closed.class, use);
        }
        cursor.close();
        snapshot.close();
        transaction.close();
    }

    @Test
    void handlesThatNeverWereAreRefused() {
        for (long handle : new long[] {0, 1, -1, Long.MAX_VALUE, keyspace.handle() + 1}) {
            assertThrows(RunstoneException.class, () -> Native.get(handle, 0, bytes("a")));
            assertThrows(RunstoneException.class, () -> Native.closeCursor(handle));
            assertThrows(RunstoneException.class, () -> Native.closeStore(handle));
        }
        // A handle of another kind.
        assertThrows(RunstoneException.class,
                () -> Native.get(store.handle(), 0, bytes("a")));
    }

    @Test
    void nullsAreRefused() {
        assertThrows(NullPointerException.class, () -> keyspace.get((byte[]) null));
        assertThrows(NullPointerException.class, () -> keyspace.put(bytes("a"), null));
        assertThrows(NullPointerException.class, () -> Store.open(directory, null));
        assertThrows(NullPointerException.class,
                () -> new WriteBatch().put(keyspace, bytes("a"), (byte[]) null));
        // Past Java's checks, the native side has its own.
        long handle = keyspace.handle();
        refuses(Code.INVALID_ARGUMENT, "null", () -> Native.get(handle, 0, null));
        refuses(Code.INVALID_ARGUMENT, "null", () -> Native.put(handle, bytes("a"), null, false));
        refuses(Code.INVALID_ARGUMENT, "null", () -> Native.open(null, ""));
        refuses(Code.INVALID_ARGUMENT, "null",
                () -> Native.write(store.handle(), null, new byte[0], 0, false));
        refuses(Code.INVALID_ARGUMENT, "null",
                () -> Native.putDirect(handle, null, 0, 0, null, 0, 0, false));
    }

    @Test
    void brokenOperationsAndPlacesAreRefused() {
        long[] keyspaces = {keyspace.handle()};
        for (byte[] operations : new byte[][] {{1}, {9, 0, 0, 0, 0, 0, 0, 0, 0, 0},
            {1, 7, 0, 0, 0, 0, 0, 0, 0, 0}, {1, 0, 5, 0, 0, 0, 0, 0, 0, 0},
            {1, 0, -1, -1, -1, -1, -1, -1, -1, -1}}) {
            assertThrows(RunstoneException.InvalidArgument.class, () -> Native.write(
                    store.handle(), keyspaces, operations, operations.length, false));
        }
        assertThrows(RunstoneException.InvalidArgument.class,
                () -> Native.write(store.handle(), keyspaces, new byte[4], 5, false));
        assertThrows(RunstoneException.InvalidArgument.class,
                () -> Native.write(store.handle(), keyspaces, new byte[4], -1, false));
        ByteBuffer buffer = ByteBuffer.allocateDirect(8);
        for (int[] place : new int[][] {{0, 9}, {-1, 2}, {8, 1}, {2, -1}, {1, Integer.MAX_VALUE}}) {
            assertThrows(RunstoneException.InvalidArgument.class,
                    () -> Native.putDirect(keyspace.handle(), buffer, place[0], place[1],
                            buffer, 0, 1, false));
        }
        assertThrows(RunstoneException.InvalidArgument.class, () -> Native.putDirect(
                keyspace.handle(), ByteBuffer.allocate(8), 0, 1, buffer, 0, 1, false));
    }

    @Test
    void hugeSizesAreRefused() {
        refuses(Code.INVALID_ARGUMENT, "65535", () -> keyspace.put(new byte[65_536], bytes("")));
        refuses(Code.INVALID_ARGUMENT, "65535", () ->
                store.write(new WriteBatch().put(keyspace, new byte[70_000], bytes(""))));
        byte[] longest = new byte[65_535];
        keyspace.put(longest, new byte[8 << 20]);
        assertEquals(8 << 20, keyspace.get(longest).length);
    }

    @Test
    void directoriesOfOthersAreRefused() throws IOException {
        Path leveldb = Files.createDirectories(directory.resolve("leveldb"));
        Files.writeString(leveldb.resolve("CURRENT"), "MANIFEST-000002\n");
        Files.write(leveldb.resolve("MANIFEST-000002"), new byte[50]);
        Files.write(leveldb.resolve("000003.log"), new byte[10]);
        RunstoneException refused =
                assertThrows(RunstoneException.class, () -> Store.open(leveldb));
        assertTrue(List.of(Code.FOREIGN_FILES, Code.NOT_A_STORE, Code.CORRUPTION)
                .contains(refused.code()), refused.toString());
        Path file = Files.writeString(directory.resolve("file"), "text");
        assertThrows(RunstoneException.class, () -> Store.open(file));
        refuses(Code.NOT_A_STORE, "nothing",
                () -> Store.open(directory.resolve("nothing"), "create_if_missing = false"));
    }

    @Test
    void oneStoreIsOpenOnce() throws Exception {
        assertThrows(RunstoneException.InUse.class, () -> Store.open(directory.resolve("store")));
        Process other = new ProcessBuilder(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "-cp", System.getProperty("java.class.path"), OtherProcess.class.getName(),
                directory.resolve("store").toString()).redirectErrorStream(true).start();
        String said = new String(other.getInputStream().readAllBytes());
        assertEquals(0, other.waitFor(), said);
        assertTrue(said.contains("IN_USE"), said);
    }

    /** Opens the store that the test has open. */
    static final class OtherProcess {
        public static void main(String[] arguments) {
            try (Store store = Store.open(Path.of(arguments[0]))) {
                System.out.println("opened " + store);
            } catch (RunstoneException.InUse refused) {
                System.out.println(refused.code());
            }
        }
    }

    @Test
    void optionsAreChecked() {
        refuses(Code.INVALID_ARGUMENT, "memory_budget_bytes",
                () -> Store.open(directory.resolve("other"), "memory_budget = 5"));
        refuses(Code.INVALID_ARGUMENT, "preset",
                () -> store.openKeyspace("other", "preset = 'nice'"));
        refuses(Code.UNKNOWN_KEYSPACE, "other", () -> store.keyspace("other"));
    }

    @Test
    void aCursorOnNoEntryShowsNothing() {
        try (Cursor cursor = keyspace.cursor()) {
            assertThrows(IllegalStateException.class, cursor::key);
            cursor.seek(bytes("z"));
            assertFalse(cursor.isValid());
            assertThrows(IllegalStateException.class, cursor::next);
            assertThrows(IllegalStateException.class, cursor::value);
        }
    }

    @Test
    void othersMayCloseTheStoreAtAnyTime() throws Exception {
        for (int round = 0; round < 5; round++) {
            AtomicInteger closed = new AtomicInteger();
            List<Thread> threads = new ArrayList<>();
            Store open = store;
            Keyspace used = keyspace;
            for (int number = 0; number < 4; number++) {
                byte[] key = {(byte) number};
                threads.add(new Thread(() -> {
                    try {
                        while (true) {
                            used.put(key, key);
                            used.get(key);
                            try (Cursor cursor = used.cursor()) {
                                cursor.seekToFirst();
                            }
                        }
                    } catch (RunstoneException.Closed expected) {
                        closed.incrementAndGet();
                    }
                }));
            }
            threads.forEach(Thread::start);
            Thread.sleep(20);
            open.close();
            for (Thread thread : threads) {
                thread.join();
            }
            assertEquals(4, closed.get());
            open();
        }
    }

    @Test
    void aLibraryOfAnotherVersionIsRefused() {
        Library.check(Native.version(), Library.ownVersion(), "in the jar");
        refuses(Code.LIBRARY, "version 9.9.9",
                () -> Library.check("9.9.9", Library.ownVersion(), "there"));
    }
}
