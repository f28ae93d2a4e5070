/* Calls every function of runstone.h in its intended way. */

#include <runstone.h>

#include "check.h"

static bool has(runstone_bytes *bytes, const char *expected) {
    bool same = bytes->data != NULL && bytes->size == strlen(expected) &&
                memcmp(bytes->data, expected, bytes->size) == 0;
    runstone_bytes_free(bytes);
    return same && bytes->data == NULL;
}

static bool is(runstone_keyspace *keyspace, const char *key, const char *expected) {
    runstone_bytes value;
    WORKS(runstone_get(keyspace, NULL, key, strlen(key), &value));
    return expected == NULL ? value.data == NULL : has(&value, expected);
}

static void put(runstone_keyspace *keyspace, const char *key, const char *value) {
    WORKS(runstone_put(keyspace, key, strlen(key), value, strlen(value), RUNSTONE_AS_OPENED));
}

/* The keys that a cursor shows, one after another. */
static void walk(runstone_cursor *cursor, bool upward, char *keys) {
    runstone_entry entry;
    WORKS(upward ? runstone_cursor_first(cursor) : runstone_cursor_last(cursor));
    while (runstone_cursor_entry(cursor, &entry)) {
        strncat(keys, entry.key, entry.key_size);
        WORKS(upward ? runstone_cursor_next(cursor) : runstone_cursor_previous(cursor));
    }
}

static void keys_and_ranges(runstone_keyspace *keyspace) {
    put(keyspace, "a", "1");
    put(keyspace, "b", "2");
    put(keyspace, "", "empty key");
    CHECK(is(keyspace, "a", "1") && is(keyspace, "", "empty key") && is(keyspace, "c", NULL));

    char buffer[4] = "....";
    size_t size;
    WORKS(runstone_get_into(keyspace, NULL, "a", 1, buffer, sizeof buffer, &size));
    CHECK(size == 1 && memcmp(buffer, "1...", 4) == 0);
    WORKS(runstone_get_into(keyspace, NULL, "", 0, buffer, 2, &size));
    CHECK(size == 9 && memcmp(buffer, "em..", 4) == 0);
    WORKS(runstone_get_into(keyspace, NULL, "c", 1, NULL, 0, &size));
    CHECK(size == RUNSTONE_ABSENT);

    const void *keys[] = {"b", "c", "a"};
    size_t sizes[] = {1, 1, 1};
    runstone_bytes values[3];
    WORKS(runstone_multi_get(keyspace, 3, keys, sizes, values));
    CHECK(has(&values[0], "2") && values[1].data == NULL && has(&values[2], "1"));
    WORKS(runstone_multi_get(keyspace, 0, NULL, NULL, NULL));

    bool flag;
    WORKS(runstone_contains(keyspace, "a", 1, &flag));
    CHECK(flag);
    runstone_bytes existing;
    WORKS(runstone_put_if_absent(keyspace, "a", 1, "other", 5, RUNSTONE_SYNC, &existing));
    CHECK(has(&existing, "1"));
    WORKS(runstone_compare_and_swap(keyspace, "a", 1, "1", 1, "one", 3, RUNSTONE_SYNC,
                                     &flag));
    CHECK(flag && is(keyspace, "a", "one"));
    WORKS(runstone_compare_and_swap(keyspace, "a", 1, NULL, 0, "two", 3, 0, &flag));
    CHECK(!flag);
    WORKS(runstone_put_with_ttl(keyspace, "t", 1, "x", 1, 3600000, RUNSTONE_SYNC));
    CHECK(is(keyspace, "t", "x"));
    uint64_t entries, bytes;
    WORKS(runstone_estimate(keyspace, NULL, 0, NULL, 0, &entries, &bytes));
    CHECK(entries >= 4 && bytes > 0);
    WORKS(runstone_delete_range(keyspace, "b", 1, NULL, 0, RUNSTONE_BUFFERED));
    CHECK(is(keyspace, "b", NULL) && is(keyspace, "t", NULL) && is(keyspace, "a", "one"));
    WORKS(runstone_delete(keyspace, "a", 1, RUNSTONE_SYNC));
    CHECK(is(keyspace, "a", NULL));
    WORKS(runstone_compact_range(keyspace, NULL, 0, NULL, 0));
}

