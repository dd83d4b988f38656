/* Recorders as Python holds them. */
#ifndef COWLAB_PY_RECORDER_H
#define COWLAB_PY_RECORDER_H

#include "cl_faults.h"
#include "py_module.h"

/* The recorder in a capsule of recorder_prepare; NULL with an exception for
 * anything else. Borrowed: it lives as long as the capsule. */
struct cl_recorder *cl_recorder_of(PyObject *capsule);

#endif
