/* Readings of one process: arguments in, results and exceptions out.
 *
 * Each reading is the parse of one file, so that what is said of recorded
 * bytes is said of the kernel's too. The classes are Python's frozen
 * dataclasses and come as an argument; their fields are filled in order, from
 * here, which costs a fifth of what their __init__ would. */
#include "py_module.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "cl_maps.h"
#include "cl_proc.h"
#include "cl_smaps.h"
#include "cl_stat.h"

/* As much as the kernel writes into any of the one-record files. */
#define SMALL 8192

/* How often a process is read that maps and unmaps meanwhile. */
#define TORN_TRIES 16

/* Where a text is from. */
struct origin {
    pid_t pid; /* as the result shows it */
    const char *path;
    /* Set by a parser that refuses a text because its mappings overlap. The
     * kernel lets go of the process between two pieces of the text, and goes
     * on with a mapping that has since grown back over what it showed. */
    bool torn;
};

/* Mappings are in order and apart: 0, or -EAGAIN where they are not. */
static int
check_order(const struct cl_map *map, uint64_t *last_end, struct origin *from)
{
    if (map->start < *last_end) {
        from->torn = true;
        return -EAGAIN;
    }
    *last_end = map->end;
    return 0;
}

typedef PyObject *parser(const char *text, size_t len, PyObject *type,
                         struct origin *from);

/* ---- filling a record ---- */

struct record {
    PyObject *object; /* NULL: something failed, with an exception set */
    PyObject *names;  /* of its fields in order, borrowed */
    Py_ssize_t next;
};

/* The names of a dataclass's fields in order: a new tuple, or NULL. */
static PyObject *
field_names(PyObject *type)
{
    PyObject *names = PyObject_GetAttrString(type, "__match_args__");
    if (names != NULL && (!PyType_Check(type) || !PyTuple_Check(names))) {
        PyErr_Format(PyExc_TypeError, "not a dataclass: %R", type);
        Py_CLEAR(names);
    }
    return names;
}

static struct record
record_begin(PyObject *type, PyObject *names)
{
    return (struct record){
        .object = ((PyTypeObject *)type)->tp_alloc((PyTypeObject *)type, 0),
        .names = names,
    };
}

/* Fill the next field. Steals `value`, NULL where making it failed; does
 * nothing once something has failed. */
static void
put(struct record *record, PyObject *value)
{
    if (record->object == NULL) {
        Py_XDECREF(value);
        return;
    }
    if (value != NULL && record->next < PyTuple_GET_SIZE(record->names)) {
        PyObject *name = PyTuple_GET_ITEM(record->names, record->next++);
        if (PyObject_GenericSetAttr(record->object, name, value) == 0) {
            Py_DECREF(value);
            return;
        }
    } else if (value != NULL) {
        PyErr_SetString(PyExc_SystemError, "the class has too few fields");
    }
    Py_XDECREF(value);
    Py_CLEAR(record->object);
}

/* The record if all of it is there, else NULL with an exception set. */
static PyObject *
record_end(struct record *record)
{
    if (record->object != NULL &&
        record->next != PyTuple_GET_SIZE(record->names)) {
        PyErr_SetString(PyExc_SystemError, "the class has too many fields");
        Py_CLEAR(record->object);
    }
    return record->object;
}

/* Paths and names are any bytes; Python's own way back is os.fsencode. */
static PyObject *
text_from(const char *text, size_t len)
{
    return PyUnicode_DecodeFSDefaultAndSize(text, (Py_ssize_t)len);
}

static PyObject *
unsigned_or_none(bool present, uint64_t value)
{
    if (!present) {
        Py_RETURN_NONE;
    }
    return PyLong_FromUnsignedLongLong(value);
}

static void
put_unsigned(struct record *record, uint64_t value)
{
    put(record, PyLong_FromUnsignedLongLong(value));
}

static void
put_signed(struct record *record, int64_t value)
{
    put(record, PyLong_FromLongLong(value));
}

static void
put_letter(struct record *record, char c)
{
    put(record, PyUnicode_FromOrdinal((unsigned char)c));
}

/* Append what record_end() gives to `list`: 0 or -1. */
static int
append(PyObject *list, PyObject *object)
{
    int err = object == NULL ? -1 : PyList_Append(list, object);
    Py_XDECREF(object);
    return err;
}

/* ---- maps ---- */

