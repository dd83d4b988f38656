/* Page map entries as Python sees them: arrays of 64-bit words outside the
 * Python heap, read through the buffer protocol. */
#include "py_module.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cl_pagemap.h"
#include "cl_proc.h"

/* ---- the type Words ---- */

typedef struct {
    PyObject_HEAD uint64_t
        *data; /* an anonymous mapping of our own; NULL while empty */
    Py_ssize_t count;
} Words;

static const Py_ssize_t word_size = sizeof(uint64_t);

/* A Words, or a subclass's instance, of `count` zeroes. */
static Words *
words_new(PyTypeObject *type, Py_ssize_t count)
{
    Words *self = (Words *)type->tp_alloc(type, 0);
    if (self == NULL || count == 0) {
        return self;
    }
    void *data = MAP_FAILED;
    if (count <= PY_SSIZE_T_MAX / word_size) {
        data = mmap(NULL, (size_t)(count * word_size), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    if (data == MAP_FAILED) {
        Py_DECREF(self);
        PyErr_Format(PyExc_MemoryError,
                     "there is no memory for 8 bytes for each of %zd pages: "
                     "give smaller ranges, such as what page_runs() finds",
                     count);
        return NULL;
    }
    self->data = data;
    self->count = count;
    return self;
}

static void
words_dealloc(PyObject *object)
{
    Words *self = (Words *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->data != NULL) {
        munmap(self->data, (size_t)(self->count * word_size));
    }
    type->tp_free(object);
    Py_DECREF(type);
}

static int
words_getbuffer(PyObject *object, Py_buffer *view, int flags)
{
    Words *self = (Words *)object;
    static uint64_t nothing;
    if (flags & PyBUF_WRITABLE) {
        PyErr_SetString(PyExc_BufferError, "what was read is read-only");
        view->obj = NULL;
        return -1;
    }
    view->buf = self->data == NULL ? &nothing : self->data;
    view->obj = Py_NewRef(object);
    view->len = self->count * word_size;
    view->itemsize = word_size;
    view->readonly = 1;
    view->ndim = 1;
    view->format = flags & PyBUF_FORMAT ? (char *)"Q" : NULL;
    view->shape = flags & PyBUF_ND ? &self->count : NULL;
    view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES
                        ? (Py_ssize_t *)&word_size
                        : NULL;
    view->suboffsets = NULL;
    view->internal = NULL;
    return 0;
}

static Py_ssize_t
words_length(PyObject *object)
{
    return ((Words *)object)->count;
}

static PyObject *
words_item(PyObject *object, Py_ssize_t i)
{
    Words *self = (Words *)object;
    if (i < 0 || i >= self->count) {
        PyErr_SetString(PyExc_IndexError, "no entry has that index");
        return NULL;
    }
    return PyLong_FromUnsignedLongLong(self->data[i]);
}

static int
masks(PyObject *args, uint64_t *all, uint64_t *none)
{
    unsigned long long first, second;
    if (!PyArg_ParseTuple(args, "KK", &first, &second)) {
        return -1;
    }
    *all = first;
    *none = second;
    return 0;
}

static inline bool
matches(uint64_t word, uint64_t all, uint64_t none)
{
    return (word & all) == all && (word & none) == 0;
}

static PyObject *
words_count(PyObject *object, PyObject *args)
{
    Words *self = (Words *)object;
    uint64_t all, none;
    if (masks(args, &all, &none) < 0) {
        return NULL;
    }
    Py_ssize_t count = 0;
    for (Py_ssize_t i = 0; i < self->count; i++) {
        count += matches(self->data[i], all, none);
    }
    return PyLong_FromSsize_t(count);
}

static PyObject *
words_matching(PyObject *object, PyObject *args)
{
    Words *self = (Words *)object;
    uint64_t all, none;
    if (masks(args, &all, &none) < 0) {
        return NULL;
    }
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, self->count);
    if (bytes == NULL) {
        return NULL;
    }
    char *to = PyBytes_AS_STRING(bytes);
    for (Py_ssize_t i = 0; i < self->count; i++) {
        to[i] = matches(self->data[i], all, none);
    }
    return bytes;
}

/* Whether there are present pages and the kernel shows the frame of none. */
static bool
hides_frames(const Words *self)
{
    bool present = false;
    for (Py_ssize_t i = 0; i < self->count; i++) {
        if (self->data[i] & CL_PM_PRESENT) {
            present = true;
            if (self->data[i] & CL_PM_FRAME_MASK) {
                return false;
            }
        }
    }
    return present;
}

/* Frame numbers as an instance of a class, 0 for a page that has none; None
 * where they are hidden. */
static PyObject *
words_frames(PyObject *object, PyObject *type)
{
    Words *self = (Words *)object;
    if (hides_frames(self)) {
        Py_RETURN_NONE;
    }
    Words *frames = words_new((PyTypeObject *)type, self->count);
    for (Py_ssize_t i = 0; frames != NULL && i < self->count; i++) {
        uint64_t word = self->data[i];
        frames->data[i] = word & CL_PM_PRESENT ? word & CL_PM_FRAME_MASK : 0;
    }
    return (PyObject *)frames;
}

static PyMethodDef words_methods[] = {
    {"_count", words_count, METH_VARARGS, NULL},
    {"_matching", words_matching, METH_VARARGS, NULL},
    {"_frames", words_frames, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot words_slots[] = {
    {Py_tp_doc,
     (char *)"64-bit words as the kernel gave them, read-only, with the "
             "buffer protocol (format Q)."},
    {Py_tp_dealloc, words_dealloc},
    {Py_tp_methods, words_methods},
    {Py_bf_getbuffer, words_getbuffer},
    {Py_sq_length, words_length},
    {Py_sq_item, words_item},
    {0, NULL},
};

static PyType_Spec words_spec = {
    .name = "cowlab._native.Words",
    .basicsize = sizeof(Words),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = words_slots,
};

int
cl_pagemap_exec(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &words_spec, NULL);
    int err =
        type == NULL ? -1 : PyModule_AddType(module, (PyTypeObject *)type);
    Py_XDECREF(type);
    return err;
}

/* ---- the page map ---- */

struct range {
    uint64_t start, end;
};

/* Page-aligned (start, end) pairs, in memory the caller frees with PyMem_Free.
 * NULL with an exception set. */
static struct range *
ranges_from(PyObject *tuple, Py_ssize_t *count)
{
    *count = PyTuple_GET_SIZE(tuple);
    struct range *ranges = PyMem_New(struct range, (size_t)*count + 1);
    if (ranges == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < *count; i++) {
        unsigned long long start, end;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(tuple, i), "KK", &start,
                              &end)) {
            PyMem_Free(ranges);
            return NULL;
        }
        ranges[i] = (struct range){start, end};
    }
    return ranges;
}

