/* /proc/PID/stat and status, parsed. No I/O here. */
#ifndef COWLAB_CL_STAT_H
#define COWLAB_CL_STAT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The counters of stat that a measurement needs. comm may hold any byte. */
struct cl_stat {
    int64_t pid, ppid, pgrp, session;
    char state; /* R S D Z T t X I ... */
    const char *comm;
    size_t comm_len;
    uint64_t flags; /* the kernel's PF_*, CL_PF_* below */
    uint64_t minor_faults, child_minor_faults;
    uint64_t major_faults, child_major_faults;
    uint64_t user_ticks, system_ticks; /* of sysconf(_SC_CLK_TCK) */
    int64_t threads;
    uint64_t start_ticks;  /* since boot */
    uint64_t virtual_size; /* bytes */
    int64_t rss_pages;     /* approximate; smaps_rollup is exact */
};

#define CL_PF_EXITING 0x4u
#define CL_PF_KTHREAD 0x200000u

/* 0, -EBADMSG not a stat line, -ENODATA it ends early, -ERANGE a number beyond
 * 63 bits. */
int cl_stat_parse(const char *text, size_t len, struct cl_stat *out);

/* "Vm...: N kB" of status, in bytes, in the order of cowlab/_status.py too.
 * X(enum, kernel name, Python name). */
#define CL_STATUS_FIELDS(X)                                                   \
    X(VM_PEAK, "VmPeak", "vm_peak")                                           \
    X(VM_SIZE, "VmSize", "vm_size")                                           \
    X(VM_LCK, "VmLck", "vm_lck")                                              \
    X(VM_PIN, "VmPin", "vm_pin")                                              \
    X(VM_HWM, "VmHWM", "vm_hwm")                                              \
    X(VM_RSS, "VmRSS", "vm_rss")                                              \
    X(RSS_ANON, "RssAnon", "rss_anon")                                        \
    X(RSS_FILE, "RssFile", "rss_file")                                        \
    X(RSS_SHMEM, "RssShmem", "rss_shmem")                                     \
    X(VM_DATA, "VmData", "vm_data")                                           \
    X(VM_STK, "VmStk", "vm_stk")                                              \
    X(VM_EXE, "VmExe", "vm_exe")                                              \
    X(VM_LIB, "VmLib", "vm_lib")                                              \
    X(VM_PTE, "VmPTE", "vm_pte")                                              \
    X(VM_SWAP, "VmSwap", "vm_swap")                                           \
    X(HUGETLB_PAGES, "HugetlbPages", "hugetlb_pages")

enum cl_status_field {
#define X(name, kernel, python) CL_STATUS_##name,
    CL_STATUS_FIELDS(X)
#undef X
        CL_STATUS_NFIELDS
};

struct cl_status {
    uint32_t present; /* bit i: field i was there (a kernel thread has none) */
    uint64_t bytes[CL_STATUS_NFIELDS];
    const char *name; /* escaped as the kernel writes it */
    size_t name_len;
    char state;
    int64_t tgid, pid, ppid, tracer_pid;
    int64_t threads;
    uint64_t uid[4], gid[4]; /* real, effective, saved, file system */
};

/* 0, -EBADMSG not status, -ENODATA it ends early, -ERANGE a value beyond 64
 * bits of bytes. */
int cl_status_parse(const char *text, size_t len, struct cl_status *out);

#endif
