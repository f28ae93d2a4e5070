/* Tests changes of a store for other systems: in order and exactly once; a gap, and the state after
 * it; mirrors; followers that share resources, and the reports of their writer. */

#include <runstone.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static char store_path[512];

static const char *place(const char *name) {
    static char path[8][640];
    static int turn;
    turn = (turn + 1) % 8;
    snprintf(path[turn], sizeof path[turn], "%s.%s", store_path, name);
    return path[turn];
}

static void gone(const char *path) {
    WORKS(runstone_destroy(path));
    rmdir(path);
}

static void put(runstone_store *store, const char *key, const char *value) {
    runstone_keyspace *keyspace;
    WORKS(runstone_default_keyspace(store, &keyspace));
    WORKS(runstone_put(keyspace, key, strlen(key), value, strlen(value), 0));
    WORKS(runstone_keyspace_close(keyspace));
}

static bool shows(runstone_store *store, const char *key, const char *value) {
    runstone_keyspace *keyspace;
    runstone_bytes found;
    WORKS(runstone_default_keyspace(store, &keyspace));
    WORKS(runstone_get(keyspace, NULL, key, strlen(key), &found));
    bool same = value == NULL ? found.data == NULL
                              : found.size == strlen(value) &&
                                    memcmp(found.data, value, found.size) == 0;
    runstone_bytes_free(&found);
    WORKS(runstone_keyspace_close(keyspace));
    return same;
}

static bool is(const void *bytes, size_t size, const char *text) {
    return bytes != NULL && size == strlen(text) && memcmp(bytes, text, size) == 0;
}

/* The next change, without notes of the time. */
static runstone_change next(runstone_changes *changes) {
    runstone_change change;
    do WORKS(runstone_changes_next(changes, 0, &change));
    while (change.kind == RUNSTONE_CHANGE_TIME && change.time_ms > 0);
    return change;
}

/* As next(), but skips the list of keyspaces that an open after a crash writes. */
static runstone_change behind_a_crash(runstone_changes *changes) {
    runstone_change change = next(changes);
    return change.kind == RUNSTONE_CHANGE_KEYSPACES ? next(changes) : change;
}

static runstone_change_write write_of(runstone_changes *changes) {
    runstone_change_write write;
    WORKS(runstone_changes_next_write(changes, &write));
    return write;
}

static runstone_changes *behind(const char *path, runstone_position after, bool state) {
    runstone_changes_options options = {
        .from = RUNSTONE_FROM_POSITION, .after = after, .state = state};
    runstone_changes *changes;
    WORKS(runstone_changes_open(path, &options, &changes));
    return changes;
}

/* Writes a batch of each kind of write, and checks what the reader returns. */
static void a_batch(runstone_store *store, runstone_keyspace *keyspace, runstone_keyspace *apart,
                    runstone_changes *changes) {
    runstone_batch *batch;
    WORKS(runstone_batch_create(&batch));
    WORKS(runstone_batch_put(batch, keyspace, "k", 1, "v", 1));
    WORKS(runstone_batch_put(batch, keyspace, "empty", 5, NULL, 0));
    WORKS(runstone_batch_delete(batch, keyspace, "gone", 4));
    WORKS(runstone_batch_merge(batch, apart, "m", 1, "\1\0\0\0\0\0\0\0", 8));
    WORKS(runstone_batch_delete_range(batch, apart, "a", 1, "b", 1));
    WORKS(runstone_batch_delete_range(batch, keyspace, "x", 1, NULL, 0));
    WORKS(runstone_batch_put_with_ttl(batch, keyspace, "soon", 4, "v", 1, 3600000));
    WORKS(runstone_write(store, batch, RUNSTONE_AS_OPENED));
    WORKS(runstone_batch_close(batch));
    CHECK(next(changes).kind == RUNSTONE_CHANGE_WRITES);
    runstone_change_write write = write_of(changes);
    CHECK(write.kind == RUNSTONE_WRITE_PUT && strcmp(write.keyspace, "default") == 0);
    CHECK(is(write.key, write.key_size, "k") && is(write.value, write.value_size, "v"));
    CHECK(write.expires_ms == 0);
    write = write_of(changes);
    CHECK(is(write.key, write.key_size, "empty") && is(write.value, write.value_size, ""));
    write = write_of(changes);
    CHECK(write.kind == RUNSTONE_WRITE_DELETE && is(write.key, write.key_size, "gone"));
    CHECK(write.value == NULL);
    write = write_of(changes);
    CHECK(write.kind == RUNSTONE_WRITE_MERGE && strcmp(write.keyspace, "apart") == 0);
    CHECK(write.value_size == 8 && *(const char *)write.value == 1);
    write = write_of(changes);
    CHECK(write.kind == RUNSTONE_WRITE_DELETE_RANGE && is(write.key, write.key_size, "a"));
    CHECK(is(write.value, write.value_size, "b"));
    write = write_of(changes);
    CHECK(write.kind == RUNSTONE_WRITE_DELETE_RANGE && write.value == NULL);
    CHECK(strcmp(write.keyspace, "default") == 0);
    write = write_of(changes);
    CHECK(is(write.key, write.key_size, "soon") && write.expires_ms > 1600000000000);
    CHECK(write_of(changes).kind == RUNSTONE_WRITE_NONE);
    CHECK(write_of(changes).key == NULL);
}

