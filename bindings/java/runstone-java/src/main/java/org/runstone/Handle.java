// What objects with a native side have in common: a handle that is closed once.

package org.runstone;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** An object whose native side is named by a handle. */
abstract class Handle implements AutoCloseable {
    private final String name;
    private final Handle owner;
    /** Open objects that are closed with this one. */
    private final Set<Handle> owned;
    private volatile long handle;

    /** An object that others may belong to. */
    Handle(String name, long handle) {
        this.name = name;
        this.handle = handle;
        this.owner = null;
        this.owned = ConcurrentHashMap.newKeySet();
    }

    /** An object that is closed with its owner. */
    Handle(String name, long handle, Handle owner) {
        this.name = name;
        this.handle = handle;
        this.owner = owner;
        this.owned = null;
        owner.owned.add(this);
        if (!owner.isOpen()) {
            // The owner was closed meanwhile, and may not have seen this one.
            close();
        }
    }

    /** The handle, if the object is open. */
    final long handle() {
        long open = handle;
        if (open == 0) {
            throw new RunstoneException.Closed("the " + name + " is closed");
        }
        return open;
    }

    final boolean isOpen() {
        return handle != 0;
    }

    /** Closes the native side; called once. */
    abstract void release(long open);

    @Override
    public void close() {
        long open;
        synchronized (this) {
            open = handle;
            handle = 0;
        }
        if (open == 0) {
            return;
        }
        if (owner != null) {
            owner.owned.remove(this);
        }
        if (owned != null) {
            owned.forEach(Handle::close);
        }
        release(open);
    }
}
