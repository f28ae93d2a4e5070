/* Tests the events that the listener of a store receives. */

#include <dirent.h>
#include <stdatomic.h>
#include <unistd.h>

#include <runstone.h>

#include "check.h"

/* If the program hangs, its alarm ends it. */
enum { ENTRIES = 2000, SECONDS = 120 };

/* The events that a listener has received. */
struct heard {
    runstone_store *store;
    int flushed, lost, refused, ended;
    char json[4096];
};

static void hear(void *context, const char *kind, const char *json) {
    struct heard *heard = context;
    if (strcmp(kind, "log_end_lost") == 0) {
        heard->lost++;
        snprintf(heard->json, sizeof heard->json, "%s", json);
    }
    if (strcmp(kind, "flushed") == 0) {
        heard->flushed++;
        /* Calls that could wait for the job that reports the event. */
        heard->refused += runstone_flush(heard->store) == RUNSTONE_INSIDE_CALLBACK &&
                          runstone_close(heard->store) == RUNSTONE_INSIDE_CALLBACK;
    }
}

static void end(void *context) {
    ((struct heard *)context)->ended++;
}

/* Copies an open store with unsynced writes, and flips a bit early in the copy's log. */
static void tear(const char *path, const char *copy) {
    runstone_options *options;
    runstone_store *store;
    runstone_keyspace *keyspace;
    char key[16], value[100] = "value", command[2048], first[256] = "~", file[1024];
    WORKS(runstone_options_create("wal_segment_bytes = '64K'", &options));
    WORKS(runstone_open(path, options, &store));
    WORKS(runstone_options_close(options));
    WORKS(runstone_default_keyspace(store, &keyspace));
    for (int i = 0; i < ENTRIES; i++) {
        snprintf(key, sizeof key, "key%05d", i);
        WORKS(runstone_put(keyspace, key, 8, value, sizeof value, RUNSTONE_BUFFERED));
    }
    /* A job that renames a file would let the copy miss it. */
    WORKS(runstone_wait_idle(store));
    snprintf(command, sizeof command, "cp -r '%s' '%s'", path, copy);
    CHECK(system(command) == 0);
    WORKS(runstone_keyspace_close(keyspace));
    WORKS(runstone_close(store));

    DIR *directory = opendir(copy);
    CHECK(directory != NULL);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        const char *ending = strrchr(entry->d_name, '.');
        if (ending != NULL && strcmp(ending, ".wal") == 0 && strcmp(entry->d_name, first) < 0) {
            snprintf(first, sizeof first, "%s", entry->d_name);
        }
    }
    closedir(directory);
    snprintf(file, sizeof file, "%s/%s", copy, first);
    FILE *log = fopen(file, "r+b");
    CHECK(log != NULL && fseek(log, 10000, SEEK_SET) == 0);
    int byte = fgetc(log);
    CHECK(byte != EOF && fseek(log, 10000, SEEK_SET) == 0 && fputc(byte ^ 1, log) != EOF);
    CHECK(fclose(log) == 0);
}

static runstone_mirror *_Atomic mirror;
static atomic_int refused_mirrors;

static void close_mirror(void *context, const char *kind, const char *json) {
    (void)context, (void)json;
    if (strcmp(kind, "flushed") == 0 && mirror != NULL)
        refused_mirrors += runstone_mirror_close(mirror) == RUNSTONE_INSIDE_CALLBACK;
}

/* The listener of a mirror once closed the mirror. If a round was running, the close waited for its
 * end, and the round waited for the flush that had called the listener. If no round was running,
 * the handle was lost, and with it the unflushed data. Now the close is refused and changes
 * nothing. */
static void mirror_in_its_listener(const char *path) {
    runstone_options *options;
    runstone_store *store;
    runstone_keyspace *keyspace;
    runstone_mirror *opened;
    char copy[512], key[16], value[1000] = "value";
    snprintf(copy, sizeof copy, "%s.mirror", path);
    WORKS(runstone_open(path, NULL, &store));
    WORKS(runstone_default_keyspace(store, &keyspace));
    for (int i = 0; i < ENTRIES; i++) {
        snprintf(key, sizeof key, "key%05d", i);
        WORKS(runstone_put(keyspace, key, 8, value, sizeof value, RUNSTONE_BUFFERED));
    }
    WORKS(runstone_sync(store));
    WORKS(runstone_options_create("[keyspace]\nwrite_buffer_bytes = '64K'\n", &options));
    WORKS(runstone_options_set_listener(options, close_mirror, NULL, NULL));
    WORKS(runstone_mirror_open(path, copy, options, &opened));
    WORKS(runstone_options_close(options));
    mirror = opened;
    for (int i = 0; refused_mirrors == 0; i++) {
        snprintf(key, sizeof key, "key%05d", i % ENTRIES);
        WORKS(runstone_put(keyspace, key, 8, value, sizeof value, RUNSTONE_SYNC));
        WORKS(runstone_mirror_advance(opened, 0, NULL));
    }
    WORKS(runstone_mirror_advance(opened, 0, NULL));
    mirror = NULL;
    WORKS(runstone_mirror_close(opened));
    WORKS(runstone_keyspace_close(keyspace));
    WORKS(runstone_close(store));
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    alarm(SECONDS);
    runstone_options *options;
    runstone_keyspace *keyspace;
    struct heard heard = {0}, replaced = {0};
    char copy[512], expected[64];
    snprintf(copy, sizeof copy, "%s.copy", argv[1]);
    tear(argv[1], copy);

    WORKS(runstone_options_create(NULL, &options));
    WORKS(runstone_options_set_listener(options, hear, &replaced, end));
    WORKS(runstone_options_set_listener(options, hear, &heard, end));
    CHECK(replaced.ended == 1);
    WORKS(runstone_open(copy, options, &heard.store));
    WORKS(runstone_options_close(options));
    uint64_t found = 0;
    runstone_cursor *cursor;
    runstone_entry entry;
    WORKS(runstone_default_keyspace(heard.store, &keyspace));
    WORKS(runstone_cursor_create(keyspace, NULL, &cursor));
    WORKS(runstone_cursor_first(cursor));
    for (; runstone_cursor_entry(cursor, &entry); found++) {
        WORKS(runstone_cursor_next(cursor));
    }
    WORKS(runstone_cursor_close(cursor));
    /* The damaged record itself does not count as lost. */
    snprintf(expected, sizeof expected, "\"records\":%d,", (int)(ENTRIES - 1 - found));
    CHECK(heard.lost == 1 && found > 0 && found < ENTRIES - 1);
    CHECK(strstr(heard.json, "{\"kind\":\"log_end_lost\",\"warning\":true,") == heard.json);
    CHECK(strstr(heard.json, expected) != NULL && strstr(heard.json, "\"lost-") != NULL);

    heard.flushed = heard.refused = 0;
    WORKS(runstone_put(keyspace, "k", 1, "v", 1, RUNSTONE_AS_OPENED));
    WORKS(runstone_flush(heard.store));
    CHECK(heard.flushed >= 1 && heard.refused == heard.flushed && heard.ended == 0);
    /* A refused close once lost the handle and the data in memory. */
    WORKS(runstone_put(keyspace, "k", 1, "w", 1, RUNSTONE_AS_OPENED));
    WORKS(runstone_keyspace_close(keyspace));
    WORKS(runstone_close(heard.store));
    CHECK(heard.ended == 1 && heard.lost == 1 && replaced.lost == 0);
    mirror_in_its_listener(argv[1]);
    puts("events: ok");
    return 0;
}
