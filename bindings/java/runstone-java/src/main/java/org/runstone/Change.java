// Something that was committed to a store.

package org.runstone;

import java.time.Instant;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;

/**
 * Something that was committed to a store. An iteration gives its writes, in order; they became
 * visible together.
 */
public final class Change implements Iterable<Change.Write> {
    private final Position position;
    private final Kind kind;
    private final List<NamedKeyspace> keyspaces;
    private final Instant time;
    private final Gap gap;
    private final List<Write> writes;
    /** What follows the first writes of a load; null if nothing does. */
    private final Rest rest;
    private boolean isBegun;

    /** Kinds of changes. The order is that of the native library. */
    public enum Kind {
        /** Writes. */
        WRITES,
        /** A load into a keyspace. Its writes can be iterated over once, a megabyte at a time. */
        LOADED,
        /** A keyspace was made, or its options changed. */
        KEYSPACE,
        /** A keyspace was dropped. */
        DROPPED,
        /** All keyspaces that there are, after a crash or behind a gap. */
        KEYSPACES,
        /** A time: all changes before it had been committed by then. */
        TIME,
        /**
         * The log does not have what comes next: {@link #STATE} follows until {@link #GAP_END}.
         * Values that were overwritten meanwhile are not handed out, nor are deletes that a
         * compaction has dropped with what they hid: a key that the store has not any more may not
         * come. The position inside a gap is that before it.
         */
        GAP,
        /** What keys have as of the end of the gap: a put or a delete, after deletes of ranges. */
        STATE,
        /** The gap has ended. */
        GAP_END
    }

    /**
     * A gap of the log.
     *
     * @param after the state is of what was written behind this number; 0 means of all keys
     * @param through the state is as of this number
     */
    public record Gap(long after, long through) {
    }

    /**
     * A keyspace of a change.
     *
     * @param name its name
     * @param options its options as TOML if it was made or changed; otherwise null
     */
    public record NamedKeyspace(String name, String options) {
        private static NamedKeyspace of(Answer answer) {
            return new NamedKeyspace(answer.text(), answer.optional(Answer::text));
        }
    }

    /**
     * A write.
     *
     * @param kind what it does
     * @param keyspace the name of the keyspace
     * @param key the key; of a range, the first one
     * @param value the value or operand; of a range, the key before which it ends; null for a
     *     delete, and for a range without an end
     * @param expires when the value expires, or null
     */
    public record Write(WriteKind kind, String keyspace, byte[] key, byte[] value,
            Instant expires) {
        private static Write of(Answer answer) {
            return new Write(WriteKind.values()[(int) answer.number()], answer.text(),
                    answer.bytes(), answer.optional(Answer::bytes),
                    answer.optional(expiry -> Instant.ofEpochMilli(expiry.number())));
        }
    }

    /** What a write does. The order is that of the native library. */
    public enum WriteKind {
        /** Stores a value. */
        PUT,
        /** Removes a key. */
        DELETE,
        /** Adds an operand of the merge operator. */
        MERGE,
        /** Removes a range of keys. */
        DELETE_RANGE
    }

    /** The writes of a load that Java does not have yet. */
    private static final class Rest extends Handle {
        Rest(Changes changes, long handle) {
            super("change", handle, Native::closeWrites, changes);
        }

        List<Write> next() {
            try {
                return new Answer(Native.nextWrites(handle())).list(Write::of);
            } finally {
                keep(this);
            }
        }
    }

    Change(Changes changes, Answer answer) {
        position = Position.of(answer);
        kind = Kind.values()[(int) answer.number()];
        keyspaces = answer.list(NamedKeyspace::of);
        time = answer.optional(told -> Instant.ofEpochMilli(told.number()));
        gap = answer.optional(told -> new Gap(told.number(), told.number()));
        writes = answer.list(Write::of);
        long handle = answer.number();
        rest = handle == 0 ? null : new Rest(changes, handle);
    }

    /** The position after it. Whoever begins there gets no write twice. */
    public Position position() {
        return position;
    }

    /** What kind it is. */
    public Kind kind() {
        return kind;
    }

    /** The keyspaces that it is about, unless it has writes of its own. */
    public List<NamedKeyspace> keyspaces() {
        return keyspaces;
    }

    /** Of a time, by the clock of the writer, which may go back; otherwise null. */
    public Instant time() {
        return time;
    }

    /** Of a gap; otherwise null. */
    public Gap gap() {
        return gap;
    }

    /**
     * Its writes, in order.
     *
     * @throws IllegalStateException if those of a load were iterated over before
     */
    @Override
    public Iterator<Write> iterator() {
        if (rest == null) {
            return writes.iterator();
        }
        if (isBegun) {
            throw new IllegalStateException("the writes of a load can be iterated over once");
        }
        isBegun = true;
        return new Iterator<>() {
            private Iterator<Write> page = writes.iterator();
            private boolean isOver;

            @Override
            public boolean hasNext() {
                while (!isOver && !page.hasNext()) {
                    List<Write> more = rest.next();
                    page = more.iterator();
                    if (more.isEmpty()) {
                        isOver = true;
                        rest.close();
                    }
                }
                return page.hasNext();
            }

            @Override
            public Write next() {
                if (!hasNext()) {
                    throw new NoSuchElementException();
                }
                return page.next();
            }
        };
    }

    @Override
    public String toString() {
        return kind + " " + position;
    }
}
