// The description of a backup.

package org.runstone;

import java.time.Instant;

/**
 * A backup.
 *
 * @param number its number, from 1 up; later backups have larger ones
 * @param time when it was made, by the clock of the machine
 * @param lastNumber the number of the last write in it
 * @param tables tables
 * @param valueSegments segments of values
 * @param bytes bytes that a restore writes
 * @param addedBytes bytes that it added to the directory when it was made
 */
public record Backup(long number, Instant time, long lastNumber, long tables, long valueSegments,
        long bytes, long addedBytes) {
    static Backup of(Answer answer) {
        return new Backup(answer.number(), Instant.ofEpochMilli(answer.number()), answer.number(),
                answer.number(), answer.number(), answer.number(), answer.number());
    }
}
