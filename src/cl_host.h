/* What this machine allows, found out by doing it.
 *
 * Each probe runs in a process of its own, made for it and reaped before the
 * answer is given, so that a signal, a crash, a hang or a seccomp filter that
 * kills is an answer too. Nothing outlives it: no descriptor, no zombie, no
 * signal handler, no SIGCHLD. */
#ifndef COWLAB_CL_HOST_H
#define COWLAB_CL_HOST_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* X(function and enum, Python name) */
#define CL_PROBES(X)                                                          \
    X(pagemap, "pagemap")                                                     \
    X(frame_numbers, "frame_numbers")                                         \
    X(pagemap_scan, "pagemap_scan")                                           \
    X(smaps_rollup, "smaps_rollup")                                           \
    X(soft_dirty, "soft_dirty")                                               \
    X(clear_refs, "clear_refs")                                               \
    X(thp, "thp")                                                             \
    X(copy_unit, "copy_unit")                                                 \
    X(mprotect, "mprotect")                                                   \
    X(process_vm_readv, "process_vm_readv")                                   \
    X(child_mem, "child_mem")                                                 \
    X(pidfd, "pidfd")                                                         \
    X(ksm_merge, "ksm_merge")                                                 \
    X(perf_fault_address, "perf_fault_address")                               \
    X(perf_sigtrap, "perf_sigtrap")                                           \
    X(perf_kernel_writes, "perf_kernel_writes")                               \
    X(userfaultfd, "userfaultfd")                                             \
    X(userfaultfd_async, "userfaultfd_async")

enum cl_probe_id {
#define X(id, name) CL_PROBE_##id,
    CL_PROBES(X)
#undef X
        CL_NPROBES
};

enum cl_answer { CL_NO = 0, CL_YES = 1, CL_UNKNOWN = 2 };

/* What a probe found. */
struct cl_finding {
    int32_t answer;    /* enum cl_answer */
    int32_t err;       /* errno of the step that failed, or 0 */
    int32_t signal;    /* that ended the probe's process, or 0 */
    int32_t timed_out; /* it hung, and was killed */
    int32_t finished;  /* it reached its end */
    uint64_t value;    /* what the probe measures; see each */
    uint64_t detail;
    const char *step; /* what was done last; static */
};

/* Run one probe. 0, or -errno where no process could be made for it. */
int cl_probe(enum cl_probe_id which, int timeout_ms, struct cl_finding *out);

/* The rest is for the probes themselves. */

/* What a probe has to work with. It says what it is about to do in
 * finding->step, and returns an enum cl_answer or the -errno of that step. */
struct cl_stage {
    struct cl_finding *finding; /* shared with the caller and all twins */
    unsigned char *page;        /* CL_STAGE_PAGES private pages, written by the
                                 * caller before the fork: inherited */
    size_t page_size;
};

#define CL_STAGE_PAGES 4

/* A process like the caller's, which dies with its maker and does not raise
 * SIGCHLD. As fork(2), but -errno; async-signal-safe. */
pid_t cl_twin(void);

/* cl_twin() that only sleeps. Its pid or -errno. */
pid_t cl_twin_asleep(void);

/* Kill a twin and reap it. */
void cl_twin_end(pid_t pid);

/* The page map's entry for the page at `address` of `pid` (0: the caller). 0
 * or -errno. */
int cl_stage_entry(pid_t pid, const void *address, uint64_t *entry);

#define X(id, name) int cl_probe_##id(const struct cl_stage *stage);
CL_PROBES(X)
#undef X

#endif
