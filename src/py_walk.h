/* What the walk of py_immortal.c shares with the caches of py_caches.c. */
#ifndef COWLAB_PY_WALK_H
#define COWLAB_PY_WALK_H

#include "cl_ptrs.h"
#include "py_layout.h"

/* What hashing an instance of a type would do. */
enum hashing {
    HASH_NEVER,  /* not hashable, or somebody's own __hash__ */
    HASH_PURE,   /* known code, and nothing is kept */
    HASH_KEPT,   /* known code, and the object keeps the result */
    HASH_TUPLE,  /* as the items; kept from 3.14 */
    HASH_MOMENT, /* kept; asks the time zone, which may be anybody's */
};

/* Caches that cost memory once they are filled. */
enum fill {
    FILL_DICTS = 1, /* __dict__ of instances that keep their values inline */
    FILL_TEXTS = 2, /* UTF-8 of a str that is not ASCII */
    FILL_WEAKREFS = 4, /* the weak reference that weakref.ref(op) shares */
};

#define FILLS 3

struct kind {
    PyTypeObject *type; /* NULL: a free slot */
    const char *reason; /* why instances were left mortal, or NULL */
    bool stop;          /* all instances are left mortal */
    bool collect;       /* and given back */
    bool leaf;          /* instances refer to nothing but their type */
    enum hashing hashing;
    unsigned fill; /* what there is to fill in an instance, enum fill */
    size_t made, left, hashed;
};

struct walk {
    struct cl_ptrset seen;
    struct cl_ptrset module_dicts; /* where only data was asked for */
    struct cl_ptrstack todo;
    struct cl_ptrstack collected;
    struct kind *kinds;
    size_t kinds_mask, kinds_used, last;
    PyObject *stops; /* borrowed: tuple of (type, reason, collect) */
    PyObject *zones; /* borrowed: types whose utcoffset() is C code */
    PyTypeObject *moments[4];
    unsigned fill; /* enum fill */
    size_t filled[FILLS], filled_bytes;
    bool immortal, prehash, data_only;
    bool tracked_known; /* every tracked immortal has been on the stack */
    int err;
};

/* ---- py_immortal.c ---- */

/* What is known of `type`; the first time, the walk visits the type itself.
 * NULL with w->err set. Valid until the next call. */
struct kind *cl_kind_of(struct walk *w, PyTypeObject *type);

/* Mark one object, and put it on the stack if the walk goes on from it. A
 * visitproc; `arg` is the walk. 0, or w->err. */
int cl_visit_once(PyObject *op, void *arg);

/* ---- py_caches.c ---- */

/* What there is to hash, and to fill, in an instance of `type`. */
enum hashing cl_hashing_of(const struct walk *w, PyTypeObject *type);
unsigned cl_fill_of(const struct walk *w, PyTypeObject *type);

/* Fill the object's hash cache, if prehash was asked for and no code of
 * anybody else has to run for it, and those caches of `fill` that it has.
 * Errors are in w->err. */
void cl_fill_caches(struct walk *w, PyObject *op, enum hashing hashing,
                    unsigned fill);

/* Note datetime's types, only where the program has loaded them. */
void cl_moments_load(struct walk *w);

#endif
