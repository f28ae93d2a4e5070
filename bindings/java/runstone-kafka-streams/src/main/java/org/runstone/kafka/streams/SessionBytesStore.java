// Session stores.

package org.runstone.kafka.streams;

import java.util.List;
import java.util.Objects;
import java.util.function.Predicate;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.HeadersBytesStore;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.SessionStore;

/** A session store. Sessions that ended before the retention period are not shown or accepted. */
class SessionBytesStore extends SegmentedBytesStore implements SessionStore<Bytes, byte[]> {
    private static final int TIMES = RecordKey.SESSION_BYTES;

    private final SessionSupplier of;

    SessionBytesStore(SessionSupplier of) {
        super(of.name(), of.metricsScope(), of.segmentIntervalMs(), of.retentionPeriod());
        this.of = of;
    }

    /** Values begin with headers. */
    static final class WithHeaders extends SessionBytesStore implements HeadersBytesStore {
        WithHeaders(SessionSupplier of) {
            super(of);
        }
    }

    @Override
    long timeOf(byte[] record) {
        return RecordKey.sessionEnd(record);
    }

    @Override
    boolean valuesHaveTimes() {
        return false;
    }

    @Override
    public void put(Windowed<Bytes> session, byte[] aggregate) {
        long end = session.window().end();
        writing().advanceStreamTime(end);
        if (isGone(end)) {
            drop();
            return;
        }
        byte[] record = RecordKey.session(session.key().get(), session.window().start(), end);
        write(() -> segments().makeAt(end).put(record, aggregate));
    }

    @Override
    public void remove(Windowed<Bytes> session) {
        long end = session.window().end();
        writing().advanceStreamTime(end);
        byte[] record = RecordKey.session(session.key().get(), session.window().start(), end);
        Table table = segments().at(end);
        if (table != null) {
            write(() -> table.put(record, null));
        }
    }

    @Override
    public byte[] fetchSession(Bytes key, long start, long end) {
        Objects.requireNonNull(key, "key cannot be null");
        Table table = end < firstLive() ? null : segments().at(end);
        return table == null ? null : table.get(RecordKey.session(key.get(), start, end));
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> findSessions(
            Bytes key, long earliestEnd, long latestStart) {
        return ofKey(key, earliestEnd, latestStart, true);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFindSessions(
            Bytes key, long earliestEnd, long latestStart) {
        return ofKey(key, earliestEnd, latestStart, false);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> fetch(Bytes key) {
        return ofKey(key, 0, Long.MAX_VALUE, true);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetch(Bytes key) {
        return ofKey(key, 0, Long.MAX_VALUE, false);
    }

    private KeyValueIterator<Windowed<Bytes>, byte[]> ofKey(
            Bytes key, long earliestEnd, long latestStart, boolean forward) {
        Objects.requireNonNull(key, "key cannot be null");
        long first = Math.max(Math.max(0, earliestEnd), firstLive());
        long last = backing().streamTime();
        byte[] lower = RecordKey.session(key.get(), 0, first);
        byte[] upper = RecordKey.after(RecordKey.session(key.get(), Long.MAX_VALUE, last));
        Predicate<byte[]> shows = record -> RecordKey.isOf(record, key.get(), TIMES)
                && RecordKey.sessionStart(record) <= latestStart;
        return walk(first, last, lower, upper, shows, forward);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> findSessions(
            Bytes from, Bytes to, long earliestEnd, long latestStart) {
        return ofKeys(from, to, earliestEnd, latestStart, true);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFindSessions(
            Bytes from, Bytes to, long earliestEnd, long latestStart) {
        return ofKeys(from, to, earliestEnd, latestStart, false);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> fetch(Bytes from, Bytes to) {
        return ofKeys(from, to, 0, Long.MAX_VALUE, true);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetch(Bytes from, Bytes to) {
        return ofKeys(from, to, 0, Long.MAX_VALUE, false);
    }

    private KeyValueIterator<Windowed<Bytes>, byte[]> ofKeys(
            Bytes from, Bytes to, long earliestEnd, long latestStart, boolean forward) {
        long first = Math.max(Math.max(0, earliestEnd), firstLive());
        long last = backing().streamTime();
        if (isTurnedRound(from, to)) {
            return new Walk<>(Entries.NONE, SessionBytesStore::session);
        }
        byte[] lower = from == null ? null : from.get();
        byte[] upper = to == null ? null : RecordKey.behind(to.get(), last, TIMES);
        Predicate<byte[]> shows = record -> RecordKey.sessionEnd(record) >= first
                && RecordKey.sessionStart(record) <= latestStart
                && RecordKey.isBetween(record, TIMES, from, to);
        return walk(first, last, lower, upper, shows, forward);
    }

    /**
     * Sessions of all keys that ended in a period, for results that are emitted once. Such results
     * are read after the sessions have closed, so sessions beyond the retention are shown as well.
     */
    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> findSessions(
            long earliestEnd, long latestEnd) {
        backing();
        Predicate<byte[]> shows = record -> RecordKey.sessionEnd(record) >= earliestEnd
                && RecordKey.sessionEnd(record) <= latestEnd;
        return walk(earliestEnd, latestEnd, null, null, shows, true);
    }

    private KeyValueIterator<Windowed<Bytes>, byte[]> walk(long first, long last, byte[] lower,
            byte[] upper, Predicate<byte[]> shows, boolean forward) {
        List<Table> tables = segments().between(first, last, forward);
        Entries entries = Segments.walk(tables, lower, upper, forward, shows);
        return new Walk<>(entries, SessionBytesStore::session);
    }

    private static Windowed<Bytes> session(byte[] record) {
        return new Windowed<>(RecordKey.key(record, TIMES), Internals.sessionWindow(
                RecordKey.sessionStart(record), RecordKey.sessionEnd(record)));
    }
}
