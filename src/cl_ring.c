/* See cl_ring.h. */
#include "cl_ring.h"

#include <dirent.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cl_pagemap.h"

/* Data pages of a ring, of 4 KiB; the first that the limit on locked memory
 * allows. An unprivileged user has 516 kB a CPU in all. */
static const size_t ring_pages[] = {1024, 64, 16};

static int
open_event(enum cl_event_kind kind, bool kernel, pid_t thread, int cpu)
{
    struct perf_event_attr attr = {
        .size = sizeof attr,
        .type = PERF_TYPE_SOFTWARE,
        .config = PERF_COUNT_SW_PAGE_FAULTS,
        .sample_period = 1,
        .sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_ADDR,
        .disabled = 1,
        .inherit = 1,
        .inherit_thread = 1,
        .exclude_kernel = !kernel,
        .exclude_hv = 1,
    };
    if (kind == CL_EVENT_SIGNAL) {
        attr.sigtrap = 1;
        attr.remove_on_exec = 1;
        attr.sig_data = CL_PERF_COOKIE;
    } else {
        attr.exclude_user = kind == CL_EVENT_RING_KERNEL;
        attr.watermark = 1;
        attr.wakeup_watermark = 16 << 10;
    }
    long fd = syscall(SYS_perf_event_open, &attr, thread, cpu, -1,
                      PERF_FLAG_FD_CLOEXEC);
    return fd < 0 ? -errno : (int)fd;
}

static int
map_ring(struct cl_events *events, int fd)
{
    size_t page = cl_page_size();
    if (events->nrings == CL_MAX_RINGS) {
        return -E2BIG;
    }
    for (size_t i = 0; i < sizeof ring_pages / sizeof *ring_pages; i++) {
        size_t data = ring_pages[i] * 4096;
        data = data < page ? page : data;
        void *base =
            mmap(NULL, page + data, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (base != MAP_FAILED) {
            struct cl_ring *ring = &events->rings[events->nrings++];
            ring->base = base;
            ring->size = page + data;
            ring->fd = fd;
            atomic_flag_clear(&ring->busy);
            return 0;
        }
        if (errno != EPERM && errno != ENOMEM) {
            break;
        }
    }
    return -errno;
}

static int
open_for_thread(struct cl_events *events, enum cl_event_kind kind, bool kernel,
                pid_t thread, int cpus)
{
    /* An event over all of a thread's threads can only be mapped if it is of
     * one CPU. */
    int first = kind == CL_EVENT_SIGNAL ? -1 : 0;
    int last = kind == CL_EVENT_SIGNAL ? 0 : cpus;
    uint32_t ring = 0;
    for (int cpu = first; cpu < last; cpu++) {
        if (events->nfds == CL_MAX_EVENTS) {
            return -E2BIG;
        }
        int fd = open_event(kind, kernel, thread, cpu);
        if (fd == -ENODEV && cpu >= 0) {
            continue; /* a CPU that is switched off */
        }
        if (fd < 0) {
            return fd;
        }
        events->fds[events->nfds++] = fd;
        if (kind == CL_EVENT_SIGNAL) {
            continue;
        }
        if (ring < events->nrings) {
            if (ioctl(fd, PERF_EVENT_IOC_SET_OUTPUT,
                      events->rings[ring++].fd) != 0) {
                return -errno;
            }
        } else {
            int err = map_ring(events, fd);
            if (err != 0) {
                return err;
            }
            ring++;
        }
    }
    return 0;
}

static int
open_all(struct cl_events *events, enum cl_event_kind kind, bool kernel,
         uint32_t *threads)
{
    long cpus = sysconf(_SC_NPROCESSORS_CONF);
    DIR *tasks = opendir("/proc/self/task");
    if (tasks == NULL) {
        return -errno;
    }
    int err = 0;
    *threads = 0;
    for (const struct dirent *entry; err == 0;) {
        entry = readdir(tasks);
        if (entry == NULL) {
            break;
        }
        pid_t thread = (pid_t)atoi(entry->d_name);
        if (thread == 0) {
            continue;
        }
        err = open_for_thread(events, kind, kernel, thread, (int)cpus);
        if (err == -ESRCH) {
            err = 0; /* it has ended */
        } else if (err == 0) {
            (*threads)++;
        }
    }
    closedir(tasks);
    return err;
}

int
cl_events_open(struct cl_events *events, enum cl_event_kind kind, bool *kernel,
               uint32_t *threads)
{
    int err = open_all(events, kind, *kernel, threads);
    if (err != 0) {
        cl_events_close(events);
        if ((err == -EACCES || err == -EPERM) && *kernel &&
            kind != CL_EVENT_RING_KERNEL) {
            *kernel = false;
            err = open_all(events, kind, false, threads);
            if (err != 0) {
                cl_events_close(events);
            }
        }
    }
    return err;
}

void
cl_events_switch(const struct cl_events *events, bool on)
{
    for (uint32_t i = 0; i < events->nfds; i++) {
        ioctl(events->fds[i],
              on ? PERF_EVENT_IOC_ENABLE : PERF_EVENT_IOC_DISABLE, 0);
    }
}

void
cl_events_close(struct cl_events *events)
{
    for (uint32_t i = 0; i < events->nrings; i++) {
        munmap(events->rings[i].base, events->rings[i].size);
    }
    for (uint32_t i = 0; i < events->nfds; i++) {
        close(events->fds[i]);
    }
    events->nrings = events->nfds = 0;
}

static void
copy_out(void *to, const char *data, uint64_t size, uint64_t at, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        ((char *)to)[i] = data[(at + i) & (size - 1)];
    }
}

