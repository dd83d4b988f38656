/* The Python code that a thread is executing, as a signal handler may ask: no
 * allocation, no reference count, no lock. A part of py_layout. */
#ifndef COWLAB_PY_LAYOUT_FRAME_H
#define COWLAB_PY_LAYOUT_FRAME_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>

#include "cl_record.h"

/* The innermost Python function of the calling thread, whether it holds the
 * GIL or not. False where it runs none. Pointers in `view` are into objects
 * that live at least until the handler returns. Async-signal-safe. */
bool cl_frame_current(struct cl_code_view *view);

/* [(start, end)] of the memory that Python frames of this interpreter's
 * threads lie in. A new reference, or NULL. Needs the GIL. */
PyObject *cl_frame_stacks(void);

/* Visit the local variables of every running function, of all threads of this
 * interpreter: often the only references to a table that a script has loaded,
 * and invisible to the collector where the table holds no container. Not what
 * lies on the evaluation stack. Needs the GIL; writes nothing. */
int cl_visit_frames(visitproc visit, void *arg);

#endif
