// The older versions of a versioned store.

package org.runstone.kafka.streams;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;

/**
 * Replaced versions, in tables by the time up to which they were valid. When that time is older
 * than the retention, they can no longer be queried. The versions of one key follow each other in
 * time, so a version that ended later also began later.
 */
final class VersionHistory {
    private static final int TIMES = RecordKey.VERSION_BYTES;

    private final Segments segments;

    VersionHistory(Segments segments) {
        this.segments = segments;
    }

    void dropBefore(long time) {
        segments.dropBefore(time);
    }

    void add(byte[] key, Version version) {
        byte[] record = RecordKey.version(key, version.time());
        segments.makeAt(version.validTo()).put(record, version.storedAsOlder());
    }

    /**
     * Inserts a version that is older than the latest one. Returns the time up to which it is
     * valid.
     *
     * <p>1. If another version is valid at its time, the new version is valid for the rest of that
     * period, or replaces the other version if both begin at the same time. 2. Otherwise the new
     * version is valid up to the next one.
     */
    long insert(byte[] key, Version version, long latestTime) {
        long time = version.time();
        for (Table table : segments.between(time, Long.MAX_VALUE, true)) {
            Version before = first(table, key, 0, time, false);
            if (before != null && before.validTo() > time) {
                if (before.time() < time) {
                    table.put(RecordKey.version(key, before.time()), null);
                    add(key, new Version(before.time(), time, before.value()));
                }
                add(key, new Version(time, before.validTo(), version.value()));
                return before.validTo();
            }
            Version behind = first(table, key, time + 1, Long.MAX_VALUE, true);
            if (behind != null) {
                add(key, new Version(time, behind.time(), version.value()));
                return behind.time();
            }
        }
        add(key, new Version(time, latestTime, version.value()));
        return latestTime;
    }

    /** The version that was valid at a time, or null. */
    Version asOf(byte[] key, long time) {
        for (Table table : segments.between(time, Long.MAX_VALUE, true)) {
            Version version = first(table, key, 0, time, false);
            if (version != null && version.validTo() > time) {
                return version;
            }
        }
        return null;
    }

    /** The versions that were valid at some time from {@code from} to {@code to}, oldest first. */
    List<Version> between(byte[] key, long from, long to) {
        List<Version> versions = new ArrayList<>();
        for (Table table : segments.between(from, Long.MAX_VALUE, true)) {
            try (Entries entries = entries(table, key, 0, to, true)) {
                for (; entries.isValid(); entries.next()) {
                    Version version = Version.older(entries.key(), entries.value());
                    if (version.validTo() > from) {
                        versions.add(version);
                    }
                }
            }
        }
        versions.sort(Comparator.comparingLong(Version::time));
        return versions;
    }

    /** The first version of a key that began from {@code from} to {@code to}, or the last one. */
    private static Version first(Table table, byte[] key, long from, long to, boolean forward) {
        try (Entries entries = entries(table, key, from, to, forward)) {
            return entries.isValid() ? Version.older(entries.key(), entries.value()) : null;
        }
    }

    private static Entries entries(Table table, byte[] key, long from, long to, boolean forward) {
        if (to < 0) {
            // Records have no times before 1970. As a key, such a time would sort after all others.
            return Entries.NONE;
        }
        byte[] lower = RecordKey.version(key, Math.max(0, from));
        byte[] upper = RecordKey.after(RecordKey.version(key, to));
        return Segments.walkOrThrow(table, lower, upper, forward,
                record -> RecordKey.isOf(record, key, TIMES));
    }
}
