// A place in the history of a store.

package org.runstone;

/**
 * A place in the history of a store, after a write.
 *
 * @param number the number of the last write before it
 * @param history the id of the history: after a power loss the same number can mean another write,
 *     in another history
 */
public record Position(long number, long history) {
    static Position of(Answer answer) {
        return new Position(answer.number(), answer.number());
    }

    /** The position as the other bindings and the command write it: {@code NUMBER@HISTORY}. */
    @Override
    public String toString() {
        return Long.toUnsignedString(number) + "@" + String.format("%016x", history);
    }
}
