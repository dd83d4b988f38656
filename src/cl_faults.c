/* See cl_faults.h. */
#include "cl_faults.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "cl_child.h"
#include "cl_guard.h"
#include "cl_ring.h"

#define STACK_SIZE (64u << 10)
#define TRAP_PERF_CODE 6 /* TRAP_PERF, newer than some C libraries */
#define TRAP_ASYNC 1u    /* TRAP_PERF_FLAG_ASYNC */
#define TEXT_TOUCHED (1u << 20)

struct cl_recorder {
    struct cl_record record;
    cl_frame_reader reader;
    struct cl_events signals, rings;
    bool enabled, kernel_ring;
    /* The thread that empties the rings, mode addresses. */
    bool draining;
    pthread_t drainer;
    int stop_fd;
    /* The stack that handlers run on, of the thread that enabled. */
    void *stack;
    stack_t previous_stack;
    pid_t stack_thread;
};

/* What signal handlers read. Handlers belong to the process, so this does. */
static struct {
    struct cl_recorder *_Atomic active;
    _Atomic uint32_t inside; /* threads of `pid` that may be using it */
    pid_t pid;
    struct sigaction trap, fault; /* who was there before us */
    bool trap_ours, fault_ours;
    _Atomic uint64_t retried;
} handlers;

static struct cl_recorder *
begin_handler(void)
{
    atomic_fetch_add(&handlers.inside, 1);
    return atomic_load(&handlers.active);
}

static void
end_handler(void)
{
    atomic_fetch_sub(&handlers.inside, 1);
}

/* siginfo's part for perf, on every 64-bit Linux. */
struct perf_info {
    uint64_t data;
    uint32_t type, flags;
};

static struct perf_info
perf_info_of(const siginfo_t *info)
{
    struct perf_info out;
    memcpy(&out, (const char *)&info->si_addr + sizeof(void *), sizeof out);
    return out;
}

static uint64_t
instruction_pointer(const void *context)
{
    const ucontext_t *machine = context;
#if defined(__x86_64__)
    return (uint64_t)machine->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    return machine->uc_mcontext.pc;
#else
#error "no instruction pointer known for this architecture"
#endif
}

/* Whether the instruction before `ip` enters the kernel. A fault that comes
 * back here happened inside that system call: what follows one in the C
 * library works on registers. */
static bool
after_system_call(uint64_t ip)
{
#if defined(__x86_64__)
    static const unsigned char enter[] = {0x0f, 0x05};
#else
    static const unsigned char enter[] = {0x01, 0x00, 0x00, 0xd4};
#endif
    return ip > sizeof enter &&
           memcmp((const void *)(uintptr_t)(ip - sizeof enter), enter,
                  sizeof enter) == 0;
}

static uint32_t
own_thread(void)
{
    return (uint32_t)syscall(SYS_gettid);
}

/* The Python instruction that the calling thread is at. */
struct here {
    struct cl_recorder *recorder;
    uint32_t thread, code;
    int32_t offset;
    uint64_t ip;
    bool asked;
};

static void
ask_where(struct here *here)
{
    struct cl_code_view view;
    struct cl_record *record = &here->recorder->record;
    if (here->asked || here->recorder->reader == NULL) {
        return;
    }
    here->asked = true;
    if (here->recorder->reader(&view)) {
        here->code = cl_record_intern(record, &view);
        here->offset = view.offset;
    } else {
        cl_record_count(record, CL_COUNT_NO_FRAME, 1);
    }
}

/* A sample of the kernel's ring: in lines mode `here` is the thread that
 * drains, whose own system call it mostly was. */
static void
take_sample(const struct cl_sample *sample, void *arg)
{
    struct here *here = arg;
    struct cl_record *record = &here->recorder->record;
    struct cl_slot *slot = cl_record_claim(record, sample->address);
    cl_record_count(record, CL_COUNT_HITS, 1);
    if (slot == NULL) {
        return;
    }
    slot->thread = sample->thread;
    if (sample->kernel) {
        slot->flags |= CL_FAULT_KERNEL;
        cl_record_count(record, CL_COUNT_KERNEL, 1);
    } else {
        slot->ip = sample->ip;
    }
    if (here->thread == sample->thread) {
        ask_where(here);
        slot->code = here->code;
        slot->offset = here->offset;
        slot->ip = here->ip;
    }
    cl_record_done(slot);
}

