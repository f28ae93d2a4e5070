/* Combinations of LevelDB's options: each acts the same with every other option as it does alone.
 * All combinations are tried. Also tests that closed handles stay closed. */

#include <inttypes.h>
#include <unistd.h>

#include <leveldb/c.h>

#include "check.h"

static char *error = NULL;

static void fine(void) {
    if (error != NULL) fprintf(stderr, "%s\n", error);
    CHECK(error == NULL);
}

static bool is_refused(const char *part) {
    bool is_so = error != NULL && strstr(error, part) != NULL;
    leveldb_free(error);
    error = NULL;
    return is_so;
}

static uint64_t metric(leveldb_t *db, const char *name) {
    char line[128];
    char *text = leveldb_property_value(db, "runstone.metrics");
    snprintf(line, sizeof line, "\nrunstone_%s ", name);
    const char *at = strstr(text, line);
    CHECK(at != NULL);
    uint64_t value = strtoull(at + strlen(line), NULL, 10);
    leveldb_free(text);
    return value;
}

/* Combines create_if_missing, error_if_exists, and whether the database exists. */
static void opens(const char *path) {
    for (int choice = 0; choice < 8; choice++) {
        bool creates = choice & 1, refuses = choice & 2, exists = choice & 4;
        leveldb_options_t *options = leveldb_options_create();
        leveldb_destroy_db(options, path, &error);
        fine();
        leveldb_options_set_create_if_missing(options, 1);
        if (exists) leveldb_close(leveldb_open(options, path, &error));
        fine();
        leveldb_options_set_create_if_missing(options, creates);
        leveldb_options_set_error_if_exists(options, refuses);
        leveldb_t *db = leveldb_open(options, path, &error);
        CHECK((db != NULL) == (exists ? !refuses : creates));
        CHECK(db != NULL || is_refused(exists ? "exists" : "does not exist"));
        leveldb_close(db);
        leveldb_options_destroy(options);
    }
}

/* Tries sync for each kind of write. */
static void writes(leveldb_t *db) {
    leveldb_writeoptions_t *options = leveldb_writeoptions_create();
    leveldb_writebatch_t *batch = leveldb_writebatch_create();
    leveldb_writebatch_put(batch, "k", 1, "v", 1);
    for (int choice = 0; choice < 6; choice++) {
        leveldb_writeoptions_set_sync(options, choice & 1);
        uint64_t before = metric(db, "wal_syncs_total");
        switch (choice / 2) {
            case 0: leveldb_put(db, options, "k", 1, "v", 1, &error); break;
            case 1: leveldb_delete(db, options, "k", 1, &error); break;
            default: leveldb_write(db, options, batch, &error);
        }
        fine();
        CHECK(metric(db, "wal_syncs_total") - before == (uint64_t)(choice & 1));
    }
    leveldb_writebatch_destroy(batch);
    leveldb_writeoptions_destroy(options);
}

enum { KEYS = 200, AT = 1, FILLS = 2, VERIFIES = 4, DOWN = 8 };

static void put(leveldb_t *db, int number, char letter) {
    char key[16], value[300];
    leveldb_writeoptions_t *options = leveldb_writeoptions_create();
    memset(value, letter, sizeof value);
    snprintf(key, sizeof key, "k%03d", number);
    leveldb_put(db, options, key, 4, value, sizeof value, &error);
    fine();
    leveldb_writeoptions_destroy(options);
}

/* Combines snapshot, fill_cache and verify_checksums, in both directions, with a cold cache. The
 * database is new each time, because compactions fill the cache too. */
