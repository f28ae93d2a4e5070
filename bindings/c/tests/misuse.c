/* Wrong calls of runstone.h: each is refused with a message, and nothing is lost. */

#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <runstone.h>

#include "check.h"

#define CLOSED RUNSTONE_CLOSED
#define INVALID RUNSTONE_INVALID_ARGUMENT
#define OTHER RUNSTONE_OTHER_PROCESS

static void nulls(runstone_store *store, runstone_keyspace *keyspace) {
    runstone_bytes value;
    runstone_keyspace *other;
    REFUSED(INVALID, "path", runstone_open(NULL, NULL, &store));
    REFUSED(INVALID, "store", runstone_open("/tmp", NULL, NULL));
    REFUSED(INVALID, "keyspace is null", runstone_put(NULL, "k", 1, "v", 1, 0));
    REFUSED(INVALID, "key is null", runstone_put(keyspace, NULL, 1, "v", 1, 0));
    REFUSED(INVALID, "value is null", runstone_get(keyspace, NULL, "k", 1, NULL));
    REFUSED(INVALID, "name is null", runstone_open_keyspace(store, NULL, NULL, &other));
    REFUSED(INVALID, "keys", runstone_multi_get(keyspace, 1, NULL, NULL, &value));
    REFUSED(INVALID, "cursor is null", runstone_cursor_next(NULL));
    REFUSED(INVALID, "batch is null", runstone_write(store, NULL, 0));
    WORKS(runstone_close(NULL));
    WORKS(runstone_cursor_close(NULL));
    WORKS(runstone_rollback(NULL));
    runstone_bytes_free(NULL);
}

static void values_out_of_range(runstone_store *store, runstone_keyspace *keyspace) {
    runstone_options *options;
    runstone_keyspace *other;
    char *large = calloc(1, 70000);
    REFUSED(INVALID, "65535", runstone_put(keyspace, large, 70000, "v", 1, 0));
    REFUSED(INVALID, "bytes", runstone_put(keyspace, "k", 1, large, (size_t)-1, 0));
    REFUSED(INVALID, "bytes", runstone_put(keyspace, "k", (size_t)-5, "v", 1, 0));
    REFUSED(INVALID, "durability 7", runstone_put(keyspace, "k", 1, "v", 1, 7));
    REFUSED(INVALID, "before", runstone_delete_range(keyspace, "b", 1, "a", 1, 0));
    REFUSED(INVALID, "time to live", runstone_put_with_ttl(keyspace, "k", 1, "v", 1, 0, 0));
    REFUSED(INVALID, "memory_budget_bytes", runstone_options_create("memory = 5", &options));
    REFUSED(INVALID, "nice", runstone_open_keyspace(store, "x", "policy = 'nice'", &other));
    REFUSED(INVALID, "UTF-8", runstone_open_keyspace(store, "\xff", NULL, &other));
    REFUSED(INVALID, "merge", runstone_merge(keyspace, "k", 1, "v", 1, 0));
    free(large);
}

/* Tries sizes that no value can have. Nothing is read, so the bytes need not exist. */
static void huge_sizes(runstone_store *store, runstone_keyspace *keyspace, const char *path) {
    const size_t sizes[] = {(size_t)1 << 32, SIZE_MAX / 2 + 1, SIZE_MAX};
    runstone_bytes bytes;
    runstone_batch *batch;
    runstone_transaction *transaction;
    runstone_cursor *cursor, *other;
    runstone_sorted_writer *writer;
    bool flag;
    size_t size;
    char file[512];
    snprintf(file, sizeof file, "%s.sorted", path);
    WORKS(runstone_batch_create(&batch));
    WORKS(runstone_begin(store, NULL, &transaction));
    WORKS(runstone_cursor_create(keyspace, NULL, &cursor));
    WORKS(runstone_sorted_writer_create(file, NULL, &writer));
    for (int at = 0; at < 3; at++) {
        const void *keys[] = {"k"};
        size_t huge = sizes[at];
        runstone_read_options options = {.prefix = "p", .prefix_size = huge};
        REFUSED(INVALID, "key has", runstone_put(keyspace, "k", huge, "v", 1, 0));
        REFUSED(INVALID, "value has", runstone_put(keyspace, "k", 1, "v", huge, 0));
        REFUSED(INVALID, "key has", runstone_get(keyspace, NULL, "k", huge, &bytes));
        REFUSED(INVALID, "buffer", runstone_get_into(keyspace, NULL, "k", 1, file, huge, &size));
        REFUSED(INVALID, "a key has", runstone_multi_get(keyspace, 1, keys, &huge, &bytes));
        REFUSED(INVALID, "key has", runstone_delete(keyspace, "k", huge, 0));
        REFUSED(INVALID, "to has", runstone_delete_range(keyspace, "a", 1, "b", huge, 0));
        REFUSED(INVALID, "expected has", runstone_compare_and_swap(keyspace, "k", 1, "a", huge,
                                                                   "b", 1, 0, &flag));
        REFUSED(INVALID, "value has", runstone_batch_put(batch, keyspace, "k", 1, "v", huge));
        REFUSED(INVALID, "value has",
                runstone_transaction_put(transaction, keyspace, "k", 1, "v", huge));
        REFUSED(INVALID, "key has", runstone_cursor_seek(cursor, "k", huge));
        REFUSED(INVALID, "prefix has", runstone_cursor_create(keyspace, &options, &other));
        REFUSED(INVALID, "value has", runstone_sorted_writer_put(writer, "k", 1, "v", huge));
    }
    REFUSED(INVALID, "no array", runstone_multi_get(keyspace, SIZE_MAX, (const void **)sizes,
                                                    sizes, &bytes));
    WORKS(runstone_batch_close(batch));
    WORKS(runstone_rollback(transaction));
    WORKS(runstone_cursor_close(cursor));
    WORKS(runstone_sorted_writer_close(writer));
}

