/* The little scanners that the parsers of /proc share. Each moves *at past
 * what it took and never looks at or beyond `end`. */
#ifndef COWLAB_CL_TEXT_H
#define COWLAB_CL_TEXT_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The newline that ends the line at `at`, or NULL. */
static inline const char *
cl_line_end(const char *at, const char *end)
{
    return at < end ? memchr(at, '\n', (size_t)(end - at)) : NULL;
}

static inline bool
cl_take(const char **at, const char *end, char c)
{
    if (*at < end && **at == c) {
        ++*at;
        return true;
    }
    return false;
}

/* Spaces and tabs: status uses both. */
static inline void
cl_skip_blanks(const char **at, const char *end)
{
    while (*at < end && (**at == ' ' || **at == '\t')) {
        ++*at;
    }
}

/* 0, -EBADMSG no digit there, -ERANGE beyond 64 bits. */
static inline int
cl_take_u64(const char **at, const char *end, uint64_t *out)
{
    const char *first = *at;
    uint64_t value = 0;
    while (*at < end && **at >= '0' && **at <= '9') {
        uint64_t digit = (uint64_t)(**at - '0');
        if (value > (UINT64_MAX - digit) / 10) {
            return -ERANGE;
        }
        value = value * 10 + digit;
        ++*at;
    }
    *out = value;
    return *at == first ? -EBADMSG : 0;
}

/* The same with a sign before it. */
static inline int
cl_take_i64(const char **at, const char *end, int64_t *out)
{
    bool negative = cl_take(at, end, '-');
    uint64_t value;
    int err = cl_take_u64(at, end, &value);
    if (err < 0) {
        return err;
    }
    if (value > INT64_MAX) {
        return -ERANGE;
    }
    *out = negative ? -(int64_t)value : (int64_t)value;
    return 0;
}

/* Lower-case hexadecimal, as the kernel writes it. */
static inline int
cl_take_hex(const char **at, const char *end, uint64_t *out)
{
    const char *first = *at;
    uint64_t value = 0;
    for (; *at < end; ++*at) {
        char c = **at;
        uint64_t digit;
        if (c >= '0' && c <= '9') {
            digit = (uint64_t)(c - '0');
        } else if (c >= 'a' && c <= 'f') {
            digit = (uint64_t)(c - 'a') + 10;
        } else {
            break;
        }
        if (value >> 60 != 0) {
            return -ERANGE;
        }
        value = value << 4 | digit;
    }
    *out = value;
    return *at == first ? -EBADMSG : 0;
}

/* "N kB" and nothing after it: bytes. 0, -EBADMSG or -ERANGE. */
static inline int
cl_take_kilobytes(const char *at, const char *end, uint64_t *out)
{
    uint64_t value;
    cl_skip_blanks(&at, end);
    int err = cl_take_u64(&at, end, &value);
    if (err < 0) {
        return err;
    }
    if (end - at != 3 || memcmp(at, " kB", 3) != 0) {
        return -EBADMSG;
    }
    if (value > UINT64_MAX / 1024) {
        return -ERANGE;
    }
    *out = value * 1024;
    return 0;
}

/* A name and its length, as the tables of the parsers hold them. */
struct cl_name {
    const char *text;
    size_t len;
};

#define CL_NAME(literal) {literal, sizeof(literal) - 1}

/* Which of `names` is text[0..len), or -1. `guess` is looked at first: fields
 * come in the order of the table. */
static inline int
cl_name_index(const struct cl_name *names, int count, int guess,
              const char *text, size_t len)
{
    if (guess >= 0 && guess < count && names[guess].len == len &&
        memcmp(names[guess].text, text, len) == 0) {
        return guess;
    }
    for (int i = 0; i < count; i++) {
        if (names[i].len == len && memcmp(names[i].text, text, len) == 0) {
            return i;
        }
    }
    return -1;
}

#endif
