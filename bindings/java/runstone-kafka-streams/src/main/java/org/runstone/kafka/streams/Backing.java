// The Runstone store behind one state store: its tables, and the metadata committed with them.

package org.runstone.kafka.streams;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.errors.ProcessorStateException;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.query.Position;
import org.runstone.Keyspace;
import org.runstone.RunstoneException;
import org.runstone.Store;
import org.runstone.WriteBatch;

/**
 * A directory with a Runstone store, in which a state store keeps its tables. Beside the tables it
 * keeps the changelog offsets that they include, the position, and the stream time.
 *
 * <p>With exactly-once processing, writes wait in memory until Kafka has committed the records that
 * caused them ({@link Commits}). Then they are written together with the offsets, as one batch. So
 * a killed store has the state of its last commit, and replays from there. If more bytes than the
 * limit wait, they are written to the store early, with a mark that the store contains uncommitted
 * writes. After a crash such a store reports no offsets, and Kafka restores it from the beginning.
 * With at-least-once processing, writes go to the store at once, because replaying an applied
 * record does no harm. Only versioned stores gather writes in this case too, because that is
 * faster.
 */
final class Backing {
    /** Options of the Runstone stores of an application, as TOML. */
    static final String OPTIONS = "runstone.options";
    /** How many bytes may wait for a commit in one store before they are written early. */
    static final String MAX_UNCOMMITTED = "runstone.max.uncommitted.bytes";
    /**
     * Without compression, as Kafka opens RocksDB. With LZ4, a restore took a seventh more
     * processor time, and a count a ninth more.
     */
    private static final String DEFAULT_TABLE = """
            write_buffer_bytes = "16M"
            compression = "none"
            """;
    /**
     * Segments of the log count against the budget, so small segments leave more of the budget to
     * memtables. Writers are slowed down less than by default, because a late flush costs them less
     * than a delay.
     */
    private static final String DEFAULT_OPTIONS = """
            wal_segment_bytes = "1M"
            max_delayed_bytes_per_second = "1G"
            [keyspace]
            """ + DEFAULT_TABLE;
    private static final long DEFAULT_MAX_UNCOMMITTED = 32 << 20;
    private static final String META = "meta";
    private static final byte[] AHEAD = "ahead".getBytes(UTF_8);
    private static final byte[] POSITION = "position".getBytes(UTF_8);
    private static final byte[] STREAM_TIME = "time".getBytes(UTF_8);
    private static final byte[] OFFSETS = "offset/".getBytes(UTF_8);

    private final String name;
    private final boolean isExactlyOnce;
    private final boolean waits;
    private final long maxUncommitted;
    /** Options of tables; null keeps the present options. */
    private final String tableOptions;
    private final SharedResources shared;
    private final Store store;
    private final Keyspace meta;
    private final Map<String, Table> tables = new LinkedHashMap<>();
    private final Position position;
    private final boolean tellsNoOffsets;
    private final StateStoreContext context;
    private final Commits commits;
    private volatile boolean isOpen = true;
    /** The partition of the changelog, once Kafka has requested its offset. */
    private TopicPartition changelog;
    private boolean isAhead;
    private long streamTime;

    /**
     * Opens the store, or creates it.
     *
     * @param gathersWrites whether writes wait for a commit with at-least-once processing as well
     */
    Backing(StateStoreContext context, String name, boolean gathersWrites) {
        Map<String, Object> configs = context.appConfigs();
        this.name = name;
        this.context = context;
        this.commits = new Commits(context);
        this.isExactlyOnce = StreamsConfig.EXACTLY_ONCE_V2.equals(
                configs.get(StreamsConfig.PROCESSING_GUARANTEE_CONFIG));
        this.waits = isExactlyOnce || gathersWrites;
        Object most = configs.get(MAX_UNCOMMITTED);
        this.maxUncommitted = most == null ? DEFAULT_MAX_UNCOMMITTED : bytes(most);
        Object options = configs.get(OPTIONS);
        this.tableOptions = options == null ? DEFAULT_TABLE : null;
        Path directory = context.stateDir().toPath().resolve("runstone").resolve(name);
        try {
            shared = SharedResources.of(context);
        } catch (RunstoneException error) {
            throw new ProcessorStateException("Error opening store " + name + ", option "
                    + SharedResources.OPTIONS + ": " + error.getMessage(), error);
        }
        try {
            Files.createDirectories(directory);
            store = shared.get().open(directory, Objects.toString(options, DEFAULT_OPTIONS));
        } catch (IOException | RunstoneException error) {
            shared.close();
            throw new ProcessorStateException("Error opening store " + name + " at location "
                    + directory + ": " + error.getMessage(), error);
        }
        try {
            meta = store.openKeyspace(META);
            byte[] stored = meta.get(POSITION);
            position = stored == null ? Position.emptyPosition() : Internals.positionOf(stored);
            byte[] time = meta.get(STREAM_TIME);
            streamTime = time == null ? -1 : RecordKey.longAt(time, 0);
            isAhead = meta.get(AHEAD) != null;
            tellsNoOffsets = isAhead && isExactlyOnce;
        } catch (RuntimeException error) {
            close();
            throw new ProcessorStateException("Error reading store " + name + " at location "
                    + directory + ": " + error.getMessage(), error);
        }
    }

    private static long bytes(Object most) {
        try {
            return Long.parseLong(most.toString());
        } catch (NumberFormatException error) {
            throw new ConfigException(MAX_UNCOMMITTED, most, "give a number of bytes");
        }
    }

