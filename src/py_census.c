/* The census: every object that can be reached, counted without writing to
 * any of them. No reference is taken, nothing is allocated on the Python heap
 * until the walk is over, and the stack is a mapping of its own, so that no
 * depth of nesting matters. */
#include "py_census.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "cl_addrs.h"
#include "cl_pagemap.h"
#include "cl_ptrs.h"
#include "py_layout.h"
#include "py_rows.h"

/* What Python reads of a type. 72 bytes, no padding. */
struct census_row {
    uint64_t type; /* its address */
    uint64_t count, bytes, tracked, frozen, immortal;
    uint64_t pages;          /* that its instances lie on */
    uint64_t foreign;        /* bytes of other types' objects on these */
    uint32_t name, name_len; /* in the names */
};

/* What the walk knows of a type. */
struct kind {
    PyTypeObject *type; /* NULL: a free slot */
    traverseproc traverse;
    enum cl_hidden hidden;
    uint32_t row;
};

struct on_page {
    uint64_t page;
    uint64_t bytes;
};

struct walk {
    struct cl_addrs seen, frozen;
    struct cl_ptrstack todo;
    struct cl_buf kinds, rows, names, marks;
    size_t kinds_mask, nrows;
    struct kind last;
    int err;
    /* the page that is being summed: rows that have objects on it */
    struct cl_buf present; /* of uint32_t */
    size_t npresent;
    uint64_t page, page_bytes, page_size;
};

static struct census_row *
row_at(const struct walk *w, size_t i)
{
    return (struct census_row *)(void *)w->rows.data + i;
}

static struct on_page *
mark_at(const struct walk *w, size_t i)
{
    return (struct on_page *)(void *)w->marks.data + i;
}

/* ---- Types ---- */

static struct kind *
find_kind(struct kind *table, size_t mask, const PyTypeObject *type)
{
    uint64_t mixed = (uint64_t)(uintptr_t)type * 0x9e3779b97f4a7c15ull;
    size_t i = (size_t)(mixed >> 32) & mask;
    while (table[i].type != NULL && table[i].type != type) {
        i = (i + 1) & mask;
    }
    return &table[i];
}

static struct kind *
kinds(const struct walk *w)
{
    return (struct kind *)(void *)w->kinds.data;
}

static int
grow_kinds(struct walk *w)
{
    if (w->kinds_mask != 0 && 2 * (w->nrows + 1) <= w->kinds_mask) {
        return 0;
    }
    size_t count = w->kinds_mask == 0 ? 4096 : 2 * (w->kinds_mask + 1);
    struct cl_buf larger = {0};
    int err = cl_buf_reserve(&larger, count * sizeof(struct kind));
    if (err < 0) {
        return err;
    }
    struct kind *to = (struct kind *)(void *)larger.data;
    for (size_t i = 0; w->kinds_mask != 0 && i <= w->kinds_mask; i++) {
        if (kinds(w)[i].type != NULL) {
            *find_kind(to, count - 1, kinds(w)[i].type) = kinds(w)[i];
        }
    }
    cl_buf_release(&w->kinds);
    w->kinds = larger;
    w->kinds_mask = count - 1;
    return 0;
}

static int
append_name(struct walk *w, const char *text, size_t len)
{
    int err = cl_buf_reserve(&w->names, w->names.len + len);
    if (err == 0) {
        memcpy(w->names.data + w->names.len, text, len);
        w->names.len += len;
    }
    return err;
}

/* A str that is ASCII, as almost every name is: reading another one as UTF-8
 * would write its cache. */
static int
append_str(struct walk *w, PyObject *str)
{
    if (str == NULL || !PyUnicode_Check(str) ||
        !PyUnicode_IS_COMPACT_ASCII(str)) {
        return append_name(w, "?", 1);
    }
    return append_name(w, (const char *)PyUnicode_1BYTE_DATA(str),
                       (size_t)PyUnicode_GET_LENGTH(str));
}

