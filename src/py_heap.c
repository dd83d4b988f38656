/* Arenas and pools of this process or another: arguments in, rows out. */
#include <errno.h>
#include <malloc.h>
#include <string.h>
#include <unistd.h>

#include "cl_heap.h"
#include "cl_libc.h"
#include "cl_pool.h"
#include "cl_trim.h"
#include "py_layout.h"
#include "py_rows.h"

/* The table of the calling interpreter, or 0 where the search has to find it.
 */
static uint64_t
table_of(pid_t pid)
{
    uint64_t table = 0;
    uintptr_t at = pid == 0 ? cl_arena_table() : 0;
    if (at != 0) {
        memcpy(&table, (const void *)at, sizeof table);
    }
    return table;
}

PyDoc_STRVAR(scan_heap_doc,
             "scan_heap(pid, with_blocks) -> (pools, arenas, blocks, strays)\n"
             "\n"
             "Rows of struct cl_pool_row, struct cl_arena_row and, if asked,\n"
             "a byte a block. pid None is this process. Nothing is allocated\n"
             "on the Python heap before the scan is over.");

static PyObject *
scan_heap(PyObject *module, PyObject *args)
{
    pid_t pid;
    int with_blocks;
    if (!PyArg_ParseTuple(args, "O&p:scan_heap", cl_pid_converter, &pid,
                          &with_blocks)) {
        return NULL;
    }
    pid = pid == getpid() ? 0 : pid;
    /* Another process may have what this one has not. */
    if (pid == 0 && cl_layout_require("arenas and pools") < 0) {
        return NULL;
    }
    struct cl_heap heap = {0};
    int err = cl_heap_scan(pid, table_of(pid), with_blocks, &heap);
    if (err < 0) {
        cl_heap_release(&heap);
        return cl_raise_reading(err == -ENODATA ? 0 : err, pid, "mem");
    }
    PyObject *pools = cl_rows_new(module, &heap.pools, heap.npools,
                                  sizeof(struct cl_pool_row));
    PyObject *arenas = cl_rows_new(module, &heap.arenas, heap.narenas,
                                   sizeof(struct cl_arena_row));
    PyObject *blocks = cl_rows_new(module, &heap.blocks, heap.nblocks, 1);
    PyObject *result = NULL;
    if (pools != NULL && arenas != NULL && blocks != NULL) {
        result = Py_BuildValue("OOOn", pools, arenas, blocks,
                               (Py_ssize_t)heap.strays);
    }
    Py_XDECREF(pools);
    Py_XDECREF(arenas);
    Py_XDECREF(blocks);
    return result;
}

/* ---- Trim and seal ---- */

/* A scan of this process for a change of its pools, with one block held in a
 * pool so that the kind of allocator can be seen. */
struct own_heap {
    struct cl_heap heap;
    void *probe;
};

static void
own_heap_release(struct own_heap *own)
{
    cl_heap_release(&own->heap);
    PyObject_Free(own->probe);
}

/* Whether an object's block is a block of a pool, with nothing before it: not
 * so under another allocator, nor under the debug hooks. */
static bool
is_plain_pymalloc(const struct own_heap *own)
{
    uint64_t address = (uint64_t)(uintptr_t)own->probe;
    uint64_t base = address & ~(uint64_t)(CL_POOL_SIZE - 1);
    const struct cl_pool_row *rows =
        (const struct cl_pool_row *)(const void *)own->heap.pools.data;
    for (size_t i = 0; i < own->heap.npools; i++) {
        if (rows[i].address == base) {
            return rows[i].interpreter == 0 && rows[i].block_size == 32 &&
                   (address - base - CL_POOL_HEADER) % 32 == 0;
        }
    }
    return false;
}

