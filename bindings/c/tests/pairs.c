/* Combinations of options: each acts the same with every other option as it does alone. All
 * combinations, and so all pairs, are tried. The expected results come from a model of each option
 * alone. */

#include <inttypes.h>
#include <unistd.h>

#include <runstone.h>

#include "check.h"

enum { KEYS = 60, VALUE = 600 };

static uint64_t metric(runstone_store *store, const char *name) {
    char line[128];
    runstone_bytes text;
    WORKS(runstone_metrics(store, &text));
    snprintf(line, sizeof line, "\nrunstone_%s ", name);
    const char *at = strstr(text.data, line);
    CHECK(at != NULL);
    uint64_t value = strtoull(at + strlen(line), NULL, 10);
    runstone_bytes_free(&text);
    return value;
}

static uint64_t syncs(runstone_store *store) {
    return metric(store, "wal_syncs_total");
}

static runstone_store *open_store(const char *path, const char *toml) {
    runstone_options *options;
    runstone_store *store;
    WORKS(runstone_options_create(toml, &options));
    WORKS(runstone_open(path, options, &store));
    WORKS(runstone_options_close(options));
    return store;
}

static bool has(runstone_keyspace *keyspace, const char *key) {
    bool found;
    WORKS(runstone_contains(keyspace, key, strlen(key), &found));
    return found;
}

/* Checks that an entry with a time to live expires, and that others do not. */
static void check_expiry(runstone_keyspace *keyspace, bool expires) {
    CHECK(expires || has(keyspace, "k"));
    while (expires && has(keyspace, "k")) usleep(1000);
}

enum {
    PUT, PUT_LONG, PUT_SHORT, DELETE, MERGE, RANGE, FIRST, LAST, DRAIN, SWAP, ABSENT,
    BATCH, BATCH_LONG, BATCH_SHORT, WRITES
};

static void write_one(runstone_store *store, runstone_keyspace *keyspace, int kind, int survives) {
    uint64_t ttl_ms = kind == PUT_SHORT || kind == BATCH_SHORT ? 1 : 3600000, one = 1;
    runstone_bytes key = {NULL, 0, NULL}, value = {NULL, 0, NULL};
    size_t count;
    bool swapped;
    runstone_batch *batch;
    WORKS(runstone_batch_create(&batch));
    switch (kind) {
        case PUT: WORKS(runstone_put(keyspace, "k", 1, &one, 8, survives)); break;
        case PUT_LONG:
        case PUT_SHORT:
            WORKS(runstone_put_with_ttl(keyspace, "k", 1, &one, 8, ttl_ms, survives));
            break;
        case DELETE: WORKS(runstone_delete(keyspace, "other", 5, survives)); break;
        case MERGE: WORKS(runstone_merge(keyspace, "k", 1, &one, 8, survives)); break;
        case RANGE: WORKS(runstone_delete_range(keyspace, "x", 1, "y", 1, survives)); break;
        case FIRST: WORKS(runstone_pop_first(keyspace, survives, &key, &value)); break;
        case LAST: WORKS(runstone_pop_last(keyspace, survives, &key, &value)); break;
        case DRAIN:
            WORKS(runstone_drain(keyspace, NULL, 0, "k", 1, 1, survives, &key, &value, &count));
            CHECK(count == 1);
            break;
        case SWAP:
            WORKS(runstone_compare_and_swap(keyspace, "a", 1, "12345678", 8, NULL, 0, survives,
                                            &swapped));
            CHECK(swapped);
            break;
        case ABSENT:
            WORKS(runstone_put_if_absent(keyspace, "new", 3, &one, 8, survives, &value));
            CHECK(value.data == NULL);
            break;
        case BATCH:
            WORKS(runstone_batch_put(batch, keyspace, "k", 1, &one, 8));
            WORKS(runstone_write(store, batch, survives));
            break;
        default:
            WORKS(runstone_batch_put_with_ttl(batch, keyspace, "k", 1, &one, 8, ttl_ms));
            WORKS(runstone_write(store, batch, survives));
    }
    CHECK((key.data != NULL) == (kind == FIRST || kind == LAST || kind == DRAIN));
    runstone_bytes_free(&key);
    runstone_bytes_free(&value);
    WORKS(runstone_batch_close(batch));
}

