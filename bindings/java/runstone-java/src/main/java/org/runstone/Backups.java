// A directory of backups.

package org.runstone;

import java.nio.file.Path;
import java.util.List;

/**
 * A directory of backups of one store. It should be on another disk.
 *
 * <pre>{@code
 * try (Backups backups = Backups.open(Path.of("my-backups"))) {
 *     backups.create(Path.of("my-store"));     // every night; copies what changed
 *     backups.prune(30);
 *     backups.restore(Path.of("restored"));
 * }
 * }</pre>
 *
 * <p>The store may be open in this process or in another one, or closed; its writers do not wait.
 * Methods may be called from any number of threads.
 */
public final class Backups extends Handle {
    private Backups(long handle) {
        super("directory of backups", handle, Native::closeBackups);
    }

    /**
     * Opens a directory of backups, or makes a new or empty directory one.
     *
     * @throws RunstoneException with the code {@code FOREIGN_FILES} if the directory contains
     *     anything else, such as a store
     */
    public static Backups open(Path path) {
        Library.load();
        return new Backups(Native.openBackups(path.toString(), true));
    }

    /** Opens a directory that has backups. */
    public static Backups openExisting(Path path) {
        Library.load();
        return new Backups(Native.openBackups(path.toString(), false));
    }

    /**
     * Adds a backup of the store in a directory, as it is now. Copies only files that the directory
     * lacks.
     *
     * @throws RunstoneException with the code {@code INVALID_ARGUMENT} if the backups are of
     *     another store; {@code IN_USE} if another backup is running
     */
    public Backup create(Path store) {
        try {
            return Backup.of(new Answer(Native.createBackup(handle(), store.toString())));
        } finally {
            keep(this);
        }
    }

    /** All backups with an intact description, the oldest first. */
    public List<Backup> list() {
        try {
            return new Answer(Native.listBackups(handle())).list(Backup::of);
        } finally {
            keep(this);
        }
    }

    /**
     * A backup whose description is damaged, so that it cannot be restored.
     *
     * @param number its number
     * @param what what is wrong
     */
    public record Damaged(long number, String what) {
    }

    /** The backups with a damaged description. While there is one, prune removes less. */
    public List<Damaged> damaged() {
        try {
            return new Answer(Native.damagedBackups(handle()))
                    .list(answer -> new Damaged(answer.number(), answer.text()));
        } finally {
            keep(this);
        }
    }

    /** The parts of the archive without a gap, the oldest first. */
    public List<Archive> archives() {
        try {
            return new Answer(Native.archives(handle())).list(Archive::of);
        } finally {
            keep(this);
        }
    }

    /** Reads every byte of the newest backup, and checks it. */
    public void verify() {
        verifyNumbered(0);
    }

    /**
     * Reads every byte of a backup, and checks it.
     *
     * @throws RunstoneException.Corruption if something is damaged
     */
    public void verify(long number) {
        verifyNumbered(checked(number));
    }

    private void verifyNumbered(long number) {
        try {
            Native.verifyBackup(handle(), number);
        } finally {
            keep(this);
        }
    }

    /**
     * Reads the archive, and checks it.
     *
     * @throws RunstoneException.Corruption if something is damaged
     */
    public void verifyArchives() {
        try {
            Native.verifyArchives(handle());
        } finally {
            keep(this);
        }
    }

    /** Makes a store from the newest backup in a directory that is new or empty. */
    public void restore(Path path) {
        restoreNumbered(0, path);
    }

    /** Makes a store from a backup in a new or empty directory, and checks all of it. */
    public void restore(long number, Path path) {
        restoreNumbered(checked(number), path);
    }

    private void restoreNumbered(long number, Path path) {
        try {
            Native.restore(handle(), number, path.toString());
        } finally {
            keep(this);
        }
    }

    /** For the native library, 0 means the newest. */
    private static long checked(long number) {
        if (number < 1) {
            throw new RunstoneException.InvalidArgument("there is no backup " + number
                    + "; list the backups to see which there are");
        }
        return number;
    }

    /**
     * The result of a restore to a moment.
     *
     * @param backup the number of the backup that it began with
     * @param changes changes of the archive that were applied to it
     * @param lastNumber the last number of the original store that the new one has
     */
    public record Restored(long backup, long changes, long lastNumber) {
    }

    /**
     * Makes a store as of a moment of the archive in a directory that is new or empty.
     *
     * @throws RunstoneException.InvalidArgument if neither a backup nor the archive has the moment,
     *     or if the clock showed the time twice; the message then lists the numbers
     */
    public Restored restoreTo(Moment moment, Path path) {
        try {
            Answer answer = new Answer(
                    Native.restoreTo(handle(), moment.kind, moment.value, moment.history,
                            path.toString()));
            return new Restored(answer.number(), answer.number(), answer.number());
        } finally {
            keep(this);
        }
    }

    /**
     * Removes all backups but the newest, and the files that only they needed.
     *
     * @param keep how many backups stay, at least 1
     * @return how many were removed
     */
    public long prune(int keep) {
        try {
            return Native.prune(handle(), keep);
        } finally {
            keep(this);
        }
    }

    /**
     * Continues the archive of the store in a directory, or begins it with a backup. From there on,
     * the archive has every change. The store keeps its log for an open archiver, and up to its
     * option {@code keep_log_bytes} while no archiver is open.
     *
     * @throws RunstoneException.InUse if another archiver is open
     */
    public Archiver archive(Path store) {
        try {
            return new Archiver(Native.openArchiver(handle(), store.toString()));
        } finally {
            keep(this);
        }
    }
}