/* "module.qualname" as repr() has it, found without a look-up that writes. */
static int
append_type_name(struct walk *w, PyTypeObject *type)
{
    if ((type->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0) {
        return append_name(w, type->tp_name, strlen(type->tp_name));
    }
    PyObject *key, *value, *module = NULL;
    Py_ssize_t at = 0;
    while (type->tp_dict != NULL &&
           PyDict_Next(type->tp_dict, &at, &key, &value)) {
        if (PyUnicode_Check(key) &&
            PyUnicode_CompareWithASCIIString(key, "__module__") == 0) {
            module = value;
            break;
        }
    }
    int err = 0;
    if (module != NULL && PyUnicode_Check(module) &&
        PyUnicode_CompareWithASCIIString(module, "builtins") != 0) {
        err = append_str(w, module);
        if (err == 0) {
            err = append_name(w, ".", 1);
        }
    }
    return err < 0 ? err
                   : append_str(w, ((PyHeapTypeObject *)type)->ht_qualname);
}

static int
visit(PyObject *op, void *arg)
{
    struct walk *w = arg;
    int added = cl_addrs_add(&w->seen, (uint64_t)(uintptr_t)op);
    if (added > 0) {
        added = cl_ptrstack_push(&w->todo, (uintptr_t)op);
    }
    if (added < 0) {
        w->err = added;
        return -1;
    }
    return 0;
}

/* Make w->last the kind of `type`. 0 or -ENOMEM. */
static int
know_kind(struct walk *w, PyTypeObject *type)
{
    int err = grow_kinds(w);
    if (err < 0) {
        return err;
    }
    struct kind *kind = find_kind(kinds(w), w->kinds_mask, type);
    if (kind->type == NULL) {
        size_t rows = (w->nrows + 1) * sizeof(struct census_row);
        size_t marks = (w->nrows + 1) * sizeof(struct on_page);
        size_t name = w->names.len;
        if ((err = cl_buf_reserve(&w->rows, rows)) < 0 ||
            (err = cl_buf_reserve(&w->marks, marks)) < 0 ||
            (err = append_type_name(w, type)) < 0) {
            return err;
        }
        *row_at(w, w->nrows) = (struct census_row){
            .type = (uint64_t)(uintptr_t)type,
            .name = (uint32_t)name,
            .name_len = (uint32_t)(w->names.len - name),
        };
        *mark_at(w, w->nrows) = (struct on_page){0};
        *kind = (struct kind){
            .type = type,
            .traverse = type->tp_traverse,
            .hidden = cl_hidden_kind(type),
            .row = (uint32_t)w->nrows++,
        };
        w->last = *kind;
        return visit((PyObject *)type, w) < 0 ? w->err : 0;
    }
    w->last = *kind;
    return 0;
}

/* ---- The walk ---- */

static int
drain(void *arg)
{
    struct walk *w = arg;
    PyObject *op;
    while ((op = (PyObject *)cl_ptrstack_pop(&w->todo)) != NULL) {
        if (Py_TYPE(op) != w->last.type &&
            (w->err = know_kind(w, Py_TYPE(op))) < 0) {
            return w->err;
        }
        struct kind kind = w->last;
        row_at(w, kind.row)->count++;
        if (kind.traverse != NULL && cl_object_is_gc(op)) {
            (void)kind.traverse(op, visit, w);
        }
        if (kind.hidden != CL_HIDDEN_NONE && w->err == 0) {
            (void)cl_visit_hidden_kind(op, kind.hidden, visit, w);
        }
        if (w->err < 0) {
            return w->err;
        }
    }
    return 0;
}

static int
note_frozen(struct walk *w, const struct cl_gc_lists *lists)
{
    uintptr_t head = lists->head[CL_GC_PERMANENT], gc = head;
    PyObject *op;
    while ((op = cl_gc_next(head, &gc)) != NULL) {
        int err = cl_addrs_add(&w->frozen, (uint64_t)(uintptr_t)op);
        if (err < 0) {
            return err;
        }
    }
    return 0;
}

/* ---- Sums, in the order of addresses ---- */

static void
finish_page(struct walk *w)
{
    const uint32_t *present = (const uint32_t *)(void *)w->present.data;
    for (size_t i = 0; i < w->npresent; i++) {
        struct census_row *row = row_at(w, present[i]);
        row->pages++;
        row->foreign += w->page_bytes - mark_at(w, present[i])->bytes;
    }
    w->npresent = 0;
    w->page_bytes = 0;
}

static int
add_to_page(struct walk *w, uint64_t page, uint32_t row, uint64_t bytes)
{
    if (page != w->page) {
        finish_page(w);
        w->page = page;
    }
    struct on_page *mark = mark_at(w, row);
    if (mark->page != page) {
        int err =
            cl_buf_reserve(&w->present, (w->npresent + 1) * sizeof(uint32_t));
        if (err < 0) {
            return err;
        }
        ((uint32_t *)(void *)w->present.data)[w->npresent++] = row;
        *mark = (struct on_page){page, 0};
    }
    mark->bytes += bytes;
    w->page_bytes += bytes;
    return 0;
}

static int
sum_object(uint64_t address, void *arg)
{
    struct walk *w = arg;
    PyObject *op = (PyObject *)(uintptr_t)address;
    if (Py_TYPE(op) != w->last.type &&
        (w->err = know_kind(w, Py_TYPE(op))) < 0) {
        return w->err;
    }
    uint32_t index = w->last.row;
    struct census_row *row = row_at(w, index);
    bool gc = cl_object_is_gc(op);
    uint64_t prefix = gc || !(Py_TYPE(op)->tp_flags & Py_TPFLAGS_HAVE_GC)
                          ? cl_object_prefix(Py_TYPE(op))
                          : 0;
    uint64_t size = prefix + cl_object_size(op);
    if (size <= 512) {
        size = (size + 15) & ~15ull; /* as pymalloc rounds */
    }
    row->bytes += size;
    row->immortal += cl_object_is_immortal(op);
    if (gc && cl_object_is_tracked(op)) {
        row->tracked++;
        row->frozen +=
            w->frozen.count != 0 && cl_addrs_has(&w->frozen, address);
    }
    uint64_t from = address - prefix, end = from + size;
    while (from < end) {
        uint64_t page = from / w->page_size;
        uint64_t stop = (page + 1) * w->page_size;
        stop = stop < end ? stop : end;
        int err = add_to_page(w, page, index, stop - from);
        if (err < 0) {
            return err;
        }
        from = stop;
    }
    return 0;
}

static void
walk_release(struct walk *w)
{
    cl_addrs_release(&w->seen);
    cl_addrs_release(&w->frozen);
    cl_ptrstack_release(&w->todo);
    cl_buf_release(&w->kinds);
    cl_buf_release(&w->rows);
    cl_buf_release(&w->names);
    cl_buf_release(&w->marks);
    cl_buf_release(&w->present);
}

static double
seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- The set of addresses that stays ---- */

struct object_set {
    PyObject_HEAD struct cl_addrs addrs;
};

static struct cl_addrs *
addrs_of(PyObject *self)
{
    return &((struct object_set *)self)->addrs;
}

static void
set_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    cl_addrs_release(addrs_of(self));
    type->tp_free(self);
    Py_DECREF(type);
}

