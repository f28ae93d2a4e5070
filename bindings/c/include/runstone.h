/* Runstone for C: link with -lrunstone.
 *
 * Functions return RUNSTONE_OK, or a status that says what went wrong; runstone_last_message()
 * explains it.
 *
 * Objects are handles. Release each object with the function for its type that ends in _close (a
 * store with runstone_close(), a transaction with runstone_commit() or runstone_rollback()).
 * Functions refuse a closed handle with RUNSTONE_CLOSED. If a store is closed first, they refuse
 * the handles of its objects as well; only a cursor of a keyspace still shows its moment.
 *
 * Bytes are passed as a pointer and a size. Null with size 0 means empty bytes, or none where a
 * comment says so. Texts are UTF-8 and end with a zero byte. Any number of threads may use a store,
 * a keyspace or a snapshot; other objects may be used by one thread at a time.
 *
 * In a forked process, functions refuse objects that were opened before the fork, with
 * RUNSTONE_OTHER_PROCESS; closing such an object only frees its handle. Options and batches are
 * only memory, and still work. Open a store in a forked process only if its parent had none open: a
 * thread of the parent may have held a lock that all stores share.
 */

#ifndef RUNSTONE_H
#define RUNSTONE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The size that runstone_get_into() returns for an absent value. */
#define RUNSTONE_ABSENT SIZE_MAX


// The result of a function. 0 is success. The other values are for programs, and
// runstone_last_message() explains them to people.
typedef enum {
    // It worked.
    RUNSTONE_OK = 0,
    // An argument or option is out of range, or null.
    RUNSTONE_INVALID_ARGUMENT = 1,
    // The path contains no store.
    RUNSTONE_NOT_A_STORE = 2,
    // The directory contains files of something else.
    RUNSTONE_FOREIGN_FILES = 3,
    // A newer release wrote the store.
    RUNSTONE_NEWER_FORMAT = 4,
    // Another process, or another handle of this one, has the store open.
    RUNSTONE_IN_USE = 5,
    // The store was opened before a fork, by the other process.
    RUNSTONE_OTHER_PROCESS = 6,
    // The store is open for reading only.
    RUNSTONE_READ_ONLY = 7,
    // The disk is full. Writes work again once there is space.
    RUNSTONE_NO_SPACE = 8,
    // A background job failed. The store accepts no writes until it is opened again.
    RUNSTONE_STOPPED = 9,
    // No keyspace has that name.
    RUNSTONE_UNKNOWN_KEYSPACE = 10,
    // A merge operator refused an operand or a value.
    RUNSTONE_MERGE_FAILED = 11,
    // Another writer wrote a key that a transaction read or wrote. Begin again.
    RUNSTONE_CONFLICT = 12,
    // Another transaction held a lock for too long.
    RUNSTONE_LOCK_TIMEOUT = 13,
    // Transactions wait for each other.
    RUNSTONE_DEADLOCK = 14,
    // The handle, or its store, is closed.
    RUNSTONE_CLOSED = 15,
    // Stored bytes differ from those that were written.
    RUNSTONE_CORRUPTION = 16,
    // The file system refused an operation.
    RUNSTONE_STORAGE = 17,
    // A callback called into its own store.
    RUNSTONE_INSIDE_CALLBACK = 18,
    // Another thread is using an object that one thread at a time may use.
    RUNSTONE_BUSY = 19,
    // A fault of the store itself. Please report it.
    RUNSTONE_INTERNAL = 20,
    // The writer of a store no longer keeps files for this reader. Open the store again.
    RUNSTONE_LEASE_REVOKED = 21,
    // The store has lost a part of its history that was read before. Begin again with its state.
    RUNSTONE_HISTORY_FORKED = 22,
    // The changes after the position are no longer known; the message states why. Begin again with
    // the state of the store.
    RUNSTONE_HISTORY_GONE = 23,
} runstone_status;

// The kind of a change.
typedef enum {
    // There is no further change for now.
    RUNSTONE_CHANGE_NONE = 0,
    // Writes that became visible together.
    RUNSTONE_CHANGE_WRITES = 1,
    // A load into a keyspace: many writes that became visible together.
    RUNSTONE_CHANGE_LOADED = 2,
    // A keyspace was made, or its options changed.
    RUNSTONE_CHANGE_KEYSPACE = 3,
    // A keyspace was dropped.
    RUNSTONE_CHANGE_DROPPED = 4,
    // Lists all keyspaces: after a crash, in a gap before its state, or if the log begins after
    // the position.
    RUNSTONE_CHANGE_KEYSPACES = 5,
    // The time of day, by the clock of the writer, which may go back. All earlier changes had been
    // committed by then.
    RUNSTONE_CHANGE_TIME = 6,
    // The log lacks the next changes. RUNSTONE_CHANGE_STATE follows until RUNSTONE_CHANGE_GAP_END.
    // If it is a gap after 0, this is the state of all keys: discard all earlier data. Overwritten
    // values are not returned, nor are deletes that a compaction dropped together with the values
    // they hid. So the caller may keep a key that the store no longer has.
    RUNSTONE_CHANGE_GAP = 7,
    // The state of keys at the end of the gap: range deletes, then a put or a delete of each key.
    RUNSTONE_CHANGE_STATE = 8,
    // The gap has ended.
    RUNSTONE_CHANGE_GAP_END = 9,
} runstone_change_kind;

// The kind of a write.
typedef enum {
    // There are no further writes.
    RUNSTONE_WRITE_NONE = 0,
    // Stores a value.
    RUNSTONE_WRITE_PUT = 1,
    // Removes a key.
    RUNSTONE_WRITE_DELETE = 2,
    // Adds an operand of the merge operator.
    RUNSTONE_WRITE_MERGE = 3,
    // Removes a range of keys.
    RUNSTONE_WRITE_DELETE_RANGE = 4,
} runstone_write_kind;

// The failures that a write survives after it has returned.
typedef enum {
    // As the store's options specify; by default, a crash of the process.
    RUNSTONE_AS_OPENED = 0,
    // A crash of the process.
    RUNSTONE_BUFFERED = 1,
    // A power loss.
    RUNSTONE_SYNC = 2,
} runstone_durability;

