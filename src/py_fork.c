/* The one state machine: fork -> rest -> go -> done -> report -> exit.
 *
 * The parent reads a child only while it is blocked on its line, and writes
 * nothing that the child could see between fork and rest but its own stack. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "py_fork.h"

/* --- the parent: one child ------------------------------------------------
 */

static void
reap_kid(struct fork_child *kid, bool must_die)
{
    cl_line_close(&kid->line);
    if (must_die) {
        cl_process_kill(&kid->process);
    }
    struct cl_process *all[] = {&kid->fork_witness, &kid->rest_witness,
                                &kid->process};
    for (size_t i = 0; i < 2; i++) {
        cl_process_kill(all[i]);
    }
    for (size_t i = 0; i < 3; i++) {
        struct cl_ending ending;
        if (all[i]->pid != 0) {
            cl_process_reap(all[i], &ending);
            if (i == 2 && !must_die) {
                kid->ending = ending;
            }
        }
    }
}

/* Only once it has ended can a child make no more witnesses. */
static void
await_end(const struct cl_process *process)
{
    struct pollfd ended = {process->pidfd, POLLIN, 0};
    while (process->pidfd >= 0 && poll(&ended, 1, -1) < 0 && errno == EINTR) {
    }
}

void
fork_fail(struct fork_child *kid, enum fork_failure failure)
{
    kid->failure = failure;
    if (failure != FAILED_BY_ENDING) {
        cl_process_kill(&kid->process);
        await_end(&kid->process);
    }
    /* A child that made its witness, and died before it was heard of. */
    if (kid->rest_witness.pid == 0 && kid->control->witness > 0) {
        cl_process_watch(&kid->rest_witness, kid->control->witness);
    }
    reap_kid(kid, false);
}

static void
dismiss(struct cl_process *witness)
{
    cl_process_kill(witness);
    cl_process_reap(witness, NULL);
}

/* Everything that is still there goes: killed, collected, unmapped. */
static void
end_run(struct fork_run *run)
{
    for (size_t i = 0; i < run->n; i++) {
        struct fork_child *kid = &run->kids[i];
        if (kid->process.pid != 0) {
            cl_process_kill(&kid->process);
            await_end(&kid->process);
        }
        if (kid->control != NULL && kid->rest_witness.pid == 0 &&
            kid->process.pid != 0 && kid->control->witness > 0) {
            cl_process_watch(&kid->rest_witness, kid->control->witness);
        }
        reap_kid(kid, true);
        cl_moments_release(&kid->moments);
        cl_evidence_release(&kid->evidence);
        Py_CLEAR(kid->payload);
        if (kid->control != NULL) {
            munmap(kid->control, sizeof *kid->control);
        }
    }
    PyMem_Free(run->kids);
    run->kids = NULL;
}

static int
raise_unwatched(int err)
{
    if (err == -ENOSYS || err == -EPERM) {
        cl_raise_named("Unsupported",
                       "cannot watch the child: pidfd_open failed (%s); it "
                       "needs Linux 5.3, and a seccomp filter that allows it",
                       strerror(-err));
    } else {
        errno = -err;
        PyErr_SetFromErrno(PyExc_OSError);
    }
    return -1;
}

