/* Every probe, under sanitizers: it answers, and leaves nothing behind. */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "check.h"
#include "cl_host.h"

static int
open_files(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (readdir(dir) != NULL) {
        count++;
    }
    closedir(dir);
    return count;
}

int
main(void)
{
    struct sigaction before, after;
    sigset_t blocked, blocked_after;
    int files = open_files();
    sigaction(SIGSEGV, NULL, &before);
    sigprocmask(SIG_BLOCK, NULL, &blocked);
    for (int which = 0; which < CL_NPROBES; which++) {
        struct cl_finding f = {0};
        CHECK(cl_probe((enum cl_probe_id)which, 5000, &f) == 0);
        CHECK(f.finished);
        CHECK(f.signal == 0);
        CHECK(!f.timed_out);
        CHECK(f.step != NULL && strlen(f.step) > 3);
        CHECK(f.answer == CL_YES || f.err != 0 || strcmp(f.step, "start"));
    }
    sigaction(SIGSEGV, NULL, &after);
    sigprocmask(SIG_BLOCK, NULL, &blocked_after);
    CHECK(before.sa_sigaction == after.sa_sigaction);
    for (int number = 1; number < 32; number++) {
        CHECK(sigismember(&blocked, number) ==
              sigismember(&blocked_after, number));
    }
    CHECK(open_files() == files);
    CHECK(waitpid(-1, NULL, __WALL) < 0 && errno == ECHILD);
    return check_failures();
}