static void
write_down(struct cl_recorder *recorder, uint64_t address, uint64_t ip,
           bool async)
{
    struct cl_record *record = &recorder->record;
    struct here here = {.recorder = recorder, .ip = ip};
    cl_record_count(record, CL_COUNT_HITS, 1);
    if (recorder->kernel_ring && cl_events_pending(&recorder->rings)) {
        here.thread = async ? 0 : own_thread();
        uint64_t lost = cl_events_drain(&recorder->rings, take_sample, &here);
        cl_record_count(record, CL_COUNT_LOST, lost);
    }
    struct cl_slot *slot = cl_record_claim(record, address);
    if (slot == NULL) {
        return;
    }
    slot->thread = own_thread();
    if (async) {
        slot->flags |= CL_FAULT_ASYNC;
        cl_record_count(record, CL_COUNT_ASYNC, 1);
    } else {
        ask_where(&here);
        slot->code = here.code;
        slot->offset = here.offset;
        slot->ip = ip;
        if (record->header->kernel_seen && after_system_call(ip)) {
            slot->flags |= CL_FAULT_KERNEL;
            cl_record_count(record, CL_COUNT_KERNEL, 1);
        }
    }
    cl_record_done(slot);
}

static void
take_fault(struct cl_recorder *recorder, uint64_t address, uint64_t ip,
           bool async)
{
    int64_t start = cl_now();
    write_down(recorder, address, ip, async);
    cl_record_count(&recorder->record, CL_COUNT_NANOSECONDS,
                    (uint64_t)(cl_now() - start));
}

/* Pass a signal on to whoever had it before. */
static void
pass_on(int number, siginfo_t *info, void *context,
        const struct sigaction *previous)
{
    if (previous->sa_flags & SA_SIGINFO) {
        previous->sa_sigaction(number, info, context);
    } else if (previous->sa_handler == SIG_DFL) {
        /* Comes again once we return, and then has its usual effect. */
        sigaction(number, previous, NULL);
        if (number != SIGSEGV || info->si_code <= 0) {
            syscall(SYS_tgkill, getpid(), own_thread(), number);
        }
    } else if (previous->sa_handler != SIG_IGN) {
        previous->sa_handler(number);
    }
}

static void
on_trap(int number, siginfo_t *info, void *context)
{
    int saved = errno;
    struct perf_info perf = perf_info_of(info);
    if (info->si_code == TRAP_PERF_CODE && perf.data == CL_PERF_COOKIE) {
        struct cl_recorder *recorder = begin_handler();
        if (recorder != NULL) {
            take_fault(recorder, (uint64_t)(uintptr_t)info->si_addr,
                       instruction_pointer(context),
                       (perf.flags & TRAP_ASYNC) != 0);
        }
        end_handler();
    } else {
        pass_on(number, info, context, &handlers.trap);
    }
    errno = saved;
}

static void
on_segv(int number, siginfo_t *info, void *context)
{
    int saved = errno;
    struct cl_recorder *recorder = begin_handler();
    uint64_t address = (uint64_t)(uintptr_t)info->si_addr;
    bool ours = false;
    if (info->si_code == SEGV_ACCERR && recorder != NULL) {
        ours = cl_guard_lift(&recorder->record, address);
        /* A process forked from this one has the guards, not the record. */
        if (ours && recorder->record.header->pid == getpid()) {
            take_fault(recorder, address, instruction_pointer(context), false);
        }
    } else if (info->si_code == SEGV_ACCERR) {
        /* A fault of ours that was on its way while the guards were taken off:
         * let it try again, once. */
        ours = atomic_exchange(&handlers.retried, address) != address;
    }
    end_handler();
    if (!ours) {
        pass_on(number, info, context, &handlers.fault);
    }
    errno = saved;
}

/* Put `handler` in, unless it is there. */
static int
take_signal(int number, void (*handler)(int, siginfo_t *, void *),
            struct sigaction *previous, bool *ours)
{
    struct sigaction now, action = {.sa_sigaction = handler};
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigfillset(&action.sa_mask);
    if (sigaction(number, NULL, &now) != 0) {
        return -errno;
    }
    if (*ours && (now.sa_flags & SA_SIGINFO) && now.sa_sigaction == handler) {
        return 0;
    }
    *previous = now;
    if (sigaction(number, &action, NULL) != 0) {
        return -errno;
    }
    *ours = true;
    return 0;
}

static bool
still_ours(int number, void (*handler)(int, siginfo_t *, void *))
{
    struct sigaction now;
    return sigaction(number, NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) &&
           now.sa_sigaction == handler;
}

/* A stack that was there at the fork, its own or faulthandler's, is inherited:
 * running a handler on it would copy pages that the task did not. Threads that
 * start later have stacks of their own that no one inherited. */
