/* /proc/PID/pagemap. */
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cl_pagemap.h"
#include "cl_proc.h"

/* linux/fs.h has these since 6.7; building must not need it. */
struct scan_arg {
    uint64_t size;
    uint64_t flags;
    uint64_t start;
    uint64_t end;
    uint64_t walk_end;
    uint64_t vec;
    uint64_t vec_len;
    uint64_t max_pages;
    uint64_t category_inverted;
    uint64_t category_mask;
    uint64_t category_anyof_mask;
    uint64_t return_mask;
};

#define SCAN _IOWR('f', 16, struct scan_arg)

size_t
cl_page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* Address 0 always has an entry while there is memory behind the file. */
static int
is_alive(int fd)
{
    uint64_t entry;
    ssize_t got;
    do {
        got = pread(fd, &entry, sizeof entry, 0);
    } while (got < 0 && errno == EINTR);
    return got == sizeof entry;
}

int
cl_pagemap_read(int fd, uint64_t start, size_t npages, uint64_t *entries)
{
    char *to = (char *)entries;
    size_t left = npages * sizeof *entries;
    off_t offset = (off_t)(start / cl_page_size() * sizeof *entries);
    while (left > 0) {
        ssize_t got = pread(fd, to, left, offset);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return -errno;
        }
        if (got == 0) {
            if (!is_alive(fd)) {
                return -ESRCH;
            }
            return to == (char *)entries ? -EFAULT : -ENODATA;
        }
        to += got;
        left -= (size_t)got;
        offset += got;
    }
    return 0;
}

int
cl_pagemap_soft_dirty(void)
{
    size_t page = cl_page_size();
    char *fresh = mmap(NULL, page, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fresh == MAP_FAILED) {
        return -errno;
    }
    /* A page of a new mapping is soft-dirty from its first write on. */
    *(volatile char *)fresh = 1;
    uint64_t entry = 0;
    int fd = cl_proc_open(0, "pagemap", O_RDONLY);
    int err = fd;
    if (fd >= 0) {
        err = cl_pagemap_read(fd, (uint64_t)(uintptr_t)fresh, 1, &entry);
        close(fd);
    }
    munmap(fresh, page);
    return err < 0 ? err : (entry & CL_PM_SOFT_DIRTY) != 0;
}

/* The number of runs or -errno. A scan of memory that has gone finds nothing
 * and succeeds. */
static long
scan(int fd, struct scan_arg *arg)
{
    long got;
    arg->size = sizeof *arg;
    do {
        got = ioctl(fd, SCAN, arg);
    } while (got < 0 && errno == EINTR);
    if (got < 0) {
        return -errno;
    }
    return got > 0 || is_alive(fd) ? got : -ESRCH;
}

long
cl_pagemap_scan(int fd, uint64_t start, uint64_t end, uint64_t all,
                uint64_t any, struct cl_page_run *runs, size_t max,
                uint64_t *resume)
{
    struct scan_arg arg = {
        .start = start,
        .end = end,
        .vec = (uint64_t)(uintptr_t)runs,
        .vec_len = max,
        .category_mask = all,
        .category_anyof_mask = any,
        .return_mask = CL_SCAN_CATEGORIES,
    };
    long got = scan(fd, &arg);
    if (got >= 0) {
        *resume = arg.walk_end;
    }
    return got;
}

int
cl_pagemap_next(int fd, uint64_t start, uint64_t end, uint64_t *next)
{
    struct cl_page_run run;
    struct scan_arg arg = {
        .start = start,
        .end = end,
        .vec = (uint64_t)(uintptr_t)&run,
        .vec_len = 1,
        .max_pages = 1,
        .category_anyof_mask = CL_SCAN_PRESENT | CL_SCAN_SWAPPED,
        .return_mask = CL_SCAN_PRESENT,
    };
    long got = scan(fd, &arg);
    if (got < 0) {
        return (int)got;
    }
    *next = got == 0 ? end : run.start;
    return 0;
}
