// Reads the committed changes of a store.

package org.runstone;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Iterator;
import java.util.NoSuchElementException;

/**
 * Reads the committed changes of a store in order, whether or not a process writes to it. Changes
 * are durable, unless {@link ChangesOptions#unsynced} is set.
 *
 * <pre>{@code
 * try (Changes changes = Changes.after(Path.of("my-store"), position)) {
 *     for (Change change : changes) {          // ends with what there is now
 *         WriteBatch effects = new WriteBatch();
 *         change.forEach(write -> apply(write, effects));
 *         effects.put(own, key, change.position().toString().getBytes());
 *         copy.write(effects);                 // each has its effect once
 *     }
 * }
 * }</pre>
 *
 * <p>The code {@code HISTORY_GONE} means that the log does not reach back so far. The writer's
 * option {@code keep_log_bytes} keeps more of the log, and {@link ChangesOptions#stateOnGap()}
 * continues with the state instead. The code {@code HISTORY_FORKED} means that a power loss removed
 * changes that were read already: begin with the state of the store. One thread at a time may use a
 * reader; any thread may close it.
 */
public final class Changes extends Handle implements Iterable<Change> {
    /** The interval at which a wait checks for an interrupt and a close. */
    private static final long SLICE_MILLIS = 100;

    private Position position;
    /** A change that an iterator has read and not returned. */
    private Change ahead;

    private Changes(Path store, ChangesOptions options) {
        super("reader of changes", opened(store, options), Native::closeChanges);
        position = Position.of(new Answer(Native.changesPosition(handle())));
    }

    private static long opened(Path store, ChangesOptions options) {
        Library.load();
        return Native.openChanges(store.toString(), options.from, options.after.number(),
                options.after.history(), options.state, options.isUnsynced);
    }

    /** Reads the committed changes of a store. */
    public static Changes open(Path store, ChangesOptions options) {
        return new Changes(store, options);
    }

    /** Begins with the oldest change that the log of a store has. */
    public static Changes oldest(Path store) {
        return open(store, ChangesOptions.oldest());
    }

    /** Begins with the state of all keys: see {@link ChangesOptions#everything()}. */
    public static Changes everything(Path store) {
        return open(store, ChangesOptions.everything());
    }

    /** Begins with the first change after now. */
    public static Changes now(Path store) {
        return open(store, ChangesOptions.now());
    }

    /** Begins after a position. */
    public static Changes after(Path store, Position position) {
        return open(store, ChangesOptions.after(position));
    }

    /** The next change, or null if there is none now. */
    public Change next() {
        return next(Duration.ZERO);
    }

    /**
     * The next change, or null if there is none within this time. A thread that closes this reader
     * ends the wait with {@link RunstoneException.Closed}. An interrupt of this thread ends the
     * wait too, and stays set.
     */
    public Change next(Duration wait) {
        Change next = ahead != null ? ahead : read(wait);
        ahead = null;
        if (next != null) {
            position = next.position();
        }
        return next;
    }

    private Change read(Duration wait) {
        Duration most = bounded(wait);
        long begin = System.nanoTime();
        while (true) {
            long left = most.minusNanos(System.nanoTime() - begin).toMillis();
            boolean isLast = left <= SLICE_MILLIS || Thread.currentThread().isInterrupted();
            long slice = isLast && left > SLICE_MILLIS ? 0 : Math.min(left, SLICE_MILLIS);
            try {
                byte[] answer = Native.nextChange(handle(), Math.max(slice, 0));
                if (answer != null || isLast) {
                    return answer == null ? null : new Change(this, new Answer(answer));
                }
            } finally {
                keep(this);
            }
        }
    }

    /** The position after the last change that was returned. */
    public Position position() {
        handle();
        return position;
    }

    /** An iterator that ends after the changes made so far. A later iterator continues. */
    @Override
    public Iterator<Change> iterator() {
        return new Iterator<>() {
            @Override
            public boolean hasNext() {
                if (ahead == null) {
                    ahead = read(Duration.ZERO);
                }
                return ahead != null;
            }

            @Override
            public Change next() {
                Change next = Changes.this.next();
                if (next == null) {
                    throw new NoSuchElementException();
                }
                return next;
            }
        };
    }
}
