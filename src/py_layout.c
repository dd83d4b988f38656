/* The only file that includes CPython's internal headers. */
#define Py_BUILD_CORE_MODULE 1 /* before Python.h, which reads it too */
#include "py_layout.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "cl_proc.h"
#include "py_module.h"

#ifndef Py_GIL_DISABLED
/* Not our code: its warnings are not ours to mend. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wextra"
#include "internal/pycore_interp.h"
#include "internal/pycore_dict.h"
#include "internal/pycore_frame.h"
#include "internal/pycore_gc.h"
#include "internal/pycore_object.h"
#if PY_VERSION_HEX >= 0x030e0000
#include "internal/pycore_genobject.h"
#include "internal/pycore_interpframe.h"
#endif
#if PY_VERSION_HEX >= 0x030c0000
#include "internal/pycore_typeobject.h"
#endif
#pragma GCC diagnostic pop
#endif

const char *
cl_layout_unsupported(void)
{
#ifdef Py_GIL_DISABLED
    return "this is a free-threaded build of CPython, which lays out objects "
           "and heaps in another way: use the default build";
#else
    return NULL;
#endif
}

int
cl_layout_require(const char *what)
{
    const char *reason = cl_layout_unsupported();
    if (reason == NULL) {
        return 0;
    }
    cl_raise_named("Unsupported", "%s: %s", what, reason);
    return -1;
}

#ifdef Py_GIL_DISABLED

/* Everybody calls cl_layout_require() first; these only have to link. */

int
cl_object_layout(struct cl_object_layout *out)
{
    return -ENOTSUP;
}

size_t
cl_object_prefix(const PyTypeObject *type)
{
    return 0;
}

bool
cl_object_is_gc(PyObject *op)
{
    return false;
}

bool
cl_object_is_tracked(PyObject *op)
{
    return false;
}

size_t
cl_object_size(PyObject *op)
{
    return 0;
}

bool
cl_immortal_supported(void)
{
    return false;
}

bool
cl_object_is_immortal(PyObject *op)
{
    return false;
}

uint64_t
cl_refcount_word(PyObject *op)
{
    return 0;
}

void
cl_object_set_immortal(PyObject *op)
{
}

void
cl_refcount_restore(PyObject *op, uint64_t word)
{
}

bool
cl_type_makes_dicts(const PyTypeObject *type)
{
    return false;
}

bool
cl_object_lacks_dict(PyObject *op)
{
    return false;
}

bool
cl_text_lacks_utf8(PyObject *op)
{
    return false;
}

bool
cl_object_lacks_weakref(PyObject *op)
{
    return false;
}

int
cl_gc_lists(struct cl_gc_lists *out)
{
    return cl_layout_require("the GC's lists");
}

PyObject *
cl_gc_next(uintptr_t head, uintptr_t *gc)
{
    return NULL;
}

uintptr_t
cl_arena_table(void)
{
    return 0;
}

bool
cl_generator_is_running(PyObject *op)
{
    return true;
}

#else

/* ---- The object header and what lies before it ---- */

#if PY_VERSION_HEX >= 0x030c0000
#define PREHEADER_FLAGS Py_TPFLAGS_PREHEADER
#else
#define PREHEADER_FLAGS Py_TPFLAGS_MANAGED_DICT
#endif

#if PY_VERSION_HEX >= 0x030d0000
#define INLINE_VALUES_FLAG Py_TPFLAGS_INLINE_VALUES
#else
#define INLINE_VALUES_FLAG 0
#endif

_Static_assert(sizeof(PyGC_Head) == CL_GC_HEAD, "a GC head is two words");

/* The debug hooks put 16 bytes before what each caller asked for: the size,
 * the name of the domain, and a guard. Seen on a block whose domain is known.
 */
static uint32_t
debug_prefix(void)
{
    PyMemAllocatorEx allocator;
    PyMem_GetAllocator(PYMEM_DOMAIN_OBJ, &allocator);
    unsigned char *block = allocator.malloc(allocator.ctx, 32);
    if (block == NULL) {
        return 0;
    }
    /* size 32 as 8 bytes big-endian, 'o', 7 guard bytes 0xfd */
    uint32_t prefix = 16;
    if (block[-9] != 32 || block[-8] != 'o') {
        prefix = 0;
    }
    for (int i = -7; i < 0 && prefix != 0; i++) {
        if (block[i] != 0xfd) {
            prefix = 0;
        }
    }
    allocator.free(allocator.ctx, block);
    return prefix;
}

