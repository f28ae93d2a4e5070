// Tests backups, archives, repairs, and stores to which another process writes.

package org.runstone;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.runstone.StoreTest.bytes;
import static org.runstone.StoreTest.text;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.RandomAccessFile;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;
import org.runstone.RunstoneException.Code;

class BackupsTest {
    @TempDir
    Path directory;

    private Path path;
    private Path other;

    @BeforeEach
    void places() {
        path = directory.resolve("store");
        other = directory.resolve("backups");
    }

    /** Another process, which writes a value on command and reports each write. */
    static final class Writer implements AutoCloseable {
        final Process process;
        private final BufferedReader answers;

        Writer(Path path) throws IOException {
            process = new ProcessBuilder(
                    Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                    "-cp", System.getProperty("java.class.path"),
                    OtherProcess.class.getName(), path.toString())
                    .redirectError(ProcessBuilder.Redirect.INHERIT).start();
            answers = new BufferedReader(new InputStreamReader(process.getInputStream()));
            assertEquals("open", answers.readLine());
        }

        void write(String word) throws IOException {
            process.getOutputStream().write(bytes(word + "\n"));
            process.getOutputStream().flush();
            assertEquals(word, answers.readLine());
        }

        @Override
        public void close() {
            try {
                process.getOutputStream().close();
            } catch (IOException killed) {
                // The process no longer read its input.
            }
            process.onExit().orTimeout(60, TimeUnit.SECONDS).join();
        }
    }

    static final class OtherProcess {
        public static void main(String[] arguments) throws IOException {
            BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
            try (Store store = Store.open(Path.of(arguments[0]), "keep_log_bytes = '1M'")) {
                System.out.println("open");
                for (String word = orders.readLine(); word != null; word = orders.readLine()) {
                    if (word.equals("drop")) {
                        store.dropKeyspace("apart");
                    } else {
                        store.openKeyspace("apart").put(bytes("key"), bytes(word));
                        store.defaultKeyspace().put(bytes("key"), bytes(word), WriteOptions.SYNC);
                    }
                    System.out.println(word);
                }
            }
        }
    }

    private static String value(Keyspace keyspace) {
        return text(keyspace.get(bytes("key")));
    }

    private static String valueIn(Path path) {
        try (Store store = Store.open(path, "create_if_missing = false")) {
            return value(store.defaultKeyspace());
        }
    }

    private static void refused(Code code, String part, Executable call) {
        RunstoneException refused = assertThrows(RunstoneException.class, call);
        assertEquals(code, refused.code(), refused.getMessage());
        assertTrue(refused.getMessage().contains(part), refused.getMessage());
    }

    private Path place(String name) {
        return directory.resolve(name);
    }

