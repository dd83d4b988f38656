/* Edges of the object graph that tp_traverse does not report. The garbage
 * collector does not need them, since no cycle can go through them. */
#define Py_BUILD_CORE_MODULE 1 /* before Python.h, which reads it too */
#include "py_layout.h"
#include "py_layout_frame.h"

#include <string.h>

#ifdef Py_GIL_DISABLED

/* Everybody calls cl_layout_require() first; these only have to link. */

enum cl_hidden
cl_hidden_kind(PyTypeObject *type)
{
    return CL_HIDDEN_NONE;
}

int
cl_visit_hidden_kind(PyObject *op, enum cl_hidden kind, visitproc visit,
                     void *arg)
{
    return 0;
}

int
cl_visit_hidden(PyObject *op, visitproc visit, void *arg)
{
    return 0;
}

int
cl_visit_interpreter(visitproc visit, void *arg)
{
    return 0;
}

#else

/* Not our code: its warnings are not ours to mend. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wextra"
#pragma GCC diagnostic ignored "-Wunused-variable"
#include <datetime.h>
#include "internal/pycore_interp.h"
#include "internal/pycore_code.h"
#include "internal/pycore_context.h"
#include "internal/pycore_dict.h"
#include "internal/pycore_frame.h"
#include "internal/pycore_moduleobject.h"
#if PY_VERSION_HEX >= 0x030c0000
#include "internal/pycore_typeobject.h"
#endif
#if PY_VERSION_HEX >= 0x030e0000
#include "internal/pycore_genobject.h"
#include "internal/pycore_interpframe.h"
#endif
#pragma GCC diagnostic pop

#define VISIT(field)                                                          \
    do {                                                                      \
        PyObject *visited = (PyObject *)(field);                              \
        if (visited != NULL) {                                                \
            int result = visit(visited, arg);                                 \
            if (result != 0) {                                                \
                return result;                                                \
            }                                                                 \
        }                                                                     \
    } while (0)

/* rangeobject.c's and _datetimemodule.c's own. */
struct range {
    PyObject_HEAD PyObject *start, *stop, *step, *length;
};

struct timezone_object {
    PyObject_HEAD PyObject *offset, *name;
};

static bool
derives_from(const PyTypeObject *type, const char *name)
{
    for (; type != NULL; type = type->tp_base) {
        if ((type->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0 &&
            strcmp(type->tp_name, name) == 0) {
            return true;
        }
    }
    return false;
}

enum cl_hidden
cl_hidden_kind(PyTypeObject *type)
{
    unsigned long flags = type->tp_flags;
    if (flags & (Py_TPFLAGS_UNICODE_SUBCLASS | Py_TPFLAGS_LONG_SUBCLASS |
                 Py_TPFLAGS_TUPLE_SUBCLASS | Py_TPFLAGS_LIST_SUBCLASS |
                 Py_TPFLAGS_BYTES_SUBCLASS)) {
        return CL_HIDDEN_NONE;
    }
    if (flags & Py_TPFLAGS_DICT_SUBCLASS) {
        return CL_HIDDEN_DICT;
    }
    if (flags & Py_TPFLAGS_TYPE_SUBCLASS) {
        return CL_HIDDEN_TYPE;
    }
    static const struct {
        PyTypeObject *type;
        enum cl_hidden kind;
    } table[] = {
        {&PyCode_Type, CL_HIDDEN_CODE},
        {&PyModule_Type, CL_HIDDEN_MODULE},
        {&PyRange_Type, CL_HIDDEN_RANGE},
        {&PyGen_Type, CL_HIDDEN_GENERATOR},
        {&PyCoro_Type, CL_HIDDEN_GENERATOR},
        {&PyAsyncGen_Type, CL_HIDDEN_GENERATOR},
        {&PyContextVar_Type, CL_HIDDEN_CONTEXTVAR},
        {&PyMemoryView_Type, CL_HIDDEN_MEMORYVIEW},
        {&PyMethodDescr_Type, CL_HIDDEN_DESCRIPTOR},
        {&PyClassMethodDescr_Type, CL_HIDDEN_DESCRIPTOR},
        {&PyMemberDescr_Type, CL_HIDDEN_DESCRIPTOR},
        {&PyGetSetDescr_Type, CL_HIDDEN_DESCRIPTOR},
        {&PyWrapperDescr_Type, CL_HIDDEN_DESCRIPTOR},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const PyTypeObject *base = type;
        while (base != NULL && base != table[i].type) {
            base = base->tp_base;
        }
        if (base != NULL) {
            return table[i].kind;
        }
    }
    return derives_from(type, "datetime.datetime")   ? CL_HIDDEN_DATETIME
           : derives_from(type, "datetime.time")     ? CL_HIDDEN_TIME
           : derives_from(type, "datetime.timezone") ? CL_HIDDEN_TIMEZONE
                                                     : CL_HIDDEN_NONE;
}

static int
visit_dict(PyObject *op, visitproc visit, void *arg)
{
    if (((PyDictObject *)op)->ma_keys->dk_kind == DICT_KEYS_GENERAL) {
        return 0; /* its tp_traverse reports the keys too */
    }
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(op, &at, &key, &value)) {
        VISIT(key);
    }
    return 0;
}

