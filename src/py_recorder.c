/* The recorder's glue: cl_faults.h as functions, a record as data. */
#include <errno.h>
#include <string.h>

#include "cl_faults.h"
#include "py_layout.h"
#include "py_layout_frame.h"
#include "py_module.h"
#include "py_recorder.h"

#define CAPSULE "cowlab._native.recorder"

struct cl_recorder *
cl_recorder_of(PyObject *capsule)
{
    return PyCapsule_GetPointer(capsule, CAPSULE);
}

static void
release(PyObject *capsule)
{
    cl_recorder_release(cl_recorder_of(capsule));
}

static PyObject *
recorder_prepare(PyObject *module, PyObject *args)
{
    int mode;
    const char *path;
    if (!PyArg_ParseTuple(args, "iz", &mode, &path)) {
        return NULL;
    }
    if (mode < CL_RECORD_PAGES || mode > CL_RECORD_PROTECT) {
        PyErr_SetString(PyExc_ValueError, "no such recorder mode");
        return NULL;
    }
    if (cl_layout_require("recording") < 0) {
        return NULL;
    }
    struct cl_recorder *recorder;
    int err = cl_recorder_prepare(&recorder, (enum cl_record_mode)mode, path,
                                  cl_frame_current);
    if (err != 0) {
        errno = -err;
        return PyErr_SetFromErrnoWithFilename(PyExc_OSError, path);
    }
    PyObject *capsule = PyCapsule_New(recorder, CAPSULE, release);
    if (capsule == NULL) {
        cl_recorder_release(recorder);
    }
    return capsule;
}

