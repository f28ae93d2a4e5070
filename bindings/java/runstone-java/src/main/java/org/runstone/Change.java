// A committed change of a store.

package org.runstone;

import java.time.Instant;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;

/**
 * A committed change of a store. Iterating returns its writes in order. They became visible
 * together.
 */
public final class Change implements Iterable<Change.Write> {
    private final Position position;
    private final Kind kind;
    private final List<NamedKeyspace> keyspaces;
    private final Instant time;
    private final Gap gap;
    private final List<Write> writes;
    /** The rest of a load after its first writes; null if there is none. */
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
        /**
         * All existing keyspaces: after a crash, inside a gap before its state, or if the log
         * begins after the position.
         */
        KEYSPACES,
        /** A time: all earlier changes had been committed by then. */
        TIME,
        /**
         * The log lacks the next changes: {@link #STATE} follows until {@link #GAP_END}. Values
         * that were overwritten before the end of the gap are left out. So are deletes that a
         * compaction has dropped together with the entries that they hid: such a deletion is not
         * reported. After a gap from 0, the state contains all keys: discard all earlier data.
         * Inside a gap, the position is the one before the gap.
         */
        GAP,
        /** Values of keys as of the end of the gap: puts and deletes, after deletes of ranges. */
        STATE,
        /** The gap has ended. */
        GAP_END
    }

    /**
     * A gap of the log.
     *
     * @param after the state covers keys written after this number; 0 means all keys
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
     * @param kind the kind of the write
     * @param keyspace the name of the keyspace
     * @param key the key; for a range, its first key
     * @param value the value or operand; for a range, the key before which it ends; null for a
     *     delete, and for a range without an end
     * @param expires when the value expires, or null
     * @param folded whether the store made this put itself: a get stored the value that it had
     *     merged from many operands of the key; the put does not change the value that a read
     *     returns
     */
    public record Write(WriteKind kind, String keyspace, byte[] key, byte[] value,
            Instant expires, boolean folded) {
        private static Write of(Answer answer) {
            return new Write(WriteKind.values()[(int) answer.number()], answer.text(),
                    answer.bytes(), answer.optional(Answer::bytes),
                    answer.optional(expiry -> Instant.ofEpochMilli(expiry.number())),
                    answer.number() != 0);
        }
    }

    /** The kind of a write. The order is that of the native library. */
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

    /** The writes of a load that Java has not received yet. */
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

    /** The position after the change. A reader that begins there gets no write twice. */
    public Position position() {
        return position;
    }

    /** The kind of the change. */
    public Kind kind() {
        return kind;
    }

    /** The keyspaces of the change, unless it consists of writes. */
    public List<NamedKeyspace> keyspaces() {
        return keyspaces;
    }

    /** For a time: the time by the clock of the writer, which may go back. Otherwise null. */
    public Instant time() {
        return time;
    }

    /** For a gap: its bounds. Otherwise null. */
    public Gap gap() {
        return gap;
    }

    /**
     * Its writes, in order.
     *
     * @throws IllegalStateException if the writes of a load were iterated over before
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
