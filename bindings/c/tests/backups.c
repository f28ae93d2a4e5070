/* A typical backup routine: write, back up, write, back up, archive, restore a moment, and repair,
 * while another process writes. */

#include <runstone.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* The directories of the test, below the directory in its argument. */
static char store_path[512], backups_path[512], other_path[512];

static const char *place(const char *name) {
    static char path[8][640];
    static int turn;
    turn = (turn + 1) % 8;
    snprintf(path[turn], sizeof path[turn], "%s.%s", store_path, name);
    return path[turn];
}

static void put(runstone_store *store, const char *key, const char *value) {
    runstone_keyspace *keyspace;
    WORKS(runstone_default_keyspace(store, &keyspace));
    WORKS(runstone_put(keyspace, key, strlen(key), value, strlen(value), RUNSTONE_SYNC));
    WORKS(runstone_keyspace_close(keyspace));
}

static bool shows(runstone_keyspace *keyspace, runstone_snapshot *at, const char *value) {
    runstone_bytes found;
    WORKS(runstone_get(keyspace, at, "key", 3, &found));
    bool same = value == NULL ? found.data == NULL
                              : found.size == strlen(value) &&
                                    memcmp(found.data, value, found.size) == 0;
    runstone_bytes_free(&found);
    return same;
}

/* Whether the store in a directory opens and contains this value and no others. */
static bool holds(const char *path, const char *value) {
    runstone_store *store;
    runstone_keyspace *keyspace;
    runstone_bytes report;
    WORKS(runstone_open(path, NULL, &store));
    WORKS(runstone_default_keyspace(store, &keyspace));
    WORKS(runstone_verify(store, &report));
    runstone_bytes_free(&report);
    bool same = shows(keyspace, NULL, value);
    WORKS(runstone_keyspace_close(keyspace));
    WORKS(runstone_close(store));
    return same;
}

static void gone(const char *path) {
    WORKS(runstone_destroy(path));
    rmdir(path);
}

static void backups_and_restores(runstone_store *store) {
    runstone_backups *backups;
    runstone_backup first, second, list[3];
    runstone_bytes report;
    size_t count;
    uint64_t removed;
    WORKS(runstone_backups_open(backups_path, true, &backups));
    WORKS(runstone_backups_list(backups, 0, 0, NULL, &count));
    CHECK(count == 0);
    REFUSED(RUNSTONE_INVALID_ARGUMENT, "no backup",
            runstone_backups_restore(backups, 0, place("none")));
    put(store, "key", "one");
    WORKS(runstone_flush(store));
    WORKS(runstone_backups_create(backups, store_path, &first));
    CHECK(first.number == 1 && first.tables >= 1 && first.added_bytes > 0 && first.time_ms > 0);
    put(store, "key", "two");
    WORKS(runstone_backups_create(backups, store_path, &second));
    /* The second backup adds the log but no table. */
    CHECK(second.number == 2 && second.tables == first.tables && second.last_seq > first.last_seq);
    CHECK(second.added_bytes < first.added_bytes && second.bytes >= second.added_bytes);
    WORKS(runstone_backups_create(backups, store_path, NULL));
    WORKS(runstone_backups_list(backups, 1, 3, list, &count));
    CHECK(count == 3 && list[0].number == 2 && list[0].last_seq == second.last_seq);
    CHECK(list[0].time_ms == second.time_ms && list[1].number == 3);
    WORKS(runstone_backups_verify(backups, 0, &report));
    CHECK(strcmp(report.data, "[]") == 0);
    runstone_bytes_free(&report);
    WORKS(runstone_backups_damaged(backups, &report));
    CHECK(strcmp(report.data, "[]") == 0);
    runstone_bytes_free(&report);
    WORKS(runstone_backups_restore(backups, 1, place("one")));
    WORKS(runstone_backups_restore(backups, 0, place("newest")));
    CHECK(holds(place("one"), "one") && holds(place("newest"), "two"));
    WORKS(runstone_backups_prune(backups, 2, &removed));
    CHECK(removed == 1);
    WORKS(runstone_backups_list(backups, 0, 3, list, &count));
    CHECK(count == 2 && list[0].number == 2 && list[1].number == 3);
    gone(place("one"));
    gone(place("newest"));
    WORKS(runstone_backups_close(backups));
}

