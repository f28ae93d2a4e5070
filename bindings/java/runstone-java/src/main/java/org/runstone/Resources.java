// What many stores of a process share.

package org.runstone;

import java.nio.file.Path;
import java.util.Objects;
import java.util.function.Consumer;

/**
 * What any number of stores share: one memory budget, the threads that work in the background, the
 * files that are open, and the rate at which the background writes. A program that opens many
 * stores gives them one, so that a thousand of them take no more than a few.
 *
 * <pre>{@code
 * Resources resources = Resources.of("memory_budget_bytes = '512M'\nbackground_threads = 4");
 * Store one = resources.open(Path.of("one"));
 * Store two = resources.open(Path.of("two"));
 * resources.close();
 * }</pre>
 *
 * <p>They last as long as a store that was opened with them, also behind {@link #close}.
 */
public final class Resources extends Handle {
    private Resources(long handle) {
        super("resources object", handle, Native::closeResources);
    }

    /**
     * Makes some.
     *
     * @param options TOML with {@code memory_budget_bytes}, {@code background_threads},
     *     {@code max_open_files} and {@code background_bytes_per_second}; what it leaves out is as
     *     in a store by itself, and the rate has no limit
     */
    public static Resources of(String options) {
        Objects.requireNonNull(options, "options");
        Library.load();
        return new Resources(Native.openResources(options));
    }

    /** Opens a store that draws on them with default options, or makes it. */
    public Store open(Path path) {
        return open(path, "");
    }

    /**
     * Opens a store that draws on them, or makes it, as {@link Store#open(Path, String)} does.
     * Options that they set, such as {@code memory_budget_bytes}, are refused.
     */
    public Store open(Path path, String options) {
        return Store.opened(path, options, this, null);
    }

    /** The same, and tells of events as {@link Store#open(Path, String, Consumer)} does. */
    public Store open(Path path, String options, Consumer<StoreEvent> onEvent) {
        return Store.opened(path, options, this, Objects.requireNonNull(onEvent, "onEvent"));
    }

    /** How many stores that share them are open. */
    public long stores() {
        try {
            return Native.storesOf(handle());
        } finally {
            keep(this);
        }
    }
}