static Py_ssize_t
set_length(PyObject *self)
{
    return (Py_ssize_t)addrs_of(self)->count;
}

static int
set_contains(PyObject *self, PyObject *address)
{
    unsigned long long value = PyLong_AsUnsignedLongLong(address);
    if (value == (unsigned long long)-1 && PyErr_Occurred()) {
        if (PyErr_ExceptionMatches(PyExc_OverflowError)) {
            PyErr_Clear();
            return 0;
        }
        return -1;
    }
    return cl_addrs_has(addrs_of(self), value);
}

PyDoc_STRVAR(before_doc, "before(address, within) -> int\n\nThe greatest\n"
                         "member <= address and > address - within, or 0.");

static PyObject *
set_before(PyObject *self, PyObject *args)
{
    unsigned long long address, within;
    if (!PyArg_ParseTuple(args, "KK:before", &address, &within)) {
        return NULL;
    }
    return PyLong_FromUnsignedLongLong(
        cl_addrs_before(addrs_of(self), address, within));
}

static int
append_address(uint64_t address, void *arg)
{
    struct cl_buf *buf = arg;
    memcpy(buf->data + buf->len, &address, sizeof address);
    buf->len += sizeof address;
    return 0;
}

PyDoc_STRVAR(addresses_doc, "addresses(module) -> Rows\n\nAll members,\n"
                            "ascending, 8 bytes each.");

static PyObject *
set_addresses(PyObject *self, PyObject *module)
{
    struct cl_buf buf = {0};
    size_t count = addrs_of(self)->count;
    int err = cl_buf_reserve(&buf, count * sizeof(uint64_t));
    if (err == 0) {
        err = cl_addrs_each(addrs_of(self), append_address, &buf);
    }
    if (err < 0) {
        cl_buf_release(&buf);
        return PyErr_NoMemory();
    }
    return cl_rows_new(module, &buf, count, sizeof(uint64_t));
}

