/* What lies at addresses: glue. */
#include "py_where.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "py_layout.h"

static PyObject *
name_of(const char *name)
{
    return PyUnicode_DecodeUTF8(name, (Py_ssize_t)strnlen(name, 32),
                                "replace");
}

PyObject *
cl_where_rows(const struct cl_where *answers, size_t n)
{
    PyObject *list = PyList_New((Py_ssize_t)n);
    for (size_t i = 0; list != NULL && i < n; i++) {
        const struct cl_where *a = &answers[i];
        PyObject *row = Py_BuildValue(
            "(KHHKKKIiINKN)", a->address, a->place, a->field, a->object,
            a->type, a->block, a->block_size, a->offset, a->basicsize,
            name_of(a->type_name), a->owner, name_of(a->owner_type));
        if (row == NULL) {
            Py_CLEAR(list);
        } else {
            PyList_SET_ITEM(list, (Py_ssize_t)i, row);
        }
    }
    return list;
}

static PyObject *
numbers(const struct cl_buf *buf, size_t n)
{
    const uint64_t *values = (const void *)buf->data;
    PyObject *list = PyList_New((Py_ssize_t)n);
    for (size_t i = 0; list != NULL && i < n; i++) {
        PyObject *item = PyLong_FromUnsignedLongLong(values[i]);
        if (item == NULL) {
            Py_CLEAR(list);
        } else {
            PyList_SET_ITEM(list, (Py_ssize_t)i, item);
        }
    }
    return list;
}

static long
count_of(const struct cl_buf *buf, size_t i)
{
    uint32_t count = ((const uint32_t *)(const void *)buf->data)[i];
    return count == UINT32_MAX ? -1 : (long)count;
}

static PyObject *
count_pairs(const struct cl_evidence *evidence)
{
    const uint64_t *addresses = (const void *)evidence->addresses.data;
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict != NULL && i < evidence->n; i++) {
        PyObject *key = PyLong_FromUnsignedLongLong(addresses[i]);
        PyObject *pair = Py_BuildValue("(ll)", count_of(&evidence->before, i),
                                       count_of(&evidence->after, i));
        if (key == NULL || pair == NULL ||
            PyDict_SetItem(dict, key, pair) < 0) {
            Py_CLEAR(dict);
        }
        Py_XDECREF(key);
        Py_XDECREF(pair);
    }
    return dict;
}

PyObject *
cl_evidence_as_tuple(const struct cl_evidence *evidence)
{
    PyObject *counts = count_pairs(evidence);
    if (counts == NULL) {
        return NULL;
    }
    return Py_BuildValue(
        "(NNNNO)", numbers(&evidence->copied, evidence->ncopied),
        cl_where_rows((const void *)evidence->rest.data, evidence->n),
        cl_where_rows((const void *)evidence->done.data, evidence->n), counts,
        evidence->by_parent ? Py_True : Py_False);
}

PyDoc_STRVAR(
    where_doc,
    "where(pid, addresses)\n--\n\n"
    "What lies at each of the addresses, a buffer of sorted unsigned\n"
    "64-bit numbers, in the memory of a process: see cl_where_rows.");

static PyObject *
where(PyObject *module, PyObject *args)
{
    int pid;
    Py_buffer buffer;
    if (!PyArg_ParseTuple(args, "iy*:where", &pid, &buffer)) {
        return NULL;
    }
    struct cl_object_layout layout;
    PyObject *result = NULL;
    size_t n = (size_t)buffer.len / sizeof(uint64_t);
    size_t size = (n + 1) * sizeof(struct cl_where);
    struct cl_where *answers = MAP_FAILED;
    if (cl_layout_require("what an address is") < 0 ||
        cl_object_layout(&layout) != 0) {
        goto done;
    }
    answers = mmap(NULL, size, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (answers == MAP_FAILED) {
        PyErr_NoMemory();
        goto done;
    }
    int err = cl_where(pid, &layout, buffer.buf, n, answers);
    if (err != 0) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/mem", pid);
        cl_raise(err, "read", path);
        goto done;
    }
    result = cl_where_rows(answers, n);
done:
    if (answers != MAP_FAILED) {
        munmap(answers, size);
    }
    PyBuffer_Release(&buffer);
    return result;
}

PyDoc_STRVAR(pool_counts_doc,
             "pool_counts(pid, addresses)\n--\n\n"
             "How many blocks are in use in the pool around each address; -1\n"
             "where there is none.");

static PyObject *
pool_counts(PyObject *module, PyObject *args)
{
    int pid;
    Py_buffer buffer;
    if (!PyArg_ParseTuple(args, "iy*:pool_counts", &pid, &buffer)) {
        return NULL;
    }
    size_t n = (size_t)buffer.len / sizeof(uint64_t);
    uint32_t *counts = PyMem_Calloc(n + 1, sizeof *counts);
    PyObject *list = NULL;
    if (counts == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    int err = cl_where_pool_counts(pid, buffer.buf, n, counts);
    if (err != 0) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/mem", pid);
        cl_raise(err, "read", path);
        goto done;
    }
    list = PyList_New((Py_ssize_t)n);
    for (size_t i = 0; list != NULL && i < n; i++) {
        PyObject *item =
            PyLong_FromLong(counts[i] == UINT32_MAX ? -1 : (long)counts[i]);
        if (item == NULL) {
            Py_CLEAR(list);
        } else {
            PyList_SET_ITEM(list, (Py_ssize_t)i, item);
        }
    }
done:
    PyMem_Free(counts);
    PyBuffer_Release(&buffer);
    return list;
}

PyMethodDef cl_where_methods[] = {
    {"where", where, METH_VARARGS, where_doc},
    {"pool_counts", pool_counts, METH_VARARGS, pool_counts_doc},
    {NULL, NULL, 0, NULL},
};
