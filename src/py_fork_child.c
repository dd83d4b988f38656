/* A measured child: at-fork handlers, rest, the task, its result, _exit. It
 * runs nothing else, and leaves by no other way. */
#include "py_fork.h"
#include "py_recorder.h"

#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

static PyObject *
take_exception(void)
{
#if PY_VERSION_HEX >= 0x030c0000
    return PyErr_GetRaisedException();
#else
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback != NULL && value != NULL) {
        PyException_SetTraceback(value, traceback);
    }
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return value;
#endif
}

static void
flush_stream(const char *name)
{
    PyObject *stream = PySys_GetObject(name);
    if (stream != NULL && stream != Py_None) {
        PyObject *done = PyObject_CallMethod(stream, "flush", NULL);
        Py_XDECREF(done);
        PyErr_Clear();
    }
}

static void
flush_everything(void)
{
    flush_stream("stdout");
    flush_stream("stderr");
    fflush(stdout);
    fflush(stderr);
}

/* Write each page that is this child's own already, so that the write
 * protection that the clone of a witness leaves behind costs the task no
 * fault. */
static void
touch_own_pages(const struct fork_control *control)
{
    for (uint32_t i = 0; i < control->touch_count; i++) {
        atomic_fetch_or((_Atomic unsigned char *)(uintptr_t)control->touch[i],
                        0);
    }
}

static void
send_result(struct fork_child *kid, PyObject *payload)
{
    char *bytes;
    Py_ssize_t length;
    if (PyBytes_AsStringAndSize(payload, &bytes, &length) == 0) {
        uint64_t n = (uint64_t)length;
        if (cl_line_send(&kid->line, &n, sizeof n) == 0) {
            cl_line_send(&kid->line, bytes, (size_t)length);
        }
    }
}

void
fork_child_live(struct fork_run *run, struct fork_child *kid)
{
    struct fork_control *control = kid->control;
    char word = 0;
    if (cl_die_with(run->parent) < 0) {
        _exit(1);
    }
    for (size_t i = 0; i < run->n; i++) {
        if (&run->kids[i] == kid) {
            cl_line_close_parent_side(&run->kids[i].line);
        } else {
            cl_line_close(&run->kids[i].line);
            if (run->kids[i].process.pidfd >= 0) {
                close(run->kids[i].process.pidfd);
            }
        }
        if (run->kids[i].fork_witness.pidfd >= 0) {
            close(run->kids[i].fork_witness.pidfd);
        }
    }
    control->self = getpid();
    PyOS_AfterFork_Child();
    if (kid->recorder != NULL) {
        control->recorder_errno = -cl_recorder_enable(kid->recorder);
    }
    control->rest_time = cl_now();
    if (cl_line_tell(&kid->line, CL_WORD_REST) < 0 ||
        cl_line_hear(&kid->line, &word) < 0 || word != CL_WORD_WITNESS) {
        _exit(1);
    }
    long witness = cl_witness_clone(true, &control->witness, NULL, NULL);
    control->witness = (pid_t)witness;
    touch_own_pages(control);
    if (cl_line_tell(&kid->line, CL_WORD_WITNESS) < 0 ||
        cl_line_hear(&kid->line, &word) < 0 || word != CL_WORD_GO) {
        _exit(1);
    }
    control->go_time = cl_now();
    PyObject *value = PyObject_Call(run->task, run->args, run->kwargs);
    int64_t done_time = cl_now();
    if (kid->recorder != NULL) {
        cl_recorder_disable(kid->recorder); /* not in a fork of this child */
    }
    if (getpid() != control->self) {
        /* The task forked, and this is the copy that came back. */
        PyErr_Clear();
        flush_everything();
        _exit(0);
    }
    control->done_time = done_time;
    if (!cl_line_is_intact(&kid->line)) {
        control->line_was_lost = 1;
        _exit(1);
    }
    if (cl_line_tell(&kid->line, CL_WORD_DONE) < 0 ||
        cl_line_hear(&kid->line, &word) < 0) {
        _exit(1);
    }
    PyObject *outcome = value != NULL ? value : take_exception();
    PyObject *payload = PyObject_CallFunction(
        run->encode, "OO", value != NULL ? Py_True : Py_False, outcome);
    if (payload == NULL) {
        PyErr_WriteUnraisable(run->encode);
    }
    flush_everything();
    if (payload != NULL) {
        send_result(kid, payload);
    }
    _exit(payload != NULL ? 0 : 1);
}
