// Window stores.

package org.runstone.kafka.streams;

import java.util.List;
import java.util.function.Function;
import java.util.function.Predicate;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.HeadersBytesStore;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.TimestampedBytesStore;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.WindowStoreIterator;

/** A window store. Windows older than the retention period are neither shown nor accepted. */
class WindowBytesStore extends SegmentedBytesStore implements WindowStore<Bytes, byte[]> {
    private static final int TIMES = RecordKey.WINDOW_BYTES;

    private final WindowSupplier of;
    /** A number that distinguishes duplicates of a key and time. */
    private int number;

    WindowBytesStore(WindowSupplier of) {
        super(of.name(), of.metricsScope(), of.segmentIntervalMs(), of.retentionPeriod());
        this.of = of;
    }

    /** Values begin with a timestamp. */
    static final class Timestamped extends WindowBytesStore implements TimestampedBytesStore {
        Timestamped(WindowSupplier of) {
            super(of);
        }
    }

    /** Values begin with headers and a timestamp. */
    static final class WithHeaders extends WindowBytesStore
            implements TimestampedBytesStore, HeadersBytesStore {
        WithHeaders(WindowSupplier of) {
            super(of);
        }
    }

    @Override
    long timeOf(byte[] record) {
        return RecordKey.windowStart(record);
    }

    @Override
    public void put(Bytes key, byte[] value, long start) {
        Backing backing = writing();
        if (value == null && of.retainDuplicates()) {
            return;
        }
        if (of.retainDuplicates()) {
            number = number + 1 & Integer.MAX_VALUE;
        }
        backing.advanceStreamTime(start);
        if (isGone(start)) {
            drop();
            return;
        }
        byte[] record = RecordKey.window(key.get(), start, number);
        write(() -> segments().makeAt(start).put(record, value));
    }

    @Override
    public byte[] fetch(Bytes key, long time) {
        Table table = time < firstLive() ? null : segments().at(time);
        return table == null ? null : table.get(RecordKey.window(key.get(), time, number));
    }

    @Override
    public WindowStoreIterator<byte[]> fetch(Bytes key, long from, long to) {
        return new Walk.OfTimes(ofKey(key, from, to, true));
    }

    @Override
    public WindowStoreIterator<byte[]> backwardFetch(Bytes key, long from, long to) {
        return new Walk.OfTimes(ofKey(key, from, to, false));
    }

    private Entries ofKey(Bytes key, long from, long to, boolean forward) {
        long first = live(from);
        long last = Math.min(to, backing().streamTime());
        if (first > last) {
            return Entries.NONE;
        }
        byte[] lower = RecordKey.window(key.get(), first, 0);
        byte[] upper = RecordKey.after(RecordKey.window(key.get(), last, Integer.MAX_VALUE));
        Predicate<byte[]> shows = record -> RecordKey.isOf(record, key.get(), TIMES);
        List<Table> tables = segments().between(first, last, forward);
        return Segments.walk(tables, lower, upper, forward, shows);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> fetch(
            Bytes from, Bytes to, long timeFrom, long timeTo) {
        return walk(from, to, live(timeFrom), timeTo, true);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetch(
            Bytes from, Bytes to, long timeFrom, long timeTo) {
        return walk(from, to, live(timeFrom), timeTo, false);
    }

    /**
     * Windows of all keys that began in a period of time. Results that are emitted once are read
     * with this method when their windows have closed. If time has jumped, some of those windows
     * are already beyond the retention, and are hidden as in RocksDB's store. Below a cache they
     * are shown. There, the windows that RocksDB's store still shows depend on the evictions of its
     * cache, and our cache evicts others. Hiding the windows would lose results that RocksDB's
     * store returns.
     */
    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> fetchAll(long from, long to) {
        boolean showsAll = of.emitsOnClose() && isBelowCache();
        return walk(null, null, showsAll ? Math.max(0, from) : live(from), to, true);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetchAll(long from, long to) {
        return walk(null, null, live(from), to, false);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> all() {
        return walk(null, null, live(0), Long.MAX_VALUE, true);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardAll() {
        return walk(null, null, live(0), Long.MAX_VALUE, false);
    }

    /**
     * If there is no grace period, or the grace period is a multiple of the window, a window closes
     * when the next one begins that much later. Then its start is as old as the retention, to the
     * millisecond.
     */
    @Override
    long firstLive() {
        return of.emitsOnClose() ? firstKept() : super.firstLive();
    }

    /** The first time, at or after {@code from}, whose windows are shown. */
    private long live(long from) {
        return Math.max(Math.max(0, from), firstLive());
    }

    private KeyValueIterator<Windowed<Bytes>, byte[]> walk(
            Bytes from, Bytes to, long first, long timeTo, boolean forward) {
        Function<byte[], Windowed<Bytes>> shown = record -> new Windowed<>(
                RecordKey.key(record, TIMES),
                Internals.timeWindow(RecordKey.windowStart(record), of.windowSize()));
        if (isTurnedRound(from, to) || first > timeTo) {
            return new Walk<>(Entries.NONE, shown);
        }
        long latest = Math.min(timeTo, backing().streamTime());
        byte[] lower = from == null ? null : from.get();
        byte[] upper = to == null ? null : RecordKey.behind(to.get(), latest, TIMES);
        Predicate<byte[]> shows = record -> {
            long start = RecordKey.windowStart(record);
            return start >= first && start <= timeTo
                    && RecordKey.isBetween(record, TIMES, from, to);
        };
        List<Table> tables = segments().between(first, timeTo, forward);
        return new Walk<>(Segments.walk(tables, lower, upper, forward, shows), shown);
    }
}
