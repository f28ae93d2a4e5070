// Tests reading the changes committed to a store, in order.

package org.runstone;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.runstone.StoreTest.bytes;
import static org.runstone.StoreTest.text;

import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.runstone.RunstoneException.Code;

class ChangesTest {
    @TempDir
    Path directory;

    private Path path;

    @BeforeEach
    void place() {
        path = directory.resolve("store");
    }

    private static List<Change> all(Changes changes) {
        List<Change> found = new ArrayList<>();
        for (Change change : changes) {
            if (change.kind() != Change.Kind.TIME) {
                found.add(change);
            } else {
                assertNotNull(change.time());
            }
        }
        return found;
    }

    private static String said(Change.Write write) {
        return write.kind() + " " + write.keyspace() + " " + text(write.key()) + " "
                + text(write.value());
    }

    @Test
    void allKinds() {
        try (Store store = Store.open(path); Changes changes = Changes.now(path)) {
            Keyspace keyspace = store.defaultKeyspace();
            Keyspace apart = store.openKeyspace("apart", "ttl_seconds = 60");
            store.write(new WriteBatch().put(keyspace, bytes("k"), bytes("v"))
                    .delete(keyspace, bytes("gone")));
            keyspace.deleteRange(bytes("a"), bytes("b"));
            keyspace.deleteRange(bytes("x"), null);
            apart.put(bytes("soon"), bytes("v"));
            store.dropKeyspace("apart");
            Position begin = changes.position();
            List<Change> found = all(changes);
            List<Change.Kind> kinds = found.stream().map(Change::kind).toList();
            assertEquals(List.of(Change.Kind.KEYSPACE, Change.Kind.WRITES, Change.Kind.WRITES,
                    Change.Kind.WRITES, Change.Kind.WRITES, Change.Kind.DROPPED), kinds);
            assertEquals("apart", found.get(0).keyspaces().get(0).name());
            assertTrue(found.get(0).keyspaces().get(0).options().contains("ttl"));
            assertNull(found.get(5).keyspaces().get(0).options());
            List<String> writes = new ArrayList<>();
            for (int twice = 0; twice < 2; twice++) {
                found.get(1).forEach(write -> writes.add(said(write)));
            }
            List<String> once = List.of("PUT default k v", "DELETE default gone null");
            assertEquals(once, writes.subList(0, 2));
            assertEquals(once, writes.subList(2, 4));
            assertEquals("DELETE_RANGE default a b", said(found.get(2).iterator().next()));
            assertEquals("DELETE_RANGE default x null", said(found.get(3).iterator().next()));
            Change.Write soon = found.get(4).iterator().next();
            assertTrue(soon.expires().isAfter(Instant.now()) && soon.keyspace().equals("apart"));
            assertTrue(changes.position().number() > begin.number());
            assertFalse(changes.iterator().hasNext());
            assertThrows(NoSuchElementException.class, () -> changes.iterator().next());

            // Reading after a position returns the later changes, even if the position was parsed
            // from text.
            Position second = Position.parse(found.get(1).position().toString());
            assertEquals(found.get(1).position(), second);
            try (Changes again = Changes.after(path, second)) {
                assertEquals(4, all(again).size());
            }
        }
    }

    /**
     * A get stores what it folded from many operands. A reader can distinguish this put from the
     * puts of users.
     */
    @Test
    void aFoldedPut() {
        String options = "[keyspace]\nmerge_operator = \"add-i64\"";
        try (Store store = Store.open(path, options); Changes changes = Changes.now(path)) {
            byte[] one = {1, 0, 0, 0, 0, 0, 0, 0};
            for (int at = 0; at < 100; at++) {
                store.write(new WriteBatch().merge(store.defaultKeyspace(), bytes("m"), one));
            }
            assertEquals(100, store.defaultKeyspace().get(bytes("m"))[0]);
            store.defaultKeyspace().put(bytes("k"), bytes("v"));
            List<Change.Write> writes = new ArrayList<>();
            all(changes).forEach(change -> change.forEach(writes::add));
            assertEquals(102, writes.size());
            for (int at = 0; at < 102; at++) {
                assertEquals(at == 100, writes.get(at).folded());
                assertEquals(at < 100, writes.get(at).kind() == Change.WriteKind.MERGE);
            }
        }
    }