/* 0, or -1 with an exception. */
static int
make_kid(struct fork_run *run, struct fork_child *kid)
{
    kid->control = mmap(NULL, sizeof *kid->control, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (kid->control == MAP_FAILED) {
        kid->control = NULL;
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    memset(kid->control, 0, offsetof(struct fork_control, question));
    int err = cl_line_open(&kid->line);
    if (err < 0) {
        errno = -err;
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    PyOS_BeforeFork();
    long witness = cl_witness_clone(false, NULL, &kid->control->question,
                                    cl_is_pool_header);
    kid->fork_time = cl_now();
    pid_t pid = witness < 0 ? -1 : fork();
    int fork_errno = witness < 0 ? (int)-witness : errno;
    if (pid == 0) {
        fork_child_live(run, kid);
    }
    int watched =
        witness > 0 ? cl_process_watch(&kid->fork_witness, (pid_t)witness) : 0;
    if (pid > 0) {
        int also = cl_process_watch(&kid->process, pid);
        watched = watched < 0 ? watched : also;
    }
    PyOS_AfterFork_Parent();
    if (pid < 0) {
        errno = fork_errno;
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    kid->pid = pid;
    cl_line_close_child_side(&kid->line);
    return watched < 0 ? raise_unwatched(watched) : 0;
}

/* --- the parent: all children ---------------------------------------------
 */

static int
read_fork(struct fork_child *kid)
{
    return cl_moments_fork(&kid->moments, &kid->fork_witness,
                           &kid->control->question);
}

static int
read_rest_witnessed(struct fork_child *kid)
{
    return cl_moments_rest_witnessed(&kid->moments, kid->process.pid);
}

static int
read_rest_alone(struct fork_child *kid)
{
    return cl_moments_rest_alone(&kid->moments, kid->process.pid);
}

static int
read_go(struct fork_child *kid)
{
    return cl_moments_go(&kid->moments, kid->process.pid);
}

static int
read_done_witnessed(struct fork_child *kid)
{
    int err = cl_moments_done_witnessed(&kid->moments, kid->process.pid);
    if (err == 0) {
        err = fork_evidence_take(kid);
    }
    return err;
}

static int
read_done_alone(struct fork_child *kid)
{
    int err = cl_moments_done_alone(&kid->moments, kid->process.pid);
    if (err == 0) {
        err = fork_evidence_copied(kid);
    }
    return err;
}

/* Apply a reading to every kid. 0, 1 where a kid has ended meanwhile, -1 with
 * an exception. */
static int
read_all(struct fork_run *run, int (*reading)(struct fork_child *),
         const char *moment)
{
    for (size_t i = 0; i < run->n; i++) {
        struct fork_child *kid = &run->kids[i];
        int err;
        Py_BEGIN_ALLOW_THREADS
        err = reading(kid);
        Py_END_ALLOW_THREADS
        if (err == -ESRCH && cl_process_has_ended(&kid->process)) {
            fork_fail(kid, FAILED_BY_ENDING);
            return 1;
        }
        if (err == -EACCES && prctl(PR_GET_DUMPABLE) != 1) {
            cl_raise_named("Unsupported",
                           "cannot read the child: this process changed its "
                           "user, and so is not dumpable; have CAP_SYS_PTRACE,"
                           " or start it as that user");
            return -1;
        }
        if (err < 0) {
            char operation[64], path[64];
            snprintf(operation, sizeof operation, "read the child at %s",
                     moment);
            snprintf(path, sizeof path, "/proc/%ld", (long)kid->pid);
            cl_raise(-err, operation, path);
            return -1;
        }
    }
    return 0;
}

static void
list_touches(struct fork_run *run)
{
    for (size_t i = 0; i < run->n; i++) {
        struct fork_child *kid = &run->kids[i];
        size_t n = cl_moments_written(&kid->moments, kid->control->touch,
                                      FORK_TOUCH_MAX);
        kid->control->touch_count =
            (uint32_t)(n < FORK_TOUCH_MAX ? n : FORK_TOUCH_MAX);
    }
}

static int
watch_witnesses(struct fork_run *run)
{
    for (size_t i = 0; i < run->n; i++) {
        struct fork_child *kid = &run->kids[i];
        pid_t witness = kid->control->witness;
        int err = witness < 0 ? witness
                              : cl_process_watch(&kid->rest_witness, witness);
        if (err < 0) {
            return raise_unwatched(err);
        }
    }
    return 0;
}

static void
dismiss_all(struct fork_run *run, bool second)
{
    for (size_t i = 0; i < run->n; i++) {
        struct fork_child *kid = &run->kids[i];
        dismiss(second ? &kid->rest_witness : &kid->fork_witness);
    }
}

/* This process, without what the readings of its children take. 0, or -1 with
 * an exception. */
static int
read_parent(const struct fork_run *run, struct cl_rollup *rollup)
{
    int err = cl_rollup_read(run->parent, rollup);
    if (err < 0) {
        cl_raise(-err, "read", "/proc/self/smaps_rollup");
        return -1;
    }
    uint64_t size = 0;
    for (size_t i = 0; i < run->n; i++) {
        size += cl_moments_size(&run->kids[i].moments);
    }
    uint64_t *figures[] = {&rollup->rss, &rollup->pss, &rollup->private_dirty};
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        *figures[i] -= size < *figures[i] ? size : *figures[i];
    }
    return 0;
}

static int
read_moment_of_rest(struct fork_run *run)
{
    int err;
    if ((err = read_all(run, read_fork, "the fork")) != 0 ||
        (err = read_all(run, read_rest_witnessed, "rest")) != 0) {
        return err;
    }
    dismiss_all(run, false);
    err = read_all(run, read_rest_alone, "rest");
    return err != 0 ? err : read_parent(run, &run->parent_before);
}

static int
read_moment_done(struct fork_run *run)
{
    int err = read_all(run, read_done_witnessed, "its task's end");
    if (err != 0) {
        return err;
    }
    dismiss_all(run, true);
    err = read_all(run, read_done_alone, "its task's end");
    return err != 0 ? err : read_parent(run, &run->parent_after);
}

static int
collect(struct fork_run *run, struct fork_child *kid)
{
    int err = fork_receive_result(run, kid);
    if (err != 0) {
        return err;
    }
    struct pollfd ended = {kid->process.pidfd, POLLIN, 0};
    if (fork_wait_ready(run, &ended, 1) < 0) {
        return -1;
    }
    cl_process_kill(&kid->process); /* nothing more is to be heard from it */
    cl_process_reap(&kid->process, &kid->ending);
    return 0;
}

/* 0, 1 where a kid could not enable its recorder. */
static int
check_recorders(struct fork_run *run)
{
    for (size_t i = 0; i < run->n; i++) {
        if (run->kids[i].control->recorder_errno != 0) {
            fork_fail(&run->kids[i], FAILED_BY_RECORDER);
            return 1;
        }
    }
    return 0;
}

/* From fork to exit. 0, 1 where a kid failed, -1 with an exception. */
static int
go_through(struct fork_run *run, struct pollfd *ready)
{
    int err;
    fork_set_deadline(run);
    run->moment = "it was at rest";
    if ((err = fork_await_word(run, CL_WORD_REST, ready)) != 0 ||
        (err = check_recorders(run)) != 0 ||
        (err = read_moment_of_rest(run)) != 0) {
        return err;
    }
    list_touches(run);
    fork_tell_all(run, CL_WORD_WITNESS);
    if ((err = fork_await_word(run, CL_WORD_WITNESS, ready)) != 0 ||
        (err = watch_witnesses(run)) != 0 ||
        (err = read_all(run, read_go, "rest")) != 0) {
        return err;
    }
    fork_set_deadline(run);
    run->moment = "its task was done";
    fork_tell_all(run, CL_WORD_GO);
    if ((err = fork_await_word(run, CL_WORD_DONE, ready)) != 0 ||
        (err = read_moment_done(run)) != 0) {
        return err;
    }
    fork_set_deadline(run);
    run->moment = "its result had arrived";
    fork_tell_all(run, CL_WORD_REPORT);
    for (size_t i = 0; i < run->n && err == 0; i++) {
        err = collect(run, &run->kids[i]);
    }
    return err;
}

PyDoc_STRVAR(
    measure_doc,
    "measure(task, args, kwargs, children, timeout, encode, recorders)\n"
    "--\n\n"
    "Fork children, run the task in each, read every page. A list of dicts:\n"
    "one per child, or only those that failed (they have the key failure).");

static PyObject *
measure(PyObject *module, PyObject *args)
{
    struct fork_run run = {.parent = getpid()};
    PyObject *recorders;
    Py_ssize_t n;
    if (!PyArg_ParseTuple(args, "OO!O!ndOO!:measure", &run.task, &PyTuple_Type,
                          &run.args, &PyDict_Type, &run.kwargs, &n,
                          &run.timeout, &run.encode, &PyTuple_Type,
                          &recorders)) {
        return NULL;
    }
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        return cl_raise_named("Unsupported",
                              "cannot fork here: this is a subinterpreter; "
                              "call measure() in the main interpreter");
    }
    if (PySys_Audit("os.fork", NULL) < 0) {
        return NULL;
    }
    PyObject *result = NULL;
    run.n = (size_t)n;
    struct pollfd *ready = PyMem_Calloc(run.n * 2, sizeof *ready);
    run.kids = PyMem_Calloc(run.n, sizeof *run.kids);
    if (ready == NULL || run.kids == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    for (size_t i = 0; i < run.n; i++) {
        struct fork_child *kid = &run.kids[i];
        kid->process = kid->fork_witness = kid->rest_witness = CL_NO_PROCESS;
        kid->line.to_child[0] = kid->line.to_child[1] = -1;
        kid->line.to_parent[0] = kid->line.to_parent[1] = -1;
    }
    /* A collection that is due by now (3.12: it waits for a look at signals)
     * would be run by a child, and counted as its task's doing, and by this
     * process while it waits. Nothing is allocated from here on. */
    if (fork_hand_out(&run, recorders) < 0 || PyErr_CheckSignals() < 0) {
        goto done;
    }
    for (size_t i = 0; i < run.n; i++) {
        if (make_kid(&run, &run.kids[i]) < 0) {
            goto done;
        }
    }
    int outcome = go_through(&run, ready);
    if (outcome >= 0) {
        result = fork_result(&run, outcome);
    }
done:
    if (run.kids != NULL) {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        end_run(&run);
        PyErr_Restore(type, value, traceback);
    }
    PyMem_Free(ready);
    return result;
}

PyMethodDef cl_fork_methods[] = {
    {"measure", measure, METH_VARARGS, measure_doc},
    {NULL, NULL, 0, NULL},
};