static int
visit_code(PyCodeObject *code, visitproc visit, void *arg)
{
    VISIT(code->co_consts);
    VISIT(code->co_names);
    VISIT(code->co_exceptiontable);
    VISIT(code->co_localsplusnames);
    VISIT(code->co_localspluskinds);
    VISIT(code->co_filename);
    VISIT(code->co_name);
    VISIT(code->co_qualname);
    VISIT(code->co_linetable);
#if PY_VERSION_HEX >= 0x030c0000
    if (code->_co_cached != NULL) {
        VISIT(code->_co_cached->_co_code);
        VISIT(code->_co_cached->_co_varnames);
        VISIT(code->_co_cached->_co_cellvars);
        VISIT(code->_co_cached->_co_freevars);
    }
#else
    VISIT(code->_co_code);
#endif
    return 0;
}

static int
visit_heap_type(PyHeapTypeObject *type, visitproc visit, void *arg)
{
    VISIT(type->ht_name);
    VISIT(type->ht_qualname);
    VISIT(type->ht_slots);
    VISIT(type->ht_type.tp_subclasses);
    PyDictKeysObject *keys = type->ht_cached_keys;
    if (keys != NULL && keys->dk_kind != DICT_KEYS_GENERAL) {
        for (Py_ssize_t i = 0; i < keys->dk_nentries; i++) {
            VISIT(DK_UNICODE_ENTRIES(keys)[i].me_key);
        }
    }
    return 0;
}

static int
visit_type(PyTypeObject *type, visitproc visit, void *arg)
{
    if (type->tp_flags & Py_TPFLAGS_HEAPTYPE) {
        return visit_heap_type((PyHeapTypeObject *)type, visit, arg);
    }
    VISIT(type->tp_base);
    VISIT(type->tp_bases);
    VISIT(type->tp_mro);
    VISIT(type->tp_cache);
#if PY_VERSION_HEX >= 0x030c0000
    VISIT(_PyType_GetDict(type)); /* each interpreter has its own */
    if (type->tp_flags & _Py_TPFLAGS_STATIC_BUILTIN) {
        return 0; /* tp_subclasses is an index there */
    }
#else
    VISIT(type->tp_dict);
#endif
    VISIT(type->tp_subclasses);
    return 0;
}

int
cl_visit_hidden_kind(PyObject *op, enum cl_hidden kind, visitproc visit,
                     void *arg)
{
    switch (kind) {
    case CL_HIDDEN_NONE:
        break;
    case CL_HIDDEN_DICT:
        return visit_dict(op, visit, arg);
    case CL_HIDDEN_CODE:
        return visit_code((PyCodeObject *)op, visit, arg);
    case CL_HIDDEN_TYPE:
        return visit_type((PyTypeObject *)op, visit, arg);
    case CL_HIDDEN_DESCRIPTOR:
        VISIT(((PyDescrObject *)op)->d_name);
        VISIT(((PyDescrObject *)op)->d_qualname);
        break;
    case CL_HIDDEN_RANGE:
        VISIT(((struct range *)op)->start);
        VISIT(((struct range *)op)->stop);
        VISIT(((struct range *)op)->step);
        VISIT(((struct range *)op)->length);
        break;
    case CL_HIDDEN_GENERATOR:
        VISIT(((PyGenObject *)op)->gi_name);
        VISIT(((PyGenObject *)op)->gi_qualname);
        break;
    case CL_HIDDEN_MODULE:
        VISIT(((PyModuleObject *)op)->md_name);
        break;
    case CL_HIDDEN_CONTEXTVAR:
        VISIT(((PyContextVar *)op)->var_name);
        break;
    case CL_HIDDEN_DATETIME:
        if (((PyDateTime_DateTime *)op)->hastzinfo) {
            VISIT(((PyDateTime_DateTime *)op)->tzinfo);
        }
        break;
    case CL_HIDDEN_TIME:
        if (((PyDateTime_Time *)op)->hastzinfo) {
            VISIT(((PyDateTime_Time *)op)->tzinfo);
        }
        break;
    case CL_HIDDEN_TIMEZONE:
        VISIT(((struct timezone_object *)op)->offset);
        VISIT(((struct timezone_object *)op)->name);
        break;
    case CL_HIDDEN_MEMORYVIEW:
        if (((PyMemoryViewObject *)op)->mbuf != NULL) {
            VISIT(((PyMemoryViewObject *)op)->mbuf->master.obj);
        }
        break;
    }
    return 0;
}

int
cl_visit_hidden(PyObject *op, visitproc visit, void *arg)
{
    return cl_visit_hidden_kind(op, cl_hidden_kind(Py_TYPE(op)), visit, arg);
}

int
cl_visit_interpreter(visitproc visit, void *arg)
{
#if PY_VERSION_HEX >= 0x030c0000
    VISIT(PyInterpreterState_Get()->cached_objects.interned_strings);
#endif
    VISIT(&PyBaseObject_Type);
    return cl_visit_frames(visit, arg);
}

#endif

int
cl_walk_all(const struct cl_gc_lists *lists, visitproc visit,
            visitproc visit_listed, cl_drain drain, void *arg)
{
    int err = cl_visit_interpreter(visit, arg);
    err = err != 0 ? err : drain(arg);
    for (int i = 0; i < CL_GC_LISTS; i++) {
        uintptr_t gc = lists->head[i];
        PyObject *op;
        while (err == 0 && (op = cl_gc_next(lists->head[i], &gc)) != NULL) {
            err = visit_listed(op, arg);
            err = err != 0 ? err : drain(arg);
        }
    }
    return err;
}

int
cl_walk_items(PyObject *tuple, visitproc visit, cl_drain drain, void *arg)
{
    int err = 0;
    for (Py_ssize_t i = 0; err == 0 && i < PyTuple_GET_SIZE(tuple); i++) {
        err = visit(PyTuple_GET_ITEM(tuple, i), arg);
        err = err != 0 ? err : drain(arg);
    }
    return err;
}
