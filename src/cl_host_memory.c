/* Probes of the page map, of other processes' memory, and of what the kernel
 * does with pages. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "cl_host.h"
#include "cl_pagemap.h"

#ifndef PR_SET_MEMORY_MERGE /* Linux 6.4 */
#define PR_SET_MEMORY_MERGE 67
#define PR_GET_MEMORY_MERGE 68
#endif

/* PAGEMAP_SCAN's argument, Linux 6.7. */
struct scan_argument {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
    uint64_t category_inverted, category_mask, category_anyof_mask,
        return_mask;
};
#define SCAN_REQUEST _IOWR('f', 16, struct scan_argument)

/* Read a small file to its end or until `text` is full. Its length or -errno.
 */
static ssize_t
read_text(const char *path, char *text, size_t room)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    size_t len = 0;
    ssize_t got;
    while (len < room - 1 &&
           (got = read(fd, text + len, room - 1 - len)) != 0) {
        if (got < 0) {
            int err = -errno;
            close(fd);
            return err;
        }
        len += (size_t)got;
    }
    close(fd);
    text[len] = '\0';
    return (ssize_t)len;
}

static int
write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    int err = write(fd, text, strlen(text)) < 0 ? -errno : 0;
    close(fd);
    return err;
}

/* Written, not optimised away. */
static void
write_to(unsigned char *address)
{
    volatile unsigned char *at = address;
    *at = (unsigned char)(*at + 1);
}

/* A page of a lone process is exclusive; a fork makes it shared; a write makes
 * it exclusive again, here and in the twin. */
int
cl_probe_pagemap(const struct cl_stage *stage)
{
    struct cl_finding *f = stage->finding;
    uint64_t alone, shared, mine, theirs;
    write_to(stage->page);
    f->step = "read /proc/self/pagemap";
    int err = cl_stage_entry(0, stage->page, &alone);
    if (err) {
        return err;
    }
    f->step = "fork";
    pid_t twin = cl_twin_asleep();
    if (twin < 0) {
        return twin;
    }
    f->step = "read /proc/CHILD/pagemap";
    err = cl_stage_entry(0, stage->page, &shared);
    write_to(stage->page);
    if (!err) {
        err = cl_stage_entry(0, stage->page, &mine);
    }
    if (!err) {
        err = cl_stage_entry(twin, stage->page, &theirs);
    }
    cl_twin_end(twin);
    if (err) {
        return err;
    }
    f->step = "follow the exclusive bit through a fork and a write";
    return (alone & CL_PM_EXCLUSIVE) && !(shared & CL_PM_EXCLUSIVE) &&
                   (mine & CL_PM_EXCLUSIVE) && (theirs & CL_PM_EXCLUSIVE)
               ? CL_YES
               : CL_NO;
}

int
cl_probe_frame_numbers(const struct cl_stage *stage)
{
    uint64_t entry;
    write_to(stage->page);
    stage->finding->step = "read /proc/self/pagemap";
    int err = cl_stage_entry(0, stage->page, &entry);
    if (err) {
        return err;
    }
    stage->finding->step = "read the frame number";
    return (entry & CL_PM_PRESENT) && (entry & CL_PM_FRAME_MASK) ? CL_YES
                                                                 : CL_NO;
}

int
cl_probe_pagemap_scan(const struct cl_stage *stage)
{
    struct cl_page_run runs[4];
    struct scan_argument scan = {0};
    write_to(stage->page);
    stage->finding->step = "open /proc/self/pagemap";
    int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    memset(runs, 0, sizeof runs);
    scan.size = sizeof scan;
    scan.start = (uintptr_t)stage->page;
    scan.end = scan.start + stage->page_size;
    scan.vec = (uintptr_t)runs;
    scan.vec_len = sizeof runs / sizeof *runs;
    scan.category_mask = CL_SCAN_PRESENT;
    scan.return_mask = CL_SCAN_PRESENT;
    stage->finding->step = "ioctl PAGEMAP_SCAN";
    long found = ioctl(fd, SCAN_REQUEST, &scan);
    if (found < 0) {
        return -errno;
    }
    stage->finding->step = "find a present page by PAGEMAP_SCAN";
    return found == 1 && runs[0].start == scan.start ? CL_YES : CL_NO;
}

int
cl_probe_smaps_rollup(const struct cl_stage *stage)
{
    char path[40], text[2048];
    stage->finding->step = "fork";
    pid_t twin = cl_twin_asleep();
    if (twin < 0) {
        return twin;
    }
    snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)twin);
    stage->finding->step = "read /proc/CHILD/smaps_rollup";
    ssize_t len = read_text(path, text, sizeof text);
    cl_twin_end(twin);
    if (len < 0) {
        return (int)len;
    }
    stage->finding->step = "find Pss in /proc/CHILD/smaps_rollup";
    return strstr(text, "\nPss:") != NULL ? CL_YES : CL_NO;
}