static void archive_and_moments(runstone_store *store) {
    runstone_backups *backups;
    runstone_archiver *archiver, *second;
    runstone_archiving done;
    runstone_position good, end;
    runstone_restored restored;
    runstone_archive archives[2];
    runstone_bytes report;
    size_t count;
    WORKS(runstone_backups_open(backups_path, false, &backups));
    REFUSED(RUNSTONE_INVALID_ARGUMENT, "no archive",
            runstone_backups_restore_to(backups, RUNSTONE_AT_END, 0, place("end"), NULL));
    WORKS(runstone_archiver_create(backups, store_path, &archiver));
    REFUSED(RUNSTONE_IN_USE, "in use", runstone_archiver_create(backups, store_path, &second));
    WORKS(runstone_archiver_advance(archiver, 0, &done));
    CHECK(done.backup == 4 && done.lacks_after == 0 && done.lacks_through == 0);
    put(store, "key", "good");
    WORKS(runstone_archiver_advance(archiver, 10000, &done));
    CHECK(done.changes >= 1 && done.bytes > 0 && done.backup == 0);
    WORKS(runstone_archiver_position(archiver, &good));
    put(store, "key", "bad");
    put(store, "key", "worse");
    WORKS(runstone_archiver_advance(archiver, 0, NULL));
    WORKS(runstone_archiver_position(archiver, &end));
    CHECK(end.seq == good.seq + 2 && end.history == good.history);
    WORKS(runstone_backups_archives(backups, 0, 2, archives, &count));
    CHECK(count == 1 && archives[0].from_seq < good.seq && archives[0].through_seq == end.seq);
    CHECK(archives[0].history == end.history && archives[0].from_ms <= archives[0].through_ms);
    WORKS(runstone_backups_verify_archives(backups, &report));
    runstone_bytes_free(&report);

    /* A restore to a number is exact to the batch. */
    WORKS(runstone_backups_restore_to(backups, RUNSTONE_AT_NUMBER, good.seq, place("good"),
                                      &restored));
    CHECK(restored.backup == 4 && restored.changes >= 1 && restored.last_seq == good.seq);
    WORKS(runstone_backups_restore_to_position(backups, good, place("position"), &restored));
    CHECK(restored.last_seq == good.seq);
    runstone_position other = {good.seq, good.history + 1};
    REFUSED(RUNSTONE_INVALID_ARGUMENT, "no position",
            runstone_backups_restore_to_position(backups, other, place("other"), NULL));
    WORKS(runstone_backups_restore_to(backups, RUNSTONE_AT_NUMBER, good.seq + 1, place("bad"),
                                      NULL));
    WORKS(runstone_backups_restore_to(backups, RUNSTONE_AT_END, 0, place("end"), &restored));
    CHECK(restored.last_seq == end.seq);
    WORKS(runstone_backups_restore_to(backups, RUNSTONE_AT_TIME, archives[0].through_ms,
                                      place("time"), NULL));
    CHECK(holds(place("good"), "good") && holds(place("bad"), "bad"));
    CHECK(holds(place("end"), "worse") && holds(place("time"), "worse"));

    /* Impossible restores fail with a reason and leave nothing behind. */
    REFUSED(RUNSTONE_INVALID_ARGUMENT, "no such moment",
            runstone_backups_restore_to(backups, RUNSTONE_AT_NUMBER, end.seq + 1, place("none"),
                                        NULL));
    REFUSED(RUNSTONE_INVALID_ARGUMENT, "no such moment",
            runstone_backups_restore_to(backups, RUNSTONE_AT_TIME, 1, place("none"), NULL));
    REFUSED(RUNSTONE_INVALID_ARGUMENT, "runstone_moment",
            runstone_backups_restore_to(backups, 3, 1, place("none"), NULL));
    REFUSED(RUNSTONE_FOREIGN_FILES, "empty or new",
            runstone_backups_restore_to(backups, RUNSTONE_AT_END, 0, place("end"), NULL));
    REFUSED(RUNSTONE_FOREIGN_FILES, "empty or new",
            runstone_backups_restore(backups, 2, place("end")));
    REFUSED(RUNSTONE_INVALID_ARGUMENT, "no backup 77",
            runstone_backups_restore(backups, 77, place("none")));
    REFUSED(RUNSTONE_INVALID_ARGUMENT, "keep at least one",
            runstone_backups_prune(backups, 0, NULL));
    const char *restores[] = {"good", "bad", "end", "time"};
    for (int i = 0; i < 4; i++) gone(place(restores[i]));
    rmdir(place("none"));

    /* The archiver continues without the object of its directory. */
    WORKS(runstone_backups_close(backups));
    REFUSED(RUNSTONE_CLOSED, "backups", runstone_backups_list(backups, 0, 0, NULL, &count));
    REFUSED(RUNSTONE_CLOSED, "backups", runstone_backups_close(backups));
    WORKS(runstone_archiver_advance(archiver, 0, &done));
    WORKS(runstone_archiver_close(archiver));
    REFUSED(RUNSTONE_CLOSED, "archiver", runstone_archiver_advance(archiver, 0, NULL));
    REFUSED(RUNSTONE_CLOSED, "archiver", runstone_archiver_close(archiver));
    WORKS(runstone_archiver_close(NULL));
    WORKS(runstone_backups_close(NULL));
}