// The decision about an entry that a compaction reads.
typedef enum {
    // It stays as it is.
    RUNSTONE_KEEP = 0,
    // It is removed, as if its key had been deleted.
    RUNSTONE_REMOVE = 1,
    // Its value becomes the bytes that were set as `output`.
    RUNSTONE_CHANGE = 2,
} runstone_decision;

// How runstone_backups_restore_to() names a moment.
typedef enum {
    // The end of the archive. The value is ignored.
    RUNSTONE_AT_END = 0,
    // After all changes that had been committed by this time, in milliseconds since 1970. The
    // archive knows the time of a change to about a second.
    RUNSTONE_AT_TIME = 1,
    // After the last batch whose number is at most this one. This is exact. After a power loss or
    // a restore, a store reuses numbers: runstone_backups_restore_to_position() chooses the
    // history.
    RUNSTONE_AT_NUMBER = 2,
} runstone_moment;

// Where changes begin.
typedef enum {
    // The oldest change that the log of the store has.
    RUNSTONE_FROM_OLDEST = 0,
    // Commits from now on.
    RUNSTONE_FROM_NOW = 1,
    // Everything after `after`.
    RUNSTONE_FROM_POSITION = 2,
    // The state of all keys, and then everything after it: for a caller that has no data yet. The
    // state appears as a gap after 0. Its position has the number 0 and the history 0: reading
    // from that position returns everything again.
    RUNSTONE_FROM_EVERYTHING = 3,
} runstone_changes_from;

// Appends the changes committed to a store to the archive beside its backups. One thread at a time
// may use it.
typedef struct runstone_archiver runstone_archiver;

// A directory of backups. Any number of threads may use it.
typedef struct runstone_backups runstone_backups;

// Writes for runstone_write(). One thread at a time may use it.
typedef struct runstone_batch runstone_batch;

// Reads the changes committed to a store, in order. One thread at a time may use it.
typedef struct runstone_changes runstone_changes;

// A position in a keyspace, which moves. One thread at a time may use it. It shows the keyspace as
// of the moment when it was made, or as of a snapshot.
typedef struct runstone_cursor runstone_cursor;

// An ordered map from keys to values in a store. Any number of threads may use it. Keys have up to
// 65,535 bytes and are ordered by their bytes; values have up to 4 GiB.
typedef struct runstone_keyspace runstone_keyspace;

// A store that follows another one, change by change. One thread at a time may use it.
typedef struct runstone_mirror runstone_mirror;

// Options for runstone_open(), which copies them. One thread at a time may use them.
typedef struct runstone_options runstone_options;

// The place for the result of a callback. It is valid until the callback returns.
typedef struct runstone_output runstone_output;

// Resources that many stores share: memory, threads, open files. Any number of threads may use
// them.
typedef struct runstone_resources runstone_resources;

// A view of all keyspaces that later writes do not change. Any number of threads may use it. While
// the snapshot is open, the store keeps the data that it shows.
typedef struct runstone_snapshot runstone_snapshot;

// Writes a file for runstone_ingest(). One thread at a time may use it.
typedef struct runstone_sorted_writer runstone_sorted_writer;

// An open store. Any number of threads may use it.
typedef struct runstone_store runstone_store;

// Reads and writes that happen together or not at all. One thread at a time may use it.
typedef struct runstone_transaction runstone_transaction;

// The result of a round of archiving.
typedef struct {
    // Changes that were appended.
    uint64_t changes;
    // Bytes that were appended.
    uint64_t bytes;
    // If the archive began, or began again, the number of its first backup. 0 if it continued.
    uint64_t backup;
    // If the archive began again, it lacks all changes after this number.
    uint64_t lacks_after;
    // The last change that the archive lacks. 0 if it lacks nothing.
    uint64_t lacks_through;
    // Whether no changes are left. A round ends after about 16 MiB even if some are.
    bool is_drained;
} runstone_archiving;

// A place in the history of a store, after a write. After a power loss, the same number can mean
// another write; the history distinguishes the two. As text for the command line, a position is
// the number, `@`, and the history in 16 hexadecimal digits.
typedef struct {
    // The number of the last write before it.
    uint64_t seq;
    // The id of the history.
    uint64_t history;
} runstone_position;

// A backup.
typedef struct {
    // Its number, from 1 up. Later backups have larger numbers.
    uint64_t number;
    // When it was made, in milliseconds since 1970, by the clock of the machine.
    uint64_t time_ms;
    // The number of the last write in it.
    uint64_t last_seq;
    // The number of its tables.
    uint64_t tables;
    // The number of its value segments.
    uint64_t value_segments;
    // Bytes that a restore writes.
    uint64_t bytes;
    // Bytes by which it enlarged the directory when it was made.
    uint64_t added_bytes;
} runstone_backup;

// A part of an archive without a gap.
typedef struct {
    // The archive has the changes after this number.
    uint64_t from_seq;
    // The archive has the changes up to this number, inclusive.
    uint64_t through_seq;
    // The history of its end, as in a runstone_position.
    uint64_t history;
    // The first time recorded in it, in milliseconds since 1970; 0 if there is none.
    uint64_t from_ms;
    // The last time recorded in it; 0 if there is none.
    uint64_t through_ms;
    // Bytes of its files.
    uint64_t bytes;
} runstone_archive;

// Bytes that the library returns. Release them with runstone_bytes_free(). If a function
// fails, the bytes are null, except for the report of a check that found damage.
typedef struct {
    // The first byte; null if there are no bytes, as for an absent key. The pointer to empty bytes
    // is not null.
    const void *data;
    // The number of bytes.
    size_t size;
    // Belongs to the library. Do not change it.
    void *owner;
} runstone_bytes;

// The result of a restore to a moment.
typedef struct {
    // The number of the backup that it began with.
    uint64_t backup;
    // Changes of the archive that were applied to it.
    uint64_t changes;
    // The last number of the original store that the new one has.
    uint64_t last_seq;
} runstone_restored;

