// Reads what is committed to a store.

package org.runstone;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Iterator;
import java.util.NoSuchElementException;

/**
 * Reads what is committed to a store, in order, whether or not a process writes to it. What it hands
 * out is durable, unless {@link ChangesOptions#unsynced}.
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
 * <p>With the code {@code HISTORY_GONE} the log does not reach back so far: the writer's option
 * {@code keep_log_bytes} keeps more, and {@link ChangesOptions#stateOnGap()} goes on with the state
 * in its place. With {@code HISTORY_FORKED} the store has lost to a power loss what was read: begin
 * with its state. One thread at a time may use it; any may close it.
 */
public final class Changes extends Handle implements Iterable<Change> {
    /** A wait gives way this often: to an interrupt and to a close. */
    private static final long SLICE_MILLIS = 100;

    private Position position;
    /** What an iterator has seen, and has not handed out. */
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

    /** Reads what is committed to a store. */
    public static Changes open(Path store, ChangesOptions options) {
        return new Changes(store, options);
    }

    /** Begins with the oldest change that the log of a store has. */
    public static Changes oldest(Path store) {
        return open(store, ChangesOptions.oldest());
    }

    /** Begins with what is committed from now on. */
    public static Changes now(Path store) {
        return open(store, ChangesOptions.now());
    }

    /** Begins behind a position. */
    public static Changes after(Path store, Position position) {
        return open(store, ChangesOptions.after(position));
    }

    /** The next change, or null if there is none now. */
    public Change next() {
        return next(Duration.ZERO);
    }

    /**
     * The next change, or null if there is none within so long. A thread that closes this ends the
     * wait with {@link RunstoneException.Closed}. An interrupt of this thread ends it too, and stays
     * set.
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
        long begin = System.nanoTime();
        while (true) {
            long left = wait.minusNanos(System.nanoTime() - begin).toMillis();
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

    /** The position after the last change that was handed out. */
    public Position position() {
        handle();
        return position;
    }

    /** An iterator that ends with what there is now. Another one goes on. */
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