static bool tells(runstone_changes *changes, const char *part) {
    runstone_bytes keyspaces;
    WORKS(runstone_changes_keyspaces(changes, &keyspaces));
    bool found = strstr(keyspaces.data, part) != NULL;
    runstone_bytes_free(&keyspaces);
    return found;
}

static void all_kinds(void) {
    runstone_store *store;
    runstone_keyspace *keyspace, *apart;
    runstone_changes *changes;
    runstone_position position, made;
    WORKS(runstone_open(store_path, NULL, &store));
    WORKS(runstone_default_keyspace(store, &keyspace));
    put(store, "before", "");
    runstone_changes_options now = {.from = RUNSTONE_FROM_NOW, .unsynced = true};
    WORKS(runstone_changes_open(store_path, &now, &changes));
    CHECK(next(changes).kind == RUNSTONE_CHANGE_NONE);
    CHECK(write_of(changes).kind == RUNSTONE_WRITE_NONE && tells(changes, "[]"));
    WORKS(runstone_open_keyspace(store, "apart", "merge_operator = 'add-i64'", &apart));
    CHECK(next(changes).kind == RUNSTONE_CHANGE_KEYSPACE);
    CHECK(tells(changes, "\"name\":\"apart\"") && tells(changes, "add-i64"));
    CHECK(write_of(changes).kind == RUNSTONE_WRITE_NONE);
    WORKS(runstone_changes_position(changes, &made));
    a_batch(store, keyspace, apart, changes);
    WORKS(runstone_changes_position(changes, &position));
    CHECK(position.history == made.history && position.seq > made.seq);
    WORKS(runstone_keyspace_close(apart));
    WORKS(runstone_drop_keyspace(store, "apart"));
    CHECK(next(changes).kind == RUNSTONE_CHANGE_DROPPED && tells(changes, "apart"));
    CHECK(next(changes).kind == RUNSTONE_CHANGE_NONE && tells(changes, "[]"));
    WORKS(runstone_changes_close(changes));
    /* Reads from the beginning and from a position in the middle. */
    WORKS(runstone_changes_open(store_path, NULL, &changes));
    runstone_change change;
    do change = next(changes);
    while (change.kind != RUNSTONE_CHANGE_WRITES);
    runstone_change_write first = write_of(changes);
    CHECK(is(first.key, first.key_size, "before"));
    WORKS(runstone_changes_close(changes));
    changes = behind(store_path, position, false);
    CHECK(next(changes).kind == RUNSTONE_CHANGE_DROPPED);
    CHECK(next(changes).kind == RUNSTONE_CHANGE_NONE);
    WORKS(runstone_changes_close(changes));
    WORKS(runstone_keyspace_close(keyspace));
    WORKS(runstone_close(store));
}

/* A load of some megabytes is read in pieces. A reader that moves on in the middle skips the
 * rest. */
