// Appends the changes of a store to an archive.

package org.runstone;

import java.time.Duration;

/**
 * Appends the committed changes of a store to the archive beside its backups, so that {@link
 * Backups#restoreTo} can reach any moment. Closing the {@link Backups} or the store does not end
 * it.
 *
 * <pre>{@code
 * try (Archiver archiver = backups.archive(Path.of("my-store"))) {
 *     while (!Thread.currentThread().isInterrupted()) {
 *         archiver.advance(Duration.ofSeconds(1));
 *     }
 * }
 * }</pre>
 */
public final class Archiver extends Handle {
    /**
     * The interval at which a wait checks for an interrupt and a close, and lets other threads in.
     */
    private static final long SLICE_MILLIS = 100;

    Archiver(long handle) {
        super("archiver", handle, Native::closeArchiver);
    }

    /**
     * The result of a round of archiving.
     *
     * @param changes changes that were appended
     * @param bytes bytes that were appended
     * @param isDrained whether the round reached the end of the changes; it stops after about 16
     *     MiB
     * @param backup the first backup of the archive if it began or began again; null if it
     *     continued
     * @param lacks the numbers that the archive lacks because it began again; null if it lacks none
     */
    public record Round(
            long changes, long bytes, boolean isDrained, Backup backup, Gap lacks) {
        static Round of(Answer answer) {
            long changes = answer.number();
            long bytes = answer.number();
            boolean isDrained = answer.number() == 1;
            Backup backup = null;
            Gap lacks = null;
            if (answer.number() == 1) {
                backup = Backup.of(answer);
                lacks = answer.optional(gap -> new Gap(gap.number(), gap.number()));
            }
            return new Round(changes, bytes, isDrained, backup, lacks);
        }
    }

    /**
     * Numbers that an archive does not have.
     *
     * @param after the last number before them
     * @param through the last of them
     */
    public record Gap(long after, long through) {
    }

    /** Appends the changes that were committed since, without waiting. */
    public Round advance() {
        return advance(Duration.ZERO);
    }

    /**
     * Waits at most this long for a change, then appends the changes that were committed since.
     * They are durable when this returns. After an exception the archive is intact, and the next
     * call continues. A thread that closes the archiver ends the wait with {@link
     * RunstoneException.Closed}. An interrupt of this thread ends the wait too, and stays set.
     */
    public Round advance(Duration wait) {
        Duration most = bounded(wait);
        long begin = System.nanoTime();
        while (true) {
            long left = most.minusNanos(System.nanoTime() - begin).toMillis();
            boolean isLast = left <= SLICE_MILLIS || Thread.currentThread().isInterrupted();
            long slice = isLast && left > SLICE_MILLIS ? 0 : Math.min(left, SLICE_MILLIS);
            try {
                Round round = Round.of(new Answer(Native.advance(handle(), Math.max(slice, 0))));
                if (isLast || round.changes > 0 || round.backup != null) {
                    return round;
                }
            } finally {
                keep(this);
            }
        }
    }

    /** The position up to which the archive is complete. */
    public Position position() {
        try {
            return Position.of(new Answer(Native.archived(handle())));
        } finally {
            keep(this);
        }
    }
}
