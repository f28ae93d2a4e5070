// Resources that many stores of a process share.

package org.runstone;

import java.nio.file.Path;
import java.util.Objects;
import java.util.function.Consumer;

/**
 * Resources that any number of stores share: one memory budget, the threads that work in the
 * background, the open files, and the rate of background writes. A program that opens many stores
 * gives them the same resources, so that a thousand stores use no more than a few.
 *
 * <pre>{@code
 * Resources resources = Resources.of("memory_budget_bytes = '512M'\nbackground_threads = 4");
 * Store one = resources.open(Path.of("one"));
 * Store two = resources.open(Path.of("two"));
 * resources.close();
 * }</pre>
 *
 * <p>They exist as long as any store that was opened with them, even after {@link #close}.
 */
public final class Resources extends Handle {
    private Resources(long handle) {
        super("resources object", handle, Native::closeResources);
    }

    /**
     * Creates resources.
     *
     * @param options TOML with {@code memory_budget_bytes}, {@code background_threads},
     *     {@code max_open_files} and {@code background_bytes_per_second}. Options left out are as
     *     in a store without shared resources; without a rate there is no limit
     */
    public static Resources of(String options) {
        Objects.requireNonNull(options, "options");
        Library.load();
        return new Resources(Native.openResources(options));
    }

    /** Opens a store that uses these resources with default options, or creates it. */
    public Store open(Path path) {
        return open(path, "");
    }

    /**
     * Opens or creates a store that uses these resources, as {@link Store#open(Path, String)} does.
     * Options that the resources set, such as {@code memory_budget_bytes}, are refused.
     */
    public Store open(Path path, String options) {
        return Store.opened(path, options, this, null);
    }

    /** Does the same, and reports events as {@link Store#open(Path, String, Consumer)} does. */
    public Store open(Path path, String options, Consumer<StoreEvent> onEvent) {
        return Store.opened(path, options, this, Objects.requireNonNull(onEvent, "onEvent"));
    }

    /** Follows a store with these resources and default options. */
    public Store follow(Path path) {
        return follow(path, "");
    }

    /**
     * Follows a store with these resources, as {@link Store#follow(Path, String)} does. Options
     * that the resources set, such as {@code memory_budget_bytes}, are refused.
     */
    public Store follow(Path path, String options) {
        return Store.followed(path, options, this);
    }

    /** How many open stores share these resources, including followed ones. */
    public long stores() {
        try {
            return Native.storesOf(handle());
        } finally {
            keep(this);
        }
    }
}
