#include "cl_moments.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "cl_pagemap.h"
#include "cl_pool.h"
#include "cl_stat.h"

static int
read_pages(struct cl_moments *m, pid_t pid, struct cl_pages *pages)
{
    int64_t start = cl_now();
    int err = cl_pages_read(pid, pages);
    m->reading_time += cl_now() - start;
    m->page_map_reads++;
    return err;
}

static int
read_faults(struct cl_moments *m, pid_t pid, struct cl_faults_count *faults)
{
    struct cl_stat stat;
    char text[1024];
    ssize_t len = cl_proc_read_small(pid, "stat", text, sizeof text);
    if (len < 0) {
        return (int)len;
    }
    int err = cl_stat_parse(text, (size_t)len, &stat);
    if (err == 0) {
        faults->minor = stat.minor_faults;
        faults->major = stat.major_faults;
        m->threads = stat.threads;
    }
    return err;
}

int
cl_rollup_read(pid_t pid, struct cl_rollup *rollup)
{
    struct cl_smaps smaps;
    char text[4096];
    ssize_t len = cl_proc_read_small(pid, "smaps_rollup", text, sizeof text);
    if (len < 0) {
        return (int)len;
    }
    const char *cursor = text;
    int got = cl_smaps_next(&cursor, cursor + len, &smaps);
    if (got <= 0) {
        return got < 0 ? got : -ENODATA;
    }
    rollup->rss = smaps.bytes[CL_SMAPS_RSS];
    rollup->pss = smaps.bytes[CL_SMAPS_PSS];
    rollup->private_clean = smaps.bytes[CL_SMAPS_PRIVATE_CLEAN];
    rollup->private_dirty = smaps.bytes[CL_SMAPS_PRIVATE_DIRTY];
    rollup->private_hugetlb = smaps.bytes[CL_SMAPS_PRIVATE_HUGETLB];
    rollup->anonymous = smaps.bytes[CL_SMAPS_ANONYMOUS];
    rollup->swap = smaps.bytes[CL_SMAPS_SWAP];
    rollup->anon_huge_pages = smaps.bytes[CL_SMAPS_ANON_HUGE_PAGES];
    rollup->ksm = smaps.bytes[CL_SMAPS_KSM];
    return 0;
}

/* The page map does not tell the zero page from a shared anonymous one; a
 * count of anonymous pages that disagrees says that there are some. Only then
 * is the price of a scan paid. */
static int
tell_zero_pages(struct cl_moments *m, pid_t pid, struct cl_pages *pages,
                uint64_t anonymous)
{
    uint64_t counted = anonymous / cl_page_size();
    if (pages->own <= counted) {
        return 0;
    }
    uint64_t missing = pages->own - counted;
    int err = cl_pages_mark_zero(pid, pages, missing);
    if (err == -ENOTTY || err == -EINVAL || err == -EPERM) {
        m->zero_untold += (int64_t)missing;
        return 0;
    }
    return err;
}

/* --- pools: two ways of looking ---------------------------------------------
 */

bool
cl_is_pool_header(const void *at)
{
    return cl_pool_plausible(at);
}

struct asking {
    const struct cl_process *witness;
    struct cl_question *question;
};

static int
find_by_asking(void *context, uint64_t *addresses, size_t n)
{
    struct asking *asking = context;
    while (n > 0) {
        size_t some = n < CL_QUESTION_MAX ? n : CL_QUESTION_MAX;
        asking->question->n = (uint32_t)some;
        memcpy(asking->question->addresses, addresses,
               some * sizeof *addresses);
        int err = cl_witness_ask(asking->witness, asking->question);
        if (err < 0) {
            return err;
        }
        memcpy(addresses, asking->question->addresses,
               some * sizeof *addresses);
        addresses += some;
        n -= some;
    }
    return 0;
}

/* One system call an address: for the few that nobody knows. */
static int
find_by_reading(void *context, uint64_t *addresses, size_t n)
{
    const int *fd = context;
    for (size_t i = 0; i < n; i++) {
        struct cl_pool_header header;
        int err = cl_mem_read(*fd, addresses[i], &header, sizeof header);
        if (err == -ESRCH) {
            return err;
        }
        if (err < 0 || !cl_pool_plausible(&header)) {
            addresses[i] = 0;
        }
    }
    return 0;
}

static int
mark_new_pools(pid_t pid, struct cl_pages *pages, const struct cl_pages *known)
{
    int fd = cl_proc_open(pid, "mem", O_RDONLY);
    if (fd < 0) {
        return fd;
    }
    struct cl_pool_finder finder = {find_by_reading, &fd};
    int err = cl_pages_mark_pools(pages, known, &finder);
    close(fd);
    return err;
}

/* --- the moments
 * --------------------------------------------------------------- */