    /**
     * Backs up a store while another process writes, then restores a backup and a moment between
     * backups.
     */
    @Test
    void everyNight() throws Exception {
        try (Writer writer = new Writer(path); Backups backups = Backups.open(other)) {
            assertEquals(List.of(), backups.list());
            refused(Code.INVALID_ARGUMENT, "no backup", () -> backups.restore(place("none")));
            writer.write("one");
            Instant before = Instant.now();
            Backup first = backups.create(path);
            writer.write("two");
            Backup second = backups.create(path);
            assertEquals(List.of(first, second), backups.list());
            assertEquals(1, first.number());
            assertTrue(second.lastNumber() > first.lastNumber() && first.addedBytes() > 0);
            assertTrue(Duration.between(before, second.time()).abs().toSeconds() < 60);
            backups.verify();
            backups.verify(1);
            backups.restore(1, place("first"));
            backups.restore(place("newest"));
            assertEquals("one", valueIn(place("first")));
            assertEquals("two", valueIn(place("newest")));

            Position good;
            Position end;
            try (Archiver archiver = backups.archive(path)) {
                Archiver.Round began = archiver.advance();
                assertEquals(3, began.backup().number());
                assertNull(began.lacks());
                writer.write("good");
                assertTrue(archiver.advance(Duration.ofSeconds(10)).changes() >= 1);
                good = archiver.position();
                writer.write("bad");
                archiver.advance();
                end = archiver.position();
                assertThrows(RunstoneException.InUse.class, () -> backups.archive(path));
            }
            assertEquals(good.history(), end.history());
            assertTrue(end.number() > good.number() && end.toString().contains("@"));
            Archive archive = backups.archives().get(0);
            assertEquals(end, archive.end());
            assertTrue(archive.afterNumber() <= good.number() && archive.bytes() > 0);
            assertNotNull(archive.beginTime());
            backups.verifyArchives();
            Backups.Restored restored =
                    backups.restoreTo(Moment.number(good.number()), place("good"));
            assertEquals(3, restored.backup());
            assertEquals(good.number(), restored.lastNumber());
            assertTrue(restored.changes() >= 1);
            assertEquals(restored,
                    backups.restoreTo(Moment.position(good), place("position")));
            Position other = new Position(good.number(), good.history() ^ 1);
            refused(Code.INVALID_ARGUMENT, "no position",
                    () -> backups.restoreTo(Moment.position(other), place("none")));
            backups.restoreTo(Moment.end(), place("end"));
            backups.restoreTo(Moment.time(archive.endTime()), place("time"));
            assertEquals("good", valueIn(place("good")));
            assertEquals("bad", valueIn(place("end")));
            assertEquals("bad", valueIn(place("time")));
            assertEquals(2, backups.prune(1));
            assertEquals(1, backups.list().size());

            // While no archiver is open, the store keeps its log.
            writer.write("later");
            try (Archiver archiver = backups.archive(path)) {
                assertNull(archiver.advance().backup());
            }
            backups.restoreTo(Moment.end(), place("later"));
            assertEquals("later", valueIn(place("later")));
        }
    }

    @Test
    void wrongPlaces() throws Exception {
        try (Store store = Store.open(path)) {
            store.defaultKeyspace().put(bytes("key"), bytes("value"));
        }
        refused(Code.FOREIGN_FILES, "empty or new", () -> Backups.open(path));
        refused(Code.STORAGE, "check the path", () -> Backups.openExisting(place("none")));
        assertFalse(Files.exists(place("none")));
        Files.createDirectory(place("letters"));
        refused(Code.INVALID_ARGUMENT, "no backups", () -> Backups.openExisting(place("letters")));
        Files.writeString(place("letters").resolve("letter.txt"), "dear");
        refused(Code.FOREIGN_FILES, "letter.txt", () -> Backups.open(place("letters")));
        Store.open(place("another")).close();
        try (Backups backups = Backups.open(other)) {
            Position end;
            try (Archiver archiver = backups.archive(path)) {
                archiver.advance();
                end = archiver.position();
            }
            refused(Code.NOT_A_STORE, "none", () -> backups.create(place("none")));
            refused(Code.INVALID_ARGUMENT, "another store",
                    () -> backups.create(place("another")));
            refused(Code.FOREIGN_FILES, "empty or new", () -> backups.restore(path));
            refused(Code.FOREIGN_FILES, "empty or new",
                    () -> backups.restoreTo(Moment.end(), place("another")));
            for (Moment moment : List.of(Moment.number(end.number() + 1),
                    Moment.time(Instant.ofEpochSecond(1)))) {
                refused(Code.INVALID_ARGUMENT, "no such moment",
                        () -> backups.restoreTo(moment, place("none")));
            }
            refused(Code.INVALID_ARGUMENT, "-1", () ->
                    backups.restoreTo(Moment.number(-1), place("none")));
            refused(Code.INVALID_ARGUMENT, "-", () ->
                    backups.restoreTo(Moment.time(Instant.ofEpochSecond(-1)), place("none")));
            refused(Code.INVALID_ARGUMENT, "no backup 7", () -> backups.restore(7, place("none")));
            refused(Code.INVALID_ARGUMENT, "no backup 0", () -> backups.restore(0, place("none")));
            refused(Code.INVALID_ARGUMENT, "no backup 0", () -> backups.verify(0));
            refused(Code.INVALID_ARGUMENT, "keep at least one", () -> backups.prune(0));
            refused(Code.INVALID_ARGUMENT, "-1", () -> backups.prune(-1));
            assertThrows(NullPointerException.class, () -> backups.create(null));
            change(".table");
            refused(Code.CORRUPTION, ".table", backups::verify);
            refused(Code.CORRUPTION, ".table", () -> backups.restore(place("none")));
            change(".backup");
            assertEquals(List.of(), backups.list());
            Backups.Damaged damaged = backups.damaged().get(0);
            assertEquals(1, damaged.number());
            assertFalse(damaged.what().isEmpty());
        }
    }