/* Combines the durability of the store and of the call with the kind of the write and its time to
 * live. */
static void writes(const char *path) {
    const char *opened[] = {"durability = 'buffered'", "durability = 'sync'"};
    for (int sync = 0; sync < 2; sync++) {
        runstone_store *store = open_store(path, opened[sync]);
        runstone_keyspace *keyspace;
        WORKS(runstone_open_keyspace(store, "sums", "merge_operator = 'add-u64'", &keyspace));
        for (int survives = RUNSTONE_AS_OPENED; survives <= RUNSTONE_SYNC; survives++) {
            uint64_t expected = survives == RUNSTONE_SYNC || (survives == 0 && sync);
            for (int kind = 0; kind < WRITES; kind++) {
                for (const char *key = "akz"; *key != 0; key++)
                    WORKS(runstone_put(keyspace, key, 1, "12345678", 8, RUNSTONE_BUFFERED));
                WORKS(runstone_delete(keyspace, "new", 3, RUNSTONE_BUFFERED));
                uint64_t before = syncs(store);
                write_one(store, keyspace, kind, survives);
                if (syncs(store) - before != expected) fprintf(stderr, "%d %d\n", kind, survives);
                CHECK(syncs(store) - before == expected);
                check_expiry(keyspace, kind == PUT_SHORT || kind == BATCH_SHORT);
            }
        }
        REFUSED(RUNSTONE_INVALID_ARGUMENT, "durability",
                runstone_put_with_ttl(keyspace, "k", 1, "v", 1, 1000, 3));
        WORKS(runstone_keyspace_close(keyspace));
        WORKS(runstone_close(store));
    }
}

/* Combines the bounds of range deletes, each present or absent, with the durability, in a batch and
 * alone. */
static void ranges(const char *path) {
    runstone_store *store = open_store(path, NULL);
    runstone_keyspace *keyspace;
    runstone_batch *batch;
    WORKS(runstone_default_keyspace(store, &keyspace));
    WORKS(runstone_batch_create(&batch));
    for (int choice = 0; choice < 16; choice++) {
        const char *from = choice & 1 ? "b" : NULL, *to = choice & 2 ? "d" : NULL;
        int survives = choice & 4 ? RUNSTONE_SYNC : RUNSTONE_BUFFERED;
        for (char key[2] = "a"; key[0] <= 'e'; key[0]++)
            WORKS(runstone_put(keyspace, key, 1, "v", 1, RUNSTONE_BUFFERED));
        uint64_t before = syncs(store);
        if (choice & 8) {
            WORKS(runstone_batch_clear(batch));
            WORKS(runstone_batch_delete_range(batch, keyspace, from, from != NULL, to, to != NULL));
            WORKS(runstone_write(store, batch, survives));
        } else {
            WORKS(runstone_delete_range(keyspace, from, from != NULL, to, to != NULL, survives));
        }
        CHECK(syncs(store) - before == (survives == RUNSTONE_SYNC));
        for (char key[2] = "a"; key[0] <= 'e'; key[0]++) {
            bool is_gone = (from == NULL || key[0] >= 'b') && (to == NULL || key[0] < 'd');
            CHECK(has(keyspace, key) == !is_gone);
        }
    }
    WORKS(runstone_batch_close(batch));
    WORKS(runstone_keyspace_close(keyspace));
    WORKS(runstone_close(store));
}

