// What a directory of backups says of its archive.

package org.runstone;

import java.time.Instant;

/**
 * A part of an archive that has every change.
 *
 * @param afterNumber it has everything after this number
 * @param end its end
 * @param beginTime the first time that it tells, or null
 * @param endTime the last time that it tells, or null
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