int
cl_object_layout(struct cl_object_layout *out)
{
    *out = (struct cl_object_layout){
        .refcount = offsetof(PyObject, ob_refcnt),
        .type = offsetof(PyObject, ob_type),
        .size = offsetof(PyVarObject, ob_size),
        .header = sizeof(PyObject),
        .tp_name = offsetof(PyTypeObject, tp_name),
        .tp_basicsize = offsetof(PyTypeObject, tp_basicsize),
        .tp_itemsize = offsetof(PyTypeObject, tp_itemsize),
        .tp_flags = offsetof(PyTypeObject, tp_flags),
        .tp_mro = offsetof(PyTypeObject, tp_mro),
        .tp_dictoffset = offsetof(PyTypeObject, tp_dictoffset),
        .tp_weaklistoffset = offsetof(PyTypeObject, tp_weaklistoffset),
        .flag_ready = Py_TPFLAGS_READY,
        .flag_gc = Py_TPFLAGS_HAVE_GC,
        .flag_heap = Py_TPFLAGS_HEAPTYPE,
        .flag_type_subclass = Py_TPFLAGS_TYPE_SUBCLASS,
        .flag_preheader = PREHEADER_FLAGS,
        .flag_long_subclass = Py_TPFLAGS_LONG_SUBCLASS,
        .flag_str_subclass = Py_TPFLAGS_UNICODE_SUBCLASS,
        .flag_inline_values = INLINE_VALUES_FLAG,
        .version = PY_VERSION_HEX >> 16,
        .type_type = (uint64_t)(uintptr_t)&PyType_Type,
        .debug_prefix = debug_prefix(),
    };
    return 0;
}

size_t
cl_object_prefix(const PyTypeObject *type)
{
    size_t prefix = type->tp_flags & Py_TPFLAGS_HAVE_GC ? CL_GC_HEAD : 0;
    return prefix + (type->tp_flags & PREHEADER_FLAGS ? CL_PREHEADER : 0);
}

bool
cl_object_is_gc(PyObject *op)
{
    return PyObject_IS_GC(op);
}

bool
cl_object_is_tracked(PyObject *op)
{
    return _Py_AS_GC(op)->_gc_next != 0;
}

static size_t
long_size(PyObject *op, size_t digits)
{
    size_t base = Py_TYPE(op)->tp_basicsize;
#if PY_VERSION_HEX >= 0x030c0000
    size_t first = offsetof(PyLongObject, long_value.ob_digit);
#else
    size_t first = offsetof(PyLongObject, ob_digit);
#endif
    size_t size = first + (digits > 1 ? digits : 1) * sizeof(digit);
    return size > base ? size : base;
}

static size_t
str_size(PyObject *op)
{
    const PyASCIIObject *str = (PyASCIIObject *)op;
    if (!str->state.compact) {
        return Py_TYPE(op)->tp_basicsize;
    }
    if (str->state.ascii) {
        return sizeof(PyASCIIObject) + str->length + 1;
    }
    return sizeof(PyCompactUnicodeObject) +
           (str->length + 1) * (size_t)str->state.kind;
}

/* Types that are allocated with a number of items and then keep something else
 * where the number was. */
static bool
hides_its_size(PyObject *op)
{
    return PyGen_CheckExact(op) || PyCoro_CheckExact(op) ||
           PyAsyncGen_CheckExact(op) || PyFrame_Check(op);
}

size_t
cl_object_size(PyObject *op)
{
    PyTypeObject *type = Py_TYPE(op);
    if (PyUnicode_Check(op)) {
        return str_size(op);
    }
    if (PyLong_Check(op)) {
#if PY_VERSION_HEX >= 0x030c0000
        return long_size(op, ((PyLongObject *)op)->long_value.lv_tag >> 3);
#else
        return long_size(op, Py_ABS(Py_SIZE(op)));
#endif
    }
    if (PyType_Check(op) &&
        !(((PyTypeObject *)op)->tp_flags & Py_TPFLAGS_HEAPTYPE)) {
        return sizeof(PyTypeObject);
    }
    size_t size = type->tp_basicsize;
    if (type->tp_itemsize != 0 && !hides_its_size(op)) {
        size += Py_ABS(((PyVarObject *)op)->ob_size) * type->tp_itemsize;
    }
#if PY_VERSION_HEX >= 0x030d0000
    if (type->tp_flags & Py_TPFLAGS_INLINE_VALUES) {
        size += _PyInlineValuesSize(type);
    }
#endif
    return size;
}

/* ---- Immortality ---- */

bool
cl_immortal_supported(void)
{
    return PY_VERSION_HEX >= 0x030c0000;
}

bool
cl_object_is_immortal(PyObject *op)
{
#if PY_VERSION_HEX >= 0x030c0000
    return _Py_IsImmortal(op);
#else
    return false;
#endif
}

uint64_t
cl_refcount_word(PyObject *op)
{
    uint64_t word;
    memcpy(&word, op, sizeof word);
    return word;
}

void
cl_object_set_immortal(PyObject *op)
{
#if PY_VERSION_HEX >= 0x030e0000
    /* Without the flag the interpreter's borrowed references would be given
     * back, unchecked, to an object that never counted them. */
    op->ob_flags |= _Py_IMMORTAL_FLAGS;
    op->ob_refcnt = _Py_IMMORTAL_INITIAL_REFCNT;
#elif PY_VERSION_HEX >= 0x030c0000
    op->ob_refcnt = _Py_IMMORTAL_REFCNT;
#endif
}