// Where changes begin, and how they are read. All zero means everything that the log has.
typedef struct {
    // Where to begin: a runstone_changes_from.
    int32_t from;
    // With RUNSTONE_FROM_POSITION, the changes begin after this position. Give the position of the
    // last change whose effects the caller has.
    runstone_position after;
    // If the log no longer reaches back to that position, returns the current state of the keys
    // written since (RUNSTONE_CHANGE_GAP), and then the log. If not set, such a reader fails with
    // RUNSTONE_HISTORY_GONE.
    bool state;
    // Options with the merge operators that reading this state needs; null if the store has none.
    const runstone_options *state_options;
    // Also returns changes that are not durable yet. If they are lost in a power loss, the reader
    // fails with RUNSTONE_HISTORY_FORKED.
    bool unsynced;
} runstone_changes_options;

// A change.
typedef struct {
    // Its kind.
    runstone_change_kind kind;
    // The position after it. Write it in one batch with the effects of the change, and each change
    // takes effect exactly once. Inside a gap it is the position before the gap.
    runstone_position position;
    // For a time: milliseconds since 1970. Otherwise 0.
    uint64_t time_ms;
    // For a gap: the state has the keys written after this number; 0 means all keys. Otherwise 0.
    uint64_t gap_after;
    // For a gap: the state is as of this number. Otherwise 0.
    uint64_t gap_through;
} runstone_change;

// A write of a change. Its bytes are valid until the next call with the same reader.
typedef struct {
    // Its kind.
    runstone_write_kind kind;
    // The name of the keyspace.
    const char *keyspace;
    // The key; for a range, the first one.
    const void *key;
    // Its size.
    size_t key_size;
    // The value or operand; for a range, the key before which it ends. Null for a delete, and for
    // a range without an end.
    const void *value;
    // Its size.
    size_t value_size;
    // When the value expires, in milliseconds since 1970; 0 if it does not.
    uint64_t expires_ms;
    // Whether the store made this put itself: a get stored the value that it had merged from many
    // operands of the key. The put does not change the value that a read of the key returns.
    bool is_folded;
} runstone_change_write;

// How a cursor reads. All zero means everything, as of now.
typedef struct {
    // The snapshot to read; null means now.
    const runstone_snapshot *snapshot;
    // The first key to show; null means the first key of all.
    const void *from;
    // Its size.
    size_t from_size;
    // The key at which to stop, which is not shown; null means no bound.
    const void *to;
    // Its size.
    size_t to_size;
    // Shows only keys that begin with this prefix; null means all. It cannot be combined with
    // `from` and `to`.
    const void *prefix;
    // Its size.
    size_t prefix_size;
    // Does not read values that are separated from their keys, and shows them as empty.
    bool keys_only;
    // Does not add the data that it reads to the cache. This is for a scan that reads everything
    // once.
    bool skip_cache;
} runstone_read_options;

// An entry that a cursor shows. It is valid until the cursor moves or is closed.
typedef struct {
    // The key.
    const void *key;
    // Its size.
    size_t key_size;
    // The value.
    const void *value;
    // Its size.
    size_t value_size;
} runstone_entry;

// The result of a round of mirroring.
typedef struct {
    // Changes applied.
    uint64_t changes;
    // Their size in bytes, approximately.
    uint64_t bytes;
    // Whether no changes are left. A round ends after about 16 MiB even if some are.
    bool is_drained;
} runstone_mirroring;

// The caller's bytes.
typedef struct {
    // The first byte.
    const void *data;
    // The number of bytes.
    size_t size;
} runstone_slice;

// Makes a value from an older one (null data means that there is none) and `count` operands,
// oldest first, and sets it as `output`. If that is impossible, it sets a message and returns
// false. Then reads of the key fail, and the operands stay. It must give the same result at any
// time and on any machine. Several threads may call it.
typedef bool (*runstone_merger)(void *context,
                                runstone_slice key,
                                runstone_slice base,
                                const runstone_slice *operands,
                                size_t count,
                                runstone_output *output);

// Releases a context.
typedef void (*runstone_end)(void *context);

// Decides what happens to an entry that a compaction writes to `level`. It returns a
// runstone_decision. Any other number keeps the entry.
typedef int32_t (*runstone_filter)(void *context,
                                   uint32_t level,
                                   runstone_slice key,
                                   runstone_slice value,
                                   runstone_output *output);

// Receives an event of a store. `kind` says what happened: flushed, compacted, loaded,
// values_collected, pressure, recovered. Some kinds need attention: log_end_lost (a crash left
// records of the log that are not used), background_error, merge_failed, budget_above_limit,
// compaction_filter_missing, kept_log_given_up (on a full disk), damage_found (by a scrub). Later
// releases may add kinds. `json` is an object with the kind, a warning flag, a message for people,
// and details of the event. Both are valid until the listener returns. Several threads may call it
// in the middle of their work, so it should return soon. It may read from its store. Other calls
// are refused with RUNSTONE_INSIDE_CALLBACK.
typedef void (*runstone_listener)(void *context,
                                  const char *kind,
                                  const char *json);

// The result of a repair.
typedef struct {
    // Whether the store was found healthy. Then nothing was done, and there is no new store.
    bool is_healthy;
    // Tables read, including damaged ones.
    uint64_t tables;
    // How many of these tables the new store has unchanged. A link shares the file with the
    // damaged store.
    uint64_t carried_tables;
    // Records of the log that were used.
    uint64_t log_records;
    // Entries of the new store.
    uint64_t entries;
    // Bytes of its tables.
    uint64_t bytes;
    // The largest sequence number that the repair found. Later writes are lost.
    uint64_t last_seq;
    // How many files, or parts of them, are damaged or missing.
    uint64_t lost;
    // How many ranges of keys may be wrong. 0 means that every key of the new store is right and
    // none is missing.
    uint64_t doubts;
} runstone_repaired;

