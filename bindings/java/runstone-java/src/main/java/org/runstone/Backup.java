// The description of a backup.

package org.runstone;

import java.time.Instant;

/**
 * A backup.
 *
 * @param number its number, from 1 up; later backups have larger numbers
 * @param time when it was made, by the clock of the machine
 * @param lastNumber the number of the last write in it
 * @param tables how many tables it has
 * @param valueSegments how many value segments it has
 * @param bytes bytes that a restore writes
 * @param addedBytes bytes by which it enlarged the directory when it was made
 */
public record Backup(long number, Instant time, long lastNumber, long tables, long valueSegments,
        long bytes, long addedBytes) {
    static Backup of(Answer answer) {
        return new Backup(answer.number(), Instant.ofEpochMilli(answer.number()), answer.number(),
                answer.number(), answer.number(), answer.number(), answer.number());
    }
}
