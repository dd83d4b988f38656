/* See py_layout_frame.h. The only file that includes CPython's frame headers.
 *
 * PyEval_GetFrame and its relatives are no use here: they make a frame object
 * or take a reference, and either would write to an inherited page. */
#define PY_SSIZE_T_CLEAN
#define Py_BUILD_CORE_MODULE 1
#include <Python.h>

#include "internal/pycore_frame.h"
#if PY_VERSION_HEX >= 0x030e0000
#include "internal/pycore_interpframe.h"
#endif
#include "internal/pycore_code.h"

#include <pthread.h>
#include <string.h>

#include "py_layout_frame.h"

#define MAX_SKIPPED 64 /* entry frames between two of Python code */

static PyThreadState *
thread_state(void)
{
#if PY_VERSION_HEX >= 0x030d0000
    PyThreadState *state = PyThreadState_GetUnchecked();
#else
    PyThreadState *state = _PyThreadState_UncheckedGet();
#endif
#if PY_VERSION_HEX < 0x030c0000
    /* One variable for the whole process there: whoever holds the GIL. */
    if (state != NULL && state->thread_id != (unsigned long)pthread_self()) {
        state = NULL;
    }
#endif
    return state != NULL ? state : PyGILState_GetThisThreadState();
}

static _PyInterpreterFrame *
top_frame(const PyThreadState *state)
{
#if PY_VERSION_HEX >= 0x030d0000
    return state->current_frame;
#else
    return state->cframe == NULL ? NULL : state->cframe->current_frame;
#endif
}

/* The frame's code object; NULL for the frames that only mark an entry into
 * the interpreter. */
static PyCodeObject *
frame_code(const _PyInterpreterFrame *frame)
{
#if PY_VERSION_HEX >= 0x030e0000
    if (frame->owner >= FRAME_OWNED_BY_INTERPRETER) {
        return NULL;
    }
#elif PY_VERSION_HEX >= 0x030c0000
    if (frame->owner >= FRAME_OWNED_BY_CSTACK) {
        return NULL;
    }
#endif
#if PY_VERSION_HEX >= 0x030e0000
    PyObject *code = (PyObject *)(frame->f_executable.bits & ~(uintptr_t)3);
#elif PY_VERSION_HEX >= 0x030d0000
    PyObject *code = frame->f_executable;
#else
    PyObject *code = (PyObject *)frame->f_code;
#endif
    if (code == NULL || Py_TYPE(code) != &PyCode_Type) {
        return NULL;
    }
    return (PyCodeObject *)code;
}

static int32_t
frame_offset(const _PyInterpreterFrame *frame, PyCodeObject *code)
{
#if PY_VERSION_HEX >= 0x030d0000
    const _Py_CODEUNIT *at = frame->instr_ptr;
#else
    const _Py_CODEUNIT *at = frame->prev_instr;
#endif
    ptrdiff_t offset = at - _PyCode_CODE(code);
    return offset < 0 || offset > Py_SIZE(code) ? -1 : (int32_t)offset;
}

/* Enough of the line table to tell two apart, at a cost that does not depend
 * on how long the function is. */
static uint64_t
sample_of(const char *lines, size_t len)
{
    uint64_t head = 0, tail = 0;
    size_t n = len < 8 ? len : 8;
    memcpy(&head, lines, n);
    memcpy(&tail, lines + len - n, n);
    return (head * 31 + tail) * 31 + len;
}

static bool
text_of(PyObject *text, const void **data, uint32_t *count, uint32_t *width)
{
    if (text == NULL || !PyUnicode_Check(text)) {
        return false;
    }
    *data = PyUnicode_DATA(text);
    *count = (uint32_t)PyUnicode_GET_LENGTH(text);
    *width = (uint32_t)PyUnicode_KIND(text);
    return true;
}

bool
cl_frame_current(struct cl_code_view *view)
{
    const PyThreadState *state = thread_state();
    if (state == NULL) {
        return false;
    }
    const _PyInterpreterFrame *frame = top_frame(state);
    PyCodeObject *code = NULL;
    for (int skipped = 0; frame != NULL && skipped < MAX_SKIPPED; skipped++) {
        code = frame_code(frame);
        if (code != NULL) {
            break;
        }
        frame = frame->previous;
    }
    if (code == NULL || code->co_linetable == NULL ||
        !PyBytes_Check(code->co_linetable) ||
        !text_of(code->co_filename, &view->filename, &view->filename_count,
                 &view->filename_width) ||
        !text_of(code->co_qualname, &view->qualname, &view->qualname_count,
                 &view->qualname_width)) {
        return false;
    }
    view->offset = frame_offset(frame, code);
    view->lines = PyBytes_AS_STRING(code->co_linetable);
    view->lines_count = (uint32_t)PyBytes_GET_SIZE(code->co_linetable);
    view->key = (struct cl_code_key){
        .code = (uintptr_t)code,
        .lines = (uintptr_t)code->co_linetable,
        .filename = (uintptr_t)code->co_filename,
        .qualname = (uintptr_t)code->co_qualname,
        .sample = sample_of(view->lines, view->lines_count),
#if PY_VERSION_HEX >= 0x030c0000
        .version = code->co_version,
#endif
        .first_line = (uint32_t)code->co_firstlineno,
        .units = (uint32_t)Py_SIZE(code),
    };
    return true;
}

PyObject *
cl_frame_stacks(void)
{
    PyObject *list = PyList_New(0);
    PyThreadState *state =
        PyInterpreterState_ThreadHead(PyInterpreterState_Get());
    for (; list != NULL && state != NULL; state = PyThreadState_Next(state)) {
        const _PyStackChunk *chunk = state->datastack_chunk;
        for (; list != NULL && chunk != NULL; chunk = chunk->previous) {
            uint64_t start = (uintptr_t)chunk;
            PyObject *pair = Py_BuildValue("(KK)", start, start + chunk->size);
            if (pair == NULL || PyList_Append(list, pair) < 0) {
                Py_CLEAR(list);
            }
            Py_XDECREF(pair);
        }
    }
    return list;
}

/* What a local variable refers to; NULL: unset, or not an object. */
static PyObject *
frame_local(const _PyInterpreterFrame *frame, int index)
{
#if PY_VERSION_HEX >= 0x030e0000
    uintptr_t bits = frame->localsplus[index].bits;
    return (bits & 3) == 3 ? NULL : (PyObject *)(bits & ~(uintptr_t)3);
#else
    return frame->localsplus[index];
#endif
}

static int
visit_frame(const _PyInterpreterFrame *frame, visitproc visit, void *arg)
{
    PyCodeObject *code = frame_code(frame);
    if (code == NULL) {
        return 0;
    }
    Py_VISIT(frame->f_locals);
    for (int i = 0; i < code->co_nlocalsplus; i++) {
        Py_VISIT(frame_local(frame, i));
    }
    return 0;
}

int
cl_visit_frames(visitproc visit, void *arg)
{
    PyThreadState *state =
        PyInterpreterState_ThreadHead(PyInterpreterState_Get());
    int err = 0;
    for (; err == 0 && state != NULL; state = PyThreadState_Next(state)) {
        const _PyInterpreterFrame *frame = top_frame(state);
        for (; err == 0 && frame != NULL; frame = frame->previous) {
            err = visit_frame(frame, visit, arg);
        }
    }
    return err;
}