    /**
     * A change that an iterator has read ahead is not lost, and counts only after it is returned.
     */
    @Test
    void anIteratorThatLooksAheadLosesNothing() {
        try (Store store = Store.open(path); Changes changes = Changes.now(path)) {
            store.defaultKeyspace().put(bytes("1"), bytes(""));
            store.defaultKeyspace().put(bytes("2"), bytes(""));
            Iterator<Change> iterator = changes.iterator();
            Position before = changes.position();
            assertTrue(iterator.hasNext() && iterator.hasNext());
            assertEquals(before, changes.position());
            List<String> keys = new ArrayList<>();
            for (Change change = changes.next(); change != null; change = changes.next()) {
                assertEquals(change.position(), changes.position());
                change.forEach(write -> keys.add(text(write.key())));
            }
            assertEquals(List.of("1", "2"), keys);
        }
    }

    @Test
    void waits() throws Exception {
        try (BackupsTest.Writer writer = new BackupsTest.Writer(path)) {
            Changes changes = Changes.now(path);
            assertNull(changes.next(Duration.ofMillis(20)));
            assertNull(changes.next(Duration.ofSeconds(Long.MIN_VALUE)));
            CompletableFuture<List<String>> found = CompletableFuture.supplyAsync(() -> {
                List<String> values = new ArrayList<>();
                while (!values.contains("last")) {
                    Change change = changes.next(Duration.ofSeconds(60));
                    change.forEach(write -> values.add(text(write.value())));
                }
                return values;
            });
            writer.write("first");
            writer.write("last");
            assertEquals("first", found.get(60, TimeUnit.SECONDS).get(0));
            while (changes.next(Duration.ofMillis(200)) != null) {
                // To the end.
            }
            // FOREVER's milliseconds do not fit in a long. This once caused an ArithmeticException.
            CompletableFuture<Change> closed = CompletableFuture.supplyAsync(
                    () -> changes.next(ChronoUnit.FOREVER.getDuration()));
            Thread.sleep(50);
            changes.close();
            ExecutionException ended = assertThrows(
                    ExecutionException.class, () -> closed.get(60, TimeUnit.SECONDS));
            assertEquals(RunstoneException.Closed.class, ended.getCause().getClass());
            assertThrows(RunstoneException.Closed.class, changes::next);
            assertThrows(RunstoneException.Closed.class, changes::position);
        }
    }