static void batches_and_snapshots(runstone_store *store, runstone_keyspace *keyspace) {
    runstone_snapshot *snapshot;
    runstone_batch *batch;
    uint64_t count;
    put(keyspace, "s", "old");
    WORKS(runstone_snapshot_create(store, &snapshot));
    WORKS(runstone_batch_create(&batch));
    WORKS(runstone_batch_put(batch, keyspace, "s", 1, "new", 3));
    WORKS(runstone_batch_put_with_ttl(batch, keyspace, "t", 1, "x", 1, 3600000));
    WORKS(runstone_batch_delete(batch, keyspace, "t", 1));
    WORKS(runstone_batch_delete_range(batch, keyspace, "u", 1, "v", 1));
    WORKS(runstone_batch_count(batch, &count));
    CHECK(count == 4 && is(keyspace, "s", "old"));
    WORKS(runstone_write(store, batch, RUNSTONE_SYNC));
    CHECK(is(keyspace, "s", "new") && is(keyspace, "t", NULL));
    WORKS(runstone_batch_clear(batch));
    WORKS(runstone_write(store, batch, RUNSTONE_AS_OPENED));
    runstone_bytes value;
    WORKS(runstone_get(keyspace, snapshot, "s", 1, &value));
    CHECK(has(&value, "old"));
    WORKS(runstone_batch_close(batch));
    WORKS(runstone_snapshot_close(snapshot));
}

static void cursors(runstone_keyspace *keyspace) {
    runstone_cursor *cursor;
    runstone_entry entry;
    WORKS(runstone_delete_range(keyspace, NULL, 0, NULL, 0, RUNSTONE_AS_OPENED));
    for (char key[2] = "a"; key[0] <= 'f'; key[0]++) put(keyspace, key, key);
    WORKS(runstone_cursor_create(keyspace, NULL, &cursor));
    char up[16] = "", down[16] = "", some[16] = "";
    walk(cursor, true, up);
    walk(cursor, false, down);
    CHECK(strcmp(up, "abcdef") == 0 && strcmp(down, "fedcba") == 0);
    WORKS(runstone_cursor_seek(cursor, "bb", 2));
    CHECK(runstone_cursor_entry(cursor, &entry) && *(const char *)entry.key == 'c');
    WORKS(runstone_cursor_seek_for_previous(cursor, "bb", 2));
    CHECK(runstone_cursor_entry(cursor, &entry) && *(const char *)entry.value == 'b');
    WORKS(runstone_cursor_close(cursor));
    runstone_read_options options = {.from = "b", .from_size = 1, .to = "e", .to_size = 1};
    WORKS(runstone_cursor_create(keyspace, &options, &cursor));
    walk(cursor, true, some);
    CHECK(strcmp(some, "bcd") == 0);
    WORKS(runstone_cursor_close(cursor));
}

static void transactions(runstone_store *store, runstone_keyspace *keyspace) {
    runstone_transaction *one, *other;
    runstone_cursor *cursor;
    runstone_bytes value;
    WORKS(runstone_begin(store, NULL, &one));
    WORKS(runstone_transaction_get(one, keyspace, "a", 1, &value));
    CHECK(has(&value, "a"));
    WORKS(runstone_transaction_put(one, keyspace, "a", 1, "mine", 4));
    WORKS(runstone_set_savepoint(one));
    WORKS(runstone_transaction_delete_range(one, keyspace, "b", 1, "f", 1));
    WORKS(runstone_rollback_to_savepoint(one));
    WORKS(runstone_transaction_delete(one, keyspace, "c", 1));
    WORKS(runstone_transaction_cursor(one, keyspace, NULL, &cursor));
    char keys[16] = "";
    walk(cursor, true, keys);
    CHECK(strcmp(keys, "abdef") == 0);
    WORKS(runstone_transaction_get(one, keyspace, "a", 1, &value));
    CHECK(has(&value, "mine") && is(keyspace, "a", "a"));

    /* The second transaction to commit fails. */
    runstone_transaction_options options = {.is_serializable = true};
    WORKS(runstone_begin(store, &options, &other));
    WORKS(runstone_transaction_put(other, keyspace, "a", 1, "theirs", 6));
    WORKS(runstone_commit(one, RUNSTONE_SYNC));
    REFUSED(RUNSTONE_CONFLICT, "begin", runstone_commit(other, RUNSTONE_AS_OPENED));
    CHECK(is(keyspace, "a", "mine") && is(keyspace, "c", NULL));
    REFUSED(RUNSTONE_CLOSED, "ended", runstone_cursor_first(cursor));
    WORKS(runstone_cursor_close(cursor));

    runstone_transaction_options locking = {.is_pessimistic = true, .lock_timeout_ms = 1};
    WORKS(runstone_begin(store, &locking, &one));
    WORKS(runstone_begin(store, &locking, &other));
    WORKS(runstone_transaction_get_for_update(one, keyspace, "b", 1, &value));
    CHECK(has(&value, "b"));
    REFUSED(RUNSTONE_LOCK_TIMEOUT, "lock",
            runstone_transaction_put(other, keyspace, "b", 1, "theirs", 6));
    WORKS(runstone_rollback(one));
    WORKS(runstone_rollback(other));
}