/* Fills bytes with stack contents, and checks that a refused call leaves nothing to release. */
#define EMPTIES(call)                                                                \
    do {                                                                             \
        memset(&bytes, 0x5a, sizeof bytes);                                          \
        CHECK((call) != RUNSTONE_OK && bytes.data == NULL && bytes.owner == NULL);   \
        runstone_bytes_free(&bytes);                                                 \
    } while (0)

/* Programs release all bytes at their end, whether or not a call failed. Some functions once left
 * the bytes unchanged on failure, so the release freed an address from the stack. */
static void nothing_to_release(runstone_keyspace *keyspace) {
    const void *none = (void *)0x1234, *keys[] = {"k"};
    size_t size = 1, huge = (size_t)-1;
    runstone_bytes bytes;
    EMPTIES(runstone_get(keyspace, NULL, NULL, 1, &bytes));
    EMPTIES(runstone_get(none, NULL, "k", 1, &bytes));
    EMPTIES(runstone_multi_get(none, 1, keys, &size, &bytes));
    EMPTIES(runstone_multi_get(keyspace, 1, keys, &huge, &bytes));
    EMPTIES(runstone_multi_get(keyspace, 1, NULL, &size, &bytes));
    EMPTIES(runstone_multi_get(keyspace, 1, keys, NULL, &bytes));
    EMPTIES(runstone_put_if_absent(none, "k", 1, "v", 1, 0, &bytes));
    EMPTIES(runstone_put_if_absent(keyspace, NULL, 1, "v", 1, 0, &bytes));
    EMPTIES(runstone_put_if_absent(keyspace, "k", 1, "v", 1, 3, &bytes));
    runstone_bytes other;
    EMPTIES(runstone_pop_first(none, 0, &other, &bytes));
    EMPTIES(runstone_pop_first(keyspace, 3, &other, &bytes));
    EMPTIES(runstone_pop_last(keyspace, 0, NULL, &bytes));
    EMPTIES(runstone_pop_last(keyspace, 0, &bytes, NULL));
    EMPTIES(runstone_drain(none, NULL, 0, NULL, 0, 1, 0, &other, &bytes, &size));
    EMPTIES(runstone_drain(keyspace, NULL, 0, NULL, 0, 1, 3, &bytes, &other, &size));
    EMPTIES(runstone_drain(keyspace, NULL, 0, NULL, 0, 1, 0, NULL, &bytes, &size));
    EMPTIES(runstone_drain(keyspace, NULL, 0, NULL, 0, 1, 0, &other, &bytes, NULL));
    EMPTIES(runstone_drain(keyspace, "b", 1, "a", 1, 1, 0, &other, &bytes, &size));
    REFUSED(INVALID, "no array", runstone_drain(keyspace, NULL, 0, NULL, 0, SIZE_MAX, 0, &other,
                                                &bytes, &size));
    EMPTIES(runstone_transaction_get((runstone_transaction *)none, keyspace, "k", 1, &bytes));
    EMPTIES(runstone_transaction_get((runstone_transaction *)none, keyspace, NULL, 1, &bytes));
    EMPTIES(runstone_transaction_get_for_update((runstone_transaction *)none, keyspace, "k", 1,
                                                &bytes));
    EMPTIES(runstone_verify(none, &bytes));
    EMPTIES(runstone_metrics(none, &bytes));
    EMPTIES(runstone_live(none, NULL, &bytes));
    EMPTIES(runstone_keyspace_names(none, &bytes));
    EMPTIES(runstone_changes_keyspaces(none, &bytes));
    EMPTIES(runstone_backups_damaged(none, &bytes));
    EMPTIES(runstone_backups_verify(none, 0, &bytes));
    EMPTIES(runstone_backups_verify_archives(none, &bytes));
    EMPTIES(runstone_repair(NULL, "nowhere", NULL, false, NULL, &bytes));
    EMPTIES(runstone_repair("nowhere", "nowhere", NULL, false, NULL, &bytes));
}

