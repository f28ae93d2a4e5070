// Failures of the store, with a code for programs.

package org.runstone;

/** A failure of the store. The message states what happened, where, and what to do. */
public class RunstoneException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    private final Code code;

    RunstoneException(Code code, String message) {
        super(message);
        this.code = code;
    }

    /** The kind of the failure. */
    public final Code code() {
        return code;
    }

    /** Called by the native library. */
    static RunstoneException of(int number, String message) {
        Code code = Code.of(number);
        return switch (code) {
            case CLOSED -> new Closed(message);
            case IN_USE -> new InUse(message);
            case CORRUPTION -> new Corruption(message);
            case CONFLICT, LOCK_TIMEOUT, DEADLOCK -> new Conflict(code, message);
            case INVALID_ARGUMENT -> new InvalidArgument(message);
            default -> new RunstoneException(code, message);
        };
    }

    /** The numbers are the same in the native library and in the bindings of other languages. */
    public enum Code {
        /** An argument or option is out of range, or null. */
        INVALID_ARGUMENT(1),
        /** The path contains no store. */
        NOT_A_STORE(2),
        /** The directory contains files that do not belong to a store. */
        FOREIGN_FILES(3),
        /** A newer release wrote the store. */
        NEWER_FORMAT(4),
        /** Another process, or another object of this one, has the store open. */
        IN_USE(5),
        /** The store was opened before a fork, by the other process. */
        OTHER_PROCESS(6),
        /** The store is open for reading only. */
        READ_ONLY(7),
        /** The disk is full. Writes work again once there is space. */
        NO_SPACE(8),
        /** A background job failed. The store accepts no writes until it is opened again. */
        STOPPED(9),
        /** No keyspace has that name. */
        UNKNOWN_KEYSPACE(10),
        /** A merge operator refused an operand or a value. */
        MERGE_FAILED(11),
        /** Another writer wrote a key that a transaction read or wrote. Begin it again. */
        CONFLICT(12),
        /** Another transaction held a lock for too long. */
        LOCK_TIMEOUT(13),
        /** Transactions wait for each other in a cycle. */
        DEADLOCK(14),
        /** The object, or its store, is closed. */
        CLOSED(15),
        /** Stored bytes differ from those that were written. */
        CORRUPTION(16),
        /** The file system refused an operation. */
        STORAGE(17),
        /** A callback called into its own store. */
        INSIDE_CALLBACK(18),
        /** Another thread is using an object that only one thread at a time may use. */
        BUSY(19),
        /** A fault of the store itself. Please report it. */
        INTERNAL(20),
        /** The writer of a store no longer keeps files for this reader. Open the store again. */
        LEASE_REVOKED(21),
        /** The store has lost changes that were read already. Begin again with its state. */
        HISTORY_FORKED(22),
        /**
         * The changes after the position are no longer known; the message states why. Begin again
         * with the state of the store.
         */
        HISTORY_GONE(23),
        /** The native library is missing, is of another version, or cannot be loaded. */
        LIBRARY(100);

        private static final Code[] ALL = values();

        private final int number;

        Code(int number) {
            this.number = number;
        }

        /** The number of the code. */
        public int number() {
            return number;
        }

        static Code of(int number) {
            return number > 0 && number < ALL.length ? ALL[number - 1] : INTERNAL;
        }
    }

    /** The object, or its store, is closed. */
    public static final class Closed extends RunstoneException {
        private static final long serialVersionUID = 1L;

        Closed(String message) {
            super(Code.CLOSED, message);
        }
    }

    /** Another process or object has the store open. */
    public static final class InUse extends RunstoneException {
        private static final long serialVersionUID = 1L;

        InUse(String message) {
            super(Code.IN_USE, message);
        }
    }

    /** Stored bytes differ from those that were written. */
    public static final class Corruption extends RunstoneException {
        private static final long serialVersionUID = 1L;

        Corruption(String message) {
            super(Code.CORRUPTION, message);
        }
    }

    /** A transaction lost a conflict with another one. Begin it again. */
    public static final class Conflict extends RunstoneException {
        private static final long serialVersionUID = 1L;

        Conflict(Code code, String message) {
            super(code, message);
        }
    }

    /** An argument or option is invalid. */
    public static final class InvalidArgument extends RunstoneException {
        private static final long serialVersionUID = 1L;

        InvalidArgument(String message) {
            super(Code.INVALID_ARGUMENT, message);
        }
    }
}
