/* How CPython lays out objects, GC heads and immortal reference counts, on
 * each version. py_layout.c is the only file that includes CPython's internal
 * headers; everybody else asks here.
 *
 * Nothing here writes to an object unless its name says so, and nothing takes
 * or drops a reference. All of it needs the GIL. */
#ifndef COWLAB_PY_LAYOUT_H
#define COWLAB_PY_LAYOUT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>

#include "cl_object.h"

/* ---- Is this interpreter one whose layouts are known? ---- */

/* NULL, or why not (a free-threaded build), as one clause. */
const char *cl_layout_unsupported(void);

/* The check that every function about layouts begins with. 0, or -1 with
 * cowlab.Unsupported set: "WHAT: reason". */
int cl_layout_require(const char *what);

/* ---- The object header and what lies before it ---- */

/* Bytes of a GC head and of the words that hold __dict__ and the weak
 * references of a type that has them managed. Both lie before the object. */
#define CL_GC_HEAD 16
#define CL_PREHEADER 16

/* 0, or -ENOTSUP. */
int cl_object_layout(struct cl_object_layout *out);

/* Bytes before an instance of `type` in its block: 0, 16 or 32. */
size_t cl_object_prefix(const PyTypeObject *type);

/* PyObject_IS_GC: whether a GC head lies before this object. */
bool cl_object_is_gc(PyObject *op);

/* Whether the object is in one of the GC's lists. Only where it is GC. */
bool cl_object_is_tracked(PyObject *op);

/* Bytes of the object itself, without what lies before it and without buffers
 * that it owns: basicsize, items, the characters of a compact str, inline
 * values. */
size_t cl_object_size(PyObject *op);

/* ---- Immortality (PEP 683; from 3.12) ---- */

/* Whether this interpreter has immortal objects at all. */
bool cl_immortal_supported(void);

bool cl_object_is_immortal(PyObject *op);

/* The 8 bytes that hold the reference count (and from 3.14 the flags). */
uint64_t cl_refcount_word(PyObject *op);

/* Write those 8 bytes so that no INCREF or DECREF writes them again. Only
 * where supported; the caller knows which objects may not be (the facts of
 * each type are its business). */
void cl_object_set_immortal(PyObject *op);

/* Write back what cl_refcount_word gave. */
void cl_refcount_restore(PyObject *op, uint64_t word);

/* ---- Caches that an object fills when it is asked ---- */

/* Whether instances keep their values beside their __dict__'s place, so that
 * the dict itself is made on demand. */
bool cl_type_makes_dicts(const PyTypeObject *type);

/* Whether an instance of such a type has no __dict__ yet. */
bool cl_object_lacks_dict(PyObject *op);

/* Whether a str that is not ASCII has no UTF-8 of itself yet. */
bool cl_text_lacks_utf8(PyObject *op);

/* Whether weakref.ref(op) would make a weak reference, not find one. Only for
 * what is no type and supports weak references. */
bool cl_object_lacks_weakref(PyObject *op);

/* Whether this generator, coroutine or asynchronous generator is running. */
bool cl_generator_is_running(PyObject *op);

/* ---- The GC's lists ---- */

#define CL_GC_LISTS 4 /* three generations, then the permanent one */
#define CL_GC_PERMANENT 3

struct cl_gc_lists {
    uintptr_t head[CL_GC_LISTS]; /* addresses of the PyGC_Head of each list */
};

/* The lists of the calling thread's interpreter, found by following one from a
 * new object: an offset from a header would be wrong on other patch releases.
 * 0, or -1 with an exception. */
int cl_gc_lists(struct cl_gc_lists *out);

/* The first or next object of a list: start with `gc` = the head; NULL at its
 * end. Set `*gc` is the GC head of the object returned. */
PyObject *cl_gc_next(uintptr_t head, uintptr_t *gc);

/* ---- Edges that tp_traverse does not report ---- */

/* In py_layout_edges.c. What a type's tp_traverse leaves out. */
enum cl_hidden {
    CL_HIDDEN_NONE,
    CL_HIDDEN_DICT,       /* the keys, where all are str */
    CL_HIDDEN_CODE,       /* all of a code object's fields */
    CL_HIDDEN_TYPE,       /* names, slots, shared keys; all of a static type */
    CL_HIDDEN_DESCRIPTOR, /* names */
    CL_HIDDEN_RANGE,      /* start, stop, step, length */
    CL_HIDDEN_GENERATOR,  /* names */
    CL_HIDDEN_MODULE,     /* its name */
    CL_HIDDEN_CONTEXTVAR, /* its name */
    CL_HIDDEN_DATETIME,   /* tzinfo */
    CL_HIDDEN_TIME,       /* tzinfo */
    CL_HIDDEN_TIMEZONE,   /* offset and name */
    CL_HIDDEN_MEMORYVIEW, /* whose memory it is, past the managed buffer */
};

/* Which of these an instance of `type` has. Ask once for a type: it may
 * compare names. */
enum cl_hidden cl_hidden_kind(PyTypeObject *type);

/* Call visit(object, arg) for each object that `op`, of that kind, owns a
 * reference to and its tp_traverse leaves out. Objects may be visited twice,
 * never NULL. Stops at the first nonzero result and returns it. */
int cl_visit_hidden_kind(PyObject *op, enum cl_hidden kind, visitproc visit,
                         void *arg);

/* The same for an object of any type. */
int cl_visit_hidden(PyObject *op, visitproc visit, void *arg);

/* The interpreter's own references that no object holds: the dict of interned
 * strings where it has one that can be seen (from 3.12), `object`, and the
 * local variables of running functions. */
int cl_visit_interpreter(visitproc visit, void *arg);

/* What a walk does with what its visits have put aside. 0 or an error. */
typedef int (*cl_drain)(void *arg);

/* Visit what the interpreter itself refers to, frames among it, then each
 * object of the lists, and drain after each. Lists may grow meanwhile. Stops
 * at the first nonzero result and returns it. */
int cl_walk_all(const struct cl_gc_lists *lists, visitproc visit,
                visitproc visit_listed, cl_drain drain, void *arg);

/* The same for the items of a tuple. */
int cl_walk_items(PyObject *tuple, visitproc visit, cl_drain drain, void *arg);

/* ---- pymalloc ---- */

/* The address of the calling interpreter's pointer to its array of arenas, or
 * 0 where no header tells (3.11). */
uintptr_t cl_arena_table(void);

#endif