static void *waits(void *archiver) {
    runstone_archiving done;
    WORKS(runstone_archiver_advance(archiver, 60000, &done));
    CHECK(done.changes >= 1);
    return NULL;
}

/* A store is written to and closed while an archiver waits for it in another thread. */
static void a_close_under_an_archiver(runstone_store *store) {
    runstone_backups *backups;
    runstone_archiver *archiver;
    runstone_position position;
    pthread_t thread;
    runstone_status status;
    WORKS(runstone_backups_open(backups_path, false, &backups));
    WORKS(runstone_archiver_create(backups, store_path, &archiver));
    /* Archives the changes that the first archiver left. */
    WORKS(runstone_archiver_advance(archiver, 0, NULL));
    pthread_create(&thread, NULL, waits, archiver);
    do {
        status = runstone_archiver_position(archiver, &position);
        usleep(1000);
    } while (status == RUNSTONE_OK);
    CHECK(status == RUNSTONE_BUSY);
    put(store, "key", "last");
    WORKS(runstone_close(store));
    REFUSED(RUNSTONE_CLOSED, "store", runstone_close(store));
    pthread_join(thread, NULL);
    WORKS(runstone_archiver_advance(archiver, 0, NULL));
    /* A close waits for a running round. */
    pthread_create(&thread, NULL, waits, archiver);
    while (runstone_archiver_position(archiver, &position) == RUNSTONE_OK) usleep(1000);
    WORKS(runstone_archiver_close(archiver));
    REFUSED(RUNSTONE_CLOSED, "archiver", runstone_archiver_position(archiver, &position));
    WORKS(runstone_open(store_path, NULL, &store));
    put(store, "key", "after");
    pthread_join(thread, NULL);
    WORKS(runstone_close(store));
    WORKS(runstone_backups_restore_to(backups, RUNSTONE_AT_END, 0, place("end"), NULL));
    CHECK(holds(place("end"), "after"));
    gone(place("end"));
    WORKS(runstone_backups_close(backups));
}

