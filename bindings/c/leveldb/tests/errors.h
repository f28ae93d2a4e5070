/* Errors in the form of LevelDB's interface. */

#include <leveldb/c.h>

#include "check.h"

static char *error = NULL;

static void fine(void) {
    if (error != NULL) fprintf(stderr, "%s\n", error);
    CHECK(error == NULL);
}

static void refused(const char *part) {
    if (error == NULL || strstr(error, part) == NULL) fprintf(stderr, "%s: %s\n", part, error);
    CHECK(error != NULL && strstr(error, part) != NULL);
    leveldb_free(error);
    error = NULL;
}