static uint64_t
drain_ring(struct cl_ring *ring,
           void (*each)(const struct cl_sample *, void *), void *arg)
{
    struct perf_event_mmap_page *page = ring->base;
    const char *data = (const char *)ring->base + page->data_offset;
    uint64_t size = page->data_size, tail = page->data_tail, lost = 0;
    uint64_t head = __atomic_load_n(&page->data_head, __ATOMIC_ACQUIRE);
    while (tail < head) {
        struct perf_event_header header;
        struct {
            uint64_t ip;
            uint32_t pid, tid;
            uint64_t address;
        } body;
        uint64_t lost_body[2];
        copy_out(&header, data, size, tail, sizeof header);
        if (header.size == 0) {
            break; /* cannot be; would not end */
        }
        if (header.type == PERF_RECORD_SAMPLE) {
            copy_out(&body, data, size, tail + sizeof header, sizeof body);
            struct cl_sample sample = {
                .ip = body.ip,
                .address = body.address,
                .thread = body.tid,
                .kernel = (header.misc & PERF_RECORD_MISC_CPUMODE_MASK) ==
                          PERF_RECORD_MISC_KERNEL,
            };
            each(&sample, arg);
        } else if (header.type == PERF_RECORD_LOST) {
            copy_out(lost_body, data, size, tail + sizeof header,
                     sizeof lost_body);
            lost += lost_body[1];
        }
        tail += header.size;
    }
    __atomic_store_n(&page->data_tail, tail, __ATOMIC_RELEASE);
    return lost;
}

uint64_t
cl_events_drain(struct cl_events *events,
                void (*each)(const struct cl_sample *, void *), void *arg)
{
    uint64_t lost = 0;
    for (uint32_t i = 0; i < events->nrings; i++) {
        struct cl_ring *ring = &events->rings[i];
        if (!atomic_flag_test_and_set_explicit(&ring->busy,
                                               memory_order_acquire)) {
            lost += drain_ring(ring, each, arg);
            atomic_flag_clear_explicit(&ring->busy, memory_order_release);
        }
    }
    return lost;
}

bool
cl_events_pending(const struct cl_events *events)
{
    for (uint32_t i = 0; i < events->nrings; i++) {
        const struct perf_event_mmap_page *page = events->rings[i].base;
        if (__atomic_load_n(&page->data_head, __ATOMIC_ACQUIRE) !=
            page->data_tail) {
            return true;
        }
    }
    return false;
}
