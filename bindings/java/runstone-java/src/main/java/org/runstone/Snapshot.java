// A snapshot: a state of a store that stays readable.

package org.runstone;

/**
 * A state of a store that readers can use. While the snapshot is open, the store keeps its data.
 */
public final class Snapshot extends Handle {
    Snapshot(Store store, long handle) {
        super("snapshot", handle, Native::closeSnapshot, store);
    }

    /** The handle of a snapshot, or 0 for the present state. */
    static long of(Snapshot snapshot) {
        return snapshot == null ? 0 : snapshot.handle();
    }
}
