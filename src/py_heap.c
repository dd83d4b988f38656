/* Arenas and pools of this process or another: arguments in, rows out. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "cl_heap.h"
#include "cl_pool.h"
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
                          &with_blocks) ||
        cl_layout_require("arenas and pools") < 0) {
        return NULL;
    }
    pid = pid == getpid() ? 0 : pid;
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

PyMethodDef cl_heap_methods[] = {
    {"scan_heap", scan_heap, METH_VARARGS, scan_heap_doc},
    {NULL, NULL, 0, NULL},
};
