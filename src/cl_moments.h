/* The three moments of one measured child - fork, rest, done - read from
 * outside while it is blocked, and the accounts between them. */
#ifndef COWLAB_CL_MOMENTS_H
#define COWLAB_CL_MOMENTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cl_account.h"
#include "cl_child.h"
#include "cl_smaps.h"

struct cl_rollup {
    uint64_t rss, pss, private_clean, private_dirty, private_hugetlb;
    uint64_t anonymous, swap, anon_huge_pages, ksm; /* bytes */
};

struct cl_faults_count {
    uint64_t minor, major;
};

struct cl_moments {
    struct cl_pages fork; /* of the witness of the fork */
    struct cl_pages rest_witnessed, rest_alone;
    struct cl_pages open; /* inherited and undecided at rest */
    struct cl_pages done_witnessed, done_alone;
    struct cl_rollup before, after;
    struct cl_faults_count at_rest, at_go, at_done;
    struct cl_tally fork_account[CL_NKINDS], task_account[CL_NKINDS];
    int64_t zero_untold;  /* pages that may be zero pages, not told apart */
    int64_t reading_time; /* nanoseconds spent in page-map reads */
    int64_t threads;      /* of the child, at rest */
    uint64_t page_map_reads;
};

/* smaps_rollup of a process. 0 or -errno. */
int cl_rollup_read(pid_t pid, struct cl_rollup *rollup);

/* Bytes of this process that the readings take. */
uint64_t cl_moments_size(const struct cl_moments *m);

/* Each reads one moment of `pid` and returns 0 or -errno. The order is theirs.
 */

/* The heap as it was at the fork, of the first witness, which answers
 * questions about pools (cl_is_pool_header). */
int cl_moments_fork(struct cl_moments *m, const struct cl_process *witness,
                    struct cl_question *question);
bool cl_is_pool_header(const void *at);
/* The child at rest, its witness alive; then with every witness gone. The
 * second makes the fork's own account. */
int cl_moments_rest_witnessed(struct cl_moments *m, pid_t pid);
int cl_moments_rest_alone(struct cl_moments *m, pid_t pid);
/* Right before the task. */
int cl_moments_go(struct cl_moments *m, pid_t pid);
/* The task has ended: the second witness alive; then gone. The second makes
 * the task's account. */
int cl_moments_done_witnessed(struct cl_moments *m, pid_t pid);
int cl_moments_done_alone(struct cl_moments *m, pid_t pid);

/* The addresses of the writable private pages that the child has written since
 * the fork: at most `max` into `addresses`. The number there are. */
size_t cl_moments_written(const struct cl_moments *m, uint64_t *addresses,
                          size_t max);

void cl_moments_release(struct cl_moments *m);

#endif
