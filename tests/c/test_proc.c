/* /proc files of real processes, read two, and memory and page maps. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "cl_maps.h"
#include "cl_pagemap.h"
#include "cl_proc.h"
#include "cl_smaps.h"

static void
buffer_grows_and_goes(void)
{
    struct cl_buf buf = {0};
    CHECK(cl_buf_reserve(&buf, 1) == 0 && buf.cap >= 1);
    buf.data[0] = 'x';
    size_t larger = buf.cap * 5;
    CHECK(cl_buf_reserve(&buf, larger) == 0 && buf.cap >= larger);
    CHECK(buf.data[0] == 'x' && buf.data[buf.cap - 1] == 0);
    CHECK(cl_buf_reserve(&buf, SIZE_MAX) == -ENOMEM);
    cl_buf_release(&buf);
    CHECK(buf.data == NULL && buf.cap == 0);
    cl_buf_release(&buf);
}

static void
this_process(void)
{
    struct cl_buf buf = {0};
    CHECK(cl_proc_state(0) == CL_PROC_ALIVE);
    CHECK(cl_proc_read(0, "maps", &buf) == 0);
    int stacks = 0;
    struct cl_map map;
    const char *cursor = buf.data;
    int got;
    while ((got = cl_maps_next(&cursor, buf.data + buf.len, &map)) == 1) {
        stacks += cl_map_is(&map, "[stack]");
    }
    CHECK(got == 0 && stacks == 1);

    CHECK(cl_proc_read(getpid(), "smaps", &buf) == 0);
    struct cl_smaps record;
    cursor = buf.data;
    while ((got = cl_smaps_next(&cursor, buf.data + buf.len, &record)) == 1) {
    }
    CHECK(got == 0);
    CHECK(cl_proc_read(0, "no_such_file", &buf) == -ENOENT);
    cl_buf_release(&buf);

    char small[16];
    CHECK(cl_proc_read_small(0, "status", small, sizeof small) == -E2BIG);
    CHECK(cl_proc_read_small(0, "comm", small, sizeof small) > 0);
}

/* Memory read through another process's files; the child waits for a signal.
 */
static void
a_child(void)
{
    size_t page = cl_page_size();
    char *memory = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    memory[page] = 'y';
    munmap(memory + 3 * page, page);
    pid_t child = fork();
    if (child == 0) {
        for (;;) {
            pause();
        }
    }
    uint64_t start = (uint64_t)(uintptr_t)memory;
    int fd = cl_proc_open(child, "mem", O_RDONLY);
    CHECK(fd >= 0);
    char byte = 0;
    CHECK(cl_mem_read(fd, start + page, &byte, 1) == 0 && byte == 'y');
    int map = cl_proc_open(child, "pagemap", O_RDONLY);
    CHECK(map >= 0);
    uint64_t entries[3];
    CHECK(cl_pagemap_read(map, start, 3, entries) == 0);
    CHECK(!(entries[0] & CL_PM_PRESENT));
    CHECK((entries[1] & CL_PM_PRESENT) && !(entries[1] & CL_PM_EXCLUSIVE));
    CHECK(cl_pagemap_read(map, 1ull << 62, 1, entries) == -EFAULT);
    struct cl_page_run runs[2];
    uint64_t resume = 0;
    long found = cl_pagemap_scan(map, start, start + 3 * page, 0,
                                 CL_SCAN_PRESENT, runs, 2, &resume);
    CHECK(found == 1 || found == -ENOTTY);
    if (found == 1) {
        CHECK(runs[0].start == start + page && resume == start + 3 * page);
    }

    /* Last, since reading a page that was never touched maps it. */
    char two[2];
    CHECK(cl_mem_read(fd, start + 3 * page - 1, two, 2) == -EFAULT);
    CHECK(cl_mem_read(fd, UINT64_MAX - 8, two, 1) == -EFAULT);

    kill(child, SIGKILL);
    waitid(P_PID, (id_t)child, NULL, WEXITED | WNOWAIT);
    struct cl_buf buf = {0};
    CHECK(cl_proc_state(child) == CL_PROC_ZOMBIE);
    CHECK(cl_proc_read(child, "smaps", &buf) == 0 && buf.len == 0);
    CHECK(cl_mem_read(fd, start + page, &byte, 1) == -ESRCH);
    CHECK(cl_pagemap_read(map, start, 3, entries) == -ESRCH);
    if (found == 1) {
        CHECK(cl_pagemap_scan(map, start, start + 3 * page, 0, CL_SCAN_PRESENT,
                              runs, 2, &resume) == -ESRCH);
    }
    waitpid(child, NULL, 0);
    CHECK(cl_proc_state(child) == CL_PROC_GONE);
    CHECK(cl_proc_read(child, "smaps", &buf) == -ENOENT);
    CHECK(cl_proc_open(child, "mem", O_RDONLY) == -ENOENT);
    cl_buf_release(&buf);
    close(fd);
    close(map);
    munmap(memory, 3 * page);
}

int
main(void)
{
    buffer_grows_and_goes();
    this_process();
    a_child();
    return check_failures();
}