// The process that writes to a store, and the time of its last report.
typedef struct {
    // The process that writes to the store.
    uint64_t process;
    // How long ago it reported, in milliseconds.
    uint64_t age_ms;
    // Whether that was in the last seconds. If not, the process ended, hangs, or does not report.
    bool is_current;
} runstone_live_state;

// How a transaction runs. All zero means optimistic, with snapshot isolation.
typedef struct {
    // Whether the transaction locks the keys that it writes or reads for update, and waits for the
    // locks of others. If not, its commit fails if another writer wrote the same keys.
    bool is_pessimistic;
    // Whether its commit also fails if another writer wrote a key that it read.
    bool is_serializable;
    // How long a pessimistic transaction waits for a lock; 0 means a second.
    uint64_t lock_timeout_ms;
} runstone_transaction_options;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Continues the archive of the store in a directory, or begins it with a backup. The store may be
// open in this process or in another one, or closed. It keeps its log for the archiver, within its
// limits. A second archiver of one directory is refused with RUNSTONE_IN_USE. Close it with
// runstone_archiver_close().
runstone_status runstone_archiver_create(const runstone_backups *backups,
                                         const char *store_path,
                                         runstone_archiver **archiver);

// Waits for a change for at most `wait_ms`, then appends the changes committed since. They are
// durable when this returns. After an error the archive is intact, and the next call continues it.
// `done` may be null. Call it every second, or in a loop with a wait.
runstone_status runstone_archiver_advance(runstone_archiver *archiver,
                                          uint64_t wait_ms,
                                          runstone_archiving *done);

// The position up to which the archive is complete.
runstone_status runstone_archiver_position(const runstone_archiver *archiver,
                                           runstone_position *position);

// Closes an archiver. A running round ends first. The archive stays, and another archiver
// continues it. Null is not an error.
runstone_status runstone_archiver_close(runstone_archiver *archiver);

// Opens a directory of backups of one store. If `may_create`, it may be new or empty. A directory
// that contains a store or anything else is refused. It may, and should, be on another disk than
// the store.
runstone_status runstone_backups_open(const char *path,
                                      bool may_create,
                                      runstone_backups **backups);

// Closes a directory of backups. Its files stay, and a running archiver continues. Null is not an
// error.
runstone_status runstone_backups_close(runstone_backups *backups);

// Adds a backup of the store in a directory, as it is now. The store may be open in this process
// or in another one, or closed; its writers do not wait. Only files that the directory lacks are
// copied. A second backup in the same directory at the same time is refused with RUNSTONE_IN_USE.
// `made`, which may be null, gets the backup.
runstone_status runstone_backups_create(const runstone_backups *backups,
                                        const char *store_path,
                                        runstone_backup *made);

// Lists the backups, the oldest first: at most `capacity` of them, from the one at `first` on.
// `count` gets the number of all backups. Backups with a damaged description are not included: see
// runstone_backups_damaged().
runstone_status runstone_backups_list(const runstone_backups *backups,
                                      size_t first,
                                      size_t capacity,
                                      runstone_backup *list,
                                      size_t *count);

// Lists the parts of the archive without a gap, the oldest first, as runstone_backups_list() does.
runstone_status runstone_backups_archives(const runstone_backups *backups,
                                          size_t first,
                                          size_t capacity,
                                          runstone_archive *list,
                                          size_t *count);

// The backups with a damaged description, which cannot be restored, as a JSON list of objects with
// `number` and `what`. While there is one, prune does not remove files that no readable backup
// needs.
runstone_status runstone_backups_damaged(const runstone_backups *backups,
                                         runstone_bytes *list);

// Reads every byte of a backup and checks it. `number` 0 is the newest. `report` gets the damage
// as a JSON list of objects with `file` and `what`; damage makes the status RUNSTONE_CORRUPTION.
runstone_status runstone_backups_verify(const runstone_backups *backups,
                                        uint64_t number,
                                        runstone_bytes *report);

// Reads every byte of the archive and checks it, as runstone_backups_verify() does for a backup.
runstone_status runstone_backups_verify_archives(const runstone_backups *backups,
                                                 runstone_bytes *report);

// Restores a backup to a new or empty directory, and checks every byte. `number` 0 is the newest
// backup.
runstone_status runstone_backups_restore(const runstone_backups *backups,
                                         uint64_t number,
                                         const char *path);

// Makes a store as of a moment of the archive in a directory that is new or empty. `moment` is a
// runstone_moment, which defines the meaning of `value`. A moment that neither a backup nor the
// archive has is refused with RUNSTONE_INVALID_ARGUMENT. So is a time that the clock showed twice;
// the message then lists the numbers. `restored` may be null.
runstone_status runstone_backups_restore_to(const runstone_backups *backups,
                                            int32_t moment,
                                            uint64_t value,
                                            const char *path,
                                            runstone_restored *restored);

// As runstone_backups_restore_to(), but with the number and the history of a position.
runstone_status runstone_backups_restore_to_position(const runstone_backups *backups,
                                                     runstone_position position,
                                                     const char *path,
                                                     runstone_restored *restored);

// Removes all backups except the newest `keep`, at least 1, and the files that only they needed,
// including the beginning of the archive. `removed`, which may be null, gets the number of removed
// backups.
runstone_status runstone_backups_prune(const runstone_backups *backups,
                                       size_t keep,
                                       uint64_t *removed);

// Makes an empty batch. Close it with runstone_batch_close().
runstone_status runstone_batch_create(runstone_batch **batch);

// Closes a batch. Null is not an error.
runstone_status runstone_batch_close(runstone_batch *batch);

// Removes all writes from a batch, and keeps its memory for later writes.
runstone_status runstone_batch_clear(runstone_batch *batch);

// The number of writes in a batch.
runstone_status runstone_batch_count(const runstone_batch *batch,
                                     uint64_t *count);

// Adds a put.
runstone_status runstone_batch_put(runstone_batch *batch,
                                   const runstone_keyspace *keyspace,
                                   const void *key,
                                   size_t key_size,
                                   const void *value,
                                   size_t value_size);