static void merges(runstone_store *store) {
    runstone_keyspace *counters;
    runstone_transaction *transaction;
    uint64_t one = 1, sum;
    size_t size;
    WORKS(runstone_open_keyspace(store, "counters", "merge_operator = 'add-u64'", &counters));
    WORKS(runstone_merge(counters, "k", 1, &one, 8, RUNSTONE_AS_OPENED));
    WORKS(runstone_begin(store, NULL, &transaction));
    WORKS(runstone_transaction_merge(transaction, counters, "k", 1, &one, 8));
    WORKS(runstone_commit(transaction, RUNSTONE_AS_OPENED));
    WORKS(runstone_get_into(counters, NULL, "k", 1, &sum, sizeof sum, &size));
    CHECK(size == 8 && sum == 2);
    WORKS(runstone_keyspace_close(counters));
    runstone_bytes names;
    WORKS(runstone_keyspace_names(store, &names));
    CHECK(has(&names, "[\"default\",\"counters\"]"));
    WORKS(runstone_find_keyspace(store, "counters", &counters));
    WORKS(runstone_drop_keyspace(store, "counters"));
    REFUSED(RUNSTONE_UNKNOWN_KEYSPACE, "counters",
            runstone_merge(counters, "k", 1, &one, 8, RUNSTONE_AS_OPENED));
    WORKS(runstone_keyspace_close(counters));
}

static void removals(runstone_store *store) {
    runstone_keyspace *queue;
    runstone_bytes key, value, keys[9], values[9];
    size_t count;
    WORKS(runstone_open_keyspace(store, "queue", NULL, &queue));
    const char *jobs[] = {"1", "2", "3", "4", "5", "6"};
    for (int job = 0; job < 6; job++) put(queue, jobs[job], "work");
    WORKS(runstone_pop_first(queue, RUNSTONE_SYNC, &key, &value));
    CHECK(has(&key, "1") && has(&value, "work"));
    WORKS(runstone_pop_last(queue, RUNSTONE_AS_OPENED, &key, &value));
    CHECK(has(&key, "6") && has(&value, "work"));
    WORKS(runstone_drain(queue, "3", 1, NULL, 0, 9, RUNSTONE_SYNC, keys, values, &count));
    CHECK(count == 3 && keys[3].data == NULL && values[8].data == NULL);
    for (size_t at = 0; at < count; at++)
        CHECK(has(&keys[at], jobs[at + 2]) && has(&values[at], "work"));
    WORKS(runstone_drain(queue, NULL, 0, NULL, 0, 0, 0, NULL, NULL, &count));
    CHECK(count == 0);
    WORKS(runstone_drain(queue, NULL, 0, NULL, 0, 1, 0, keys, values, &count));
    CHECK(count == 1 && has(&keys[0], "2") && has(&values[0], "work"));
    WORKS(runstone_pop_first(queue, 0, &key, &value));
    CHECK(key.data == NULL && value.data == NULL);
    WORKS(runstone_keyspace_close(queue));
    WORKS(runstone_drop_keyspace(store, "queue"));
}

