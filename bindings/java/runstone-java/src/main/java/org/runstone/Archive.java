// A part of the archive in a directory of backups.

package org.runstone;

import java.time.Instant;

/**
 * A part of an archive without a gap.
 *
 * @param afterNumber it has every change after this number
 * @param end its end
 * @param beginTime the first time that it records, or null
 * @param endTime the last time that it records, or null
 * @param bytes bytes of its files
 */
public record Archive(
        long afterNumber, Position end, Instant beginTime, Instant endTime, long bytes) {
    static Archive of(Answer answer) {
        return new Archive(answer.number(), Position.of(answer), answer.optional(Archive::time),
                answer.optional(Archive::time), answer.number());
    }

    private static Instant time(Answer answer) {
        return Instant.ofEpochMilli(answer.number());
    }
}