static PyObject *
native_pagemap(PyObject *module, PyObject *args)
{
    pid_t pid;
    PyObject *tuple, *type;
    if (!PyArg_ParseTuple(args, "O&O!O!", cl_pid_converter, &pid,
                          &PyTuple_Type, &tuple, &PyType_Type, &type)) {
        return NULL;
    }
    Py_ssize_t nranges;
    struct range *ranges = ranges_from(tuple, &nranges);
    if (ranges == NULL) {
        return NULL;
    }
    size_t page = cl_page_size();
    Py_ssize_t pages = 0;
    for (Py_ssize_t i = 0; i < nranges; i++) {
        uint64_t more = (ranges[i].end - ranges[i].start) / page;
        /* At most 2^52 a range: only absurd numbers of ranges overflow. */
        pages = more > (uint64_t)(PY_SSIZE_T_MAX - pages)
                    ? PY_SSIZE_T_MAX
                    : pages + (Py_ssize_t)more;
    }
    Words *words = words_new((PyTypeObject *)type, pages);
    if (words == NULL) {
        PyMem_Free(ranges);
        return NULL;
    }
    int fd;
    int err = 0;
    Py_ssize_t failed = -1;
    Py_BEGIN_ALLOW_THREADS
    fd = cl_proc_open(pid, "pagemap", O_RDONLY);
    err = fd < 0 ? fd : 0;
    uint64_t *to = words->data;
    for (Py_ssize_t i = 0; err == 0 && i < nranges; i++) {
        size_t npages = (ranges[i].end - ranges[i].start) / page;
        err = cl_pagemap_read(fd, ranges[i].start, npages, to);
        to += npages;
        failed = i;
    }
    if (fd >= 0) {
        close(fd);
    }
    Py_END_ALLOW_THREADS
    if (err < 0) {
        Py_CLEAR(words);
        if (err == -EFAULT || err == -ENODATA) {
            PyErr_Format(PyExc_ValueError,
                         "the range %R is beyond what a process can map",
                         PyTuple_GET_ITEM(tuple, failed));
        } else {
            cl_raise_reading(err, pid, "pagemap");
        }
    }
    PyMem_Free(ranges);
    return (PyObject *)words;
}

