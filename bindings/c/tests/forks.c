/* Forks while other threads are busy. The child has none of these threads, but it has their locks.
 * Its calls on inherited objects are refused or only forget the object, and change nothing in the
 * parent. */

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include <runstone.h>

#include "check.h"

#define OTHER RUNSTONE_OTHER_PROCESS

/* If a child hangs, its alarm ends it. */
enum { FORKS = 200, SECONDS = 30, THREADS = 4 };

static runstone_store *store;
static runstone_keyspace *keyspace;
static runstone_cursor *shared_cursor;
static runstone_batch *shared_batch;
static runstone_transaction *shared_transaction;
static runstone_backups *shared_backups;
static runstone_archiver *shared_archiver;
static runstone_changes *shared_changes;
static runstone_mirror *shared_mirror;
/* Both use the same resources, whose threads do not exist in the child. */
static runstone_store *shared_follower, *shared_writer;
static atomic_bool is_over;

/* Takes every kind of lock, again and again. Another thread may be using a shared object. */
static void *is_busy(void *given) {
    uint64_t number = (uintptr_t)given;
    while (!is_over) {
        runstone_snapshot *snapshot;
        runstone_cursor *cursor;
        runstone_transaction *transaction;
        runstone_transaction_options locking = {.is_pessimistic = true, .lock_timeout_ms = 1000};
        runstone_bytes value;
        char key[32];
        snprintf(key, sizeof key, "%d/%d", (int)(uintptr_t)given, (int)(number++ % 1000));
        WORKS(runstone_put(keyspace, key, strlen(key), "v", 1, RUNSTONE_AS_OPENED));
        WORKS(runstone_snapshot_create(store, &snapshot));
        WORKS(runstone_cursor_create(keyspace, NULL, &cursor));
        WORKS(runstone_cursor_seek(cursor, key, strlen(key)));
        WORKS(runstone_begin(store, &locking, &transaction));
        WORKS(runstone_transaction_put(transaction, keyspace, key, strlen(key), "w", 1));
        WORKS(runstone_commit(transaction, RUNSTONE_AS_OPENED));
        WORKS(runstone_get(keyspace, snapshot, key, strlen(key), &value));
        runstone_bytes_free(&value);
        WORKS(runstone_cursor_close(cursor));
        WORKS(runstone_snapshot_close(snapshot));
        runstone_cursor_first(shared_cursor);
        runstone_batch_put(shared_batch, keyspace, key, strlen(key), "b", 1);
        runstone_batch_clear(shared_batch);
        runstone_transaction_get(shared_transaction, keyspace, key, strlen(key), &value);
        runstone_bytes_free(&value);
    }
    return NULL;
}

struct objects {
    runstone_options *options;
    runstone_snapshot *snapshot;
    runstone_cursor *cursor, *inside;
    runstone_batch *batch;
    runstone_transaction *transaction;
    runstone_sorted_writer *writer;
};