int
cl_moments_fork(struct cl_moments *m, const struct cl_process *witness,
                struct cl_question *question)
{
    struct cl_status status;
    char text[4096];
    int err = read_pages(m, witness->pid, &m->fork);
    if (err == 0) {
        ssize_t len =
            cl_proc_read_small(witness->pid, "status", text, sizeof text);
        err = len < 0 ? (int)len : cl_status_parse(text, (size_t)len, &status);
    }
    if (err == 0) {
        err = tell_zero_pages(m, witness->pid, &m->fork,
                              status.bytes[CL_STATUS_RSS_ANON]);
    }
    if (err == 0) {
        struct asking asking = {witness, question};
        struct cl_pool_finder finder = {find_by_asking, &asking};
        err = cl_pages_mark_pools(&m->fork, NULL, &finder);
    }
    return err;
}

int
cl_moments_rest_witnessed(struct cl_moments *m, pid_t pid)
{
    return read_pages(m, pid, &m->rest_witnessed);
}

int
cl_moments_rest_alone(struct cl_moments *m, pid_t pid)
{
    int err = cl_rollup_read(pid, &m->before);
    if (err == 0) {
        err = read_faults(m, pid, &m->at_rest);
    }
    if (err == 0) {
        err = read_pages(m, pid, &m->rest_alone);
    }
    if (err == 0) {
        err = tell_zero_pages(m, pid, &m->rest_witnessed, m->before.anonymous);
    }
    if (err == 0) {
        err = tell_zero_pages(m, pid, &m->rest_alone, m->before.anonymous);
    }
    if (err == 0) {
        err = mark_new_pools(pid, &m->rest_alone, &m->fork);
    }
    if (err == 0) {
        err = cl_account(&m->fork, NULL, &m->rest_witnessed, &m->rest_alone,
                         &m->open, m->fork_account);
    }
    return err;
}

int
cl_moments_go(struct cl_moments *m, pid_t pid)
{
    return read_faults(m, pid, &m->at_go);
}

int
cl_moments_done_witnessed(struct cl_moments *m, pid_t pid)
{
    int err = read_faults(m, pid, &m->at_done);
    return err < 0 ? err : read_pages(m, pid, &m->done_witnessed);
}

int
cl_moments_done_alone(struct cl_moments *m, pid_t pid)
{
    int err = cl_rollup_read(pid, &m->after);
    if (err == 0) {
        err = read_pages(m, pid, &m->done_alone);
    }
    if (err == 0) {
        err = tell_zero_pages(m, pid, &m->done_witnessed, m->after.anonymous);
    }
    if (err == 0) {
        err = tell_zero_pages(m, pid, &m->done_alone, m->after.anonymous);
    }
    if (err == 0) {
        err = mark_new_pools(pid, &m->done_alone, &m->rest_alone);
    }
    if (err == 0) {
        err = cl_account(&m->open, &m->rest_alone, &m->done_witnessed,
                         &m->done_alone, NULL, m->task_account);
    }
    return err;
}

/* Whether the page was written by the child between fork and rest. */
static bool
was_written(const struct cl_moments *m, uint64_t addr, uint8_t alone)
{
    if (!cl_page_is_own(alone) || !(alone & CL_PAGE_EXCLUSIVE)) {
        return false;
    }
    uint8_t inherited = cl_pages_at(&m->fork, addr);
    return !cl_page_is_inherited(inherited) ||
           (cl_pages_at(&m->rest_witnessed, addr) & CL_PAGE_EXCLUSIVE);
}

size_t
cl_moments_written(const struct cl_moments *m, uint64_t *addresses, size_t max)
{
    size_t page_size = cl_page_size(), n = 0, i = 0;
    const struct cl_pages *pages = &m->rest_alone;
    const char *cursor = pages->maps.data;
    const char *end = cursor + pages->maps.len;
    struct cl_map map;
    while (cl_maps_next(&cursor, end, &map) > 0) {
        if (!(map.perms & CL_MAP_WRITE) || cl_map_kind(&map, false) < 0) {
            continue;
        }
        uint64_t first = map.start / page_size, last = map.end / page_size;
        for (i = cl_pages_find(pages, first / CL_GRANULE);
             i < cl_pages_count(pages); i++) {
            struct cl_granule *granule = cl_pages_granule(pages, i);
            uint64_t base = granule->number * CL_GRANULE;
            if (base >= last) {
                break;
            }
            for (size_t k = 0; k < CL_GRANULE; k++) {
                uint64_t page = base + k;
                if (page < first || page >= last ||
                    !was_written(m, page * page_size, granule->pages[k])) {
                    continue;
                }
                if (n < max) {
                    addresses[n] = page * page_size;
                }
                n++;
            }
        }
    }
    return n;
}

uint64_t
cl_moments_size(const struct cl_moments *m)
{
    const struct cl_pages *all[] = {&m->fork,           &m->rest_witnessed,
                                    &m->rest_alone,     &m->open,
                                    &m->done_witnessed, &m->done_alone};
    uint64_t size = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        size += all[i]->maps.len + all[i]->granules.len;
    }
    return size;
}

void
cl_moments_release(struct cl_moments *m)
{
    cl_pages_release(&m->fork);
    cl_pages_release(&m->rest_witnessed);
    cl_pages_release(&m->rest_alone);
    cl_pages_release(&m->open);
    cl_pages_release(&m->done_witnessed);
    cl_pages_release(&m->done_alone);
}