static void a_load(void) {
    runstone_store *store;
    runstone_keyspace *keyspace;
    runstone_sorted_writer *writer;
    runstone_changes *changes;
    char key[16];
    static char value[1000];
    uint64_t count = 0;
    const char *path = place("sorted"), *files[] = {path};
    WORKS(runstone_open(store_path, NULL, &store));
    WORKS(runstone_default_keyspace(store, &keyspace));
    WORKS(runstone_sorted_writer_create(path, NULL, &writer));
    for (int at = 0; at < 5000; at++) {
        snprintf(key, sizeof key, "l%06d", at);
        WORKS(runstone_sorted_writer_put(writer, key, 7, value, sizeof value));
    }
    WORKS(runstone_sorted_writer_finish(writer, &count));
    WORKS(runstone_sorted_writer_close(writer));
    runstone_changes_options now = {.from = RUNSTONE_FROM_NOW};
    WORKS(runstone_changes_open(store_path, &now, &changes));
    WORKS(runstone_ingest(keyspace, 1, files, &count));
    put(store, "after", "");
    CHECK(behind_a_crash(changes).kind == RUNSTONE_CHANGE_LOADED && tells(changes, "default"));
    runstone_position before;
    runstone_change_write write;
    for (int at = 0; at < 5000; at++) {
        snprintf(key, sizeof key, "l%06d", at);
        write = write_of(changes);
        CHECK(is(write.key, write.key_size, key) && write.value_size == sizeof value);
    }
    CHECK(write_of(changes).kind == RUNSTONE_WRITE_NONE);
    CHECK(next(changes).kind == RUNSTONE_CHANGE_WRITES);
    WORKS(runstone_changes_position(changes, &before));
    WORKS(runstone_changes_close(changes));
    runstone_position earlier = {.seq = before.seq - 2, .history = before.history};
    changes = behind(store_path, earlier, false);
    CHECK(behind_a_crash(changes).kind == RUNSTONE_CHANGE_LOADED);
    CHECK(write_of(changes).kind == RUNSTONE_WRITE_PUT);
    CHECK(next(changes).kind == RUNSTONE_CHANGE_WRITES);
    write = write_of(changes);
    CHECK(is(write.key, write.key_size, "after"));
    WORKS(runstone_changes_close(changes));
    remove(path);
    WORKS(runstone_keyspace_close(keyspace));
    WORKS(runstone_close(store));
}

/* Counts each put once, however often it is interrupted, because the position is stored with the
 * count. */
static void count_more(runstone_store *counts, int most) {
    runstone_keyspace *keyspace;
    runstone_changes *changes;
    runstone_change_write write;
    runstone_position after;
    size_t size;
    WORKS(runstone_default_keyspace(counts, &keyspace));
    WORKS(runstone_get_into(keyspace, NULL, "after", 5, &after, sizeof after, &size));
    if (size == RUNSTONE_ABSENT) WORKS(runstone_changes_open(store_path, NULL, &changes));
    else changes = behind(store_path, after, false);
    for (runstone_change change = next(changes); change.kind != RUNSTONE_CHANGE_NONE && most-- > 0;
         change = next(changes)) {
        runstone_batch *batch;
        WORKS(runstone_batch_create(&batch));
        while ((write = write_of(changes)).kind != RUNSTONE_WRITE_NONE)
            WORKS(runstone_batch_merge(batch, keyspace, write.key, write.key_size,
                                       "\1\0\0\0\0\0\0\0", 8));
        WORKS(runstone_batch_delete(batch, keyspace, "after", 5));
        WORKS(runstone_batch_put(batch, keyspace, "after", 5, &change.position,
                                 sizeof change.position));
        WORKS(runstone_write(counts, batch, RUNSTONE_AS_OPENED));
        WORKS(runstone_batch_close(batch));
    }
    WORKS(runstone_changes_close(changes));
    WORKS(runstone_keyspace_close(keyspace));
}

static void exactly_once(void) {
    runstone_store *store, *counts;
    runstone_options *options;
    runstone_keyspace *keyspace;
    WORKS(runstone_open(store_path, NULL, &store));
    WORKS(runstone_options_create("[keyspace]\nmerge_operator = 'add-i64'", &options));
    WORKS(runstone_open(place("counts"), options, &counts));
    WORKS(runstone_options_close(options));
    for (int at = 0; at < 20; at++) {
        put(store, at % 2 == 0 ? "even" : "odd", "x");
        count_more(counts, at % 3);
    }
    count_more(counts, 1000);
    WORKS(runstone_default_keyspace(counts, &keyspace));
    int64_t even = 0, odd = 0;
    size_t size;
    WORKS(runstone_get_into(keyspace, NULL, "even", 4, &even, sizeof even, &size));
    WORKS(runstone_get_into(keyspace, NULL, "odd", 3, &odd, sizeof odd, &size));
    CHECK(even == 10 && odd == 10);
    WORKS(runstone_keyspace_close(keyspace));
    WORKS(runstone_close(counts));
    WORKS(runstone_close(store));
    gone(place("counts"));
}

