/* What the parent of a measured fork says to its children, and hears from them
 * in time. See py_fork.h. */
#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "py_fork.h"

void
fork_set_deadline(struct fork_run *run)
{
    run->deadline = run->timeout < 0
                        ? INT64_MAX
                        : cl_now() + (int64_t)(run->timeout * 1e9);
}

static bool
is_late(const struct fork_run *run)
{
    return cl_now() >= run->deadline;
}

/* A signal that comes right before poll() does not end it, or goes to another
 * thread: so poll() ends by itself, and handlers are asked after this long. */
#define SIGNAL_LATENCY 50 /* milliseconds */

static int
next_wait(const struct fork_run *run)
{
    int64_t left = (run->deadline - cl_now()) / 1000000 + 1;
    return left < 0 ? 0 : left < SIGNAL_LATENCY ? (int)left : SIGNAL_LATENCY;
}

int
fork_wait_ready(const struct fork_run *run, struct pollfd *ready, size_t n)
{
    for (;;) {
        int got, saved;
        int wait = next_wait(run);
        Py_BEGIN_ALLOW_THREADS
        got = poll(ready, (nfds_t)n, wait);
        saved = errno;
        Py_END_ALLOW_THREADS
        if (got > 0) {
            return 1;
        }
        if (got < 0 && saved != EINTR) {
            errno = saved;
            PyErr_SetFromErrno(PyExc_OSError);
            return -1;
        }
        if (PyErr_CheckSignals() < 0) {
            return -1;
        }
        if (got == 0 && is_late(run)) {
            return 0;
        }
    }
}

/* One byte from a kid that poll says is ready, or its failure. */
static void
hear_kid(struct fork_child *kid, short line, short ended)
{
    if (line & (POLLIN | POLLHUP)) {
        if (read(kid->line.to_parent[0], &kid->heard, 1) != 1) {
            kid->heard = 0;
            kid->line_is_closed = true;
        }
    } else if (ended & POLLIN) {
        fork_fail(kid, FAILED_BY_ENDING);
    }
}

int
fork_await_word(struct fork_run *run, char word, struct pollfd *ready)
{
    for (;;) {
        size_t n = 0;
        for (size_t i = 0; i < run->n; i++) {
            struct fork_child *kid = &run->kids[i];
            if (kid->heard != word) {
                int line = kid->line_is_closed ? -1 : kid->line.to_parent[0];
                ready[n++] = (struct pollfd){line, POLLIN, 0};
                ready[n++] = (struct pollfd){kid->process.pidfd, POLLIN, 0};
            }
        }
        if (n == 0) {
            return 0;
        }
        int got = fork_wait_ready(run, ready, n);
        if (got < 0) {
            return -1;
        }
        size_t at = 0;
        for (size_t i = 0; i < run->n; i++) {
            struct fork_child *kid = &run->kids[i];
            if (kid->heard == word) {
                continue;
            }
            if (got == 0) {
                fork_fail(kid, FAILED_BY_TIMEOUT);
                return 1;
            }
            hear_kid(kid, ready[at].revents, ready[at + 1].revents);
            at += 2;
            if (kid->failure != NO_FAILURE) {
                return 1;
            }
        }
    }
}

void
fork_tell_all(struct fork_run *run, char word)
{
    for (size_t i = 0; i < run->n; i++) {
        ssize_t sent;
        do {
            sent = write(run->kids[i].line.to_child[1], &word, 1);
        } while (sent < 0 && errno == EINTR);
    }
}

/* Exactly `n` bytes. 0, 1 where the kid failed, -1 with an exception. */
static int
read_exactly(struct fork_run *run, struct fork_child *kid, char *to,
             uint64_t n)
{
    while (n > 0) {
        struct pollfd ready[2] = {
            {kid->line.to_parent[0], POLLIN, 0},
            {kid->process.pidfd, POLLIN, 0},
        };
        int got = fork_wait_ready(run, ready, 2);
        if (got < 0) {
            return -1;
        }
        if (got == 0) {
            fork_fail(kid, FAILED_BY_TIMEOUT);
            return 1;
        }
        if (!(ready[0].revents & (POLLIN | POLLHUP))) {
            /* It ended, perhaps after it had written: poll() looks at one
             * after the other. */
            poll(ready, 1, 0);
        }
        ssize_t size = -1;
        if (ready[0].revents & (POLLIN | POLLHUP)) {
            size_t want = n > (1u << 20) ? 1u << 20 : (size_t)n;
            size = read(kid->line.to_parent[0], to, want);
        }
        if (size <= 0) {
            fork_fail(kid, FAILED_BY_ENDING);
            return 1;
        }
        to += size;
        n -= (uint64_t)size;
    }
    return 0;
}

int
fork_receive_result(struct fork_run *run, struct fork_child *kid)
{
    uint64_t length = 0;
    int err = read_exactly(run, kid, (char *)&length, sizeof length);
    if (err != 0) {
        return err;
    }
    if (length > PY_SSIZE_T_MAX / 2) {
        PyErr_NoMemory();
        return -1;
    }
    kid->payload = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)length);
    if (kid->payload == NULL) {
        return -1;
    }
    err = read_exactly(run, kid, PyBytes_AS_STRING(kid->payload), length);
    if (err != 0) {
        Py_CLEAR(kid->payload);
    }
    return err;
}
