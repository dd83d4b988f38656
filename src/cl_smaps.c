/* /proc/PID/smaps and smaps_rollup, parsed. */
#include <errno.h>
#include <string.h>

#include "cl_smaps.h"
#include "cl_text.h"

static const struct cl_name field_names[CL_SMAPS_NFIELDS] = {
#define X(name, kernel, python) CL_NAME(kernel),
    CL_SMAPS_FIELDS(X)
#undef X
};

/* What every kernel since 4.14 writes, in its order; smaps has Size before it
 * and VmFlags after it, smaps_rollup neither. */
static const unsigned char always[] = {
    CL_SMAPS_RSS,          CL_SMAPS_PSS,           CL_SMAPS_SHARED_CLEAN,
    CL_SMAPS_SHARED_DIRTY, CL_SMAPS_PRIVATE_CLEAN, CL_SMAPS_PRIVATE_DIRTY,
    CL_SMAPS_REFERENCED,   CL_SMAPS_ANONYMOUS,     CL_SMAPS_SWAP,
    CL_SMAPS_LOCKED,
};

static bool
has(const struct cl_smaps *record, int field)
{
    return record->present >> field & 1;
}

/* Whether the fields are the first of what every kernel writes, but not all.
 */
static bool
cut_short(const struct cl_smaps *record)
{
    size_t count = 0;
    size_t prefix = 0;
    bool unbroken = true;
    for (size_t i = 0; i < sizeof always; i++) {
        bool there = has(record, always[i]);
        count += there;
        unbroken = unbroken && there;
        prefix += unbroken;
    }
    if (count != prefix) {
        return false;
    }
    if (has(record, CL_SMAPS_SIZE)) {
        return prefix < sizeof always || record->flags == NULL;
    }
    return record->flags == NULL && prefix > 0 && prefix < sizeof always;
}

static int
parse_unitless(const char *at, const char *end, int64_t *out)
{
    if (*out != -1) {
        return -EBADMSG;
    }
    uint64_t value;
    cl_skip_blanks(&at, end);
    int err = cl_take_u64(&at, end, &value);
    if (err < 0) {
        return err;
    }
    if (at != end) {
        return -EBADMSG;
    }
    if (value > INT64_MAX) {
        return -ERANGE;
    }
    *out = (int64_t)value;
    return 0;
}

static int
parse_flags(const char *at, const char *end, struct cl_smaps *out)
{
    if (out->flags != NULL) {
        return -EBADMSG;
    }
    cl_skip_blanks(&at, end);
    while (end > at && end[-1] == ' ') {
        end--;
    }
    out->flags = at;
    out->flags_len = (size_t)(end - at);
    return 0;
}

static bool
is(const char *name, size_t len, const char *literal)
{
    return strlen(literal) == len && memcmp(name, literal, len) == 0;
}

/* One "Name: value" line without its newline; *guess is the field expected. */
static int
parse_field(const char *line, const char *end, int *guess,
            struct cl_smaps *out)
{
    const char *colon = memchr(line, ':', (size_t)(end - line));
    if (colon == NULL) {
        return -EBADMSG;
    }
    size_t len = (size_t)(colon - line);
    const char *value = colon + 1;
    int field =
        cl_name_index(field_names, CL_SMAPS_NFIELDS, *guess, line, len);
    if (field >= 0) {
        if (has(out, field)) {
            return -EBADMSG;
        }
        out->present |= 1ull << field;
        *guess = field + 1;
        return cl_take_kilobytes(value, end, &out->bytes[field]);
    }
    if (is(line, len, "VmFlags")) {
        return parse_flags(value, end, out);
    }
    if (is(line, len, "THPeligible")) {
        return parse_unitless(value, end, &out->thp_eligible);
    }
    if (is(line, len, "ProtectionKey")) {
        return parse_unitless(value, end, &out->protection_key);
    }
    return 0;
}

/* Addresses are lower-case hexadecimal; every field has a capital. */
static bool
begins_field(const char *line)
{
    return *line >= 'A' && *line <= 'Z';
}

int
cl_smaps_next(const char **cursor, const char *end, struct cl_smaps *out)
{
    memset(out, 0, sizeof *out);
    out->thp_eligible = -1;
    out->protection_key = -1;
    int got = cl_maps_next(cursor, end, &out->map);
    if (got <= 0) {
        return got;
    }
    const char *first = *cursor;
    int guess = 0;
    while (*cursor < end && begins_field(*cursor)) {
        const char *newline = cl_line_end(*cursor, end);
        if (newline == NULL) {
            return -ENODATA;
        }
        int err = parse_field(*cursor, newline, &guess, out);
        if (err < 0) {
            return err;
        }
        *cursor = newline + 1;
    }
    if (*cursor == first) {
        /* A header alone: this is maps, or the text ends here. */
        return *cursor == end ? -ENODATA : -EBADMSG;
    }
    if (*cursor == end && cut_short(out)) {
        return -ENODATA;
    }
    return 1;
}
