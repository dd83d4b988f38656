/* Probes of the ways to be told of a page fault: perf events and userfaultfd.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cl_host.h"
#include "cl_pagemap.h"

#ifndef UFFD_FEATURE_WP_UNPOPULATED
#define UFFD_FEATURE_WP_UNPOPULATED (1 << 13) /* Linux 6.4 */
#endif
#ifndef UFFD_FEATURE_WP_ASYNC
#define UFFD_FEATURE_WP_ASYNC (1 << 15) /* Linux 6.7 */
#endif
#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00) /* Linux 6.1 */
#endif

#define RING_PAGES 8 /* a power of two, below perf_event_mlock_kb */

/* `sigtrap_data`: NULL for the ring, else what the signal's handler gets. */
static int
open_page_faults(const void *sigtrap_data, int exclude_kernel)
{
    struct perf_event_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.size = sizeof attr;
    attr.type = PERF_TYPE_SOFTWARE;
    attr.config = PERF_COUNT_SW_PAGE_FAULTS;
    attr.sample_period = 1;
    attr.sample_type = PERF_SAMPLE_ADDR;
    attr.disabled = 1;
    attr.exclude_kernel = exclude_kernel;
    attr.exclude_hv = 1;
    attr.sigtrap = sigtrap_data != NULL;
    attr.sig_data = (uintptr_t)sigtrap_data;
    attr.remove_on_exec = sigtrap_data != NULL;
    int fd = (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1,
                          PERF_FLAG_FD_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* Copy `len` bytes of a ring from position `at`. */
static void
ring_read(const unsigned char *ring, size_t size, uint64_t at, void *to,
          size_t len)
{
    for (size_t i = 0; i < len; i++) {
        ((unsigned char *)to)[i] = ring[(at + i) % size];
    }
}

/* Whether the ring holds a sample with this address. */
static int
ring_has(struct perf_event_mmap_page *meta, size_t page_size, uint64_t address)
{
    const unsigned char *ring = (const unsigned char *)meta + page_size;
    size_t size = RING_PAGES * page_size;
    uint64_t head = __atomic_load_n(&meta->data_head, __ATOMIC_ACQUIRE);
    uint64_t at = meta->data_tail;
    while (at < head) {
        struct {
            struct perf_event_header header;
            uint64_t address;
        } record = {0};
        ring_read(ring, size, at, &record, sizeof record);
        if (record.header.type == PERF_RECORD_SAMPLE &&
            record.address == address) {
            return 1;
        }
        if (record.header.size == 0) {
            break;
        }
        at += record.header.size;
    }
    return 0;
}

/* Record the faults of `write`, which writes to the inherited page at
 * `target`; whether the ring has its address. */
static int
record_fault(const struct cl_stage *stage, int exclude_kernel,
             int (*write_page)(unsigned char *target))
{
    unsigned char *target = stage->page + 200;
    stage->finding->step = "perf_event_open";
    int fd = open_page_faults(NULL, exclude_kernel);
    if (fd < 0) {
        return fd;
    }
    stage->finding->step = "mmap the ring of a perf event";
    struct perf_event_mmap_page *meta =
        mmap(NULL, (1 + RING_PAGES) * stage->page_size, PROT_READ | PROT_WRITE,
             MAP_SHARED, fd, 0);
    if (meta == MAP_FAILED) {
        return -errno;
    }
    stage->finding->step = "ioctl PERF_EVENT_IOC_ENABLE";
    if (ioctl(fd, PERF_EVENT_IOC_ENABLE, 0) < 0) {
        return -errno;
    }
    stage->finding->step = "copy a page";
    int err = write_page(target);
    ioctl(fd, PERF_EVENT_IOC_DISABLE, 0);
    if (err) {
        return err;
    }
    stage->finding->step = "find the copied page's address in the ring";
    return ring_has(meta, stage->page_size, (uintptr_t)target) ? CL_YES
                                                               : CL_NO;
}

static int
store(unsigned char *target)
{
    *(volatile unsigned char *)target = 2;
    return 0;
}

/* read(2) into the page: the kernel writes it. */
static int
store_by_kernel(unsigned char *target)
{
    int pipe_ends[2];
    if (pipe(pipe_ends) < 0) {
        return -errno;
    }
    return write(pipe_ends[1], "x", 1) == 1 &&
                   read(pipe_ends[0], target, 1) == 1
               ? 0
               : -errno;
}

int
cl_probe_perf_fault_address(const struct cl_stage *stage)
{
    return record_fault(stage, 1, store);
}

int
cl_probe_perf_kernel_writes(const struct cl_stage *stage)
{
    return record_fault(stage, 0, store_by_kernel);
}

/* Where 64-bit Linux puts si_perf_data; libc may be older than the field. */
#define SI_PERF_DATA_OFFSET 24

/* Any fault of this process comes here, first touches of its code among them;
 * the finding's detail says which is meant, its value that it came. */
static void
trapped(int number, siginfo_t *info, void *context)
{
    uintptr_t data;
    memcpy(&data, (const char *)info + SI_PERF_DATA_OFFSET, sizeof data);
    struct cl_finding *f = (struct cl_finding *)data;
    if ((uintptr_t)info->si_addr == f->detail) {
        f->value = f->detail;
    }
}

/* value and detail: the address, reported and expected. */
int
cl_probe_perf_sigtrap(const struct cl_stage *stage)
{
    struct cl_finding *f = stage->finding;
    struct sigaction action = {0};
    unsigned char *target = stage->page + 200;
    action.sa_sigaction = trapped;
    action.sa_flags = SA_SIGINFO;
    f->step = "sigaction SIGTRAP";
    if (sigaction(SIGTRAP, &action, NULL) < 0) {
        return -errno;
    }
    f->step = "perf_event_open with sigtrap";
    int fd = open_page_faults(f, 1);
    if (fd < 0) {
        return fd;
    }
    f->step = "ioctl PERF_EVENT_IOC_ENABLE";
    f->detail = (uintptr_t)target;
    if (ioctl(fd, PERF_EVENT_IOC_ENABLE, 0) < 0) {
        return -errno;
    }
    f->step = "get SIGTRAP with a copied page's address";
    store(target);
    ioctl(fd, PERF_EVENT_IOC_DISABLE, 0);
    return f->value == f->detail ? CL_YES : CL_NO;
}

/* The ways to a userfaultfd, the most able first. */
enum { WAY_FULL = 1, WAY_USER_ONLY = 2, WAY_DEVICE = 3 };

static int
open_way(int way)
{
    int flags = O_CLOEXEC;
#ifdef UFFD_USER_MODE_ONLY
    if (way == WAY_USER_ONLY) {
        flags |= UFFD_USER_MODE_ONLY;
    }
#endif
    if (way != WAY_DEVICE) {
        return (int)syscall(SYS_userfaultfd, flags);
    }
    int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
    if (device < 0) {
        return -1;
    }
    int fd = ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC);
    close(device);
    return fd;
}

/* An open userfaultfd over the stage's first page, write-protected; the way in
 * finding->detail. The descriptor or -errno. */
static int
watch_page(const struct cl_stage *stage, uint64_t features)
{
    struct cl_finding *f = stage->finding;
    struct uffdio_range range = {(uintptr_t)stage->page, stage->page_size};
    int fd = -1, err = 0;
    f->step = "userfaultfd";
    for (int way = WAY_FULL; way <= WAY_DEVICE && fd < 0; way++) {
        fd = open_way(way);
        /* To be reported is the refusal of the least that the system call can
         * be asked for; the device is there for few. */
        if (fd < 0 && way != WAY_DEVICE) {
            err = -errno;
        }
        f->detail = (uint64_t)way;
    }
    if (fd < 0) {
        return err;
    }
    struct uffdio_api api = {UFFD_API, features, 0};
    f->step = "ioctl UFFDIO_API with write protection";
    if (ioctl(fd, UFFDIO_API, &api) < 0) {
        return -errno;
    }
    struct uffdio_register watch = {range, UFFDIO_REGISTER_MODE_WP, 0};
    f->step = "ioctl UFFDIO_REGISTER with write protection";
    if (ioctl(fd, UFFDIO_REGISTER, &watch) < 0) {
        return -errno;
    }
    struct uffdio_writeprotect protect = {range, UFFDIO_WRITEPROTECT_MODE_WP};
    f->step = "ioctl UFFDIO_WRITEPROTECT";
    return ioctl(fd, UFFDIO_WRITEPROTECT, &protect) < 0 ? -errno : fd;
}

/* In the twin: answer one fault of its maker. The address in finding->value.
 */
static void
answer_fault(const struct cl_stage *stage, int fd)
{
    struct uffd_msg message;
    struct uffdio_writeprotect release = {
        {(uintptr_t)stage->page, stage->page_size}, 0};
    if (read(fd, &message, sizeof message) == (ssize_t)sizeof message &&
        message.event == UFFD_EVENT_PAGEFAULT) {
        stage->finding->value = message.arg.pagefault.address;
        ioctl(fd, UFFDIO_WRITEPROTECT, &release);
    }
    _exit(0);
}

/* value: the address that came; detail: 1 all faults, 2 only the user's, 3 all
 * through /dev/userfaultfd. */
int
cl_probe_userfaultfd(const struct cl_stage *stage)
{
    int fd = watch_page(stage, UFFD_FEATURE_PAGEFAULT_FLAG_WP);
    if (fd < 0) {
        return fd;
    }
    stage->finding->step = "fork";
    /* Not a thread: the twin holds the descriptor of its maker's faults. */
    pid_t twin = cl_twin();
    if (twin < 0) {
        return twin;
    }
    if (twin == 0) {
        answer_fault(stage, fd);
    }
    stage->finding->step = "be told of a write by userfaultfd";
    store(stage->page + 200);
    cl_twin_end(twin);
    return stage->finding->value / stage->page_size ==
                   (uintptr_t)stage->page / stage->page_size
               ? CL_YES
               : CL_NO;
}

/* The kernel lifts the protection itself; the page map shows which page. */
int
cl_probe_userfaultfd_async(const struct cl_stage *stage)
{
    uint64_t before, after;
    store(stage->page);
    int fd =
        watch_page(stage, UFFD_FEATURE_WP_ASYNC | UFFD_FEATURE_WP_UNPOPULATED);
    if (fd < 0) {
        return fd;
    }
    stage->finding->step = "read /proc/self/pagemap";
    int err = cl_stage_entry(0, stage->page, &before);
    store(stage->page + 200);
    if (!err) {
        err = cl_stage_entry(0, stage->page, &after);
    }
    if (err) {
        return err;
    }
    stage->finding->step = "see the write-protect bit fall";
    return (before & CL_PM_UFFD_WP) && !(after & CL_PM_UFFD_WP) ? CL_YES
                                                                : CL_NO;
}