static PyObject *
result(int err)
{
    if (err != 0) {
        errno = -err;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    Py_RETURN_NONE;
}

static PyObject *
recorder_enable(PyObject *module, PyObject *capsule)
{
    struct cl_recorder *recorder = cl_recorder_of(capsule);
    return recorder == NULL ? NULL : result(cl_recorder_enable(recorder));
}

static PyObject *
recorder_disable(PyObject *module, PyObject *capsule)
{
    struct cl_recorder *recorder = cl_recorder_of(capsule);
    return recorder == NULL ? NULL : result(cl_recorder_disable(recorder));
}

static PyObject *
recorder_look(PyObject *module, PyObject *args)
{
    PyObject *capsule;
    int pid;
    if (!PyArg_ParseTuple(args, "Oi", &capsule, &pid)) {
        return NULL;
    }
    struct cl_recorder *recorder = cl_recorder_of(capsule);
    return recorder == NULL
               ? NULL
               : result(cl_record_look(cl_recorder_record(recorder), pid));
}

static PyObject *
recorder_fd(PyObject *module, PyObject *capsule)
{
    struct cl_recorder *recorder = cl_recorder_of(capsule);
    return recorder == NULL
               ? NULL
               : PyLong_FromLong(cl_recorder_record(recorder)->fd);
}

/* ---- A record as data ---- */

static PyObject *
not_a_record(const char *why)
{
    return cl_raise_named("Truncated", "this is not a cowlab record: %s", why);
}

/* Whether `len` bytes at `at` of the section lie within it and the buffer. */
static bool
holds(const Py_buffer *buffer, const struct cl_section *section, uint64_t at,
      uint64_t len)
{
    uint64_t size = (uint64_t)buffer->len;
    return section->at <= size && section->capacity <= size - section->at &&
           at <= section->capacity && len <= section->capacity - at;
}

static PyObject *
decode_text(const Py_buffer *buffer, const struct cl_section *section,
            const struct cl_text *text)
{
    if ((text->width != 1 && text->width != 2 && text->width != 4) ||
        !holds(buffer, section, text->at,
               (uint64_t)text->count * text->width)) {
        return not_a_record("a text lies outside it");
    }
    return PyUnicode_FromKindAndData(
        (int)text->width, (const char *)buffer->buf + section->at + text->at,
        text->count);
}

static PyObject *
decode_code(const Py_buffer *buffer, const struct cl_record_header *header,
            const struct cl_code *code)
{
    const struct cl_section *section = &header->text;
    if (atomic_load(&((struct cl_code *)(uintptr_t)code)->state) != 2) {
        Py_RETURN_NONE;
    }
    if (code->lines.width != 1 ||
        !holds(buffer, section, code->lines.at, code->lines.count)) {
        return not_a_record("a line table lies outside it");
    }
    PyObject *filename = decode_text(buffer, section, &code->filename);
    PyObject *qualname = decode_text(buffer, section, &code->qualname);
    PyObject *out = NULL;
    if (filename != NULL && qualname != NULL) {
        out = Py_BuildValue(
            "(OOIy#)", filename, qualname, code->key.first_line,
            (const char *)buffer->buf + section->at + code->lines.at,
            (Py_ssize_t)code->lines.count);
    }
    Py_XDECREF(filename);
    Py_XDECREF(qualname);
    return out;
}

/* {id: (file, qualified name, first line, line table)} */
static PyObject *
decode_codes(const Py_buffer *buffer, const struct cl_record_header *header)
{
    const struct cl_code *codes =
        (const void *)((const char *)buffer->buf + header->codes.at);
    uint64_t n = header->codes.capacity / sizeof *codes;
    PyObject *out = PyDict_New();
    for (uint64_t i = 0; out != NULL && i < n; i++) {
        PyObject *code = decode_code(buffer, header, &codes[i]);
        PyObject *key = NULL;
        if (code != NULL && code != Py_None) {
            key = PyLong_FromUnsignedLongLong(i + 1);
        }
        if (code == NULL ||
            (code != Py_None &&
             (key == NULL || PyDict_SetItem(out, key, code) < 0))) {
            Py_CLEAR(out);
        }
        Py_XDECREF(key);
        Py_XDECREF(code);
    }
    return out;
}

/* [(page, written down, flags, code, offset, address, ip, thread, end)] of the
 * inherited pages that have a writer or do not stand as they did. */
static int
decode_range(const Py_buffer *buffer, const struct cl_record_header *header,
             const struct cl_record_range *range, PyObject *out)
{
    uint64_t pages = (range->end - range->start) / header->page_size;
    if (range->end < range->start || range->first > header->nslots ||
        pages > header->nslots - range->first) {
        not_a_record("a range lies outside it");
        return -1;
    }
    struct cl_slot *slots = (void *)((char *)buffer->buf + header->slots.at);
    for (uint64_t i = 0; i < pages; i++) {
        struct cl_slot *slot = &slots[range->first + i];
        uint32_t state =
            atomic_load_explicit(&slot->state, memory_order_acquire);
        if (state == CL_SLOT_NONE ||
            (state == CL_SLOT_ARMED && slot->end <= CL_END_SHARED)) {
            continue;
        }
        PyObject *row =
            Py_BuildValue("(KOIIiKKII)", range->start + i * header->page_size,
                          state == CL_SLOT_DONE ? Py_True : Py_False,
                          slot->flags, slot->code, slot->offset, slot->address,
                          slot->ip, slot->thread, slot->end);
        if (row == NULL || PyList_Append(out, row) < 0) {
            Py_XDECREF(row);
            return -1;
        }
        Py_DECREF(row);
    }
    return 0;
}

static PyObject *
decode_faults(const Py_buffer *buffer, const struct cl_record_header *header)
{
    const struct cl_record_range *ranges =
        (const void *)((const char *)buffer->buf + header->ranges.at);
    PyObject *out = PyList_New(0);
    for (uint64_t i = 0; out != NULL && i < header->nranges; i++) {
        if (decode_range(buffer, header, &ranges[i], out) < 0) {
            Py_CLEAR(out);
        }
    }
    return out;
}

static PyObject *
decode_counts(const struct cl_record_header *header)
{
    static const char *const names[] = {
#define X(name, python) python,
        CL_RECORD_COUNTERS(X)
#undef X
    };
    PyObject *out = PyDict_New();
    for (int i = 0; out != NULL && i < CL_COUNT_N; i++) {
        PyObject *n = PyLong_FromUnsignedLongLong(atomic_load(
            &((struct cl_record_header *)(uintptr_t)header)->counts[i]));
        if (n == NULL || PyDict_SetItemString(out, names[i], n) < 0) {
            Py_CLEAR(out);
        }
        Py_XDECREF(n);
    }
    return out;
}

static const char *
why_not(const Py_buffer *buffer, const struct cl_record_header *header)
{
    if ((size_t)buffer->len < sizeof *header) {
        return "it is too short";
    }
    if (header->magic != CL_RECORD_MAGIC) {
        return "it does not begin as one";
    }
    if (header->version != CL_RECORD_VERSION ||
        header->header_size != sizeof *header ||
        header->slot_size != sizeof(struct cl_slot) ||
        header->code_size != sizeof(struct cl_code)) {
        return "another version of cowlab wrote it";
    }
    if (header->size != (uint64_t)buffer->len || header->page_size == 0 ||
        header->mode > CL_RECORD_PROTECT || header->state > CL_RECORD_OFF ||
        header->nranges >
            header->ranges.capacity / sizeof(struct cl_record_range) ||
        header->nslots > header->slots.capacity / sizeof(struct cl_slot)) {
        return "its sizes contradict each other";
    }
    const struct cl_section *sections[] = {
        &header->ranges, &header->slots,      &header->codes,
        &header->text,   &header->maps_start, &header->maps_stop,
    };
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) {
        if (!holds(buffer, sections[i], 0, 0) || sections[i]->at % 8 != 0) {
            return "a section lies outside it";
        }
    }
    if (header->maps_start_len > header->maps_start.capacity ||
        header->maps_stop_len > header->maps_stop.capacity) {
        return "a section lies outside it";
    }
    return NULL;
}

