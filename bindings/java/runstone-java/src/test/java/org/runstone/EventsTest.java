// Tests the events that a listener receives, and those that are logged without one.

package org.runstone;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.runstone.StoreTest.bytes;
import static org.runstone.StoreTest.text;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicReference;
import java.util.logging.Handler;
import java.util.logging.Level;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.runstone.RunstoneException.Code;

class EventsTest {
    private static final int ENTRIES = 2000;
    private static final Logger LOG = Logger.getLogger("org.runstone");

    @TempDir
    Path directory;

    private final List<LogRecord> logged = new CopyOnWriteArrayList<>();
    private final Handler handler = new Handler() {
        @Override
        public void publish(LogRecord record) {
            logged.add(record);
        }

        @Override
        public void flush() {
        }

        @Override
        public void close() {
        }
    };

    @BeforeEach
    void listen() {
        LOG.addHandler(handler);
        LOG.setUseParentHandlers(false);
    }

    @AfterEach
    void end() {
        LOG.removeHandler(handler);
        LOG.setUseParentHandlers(true);
    }

    private List<String> warnings() {
        return logged.stream().filter(record -> record.getLevel() == Level.WARNING)
                .map(LogRecord::getMessage).toList();
    }

    private static List<Path> files(Path directory) throws IOException {
        try (Stream<Path> files = Files.list(directory)) {
            return files.sorted().toList();
        }
    }

    /** A store that stopped with unsynced writes. A bit is flipped near the start of its log. */
    private Path torn() throws IOException {
        Path open = directory.resolve("open");
        Path copy = Files.createDirectory(directory.resolve("copy"));
        try (Store store = Store.open(open, "wal_segment_bytes = '64K'")) {
            for (int number = 0; number < ENTRIES; number++) {
                store.defaultKeyspace().put(bytes("key" + (10_000 + number)), new byte[100]);
            }
            // A job that renames a file would let the copy miss it.
            store.waitIdle();
            for (Path file : files(open)) {
                Files.copy(file, copy.resolve(file.getFileName()));
            }
        }
        Path log = files(copy).stream().filter(file -> file.toString().endsWith(".wal"))
                .findFirst().orElseThrow();
        byte[] damaged = Files.readAllBytes(log);
        damaged[10_000] ^= 1;
        Files.write(log, damaged);
        return copy;
    }

    private static long count(Store store) {
        long count = 0;
        try (Cursor cursor = store.defaultKeyspace().cursor()) {
            for (cursor.seekToFirst(); cursor.isValid(); cursor.next()) {
                count++;
            }
        }
        return count;
    }

    @Test
    void aLostEndOfTheLogIsAnEvent() throws IOException {
        Path copy = torn();
        List<StoreEvent> heard = new CopyOnWriteArrayList<>();
        try (Store store = Store.open(copy, "", heard::add)) {
            List<StoreEvent> lost =
                    heard.stream().filter(event -> event.kind().equals("log_end_lost")).toList();
            assertEquals(1, lost.size());
            // The damaged record itself does not count as lost.
            assertEquals(ENTRIES - 1 - count(store), lost.get(0).fields().get("records"));
            List<?> kept = (List<?>) lost.get(0).fields().get("kept");
            assertTrue(!kept.isEmpty() && kept.stream()
                    .allMatch(name -> Files.exists(copy.resolve(name.toString()))), "" + kept);
            assertTrue(lost.get(0).isWarning());
        }
        assertEquals(List.of(), warnings());
    }

    @Test
    void withoutAListenerItIsLogged() throws IOException {
        Path copy = torn();
        Store.open(copy).close();
        assertEquals(1, warnings().size());
        String message = warnings().get(0);
        assertTrue(message.startsWith(copy + ": ") && message.contains("records of the log"),
                message);
        Store.open(copy).close();
        assertEquals(1, warnings().size(), "it is told once");
    }

    /**
     * When a listener closed its store, the refusal once came only after everything that belongs to
     * the store was closed. Then the store itself could not be closed any more.
     */
    @Test
    void aListenerBreaksNothing() {
        List<String> heard = new CopyOnWriteArrayList<>();
        List<Code> refused = new CopyOnWriteArrayList<>();
        AtomicReference<Store> own = new AtomicReference<>();
        try (Store store = Store.open(directory.resolve("store"), "", event -> {
            heard.add(event.kind());
            Store open = own.get();
            assertEquals("1", text(open.defaultKeyspace().get(bytes("a"))));
            refused.add(assertThrows(RunstoneException.class, open::flush).code());
            refused.add(assertThrows(RunstoneException.class, open::close).code());
            throw new IllegalStateException("no listener");
        })) {
            own.set(store);
            store.defaultKeyspace().put(bytes("a"), bytes("1"));
            store.flush();
            store.defaultKeyspace().put(bytes("b"), bytes("2"));
            store.flush();
            assertEquals("2", text(store.defaultKeyspace().get(bytes("b"))));
        }
        assertEquals(2, heard.stream().filter("flushed"::equals).count());
        assertTrue(refused.size() == 2 * heard.size()
                && refused.stream().allMatch(Code.INSIDE_CALLBACK::equals), "" + refused);
        assertEquals(heard.size(), warnings().size());
        assertTrue(logged.stream().filter(record -> record.getLevel() == Level.WARNING)
                .allMatch(record -> record.getThrown() instanceof IllegalStateException));
        assertThrows(NullPointerException.class,
                () -> Store.open(directory.resolve("store"), "", null));
    }
}
