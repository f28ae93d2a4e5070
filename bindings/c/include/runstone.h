/* Runstone for C: link with -lrunstone.
 *
 * Functions return RUNSTONE_OK or what went wrong; runstone_last_message() explains it.
 *
 * Objects are handles: what is made or opened is given back by a function that ends in _close (a
 * store by runstone_close, a transaction by runstone_commit or runstone_rollback). A handle that was
 * closed is refused with RUNSTONE_CLOSED, as is one whose store is closed, in whichever order; only
 * a cursor of a keyspace goes on showing its moment.
 *
 * Bytes go in as a pointer and a size; null with size 0 is empty, or none where a comment says so.
 * Texts are UTF-8 and end with a zero byte. Stores, keyspaces and snapshots may be used by any
 * number of threads; other objects by one at a time.
 *
 * In a fork, what was opened before is refused with RUNSTONE_OTHER_PROCESS; to close it there only
 * forgets it. Options and batches are memory and go on. Open a store in a fork only if the process
 * had none open: a thread of it may have held a lock that all stores share.
 */

#ifndef RUNSTONE_H
#define RUNSTONE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What runstone_get_into() gives as the size of a value that is not there. */
#define RUNSTONE_ABSENT SIZE_MAX


// What a function returns. 0 is success; programs act on the others, and
// runstone_last_message() explains them to people.
typedef enum {
    // It worked.
    RUNSTONE_OK = 0,
    // An argument or option is out of range, or null.
    RUNSTONE_INVALID_ARGUMENT = 1,
    // The path holds no store.
    RUNSTONE_NOT_A_STORE = 2,
    // The directory holds files of something else.
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
    // A background job failed; the store takes no writes until it is opened again.
    RUNSTONE_STOPPED = 9,
    // No keyspace has that name.
    RUNSTONE_UNKNOWN_KEYSPACE = 10,
    // A merge operator refused an operand or a value.
    RUNSTONE_MERGE_FAILED = 11,
    // Somebody else wrote what a transaction read or wrote. Begin again.
    RUNSTONE_CONFLICT = 12,
    // Another transaction held a lock for too long.
    RUNSTONE_LOCK_TIMEOUT = 13,
    // Transactions wait for each other.
    RUNSTONE_DEADLOCK = 14,
    // The handle, or its store, is closed.
    RUNSTONE_CLOSED = 15,
    // Stored bytes are not what was written.
    RUNSTONE_CORRUPTION = 16,
    // The file system refused an operation.
    RUNSTONE_STORAGE = 17,
    // A callback called into its own store.
    RUNSTONE_INSIDE_CALLBACK = 18,
    // Another thread is using an object that one thread at a time may use.
    RUNSTONE_BUSY = 19,
    // A fault of the store itself. Please report it.
    RUNSTONE_INTERNAL = 20,
} runstone_status;

// What a write survives once it has returned.
typedef enum {
    // What the store's options say; by default, a crash of the process.
    RUNSTONE_AS_OPENED = 0,
    // A crash of the process.
    RUNSTONE_BUFFERED = 1,
    // A power loss.
    RUNSTONE_SYNC = 2,
} runstone_durability;

// What happens to an entry that a compaction reads.
typedef enum {
    // It stays as it is.
    RUNSTONE_KEEP = 0,
    // It is removed, as if its key had been deleted.
    RUNSTONE_REMOVE = 1,
    // Its value becomes what was set as `output`.
    RUNSTONE_CHANGE = 2,
} runstone_decision;

// Writes for runstone_write(). One thread at a time may use it.
typedef struct runstone_batch runstone_batch;

// A position in a keyspace, which moves. One thread at a time may use it. It shows the keyspace as
// of the moment when it was made, or as of a snapshot.
typedef struct runstone_cursor runstone_cursor;

// An ordered map from keys to values in a store. Any number of threads may use it. Keys have up to
// 65,535 bytes and are ordered by their bytes; values have up to 4 GiB.
typedef struct runstone_keyspace runstone_keyspace;

// Options for runstone_open(), which takes a copy. One thread at a time may use them.
typedef struct runstone_options runstone_options;

// Where a callback puts its result. It is valid until the callback returns.
typedef struct runstone_output runstone_output;

// What many stores share: memory, threads, open files. Any number of threads may use them.
typedef struct runstone_resources runstone_resources;

// A view of all keyspaces that later writes do not change. Any number of threads may use it. While
// the snapshot is open, the store keeps what it shows.
typedef struct runstone_snapshot runstone_snapshot;

// Writes a file for runstone_ingest(). One thread at a time may use it.
typedef struct runstone_sorted_writer runstone_sorted_writer;