static void closed_handles(const char *path) {
    runstone_store *store;
    runstone_keyspace *keyspace;
    runstone_snapshot *snapshot;
    runstone_cursor *cursor;
    runstone_batch *batch;
    runstone_transaction *transaction;
    runstone_bytes value;
    runstone_entry entry;
    WORKS(runstone_open(path, NULL, &store));
    WORKS(runstone_default_keyspace(store, &keyspace));
    WORKS(runstone_put(keyspace, "k", 1, "v", 1, 0));
    WORKS(runstone_snapshot_create(store, &snapshot));
    WORKS(runstone_cursor_create(keyspace, NULL, &cursor));
    WORKS(runstone_batch_create(&batch));
    WORKS(runstone_begin(store, NULL, &transaction));
    WORKS(runstone_transaction_put(transaction, keyspace, "t", 1, "v", 1));
    REFUSED(CLOSED, "store", runstone_flush((runstone_store *)keyspace));
    REFUSED(CLOSED, "keyspace", runstone_delete((runstone_keyspace *)0x1234, "k", 1, 0));
    /* Closes the store first, while everything else is open. */
    WORKS(runstone_close(store));
    REFUSED(CLOSED, "closed", runstone_close(store));
    REFUSED(CLOSED, "closed", runstone_put(keyspace, "k", 1, "v", 1, 0));
    REFUSED(CLOSED, "closed", runstone_get(keyspace, NULL, "k", 1, &value));
    REFUSED(CLOSED, "closed", runstone_cursor_create(keyspace, NULL, &cursor));
    /* A cursor keeps the data that it shows. */
    WORKS(runstone_cursor_first(cursor));
    CHECK(runstone_cursor_entry(cursor, &entry) && memcmp(entry.key, "k", entry.key_size) == 0);
    REFUSED(CLOSED, "closed", runstone_commit(transaction, 0));
    REFUSED(CLOSED, "closed", runstone_commit(transaction, 0));
    REFUSED(CLOSED, "closed", runstone_write(store, batch, 0));
    /* A second open works during that time. */
    WORKS(runstone_open(path, NULL, &store));
    WORKS(runstone_close(store));
    WORKS(runstone_cursor_close(cursor));
    CHECK(!runstone_cursor_entry(cursor, &entry));
    REFUSED(CLOSED, "cursor", runstone_cursor_close(cursor));
    WORKS(runstone_batch_close(batch));
    REFUSED(CLOSED, "batch", runstone_batch_clear(batch));
    WORKS(runstone_snapshot_close(snapshot));
    WORKS(runstone_keyspace_close(keyspace));
    REFUSED(CLOSED, "keyspace", runstone_get(keyspace, NULL, "k", 1, &value));
}

/* A closed handle stays closed, however many are opened after it. The numbers of handles were once
 * reused after 31 uses of a slot, and closing an old handle again closed another thread's
 * cursor. */
static void handles_for_ever(const char *path) {
    enum { ROUNDS = 100000, OLD = 64 };
    runstone_store *store;
    runstone_keyspace *keyspace;
    runstone_cursor *cursor, *old[OLD];
    WORKS(runstone_open(path, NULL, &store));
    WORKS(runstone_default_keyspace(store, &keyspace));
    for (int round = 0; round < ROUNDS; round++) {
        WORKS(runstone_cursor_create(keyspace, NULL, &cursor));
        for (int at = 0; at < OLD && round >= OLD && round % 100 < 5; at++) {
            REFUSED(CLOSED, "cursor", runstone_cursor_first(old[at]));
            REFUSED(CLOSED, "cursor", runstone_cursor_close(old[at]));
        }
        WORKS(runstone_cursor_first(cursor));
        WORKS(runstone_cursor_close(cursor));
        if (round < OLD) old[round] = cursor;
    }
    WORKS(runstone_keyspace_close(keyspace));
    WORKS(runstone_close(store));
}