    /** Changes a byte of each file of a kind in the directory of backups. */
    private void change(String kind) throws IOException {
        try (DirectoryStream<Path> files = Files.newDirectoryStream(other, "*" + kind)) {
            for (Path found : files) {
                try (RandomAccessFile file = new RandomAccessFile(found.toFile(), "rw")) {
                    file.seek(9);
                    int before = file.read();
                    file.seek(9);
                    file.write(before ^ 1);
                }
            }
        }
    }

    /** Closes a store, its backups and its archiver in any order, twice, and while one waits. */
    @Test
    void ends() throws Exception {
        Store store = Store.open(path);
        Backups backups = Backups.open(other);
        Archiver archiver = backups.archive(path);
        archiver.advance();
        CompletableFuture<Archiver.Round> waits =
                CompletableFuture.supplyAsync(() -> archiver.advance(Duration.ofMinutes(1)));
        store.defaultKeyspace().put(bytes("key"), bytes("value"));
        assertTrue(waits.get(60, TimeUnit.SECONDS).changes() >= 1);
        store.close();
        store.close();
        backups.close();
        backups.close();
        assertNull(archiver.advance().backup());
        CompletableFuture<Archiver.Round> closed =
                CompletableFuture.supplyAsync(
                        () -> archiver.advance(ChronoUnit.FOREVER.getDuration()));
        Thread.sleep(50);
        archiver.close();
        archiver.close();
        ExecutionException ended =
                assertThrows(ExecutionException.class, () -> closed.get(60, TimeUnit.SECONDS));
        assertEquals(RunstoneException.Closed.class, ended.getCause().getClass());
        assertThrows(RunstoneException.Closed.class, archiver::advance);
        assertThrows(RunstoneException.Closed.class, archiver::position);
        assertThrows(RunstoneException.Closed.class, backups::list);
        assertThrows(RunstoneException.Closed.class, store::refresh);
        assertThrows(RunstoneException.Closed.class, store::age);
        // An interrupt ends a wait and stays set.
        try (Backups again = Backups.openExisting(other); Archiver next = again.archive(path)) {
            next.advance();
            Thread.currentThread().interrupt();
            assertEquals(0, next.advance(Duration.ofMinutes(10)).changes());
            assertTrue(Thread.interrupted());
        }
    }

    @Test
    void refresh() throws Exception {
        try (Writer writer = new Writer(path)) {
            writer.write("1");
            Keyspace after;
            try (Store store = Store.open(path, "read_only = true")) {
                Keyspace keyspace = store.defaultKeyspace();
                Keyspace apart = store.keyspace("apart");
                after = apart;
                Snapshot snapshot = store.snapshot();
                Cursor cursor = keyspace.cursor();
                assertEquals("1", value(keyspace));
                writer.write("2");
                assertEquals("1", value(keyspace));
                assertTrue(store.refresh());
                assertFalse(store.refresh());
                assertEquals("2", value(keyspace));
                assertEquals("2", value(apart));
                assertEquals("2", value(store.keyspace("apart")));
                // Snapshots and cursors keep their moment.
                assertEquals("1", text(keyspace.get(bytes("key"), snapshot)));
                assertEquals("1", text(apart.get(bytes("key"), snapshot)));
                cursor.seekToFirst();
                assertEquals("1", text(cursor.value()));
                try (Cursor at = keyspace.cursor(null, null, snapshot)) {
                    at.seekToFirst();
                    assertEquals("1", text(at.value()));
                }
                Thread.sleep(20);
                assertTrue(store.age().toMillis() >= 20);
                refused(Code.READ_ONLY, "reading", () -> keyspace.put(new byte[1], new byte[1]));
                writer.write("3");
                store.checkpoint(place("copy"));
                assertEquals("3", valueIn(place("copy")));
                writer.write("drop");
                assertTrue(store.refresh());
                refused(Code.UNKNOWN_KEYSPACE, "apart", () -> value(apart));
                writer.write("4");
                assertTrue(store.refresh());
                assertEquals("4", value(apart));
            }
            assertThrows(RunstoneException.Closed.class, () -> value(after));
        }
    }

