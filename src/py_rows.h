/* Rows of plain numbers that C has written, as a Python object that exports
 * them through the buffer protocol: numpy reads them without a copy, and the
 * struct module without numpy. */
#ifndef COWLAB_PY_ROWS_H
#define COWLAB_PY_ROWS_H

#include "cl_proc.h"
#include "py_module.h"

/* Create the type _native.Rows. 0, or -1 with an exception. */
int cl_rows_register(PyObject *module);

/* A new Rows of `count` rows of `size` bytes each. Takes the memory of `buf`
 * and leaves {0}, also where it fails. A new reference, or NULL. */
PyObject *cl_rows_new(PyObject *module, struct cl_buf *buf, size_t count,
                      size_t size);

#endif