static void wrong_places(void) {
    runstone_backups *backups;
    runstone_store *store;
    char file[700];
    REFUSED(RUNSTONE_FOREIGN_FILES, "empty or new",
            runstone_backups_open(store_path, true, &backups));
    REFUSED(RUNSTONE_STORAGE, "check the path",
            runstone_backups_open(place("nowhere"), false, &backups));
    CHECK(access(place("nowhere"), F_OK) != 0);
    mkdir(other_path, 0700);
    REFUSED(RUNSTONE_INVALID_ARGUMENT, "holds no backups",
            runstone_backups_open(other_path, false, &backups));
    snprintf(file, sizeof file, "%s/letter.txt", other_path);
    fclose(fopen(file, "w"));
    REFUSED(RUNSTONE_FOREIGN_FILES, "letter.txt",
            runstone_backups_open(other_path, true, &backups));
    remove(file);
    rmdir(other_path);
    /* One directory is for one store. */
    WORKS(runstone_open(other_path, NULL, &store));
    WORKS(runstone_backups_open(backups_path, false, &backups));
    REFUSED(RUNSTONE_INVALID_ARGUMENT, "another store",
            runstone_backups_create(backups, other_path, NULL));
    REFUSED(RUNSTONE_NOT_A_STORE, "nowhere",
            runstone_backups_create(backups, place("nowhere"), NULL));
    REFUSED(RUNSTONE_INVALID_ARGUMENT, "null", runstone_backups_create(backups, NULL, NULL));
    REFUSED(RUNSTONE_INVALID_ARGUMENT, "list",
            runstone_backups_list(backups, 0, 1, NULL, &(size_t){0}));
    WORKS(runstone_backups_close(backups));
    WORKS(runstone_close(store));
    gone(other_path);
}

/* Changes a byte of each table in the directory of backups. */
static void damage_in_a_backup(void) {
    runstone_backups *backups;
    runstone_bytes report;
    char command[1400];
    WORKS(runstone_backups_open(backups_path, false, &backups));
    snprintf(command, sizeof command,
             "for f in %s/*.table; do printf x | dd of=\"$f\" bs=1 seek=9 conv=notrunc status=none;"
             " done", backups_path);
    CHECK(system(command) == 0);
    REFUSED(RUNSTONE_CORRUPTION, ".table", runstone_backups_verify(backups, 0, &report));
    CHECK(strstr(report.data, ".table\"") != NULL);
    runstone_bytes_free(&report);
    REFUSED(RUNSTONE_CORRUPTION, ".table", runstone_backups_restore(backups, 0, place("none")));
    rmdir(place("none"));
    WORKS(runstone_backups_close(backups));
}

static void repairs(void) {
    runstone_repaired repaired;
    runstone_bytes report;
    runstone_options *options;
    runstone_store *store;
    WORKS(runstone_repair(store_path, place("repaired"), NULL, false, &repaired, &report));
    CHECK(repaired.is_healthy && access(place("repaired"), F_OK) != 0);
    runstone_bytes_free(&report);
    WORKS(runstone_open(store_path, NULL, &store));
    REFUSED(RUNSTONE_IN_USE, "in use",
            runstone_repair(store_path, place("repaired"), NULL, false, NULL, NULL));
    WORKS(runstone_close(store));
    char current[640];
    snprintf(current, sizeof current, "%s/CURRENT", store_path);
    CHECK(remove(current) == 0);
    WORKS(runstone_options_create("", &options));
    WORKS(runstone_repair(store_path, place("repaired"), options, true, &repaired, &report));
    WORKS(runstone_options_close(options));
    CHECK(!repaired.is_healthy && repaired.tables > 0 && repaired.entries > 0);
    CHECK(repaired.carried_tables == repaired.tables);
    CHECK(strstr(report.data, "\"basis\":\"manifest\"") && strstr(report.data, "CURRENT"));
    CHECK(strstr(report.data, "\"doubts\":[]") && repaired.doubts == 0 && repaired.lost > 0);
    runstone_bytes_free(&report);
    CHECK(holds(place("repaired"), "after"));
    REFUSED(RUNSTONE_STORAGE, "empty or new",
            runstone_repair(store_path, place("repaired"), NULL, false, NULL, NULL));
    REFUSED(RUNSTONE_NOT_A_STORE, "nowhere",
            runstone_repair(place("nowhere"), place("none"), NULL, false, NULL, NULL));
    gone(place("repaired"));
}