/* The kernel accepts the write to clear_refs without soft-dirty tracking; only
 * the bit that comes back tells. */
int
cl_probe_soft_dirty(const struct cl_stage *stage)
{
    uint64_t cleared, written;
    write_to(stage->page);
    stage->finding->step = "write 4 to /proc/self/clear_refs";
    int err = write_text("/proc/self/clear_refs", "4");
    if (err) {
        return err;
    }
    stage->finding->step = "read /proc/self/pagemap";
    err = cl_stage_entry(0, stage->page, &cleared);
    write_to(stage->page);
    if (!err) {
        err = cl_stage_entry(0, stage->page, &written);
    }
    if (err) {
        return err;
    }
    stage->finding->step = "see the soft-dirty bit cleared and set again";
    return !(cleared & CL_PM_SOFT_DIRTY) && (written & CL_PM_SOFT_DIRTY)
               ? CL_YES
               : CL_NO;
}

/* Bytes of "Referenced:" in this process's smaps_rollup, or -errno. */
static int64_t
referenced(void)
{
    char text[2048];
    ssize_t len = read_text("/proc/self/smaps_rollup", text, sizeof text);
    if (len < 0) {
        return len;
    }
    const char *at = strstr(text, "\nReferenced:");
    return at == NULL
               ? -ENODATA
               : strtoll(at + sizeof "\nReferenced:" - 1, NULL, 10) * 1024;
}

int
cl_probe_clear_refs(const struct cl_stage *stage)
{
    write_to(stage->page);
    stage->finding->step = "read Referenced in /proc/self/smaps_rollup";
    int64_t before = referenced();
    if (before < 0) {
        return before == -ENOENT ? CL_UNKNOWN : (int)before;
    }
    stage->finding->step = "write 1 to /proc/self/clear_refs";
    int err = write_text("/proc/self/clear_refs", "1");
    if (err) {
        return err;
    }
    stage->finding->step = "see Referenced fall in /proc/self/smaps_rollup";
    int64_t after = referenced();
    return after < 0 ? (int)after : after < before ? CL_YES : CL_NO;
}

static uint64_t
minor_faults(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)usage.ru_minflt;
}

/* Write each page of a range; the number of faults that took. */
static uint64_t
faults_of_writing(unsigned char *range, size_t size, size_t page_size)
{
    uint64_t before = minor_faults();
    for (size_t at = 0; at < size; at += page_size) {
        write_to(range + at);
    }
    return minor_faults() - before;
}

/* Largest huge page that is tried: aarch64 with 64 KiB pages has 512 MiB. */
#define HUGE_LIMIT ((size_t)32 << 20)

/* A range of one huge page, written, in a huge page if one was given:
 * *faults tells, 1 or a few against one for each page. 0 or -errno. */
static int
huge_range(const struct cl_stage *stage, unsigned char **range, size_t *size,
           uint64_t *faults)
{
    char text[32];
    const char *path = "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size";
    stage->finding->step = "read the size of a huge page";
    ssize_t len = read_text(path, text, sizeof text);
    if (len < 0) {
        return (int)len;
    }
    size_t huge = strtoull(text, NULL, 10);
    if (huge < 2 * stage->page_size || huge > HUGE_LIMIT) {
        return -E2BIG;
    }
    stage->finding->step = "map a huge page";
    unsigned char *map = mmap(NULL, 2 * huge, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) {
        return -errno;
    }
    *range = map + (huge - (uintptr_t)map % huge) % huge;
    *size = huge;
    stage->finding->step = "madvise MADV_HUGEPAGE";
    if (madvise(*range, huge, MADV_HUGEPAGE) < 0) {
        return -errno;
    }
    *faults = faults_of_writing(*range, huge, stage->page_size);
    return 0;
}

/* value: bytes in a huge page. */
int
cl_probe_thp(const struct cl_stage *stage)
{
    unsigned char *range;
    size_t size;
    uint64_t faults;
    int err = huge_range(stage, &range, &size, &faults);
    if (err) {
        return err;
    }
    stage->finding->value = size;
    stage->finding->step = "fill a huge page with one fault";
    return faults <= 2 ? CL_YES : CL_NO;
}

/* value: bytes that one write of a shared page copies; detail: bytes in the
 * huge page that was tried, or 0 where none was to be had. */
int
cl_probe_copy_unit(const struct cl_stage *stage)
{
    unsigned char *range;
    size_t size;
    uint64_t faults;
    int err = huge_range(stage, &range, &size, &faults);
    if (err || faults > 2) {
        range = stage->page;
        size = CL_STAGE_PAGES * stage->page_size;
    } else {
        stage->finding->detail = size;
    }
    stage->finding->step = "fork";
    pid_t twin = cl_twin_asleep();
    if (twin < 0) {
        return twin;
    }
    faults = faults_of_writing(range, size, stage->page_size);
    cl_twin_end(twin);
    stage->finding->step = "count the faults of writing shared pages";
    if (faults == 0) {
        return CL_UNKNOWN;
    }
    uint64_t pages = size / stage->page_size;
    /* The counter can take in a fault or two of the probe's own stack. */
    uint64_t unit_pages = faults >= pages ? 1 : pages / faults;
    stage->finding->value = unit_pages * stage->page_size;
    return CL_YES;
}

