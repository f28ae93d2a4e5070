/* A program that uses LevelDB's C interface as programs do, and also in wrong ways. */

#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

#include "errors.h"

static leveldb_readoptions_t *reads;
static leveldb_writeoptions_t *writes;

static bool is(leveldb_t *db, const char *key, const char *expected) {
    size_t size;
    char *value = leveldb_get(db, reads, key, strlen(key), &size, &error);
    fine();
    bool same = value == NULL ? expected == NULL
                              : expected != NULL && size == strlen(expected) &&
                                    memcmp(value, expected, size) == 0;
    leveldb_free(value);
    return same;
}

static void put(leveldb_t *db, const char *key, const char *value) {
    leveldb_put(db, writes, key, strlen(key), value, strlen(value), &error);
    fine();
}

/* Collects the entries of an iterator as "key=value,". */
static void walk(leveldb_t *db, bool upward, char *shown) {
    leveldb_iterator_t *iterator = leveldb_create_iterator(db, reads);
    CHECK(!leveldb_iter_valid(iterator));
    upward ? leveldb_iter_seek_to_first(iterator) : leveldb_iter_seek_to_last(iterator);
    while (leveldb_iter_valid(iterator)) {
        size_t key_size, value_size;
        const char *key = leveldb_iter_key(iterator, &key_size);
        const char *value = leveldb_iter_value(iterator, &value_size);
        strncat(shown, key, key_size);
        strcat(shown, "=");
        strncat(shown, value, value_size);
        strcat(shown, ",");
        upward ? leveldb_iter_next(iterator) : leveldb_iter_prev(iterator);
    }
    leveldb_iter_get_error(iterator, &error);
    fine();
    leveldb_iter_destroy(iterator);
}

static void shows(leveldb_t *db, const char *expected) {
    char shown[512] = "";
    walk(db, true, shown);
    if (strcmp(shown, expected) != 0) fprintf(stderr, "%s\n", shown);
    CHECK(strcmp(shown, expected) == 0);
}

static void note_put(void *text, const char *key, size_t key_size, const char *value, size_t size) {
    sprintf((char *)text + strlen(text), "put %.*s %.*s;", (int)key_size, key, (int)size, value);
}

static void note_delete(void *text, const char *key, size_t key_size) {
    sprintf((char *)text + strlen(text), "delete %.*s;", (int)key_size, key);
}

static void batches(leveldb_t *db) {
    char noted[256] = "";
    leveldb_writebatch_t *one = leveldb_writebatch_create(), *other = leveldb_writebatch_create();
    leveldb_writebatch_put(one, "forgotten", 9, "x", 1);
    leveldb_writebatch_clear(one);
    leveldb_writebatch_put(one, "box", 3, "c", 1);
    leveldb_writebatch_delete(one, "bar", 3);
    leveldb_writebatch_put(other, "bar", 3, "b", 1);
    leveldb_writebatch_put(other, "", 0, "", 0);
    leveldb_writebatch_append(one, other);
    leveldb_writebatch_append(other, other);
    leveldb_writebatch_iterate(one, noted, note_put, note_delete);
    CHECK(strcmp(noted, "put box c;delete bar;put bar b;put  ;") == 0);
    leveldb_write(db, writes, one, &error);
    fine();
    CHECK(is(db, "box", "c") && is(db, "bar", "b") && is(db, "", ""));
    leveldb_writebatch_destroy(one);
    leveldb_writebatch_destroy(other);
    leveldb_delete(db, writes, "", 0, &error);
    fine();
}

static void snapshots(leveldb_t *db) {
    const leveldb_snapshot_t *snapshot = leveldb_create_snapshot(db);
    leveldb_delete(db, writes, "box", 3, &error);
    fine();
    leveldb_readoptions_set_snapshot(reads, snapshot);
    CHECK(is(db, "box", "c"));
    shows(db, "bar=b,box=c,foo=hello,");
    leveldb_readoptions_set_snapshot(reads, NULL);
    CHECK(is(db, "box", NULL));
    shows(db, "bar=b,foo=hello,");
    leveldb_release_snapshot(db, snapshot);
}

