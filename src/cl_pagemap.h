/* /proc/PID/pagemap: 64 bits a page. */
#ifndef COWLAB_CL_PAGEMAP_H
#define COWLAB_CL_PAGEMAP_H

#include <stddef.h>
#include <stdint.h>

#define CL_PM_SOFT_DIRTY (1ull << 55)
#define CL_PM_EXCLUSIVE (1ull << 56) /* mapcount 1: by this process */
#define CL_PM_UFFD_WP (1ull << 57)
#define CL_PM_GUARD (1ull << 58)
#define CL_PM_FILE (1ull << 61) /* a file's page, or shared anonymous */
#define CL_PM_SWAPPED (1ull << 62)
#define CL_PM_PRESENT (1ull << 63)
#define CL_PM_FRAME_MASK ((1ull << 55) - 1) /* 0 without CAP_SYS_ADMIN */

/* The kernel's page size, bytes (4,096 on x86-64; 4, 16 or 64 KiB on aarch64).
 */
size_t cl_page_size(void);

/* Read the entries of `npages` pages from `start` (page-aligned) through `fd`,
 * an open pagemap. 0 or -errno; -ESRCH where the process has ended (the kernel
 * then gives 0 bytes), -EFAULT where `start` is beyond what a process can map
 * (as [vsyscall] is), -ENODATA where only the end of the range is. */
int cl_pagemap_read(int fd, uint64_t start, size_t npages, uint64_t *entries);

/* Whether this kernel keeps CL_PM_SOFT_DIRTY, tried on a page of our own: 1, 0
 * or -errno. Where it does not, the bit is 0 whatever is written. */
int cl_pagemap_soft_dirty(void);

/* A run of pages that PAGEMAP_SCAN reports. */
struct cl_page_run {
    uint64_t start, end; /* bytes */
    uint64_t categories; /* CL_SCAN_* */
};

#define CL_SCAN_WPALLOWED (1u << 0)
#define CL_SCAN_WRITTEN (1u << 1)
#define CL_SCAN_FILE (1u << 2)
#define CL_SCAN_PRESENT (1u << 3)
#define CL_SCAN_SWAPPED (1u << 4)
#define CL_SCAN_PFNZERO (1u << 5) /* the shared zero page */
#define CL_SCAN_HUGE (1u << 6)
#define CL_SCAN_CATEGORIES 0x7fu

/* Up to `max` runs of [start, end) whose pages have all of `all` and, unless
 * it is 0, any of `any`; with both 0 holes are runs of category 0. Each run
 * says which of CL_SCAN_CATEGORIES it has. *resume is where to go on (== end:
 * done). The number of runs, -ENOTTY where this kernel has no PAGEMAP_SCAN
 * (before 6.7), -ESRCH where the process has ended, or -errno. */
long cl_pagemap_scan(int fd, uint64_t start, uint64_t end, uint64_t all,
                     uint64_t any, struct cl_page_run *runs, size_t max,
                     uint64_t *resume);

/* The address of the first page of [start, end) that is not a hole, or `end`;
 * the price of a hole is next to nothing. 0 or -errno, as cl_pagemap_scan. */
int cl_pagemap_next(int fd, uint64_t start, uint64_t end, uint64_t *next);

#endif