PyDoc_STRVAR(
    static_size_doc,
    "static_size(address) -> int\n\nBytes of a member that lies in a\n"
    "mapped file, so that it cannot have been freed since.");

static PyObject *
set_static_size(PyObject *self, PyObject *number)
{
    unsigned long long address = PyLong_AsUnsignedLongLong(number);
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (!cl_addrs_has(addrs_of(self), address)) {
        return PyErr_Format(PyExc_ValueError, "%llu is no member", address);
    }
    return PyLong_FromSize_t(cl_object_size((PyObject *)(uintptr_t)address));
}

static PyMethodDef set_methods[] = {
    {"static_size", set_static_size, METH_O, static_size_doc},
    {"before", set_before, METH_VARARGS, before_doc},
    {"addresses", set_addresses, METH_O, addresses_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot set_slots[] = {
    {Py_tp_dealloc, set_dealloc},
    {Py_tp_methods, set_methods},
    {Py_sq_length, set_length},
    {Py_sq_contains, set_contains},
    {0, NULL},
};

static PyType_Spec set_spec = {
    .name = "cowlab._native.ObjectSet",
    .basicsize = sizeof(struct object_set),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION |
             Py_TPFLAGS_IMMUTABLETYPE,
    .slots = set_slots,
};

int
cl_census_register(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &set_spec, NULL);
    if (type == NULL) {
        return -1;
    }
    int err = PyModule_AddObjectRef(module, "ObjectSet", type);
    Py_DECREF(type);
    return err;
}

static PyObject *
set_new(PyObject *module, struct cl_addrs *addrs)
{
    PyObject *type = PyObject_GetAttrString(module, "ObjectSet");
    if (type == NULL) {
        return NULL;
    }
    struct object_set *set =
        PyObject_New(struct object_set, (PyTypeObject *)type);
    Py_DECREF(type);
    if (set != NULL) {
        set->addrs = *addrs;
        *addrs = (struct cl_addrs){0};
    }
    return (PyObject *)set;
}

/* ---- census() ---- */

PyDoc_STRVAR(census_doc,
             "census(roots) -> (objects, rows, names, walk, sums)\n\n"
             "roots: a tuple, or None for all that the interpreter knows.\n"
             "An ObjectSet, Rows of struct census_row, the names' bytes, and\n"
             "the seconds of the walk and of the sums.");

static PyObject *
census(PyObject *module, PyObject *roots)
{
    struct cl_gc_lists lists;
    if (roots != Py_None && !PyTuple_CheckExact(roots)) {
        return PyErr_Format(PyExc_TypeError, "roots must be a tuple or None");
    }
    if (cl_layout_require("census()") < 0 || cl_gc_lists(&lists) < 0) {
        return NULL;
    }
    struct walk w = {.page_size = cl_page_size()};
    PyObject *result = NULL, *set = NULL, *rows = NULL, *names = NULL;
    double start = seconds(), walked = start, summed = start;
    int err = note_frozen(&w, &lists);
    if (err == 0) {
        err = roots == Py_None ? cl_walk_all(&lists, visit, visit, drain, &w)
                               : cl_walk_items(roots, visit, drain, &w);
    }
    if (err == 0) {
        walked = seconds();
        err = cl_addrs_each(&w.seen, sum_object, &w);
        finish_page(&w);
        summed = seconds();
    }
    if (err < 0) {
        PyErr_NoMemory();
        goto done;
    }
    names = PyBytes_FromStringAndSize(w.names.data, (Py_ssize_t)w.names.len);
    rows = cl_rows_new(module, &w.rows, w.nrows, sizeof(struct census_row));
    set = set_new(module, &w.seen);
    if (names != NULL && rows != NULL && set != NULL) {
        result = Py_BuildValue("OOOdd", set, rows, names, walked - start,
                               summed - walked);
    }
done:
    walk_release(&w);
    Py_XDECREF(names);
    Py_XDECREF(rows);
    Py_XDECREF(set);
    return result;
}

PyMethodDef cl_census_methods[] = {
    {"census", census, METH_O, census_doc},
    {NULL, NULL, 0, NULL},
};