/* Combines the mode and the isolation of a transaction with the durability of its commit. */
static void transactions(const char *path) {
    runstone_store *store = open_store(path, NULL);
    runstone_keyspace *keyspace;
    WORKS(runstone_default_keyspace(store, &keyspace));
    for (int choice = 0; choice < 8; choice++) {
        runstone_transaction_options options = {.is_pessimistic = choice & 1,
                                                .is_serializable = choice & 2,
                                                .lock_timeout_ms = 1};
        int survives = choice & 4 ? RUNSTONE_SYNC : RUNSTONE_BUFFERED;
        runstone_transaction *one, *other;
        runstone_bytes value;
        if (options.is_pessimistic && options.is_serializable) {
            REFUSED(RUNSTONE_INVALID_ARGUMENT, "pessimistic",
                    runstone_begin(store, &options, &one));
            continue;
        }
        WORKS(runstone_begin(store, &options, &one));
        WORKS(runstone_begin(store, &options, &other));
        /* A transaction with locks blocks others; one without locks lets them write first. */
        WORKS(runstone_transaction_put(one, keyspace, "held", 4, "v", 1));
        runstone_status second = runstone_transaction_put(other, keyspace, "held", 4, "v", 1);
        CHECK(second == (options.is_pessimistic ? RUNSTONE_LOCK_TIMEOUT : RUNSTONE_OK));
        WORKS(runstone_rollback(other));
        /* A serializable transaction notices a change of a key that it read. */
        WORKS(runstone_transaction_get(one, keyspace, "read", 4, &value));
        runstone_bytes_free(&value);
        WORKS(runstone_put(keyspace, "read", 4, "v", 1, RUNSTONE_BUFFERED));
        uint64_t before = syncs(store);
        runstone_status status = runstone_commit(one, survives);
        CHECK(status == (options.is_serializable ? RUNSTONE_CONFLICT : RUNSTONE_OK));
        CHECK(syncs(store) - before == (status == RUNSTONE_OK && survives == RUNSTONE_SYNC));
    }
    WORKS(runstone_keyspace_close(keyspace));
    WORKS(runstone_close(store));
}

enum { AT = 1, FROM = 2, TO = 4, PREFIX = 8, BARE = 16, SKIP = 32, DOWN = 64, INSIDE = 128 };

/* Whether a key is shown, and its expected letter, by a model of each option alone. Key 30 was
 * deleted and key 31 replaced after the snapshot. */
static bool is_shown(int choice, int number, char *letter) {
    if ((choice & FROM) && number < 20) return false;
    if ((choice & TO) && number >= 40) return false;
    if ((choice & PREFIX) && number / 10 != 3) return false;
    *letter = number == 31 && !(choice & AT) ? 'n' : 'o';
    return number != 30 || (choice & AT);
}

static void check_walk(runstone_cursor *cursor, int choice) {
    runstone_entry entry;
    char key[16], letter;
    WORKS(choice & DOWN ? runstone_cursor_last(cursor) : runstone_cursor_first(cursor));
    for (int at = 0; at < KEYS; at++) {
        int number = choice & DOWN ? KEYS - 1 - at : at;
        if (!is_shown(choice, number, &letter)) continue;
        snprintf(key, sizeof key, "k%02d", number);
        CHECK(runstone_cursor_entry(cursor, &entry));
        if (memcmp(entry.key, key, 3) != 0) fprintf(stderr, "choice %d at %s\n", choice, key);
        CHECK(entry.key_size == 3 && memcmp(entry.key, key, 3) == 0);
        /* Values written since the store was opened are not separated yet. */
        bool is_bare = (choice & BARE) && letter == 'o';
        CHECK(entry.value_size == (is_bare ? 0 : VALUE));
        CHECK(is_bare || *(const char *)entry.value == letter);
        WORKS(choice & DOWN ? runstone_cursor_previous(cursor) : runstone_cursor_next(cursor));
    }
    CHECK(!runstone_cursor_entry(cursor, &entry));
}

static void put_value(runstone_keyspace *keyspace, int number, char letter) {
    char key[16], value[VALUE];
    snprintf(key, sizeof key, "k%02d", number);
    memset(value, letter, sizeof value);
    WORKS(runstone_put(keyspace, key, 3, value, sizeof value, RUNSTONE_BUFFERED));
}

/* Makes a store with separated values. */
static void make(const char *path) {
    runstone_store *store = open_store(path, NULL);
    runstone_keyspace *keyspace;
    WORKS(runstone_open_keyspace(
        store, "apart", "[values]\nplacement = 'vlog'\nseparate_at = 512", &keyspace));
    for (int number = 0; number < KEYS; number++) put_value(keyspace, number, 'o');
    WORKS(runstone_flush(store));
    WORKS(runstone_keyspace_close(keyspace));
    WORKS(runstone_close(store));
}

