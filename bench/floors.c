/* The floors: the same work by bare system calls. Times are in seconds; a
 * negative one is -errno. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double
clock_seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double
now(void)
{
    return clock_seconds(CLOCK_MONOTONIC);
}

/* Seconds of this thread's CPU for one open, read to the end, and close of
 * /proc/PID/NAME. */
double
floor_read_file(int pid, const char *name, int loops)
{
    char path[64], text[4096];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    double start = clock_seconds(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 0; i < loops; i++) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0) {
            return -errno;
        }
        while (read(fd, text, sizeof text) > 0) {
        }
        close(fd);
    }
    return (clock_seconds(CLOCK_THREAD_CPUTIME_ID) - start) / loops;
}

typedef int visit_mapping(int fd, uint64_t start, uint64_t end, void *buffer);

#define BUFFER_SIZE (1 << 20)

/* Seconds to give every private mapping of PID to
 * `visit`, with /proc/PID/NAME open; only anonymous ones if `anonymous`. */
static double
visit_private(int pid, const char *name, int anonymous, visit_mapping *visit)
{
    char path[64], line[8192], perms[8], rest[8];
    uint64_t start, end;
    double seconds = -ENOMEM;
    void *buffer = mmap(NULL, BUFFER_SIZE, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (buffer == MAP_FAILED) {
        return seconds;
    }
    double began = now();
    snprintf(path, sizeof path, "/proc/%d/maps", pid);
    FILE *maps = fopen(path, "re");
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (maps == NULL || fd < 0) {
        seconds = -errno;
        goto out;
    }
    while (fgets(line, sizeof line, maps) != NULL) {
        int fields = sscanf(line, "%lx-%lx %7s %*s %*s %*s %7s", &start, &end,
                            perms, rest);
        if (fields >= 3 && perms[3] == 'p' && start < UINT64_C(1) << 63 &&
            (!anonymous || (perms[1] == 'w' && fields == 3))) {
            visit(fd, start, end, buffer);
        }
    }
    seconds = now() - began;

out:
    if (maps != NULL) {
        fclose(maps);
    }
    if (fd >= 0) {
        close(fd);
    }
    munmap(buffer, BUFFER_SIZE);
    return seconds;
}

static int
sweep_entries(int fd, uint64_t start, uint64_t end, void *buffer)
{
    uint64_t page_size = (uint64_t)sysconf(_SC_PAGESIZE);
    for (uint64_t page = start / page_size; page < end / page_size;) {
        uint64_t n = end / page_size - page;
        n = n < BUFFER_SIZE / 8 ? n : BUFFER_SIZE / 8;
        ssize_t got = pread(fd, buffer, n * 8, (off_t)(page * 8));
        if (got <= 0) {
            return -1;
        }
        page += (uint64_t)got / 8;
    }
    return 0;
}

static int
sweep_memory(int fd, uint64_t start, uint64_t end, void *buffer)
{
    while (start < end) {
        size_t n = end - start < BUFFER_SIZE ? end - start : BUFFER_SIZE;
        ssize_t got = pread(fd, buffer, n, (off_t)start);
        if (got <= 0) {
            return -1;
        }
        start += (uint64_t)got;
    }
    return 0;
}

/* Seconds for one reading of the page map of all private mappings of PID. */
double
floor_page_map(int pid)
{
    return visit_private(pid, "pagemap", 0, sweep_entries);
}

/* Seconds for one reading of all unnamed anonymous memory of PID. */
double
floor_memory(int pid)
{
    return visit_private(pid, "mem", 1, sweep_memory);
}

/* Seconds for two forks of this process, of which one child is the other's
 * witness, `maps` readings of the page map and `rollups` of smaps_rollup of
 * the first, and the end of both. */
double
floor_measure(int maps, int rollups)
{
    double start = now();
    pid_t kids[2];
    for (int i = 0; i < 2; i++) {
        kids[i] = fork();
        if (kids[i] == 0) {
            for (;;) {
                pause();
            }
        }
        if (kids[i] < 0) {
            return -errno;
        }
    }
    double err = 0;
    for (int i = 0; i < maps && err >= 0; i++) {
        err = floor_page_map(kids[0]);
    }
    for (int i = 0; i < rollups && err >= 0; i++) {
        err = floor_read_file(kids[0], "smaps_rollup", 1);
    }
    for (int i = 0; i < 2; i++) {
        kill(kids[i], SIGKILL);
        waitpid(kids[i], NULL, 0);
    }
    return err < 0 ? err : now() - start;
}

/* Seconds of this thread's CPU for one write to each of `pages` pages: a copy,
 * where this process has inherited them. */
double
floor_write_pages(volatile char *range, long pages)
{
    long size = sysconf(_SC_PAGESIZE);
    double start = clock_seconds(CLOCK_THREAD_CPUTIME_ID);
    for (long i = 0; i < pages; i++) {
        range[i * size] = 2;
    }
    return (clock_seconds(CLOCK_THREAD_CPUTIME_ID) - start) / (double)pages;
}