// Adds a put that expires `ttl_ms` milliseconds from now.
runstone_status runstone_batch_put_with_ttl(runstone_batch *batch,
                                            const runstone_keyspace *keyspace,
                                            const void *key,
                                            size_t key_size,
                                            const void *value,
                                            size_t value_size,
                                            uint64_t ttl_ms);

// Adds a delete. Deleting an absent key is not an error.
runstone_status runstone_batch_delete(runstone_batch *batch,
                                      const runstone_keyspace *keyspace,
                                      const void *key,
                                      size_t key_size);

// Adds an operand of the keyspace's merge operator.
runstone_status runstone_batch_merge(runstone_batch *batch,
                                     const runstone_keyspace *keyspace,
                                     const void *key,
                                     size_t key_size,
                                     const void *operand,
                                     size_t operand_size);

// Adds the removal of all keys from `from` (null: the first key) up to but not including `to`
// (null: no bound). This includes keys that were put earlier in the batch.
runstone_status runstone_batch_delete_range(runstone_batch *batch,
                                            const runstone_keyspace *keyspace,
                                            const void *from,
                                            size_t from_size,
                                            const void *to,
                                            size_t to_size);

// Releases bytes, and sets them to null. Neither null bytes nor a null pointer are an error.
void runstone_bytes_free(runstone_bytes *bytes);

// Sets the result of a callback, and replaces an earlier one. The bytes are copied. If they are
// not valid, such as null with a size, the merge fails, or the filtered entry stays as it is.
void runstone_output_set(runstone_output *output,
                         const void *data,
                         size_t size);

// Reads the changes of the store in a directory, whether or not a process has it open. `options`
// may be null. The store keeps its log for the reader, within limits: a reader that falls too far
// behind fails with RUNSTONE_LEASE_REVOKED. If the log was already gone, it fails with
// RUNSTONE_HISTORY_GONE (`keep_log_bytes` keeps more). RUNSTONE_HISTORY_FORKED means that a power
// loss removed changes that the caller has. Close it with runstone_changes_close().
runstone_status runstone_changes_open(const char *store_path,
                                      const runstone_changes_options *options,
                                      runstone_changes **changes);

// Moves to the next change, and waits for it for at most `wait_ms`. Its kind is
// RUNSTONE_CHANGE_NONE if there is none; call again later. After an error, the previous change
// stays valid.
runstone_status runstone_changes_next(runstone_changes *changes,
                                      uint64_t wait_ms,
                                      runstone_change *change);

// Moves to the next write of the change. After the last write, and if the change has none, the
// kind is RUNSTONE_WRITE_NONE. The writes of a load are read a megabyte at a time.
runstone_status runstone_changes_next_write(runstone_changes *changes,
                                            runstone_change_write *write);

// The keyspaces of the change, as a JSON list of objects with `name` and `options`: TOML if they
// were made or changed, otherwise null. The list is empty for writes, because each write names its
// keyspace.
runstone_status runstone_changes_keyspaces(const runstone_changes *changes,
                                           runstone_bytes *keyspaces);

// The position after the last returned change, and so after all of its writes: store it once all
// of them have taken effect.
runstone_status runstone_changes_position(const runstone_changes *changes,
                                          runstone_position *position);

// Closes a reader of changes. The store no longer keeps its log for the reader. Null is not an
// error.
runstone_status runstone_changes_close(runstone_changes *changes);

// Stores a value if the key has none. Otherwise `existing` gets the present value of the key. It
// is null if the key had none.
runstone_status runstone_put_if_absent(const runstone_keyspace *keyspace,
                                       const void *key,
                                       size_t key_size,
                                       const void *value,
                                       size_t value_size,
                                       int32_t durability,
                                       runstone_bytes *existing);

// Gives a key the value `value` (null: deletes it) if it has the value `expected` (null: none).
// `is_swapped` gets whether the key had the expected value.
runstone_status runstone_compare_and_swap(const runstone_keyspace *keyspace,
                                          const void *key,
                                          size_t key_size,
                                          const void *expected,
                                          size_t expected_size,
                                          const void *value,
                                          size_t value_size,
                                          int32_t durability,
                                          bool *is_swapped);

// Removes the first entry, and returns its key and its value; null if there is none. Callers in
// other threads get other entries.
runstone_status runstone_pop_first(const runstone_keyspace *keyspace,
                                   int32_t durability,
                                   runstone_bytes *key,
                                   runstone_bytes *value);

// Removes the last entry, as runstone_pop_first() does the first.
runstone_status runstone_pop_last(const runstone_keyspace *keyspace,
                                  int32_t durability,
                                  runstone_bytes *key,
                                  runstone_bytes *value);

// Removes the first entries from `from` (null: the first key) up to but not including `to` (null:
// no bound), either all of them or none. `keys` and `values` have room for `most` entries, and
// `count` gets how many there are; the rest is null. There are fewer than `most` if others remove
// some meanwhile, or once the call has 64 MiB; there are none only if the range is empty or `most`
// is 0. So call it until there are none.
runstone_status runstone_drain(const runstone_keyspace *keyspace,
                               const void *from,
                               size_t from_size,
                               const void *to,
                               size_t to_size,
                               size_t most,
                               int32_t durability,
                               runstone_bytes *keys,
                               runstone_bytes *values,
                               size_t *count);

// Makes a cursor. `options` may be null. Move it before you look at it, and close it with
// runstone_cursor_close().
runstone_status runstone_cursor_create(const runstone_keyspace *keyspace,
                                       const runstone_read_options *options,
                                       runstone_cursor **cursor);

// Closes a cursor. Null is not an error.
runstone_status runstone_cursor_close(runstone_cursor *cursor);

// Moves to the first entry.
runstone_status runstone_cursor_first(runstone_cursor *cursor);

// Moves to the last entry.
runstone_status runstone_cursor_last(runstone_cursor *cursor);

// Moves to the next entry, or to no entry after the last.
runstone_status runstone_cursor_next(runstone_cursor *cursor);

// Moves to the previous entry, or to no entry before the first.
runstone_status runstone_cursor_previous(runstone_cursor *cursor);