/* 0, or -1 with an exception and nothing to release. */
static int
own_heap_scan(const char *what, struct own_heap *own)
{
    *own = (struct own_heap){{{0}}};
    if (cl_layout_require(what) < 0) {
        return -1;
    }
#ifdef Py_DEBUG
    cl_raise_named("Unsupported",
                   "%s: this is a debug build, which asserts that pools are "
                   "as it left them: use a release build of CPython",
                   what);
    return -1;
#endif
    own->probe = PyObject_Malloc(32);
    if (own->probe == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    int err = cl_heap_scan(0, table_of(0), 0, &own->heap);
    if (err < 0) {
        cl_raise_reading(err, 0, "mem");
    } else if (!is_plain_pymalloc(own)) {
        err = -1;
        cl_raise_named("Unsupported",
                       "%s: objects are not in plain pymalloc blocks here: "
                       "unset PYTHONMALLOC and PYTHONDEVMODE",
                       what);
    }
    if (err < 0) {
        own_heap_release(own);
        return -1;
    }
    return 0;
}

PyDoc_STRVAR(trim_pools_doc,
             "trim_pools() -> dict\n\nGive back the free pages of pools of\n"
             "the calling interpreter; see struct cl_trim.");

static PyObject *
trim_pools(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    struct own_heap own;
    if (own_heap_scan("trim", &own) < 0) {
        return NULL;
    }
    struct cl_trim trim;
    int err = cl_trim_heap(&own.heap, &trim);
    own_heap_release(&own);
    if (err == -EINVAL) {
        return cl_raise_named("Unsupported",
                              "trim: the heap is locked in memory (mlock), "
                              "and locked pages are not given back");
    }
    if (err < 0) {
        return cl_raise(err, "give pages back", "madvise(MADV_DONTNEED)");
    }
    return Py_BuildValue(
        "{s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K}", "pools", trim.pools,
        "pools_trimmed", trim.pools_trimmed, "pools_reset", trim.pools_reset,
        "pools_left", trim.pools_left, "pages", trim.pages, "bytes",
        trim.bytes, "blocks_retired", trim.blocks_retired, "blocks_restored",
        trim.blocks_restored, "blocks_left", trim.blocks_left);
}

/* usedpools of the calling interpreter, or 0. A pool with a block in use and a
 * block just freed stands in one of its lists: two blocks of one pool are
 * asked for, and one given back. Only where objects are in plain pymalloc. */
static uint64_t
own_used_pools(void)
{
    enum { TRIES = 600, SIZE_CLASS = 1 }; /* a pool has 510 of these */
    void *blocks[TRIES];
    uint64_t found = 0;
    int n = 0;
    while (n < TRIES && found == 0) {
        blocks[n] = PyObject_Malloc(32);
        if (blocks[n] == NULL) {
            break;
        }
        n++;
        uint64_t pool =
            (uint64_t)(uintptr_t)blocks[n - 1] & ~(uint64_t)(CL_POOL_SIZE - 1);
        uint64_t before = n < 2 ? 0 : (uint64_t)(uintptr_t)blocks[n - 2];
        if (before - pool < CL_POOL_SIZE) {
            PyObject_Free(blocks[--n]);
            found = cl_used_pools((const void *)(uintptr_t)pool, SIZE_CLASS);
            break;
        }
    }
    while (n > 0) {
        PyObject_Free(blocks[--n]);
    }
    return found;
}

PyDoc_STRVAR(
    seal_pools_doc,
    "seal_pools(plain=False) -> dict\n\nMake every partly used pool of the\n"
    "calling interpreter look full; see struct cl_seal. plain: the\n"
    "allocator is known to be pymalloc, with nothing over it.");

static PyObject *
seal_pools(PyObject *module, PyObject *args)
{
    int plain = 0;
    if (!PyArg_ParseTuple(args, "|p:seal_pools", &plain)) {
        return NULL;
    }
#ifdef Py_DEBUG
    plain = 0; /* refused below, by name */
#endif
    struct cl_seal seal;
    uint64_t used_pools =
        plain && cl_layout_unsupported() == NULL ? own_used_pools() : 0;
    if (used_pools != 0) {
        cl_seal_lists(used_pools, &seal);
    } else {
        struct own_heap own;
        if (own_heap_scan("seal", &own) < 0) {
            return NULL;
        }
        cl_seal_heap(&own.heap, &seal);
        own_heap_release(&own);
    }
    return Py_BuildValue(
        "{s:K,s:K,s:K,s:K,s:K}", "pools", seal.pools, "pools_sealed",
        seal.pools_sealed, "pools_left", seal.pools_left, "blocks_retired",
        seal.blocks_retired, "bytes_retired", seal.bytes_retired);
}

PyDoc_STRVAR(trim_libc_doc, "trim_libc() -> bool\n\nglibc's malloc_trim(0).\n"
                            "None where the C library has none.");

static PyObject *
trim_libc(PyObject *module, PyObject *Py_UNUSED(ignored))
{
#ifdef __GLIBC__
    int returned;
    Py_BEGIN_ALLOW_THREADS
    returned = malloc_trim(0);
    Py_END_ALLOW_THREADS
    return PyBool_FromLong(returned);
#else
    Py_RETURN_NONE;
#endif
}

/* What a seal of libc holds, until the capsule goes. */
#define HELD "cowlab._native.held"

struct held {
    struct cl_libc_seal seal;
    pid_t pid; /* a child leaves alone what its parent sealed */
};

static void
held_release(PyObject *capsule)
{
    struct held *held = PyCapsule_GetPointer(capsule, HELD);
    if (held->pid == getpid()) {
        cl_libc_unseal(&held->seal);
    }
    PyMem_Free(held);
}

/* A capsule that holds nothing yet. */
static PyObject *
held_new(void)
{
    struct held *held = PyMem_Calloc(1, sizeof *held);
    if (held == NULL) {
        return PyErr_NoMemory();
    }
    held->pid = getpid();
    PyObject *capsule = PyCapsule_New(held, HELD, held_release);
    if (capsule == NULL) {
        PyMem_Free(held);
    }
    return capsule;
}

PyDoc_STRVAR(
    seal_libc_doc,
    "seal_libc(held=None) -> (blocks, bytes, held)\n\nTake the free memory "
    "of glibc's malloc out\nof use, until `held` goes or is given to the next "
    "call. None where malloc is\nanother or this is not the main thread.");

static PyObject *
seal_libc(PyObject *module, PyObject *args)
{
    PyObject *capsule = Py_None;
    struct held *held = NULL;
    if (!PyArg_ParseTuple(args, "|O:seal_libc", &capsule)) {
        return NULL;
    }
    if (capsule != Py_None &&
        (held = PyCapsule_GetPointer(capsule, HELD)) == NULL) {
        return NULL;
    }
    /* Not by its reference count, which an immortal one no longer has. */
    if (held != NULL && held->pid == getpid()) {
        Py_INCREF(capsule);
    } else if ((capsule = held_new()) == NULL) {
        return NULL;
    }
    held = PyCapsule_GetPointer(capsule, HELD);
    int err = cl_libc_seal(&held->seal);
    if (err < 0) {
        Py_DECREF(capsule);
        if (err == -ENOTSUP) {
            Py_RETURN_NONE;
        }
        return cl_raise_reading(err, 0, "mem");
    }
    return Py_BuildValue("(KKN)", held->seal.blocks, held->seal.bytes,
                         capsule);
}

PyMethodDef cl_heap_methods[] = {
    {"trim_pools", trim_pools, METH_NOARGS, trim_pools_doc},
    {"seal_pools", seal_pools, METH_VARARGS, seal_pools_doc},
    {"trim_libc", trim_libc, METH_NOARGS, trim_libc_doc},
    {"seal_libc", seal_libc, METH_VARARGS, seal_libc_doc},
    {"scan_heap", scan_heap, METH_VARARGS, scan_heap_doc},
    {NULL, NULL, 0, NULL},
};
