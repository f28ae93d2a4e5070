// Tests mistakes of users: each causes an exception that explains it, and never a crash.

package org.runstone;

import static java.nio.charset.StandardCharsets.ISO_8859_1;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.runstone.StoreTest.bytes;

import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.ReadOnlyBufferException;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
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
    void whatIsClosedAloneIsRefusedAlone() {
        Cursor cursor = keyspace.cursor();
        cursor.seekToFirst();
        cursor.close();
        assertThrows(RunstoneException.Closed.class, cursor::key);
        Snapshot snapshot = store.snapshot();
        snapshot.close();
        assertThrows(RunstoneException.Closed.class, () -> keyspace.get(bytes("a"), snapshot));
        assertThrows(RunstoneException.Closed.class, () -> keyspace.cursor(null, null, snapshot));
        Transaction committed = store.begin();
        committed.commit();
        assertThrows(RunstoneException.Closed.class, committed::commit);
        Keyspace other = store.openKeyspace("other");
        try (Cursor before = other.cursor()) {
            other.close();
            before.seekToFirst();
            assertFalse(before.isValid());
        }
        WriteBatch batch = new WriteBatch().put(other, bytes("a"), bytes("2"));
        assertThrows(RunstoneException.Closed.class, () -> store.write(batch));
        Keyspace dropped = store.keyspace("other");
        store.dropKeyspace("other");
        refuses(Code.UNKNOWN_KEYSPACE, "other", () -> dropped.put(bytes("a"), bytes("2")));
        assertEquals("1", StoreTest.text(keyspace.get(bytes("a"))));
    }

    @Test
    void objectsOfAnotherStoreAreRefused() {
        try (Store other = Store.open(directory.resolve("other"))) {
            Keyspace theirs = other.defaultKeyspace();
            Snapshot moment = other.snapshot();
            refuses(Code.INVALID_ARGUMENT, "another store",
                    () -> keyspace.get(bytes("a"), moment));
            refuses(Code.INVALID_ARGUMENT, "another store",
                    () -> keyspace.cursor(null, null, moment));
            refuses(Code.INVALID_ARGUMENT, "another store", () ->
                    store.write(new WriteBatch().put(theirs, bytes("a"), bytes("2"))));
            refuses(Code.INVALID_ARGUMENT, "another store", () ->
                    store.write(new WriteBatch().put(keyspace, bytes("a"), bytes("2"))
                            .put(theirs, bytes("a"), bytes("2"))));
            try (Transaction open = store.begin()) {
                refuses(Code.INVALID_ARGUMENT, "another store",
                        () -> open.put(theirs, bytes("a"), bytes("2")));
            }
            assertNull(theirs.get(bytes("a")));
        }
        assertEquals("1", StoreTest.text(keyspace.get(bytes("a"))));
    }

    @Test
    void namesThatCannotBeAreRefused() {
        for (String name : List.of("", "a\0b", "\ud800", "n".repeat(70_000))) {
            assertThrows(RunstoneException.InvalidArgument.class, () -> store.openKeyspace(name));
        }
        assertEquals(List.of("default"), store.keyspaces());
    }

    @Test
    void aCursorThatTwoThreadsUseIsBusy() throws Exception {
        try (Cursor cursor = keyspace.cursor()) {
            List<Code> refused = Collections.synchronizedList(new ArrayList<>());
            Runnable walk = () -> {
                for (int round = 0; round < 20_000; round++) {
                    try {
                        long answer = Native.fetch(cursor.handle(), 0, null, new byte[64]);
                        assertEquals(10, (int) answer);
                    } catch (RunstoneException error) {
                        refused.add(error.code());
                    }
                }
            };
            Thread other = new Thread(walk);
            other.start();
            walk.run();
            other.join();
            assertTrue(Set.of(Code.BUSY).containsAll(refused), refused.toString());
        }
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
        assertThrows(NullPointerException.class, () -> Store.open(null));
        assertThrows(NullPointerException.class, () -> store.write(null));
        assertThrows(NullPointerException.class, () -> store.begin(null));
        assertThrows(NullPointerException.class, () -> store.checkpoint(null));
        refuses(Code.INVALID_ARGUMENT, "null", () -> store.openKeyspace(null));
        refuses(Code.INVALID_ARGUMENT, "null", () -> store.dropKeyspace(null));
        assertThrows(NullPointerException.class, () -> keyspace.get(bytes("a"), null));
        assertThrows(NullPointerException.class, () -> keyspace.delete(null));
        assertThrows(NullPointerException.class, () -> keyspace.prefix(null));
        assertThrows(NullPointerException.class, () -> keyspace.multiGet(null));
        assertThrows(NullPointerException.class,
                () -> keyspace.multiGet(Collections.singletonList(null)));
        assertThrows(NullPointerException.class, () -> keyspace.get(null, ByteBuffer.allocate(1)));
        assertThrows(NullPointerException.class, () -> keyspace.put(ByteBuffer.allocate(1), null));
        WriteBatch batch = new WriteBatch();
        assertThrows(NullPointerException.class,
                () -> batch.put(keyspace, bytes("a"), (byte[]) null));
        assertThrows(NullPointerException.class, () -> batch.put(null, bytes("a"), bytes("")));
        assertThrows(NullPointerException.class, () -> batch.delete(keyspace, null));
        assertTrue(batch.isEmpty());
        try (Cursor cursor = keyspace.cursor(); Transaction open = store.begin()) {
            assertThrows(NullPointerException.class, () -> cursor.seek(null));
            assertThrows(NullPointerException.class, () -> open.get(null, bytes("a")));
            assertThrows(NullPointerException.class, () -> open.put(keyspace, bytes("a"), null));
        }
        // Besides Java's checks, the native side has its own.
        long handle = keyspace.handle();
        refuses(Code.INVALID_ARGUMENT, "null", () -> Native.get(handle, 0, null));
        refuses(Code.INVALID_ARGUMENT, "null", () -> Native.put(handle, bytes("a"), null, 0, -1));
        refuses(Code.INVALID_ARGUMENT, "durability 3",
                () -> Native.put(handle, bytes("a"), bytes("a"), 3, -1));
        refuses(Code.INVALID_ARGUMENT, "null", () -> Native.open(null, "", 0, null));
        refuses(Code.INVALID_ARGUMENT, "null",
                () -> Native.write(store.handle(), null, new byte[0], 0, 0, -1));
        refuses(Code.INVALID_ARGUMENT, "null",
                () -> Native.putDirect(handle, null, 0, 0, null, 0, 0, 0, -1));
    }

    @Test
    void brokenOperationsAndPlacesAreRefused() {
        long[] keyspaces = {keyspace.handle()};
        for (byte[] operations : new byte[][] {{1}, {9, 0, 0, 0, 0, 0, 0, 0, 0, 0},
            {1, 7, 0, 0, 0, 0, 0, 0, 0, 0}, {1, 0, 5, 0, 0, 0, 0, 0, 0, 0},
            {1, 0, -1, -1, -1, -1, -1, -1, -1, -1}}) {
            assertThrows(RunstoneException.InvalidArgument.class, () -> Native.write(
                    store.handle(), keyspaces, operations, operations.length, 0, -1));
        }
        assertThrows(RunstoneException.InvalidArgument.class,
                () -> Native.write(store.handle(), keyspaces, new byte[4], 5, 0, -1));
        assertThrows(RunstoneException.InvalidArgument.class,
                () -> Native.write(store.handle(), keyspaces, new byte[4], -1, 0, -1));
        ByteBuffer buffer = ByteBuffer.allocateDirect(8);
        for (int[] place : new int[][] {{0, 9}, {-1, 2}, {8, 1}, {2, -1}, {1, Integer.MAX_VALUE}}) {
            assertThrows(RunstoneException.InvalidArgument.class,
                    () -> Native.putDirect(keyspace.handle(), buffer, place[0], place[1],
                            buffer, 0, 1, 0, -1));
        }
        assertThrows(RunstoneException.InvalidArgument.class, () -> Native.putDirect(
                keyspace.handle(), ByteBuffer.allocate(8), 0, 1, buffer, 0, 1, 0, -1));
    }

    @Test
    void hugeSizesAreRefused() throws IOException {
        refuses(Code.INVALID_ARGUMENT, "65535", () -> keyspace.put(new byte[65_536], bytes("")));
        refuses(Code.INVALID_ARGUMENT, "65535", () ->
                store.write(new WriteBatch().put(keyspace, new byte[70_000], bytes(""))));
        byte[] longest = new byte[65_535];
        keyspace.put(longest, new byte[8 << 20]);
        assertEquals(8 << 20, keyspace.get(longest).length);
        refuses(Code.INVALID_ARGUMENT, "in parts",
                () -> keyspace.multiGet(Collections.nCopies(40_000, longest)));
        assertThrows(NegativeArraySizeException.class, () -> new WriteBatch(-1));
        try (FileChannel file = FileChannel.open(directory.resolve("huge"),
                StandardOpenOption.CREATE, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            // A sparse file, which uses neither memory nor disk space.
            ByteBuffer huge = file.map(FileChannel.MapMode.READ_WRITE, 0, Integer.MAX_VALUE);
            refuses(Code.INVALID_ARGUMENT, "65535", () -> keyspace.put(huge, huge));
            refuses(Code.INVALID_ARGUMENT, "in parts", () -> new WriteBatch().put(keyspace,
                    ByteBuffer.wrap(bytes("a")), huge));
        }
    }

    @Test
    void readOnlyBuffersAreNotWritten() {
        for (ByteBuffer room : List.of(ByteBuffer.allocate(1), ByteBuffer.allocateDirect(1))) {
            ByteBuffer key = ByteBuffer.allocateDirect(1).put(0, (byte) 'a');
            assertThrows(ReadOnlyBufferException.class,
                    () -> keyspace.get(key, room.asReadOnlyBuffer()));
            assertEquals(0, room.get(0));
        }
    }

    @Test
    void directoriesOfOthersAreRefused() throws IOException {
        Path leveldb = Files.createDirectories(directory.resolve("leveldb"));
        Files.writeString(leveldb.resolve("CURRENT"), "MANIFEST-000002\n");
        Files.write(leveldb.resolve("MANIFEST-000002"), new byte[50]);
        Files.write(leveldb.resolve("000003.log"), new byte[10]);
        refuses(Code.FOREIGN_FILES, "runstone import", () -> Store.open(leveldb));
        Path file = Files.writeString(directory.resolve("file"), "text");
        assertThrows(RunstoneException.class, () -> Store.open(file));
        refuses(Code.NOT_A_STORE, "nothing",
                () -> Store.open(directory.resolve("nothing"), "create_if_missing = false"));
    }

    @Test
    void oneStoreIsOpenOnce() throws Exception {
        assertThrows(RunstoneException.InUse.class, () -> Store.open(directory.resolve("store")));
        try (Store view = Store.open(directory.resolve("store"), "read_only = true")) {
            Keyspace keyspace = view.defaultKeyspace();
            assertThrows(RunstoneException.class, () -> keyspace.put(new byte[1], new byte[1]));
        }
        elsewhere("IN_USE");
    }

    /** Makes another process open the test's store twice, and checks its output. */
    private void elsewhere(String expected, String... options) throws Exception {
        List<String> command = new ArrayList<>(List.of(
                Path.of(System.getProperty("java.home"), "bin", "java").toString()));
        command.addAll(List.of(options));
        command.addAll(List.of("-cp", System.getProperty("java.class.path"),
                OtherProcess.class.getName(), directory.resolve("store").toString()));
        Process other = new ProcessBuilder(command).redirectErrorStream(true).start();
        String said = new String(other.getInputStream().readAllBytes());
        assertEquals(0, other.waitFor(), said);
        assertEquals(3, said.split(expected, -1).length, said);
    }

    static final class OtherProcess {
        public static void main(String[] arguments) {
            for (int time = 0; time < 2; time++) {
                try (Store store = Store.open(Path.of(arguments[0]))) {
                    System.out.println("opened " + store);
                } catch (RunstoneException refused) {
                    System.out.println(refused.code() + ": " + refused.getMessage());
                }
            }
        }
    }

    @Test
    void librariesThatDoNotFitAreRefused() throws Exception {
        String property = "-D" + Library.PROPERTY + "=";
        elsewhere("LIBRARY: .*cannot be loaded", property + directory.resolve("missing"));
        Path text = Files.writeString(directory.resolve("text"), "no library");
        elsewhere("LIBRARY: .*cannot be loaded", property + text);
        Path foreign = Path.of(System.getProperty("java.home"), "lib", "libjimage.so");
        elsewhere("LIBRARY: .*none of Runstone's", property + foreign);
        String version = Library.ownVersion().replaceAll("[0-9]", "9");
        elsewhere("LIBRARY: .*is of version " + version + ",", property + libraryOf(version));
    }

    /** A copy of the native library that reports another version of the same length. */
    private Path libraryOf(String version) throws IOException {
        try (InputStream in = Library.class.getResourceAsStream(Library.place())) {
            String bytes = new String(in.readAllBytes(), ISO_8859_1);
            String changed = bytes.replace(Library.ownVersion(), version);
            return Files.writeString(directory.resolve("other"), changed, ISO_8859_1);
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
}