static PyObject *
record_decode(PyObject *module, PyObject *object)
{
    Py_buffer buffer;
    if (PyObject_GetBuffer(object, &buffer, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    struct cl_record_header header;
    PyObject *out = NULL, *codes = NULL, *faults = NULL, *counts = NULL;
    memset(&header, 0, sizeof header);
    memcpy(&header, buffer.buf,
           (size_t)buffer.len < sizeof header ? (size_t)buffer.len
                                              : sizeof header);
    const char *why = why_not(&buffer, &header);
    if (why != NULL) {
        not_a_record(why);
        goto done;
    }
    codes = decode_codes(&buffer, &header);
    faults = codes == NULL ? NULL : decode_faults(&buffer, &header);
    counts = faults == NULL ? NULL : decode_counts(&header);
    if (counts == NULL) {
        goto done;
    }
    const char *base = buffer.buf;
    out = Py_BuildValue(
        "{s:I, s:i, s:i, s:I, s:O, s:K, s:K, s:y#, s:y#, s:O, s:O, s:O}",
        "mode", header.mode, "pid", header.pid, "parent", header.parent,
        "state", atomic_load(&header.state), "kernel_seen",
        header.kernel_seen ? Py_True : Py_False, "page_size", header.page_size,
        "inherited", header.inherited, "maps_start",
        base + header.maps_start.at, (Py_ssize_t)header.maps_start_len,
        "maps_stop", base + header.maps_stop.at,
        (Py_ssize_t)header.maps_stop_len, "codes", codes, "faults", faults,
        "counts", counts);
done:
    Py_XDECREF(counts);
    Py_XDECREF(faults);
    Py_XDECREF(codes);
    PyBuffer_Release(&buffer);
    return out;
}

static PyObject *
frame_stacks(PyObject *module, PyObject *unused)
{
    return cl_layout_require("recording") < 0 ? NULL : cl_frame_stacks();
}

PyMethodDef cl_recorder_methods[] = {
    {"frame_stacks", frame_stacks, METH_NOARGS, NULL},
    {"recorder_prepare", recorder_prepare, METH_VARARGS, NULL},
    {"recorder_enable", recorder_enable, METH_O, NULL},
    {"recorder_disable", recorder_disable, METH_O, NULL},
    {"recorder_look", recorder_look, METH_VARARGS, NULL},
    {"recorder_fd", recorder_fd, METH_O, NULL},
    {"record_decode", record_decode, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};
