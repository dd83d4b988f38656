/* Make what lives immortal, and fill its caches: two kinds of write that a
 * child would otherwise make to a page it shares.
 *
 * One walk with a stack of its own. Once an object is immortal the mark itself
 * says that the walk has been there; only what was immortal before, or has to
 * stay mortal, needs a set. No reference is taken and no Python code runs. */
#include <errno.h>
#include <sys/mman.h>

#include "py_module.h"
#include "py_walk.h"

/* ---- What is known of each type ---- */

static size_t
kind_slot(const struct walk *w, const PyTypeObject *type)
{
    uint64_t mixed = ((uint64_t)(uintptr_t)type >> 4) * 0x9e3779b97f4a7c15u;
    size_t i = (size_t)(mixed >> 32) & w->kinds_mask;
    while (w->kinds[i].type != NULL && w->kinds[i].type != type) {
        i = (i + 1) & w->kinds_mask;
    }
    return i;
}

static struct kind *
kinds_map(size_t n)
{
    void *at = mmap(NULL, n * sizeof(struct kind), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

/* Room for one kind more. 0 or -ENOMEM. */
static int
kinds_reserve(struct walk *w)
{
    size_t room = w->kinds == NULL ? 0 : w->kinds_mask + 1;
    if (w->kinds_used < room / 2) {
        return 0;
    }
    size_t grown = room == 0 ? 4096 : room * 2;
    struct kind *old = w->kinds, *kinds = kinds_map(grown);
    if (kinds == NULL) {
        return -ENOMEM;
    }
    w->kinds = kinds;
    w->kinds_mask = grown - 1;
    for (size_t i = 0; i < room; i++) {
        if (old[i].type != NULL) {
            kinds[kind_slot(w, old[i].type)] = old[i];
        }
    }
    if (old != NULL) {
        munmap(old, room * sizeof *old);
    }
    w->last = 0;
    return 0;
}

static bool
is_leaf(const PyTypeObject *type)
{
    return type == &PyUnicode_Type || type == &PyLong_Type ||
           type == &PyFloat_Type || type == &PyBytes_Type ||
           type == &PyBool_Type || type == &PyComplex_Type ||
           type == Py_TYPE(Py_None);
}

static void
kind_init(const struct walk *w, struct kind *kind, PyTypeObject *type)
{
    kind->type = type;
    kind->leaf = is_leaf(type);
    kind->hashing = cl_hashing_of(w, type);
    kind->fill = cl_fill_of(w, type);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(w->stops); i++) {
        PyObject *stop = PyTuple_GET_ITEM(w->stops, i);
        PyTypeObject *base = (PyTypeObject *)PyTuple_GET_ITEM(stop, 0);
        if (PyType_IsSubtype(type, base)) {
            kind->stop = true;
            kind->reason = PyUnicode_AsUTF8(PyTuple_GET_ITEM(stop, 1));
            kind->collect = PyTuple_GET_ITEM(stop, 2) == Py_True;
            return;
        }
    }
    /* The JIT frees its own code when the interpreter ends, used or not. */
    if (strcmp(type->tp_name, "uop_executor") == 0) {
        kind->stop = true;
        kind->reason = "executor";
    }
    /* Released with its last memoryview, alive: it is taken off its list by
     * the collector's links then, whether it is on one or not. */
    if (strcmp(type->tp_name, "managedbuffer") == 0) {
        kind->stop = true;
        kind->reason = "memoryview's buffer";
    }
}

struct kind *
cl_kind_of(struct walk *w, PyTypeObject *type)
{
    if (w->kinds != NULL && w->kinds[w->last].type == type) {
        return &w->kinds[w->last];
    }
    if ((w->err = kinds_reserve(w)) < 0) {
        return NULL;
    }
    size_t i = kind_slot(w, type);
    if (w->kinds[i].type == NULL) {
        kind_init(w, &w->kinds[i], type);
        w->kinds_used++;
        if (cl_visit_once((PyObject *)type, w) != 0) {
            return NULL;
        }
        i = kind_slot(w, type);
    }
    w->last = i;
    return &w->kinds[i];
}

/* ---- The walk ---- */

/* Why this one object has to stay mortal, or NULL. */
static const char *
reason_to_leave(struct walk *w, PyObject *op)
{
    if (PyWeakref_Check(op)) {
        /* The collector moves it between lists when its referent dies, and an
         * immortal one may be on no list. */
        return ((PyWeakReference *)op)->wr_callback == NULL
                   ? NULL
                   : "weakref with a callback";
    }
    if (PyGen_CheckExact(op) || PyCoro_CheckExact(op) ||
        PyAsyncGen_CheckExact(op)) {
        return cl_generator_is_running(op) ? "running generator" : NULL;
    }
    if (PyTuple_Check(op)) {
        /* tuple() resizes what it has begun, if nobody else holds it. */
        Py_ssize_t n = PyTuple_GET_SIZE(op);
        return n > 0 && PyTuple_GET_ITEM(op, n - 1) == NULL ? "unfinished"
                                                            : NULL;
    }
    if (!w->data_only) {
        return NULL;
    }
    if (PyModule_Check(op)) {
        return "module";
    }
    if (PyDict_Check(op) && cl_ptrset_has(&w->module_dicts, (uintptr_t)op)) {
        return "module's dict";
    }
    return NULL;
}

/* 1 the first time, 0 later, or -ENOMEM. */
static int
leave(struct walk *w, PyObject *op, struct kind *kind)
{
    int first = cl_ptrset_add(&w->seen, (uintptr_t)op);
    if (first == 1) {
        kind->left++;
        if (kind->collect) {
            int err = cl_ptrstack_push(&w->collected, (uintptr_t)op);
            return err < 0 ? err : 1;
        }
    }
    return first;
}

/* Mark one object, and put it on the stack if the walk goes on from it. 0, or
 * w->err: a traversal stops at anything but 0. */
int
cl_visit_once(PyObject *op, void *arg)
{
    struct walk *w = arg;
    struct kind *kind = cl_kind_of(w, Py_TYPE(op));
    if (kind == NULL) {
        return w->err;
    }
    enum hashing hashing = kind->hashing;
    bool leaf = kind->leaf && !kind->stop;
    unsigned to_fill = kind->fill;
    bool fresh = w->immortal && !cl_object_is_immortal(op);
    if (leaf && !fresh && w->immortal) {
        cl_fill_caches(w, op, HASH_NEVER, to_fill);
        return 0;
    }
    if (kind->stop || (fresh && !leaf)) {
        const char *reason =
            kind->stop ? kind->reason : reason_to_leave(w, op);
        if (reason != NULL) {
            kind->reason = reason;
            int first = leave(w, op, kind);
            w->err = first < 0 ? first : 0;
            return w->err;
        }
    }
    if (fresh) {
        cl_object_set_immortal(op);
        kind->made++;
    } else if (!leaf) {
        if (w->tracked_known && cl_object_is_gc(op) &&
            cl_object_is_tracked(op)) {
            return 0;
        }
        int first = cl_ptrset_add(&w->seen, (uintptr_t)op);
        if (first != 1) {
            w->err = first < 0 ? first : 0;
            return w->err;
        }
    }
    cl_fill_caches(w, op, hashing, to_fill);
    if (!leaf && w->err == 0) {
        w->err = cl_ptrstack_push(&w->todo, (uintptr_t)op);
    }
    return w->err;
}

/* Where only data was asked for, a function leads to its module's dict. */
static int
note_module_dict(struct walk *w, PyObject *op)
{
    PyObject *dict = NULL;
    if (PyFunction_Check(op)) {
        dict = PyFunction_GET_GLOBALS(op);
        PyObject *builtins = ((PyFunctionObject *)op)->func_builtins;
        if (builtins != NULL &&
            cl_ptrset_add(&w->module_dicts, (uintptr_t)builtins) < 0) {
            return -ENOMEM;
        }
    } else if (PyModule_Check(op)) {
        dict = PyModule_GetDict(op);
    }
    if (dict == NULL) {
        return 0;
    }
    int err = cl_ptrset_add(&w->module_dicts, (uintptr_t)dict);
    return err < 0 ? err : 0;
}

static int
drain(void *arg)
{
    struct walk *w = arg;
    PyObject *op;
    while ((op = (PyObject *)cl_ptrstack_pop(&w->todo)) != NULL) {
        if (w->data_only && (w->err = note_module_dict(w, op)) < 0) {
            return w->err;
        }
        traverseproc traverse = Py_TYPE(op)->tp_traverse;
        if (traverse != NULL && cl_object_is_gc(op)) {
            (void)traverse(op, cl_visit_once, w);
        }
        if (w->err == 0) {
            (void)cl_visit_hidden(op, cl_visit_once, w);
        }
        if (w->err < 0) {
            return w->err;
        }
    }
    return 0;
}

/* Begin with what is tracked and was immortal before: whatever else the walk
 * then finds tracked and immortal is its own work, and needs no set to say so.
 */
static int
push_immortals(struct walk *w, const struct cl_gc_lists *lists)
{
    for (int i = 0; i < CL_GC_LISTS; i++) {
        uintptr_t gc = lists->head[i];
        PyObject *op;
        while ((op = cl_gc_next(lists->head[i], &gc)) != NULL) {
            struct kind *kind = cl_kind_of(w, Py_TYPE(op));
            if (kind == NULL) {
                return w->err;
            }
            if (!cl_object_is_immortal(op)) {
                continue;
            }
            cl_fill_caches(w, op, kind->hashing, kind->fill);
            if (w->err < 0 ||
                (w->err = cl_ptrstack_push(&w->todo, (uintptr_t)op)) < 0) {
                return w->err;
            }
        }
    }
    w->tracked_known = true;
    return drain(w);
}

/* A tuple with one reference may be one that C code still fills, and then
 * resizes, which it may only while it holds the one reference. If another
 * object holds it, the walk comes to it from there. */
static int
visit_listed(PyObject *op, void *arg)
{
    struct walk *w = arg;
    if (w->immortal && PyTuple_CheckExact(op) && Py_REFCNT(op) == 1) {
        return 0;
    }
    return cl_visit_once(op, w);
}

static int
walk_all(struct walk *w, const struct cl_gc_lists *lists)
{
    if (w->immortal && push_immortals(w, lists) < 0) {
        return w->err;
    }
    return cl_walk_all(lists, cl_visit_once, visit_listed, drain, w);
}

static int
walk_roots(struct walk *w, PyObject *roots)
{
    PyObject *modules = PyImport_GetModuleDict(), *name, *module;
    Py_ssize_t at = 0;
    while (PyDict_Next(modules, &at, &name, &module)) {
        if (PyModule_Check(module) && note_module_dict(w, module) < 0) {
            return -ENOMEM;
        }
    }
    return cl_walk_items(roots, cl_visit_once, drain, w);
}

/* ---- The result ---- */

/* (kinds, collected, filled): a list of (type, reason or None, made, left,
 * hashed), a list of the objects of types that are to be collected, and how
 * many dicts, texts and weak references were filled, with how many bytes. */
static PyObject *
walk_result(const struct walk *w)
{
    PyObject *kinds = PyList_New(0), *collected = PyList_New(0);
    PyObject *result = NULL;
    if (kinds == NULL || collected == NULL) {
        goto done;
    }
    for (size_t i = 0; w->kinds != NULL && i <= w->kinds_mask; i++) {
        const struct kind *kind = &w->kinds[i];
        if (kind->type == NULL ||
            kind->made + kind->left + kind->hashed == 0) {
            continue;
        }
        PyObject *row = Py_BuildValue(
            "(Oznnn)", kind->type, kind->left ? kind->reason : NULL,
            (Py_ssize_t)kind->made, (Py_ssize_t)kind->left,
            (Py_ssize_t)kind->hashed);
        int err = row == NULL ? -1 : PyList_Append(kinds, row);
        Py_XDECREF(row);
        if (err < 0) {
            goto done;
        }
    }
    for (size_t i = 0; i < w->collected.used; i++) {
        if (PyList_Append(collected, (PyObject *)w->collected.items[i]) < 0) {
            goto done;
        }
    }
    result =
        Py_BuildValue("(OO(nnnn))", kinds, collected, (Py_ssize_t)w->filled[0],
                      (Py_ssize_t)w->filled[1], (Py_ssize_t)w->filled[2],
                      (Py_ssize_t)w->filled_bytes);
done:
    Py_XDECREF(kinds);
    Py_XDECREF(collected);
    return result;
}

static void
walk_release(struct walk *w)
{
    cl_ptrset_release(&w->seen);
    cl_ptrset_release(&w->module_dicts);
    cl_ptrstack_release(&w->todo);
    cl_ptrstack_release(&w->collected);
    if (w->kinds != NULL) {
        munmap(w->kinds, (w->kinds_mask + 1) * sizeof *w->kinds);
    }
}

/* 0, or -1 with TypeError. */
static int
check_stops(PyObject *stops)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(stops); i++) {
        PyObject *stop = PyTuple_GET_ITEM(stops, i);
        if (!PyTuple_Check(stop) || PyTuple_GET_SIZE(stop) != 3 ||
            !PyType_Check(PyTuple_GET_ITEM(stop, 0)) ||
            PyUnicode_AsUTF8(PyTuple_GET_ITEM(stop, 1)) == NULL) {
            PyErr_SetString(PyExc_TypeError,
                            "stops: (type, reason, collect) each");
            return -1;
        }
    }
    return 0;
}

