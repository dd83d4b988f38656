/* A negative errno, an operation and a path become an exception here only. */
#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "py_module.h"

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

PyObject *
cl_raise(int err, const char *operation, const char *path)
{
    if (err == ENOMEM) {
        return PyErr_NoMemory();
    }
    PyObject *type = error_type(name_for(err));
    if (type == NULL) {
        return NULL;
    }
    PyObject *text =
        PyUnicode_FromFormat("cannot %s: %s", operation, remedy_for(err));
    PyObject *args =
        text == NULL ? NULL : Py_BuildValue("(iOs)", err, text, path);
    if (args != NULL) {
        PyErr_SetObject(type, args);
    }
    Py_XDECREF(args);
    Py_XDECREF(text);
    Py_DECREF(type);
    return NULL;
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
