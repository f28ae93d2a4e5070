// Iterators in the form of Kafka Streams, over entries.

package org.runstone.kafka.streams;

import java.util.NoSuchElementException;
import java.util.function.Function;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.WindowStoreIterator;

/** Entries whose keys are shown as {@code K}. */
class Walk<K> implements KeyValueIterator<K, byte[]> {
    private final Entries entries;
    private final Function<byte[], K> shown;
    private boolean isClosed;

    Walk(Entries entries, Function<byte[], K> shown) {
        this.entries = entries;
        this.shown = shown;
    }

    @Override
    public boolean hasNext() {
        if (isClosed) {
            throw new InvalidStateStoreException("the iterator is closed");
        }
        return entries.isValid();
    }

    @Override
    public K peekNextKey() {
        if (!hasNext()) {
            throw new NoSuchElementException();
        }
        return shown.apply(entries.key());
    }

    @Override
    public KeyValue<K, byte[]> next() {
        K key = peekNextKey();
        KeyValue<K, byte[]> pair = KeyValue.pair(key, entries.value());
        entries.next();
        return pair;
    }

    @Override
    public void close() {
        isClosed = true;
        entries.close();
    }

    /** The values of one key by the time of their windows. */
    static final class OfTimes extends Walk<Long> implements WindowStoreIterator<byte[]> {
        OfTimes(Entries entries) {
            super(entries, RecordKey::windowStart);
        }
    }
}
