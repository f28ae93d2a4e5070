// A moment to which a store is restored.

package org.runstone;

import java.time.Instant;

/** A moment to which {@link Backups#restoreTo} restores a store. */
public final class Moment {
    /** The numbers are the native library's. */
    private static final int AT_END = 0;
    private static final int AT_TIME = 1;
    private static final int AT_NUMBER = 2;

    final int kind;
    final long value;

    private Moment(int kind, long value) {
        this.kind = kind;
        this.value = value;
    }

    /** The end of the archive. */
    public static Moment end() {
        return new Moment(AT_END, 0);
    }

    /**
     * After everything that had been committed by this time. The archive knows the time of a change
     * to about a second.
     */
    public static Moment time(Instant time) {
        return new Moment(AT_TIME, time.toEpochMilli());
    }

    /** After the last batch whose number is at most this. It is exact. */
    public static Moment number(long number) {
        return new Moment(AT_NUMBER, number);
    }

    @Override
    public String toString() {
        return switch (kind) {
            case AT_END -> "the end";
            case AT_TIME -> Instant.ofEpochMilli(value).toString();
            default -> "number " + value;
        };
    }
}
