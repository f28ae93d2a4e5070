// A new store from the readable contents of a damaged one.

package org.runstone;

import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;

/**
 * The result of a repair, and the keys that may be wrong.
 *
 * <pre>{@code
 * Repair repair = Repair.of(Path.of("damaged"), Path.of("new"));
 * repair.doubts().forEach(System.out::println);
 * }</pre>
 *
 * @param isHealthy whether the store was found healthy; then there is no new store
 * @param basis the source of the list of current tables
 * @param keyspaces the names of the keyspaces of the new store
 * @param tables tables that were read, including damaged ones
 * @param carriedTables tables among them that the new store has unchanged; a link shares the file
 *     with the damaged store
 * @param logRecords records of the log that were used
 * @param entries entries of the new store
 * @param bytes bytes of its tables
 * @param lastNumber the largest sequence number that was found; later writes are lost
 * @param lost files and parts that are damaged or missing, as far as that is known
 * @param doubts keys that may be wrong; if there are none, every key of the new store is right, and
 *     none is missing
 * @param notes further remarks
 */
public record Repair(boolean isHealthy, Basis basis, List<String> keyspaces, long tables,
        long carriedTables, long logRecords, long entries, long bytes, long lastNumber,
        List<Lost> lost, List<Doubt> doubts, List<String> notes) {

    /** The source of the list of current tables. The order is that of the native library. */
    public enum Basis {
        /** An intact manifest. */
        MANIFEST,
        /** The readable part of a manifest, or an older manifest. */
        PART_OF_MANIFEST,
        /** No manifest: all tables were used. */
        TABLES
    }

    /** Why a key may be wrong. The order is that of the native library. */
    public enum Reason {
        /** The newest writes of the key may be missing. */
        MAY_BE_OLD,
        /** The key may be back although it was deleted, had expired, or was filtered away. */
        MAY_BE_BACK,
        /** The key was left out, because its value cannot be read. */
        VALUE_LOST,
        /** Operands of the merge operator may count twice. */
        OPERANDS_MAY_REPEAT,
        /** The newest write of the key comes from a log that an earlier open set aside. */
        FROM_LOST_LOG
    }

    /**
     * Something damaged or missing.
     *
     * @param file the name of the file in the store
     * @param what what is wrong
     */
    public record Lost(String file, String what) {
    }

    /**
     * The first and the last number of writes.
     *
     * @param first the first
     * @param last the last
     */
    public record Numbers(long first, long last) {
    }

    /**
     * Keys that may be wrong in the new store.
     *
     * @param keyspace the name of the keyspace; null means all
     * @param first the first key
     * @param last the last key, inclusive; null if there is none
     * @param numbers the writes that may be missing or back; null if they are not known
     * @param reason the reason
     * @param what the finding, in words
     */
    public record Doubt(String keyspace, byte[] first, byte[] last, Numbers numbers, Reason reason,
            String what) {
        private static Doubt of(Answer answer) {
            return new Doubt(answer.optional(Answer::text), answer.bytes(),
                    answer.optional(Answer::bytes),
                    answer.optional(two -> new Numbers(two.number(), two.number())),
                    Reason.values()[(int) answer.number()], answer.text());
        }

        /** Whether the doubt includes a key. */
        public boolean covers(String name, byte[] key) {
            return (keyspace == null || keyspace.equals(name))
                    && Arrays.compareUnsigned(first, key) <= 0
                    && (last == null || Arrays.compareUnsigned(key, last) <= 0);
        }
    }

    /** Repairs with default options, and without logs that an earlier open set aside. */
    public static Repair of(Path from, Path to) {
        return of(from, to, "", false);
    }

    /**
     * Makes a new store from the readable contents of a damaged one. The damaged store is only
     * read. A healthy store is left alone.
     *
     * @param from the damaged store
     * @param to the directory of the new store, which is new or empty
     * @param options the options with which the application opens the store, as TOML
     * @param lostLog whether writes that an earlier open set aside in {@code lost-NNNNNN.wal} are
     *     restored, for keys that were not written since
     */
    public static Repair of(Path from, Path to, String options, boolean lostLog) {
        Library.load();
        Answer answer = new Answer(
                Native.repair(from.toString(), to.toString(), options, lostLog));
        return new Repair(answer.number() == 1, Basis.values()[(int) answer.number()],
                answer.list(Answer::text), answer.number(), answer.number(), answer.number(),
                answer.number(), answer.number(), answer.number(),
                answer.list(lost -> new Lost(lost.text(), lost.text())),
                answer.list(Doubt::of), answer.list(Answer::text));
    }
}