// An open store. Any number of threads may use it.
typedef struct runstone_store runstone_store;

// Reads and writes that happen together or not at all. One thread at a time may use it.
typedef struct runstone_transaction runstone_transaction;

// Bytes that the library returns. Release them with runstone_bytes_free().
typedef struct {
    // The first byte; null if there are no bytes, as for an absent key. The pointer to empty bytes
    // is not null.
    const void *data;
    // The number of bytes.
    size_t size;
    // Belongs to the library. Do not change it.
    void *owner;
} runstone_bytes;

// How a cursor reads. All zero means: everything, as of now.
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
    // Does not put what it reads into the cache. This is for a scan that reads everything once.
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

// The caller's bytes.
typedef struct {
    // The first byte.
    const void *data;
    // The number of bytes.
    size_t size;
} runstone_slice;

// Makes a value from an older one (null data: there is none) and `count` operands, oldest first,
// and sets it as `output`. If it cannot, it sets a message and returns false: reads of the key
// then fail, and the operands stay. It must give the same result at any time and on any machine.
// Several threads may call it.
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
// values_collected, pressure, recovered. Some kinds need somebody's attention: log_end_lost (a
// crash left records of the log that are not used), background_error, merge_failed,
// budget_above_limit, compaction_filter_missing. Later releases may add kinds. `json` is an object
// with the kind, a warning flag, a message for people, and details of the event. Both are valid
// until the listener returns. Several threads may call it, in the middle of their work: it should
// return soon. It may read from its store; other calls are refused with RUNSTONE_INSIDE_CALLBACK.
typedef void (*runstone_listener)(void *context,
                                  const char *kind,
                                  const char *json);

// How a transaction runs. All zero means optimistic, with snapshot isolation.
typedef struct {
    // Whether the transaction locks the keys that it writes or reads for update, and waits for the
    // locks of others. If not, its commit fails if somebody else wrote what it wrote.
    bool is_pessimistic;
    // Whether its commit fails also if somebody else wrote what it read.
    bool is_serializable;
    // How long a pessimistic transaction waits for a lock; 0 means a second.
    uint64_t lock_timeout_ms;
} runstone_transaction_options;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Makes an empty batch. Close it with runstone_batch_close().
runstone_status runstone_batch_create(runstone_batch **batch);

// Closes a batch. Null is not an error.
runstone_status runstone_batch_close(runstone_batch *batch);

// Removes all writes from a batch, and keeps its memory for later writes.
runstone_status runstone_batch_clear(runstone_batch *batch);

// How many writes a batch holds.
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

// Adds a delete. Deleting an absent key is no error.
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

// Releases bytes, and sets them to null. Null bytes are not an error, nor is a null pointer.
void runstone_bytes_free(runstone_bytes *bytes);

// Sets the result of a callback, in place of what it set before. The bytes are copied. If they are
// not valid, such as null with a size, the merge fails, or the filtered entry stays as it is.
void runstone_output_set(runstone_output *output,
                         const void *data,
                         size_t size);

// Makes a cursor. `options` may be null. Move it before you look at it, and close it with
// runstone_cursor_close().
runstone_status runstone_cursor_create(const runstone_keyspace *keyspace,
                                       const runstone_read_options *options,
                                       runstone_cursor **cursor);

// Closes a cursor. It is no error if it is null.
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

// Returns the entry that a cursor is on. Returns false if it is on no entry, and for a closed
// cursor. The results of the moves tell the end from an error.
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

// Looks up a key, as of a snapshot unless that is null. The bytes of an absent key are null.
// Release other bytes with runstone_bytes_free().
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

// Removes a key. Removing an absent key is no error.
runstone_status runstone_delete(const runstone_keyspace *keyspace,
                                const void *key,
                                size_t key_size,
                                int32_t durability);

// Changes a value by an operand of the keyspace's merge operator, without a read.
runstone_status runstone_merge(const runstone_keyspace *keyspace,
                               const void *key,
                               size_t key_size,
                               const void *operand,
                               size_t operand_size,
                               int32_t durability);

// Removes all keys from `from` (null: the first key) up to but not including `to` (null: no
// bound), by one small record.
runstone_status runstone_delete_range(const runstone_keyspace *keyspace,
                                      const void *from,
                                      size_t from_size,
                                      const void *to,
                                      size_t to_size,
                                      int32_t durability);

// Stores a value if the key has none. Otherwise `existing` gets the value that the key has; it is
// null if the key had none.
runstone_status runstone_put_if_absent(const runstone_keyspace *keyspace,
                                       const void *key,
                                       size_t key_size,
                                       const void *value,
                                       size_t value_size,
                                       runstone_bytes *existing);

