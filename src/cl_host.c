/* Runs one probe in a process of its own. */
#include "cl_host.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef int probe_function(const struct cl_stage *stage);

static probe_function *const probes[] = {
#define X(id, name) cl_probe_##id,
    CL_PROBES(X)
#undef X
};

pid_t
cl_twin(void)
{
    pid_t maker = getpid();
    /* Not fork(3): the at-fork handlers and malloc's locks are the caller's.
     * Exit signal 0: no SIGCHLD for the caller's handler to see, and no other
     * thread's wait() can take the status. */
    long pid = syscall(SYS_clone, 0ul, NULL, NULL, NULL, NULL);
    if (pid < 0) {
        return -errno;
    }
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pid_t parent = getppid();
        /* 0: the caller makes its children in another PID namespace. */
        if (parent != maker && parent != 0) {
            _exit(1);
        }
    }
    return (pid_t)pid;
}

pid_t
cl_twin_asleep(void)
{
    pid_t pid = cl_twin();
    if (pid == 0) {
        for (;;) {
            pause();
        }
    }
    return pid;
}

static int
reap(pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, __WALL) < 0 && errno == EINTR) {
    }
    return status;
}

void
cl_twin_end(pid_t pid)
{
    kill(pid, SIGKILL);
    reap(pid);
}

int
cl_stage_entry(pid_t pid, const void *address, uint64_t *entry)
{
    char path[40];
    if (pid == 0) {
        strcpy(path, "/proc/self/pagemap");
    } else {
        snprintf(path, sizeof path, "/proc/%d/pagemap", (int)pid);
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    off_t at = (off_t)((uintptr_t)address / (size_t)sysconf(_SC_PAGESIZE) * 8);
    ssize_t got = pread(fd, entry, sizeof *entry, at);
    int err = got == (ssize_t)sizeof *entry ? 0 : got < 0 ? -errno : -ENODATA;
    close(fd);
    return err;
}

/* The caller's handlers, Python's among them, must not run here; a signal that
 * a probe provokes must end it or be its answer. */
static void
calm_signals(void)
{
    static const int provoked[] = {SIGSEGV, SIGBUS, SIGTRAP, SIGSYS, SIGILL};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof provoked / sizeof *provoked; i++) {
        signal(provoked[i], SIG_DFL);
        sigaddset(&set, provoked[i]);
    }
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    /* 1, not 0: a core_pattern that pipes ignores 0 and heeds 1. */
    struct rlimit core = {1, 1};
    setrlimit(RLIMIT_CORE, &core);
}

static void
perform(enum cl_probe_id which, const struct cl_stage *stage, int done)
{
    calm_signals();
    int answer = probes[which](stage);
    if (answer < 0) {
        stage->finding->answer = CL_NO;
        stage->finding->err = -answer;
    } else {
        stage->finding->answer = answer;
    }
    stage->finding->finished = 1;
    /* A byte, not only the end of file: a fork in another thread of the caller
     * may have got a copy of this end of the pipe. */
    ssize_t ignored = write(done, "", 1);
    (void)ignored;
    _exit(0);
}

static int64_t
now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Wait until `fd` can be read or has ended. Whether the time ran out. */
static int
wait_readable(int fd, int timeout_ms)
{
    int64_t deadline = now_ms() + timeout_ms;
    struct pollfd waited = {fd, POLLIN, 0};
    for (;;) {
        int64_t left = deadline - now_ms();
        int ready = poll(&waited, 1, left > 0 ? (int)left : 0);
        if (ready >= 0 || errno != EINTR) {
            return ready == 0;
        }
    }
}

int
cl_probe(enum cl_probe_id which, int timeout_ms, struct cl_finding *out)
{
    size_t page_size = (size_t)sysconf(_SC_PAGESIZE);
    size_t pages_size = CL_STAGE_PAGES * page_size;
    struct cl_finding *finding = MAP_FAILED;
    unsigned char *pages = MAP_FAILED;
    int done[2] = {-1, -1};
    int err = 0;
    sigset_t all, before;

    finding = mmap(NULL, sizeof *finding, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pages = mmap(NULL, pages_size, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (finding == MAP_FAILED || pages == MAP_FAILED ||
        pipe2(done, O_CLOEXEC) < 0) {
        err = -errno;
        goto out;
    }
    memset(pages, 1, pages_size);
    finding->step = "start";

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t pid = cl_twin();
    if (pid == 0) {
        struct cl_stage stage = {finding, pages, page_size};
        perform(which, &stage, done[1]);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (pid < 0) {
        err = pid;
        goto out;
    }
    close(done[1]);
    done[1] = -1;
    int late = wait_readable(done[0], timeout_ms);
    if (late) {
        kill(pid, SIGKILL);
    }
    int status = reap(pid);
    *out = *finding;
    if (!out->finished) {
        out->answer = CL_NO;
        out->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
        out->timed_out = late && out->signal == SIGKILL;
    }

out:
    for (int i = 0; i < 2; i++) {
        if (done[i] >= 0) {
            close(done[i]);
        }
    }
    if (pages != MAP_FAILED) {
        munmap(pages, pages_size);
    }
    if (finding != MAP_FAILED) {
        munmap(finding, sizeof *finding);
    }
    return err;
}