static void iterators(leveldb_t *db) {
    char shown[64] = "";
    walk(db, false, shown);
    CHECK(strcmp(shown, "foo=hello,bar=b,") == 0);
    leveldb_iterator_t *iterator = leveldb_create_iterator(db, reads);
    put(db, "bat", "later");
    leveldb_iter_seek(iterator, "bas", 3);
    size_t size;
    CHECK(leveldb_iter_valid(iterator));
    CHECK(memcmp(leveldb_iter_key(iterator, &size), "foo", 3) == 0 && size == 3);
    leveldb_iter_prev(iterator);
    leveldb_iter_prev(iterator);
    CHECK(!leveldb_iter_valid(iterator) && leveldb_iter_key(iterator, &size) == NULL && size == 0);
    leveldb_iter_destroy(iterator);
    /* LevelDB does not define this case. */
    leveldb_iter_next(iterator);
    CHECK(!leveldb_iter_valid(iterator));
    leveldb_iter_get_error(iterator, &error);
    refused("closed");
    leveldb_delete(db, writes, "bat", 3, &error);
    fine();
}

static void sizes_and_properties(leveldb_t *db) {
    for (int at = 0; at < 20000; at++) {
        char key[32], value[100];
        snprintf(key, sizeof key, "k%020d", at);
        snprintf(value, sizeof value, "%099d", at * 7919);
        leveldb_put(db, writes, key, strlen(key), value, sizeof value, &error);
        fine();
    }
    const char *starts[2] = {"a", "k00000000000000010000"};
    const char *ends[2] = {"c", "k00000000000000020000"};
    size_t start_sizes[2] = {1, 21}, end_sizes[2] = {1, 21};
    uint64_t sizes[2];
    leveldb_compact_range(db, NULL, 0, NULL, 0);
    leveldb_approximate_sizes(db, 2, starts, start_sizes, ends, end_sizes, sizes);
    CHECK(sizes[0] < 10000 && sizes[1] > 20000);
    leveldb_compact_range(db, "k", 1, "l", 1);
    CHECK(leveldb_property_value(db, "nosuchprop") == NULL);
    const char *names[] = {"leveldb.stats", "leveldb.sstables", "leveldb.num-files-at-level0",
                           "leveldb.approximate-memory-usage"};
    for (int at = 0; at < 4; at++) {
        char *value = leveldb_property_value(db, names[at]);
        CHECK(value != NULL && strlen(value) > 0);
        leveldb_free(value);
    }
    /* Programs read level after level until there is none. There once was always another level. */
    CHECK(leveldb_property_value(db, "leveldb.num-files-at-level+1") == NULL);
    int levels = 0, tables = 0;
    for (char asked[64], *value;; levels++) {
        snprintf(asked, sizeof asked, "leveldb.num-files-at-level%d", levels);
        if ((value = leveldb_property_value(db, asked)) == NULL) break;
        tables += atoi(value);
        leveldb_free(value);
        CHECK(levels < 1000);
    }
    CHECK(levels >= 7 && tables > 0);
}

static int ended = 0;

static void end(void *state) {
    ended += *(int *)state;
}

static const char *name(void *state) {
    (void)state;
    return "mine";
}

static char *no_filter(void *state, const char *const *keys, const size_t *sizes, int count,
                       size_t *size) {
    (void)state, (void)keys, (void)sizes, (void)count;
    *size = 0;
    return NULL;
}

static uint8_t may_match(void *state, const char *key, size_t size, const char *filter, size_t of) {
    (void)state, (void)key, (void)size, (void)filter, (void)of;
    return 1;
}

/* A program's own filter policy is accepted, and released with the program's function. */
static void filter_policies(leveldb_options_t *options) {
    int one = 1;
    leveldb_filterpolicy_t *filter =
        leveldb_filterpolicy_create(&one, end, no_filter, may_match, name);
    leveldb_options_set_filter_policy(options, filter);
    leveldb_filterpolicy_destroy(filter);
    CHECK(ended == 1);
}

/* Tries sizes that no value can have. A batch cannot refuse a write, so writing the batch fails. */
static void huge_sizes(leveldb_t *db) {
    const size_t sizes[] = {(size_t)1 << 32, SIZE_MAX / 2 + 1, SIZE_MAX};
    leveldb_writebatch_t *batch = leveldb_writebatch_create();
    leveldb_writebatch_t *other = leveldb_writebatch_create();
    for (int at = 0; at < 3; at++) {
        size_t size;
        leveldb_put(db, writes, "k", sizes[at], "v", 1, &error);
        refused("bytes");
        leveldb_put(db, writes, "k", 1, "v", sizes[at], &error);
        refused("bytes");
        CHECK(leveldb_get(db, reads, "k", sizes[at], &size, &error) == NULL);
        refused("bytes");
        leveldb_writebatch_put(batch, "k", 1, "v", sizes[at]);
        leveldb_writebatch_append(other, batch);
        leveldb_write(db, writes, batch, &error);
        refused("bytes");
        leveldb_write(db, writes, other, &error);
        refused("bytes");
        leveldb_writebatch_clear(batch);
        leveldb_writebatch_clear(other);
        leveldb_write(db, writes, batch, &error);
        fine();
    }
    leveldb_writebatch_destroy(batch);
    leveldb_writebatch_destroy(other);
}

