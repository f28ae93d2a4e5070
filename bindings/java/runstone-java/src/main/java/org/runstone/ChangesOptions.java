// Where changes begin, and how they are read.

package org.runstone;

import java.util.Objects;

/**
 * Where {@link Changes} begin, and how they are read. Values are immutable: each method returns a
 * new one.
 *
 * <pre>{@code
 * Changes.open(path, ChangesOptions.after(position).stateOnGap().unsynced());
 * }</pre>
 */
public final class ChangesOptions {
    // Where changes begin. The native side uses the same numbers.
    private static final int OLDEST = 0;
    private static final int NOW = 1;
    private static final int AFTER = 2;
    private static final int EVERYTHING = 3;

    final int from;
    final Position after;
    /** Options for reading the state after a gap; null if a gap is a failure. */
    final String state;
    final boolean isUnsynced;

    private ChangesOptions(int from, Position after, String state, boolean isUnsynced) {
        this.from = from;
        this.after = after;
        this.state = state;
        this.isUnsynced = isUnsynced;
    }

    private static ChangesOptions of(int from, Position after) {
        return new ChangesOptions(from, after, null, false);
    }

    /** Begins with the oldest change that the log of a store has. */
    public static ChangesOptions oldest() {
        return of(OLDEST, new Position(0, 0));
    }

    /** Begins with the first change after now. */
    public static ChangesOptions now() {
        return of(NOW, new Position(0, 0));
    }

    /** Begins after a position. */
    public static ChangesOptions after(Position position) {
        return of(AFTER, Objects.requireNonNull(position, "position"));
    }

    /**
     * Begins with the state of all keys, which appears as a gap after 0, and continues with every
     * change after it: for a consumer that has no data yet. The log alone reaches back only to the
     * last flush. {@link #stateOnGap(String)} sets other options for reading the state.
     */
    public static ChangesOptions everything() {
        return of(EVERYTHING, new Position(0, 0));
    }

    /** The same as {@link #stateOnGap(String)} with default options. */
    public ChangesOptions stateOnGap() {
        return stateOnGap("");
    }

    /**
     * If the log does not reach back to the position, returns the state of the keys written since,
     * and then the log: see {@link Change.Kind#GAP}. Without this option, an exception is thrown
     * with the code {@code HISTORY_GONE}.
     *
     * @param options for reading the state, as in {@link Store#follow(java.nio.file.Path, String)}
     */
    public ChangesOptions stateOnGap(String options) {
        Objects.requireNonNull(options, "options");
        return new ChangesOptions(from, after, options, isUnsynced);
    }

    /**
     * Also returns changes that are not durable yet. After a power loss the store may have lost
     * them. Then the reader throws with the code {@code HISTORY_FORKED}.
     */
    public ChangesOptions unsynced() {
        return new ChangesOptions(from, after, state, true);
    }
}