static PyObject *
perms_text(uint32_t perms)
{
    char text[4];
    text[0] = perms & CL_MAP_READ ? 'r' : '-';
    text[1] = perms & CL_MAP_WRITE ? 'w' : '-';
    text[2] = perms & CL_MAP_EXEC ? 'x' : '-';
    text[3] = perms & CL_MAP_SHARED ? 's' : 'p';
    return PyUnicode_FromStringAndSize(text, 4);
}

static void
put_map(struct record *record, const struct cl_map *map)
{
    put_unsigned(record, map->start);
    put_unsigned(record, map->end);
    put(record, perms_text(map->perms));
    put_unsigned(record, map->offset);
    put_unsigned(record, map->major);
    put_unsigned(record, map->minor);
    put_unsigned(record, map->inode);
    put(record, map->path_len == 0 ? Py_NewRef(Py_None)
                                   : text_from(map->path, map->path_len));
}

static int
next_map(const char **cursor, const char *end, struct cl_smaps *out)
{
    return cl_maps_next(cursor, end, &out->map);
}

static PyObject *
map_record(PyObject *type, PyObject *names, const struct cl_smaps *found)
{
    struct record record = record_begin(type, names);
    put_map(&record, &found->map);
    return record_end(&record);
}

/* A list with a record of `type` for each mapping, of maps or of smaps. */
static PyObject *
mappings(const char *text, size_t len, PyObject *type, struct origin *from,
         int (*next)(const char **, const char *, struct cl_smaps *),
         PyObject *(*make)(PyObject *, PyObject *, const struct cl_smaps *))
{
    const char *cursor = text;
    const char *end = text + len;
    struct cl_smaps found;
    PyObject *list = PyList_New(0);
    PyObject *names = field_names(type);
    if (list == NULL || names == NULL) {
        goto fail;
    }
    uint64_t last_end = 0;
    int got;
    while ((got = next(&cursor, end, &found)) > 0) {
        if ((got = check_order(&found.map, &last_end, from)) < 0) {
            break;
        }
        if (append(list, make(type, names, &found)) < 0) {
            goto fail;
        }
    }
    if (got < 0) {
        cl_raise_text(got, from->path, cursor, end);
        goto fail;
    }
    Py_DECREF(names);
    return list;

fail:
    Py_XDECREF(names);
    Py_XDECREF(list);
    return NULL;
}

static PyObject *
maps_from(const char *text, size_t len, PyObject *type, struct origin *from)
{
    return mappings(text, len, type, from, next_map, map_record);
}

/* ---- smaps ---- */

static void
put_figures(struct record *record, const struct cl_smaps *smaps, int first)
{
    for (int i = first; i < CL_SMAPS_NFIELDS; i++) {
        put(record,
            unsigned_or_none(smaps->present >> i & 1, smaps->bytes[i]));
    }
}

/* VmFlags, two letters each, as a frozenset; None where the line is absent. */
static PyObject *
flags_set(const struct cl_smaps *smaps)
{
    if (smaps->flags == NULL) {
        Py_RETURN_NONE;
    }
    PyObject *flags = PyFrozenSet_New(NULL);
    const char *at = smaps->flags;
    const char *end = at + smaps->flags_len;
    while (flags != NULL && at < end) {
        const char *first = at;
        while (at < end && *at != ' ') {
            at++;
        }
        if (at > first) {
            PyObject *flag = PyUnicode_DecodeLatin1(first, at - first, NULL);
            if (flag == NULL || PySet_Add(flags, flag) < 0) {
                Py_CLEAR(flags);
            }
            Py_XDECREF(flag);
        }
        at++;
    }
    return flags;
}

static PyObject *
smaps_record(PyObject *type, PyObject *names, const struct cl_smaps *smaps)
{
    struct record record = record_begin(type, names);
    put_map(&record, &smaps->map);
    put_figures(&record, smaps, 0);
    put(&record, smaps->thp_eligible < 0
                     ? Py_NewRef(Py_None)
                     : PyBool_FromLong(smaps->thp_eligible != 0));
    put(&record, unsigned_or_none(smaps->protection_key >= 0,
                                  (uint64_t)smaps->protection_key));
    put(&record, flags_set(smaps));
    return record_end(&record);
}

static PyObject *
smaps_from(const char *text, size_t len, PyObject *type, struct origin *from)
{
    return mappings(text, len, type, from, cl_smaps_next, smaps_record);
}

/* ---- smaps_rollup ---- */

/* What a rollup has; the sizes of single mappings have no sum worth having. */
#define FIRST_SUMMED CL_SMAPS_RSS