/* Appends operands to each other. */
static bool joins(void *context, runstone_slice key, runstone_slice base,
                  const runstone_slice *operands, size_t count, runstone_output *output) {
    char joined[64];
    size_t size = 0;
    (void)context, (void)key;
    if (base.data != NULL) memcpy(joined, base.data, size = base.size);
    for (size_t at = 0; at < count; at++) {
        memcpy(joined + size, operands[at].data, operands[at].size);
        size += operands[at].size;
    }
    runstone_output_set(output, joined, size);
    return true;
}

/* The log is gone, and nothing replaces it silently. */
static void a_gap(void) {
    runstone_store *store;
    runstone_changes *changes;
    runstone_position after;
    WORKS(runstone_open(store_path, NULL, &store));
    put(store, "old", "1");
    put(store, "deleted", "1");
    runstone_changes_options now = {.from = RUNSTONE_FROM_NOW};
    WORKS(runstone_changes_open(store_path, &now, &changes));
    WORKS(runstone_changes_position(changes, &after));
    WORKS(runstone_changes_close(changes));
    put(store, "new", "1");
    put(store, "new", "2");
    WORKS(runstone_flush(store));
    WORKS(runstone_close(store));
    WORKS(runstone_open(store_path, NULL, &store));
    put(store, "late", "3");
    runstone_changes_options options = {.from = RUNSTONE_FROM_POSITION, .after = after};
    REFUSED(RUNSTONE_HISTORY_GONE, "begin", runstone_changes_open(store_path, &options, &changes));
    changes = behind(store_path, after, true);
    runstone_change change = next(changes);
    CHECK(change.kind == RUNSTONE_CHANGE_GAP && change.gap_after == after.seq);
    CHECK(change.gap_through > after.seq && change.position.seq == after.seq);
    CHECK(next(changes).kind == RUNSTONE_CHANGE_KEYSPACES && tells(changes, "default"));
    CHECK(next(changes).kind == RUNSTONE_CHANGE_STATE);
    runstone_change_write write = write_of(changes);
    CHECK(write.kind == RUNSTONE_WRITE_PUT && is(write.key, write.key_size, "late"));
    write = write_of(changes);
    CHECK(is(write.key, write.key_size, "new") && is(write.value, write.value_size, "2"));
    CHECK(write_of(changes).kind == RUNSTONE_WRITE_NONE);
    change = next(changes);
    CHECK(change.kind == RUNSTONE_CHANGE_GAP_END && change.position.seq > after.seq);
    put(store, "last", "4");
    CHECK(next(changes).kind == RUNSTONE_CHANGE_WRITES);
    WORKS(runstone_changes_close(changes));
    /* A position that the store never had: it is from a history that the store lost, or from
     * another store. */
    options.after.history ^= 1;
    options.state = true;
    WORKS(runstone_changes_open(store_path, &options, &changes));
    change = next(changes);
    CHECK(change.kind == RUNSTONE_CHANGE_GAP && change.gap_after == 0);
    WORKS(runstone_changes_close(changes));
    WORKS(runstone_close(store));
}

