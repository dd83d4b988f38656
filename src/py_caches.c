/* See py_walk.h. Caches that objects fill when they are asked: hashes, which
 * cost nothing, and dicts, UTF-8 and weak references, which cost memory. */
#include "py_walk.h"

/* Needs Python.h before it. */
#include <datetime.h>

/* ---- Hash caches ---- */

enum hashing
cl_hashing_of(const struct walk *w, PyTypeObject *type)
{
    hashfunc hash = type->tp_hash;
    if (hash == PyUnicode_Type.tp_hash || hash == PyBytes_Type.tp_hash ||
        hash == PyFrozenSet_Type.tp_hash) {
        return HASH_KEPT; /* a frozenset keeps its items' hashes, too */
    }
    if (hash == PyTuple_Type.tp_hash) {
        return HASH_TUPLE;
    }
    if (hash == PyLong_Type.tp_hash || hash == PyFloat_Type.tp_hash ||
        hash == PyComplex_Type.tp_hash || hash == PyBaseObject_Type.tp_hash ||
        hash == Py_TYPE(Py_None)->tp_hash) {
        return HASH_PURE;
    }
    for (int i = 0; i < 4; i++) {
        if (w->moments[i] != NULL && hash == w->moments[i]->tp_hash) {
            /* A folded one is hashed by a copy, which would be finalised. */
            return type->tp_finalize == NULL ? HASH_MOMENT : HASH_NEVER;
        }
    }
    return HASH_NEVER;
}

static bool
is_zone(const struct walk *w, PyObject *zone)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(w->zones); i++) {
        if ((PyObject *)Py_TYPE(zone) == PyTuple_GET_ITEM(w->zones, i)) {
            return true;
        }
    }
    return false;
}

/* Whether a moment's hash runs C code only. */
static bool
moment_is_safe(const struct walk *w, PyObject *op)
{
    PyTypeObject *datetime = w->moments[0], *time = w->moments[1];
    PyObject *zone = Py_None;
    if (PyObject_TypeCheck(op, datetime)) {
        zone = PyDateTime_DATE_GET_TZINFO(op);
    } else if (PyObject_TypeCheck(op, time)) {
        zone = PyDateTime_TIME_GET_TZINFO(op);
    }
    return zone == Py_None || is_zone(w, zone);
}

/* Whether hash(op) runs known C code only, all the way down. */
static bool
hash_is_safe(struct walk *w, PyObject *op, int depth)
{
    struct kind *kind = cl_kind_of(w, Py_TYPE(op));
    if (kind == NULL || depth > 32) {
        return false;
    }
    switch (kind->hashing) {
    case HASH_NEVER:
        return false;
    case HASH_PURE:
    case HASH_KEPT:
        return true;
    case HASH_MOMENT:
        return moment_is_safe(w, op);
    case HASH_TUPLE:
        break;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(op); i++) {
        PyObject *item = PyTuple_GET_ITEM(op, i);
        if (item == NULL || !hash_is_safe(w, item, depth + 1)) {
            return false;
        }
    }
    return true;
}

/* Whether the object has a place for its hash, and nothing in it yet. */
static bool
hash_is_missing(PyObject *op, enum hashing hashing)
{
    switch (hashing) {
    case HASH_NEVER:
    case HASH_PURE:
        return false;
    case HASH_TUPLE:
#if PY_VERSION_HEX >= 0x030e0000
        return ((PyTupleObject *)op)->ob_hash == -1;
#else
        return false;
#endif
    case HASH_MOMENT:
        return ((PyDateTime_Delta *)op)->hashcode == -1;
    case HASH_KEPT:
        break;
    }
    if (PyUnicode_Check(op)) {
        return ((PyASCIIObject *)op)->hash == -1;
    }
    if (PyAnySet_Check(op)) {
        return ((PySetObject *)op)->hash == -1;
    }
    _Py_COMP_DIAG_PUSH _Py_COMP_DIAG_IGNORE_DEPR_DECLS return (
        (PyBytesObject *)op)
            ->ob_shash == -1;
    _Py_COMP_DIAG_POP
}

