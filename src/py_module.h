/* What every py_*.c shares: the module's state and how its parts register. */
#ifndef COWLAB_PY_MODULE_H
#define COWLAB_PY_MODULE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#if !defined(__linux__)
#error "cowlab._native is for Linux"
#endif

/* Each part of the module has a null-terminated method table. */
extern PyMethodDef cl_readings_methods[];
extern PyMethodDef cl_fork_methods[];
extern PyMethodDef cl_host_methods[];
extern PyMethodDef cl_recorder_methods[];

/* Raise for a failed reading: -err is what a cl_* function returned,
 * `operation` a verb phrase ("read", "parse"), `path` what it was done to.
 * Gone for ESRCH and ENOENT under /proc/PID, Truncated for ENODATA, Unreadable
 * for the rest, with the capability that would help where errno is EACCES or
 * EPERM. Always returns NULL. The one place where a negative errno becomes an
 * exception. */
PyObject *cl_raise(int err, const char *operation, const char *path);

/* Raise cowlab._errors.NAME with a message in PyErr_Format's language. Always
 * returns NULL. */
PyObject *cl_raise_named(const char *name, const char *format, ...);

#endif
