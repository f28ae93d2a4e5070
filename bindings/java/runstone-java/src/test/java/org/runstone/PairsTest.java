// Tests combinations of options: each has the same effect with every other option as it has alone.

package org.runstone;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.runstone.StoreTest.bytes;
import static org.runstone.StoreTest.text;

import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class PairsTest {
    private static final int KEYS = 60;

    @TempDir
    Path directory;

    private static ByteBuffer buffer(String text, boolean direct) {
        byte[] bytes = bytes(text);
        ByteBuffer buffer =
                direct ? ByteBuffer.allocateDirect(bytes.length) : ByteBuffer.allocate(bytes.length);
        return buffer.put(bytes).flip();
    }

    /** How many syncs of the log a write causes. */
    private static double syncs(Store store, Runnable write) {
        double before = store.metrics().get("runstone_wal_syncs_total");
        write.run();
        return store.metrics().get("runstone_wal_syncs_total") - before;
    }

    /** A delete of a range without bounds once did not do the requested sync. */
    @ParameterizedTest
    @ValueSource(strings = {"buffered", "sync"})
    void everyWriteIsAsDurableAsAsked(String durability) {
        try (Store store = Store.open(directory, "durability = '" + durability + "'")) {
            Keyspace keyspace = store.defaultKeyspace();
            for (WriteOptions options : List.of(
                    WriteOptions.DEFAULT, WriteOptions.BUFFERED, WriteOptions.SYNC)) {
                List<Runnable> writes = new ArrayList<>(List.of(
                        () -> keyspace.put(bytes("a"), bytes("1"), options),
                        () -> keyspace.delete(bytes("a"), options),
                        () -> keyspace.popFirst(options),
                        () -> keyspace.popLast(options),
                        () -> keyspace.drain(null, null, 9, options),
                        () -> store.write(new WriteBatch().put(keyspace, bytes("a"), bytes("1"))
                                .delete(keyspace, bytes("b")), options)));
                for (boolean direct : new boolean[] {false, true}) {
                    writes.add(() -> keyspace.put(
                            buffer("a", direct), buffer("1", direct), options));
                }
                for (byte[] from : new byte[][] {null, bytes("a")}) {
                    for (byte[] to : new byte[][] {null, bytes("b")}) {
                        writes.add(() -> keyspace.deleteRange(from, to, options));
                    }
                }
                for (Transaction.Mode mode : Transaction.Mode.values()) {
                    writes.add(() -> {
                        Transaction transaction = store.begin(mode);
                        transaction.put(keyspace, bytes("a"), bytes("1"));
                        transaction.commit(options);
                    });
                }
                boolean isSynced = options == WriteOptions.SYNC
                        || options == WriteOptions.DEFAULT && durability.equals("sync");
                for (int at = 0; at < writes.size(); at++) {
                    keyspace.put(bytes("a"), bytes("1"));
                    double expected = isSynced ? 1 : 0;
                    assertEquals(expected, syncs(store, writes.get(at)), at + " " + isSynced);
                }
            }
        }
    }

    @Test
    void rangesOfDeletesKeepEachBound() {
        try (Store store = Store.open(directory)) {
            Keyspace keyspace = store.defaultKeyspace();
            for (int choice = 0; choice < 8; choice++) {
                for (String key : List.of("a", "b", "c", "d")) {
                    keyspace.put(bytes(key), bytes(""));
                }
                byte[] from = (choice & 1) == 0 ? null : bytes("b");
                byte[] to = (choice & 2) == 0 ? null : bytes("d");
                if ((choice & 4) == 0) {
                    keyspace.deleteRange(from, to, WriteOptions.SYNC);
                } else {
                    store.write(new WriteBatch().deleteRange(keyspace, from, to), WriteOptions.SYNC);
                }
                assertEquals(from != null, keyspace.get(bytes("a")) != null);
                assertNull(keyspace.get(bytes("b")));
                assertNull(keyspace.get(bytes("c")));
                assertEquals(to != null, keyspace.get(bytes("d")) != null);
            }
        }
    }

    @Test
    void optionsOfKeyspacesAct() {
        String sums = "merge_operator = 'add-u64'";
        try (Store store = Store.open(directory)) {
            for (int choice = 0; choice < 8; choice++) {
                boolean makes = (choice & 1) != 0;
                String options = (choice & 2) == 0 ? null : sums;
                boolean exists = (choice & 4) != 0;
                String name = "part " + choice;
                if (exists) {
                    store.openKeyspace(name).close();
                }
                if (!makes && !exists) {
                    assertThrows(RunstoneException.class,
                            () -> Native.openKeyspace(store.handle(), name, options, makes));
                    continue;
                }
                Native.closeKeyspace(Native.openKeyspace(store.handle(), name, options, makes));
                WriteBatch sum =
                        new WriteBatch().merge(store.keyspace(name), bytes("a"), new byte[8]);
                if (options == null) {
                    assertThrows(RunstoneException.class, () -> store.write(sum));
                } else {
                    store.write(sum);
                }
            }
        }
    }

    @Test
    void readsHeedEachOption() {
        for (int choice = 0; choice < 32; choice++) {
            Path path = directory.resolve("" + choice);
            try (Store store = Store.open(path)) {
                for (int number = 0; number < KEYS; number++) {
                    put(store.defaultKeyspace(), number, "o");
                }
                store.flush();
            }
            try (Store store = Store.open(path)) {
                readWith(store, choice);
            }
        }
    }

    private static String key(int number) {
        return String.format("k%02d", number);
    }

    private static void put(Keyspace keyspace, int number, String letter) {
        keyspace.put(bytes(key(number)), bytes(letter.repeat(600)));
    }

    /** Combines snapshot, both bounds, the cache and the direction with each way to get. */
    private void readWith(Store store, int choice) {
        boolean past = (choice & 1) != 0;
        boolean hasFrom = (choice & 2) != 0;
        boolean hasTo = (choice & 4) != 0;
        boolean fills = (choice & 8) != 0;
        boolean down = (choice & 16) != 0;
        Keyspace keyspace = store.defaultKeyspace();
        Snapshot snapshot = store.snapshot();
        keyspace.delete(bytes(key(30)));
        put(keyspace, 31, "n");
        List<String> expected = new ArrayList<>();
        for (int number = hasFrom ? 20 : 0; number < (hasTo ? 40 : KEYS); number++) {
            if (number != 30 || past) {
                expected.add(key(number) + (number == 31 && !past ? "n" : "o"));
            }
        }
        double before = store.metrics().get("runstone_cache_bytes");
        List<String> found = new ArrayList<>();
        try (Cursor cursor = keyspace.cursor(hasFrom ? bytes(key(20)) : null,
                hasTo ? bytes(key(40)) : null, past ? snapshot : null, fills)) {
            if (down) {
                for (cursor.seekToLast(); cursor.isValid(); cursor.prev()) {
                    found.add(text(cursor.key()) + text(cursor.value()).charAt(599));
                }
                Collections.reverse(found);
            } else {
                for (cursor.seekToFirst(); cursor.isValid(); cursor.next()) {
                    found.add(text(cursor.key()) + text(cursor.value()).charAt(599));
                }
            }
        }
        assertEquals(expected, found, "choice " + choice);
        boolean isFilled = store.metrics().get("runstone_cache_bytes") > before;
        assertEquals(fills, isFilled, "choice " + choice);
        for (int way = 0; way < 4; way++) {
            ByteBuffer room =
                    (way & 1) == 0 ? ByteBuffer.allocate(8) : ByteBuffer.allocateDirect(8);
            int size = keyspace.get(
                    buffer(key(31), (way & 2) != 0), room, past ? snapshot : null);
            assertEquals(600, size);
            assertEquals(past ? 'o' : 'n', room.get(7));
        }
    }

    /**
     * Handles once repeated after 31 uses of a slot, so a closed handle could close another object.
     */
    @Test
    void closedHandlesStayClosed() {
        try (Store store = Store.open(directory)) {
            long keyspace = store.defaultKeyspace().handle();
            List<Long> old = new ArrayList<>();
            for (int round = 0; round < 50_000; round++) {
                long cursor = Native.cursor(keyspace, 0, null, null, true);
                if (round % 1000 < 50) {
                    for (long closed : old) {
                        assertThrows(RunstoneException.Closed.class,
                                () -> Native.closeCursor(closed));
                    }
                }
                assertEquals(1L << 32, Native.fetch(cursor, 0, null, new byte[64]));
                Native.closeCursor(cursor);
                if (old.size() < 64) {
                    old.add(cursor);
                }
            }
        }
    }
}
