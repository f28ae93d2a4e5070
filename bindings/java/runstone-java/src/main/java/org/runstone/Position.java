// A place in the history of a store.

package org.runstone;

import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * A place in the history of a store, after a write.
 *
 * @param number the number of the last write before it
 * @param history the id of the history: after a power loss the same number can mean another write,
 *     in another history
 */
public record Position(long number, long history) {
    private static final Pattern TEXT = Pattern.compile("([0-9]+)@([0-9a-fA-F]{16})");

    /**
     * The position of a text from {@link #toString}.
     *
     * @throws RunstoneException.InvalidArgument if the text is not a position
     */
    public static Position parse(String text) {
        Matcher parts = TEXT.matcher(text);
        try {
            if (parts.matches()) {
                return new Position(Long.parseLong(parts.group(1)),
                        Long.parseUnsignedLong(parts.group(2), 16));
            }
        } catch (NumberFormatException tooLarge) {
            // This is refused like any other invalid text.
        }
        throw new RunstoneException.InvalidArgument("\"" + text + "\" is no position; give it as it "
                + "was printed: a number, @, and 16 hexadecimal digits");
    }

    static Position of(Answer answer) {
        return new Position(answer.number(), answer.number());
    }

    /**
     * The position in the form of the other bindings and of the command line: {@code
     * NUMBER@HISTORY}.
     */
    @Override
    public String toString() {
        return Long.toUnsignedString(number) + "@" + String.format("%016x", history);
    }
}