void
cl_refcount_restore(PyObject *op, uint64_t word)
{
    memcpy(op, &word, sizeof word);
}

/* ---- Caches ---- */

bool
cl_type_makes_dicts(const PyTypeObject *type)
{
    return PyType_HasFeature((PyTypeObject *)type, Py_TPFLAGS_MANAGED_DICT);
}

bool
cl_object_lacks_dict(PyObject *op)
{
#if PY_VERSION_HEX >= 0x030d0000
    return _PyObject_GetManagedDict(op) == NULL;
#elif PY_VERSION_HEX >= 0x030c0000
    PyDictOrValues at = *_PyObject_DictOrValuesPointer(op);
    return _PyDictOrValues_IsValues(at) || _PyDictOrValues_GetDict(at) == NULL;
#else
    return *_PyObject_ManagedDictPointer(op) == NULL;
#endif
}

bool
cl_text_lacks_utf8(PyObject *op)
{
    return PyUnicode_IS_COMPACT(op) && !PyUnicode_IS_ASCII(op) &&
           ((PyCompactUnicodeObject *)op)->utf8 == NULL;
}

bool
cl_object_lacks_weakref(PyObject *op)
{
    Py_ssize_t offset = Py_TYPE(op)->tp_weaklistoffset;
    const PyWeakReference *first =
        *(PyWeakReference **)(void *)((char *)op + offset);
    /* The one that is shared comes first. */
    return first == NULL || first->wr_callback != NULL ||
           !PyWeakref_CheckRefExact((PyObject *)first);
}

bool
cl_generator_is_running(PyObject *op)
{
    return ((PyGenObject *)op)->gi_frame_state == FRAME_EXECUTING;
}

/* ---- The GC's lists ---- */

/* Whether `at` is the head of a list: its neighbours point back to it. */
static bool
is_list_head(int mem, uintptr_t at)
{
    uintptr_t link[2], back;
    memcpy(link, (const void *)at, sizeof link);
    uintptr_t next = link[0] & ~(uintptr_t)3, prev = link[1] & ~(uintptr_t)3;
    if (next == 0 || prev == 0 || next % 8 != 0 || prev % 8 != 0) {
        return false;
    }
    if (cl_mem_read(mem, next + sizeof next, &back, sizeof back) != 0 ||
        (back & ~(uintptr_t)3) != at) {
        return false;
    }
    return cl_mem_read(mem, prev, &back, sizeof back) == 0 &&
           (back & ~(uintptr_t)3) == at;
}

int
cl_gc_lists(struct cl_gc_lists *out)
{
    /* Patch releases of one series moved these: the header says about where,
     * and the pattern where exactly. Three heads, each the beginning of a
     * struct gc_generation, and the permanent one soon after. */
    enum { STRIDE = sizeof(struct gc_generation), SLACK = 512 };
    PyInterpreterState *interp = PyInterpreterState_Get();
    uintptr_t low = (uintptr_t)interp, middle = (uintptr_t)&interp->gc;
    uintptr_t at = middle - low > SLACK ? middle - SLACK : low;
    uintptr_t end = middle + sizeof interp->gc + SLACK;
    int mem = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    if (mem < 0) {
        cl_raise(-errno, "open", "/proc/self/mem");
        return -1;
    }
    int found = 0;
    for (; at < end && found == 0; at += sizeof(uintptr_t)) {
        while (found < CL_GC_PERMANENT &&
               is_list_head(mem, at + found * STRIDE)) {
            out->head[found] = at + found * STRIDE;
            found++;
        }
        if (found < CL_GC_PERMANENT) {
            found = 0;
        }
    }
    for (at = out->head[2] + STRIDE;
         found == CL_GC_PERMANENT && at <= out->head[2] + 4 * STRIDE;
         at += sizeof(uintptr_t)) {
        if (is_list_head(mem, at)) {
            out->head[found++] = at;
        }
    }
    close(mem);
    if (found != CL_GC_LISTS) {
        cl_raise_named("Unsupported",
                       "the GC's lists of this interpreter (%s) are not where "
                       "any known version has them: build cowlab against its "
                       "own headers",
                       Py_GetVersion());
        return -1;
    }
    return 0;
}

PyObject *
cl_gc_next(uintptr_t head, uintptr_t *gc)
{
    *gc = ((PyGC_Head *)*gc)->_gc_next & ~(uintptr_t)3;
    return *gc == head ? NULL : (PyObject *)(*gc + CL_GC_HEAD);
}

/* ---- pymalloc ---- */

uintptr_t
cl_arena_table(void)
{
#if PY_VERSION_HEX >= 0x030d0000
    return (uintptr_t)&PyInterpreterState_Get()->obmalloc->mgmt.arenas;
#elif PY_VERSION_HEX >= 0x030c0000
    return (uintptr_t)&PyInterpreterState_Get()->obmalloc.mgmt.arenas;
#else
    return 0;
#endif
}

#endif