/* If the state contains operands, reading it needs the operator that folds them. */
static void a_gap_of_operands(void) {
    runstone_store *store;
    runstone_options *options, *none;
    runstone_keyspace *keyspace;
    runstone_changes *changes;
    runstone_change_write write;
    const char *path = place("merged");
    WORKS(runstone_options_create("[keyspace]\nmerge_operator = 'joins'", &options));
    WORKS(runstone_options_add_merge_operator(options, "joins", joins, NULL, NULL));
    WORKS(runstone_open(path, options, &store));
    runstone_changes_options reading = {.from = RUNSTONE_FROM_NOW};
    WORKS(runstone_changes_open(path, &reading, &changes));
    WORKS(runstone_changes_position(changes, &reading.after));
    WORKS(runstone_changes_close(changes));
    WORKS(runstone_default_keyspace(store, &keyspace));
    for (int at = 0; at < 3; at++) {
        WORKS(runstone_merge(keyspace, "m", 1, "x", 1, 0));
        WORKS(runstone_flush(store));
    }
    WORKS(runstone_keyspace_close(keyspace));
    WORKS(runstone_close(store));
    reading.from = RUNSTONE_FROM_POSITION;
    reading.state = true;
    reading.state_options = options;
    WORKS(runstone_changes_open(path, &reading, &changes));
    while (next(changes).kind != RUNSTONE_CHANGE_STATE) continue;
    write = write_of(changes);
    CHECK(write.kind == RUNSTONE_WRITE_PUT && is(write.value, write.value_size, "xxx"));
    WORKS(runstone_changes_close(changes));
    WORKS(runstone_options_create("", &none));
    reading.state_options = none;
    runstone_status status = runstone_changes_open(path, &reading, &changes);
    runstone_change change = {.kind = RUNSTONE_CHANGE_TIME};
    while (status == RUNSTONE_OK && change.kind != RUNSTONE_CHANGE_NONE)
        status = runstone_changes_next(changes, 0, &change);
    CHECK(status == RUNSTONE_INVALID_ARGUMENT || status == RUNSTONE_MERGE_FAILED);
    CHECK(strstr(runstone_last_message(), "joins") != NULL);
    runstone_changes_close(changes);
    reading.state = false;
    REFUSED(RUNSTONE_INVALID_ARGUMENT, "state", runstone_changes_open(path, &reading, &changes));
    WORKS(runstone_options_close(none));
    WORKS(runstone_options_close(options));
    gone(path);
}

/* A get stores the value that it made of many operands. A reader can distinguish this put from
 * those of programs. */
static void a_folded_put(void) {
    enum { OPERANDS = 100 };
    runstone_store *store;
    runstone_options *options;
    runstone_keyspace *keyspace;
    runstone_changes *changes;
    runstone_bytes value;
    const char *path = place("folded");
    WORKS(runstone_options_create("[keyspace]\nmerge_operator = 'add-i64'", &options));
    WORKS(runstone_open(path, options, &store));
    WORKS(runstone_changes_open(path, NULL, &changes));
    WORKS(runstone_default_keyspace(store, &keyspace));
    for (int at = 0; at < OPERANDS; at++)
        WORKS(runstone_merge(keyspace, "m", 1, "\1\0\0\0\0\0\0\0", 8, 0));
    WORKS(runstone_get(keyspace, NULL, "m", 1, &value));
    CHECK(value.size == 8 && *(const char *)value.data == OPERANDS);
    runstone_bytes_free(&value);
    for (int at = 0; at <= OPERANDS; at++) {
        CHECK(next(changes).kind == RUNSTONE_CHANGE_WRITES);
        runstone_change_write write = write_of(changes);
        CHECK(write.is_folded == (at == OPERANDS));
        CHECK((write.kind == RUNSTONE_WRITE_PUT) == (at == OPERANDS));
    }
    CHECK(next(changes).kind == RUNSTONE_CHANGE_NONE);
    WORKS(runstone_changes_close(changes));
    WORKS(runstone_keyspace_close(keyspace));
    WORKS(runstone_close(store));
    WORKS(runstone_options_close(options));
    gone(path);
}

/* If the next change could not be read, the rest of the previous change was once gone: there seemed
 * to be no further writes, so a program considered the change complete. */