// Moves to the first entry whose key is not less than `key`.
runstone_status runstone_cursor_seek(runstone_cursor *cursor,
                                     const void *key,
                                     size_t key_size);

// Moves to the last entry whose key is not greater than `key`.
runstone_status runstone_cursor_seek_for_previous(runstone_cursor *cursor,
                                                  const void *key,
                                                  size_t key_size);

// Gets the entry that a cursor is on. Returns false if the cursor is not on an entry, or closed.
// The results of the moves distinguish the end from an error.
bool runstone_cursor_entry(const runstone_cursor *cursor,
                           runstone_entry *entry);

// Closes the handle of a keyspace; the keyspace stays. Null is not an error.
runstone_status runstone_keyspace_close(runstone_keyspace *keyspace);

// Stores a value. `durability` is a runstone_durability.
runstone_status runstone_put(const runstone_keyspace *keyspace,
                             const void *key,
                             size_t key_size,
                             const void *value,
                             size_t value_size,
                             int32_t durability);

// Stores a value that expires `ttl_ms` milliseconds from now. `durability` is a
// runstone_durability.
runstone_status runstone_put_with_ttl(const runstone_keyspace *keyspace,
                                      const void *key,
                                      size_t key_size,
                                      const void *value,
                                      size_t value_size,
                                      uint64_t ttl_ms,
                                      int32_t durability);

// Looks up a key, as of a snapshot unless that is null. The value of an absent key is null.
// Release any other value with runstone_bytes_free().
runstone_status runstone_get(const runstone_keyspace *keyspace,
                             const runstone_snapshot *snapshot,
                             const void *key,
                             size_t key_size,
                             runstone_bytes *value);

// Looks up a key, and copies as much of its value to `buffer` as fits there. `value_size` gets the
// size of the whole value, or RUNSTONE_ABSENT.
runstone_status runstone_get_into(const runstone_keyspace *keyspace,
                                  const runstone_snapshot *snapshot,
                                  const void *key,
                                  size_t key_size,
                                  void *buffer,
                                  size_t buffer_size,
                                  size_t *value_size);

// Looks up `count` keys at one moment. `values` gets one result for each key, in the order of
// `keys`.
runstone_status runstone_multi_get(const runstone_keyspace *keyspace,
                                   size_t count,
                                   const void *const *keys,
                                   const size_t *key_sizes,
                                   runstone_bytes *values);

// Whether a key has a value.
runstone_status runstone_contains(const runstone_keyspace *keyspace,
                                  const void *key,
                                  size_t key_size,
                                  bool *is_there);

// Removes a key. Removing an absent key is not an error.
runstone_status runstone_delete(const runstone_keyspace *keyspace,
                                const void *key,
                                size_t key_size,
                                int32_t durability);

// Changes a value with an operand of the keyspace's merge operator, without a read.
runstone_status runstone_merge(const runstone_keyspace *keyspace,
                               const void *key,
                               size_t key_size,
                               const void *operand,
                               size_t operand_size,
                               int32_t durability);

// Removes all keys from `from` (null: the first key) up to but not including `to` (null: no
// bound), with one small record.
runstone_status runstone_delete_range(const runstone_keyspace *keyspace,
                                      const void *from,
                                      size_t from_size,
                                      const void *to,
                                      size_t to_size,
                                      int32_t durability);

// The approximate numbers of entries and bytes in a range, including deleted and replaced entries.
// Null pointers leave the range open.
runstone_status runstone_estimate(const runstone_keyspace *keyspace,
                                  const void *from,
                                  size_t from_size,
                                  const void *to,
                                  size_t to_size,
                                  uint64_t *entries,
                                  uint64_t *bytes);

// Compacts a range of keys. Null pointers leave it open.
runstone_status runstone_compact_range(const runstone_keyspace *keyspace,
                                       const void *from,
                                       size_t from_size,
                                       const void *to,
                                       size_t to_size);

// Stores all entries of `count` files that a runstone_sorted_writer made, or none of them.
// `entries` gets the number of entries.
runstone_status runstone_ingest(const runstone_keyspace *keyspace,
                                size_t count,
                                const char *const *paths,
                                uint64_t *entries);

// Continues the mirror of a store, or makes it in a new or empty directory. A mirror is a store
// that equals the other one at some moment in the past. The other store may be open in this
// process or in another one, or closed. `options`, which may be null, are the options of the
// mirror: it needs the merge operators and the filters of the other store. A mirror that did not
// advance for too long is refused with RUNSTONE_HISTORY_GONE, and needs a new directory. To read
// the mirror while it is open, follow it. Close it with runstone_mirror_close().
runstone_status runstone_mirror_open(const char *source_path,
                                     const char *target_path,
                                     const runstone_options *options,
                                     runstone_mirror **mirror);

// Waits for a change for at most `wait_ms`, then applies the changes committed since. After an
// error the mirror is at its position, and the next call continues there. `done` may be null.
runstone_status runstone_mirror_advance(runstone_mirror *mirror,
                                        uint64_t wait_ms,
                                        runstone_mirroring *done);

// The position in the other store that the mirror has reached.
runstone_status runstone_mirror_position(const runstone_mirror *mirror,
                                         runstone_position *position);

// Closes a mirror, as runstone_close() closes a store. A running round ends first. The directory
// is a store, and runstone_mirror_open() can continue the mirror. A call from a callback of the
// mirror is refused with RUNSTONE_INSIDE_CALLBACK. Null is not an error.
runstone_status runstone_mirror_close(runstone_mirror *mirror);

// Makes resources that many stores of the process share: one memory budget, threads, open files,
// and a write rate for background work. `toml` has `memory_budget_bytes`, `background_threads`,
// `max_open_files` and `background_bytes_per_second`; null or empty gives the defaults of a store.
runstone_status runstone_resources_create(const char *toml,
                                          runstone_resources **resources);

// Closes resources. They exist until no store and no options use them any more. Null is not an
// error.
runstone_status runstone_resources_close(runstone_resources *resources);

// Makes stores that are opened or followed with these options share `resources`, which set the
// memory budget, the threads and the open files. Options whose TOML names one of the three are
// refused.
runstone_status runstone_options_set_resources(runstone_options *options,
                                               const runstone_resources *resources);