static void
fill_hash(struct walk *w, PyObject *op, enum hashing hashing)
{
    if (!hash_is_missing(op, hashing) || !hash_is_safe(w, op, 0)) {
        return;
    }
    if (PyObject_Hash(op) == -1) {
        PyErr_Clear(); /* it stays without, as it would have */
        return;
    }
    struct kind *kind = cl_kind_of(w, Py_TYPE(op));
    if (kind != NULL) {
        kind->hashed++;
    }
}

/* datetime's types, only where the program has loaded them. */
void
cl_moments_load(struct walk *w)
{
    PyObject *modules = PyImport_GetModuleDict();
    if (PyDict_GetItemString(modules, "_datetime") == NULL) {
        return;
    }
    PyDateTime_IMPORT;
    if (PyDateTimeAPI == NULL) {
        PyErr_Clear();
        return;
    }
    w->moments[0] = PyDateTimeAPI->DateTimeType;
    w->moments[1] = PyDateTimeAPI->TimeType;
    w->moments[2] = PyDateTimeAPI->DateType;
    w->moments[3] = PyDateTimeAPI->DeltaType;
}

/* ---- Caches that cost memory ---- */

unsigned
cl_fill_of(const struct walk *w, PyTypeObject *type)
{
    unsigned fill = 0;
    if (cl_type_makes_dicts(type)) {
        fill |= FILL_DICTS;
    }
    if (type == &PyUnicode_Type) {
        fill |= FILL_TEXTS;
    }
    if (PyType_SUPPORTS_WEAKREFS(type) &&
        !PyType_IsSubtype(type, &PyType_Type)) {
        fill |= FILL_WEAKREFS;
    }
    return fill & w->fill;
}

/* What a block takes of pymalloc, its GC head included. */
static size_t
block_bytes(size_t size, bool gc)
{
    size += gc ? 16 : 0;
    return (size + 15) & ~(size_t)15;
}

static void
filled(struct walk *w, int which, size_t bytes)
{
    w->filled[which]++;
    w->filled_bytes += bytes;
}

/* Whether a str has no UTF-8: to be told so would call the handler of errors,
 * which can be anybody's. */
static bool
has_surrogate(PyObject *op)
{
    int kind = PyUnicode_KIND(op);
    const void *data = PyUnicode_DATA(op);
    Py_ssize_t n = kind == PyUnicode_1BYTE_KIND ? 0 : PyUnicode_GET_LENGTH(op);
    for (Py_ssize_t i = 0; i < n; i++) {
        if (Py_UNICODE_IS_SURROGATE(PyUnicode_READ(kind, data, i))) {
            return true;
        }
    }
    return false;
}

/* None of this runs Python code. What it makes is visited at once: not every
 * traversal leads there. What cannot be made stays unmade. */
static void
fill_others(struct walk *w, PyObject *op, unsigned what)
{
    if ((what & FILL_DICTS) && cl_object_lacks_dict(op)) {
        PyObject *dict = PyObject_GenericGetDict(op, NULL);
        if (dict != NULL) {
            filled(w, 0, block_bytes(sizeof(PyDictObject), true));
            Py_DECREF(dict); /* op holds it */
            (void)cl_visit_once(dict, w);
        }
    }
    if ((what & FILL_TEXTS) && cl_text_lacks_utf8(op) && !has_surrogate(op)) {
        Py_ssize_t size;
        if (PyUnicode_AsUTF8AndSize(op, &size) != NULL) {
            filled(w, 1, block_bytes((size_t)size + 1, false));
        }
    }
    if ((what & FILL_WEAKREFS) && cl_object_lacks_weakref(op)) {
        /* Held for good: whoever asks is given this one. */
        PyObject *ref = PyWeakref_NewRef(op, NULL);
        if (ref != NULL) {
            filled(w, 2, block_bytes(sizeof(PyWeakReference), true));
            (void)cl_visit_once(ref, w);
        }
    }
    PyErr_Clear();
}

void
cl_fill_caches(struct walk *w, PyObject *op, enum hashing hashing,
               unsigned fill)
{
    if (w->prehash && hashing >= HASH_KEPT) {
        fill_hash(w, op, hashing);
    }
    if (fill != 0) {
        fill_others(w, op, fill);
    }
}
