// How one write is done.

package org.runstone;

import java.time.Duration;
import java.util.Objects;

/**
 * How one write is done. Values are immutable: each method returns a new one.
 *
 * <pre>{@code
 * keyspace.put(key, value, WriteOptions.SYNC.ttl(Duration.ofHours(1)));
 * }</pre>
 */
public final class WriteOptions {
    /** What a write survives once it has returned. The native side uses the same order. */
    public enum Durability {
        /** What the store's options say; by default, a crash of the process. */
        AS_OPENED,
        /** A crash of the process. */
        BUFFERED,
        /** A power loss. */
        SYNC
    }

    private static final long NO_TTL = -1;

    /** As durable as the store's options say, and no time to live but that of the keyspace. */
    public static final WriteOptions DEFAULT = new WriteOptions(Durability.AS_OPENED, NO_TTL);
    /** The write survives a crash of the process. */
    public static final WriteOptions BUFFERED = DEFAULT.durability(Durability.BUFFERED);
    /** The write survives a power loss. */
    public static final WriteOptions SYNC = DEFAULT.durability(Durability.SYNC);

    private final Durability durability;
    private final long ttlMs;

    private WriteOptions(Durability durability, long ttlMs) {
        this.durability = durability;
        this.ttlMs = ttlMs;
    }

    /** What the write survives. */
    public WriteOptions durability(Durability durability) {
        return new WriteOptions(Objects.requireNonNull(durability, "durability"), ttlMs);
    }

    /**
     * How long after the write its entry expires, instead of the keyspace's {@code ttl_seconds}.
     * For puts; other writes refuse it. Less than a millisecond is refused.
     */
    public WriteOptions ttl(Duration ttl) {
        long most = Long.MAX_VALUE / 1000;
        long ms = ttl.getSeconds() >= most ? Long.MAX_VALUE : ttl.toMillis();
        return new WriteOptions(durability, Math.max(0, ms));
    }

    int durability() {
        return durability.ordinal();
    }

    long ttlMs() {
        return ttlMs;
    }
}
