/* What every py_*.c shares: the module's state and how its parts register. */
#ifndef COWLAB_PY_MODULE_H
#define COWLAB_PY_MODULE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <sys/types.h>

#if !defined(__linux__)
#error "cowlab._native is for Linux"
#endif

/* Each part of the module has a null-terminated method table. */
extern PyMethodDef cl_readings_methods[];
extern PyMethodDef cl_pagemap_methods[];
extern PyMethodDef cl_fork_methods[];
extern PyMethodDef cl_host_methods[];
extern PyMethodDef cl_recorder_methods[];
extern PyMethodDef cl_where_methods[];
extern PyMethodDef cl_immortal_methods[];
extern PyMethodDef cl_heap_methods[];

/* Raise for a failed reading: -err is what a cl_* function returned,
 * `operation` a verb phrase ("read", "parse"), `path` what it was done to.
 * Gone for ESRCH and ENOENT under /proc/PID, Truncated for ENODATA, Unreadable
 * for the rest, with the capability that would help where errno is EACCES or
 * EPERM. Always returns NULL. The one place where a negative errno becomes an
 * exception. */
PyObject *cl_raise(int err, const char *operation, const char *path);

/* Raise cowlab._errors.NAME, an OSError, with that errno (positive), sentence
 * and path. Always returns NULL. */
PyObject *cl_raise_os(const char *name, int err, const char *sentence,
                      const char *path);

/* Raise for /proc/PID/NAME, which could not be read: -err as above, or 0 where
 * there was nothing in it. Looks at the process to say why: it has ended
 * (Gone), ended and waits for its parent (Zombie), is a kernel thread
 * (KernelThread), is hidden or forbidden (Unreadable), or this kernel has no
 * such file (Unsupported). Always returns NULL. */
PyObject *cl_raise_reading(int err, pid_t pid, const char *name);

/* Raise for the text of `path`, which a parser refused with -err at its byte
 * `at`: Truncated or Unreadable, and what was there. Always returns NULL. */
PyObject *cl_raise_text(int err, const char *path, const char *at,
                        const char *end);

/* A "O&" converter to a pid_t: None is 0, this process. TypeError for what is
 * no int (bool included), ValueError for 0 and less, Gone for what no process
 * can have. */
int cl_pid_converter(PyObject *object, void *to);

/* Raise cowlab._errors.NAME with a message in PyErr_Format's language. Always
 * returns NULL. */
PyObject *cl_raise_named(const char *name, const char *format, ...);

/* Types that a part adds to the module. 0 or -1. */
int cl_pagemap_exec(PyObject *module);

#endif