static int
take_stack(struct cl_recorder *recorder)
{
    void *stack = mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (stack == MAP_FAILED) {
        return -errno;
    }
    stack_t own = {.ss_sp = stack, .ss_size = STACK_SIZE};
    if (sigaltstack(&own, &recorder->previous_stack) != 0) {
        int err = -errno;
        munmap(stack, STACK_SIZE);
        return err;
    }
    recorder->stack = stack;
    recorder->stack_thread = (pid_t)own_thread();
    return 0;
}

static void
give_stack_back(struct cl_recorder *recorder)
{
    /* Another thread's cannot be changed from here; then it keeps ours. */
    if (recorder->stack != NULL &&
        recorder->stack_thread == (pid_t)own_thread() &&
        sigaltstack(&recorder->previous_stack, NULL) == 0) {
        munmap(recorder->stack, STACK_SIZE);
    }
    recorder->stack = NULL;
}

static void
drain(struct cl_recorder *recorder)
{
    struct here nobody = {.recorder = recorder};
    uint64_t lost = cl_events_drain(&recorder->rings, take_sample, &nobody);
    cl_record_count(&recorder->record, CL_COUNT_LOST, lost);
}

static void *
drainer_main(void *arg)
{
    struct cl_recorder *recorder = arg;
    struct pollfd fds[CL_MAX_RINGS + 1];
    uint32_t n = recorder->rings.nrings;
    for (uint32_t i = 0; i < n; i++) {
        fds[i] = (struct pollfd){recorder->rings.rings[i].fd, POLLIN, 0};
    }
    fds[n] = (struct pollfd){recorder->stop_fd, POLLIN, 0};
    while (poll(fds, n + 1, -1) >= 0 && !(fds[n].revents & POLLIN)) {
        drain(recorder);
    }
    return NULL;
}

/* Started before the events are opened, so that they do not see it. */
static int
start_drainer(struct cl_recorder *recorder)
{
    sigset_t all, before;
    recorder->stop_fd = eventfd(0, EFD_CLOEXEC);
    if (recorder->stop_fd < 0) {
        return -errno;
    }
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int err = pthread_create(&recorder->drainer, NULL, drainer_main, recorder);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (err != 0) {
        close(recorder->stop_fd);
        return -err;
    }
    recorder->draining = true;
    return 0;
}

static void
stop_drainer(struct cl_recorder *recorder)
{
    if (recorder->draining) {
        eventfd_write(recorder->stop_fd, 1);
        pthread_join(recorder->drainer, NULL);
        close(recorder->stop_fd);
        recorder->draining = false;
    }
}

static int
open_rings(struct cl_recorder *recorder)
{
    bool kernel = true;
    uint32_t threads;
    int err =
        cl_events_open(&recorder->rings, CL_EVENT_RING, &kernel, &threads);
    if (err == 0) {
        recorder->record.header->kernel_seen = kernel;
        cl_record_count(&recorder->record, CL_COUNT_THREADS, threads);
        err = start_drainer(recorder);
    }
    return err;
}

static int
open_signals(struct cl_recorder *recorder)
{
    bool kernel = true;
    uint32_t threads;
    int err =
        take_signal(SIGTRAP, on_trap, &handlers.trap, &handlers.trap_ours);
    if (err == 0) {
        err = cl_events_open(&recorder->signals, CL_EVENT_SIGNAL, &kernel,
                             &threads);
    }
    if (err != 0) {
        return err;
    }
    recorder->record.header->kernel_seen = kernel;
    cl_record_count(&recorder->record, CL_COUNT_THREADS, threads);
    if (kernel) {
        /* A signal comes once a system call, whatever it wrote: the ring tells
         * of all its pages. Without it only the first is known. */
        bool yes = true;
        recorder->kernel_ring =
            cl_events_open(&recorder->rings, CL_EVENT_RING_KERNEL, &yes,
                           &threads) == 0;
    }
    return 0;
}

/* Touch what a handler will write to: a fault of its own would be one more
 * signal. */
static void
touch(const struct cl_record *record)
{
#ifdef MADV_POPULATE_WRITE
    char *base = (char *)record->header;
    const struct cl_section *codes = &record->header->codes;
    madvise(base + codes->at, codes->capacity, MADV_POPULATE_WRITE);
    madvise(base + record->header->text.at, TEXT_TOUCHED, MADV_POPULATE_WRITE);
#endif
}

/* Make `recorder` the one that handlers read. False: another one is. What a
 * fork of a recorded process has of its parent's recorder does not count. */
