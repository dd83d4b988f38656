/* Probes of the machine and facts of this interpreter. */
#include <dlfcn.h>
#include <string.h>

#include "cl_host.h"
#include "py_module.h"

static const char *const probe_names[] = {
#define X(id, name) name,
    CL_PROBES(X)
#undef X
};

PyDoc_STRVAR(
    probe_doc,
    "probe(name, timeout_ms=2000, /)\n--\n\n"
    "(available, errno, signal, timed_out, value, detail, step) of one "
    "probe,\nrun in a process of its own. available is None where it "
    "cannot be told.");

static PyObject *
probe(PyObject *module, PyObject *args)
{
    const char *name;
    int timeout_ms = 2000;
    if (!PyArg_ParseTuple(args, "s|i:probe", &name, &timeout_ms)) {
        return NULL;
    }
    int which = 0;
    while (which < CL_NPROBES && strcmp(name, probe_names[which]) != 0) {
        which++;
    }
    if (which == CL_NPROBES) {
        PyErr_Format(PyExc_ValueError, "there is no probe named '%s'", name);
        return NULL;
    }
    struct cl_finding f;
    int err;
    Py_BEGIN_ALLOW_THREADS
    err = cl_probe((enum cl_probe_id)which, timeout_ms, &f);
    Py_END_ALLOW_THREADS
    if (err) {
        errno = -err;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    PyObject *available = f.answer == CL_UNKNOWN ? Py_None
                          : f.answer == CL_YES   ? Py_True
                                                 : Py_False;
    return Py_BuildValue("OiiOKKs", available, f.err, f.signal,
                         f.timed_out ? Py_True : Py_False,
                         (unsigned long long)f.value,
                         (unsigned long long)f.detail, f.step);
}

PyDoc_STRVAR(probes_doc, "probes()\n--\n\nThe names that probe() takes.");

static PyObject *
probes(PyObject *module, PyObject *unused)
{
    PyObject *names = PyTuple_New(CL_NPROBES);
    for (int i = 0; names != NULL && i < CL_NPROBES; i++) {
        PyObject *name = PyUnicode_FromString(probe_names[i]);
        if (name == NULL) {
            Py_CLEAR(names);
            break;
        }
        PyTuple_SET_ITEM(names, i, name);
    }
    return names;
}

PyDoc_STRVAR(allocator_doc,
             "allocator()\n--\n\n"
             "The name CPython gives its object allocator ('pymalloc',\n"
             "'pymalloc_debug', 'malloc', ...); None where it was replaced.");

static PyObject *
allocator(PyObject *module, PyObject *unused)
{
    /* Exported by 3.11 to 3.15, declared in a header that moved. */
    const char *(*current)(void);
    *(void **)&current = dlsym(RTLD_DEFAULT, "_PyMem_GetCurrentAllocatorName");
    const char *name = current == NULL ? NULL : current();
    if (name == NULL) {
        Py_RETURN_NONE;
    }
    return PyUnicode_FromString(name);
}

PyDoc_STRVAR(image_doc, "image()\n--\n\n"
                        "The file that the interpreter's code lies in, bytes: "
                        "the executable\nor libpython.");

static PyObject *
image(PyObject *module, PyObject *unused)
{
    Dl_info info;
    if (dladdr((void *)&PyLong_Type, &info) == 0 || info.dli_fname == NULL) {
        Py_RETURN_NONE;
    }
    return PyBytes_FromString(info.dli_fname);
}

PyDoc_STRVAR(is_main_interpreter_doc,
             "is_main_interpreter() -> bool\n\nWhether the caller is in no "
             "subinterpreter.");

static PyObject *
is_main_interpreter(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(PyInterpreterState_Get() ==
                           PyInterpreterState_Main());
}

PyMethodDef cl_host_methods[] = {
    {"probe", probe, METH_VARARGS, probe_doc},
    {"probes", probes, METH_NOARGS, probes_doc},
    {"allocator", allocator, METH_NOARGS, allocator_doc},
    {"image", image, METH_NOARGS, image_doc},
    {"is_main_interpreter", is_main_interpreter, METH_NOARGS,
     is_main_interpreter_doc},
    {NULL, NULL, 0, NULL},
};