/* Iterates with one combination of options and a cold cache. The store is new each time, because
 * compactions fill the cache too. */
static void read_with(const char *path, int choice) {
    make(path);
    runstone_store *store = open_store(path, NULL);
    runstone_keyspace *keyspace;
    runstone_snapshot *snapshot;
    runstone_transaction *transaction;
    runstone_cursor *cursor;
    WORKS(runstone_find_keyspace(store, "apart", &keyspace));
    WORKS(runstone_snapshot_create(store, &snapshot));
    WORKS(runstone_delete(keyspace, "k30", 3, RUNSTONE_BUFFERED));
    put_value(keyspace, 31, 'n');
    WORKS(runstone_begin(store, NULL, &transaction));
    runstone_read_options options = {.snapshot = choice & AT ? snapshot : NULL,
                                     .from = choice & FROM ? "k20" : NULL,
                                     .from_size = choice & FROM ? 3 : 0,
                                     .to = choice & TO ? "k40" : NULL,
                                     .to_size = choice & TO ? 3 : 0,
                                     .prefix = choice & PREFIX ? "k3" : NULL,
                                     .prefix_size = choice & PREFIX ? 2 : 0,
                                     .keys_only = choice & BARE,
                                     .skip_cache = choice & SKIP};
    runstone_status status = choice & INSIDE
        ? runstone_transaction_cursor(transaction, keyspace, &options, &cursor)
        : runstone_cursor_create(keyspace, &options, &cursor);
    bool goes = !((choice & PREFIX) && (choice & (FROM | TO))) &&
                !((choice & INSIDE) && (choice & AT));
    CHECK(status == (goes ? RUNSTONE_OK : RUNSTONE_INVALID_ARGUMENT));
    if (goes) {
        uint64_t before = metric(store, "cache_bytes");
        check_walk(cursor, choice);
        bool is_cached = metric(store, "cache_bytes") > before;
        if (is_cached == !!(choice & SKIP)) fprintf(stderr, "the cache with choice %d\n", choice);
        CHECK(is_cached == !(choice & SKIP));
        WORKS(runstone_cursor_close(cursor));
    }
    WORKS(runstone_rollback(transaction));
    WORKS(runstone_snapshot_close(snapshot));
    WORKS(runstone_keyspace_close(keyspace));
    WORKS(runstone_close(store));
    WORKS(runstone_destroy(path));
}

/* Tries gets with and without a snapshot, and into buffers that are large enough or too small. */
static void gets(const char *path) {
    runstone_store *store = open_store(path, NULL);
    runstone_keyspace *keyspace;
    runstone_snapshot *snapshot;
    WORKS(runstone_default_keyspace(store, &keyspace));
    WORKS(runstone_put(keyspace, "k", 1, "old", 3, RUNSTONE_BUFFERED));
    WORKS(runstone_snapshot_create(store, &snapshot));
    WORKS(runstone_put(keyspace, "k", 1, "newer", 5, RUNSTONE_BUFFERED));
    for (int choice = 0; choice < 4; choice++) {
        char buffer[8] = "........";
        size_t size, room = choice & 2 ? 2 : sizeof buffer;
        const char *expected = choice & 1 ? "old" : "newer";
        runstone_snapshot *at = choice & 1 ? snapshot : NULL;
        WORKS(runstone_get_into(keyspace, at, "k", 1, buffer, room, &size));
        size_t copied = room < size ? room : size;
        CHECK(size == strlen(expected) && memcmp(buffer, expected, copied) == 0);
        CHECK(buffer[copied] == '.');
    }
    WORKS(runstone_snapshot_close(snapshot));
    WORKS(runstone_keyspace_close(keyspace));
    WORKS(runstone_close(store));
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    writes(argv[1]);
    ranges(argv[1]);
    transactions(argv[1]);
    gets(argv[1]);
    WORKS(runstone_destroy(argv[1]));
    for (int choice = 0; choice < 256; choice++) read_with(argv[1], choice);
    puts("pairs: ok");
    return 0;
}