// Reads options from TOML; null or empty gives the defaults. The first part has the options of the
// store, such as `memory_budget_bytes = "1G"`. The options of the default keyspace follow below
// `[keyspace]`, as `runstone help options` lists them.
runstone_status runstone_options_create(const char *toml,
                                        runstone_options **options);

// Closes options; stores that were opened with them stay open. Null is not an error.
runstone_status runstone_options_close(runstone_options *options);

// Registers a merge operator, which keyspaces name in `merge_operator`. An operator that behaves
// differently needs another name, because stores keep the name. `end` may be null. It is called
// with `context` when nothing needs the operator any more, even if this function fails.
runstone_status runstone_options_add_merge_operator(runstone_options *options,
                                                    const char *name,
                                                    runstone_merger merge,
                                                    void *context,
                                                    runstone_end end);

// Registers a compaction filter, which keyspaces name in `compaction_filter`. Several threads may
// call it. `end` is as for a merge operator.
runstone_status runstone_options_add_compaction_filter(runstone_options *options,
                                                       const char *name,
                                                       runstone_filter filter,
                                                       void *context,
                                                       runstone_end end);

// Sets the listener that receives events, in place of an earlier one. With a null listener, events
// are dropped. `end` is as for a merge operator.
runstone_status runstone_options_set_listener(runstone_options *options,
                                              runstone_listener listener,
                                              void *context,
                                              runstone_end end);

// Makes a new store in `to` from the data of the damaged one in `from`. `from` is only read; `to`
// must be new or empty. Every key of the new store is right, or the report lists it as a doubt. A
// healthy store is left alone.
//
// `options` are those with which the application opens the store, because of their merge
// operators; null if it uses none. With `lost_log`, the repair also restores writes that an
// earlier open put aside in `lost-NNNNNN.wal`, for keys that were not written since.
//
// `repaired` and `report` may be null. `report` gets a JSON object: `basis` (`manifest`,
// `part-of-manifest` or `tables`), `keyspaces`, `lost` (`file` and `what`), `notes`, and `doubts`.
// Each doubt has a `keyspace` (null: all), `from_hex` and `to_hex` (its first and last key as
// hexadecimal digits; a null `to_hex` means that there is no last key), `numbers` (null, or the
// first and last number of the writes), a `reason` (`may-be-old`, `may-be-back`, `value-lost`,
// `operands-may-repeat` or `from-lost-log`) and a text `what`.
runstone_status runstone_repair(const char *from,
                                const char *to,
                                const runstone_options *options,
                                bool lost_log,
                                runstone_repaired *repaired,
                                runstone_bytes *report);

// Takes a snapshot. Close it with runstone_snapshot_close().
runstone_status runstone_snapshot_create(const runstone_store *store,
                                         runstone_snapshot **snapshot);

// Closes a snapshot. Null is not an error.
runstone_status runstone_snapshot_close(runstone_snapshot *snapshot);

// Makes a new file. `options` is null, or the TOML of a keyspace, which decides the layout of the
// file.
runstone_status runstone_sorted_writer_create(const char *path,
                                              const char *options,
                                              runstone_sorted_writer **writer);

// Adds a value. Its key must be larger than all earlier keys.
runstone_status runstone_sorted_writer_put(runstone_sorted_writer *writer,
                                           const void *key,
                                           size_t key_size,
                                           const void *value,
                                           size_t value_size);

// Adds the deletion of a key, which must be larger than all earlier keys.
runstone_status runstone_sorted_writer_delete(runstone_sorted_writer *writer,
                                              const void *key,
                                              size_t key_size);

// Completes the file and makes it durable. `entries` gets the number of its entries.
runstone_status runstone_sorted_writer_finish(runstone_sorted_writer *writer,
                                              uint64_t *entries);

// Closes a writer. An unfinished file is removed. Null is not an error.
runstone_status runstone_sorted_writer_close(runstone_sorted_writer *writer);

// The message of the last failure in this thread: what happened, where, and what to do. It is
// valid until the next failure in this thread; empty if there was none.
const char *runstone_last_message(void);

// The release of this library, such as "0.1.0".
const char *runstone_version(void);

// Opens the store in a directory, or makes one there. `options` may be null. With `read_only =
// true`, a store that another process has open is followed, as by runstone_follow().
runstone_status runstone_open(const char *path,
                              const runstone_options *options,
                              runstone_store **store);

// Opens a store for reading, whether or not another process writes to it, and does not hinder that
// process. It shows one moment; runstone_refresh() shows a later one. The writer keeps the files
// that this moment needs, within its limits (`follower_keep_bytes`, `follower_keep_seconds`);
// beyond them, reads and refreshes end with RUNSTONE_LEASE_REVOKED. `options` may be null.
runstone_status runstone_follow(const char *path,
                                const runstone_options *options,
                                runstone_store **store);

// Makes the commits of another process visible in a store that is open for reading. `is_newer`,
// which may be null, gets whether there were any. The store and its keyspaces show them from then
// on; snapshots and cursors keep their moment. A transaction that began before refuses these
// keyspaces: begin it again. Other threads can read during the call. A dropped keyspace is refused
// with RUNSTONE_UNKNOWN_KEYSPACE.
runstone_status runstone_refresh(runstone_store *store,
                                 bool *is_newer);

// The largest possible age, in milliseconds, of the view of a store that is open for reading: the
// view contains everything committed before then. 0 for a store that no other process can write
// to.
runstone_status runstone_age(const runstone_store *store,
                             uint64_t *age_ms);

// The latest counters, sizes and latencies that the process that writes to a store has reported,
// in the text format of Prometheus, as runstone_metrics() returns them in that process. It reports
// once a second while another process follows the store. `metrics` is null if there is no report,
// because no process writes to the store or the writer began less than a second ago. `state` may
// be null. The store must be open for reading.
runstone_status runstone_live(const runstone_store *store,
                              runstone_live_state *state,
                              runstone_bytes *metrics);

