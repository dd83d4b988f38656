/* What the parts of a measured fork share: the parent's state machine
 * (py_fork.c) and its words with the children (py_fork_line.c), the child's
 * life (py_fork_child.c), the result (py_fork_result.c). */
#ifndef COWLAB_PY_FORK_H
#define COWLAB_PY_FORK_H

#include "py_module.h"

#include <poll.h>

#include "cl_child.h"
#include "cl_moments.h"
#include "py_layout.h"
#include "py_where.h"

/* Pages; the list is 512 KiB of address space. */
#define FORK_TOUCH_MAX 65536u

/* What parent and child both see; mapped before the fork. */
struct fork_control {
    int64_t rest_time, go_time, done_time; /* CLOCK_MONOTONIC, ns */
    pid_t self;
    pid_t witness; /* the second one; 0: not made, < 0: -errno */
    int line_was_lost;
    int recorder_errno; /* why the recorder could not be enabled */
    uint32_t touch_count;
    struct cl_question question; /* to the first witness */
    uint64_t touch[FORK_TOUCH_MAX];
};

enum fork_failure {
    NO_FAILURE,
    FAILED_BY_ENDING, /* it ended; kid->ending says how */
    FAILED_BY_TIMEOUT,
    FAILED_BY_RECORDER,
};

struct fork_child {
    struct cl_process process, fork_witness, rest_witness;
    struct cl_line line;
    struct fork_control *control;
    struct cl_moments moments;
    struct cl_ending ending;
    enum fork_failure failure;
    char heard;
    bool line_is_closed; /* by its end, or by a task that closed everything */
    pid_t pid;           /* kept after the process has been collected */
    int64_t fork_time;
    PyObject *payload;            /* bytes */
    struct cl_recorder *recorder; /* borrowed; NULL: none */
    struct cl_object_layout layout;
    struct cl_evidence evidence;
};

struct fork_run {
    size_t n;
    struct fork_child *kids;
    PyObject *task, *args, *kwargs;
    PyObject *encode; /* encode(ok, object) -> bytes, called in the child */
    pid_t parent;
    struct cl_rollup parent_before, parent_after; /* at rest, and done */
    double timeout;                               /* seconds; < 0: none */
    int64_t deadline;
    const char *moment; /* what the parent waits for, in words */
};

/* A child has failed: it is ended, where it goes on, and collected. */
void fork_fail(struct fork_child *kid, enum fork_failure failure);

/* From now on the children have the run's timeout. */
void fork_set_deadline(struct fork_run *run);

/* Wait for any of `ready`. 1 something is, 0 the time is up, -1 an exception
 * (a signal handler raised). */
int fork_wait_ready(const struct fork_run *run, struct pollfd *ready,
                    size_t n);

/* Until every child has said `word`. `ready` has room for two entries a child.
 * 0, 1 where one of them failed, -1 with an exception. */
int fork_await_word(struct fork_run *run, char word, struct pollfd *ready);

/* Send a word to every child. One that has gone is found by the next wait. */
void fork_tell_all(struct fork_run *run, char word);

/* A child's pickled outcome, its `payload`. 0, 1 where the child failed, -1
 * with an exception. */
int fork_receive_result(struct fork_run *run, struct fork_child *kid);

/* In the child, from the moment after the fork to _exit. */
_Noreturn void fork_child_live(struct fork_run *run, struct fork_child *kid);

/* Give each child its recorder, out of a tuple of capsules that may be empty.
 * 0, or -1 with an exception. */
int fork_hand_out(struct fork_run *run, PyObject *recorders);

/* What explains a recorded child's pages: cl_evidence_take while its witness
 * lives, cl_evidence_copied after the last reading. Nothing for a child
 * without a recorder. 0 or -errno. */
int fork_evidence_take(struct fork_child *kid);
int fork_evidence_copied(struct fork_child *kid);

/* The evidence as Python has it, or None. NULL with an exception. */
PyObject *fork_evidence(const struct fork_child *kid);

/* A list of dicts: of all children where `outcome` is 0, else of those that
 * failed. NULL with an exception. */
PyObject *fork_result(const struct fork_run *run, int outcome);

#endif
