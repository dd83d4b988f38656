/* Readings of one process: arguments in, results and exceptions out.
 *
 * Each reading is the parse of one file, so that what is said of recorded
 * bytes is said of the kernel's too. The classes come from Python, as an
 * argument; their instances are filled slot by slot, which a frozen dataclass
 * allows from here and which costs a third of its __init__. */
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

/* Where a text is from. */
struct origin {
    pid_t pid; /* as the result shows it */
    const char *path;
};

typedef PyObject *parser(const char *text, size_t len, PyObject *type,
                         const struct origin *from);

/* An object of `type` whose slots are still empty. */
static PyObject *
new_record(PyObject *type)
{
    if (!PyType_Check(type)) {
        return PyErr_Format(PyExc_TypeError, "not a class: %R", type);
    }
    return ((PyTypeObject *)type)->tp_alloc((PyTypeObject *)type, 0);
}

/* Fill one slot; steals `value`, which may be NULL with an error set. */
static int
set(PyObject *record, PyObject *name, PyObject *value)
{
    if (value == NULL) {
        return -1;
    }
    int err = PyObject_GenericSetAttr(record, name, value);
    Py_DECREF(value);
    return err;
}

static int
set_named(PyObject *record, const char *name, PyObject *value)
{
    PyObject *key = PyUnicode_InternFromString(name);
    if (key == NULL) {
        Py_XDECREF(value);
        return -1;
    }
    int err = set(record, key, value);
    Py_DECREF(key);
    return err;
}