/* The other process writes on command and reports each write. */
static void writes(int orders, int answers) {
    runstone_store *store;
    runstone_keyspace *apart;
    char order;
    WORKS(runstone_open(store_path, NULL, &store));
    while (read(orders, &order, 1) == 1 && order != 'x') {
        char value[2] = {order, 0};
        if (order == 'd') {
            WORKS(runstone_drop_keyspace(store, "apart"));
        } else {
            WORKS(runstone_open_keyspace(store, "apart", NULL, &apart));
            WORKS(runstone_put(apart, "key", 3, value, 1, RUNSTONE_AS_OPENED));
            WORKS(runstone_keyspace_close(apart));
            put(store, "key", value);
        }
        CHECK(write(answers, &order, 1) == 1);
    }
    WORKS(runstone_close(store));
    exit(0);
}

static int order_end, answer_end;

static void tell(char order) {
    CHECK(write(order_end, &order, 1) == 1 && read(answer_end, &order, 1) == 1);
}

static void follow_another_process(void) {
    runstone_store *store;
    runstone_keyspace *keyspace, *apart;
    runstone_options *options;
    runstone_snapshot *snapshot;
    runstone_cursor *cursor;
    runstone_entry entry;
    uint64_t age;
    bool is_newer;
    WORKS(runstone_options_create("read_only = true", &options));
    WORKS(runstone_open(store_path, options, &store));
    WORKS(runstone_options_close(options));
    WORKS(runstone_default_keyspace(store, &keyspace));
    WORKS(runstone_find_keyspace(store, "apart", &apart));
    CHECK(shows(keyspace, NULL, "1") && shows(apart, NULL, "1"));
    WORKS(runstone_snapshot_create(store, &snapshot));
    runstone_read_options at = {.snapshot = snapshot};
    runstone_transaction *transaction;
    runstone_bytes value;
    WORKS(runstone_begin(store, NULL, &transaction));
    WORKS(runstone_transaction_get(transaction, keyspace, "key", 3, &value));
    runstone_bytes_free(&value);
    tell('2');
    CHECK(shows(keyspace, NULL, "1"));
    WORKS(runstone_refresh(store, &is_newer));
    CHECK(is_newer && shows(keyspace, NULL, "2") && shows(apart, NULL, "2"));
    CHECK(shows(keyspace, snapshot, "1") && shows(apart, snapshot, "1"));
    REFUSED(RUNSTONE_INVALID_ARGUMENT, "before a reopen",
            runstone_transaction_get(transaction, keyspace, "key", 3, &value));
    WORKS(runstone_rollback(transaction));
    WORKS(runstone_cursor_create(keyspace, &at, &cursor));
    WORKS(runstone_refresh(store, &is_newer));
    CHECK(!is_newer);
    usleep(20000);
    WORKS(runstone_age(store, &age));
    CHECK(age >= 20);
    WORKS(runstone_refresh(store, NULL));
    tell('3');
    WORKS(runstone_refresh(store, &is_newer));
    WORKS(runstone_cursor_first(cursor));
    CHECK(runstone_cursor_entry(cursor, &entry) && *(const char *)entry.value == '1');
    CHECK(is_newer && shows(keyspace, NULL, "3") && shows(keyspace, snapshot, "1"));
    CHECK(runstone_put(keyspace, "key", 3, "x", 1, RUNSTONE_AS_OPENED) == RUNSTONE_READ_ONLY);
    /* A copy has everything committed by now. */
    tell('4');
    WORKS(runstone_checkpoint(store, place("copy")));
    CHECK(holds(place("copy"), "4"));
    gone(place("copy"));
    /* A keyspace is dropped, and another one is made under its name. */
    tell('d');
    WORKS(runstone_refresh(store, &is_newer));
    REFUSED(RUNSTONE_UNKNOWN_KEYSPACE, "apart", runstone_get(apart, NULL, "key", 3, &value));
    tell('5');
    WORKS(runstone_refresh(store, &is_newer));
    CHECK(shows(apart, NULL, "5") && shows(keyspace, NULL, "5"));
    WORKS(runstone_cursor_close(cursor));
    WORKS(runstone_snapshot_close(snapshot));
    WORKS(runstone_close(store));
    REFUSED(RUNSTONE_CLOSED, "closed", runstone_get(apart, NULL, "key", 3, &value));
    REFUSED(RUNSTONE_CLOSED, "closed", runstone_refresh(store, &is_newer));
    REFUSED(RUNSTONE_CLOSED, "closed", runstone_age(store, &age));
    WORKS(runstone_keyspace_close(apart));
    WORKS(runstone_keyspace_close(keyspace));
}