static void an_error_in_the_middle(void) {
    runstone_store *store;
    runstone_keyspace *keyspace;
    runstone_batch *batch;
    runstone_changes *changes;
    runstone_change change;
    const char *path = place("middle");
    WORKS(runstone_open(path, NULL, &store));
    WORKS(runstone_default_keyspace(store, &keyspace));
    WORKS(runstone_changes_open(path, NULL, &changes));
    WORKS(runstone_batch_create(&batch));
    WORKS(runstone_batch_put(batch, keyspace, "a", 1, "1", 1));
    WORKS(runstone_batch_put(batch, keyspace, "b", 1, "2", 1));
    WORKS(runstone_write(store, batch, RUNSTONE_SYNC));
    CHECK(next(changes).kind == RUNSTONE_CHANGE_WRITES);
    runstone_change_write write = write_of(changes);
    CHECK(is(write.key, write.key_size, "a"));
    WORKS(runstone_batch_close(batch));
    WORKS(runstone_keyspace_close(keyspace));
    WORKS(runstone_close(store));
    gone(path);
    CHECK(runstone_changes_next(changes, 0, &change) != RUNSTONE_OK);
    write = write_of(changes);
    CHECK(write.kind == RUNSTONE_WRITE_PUT && is(write.key, write.key_size, "b"));
    CHECK(write_of(changes).kind == RUNSTONE_WRITE_NONE);
    WORKS(runstone_changes_close(changes));
}

/* The log begins after a flush, so a caller without data begins with the state. */
static void everything(void) {
    runstone_store *store;
    runstone_changes *changes;
    const char *path = place("everything");
    WORKS(runstone_open(path, NULL, &store));
    put(store, "flushed", "1");
    WORKS(runstone_flush(store));
    runstone_changes_options options = {.from = RUNSTONE_FROM_EVERYTHING};
    for (int round = 0; round < 2; round++) {
        WORKS(runstone_changes_open(path, &options, &changes));
        runstone_change change = next(changes);
        CHECK(change.kind == RUNSTONE_CHANGE_GAP && change.gap_after == 0);
        CHECK(next(changes).kind == RUNSTONE_CHANGE_KEYSPACES);
        change = next(changes);
        CHECK(change.kind == RUNSTONE_CHANGE_STATE);
        runstone_change_write write = write_of(changes);
        CHECK(is(write.key, write.key_size, "flushed") && is(write.value, write.value_size, "1"));
        CHECK(next(changes).kind == RUNSTONE_CHANGE_GAP_END);
        WORKS(runstone_changes_close(changes));
        /* Reading from a position inside the state returns the whole state again. */
        options = (runstone_changes_options){
            .from = RUNSTONE_FROM_POSITION, .after = change.position};
    }
    WORKS(runstone_close(store));
    gone(path);
}

static void wrong_calls(void) {
    runstone_changes *changes;
    runstone_mirror *mirror;
    runstone_change change;
    runstone_change_write write;
    runstone_position position;
    runstone_bytes bytes;
    runstone_changes_options options = {.from = 7};
    REFUSED(RUNSTONE_INVALID_ARGUMENT, "runstone_changes_from",
            runstone_changes_open(store_path, &options, &changes));
    options = (runstone_changes_options){.from = RUNSTONE_FROM_NOW, .state = true};
    REFUSED(RUNSTONE_INVALID_ARGUMENT, "position",
            runstone_changes_open(store_path, &options, &changes));
    REFUSED(RUNSTONE_NOT_A_STORE, "nowhere",
            runstone_changes_open(place("nowhere"), NULL, &changes));
    REFUSED(RUNSTONE_INVALID_ARGUMENT, "path", runstone_changes_open(NULL, NULL, &changes));
    REFUSED(RUNSTONE_INVALID_ARGUMENT, "null", runstone_changes_open(store_path, NULL, NULL));
    WORKS(runstone_changes_open(store_path, NULL, &changes));
    REFUSED(RUNSTONE_INVALID_ARGUMENT, "change is null", runstone_changes_next(changes, 0, NULL));
    REFUSED(RUNSTONE_INVALID_ARGUMENT, "write is null", runstone_changes_next_write(changes, NULL));
    REFUSED(RUNSTONE_CLOSED, "mirror", runstone_mirror_advance((runstone_mirror *)changes, 0, NULL));
    WORKS(runstone_changes_close(changes));
    REFUSED(RUNSTONE_CLOSED, "closed", runstone_changes_next(changes, 0, &change));
    REFUSED(RUNSTONE_CLOSED, "closed", runstone_changes_next_write(changes, &write));
    REFUSED(RUNSTONE_CLOSED, "closed", runstone_changes_keyspaces(changes, &bytes));
    REFUSED(RUNSTONE_CLOSED, "closed", runstone_changes_position(changes, &position));
    REFUSED(RUNSTONE_CLOSED, "closed", runstone_changes_close(changes));
    WORKS(runstone_changes_close(NULL));
    WORKS(runstone_mirror_close(NULL));
    /* Neither the store itself nor another store can become its mirror. */
    runstone_store *store;
    WORKS(runstone_open(place("other"), NULL, &store));
    WORKS(runstone_close(store));
    REFUSED(RUNSTONE_INVALID_ARGUMENT, "no mirror",
            runstone_mirror_open(store_path, place("other"), NULL, &mirror));
    REFUSED(RUNSTONE_NOT_A_STORE, "nowhere",
            runstone_mirror_open(place("nowhere"), place("mirror"), NULL, &mirror));
    gone(place("other"));
    rmdir(place("mirror"));
}