static void files(runstone_store *store, runstone_keyspace *keyspace, const char *path) {
    runstone_sorted_writer *writer;
    uint64_t entries;
    char file[512], copy[512];
    snprintf(file, sizeof file, "%s.sorted", path);
    snprintf(copy, sizeof copy, "%s.copy", path);
    WORKS(runstone_sorted_writer_create(file, NULL, &writer));
    WORKS(runstone_sorted_writer_put(writer, "x", 1, "from a file", 11));
    WORKS(runstone_sorted_writer_delete(writer, "y", 1));
    WORKS(runstone_sorted_writer_finish(writer, &entries));
    CHECK(entries == 2);
    WORKS(runstone_sorted_writer_close(writer));
    const char *paths[] = {file};
    WORKS(runstone_ingest(keyspace, 1, paths, &entries));
    CHECK(entries == 2 && is(keyspace, "x", "from a file"));
    remove(file);
    runstone_bytes text;
    WORKS(runstone_sync(store));
    WORKS(runstone_flush(store));
    WORKS(runstone_wait_idle(store));
    WORKS(runstone_compact(store));
    WORKS(runstone_verify(store, &text));
    runstone_bytes_free(&text);
    WORKS(runstone_metrics(store, &text));
    CHECK(strstr(text.data, "runstone_") != NULL);
    runstone_bytes_free(&text);
    WORKS(runstone_checkpoint(store, copy));
    WORKS(runstone_destroy(copy));
    WORKS(runstone_checkpoint_copied(store, copy));
    WORKS(runstone_destroy(copy));
    remove(copy);
}

enum { STORES = 50 };

static void shared_resources(const char *path) {
    runstone_resources *resources;
    runstone_options *options, *own;
    runstone_store *stores[STORES];
    runstone_keyspace *keyspace;
    runstone_bytes text;
    char place[512], value[16];
    WORKS(runstone_resources_create("memory_budget_bytes = '32M'\nbackground_threads = 2\n"
                                    "max_open_files = 20", &resources));
    WORKS(runstone_options_create("wal_mode = 'mapped'", &options));
    WORKS(runstone_options_set_resources(options, resources));
    WORKS(runstone_options_create("memory_budget_bytes = '8M'", &own));
    CHECK(runstone_options_set_resources(own, resources) == RUNSTONE_INVALID_ARGUMENT);
    CHECK(strstr(runstone_last_message(), "memory_budget_bytes") != NULL);
    WORKS(runstone_options_close(own));
    CHECK(runstone_resources_create("threads = 2", &resources) == RUNSTONE_INVALID_ARGUMENT);
    WORKS(runstone_resources_close(resources));
    CHECK(runstone_resources_close(resources) == RUNSTONE_CLOSED);
    for (int i = 0; i < STORES; i++) {
        snprintf(place, sizeof place, "%s-%d", path, i);
        snprintf(value, sizeof value, "of %d", i);
        WORKS(runstone_open(place, options, &stores[i]));
        WORKS(runstone_default_keyspace(stores[i], &keyspace));
        put(keyspace, "k", value);
        WORKS(runstone_keyspace_close(keyspace));
    }
    WORKS(runstone_options_close(options));
    WORKS(runstone_metrics(stores[STORES - 1], &text));
    CHECK(strstr(text.data, "budget_bytes") != NULL);
    runstone_bytes_free(&text);
    for (int i = 0; i < STORES; i++) {
        snprintf(place, sizeof place, "%s-%d", path, i);
        snprintf(value, sizeof value, "of %d", i);
        WORKS(runstone_flush(stores[i]));
        WORKS(runstone_default_keyspace(stores[i], &keyspace));
        CHECK(is(keyspace, "k", value));
        WORKS(runstone_keyspace_close(keyspace));
        WORKS(runstone_close(stores[i]));
        WORKS(runstone_destroy(place));
        remove(place);
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    CHECK(strlen(runstone_version()) > 0 && strlen(runstone_last_message()) == 0);
    runstone_options *options;
    runstone_store *store;
    runstone_keyspace *keyspace;
    WORKS(runstone_options_create("durability = 'buffered'\n[keyspace]\nblock_bytes = '8K'",
                                  &options));
    WORKS(runstone_open(argv[1], options, &store));
    WORKS(runstone_options_close(options));
    WORKS(runstone_default_keyspace(store, &keyspace));
    keys_and_ranges(keyspace);
    batches_and_snapshots(store, keyspace);
    cursors(keyspace);
    transactions(store, keyspace);
    merges(store);
    removals(store);
    files(store, keyspace, argv[1]);
    WORKS(runstone_keyspace_close(keyspace));
    WORKS(runstone_close(store));
    WORKS(runstone_open(argv[1], NULL, &store));
    WORKS(runstone_default_keyspace(store, &keyspace));
    CHECK(is(keyspace, "x", "from a file") && is(keyspace, "a", "mine"));
    WORKS(runstone_keyspace_close(keyspace));
    WORKS(runstone_close(store));
    WORKS(runstone_destroy(argv[1]));
    shared_resources(argv[1]);
    puts("everything: ok");
    return 0;
}
