/* Shared by the tests in C. */

#ifndef CHECK_H
#define CHECK_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                           \
    do {                                                                      \
        if (!(what)) {                                                        \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #what); \
            exit(1);                                                          \
        }                                                                     \
    } while (0)

/* Calls a function of runstone.h, which must succeed. */
#define WORKS(call)                                                                      \
    do {                                                                                 \
        runstone_status status_ = (call);                                                \
        if (status_ != RUNSTONE_OK) {                                                    \
            fprintf(stderr, "%s:%d: %s gives %d: %s\n", __FILE__, __LINE__, #call,       \
                    (int)status_, runstone_last_message());                              \
            exit(1);                                                                     \
        }                                                                                \
    } while (0)

/* Calls a function of runstone.h, which must be refused with a message that contains `part`. */
#define REFUSED(expected, part, call)                                                    \
    do {                                                                                 \
        runstone_status status_ = (call);                                                \
        if (status_ != (expected) || strstr(runstone_last_message(), part) == NULL) {    \
            fprintf(stderr, "%s:%d: %s gives %d: %s\n", __FILE__, __LINE__, #call,       \
                    (int)status_, runstone_last_message());                              \
            exit(1);                                                                     \
        }                                                                                \
    } while (0)

#endif
