/* A witness answers a question whenever it comes. */
#include "check.h"

#include <linux/futex.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cl_child.h"
#include "cl_proc.h"
#include "cl_stat.h"

static bool
is_never(const void *at)
{
    (void)at;
    return false;
}

static void
tell(struct cl_question *question, uint32_t state)
{
    question->state = state;
    syscall(SYS_futex, &question->state, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static bool
is_answered(const struct cl_question *question)
{
    static const struct timespec a_while = {.tv_nsec = 1000000};
    for (int i = 0; i < 20000 && question->state != 2; i++) {
        nanosleep(&a_while, NULL);
    }
    return question->state == 2;
}

static bool
sleeps(pid_t pid)
{
    char text[1024];
    struct cl_stat stat;
    ssize_t len = cl_proc_read_small(pid, "stat", text, sizeof text);
    return len > 0 && cl_stat_parse(text, (size_t)len, &stat) == 0 &&
           stat.state == 'S';
}

/* Whether it stops; it does not if it goes to sleep. */
static bool
stops(pid_t pid)
{
    int status;
    pid_t got;
    bool asleep = false;
    for (;;) {
        got = waitpid(pid, &status, __WALL | WNOHANG);
        if (got != 0 || asleep) {
            return got == pid && WIFSTOPPED(status);
        }
        asleep = sleeps(pid);
    }
}

/* Ask a witness that has gone so many instructions since its last answer.
 * false where it waits again by then, or nobody may stop it. */
static bool
ask_after(int steps, struct cl_question *question)
{
    struct cl_process witness;
    question->n = 0;
    question->state = 0;
    long pid = cl_witness_clone(false, NULL, question, is_never);
    CHECK(pid > 0);
    CHECK(cl_process_watch(&witness, (pid_t)pid) == 0);
    while (!sleeps(witness.pid) && !cl_process_has_ended(&witness)) {
    }
    bool stopped = ptrace(PTRACE_ATTACH, witness.pid, NULL, NULL) == 0;
    if (!stopped) {
        puts("not stepped through: this process may not trace a child");
    } else {
        int status;
        stopped = waitpid(witness.pid, &status, __WALL) == witness.pid;
        tell(question, 2);
        for (int i = 0; i < steps && stopped; i++) {
            stopped = ptrace(PTRACE_SINGLESTEP, witness.pid, NULL, 0) == 0 &&
                      stops(witness.pid);
        }
    }
    if (stopped) {
        tell(question, 1);
        ptrace(PTRACE_DETACH, witness.pid, NULL, 0);
        bool answered = is_answered(question);
        if (!answered) {
            fprintf(stderr, "after %d instructions:\n", steps);
        }
        CHECK(answered);
    }
    cl_process_kill(&witness);
    cl_process_reap(&witness, NULL);
    return stopped && checks_failed == 0;
}

int
main(void)
{
    struct cl_question *question =
        mmap(NULL, sizeof *question, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int steps = 0;
    while (ask_after(steps, question)) {
        steps++;
    }
    printf("%d instructions\n", steps);
    return check_failures();
}
