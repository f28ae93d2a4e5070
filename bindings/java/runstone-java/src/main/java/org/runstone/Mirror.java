// A store that follows another one.

package org.runstone;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Objects;

/**
 * A store that is as another one was at some moment, and follows it change by change. It keeps its
 * position in itself, so a process that is killed goes on where it was.
 *
 * <pre>{@code
 * try (Mirror mirror = Mirror.open(Path.of("my-store"), Path.of("mirror"))) {
 *     while (!Thread.currentThread().isInterrupted()) {
 *         mirror.advance(Duration.ofSeconds(1));
 *     }
 * }
 * }</pre>
 *
 * <p>To read it meanwhile, follow it with {@link Store#follow(Path)}. With the code {@code
 * HISTORY_GONE} it was away for too long, and needs a new directory: the writer's option {@code
 * keep_log_bytes} keeps more of the log. One thread at a time may use it; any may close it.
 */
public final class Mirror extends Handle {
    /** A wait gives way this often: to an interrupt, to a close, and to other threads. */
    private static final long SLICE_MILLIS = 100;

    private Mirror(long handle) {
        super("mirror", handle, Native::closeMirror);
    }

    /** Goes on with a mirror with default options, or makes one. */
    public static Mirror open(Path source, Path target) {
        return open(source, target, "");
    }

    /**
     * Goes on with the mirror of a store, or makes it in a directory that is new or empty. The
     * store may be open in this process or in another one, or closed.
     *
     * @param options those of the mirror, as in {@link Store#open(Path, String)}
     */
    public static Mirror open(Path source, Path target, String options) {
        Objects.requireNonNull(options, "options");
        String directory = target.toString();
        Library.load();
        Events events = new Events(directory, null);
        return new Mirror(Native.openMirror(source.toString(), directory, options, events));
    }

    /**
     * What a round of mirroring did.
     *
     * @param changes changes that were applied
     * @param bytes about how many bytes they have
     * @param isDrained whether there was no more; a round ends after about 16 MiB although there is
     *     more
     */
    public record Round(long changes, long bytes, boolean isDrained) {
        static Round of(Answer answer) {
            return new Round(answer.number(), answer.number(), answer.number() == 1);
        }
    }

    /** Applies what was committed since, without a wait. */
    public Round advance() {
        return advance(Duration.ZERO);
    }

    /**
     * Applies what was committed since, and waits for a change for at most so long first. After an
     * exception the mirror is at its position, and the next call goes on. A thread that closes the
     * mirror ends the wait with {@link RunstoneException.Closed}. An interrupt of this thread ends
     * the wait too, and stays set.
     */
    public Round advance(Duration wait) {
        long begin = System.nanoTime();
        while (true) {
            long left = wait.minusNanos(System.nanoTime() - begin).toMillis();
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

    /** The position of the other store that the mirror shows. */
    public Position position() {
        try {
            return Position.of(new Answer(Native.mirrored(handle())));
        } finally {
            keep(this);
        }
    }
}