struct ending {
    pthread_barrier_t begin;
    runstone_transaction *transaction;
    runstone_status committed[2];
};

static void *commits(void *given) {
    struct ending *ending = given;
    pthread_barrier_wait(&ending->begin);
    runstone_status status = runstone_commit(ending->transaction, 0);
    ending->committed[status != RUNSTONE_OK] = status;
    pthread_barrier_wait(&ending->begin);
    return NULL;
}

/* Two threads commit a transaction at once. One of them succeeds, and its call reports success. */
static void one_commit_of_two(const char *path) {
    runstone_store *store;
    runstone_keyspace *keyspace;
    WORKS(runstone_open(path, NULL, &store));
    WORKS(runstone_default_keyspace(store, &keyspace));
    for (int round = 0; round < 300; round++) {
        struct ending ending = {.committed = {RUNSTONE_INTERNAL, RUNSTONE_OK}};
        pthread_t threads[2];
        pthread_barrier_init(&ending.begin, NULL, 2);
        WORKS(runstone_begin(store, NULL, &ending.transaction));
        WORKS(runstone_transaction_put(ending.transaction, keyspace, "k", 1, "v", 1));
        for (int at = 0; at < 2; at++) pthread_create(&threads[at], NULL, commits, &ending);
        for (int at = 0; at < 2; at++) pthread_join(threads[at], NULL);
        CHECK(ending.committed[0] == RUNSTONE_OK);
        CHECK(ending.committed[1] == CLOSED || ending.committed[1] == RUNSTONE_BUSY);
        pthread_barrier_destroy(&ending.begin);
    }
    WORKS(runstone_keyspace_close(keyspace));
    WORKS(runstone_close(store));
}

/* Objects opened before a fork are refused in the child, which does not harm the parent. */
static void child(runstone_store *store, runstone_keyspace *keyspace,
                  runstone_transaction *transaction, const char *path) {
    runstone_store *second;
    runstone_cursor *cursor;
    runstone_bytes bytes;
    REFUSED(RUNSTONE_IN_USE, "in use", runstone_open(path, NULL, &second));
    REFUSED(OTHER, "fork", runstone_put(keyspace, "k", 1, "v", 1, 0));
    REFUSED(OTHER, "fork", runstone_get(keyspace, NULL, "k", 1, &bytes));
    REFUSED(OTHER, "fork", runstone_cursor_create(keyspace, NULL, &cursor));
    REFUSED(OTHER, "fork", runstone_commit(transaction, 0));
    REFUSED(OTHER, "fork", runstone_flush(store));
    REFUSED(OTHER, "fork", runstone_close(store));
    REFUSED(OTHER, "fork", runstone_close(store));
    _exit(0);
}

static void forks(const char *path) {
    runstone_store *store;
    runstone_keyspace *keyspace;
    runstone_transaction *transaction;
    int status;
    WORKS(runstone_open(path, NULL, &store));
    WORKS(runstone_default_keyspace(store, &keyspace));
    WORKS(runstone_begin(store, NULL, &transaction));
    WORKS(runstone_transaction_put(transaction, keyspace, "k", 1, "v", 1));
    fflush(NULL);
    if (fork() == 0) child(store, keyspace, transaction, path);
    wait(&status);
    CHECK(status == 0);
    WORKS(runstone_commit(transaction, 0));
    WORKS(runstone_keyspace_close(keyspace));
    WORKS(runstone_close(store));
}

static void directories(const char *path) {
    runstone_store *store, *second;
    char place[512], file[600];
    WORKS(runstone_open(path, NULL, &store));
    REFUSED(RUNSTONE_IN_USE, "in use", runstone_open(path, NULL, &second));
    REFUSED(RUNSTONE_IN_USE, "in use", runstone_destroy(path));
    WORKS(runstone_close(store));
    /* Tries a database of LevelDB. */
    snprintf(place, sizeof place, "%s.leveldb", path);
    snprintf(file, sizeof file, "%s/CURRENT", place);
    mkdir(place, 0777);
    FILE *current = fopen(file, "w");
    fputs("MANIFEST-000002\n", current);
    fclose(current);
    REFUSED(RUNSTONE_FOREIGN_FILES, "runstone import", runstone_open(place, NULL, &store));
    REFUSED(RUNSTONE_FOREIGN_FILES, "runstone import", runstone_destroy(place));
    remove(file);
    REFUSED(RUNSTONE_NOT_A_STORE, "not a store", runstone_destroy(place));
    remove(place);
}

