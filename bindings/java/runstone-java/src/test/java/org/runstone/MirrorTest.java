// Tests a store that follows another store, and the reports of a writer to its followers.

package org.runstone;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.runstone.StoreTest.bytes;
import static org.runstone.StoreTest.text;

import java.nio.file.Path;
import java.time.Duration;
import java.time.temporal.ChronoUnit;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.runstone.RunstoneException.Code;

class MirrorTest {
    @TempDir
    Path directory;

    private Path path;
    private Path target;

    @BeforeEach
    void places() {
        path = directory.resolve("store");
        target = directory.resolve("mirror");
    }

    private static String value(Store store) {
        return text(store.defaultKeyspace().get(bytes("key")));
    }

    @Test
    void goesOn() throws Exception {
        try (BackupsTest.Writer writer = new BackupsTest.Writer(path)) {
            writer.write("one");
            Position place;
            Mirror closed = Mirror.open(path, target);
            try (Mirror mirror = closed; Store shown = Store.follow(target)) {
                assertEquals("one", value(shown));
                writer.write("two");
                Mirror.Round round = mirror.advance(Duration.ofSeconds(30));
                assertTrue(round.changes() >= 1 && round.isDrained());
                assertTrue(shown.refresh());
                assertEquals("two", value(shown));
                assertThrows(RunstoneException.InUse.class, () -> Mirror.open(path, target));
                place = mirror.position();
            }
            assertThrows(RunstoneException.Closed.class, closed::advance);
            assertThrows(RunstoneException.Closed.class, closed::position);
            closed.close();
            writer.write("three");
            try (Mirror mirror = Mirror.open(path, target, "durability = 'sync'")) {
                assertEquals(place, mirror.position());
                assertTrue(mirror.advance().changes() >= 1);
            }
            try (Store store = Store.open(target)) {
                assertEquals("three", value(store));
            }
        }
    }

    @Test
    void wrongPlaces() {
        Store.open(path).close();
        Store.open(target).close();
        var other = assertThrows(RunstoneException.InvalidArgument.class,
                () -> Mirror.open(path, target));
        assertTrue(other.getMessage().contains("no mirror"), other.getMessage());
        RunstoneException none = assertThrows(RunstoneException.class,
                () -> Mirror.open(directory.resolve("none"), directory.resolve("new")));
        assertEquals(Code.NOT_A_STORE, none.code());
        assertThrows(RunstoneException.InvalidArgument.class,
                () -> Mirror.open(path, directory.resolve("new"), "memory = 7"));
        assertThrows(NullPointerException.class, () -> Mirror.open(path, target, null));
    }

    /** A busy writer always adds changes, so a round ends before it has applied all of them. */
    @Test
    void roundsSayWhetherThereIsMore() {
        try (Store store = Store.open(path);
                Mirror mirror = Mirror.open(path, target);
                Backups backups = Backups.open(directory.resolve("backups"));
                Archiver archiver = backups.archive(path)) {
            assertTrue(archiver.advance().isDrained());
            for (int at = 0; at < 40; at++) {
                store.defaultKeyspace().put(bytes("large"), new byte[1 << 20]);
            }
            store.defaultKeyspace().put(bytes("key"), bytes("last"));
            Mirror.Round round = mirror.advance();
            assertFalse(round.isDrained());
            assertTrue(round.changes() >= 16 && round.changes() < 40, round.toString());
            assertTrue(round.bytes() >= 16 << 20, round.toString());
            Archiver.Round archived = archiver.advance();
            assertFalse(archived.isDrained());
            assertTrue(archived.changes() >= 16 && archived.changes() < 40, archived.toString());
            while (!mirror.advance().isDrained()) {
                // To the end.
            }
            while (!archiver.advance().isDrained()) {
                // To the end.
            }
            // The writer may have recorded the time since, which is also a change.
            assertEquals(0, mirror.advance().bytes());
            assertTrue(archiver.advance().changes() <= 1);
            try (Store shown = Store.follow(target)) {
                assertEquals("last", value(shown));
            }
        }
    }

    @Test
    void aCloseEndsAWait() throws Exception {
        try (Store store = Store.open(path)) {
            Mirror mirror = Mirror.open(path, target);
            CompletableFuture<Mirror.Round> waits =
                    CompletableFuture.supplyAsync(
                            () -> mirror.advance(ChronoUnit.FOREVER.getDuration()));
            Thread.sleep(50);
            mirror.close();
            ExecutionException ended = assertThrows(
                    ExecutionException.class, () -> waits.get(60, TimeUnit.SECONDS));
            assertEquals(RunstoneException.Closed.class, ended.getCause().getClass());
            store.flush();
        }
    }

    private static LiveState told(Store store) throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        LiveState state = store.live();
        while (state == null || !state.isCurrent()) {
            assertTrue(System.nanoTime() < end, "the writer told nothing");
            Thread.sleep(10);
            state = store.live();
        }
        return state;
    }

    @Test
    void whatAWriterTells() throws Exception {
        try (BackupsTest.Writer writer = new BackupsTest.Writer(path);
                Store shown = Store.follow(path)) {
            writer.write("one");
            writer.write("two");
            LiveState state = told(shown);
            while (state.metrics().get("runstone_writes_total") < 4) {
                Thread.sleep(10);
                state = told(shown);
            }
            assertEquals(writer.process.pid(), state.process());
            assertTrue(state.age().toSeconds() < 10);
            assertEquals(0, shown.metrics().get("runstone_writes_total"));
        }
        try (Store store = Store.open(path)) {
            var own = assertThrows(RunstoneException.InvalidArgument.class, store::live);
            assertTrue(own.getMessage().contains("open for writing"), own.getMessage());
        }
        try (Store alone = Store.follow(path)) {
            assertNull(alone.live());
        }
        try (Store alone = Store.open(path, "read_only = true")) {
            assertNull(alone.live());
        }
    }
}