static volatile bool is_over;

static void *refreshes(void *store) {
    while (!is_over) WORKS(runstone_refresh(store, NULL));
    return NULL;
}

/* Threads refresh while this one reads and opens keyspaces. */
static void refresh_from_many_threads(void) {
    runstone_store *store;
    runstone_keyspace *keyspace, *other;
    pthread_t threads[2];
    WORKS(runstone_follow(store_path, NULL, &store));
    WORKS(runstone_default_keyspace(store, &keyspace));
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, refreshes, store);
    for (char order = 'A'; order <= 'Z'; order++) {
        char value[2] = {order, 0};
        tell(order);
        WORKS(runstone_refresh(store, NULL));
        WORKS(runstone_default_keyspace(store, &other));
        CHECK(shows(keyspace, NULL, value) && shows(other, NULL, value));
        WORKS(runstone_keyspace_close(other));
    }
    is_over = true;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    WORKS(runstone_keyspace_close(keyspace));
    WORKS(runstone_close(store));
}

/* The writer dies, another one starts, and followers continue. */
static void follow_without_a_writer(pid_t writer) {
    runstone_store *store, *again;
    runstone_keyspace *keyspace;
    runstone_options *options;
    uint64_t age;
    bool is_newer;
    WORKS(runstone_follow(store_path, NULL, &store));
    WORKS(runstone_default_keyspace(store, &keyspace));
    kill(writer, SIGKILL);
    waitpid(writer, NULL, 0);
    CHECK(shows(keyspace, NULL, "Z"));
    WORKS(runstone_open(store_path, NULL, &again));
    REFUSED(RUNSTONE_INVALID_ARGUMENT, "open for writing", runstone_refresh(again, &is_newer));
    REFUSED(RUNSTONE_INVALID_ARGUMENT, "open for writing", runstone_age(again, &age));
    put(again, "key", "one");
    WORKS(runstone_refresh(store, &is_newer));
    CHECK(is_newer && shows(keyspace, NULL, "one"));
    WORKS(runstone_close(again));
    WORKS(runstone_keyspace_close(keyspace));
    WORKS(runstone_close(store));
    /* No process can write to this store while it is open for reading. */
    WORKS(runstone_options_create("read_only = true", &options));
    WORKS(runstone_open(store_path, options, &store));
    WORKS(runstone_options_close(options));
    WORKS(runstone_refresh(store, &is_newer));
    WORKS(runstone_age(store, &age));
    CHECK(!is_newer && age == 0);
    WORKS(runstone_close(store));
    REFUSED(RUNSTONE_NOT_A_STORE, "nowhere", runstone_follow(place("nowhere"), NULL, &store));
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    snprintf(store_path, sizeof store_path, "%s", argv[1]);
    snprintf(backups_path, sizeof backups_path, "%s.backups", argv[1]);
    snprintf(other_path, sizeof other_path, "%s.other", argv[1]);
    int orders[2], answers[2];
    CHECK(pipe(orders) == 0 && pipe(answers) == 0);
    pid_t writer = fork();
    if (writer == 0) {
        close(orders[1]);
        writes(orders[0], answers[1]);
    }
    order_end = orders[1];
    answer_end = answers[0];
    tell('1');
    follow_another_process();
    refresh_from_many_threads();
    follow_without_a_writer(writer);

    runstone_store *store;
    WORKS(runstone_open(store_path, NULL, &store));
    backups_and_restores(store);
    archive_and_moments(store);
    a_close_under_an_archiver(store);
    wrong_places();
    damage_in_a_backup();
    repairs();
    gone(store_path);
    char command[640];
    snprintf(command, sizeof command, "rm -r %s", backups_path);
    CHECK(system(command) == 0);
    puts("backups: ok");
    return 0;
}