static void refuses(struct objects *all) {
    runstone_bytes bytes;
    runstone_snapshot *snapshot;
    runstone_cursor *cursor;
    runstone_keyspace *found;
    runstone_transaction *begun;
    bool flag;
    uint64_t count;
    REFUSED(OTHER, "fork", runstone_put(keyspace, "k", 1, "v", 1, 0));
    REFUSED(OTHER, "fork", runstone_put_with_ttl(keyspace, "k", 1, "v", 1, 1000, 0));
    REFUSED(OTHER, "fork", runstone_delete(keyspace, "k", 1, 0));
    REFUSED(OTHER, "fork", runstone_contains(keyspace, "k", 1, &flag));
    REFUSED(OTHER, "fork", runstone_get(keyspace, NULL, "k", 1, &bytes));
    REFUSED(OTHER, "fork", runstone_get(keyspace, all->snapshot, "k", 1, &bytes));
    REFUSED(OTHER, "fork", runstone_snapshot_create(store, &snapshot));
    REFUSED(OTHER, "fork", runstone_cursor_create(keyspace, NULL, &cursor));
    REFUSED(OTHER, "fork", runstone_cursor_next(all->cursor));
    REFUSED(OTHER, "fork", runstone_cursor_first(all->inside));
    REFUSED(OTHER, "fork", runstone_cursor_first(shared_cursor));
    REFUSED(OTHER, "fork", runstone_begin(store, NULL, &begun));
    REFUSED(OTHER, "fork",
            runstone_transaction_get(all->transaction, keyspace, "k", 1, &bytes));
    REFUSED(OTHER, "fork", runstone_commit(all->transaction, 0));
    REFUSED(OTHER, "fork", runstone_rollback(shared_transaction));
    REFUSED(OTHER, "fork", runstone_sorted_writer_put(all->writer, "z", 1, "v", 1));
    REFUSED(OTHER, "fork", runstone_sorted_writer_finish(all->writer, &count));
    REFUSED(OTHER, "fork", runstone_batch_put(all->batch, keyspace, "k", 1, "v", 1));
    REFUSED(OTHER, "fork", runstone_write(store, all->batch, 0));
    REFUSED(OTHER, "fork", runstone_default_keyspace(store, &found));
    REFUSED(OTHER, "fork", runstone_keyspace_names(store, &bytes));
    REFUSED(OTHER, "fork", runstone_metrics(store, &bytes));
    REFUSED(OTHER, "fork", runstone_flush(store));
    REFUSED(OTHER, "fork", runstone_sync(store));
    REFUSED(OTHER, "fork", runstone_wait_idle(store));
    REFUSED(OTHER, "fork", runstone_refresh(store, &flag));
    REFUSED(OTHER, "fork", runstone_age(store, &count));
    REFUSED(OTHER, "fork", runstone_backups_create(shared_backups, "nowhere", NULL));
    REFUSED(OTHER, "fork", runstone_archiver_advance(shared_archiver, 0, NULL));
    runstone_change change;
    runstone_change_write write;
    runstone_position position;
    REFUSED(OTHER, "fork", runstone_changes_next(shared_changes, 0, &change));
    REFUSED(OTHER, "fork", runstone_changes_next_write(shared_changes, &write));
    REFUSED(OTHER, "fork", runstone_changes_position(shared_changes, &position));
    REFUSED(OTHER, "fork", runstone_mirror_advance(shared_mirror, 0, NULL));
    REFUSED(OTHER, "fork", runstone_mirror_position(shared_mirror, &position));
    REFUSED(OTHER, "fork", runstone_refresh(shared_follower, &flag));
    REFUSED(OTHER, "fork", runstone_live(shared_follower, NULL, &bytes));
    REFUSED(OTHER, "fork", runstone_close(shared_follower));
    REFUSED(OTHER, "fork", runstone_close(store));
    /* A batch is only memory, but a thread may have been using it at the fork. */
    runstone_status status = runstone_batch_clear(shared_batch);
    CHECK(status == RUNSTONE_OK || status == OTHER);
    WORKS(runstone_batch_count(all->batch, &count));
}

static void child(struct objects *all) {
    alarm(SECONDS);
    refuses(all);
    WORKS(runstone_snapshot_close(all->snapshot));
    WORKS(runstone_cursor_close(all->cursor));
    WORKS(runstone_cursor_close(all->inside));
    WORKS(runstone_cursor_close(shared_cursor));
    WORKS(runstone_batch_close(all->batch));
    WORKS(runstone_batch_close(shared_batch));
    WORKS(runstone_sorted_writer_close(all->writer));
    WORKS(runstone_archiver_close(shared_archiver));
    WORKS(runstone_backups_close(shared_backups));
    WORKS(runstone_changes_close(shared_changes));
    WORKS(runstone_mirror_close(shared_mirror));
    WORKS(runstone_keyspace_close(keyspace));
    REFUSED(RUNSTONE_CLOSED, "snapshot", runstone_snapshot_close(all->snapshot));
    /* Options and the child's own new objects work. */
    runstone_batch *batch;
    WORKS(runstone_options_close(all->options));
    WORKS(runstone_options_create("durability = 'sync'", &all->options));
    WORKS(runstone_options_close(all->options));
    WORKS(runstone_batch_create(&batch));
    WORKS(runstone_batch_close(batch));
    _exit(0);
}

/* The open objects of the parent keep working. */
static void parent(struct objects *all, const char *file) {
    runstone_bytes value;
    uint64_t count;
    WORKS(runstone_get(keyspace, all->snapshot, "kept", 4, &value));
    CHECK(value.size == 5);
    runstone_bytes_free(&value);
    WORKS(runstone_cursor_first(all->cursor));
    WORKS(runstone_cursor_first(all->inside));
    WORKS(runstone_write(store, all->batch, 0));
    WORKS(runstone_cursor_close(all->inside));
    WORKS(runstone_commit(all->transaction, 0));
    WORKS(runstone_sorted_writer_finish(all->writer, &count));
    CHECK(count == 1 && access(file, F_OK) == 0);
    WORKS(runstone_sorted_writer_close(all->writer));
    remove(file);
    WORKS(runstone_snapshot_close(all->snapshot));
    WORKS(runstone_cursor_close(all->cursor));
    WORKS(runstone_batch_close(all->batch));
    WORKS(runstone_options_close(all->options));
}

