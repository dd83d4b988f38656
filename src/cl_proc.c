/* /proc files, read whole. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cl_proc.h"
#include "cl_stat.h"

/* The kernel hands out smaps in pieces of about a page, so that a larger
 * buffer saves mremap calls only. */
#define FIRST_CAPACITY (64u * 1024)

#define EXEC_RETRIES 3

int
cl_buf_reserve(struct cl_buf *buf, size_t need)
{
    if (need <= buf->cap) {
        return 0;
    }
    size_t cap = buf->cap == 0 ? FIRST_CAPACITY : buf->cap;
    while (cap < need) {
        if (cap > SIZE_MAX / 2) {
            return -ENOMEM;
        }
        cap *= 2;
    }
    void *data;
    if (buf->data == NULL) {
        data = mmap(NULL, cap, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    } else {
        data = mremap(buf->data, buf->cap, cap, MREMAP_MAYMOVE);
    }
    if (data == MAP_FAILED) {
        return -ENOMEM;
    }
    buf->data = data;
    buf->cap = cap;
    return 0;
}

void
cl_buf_release(struct cl_buf *buf)
{
    if (buf->data != NULL) {
        munmap(buf->data, buf->cap);
    }
    *buf = (struct cl_buf){0};
}

int
cl_proc_open(pid_t pid, const char *name, int flags)
{
    char path[128];
    int len = pid == 0 ? snprintf(path, sizeof path, "/proc/self/%s", name)
                       : snprintf(path, sizeof path, "/proc/%ld/%s", (long)pid,
                                  name);
    if (len < 0 || (size_t)len >= sizeof path) {
        return -ENAMETOOLONG;
    }
    int fd;
    do {
        fd = open(path, flags | O_CLOEXEC);
    } while (fd < 0 && errno == EINTR);
    return fd < 0 ? -errno : fd;
}

static ssize_t
read_retrying(int fd, char *to, size_t size)
{
    ssize_t got;
    do {
        got = read(fd, to, size);
    } while (got < 0 && errno == EINTR);
    return got < 0 ? -errno : got;
}

static int
read_to_end(int fd, struct cl_buf *buf)
{
    for (;;) {
        int err = cl_buf_reserve(buf, buf->len + 1);
        if (err < 0) {
            return err;
        }
        ssize_t got =
            read_retrying(fd, buf->data + buf->len, buf->cap - buf->len);
        if (got <= 0) {
            return (int)got;
        }
        buf->len += (size_t)got;
    }
}

/* A memory file ends cleanly after the current record when its process is
 * killed. Its memory is pinned by the descriptor but not kept alive, so that
 * the first byte can be read again only while it is there. */
static bool
still_readable(int fd)
{
    char byte;
    ssize_t got;
    do {
        got = pread(fd, &byte, 1, 0);
    } while (got < 0 && errno == EINTR);
    return got == 1;
}

static ssize_t
read_small_once(pid_t pid, const char *name, char *to, size_t size)
{
    int fd = cl_proc_open(pid, name, O_RDONLY);
    if (fd < 0) {
        return fd;
    }
    size_t len = 0;
    ssize_t got;
    do {
        got = read_retrying(fd, to + len, size - len);
        if (got > 0) {
            len += (size_t)got;
        }
    } while (got > 0 && len < size);
    close(fd);
    if (got < 0) {
        return got;
    }
    return len == size ? -E2BIG : (ssize_t)len;
}

int
cl_mem_read(int fd, uint64_t addr, void *to, size_t len)
{
    char *at = to;
    while (len > 0) {
        if (addr > INT64_MAX) {
            return -EFAULT;
        }
        ssize_t got = pread(fd, at, len, (off_t)addr);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return errno == EIO ? -EFAULT : -errno;
        }
        if (got == 0) {
            return -ESRCH;
        }
        at += got;
        addr += (uint64_t)got;
        len -= (size_t)got;
    }
    return 0;
}

/* Parse /proc/PID/FILE, a stat. The comm in `out` is not for use. */
static int
read_stat(pid_t pid, const char *file, struct cl_stat *out)
{
    char text[4096];
    ssize_t len = read_small_once(pid, file, text, sizeof text);
    int err = len < 0 ? (int)len : cl_stat_parse(text, (size_t)len, out);
    out->comm = NULL;
    return err;
}

/* Memory goes before the state becomes Z. */
static bool
has_ended(const struct cl_stat *stat)
{
    return stat->state == 'Z' || stat->state == 'X' || stat->state == 'x' ||
           (stat->flags & CL_PF_EXITING);
}

pid_t
cl_proc_other_thread(pid_t pid)
{
    pid_t found = 0;
    int fd = cl_proc_open(pid, "task", O_RDONLY | O_DIRECTORY);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (dir == NULL) {
        if (fd >= 0) {
            close(fd);
        }
        return 0;
    }
    struct dirent *entry;
    while (found == 0 && (entry = readdir(dir)) != NULL) {
        char file[64];
        struct cl_stat stat;
        long tid = strtol(entry->d_name, NULL, 10);
        snprintf(file, sizeof file, "task/%ld/stat", tid);
        if (tid > 0 && read_stat(pid, file, &stat) == 0 && !has_ended(&stat)) {
            found = (pid_t)tid;
        }
    }
    closedir(dir);
    return found;
}

static enum cl_proc_state
state_unseen(pid_t pid)
{
    if (access("/proc/self/stat", F_OK) < 0) {
        return CL_PROC_NO_PROC;
    }
    if (pid > 0 && (kill(pid, 0) == 0 || errno == EPERM)) {
        return CL_PROC_HIDDEN;
    }
    return CL_PROC_GONE;
}

enum cl_proc_state
cl_proc_state(pid_t pid)
{
    struct cl_stat stat;
    int err = read_stat(pid, "stat", &stat);
    if (err < 0) {
        return err == -ESRCH ? CL_PROC_GONE : state_unseen(pid);
    }
    if (stat.flags & CL_PF_KTHREAD) {
        return CL_PROC_KERNEL;
    }
    if (!has_ended(&stat)) {
        return CL_PROC_ALIVE;
    }
    return stat.threads > 1 && cl_proc_other_thread(pid) != 0
               ? CL_PROC_LEADERLESS
               : CL_PROC_ZOMBIE;
}

/* exec gives a process new memory; what was opened before is then as if the
 * process had ended, though it has not. */
int
cl_proc_read(pid_t pid, const char *name, struct cl_buf *buf)
{
    for (int attempt = 0; attempt < EXEC_RETRIES; attempt++) {
        buf->len = 0;
        int fd = cl_proc_open(pid, name, O_RDONLY);
        if (fd < 0) {
            return fd == -ENOENT && attempt > 0 ? -ESRCH : fd;
        }
        int err = read_to_end(fd, buf);
        bool whole = err == 0 && buf->len > 0 && still_readable(fd);
        close(fd);
        if (whole || (err < 0 && err != -ESRCH)) {
            return err;
        }
        if (cl_proc_state(pid) != CL_PROC_ALIVE) {
            /* Nothing at the first look: it never had memory here. */
            return attempt == 0 && buf->len == 0 ? err : -ESRCH;
        }
    }
    return buf->len == 0 ? 0 : -ESRCH;
}

ssize_t
cl_proc_read_small(pid_t pid, const char *name, char *to, size_t size)
{
    ssize_t len = read_small_once(pid, name, to, size);
    for (int attempt = 1; attempt < EXEC_RETRIES && len == -ESRCH &&
                          cl_proc_state(pid) == CL_PROC_ALIVE;
         attempt++) {
        len = read_small_once(pid, name, to, size);
    }
    return len;
}
