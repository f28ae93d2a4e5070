/* Key orders that a program supplies. The library has only the order of bytes, and checks the other
 * order against it: after the first two keys that disagree, every call fails. Each order here
 * asserts that it sees only keys in the program's form. */

#include <stdint.h>

#include "errors.h"

static leveldb_readoptions_t *reads;
static leveldb_writeoptions_t *writes;

typedef int order(void *, const char *, size_t, const char *, size_t);

static int as_bytes(void *state, const char *a, size_t a_size, const char *b, size_t b_size) {
    CHECK(a_size == 16 && b_size == 16);
    ++*(int *)state;
    return memcmp(a, b, 16);
}

/* Sorts by user name, and for each user the newest first. */
static int newest_first(void *state, const char *a, size_t a_size, const char *b, size_t b_size) {
    int by_user = as_bytes(state, a, a_size, b, b_size) ? memcmp(a, b, 8) : 0;
    return by_user != 0 ? by_user : memcmp(b + 8, a + 8, 8);
}

/* Sorts by user name and ignores the time. */
static int users_only(void *state, const char *a, size_t a_size, const char *b, size_t b_size) {
    as_bytes(state, a, a_size, b, b_size);
    return memcmp(a, b, 8);
}

static void end(void *state) {
    (void)state;
}

static const char *mine(void *state) {
    (void)state;
    return "mine";
}

static const char *bytewise(void *state) {
    (void)state;
    return "leveldb.BytewiseComparator";
}

/* How often an order was called. */
static int asked;

typedef struct {
    leveldb_t *db;
    leveldb_comparator_t *comparator;
    char path[256];
} opened;

static void reopen(opened *on, order *compare, const char *(*name)(void *)) {
    leveldb_options_t *options = leveldb_options_create();
    leveldb_options_set_create_if_missing(options, 1);
    asked = 0;
    on->comparator = NULL;
    if (compare != NULL) {
        on->comparator = leveldb_comparator_create(&asked, end, compare, name);
        leveldb_options_set_comparator(options, on->comparator);
    }
    on->db = leveldb_open(options, on->path, &error);
    fine();
    leveldb_options_destroy(options);
}

static void shut(opened *on) {
    leveldb_close(on->db);
    if (on->comparator != NULL) leveldb_comparator_destroy(on->comparator);
}

static opened make(const char *path, order *compare, const char *(*name)(void *)) {
    static int number = 0;
    opened on;
    snprintf(on.path, sizeof on.path, "%s.%d", path, number++);
    reopen(&on, compare, name);
    return on;
}

static void put(opened *on, const char *key) {
    leveldb_put(on->db, writes, key, 16, "v", 1, &error);
}

static void get(opened *on, const char *key, const char *part) {
    size_t size;
    char *value = leveldb_get(on->db, reads, key, 16, &size, &error);
    if (part == NULL) fine();
    else refused(part);
    leveldb_free(value);
}

static void agrees(const char *path) {
    const char *(*names[])(void *) = {mine, bytewise};
    for (int at = 0; at < 2; at++) {
        opened on = make(path, as_bytes, names[at]);
        for (int key = 0; key < 1000; key++) {
            char text[17];
            snprintf(text, sizeof text, "user%04d%08d", key * 7 % 10, key * 7919 % 1000);
            put(&on, text);
            fine();
        }
        leveldb_writebatch_t *batch = leveldb_writebatch_create();
        leveldb_writebatch_put(batch, "user990000000001", 16, "v", 1);
        leveldb_writebatch_put(batch, "user990000000000", 16, "v", 1);
        leveldb_writebatch_delete(batch, "user000100000001", 16);
        leveldb_write(on.db, writes, batch, &error);
        fine();
        leveldb_writebatch_destroy(batch);
        leveldb_compact_range(on.db, NULL, 0, NULL, 0);
        get(&on, "user990000000000", NULL);
        get(&on, "user980000000000", NULL);
        leveldb_iterator_t *iterator = leveldb_create_iterator(on.db, reads);
        int count = 0;
        for (leveldb_iter_seek_to_first(iterator); leveldb_iter_valid(iterator); count++)
            leveldb_iter_next(iterator);
        leveldb_iter_seek(iterator, "user980000000000", 16);
        CHECK(leveldb_iter_valid(iterator) && count > 900);
        while (leveldb_iter_valid(iterator)) leveldb_iter_prev(iterator);
        leveldb_iter_get_error(iterator, &error);
        fine();
        leveldb_iter_destroy(iterator);
        CHECK(asked > 3900);
        shut(&on);
    }
}

/* The first two keys that disagree are reported, and every call fails from then on. */
static void disagrees(const char *path) {
    opened on = make(path, newest_first, mine);
    put(&on, "user000100000001");
    put(&on, "user000200000001");
    fine();
    put(&on, "user000100000002");
    refused("comparator mine puts \"user000100000001\" behind \"user000100000002\"");
    get(&on, "user000100000001", "comparator mine puts");
    put(&on, "user000300000001");
    refused("by their bytes only");
    leveldb_iterator_t *iterator = leveldb_create_iterator(on.db, reads);
    leveldb_iter_seek_to_first(iterator);
    CHECK(!leveldb_iter_valid(iterator));
    leveldb_iter_get_error(iterator, &error);
    refused("comparator mine puts");
    leveldb_iter_destroy(iterator);
    shut(&on);

    on = make(path, users_only, bytewise);
    put(&on, "user000100000001");
    fine();
    get(&on, "user000100000009", "the same key as");
    shut(&on);

    on = make(path, newest_first, mine);
    leveldb_writebatch_t *batch = leveldb_writebatch_create();
    leveldb_writebatch_put(batch, "user000100000001", 16, "v", 1);
    leveldb_writebatch_put(batch, "user000100000002", 16, "v", 1);
    leveldb_write(on.db, writes, batch, &error);
    refused("comparator mine puts");
    leveldb_writebatch_destroy(batch);
    shut(&on);
}

/* Keys that were written without the order are checked against it when an iterator or a look-up
 * reaches them. */
static void disagrees_later(const char *path) {
    opened on = make(path, NULL, NULL);
    put(&on, "user000100000001");
    put(&on, "user000100000003");
    fine();
    for (int at = 0; at < 6; at++) {
        shut(&on);
        reopen(&on, newest_first, mine);
        leveldb_iterator_t *iterator = leveldb_create_iterator(on.db, reads);
        switch (at) {
            case 0:
                leveldb_iter_seek_to_first(iterator);
                leveldb_iter_next(iterator);
                break;
            case 1:
                leveldb_iter_seek_to_last(iterator);
                leveldb_iter_prev(iterator);
                break;
            case 2:
                leveldb_iter_seek(iterator, "user000100000002", 16);
                break;
            /* These once showed the key at the other end of the program's order. */
            case 3:
                leveldb_iter_seek_to_first(iterator);
                break;
            case 4:
                leveldb_iter_seek_to_last(iterator);
                break;
            default:
                leveldb_iter_seek(iterator, "user000100000009", 16);
        }
        CHECK(!leveldb_iter_valid(iterator));
        leveldb_iter_get_error(iterator, &error);
        refused("comparator mine puts");
        leveldb_iter_destroy(iterator);
    }
    shut(&on);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    reads = leveldb_readoptions_create();
    writes = leveldb_writeoptions_create();
    agrees(arguments[1]);
    disagrees(arguments[1]);
    disagrees_later(arguments[1]);
    leveldb_readoptions_destroy(reads);
    leveldb_writeoptions_destroy(writes);
    puts("leveldb orders: ok");
    return 0;
}
