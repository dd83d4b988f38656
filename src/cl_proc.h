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

/* Replace what is in `buf` by the whole of /proc/PID/NAME. 0 or -errno; a
 * process that ends between open and the last read is -ESRCH. */
int cl_proc_read(pid_t pid, const char *name, struct cl_buf *buf);

/* Open /proc/PID/NAME. The descriptor or -errno; close-on-exec. */
int cl_proc_open(pid_t pid, const char *name, int flags);

/* Read exactly `len` bytes of PID's memory at `addr` through `fd`, an open
 * /proc/PID/mem. 0, -EFAULT where it is not mapped, or another -errno. */
int cl_mem_read(int fd, uint64_t addr, void *to, size_t len);

#endif