static void mirrors(void) {
    runstone_store *store, *shown;
    runstone_mirror *mirror, *second;
    runstone_mirroring done;
    runstone_position position;
    static char large[1 << 20];
    WORKS(runstone_open(store_path, NULL, &store));
    put(store, "m", "one");
    WORKS(runstone_mirror_open(store_path, place("mirror"), NULL, &mirror));
    REFUSED(RUNSTONE_IN_USE, "in use",
            runstone_mirror_open(store_path, place("mirror"), NULL, &second));
    WORKS(runstone_follow(place("mirror"), NULL, &shown));
    CHECK(shows(shown, "m", "one"));
    put(store, "m", "two");
    WORKS(runstone_mirror_advance(mirror, 10000, &done));
    CHECK(done.changes >= 1 && done.is_drained);
    WORKS(runstone_refresh(shown, NULL));
    CHECK(shows(shown, "m", "two"));
    /* A round ends before it has applied everything that a busy writer wrote. */
    runstone_keyspace *keyspace;
    WORKS(runstone_default_keyspace(store, &keyspace));
    for (int at = 0; at < 40; at++)
        WORKS(runstone_put(keyspace, "large", 5, large, sizeof large, 0));
    put(store, "m", "three");
    WORKS(runstone_mirror_advance(mirror, 0, &done));
    CHECK(!done.is_drained && done.changes >= 16 && done.changes < 40 && done.bytes > 16000000);
    do WORKS(runstone_mirror_advance(mirror, 0, &done));
    while (!done.is_drained);
    WORKS(runstone_refresh(shown, NULL));
    CHECK(shows(shown, "m", "three"));
    WORKS(runstone_close(shown));
    WORKS(runstone_mirror_position(mirror, &position));
    CHECK(position.seq > 40);
    WORKS(runstone_mirror_close(mirror));
    REFUSED(RUNSTONE_CLOSED, "closed", runstone_mirror_advance(mirror, 0, &done));
    REFUSED(RUNSTONE_CLOSED, "closed", runstone_mirror_position(mirror, &position));
    REFUSED(RUNSTONE_CLOSED, "closed", runstone_mirror_close(mirror));
    /* Another mirror object continues with the directory. */
    put(store, "m", "four");
    WORKS(runstone_mirror_open(store_path, place("mirror"), NULL, &mirror));
    WORKS(runstone_mirror_advance(mirror, 0, NULL));
    WORKS(runstone_mirror_close(mirror));
    WORKS(runstone_open(place("mirror"), NULL, &shown));
    CHECK(shows(shown, "m", "four"));
    WORKS(runstone_close(shown));
    WORKS(runstone_keyspace_close(keyspace));
    WORKS(runstone_close(store));
    gone(place("mirror"));
}

/* A round of an archive also reports whether there is more. */
static void archives_say_whether_there_is_more(void) {
    runstone_store *store;
    runstone_keyspace *keyspace;
    runstone_backups *backups;
    runstone_archiver *archiver;
    runstone_archiving done;
    char command[800];
    static char large[1 << 20];
    WORKS(runstone_open(store_path, NULL, &store));
    WORKS(runstone_default_keyspace(store, &keyspace));
    WORKS(runstone_backups_open(place("backups"), true, &backups));
    WORKS(runstone_archiver_create(backups, store_path, &archiver));
    WORKS(runstone_archiver_advance(archiver, 0, &done));
    CHECK(done.is_drained && done.backup == 1);
    for (int at = 0; at < 40; at++)
        WORKS(runstone_put(keyspace, "large", 5, large, sizeof large, 0));
    WORKS(runstone_archiver_advance(archiver, 0, &done));
    CHECK(!done.is_drained && done.changes >= 16 && done.changes < 40);
    do WORKS(runstone_archiver_advance(archiver, 0, &done));
    while (!done.is_drained);
    WORKS(runstone_archiver_advance(archiver, 0, &done));
    /* The writer may have recorded the time since, which is also a change. */
    CHECK(done.is_drained && done.changes <= 1);
    WORKS(runstone_archiver_close(archiver));
    WORKS(runstone_backups_close(backups));
    snprintf(command, sizeof command, "rm -r %s", place("backups"));
    CHECK(system(command) == 0);
    WORKS(runstone_keyspace_close(keyspace));
    WORKS(runstone_close(store));
}

