/* CHECK(condition): say what did not hold, go on, and have main() return
 * check_failures(). */
#ifndef COWLAB_TESTS_CHECK_H
#define COWLAB_TESTS_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int checks_failed;

#define CHECK(condition)                                                      \
    do {                                                                      \
        if (!(condition)) {                                                   \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__,        \
                    #condition);                                              \
            checks_failed++;                                                  \
        }                                                                     \
    } while (0)

static inline int
check_failures(void)
{
    return checks_failed != 0;
}

/* A copy of `len` bytes with nothing after them, so that the sanitizer sees a
 * read past their end. The caller frees it. */
static inline char *
check_copy(const char *text, size_t len)
{
    char *copy = malloc(len ? len : 1);
    if (copy == NULL) {
        abort();
    }
    memcpy(copy, text, len);
    return copy;
}

#endif
