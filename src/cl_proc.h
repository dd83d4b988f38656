/* /proc files, read whole into memory of our own; never the Python heap. */
#ifndef COWLAB_CL_PROC_H
#define COWLAB_CL_PROC_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Bytes in an anonymous mapping that grows. Start from {0}. */
struct cl_buf {
    char *data;
    size_t len;
    size_t cap;
};

/* Make room for `need` bytes in all. 0 or -ENOMEM. */
int cl_buf_reserve(struct cl_buf *buf, size_t need);

/* Unmap; leaves {0}. */
void cl_buf_release(struct cl_buf *buf);

/* Everywhere below pid 0 is this process, by way of /proc/self. */

/* Replace what is in `buf` by the whole of /proc/PID/NAME. 0 or -errno; a
 * process that ends between open and the last read is -ESRCH, one that calls
 * exec meanwhile is read again. A process without memory of its own (a zombie,
 * a kernel thread) gives 0 bytes of maps and smaps: see cl_proc_state. */
int cl_proc_read(pid_t pid, const char *name, struct cl_buf *buf);

/* The same for a file that the kernel writes as one record (stat, status,
 * smaps_rollup), into memory of the caller's. The number of bytes, -E2BIG
 * where `size` is too small, or another -errno. */
ssize_t cl_proc_read_small(pid_t pid, const char *name, char *to, size_t size);

/* Open /proc/PID/NAME. The descriptor or -errno; close-on-exec. */
int cl_proc_open(pid_t pid, const char *name, int flags);

/* Read exactly `len` bytes of PID's memory at `addr` through `fd`, an open
 * /proc/PID/mem. 0, -EFAULT where it is not mapped, -ESRCH where the process
 * has ended, or another -errno. */
int cl_mem_read(int fd, uint64_t addr, void *to, size_t len);

/* Why there was nothing to read. */
enum cl_proc_state {
    CL_PROC_ALIVE,
    CL_PROC_ZOMBIE,     /* ended or ending, not yet waited for */
    CL_PROC_LEADERLESS, /* its main thread ended, other threads go on */
    CL_PROC_KERNEL,     /* a kernel thread */
    CL_PROC_GONE,
    CL_PROC_HIDDEN,  /* it lives, /proc does not show it (hidepid) */
    CL_PROC_NO_PROC, /* no /proc is mounted here */
};

/* A thread of PID, not the main one, that has not ended; 0: there is none. */
pid_t cl_proc_other_thread(pid_t pid);

/* What /proc/PID/stat and kill(2) say about PID. */
enum cl_proc_state cl_proc_state(pid_t pid);

#endif
