// A moment to which a store is restored.

package org.runstone;

import java.time.Instant;

/** A moment to which {@link Backups#restoreTo} restores a store. */
public final class Moment {
    /** The native library uses the same numbers. */
    private static final int AT_END = 0;
    private static final int AT_TIME = 1;
    private static final int AT_NUMBER = 2;
    private static final int AT_POSITION = 3;

    final int kind;
    final long value;
    /** The history, if the moment is a position. */
    final long history;

    private Moment(int kind, long value) {
        this(kind, value, 0);
    }

    private Moment(int kind, long value, long history) {
        this.kind = kind;
        this.value = value;
        this.history = history;
    }

    /** The end of the archive. */
    public static Moment end() {
        return new Moment(AT_END, 0);
    }

    /**
     * After all changes that had been committed by this time. The archive knows the time of a
     * change to about a second.
     */
    public static Moment time(Instant time) {
        return new Moment(AT_TIME, time.toEpochMilli());
    }

    /**
     * After the last batch whose number is at most this one. This is exact. After a power loss or a
     * restore, a store reuses numbers; {@link #position} also names the history.
     */
    public static Moment number(long number) {
        return new Moment(AT_NUMBER, number);
    }

    /** After the last batch of this history whose number is at most that of the position. */
    public static Moment position(Position position) {
        return new Moment(AT_POSITION, position.number(), position.history());
    }

    @Override
    public String toString() {
        return switch (kind) {
            case AT_END -> "the end";
            case AT_TIME -> Instant.ofEpochMilli(value).toString();
            case AT_NUMBER -> "number " + value;
            default -> new Position(value, history).toString();
        };
    }
}
