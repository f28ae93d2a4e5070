/* Wrong calls of runstone.h: each is refused with a message, and nothing is lost. */

#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <runstone.h>

#include "check.h"

#define CLOSED RUNSTONE_CLOSED
#define INVALID RUNSTONE_INVALID_ARGUMENT

static void nulls(runstone_store *store, runstone_keyspace *keyspace) {
    runstone_bytes value;
    runstone_keyspace *other;
    REFUSED(INVALID, "path", runstone_open(NULL, NULL, &store));
    REFUSED(INVALID, "store", runstone_open("/tmp", NULL, NULL));
    REFUSED(INVALID, "keyspace is null", runstone_put(NULL, "k", 1, "v", 1, 0));
    REFUSED(INVALID, "key is null", runstone_put(keyspace, NULL, 1, "v", 1, 0));
    REFUSED(INVALID, "value is null", runstone_get(keyspace, NULL, "k", 1, NULL));
    REFUSED(INVALID, "name is null", runstone_open_keyspace(store, NULL, NULL, &other));
    REFUSED(INVALID, "keys", runstone_multi_get(keyspace, 3, NULL, NULL, &value));
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
    REFUSED(INVALID, "time to live", runstone_put_with_ttl(keyspace, "k", 1, "v", 1, 0));
    REFUSED(INVALID, "memory_budget_bytes", runstone_options_create("memory = 5", &options));
    REFUSED(INVALID, "nice", runstone_open_keyspace(store, "x", "policy = 'nice'", &other));
    REFUSED(INVALID, "UTF-8", runstone_open_keyspace(store, "\xff", NULL, &other));
    REFUSED(INVALID, "merge", runstone_merge(keyspace, "k", 1, "v", 1, 0));
    free(large);
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
    /* The store goes first, with everything open. */
    WORKS(runstone_close(store));
    REFUSED(CLOSED, "closed", runstone_close(store));
    REFUSED(CLOSED, "closed", runstone_put(keyspace, "k", 1, "v", 1, 0));
    REFUSED(CLOSED, "closed", runstone_get(keyspace, NULL, "k", 1, &value));
    REFUSED(CLOSED, "closed", runstone_cursor_create(keyspace, NULL, &cursor));
    REFUSED(CLOSED, "closed", runstone_commit(transaction, 0));
    REFUSED(CLOSED, "closed", runstone_commit(transaction, 0));
    REFUSED(CLOSED, "closed", runstone_write(store, batch, 0));
    /* A second open works meanwhile. */
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

static void directories(const char *path) {
    runstone_store *store, *second;
    char place[512], file[600];
    WORKS(runstone_open(path, NULL, &store));
    REFUSED(RUNSTONE_IN_USE, "in use", runstone_open(path, NULL, &second));
    REFUSED(RUNSTONE_IN_USE, "in use", runstone_destroy(path));
    /* Another process. */
    if (fork() == 0) {
        runstone_keyspace *keyspace;
        bool ok = runstone_open(path, NULL, &second) == RUNSTONE_IN_USE &&
                  runstone_default_keyspace(store, &keyspace) == RUNSTONE_OK &&
                  runstone_put(keyspace, "k", 1, "v", 1, 0) == RUNSTONE_OTHER_PROCESS;
        _exit(ok ? 0 : 1);
    }
    int status;
    wait(&status);
    CHECK(status == 0);
    WORKS(runstone_close(store));
    /* A database of LevelDB. */
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

/* A cursor in two threads: each step works or says that it is in use. */
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

int main(int argc, char **argv) {
    CHECK(argc == 2);
    runstone_store *store;
    runstone_keyspace *keyspace;
    WORKS(runstone_open(argv[1], NULL, &store));
    WORKS(runstone_default_keyspace(store, &keyspace));
    nulls(store, keyspace);
    values_out_of_range(store, keyspace);
    WORKS(runstone_put(keyspace, "kept", 4, "value", 5, 0));
    threads(keyspace);
    WORKS(runstone_keyspace_close(keyspace));
    WORKS(runstone_close(store));
    closed_handles(argv[1]);
    directories(argv[1]);
    WORKS(runstone_destroy(argv[1]));
    puts("misuse: ok");
    return 0;
}
