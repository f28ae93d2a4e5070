// An open store.

package org.runstone;

import java.nio.file.Path;
import java.time.Duration;
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
 * <p>Closing a store closes its keyspaces, cursors, snapshots and transactions as well. A later use
 * of one of them throws {@link RunstoneException.Closed}. If a store and all its parts are
 * unreachable, a thread of the JVM closes it some time later, with a warning. A program that relies
 * on this cannot know when the files of the store are free.
 */
public final class Store extends Handle {
    private final Keyspace defaultKeyspace;

    private Store(long handle) {
        super("store", handle, Native::closeStore);
        defaultKeyspace = keyspace("default");
    }

    /** Opens the store in a directory with default options, or creates it there. */
    public static Store open(Path path) {
        return open(path, "");
    }

    /**
     * Opens the store in a directory, or creates it there.
     *
     * @param options TOML, such as {@code memory_budget_bytes = "1G"}; a table {@code [keyspace]}
     *     contains options of the default keyspace. {@code runstone help options} lists them.
     * @throws RunstoneException if the store is open elsewhere, if the directory contains something
     *     else, if an option is unknown, and so on; its code shows the kind of failure
     */
    public static Store open(Path path, String options) {
        return opened(path, options, null, null);
    }

    /**
     * Opens the store in a directory, or creates it there, and reports its events.
     *
     * <p>Any thread of the store calls the listener, in the middle of its work. The listener should
     * return soon, and may only read from the store; other calls are refused with the code
     * {@code INSIDE_CALLBACK}. Exceptions that it throws are logged. Without a listener, events go
     * to {@link System.Logger} {@code org.runstone}; those that need attention are warnings.
     */
    public static Store open(Path path, String options, Consumer<StoreEvent> onEvent) {
        return opened(path, options, null, Objects.requireNonNull(onEvent, "onEvent"));
    }

    /** Follows the store in a directory with default options. */
    public static Store follow(Path path) {
        return follow(path, "");
    }

    /**
     * Opens the store in a directory for reading, whether or not another process writes to it, and
     * does not prevent others from writing. The store shows one moment; {@link #refresh} moves it
     * to a later one.
     *
     * <p>The writer keeps the files that the moment needs, within its options {@code
     * follower_keep_bytes} and {@code follower_keep_seconds}. Beyond these limits, reads and
     * refreshes throw with the code {@code LEASE_REVOKED}; then follow the store again. With {@code
     * read_only = true}, {@link #open} does the same if another process has the store open.
     *
     * @param options the same as for {@link #open(Path, String)}
     */
    public static Store follow(Path path, String options) {
        return followed(path, options, null);
    }

    /** Follows a store. If the resources are null, it has its own. */
    static Store followed(Path path, String options, Resources resources) {
        Objects.requireNonNull(options, "options");
        String directory = path.toString();
        Library.load();
        try {
            long shared = resources == null ? 0 : resources.handle();
            return new Store(Native.follow(
                    directory, options, shared, new Events(directory, null)));
        } finally {
            keep(resources);
        }
    }

    /**
     * Opens a store. If the resources are null, it has its own. With a null listener, events are
     * logged.
     */
    static Store opened(
            Path path, String options, Resources resources, Consumer<StoreEvent> onEvent) {
        Objects.requireNonNull(options, "options");
        String directory = path.toString();
        // The library is not loaded by the class of native methods, because a failure there would
        // be a JVM error that names neither the file nor the version.
        Library.load();
        try {
            long shared = resources == null ? 0 : resources.handle();
            return new Store(
                    Native.open(directory, options, shared, new Events(directory, onEvent)));
        } finally {
            keep(resources);
        }
    }

    /**
     * Closes the store: waits for running jobs, writes the data in memory to tables, and releases
     * the directory. A second call does nothing. A call from a listener of the store is refused
     * with the code {@code INSIDE_CALLBACK}, and nothing is closed.
     */
    @Override
    public void close() {
        try {
            // Otherwise everything that belongs to the store would be closed, but not the store.
            Native.checkCloser(handleIfOpen());
            super.close();
        } finally {
            keep(this);
        }
    }

    /** The keyspace that every store has. */
    public Keyspace defaultKeyspace() {
        return defaultKeyspace;
    }

    /** A keyspace, which must exist. */
    public Keyspace keyspace(String name) {
        try {
            return new Keyspace(this, name, Native.openKeyspace(handle(), name, null, false));
        } finally {
            keep(this);
        }
    }

    /** A keyspace, which is created with default options if it does not exist. */
    public Keyspace openKeyspace(String name) {
        return openKeyspace(name, null);
    }

