/* A negative errno, an operation and a path become an exception here only. */
#include "py_module.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "cl_proc.h"

static PyObject *
error_type(const char *name)
{
    PyObject *module = PyImport_ImportModule("cowlab._errors");
    if (module == NULL) {
        return NULL;
    }
    PyObject *type = PyObject_GetAttrString(module, name);
    Py_DECREF(module);
    return type;
}

static const char *
name_for(int err)
{
    switch (err) {
    case ESRCH:
    case ENOENT:
        return "Gone";
    case ENODATA:
        return "Truncated";
    default:
        return "Unreadable";
    }
}

static const char *
remedy_for(int err)
{
    switch (err) {
    case ESRCH:
    case ENOENT:
        return "the process has ended, or there is no such process";
    case ENODATA:
        return "the text ends in the middle of a record: read it again";
    case EACCES:
    case EPERM:
        return "permission denied: be its owner, or have CAP_SYS_PTRACE";
    case EBADMSG:
        return "this is not what the kernel writes there";
    default:
        return strerror(err);
    }
}

/* Raise an OSError of ours; steals `text`, which may be NULL with an error
 * set.
 */
static PyObject *
raise_os(const char *name, int err, PyObject *text, const char *path)
{
    PyObject *type = text == NULL ? NULL : error_type(name);
    if (type != NULL) {
        PyObject *args = Py_BuildValue("(iOs)", err, text, path);
        if (args != NULL) {
            PyErr_SetObject(type, args);
            Py_DECREF(args);
        }
        Py_DECREF(type);
    }
    Py_XDECREF(text);
    return NULL;
}

PyObject *
cl_raise_os(const char *name, int err, const char *sentence, const char *path)
{
    return raise_os(name, err, PyUnicode_FromString(sentence), path);
}

PyObject *
cl_raise(int err, const char *operation, const char *path)
{
    err = err < 0 ? -err : err;
    if (err == ENOMEM) {
        return PyErr_NoMemory();
    }
    return raise_os(
        name_for(err), err,
        PyUnicode_FromFormat("cannot %s: %s", operation, remedy_for(err)),
        path);
}

/* "process 12", or "this process". */
static PyObject *
who(pid_t pid)
{
    return pid == 0 ? PyUnicode_FromString("this process")
                    : PyUnicode_FromFormat("process %d", (int)pid);
}

static PyObject *
raise_absent(int err, pid_t pid, const char *name, const char *path)
{
    PyObject *subject = who(pid);
    if (subject == NULL) {
        return NULL;
    }
    PyObject *text;
    PyObject *result = NULL;
    switch (cl_proc_state(pid)) {
    case CL_PROC_ZOMBIE:
        text = PyUnicode_FromFormat(
            "%U has ended and waits for its parent: it has no memory any more",
            subject);
        result = raise_os("Zombie", ESRCH, text, path);
        break;
    case CL_PROC_LEADERLESS:
        text = PyUnicode_FromFormat(
            "the main thread of %U has ended while others go on: ask for one "
            "of those, as %d",
            subject, (int)cl_proc_other_thread(pid));
        result = raise_os("Unreadable", ESRCH, text, path);
        break;
    case CL_PROC_KERNEL:
        text = PyUnicode_FromFormat(
            "%U is a kernel thread: it has no memory of its own", subject);
        result = raise_os("KernelThread", ESRCH, text, path);
        break;
    case CL_PROC_HIDDEN:
        text = PyUnicode_FromFormat(
            "%U is there, but /proc hides it (hidepid): be its owner, or have "
            "CAP_SYS_PTRACE",
            subject);
        result = raise_os("Unreadable", EACCES, text, path);
        break;
    case CL_PROC_NO_PROC:
        cl_raise_named("Unsupported",
                       "no /proc is mounted here, and every reading is from "
                       "it: mount -t proc proc /proc");
        break;
    case CL_PROC_ALIVE:
        if (err == ENOENT) {
            cl_raise_named("Unsupported", "this kernel has no /proc/PID/%s",
                           name);
            break;
        }
        text = PyUnicode_FromFormat(
            "%U got new memory (exec) while it was read: read it again",
            subject);
        result = raise_os("Unreadable", EAGAIN, text, path);
        break;
    case CL_PROC_GONE:
        text = PyUnicode_FromFormat("there is no %U, or no longer", subject);
        result = raise_os("Gone", ESRCH, text, path);
        break;
    }
    Py_DECREF(subject);
    return result;
}

