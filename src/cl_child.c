#include "cl_child.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif

int64_t
cl_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* --- processes ---------------------------------------------------------- */

int
cl_process_watch(struct cl_process *process, pid_t pid)
{
    process->pid = pid;
    process->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    return process->pidfd < 0 ? -errno : 0;
}

void
cl_process_kill(const struct cl_process *process)
{
    if (process->pidfd >= 0) {
        syscall(SYS_pidfd_send_signal, process->pidfd, SIGKILL, NULL, 0);
    } else if (process->pid > 0) {
        kill(process->pid, SIGKILL);
    }
}

bool
cl_process_has_ended(const struct cl_process *process)
{
    struct pollfd ready = {.fd = process->pidfd, .events = POLLIN};
    return poll(&ready, 1, 0) == 1 && (ready.revents & POLLIN);
}

static void
decode_status(int status, struct cl_ending *ending)
{
    ending->is_unknown = false;
    ending->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    ending->status = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

/* PIDFD_GET_INFO (Linux 6.15) keeps the exit status of a process that another
 * part of the program has collected. */
static void
ask_pidfd(int pidfd, struct cl_ending *ending)
{
    struct {
        uint64_t mask, cgroup;
        uint32_t pid, tgid, ppid, ruid, rgid, euid, egid, suid, sgid;
        uint32_t fsuid, fsgid;
        int32_t exit_code;
    } info = {.mask = 1u << 3};
    ending->is_unknown = true;
    ending->signal = ending->status = 0;
    if (pidfd >= 0 && ioctl(pidfd, _IOWR(0xFF, 11, info), &info) == 0 &&
        (info.mask & 1u << 3)) {
        decode_status(info.exit_code, ending);
    }
}

void
cl_process_reap(struct cl_process *process, struct cl_ending *ending)
{
    if (process->pid > 0) {
        struct cl_ending scratch;
        struct cl_ending *out = ending != NULL ? ending : &scratch;
        int status = 0;
        pid_t got;
        do {
            got = waitpid(process->pid, &status, __WALL);
        } while (got < 0 && errno == EINTR);
        if (got == process->pid) {
            decode_status(status, out);
        } else {
            struct pollfd ready = {.fd = process->pidfd, .events = POLLIN};
            while (process->pidfd >= 0 && poll(&ready, 1, -1) < 0 &&
                   errno == EINTR) {
            }
            ask_pidfd(process->pidfd, out);
        }
    }
    if (process->pidfd >= 0) {
        close(process->pidfd);
    }
    *process = CL_NO_PROCESS;
}

/* --- witnesses ---------------------------------------------------------- */

static void
futex_wait(_Atomic uint32_t *state, uint32_t while_it_is,
           const struct timespec *timeout)
{
    syscall(SYS_futex, state, FUTEX_WAIT, while_it_is, timeout, NULL, 0);
}

static void
futex_wake(_Atomic uint32_t *state)
{
    syscall(SYS_futex, state, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void
answer(struct cl_question *question, bool (*test)(const void *at))
{
    for (uint32_t i = 0; i < question->n; i++) {
        /* Each place is a page of its own; most of the time is waiting for it.
         */
        uint32_t ahead = i + 16 < question->n ? i + 16 : i;
        __builtin_prefetch(
            (const void *)(uintptr_t)question->addresses[ahead]);
        if (!test((const void *)(uintptr_t)question->addresses[i])) {
            question->addresses[i] = 0;
        }
    }
    question->state = 2;
    futex_wake(&question->state);
}

/* Never returns. Nothing here touches memory that is not the witness's stack:
 * errno, too, lies in a page of the process under test, and is written only in
 * the witness's own copy. */
static void __attribute__((noreturn))
live_as_witness(pid_t parent, struct cl_question *question,
                bool (*test)(const void *at))
{
    syscall(SYS_close_range, 0u, ~0u, 0u);
    syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    while (syscall(SYS_getppid) == parent) {
        if (question == NULL) {
            syscall(SYS_ppoll, NULL, 0, NULL, NULL, 0);
            continue;
        }
        /* Read once: a question that comes right after this look must end the
         * wait, not begin it. */
        uint32_t state = question->state;
        if (state == 1) {
            answer(question, test);
        } else {
            futex_wait(&question->state, state, NULL);
        }
    }
    for (;;) {
        syscall(SYS_exit_group, 0);
    }
}

long
cl_witness_clone(bool as_sibling, pid_t *pid_at, struct cl_question *question,
                 bool (*test)(const void *at))
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    unsigned long flags = as_sibling ? CLONE_PARENT : 0;
    flags |= pid_at != NULL ? CLONE_PARENT_SETTID : 0;
    pid_t parent = as_sibling ? getppid() : getpid();
    long pid = syscall(SYS_clone, flags, 0, pid_at, 0, 0);
    if (pid == 0) {
        live_as_witness(parent, question, test);
    }
    long result = pid < 0 ? -errno : pid;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return result;
}

int
cl_witness_ask(const struct cl_process *witness, struct cl_question *question)
{
    static const struct timespec a_second = {.tv_sec = 1};
    question->state = 1;
    futex_wake(&question->state);
    while (question->state != 2) {
        if (cl_process_has_ended(witness)) {
            return -ESRCH;
        }
        futex_wait(&question->state, 1, &a_second);
    }
    return 0;
}

int
cl_die_with(pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    return getppid() == parent ? 0 : -ESRCH;
}

/* --- the line ------------------------------------------------------------ */

static void
close_end(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

static uint64_t
inode_of(int fd)
{
    struct stat info;
    return fstat(fd, &info) == 0 ? (uint64_t)info.st_ino : 0;
}

int
cl_line_open(struct cl_line *line)
{
    line->to_child[0] = line->to_child[1] = -1;
    line->to_parent[0] = line->to_parent[1] = -1;
    if (pipe2(line->to_child, O_CLOEXEC) < 0 ||
        pipe2(line->to_parent, O_CLOEXEC) < 0) {
        int err = -errno;
        cl_line_close(line);
        return err;
    }
    line->to_child_inode = inode_of(line->to_child[0]);
    line->to_parent_inode = inode_of(line->to_parent[1]);
    return 0;
}

void
cl_line_close_parent_side(struct cl_line *line)
{
    close_end(&line->to_child[1]);
    close_end(&line->to_parent[0]);
}

void
cl_line_close_child_side(struct cl_line *line)
{
    close_end(&line->to_child[0]);
    close_end(&line->to_parent[1]);
}

void
cl_line_close(struct cl_line *line)
{
    cl_line_close_parent_side(line);
    cl_line_close_child_side(line);
}

bool
cl_line_is_intact(const struct cl_line *line)
{
    return inode_of(line->to_child[0]) == line->to_child_inode &&
           inode_of(line->to_parent[1]) == line->to_parent_inode;
}

int
cl_line_send(const struct cl_line *line, const void *bytes, size_t n)
{
    const char *next = bytes;
    while (n > 0) {
        ssize_t sent = write(line->to_parent[1], next, n);
        if (sent < 0) {
            if (errno == EINTR) {
                continue;
            }
            return -errno;
        }
        next += sent;
        n -= (size_t)sent;
    }
    return 0;
}

int
cl_line_tell(const struct cl_line *line, char word)
{
    return cl_line_send(line, &word, 1);
}

int
cl_line_hear(const struct cl_line *line, char *word)
{
    for (;;) {
        ssize_t got = read(line->to_child[0], word, 1);
        if (got == 1) {
            return 0;
        }
        if (got == 0) {
            return -EPIPE;
        }
        if (errno != EINTR) {
            return -errno;
        }
    }
}