/* Runs a call of the kernel's: enough for most mappings, small on the stack.
 */
#define RUNS 256

static int
append_runs(PyObject *list, const struct cl_page_run *runs, long count)
{
    for (long i = 0; i < count; i++) {
        PyObject *run =
            Py_BuildValue("(KKK)", (unsigned long long)runs[i].start,
                          (unsigned long long)runs[i].end,
                          (unsigned long long)runs[i].categories);
        int err = run == NULL ? -1 : PyList_Append(list, run);
        Py_XDECREF(run);
        if (err < 0) {
            return -1;
        }
    }
    return 0;
}

/* (start, end, categories) of each run in the ranges. */
static PyObject *
native_page_runs(PyObject *module, PyObject *args)
{
    pid_t pid;
    PyObject *tuple;
    unsigned long long any;
    if (!PyArg_ParseTuple(args, "O&O!K", cl_pid_converter, &pid, &PyTuple_Type,
                          &tuple, &any)) {
        return NULL;
    }
    Py_ssize_t nranges;
    struct range *ranges = ranges_from(tuple, &nranges);
    PyObject *list = ranges == NULL ? NULL : PyList_New(0);
    int fd = -1;
    if (list == NULL) {
        goto fail;
    }
    Py_BEGIN_ALLOW_THREADS
    fd = cl_proc_open(pid, "pagemap", O_RDONLY);
    Py_END_ALLOW_THREADS
    if (fd < 0) {
        cl_raise_reading(fd, pid, "pagemap");
        goto fail;
    }
    for (Py_ssize_t i = 0; i < nranges; i++) {
        uint64_t at = ranges[i].start;
        while (at < ranges[i].end) {
            struct cl_page_run runs[RUNS];
            long got;
            Py_BEGIN_ALLOW_THREADS
            got = cl_pagemap_scan(fd, at, ranges[i].end, 0, any, runs, RUNS,
                                  &at);
            Py_END_ALLOW_THREADS
            if (got == -ENOTTY) {
                cl_raise_named("Unsupported",
                               "this kernel has no PAGEMAP_SCAN: Linux 6.7 is "
                               "the first that has it; use pagemap()");
                goto fail;
            }
            if (got == -EFAULT || got == -EINVAL) {
                PyErr_Format(PyExc_ValueError,
                             "the range %R is beyond what a process can map",
                             PyTuple_GET_ITEM(tuple, i));
                goto fail;
            }
            if (got < 0) {
                cl_raise_reading((int)got, pid, "pagemap");
                goto fail;
            }
            if (append_runs(list, runs, got) < 0) {
                goto fail;
            }
        }
    }
    close(fd);
    PyMem_Free(ranges);
    return list;

fail:
    if (fd >= 0) {
        close(fd);
    }
    PyMem_Free(ranges);
    Py_XDECREF(list);
    return NULL;
}