    /**
     * A keyspace, which is created if it does not exist.
     *
     * @param options TOML of options, or {@code preset = "NAME"}; they replace the stored options;
     *     null keeps the stored options
     */
    public Keyspace openKeyspace(String name, String options) {
        try {
            return new Keyspace(this, name, Native.openKeyspace(handle(), name, options, true));
        } finally {
            keep(this);
        }
    }

    /** Drops a keyspace and its files. Cursors and snapshots from before continue to work. */
    public void dropKeyspace(String name) {
        try {
            Native.dropKeyspace(handle(), name);
        } finally {
            keep(this);
        }
    }

    /** The names of all keyspaces, in order of creation. */
    public List<String> keyspaces() {
        try {
            return List.of(Native.keyspaces(handle()).split("\0"));
        } finally {
            keep(this);
        }
    }

    /** Writes a batch, all of it or nothing. The store's options determine the durability. */
    public void write(WriteBatch batch) {
        write(batch, WriteOptions.DEFAULT);
    }

    /**
     * Writes a batch, all of it or nothing, as durably as the options say. A batch has no time to
     * live.
     */
    public void write(WriteBatch batch, WriteOptions options) {
        try {
            batch.writeTo(handle(), options);
        } finally {
            keep(this);
        }
    }

    /** A snapshot of the present moment, which can be read while the snapshot is open. */
    public Snapshot snapshot() {
        try {
            return new Snapshot(this, Native.snapshot(handle()));
        } finally {
            keep(this);
        }
    }

    /**
     * Makes the commits of another process visible in a store that is open for reading. The store
     * and its keyspaces show them from then on; snapshots and cursors keep their moment. A
     * transaction that began before refuses these keyspaces: begin it again. A dropped keyspace
     * throws with the code {@code UNKNOWN_KEYSPACE}.
     *
     * @return whether there were any commits
     */
    public boolean refresh() {
        try {
            return Native.refresh(handle());
        } finally {
            keep(this);
        }
    }

    /**
     * The largest possible age of the view of a store that is open for reading: the view contains
     * everything committed before then. Zero for a store to which no other process can write.
     */
    public Duration age() {
        try {
            return Duration.ofNanos(Native.age(handle()));
        } finally {
            keep(this);
        }
    }

    /** Begins a transaction that sees one moment. Its commit fails if others interfere. */
    public Transaction begin() {
        return begin(Transaction.Mode.SNAPSHOT);
    }

    /** Begins a transaction. */
    public Transaction begin(Transaction.Mode mode) {
        try {
            return new Transaction(this, Native.begin(handle(), mode.ordinal()));
        } finally {
            keep(this);
        }
    }

    /** Writes the data in memory to tables. */
    public void flush() {
        try {
            Native.flush(handle());
        } finally {
            keep(this);
        }
    }

    /** Makes all acknowledged writes durable, so that they survive a power loss. */
    public void sync() {
        try {
            Native.sync(handle());
        } finally {
            keep(this);
        }
    }

    /** Waits until no background job runs or is due. */
    public void waitIdle() {
        try {
            Native.waitIdle(handle());
        } finally {
            keep(this);
        }
    }

    /** Makes a copy of the store in a new directory. Tables are shared where possible. */
    public void checkpoint(Path path) {
        try {
            Native.checkpoint(handle(), path.toString(), false);
        } finally {
            keep(this);
        }
    }

    /**
     * Makes a copy of the store in a new directory, with tables of its own: damage to a file of the
     * store does not reach the copy.
     */
    public void checkpointCopied(Path path) {
        try {
            Native.checkpoint(handle(), path.toString(), true);
        } finally {
            keep(this);
        }
    }

    /** The measurements of the store by name, such as {@code runstone_cache_bytes}. */
    public Map<String, Double> metrics() {
        try {
            return byName(Native.metrics(handle()));
        } finally {
            keep(this);
        }
    }

    /**
     * The last report of the process that writes to a store that is open for reading. It reports
     * its measurements once a second while another process follows the store. Null if there is no
     * report: no process has the store open for writing, or it opened the store less than a second
     * ago.
     */
    public LiveState live() {
        try {
            byte[] answer = Native.live(handle());
            return answer == null ? null : LiveState.of(new Answer(answer));
        } finally {
            keep(this);
        }
    }

    /** Numbers by name, from Prometheus' text format. */
    static Map<String, Double> byName(String text) {
        Map<String, Double> metrics = new LinkedHashMap<>();
        for (String line : text.split("\n")) {
            int space = line.lastIndexOf(' ');
            if (!line.startsWith("#") && space > 0) {
                metrics.put(line.substring(0, space), Double.valueOf(line.substring(space + 1)));
            }
        }
        return metrics;
    }
}