    /** The table of this name, which is created if it does not exist. */
    synchronized Table table(String table) {
        return tables.computeIfAbsent(table,
                made -> new Table(store.openKeyspace(made, tableOptions), waits));
    }

    /** Names of stored tables. */
    List<String> tableNames() {
        List<String> names = new ArrayList<>(store.keyspaces());
        names.remove(META);
        return names;
    }

    /** Drops a table and its contents. */
    synchronized void drop(String table) {
        tables.remove(table).drop(() -> store.dropKeyspace(table));
    }

    /** Converts the stored values to the format that the application requires. */
    void upgrade(Format format, boolean hasTimes) {
        List<Table> stored = tableNames().stream().sorted().map(this::table).toList();
        new Upgrade(name, store, meta).to(format, hasTimes, stored);
    }

    Store store() {
        return store;
    }

    Position position() {
        return position;
    }

    /** The latest time that the store has seen; -1 before the first. */
    long streamTime() {
        return streamTime;
    }

    void advanceStreamTime(long time) {
        streamTime = Math.max(streamTime, time);
    }

    /**
     * Must be called before each write. Stores the waiting writes if they have been committed, and
     * returns whether it did.
     */
    boolean beforeWrite() {
        if (!isExactlyOnce || !commits.hasCommitted() || pendingBytes() == 0) {
            return false;
        }
        Long offset = changelog == null ? null : Internals.writtenOffset(context, changelog);
        commit(offset == null ? Map.of() : Map.of(changelog, offset), false);
        return true;
    }

    /** Must be called after each write. Writes early if too many bytes wait. */
    void written() {
        if (!isExactlyOnce && !isAhead) {
            isAhead = true;
            meta.put(AHEAD, new byte[0]);
        }
        if (waits && pendingBytes() > maxUncommitted) {
            WriteBatch batch = new WriteBatch((int) Math.min(maxUncommitted, 1 << 20));
            batch.put(meta, AHEAD, new byte[0]);
            isAhead = true;
            writePending(batch);
        }
    }

    private long pendingBytes() {
        long bytes = 0;
        for (Table table : tables.values()) {
            bytes += table.pendingBytes();
        }
        return bytes;
    }

    /**
     * Writes restored records: those of the batch, and the waiting ones. All count as committed.
     */
    void restore(WriteBatch batch) {
        try {
            writePending(batch);
        } catch (RunstoneException error) {
            throw new ProcessorStateException("Error restoring batch to store " + name, error);
        }
    }

    /** Makes all writes part of the committed state, together with their offsets. */
    void commit(Map<TopicPartition, Long> offsets) {
        if (isOpen) {
            commit(offsets, offsets.isEmpty());
        }
    }

    private synchronized void commit(Map<TopicPartition, Long> offsets, boolean forgetsOffsets) {
        WriteBatch batch = new WriteBatch();
        if (forgetsOffsets) {
            batch.deleteRange(meta, OFFSETS, behindOffsets());
        }
        offsets.forEach((partition, offset) -> {
            if (offset == null) {
                batch.delete(meta, keyOf(partition));
            } else {
                batch.put(meta, keyOf(partition), RecordKey.ofLong(offset));
            }
        });
        synchronized (position) {
            batch.put(meta, POSITION, Internals.bytesOf(position));
        }
        batch.put(meta, STREAM_TIME, RecordKey.ofLong(streamTime));
        if (isAhead) {
            batch.delete(meta, AHEAD);
            isAhead = false;
        }
        try {
            writePending(batch);
        } catch (RunstoneException error) {
            throw new ProcessorStateException("Error committing store " + name, error);
        }
    }

    private synchronized void writePending(WriteBatch batch) {
        tables.values().forEach(table -> table.addPending(batch));
        store.write(batch);
        tables.values().forEach(Table::forget);
    }

    /**
     * The changelog offset that the store has reached, or null if it is not known.
     *
     * <p>With exactly-once processing, Kafka distrusts a store that returns no offset, since it may
     * contain uncommitted records, and removes all stores of the task. An empty store contains no
     * records, so it returns the offset that means the beginning to Kafka. Kafka does not use this
     * method for global stores.
     */
    Long committedOffset(TopicPartition partition) {
        checkOpen();
        changelog = partition;
        byte[] offset = tellsNoOffsets ? null : meta.get(keyOf(partition));
        if (offset != null) {
            return RecordKey.longAt(offset, 0);
        }
        return isExactlyOnce && !Internals.isGlobal(context) && isEmpty()
                ? Internals.FROM_THE_BEGINNING : null;
    }

    private boolean isEmpty() {
        for (String table : tableNames()) {
            try (Entries entries = table(table).entries(null, null, true)) {
                if (entries.isValid()) {
                    return false;
                }
            }
        }
        return true;
    }

    private static byte[] keyOf(TopicPartition partition) {
        return ("offset/" + partition).getBytes(UTF_8);
    }

    private static byte[] behindOffsets() {
        byte[] behind = OFFSETS.clone();
        behind[behind.length - 1]++;
        return behind;
    }

    boolean isOpen() {
        return isOpen;
    }

    void checkOpen() {
        if (!isOpen) {
            throw new InvalidStateStoreException("Store " + name + " is currently closed");
        }
    }

    /** Closes the store and its iterators. Writes that wait for a commit are discarded. */
    synchronized void close() {
        if (isOpen) {
            isOpen = false;
            try {
                store.close();
            } finally {
                shared.close();
            }
        }
    }
}
