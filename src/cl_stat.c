/* /proc/PID/stat and status, parsed. */
#include <errno.h>
#include <string.h>

#include "cl_stat.h"
#include "cl_text.h"

/* The fields after the state are numbered as in proc_pid_stat(5); all are
 * decimal, some are signed, two in between are of no use here. */
#define FIRST_NUMBER 4
#define LAST_NUMBER 24

static uint64_t
stat_unsigned(const int64_t *numbers, int field)
{
    return (uint64_t)numbers[field - FIRST_NUMBER];
}

int
cl_stat_parse(const char *text, size_t len, struct cl_stat *out)
{
    const char *at = text;
    const char *end = text + len;
    memset(out, 0, sizeof *out);
    if (cl_take_i64(&at, end, &out->pid) < 0) {
        return len == 0 ? -ENODATA : -EBADMSG;
    }
    if (!cl_take(&at, end, ' ') || !cl_take(&at, end, '(')) {
        return at == end ? -ENODATA : -EBADMSG;
    }
    /* The name may hold parentheses and newlines: the last one closes it. */
    const char *close = memrchr(at, ')', (size_t)(end - at));
    if (close == NULL) {
        return -ENODATA;
    }
    out->comm = at;
    out->comm_len = (size_t)(close - at);
    at = close + 1;
    if (end - at < 3) {
        return -ENODATA;
    }
    if (*at != ' ') {
        return -EBADMSG;
    }
    out->state = at[1];
    at += 2;
    int64_t numbers[LAST_NUMBER - FIRST_NUMBER + 1];
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (at == end) {
            return -ENODATA;
        }
        int err = cl_take(&at, end, ' ') ? 0 : -EBADMSG;
        if (err == 0) {
            err = cl_take_i64(&at, end, &numbers[i]);
        }
        if (err < 0) {
            return at == end && err == -EBADMSG ? -ENODATA : err;
        }
    }
    /* A number that nothing follows may have lost digits. */
    if (at == end || end[-1] != '\n') {
        return -ENODATA;
    }
    if (*at != ' ' && *at != '\n') {
        return -EBADMSG;
    }
    out->ppid = numbers[4 - FIRST_NUMBER];
    out->pgrp = numbers[5 - FIRST_NUMBER];
    out->session = numbers[6 - FIRST_NUMBER];
    out->flags = stat_unsigned(numbers, 9);
    out->minor_faults = stat_unsigned(numbers, 10);
    out->child_minor_faults = stat_unsigned(numbers, 11);
    out->major_faults = stat_unsigned(numbers, 12);
    out->child_major_faults = stat_unsigned(numbers, 13);
    out->user_ticks = stat_unsigned(numbers, 14);
    out->system_ticks = stat_unsigned(numbers, 15);
    out->threads = numbers[20 - FIRST_NUMBER];
    out->start_ticks = stat_unsigned(numbers, 22);
    out->virtual_size = stat_unsigned(numbers, 23);
    out->rss_pages = numbers[24 - FIRST_NUMBER];
    return 0;
}

static const struct cl_name status_names[CL_STATUS_NFIELDS] = {
#define X(name, kernel, python) CL_NAME(kernel),
    CL_STATUS_FIELDS(X)
#undef X
};

/* The other lines that are read, every one of which every kernel writes. */
enum { NAME, STATE, TGID, PID, PPID, TRACER, UID, GID, THREADS, NLINES };

static const struct cl_name line_names[NLINES] = {
    [NAME] = CL_NAME("Name"),       [STATE] = CL_NAME("State"),
    [TGID] = CL_NAME("Tgid"),       [PID] = CL_NAME("Pid"),
    [PPID] = CL_NAME("PPid"),       [TRACER] = CL_NAME("TracerPid"),
    [UID] = CL_NAME("Uid"),         [GID] = CL_NAME("Gid"),
    [THREADS] = CL_NAME("Threads"),
};

static int
parse_number(const char *at, const char *end, int64_t *out)
{
    cl_skip_blanks(&at, end);
    int err = cl_take_i64(&at, end, out);
    return err < 0 ? err : at == end ? 0 : -EBADMSG;
}

static int
parse_four(const char *at, const char *end, uint64_t out[4])
{
    for (int i = 0; i < 4; i++) {
        cl_skip_blanks(&at, end);
        int err = cl_take_u64(&at, end, &out[i]);
        if (err < 0) {
            return err;
        }
    }
    return at == end ? 0 : -EBADMSG;
}

static int
parse_line(int line, const char *at, const char *end, struct cl_status *out)
{
    switch (line) {
    case NAME:
        cl_take(&at, end, '\t');
        out->name = at;
        out->name_len = (size_t)(end - at);
        return 0;
    case STATE:
        cl_skip_blanks(&at, end);
        if (at == end) {
            return -EBADMSG;
        }
        out->state = *at;
        return 0;
    case TGID:
        return parse_number(at, end, &out->tgid);
    case PID:
        return parse_number(at, end, &out->pid);
    case PPID:
        return parse_number(at, end, &out->ppid);
    case TRACER:
        return parse_number(at, end, &out->tracer_pid);
    case UID:
        return parse_four(at, end, out->uid);
    case GID:
        return parse_four(at, end, out->gid);
    default:
        return parse_number(at, end, &out->threads);
    }
}

int
cl_status_parse(const char *text, size_t len, struct cl_status *out)
{
    const char *cursor = text;
    const char *end = text + len;
    unsigned seen = 0;
    int guess = 0;
    memset(out, 0, sizeof *out);
    while (cursor < end) {
        const char *newline = cl_line_end(cursor, end);
        if (newline == NULL) {
            return -ENODATA;
        }
        const char *colon = memchr(cursor, ':', (size_t)(newline - cursor));
        if (colon == NULL) {
            return -EBADMSG;
        }
        size_t name_len = (size_t)(colon - cursor);
        int err = 0;
        int i = cl_name_index(status_names, CL_STATUS_NFIELDS, guess, cursor,
                              name_len);
        if (i >= 0) {
            err = out->present >> i & 1
                      ? -EBADMSG
                      : cl_take_kilobytes(colon + 1, newline, &out->bytes[i]);
            out->present |= 1u << i;
            guess = i + 1;
        } else if ((i = cl_name_index(line_names, NLINES, -1, cursor,
                                      name_len)) >= 0) {
            err = seen >> i & 1 ? -EBADMSG
                                : parse_line(i, colon + 1, newline, out);
            seen |= 1u << i;
        }
        if (err < 0) {
            return err;
        }
        cursor = newline + 1;
    }
    return seen == (1u << NLINES) - 1 ? 0 : -ENODATA;
}