static void opening(const char *path, leveldb_options_t *options) {
    leveldb_options_set_create_if_missing(options, 0);
    CHECK(leveldb_open(options, path, &error) == NULL);
    refused("does not exist");
    leveldb_options_set_create_if_missing(options, 1);
    leveldb_t *db = leveldb_open(options, path, &error);
    fine();
    CHECK(leveldb_open(options, path, &error) == NULL);
    refused("in use");
    leveldb_destroy_db(options, path, &error);
    refused("in use");
    leveldb_close(db);
    leveldb_options_set_error_if_exists(options, 1);
    CHECK(leveldb_open(options, path, &error) == NULL);
    refused("exists");
    leveldb_options_set_error_if_exists(options, 0);
    /* Uses the database after its close, which LevelDB does not define. */
    leveldb_put(db, writes, "k", 1, "v", 1, &error);
    refused("closed");
    leveldb_close(db);
    /* A database of LevelDB itself. */
    char place[512], file[600];
    snprintf(place, sizeof place, "%s.theirs", path);
    snprintf(file, sizeof file, "%s/CURRENT", place);
    mkdir(place, 0777);
    FILE *current = fopen(file, "w");
    fputs("MANIFEST-000002\n", current);
    fclose(current);
    CHECK(leveldb_open(options, place, &error) == NULL);
    refused("runstone import");
    leveldb_destroy_db(options, place, &error);
    refused("runstone import");
    CHECK(access(file, F_OK) == 0);
    remove(file);
    remove(place);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    CHECK(leveldb_major_version() == 1 && leveldb_minor_version() == 23);
    leveldb_env_t *env = leveldb_create_default_env();
    char *directory = leveldb_env_get_test_directory(env);
    CHECK(directory != NULL && access(directory, W_OK) == 0);
    leveldb_free(directory);
    leveldb_cache_t *cache = leveldb_cache_create_lru(1 << 20);
    leveldb_filterpolicy_t *bloom = leveldb_filterpolicy_create_bloom(10);
    leveldb_options_t *options = leveldb_options_create();
    leveldb_options_set_env(options, env);
    leveldb_options_set_info_log(options, NULL);
    leveldb_options_set_cache(options, cache);
    leveldb_options_set_filter_policy(options, bloom);
    leveldb_options_set_write_buffer_size(options, 100000);
    leveldb_options_set_paranoid_checks(options, 1);
    leveldb_options_set_max_open_files(options, 10);
    leveldb_options_set_block_size(options, 1024);
    leveldb_options_set_block_restart_interval(options, 8);
    leveldb_options_set_max_file_size(options, 3 << 20);
    leveldb_options_set_compression(options, leveldb_no_compression);
    leveldb_options_set_compression(options, leveldb_snappy_compression);
    reads = leveldb_readoptions_create();
    leveldb_readoptions_set_verify_checksums(reads, 1);
    leveldb_readoptions_set_fill_cache(reads, 0);
    writes = leveldb_writeoptions_create();
    leveldb_writeoptions_set_sync(writes, 1);
    leveldb_destroy_db(options, argv[1], &error);
    fine();
    opening(argv[1], options);
    leveldb_writeoptions_set_sync(writes, 0);

    leveldb_t *db = leveldb_open(options, argv[1], &error);
    fine();
    CHECK(is(db, "foo", NULL));
    put(db, "foo", "hello");
    CHECK(is(db, "foo", "hello"));
    batches(db);
    shows(db, "bar=b,box=c,foo=hello,");
    snapshots(db);
    iterators(db);
    sizes_and_properties(db);
    huge_sizes(db);
    leveldb_close(db);
    filter_policies(options);
    leveldb_repair_db(options, argv[1], &error);
    fine();
    db = leveldb_open(options, argv[1], &error);
    fine();
    CHECK(is(db, "foo", "hello") && is(db, "bar", "b") && is(db, "box", NULL));
    leveldb_close(db);
    leveldb_destroy_db(options, argv[1], &error);
    fine();
    CHECK(access(argv[1], F_OK) != 0);
    leveldb_options_destroy(options);
    leveldb_readoptions_destroy(reads);
    leveldb_writeoptions_destroy(writes);
    leveldb_cache_destroy(cache);
    leveldb_filterpolicy_destroy(bloom);
    leveldb_env_destroy(env);
    puts("leveldb: ok");
    return 0;
}
