// Records with times, in tables by time: expired records are removed with their table.

package org.runstone.kafka.streams;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.NavigableMap;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.function.Predicate;
import org.apache.kafka.streams.errors.InvalidStateStoreException;

/** The tables of a store, each for one period. */
final class Segments {
    private static final String PREFIX = "segment-";

    private final Backing backing;
    private final long interval;
    private final NavigableMap<Long, Table> live = new ConcurrentSkipListMap<>();

    Segments(Backing backing, long interval) {
        this.backing = backing;
        this.interval = interval;
        for (String name : backing.tableNames()) {
            if (name.startsWith(PREFIX)) {
                live.put(Long.valueOf(name.substring(PREFIX.length())), backing.table(name));
            }
        }
    }

    private long id(long time) {
        return Math.max(0, time) / interval;
    }

    /** The table for a time, or null if there is none. */
    Table at(long time) {
        return live.get(id(time));
    }

    /** The table for a time, which is created if there is none. */
    Table makeAt(long time) {
        long id = id(time);
        Table table = live.get(id);
        if (table == null) {
            table = backing.table(PREFIX + id);
            live.put(id, table);
        }
        return table;
    }

    /** Whether the table for one time ends before the table for another. */
    boolean isBefore(long one, long other) {
        return id(one) < id(other);
    }

    /** Tables for the times from {@code from} to {@code to}, both included. */
    List<Table> between(long from, long to, boolean forward) {
        if (from > to) {
            return List.of();
        }
        NavigableMap<Long, Table> part = live.subMap(id(from), true, id(to), true);
        return new ArrayList<>((forward ? part : part.descendingMap()).values());
    }

    /** Drops the tables that hold only times before {@code time}. */
    void dropBefore(long time) {
        Iterator<Long> ids = live.headMap(id(time), false).keySet().iterator();
        while (ids.hasNext()) {
            long id = ids.next();
            ids.remove();
            backing.drop(PREFIX + id);
        }
    }

    long estimate() {
        long entries = 0;
        for (Table table : live.values()) {
            entries += table.keyspace().estimateEntries(null, null) + table.pendingCount();
        }
        return entries;
    }

    /**
     * Walks over tables one after another, and shows the records that {@code shows} accepts.
     *
     * @param from the first record; {@code to} is the smallest key after the range; null: no bound
     */
    static Entries walk(List<Table> tables, byte[] from, byte[] to, boolean forward,
            Predicate<byte[]> shows) {
        return new OneByOne(tables.iterator(), from, to, forward, shows);
    }

    private static final class OneByOne implements Entries {
        private final Iterator<Table> tables;
        private final byte[] from;
        private final byte[] to;
        private final boolean forward;
        private final Predicate<byte[]> shows;
        private Entries entries = NONE;
        private boolean isSettled;

        OneByOne(Iterator<Table> tables, byte[] from, byte[] to, boolean forward,
                Predicate<byte[]> shows) {
            this.tables = tables;
            this.from = from;
            this.to = to;
            this.forward = forward;
            this.shows = shows;
        }

        private void settle() {
            while (true) {
                while (entries.isValid()) {
                    if (shows.test(entries.key())) {
                        return;
                    }
                    entries.next();
                }
                entries.close();
                entries = NONE;
                if (!tables.hasNext()) {
                    return;
                }
                entries = tables.next().entries(from, to, forward);
            }
        }

        /**
         * Opens a table when it is asked for its first entry, as Kafka's stores do. So what a
         * program writes to a later table during the walk is shown. A cache above the store relies
         * on that, because it moves entries down in the middle of a walk. A closed store has no
         * more entries.
         */
        @Override
        public boolean isValid() {
            try {
                if (!isSettled) {
                    isSettled = true;
                    settle();
                }
                return entries.isValid();
            } catch (InvalidStateStoreException closed) {
                return false;
            }
        }

        @Override
        public byte[] key() {
            return entries.key();
        }

        @Override
        public byte[] value() {
            return entries.value();
        }

        @Override
        public void next() {
            entries.next();
            isSettled = false;
        }

        @Override
        public void close() {
            entries.close();
        }
    }
}
