// The base of all objects with a native side: a handle that is closed only once, either by the user
// of the object or at the latest when the object is no longer reachable.

package org.runstone;

import java.lang.ref.Cleaner;
import java.lang.ref.Reference;
import java.time.Duration;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.LongConsumer;

/** An object with a handle of its native side. */
abstract class Handle implements AutoCloseable {
    private static final Cleaner CLEANER = Cleaner.create();
    private static final Duration LONGEST_WAIT = Duration.ofDays(36_500);

    /** Must not refer to the object itself, because otherwise the object would never be cleaned. */
    private final Open state;
    private final Cleaner.Cleanable cleanable;
    /** The owner stays open as long as an object that it owns is reachable. */
    private final Handle owner;

    /** An object that can own others. */
    Handle(String name, long handle, LongConsumer release) {
        this(new Open(name, handle, release, null), null);
    }

    /** An object that is closed with its owner. */
    Handle(String name, long handle, LongConsumer release, Handle owner) {
        this(new Open(name, handle, release, owner.state), owner);
        owner.state.owned.add(state);
        if (!owner.isOpen()) {
            // The owner was closed in between, and may not have seen this object.
            close();
        }
    }

    private Handle(Open state, Handle owner) {
        this.state = state;
        this.owner = owner;
        cleanable = CLEANER.register(this, state);
    }

    /** The native side of an object. */
    private static final class Open implements Runnable {
        private final String name;
        private final LongConsumer release;
        private final Open owner;
        /** Open objects that are closed with this one; null if it has an owner itself. */
        private final Set<Open> owned;
        private volatile long handle;

        Open(String name, long handle, LongConsumer release, Open owner) {
            this.name = name;
            this.handle = handle;
            this.release = release;
            this.owner = owner;
            this.owned = owner == null ? ConcurrentHashMap.newKeySet() : null;
        }

        /** Called when the object is no longer reachable and was not closed. */
        @Override
        public void run() {
            if (handle == 0) {
                return;
            }
            // The logger is looked up only here, because a program that closes its objects needs
            // none.
            System.Logger logger = System.getLogger("org.runstone");
            if (owner == null) {
                logger.log(System.Logger.Level.WARNING, "a " + name
                        + " was not closed before it became unreachable; it is closed now");
            }
            try {
                close();
            } catch (RunstoneException failed) {
                logger.log(System.Logger.Level.WARNING, "closing a " + name + " failed", failed);
            }
        }

        void close() {
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
                owned.forEach(Open::close);
            }
            release.accept(open);
        }
    }

    /**
     * The handle, if the object is open. After passing it to a native method, the caller calls
     * {@link #keep}. Otherwise the object could be cleaned while the method runs.
     */
    final long handle() {
        long open = state.handle;
        if (open == 0) {
            throw new RunstoneException.Closed("the " + state.name + " is closed");
        }
        return open;
    }

    final boolean isOpen() {
        return state.handle != 0;
    }

    /** The handle, or 0 if the object is closed. */
    final long handleIfOpen() {
        return state.handle;
    }

    /** A wait that fits into nanoseconds: at least zero, and at most a century. */
    static Duration bounded(Duration wait) {
        Duration most = wait.compareTo(LONGEST_WAIT) > 0 ? LONGEST_WAIT : wait;
        return most.isNegative() ? Duration.ZERO : most;
    }

    /** Keeps objects reachable up to this point. */
    static void keep(Handle one) {
        Reference.reachabilityFence(one);
    }

    static void keep(Handle one, Handle other) {
        Reference.reachabilityFence(one);
        Reference.reachabilityFence(other);
    }

    @Override
    public void close() {
        try {
            state.close();
        } finally {
            // There is nothing left to do.
            cleanable.clean();
        }
    }
}
