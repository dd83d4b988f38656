/* A recorder can be let go of while another thread's handler is at work. */
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cl_faults.h"

static _Atomic bool begun;
static _Atomic pid_t writer;
static volatile char *page; /* inherited by the child that is recorded */

static void
wait_a_while(long milliseconds)
{
    struct timespec left = {.tv_nsec = milliseconds * 1000000};
    while (nanosleep(&left, &left) != 0) {
    }
}

static bool
read_slowly(struct cl_code_view *view)
{
    (void)view;
    if (gettid() == atomic_load(&writer)) {
        atomic_store(&begun, true);
        wait_a_while(100);
    }
    return false;
}

static void *
write_once(void *arg)
{
    atomic_store(&writer, gettid());
    *page = 2;
    return arg;
}

/* The child's whole life. */
static void
record_and_release(struct cl_recorder *recorder)
{
    pthread_t thread;
    int err = cl_recorder_enable(recorder);
    if (err != 0) {
        printf("nothing to test: %s\n", strerror(-err));
        return;
    }
    CHECK(pthread_create(&thread, NULL, write_once, NULL) == 0);
    while (!atomic_load(&begun)) {
        wait_a_while(1);
    }
    cl_recorder_release(recorder);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(*page == 2);
}

int
main(void)
{
    struct cl_recorder *recorder;
    page = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *page = 1;
    int err =
        cl_recorder_prepare(&recorder, CL_RECORD_LINES, NULL, read_slowly);
    CHECK(err == 0);
    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        record_and_release(recorder);
        fflush(NULL);
        _exit(check_failures());
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    CHECK(*page == 1);
    cl_recorder_release(recorder);
    return check_failures();
}
