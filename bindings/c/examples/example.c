/* A tour. Compile it with cc example.c -lrunstone and run ./a.out DIRECTORY. The directory becomes
 * a store. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <runstone.h>

static void check(runstone_status status) {
    if (status != RUNSTONE_OK) {
        fprintf(stderr, "error %d: %s\n", (int)status, runstone_last_message());
        exit(1);
    }
}

static void put(runstone_keyspace *keyspace, const char *key, const char *value) {
    check(runstone_put(keyspace, key, strlen(key), value, strlen(value), RUNSTONE_AS_OPENED));
}

static void show(runstone_keyspace *keyspace, runstone_snapshot *snapshot, const char *key) {
    runstone_bytes value;
    check(runstone_get(keyspace, snapshot, key, strlen(key), &value));
    if (value.data == NULL) {
        printf("%s has no value\n", key);
    } else {
        printf("%s is %.*s\n", key, (int)value.size, (const char *)value.data);
    }
    runstone_bytes_free(&value);
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
        return 2;
    }
    runstone_options *options;
    runstone_store *store;
    runstone_keyspace *fruits, *visits;
    check(runstone_options_create("memory_budget_bytes = '256M'", &options));
    check(runstone_open(argv[1], options, &store));
    check(runstone_options_close(options));
    check(runstone_default_keyspace(store, &fruits));
    check(runstone_open_keyspace(store, "visits", "merge_operator = 'add-u64'", &visits));

    put(fruits, "apple", "red");
    put(fruits, "banana", "yellow");
    runstone_snapshot *before;
    check(runstone_snapshot_create(store, &before));
    check(runstone_delete(fruits, "apple", 5, RUNSTONE_SYNC));
    show(fruits, NULL, "apple");
    show(fruits, before, "apple");

    /* Writes to several keyspaces that happen together or not at all. */
    runstone_batch *batch;
    uint64_t one = 1;
    check(runstone_batch_create(&batch));
    check(runstone_batch_put(batch, fruits, "cherry", 6, "dark", 4));
    check(runstone_batch_merge(batch, visits, "today", 5, &one, sizeof one));
    check(runstone_write(store, batch, RUNSTONE_AS_OPENED));

    runstone_cursor *cursor;
    runstone_entry entry;
    check(runstone_cursor_create(fruits, NULL, &cursor));
    check(runstone_cursor_first(cursor));
    while (runstone_cursor_entry(cursor, &entry)) {
        printf("%.*s = %.*s\n", (int)entry.key_size, (const char *)entry.key,
               (int)entry.value_size, (const char *)entry.value);
        check(runstone_cursor_next(cursor));
    }
    check(runstone_cursor_close(cursor));
    check(runstone_batch_close(batch));
    check(runstone_snapshot_close(before));
    check(runstone_keyspace_close(visits));
    check(runstone_keyspace_close(fruits));
    check(runstone_close(store));
    return 0;
}