// Closes a store: waits for running jobs, writes the data in memory to tables, and releases the
// directory. Its keyspaces, batches, snapshots and transactions fail with RUNSTONE_CLOSED from
// then on; a cursor of a keyspace continues to show the moment of its snapshot, and keeps the
// memory and files that it needs. Close all of these too. A call from a callback of the store is
// refused with RUNSTONE_INSIDE_CALLBACK, and the store stays open. A null store is not an error.
runstone_status runstone_close(runstone_store *store);

// Applies all writes of a batch, or none. The batch keeps them.
runstone_status runstone_write(const runstone_store *store,
                               const runstone_batch *batch,
                               int32_t durability);

// Makes all completed writes durable, so that they survive a power loss.
runstone_status runstone_sync(const runstone_store *store);

// Writes the data in memory to tables.
runstone_status runstone_flush(const runstone_store *store);

// Waits until no flush or compaction is running or due.
runstone_status runstone_wait_idle(const runstone_store *store);

// Compacts everything. Afterwards, deleted and replaced entries use no space.
runstone_status runstone_compact(const runstone_store *store);

// Copies the store, as of now, into a new directory. Tables are hard links where possible. Nothing
// is flushed.
runstone_status runstone_checkpoint(const runstone_store *store,
                                    const char *path);

// Does the same as runstone_checkpoint, and copies the tables too: damage to a file of the store
// does not reach the copy.
runstone_status runstone_checkpoint_copied(const runstone_store *store,
                                           const char *path);

// Reads every byte of every table and value file, and checks it. `report` gets the amounts read
// and all damage, as JSON. If there is damage, the status is RUNSTONE_CORRUPTION.
runstone_status runstone_verify(const runstone_store *store,
                                runstone_bytes *report);

// The counters, sizes and latencies of the store, in the text format of Prometheus.
runstone_status runstone_metrics(const runstone_store *store,
                                 runstone_bytes *metrics);

// The keyspace that every store has. Close it with runstone_keyspace_close().
runstone_status runstone_default_keyspace(const runstone_store *store,
                                          runstone_keyspace **keyspace);

// Opens the keyspace of this name, or makes it if there is none. `options` is TOML, as `runstone
// help options` lists it. If the keyspace exists, these options replace its own, unless they are
// null.
runstone_status runstone_open_keyspace(const runstone_store *store,
                                       const char *name,
                                       const char *options,
                                       runstone_keyspace **keyspace);

// Opens the keyspace of this name, which must exist.
runstone_status runstone_find_keyspace(const runstone_store *store,
                                       const char *name,
                                       runstone_keyspace **keyspace);

// Drops a keyspace and its files. Handles to it fail from then on; close them too.
runstone_status runstone_drop_keyspace(const runstone_store *store,
                                       const char *name);

// The names of all keyspaces as a JSON list, in the order in which they were made.
runstone_status runstone_keyspace_names(const runstone_store *store,
                                        runstone_bytes *names);

// Removes the store in a directory: all its files, and no others. The directory stays.
runstone_status runstone_destroy(const char *path);

// Begins a transaction. `options` may be null. End it with runstone_commit() or
// runstone_rollback().
runstone_status runstone_begin(const runstone_store *store,
                               const runstone_transaction_options *options,
                               runstone_transaction **transaction);

// Makes all writes of a transaction visible at once. The transaction has then ended, even if this
// fails. RUNSTONE_CONFLICT means that nothing was written. A new transaction may try again.
runstone_status runstone_commit(runstone_transaction *transaction,
                                int32_t durability);

// Ends a transaction without its writes. Null is not an error.
runstone_status runstone_rollback(runstone_transaction *transaction);

// Sets a savepoint, to which the writes can be rolled back. There may be several.
runstone_status runstone_set_savepoint(runstone_transaction *transaction);

// Undoes the writes since the last savepoint, and removes that savepoint.
runstone_status runstone_rollback_to_savepoint(runstone_transaction *transaction);

// Looks up a key: the transaction's own last write, or else the value as of its beginning.
runstone_status runstone_transaction_get(runstone_transaction *transaction,
                                         const runstone_keyspace *keyspace,
                                         const void *key,
                                         size_t key_size,
                                         runstone_bytes *value);

// Looks up a key that a pessimistic transaction will write, as of now, and takes its lock, so that
// no other such transaction writes it before the commit.
runstone_status runstone_transaction_get_for_update(runstone_transaction *transaction,
                                                    const runstone_keyspace *keyspace,
                                                    const void *key,
                                                    size_t key_size,
                                                    runstone_bytes *value);

// Stores a value.
runstone_status runstone_transaction_put(runstone_transaction *transaction,
                                         const runstone_keyspace *keyspace,
                                         const void *key,
                                         size_t key_size,
                                         const void *value,
                                         size_t value_size);

// Removes a key. Removing an absent key is not an error.
runstone_status runstone_transaction_delete(runstone_transaction *transaction,
                                            const runstone_keyspace *keyspace,
                                            const void *key,
                                            size_t key_size);

// Changes a value with an operand of the keyspace's merge operator.
runstone_status runstone_transaction_merge(runstone_transaction *transaction,
                                           const runstone_keyspace *keyspace,
                                           const void *key,
                                           size_t key_size,
                                           const void *operand,
                                           size_t operand_size);

// Removes all keys from `from` (null: the first key) up to but not including `to` (null: no
// bound). A pessimistic transaction refuses this, because it locks single keys.
runstone_status runstone_transaction_delete_range(runstone_transaction *transaction,
                                                  const runstone_keyspace *keyspace,
                                                  const void *from,
                                                  size_t from_size,
                                                  const void *to,
                                                  size_t to_size);

// Makes a cursor over the entries that a transaction sees: its own writes, including later ones,
// on top of the store as of its beginning. The cursor fails once the transaction has ended, but
// must still be closed.
runstone_status runstone_transaction_cursor(runstone_transaction *transaction,
                                            const runstone_keyspace *keyspace,
                                            const runstone_read_options *options,
                                            runstone_cursor **cursor);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* RUNSTONE_H */
