// An open store.

package org.runstone;

import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.function.Consumer;

/**
 * An open store. Its methods may be called from any number of threads.
 *
 * <pre>{@code
 * try (Store store = Store.open(Path.of("my-store"))) {
 *     Keyspace fruits = store.defaultKeyspace();
 *     fruits.put("apple".getBytes(), "red".getBytes());
 *     byte[] colour = fruits.get("apple".getBytes());
 * }
 * }</pre>
 *
 * <p>Closing a store closes its keyspaces, cursors, snapshots and transactions as well. Whoever
 * uses one of them afterwards gets {@link RunstoneException.Closed}.
 */
public final class Store extends Handle {
    private final Keyspace defaultKeyspace;

    private Store(long handle) {
        super("store", handle);
        defaultKeyspace = keyspace("default");
    }

    /** Opens the store in a directory with default options, or makes it there. */
    public static Store open(Path path) {
        return open(path, "");
    }

    /**
     * Opens the store in a directory, or makes it there.
     *
     * @param options TOML, such as {@code memory_budget_bytes = "1G"}; a table {@code [keyspace]}
     *     has options of the default keyspace. {@code runstone help options} lists them.
     * @throws RunstoneException if somebody has the store open, the directory holds something else,
     *     an option is unknown, and so on; its code tells which
     */
    public static Store open(Path path, String options) {
        return opened(path, options, null);
    }

    /**
     * Opens the store in a directory, or makes it there, and tells of its events.
     *
     * <p>Any thread of the store calls the listener, in the middle of its work: it should return
     * soon, and may only read from the store; other calls are refused with the code
     * {@code INSIDE_CALLBACK}. What it throws is logged. Without a listener, events go to
     * {@link System.Logger} {@code org.runstone}, as warnings those that somebody should look at.
     */
    public static Store open(Path path, String options, Consumer<StoreEvent> onEvent) {
        return opened(path, options, Objects.requireNonNull(onEvent, "onEvent"));
    }

    private static Store opened(Path path, String options, Consumer<StoreEvent> onEvent) {
        Objects.requireNonNull(options, "options");
        String directory = path.toString();
        // Not when the class of native methods is loaded: who then fails, fails with an error of
        // the JVM that names neither file nor version.
        Library.load();
        return new Store(Native.open(directory, options, new Events(directory, onEvent)));
    }

    /** The keyspace that every store has. */
    public Keyspace defaultKeyspace() {
        return defaultKeyspace;
    }

    /** An existing keyspace. */
    public Keyspace keyspace(String name) {
        return new Keyspace(this, name, Native.openKeyspace(handle(), name, null, false));
    }

    /** A keyspace, which is made with default options if it does not exist. */
    public Keyspace openKeyspace(String name) {
        return openKeyspace(name, null);
    }

    /**
     * A keyspace, which is made if it does not exist.
     *
     * @param options TOML of options, or {@code preset = "NAME"}; they replace the stored ones, and
     *     null keeps those
     */
    public Keyspace openKeyspace(String name, String options) {
        return new Keyspace(this, name, Native.openKeyspace(handle(), name, options, true));
    }

    /** Drops a keyspace and its files. Cursors and snapshots from before go on. */
    public void dropKeyspace(String name) {
        Native.dropKeyspace(handle(), name);
    }

    /** The names of all keyspaces, in order of creation. */
    public List<String> keyspaces() {
        return List.of(Native.keyspaces(handle()).split("\0"));
    }

    /** Writes a batch: all of it or nothing, and durable as the store's options say. */
    public void write(WriteBatch batch) {
        write(batch, false);
    }

    /**
     * Writes a batch: all of it or nothing.
     *
     * @param sync whether it must survive a power loss
     */
    public void write(WriteBatch batch, boolean sync) {
        batch.writeTo(handle(), sync);
    }

    /** The present moment, which stays readable while the snapshot is open. */
    public Snapshot snapshot() {
        return new Snapshot(this, Native.snapshot(handle()));
    }

    /** Begins a transaction that sees one moment, and fails at its commit if others interfere. */
    public Transaction begin() {
        return begin(Transaction.Mode.SNAPSHOT);
    }

    /** Begins a transaction. */
    public Transaction begin(Transaction.Mode mode) {
        return new Transaction(this, Native.begin(handle(), mode.ordinal()));
    }

    /** Writes what is in memory to tables. */
    public void flush() {
        Native.flush(handle());
    }

    /** Makes all acknowledged writes survive a power loss. */
    public void sync() {
        Native.sync(handle());
    }

    /** Makes a copy of the store in a new directory; files are shared where that can be. */
    public void checkpoint(Path path) {
        Native.checkpoint(handle(), path.toString());
    }

    /** What the store measures, by name, such as {@code runstone_cache_bytes}. */
    public Map<String, Double> metrics() {
        Map<String, Double> metrics = new LinkedHashMap<>();
        for (String line : Native.metrics(handle()).split("\n")) {
            int space = line.lastIndexOf(' ');
            if (!line.startsWith("#") && space > 0) {
                metrics.put(line.substring(0, space), Double.valueOf(line.substring(space + 1)));
            }
        }
        return metrics;
    }

    @Override
    void release(long open) {
        Native.closeStore(open);
    }
}