static bool
take_process(struct cl_recorder *recorder)
{
    struct cl_recorder *other = atomic_load(&handlers.active);
    if (other != NULL && other->record.header->pid == getpid()) {
        return false;
    }
    if (other != NULL && other->record.header->mode == CL_RECORD_PROTECT) {
        cl_guard_clear(&other->record);
    }
    if (handlers.pid != getpid()) {
        handlers.pid = getpid();
        atomic_store(&handlers.inside, 0);
    }
    return atomic_compare_exchange_strong(&handlers.active, &other, recorder);
}

/* Another thread's handler may have begun with this recorder. It waits for
 * nobody, but perhaps for a processor. */
static void
leave_process(void)
{
    static const struct timespec a_moment = {.tv_nsec = 20000};
    atomic_store(&handlers.active, NULL);
    while (atomic_load(&handlers.inside) != 0) {
        nanosleep(&a_moment, NULL);
    }
}

static void
stop(struct cl_recorder *recorder)
{
    cl_events_switch(&recorder->signals, false);
    cl_events_switch(&recorder->rings, false);
    stop_drainer(recorder);
    drain(recorder);
    if (recorder->record.header->mode == CL_RECORD_PROTECT) {
        cl_guard_clear(&recorder->record);
    }
    leave_process();
    recorder->enabled = false;
    cl_events_close(&recorder->signals);
    cl_events_close(&recorder->rings);
    give_stack_back(recorder);
}

int
cl_recorder_prepare(struct cl_recorder **out, enum cl_record_mode mode,
                    const char *path, cl_frame_reader reader)
{
    struct cl_recorder *recorder =
        mmap(NULL, sizeof *recorder, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (recorder == MAP_FAILED) {
        return -errno;
    }
    int err = cl_record_create(&recorder->record, mode, path);
    if (err != 0) {
        munmap(recorder, sizeof *recorder);
        return err;
    }
    recorder->reader = reader;
    *out = recorder;
    return 0;
}

int
cl_recorder_enable(struct cl_recorder *recorder)
{
    struct cl_record_header *header = recorder->record.header;
    int err = 0;
    if (!take_process(recorder)) {
        return -EBUSY;
    }
    recorder->enabled = true;
    header->pid = getpid();
    header->parent = getppid();
    touch(&recorder->record);
    switch ((enum cl_record_mode)header->mode) {
    case CL_RECORD_PAGES:
        break;
    case CL_RECORD_ADDRESSES:
        err = open_rings(recorder);
        break;
    case CL_RECORD_LINES:
        err = open_signals(recorder);
        break;
    case CL_RECORD_PROTECT:
        err = take_signal(SIGSEGV, on_segv, &handlers.fault,
                          &handlers.fault_ours);
        break;
    }
    if (err == 0 && header->mode >= CL_RECORD_LINES) {
        err = take_stack(recorder);
    }
    /* What was copied up to here, by the steps above too, is not inherited. */
    if (err == 0) {
        err = cl_record_arm(&recorder->record);
    }
    if (err == 0 && header->mode == CL_RECORD_PROTECT) {
        err = cl_guard_set(&recorder->record);
    }
    if (err == 0) {
        atomic_store(&header->state, CL_RECORD_ON);
        cl_events_switch(&recorder->rings, true);
        cl_events_switch(&recorder->signals, true);
    } else {
        stop(recorder);
    }
    return err;
}

int
cl_recorder_disable(struct cl_recorder *recorder)
{
    struct cl_record_header *header = recorder->record.header;
    /* A process forked from the recorded one has only a copy of it. */
    if (!recorder->enabled || header->pid != getpid()) {
        return 0;
    }
    if ((header->mode == CL_RECORD_LINES && !still_ours(SIGTRAP, on_trap)) ||
        (header->mode == CL_RECORD_PROTECT && !still_ours(SIGSEGV, on_segv))) {
        cl_record_count(&recorder->record, CL_COUNT_REPLACED, 1);
    }
    stop(recorder);
    int err = cl_record_keep_maps(&recorder->record, &header->maps_stop,
                                  &header->maps_stop_len);
    atomic_store(&header->state, CL_RECORD_OFF);
    return err;
}

void
cl_recorder_release(struct cl_recorder *recorder)
{
    cl_recorder_disable(recorder);
    if (recorder->enabled) {
        /* In a fork of the recorded process: its handlers may still look. */
        return;
    }
    cl_record_release(&recorder->record);
    munmap(recorder, sizeof *recorder);
}

struct cl_record *
cl_recorder_record(struct cl_recorder *recorder)
{
    return &recorder->record;
}