static PyObject *
raise_denied(int err, pid_t pid, const char *path)
{
    if ((pid == 0 || pid == getpid()) && prctl(PR_GET_DUMPABLE) != 1) {
        /* What setuid leaves behind; the files of such a process are root's.
         */
        return cl_raise_os("Unreadable", err,
                           "the kernel guards this process since it changed "
                           "its user: prctl(PR_SET_DUMPABLE, 1) opens it, or "
                           "CAP_DAC_OVERRIDE",
                           path);
    }
    PyObject *subject = who(pid);
    PyObject *text =
        subject == NULL
            ? NULL
            : PyUnicode_FromFormat(
                  "the kernel denies the memory of %U: be its owner, or have "
                  "CAP_SYS_PTRACE in its user namespace",
                  subject);
    Py_XDECREF(subject);
    return raise_os("Unreadable", err, text, path);
}

PyObject *
cl_raise_reading(int err, pid_t pid, const char *name)
{
    char path[64];
    err = err < 0 ? -err : err;
    if (pid == 0) {
        snprintf(path, sizeof path, "/proc/self/%s", name);
    } else {
        snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    }
    if (err == 0 || err == ESRCH || err == ENOENT) {
        return raise_absent(err, pid, name, path);
    }
    if (err == EACCES || err == EPERM) {
        /* Where there is no memory, the kernel denies it to all but root. */
        enum cl_proc_state state = cl_proc_state(pid);
        bool absent = state == CL_PROC_ZOMBIE || state == CL_PROC_LEADERLESS ||
                      state == CL_PROC_KERNEL || state == CL_PROC_GONE;
        return absent ? raise_absent(err, pid, name, path)
                      : raise_denied(err, pid, path);
    }
    return cl_raise(err, "read", path);
}

#define QUOTED 80

PyObject *
cl_raise_text(int err, const char *path, const char *at, const char *end)
{
    err = err < 0 ? -err : err;
    const char *newline =
        at < end ? memchr(at, '\n', (size_t)(end - at)) : end;
    size_t len = (size_t)((newline == NULL ? end : newline) - at);
    PyObject *line = PyUnicode_DecodeLatin1(
        at, (Py_ssize_t)(len < QUOTED ? len : QUOTED), NULL);
    if (line == NULL) {
        return NULL;
    }
    const char *dots = len > QUOTED ? " ..." : "";
    PyObject *text;
    if (err == ENODATA) {
        text = PyUnicode_FromFormat(
            "the text ends in the middle of a record, at %R%s: read it again",
            line, dots);
    } else if (err == EAGAIN) {
        text = PyUnicode_FromFormat(
            "the process mapped and unmapped memory while it was read, again "
            "and again, and %R%s overlaps what is before it: stop the process "
            "(kill -STOP) and read it then",
            line, dots);
    } else if (err == ERANGE) {
        text = PyUnicode_FromFormat("a value is beyond 64 bits: %R%s", line,
                                    dots);
    } else {
        text = PyUnicode_FromFormat(
            "this is not what the kernel writes there: %R%s", line, dots);
    }
    Py_DECREF(line);
    return raise_os(name_for(err), err, text, path);
}

int
cl_pid_converter(PyObject *object, void *to)
{
    pid_t *pid = to;
    if (object == Py_None) {
        *pid = 0;
        return 1;
    }
    if (PyBool_Check(object) || !PyIndex_Check(object)) {
        PyErr_Format(
            PyExc_TypeError,
            "pid must be an int, or None for this process, not %.100s",
            Py_TYPE(object)->tp_name);
        return 0;
    }
    PyObject *number = PyNumber_Index(object);
    if (number == NULL) {
        return 0;
    }
    int overflow;
    long value = PyLong_AsLongAndOverflow(number, &overflow);
    Py_DECREF(number);
    if (overflow < 0 || (overflow == 0 && value <= 0)) {
        PyErr_Format(PyExc_ValueError,
                     "pid must be positive, or None for this process, not %R",
                     object);
        return 0;
    }
    if (overflow > 0 || value > INT_MAX) {
        raise_os("Gone", ESRCH,
                 PyUnicode_FromString("no process has so large a number"),
                 "/proc");
        return 0;
    }
    *pid = (pid_t)value;
    return 1;
}

PyObject *
cl_raise_named(const char *name, const char *format, ...)
{
    PyObject *type = error_type(name);
    if (type == NULL) {
        return NULL;
    }
    va_list args;
    va_start(args, format);
    PyErr_FormatV(type, format, args);
    va_end(args);
    Py_DECREF(type);
    return NULL;
}