/* ---- /proc/kpagecount and kpageflags ---- */

#define KPF_NOPAGE (1ull << 20)

/* One word per frame from `fd`; runs of consecutive frames in one read. Frame
 * 0 stands for no page and gets `nothing`. 0, or -errno with *bad the frame.
 */
static int
read_frames(int fd, const uint64_t *frames, Py_ssize_t count, uint64_t nothing,
            uint64_t *to, uint64_t *bad)
{
    Py_ssize_t i = 0;
    while (i < count) {
        if (frames[i] == 0) {
            to[i++] = nothing;
            continue;
        }
        Py_ssize_t run = 1;
        while (i + run < count &&
               frames[i + run] == frames[i] + (uint64_t)run) {
            run++;
        }
        *bad = frames[i];
        if (frames[i] > INT64_MAX / sizeof *to) {
            return -EINVAL;
        }
        ssize_t got;
        do {
            got = pread(fd, to + i, (size_t)run * sizeof *to,
                        (off_t)(frames[i] * sizeof *to));
        } while (got < 0 && errno == EINTR);
        if (got < 0) {
            return -errno;
        }
        if (got == 0) {
            return -EINVAL;
        }
        i += got / (ssize_t)sizeof *to;
    }
    return 0;
}

/* (name, buffer of frame numbers, class Words). */
static PyObject *
native_kpage(PyObject *module, PyObject *args)
{
    const char *name;
    Py_buffer frames;
    PyObject *type;
    if (!PyArg_ParseTuple(args, "sy*O!", &name, &frames, &PyType_Type,
                          &type)) {
        return NULL;
    }
    char path[64];
    snprintf(path, sizeof path, "/proc/%s", name);
    Py_ssize_t count = frames.len / word_size;
    uint64_t nothing = strcmp(name, "kpageflags") == 0 ? KPF_NOPAGE : 0;
    uint64_t bad = 0;
    Words *words = words_new((PyTypeObject *)type, count);
    if (words == NULL) {
        PyBuffer_Release(&frames);
        return NULL;
    }
    int err, fd;
    Py_BEGIN_ALLOW_THREADS
    fd = open(path, O_RDONLY | O_CLOEXEC);
    err = fd < 0 ? -errno : 0;
    if (err == 0) {
        err = read_frames(fd, frames.buf, count, nothing, words->data, &bad);
        close(fd);
    }
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&frames);
    if (err < 0) {
        Py_CLEAR(words);
        if (fd < 0 && err == -ENOENT) {
            cl_raise_named("Unsupported",
                           "this kernel has no %s: it was built without "
                           "CONFIG_PROC_PAGE_MONITOR, or a container hides it",
                           path);
        } else if (fd < 0 && (err == -EACCES || err == -EPERM)) {
            cl_raise_os("Unreadable", -err,
                        "the counts and flags of frames are for root "
                        "(CAP_DAC_READ_SEARCH opens the file)",
                        path);
        } else if (err == -EINVAL) {
            PyErr_Format(PyExc_ValueError, "there is no frame %llu",
                         (unsigned long long)bad);
        } else {
            cl_raise(err, "read", path);
        }
    }
    return (PyObject *)words;
}

static PyObject *
soft_dirty_works(PyObject *module, PyObject *unused)
{
    int works = cl_pagemap_soft_dirty();
    if (works < 0) {
        return cl_raise_reading(works, 0, "pagemap");
    }
    return PyBool_FromLong(works);
}

PyMethodDef cl_pagemap_methods[] = {
    {"pagemap", native_pagemap, METH_VARARGS, NULL},
    {"page_runs", native_page_runs, METH_VARARGS, NULL},
    {"kpage", native_kpage, METH_VARARGS, NULL},
    {"soft_dirty_works", soft_dirty_works, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
