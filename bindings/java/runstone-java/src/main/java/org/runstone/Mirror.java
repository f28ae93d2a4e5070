// A store that follows another store.

package org.runstone;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Objects;

/**
 * A store that equals a past state of another store, and follows it change by change. It stores its
 * own position, so after a kill it continues from there.
 *
 * <pre>{@code
 * try (Mirror mirror = Mirror.open(Path.of("my-store"), Path.of("mirror"))) {
 *     while (!Thread.currentThread().isInterrupted()) {
 *         mirror.advance(Duration.ofSeconds(1));
 *     }
 * }
 * }</pre>
 *
 * <p>To read the mirror while it is open, follow it with {@link Store#follow(Path)}. The code
 * {@code HISTORY_GONE} means that the mirror did not advance for too long and needs a new
 * directory. The writer's option {@code keep_log_bytes} keeps more of the log. One thread at a time
 * may use a mirror; any thread may close it.
 */
public final class Mirror extends Handle {
    /**
     * The interval at which a wait checks for an interrupt and a close, and lets other threads in.
     */
    private static final long SLICE_MILLIS = 100;

    private Mirror(long handle) {
        super("mirror", handle, Native::closeMirror);
    }

    /** Continues a mirror with default options, or makes one. */
    public static Mirror open(Path source, Path target) {
        return open(source, target, "");
    }

    /**
     * Continues the mirror of a store, or makes it in a directory that is new or empty. The store
     * may be open in this process or in another one, or closed.
     *
     * @param options the options of the mirror, as in {@link Store#open(Path, String)}
     */
    public static Mirror open(Path source, Path target, String options) {
        Objects.requireNonNull(options, "options");
        String directory = target.toString();
        Library.load();
        Events events = new Events(directory, null);
        return new Mirror(Native.openMirror(source.toString(), directory, options, events));
    }

    /**
     * The result of a round of mirroring.
     *
     * @param changes changes that were applied
     * @param bytes their approximate size
     * @param isDrained whether the round reached the end of the changes; it stops after about 16
     *     MiB
     */
    public record Round(long changes, long bytes, boolean isDrained) {
        static Round of(Answer answer) {
            return new Round(answer.number(), answer.number(), answer.number() == 1);
        }
    }

    /**
     * Closes the mirror. A running round ends first. A second call does nothing. A call from a
     * callback of the mirror is refused with the code {@code INSIDE_CALLBACK}, and the mirror stays
     * open.
     */
    @Override
    public void close() {
        try {
            // Otherwise the handle would be lost but the mirror would stay open.
            Native.checkMirrorCloser(handleIfOpen());
            super.close();
        } finally {
            keep(this);
        }
    }

    /** Applies the changes that were committed since, without waiting. */
    public Round advance() {
        return advance(Duration.ZERO);
    }

    /**
     * Waits at most this long for a change, then applies the changes that were committed since.
     * After an exception the mirror is at its position, and the next call continues. A thread that
     * closes the mirror ends the wait with {@link RunstoneException.Closed}. An interrupt of this
     * thread ends the wait too, and stays set.
     */
    public Round advance(Duration wait) {
        Duration most = bounded(wait);
        long begin = System.nanoTime();
        while (true) {
            long left = most.minusNanos(System.nanoTime() - begin).toMillis();
            boolean isLast = left <= SLICE_MILLIS || Thread.currentThread().isInterrupted();
            long slice = isLast && left > SLICE_MILLIS ? 0 : Math.min(left, SLICE_MILLIS);
            try {
                byte[] answer = Native.advanceMirror(handle(), Math.max(slice, 0));
                Round round = Round.of(new Answer(answer));
                if (isLast || round.changes > 0) {
                    return round;
                }
            } finally {
                keep(this);
            }
        }
    }

    /** The position in the other store that the mirror has reached. */
    public Position position() {
        try {
            return Position.of(new Answer(Native.mirrored(handle())));
        } finally {
            keep(this);
        }
    }
}