/* Leaves the address in the page itself: a handler has no other argument, and
 * the page can be written by now. */
static void
unprotect(int number, siginfo_t *info, void *context)
{
    size_t page_size = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t address = (uintptr_t)info->si_addr;
    void *page = (void *)(address / page_size * page_size);
    if (mprotect(page, page_size, PROT_READ | PROT_WRITE) < 0) {
        _exit(1);
    }
    memcpy(page, &address, sizeof address);
}

int
cl_probe_mprotect(const struct cl_stage *stage)
{
    struct sigaction action = {0};
    unsigned char *target = stage->page + 100;
    uintptr_t reported;
    action.sa_sigaction = unprotect;
    action.sa_flags = SA_SIGINFO;
    stage->finding->step = "sigaction SIGSEGV";
    if (sigaction(SIGSEGV, &action, NULL) < 0) {
        return -errno;
    }
    stage->finding->step = "mprotect";
    if (mprotect(stage->page, stage->page_size, PROT_READ) < 0) {
        return -errno;
    }
    stage->finding->step = "write to a protected page";
    write_to(target);
    memcpy(&reported, stage->page, sizeof reported);
    return reported == (uintptr_t)target ? CL_YES : CL_NO;
}

/* What a twin holds, read by `reader`: the value as it was at the fork, though
 * this process has changed its own since. */
static int
read_twin(const struct cl_stage *stage, const char *step,
          int (*reader)(pid_t twin, void *to, const void *from, size_t len))
{
    uint64_t was = 0x636f776c6162, here = 0, got = 0;
    memcpy(stage->page, &was, sizeof was);
    stage->finding->step = "fork";
    pid_t twin = cl_twin_asleep();
    if (twin < 0) {
        return twin;
    }
    memcpy(stage->page, &here, sizeof here);
    stage->finding->step = step;
    int err = reader(twin, &got, stage->page, sizeof got);
    cl_twin_end(twin);
    return err ? err : got == was ? CL_YES : CL_NO;
}

static int
by_process_vm_readv(pid_t twin, void *to, const void *from, size_t len)
{
    struct iovec local = {to, len};
    struct iovec remote = {(void *)(uintptr_t)from, len};
    ssize_t got = process_vm_readv(twin, &local, 1, &remote, 1, 0);
    return got < 0 ? -errno : (size_t)got == len ? 0 : -ENODATA;
}

static int
by_mem(pid_t twin, void *to, const void *from, size_t len)
{
    char path[40];
    snprintf(path, sizeof path, "/proc/%d/mem", (int)twin);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    ssize_t got = pread(fd, to, len, (off_t)(uintptr_t)from);
    int err = got < 0 ? -errno : (size_t)got == len ? 0 : -ENODATA;
    close(fd);
    return err;
}

int
cl_probe_process_vm_readv(const struct cl_stage *stage)
{
    return read_twin(stage, "process_vm_readv", by_process_vm_readv);
}

int
cl_probe_child_mem(const struct cl_stage *stage)
{
    return read_twin(stage, "read /proc/CHILD/mem", by_mem);
}

int
cl_probe_pidfd(const struct cl_stage *stage)
{
    struct cl_finding *f = stage->finding;
    f->step = "fork";
    pid_t twin = cl_twin_asleep();
    if (twin < 0) {
        return twin;
    }
    int answer;
    f->step = "pidfd_open";
    int fd = (int)syscall(SYS_pidfd_open, twin, 0);
    if (fd < 0) {
        answer = -errno;
        goto out;
    }
    struct pollfd waited = {fd, POLLIN, 0};
    f->step = "poll a pidfd";
    if (poll(&waited, 1, 0) != 0) {
        answer = CL_NO;
        goto out;
    }
    f->step = "pidfd_send_signal";
    if (syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0) < 0) {
        answer = -errno;
        goto out;
    }
    f->step = "see a child's end through its pidfd";
    answer = poll(&waited, 1, 1000) == 1 ? CL_YES : CL_NO;

out:
    cl_twin_end(twin);
    return answer;
}

int
cl_probe_ksm_merge(const struct cl_stage *stage)
{
    stage->finding->step = "prctl PR_SET_MEMORY_MERGE";
    if (prctl(PR_SET_MEMORY_MERGE, 1, 0, 0, 0) < 0) {
        return -errno;
    }
    stage->finding->step = "prctl PR_GET_MEMORY_MERGE";
    int merging = prctl(PR_GET_MEMORY_MERGE, 0, 0, 0, 0);
    return merging < 0 ? -errno : merging == 1 ? CL_YES : CL_NO;
}