    /** A follower does not prevent writing, and survives the kill of the writer. */
    @Test
    void followersComeAndGo() throws Exception {
        refused(Code.NOT_A_STORE, "store", () -> Store.follow(path));
        try (Store store = Store.open(path)) {
            store.defaultKeyspace().put(bytes("key"), bytes("0"));
            refused(Code.INVALID_ARGUMENT, "open for writing", store::refresh);
            refused(Code.INVALID_ARGUMENT, "open for writing", store::age);
        }
        try (Store alone = Store.open(path, "read_only = true")) {
            assertFalse(alone.refresh());
            assertEquals(Duration.ZERO, alone.age());
        }
        try (Store store = Store.follow(path)) {
            try (Writer writer = new Writer(path)) {
                writer.write("1");
                assertTrue(store.refresh());
                assertEquals("1", value(store.defaultKeyspace()));
                writer.process.destroyForcibly();
            }
            assertFalse(store.refresh());
            try (Writer writer = new Writer(path)) {
                writer.write("2");
                assertTrue(store.refresh());
                assertEquals("2", value(store.defaultKeyspace()));
            }
        }
    }

    /** Several threads refresh and read. After its refresh, each thread sees all earlier writes. */
    @Test
    void refreshFromManyThreads() throws Exception {
        try (Writer writer = new Writer(path); Store store = follow(writer)) {
            Keyspace keyspace = store.defaultKeyspace();
            AtomicBoolean isOver = new AtomicBoolean();
            CompletableFuture<Void> refreshes = CompletableFuture.runAsync(() -> {
                while (!isOver.get()) {
                    store.refresh();
                    value(store.keyspace("apart"));
                    Thread.onSpinWait();
                }
            });
            for (int number = 1; number <= 100; number++) {
                writer.write(Integer.toString(number));
                store.refresh();
                assertEquals(Integer.toString(number), value(keyspace));
                assertEquals(Integer.toString(number), value(store.keyspace("apart")));
            }
            isOver.set(true);
            refreshes.get(60, TimeUnit.SECONDS);
        }
    }

    private Store follow(Writer writer) throws IOException {
        writer.write("0");
        return Store.follow(path);
    }

    @Test
    void repair() throws Exception {
        try (Store store = Store.open(path)) {
            for (int at = 0; at < 1000; at++) {
                store.defaultKeyspace().put(bytes(String.format("%04d", at)), new byte[100]);
            }
            refused(Code.IN_USE, "use", () -> Repair.of(path, place("new")));
        }
        assertTrue(Repair.of(path, place("new")).isHealthy());
        assertFalse(Files.exists(place("new")));
        try (DirectoryStream<Path> files = Files.newDirectoryStream(path, "*.manifest")) {
            for (Path file : files) {
                Files.delete(file);
            }
        }
        Repair repair = Repair.of(path, place("new"), "", true);
        assertFalse(repair.isHealthy());
        assertEquals(Repair.Basis.TABLES, repair.basis());
        assertEquals(List.of("default"), repair.keyspaces());
        assertEquals(1000, repair.entries());
        assertTrue(repair.tables() >= 1 && repair.lastNumber() >= 1000);
        assertEquals(0, repair.carriedTables());
        assertFalse(repair.lost().isEmpty());
        Repair.Doubt doubt = repair.doubts().get(0);
        assertEquals(Repair.Reason.MAY_BE_BACK, doubt.reason());
        assertTrue(doubt.covers("default", bytes("0007")) && !doubt.covers("x", bytes("0007")));
        try (Store store = Store.open(place("new"), "create_if_missing = false")) {
            assertNotNull(store.defaultKeyspace().get(bytes("0007")));
        }
        refused(Code.STORAGE, "empty or new", () -> Repair.of(path, place("new")));
        refused(Code.NOT_A_STORE, "none", () -> Repair.of(place("none"), place("newer")));
    }
}