static PyObject *
rollup_record(const struct cl_smaps *smaps, PyObject *type, pid_t pid,
              const char *source)
{
    PyObject *names = field_names(type);
    if (names == NULL) {
        return NULL;
    }
    struct record record = record_begin(type, names);
    put_signed(&record, pid);
    put(&record, PyUnicode_InternFromString(source));
    put_figures(&record, smaps, FIRST_SUMMED);
    PyObject *result = record_end(&record);
    Py_DECREF(names);
    return result;
}

/* Exactly one record. */
static PyObject *
rollup_from(const char *text, size_t len, PyObject *type, struct origin *from)
{
    const char *cursor = text;
    const char *end = text + len;
    struct cl_smaps smaps;
    int got = cl_smaps_next(&cursor, end, &smaps);
    if (got == 1 && cursor != end) {
        got = -EBADMSG;
    }
    if (got <= 0) {
        return cl_raise_text(got == 0 ? -ENODATA : got, from->path, cursor,
                             end);
    }
    return rollup_record(&smaps, type, from->pid, "smaps_rollup");
}

/* Every record of smaps added up. A field that one record lacks has no sum. */
static PyObject *
sum_from(const char *text, size_t len, PyObject *type, struct origin *from)
{
    const char *cursor = text;
    const char *end = text + len;
    struct cl_smaps sum = {.present = ~0ull};
    struct cl_smaps smaps;
    uint64_t last_end = 0;
    int got;
    while ((got = cl_smaps_next(&cursor, end, &smaps)) > 0) {
        if ((got = check_order(&smaps.map, &last_end, from)) < 0) {
            break;
        }
        sum.present &= smaps.present;
        for (int i = FIRST_SUMMED; i < CL_SMAPS_NFIELDS; i++) {
            if (__builtin_add_overflow(sum.bytes[i], smaps.bytes[i],
                                       &sum.bytes[i])) {
                return cl_raise_text(-ERANGE, from->path, cursor, end);
            }
        }
    }
    if (got < 0) {
        return cl_raise_text(got, from->path, cursor, end);
    }
    if (cursor == text) {
        return cl_raise_text(-ENODATA, from->path, cursor, end);
    }
    return rollup_record(&sum, type, from->pid, "sum of smaps");
}

/* ---- stat and status ---- */

static PyObject *
stat_from(const char *text, size_t len, PyObject *type, struct origin *from)
{
    struct cl_stat stat;
    int err = cl_stat_parse(text, len, &stat);
    if (err < 0) {
        return cl_raise_text(err, from->path, text, text + len);
    }
    PyObject *names = field_names(type);
    if (names == NULL) {
        return NULL;
    }
    struct record record = record_begin(type, names);
    put(&record, PyUnicode_InternFromString("stat"));
    put_signed(&record, stat.pid);
    put(&record, text_from(stat.comm, stat.comm_len));
    put_letter(&record, stat.state);
    put_signed(&record, stat.ppid);
    put_signed(&record, stat.pgrp);
    put_signed(&record, stat.session);
    put_unsigned(&record, stat.flags);
    put_unsigned(&record, stat.minor_faults);
    put_unsigned(&record, stat.child_minor_faults);
    put_unsigned(&record, stat.major_faults);
    put_unsigned(&record, stat.child_major_faults);
    put_unsigned(&record, stat.user_ticks);
    put_unsigned(&record, stat.system_ticks);
    put_signed(&record, stat.threads);
    put_unsigned(&record, stat.start_ticks);
    put_unsigned(&record, stat.virtual_size);
    put_signed(&record, stat.rss_pages);
    PyObject *result = record_end(&record);
    Py_DECREF(names);
    return result;
}

static PyObject *
four(const uint64_t ids[4])
{
    return Py_BuildValue("(KKKK)", ids[0], ids[1], ids[2], ids[3]);
}

static PyObject *
status_from(const char *text, size_t len, PyObject *type, struct origin *from)
{
    struct cl_status status;
    int err = cl_status_parse(text, len, &status);
    if (err < 0) {
        return cl_raise_text(err, from->path, text, text + len);
    }
    PyObject *names = field_names(type);
    if (names == NULL) {
        return NULL;
    }
    struct record record = record_begin(type, names);
    put(&record, PyUnicode_InternFromString("status"));
    put(&record, text_from(status.name, status.name_len));
    put_letter(&record, status.state);
    put_signed(&record, status.tgid);
    put_signed(&record, status.pid);
    put_signed(&record, status.ppid);
    put_signed(&record, status.tracer_pid);
    put_signed(&record, status.threads);
    put(&record, four(status.uid));
    put(&record, four(status.gid));
    for (int i = 0; i < CL_STATUS_NFIELDS; i++) {
        put(&record,
            unsigned_or_none(status.present >> i & 1, status.bytes[i]));
    }
    PyObject *result = record_end(&record);
    Py_DECREF(names);
    return result;
}

