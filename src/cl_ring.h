/* perf's page-fault event: opened for every thread, read from a ring for every
 * CPU or delivered as a signal. */
#ifndef COWLAB_CL_RING_H
#define COWLAB_CL_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Comes back with each signal of ours, in si_perf_data. */
#define CL_PERF_COOKIE 0x62616c776f63ull

#define CL_MAX_EVENTS 4096u
#define CL_MAX_RINGS 512u

enum cl_event_kind {
    CL_EVENT_SIGNAL,      /* SIGTRAP on the thread, before the write happens */
    CL_EVENT_RING,        /* a sample in the ring */
    CL_EVENT_RING_KERNEL, /* the same, faults inside system calls only */
};

struct cl_ring {
    void *base; /* perf_event_mmap_page, then the data */
    size_t size;
    int fd; /* the event it belongs to; not owned */
    atomic_flag busy;
};

/* Events that are switched together. Start from {0}. */
struct cl_events {
    int fds[CL_MAX_EVENTS];
    uint32_t nfds;
    struct cl_ring rings[CL_MAX_RINGS];
    uint32_t nrings;
};

/* Open, switched off, for every thread of the calling process (and whatever
 * threads they will start). *kernel: whether to see faults inside system calls
 * too; cleared where that is not allowed. *threads: how many there were. 0 or
 * -errno with nothing left open. */
int cl_events_open(struct cl_events *events, enum cl_event_kind kind,
                   bool *kernel, uint32_t *threads);
void cl_events_switch(const struct cl_events *events, bool on);
void cl_events_close(struct cl_events *events);

struct cl_sample {
    uint64_t ip, address;
    uint32_t thread;
    bool kernel;
};

/* Call each(&sample, arg) for what the rings hold. The number lost since the
 * last call. A ring that another thread reads just now is left to it.
 * Async-signal-safe. */
uint64_t cl_events_drain(struct cl_events *events,
                         void (*each)(const struct cl_sample *, void *),
                         void *arg);

/* Whether any ring holds something. Async-signal-safe. */
bool cl_events_pending(const struct cl_events *events);

#endif