static uint64_t metric(const runstone_bytes *text, const char *name) {
    char line[128];
    snprintf(line, sizeof line, "\nrunstone_%s ", name);
    const char *at = text->data == NULL ? NULL : strstr(text->data, line);
    CHECK(at != NULL);
    return strtoull(at + strlen(line), NULL, 10);
}

/* Many followers share one budget, while another process writes and reports its measurements. */
static void followers_share(void) {
    int ready[2];
    char byte = 0;
    CHECK(pipe(ready) == 0);
    pid_t writer = fork();
    if (writer == 0) {
        runstone_store *store;
        WORKS(runstone_open(store_path, NULL, &store));
        for (int at = 0; at < 123; at++) put(store, "told", "x");
        CHECK(write(ready[1], &byte, 1) == 1);
        while (true) pause();
    }
    CHECK(read(ready[0], &byte, 1) == 1);
    runstone_resources *resources;
    runstone_options *options;
    runstone_store *stores[10];
    runstone_live_state state = {0};
    runstone_bytes metrics;
    WORKS(runstone_resources_create("memory_budget_bytes = '16M'\nbackground_threads = 1",
                                    &resources));
    WORKS(runstone_options_create("read_only = true", &options));
    WORKS(runstone_options_set_resources(options, resources));
    WORKS(runstone_resources_close(resources));
    for (int at = 0; at < 10; at++) {
        /* In both cases, the store is followed, because it is open elsewhere. */
        if (at % 2 == 0) WORKS(runstone_follow(store_path, options, &stores[at]));
        else WORKS(runstone_open(store_path, options, &stores[at]));
        CHECK(shows(stores[at], "told", "x"));
    }
    runstone_mirror *mirror;
    REFUSED(RUNSTONE_INVALID_ARGUMENT, "shared resources",
            runstone_mirror_open(store_path, place("mirror"), options, &mirror));
    WORKS(runstone_options_close(options));
    do WORKS(runstone_live(stores[0], &state, &metrics));
    while (metrics.data == NULL && usleep(10000) == 0);
    CHECK(state.process == (uint64_t)writer && state.is_current && state.age_ms < 10000);
    CHECK(metric(&metrics, "writes_total") == 123);
    runstone_bytes_free(&metrics);
    kill(writer, SIGKILL);
    waitpid(writer, NULL, 0);
    for (int at = 0; at < 10; at++) WORKS(runstone_close(stores[at]));
    REFUSED(RUNSTONE_CLOSED, "closed", runstone_live(stores[0], NULL, &metrics));
    /* There is no report, since the caller is the writer. */
    WORKS(runstone_open(store_path, NULL, &stores[0]));
    REFUSED(RUNSTONE_INVALID_ARGUMENT, "open for writing",
            runstone_live(stores[0], NULL, &metrics));
    WORKS(runstone_close(stores[0]));
    WORKS(runstone_follow(store_path, NULL, &stores[0]));
    WORKS(runstone_live(stores[0], NULL, &metrics));
    CHECK(metrics.data == NULL);
    WORKS(runstone_close(stores[0]));
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    snprintf(store_path, sizeof store_path, "%s", argv[1]);
    /* This must come first: in a fork, the threads of a store that was open before do not exist. */
    followers_share();
    all_kinds();
    a_load();
    exactly_once();
    a_gap();
    a_gap_of_operands();
    a_folded_put();
    an_error_in_the_middle();
    everything();
    wrong_calls();
    mirrors();
    archives_say_whether_there_is_more();
    gone(store_path);
    puts("changes: ok");
    return 0;
}