/* Paths and names are any bytes; Python's own way back is os.fsencode. */
static PyObject *
text_or_none(const char *text, size_t len)
{
    if (text == NULL || len == 0) {
        Py_RETURN_NONE;
    }
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

static PyObject *
signed_or_none(int64_t value)
{
    if (value < 0) {
        Py_RETURN_NONE;
    }
    return PyLong_FromLongLong(value);
}

static PyObject *
letter(char c)
{
    return PyUnicode_FromOrdinal((unsigned char)c);
}

/* ---- maps ---- */

static PyObject *
perms_text(uint32_t perms)
{
    char text[5] = "---p";
    text[0] = perms & CL_MAP_READ ? 'r' : '-';
    text[1] = perms & CL_MAP_WRITE ? 'w' : '-';
    text[2] = perms & CL_MAP_EXEC ? 'x' : '-';
    text[3] = perms & CL_MAP_SHARED ? 's' : 'p';
    return PyUnicode_FromStringAndSize(text, 4);
}

enum { START, END, PERMS, OFFSET, MAJOR, MINOR, INODE, PATH, NMAP };

static const char *const map_names[NMAP] = {
    "start", "end", "perms", "offset", "major", "minor", "inode", "path",
};

static int
fill_map(PyObject *record, PyObject *names, const struct cl_map *map)
{
#define NAME(i) PyTuple_GET_ITEM(names, i)
    if (set(record, NAME(START), PyLong_FromUnsignedLongLong(map->start)) <
            0 ||
        set(record, NAME(END), PyLong_FromUnsignedLongLong(map->end)) < 0 ||
        set(record, NAME(PERMS), perms_text(map->perms)) < 0 ||
        set(record, NAME(OFFSET), PyLong_FromUnsignedLongLong(map->offset)) <
            0 ||
        set(record, NAME(MAJOR), PyLong_FromUnsignedLong(map->major)) < 0 ||
        set(record, NAME(MINOR), PyLong_FromUnsignedLong(map->minor)) < 0 ||
        set(record, NAME(INODE), PyLong_FromUnsignedLongLong(map->inode)) <
            0 ||
        set(record, NAME(PATH), text_or_none(map->path, map->path_len)) < 0) {
        return -1;
    }
    return 0;
}

/* A tuple of interned strings. */
static PyObject *
intern(const char *const *names, Py_ssize_t count)
{
    PyObject *tuple = PyTuple_New(count);
    for (Py_ssize_t i = 0; tuple != NULL && i < count; i++) {
        PyObject *name = PyUnicode_InternFromString(names[i]);
        if (name == NULL) {
            Py_CLEAR(tuple);
            break;
        }
        PyTuple_SET_ITEM(tuple, i, name);
    }
    return tuple;
}

static PyObject *
maps_from(const char *text, size_t len, PyObject *type,
          const struct origin *from)
{
    const char *cursor = text;
    const char *end = text + len;
    struct cl_map map;
    PyObject *list = PyList_New(0);
    PyObject *names = intern(map_names, NMAP);
    if (list == NULL || names == NULL) {
        goto fail;
    }
    int got;
    while ((got = cl_maps_next(&cursor, end, &map)) > 0) {
        PyObject *record = new_record(type);
        int err = record == NULL || fill_map(record, names, &map) < 0 ||
                  PyList_Append(list, record) < 0;
        Py_XDECREF(record);
        if (err) {
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

/* ---- smaps ---- */

static const char *const smaps_names[CL_SMAPS_NFIELDS] = {
#define X(name, kernel, python) python,
    CL_SMAPS_FIELDS(X)
#undef X
};

static int
fill_smaps(PyObject *record, PyObject *names, const struct cl_smaps *smaps)
{
    for (int i = 0; i < CL_SMAPS_NFIELDS; i++) {
        PyObject *value =
            unsigned_or_none(smaps->present >> i & 1, smaps->bytes[i]);
        if (set(record, NAME(i), value) < 0) {
            return -1;
        }
    }
    return 0;
}
#undef NAME

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
thp_eligible(const struct cl_smaps *smaps)
{
    if (smaps->thp_eligible < 0) {
        Py_RETURN_NONE;
    }
    return PyBool_FromLong(smaps->thp_eligible != 0);
}

static PyObject *
smaps_from(const char *text, size_t len, PyObject *type,
           const struct origin *from)
{
    const char *cursor = text;
    const char *end = text + len;
    struct cl_smaps smaps;
    PyObject *list = PyList_New(0);
    PyObject *map_keys = intern(map_names, NMAP);
    PyObject *keys = intern(smaps_names, CL_SMAPS_NFIELDS);
    if (list == NULL || map_keys == NULL || keys == NULL) {
        goto fail;
    }
    int got;
    while ((got = cl_smaps_next(&cursor, end, &smaps)) > 0) {
        PyObject *record = new_record(type);
        int err =
            record == NULL || fill_map(record, map_keys, &smaps.map) < 0 ||
            fill_smaps(record, keys, &smaps) < 0 ||
            set_named(record, "thp_eligible", thp_eligible(&smaps)) < 0 ||
            set_named(record, "protection_key",
                      signed_or_none(smaps.protection_key)) < 0 ||
            set_named(record, "flags", flags_set(&smaps)) < 0 ||
            PyList_Append(list, record) < 0;
        Py_XDECREF(record);
        if (err) {
            goto fail;
        }
    }
    if (got < 0) {
        cl_raise_text(got, from->path, cursor, end);
        goto fail;
    }
    Py_DECREF(map_keys);
    Py_DECREF(keys);
    return list;

fail:
    Py_XDECREF(map_keys);
    Py_XDECREF(keys);
    Py_XDECREF(list);
    return NULL;
}

/* ---- smaps_rollup ---- */

/* What a rollup has; the sizes of single mappings have no sum worth having. */
#define FIRST_SUMMED CL_SMAPS_RSS

static PyObject *
rollup_record(const struct cl_smaps *smaps, PyObject *type, pid_t pid,
              const char *source)
{
    PyObject *record = new_record(type);
    int err = record == NULL ||
              set_named(record, "pid", PyLong_FromLong(pid)) ||
              set_named(record, "source", PyUnicode_FromString(source));
    for (int i = FIRST_SUMMED; !err && i < CL_SMAPS_NFIELDS; i++) {
        err = set_named(
            record, smaps_names[i],
            unsigned_or_none(smaps->present >> i & 1, smaps->bytes[i]));
    }
    if (err) {
        Py_CLEAR(record);
    }
    return record;
}

/* Exactly one record. */
static PyObject *
rollup_from(const char *text, size_t len, PyObject *type,
            const struct origin *from)
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
sum_from(const char *text, size_t len, PyObject *type,
         const struct origin *from)
{
    const char *cursor = text;
    const char *end = text + len;
    struct cl_smaps sum = {.present = ~0ull};
    struct cl_smaps smaps;
    int got;
    while ((got = cl_smaps_next(&cursor, end, &smaps)) > 0) {
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
stat_from(const char *text, size_t len, PyObject *type,
          const struct origin *from)
{
    struct cl_stat stat;
    int err = cl_stat_parse(text, len, &stat);
    if (err < 0) {
        return cl_raise_text(err, from->path, text, text + len);
    }
    PyObject *record = new_record(type);
    if (record == NULL ||
        set_named(record, "source", PyUnicode_FromString("stat")) ||
        set_named(record, "comm",
                  PyUnicode_DecodeFSDefaultAndSize(
                      stat.comm, (Py_ssize_t)stat.comm_len)) ||
        set_named(record, "state", letter(stat.state))) {
        goto fail;
    }
#define SIGNED(field)                                                         \
    if (set_named(record, #field, PyLong_FromLongLong(stat.field)) < 0) {     \
        goto fail;                                                            \
    }
#define UNSIGNED(field)                                                       \
    if (set_named(record, #field, PyLong_FromUnsignedLongLong(stat.field)) <  \
        0) {                                                                  \
        goto fail;                                                            \
    }
    SIGNED(pid)
    SIGNED(ppid)
    SIGNED(pgrp)
    SIGNED(session)
    UNSIGNED(flags)
    UNSIGNED(minor_faults)
    UNSIGNED(child_minor_faults)
    UNSIGNED(major_faults)
    UNSIGNED(child_major_faults)
    UNSIGNED(user_ticks)
    UNSIGNED(system_ticks)
    SIGNED(threads)
    UNSIGNED(start_ticks)
    UNSIGNED(virtual_size)
    SIGNED(rss_pages)
#undef SIGNED
#undef UNSIGNED
    return record;

fail:
    Py_XDECREF(record);
    return NULL;
}

static PyObject *
four(const uint64_t ids[4])
{
    return Py_BuildValue("(KKKK)", ids[0], ids[1], ids[2], ids[3]);
}

static PyObject *
status_from(const char *text, size_t len, PyObject *type,
            const struct origin *from)
{
    static const char *const names[CL_STATUS_NFIELDS] = {
#define X(name, kernel, python) python,
        CL_STATUS_FIELDS(X)
#undef X
    };
    struct cl_status status;
    int err = cl_status_parse(text, len, &status);
    if (err < 0) {
        return cl_raise_text(err, from->path, text, text + len);
    }
    PyObject *record = new_record(type);
    if (record == NULL ||
        set_named(record, "source", PyUnicode_FromString("status")) ||
        set_named(record, "name",
                  PyUnicode_DecodeFSDefaultAndSize(
                      status.name, (Py_ssize_t)status.name_len)) ||
        set_named(record, "state", letter(status.state)) ||
        set_named(record, "tgid", PyLong_FromLongLong(status.tgid)) ||
        set_named(record, "pid", PyLong_FromLongLong(status.pid)) ||
        set_named(record, "ppid", PyLong_FromLongLong(status.ppid)) ||
        set_named(record, "tracer_pid",
                  PyLong_FromLongLong(status.tracer_pid)) ||
        set_named(record, "threads", PyLong_FromLongLong(status.threads)) ||
        set_named(record, "uid", four(status.uid)) ||
        set_named(record, "gid", four(status.gid))) {
        Py_XDECREF(record);
        return NULL;
    }
    for (int i = 0; i < CL_STATUS_NFIELDS; i++) {
        if (set_named(record, names[i],
                      unsigned_or_none(status.present >> i & 1,
                                       status.bytes[i])) < 0) {
            Py_DECREF(record);
            return NULL;
        }
    }
    return record;
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
    Py_BEGIN_ALLOW_THREADS len =
        cl_proc_read_small(request.pid, name, text, sizeof text);
    Py_END_ALLOW_THREADS if (len <= 0)
    {
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
    PyObject *result;
    int err;
    Py_BEGIN_ALLOW_THREADS err = cl_proc_read(request.pid, name, &buf);
    Py_END_ALLOW_THREADS if (err < 0 || buf.len == 0)
    {
        result = cl_raise_reading(err, request.pid, name);
    }
    else
    {
        result = parse(buf.data, buf.len, request.type, &request.from);
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
    static const struct origin from = {1, "recorded bytes"};
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
