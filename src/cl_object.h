/* The shape of CPython's objects as numbers, for code that reads them as
 * bytes. py_layout.c fills it in. */
#ifndef COWLAB_CL_OBJECT_H
#define COWLAB_CL_OBJECT_H

#include <stdint.h>

/* How to read objects as bytes, in this process or in another one of the same
 * interpreter image. Offsets in bytes, from the object or from the type. */
struct cl_object_layout {
    uint32_t refcount, type, size; /* of ob_refcnt, ob_type, ob_size */
    uint32_t header;               /* bytes of PyObject_HEAD */
    uint32_t tp_name, tp_basicsize, tp_itemsize, tp_flags, tp_mro;
    uint32_t tp_dictoffset, tp_weaklistoffset;
    uint64_t flag_ready, flag_gc, flag_heap, flag_type_subclass;
    uint64_t flag_preheader; /* any of these: CL_PREHEADER bytes more */
    uint64_t flag_long_subclass, flag_str_subclass, flag_inline_values;
    uint32_t version;      /* PY_VERSION_HEX >> 16, as 0x030b */
    uint64_t type_type;    /* address of PyType_Type */
    uint32_t debug_prefix; /* 16 where PYTHONMALLOC=debug, else 0 */
};

#endif