static void read_with(const char *path, leveldb_options_t *opening, int choice) {
    leveldb_destroy_db(opening, path, &error);
    leveldb_t *db = leveldb_open(opening, path, &error);
    fine();
    for (int number = 0; number < KEYS; number++) put(db, number, 'o');
    /* Moves the data into tables, because data in memory needs no cache. */
    leveldb_compact_range(db, NULL, 0, NULL, 0);
    leveldb_close(db);
    db = leveldb_open(opening, path, &error);
    fine();
    const leveldb_snapshot_t *snapshot = leveldb_create_snapshot(db);
    put(db, 7, 'n');
    leveldb_readoptions_t *options = leveldb_readoptions_create();
    leveldb_readoptions_set_snapshot(options, choice & AT ? snapshot : NULL);
    leveldb_readoptions_set_fill_cache(options, !!(choice & FILLS));
    leveldb_readoptions_set_verify_checksums(options, !!(choice & VERIFIES));
    size_t size;
    char *value = leveldb_get(db, options, "k007", 4, &size, &error);
    fine();
    CHECK(size == 300 && value[0] == (choice & AT ? 'o' : 'n'));
    leveldb_free(value);
    uint64_t before = metric(db, "cache_bytes");
    leveldb_iterator_t *walk = leveldb_create_iterator(db, options);
    choice & DOWN ? leveldb_iter_seek_to_last(walk) : leveldb_iter_seek_to_first(walk);
    for (int at = 0; at < KEYS; at++) {
        char key[16];
        int number = choice & DOWN ? KEYS - 1 - at : at;
        snprintf(key, sizeof key, "k%03d", number);
        CHECK(leveldb_iter_valid(walk) && memcmp(leveldb_iter_key(walk, &size), key, 4) == 0);
        char letter = number == 7 && !(choice & AT) ? 'n' : 'o';
        CHECK(*leveldb_iter_value(walk, &size) == letter && size == 300);
        choice & DOWN ? leveldb_iter_prev(walk) : leveldb_iter_next(walk);
    }
    CHECK(!leveldb_iter_valid(walk));
    leveldb_iter_destroy(walk);
    CHECK((metric(db, "cache_bytes") > before) == !!(choice & FILLS));
    leveldb_release_snapshot(db, snapshot);
    leveldb_free(leveldb_get(db, options, "k007", 4, &size, &error));
    CHECK(choice & AT ? is_refused("closed") : error == NULL);
    leveldb_readoptions_destroy(options);
    leveldb_close(db);
}

/* Closed handles stay closed, however many follow. */
static void handles(leveldb_t *db) {
    enum { OLD = 64 };
    leveldb_iterator_t *old[OLD];
    leveldb_readoptions_t *options = leveldb_readoptions_create();
    for (int round = 0; round < 50000; round++) {
        leveldb_iterator_t *walk = leveldb_create_iterator(db, options);
        for (int at = 0; at < OLD && round >= OLD && round % 100 < 5; at++) {
            leveldb_iter_destroy(old[at]);
            leveldb_iter_get_error(old[at], &error);
            CHECK(is_refused("closed"));
        }
        leveldb_iter_get_error(walk, &error);
        fine();
        leveldb_iter_destroy(walk);
        if (round < OLD) old[round] = walk;
    }
    leveldb_readoptions_destroy(options);
}

/* Opens databases that together request more cache than the limit. */
static void caches(const char *path) {
    enum { OPEN = 6 };
    leveldb_t *open[OPEN];
    char name[OPEN][4096];
    leveldb_options_t *options = leveldb_options_create();
    leveldb_options_set_create_if_missing(options, 1);
    snprintf(name[0], sizeof name[0], "%s.0", path);
    open[0] = leveldb_open(options, name[0], &error);
    fine();
    /* The memory of a database without the default cache. */
    uint64_t rest = metric(open[0], "memory_budget_bytes") - (8 << 20);
    leveldb_close(open[0]);
    leveldb_cache_t *cache = leveldb_cache_create_lru((size_t)1 << 30);
    leveldb_options_set_cache(options, cache);
    for (int round = 0; round < 3; round++) {
        uint64_t all = 0;
        for (int at = 0; at < OPEN; at++) {
            snprintf(name[at], sizeof name[at], "%s.%d", path, at);
            open[at] = leveldb_open(options, name[at], &error);
            fine();
            uint64_t share = metric(open[at], "memory_budget_bytes") - rest;
            CHECK(share == (at < 3 ? (uint64_t)50 << (20 - at) : 8 << 20));
            all += share;
        }
        CHECK(all < (100 + 8 * OPEN) << 20);
        for (int at = 0; at < OPEN; at++) leveldb_close(open[at]);
    }
    for (int at = 0; at < OPEN; at++) leveldb_destroy_db(options, name[at], &error);
    fine();
    leveldb_cache_destroy(cache);
    leveldb_options_destroy(options);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    setenv("RUNSTONE_LEVELDB_CACHE", "100M", 1);
    caches(argv[1]);
    opens(argv[1]);
    leveldb_options_t *options = leveldb_options_create();
    leveldb_options_set_create_if_missing(options, 1);
    leveldb_t *db = leveldb_open(options, argv[1], &error);
    fine();
    writes(db);
    handles(db);
    leveldb_destroy_db(options, argv[1], &error);
    CHECK(is_refused("in use"));
    leveldb_close(db);
    for (int choice = 0; choice < 16; choice++) read_with(argv[1], options, choice);
    leveldb_destroy_db(options, argv[1], &error);
    fine();
    leveldb_options_destroy(options);
    puts("leveldb pairs: ok");
    return 0;
}