    /** The log is gone: missed writes are returned as state, and then the log continues. */
    @Test
    void theStateBehindAGap() {
        Position after;
        try (Store store = Store.open(path); Changes changes = Changes.oldest(path)) {
            store.defaultKeyspace().put(bytes("old"), bytes("1"));
            all(changes);
            after = changes.position();
            store.defaultKeyspace().put(bytes("new"), bytes("1"));
            store.defaultKeyspace().put(bytes("new"), bytes("2"));
            store.openKeyspace("apart").put(bytes("k"), bytes("v"));
        }
        try (Store store = Store.open(path)) {
            store.defaultKeyspace().put(bytes("late"), bytes("3"));
            ChangesOptions options = ChangesOptions.after(after);
            RunstoneException gone = assertThrows(
                    RunstoneException.class, () -> Changes.open(path, options));
            assertEquals(Code.HISTORY_GONE, gone.code());
            Position end;
            try (Changes changes = Changes.open(path, options.stateOnGap())) {
                List<Change> found = all(changes);
                assertEquals(List.of(Change.Kind.GAP, Change.Kind.KEYSPACES, Change.Kind.STATE,
                        Change.Kind.STATE, Change.Kind.GAP_END),
                        found.stream().map(Change::kind).toList());
                assertEquals(after.number(), found.get(0).gap().after());
                assertNull(found.get(4).gap());
                List<String> writes = new ArrayList<>();
                found.forEach(change -> change.forEach(write -> writes.add(said(write))));
                assertEquals(List.of("PUT default late 3", "PUT default new 2", "PUT apart k v"),
                        writes);
                // A reader that is interrupted inside the gap begins with the gap again.
                assertEquals(after, found.get(3).position());
                end = found.get(4).position();
                assertTrue(end.number() >= found.get(0).gap().through());
                store.defaultKeyspace().put(bytes("last"), bytes("4"));
                assertEquals("PUT default last 4", said(changes.next().iterator().next()));
            }
            // If the log reaches back far enough, there is no gap.
            ChangesOptions reaching = ChangesOptions.after(end);
            try (Changes changes = Changes.open(path, reaching.stateOnGap("").unsynced())) {
                assertEquals(List.of(Change.Kind.WRITES),
                        all(changes).stream().map(Change::kind).toList());
            }
        }
        RunstoneException nowhere = assertThrows(RunstoneException.InvalidArgument.class,
                () -> Changes.open(path, ChangesOptions.now().stateOnGap()));
        assertTrue(nowhere.getMessage().contains("position"), nowhere.getMessage());
        assertThrows(RunstoneException.InvalidArgument.class,
                () -> Changes.open(path, ChangesOptions.after(after).stateOnGap("memory = 7")));
    }

    /** The log begins after a flush, so a consumer without data begins with the state. */
    @Test
    void everything() {
        try (Store store = Store.open(path)) {
            Keyspace keyspace = store.defaultKeyspace();
            keyspace.put(bytes("flushed"), bytes("1"));
            keyspace.put(bytes("gone"), bytes("1"));
            keyspace.delete(bytes("gone"));
            store.flush();
            try (Changes changes = Changes.everything(path)) {
                keyspace.put(bytes("later"), bytes("2"));
                List<Change> found = all(changes);
                assertEquals(List.of(Change.Kind.GAP, Change.Kind.KEYSPACES, Change.Kind.STATE,
                        Change.Kind.GAP_END, Change.Kind.WRITES),
                        found.stream().map(Change::kind).toList());
                assertEquals(0, found.get(0).gap().after());
                assertEquals("PUT default flushed 1", said(found.get(2).iterator().next()));
                assertEquals("PUT default later 2", said(found.get(4).iterator().next()));
                // Reading from a position inside the state returns the whole state again.
                try (Changes again = Changes.after(path, found.get(2).position())) {
                    assertEquals(Change.Kind.GAP, again.next().kind());
                }
            }
            ChangesOptions withOptions = ChangesOptions.everything().stateOnGap("");
            try (Changes changes = Changes.open(path, withOptions)) {
                assertEquals(Change.Kind.GAP, changes.next().kind());
            }
        }
    }

    @Test
    void whatIsGone() {
        Position first;
        try (Store store = Store.open(path); Changes changes = Changes.oldest(path)) {
            store.defaultKeyspace().put(bytes("key"), bytes("value"));
            List<Change> found = all(changes);
            first = found.get(found.size() - 1).position();
        }
        try (Store store = Store.open(path)) {
            store.defaultKeyspace().put(bytes("key"), bytes("other"));
        }
        RunstoneException gone = assertThrows(
                RunstoneException.class, () -> Changes.after(path, first));
        assertEquals(Code.HISTORY_GONE, gone.code());
        assertTrue(gone.getMessage().contains("keep_log_bytes"), gone.getMessage());
        RunstoneException none = assertThrows(
                RunstoneException.class, () -> Changes.now(directory.resolve("none")));
        assertEquals(Code.NOT_A_STORE, none.code());
        for (String text : List.of("", "7", "7@12", "x@0123456789abcdef",
                "99999999999999999999@0123456789abcdef")) {
            assertThrows(RunstoneException.InvalidArgument.class, () -> Position.parse(text));
        }
    }
}