static void fork_once(const char *path) {
    struct objects all;
    char file[512];
    int status;
    snprintf(file, sizeof file, "%s.sorted", path);
    WORKS(runstone_options_create("background_threads = 1", &all.options));
    WORKS(runstone_snapshot_create(store, &all.snapshot));
    WORKS(runstone_cursor_create(keyspace, NULL, &all.cursor));
    WORKS(runstone_cursor_first(all.cursor));
    WORKS(runstone_batch_create(&all.batch));
    WORKS(runstone_batch_put(all.batch, keyspace, "b", 1, "v", 1));
    WORKS(runstone_begin(store, NULL, &all.transaction));
    WORKS(runstone_transaction_put(all.transaction, keyspace, "t", 1, "v", 1));
    WORKS(runstone_transaction_cursor(all.transaction, keyspace, NULL, &all.inside));
    WORKS(runstone_sorted_writer_create(file, NULL, &all.writer));
    WORKS(runstone_sorted_writer_put(all.writer, "a", 1, "v", 1));
    fflush(NULL);
    pid_t forked = fork();
    if (forked == 0) child(&all);
    waitpid(forked, &status, 0);
    CHECK(status == 0);
    parent(&all, file);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    pthread_t threads[THREADS];
    WORKS(runstone_open(argv[1], NULL, &store));
    WORKS(runstone_default_keyspace(store, &keyspace));
    WORKS(runstone_put(keyspace, "kept", 4, "value", 5, 0));
    WORKS(runstone_cursor_create(keyspace, NULL, &shared_cursor));
    WORKS(runstone_batch_create(&shared_batch));
    WORKS(runstone_begin(store, NULL, &shared_transaction));
    char backups[512], command[600];
    snprintf(backups, sizeof backups, "%s.backups", argv[1]);
    WORKS(runstone_backups_open(backups, true, &shared_backups));
    WORKS(runstone_archiver_create(shared_backups, argv[1], &shared_archiver));
    char mirrored[512], beside[512];
    runstone_resources *resources;
    runstone_options *options;
    snprintf(mirrored, sizeof mirrored, "%s.mirror", argv[1]);
    snprintf(beside, sizeof beside, "%s.beside", argv[1]);
    WORKS(runstone_changes_open(argv[1], NULL, &shared_changes));
    WORKS(runstone_mirror_open(argv[1], mirrored, NULL, &shared_mirror));
    WORKS(runstone_resources_create("background_threads = 2", &resources));
    WORKS(runstone_options_create("", &options));
    WORKS(runstone_options_set_resources(options, resources));
    WORKS(runstone_open(beside, options, &shared_writer));
    WORKS(runstone_follow(argv[1], options, &shared_follower));
    WORKS(runstone_options_close(options));
    WORKS(runstone_resources_close(resources));
    for (uintptr_t at = 0; at < THREADS; at++)
        pthread_create(&threads[at], NULL, is_busy, (void *)at);
    for (int round = 0; round < FORKS; round++) fork_once(argv[1]);
    is_over = true;
    for (int at = 0; at < THREADS; at++) pthread_join(threads[at], NULL);
    WORKS(runstone_rollback(shared_transaction));
    WORKS(runstone_batch_close(shared_batch));
    WORKS(runstone_cursor_close(shared_cursor));
    /* The children did not affect the readers of the parent. */
    runstone_change change;
    WORKS(runstone_changes_next(shared_changes, 0, &change));
    CHECK(change.kind != RUNSTONE_CHANGE_NONE);
    WORKS(runstone_changes_close(shared_changes));
    WORKS(runstone_mirror_advance(shared_mirror, 0, NULL));
    WORKS(runstone_mirror_close(shared_mirror));
    WORKS(runstone_refresh(shared_follower, NULL));
    WORKS(runstone_close(shared_follower));
    WORKS(runstone_close(shared_writer));
    WORKS(runstone_destroy(mirrored));
    WORKS(runstone_destroy(beside));
    rmdir(mirrored);
    rmdir(beside);
    WORKS(runstone_archiver_advance(shared_archiver, 0, NULL));
    WORKS(runstone_archiver_close(shared_archiver));
    WORKS(runstone_backups_close(shared_backups));
    snprintf(command, sizeof command, "rm -r %s", backups);
    CHECK(system(command) == 0);
    WORKS(runstone_keyspace_close(keyspace));
    WORKS(runstone_close(store));
    WORKS(runstone_destroy(argv[1]));
    puts("forks: ok");
    return 0;
}
