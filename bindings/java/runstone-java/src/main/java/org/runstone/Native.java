// The native methods. bindings/java/native implements them; Store.open loads their library.

package org.runstone;

import java.nio.ByteBuffer;

/** The native side. A handle is a number. A closed handle is refused. */
final class Native {
    private Native() {
    }

    static native String version();

    static native long openResources(String options);

    static native long storesOf(long resources);

    static native void closeResources(long resources);

    static native long open(String path, String options, long resources, Events events);

    static native void closeStore(long store);

    static native void checkCloser(long store);

    static native void checkMirrorCloser(long mirror);

    static native long follow(String path, String options, long resources, Events events);

    static native boolean refresh(long store);

    static native long age(long store);

    static native byte[] live(long store);

    static native long openKeyspace(long store, String name, String options, boolean mayMake);

    static native void dropKeyspace(long store, String name);

    static native String keyspaces(long store);

    static native void flush(long store);

    static native void sync(long store);

    static native void waitIdle(long store);

    static native void checkpoint(long store, String path, boolean copies);

    static native String metrics(long store);

    static native long snapshot(long store);

    static native void closeSnapshot(long snapshot);

    static native void closeKeyspace(long keyspace);

    static native byte[] get(long keyspace, long snapshot, byte[] key);

    static native int getDirect(long keyspace, long snapshot,
            ByteBuffer key, int keyFrom, int keyCount, ByteBuffer out, int outFrom, int outCount);

    static native byte[] multiGet(long keyspace, byte[] keys);

    static native void put(long keyspace, byte[] key, byte[] value, int durability, long ttlMs);

    static native void putDirect(long keyspace, ByteBuffer key, int keyFrom, int keyCount,
            ByteBuffer value, int valueFrom, int valueCount, int durability, long ttlMs);

    static native void delete(long keyspace, byte[] key, int durability, long ttlMs);

    static native byte[] drain(
            long keyspace, byte[] from, byte[] to, int most, int durability, long ttlMs);

    static native byte[] popLast(long keyspace, int durability, long ttlMs);

    static native void deleteRange(
            long keyspace, byte[] from, byte[] to, int durability, long ttlMs);

    static native long[] estimate(long keyspace, byte[] from, byte[] to);

    static native void compact(long keyspace);

    static native void write(
            long store, long[] keyspaces, byte[] operations, int count, int durability, long ttlMs);

    static native long cursor(
            long keyspace, long snapshot, byte[] from, byte[] to, boolean fillCache);

    static native void closeCursor(long cursor);

    static native long fetch(long cursor, int start, byte[] key, byte[] page);

    static native long begin(long store, int mode);

    static native void closeTransaction(long transaction);

    static native byte[] transactionGet(
            long transaction, long keyspace, byte[] key, boolean forUpdate);

    static native void transactionPut(long transaction, long keyspace, byte[] key, byte[] value);

    static native void transactionDelete(long transaction, long keyspace, byte[] key);

    static native void commit(long transaction, int durability, long ttlMs);

    static native long openBackups(String path, boolean mayCreate);

    static native void closeBackups(long backups);

    static native byte[] createBackup(long backups, String store);

    static native byte[] listBackups(long backups);

    static native byte[] damagedBackups(long backups);

    static native byte[] archives(long backups);

    static native void verifyBackup(long backups, long number);

    static native void verifyArchives(long backups);

    static native void restore(long backups, long number, String path);

    static native byte[] restoreTo(
            long backups, int kind, long value, long history, String path);

    static native long prune(long backups, int keep);

    static native long openArchiver(long backups, String store);

    static native void closeArchiver(long archiver);

    static native byte[] advance(long archiver, long waitMillis);

    static native byte[] archived(long archiver);

    static native long openChanges(String store, int from, long number, long history,
            String state, boolean unsynced);

    static native void closeChanges(long changes);

    static native byte[] nextChange(long changes, long waitMillis);

    static native byte[] changesPosition(long changes);

    static native byte[] nextWrites(long writes);

    static native void closeWrites(long writes);

    static native long openMirror(String source, String target, String options, Events events);

    static native void closeMirror(long mirror);

    static native byte[] advanceMirror(long mirror, long waitMillis);

    static native byte[] mirrored(long mirror);

    static native byte[] repair(String from, String to, String options, boolean lostLog);
}