// Gives a key the value `value` (null: deletes it) if it has the value `expected` (null: none).
// `is_swapped` tells whether the key had that value.
runstone_status runstone_compare_and_swap(const runstone_keyspace *keyspace,
                                          const void *key,
                                          size_t key_size,
                                          const void *expected,
                                          size_t expected_size,
                                          const void *value,
                                          size_t value_size,
                                          bool *is_swapped);

// About how many entries and bytes a range holds, including deleted and replaced entries. Null
// pointers leave the range open.
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

// Makes what many stores of the process share: one memory budget, threads, open files, and a rate
// at which the background writes. `toml` has `memory_budget_bytes`, `background_threads`,
// `max_open_files` and `background_bytes_per_second`; null or empty gives the defaults of a store.
runstone_status runstone_resources_create(const char *toml,
                                          runstone_resources **resources);

// Closes resources. They last until no store and no options use them any more. Null is not an
// error.
runstone_status runstone_resources_close(runstone_resources *resources);

// Lets stores that are opened with these options draw on `resources`, which set the memory budget,
// the threads and the open files. Options are refused if their TOML names one of the three.
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
// differently needs another name, because stores keep the name. `end` may be null; it is called
// with `context` when nobody needs the operator any more, even if this function fails.
runstone_status runstone_options_add_merge_operator(runstone_options *options,
                                                    const char *name,
                                                    runstone_merger merge,
                                                    void *context,
                                                    runstone_end end);

// Registers a compaction filter, which keyspaces name in `compaction_filter`. It is called by
// several threads. `end` is as for a merge operator.
runstone_status runstone_options_add_compaction_filter(runstone_options *options,
                                                       const char *name,
                                                       runstone_filter filter,
                                                       void *context,
                                                       runstone_end end);

// Sets the listener that receives events, in place of an earlier one. A null listener means that
// nobody receives them. `end` is as for a merge operator.
runstone_status runstone_options_set_listener(runstone_options *options,
                                              runstone_listener listener,
                                              void *context,
                                              runstone_end end);

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

// Closes a writer; a file that is not finished is removed. Null is not an error.
runstone_status runstone_sorted_writer_close(runstone_sorted_writer *writer);

// The message of the last failure in this thread: what happened, where, and what to do. It is
// valid until the next failure in this thread; empty if there was none.
const char *runstone_last_message(void);

// The release of this library, such as "0.1.0".
const char *runstone_version(void);

// Opens the store in a directory, or makes one there. `options` may be null.
runstone_status runstone_open(const char *path,
                              const runstone_options *options,
                              runstone_store **store);

// Closes a store: waits for running jobs, writes what is in memory to tables, and releases the
// directory. Its keyspaces, batches, snapshots and transactions fail with RUNSTONE_CLOSED from
// then on; a cursor of a keyspace continues to show the moment of its snapshot, and keeps the
// memory and files that it needs. Close all of these too. A null store is no error.
runstone_status runstone_close(runstone_store *store);

// Applies all writes of a batch, or none. The batch keeps them.
runstone_status runstone_write(const runstone_store *store,
                               const runstone_batch *batch,
                               int32_t durability);

// Makes every write that has returned survive a power loss.
runstone_status runstone_sync(const runstone_store *store);

// Writes what is in memory to tables.
runstone_status runstone_flush(const runstone_store *store);

// Waits until no flush or compaction is running or due.
runstone_status runstone_wait_idle(const runstone_store *store);

// Compacts everything: afterwards nothing that was deleted or replaced takes space.
runstone_status runstone_compact(const runstone_store *store);

// Copies the store, as of now, into a new directory, by hard links where possible.
runstone_status runstone_checkpoint(const runstone_store *store,
                                    const char *path);

// Reads every byte of every table and value file, and checks it. `report` gets what was read and
// all damage, as JSON; damage makes the status RUNSTONE_CORRUPTION.
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
// fails. RUNSTONE_CONFLICT means that nothing was written, and that a new transaction may try
// again.
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

// Removes a key. Removing an absent key is no error.
runstone_status runstone_transaction_delete(runstone_transaction *transaction,
                                            const runstone_keyspace *keyspace,
                                            const void *key,
                                            size_t key_size);

// Changes a value by an operand of the keyspace's merge operator.
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

// Makes a cursor over what a transaction sees: its own writes, including later ones, over the
// store as of its beginning. The cursor fails once the transaction has ended, but must still be
// closed.
runstone_status runstone_transaction_cursor(runstone_transaction *transaction,
                                            const runstone_keyspace *keyspace,
                                            const runstone_read_options *options,
                                            runstone_cursor **cursor);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* RUNSTONE_H */
