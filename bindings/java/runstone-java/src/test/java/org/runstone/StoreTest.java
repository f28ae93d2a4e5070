// Tests a store through its Java interface.

package org.runstone;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class StoreTest {
    @TempDir
    Path directory;

    private Store store;
    private Keyspace keyspace;

    @BeforeEach
    void open() {
        store = Store.open(directory.resolve("store"));
        keyspace = store.defaultKeyspace();
    }

    @AfterEach
    void close() {
        store.close();
    }

    static byte[] bytes(String text) {
        return text.getBytes(UTF_8);
    }

    static String text(byte[] bytes) {
        return bytes == null ? null : new String(bytes, UTF_8);
    }

    private static List<String> forward(Cursor cursor) {
        List<String> seen = new ArrayList<>();
        for (cursor.seekToFirst(); cursor.isValid(); cursor.next()) {
            seen.add(text(cursor.key()) + "=" + text(cursor.value()));
        }
        return seen;
    }

    @Test
    void valuesComeBackAndStay() {
        keyspace.put(bytes("a"), bytes("1"));
        keyspace.put(bytes("b"), new byte[0], WriteOptions.SYNC);
        keyspace.put(bytes("c"), bytes("3"));
        keyspace.delete(bytes("c"));
        assertEquals("1", text(keyspace.get(bytes("a"))));
        assertEquals(0, keyspace.get(bytes("b")).length);
        assertNull(keyspace.get(bytes("c")));
        store.close();
        open();
        assertEquals("1", text(keyspace.get(bytes("a"))));
        assertEquals(List.of("a=1", "b="), forward(keyspace.cursor()));
    }

    /**
     * An unreadable key anywhere in the next page once caused an error before the entries in front
     * of it were shown.
     */
    @Test
    void anErrorComesAtItsPlace() {
        Keyspace sums = store.openKeyspace("sums", "merge_operator = 'add-u64'");
        for (int number = 10; number < 30; number++) {
            sums.put(bytes("" + number), bytes("no number"));
        }
        store.write(new WriteBatch().merge(sums, bytes("20"), new byte[8]));
        for (boolean up : new boolean[] {true, false}) {
            List<String> seen = new ArrayList<>();
            try (Cursor cursor = sums.cursor()) {
                assertThrows(RunstoneException.class, () -> {
                    if (up) {
                        cursor.seekToFirst();
                    } else {
                        cursor.seekToLast();
                    }
                    while (cursor.isValid()) {
                        seen.add(text(cursor.key()));
                        if (up) {
                            cursor.next();
                        } else {
                            cursor.prev();
                        }
                    }
                });
                assertFalse(cursor.isValid());
            }
            assertEquals(up ? 10 : 9, seen.size());
            assertEquals(up ? "19" : "21", seen.get(seen.size() - 1));
        }
    }

    @Test
    void buffersWorkDirectAndOnTheHeap() {
        for (boolean direct : new boolean[] {true, false}) {
            ByteBuffer key = direct ? ByteBuffer.allocateDirect(16) : ByteBuffer.allocate(16);
            ByteBuffer value = direct ? ByteBuffer.allocateDirect(16) : ByteBuffer.allocate(16);
            key.put(bytes("..key")).flip().position(2);
            value.put(bytes("....value")).flip().position(4);
            keyspace.put(key, value);
            assertEquals("value", text(keyspace.get(bytes("key"))));
            value.clear().position(1);
            assertEquals(5, keyspace.get(key, value));
            assertEquals(1, value.position());
            assertEquals("value", text(Keyspace.bytesOf(value)));
            value.clear().limit(3);
            assertEquals(5, keyspace.get(key, value), "the size, though less fits");
            assertEquals("val", text(Keyspace.bytesOf(value)));
            keyspace.delete(bytes("key"));
            assertEquals(-1, keyspace.get(key, value));
        }
    }

    @Test
    void entriesAreTakenFromBothEnds() {
        for (String key : "a b c d e f".split(" ")) {
            keyspace.put(bytes(key), bytes(key + key));
        }
        assertEquals("a=aa", text(keyspace.popFirst(WriteOptions.SYNC)));
        assertEquals("f=ff", text(keyspace.popLast(WriteOptions.BUFFERED)));
        List<String> taken = new ArrayList<>();
        keyspace.drain(bytes("c"), null, 2).forEach(entry -> taken.add(text(entry)));
        assertEquals(List.of("c=cc", "d=dd"), taken);
        assertEquals(0, keyspace.drain(bytes("c"), bytes("d"), 9).size());
        assertEquals(0, keyspace.drain(null, null, 0).size());
        assertEquals(List.of("b=bb", "e=ee"), forward(keyspace.cursor()));
        assertEquals("b=bb", text(keyspace.popFirst()));
        assertEquals("e=ee", text(keyspace.popLast()));
        assertNull(keyspace.popFirst());
        assertNull(keyspace.popLast());
        assertThrows(RunstoneException.InvalidArgument.class,
                () -> keyspace.drain(null, null, -1));
        assertThrows(RunstoneException.InvalidArgument.class,
                () -> keyspace.drain(bytes("b"), bytes("a"), 1));
    }

    private static String text(Map.Entry<byte[], byte[]> entry) {
        return text(entry.getKey()) + "=" + text(entry.getValue());
    }

    @Test
    void aTimeToLiveIsForPuts() throws InterruptedException {
        WriteOptions brief = WriteOptions.DEFAULT.ttl(Duration.ofMillis(1));
        keyspace.put(bytes("kept"), bytes("1"), WriteOptions.SYNC.ttl(Duration.ofHours(1)));
        keyspace.put(bytes("brief"), bytes("1"), brief);
        while (keyspace.get(bytes("brief")) != null) {
            Thread.sleep(1);
        }
        assertEquals("1", text(keyspace.get(bytes("kept"))));
        for (Duration none : new Duration[] {Duration.ZERO, Duration.ofHours(-1)}) {
            assertThrows(RunstoneException.InvalidArgument.class,
                    () -> keyspace.put(bytes("a"), bytes("1"), WriteOptions.DEFAULT.ttl(none)));
        }
        assertThrows(RunstoneException.InvalidArgument.class,
                () -> keyspace.delete(bytes("kept"), brief));
        assertThrows(RunstoneException.InvalidArgument.class, () -> keyspace.popFirst(brief));
        assertThrows(RunstoneException.InvalidArgument.class, () -> keyspace.popLast(brief));
        assertThrows(RunstoneException.InvalidArgument.class,
                () -> store.write(new WriteBatch().delete(keyspace, bytes("kept")), brief));
        assertEquals(List.of("kept=1"), forward(keyspace.cursor()));
    }

    @Test
    void batchesAreAtomicAcrossKeyspaces() {
        Keyspace ages = store.openKeyspace("ages", "preset = 'read-heavy'");
        keyspace.put(bytes("old"), bytes("x"));
        WriteBatch batch = new WriteBatch(8);
        batch.put(keyspace, bytes("a"), bytes("1")).put(ages, bytes("a"), bytes("7"));
        batch.put(ages, ByteBuffer.wrap(bytes("b")), ByteBuffer.wrap(bytes("8")));
        batch.delete(keyspace, bytes("old"));
        assertEquals(4, batch.size());
        store.write(batch, WriteOptions.SYNC);
        assertEquals(List.of("a=1"), forward(keyspace.cursor()));
        assertEquals(List.of("a=7", "b=8"), forward(ages.cursor()));
        batch.clear();
        store.write(batch.deleteRange(ages, bytes("b"), null));
        assertEquals(List.of("a=7"), forward(ages.cursor()));
        assertEquals(List.of("default", "ages"), store.keyspaces());
        store.dropKeyspace("ages");
        assertThrows(RunstoneException.class, () -> ages.get(bytes("a")));
    }

    @Test
    void cursorsGoBothWaysOverManyPages() {
        List<String> expected = new ArrayList<>();
        WriteBatch batch = new WriteBatch();
        for (int number = 0; number < 10_000; number++) {
            String key = String.format("key%06d", number);
            String value = "v".repeat(number % 50);
            batch.put(keyspace, bytes(key), bytes(value));
            expected.add(key + "=" + value);
        }
        store.write(batch);
        try (Cursor cursor = keyspace.cursor()) {
            assertFalse(cursor.isValid(), "nowhere yet");
            assertEquals(expected, forward(cursor));
            List<String> backward = new ArrayList<>();
            for (cursor.seekToLast(); cursor.isValid(); cursor.prev()) {
                backward.add(text(cursor.key()) + "=" + text(cursor.value()));
            }
            Collections.reverse(backward);
            assertEquals(expected, backward);
            cursor.seek(bytes("key000500"));
            cursor.prev();
            assertEquals("key000499", text(cursor.key()));
            cursor.prev();
            cursor.next();
            cursor.next();
            cursor.next();
            assertEquals("key000501", text(cursor.key()));
            cursor.seekForPrev(bytes("key000501x"));
            assertEquals("key000501", text(cursor.key()));
        }
        try (Cursor cursor = keyspace.prefix(bytes("key00001"))) {
            assertEquals(expected.subList(10, 20), forward(cursor));
        }
        assertEquals(10_000, keyspace.estimateEntries(null, null));
        keyspace.deleteRange(bytes("key000002"), bytes("key009999"));
        try (Cursor cursor = keyspace.cursor()) {
            assertEquals(3, forward(cursor).size());
        }
    }

    @Test
    void anEntryLargerThanAPageComesWhole() {
        byte[] large = new byte[3 << 20];
        large[large.length - 1] = 7;
        keyspace.put(bytes("a"), bytes("small"));
        keyspace.put(bytes("b"), large);
        keyspace.put(bytes("c"), bytes("small"));
        try (Cursor cursor = keyspace.cursor()) {
            cursor.seekToFirst();
            cursor.next();
            assertArrayEquals(large, cursor.value());
            cursor.next();
            assertEquals("c", text(cursor.key()));
            cursor.seek(bytes("b"));
            assertArrayEquals(large, cursor.value());
        }
    }

    @Test
    void snapshotsDoNotChange() {
        keyspace.put(bytes("a"), bytes("old"));
        try (Snapshot snapshot = store.snapshot()) {
            keyspace.put(bytes("a"), bytes("new"));
            assertEquals("old", text(keyspace.get(bytes("a"), snapshot)));
            try (Cursor cursor = keyspace.cursor(null, null, snapshot)) {
                assertEquals(List.of("a=old"), forward(cursor));
            }
        }
        assertEquals("new", text(keyspace.get(bytes("a"))));
    }

    @Test
    void manyKeysAreReadAtOnce() {
        keyspace.put(bytes("a"), bytes("1"));
        keyspace.put(bytes("c"), new byte[0]);
        List<byte[]> values =
                keyspace.multiGet(List.of(bytes("c"), bytes("b"), bytes("a"), bytes("")));
        assertEquals(4, values.size());
        assertEquals("", text(values.get(0)));
        assertNull(values.get(1));
        assertEquals("1", text(values.get(2)));
        assertNull(values.get(3));
    }

    @Test
    void transactionsCommitOrLose() {
        try (Transaction transfer = store.begin()) {
            transfer.put(keyspace, bytes("a"), bytes("1"));
            transfer.delete(keyspace, bytes("b"));
            assertEquals("1", text(transfer.get(keyspace, bytes("a"))));
            assertNull(keyspace.get(bytes("a")), "nobody sees it yet");
            transfer.commit();
            assertThrows(RunstoneException.Closed.class, transfer::commit);
        }
        assertEquals("1", text(keyspace.get(bytes("a"))));
        try (Transaction late = store.begin(Transaction.Mode.SERIALIZABLE)) {
            late.get(keyspace, bytes("a"));
            late.put(keyspace, bytes("b"), bytes("2"));
            keyspace.put(bytes("a"), bytes("3"));
            assertThrows(RunstoneException.Conflict.class, () -> late.commit(WriteOptions.SYNC));
        }
        try (Transaction locked = store.begin(Transaction.Mode.PESSIMISTIC)) {
            assertEquals("3", text(locked.getForUpdate(keyspace, bytes("a"))));
        }
        assertNull(keyspace.get(bytes("b")), "rolled back");
    }

    @Test
    void theStoreTellsAboutItselfAndIsCopied() {
        keyspace.put(bytes("a"), bytes("1"));
        store.sync();
        store.flush();
        keyspace.compact();
        assertTrue(store.metrics().get("runstone_memory_budget_bytes") > 0);
        Path linked = directory.resolve("linked");
        store.checkpoint(linked);
        Path copied = directory.resolve("copied");
        store.checkpointCopied(copied);
        for (Path copy : new Path[] {linked, copied}) {
            try (Store other = Store.open(copy)) {
                assertEquals("1", text(other.defaultKeyspace().get(bytes("a"))));
            }
        }
    }
}
