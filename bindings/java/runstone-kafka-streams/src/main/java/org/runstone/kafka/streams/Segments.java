// Records with times, in tables by time: expired records are removed with their table.

package org.runstone.kafka.streams;

import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.function.Predicate;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.kafka.streams.errors.InvalidStateStoreException;

/**
 * The tables of a store, each for one period. All periods have the same length, but this length
 * depends on the retention and may change from one open to the next. So the name of a table
 * contains its period, and the period of a new table ends where the next one begins.
 */
final class Segments {
    private static final Pattern NAME = Pattern.compile("segment-([0-9]+)-([0-9]+)");

    private final Backing backing;
    private final long interval;
    /** The segments by their begin. */
    private final NavigableMap<Long, Segment> live = new ConcurrentSkipListMap<>();

    /** The table for the times from {@code begin} (inclusive) to {@code end} (exclusive). */
    private record Segment(long begin, long end, Table table) {
        String name() {
            return "segment-" + begin + "-" + end;
        }
    }

    Segments(Backing backing, long interval) {
        this.backing = backing;
        this.interval = interval;
        for (String name : backing.tableNames()) {
            Matcher period = NAME.matcher(name);
            if (period.matches()) {
                long begin = Long.parseLong(period.group(1));
                long end = Long.parseLong(period.group(2));
                live.put(begin, new Segment(begin, end, backing.table(name)));
            }
        }
    }

    /**
     * The segment for a time. If there is none, a new segment without a table, which could be
     * added.
     */
    private Segment of(long any) {
        long time = Math.max(0, any);
        Map.Entry<Long, Segment> before = live.floorEntry(time);
        // The segment of the last possible time includes its end.
        if (before != null
                && (time < before.getValue().end || before.getValue().end == Long.MAX_VALUE)) {
            return before.getValue();
        }
        long begin = time / interval * interval;
        long end = begin > Long.MAX_VALUE - interval ? Long.MAX_VALUE : begin + interval;
        Long next = live.higherKey(time);
        return new Segment(before == null ? begin : Math.max(begin, before.getValue().end),
                next == null ? end : Math.min(end, next), null);
    }

    /** The table for a time, or null if it does not exist. */
    Table at(long time) {
        return of(time).table;
    }

    /** The table for a time, which is created if it does not exist. */
    Table makeAt(long time) {
        Segment found = of(time);
        if (found.table != null) {
            return found.table;
        }
        Table made = backing.table(found.name());
        live.put(found.begin, new Segment(found.begin, found.end, made));
        return made;
    }

    /** Whether the table for one time ends before the table for another. */
    boolean isBefore(long one, long other) {
        return of(one).begin < of(other).begin;
    }

    /** Tables for the times from {@code from} to {@code to}, both included. */
    List<Table> between(long from, long to, boolean forward) {
        if (from > to) {
            return List.of();
        }
        NavigableMap<Long, Segment> part =
                live.subMap(of(from).begin, true, Math.max(0, to), true);
        part = forward ? part : part.descendingMap();
        return part.values().stream().map(Segment::table).toList();
    }

    /** Drops the tables that contain only times before {@code time}. */
    void dropBefore(long time) {
        Iterator<Segment> old = live.headMap(of(time).begin, false).values().iterator();
        while (old.hasNext()) {
            Segment segment = old.next();
            old.remove();
            backing.drop(segment.name());
        }
    }

    long estimate() {
        long entries = 0;
        for (Segment segment : live.values()) {
            Table table = segment.table;
            entries += table.keyspace().estimateEntries(null, null) + table.pendingCount();
        }
        return entries;
    }

    /**
     * Iterates over tables one after another, and returns the records that {@code shows} accepts.
     * If the store is closed during the iteration, there are no more entries.
     *
     * @param from the first record; {@code to} is the smallest key after the range; null means no
     * bound
     */
    static Entries walk(List<Table> tables, byte[] from, byte[] to, boolean forward,
            Predicate<byte[]> shows) {
        return new OneByOne(tables.iterator(), from, to, forward, shows, true);
    }

    /** Iterates over one table, and throws if the store is closed during the iteration. */
    static Entries walkOrThrow(Table table, byte[] from, byte[] to, boolean forward,
            Predicate<byte[]> shows) {
        return new OneByOne(List.of(table).iterator(), from, to, forward, shows, false);
    }

    private static final class OneByOne implements Entries {
        private final Iterator<Table> tables;
        private final byte[] from;
        private final byte[] to;
        private final boolean forward;
        private final Predicate<byte[]> shows;
        private final boolean endsAtClose;
        private Entries entries = NONE;
        private boolean isSettled;

        OneByOne(Iterator<Table> tables, byte[] from, byte[] to, boolean forward,
                Predicate<byte[]> shows, boolean endsAtClose) {
            this.endsAtClose = endsAtClose;
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
         * Opens a table when its first entry is requested, as Kafka's stores do. So writes to a
         * later table during the iteration are shown. A cache above the store relies on that,
         * because it moves entries down in the middle of an iteration.
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
                if (endsAtClose) {
                    return false;
                }
                throw closed;
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