/* ---- from the kernel ---- */

struct request {
    pid_t pid;
    PyObject *type;
    char path[64];
    struct origin from;
};

/* Fill `to` from (pid, type); 0, or -1 with an exception set. */
static int
parse_request(PyObject *args, const char *name, struct request *to)
{
    if (!PyArg_ParseTuple(args, "O&O", cl_pid_converter, &to->pid,
                          &to->type)) {
        return -1;
    }
    to->from.pid = to->pid == 0 ? getpid() : to->pid;
    snprintf(to->path, sizeof to->path, "/proc/%d/%s", (int)to->from.pid,
             name);
    to->from.path = to->path;
    return 0;
}

/* A file of one record. */
static PyObject *
read_small(PyObject *args, const char *name, parser *parse)
{
    char text[SMALL];
    struct request request;
    if (parse_request(args, name, &request) < 0) {
        return NULL;
    }
    ssize_t len;
    Py_BEGIN_ALLOW_THREADS
    len = cl_proc_read_small(request.pid, name, text, sizeof text);
    Py_END_ALLOW_THREADS
    if (len <= 0) {
        return cl_raise_reading((int)len, request.pid, name);
    }
    return parse(text, (size_t)len, request.type, &request.from);
}

/* A file of one record a mapping. */
static PyObject *
read_large(PyObject *args, const char *name, parser *parse)
{
    struct cl_buf buf = {0};
    struct request request;
    if (parse_request(args, name, &request) < 0) {
        return NULL;
    }
    PyObject *result = NULL;
    for (int tries = 0; tries < TORN_TRIES; tries++) {
        PyErr_Clear();
        request.from.torn = false;
        int err;
        Py_BEGIN_ALLOW_THREADS
        err = cl_proc_read(request.pid, name, &buf);
        Py_END_ALLOW_THREADS
        if (err < 0 || buf.len == 0) {
            result = cl_raise_reading(err, request.pid, name);
        } else {
            result = parse(buf.data, buf.len, request.type, &request.from);
        }
        if (!request.from.torn) {
            break;
        }
    }
    cl_buf_release(&buf);
    return result;
}

#define READING(name, read, parse)                                            \
    static PyObject *native_##name(PyObject *module, PyObject *args)          \
    {                                                                         \
        return read(args, #name, parse);                                      \
    }

READING(maps, read_large, maps_from)
READING(smaps, read_large, smaps_from)
READING(smaps_rollup, read_small, rollup_from)
READING(stat, read_small, stat_from)
READING(status, read_small, status_from)

static PyObject *
native_sum_of_smaps(PyObject *module, PyObject *args)
{
    return read_large(args, "smaps", sum_from);
}

/* ---- from recorded bytes, for tests ---- */

static PyObject *
parse_bytes(PyObject *args, parser *parse)
{
    struct origin from = {.pid = 1, .path = "recorded bytes"};
    const char *text;
    Py_ssize_t len;
    PyObject *type;
    if (!PyArg_ParseTuple(args, "y#O", &text, &len, &type)) {
        return NULL;
    }
    return parse(text, (size_t)len, type, &from);
}

#define PARSING(name, parse)                                                  \
    static PyObject *parse_##name(PyObject *module, PyObject *args)           \
    {                                                                         \
        return parse_bytes(args, parse);                                      \
    }

PARSING(maps, maps_from)
PARSING(smaps, smaps_from)
PARSING(rollup, rollup_from)
PARSING(sum, sum_from)
PARSING(stat, stat_from)
PARSING(status, status_from)

PyMethodDef cl_readings_methods[] = {
    {"maps", native_maps, METH_VARARGS, NULL},
    {"smaps", native_smaps, METH_VARARGS, NULL},
    {"smaps_rollup", native_smaps_rollup, METH_VARARGS, NULL},
    {"sum_of_smaps", native_sum_of_smaps, METH_VARARGS, NULL},
    {"stat", native_stat, METH_VARARGS, NULL},
    {"status", native_status, METH_VARARGS, NULL},
    {"parse_maps", parse_maps, METH_VARARGS, NULL},
    {"parse_smaps", parse_smaps, METH_VARARGS, NULL},
    {"parse_rollup", parse_rollup, METH_VARARGS, NULL},
    {"parse_sum", parse_sum, METH_VARARGS, NULL},
    {"parse_stat", parse_stat, METH_VARARGS, NULL},
    {"parse_status", parse_status, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
