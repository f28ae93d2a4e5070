// A position among the keys of a keyspace.

package org.runstone;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.Objects;

/**
 * A position among the keys of a keyspace, as they were when the cursor was opened. A new cursor
 * has no position, so seek first. One thread at a time may use it.
 *
 * <pre>{@code
 * try (Cursor cursor = keyspace.prefix("user/".getBytes())) {
 *     for (cursor.seekToFirst(); cursor.isValid(); cursor.next()) {
 *         use(cursor.key(), cursor.value());
 *     }
 * }
 * }</pre>
 *
 * <p>Entries come from the store in pages, because each native call has a cost. The first page is
 * small, and each following page is twice as large, up to 64 KiB.
 */
public final class Cursor extends Handle {
    private static final int FIRST_PAGE_BYTES = 1 << 10;
    private static final int LARGEST_PAGE_BYTES = 64 << 10;
    private static final int HEAD_BYTES = 8;
    private static final long IS_LAST = 1L << 32;
    // Where a page begins. The native side uses the same numbers.
    private static final int FIRST = 0;
    private static final int LAST = 1;
    private static final int SEEK = 2;
    private static final int SEEK_BACK = 3;
    private static final int AFTER = 4;
    private static final int BEFORE = 5;
    private static final int ON = 6;
    private static final VarHandle INT =
            MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.LITTLE_ENDIAN);

    private byte[] page = new byte[FIRST_PAGE_BYTES];
    private int used;
    private boolean isLast;
    private boolean isForward = true;
    /** The position of the current entry in the page; there is no entry if it is {@code used}. */
    private int at;

    Cursor(Store store, long handle) {
        super("cursor", handle, Native::closeCursor, store);
    }

    /** Whether the cursor is on an entry. */
    public boolean isValid() {
        handle();
        return at < used;
    }

    /** The key of the entry. */
    public byte[] key() {
        int from = here() + HEAD_BYTES;
        return Arrays.copyOfRange(page, from, from + keyBytes());
    }

    /** The value of the entry. */
    public byte[] value() {
        int from = here() + HEAD_BYTES + keyBytes();
        return Arrays.copyOfRange(page, from, from + valueBytes());
    }

    /** Moves to the first key. */
    public void seekToFirst() {
        start(FIRST, null);
    }

    /** Moves to the last key. */
    public void seekToLast() {
        start(LAST, null);
    }

    /** Moves to the key, or to the next key after it. */
    public void seek(byte[] key) {
        start(SEEK, Objects.requireNonNull(key, "key"));
    }

    /** Moves to the key, or to the last key before it. */
    public void seekForPrev(byte[] key) {
        start(SEEK_BACK, Objects.requireNonNull(key, "key"));
    }

    /** Moves to the next key. */
    public void next() {
        step(true);
    }

    /** Moves to the previous key. */
    public void prev() {
        step(false);
    }

    private void start(int start, byte[] key) {
        isForward = start == FIRST || start == SEEK || start == AFTER;
        fetch(start, key);
    }

    private void step(boolean forward) {
        if (forward != isForward) {
            start(forward ? AFTER : BEFORE, key());
            return;
        }
        at = here() + HEAD_BYTES + keyBytes() + valueBytes();
        if (at == used && !isLast) {
            if (page.length < LARGEST_PAGE_BYTES) {
                page = new byte[2 * page.length];
            }
            fetch(ON, null);
        }
    }

    private void fetch(int start, byte[] key) {
        at = 0;
        used = 0;
        isLast = true;
        try {
            long answer = Native.fetch(handle(), start, key, page);
            while (answer < 0) {
                page = new byte[Math.toIntExact(-answer)];
                answer = Native.fetch(handle(), ON, null, page);
            }
            used = (int) answer;
            isLast = (answer & IS_LAST) != 0;
        } finally {
            keep(this);
        }
    }

    private int here() {
        if (!isValid()) {
            throw new IllegalStateException("the cursor is on no entry; seek, or ask isValid()");
        }
        return at;
    }

    private int keyBytes() {
        return (int) INT.get(page, at);
    }

    private int valueBytes() {
        return (int) INT.get(page, at + 4);
    }
}
