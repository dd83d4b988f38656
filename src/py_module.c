/* cowlab._native: the module object. */
#include "py_census.h"
#include "py_module.h"
#include "py_rows.h"

/* One a line, so that adding one changes one line. */
/* clang-format off */
static PyMethodDef *const parts[] = {
    cl_readings_methods,
    cl_pagemap_methods,
    cl_fork_methods,
    cl_host_methods,
    cl_recorder_methods,
    cl_where_methods,
    cl_immortal_methods,
    cl_heap_methods,
    cl_census_methods,
};
/* clang-format on */

static int
exec_module(PyObject *module)
{
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (PyModule_AddFunctions(module, parts[i]) < 0) {
            return -1;
        }
    }
    if (cl_pagemap_exec(module) < 0 || cl_rows_register(module) < 0) {
        return -1;
    }
    return cl_census_register(module);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, exec_module},
#if PY_VERSION_HEX >= 0x030c0000
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
#if PY_VERSION_HEX >= 0x030d0000
    /* Without it a free-threaded build would switch its GIL on. Nothing here
     * is shared between threads: each call has its own state, what it returns
     * never changes, and what looks into objects refuses such a build. */
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "cowlab._native",
    .m_doc = "The C core of cowlab. Private: use the package's functions.",
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__native(void);

PyMODINIT_FUNC
PyInit__native(void)
{
    return PyModuleDef_Init(&definition);
}
