// Reads answers of the native library that have several fields.

package org.runstone;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Function;

/** The fields of an answer, one after another. The module {@code answers} writes them. */
final class Answer {
    private final ByteBuffer in;

    Answer(byte[] answer) {
        in = ByteBuffer.wrap(answer).order(ByteOrder.LITTLE_ENDIAN);
    }

    long number() {
        return in.getLong();
    }

    byte[] bytes() {
        byte[] bytes = new byte[in.getInt()];
        in.get(bytes);
        return bytes;
    }

    String text() {
        return new String(bytes(), StandardCharsets.UTF_8);
    }

    <T> T optional(Function<Answer, T> read) {
        return number() == 0 ? null : read.apply(this);
    }

    <T> List<T> list(Function<Answer, T> read) {
        List<T> all = new ArrayList<>();
        for (long left = number(); left > 0; left--) {
            all.add(read.apply(this));
        }
        return List.copyOf(all);
    }
}