static runstone_cursor *shared;

static void *steps(void *errors) {
    for (int at = 0; at < 20000; at++) {
        runstone_status status = runstone_cursor_first(shared);
        CHECK(status == RUNSTONE_OK || status == RUNSTONE_BUSY);
        *(int *)errors += status == RUNSTONE_BUSY;
    }
    return NULL;
}

/* Two threads use a cursor: each step works or reports that the cursor is busy. */
static void threads(runstone_keyspace *keyspace) {
    pthread_t one, other;
    int errors[2] = {0, 0};
    WORKS(runstone_cursor_create(keyspace, NULL, &shared));
    pthread_create(&one, NULL, steps, &errors[0]);
    pthread_create(&other, NULL, steps, &errors[1]);
    pthread_join(one, NULL);
    pthread_join(other, NULL);
    WORKS(runstone_cursor_close(shared));
}

static runstone_keyspace *closing;

static void *gets(void *unused) {
    runstone_status status;
    (void)unused;
    do {
        runstone_bytes value;
        status = runstone_get(closing, NULL, "kept", 4, &value);
        if (status == RUNSTONE_OK) runstone_bytes_free(&value);
    } while (status == RUNSTONE_OK);
    CHECK(status == RUNSTONE_CLOSED);
    return NULL;
}

/* A keyspace, then a store, is closed while threads read. Each get works or is refused. */
static void closed_by_others(const char *path) {
    for (int at = 0; at < 20; at++) {
        pthread_t threads[2];
        runstone_store *store;
        WORKS(runstone_open(path, NULL, &store));
        WORKS(runstone_default_keyspace(store, &closing));
        for (int each = 0; each < 2; each++) pthread_create(&threads[each], NULL, gets, NULL);
        usleep(1000);
        if (at % 2 == 0) WORKS(runstone_keyspace_close(closing));
        WORKS(runstone_close(store));
        for (int each = 0; each < 2; each++) pthread_join(threads[each], NULL);
        if (at % 2 == 1) WORKS(runstone_keyspace_close(closing));
    }
}

static bool wrong_output(void *context, runstone_slice key, runstone_slice base,
                         const runstone_slice *operands, size_t count, runstone_output *output) {
    (void)context, (void)key, (void)base, (void)operands, (void)count;
    runstone_output_set(output, "good", 4);
    runstone_output_set(output, NULL, 5);
    return true;
}

/* If a callback sets invalid bytes, the read fails and does not return an empty value. */
static void callbacks(const char *path) {
    runstone_options *options;
    runstone_store *store;
    runstone_keyspace *keyspace;
    runstone_bytes value;
    WORKS(runstone_options_create(NULL, &options));
    WORKS(runstone_options_add_merge_operator(options, "wrong", wrong_output, NULL, NULL));
    REFUSED(INVALID, "merge is null",
            runstone_options_add_merge_operator(options, "none", NULL, NULL, NULL));
    WORKS(runstone_open(path, options, &store));
    WORKS(runstone_open_keyspace(store, "wrong", "merge_operator = 'wrong'", &keyspace));
    WORKS(runstone_merge(keyspace, "k", 1, "v", 1, 0));
    REFUSED(RUNSTONE_MERGE_FAILED, "null", runstone_get(keyspace, NULL, "k", 1, &value));
    WORKS(runstone_options_close(options));
    WORKS(runstone_keyspace_close(keyspace));
    WORKS(runstone_close(store));
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    runstone_store *store;
    runstone_keyspace *keyspace;
    WORKS(runstone_open(argv[1], NULL, &store));
    WORKS(runstone_default_keyspace(store, &keyspace));
    nulls(store, keyspace);
    values_out_of_range(store, keyspace);
    huge_sizes(store, keyspace, argv[1]);
    nothing_to_release(keyspace);
    WORKS(runstone_put(keyspace, "kept", 4, "value", 5, 0));
    threads(keyspace);
    WORKS(runstone_keyspace_close(keyspace));
    WORKS(runstone_close(store));
    closed_handles(argv[1]);
    closed_by_others(argv[1]);
    callbacks(argv[1]);
    handles_for_ever(argv[1]);
    one_commit_of_two(argv[1]);
    forks(argv[1]);
    directories(argv[1]);
    WORKS(runstone_destroy(argv[1]));
    puts("misuse: ok");
    return 0;
}