PyDoc_STRVAR(
    immortalize_doc,
    "immortalize(roots, stops, zones, prehash, immortal, fill=0)\n"
    "--\n\n"
    "Walk from roots (a tuple; None: everything) and mark each object "
    "immortal,\nfill its hash cache, or both. fill: 1 makes the __dict__ of "
    "instances, 2 the\nUTF-8 of strings, 4 weak references. -> (kinds, "
    "collected, filled)");

static PyObject *
immortalize(PyObject *module, PyObject *args)
{
    PyObject *roots, *result = NULL;
    struct walk w = {0};
    int prehash, immortal;
    if (!PyArg_ParseTuple(args, "OO!O!pp|I:immortalize", &roots, &PyTuple_Type,
                          &w.stops, &PyTuple_Type, &w.zones, &prehash,
                          &immortal, &w.fill)) {
        return NULL;
    }
    if (roots != Py_None && !PyTuple_Check(roots)) {
        PyErr_SetString(PyExc_TypeError, "roots: a tuple or None");
        return NULL;
    }
    struct cl_gc_lists lists;
    if (cl_layout_require(immortal ? "immortalize" : "prehash") < 0 ||
        check_stops(w.stops) < 0 || cl_gc_lists(&lists) < 0) {
        return NULL;
    }
    if (immortal && !cl_immortal_supported()) {
        return cl_raise_named("Unsupported",
                              "immortalize: objects can be immortal from "
                              "CPython 3.12 on: this is %d.%d",
                              PY_MAJOR_VERSION, PY_MINOR_VERSION);
    }
    if (immortal && PyInterpreterState_Get() != PyInterpreterState_Main()) {
        return cl_raise_named("Unsupported",
                              "immortalize: a subinterpreter ends before the "
                              "process: use the main interpreter");
    }
    w.prehash = prehash;
    w.immortal = immortal;
    w.data_only = roots != Py_None;
    cl_moments_load(&w);
    /* Hashing a moment allocates: no collection may run under the walk. */
    int was_enabled = PyGC_Disable();
    int err = w.data_only ? walk_roots(&w, roots) : walk_all(&w, &lists);
    if (err == 0) {
        result = walk_result(&w);
    } else {
        PyErr_Format(PyExc_MemoryError,
                     "%s: no memory for the walk over all objects%s",
                     immortal ? "immortalize" : "prehash",
                     immortal ? "; those that it had reached are immortal "
                                "now, the others are not"
                              : "");
    }
    if (was_enabled) {
        PyGC_Enable();
    }
    walk_release(&w);
    return result;
}

PyMethodDef cl_immortal_methods[] = {
    {"immortalize", immortalize, METH_VARARGS, immortalize_doc},
    {NULL, NULL, 0, NULL},
};
